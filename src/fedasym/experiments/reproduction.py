"""What can be reproduced of the paper: targets, published curves beside ours, theory, and the
findings held against runs, each verdict by paired 95% intervals.

`paper/published.json` holds, by data set, `seeds`, `splits` and `gains`: for each algorithm (and
number of personalization epochs) the rounds and an accuracy per round and trial; `"mean":
"clients"` marks the two local curves that the paper averaged over clients, not over samples;
`positions` are the test positions that the curves of text count, and how many of them are padding
(benchmarks/shakespeare_published.py).

`foreseen.json`, in a run folder or among saved tables, holds what the advisor says before training:
accuracies by algorithm, means over clients, or why there are none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedasym.core.errors import InvalidInput, find_entry
from fedasym.core.numbers import Array, TextTable, columns, html_tables, join_with_and
from fedasym.core.runtime import Progress, write_text
from fedasym.experiments.plan import cohort_of, count_planned_steps, gradients_per_step
from fedasym.results.simulation import Simulated, Simulation
from fedasym.training.comparisons import LEVEL, Measured, Paired, compare_pair, subtract
from fedasym.training.settings import CODE, resolve_protocol
from fedasym.worlds import Population
from fedasym.worlds.classes import MOST_CLASSES

if TYPE_CHECKING:
    from fedasym.experiments.results import Results


RUNS = "runs"  # the folder of run folders

TARGETS = {
    "cifar100": "images by Pachinko allocation, 100 classes",
    "shakespeare": "next character, by role",
    "emnist": "characters by writer, 62 classes",
    "stackoverflow": "next word, by user",
    "digits": "digits by writer, in place of emnist",
    "stackexchange": "next word, by user, in place of stackoverflow",
    "theory": "the limits beside simulated clients",
}


def find_target(name: str) -> str:
    """What the target of that name is."""
    return find_entry("target", name, TARGETS)


PRODUCTS = {  # the stage of an experiment, and what is made of it
    "seeds": "figure and table: accuracy, 11 seeds",
    "splits": "figure and table: accuracy, 11 splits",
    "gains": "figures: gains of personalization",
    "tuning": "table: tuned hyperparameters",
}
THEORY_FIGURES = "figures: loss by clients, noise, aspect"


class Item(NamedTuple):
    """A figure or table: what it is, how many training runs it takes, and its state."""

    what: str
    runs: str
    state: str


def agenda(name: str, runs: str | Path = RUNS) -> tuple[str, list[Item]]:
    """A target in a line, and its figures and tables.

    >>> agenda("cifar100", "nowhere")[1][3].runs
    '243 configurations'
    """
    if name == "theory":
        drawn = (Path(runs, name) / "aspect.png").is_file()
        item = Item(THEORY_FIGURES, "minutes on two cores", "drawn" if drawn else "not yet")
        return f"theory: {TARGETS[name]}", [item]
    counts = count_runs(name)
    done = count_pieces(Path(runs, name))
    items = []
    for stage, what in PRODUCTS.items():
        ready, planned = done.get(stage, (0, 0))
        state = "done" if ready == planned else f"{ready} of {planned} pieces"
        unit = "configurations" if stage == "tuning" else "runs"
        items.append(Item(what, f"{counts[stage]} {unit}", state if ready else "not yet"))
    return f"{name}: {TARGETS[name]} ({describe_data_here(name)})", items


def count_runs(name: str) -> dict[str, int]:
    """Training runs by stage, counted from the experiment."""
    from fedasym.experiments import Experiment
    from fedasym.experiments.fields import combinations

    experiment = Experiment.paper(name)
    gains = experiment.gains
    trials = experiment.trials
    many = len(experiment.algorithms)
    counts = {"tuning": sum(len(combinations(axes)) for axes in experiment.grid.values())}
    counts |= {"seeds": many * len(trials.seeds), "splits": many * len(trials.splits), "gains": 0}
    if gains is not None:
        counts["gains"] = len(gains.algorithms) * len(gains.epochs) * len(gains.seeds)
    return counts


def count_pieces(place: Path) -> dict[str, tuple[int, int]]:
    """Finished and planned pieces by stage, of a run folder."""
    from fedasym.experiments import plan
    from fedasym.experiments.folder import RunFolder, is_run, wanted_pieces
    from fedasym.experiments.results import Results

    if not is_run(place):
        return {}
    folder = RunFolder.open_existing(place)
    experiment = folder.experiment()
    data = folder.data()
    known = wanted_pieces(folder)[1] is not None
    chosen = Results.read(place).tuned if known else plan.placeholder_choice(experiment)
    pieces = [*plan.tuning(experiment), *plan.trials(experiment, chosen)]
    counts: dict[str, tuple[int, int]] = {}
    for piece in pieces:
        ready, planned = counts.get(piece.stage, (0, 0))
        there = (folder.pieces / f"{piece.key(data)}.parquet").is_file()
        counts[piece.stage] = ready + (there and (known or piece.stage == plan.TUNING)), planned + 1
    return counts


def describe_data_here(name: str) -> str:
    """What of its data is here."""
    from fedasym.data import find_dataset
    from fedasym.pretraining import chosen_network, features_file

    for there, words in (
        (features_file, "features here"),
        (lambda each: chosen_network(each, None), "network here, no features"),
    ):
        try:
            there(name)
        except InvalidInput:
            continue
        return words
    return "raw samples here" if find_dataset(name).folder() is not None else "no data here"


FILE = Path(__file__).parent / "paper" / "published.json"
# whose curves a stand-in is set beside
STANDS_FOR = {"digits": "emnist", "stackexchange": "stackoverflow"}


class PaperCurve(NamedTuple):
    """A published curve."""

    rounds: Array
    accuracy: Array  # (trials, rounds)
    over_clients: bool  # the mean over clients alike, not over samples

    @property
    def final(self) -> Array:
        """After the last round, a number per trial."""
        return self.accuracy[:, -1]


class Positions(NamedTuple):
    """The test positions of sequences that published accuracies count, padding included."""

    counted: int
    padding: int | None  # None: not known without the data

    def without_padding(self, curve: PaperCurve) -> PaperCurve:
        """Accuracies over real positions if every padded one is predicted right: bounds from below.

        Rounds with fewer right predictions than padded positions are left out.

        >>> curve = PaperCurve(np.array([0, 50]), np.array([[0.1, 0.6]]), False)
        >>> Positions(100, 20).without_padding(curve).accuracy.tolist()
        [[0.5]]
        """
        if self.padding is None:
            return curve
        right = self.counted * curve.accuracy - self.padding
        held = (right >= 0).all(axis=0)
        real = self.counted - self.padding
        return PaperCurve(curve.rounds[held], right[:, held] / real, curve.over_clients)


class PaperCurves(NamedTuple):
    """The paper's results on a data set: curves by sweep and algorithm, gains by epochs."""

    name: str  # of the paper's data set
    trials: dict[str, dict[str, PaperCurve]]
    gains: dict[str, dict[str, PaperCurve]]
    positions: Positions | None = None  # of sequences

    def match_positions(self, results: Results) -> PaperCurves:
        """The curves over real positions, where the runs count no padding and the paper does."""
        if self.positions is None or counts_padding(results):
            return self

        def drop_padding(
            held: dict[str, dict[str, PaperCurve]],
        ) -> dict[str, dict[str, PaperCurve]]:
            return {
                key: {name: positions.without_padding(each) for name, each in by.items()}
                for key, by in held.items()
            }

        positions = self.positions
        return self._replace(trials=drop_padding(self.trials), gains=drop_padding(self.gains))

    def curves(self) -> dict[str, dict[str, tuple[list[int], Array]]]:
        """Rounds and accuracies (trials, rounds) by sweep and algorithm; gains by "ftfa 10"."""
        gains = self.gains.items()
        named = {f"{name} {epochs}": each for name, by in gains for epochs, each in by.items()}
        found: dict[str, dict[str, tuple[list[int], Array]]] = {}
        for sweep, by in (self.trials | ({"gains": named} if named else {})).items():
            found[sweep] = {key: (each.rounds.tolist(), each.accuracy) for key, each in by.items()}
        return found


