"""The commands that need no data: predict, compare, path, rounds, privacy, simulate."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli import (
    HERE,
    LINEAR,
    OUTPUT,
    PRIVACY,
    WORLD,
    Member,
    Names,
    Output,
    PrivacyOptions,
    Where,
    WorldOptions,
    app,
    names,
    numbers,
    parse_vary,
    redirect_answers,
    show,
    show_progress,
    spread_over_axes,
)


@app.command
def predict(
    *,
    world: WorldOptions = WORLD,
    algorithms: Names = None,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float | None = None,
    rounds: int | None = None,
    local_steps: float | None = None,
    server_step: float | None = None,
    cohort: int | None = None,
    mixing: float | None = None,
    dimension: int | None = None,
    privacy: PrivacyOptions = PRIVACY,
    output: Output = OUTPUT,
) -> None:
    """Test loss (with --task classification, accuracy) of every algorithm on a population, the
    winner marked.

    Example: fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2 --plot losses.png

    Parameters
    ----------
    ridge
        Ridge of the methods that have one; by default each gets its best.
    clients
        How many clients; infinitely many by default.
    maml_step
        Inner step of MAML, 0.1 by default; it matters with finitely many clients.
    rounds
        After so many communication rounds, as train runs them; at the optimum by default.
    local_steps
        With rounds: steps that a drawn client takes, 20 by default.
    server_step
        With rounds: size of those steps, 0.1 by default.
    cohort
        With rounds: clients drawn in a round, 20 by default.
    mixing
        With rounds: how far the server moves towards the clients' average, 1 by default.
    dimension
        How many unknowns are sent: privacy depends on it.
    """
    table = fa.predict(
        world.population(),
        names(algorithms),
        ridge=ridge,
        clients=clients,
        member=member,
        maml_step=maml_step,
        rounds=rounds,
        local_steps=local_steps,
        server_step=server_step,
        cohort=cohort,
        mixing=mixing,
        dimension=dimension,
        privacy=privacy.budget(),
    )
    show(table, output)


@app.command
def compare(
    first: str,
    second: str,
    /,
    *,
    vary: list[str],
    world: WorldOptions = WORLD,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """Who beats whom over one or two parameters, and the boundary between them.

    Example: fedasym compare ftfa fedavg --radius 1 --vary noise=0:2:200 --vary aspect=1.1:10:200

    Parameters
    ----------
    first
        An algorithm.
    second
        Another algorithm.
    vary
        A parameter and its range, such as noise=0:2:200 (start:stop:count) or aspect=1.5,2,4; give
        it once or twice.
    ridge
        Ridge of the methods that have one; by default each gets its best.
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
    algorithm: str = "fedavg",
    /,
    *,
    world: WorldOptions = WORLD,
    step: float | None = None,
    steps: Annotated[
        str | None, Parameter(help="Numbers of gradient steps, separated by commas.")
    ] = None,
    flow: Annotated[bool, Parameter(help="Gradient flow instead of steps.")] = False,
    times: Annotated[
        str | None, Parameter(help="Times of gradient flow (step x steps), separated by commas.")
    ] = None,
    clients: float | None = None,
    member: Member = True,
    output: Output = OUTPUT,
) -> None:
    """The loss (with --task classification, the accuracy) along early-stopped fine-tuning, and
    where to stop.

    Example: fedasym path --radius 1 --noise 0.7 --aspect 2 --flow --plot path.png

    Parameters
    ----------
    algorithm
        Whose shared model the steps start from; with local, from nothing.
    step
        Size of a gradient step; half of the largest stable one by default.
    clients
        How many clients; infinitely many by default.
    """
    result = fa.fine_tuning(
        world.population(),
        algorithm,
        step=step,
        steps=numbers("steps", steps),
        flow=flow,
        times=numbers("times", times),
        clients=clients,
        member=member,
    )
    show(result, output)


