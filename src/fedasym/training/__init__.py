"""The verb `train`: any algorithm on any federation, a single run or a grid with seeds, sharing all
work there is to share; what it is asked for is checked before any work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.core.privacy import Privacy, read_privacy
from fedasym.core.runtime import Progress, cache_folder, progress_portion, progress_shown
from fedasym.data.federation import Federation, check_federation
from fedasym.data.shards import ShardedFederation
from fedasym.training.convergence import stable_steps
from fedasym.training.histories import Histories
from fedasym.training.history import History
from fedasym.training.plans import check_private, shared_work, spent_privacy
from fedasym.training.settings import (
    CHOSEN,
    COHORT,
    SETTINGS,
    Grid,
    Protocol,
    Settings,
    check_corrections,
    check_own,
    check_whole_numbers,
    default_for,
    default_of,
    find_algorithms,
    grid_of,
    own_settings,
    read_grid,
    resolve_protocol,
    resolve_ridge,
    takes_settings,
    used_settings,
)
from fedasym.training.twin import DirectedClients, scale_by_direction

if TYPE_CHECKING:
    from fedasym.training.evaluation import RunOutcome


SHORTEST = 0.1  # seconds of compiling from which a program is kept


def keep_compilations(folder: str | Path | None = None) -> Path:
    """Keep what JAX compiles in a folder, for this process and those to come; returns where.

    Commands do so by themselves; from Python you ask for it, since it applies to everything that
    JAX compiles. A program is found again by what it computes, JAX's version and the device.

    folder: by default the folder that JAX_COMPILATION_CACHE_DIR names, or one in the user's cache.

    >>> import fedasym as fa
    >>> fa.keep_compilations()  # doctest: +SKIP
    PosixPath('/home/ann/.cache/fedasym/jax')
    """
    told = os.environ.get("JAX_COMPILATION_CACHE_DIR") if folder is None else str(folder)
    where = Path(told or cache_folder() / "jax")
    seconds = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SHORTEST))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(where)
    if sys.modules.get("jax") is not None:  # which has read these already
        import jax
        from jax.experimental.compilation_cache import compilation_cache

        config: Any = jax.config
        if config.jax_compilation_cache_dir == str(where):
            return where
        config.update("jax_compilation_cache_dir", str(where))
        config.update("jax_persistent_cache_min_compile_time_secs", float(seconds))
        compilation_cache.reset_cache()
    return where


def list_configurations(
    algorithms: Sequence[Algorithm],
    told: Mapping[str, Any],
    grid: Grid | None,
    federation: Federation,
    scaled: bool | None = None,
    privacy: Privacy | None = None,
) -> list[tuple[Algorithm, Settings]]:
    """Every algorithm with every combination of its grid's values, validated.

    scaled: whether there is an intercept, where steps that are not told are to suit the features'
    scale; None: the paper's.
    """
    able = int((federation.counts("train") > 0).sum())
    tried = {} if grid is None else read_grid(grid)
    jobs = []
    for algorithm in algorithms:
        axes = grid_of(algorithm, algorithms, tried)
        for values in product(*axes.values()):
            plain = (np.asarray(value).item() if np.ndim(value) == 0 else value for value in values)
            settings = settle_settings(
                told, dict(zip(axes, plain, strict=True)), algorithm, federation, scaled
            )
            if (
                settings.cohort is not None
                and settings.cohort > able
                and not algorithm.shares_nothing
            ):
                raise InvalidInput(
                    f"cohort is {settings.cohort}, and {able} clients have training samples: give"
                    " at most that many"
                )
            settled = replace(settings, cohort=settings.cohort or min(COHORT, able))
            if privacy is not None and not algorithm.shares_nothing:
                check_private(algorithm, privacy)
                settled = replace(settled, privacy=privacy)
            jobs.append((algorithm, settled))
    return jobs


def settle_settings(
    told: Mapping[str, Any],
    tried: Mapping[str, Any],
    algorithm: Algorithm,
    federation: Federation,
    scaled: bool | None,
) -> Settings:
    """What is said with a grid's values; ridge and steps that neither says are put in."""
    missing = [name for name in CHOSEN if told.get(name) is None and name not in tried]
    given = {name: value for name, value in {**told, **tried}.items() if name not in missing}
    mine = own_settings(algorithm)
    values = {
        name: each.check(given.get(name, default_of(algorithm, name)))
        for name, each in mine.items()
    }
    run = {name: value for name, value in given.items() if name in SETTINGS}
    settings = resolve_ridge(Settings(**run, own=tuple(values.items())), algorithm)
    if scaled is None or not set(missing) & set(used_settings(algorithm)):
        return settings
    directed = scale_by_direction(algorithm, federation, settings, scaled)
    where = federation if directed is None else directed.federation
    chosen = stable_steps(where, scaled, settings.batch, settings.ridge)
    steps: dict[str, Any] = {name: chosen[name] for name in missing}
    return replace(settings, **steps)