def published_accuracies(name: str) -> PaperCurves | None:
    """The paper's curves for a data set, or for the one it stands in for; None without any.

    >>> curves = published_accuracies("cifar100")
    >>> round(float(curves.trials["splits"]["ftfa"].final.mean()), 4)
    0.8104
    >>> published_accuracies("digits").name, published_accuracies("mine") is None
    ('emnist', True)
    """
    source = STANDS_FOR.get(name, name)
    held = read_published().get(source)
    if held is None:
        return None
    sweeps = [sweep for sweep in ("seeds", "splits") if sweep in held]
    trials = {
        sweep: {each: read_curve(entry) for each, entry in held[sweep].items()} for sweep in sweeps
    }
    gains = {
        each: {epochs: read_curve(entry) for epochs, entry in by.items()}
        for each, by in held.get("gains", {}).items()
    }
    positions = Positions(**held["positions"]) if "positions" in held else None
    return PaperCurves(source, trials, gains, positions)


def curves_of(
    results: Results, name: str | None = None
) -> dict[str, dict[str, tuple[list[int], Array]]] | None:
    """What figures draw beside a run, counted as it counts; none for a stand-in, whose accuracies
    are of other data.
    """
    name = name or results.experiment.name
    paper = published_accuracies(name)
    if paper is None or paper.name != name:
        return None
    return paper.match_positions(results).curves()


