"""The verb `train`: any algorithm on any federation, a single run or a grid with seeds, sharing all work there is to share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.algorithms import TRAINED, Algorithm, Nothing, Ridge
from fedasym.errors import InvalidInput, unknown
from fedasym.training.federation import Federation
from fedasym.training.histories import Histories
from fedasym.training.history import History
from fedasym.training.settings import Protocol, Settings, check_trainable, find_protocol, resolve_ridge, used_settings
from fedasym.training.sharing import shared_work

if TYPE_CHECKING:
    from fedasym.training.work import Outcome

Progress = Callable[[float, str], None]
Grid = Mapping[str, Iterable[float]] | Mapping[str, Mapping[str, Iterable[float]]]


def train(
    algorithm: str | Algorithm | Iterable[str | Algorithm],
    federation: Federation,
    *,
    rounds: int = 400,
    server_step: float = 0.1,
    local_step: float = 0.1,
    ridge: float | None = None,
    difference: float = 1e-3,
    mixing: float = 1.0,
    cohort: int | None = None,
    local_steps: int = 20,
    batch: int = 32,
    personal_epochs: int = 10,
    inner_step: float = 0.05,
    inner_steps: int = 5,
    evaluate_every: int = 50,
    seed: int = 0,
    grid: Grid | None = None,
    seeds: Iterable[int] | None = None,
    protocol: str | Protocol = "text",
    precision: str = "float32",
    form: str | None = None,
    progress: Progress | None = None,
) -> History | Histories:
    """Train an algorithm (or several) by stochastic gradients, personalise and test every client on the way.

    One algorithm with one configuration and seed gives a `History`; a `grid` of settings, several `seeds` or several
    algorithms give `Histories`. Configurations that differ only in the client stage train the shared model once;
    configurations, seeds and clients run as one compiled program, in as many pieces as memory asks for. Same seed, same
    numbers, whatever runs beside. Ctrl-C returns what is finished.

    rounds, cohort, local_steps, batch, server_step: R, D, K, B and eta; in each round `cohort` clients (20, or all where there
        are fewer) take `local_steps` steps on batches from reshuffled passes, then their models are averaged by samples.
    personal_epochs, local_step: P and alpha of the client stage (and of MAML's inner step); `local` trains `rounds` epochs.
    ridge: lambda of rtfa (0.1) and pfedme (15). difference: delta of maml_hf. mixing, inner_step, inner_steps: pfedme's.
    grid: settings and their values, {"server_step": [0.01, 0.1]}, each algorithm taking those it uses; or a grid for each,
        {"ftfa": {...}, "rtfa": {...}}, such as the paper's, `fa.algorithms.GRIDS`.
    evaluate_every: all clients are personalised and tested after rounds 0, this many, twice as many, ..., and the last.
    protocol: "text" follows the paper, "code" the choices of its released code; see docs/how-to/train.md.
    precision: "float32" or "float64". form: "gram" or "head" instead of the cheaper; both give the same numbers.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(alpha=1, beta=1, seed=1)
    >>> runs = fa.train(["fedavg", "ftfa"], clients, rounds=20, evaluate_every=20)
    >>> [round(float(run.accuracy[-1]), 2) > 0.5 for run in runs]
    [True, True]
    """
    if not isinstance(federation, Federation):
        raise InvalidInput(f"federation is a {type(federation).__name__}: make one of your data with fa.Federation.from_arrays")
    chosen, several = named(algorithm)
    numbers = checked_seeds(seed, seeds)
    told = {name: value for name, value in locals().items() if name in SETTINGS}
    jobs = configurations(chosen, told, grid, federation)
    rules = find_protocol(protocol)
    for name, value, known in (("precision", precision, ("float32", "float64")), ("form", form, ("gram", "head", None))):
        if value not in known:
            raise InvalidInput(f"{name} is {value!r}: it must be {' or '.join(map(str, known))}")
    outcomes, stopped = compute(jobs, federation, rules, numbers, precision, form, progress)
    histories = [
        recorded(job, federation, rules, number, outcome, stopped)
        for job, row in zip(jobs, outcomes, strict=True)
        for number, outcome in zip(numbers, row, strict=True)
        if outcome.rounds
    ]
    if not histories:
        raise KeyboardInterrupt
    single = not several and not grid and seeds is None
    return histories[0] if single else Histories(tuple(histories))


SETTINGS = tuple(field.name for field in fields(Settings))
COHORT = 20  # clients a round, where there are that many


def named(algorithm: str | Algorithm | Iterable[str | Algorithm]) -> tuple[list[Algorithm], bool]:
    """The algorithms asked for, and whether several were."""
    several = not isinstance(algorithm, str | Algorithm)
    chosen: list[Algorithm] = []
    for entry in listed("algorithm", algorithm) if several else [algorithm]:
        if not isinstance(entry, Algorithm) and entry not in list(TRAINED):
            raise unknown("algorithm", entry, TRAINED)
        chosen.append(entry if isinstance(entry, Algorithm) else TRAINED[entry])
        check_trainable(chosen[-1])
    if not chosen:
        raise InvalidInput(f"algorithm is empty: name at least one of {', '.join(TRAINED)}")
    names = [entry.name for entry in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput(f"algorithm has {max(names, key=names.count)} twice: give each its own name")
    return chosen, several


def checked_seeds(seed: int, seeds: Iterable[int] | None) -> list[int]:
    """The seeds asked for, each once."""
    numbers = [seed] if seeds is None else listed("seeds", seeds)
    if not numbers:
        raise InvalidInput("seeds is empty: give at least one whole number")
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**64:
            raise InvalidInput(f"seed is {value!r}: it must be a whole number from 0 to 2^64 - 1")
    return list(dict.fromkeys(map(int, numbers)))


def listed(name: str, values: Any) -> list[Any]:
    """Several values as a list, read once: an iterator has nothing left afterwards."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} is {values!r}: it must be a list of values")
    return list(values)


