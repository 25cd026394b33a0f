"""Reproducing the paper: an experiment's curves, published ones beside them, and the verb
`reproduce`, from the raw samples of a data set to figures, report and findings.

What is there is not made again. Among it is what the advisor says of a run's data before any
training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import Array, notebook_text
from fedasym.core.runtime import Progress
from fedasym.experiments.plan import GAINS, SEEDS, SPLITS
from fedasym.experiments.reproduction import (
    RUNS,
    Foreseen,
    find_target,
    keep_foresight,
    read_foresight,
)
from fedasym.worlds.classes import MOST_CLASSES

if TYPE_CHECKING:
    from fedasym.data.federation import Federation
    from fedasym.experiments.reproduction import Claims
    from fedasym.experiments.results import Results

# points of accuracy that are shown below the second half of training, where there are any
LEAST = 12.0
WIDE = 20  # ratio of the largest to the smallest loss from which the axis is logarithmic
Published = Mapping[str, Mapping[str, tuple[Sequence[int], Any]]]


@dataclass(frozen=True, eq=False)
class Curve:
    """A statistic after each evaluated round of each trial: values has trials along the first axis,
    rounds along the second.

    >>> curve = Curve((0, 50), np.array([[0.1, 0.8], [0.3, 0.6]]))
    >>> curve.mean.tolist(), curve.trials
    ([0.2, 0.7], 2)
    """

    rounds: tuple[int, ...]
    values: Array

    @property
    def trials(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def mean(self) -> Array:
        """Over trials; no number where a trial has none."""
        return np.asarray(self.values.mean(0))

    @property
    def low(self) -> Array:
        """The lowest trial."""
        return np.asarray(self.values.min(0))

    @property
    def high(self) -> Array:
        """The highest trial."""
        return np.asarray(self.values.max(0))

    @property
    def last(self) -> float:
        """The mean after the last round."""
        return float(self.mean[-1])

    def times(self, factor: float) -> Curve:
        """In another unit, such as percent."""
        return Curve(self.rounds, factor * self.values)


Curves = dict[str, Curve]


def trial_curves(results: Results, sweep: str) -> Curves:
    """Each algorithm's curve in a sweep, seeds or splits; empty where there are none."""
    rows = results.trials.filter(results.trials["sweep"] == sweep)
    return {
        str(name): arrange_trials(group.select("trial", "round", results.statistic).rows())
        for (name,), group in rows.group_by("algorithm", maintain_order=True)
    }


def gain_curves(results: Results) -> dict[str, Curves]:
    """By algorithm, a curve for each number of epochs of personalization."""
    found: dict[str, Curves] = {}
    columns = ("trial", "round", results.statistic)
    for (name, epochs), group in results.gains.group_by("algorithm", "epochs", maintain_order=True):
        found.setdefault(str(name), {})[str(epochs)] = arrange_trials(group.select(columns).rows())
    return found


def scale_curves(results: Results, curves: Curves) -> Curves:
    """As they are drawn: accuracies in percent, losses as they are."""
    return (
        curves
        if results.statistic == "loss"
        else {name: curve.times(100) for name, curve in curves.items()}
    )


def arrange_trials(rows: Sequence[tuple[int, int, float]]) -> Curve:
    """Trials by rounds from rows of trial, round and value; no number where a row is missing.

    >>> arrange_trials([(1, 0, 0.5), (1, 50, 0.7), (2, 0, 0.4)]).values.tolist()
    [[0.5, 0.7], [0.4, nan]]
    """
    trials = {trial: at for at, trial in enumerate(sorted({row[0] for row in rows}))}
    rounds = {when: at for at, when in enumerate(sorted({row[1] for row in rows}))}
    values = np.full((len(trials), len(rounds)), np.nan)
    for trial, when, value in rows:
        values[trials[trial], rounds[when]] = value
    return Curve(tuple(rounds), values)


def published_curves(published: Published | None, sweep: str) -> Curves:
    """The published curves of a sweep, checked; those of gains are named by algorithm and epochs,
    "ftfa 10".

    >>> published_curves({"seeds": {"ftfa": ([0, 50], [[0.01, 0.8]])}}, "seeds")["ftfa"].last
    0.8
    """
    for name in published or {}:
        if name not in (SEEDS, SPLITS, GAINS):
            raise unknown_name("sweep of published curves", name, (SEEDS, SPLITS, GAINS))
    return {
        name: check_curve(sweep, name, *given)
        for name, given in (published or {}).get(sweep, {}).items()
    }