def counts_padding(results: Results) -> bool:
    """Whether the runs train on padded positions and count them."""
    settings = results.experiment.settings
    return resolve_protocol(settings.protocol, settings.intercept).count_padding


def describe_positions(results: Results, name: str | None = None) -> str | None:
    """How the paper's accuracies on sequences are set beside these, in a sentence; None where both
    count alike.
    """
    paper = published_accuracies(name or results.experiment.name)
    if paper is None or paper.positions is None or counts_padding(results):
        return None
    counted, padding = paper.positions
    if padding is None:
        return (
            f"The paper's accuracies count all {counted:,} test positions, an unknown number of"
            " them padding; these runs count real positions alone, so the two cannot be compared."
        )
    return (
        f"The paper's accuracies count {counted:,} test positions, {padding:,} of them padding;"
        " these runs count real positions alone. The paper's are shown over real positions, as if"
        " every padded one had been predicted right."
    )


@cache
def read_published() -> dict[str, Any]:
    """The file, read once."""
    return dict(json.loads(FILE.read_text()))


def read_curve(entry: dict[str, Any]) -> PaperCurve:
    """One curve of the file."""
    rounds = np.array(entry["rounds"], int)
    accuracy = np.array(entry["accuracy"], float).T
    return PaperCurve(rounds, accuracy, entry.get("mean") == "clients")


PAPER_HEAD = ["sweep", "algorithm", "ours", "worst–best", "paper", "worst–best", "ours - paper"]


def compare_with_paper(results: Results, name: str) -> str | None:
    """The table for a data set that the paper has, or for its stand-in; None where there is none.

    A local curve that the paper averaged over clients alike is set beside ours averaged so.
    """
    paper = published_accuracies(name)
    if paper is None or results.task != "classification":
        return None
    rows, paper = [PAPER_HEAD], paper.match_positions(results)
    for sweep, curves in paper.trials.items():
        pooled, alike = results.finals(sweep), results.finals(sweep, "mean_accuracy")
        for algorithm, values in pooled.items():
            curve = curves.get(algorithm)
            ours = alike[algorithm] if curve is not None and curve.over_clients else values
            theirs = ["-", "-", "-"]
            if curve is not None:
                ahead = 100 * (ours.mean() - curve.final.mean())
                theirs = [*show_spread(curve.final), f"{ahead:+.2f}"]
            rows.append([sweep, algorithm, *show_spread(ours), *theirs])
    words = "Percent after the last round, mean over trials."
    if paper.name != name:
        words += f" These are not the paper's data: {name} stands in for {paper.name}."
    if (counted := describe_positions(results, name)) is not None:
        words += f" {counted}"
    return "\n".join([*columns(rows, left=2), "", words])


