"""The command that plans communication rounds and privacy before training."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import OUTPUT, WORLD, Output, World, app, numbers, show


@app.command
def rounds(
    algorithm: str = "rtfa",
    /,
    *,
    world: World = WORLD,
    rounds: str = "400",
    local_steps: str = "20",
    server_step: str = "0.1",
    cohort: str = "20",
    mixing: str = "1",
    clients: str | None = None,
    dimension: int | None = None,
    max_bytes: float | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float = 1e-6,
    clip: float | None = None,
    sampling: Annotated[str, Parameter(help="poisson, or fixed for cohorts of a fixed size.")] = "poisson",
    ridge: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """The loss over communication rounds, predicted: local steps, cohorts, bytes and privacy.

    Numbers separated by commas are all tried, two lists in every combination. For example:
    fedasym rounds rtfa --radius 1 --noise 0.5 --aspect 2 --norm 2 --local-steps 1,5,20 --cohort 10,50

    Parameters
    ----------
    algorithm
        An algorithm that shares a model.
    rounds
        Communication rounds.
    local_steps
        Steps that a drawn client takes; inf for local training to convergence.
    server_step
        Size of those steps.
    cohort
        Clients drawn in a round.
    mixing
        How far the server moves towards the clients' average.
    clients
        How many clients there are; endlessly many by default.
    dimension
        How many unknowns are sent; bytes and privacy depend on it.
    max_bytes
        A budget of bytes; every setting gets as many rounds of it as it can.
    epsilon
        A privacy budget at delta, for all rounds together.
    noise_multiplier
        Instead of epsilon: the noise, in units of the clip.
    delta
        Of the privacy budget; well below 1/clients.
    clip
        Length to which updates are cut; the best by default.
    ridge
        Of the client stage, where it has one; the best by default.
    """
    given = {"rounds": rounds, "local_steps": local_steps, "server_step": server_step, "cohort": cohort}
    given |= {"mixing": mixing} | ({} if clients is None else {"clients": clients})
    budget = None
    if epsilon is not None or noise_multiplier is not None:
        budget = fa.Privacy(epsilon, delta, clip, noise_multiplier, sampling)  # type: ignore[arg-type]
    elif clip is not None:
        raise fa.InvalidInput("clip is given without noise: give --epsilon or --noise-multiplier as well")
    lists = {name: numbers(name, text) for name, text in given.items()}
    settings = spread_over_axes({name: values for name, values in lists.items() if values is not None})
    result = fa.rounds(
        world.population(), algorithm, **settings, dimension=dimension, max_bytes=max_bytes, privacy=budget, ridge=ridge
    )
    show(result, output)


def spread_over_axes(lists: dict[str, list[float]]) -> dict[str, Any]:
    """Lists of several numbers along axes of their own; a single number as it is."""
    import numpy as np

    several = [name for name, values in lists.items() if len(values) > 1]
    shapes = {name: [-1 if other == name else 1 for other in several] for name in several}
    return {name: np.reshape(values, shapes[name]) if name in several else values[0] for name, values in lists.items()}
