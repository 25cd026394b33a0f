"""`simulate`: draw finitely many clients, compute every algorithm exactly on them, and set the theory beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm
from fedasym.algorithms.meta import MAML_STEP
from fedasym.algorithms.penalties import check_ridge
from fedasym.algorithms.registry import resolve
from fedasym.core.errors import InvalidInput, listed, one_of
from fedasym.core.machine import physical_memory
from fedasym.core.numbers import check_seed, flag, whole
from fedasym.core.progress import Progress, check_progress
from fedasym.exact.draw import FEATURES, apportioned
from fedasym.results.comparison import Risk
from fedasym.theory.different import client_weights
from fedasym.verbs.diagrams import spread_of
from fedasym.verbs.simulation_files import Ledger
from fedasym.verbs.simulation_plans import Losses, Plan, Setting, planned
from fedasym.verbs.simulation_trials import MATRICES, fill
from fedasym.verbs.simulations import Simulated, Simulation
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import RANGES, Population

if TYPE_CHECKING:
    from fedasym.core.executors import Executor
    from fedasym.verbs.classes.simulated import AccuracySimulation

MODES = ("expectation", "sampling")
OPTIONS = ("clients", "dimension", "ridge")  # arguments of simulate, rather than of the population, that can vary

CLIENTS = 300  # unless told otherwise


@overload
def simulate(
    world: Population | Sequence[Population], *, dimension: int = 200, clients: int | Sequence[int] | None = None,
    trials: int = 4, seed: int = 0, algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None, member: bool = True,
    ridge: ArrayLike | None = None, maml_step: float | None = None, weights: ArrayLike | str | None = None,
    features: str = "gaussian", mode: str = "expectation", vary: Mapping[str, ArrayLike] | None = None,
    save: str | Path | None = None, progress: Progress | None = None, on: Executor | str | None = None,
) -> Simulation: ...  # fmt: skip
@overload
def simulate(
    world: ClassPopulation, *, dimension: int = 200, clients: int | None = None, trials: int = 4, seed: int = 0,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None, member: bool = True, ridge: ArrayLike | None = None,
    progress: Progress | None = None,
) -> AccuracySimulation: ...  # fmt: skip


def simulate(
    world: Population | Sequence[Population] | ClassPopulation,
    *,
    dimension: int = 200,
    clients: int | Sequence[int] | None = None,
    trials: int = 4,
    seed: int = 0,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    member: bool = True,
    ridge: ArrayLike | None = None,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    features: str = "gaussian",
    mode: str = "expectation",
    vary: Mapping[str, ArrayLike] | None = None,
    save: str | Path | None = None,
    progress: Progress | None = None,
    on: Executor | str | None = None,
) -> Simulation | AccuracySimulation:
    """Test loss (with classes, accuracy) of each algorithm on drawn clients, beside what `predict` says of them.

    Given the features X the loss E|theta_hat - theta_i|^2_Sigma is a trace, so that only features are drawn: the shared
    model's error has covariance Q^-1 [sum_j p^2 A_j E A_j + p^2 noise^2/n b^2 S_j] Q^-1 with A_j = S_j b(S_j) and
    Q = sum_j p A_j. The prediction is made for exactly the eigenvalues and the aspect d/n that are drawn; what is left
    between the two is of order 1/dimension.

    world: a `Population` of numbers, or a list of them; `weights` are then each client's, as in `predict`. Clients of a
        `ClassPopulation` get labels, models are fitted to them and scored: exactly for two classes, else on fresh samples.
    dimension: d; a client has n = d/aspect samples, rounded.
    clients: how many, 300 unless given; for a list of populations how many of each, or a total to share evenly. With classes,
        None stands for infinitely many: the shared model is then the limit's.
    trials: how many times everything is drawn anew; seed: same seed, same numbers.
    member: whether the clients looked at (up to 8 of each kind in a trial) took part in training, or are new.
    ridge: by default each algorithm's best according to the prediction for this many clients.
    features: "gaussian", "rademacher" or "student" (t with 8 degrees of freedom).
    mode: "expectation", or "sampling": draw optima and labels, fit, and test on 1000 held-out samples of each client.
    vary: one parameter and its values, such as {"clients": [2, 5, 10, 50]} or {"noise": (0, 2, 9)}.
    save: a file that keeps finished trials; the same call goes on where it was interrupted.
    progress: called with the share that is done and a few words.
    on: "ray", or a `fedasym.runtimes.Ray`: trials are computed on a cluster, side by side.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> table = fa.simulate(world, dimension=80, clients=10, trials=3)
    >>> table.best, abs(table["pfedme"].loss / table["pfedme"].predicted.loss - 1) < 0.03
    ('pfedme', True)
    """
    member = flag("member", member)
    check_progress(progress)
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.simulation import simulate_classes

        others = {"weights": weights, "vary": vary, "save": save, "features": features, "mode": mode, "on": on}
        others["maml_step"] = maml_step
        return simulate_classes(world, dimension, clients, trials, seed, algorithms, member, ridge, progress, others)
    count = CLIENTS if clients is None else clients
    setting = checked(
        world, dimension, count, seed, algorithms, member, ridge, maml_step, weights, features, mode, vary
    )  # fmt: skip
    repeats = whole("trials", trials, 1)
    ledger = Ledger(save, setting.arguments)
    plans = [planned(point) for point in setting.points]
    ledger.check({each.name for each in plans[0].algorithms})
    fill(ledger, plans, repeats, setting, progress, on)
    if progress is not None:
        progress(1.0, "done")
    found = [[ledger.get(place, trial) or {} for trial in range(repeats)] for place in range(len(plans))]
    result = gathered(setting, plans, found)
    ledger.write(json.loads(result.to_json()))
    return result


def check_room(dimension: int) -> None:
    """Refuse a dimension whose square matrices would not fit this machine's memory; the number of clients never matters."""
    needed, there = MATRICES * 8.0 * min(dimension, 10**12) ** 2, physical_memory()
    if needed > 0.8 * there:
        largest = int((0.8 * there / (8 * MATRICES)) ** 0.5)
        raise InvalidInput(
            f"dimension is {dimension}: its matrices need {needed / 1e9:.0f} GB and this machine has {there / 1e9:.0f}; "
            f"give at most {largest}"
        )