def show_spread(values: Array) -> list[str]:
    """Mean, and worst to best."""
    mean, low, high = (f"{100 * end(values):.2f}" for end in (np.mean, np.min, np.max))
    return [mean, f"{low}–{high}"]


WORLD = Population(radius=1.0, noise=0.5, aspect=2.0, norm=2.0)
VARIED: dict[str, list[float]] = {
    "clients": [3, 5, 10, 20, 50, 100],
    "noise": [0.1, 0.3, 0.5, 0.7, 1.0, 1.5],
    "aspect": [0.5, 0.7, 1.5, 2.0, 4.0, 8.0],
}
SIZES = {False: {"dimension": 200, "trials": 8}, True: {"dimension": 60, "trials": 2}}


def simulate_limits(
    folder: str | Path, *, quick: bool = False, progress: Progress | None = None
) -> dict[str, Simulation[Simulated]]:
    """Simulate along clients, noise and aspect, drawn beside predictions; finished trials stay.

    `simulate_limits("runs/theory", quick=True)` is `fedasym reproduce theory --quick`.
    """
    from fedasym.verbs.simulation import simulate  # its linear algebra; no run needs that

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found = {}
    for number, (name, values) in enumerate(VARIED.items()):

        def report_progress(
            share: float, text: str, number: int = number, name: str = name
        ) -> None:
            if progress:
                progress((number + share) / len(VARIED), f"{name}: {text}")

        sizes: dict[str, Any] = SIZES[quick] | ({} if name == "clients" else {"clients": 50})
        kept = place / f"{name}{'-quick' if quick else ''}.jsonl"
        found[name] = simulate(
            WORLD, vary={name: values}, save=kept, progress=report_progress, **sizes
        )
        for ending in (".png", ".pdf"):
            found[name].plot(place / f"{name}{ending}")
    return found


FORESIGHT_FILE = "foreseen.json"
FORMAT = "fedasym foreseen 1"
# local training that validation stops is nearer to a ridge than to convergence
LIKE = {"local": "local_ridge", "maml_fo": "maml", "maml_hf": "maml"}
THEORY_HEAD = ["algorithm", "theory", "advised", "measured", "off by"]


class Foreseen(NamedTuple):
    """Accuracies by algorithm: the theory's where it has one, and those the advisor trusts; or a
    reason.
    """

    theory: dict[str, float]
    advised: dict[str, float]
    reason: str | None = None
    # so many classes, where these are more than are predicted, and the rare ones were taken as one
    merged: int | None = None


class Row(NamedTuple):
    """An algorithm: predicted and measured."""

    algorithm: str
    theory: float | None
    advised: float
    measured: float


def keep_foresight(folder: Path, found: Foreseen) -> None:
    """Write the file."""
    text = json.dumps({"format": FORMAT} | found._asdict(), indent=2)
    write_text(folder / FORESIGHT_FILE, f"{text}\n")