def read_grid(grid: Any) -> dict[str, Any]:
    """A grid with lists of values."""
    if not isinstance(grid, Mapping):
        raise InvalidInput(f"grid is {grid!r}: it must name settings and list their values")
    return {
        name: read_grid(values) if isinstance(values, Mapping) else listed(f"grid's {name}", values)
        for name, values in grid.items()
    }


def grid_of(algorithm: Algorithm, algorithms: Sequence[Algorithm], grid: dict[str, Any]) -> dict[str, list[float]]:
    """The values to try for an algorithm, of the settings that it uses: from one grid for all, or from its own."""
    names = [each.name for each in algorithms]
    own = any(isinstance(values, Mapping) for values in grid.values())
    for name, values in grid.items() if own else ():
        if name not in names:
            raise InvalidInput(f"grid has a part for {name}, which is not trained: trained are {', '.join(names)}")
        if not isinstance(values, Mapping):
            raise InvalidInput(f"grid's part for {name} is {values!r}: it must name settings and list their values")
    axes = grid.get(algorithm.name, {}) if own else grid
    users = [algorithm] if own else algorithms
    for name, values in axes.items():
        if name not in SETTINGS:
            raise unknown("grid entry", name, SETTINGS)
        if not any(name in tunable(user) for user in users):
            raise InvalidInput(f"grid has {name}, which {', '.join(user.name for user in users)} does not use: leave it out")
        if not values:
            raise InvalidInput(f"grid has no values for {name}: give at least one, or leave it out")
    return {name: values for name, values in axes.items() if name in tunable(algorithm)}


def tunable(algorithm: Algorithm) -> list[str]:
    """The settings that make a difference to an algorithm: those it uses, but for a ridge that is its own."""
    own = isinstance(algorithm.personalise, Ridge) and algorithm.personalise.ridge is not None
    return [name for name in used_settings(algorithm) if not (own and name == "ridge")]


def configurations(
    algorithms: Sequence[Algorithm], told: Mapping[str, Any], grid: Grid | None, federation: Federation
) -> list[tuple[Algorithm, Settings]]:
    """Every algorithm with every combination of its grid's values, validated."""
    able = int((federation.counts("train") > 0).sum())
    tried = read_grid(grid or {})
    jobs = []
    for algorithm in algorithms:
        axes = grid_of(algorithm, algorithms, tried)
        for values in product(*axes.values()):
            plain = (np.asarray(value).item() if np.ndim(value) == 0 else value for value in values)
            settings = resolve_ridge(Settings(**{**told, **dict(zip(axes, plain, strict=True))}), algorithm)
            if settings.cohort is not None and settings.cohort > able and not isinstance(algorithm.server, Nothing):
                raise InvalidInput(
                    f"cohort is {settings.cohort}, and {able} clients have training samples: give at most that many"
                )
            jobs.append((algorithm, replace(settings, cohort=settings.cohort or min(COHORT, able))))
    return jobs


def compute(
    jobs: Sequence[tuple[Algorithm, Settings]], federation: Federation, protocol: Protocol, seeds: Sequence[int],
    precision: str, form: str | None, progress: Progress | None,
) -> tuple[list[list[Outcome]], bool]:  # fmt: skip
    """Run everything on JAX's default device."""
    try:
        import jax  # noqa: F401
    except ImportError:
        raise InvalidInput("training needs JAX: pip install 'fedasym[train]' (or a jax build for your accelerator)") from None
    from fedasym.training.engine import planned_steps, run
    from fedasym.training.layout import this_machine
    from fedasym.training.packing import numbers_as
    from fedasym.training.work import Work

    tree = shared_work(jobs, int(federation.counts("train").max()))
    total = planned_steps(tree, federation.counts("train"), len(seeds))
    done = 0

    def report(steps: int, text: str) -> None:
        nonlocal done
        done += steps
        if progress:
            progress(min(done / max(total, 1), 0.99), text)

    with numbers_as(precision):
        result = run(Work(federation, protocol, precision, this_machine(), form, report), tree, len(jobs), seeds)
    if progress and not result[1]:
        progress(1.0, "done")
    return result


def recorded(
    job: tuple[Algorithm, Settings], federation: Federation, protocol: Protocol, seed: int, outcome: Outcome, stopped: bool
) -> History:
    """The outcome of one configuration and seed as a history."""
    algorithm, settings = job
    from fedasym.training.packing import counted

    personal, shared = np.stack(outcome.personal), np.stack(outcome.shared)
    totals = counted(federation, None if protocol.count_padding else federation.mask)
    return History(
        algorithm=algorithm,
        settings=settings,
        protocol=protocol,
        seed=seed,
        federation=federation,
        rounds=np.array(outcome.rounds),
        correct=personal[..., 0],
        losses=personal[..., 1],
        shared_correct=shared[..., 0],
        shared_losses=shared[..., 1],
        totals=totals,
        shared=outcome.head,
        diverged=outcome.diverged,
        interrupted=stopped and outcome.rounds[-1] < settings.rounds,
    )