def gathered(setting: Setting, plans: list[Plan], found: list[list[Losses]]) -> Simulation:
    """All trials as one result: numbers for a single population, arrays over what varies or over the kinds of clients."""

    def boxed(values: Any) -> Any:
        """Points x kinds to the shape of the result."""
        array = np.asarray(values, dtype=float)
        return (
            float(array[0, 0]) if setting.vary is None and setting.alike else array[0] if setting.vary is None else array[:, 0]
        )

    def theory(risks: list[Risk]) -> Risk:
        return Risk(boxed([risk.bias for risk in risks]), boxed([risk.variance for risk in risks]))

    rows = {}
    for place, each in enumerate(plans[0].algorithms):
        name = each.name
        parts = np.array([[losses[name] for losses in trials] for trials in found])  # points, trials, kinds, parts
        loss = parts.sum(-1)
        repeats = loss.shape[1]
        error = loss.std(1, ddof=1) / np.sqrt(repeats) if repeats > 1 else np.full_like(loss[:, 0], np.nan)
        split = parts.mean(1) if parts.shape[-1] == 2 else None
        rows[name] = Simulated(
            loss=boxed(loss.mean(1)),
            low=boxed(loss.min(1)),
            high=boxed(loss.max(1)),
            error=boxed(error),
            bias=None if split is None else boxed(split[..., 0]),
            variance=None if split is None else boxed(split[..., 1]),
            predicted=theory([plan.algorithms[place].predicted for plan in plans]),
            limit=theory([plan.algorithms[place].limit for plan in plans]),
            ridge=None if each.ridge is None else boxed([plan.algorithms[place].ridge for plan in plans]),
        )
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    return Simulation(rows, setting, len(found[0]), notes)