@takes_settings
def train(
    algorithm: str | Algorithm | Iterable[str | Algorithm],
    federation: Federation,
    *,
    seed: int = 0,
    grid: Grid | None = None,
    seeds: Iterable[int] | None = None,
    splits: Iterable[int] | None = None,
    protocol: str | Protocol | None = None,
    intercept: bool | None = None,
    precision: str = "float32",
    form: str | None = None,
    privacy: Privacy | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> History | Histories:
    """Train algorithms by stochastic gradients, personalise and test every client on the way.

    One algorithm with one configuration and seed gives a `History`; a `grid` of settings, several
    `seeds` or several algorithms give `Histories`. Configurations that differ only in the client
    stage train the shared model once; configurations, seeds and clients run as one compiled
    program, in as many pieces as memory asks for. Same seed, same numbers, whatever runs beside (to
    the rounding of sums in another order). Ctrl-C returns what is finished.

    rounds, cohort, local_steps, batch, server_step: R, D, K, B and eta; in each round `cohort`
        clients (20, or all where there are fewer) take `local_steps` steps on batches from
        reshuffled passes, then their models are averaged by samples.
    personal_epochs, local_step: P and alpha of the client stage (and of MAML's inner step); `local`
        trains `rounds` epochs. Steps that are not given are 0.1, or 1/L where the largest curvature
        L of the clients' losses asks for less; 0.1 under a named protocol, as in the paper.
        inner_step: 0.05, or 1/(L + ridge) likewise.
    ridge: lambda of rtfa (0.1) and pfedme (15). difference: delta of maml_hf. mixing, inner_steps:
        pfedme's.
    grid: settings and their values, {"server_step": [0.01, 0.1]}, each algorithm taking those it
        uses; or a grid for each, {"ftfa": {...}, "rtfa": {...}}, such as the paper's,
        `fa.algorithms.GRIDS`.
    splits: numbers of reshuffles of each client's training and validation samples, as many of each
        and the same test samples (`federation.resplit(number, fractions=None)`): every seed is
        trained on each, side by side, instead of the split given.
    evaluate_every: all clients are personalised and tested after rounds 0, this many, twice as
        many, ..., and the last; 0: the last alone.
    protocol: "text" follows the paper, "code" the choices of its released code; see
        docs/how-to/train.md. Unless one is named, the rules are those of the text, but for the
        intercept and the steps, which are chosen for the data.
    intercept: whether heads have one, shared and personal. By default as a named protocol says
        ("text" has none, "code" has one); without one, as the federation does, which has an
        intercept unless it was made without.
    precision: "float32", "float64", or "mixed": float32 whose products an accelerator may shorten
        (TF32); "bfloat16", for sequences: features and outputs are that short as well, while
        models, sums and losses stay in float32.
    form: "gram" or "head" instead of the cheaper; both give the same numbers.
    privacy: an `fa.Privacy` with a clip or a quantile: client-level differential privacy. Clients
        weigh alike, every update is clipped, noise is added to their sum; `history.privacy` has
        what was spent. With Poisson sampling `cohort` is the expected one.
    settings: those above, and what the algorithms' stages bring, by name.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(alpha=1, beta=1, seed=1)
    >>> runs = fa.train(["fedavg", "ftfa"], clients, rounds=20, evaluate_every=20)
    >>> [round(float(run.accuracy[-1]), 2) > 0.5 for run in runs]
    [True, True]
    """
    check_federation(federation)
    if isinstance(federation, ShardedFederation):
        federation.check_here()
    progress = progress_shown(progress)
    chosen, several = find_algorithms(algorithm, federation.classes is not None)
    numbers = check_whole_numbers("seeds", [seed] if seeds is None else seeds)
    deals = () if splits is None else tuple(check_whole_numbers("splits", splits))
    check_own(chosen, settings)
    check_corrections(chosen, federation)
    told = {name: default_for(name) for name in SETTINGS} | settings
    rules = resolve_protocol(protocol, intercept, federation.intercept)
    jobs = list_configurations(
        chosen,
        told,
        grid,
        federation,
        rules.intercept if protocol is None else None,
        read_privacy(privacy),
    )
    choices = {
        "precision": (precision, ("float32", "float64", "mixed", "bfloat16")),
        "form": (form, ("gram", "head", None)),
    }
    for name, (value, known) in choices.items():
        if not isinstance(value, str | None) or value not in known:
            raise InvalidInput(f"{name} is {value!r}: it must be {' or '.join(map(str, known))}")
    if form == "gram" and federation.personal is not None and not federation.personal.all():
        raise InvalidInput(
            "form is 'gram': some features' weights are the same for all clients, which takes"
            " 'head'"
        )
    if precision == "bfloat16" and not (federation.sequences and federation.classes):
        raise InvalidInput(
            "precision is 'bfloat16': it serves sequences of classes, and these are not; use"
            " 'mixed'"
        )
    dealt = [federation.resplit(split, fractions=None) for split in deals] or [federation]
    runs = [(number, place) for place in range(len(dealt)) for number in numbers]
    parts = separate_directions(jobs)
    trained: dict[int, list[History]] = {}
    for part, places in enumerate(parts):
        algorithm_first, settings_first = jobs[places[0]]
        scaled = scale_by_direction(algorithm_first, federation, settings_first, rules.intercept)
        outcomes, stopped = compute_histories(
            [(plain_algorithm(jobs[place][0]), jobs[place][1]) for place in places],
            federation if scaled is None else scaled.federation,
            rules,
            numbers,
            deals,
            precision,
            form,
            progress and progress_portion(progress, part, len(parts)),
        )
        for place, row in zip(places, outcomes, strict=True):
            trained[place] = [
                record_history(
                    jobs[place],
                    dealt[at],
                    rules,
                    number,
                    deals[at] if deals else None,
                    outcome,
                    stopped,
                    scaled,
                )
                for (number, at), outcome in zip(runs, row, strict=True)
                if outcome.rounds
            ]
        if stopped:
            break
    histories = [history for place in sorted(trained) for history in trained[place]]
    if not histories:
        raise KeyboardInterrupt
    single = not several and not grid and seeds is None and splits is None
    return histories[0] if single else Histories(tuple(histories))


def plain_algorithm(algorithm: Algorithm) -> Algorithm:
    """What is trained where features are scaled for a ridge by direction; else itself."""
    plain = algorithm.personalise.plain_stage
    return algorithm if plain is None else replace(algorithm, personalise=plain)


def separate_directions(jobs: Sequence[tuple[Algorithm, Settings]]) -> list[list[int]]:
    """The places of the jobs that train on the same features: all, but for ridges by direction."""
    found: dict[Any, list[int]] = {}
    for place, (algorithm, settings) in enumerate(jobs):
        plain = algorithm.personalise.plain_stage is None
        key = None if plain else (algorithm.name, dict(settings.own)["power"])
        found.setdefault(key, []).append(place)
    return list(found.values())


def compute_histories(
    jobs: Sequence[tuple[Algorithm, Settings]],
    federation: Federation,
    protocol: Protocol,
    seeds: Sequence[int],
    splits: tuple[int, ...],
    precision: str,
    form: str | None,
    progress: Progress | None,
) -> tuple[list[list[RunOutcome]], bool]:
    """Run everything on JAX's default device."""
    try:
        import jax  # noqa: F401
    except ImportError:
        raise MissingPackage(
            "training needs JAX: pip install 'fedasym[train]' (or a jax build for your accelerator)"
        ) from None
    from fedasym.training.evaluation import Draw, RunWork
    from fedasym.training.heads import SHORT, numbers_as
    from fedasym.training.plans import default_device
    from fedasym.training.programs import Compiler
    from fedasym.training.runner import Runner, count_steps

    tree = shared_work(jobs, protocol, federation.counts("train"))
    done = 0

    def report(steps: int, text: str) -> None:
        nonlocal done
        done += steps
        if progress:
            progress(min(done / max(total, 1), 0.99), text)

    with numbers_as(precision) as models:
        features = precision if precision == SHORT else models
        told = (default_device(), form, splits, report, precision)
        work = RunWork(federation, protocol, models, features, *told, Compiler(precision))
        draws = [Draw(seed, place) for place in range(max(len(splits), 1)) for seed in seeds]
        total = count_steps(tree, work, len(draws))
        runner = Runner(work, tree, len(jobs), draws)
        stopped = runner.run()
    if progress and not stopped:
        progress(1.0, "done")
    return runner.outcomes, stopped


def record_history(
    job: tuple[Algorithm, Settings],
    federation: Federation,
    protocol: Protocol,
    seed: int,
    split: int | None,
    outcome: RunOutcome,
    stopped: bool,
    scaled: DirectedClients | None = None,
) -> History:
    """The outcome of one configuration, seed and split as a history."""
    algorithm, settings = job
    from fedasym.training.convergence import solve_exactly

    personal, shared = np.stack(outcome.personal), np.stack(outcome.shared)
    judged = bool(outcome.fitted)
    head, exact = outcome.head, None
    if judged:
        trained_on = federation
        if scaled is not None:
            trained_on = replace(scaled.federation, split=federation.split)
        told = (plain_algorithm(algorithm), settings, protocol, seed, trained_on)
        exact = solve_exactly(*told, outcome.head)
    if scaled is not None and head is not None:
        head = scaled.restore(head)
    totals = federation.count_predictions(protocol.count_padding)
    return History(
        algorithm=algorithm,
        settings=settings,
        protocol=protocol,
        seed=seed,
        split=split,
        federation=federation,
        rounds=np.array(outcome.rounds),
        correct=personal[..., 0],
        losses=personal[..., 1],
        shared_correct=shared[..., 0],
        shared_losses=shared[..., 1],
        totals=totals,
        shared=head,
        diverged=outcome.diverged,
        interrupted=stopped and outcome.rounds[-1] < settings.rounds,
        training_losses=np.stack(outcome.fitted) if judged else None,
        shared_training_losses=np.stack(outcome.shared_fitted) if judged else None,
        exact=exact,
        privacy=spent_privacy(
            settings,
            int((federation.counts("train") > 0).sum()),
            int(outcome.rounds[-1]),
            outcome.clip,
            outcome.clipped,
        ),
    )