def check_curve(sweep: str, name: str, rounds: Sequence[int], values: Any) -> Curve:
    """A published curve, refused where its sizes do not fit together."""
    held = np.asarray(values, dtype=float)
    if held.ndim != 2 or not held.size or held.shape[1] != len(rounds):
        raise InvalidInput(
            f"published has {sweep} of {name!r} with values of shape {held.shape}: "
            f"give trials x rounds, here trials x {len(rounds)}"
        )
    if any(after <= before for before, after in pairwise(rounds)):
        raise InvalidInput(
            f"published has {sweep} of {name!r} with rounds {list(rounds)}: give them in increasing"
            " order"
        )
    return Curve(tuple(int(each) for each in rounds), held)


def select_gains(curves: Curves, algorithm: str) -> Curves:
    """Of published gains, those of one algorithm, by epochs.

    >>> list(
    ...     select_gains(
    ...         {"ftfa 0": Curve((0,), np.ones((1, 1))), "maml_fo 0": Curve((0,), np.ones((1, 1)))},
    ...         "ftfa",
    ...     )
    ... )
    ['0']
    """
    return {
        name.rpartition(" ")[2]: curve
        for name, curve in curves.items()
        if name.rpartition(" ")[0] == algorithm
    }


def describe_epochs(epochs: str) -> str:
    """A number of epochs as people say it.

    >>> [describe_epochs(each) for each in ("0", "batch", "1", "10")]
    ['shared model', 'one batch', '1 epoch', '10 epochs']
    """
    words = {"0": "shared model", "batch": "one batch", "1": "1 epoch"}
    return words.get(epochs, f"{epochs} epochs")


class AxisSpan(NamedTuple):
    """What an axis shows; cut: some early values lie outside."""

    low: float
    high: float
    logarithmic: bool = False
    cut: bool = False


def finite_entries(values: Iterable[Array]) -> Array:
    """All finite entries."""
    flat = (
        np.concatenate([np.ravel(each) for each in values])
        if (values := list(values))
        else np.empty(0)
    )
    return np.asarray(flat[np.isfinite(flat)])


