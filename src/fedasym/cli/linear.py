"""The command of the linear lens."""

from __future__ import annotations

import fedasym as fa
from fedasym.cli.app import LINEAR, OUTPUT, Names, Output, app, show
from fedasym.cli.arguments import names, parse_vary
from fedasym.cli.progress import show_progress
from fedasym.cli.where import HERE, Where, answers_apart
from fedasym.cli.world import WORLD, Member, World


@app.command(group=LINEAR)
def simulate(
    *,
    world: World = WORLD,
    dimension: int = 200,
    clients: int | None = None,
    trials: int = 4,
    seed: int = 0,
    algorithms: Names = None,
    member: Member = True,
    ridge: float | None = None,
    maml_step: float | None = None,
    features: str = "gaussian",
    mode: str = "expectation",
    vary: list[str] | None = None,
    save: str | None = None,
    where: Where = HERE,
    output: Output = OUTPUT,
) -> None:
    """Draw clients and compute (in classification, fit) every algorithm on them, beside what predict says.

    Parameters
    ----------
    dimension
        Features (d); a client has d/aspect samples.
    clients
        How many clients are drawn: 300 by default. In classification the default is the limit of infinitely many.
    trials
        How many times everything is drawn anew.
    seed
        Same seed, same numbers.
    ridge
        For the methods that have one; each gets the best that predict finds by default.
    maml_step
        Inner step of MAML.
    features
        Law of the features: gaussian, rademacher or student.
    mode
        expectation (exact given the features) or sampling (draw labels, fit, test on held-out samples).
    vary
        One parameter and its values, such as clients=2,5,10,50 or noise=0:2:9.
    save
        Keep finished trials in this file; the same command goes on where it was interrupted.
    """
    varied, on = parse_vary(vary) if vary else None, where.runtime()
    kept = f"finished trials are in {save}; the same command goes on from there" if save else "give --save to keep trials"
    with show_progress(kept) as progress, answers_apart():
        result = fa.simulate(
            world.population(varied),
            dimension=dimension,
            clients=clients,
            trials=trials,
            seed=seed,
            algorithms=names(algorithms),
            member=member,
            ridge=ridge,
            maml_step=maml_step,
            features=features,
            mode=mode,
            vary=varied,
            save=save,
            progress=progress,
            on=on,
        )
    show(result, output)
