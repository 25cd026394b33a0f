"""The commands of the theory lens."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import OUTPUT, Names, Output, app, show
from fedasym.cli.arguments import names, numbers, parse_vary
from fedasym.cli.world import WORLD, Member, World


@app.command
def predict(
    *,
    world: World = WORLD,
    algorithms: Names = None,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """Test loss (with --task classification, accuracy) of every algorithm on a population, the winner marked.

    Parameters
    ----------
    ridge
        For the methods that have one; each gets its best by default.
    clients
        How many clients; infinitely many by default.
    maml_step
        Inner step of MAML, 0.1 by default; it matters with finitely many clients.
    """
    table = fa.predict(world.population(), names(algorithms), ridge=ridge, clients=clients, member=member, maml_step=maml_step)
    show(table, output)


@app.command
def compare(
    first: str,
    second: str,
    /,
    *,
    vary: list[str],
    world: World = WORLD,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """Who beats whom over one or two parameters, and the boundary between them.

    Parameters
    ----------
    first
        An algorithm.
    second
        Another algorithm.
    vary
        A parameter and its range, such as noise=0:2:200 (start:stop:count) or aspect=1.5,2,4; give it once or twice.
    ridge
        For the methods that have one; each gets its best by default.
    clients
        How many clients; infinitely many by default.
    maml_step
        Inner step of MAML, 0.1 by default; it matters with finitely many clients.
    """
    given = {"ridge": ridge, "clients": clients, "maml_step": maml_step, "member": member}
    options = {name: value for name, value in given.items() if value is not None}
    varied = parse_vary(vary)
    show(fa.compare(first, second, world.population(varied), vary=varied, **options), output)


@app.command
def path(
    *,
    world: World = WORLD,
    step: float | None = None,
    steps: Annotated[str | None, Parameter(help="Numbers of gradient steps, separated by commas.")] = None,
    flow: Annotated[bool, Parameter(negative="", help="Gradient flow instead of steps.")] = False,
    times: Annotated[str | None, Parameter(help="Times of gradient flow (step x steps), separated by commas.")] = None,
    clients: float | None = None,
    member: Member = True,
    output: Output = OUTPUT,
) -> None:
    """The loss (with --task classification, the accuracy) along early-stopped fine-tuning, and where to stop.

    Parameters
    ----------
    step
        Size of a gradient step; half of the largest stable one by default.
    clients
        How many clients; infinitely many by default.
    """
    result = fa.fine_tuning(
        world.population(),
        step=step,
        steps=numbers("steps", steps),
        flow=flow,
        times=numbers("times", times),
        clients=clients,
        member=member,
    )
    show(result, output)