def span(curves: Iterable[Curve], *, loss: bool) -> AxisSpan:
    """Limits that give the second half of training its share of the height: the first rounds would
    flatten the rest.

    >>> span([Curve((0, 50, 100), np.array([[1.0, 80.0, 82.0]]))], loss=False)
    AxisSpan(low=68.0, high=82.7, logarithmic=False, cut=True)
    """
    held = list(curves)
    last = max((curve.rounds[-1] for curve in held), default=0)
    every = finite_entries(curve.values for curve in held)
    late = finite_entries(curve.values[:, 2 * np.array(curve.rounds) >= last] for curve in held)
    if not late.size:
        return AxisSpan(0.0, 1.0)
    if loss and every.min() > 0 and late.max() > WIDE * late.min():
        return AxisSpan(float(every.min()) / 1.2, float(every.max()) * 1.2, logarithmic=True)
    low, high = float(late.min()), float(late.max())
    room = max(1.5 * (high - low), 0.5 * abs(high) if loss else LEAST)
    floor, ceiling = float(every.min()), float(every.max())
    cut = ceiling > high + room if loss else floor < low - room
    if cut:
        floor, ceiling = (max(low - room, floor), high + room) if loss else (low - room, ceiling)
    margin = max(0.05 * (ceiling - floor), 0.005 * abs(ceiling)) or 1.0
    bottom = floor if cut and not loss else floor - margin
    top = ceiling if cut and loss else ceiling + margin
    return AxisSpan(bottom, top, cut=bool(cut))


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What came of a target: results, the paper's findings beside them, and files written."""

    results: Results
    beside: str | None  # our accuracies beside the paper's
    foreseen: str | None  # what the advisor said of the data, beside our accuracies
    claims: Claims | None
    files: tuple[Path, ...]

    def __str__(self) -> str:
        parts = [
            str(part)
            for part in (self.results, self.beside, self.foreseen, self.claims)
            if part is not None
        ]
        return "\n\n".join([*parts, "Written:\n" + "\n".join(f"  {path}" for path in self.files)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        texts = [notebook_text(part) for part in (self.beside, self.foreseen) if part is not None]
        claims = [] if self.claims is None else [self.claims._repr_html_()]
        return "".join([self.results._repr_html_(), *texts, *claims])


def reproduce(
    name: str,
    *,
    quick: bool = False,
    data: str | Path | None = None,
    device: str | None = None,
    into: str | Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Rerun the paper on one of its data sets, or on a stand-in: features, tuning, trials, gains,
    figures, report, findings.

    Features that are missing are made first, from a network that is pretrained first where there
    is none, which takes hours without a GPU. Interrupted at any moment, the same call goes on. The
    theory has a verb of its own, `fedasym.simulate`, and the command `fedasym reproduce theory`
    draws it.

    quick: a scaled copy that takes minutes; its numbers mean little. data: a features file instead
        of the data set's own.
    device: "cpu" or "gpu" for pretraining; training runs where JAX runs. into: the run folder,
        `runs/<name>` by default.

    >>> import fedasym as fa
    >>> fa.reproduce("cifar10")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: unknown target 'cifar10': did you mean cifar100? choose from cifar100, ...
    """
    from fedasym.experiments import Experiment
    from fedasym.experiments.execution import run
    from fedasym.experiments.fields import load_data
    from fedasym.experiments.pieces import describe_environment
    from fedasym.experiments.reproduction import (
        check_claims,
        compare_with_paper,
        compare_with_theory,
        curves_of,
    )
    from fedasym.experiments.results import Results
    from fedasym.show.figures.rounds import draw_figures
    from fedasym.show.report import report

    find_target(name)
    if name == "theory":
        raise InvalidInput(
            "name is theory: its figures come from fedasym reproduce theory, its numbers from"
            " fa.simulate"
        )
    experiment = Experiment.paper(name)
    if data is None:
        prepare_features(name, device, progress)
    else:
        experiment = experiment.with_data(data)
    experiment = experiment.quick() if quick else experiment
    if not describe_environment()["device"].startswith("cpu"):
        # an accelerator likes many runs side by side
        experiment = experiment.model_copy(update={"pieces": "coarse"})
    place = Path(RUNS, experiment.name) if into is None else Path(into)
    run(experiment, into=place, progress=progress)
    foresee(place, load_data(experiment.data))
    results = Results.read(place)
    curves = curves_of(results, name)
    files = (
        *draw_figures(results, place / "figures", curves),
        report(place, place / "report.html", curves),
    )
    enough = max(len(experiment.trials.seeds), len(experiment.trials.splits)) > 1
    return Reproduction(
        results,
        compare_with_paper(results, name),
        compare_with_theory(results),
        check_claims(results) if enough else None,
        files,
    )


def foresee(folder: str | Path, federation: Federation) -> Foreseen:
    """Ask the advisor and keep its answer in the folder; an answer there is not recomputed."""
    if (held := read_foresight(folder)) is not None:
        return held
    found = ask_advisor(federation)
    keep_foresight(Path(folder), found)
    return found


def foresee_run(folder: str | Path, results: Results, data: str | None = None) -> Foreseen:
    """The same for a finished run: on its experiment's data, or on a file of them elsewhere."""
    from fedasym.experiments.fields import fingerprint, load_data

    experiment = results.experiment if data is None else results.experiment.with_data(data)
    federation = load_data(experiment.data)
    if fingerprint(federation) != results.data.samples:
        where = "the experiment's data" if data is None else f"data is {data!r}: these"
        raise InvalidInput(
            f"{where} are not the samples of this run, whose SHA-256 begins with"
            f" {results.data.samples[:12]}"
        )
    return foresee(folder, federation)


def ask_advisor(federation: Federation) -> Foreseen:
    """The advisor's answer; where it refuses, its words."""
    from fedasym.advisor.crosscheck import foresee_accuracies

    if federation.task != "classification":
        return Foreseen({}, {}, "the labels are numbers: fedasym advise predicts losses for them")
    try:
        rows = {
            name: asdict(row)
            for name, row in foresee_accuracies(federation.merge_rare(MOST_CLASSES)).items()
        }
    except InvalidInput as refusal:
        return Foreseen({}, {}, str(refusal))
    theory, advised = (
        {name: row[column] for name, row in rows.items() if row[column] is not None}
        for column in ("theory", "trusted")
    )
    return Foreseen(
        theory, advised, merged=federation.outputs if federation.outputs > MOST_CLASSES else None
    )


def prepare_features(name: str, device: str | None, progress: Progress | None) -> Path:
    """The features of a data set: found, or made."""
    from fedasym.pretraining import chosen_network, features, features_file, pretrain

    try:
        return features_file(name)
    except InvalidInput:
        pass
    where = {"gpu": "cuda"}.get(device or "", device)
    try:
        chosen_network(name, None)
    except InvalidInput:
        pretrain(name, device=where, progress=progress)
    return features(name, device=where, progress=progress)