def read_foresight(folder: str | Path) -> Foreseen | None:
    """What is kept in a folder; None where there is nothing, or nothing whole."""
    try:
        held = json.loads((Path(folder) / FORESIGHT_FILE).read_text(encoding="utf-8"))
        if held.pop("format") != FORMAT:
            return None
        found = Foreseen(**held)
        accuracies = [*found.theory.values(), *found.advised.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    sound = isinstance(found.reason, str | None) and isinstance(found.merged, int | None)
    sound = sound and all(isinstance(each, float) for each in accuracies)
    return found if sound and set(found.theory) <= set(found.advised) else None


def foresight_rows(results: Results) -> list[Row]:
    """Predicted beside measured: means over clients at the end, over seeds or else splits."""
    foreseen = results.foreseen
    if foreseen is None or results.task != "classification":
        return []
    sweep = "seeds" if results.experiment.trials.seeds else "splits"
    finals = results.finals(sweep, "mean_accuracy")
    measured = {name: float(np.mean(values)) for name, values in finals.items()}
    pairs = [(name, LIKE.get(name, name), value) for name, value in measured.items()]
    return [
        Row(name, foreseen.theory.get(of), foreseen.advised[of], value)
        for name, of, value in pairs
        if of in foreseen.advised
    ]


def describe_agreement(found: list[Row], merged: int | None = None) -> str:
    """Where the rankings agree, in a sentence; levels compare only where no classes were merged."""
    advised = np.array([row.advised for row in found])
    measured = np.array([row.measured for row in found])
    first, best = found[int(np.argmax(advised))], found[int(np.argmax(measured))]
    right = "which is the best measured"
    if first != best:
        below = f"{100 * (best.measured - first.measured):.2f} points below"
        right = f"{below} {best.algorithm}, the best measured"
    pairs = [(i, j) for i in range(len(found)) for j in range(i)]
    same = sum((advised[i] - advised[j]) * (measured[i] - measured[j]) >= 0 for i, j in pairs)
    off = 100 * float(np.abs(advised - measured).max())
    levels = f"advised accuracies are off by at most {off:.1f} points"
    if merged is not None:
        levels = (
            f"advised accuracies are for a coarser task, the {MOST_CLASSES - 1} commonest of"
            f" {merged:,} classes and one of all others, so that only their order can be compared"
        )
    order = f"Of {len(pairs)} pairs {same} are in the measured order; {levels}."
    return f"The advisor puts {first.algorithm} first, {right}. {order}"


def compare_with_theory(results: Results) -> str | None:
    """The table, in percent, and where the rankings agree; None where nothing was foreseen."""
    found = foresight_rows(results)
    if results.foreseen is None or not found:
        return None
    table = [THEORY_HEAD]
    for row in found:
        off = "-" if results.foreseen.merged else show_error(row)
        table.append([row.algorithm, *map(show_share, row[1:]), off])
    words = describe_agreement(found, results.foreseen.merged)
    return "\n".join([*columns(table, left=1), "", words])


def show_error(row: Row) -> str:
    """Advised less measured, in points; not where classes were merged, which makes two tasks."""
    return f"{100 * (row.advised - row.measured):+.2f}"


def show_share(share: float | Array | None) -> str:
    """With two decimals; a dash where there is none."""
    return "-" if share is None else f"{100 * float(share):.2f}"


POINT = 0.01  # what counts as the same: a point of accuracy, as the paper's curves lie
PERSONAL = ("ftfa", "rtfa", "maml_fo", "maml_hf")
LOWER = ("fedavg", "local")
SUPPORTED, REFUTED, UNDECIDED = "supported", "not supported", "undecided"
TIMES = 20  # the compute of pFedMe beside FTFA's, as the paper says; a factor of two either way
NEARLY = 0.0025  # accuracies that are nearly identical: a quarter of a point
MUCH = 4  # a data set with so many times the samples of another is much larger


@dataclass(frozen=True)
class Claim:
    """One finding: what it says, what came of it, and why."""

    says: str
    sweep: str
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Claims:
    """All findings that the results can speak to; prints itself."""

    name: str
    found: tuple[Claim, ...]

    def to_json(self) -> str:
        """Full text of every claim."""
        claims = [asdict(claim) for claim in self.found]
        return json.dumps({"name": self.name, "claims": claims}, indent=2)

    def __str__(self) -> str:
        units = "differences in points, with 95% intervals over trials and clients"
        lines = [f"{self.name}: the paper's findings on these runs ({units})"]
        for claim in self.found:
            lines += ["", f"{claim.verdict.upper()}, over {claim.sweep}: {claim.says}"]
            lines += [f"  {each}" for each in claim.evidence]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            [claim.verdict, claim.sweep, claim.says, "; ".join(claim.evidence)]
            for claim in self.found
        ]
        head = ["verdict", "over", "finding", "evidence"]
        return html_tables([TextTable(head, rows, left=len(head))], self.name)