def checked(
    world: Population | Sequence[Population],
    dimension: int,
    clients: int | Sequence[int],
    seed: int,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None,
    member: bool,
    ridge: ArrayLike | None,
    maml_step: float | None,
    weights: ArrayLike | str | None,
    features: str,
    mode: str,
    vary: Mapping[str, ArrayLike] | None,
) -> Setting:
    """The arguments of `simulate`, checked once."""
    alike = isinstance(world, Population)
    wanted = "give a Population, or a list of them"
    worlds = (world,) if isinstance(world, Population) else tuple(listed("world", world, wanted))
    for each in worlds:
        if not isinstance(each, Population):
            raise InvalidInput(f"world is {each!r}: {wanted}")
        if each.shape != ():
            raise InvalidInput("the population holds arrays: give plain numbers, and the values of one parameter in vary")
    if not worlds:
        raise InvalidInput("the list of populations is empty: give at least one")
    if alike and weights is not None:
        raise InvalidInput("weights are for a list of populations: identical clients have equal weights")
    one_of("features", features, FEATURES)
    one_of("mode", mode, MODES)
    if ridge is not None and np.shape(check_ridge(ridge)) not in ((), (len(worlds),)):
        raise InvalidInput(f"ridge has shape {np.shape(ridge)}: give one number, or one per population; use vary for several")
    size, axis = whole("dimension", dimension, 1), None if vary is None else checked_axis(vary, alike)
    check_room(size)
    count = counted(clients, len(worlds), alike)
    if weights is not None:
        client_weights(worlds, np.array(count, dtype=float), weights)
    chosen = tuple(resolve(algorithms, ridge, MAML_STEP if maml_step is None else maml_step))
    if axis is not None and axis[0] == "ridge" and not any(each.has_ridge for each in chosen):
        raise InvalidInput("vary names ridge, and no algorithm asked for has one: ask for rtfa, pfedme or local_ridge")
    return Setting(
        worlds, alike, size, count, check_seed(seed), chosen, algorithms is None, member, features, mode,
        weights, axis,
    )  # fmt: skip


def counted(clients: int | Sequence[int], kinds: int, alike: bool) -> tuple[int, ...]:
    """How many clients there are of each kind."""
    given = np.asarray(clients, dtype=object)  # each number as it is: they are checked one by one
    if given.ndim == 0:
        total = whole("clients", clients, kinds)
        return (total,) if alike else tuple(apportioned(np.full(kinds, 1 / kinds), total).tolist())
    if alike or given.shape != (kinds,):
        raise InvalidInput(
            f"clients is {clients!r}: give one number; a list is for a list of populations, one for each, or for vary"
        )
    return tuple(whole("clients", each, 1) for each in given)


def checked_axis(vary: Mapping[str, ArrayLike], alike: bool) -> tuple[str, tuple[float, ...]]:
    """The parameter that varies and its values, in ascending order."""
    if not isinstance(vary, Mapping) or len(vary) != 1:
        raise InvalidInput('vary must name one parameter, such as {"clients": [2, 5, 10, 50]} or {"noise": (0, 2, 9)}')
    if not alike:
        raise InvalidInput("vary is for one population: simulate a list of them without it")
    ((name, values),) = vary.items()
    one_of("parameter in vary", name, (*RANGES, *OPTIONS))
    array = np.unique(spread_of(name, values))
    if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise InvalidInput(f"vary[{name!r}] must hold finite numbers: give a list of them, or (start, stop, count)")
    if name in ("clients", "dimension"):
        return name, tuple(whole(name, value, 1) for value in np.unique(np.round(array)))
    return name, tuple(float(value) for value in array)