@app.command(group=LINEAR)
def simulate(
    *,
    world: WorldOptions = WORLD,
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
    """Draw clients and compute (in classification, fit) every algorithm on them, beside what
    predict says.

    Example: fedasym simulate --radius 1 --noise 0.5 --aspect 2 --dimension 100 --clients 10

    Parameters
    ----------
    dimension
        Features (d); a client has d/aspect samples.
    clients
        How many clients are drawn: 300 by default. In classification the default is the limit of
        infinitely many.
    trials
        Number of independent repetitions.
    seed
        Same seed, same numbers.
    ridge
        Ridge of the methods that have one; by default each gets the best that predict finds.
    maml_step
        Inner step of MAML.
    features
        Law of the features: gaussian, rademacher or student.
    mode
        expectation (exact given the features) or sampling (draw labels, fit, test on held-out
        samples).
    vary
        One parameter and its values, such as clients=2,5,10,50 or noise=0:2:9.
    save
        Keep finished trials in this file; the same command goes on where it was interrupted.
    """
    varied = parse_vary(vary) if vary else None
    on = where.runtime()
    kept = (
        f"finished trials are in {save}; the same command goes on from there"
        if save
        else "give --save to keep trials"
    )
    with show_progress(kept) as progress, redirect_answers():
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


@app.command
def rounds(
    algorithm: str = "rtfa",
    /,
    *,
    world: WorldOptions = WORLD,
    rounds: str = "400",
    local_steps: str = "20",
    server_step: str = "0.1",
    cohort: str = "20",
    mixing: str = "1",
    clients: str | None = None,
    dimension: int | None = None,
    max_bytes: float | None = None,
    privacy: PrivacyOptions = PRIVACY,
    ridge: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """The loss over communication rounds, predicted: local steps, cohorts, bytes and privacy.

    Numbers separated by commas are all tried, two lists in every combination.

    Example: fedasym rounds rtfa --radius 1 --noise 0.5 --aspect 2 --norm 2 --local-steps 1,5,20

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
        How many clients there are; infinitely many by default.
    dimension
        How many unknowns are sent; bytes and privacy depend on it.
    max_bytes
        A budget of bytes; every setting gets as many rounds as it pays for.
    ridge
        Ridge of the client stage, where it has one; the best by default.
    """
    given = {
        "rounds": rounds,
        "local_steps": local_steps,
        "server_step": server_step,
        "cohort": cohort,
    }
    given |= {"mixing": mixing} | ({} if clients is None else {"clients": clients})
    lists = {name: numbers(name, text) for name, text in given.items()}
    settings = spread_over_axes(
        {name: values for name, values in lists.items() if values is not None}
    )
    result = fa.rounds(
        world.population(),
        algorithm,
        **settings,
        dimension=dimension,
        max_bytes=max_bytes,
        privacy=privacy.budget(),
        ridge=ridge,
    )
    show(result, output)


@app.command
def privacy(
    algorithm: str = "rtfa",
    /,
    *,
    dimension: int,
    world: WorldOptions = WORLD,
    epsilon: str = "0.5,1,2,4,8",
    clients: str = "100,300,1000,3000,10000",
    delta: float = 1e-6,
    sampling: str = "poisson",
    rounds: str = "2,4,8,16,32,64,128",
    cohort: str | None = None,
    local_steps: str = "20",
    server_step: str = "0.1",
    margin: float = 0.05,
    output: Output = OUTPUT,
) -> None:
    """What privacy costs, predicted: loss over budgets and numbers of clients, and how many
    clients it takes for sharing to pay.

    For every cell the best of the rounds, cohorts and steps that are listed is taken, with the best
    clip.

    Example: fedasym privacy rtfa --radius 1 --noise 0.5 --aspect 2 --norm 2 --dimension 100

    Parameters
    ----------
    algorithm
        An algorithm that shares a model.
    dimension
        How many unknowns are sent.
    epsilon
        Privacy budgets, separated by commas.
    clients
        Numbers of clients, separated by commas.
    delta
        Failure probability of the privacy budgets; well below 1/clients.
    sampling
        poisson, or fixed for cohorts of a fixed size, which the same noise protects less.
    rounds
        Numbers of rounds to choose from.
    cohort
        Cohorts to choose from; everyone in every round by default.
    local_steps
        Numbers of local steps to choose from.
    server_step
        Sizes of those steps to choose from.
    margin
        Sharing pays where its loss is lower than that of learning alone by this fraction.
    """
    given = {"epsilon": epsilon, "clients": clients, "rounds": rounds, "cohort": cohort}
    given |= {"local_steps": local_steps, "server_step": server_step}
    lists: dict[str, Any] = {name: numbers(name, text) for name, text in given.items()}
    law: Any = sampling  # checked by Privacy
    result = fa.privacy_costs(
        world.population(),
        algorithm,
        dimension=dimension,
        delta=delta,
        sampling=law,
        margin=margin,
        **lists,
    )
    show(result, output)