def check_claims(results: Results, margin: float = POINT) -> Claims:
    """Hold the paper's findings against results: which of them these runs support.

    margin: the difference in accuracy within which algorithms count as the same.
    """
    if results.task != "classification":
        raise InvalidInput(
            "the paper's findings are about accuracy: these results are of a regression"
        )
    found: list[Claim] = []
    for sweep in ("seeds", "splits"):
        finals = results.comparison_values(sweep)
        same = claim_same(finals, sweep, margin)
        claims = (same, claim_above(finals, sweep), claim_between(finals, sweep))
        found += [claim for claim in claims if claim]
    found += claim_growing(results)
    found += claim_compute(results)
    if not found:
        raise InvalidInput(
            "there is nothing to check: the findings compare algorithms over at least two seeds or"
            " splits"
        )
    return Claims(results.experiment.name, tuple(found))


Finals = dict[str, Measured]


def compare_all(
    finals: Finals, sweep: str, pairs: Iterable[tuple[str, str]], margin: float | None = None
) -> list[Paired]:
    """Every pair, the first less the second."""
    return [
        compare_pair(sweep, first, second, subtract(finals[first], finals[second]), margin)
        for first, second in pairs
    ]


def claim_same(finals: Finals, sweep: str, margin: float) -> Claim | None:
    """FTFA, RTFA and MAML come to the same."""
    names = [name for name in PERSONAL if name in finals]
    pairs = compare_all(finals, sweep, combinations(names, 2), margin)
    if not pairs:
        return None
    within = [pair.equivalence is not None and pair.equivalence < LEVEL for pair in pairs]
    outside = [pair.low > margin or pair.high < -margin for pair in pairs]
    verdict = SUPPORTED if all(within) else REFUTED if any(outside) else UNDECIDED
    points = f"{100 * margin:g} point{'' if margin == 0.01 else 's'}"
    says = f"{join_with_and(names)} agree to within {points}"
    return Claim(says, sweep, verdict, tuple(map(describe_difference, pairs)))


def claim_above(finals: Finals, sweep: str) -> Claim | None:
    """Personalised models beat the shared one and local training."""
    high, low = ([name for name in names if name in finals] for names in (PERSONAL, LOWER))
    pairs = compare_all(finals, sweep, product(high, low))
    if not pairs:
        return None
    says = f"{join_with_and(high)} are above {join_with_and(low)}"
    return Claim(says, sweep, judge_order(pairs), tuple(map(describe_difference, pairs)))


def claim_between(finals: Finals, sweep: str) -> Claim | None:
    """PFedMe lies between FedAvg and the personalised."""
    high = [name for name in PERSONAL if name in finals]
    if not high or "fedavg" not in finals or "pfedme" not in finals:
        return None
    lowest = min(high, key=lambda name: float(np.mean(finals[name].mean())))
    pairs = compare_all(finals, sweep, [("pfedme", "fedavg"), (lowest, "pfedme")])
    says = f"pfedme is between fedavg and the others ({lowest} is the lowest of them)"
    return Claim(says, sweep, judge_order(pairs), tuple(map(describe_difference, pairs)))


def claim_growing(results: Results) -> list[Claim]:
    """More personalization is better, step by step."""
    claims = []
    last = results.experiment.settings.rounds
    rows = [row for row in results.gains.iter_rows(named=True) if row["round"] == last]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        by_epochs: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["algorithm"] == name:
                by_epochs.setdefault(row["epochs"], {})[row["trial"]] = row["accuracy"]
        amounts = sorted(by_epochs, key=lambda amount: 0.5 if amount == "batch" else float(amount))
        trials = sorted(set.intersection(*(set(values) for values in by_epochs.values())))
        if len(amounts) < 2 or len(trials) < 2:
            continue
        finals: Finals = {
            each: np.array([by_epochs[each][trial] for trial in trials]) for each in amounts
        }
        order = [(more, less) for less, more in pairwise(amounts)]
        *steps, whole = compare_all(finals, "seeds", [*order, (amounts[-1], amounts[0])])
        falls = any(step.high < 0 for step in steps)
        verdict = REFUTED if falls or whole.high < 0 else SUPPORTED if whole.low > 0 else UNDECIDED
        lines = tuple(describe_difference(step, " epoch") for step in (*steps, whole))
        says = f"the gains of {name} grow with its personalization epochs"
        claims.append(Claim(says, "seeds", verdict, lines))
    return claims


