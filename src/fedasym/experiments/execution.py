"""The verbs `run` and `sweep`: an experiment's pieces, computed here or on a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedasym.algorithms import (
    GRIDS,
    TRAINED,
    Algorithm,
    as_names,
    asks_for_all,
    requested_algorithms,
)
from fedasym.algorithms.registry import REGISTRY, find
from fedasym.core.errors import InvalidInput, path_of, read_list
from fedasym.core.runtime import Executor, Notice, Progress, ask, progress_shown
from fedasym.data.federation import Federation, check_federation
from fedasym.data.shards import ShardedFederation
from fedasym.experiments import duration, plan
from fedasym.experiments.fields import Record, combinations, load_data, record_data
from fedasym.experiments.folder import COMPUTED, DAMAGED, ENVIRONMENT, RunFolder, folder_class
from fedasym.experiments.pieces import (
    Damaged,
    Finished,
    compute_piece,
    describe_environment,
    join_rows,
)
from fedasym.experiments.plan import (
    Piece,
    chosen_settings,
    count_planned_steps,
    gradients_per_step,
    server_settings,
)
from fedasym.experiments.reproduction import RUNS
from fedasym.experiments.results import Results
from fedasym.training.convergence import stable_grids
from fedasym.training.settings import Settings, all_trainable, is_size

if TYPE_CHECKING:
    import polars as pl

    from fedasym.experiments import Experiment


@dataclass
class Pace:
    """Work in units that are proportional to time within a kind of piece; kinds that have not
    finished any go by the others.

    >>> pace = Pace({"a": ("tuning", 10.0), "b": ("tuning", 30.0)})
    >>> pace.finish_piece("a", seconds=5.0)
    >>> pace.seconds_left(), pace.share({"b": 0.5})
    (15.0, 0.625)
    """

    planned: dict[str, tuple[str, float]]  # kind and work, by piece
    tell: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # of finished pieces
    hands: int = 1  # pieces that are computed side by side

    def finish_piece(self, key: str, seconds: float) -> None:
        """One more piece is there."""
        self.seconds[key] = seconds

    def seconds_left(self, begun: Mapping[str, float] | None = None) -> float | None:
        """Seconds to go, None while nothing is known; of pieces that are begun, a share is done."""
        spent, done = dict[str, float](), dict[str, float]()
        for key, seconds in self.seconds.items():
            if key in self.planned:
                kind, work = self.planned[key]
                spent[kind], done[kind] = spent.get(kind, 0) + seconds, done.get(kind, 0) + work
        if not done:
            return None
        overall = sum(spent.values()) / sum(done.values())
        rest = 0.0
        for key, (kind, work) in self.planned.items():
            if key not in self.seconds:
                rate = spent[kind] / done[kind] if kind in done else overall
                rest += rate * work * (1 - (begun or {}).get(key, 0.0))
        return rest / self.hands

    def share(self, begun: Mapping[str, float] | None = None) -> float:
        """The share of the work that is done."""
        total = sum(work for _, work in self.planned.values())
        done = sum(work for key, (_, work) in self.planned.items() if key in self.seconds)
        done += sum(
            work * (begun or {}).get(key, 0.0)
            for key, (_, work) in self.planned.items()
            if key not in self.seconds
        )
        return done / total if total else 1.0

    def say(self, text: str, begun: Mapping[str, float] | None = None) -> None:
        """Tell how far it is."""
        if self.tell is None:
            return
        count = sum(key in self.seconds for key in self.planned)
        left = self.seconds_left(begun)
        rest = "" if left is None else f" · about {duration(left)} left"
        words = f"{count} of {len(self.planned)} pieces{rest} · {text}"
        self.tell(
            min(self.share(begun), 0.999), Notice(words) if isinstance(text, Notice) else words
        )


POLL = 0.2  # seconds between two looks at pieces that other processes hold


def run(
    experiment: Experiment | str | Path,
    federation: Federation | None = None,
    *,
    into: str | Path | None = None,
    progress: Progress | None = None,
    on: Executor | str | None = None,
) -> Results:
    """Tune, repeat and compare: run what is missing of an experiment, and return its results.

    Every finished piece is kept in the folder at once; run again, after whatever interruption, it
    goes on with the next. Several processes may run the same experiment into the same folder: each
    piece is computed by one of them.

    experiment: an `Experiment`, or the path of its file. federation: the data, instead of those
        that the experiment names.
    into: the run folder, `runs/<name>` unless given; a path, or a URL that fsspec knows.
    progress: called with the share that is done and a few words.
    on: "ray", or a `fedasym.runtimes.Ray` that says where and with what: pieces are computed on a
        cluster, side by side; of a federation in shards one after the other, each by all workers.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(
    ...     task="classification", clients=5, dimension=5, classes=2, aspect=0.5
    ... )
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(
    ...     name="tiny",
    ...     algorithms=["fedavg", "ftfa"],
    ...     settings=few,
    ...     grid={"server_step": [0.1, 1]},
    ...     trials={"seeds": 2},
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fa.run(tiny, data, into=folder)
    >>> sorted(results.tuned), results.trials.height
    (['fedavg', 'ftfa'], 8)
    """
    from fedasym.experiments import Experiment

    progress = progress_shown(progress)
    REGISTRY.read_packages()
    if not isinstance(experiment, Experiment):
        experiment = Experiment.from_toml(path_of("experiment", experiment))
    if federation is not None:
        check_federation(federation)
    ray = None if on is None else ask("read executor")(on)
    clients = load_data(experiment.data) if federation is None else federation
    experiment = experiment.settle_choices(clients)
    place = (
        Path(RUNS, experiment.name)
        if into is None
        else into
        if isinstance(into, str)
        else path_of("into", into)
    )
    with ExitStack() as stack:
        make: Callable[..., Worker] = Worker
        shards = ray is not None and isinstance(clients, ShardedFederation)
        if shards:
            keepers = stack.enter_context(ask("open shards")(ray, clients))
            clients, make = keepers.federation, partial(ask("make shard worker"), keepers)
        data = record_data(clients, experiment.trials.splits)
        check_cohort(experiment, data)
        # joined before the folder is touched: a wrong address leaves nothing behind
        if ray is not None and not shards:
            pool = stack.enter_context(ask("open pool for pieces")(ray, clients))
            make = partial(ask("make crew"), pool)
        folder = folder_class(place).prepare(place, experiment, data)
        stack.callback(folder.close)
        return complete_run(experiment, make(clients, data, folder, progress))


def complete_run(experiment: Experiment, work: Worker) -> Results:
    """Tuning, what it chose, and the trials of that."""
    tuning = plan.tuning(experiment)
    # The trials' pieces are known once tuning is done; until then others of the same size stand for
    # them.
    work.expect([*tuning, *plan.trials(experiment, plan.placeholder_choice(experiment))])
    task = work.data.task
    rows = join_rows(work.complete(tuning), plan.TUNING, task)
    trials = plan.trials(experiment, chosen_settings(experiment, rows, task))
    work.expect([*tuning, *trials])
    work.complete(trials)
    if work.pace.tell:
        work.pace.tell(1.0, "done")
    return Results.read(work.folder.path)


def check_cohort(experiment: Experiment, data: Record) -> None:
    """Refuse before any work what `train` would refuse in the middle of it."""
    cohort = experiment.settings.cohort
    able = sum(n > 0 for n in data.training)
    alone = all(REGISTRY[name].shares_nothing for name in experiment.algorithms)
    if cohort is not None and cohort > able and not alone:
        raise InvalidInput(
            f"settings.cohort is {cohort}, and {able} clients have training samples: give at most"
            " that many, or leave it out"
        )


class Worker:
    """One process at work on a run folder."""

    def __init__(
        self, federation: Federation, data: Record, folder: RunFolder, progress: Progress | None
    ) -> None:
        self.federation, self.data, self.folder = federation, data, folder
        self.environment: dict[str, str] | None = None  # of the last piece that was computed
        self.pace = Pace({}, progress)

    def expect(self, pieces: Sequence[Piece]) -> None:
        """Measure the pace against these pieces."""
        self.pace.planned = {
            piece.key(self.data): (
                f"{piece.stage} {' '.join(piece.grid)}",
                estimate_work(piece, self.data),
            )
            for piece in pieces
        }

    def complete(self, pieces: Sequence[Piece]) -> list[Finished]:
        """Have all these pieces: computed here, or awaited at the end from other processes."""
        finished: dict[str, Finished] = {}
        keyed = {piece.key(self.data): piece for piece in pieces}
        while len(finished) < len(keyed):
            before = len(finished)
            for key, piece in keyed.items():
                if key not in finished and (held := self.piece(key, piece)) is not None:
                    finished[key] = held
                    self.pace.finish_piece(key, held.made["seconds"])
            if len(finished) == before:
                self.pace.say(f"waiting for {len(keyed) - before} of another process")
                time.sleep(POLL)
        return [finished[key] for key in keyed]

    def piece(self, key: str, piece: Piece) -> Finished | None:
        """A piece, found or computed; None while another process has it."""
        if (held := self.find_finished(key)) is not None:
            return held
        with self.folder.lock(key) as mine:
            return (self.find_finished(key, piece) or self.compute(key, piece)) if mine else None

    def find_finished(self, key: str, piece: Piece | None = None) -> Finished | None:
        """A finished piece, if any; the lock's holder names it, and is told if it is damaged."""
        try:
            return self.folder.piece(key)
        except Damaged as reason:
            if piece is not None:
                self.say(
                    DAMAGED,
                    key,
                    f"piece {key[:12]} is damaged, {reason}: it is computed again ({piece.title})",
                )
            return None

    def compute(self, key: str, piece: Piece) -> Finished:
        """Train, and keep what came of it."""
        made = self.environment or describe_environment()
        self.pace.say(piece.title)
        start = time.monotonic()
        frame = compute_piece(
            piece,
            self.federation,
            lambda share, text: self.pace.say(f"{piece.title}, {text}", {key: share}),
        )
        return self.keep(key, piece, frame, made, time.monotonic() - start)

    def keep(
        self, key: str, piece: Piece, frame: pl.DataFrame, by: dict[str, str], seconds: float
    ) -> Finished:
        """Keep what came of a piece, and what computed it."""
        if by != self.environment:
            self.environment = by
            self.folder.write(ENVIRONMENT, json.dumps(by, indent=2) + "\n")
        made = by | {"seconds": round(seconds, 3)}
        self.folder.add(key, frame, piece.description(self.data), made)
        self.folder.say(COMPUTED, key, f"{piece.title}, {seconds:.2f} s")
        return Finished(frame, made)

    def say(self, event: str, key: str, text: str) -> None:
        """Tell what happened to a piece, in the log and at once."""
        self.folder.say(event, key, text)
        self.pace.say(Notice(text))


def sweep(
    algorithms: str | Algorithm | Iterable[str | Algorithm],
    federation: Federation,
    *,
    grid: str | Mapping[str, Any] | None = None,
    seeds: int | Iterable[int] = 1,
    name: str = "sweep",
    into: str | Path | None = None,
    pieces: str = "fine",
    progress: Progress | None = None,
    on: Executor | str | None = None,
    **settings: Any,
) -> Results:
    """Tune algorithms over a grid by validation samples, then test what was chosen on some seeds.

    Like a `fedasym.train` with a grid, but for grids that take long: finished pieces are kept in
    `into` (`runs/<name>` unless given), and the same call goes on after any interruption.

    grid: "paper", or as in `fedasym.train`. By default, where no protocol is named, the paper's
        with steps for the scale of the features: in regression multiples of the stable step 1/L, L
        being the largest curvature of a client's loss.
    seeds: how many, or which, test what was chosen; 0: none. on: where, as in `fedasym.run`.
    settings: those of `fedasym.train`: rounds, evaluate_every, cohort, protocol, intercept, ...

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(
    ...     task="classification", clients=9, dimension=5, classes=2, aspect=0.1
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = fa.sweep(
    ...         "fedavg", data, grid={"server_step": [1e-9, 1]}, rounds=9, seeds=0, into=folder
    ...     )
    >>> found.tuned
    {'fedavg': {'server_step': 1.0}}
    """
    from fedasym.experiments import Experiment

    check_federation(federation)
    every = asks_for_all(algorithms)
    if every:
        algorithms = all_trainable(federation.classes is not None)
    chosen = as_names([find(each) for each in requested_algorithms(algorithms, ())])
    tested = (
        seeds
        if isinstance(seeds, int)
        else read_list("seeds", seeds, "give how many, or a list of them")
    )
    experiment = Experiment(
        name=name,
        algorithms=chosen,
        settings={key: value for key, value in settings.items() if value is not None},
        grid=default_grid(chosen, federation, settings, every) if grid is None else grid,
        trials={"seeds": tested, "splits": 0},
        pieces=pieces,
    )
    return run(experiment, federation, into=into, progress=progress, on=on)


def default_grid(
    names: list[Any], federation: Federation, settings: Mapping[str, Any], every: bool = False
) -> str | dict[str, Any]:
    """The paper's grids, with steps for the scale of the features unless a protocol is named.

    every: whether all algorithms were asked for, so that those of the paper without a grid have
    the steps of the others.
    """
    batch = settings.get("batch") or Settings.batch
    given = settings.get("intercept")
    missing = any(name in TRAINED and name not in GRIDS for name in names)
    known = is_size(batch, 1) and (every or not missing)
    if settings.get("protocol") is not None or not known:
        return "paper"  # which is refused, like a wrong batch, where all is checked
    return stable_grids(
        names, federation, federation.intercept if given is None else bool(given), batch
    )


def estimate_work(piece: Piece, data: Record) -> float:
    """Gradients that a piece takes, roughly: what its share of the time is guessed by."""
    told = piece.settings
    run_length = Settings(rounds=told["rounds"], evaluate_every=told["evaluate_every"])
    total = 0
    trajectories = dict[Any, int]()
    for name, axes in piece.grid.items():
        alone = REGISTRY[name].shares_nothing
        of_server = server_settings(name)
        for values in combinations(axes):
            full = told | values
            shared, personal = count_planned_steps(name, full, data)
            of_run = tuple(full.get(axis) for axis in of_server)
            trajectories[of_run] = shared * gradients_per_step(name, full["inner_steps"])
            total += personal * (1 if alone else len(run_length.evaluated_rounds))
    repeats = len(piece.seeds) * max(len(piece.splits), 1)
    return float((total + sum(trajectories.values())) * repeats) or 1.0
