"""The verb `train`: any algorithm on any federation, a single run or a grid with seeds, sharing all work there is to share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.core.progress import Progress, check_progress
from fedasym.data.federation.federation import Federation, check_federation
from fedasym.training.histories import Histories
from fedasym.training.history import History
from fedasym.training.jobs import Grid, check_own, configurations, named, whole_numbers
from fedasym.training.settings import SETTINGS, Protocol, Settings, default_for, resolve_protocol, takes_settings
from fedasym.training.sharing import shared_work

if TYPE_CHECKING:
    from fedasym.training.work import Outcome


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
    progress: Progress | None = None,
    **settings: Any,
) -> History | Histories:
    """Train an algorithm (or several) by stochastic gradients, personalise and test every client on the way.

    One algorithm with one configuration and seed gives a `History`; a `grid` of settings, several `seeds` or several
    algorithms give `Histories`. Configurations that differ only in the client stage train the shared model once;
    configurations, seeds and clients run as one compiled program, in as many pieces as memory asks for. Same seed, same
    numbers, whatever runs beside (to the rounding of sums in another order). Ctrl-C returns what is finished.

    rounds, cohort, local_steps, batch, server_step: R, D, K, B and eta; in each round `cohort` clients (20, or all where there
        are fewer) take `local_steps` steps on batches from reshuffled passes, then their models are averaged by samples.
    personal_epochs, local_step: P and alpha of the client stage (and of MAML's inner step); `local` trains `rounds` epochs.
        Steps that are not given are 0.1, or 1/L where the largest curvature L of the clients' losses asks for less; 0.1 under
        a named protocol, as in the paper. inner_step: 0.05, or 1/(L + ridge) likewise.
    ridge: lambda of rtfa (0.1) and pfedme (15). difference: delta of maml_hf. mixing, inner_steps: pfedme's.
    grid: settings and their values, {"server_step": [0.01, 0.1]}, each algorithm taking those it uses; or a grid for each,
        {"ftfa": {...}, "rtfa": {...}}, such as the paper's, `fa.algorithms.GRIDS`.
    splits: numbers of reshuffles of each client's training and validation samples, as many of each and the same test samples
        (`federation.resplit(number, fractions=None)`): every seed is trained on each, side by side, instead of the split given.
    evaluate_every: all clients are personalised and tested after rounds 0, this many, twice as many, ..., and the last; 0: the
        last alone.
    protocol: "text" follows the paper, "code" the choices of its released code; see docs/how-to/train.md. Unless one is named,
        the rules are those of the text, but for the intercept and the steps, which are chosen for the data.
    intercept: whether heads have one, shared and personal. By default as a named protocol says ("text" has none, "code" has
        one); without one, as the federation does, which has an intercept unless it was made without.
    precision: "float32", "float64", or "mixed": float32 whose products an accelerator may shorten (TF32); "bfloat16", for
        sequences: features and outputs are that short as well, while models, sums and losses stay in float32.
    form: "gram" or "head" instead of the cheaper; both give the same numbers.
    settings: those above, and what the algorithms' stages bring, by name.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(alpha=1, beta=1, seed=1)
    >>> runs = fa.train(["fedavg", "ftfa"], clients, rounds=20, evaluate_every=20)
    >>> [round(float(run.accuracy[-1]), 2) > 0.5 for run in runs]
    [True, True]
    """
    check_federation(federation)
    check_progress(progress)
    chosen, several = named(algorithm)
    numbers = whole_numbers("seeds", [seed] if seeds is None else seeds)
    deals = () if splits is None else tuple(whole_numbers("splits", splits))
    check_own(chosen, settings)
    told = {name: default_for(name) for name in SETTINGS} | settings
    rules = resolve_protocol(protocol, intercept, federation.intercept)
    jobs = configurations(chosen, told, grid, federation, rules.intercept if protocol is None else None)
    choices = {"precision": (precision, ("float32", "float64", "mixed", "bfloat16")), "form": (form, ("gram", "head", None))}
    for name, (value, known) in choices.items():
        if not isinstance(value, str | None) or value not in known:
            raise InvalidInput(f"{name} is {value!r}: it must be {' or '.join(map(str, known))}")
    if form == "gram" and federation.personal is not None and not federation.personal.all():
        raise InvalidInput("form is 'gram': some features' weights are the same for all clients, which takes 'head'")
    if precision == "bfloat16" and not (federation.sequences and federation.classes):
        raise InvalidInput("precision is 'bfloat16': it serves sequences of classes, and these are not; use 'mixed'")
    outcomes, stopped = compute(jobs, federation, rules, numbers, deals, precision, form, progress)
    dealt = [federation.resplit(split, fractions=None) for split in deals] or [federation]
    runs = [(number, place) for place in range(len(dealt)) for number in numbers]
    histories = [
        recorded(job, dealt[place], rules, number, deals[place] if deals else None, outcome, stopped)
        for job, row in zip(jobs, outcomes, strict=True)
        for (number, place), outcome in zip(runs, row, strict=True)
        if outcome.rounds
    ]
    if not histories:
        raise KeyboardInterrupt
    single = not several and not grid and seeds is None and splits is None
    return histories[0] if single else Histories(tuple(histories))


def compute(
    jobs: Sequence[tuple[Algorithm, Settings]], federation: Federation, protocol: Protocol, seeds: Sequence[int],
    splits: tuple[int, ...], precision: str, form: str | None, progress: Progress | None,
) -> tuple[list[list[Outcome]], bool]:  # fmt: skip
    """Run everything on JAX's default device."""
    try:
        import jax  # noqa: F401
    except ImportError:
        raise MissingPackage("training needs JAX: pip install 'fedasym[train]' (or a jax build for your accelerator)") from None
    from fedasym.training.engine import planned_steps, run
    from fedasym.training.layout import this_machine
    from fedasym.training.packing import SHORT, numbers_as
    from fedasym.training.work import Draw, Work

    tree = shared_work(jobs, protocol, int(federation.counts("train").max()))
    done = 0

    def report(steps: int, text: str) -> None:
        nonlocal done
        done += steps
        if progress:
            progress(min(done / max(total, 1), 0.99), text)

    with numbers_as(precision) as models:
        features = precision if precision == SHORT else models
        work = Work(federation, protocol, models, features, this_machine(), form, splits, report)
        draws = [Draw(seed, place) for place in range(max(len(splits), 1)) for seed in seeds]
        total = planned_steps(tree, work, len(draws))
        result = run(work, tree, len(jobs), draws)
    if progress and not result[1]:
        progress(1.0, "done")
    return result


def recorded(
    job: tuple[Algorithm, Settings], federation: Federation, protocol: Protocol, seed: int, split: int | None,
    outcome: Outcome, stopped: bool,
) -> History:  # fmt: skip
    """The outcome of one configuration, seed and split as a history."""
    algorithm, settings = job
    from fedasym.training.convergence import solve_exactly
    from fedasym.training.packing import counted

    personal, shared = np.stack(outcome.personal), np.stack(outcome.shared)
    judged = bool(outcome.fitted)
    exact = solve_exactly(algorithm, settings, protocol, seed, federation, outcome.head) if judged else None
    totals = counted(federation, None if protocol.count_padding else federation.mask)
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
        shared=outcome.head,
        diverged=outcome.diverged,
        interrupted=stopped and outcome.rounds[-1] < settings.rounds,
        training_losses=np.stack(outcome.fitted) if judged else None,
        shared_training_losses=np.stack(outcome.shared_fitted) if judged else None,
        exact=exact,
    )