def claim_compute(results: Results) -> list[Claim]:
    """PFedMe takes about 20 times the compute of FTFA: gradients of one run, counted."""
    experiment, data = results.experiment, results.data
    if not {"ftfa", "pfedme"} <= set(experiment.algorithms):
        return []
    told = experiment.settings.model_dump()
    counts = {}
    for name in ("ftfa", "pfedme"):
        settings = told | results.tuned.get(name, {})
        shared, personal = count_planned_steps(name, settings, data)
        counts[name] = shared * gradients_per_step(name, settings["inner_steps"]), personal
    tuned, (cohort, _) = sum(counts["ftfa"]), counts["pfedme"]
    everyone = cohort * sum(n > 0 for n in data.training) // cohort_of(told, data)
    ratios = cohort / tuned, everyone / tuned
    # in the released code all clients train in every round, and the cohort's models are averaged
    measured = ratios[told["protocol"] == CODE.name]
    verdict = SUPPORTED if TIMES / 2 <= measured <= 2 * TIMES else REFUTED
    says = f"a run of pfedme takes about {TIMES} times the compute of ftfa"
    lines = (
        f"gradients of a batch in a run: ftfa {tuned:,}, personalization included",
        f"pfedme where drawn clients train, as the text says: {cohort:,}, {ratios[0]:.3g} times",
        "pfedme where all clients train in every round, as the released code does:"
        f" {everyone:,}, {ratios[1]:.3g} times",
    )
    return [Claim(says, "counted gradients", verdict, lines)]


def claim_identical(runs: Mapping[str, Results]) -> Claim | None:
    """FTFA, RTFA and MAML are nearly identical on data sets that are much larger than others.

    None with one data set. Undecided where none is much larger than the smallest.
    """
    sizes = {name: int(results.data.counts["train"]) for name, results in runs.items()}
    if len(sizes) < 2:
        return None
    lines, verdicts = [], []
    for name, size in sorted(sizes.items(), key=lambda entry: entry[1]):
        sweep = runs[name].sweep
        finals = runs[name].comparison_values(sweep)
        held = [each for each in PERSONAL if each in finals]
        pairs = compare_all(finals, sweep, combinations(held, 2), NEARLY)
        if not pairs:
            continue
        widest = max(pairs, key=lambda pair: abs(pair.difference))
        large = size >= MUCH * min(sizes.values())
        what = "much larger, " if large else ""
        lines.append(f"{name}, {what}{size:,} training samples: {describe_difference(widest)}")
        if large:
            within = [pair.equivalence is not None and pair.equivalence < LEVEL for pair in pairs]
            outside = [pair.low > NEARLY or pair.high < -NEARLY for pair in pairs]
            verdicts.append(SUPPORTED if all(within) else REFUTED if any(outside) else UNDECIDED)
    if not lines:
        return None
    if not verdicts:
        lines.append(f"none has {MUCH} times the samples of the smallest, so this cannot be seen")
    verdict = next((each for each in (REFUTED, UNDECIDED) if each in verdicts), None)
    if verdict is None:
        verdict = SUPPORTED if verdicts else UNDECIDED
    points = f"{100 * NEARLY:g} points"
    says = f"{join_with_and(PERSONAL)} are nearly identical, within {points}, where data are many"
    return Claim(says, "data sets", verdict, tuple(lines))


def judge_order(pairs: Sequence[Paired]) -> str:
    """Whether the first of every pair is above its second."""
    if all(pair.low > 0 for pair in pairs):
        return SUPPORTED
    return REFUTED if any(pair.high < 0 for pair in pairs) else UNDECIDED


def describe_difference(pair: Paired, unit: str = "") -> str:
    """A difference with its interval, in points."""

    def words(name: str) -> str:
        plain = f"{name}{unit}{'s' if unit and name != '1' else ''}"
        return f"one {name}" if name == "batch" else plain

    ends = f"{100 * pair.low:+.2f} to {100 * pair.high:+.2f}"
    if pair.omission:
        ends += f"; {pair.omission}"
    return f"{words(pair.first)} - {words(pair.second)}: {100 * pair.difference:+.2f} ({ends})"
