"""`what_if`: accuracy (or error) of every algorithm at sizes that nobody has yet.

Clients are drawn from a double at each value of one quantity at a time, the others as they are, and
every algorithm's exact least-squares head is scored on held-out samples. Bands hold what drawing
leaves open, the standard errors of the real probes, and what calibration could not match. Two
algorithms are compared on the same clients, drawn and real: most of their luck is common.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.algorithms import PAPER, Algorithm, Objective, asks_for_all, requested_algorithms
from fedasym.algorithms.registry import find
from fedasym.core.errors import InvalidInput, find_entry, read_list
from fedasym.core.numbers import (
    Array,
    check_seed,
    json_value,
    one_float,
    plural,
    three_digits,
    whole,
)
from fedasym.core.runtime import Progress, few_threads, progress_shown, write_file
from fedasym.data.federation import Federation
from fedasym.exact.held_out import HeldOut
from fedasym.models.doubles import HELD, Double, best_probes, hold_out, resemble
from fedasym.results import ACCURACY, LOSS, Metric, Result

AXES = ("samples", "clients", "alpha")
UNITS = {"samples": "training samples a client", "clients": "clients", "alpha": "Dirichlet alpha"}
TESTED = 10_000  # test samples of a draw where labels are numbers: squares of errors vary more
DRAWS = 3
MOST_EARLIER = 200  # clients that make the shared model of newcomers
MOST_DRAWN = 5000  # clients, where there are more
NEWCOMERS = 40  # clients that come after the shared model was made
FEW = 5  # samples of a newcomer
SURE = 1.96


@dataclass(frozen=True)
class WhatIfPoint:
    """One algorithm where one quantity has one value: its mean score and its band.

    error: the standard error that is luck of the draws. gain: by how much it does better than
    fedavg on the same clients, and gain_error, the standard error of that: luck of the draws and of
    the real clients, and what calibration could not match; None where fedavg was not looked at.
    """

    quantity: str
    at: float
    algorithm: str
    value: float
    low: float
    high: float
    error: float = 0.0
    gain: float | None = None
    gain_error: float | None = None

    @property
    def side(self) -> int:
        """1 where it beats fedavg, -1 where fedavg beats it, 0 where that is not decided."""
        if self.gain is None or self.gain_error is None:
            return 0
        return int(np.sign(self.gain)) if abs(self.gain) > SURE * self.gain_error else 0


@dataclass(frozen=True, eq=False)
class WhatIf(Result):
    """Scores along each quantity that was varied, and what follows from them; prints itself.

    present: what clients have today, by quantity. newcomer: scores of the shared model and of the
    best personal one for a client that comes later, with `FEW` samples.

    >>> import fedasym as fa
    >>> real = fa.datasets.synthetic(
    ...     task="classification", classes=3, centre=3, radius=2, clients=12, dimension=8, seed=1
    ... )
    >>> found = fa.what_if(real, {"samples": [5, 40]}, ["fedavg", "rtfa"])
    >>> found.at("samples", 40, "rtfa").value > found.at("samples", 5, "rtfa").value
    True
    """

    points: tuple[WhatIfPoint, ...]
    present: Mapping[str, float]
    newcomer: Mapping[str, float]
    metric: Metric
    title: str

    @property
    def algorithms(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(point.algorithm for point in self.points))

    @property
    def quantities(self) -> dict[str, list[float]]:
        """What was varied, and its values."""
        found: dict[str, list[float]] = {}
        for point in self.points:
            values = found.setdefault(point.quantity, [])
            if point.at not in values:
                values.append(point.at)
        return found

    def at(self, quantity: str, value: float, algorithm: str) -> WhatIfPoint:
        """One point."""
        key = (quantity, float(value), algorithm)
        known = {(point.quantity, point.at, point.algorithm): point for point in self.points}
        if key not in known:
            raise InvalidInput(
                f"there is no point at {quantity} {value:g} for {algorithm}: there are"
                f" {', '.join(f'{name} {values}' for name, values in self.quantities.items())}"
            )
        return known[key]

    def curve(self, quantity: str, algorithm: str) -> Array:
        """Values, scores and ends of the band along a quantity, (points, 4)."""
        return np.array(
            [
                (point.at, point.value, point.low, point.high)
                for point in self.points
                if (point.quantity, point.algorithm) == (quantity, algorithm)
            ]
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What follows, in words."""
        return (*crossing_sentences(self), *newcomer_sentences(self), *growth_sentences(self))

    def table(self) -> list[dict[str, Any]]:
        """One record per quantity, value and algorithm."""
        return [dict(vars(point)) for point in self.points]

    def to_json(self) -> str:
        """Points, what clients have today, and sentences."""
        held = {
            "metric": self.metric.name,
            "present": {name: json_value(value) for name, value in self.present.items()},
            "newcomer": {name: json_value(value) for name, value in self.newcomer.items()},
            "points": self.table(),
            "sentences": self.sentences,
        }
        return json.dumps(held, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw scores along every quantity, with bands, to a file (PNG, SVG or PDF)."""
        return write_file("draw what if", self, path)

    def __str__(self) -> str:
        lines = [self.title]
        for quantity, values in self.quantities.items():
            rows = {
                name: [show_band(self.at(quantity, value, name), self.metric) for value in values]
                for name in self.algorithms
            }
            wide = 2 + max(12, *(len(cell) for row in rows.values() for cell in row))
            lines += ["", f"{UNITS[quantity]:<26}" + "".join(f"{v:>{wide}g}" for v in values)]
            for name, row in rows.items():
                lines.append(f"  {name:<24}" + "".join(f"{cell:>{wide}}" for cell in row))
        return "\n".join([*lines, "", *self.sentences] if self.sentences else lines)


def show_band(point: WhatIfPoint, metric: Metric) -> str:
    """A score and half the width of its band, which has two digits.

    >>> show_band(WhatIfPoint("samples", 8.0, "rtfa", 0.53456, 0.46, 0.61), LOSS)
    '0.535 ± 0.075'
    """
    wide = (point.high - point.low) / 2
    if metric.share:
        return f"{100 * point.value:.1f} ± {100 * wide:.1f}"
    if not wide > 0:
        return f"{point.value:.4g} ± 0"
    places = max(1 - int(np.floor(np.log10(wide))), 0)
    return f"{point.value:,.{places}f} ± {wide:,.{places}f}"


def what_if(
    source: Federation | Double,
    vary: Mapping[str, Iterable[float]] | None = None,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> WhatIf:
    """What every algorithm would reach with more or fewer samples, clients, or other class shares.

    source: a federation, of which a double is made (`fa.resemble`), or a double.
    vary: "samples" (for training, of each client), "clients" and "alpha" (of a Dirichlet law of
        class shares), each with the values to look at while the others stay as they are; by default
        samples and clients from a quarter, or half, to four times, or twice, of what there is.
    algorithms: the paper's by default; any that has exact fits.
    draws: federations that are drawn at each point.

    >>> import fedasym as fa
    >>> real = fa.datasets.synthetic(clients=12, dimension=4, aspect=0.2, noise=0.5, seed=1)
    >>> found = fa.what_if(real, {"samples": [10, 80]}, ["local_ridge", "fedavg"])
    >>> found.metric.name, len(found.points)
    ('loss', 4)
    """
    progress = progress_shown(progress)
    if not isinstance(source, Federation | Double):
        raise InvalidInput(
            f"source is a {type(source).__name__}: give an fa.Federation, or a double of one"
            " (fa.resemble)"
        )
    double = source if isinstance(source, Double) else resemble(source)
    chosen = [find(each) for each in requested_algorithms(algorithms, PAPER)]
    if asks_for_all(algorithms):
        chosen = [each for each in chosen if has_held_out_scores(each, double)]
    usual = float(round(float(np.median(double.sizes[:, 0]))))
    present = {"samples": usual, "clients": float(len(double.sizes))}
    axes = check_vary(default_axes(present) if vary is None else vary, double)
    rounds = whole("draws", draws, 1)
    seed = check_seed(seed)
    points: list[WhatIfPoint] = []
    total = sum(map(len, axes.values())) * rounds + 1
    done = 0
    with few_threads(double.laws.mean.size):
        for quantity, values in axes.items():
            for value in values:
                scores = []
                for draw in range(rounds):
                    if progress is not None:
                        progress(done / total, f"{quantity} {value:g}")
                    told: dict[str, Any] = {"clients": drawn_clients(double), quantity: value}
                    drawn = double.draw(**told, held=count_held(double, told), seed=seed + draw)
                    board = board_of(drawn)
                    scores.append(np.stack([board.score(each) for each in chosen]))
                    done += 1
                points += points_of(double, quantity, value, chosen, scores)
        newcomer = score_newcomers(double, FEW, seed)
    if progress is not None:
        progress(1.0, "newcomers")
    m = plural(len(double.sizes), "client")
    few = drawn_clients(double)
    m += "" if few == len(double.sizes) else f" ({few:,} drawn at a time)"
    title = f"What if · {m} of {present['samples']:g} training samples today · least-squares heads"
    metric = LOSS if double.classes is None else ACCURACY
    return WhatIf(tuple(points), present, newcomer, metric, title)


def count_held(double: Double, told: Mapping[str, Any]) -> int:
    """Validation samples of a drawn client, and as many for test."""
    clients = int(told["clients"])
    return hold_out(clients, TESTED) if double.classes is None else hold_out(clients)


def drawn_clients(double: Double) -> int:
    """How many clients are drawn at a time where their number is as it is."""
    return min(len(double.sizes), MOST_DRAWN)


def default_axes(present: Mapping[str, float]) -> dict[str, list[float]]:
    """From a quarter of the samples to four times as many, and half to twice the clients."""
    n, m = present["samples"], present["clients"]
    samples = [max(round(n * factor), 2) for factor in (0.25, 0.5, 1, 2, 4)]
    found = {"samples": list(dict.fromkeys(map(float, samples)))}
    if m > MOST_DRAWN:  # more of them make no other shared model
        return found
    return found | {"clients": [float(max(round(m * factor), 4)) for factor in (0.5, 1, 2)]}


def check_vary(vary: Any, double: Double) -> dict[str, list[float]]:
    """Quantities and their values, each in its range."""
    if not isinstance(vary, Mapping) or not vary:
        raise InvalidInput(
            f"vary is {vary!r}: give quantities and their values, such as {{'samples': [20, 40]}}"
        )
    found: dict[str, list[float]] = {}
    for name, given in vary.items():
        find_entry("vary", name, dict.fromkeys(AXES))
        if name == "alpha" and double.classes is None:
            raise InvalidInput("vary has alpha, and the labels are numbers: vary samples, clients")
        listed = read_list(f"vary {name}", given, "give numbers")
        if not listed:
            raise InvalidInput(f"vary {name} is empty: give at least one value")
        if name == "alpha":
            values = [one_float(each) for each in listed]
            if not all(0 < each < np.inf for each in values):
                raise InvalidInput(f"vary alpha is {listed!r}: give finite numbers above 0")
        else:
            least = 2 if name == "samples" else 4
            values = [float(whole(f"vary {name}", each, least)) for each in listed]
            if name == "clients" and max(values) > 2 * MOST_DRAWN:
                raise InvalidInput(
                    f"vary clients has {max(values):,.0f}: at most {2 * MOST_DRAWN:,} are drawn,"
                    " and more make no other shared model; give fewer"
                )
        found[name] = sorted(dict.fromkeys(values))
    return found


def board_of(federation: Federation) -> HeldOut:
    """A federation's clients, ready to be scored."""
    from fedasym.models.doubles import read_rows

    rows = read_rows(federation)
    classes = None if federation.classes is None else len(federation.classes)
    return HeldOut.of(rows.x, rows.y, rows.owner, rows.split, classes, federation.intercept)


def has_held_out_scores(algorithm: Algorithm, double: Double) -> bool:
    """Whether clients like these are scored exactly: with one shared model and one penalty."""
    if algorithm.correction is not None and double.classes is None:
        return False
    return algorithm.server.group_stage is None and algorithm.personalise.plain_stage is None


def score_clients(federation: Federation, algorithms: Sequence[Algorithm]) -> Array:
    """The mean score of clients on test samples by algorithm, settings chosen on validation ones.

    >>> import fedasym as fa
    >>> real = fa.datasets.synthetic(clients=12, dimension=4, aspect=0.2, noise=0.5, seed=1)
    >>> bool(score_clients(real, [find("pfedme")])[0] < 1)
    True
    """
    board = board_of(federation)
    return np.array([float(np.nanmean(board.score(each))) for each in algorithms])


def kind_of(algorithm: Algorithm) -> str:
    """The probe that is nearest to an algorithm: of shared, of own or of personalised models."""
    if algorithm.shares_nothing:
        return "local_ridge"
    return "fedavg" if algorithm.personalise.objective is Objective.SHARED else "rtfa"


def luck_of(scores: Sequence[Array]) -> float:
    """The standard error of the mean of draws, each with its clients' scores: by how clients differ
    or by how draws do, whichever is larger, since a few draws say little.
    """
    means = [float(np.nanmean(each)) for each in scores]
    count = sum(int(np.isfinite(each).sum()) for each in scores)
    between = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    within = float(np.mean([np.nanvar(each) for each in scores])) / max(count, 1)
    return float(np.sqrt(max(between, within)))


def points_of(
    double: Double,
    quantity: str,
    at: float,
    algorithms: Sequence[Algorithm],
    scores: Sequence[Array],
) -> list[WhatIfPoint]:
    """The points of all algorithms at one value; scores: of each draw, (algorithms, clients)."""
    card = double.card
    off = {kind: card.drawn[kind] - value for kind, value in card.measured.items()}
    errors = probe_errors(double)
    kinds = [kind_of(each) for each in algorithms]
    means = np.mean([np.nanmean(each, axis=1) for each in scores], axis=0).tolist()
    names = [each.name for each in algorithms]
    base = names.index("fedavg") if "fedavg" in names else None
    found = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        luck = luck_of([each[place] for each in scores])
        wide = SURE * np.sqrt(luck**2 + errors[kind] ** 2 + off[kind] ** 2)
        most = np.inf if double.classes is None else 1.0
        low, high = np.clip([means[place] - wide, means[place] + wide], 0.0, most).tolist()
        paired: tuple[float | None, float | None] = None, None
        if base is not None and place != base:
            ahead = means[place] - means[base]
            paired_luck = luck_of([each[place] - each[base] for each in scores])
            real = double.difference_error(kind, "fedavg")
            apart = off[kind] - off["fedavg"]
            paired = (
                -ahead if double.classes is None else ahead,
                float(np.sqrt(paired_luck**2 + real**2 + apart**2)),
            )
        found.append(WhatIfPoint(quantity, at, name, means[place], low, high, luck, *paired))
    return found


def probe_errors(double: Double) -> dict[str, float]:
    """The standard errors of the best real probe of each kind."""
    best = best_probes(double.goal, double.classes is None)
    return {kind: float(double.goal_error[place]) for kind, place in best.items()}


def score_newcomers(double: Double, samples: int, seed: int) -> dict[str, float]:
    """The shared model, and personal ones by ridges about it, of clients that come later."""
    m = min(len(double.sizes), MOST_EARLIER)
    drawn = double.draw(clients=m + NEWCOMERS, held=HELD, seed=seed)
    late = drawn.owner >= m
    place = np.arange(len(late)) - drawn.starts[drawn.owner]
    kept = ~(late & (drawn.split == 0) & (place >= samples))
    classes = None if drawn.classes is None else len(drawn.classes)
    board = HeldOut.of(
        drawn.features[kept],
        drawn.labels[kept],
        drawn.owner[kept],
        drawn.split[kept],
        classes,
        drawn.intercept,
    )
    earlier = len(np.unique(drawn.owner[~late & (drawn.split == 0)]))
    first = replace(board, clients=board.clients[:earlier])
    theta = first.solve_weighted(np.ones_like)
    last = replace(board, clients=board.clients[earlier:])
    shared = last.curve(theta, [np.zeros_like])[0]
    tuned = last.curve(theta, list(last.filters(PAPER["rtfa"])))
    personal = last.reported_scores(tuned[last.choose(tuned)])
    gain = personal - last.reported_scores(shared)
    return {
        "samples": float(samples),
        "shared": float(np.nanmean(last.reported_scores(shared))),
        "personal": float(np.nanmean(personal)),
        "error": float(np.nanstd(gain) / np.sqrt(max(np.isfinite(gain).sum(), 1))),
    }


def crossing_sentences(found: WhatIf) -> list[str]:
    """Where clients do better on their own, or personalised, than shared, as far as that is decided
    by the difference on the same clients.
    """
    said: list[str] = []
    names = found.algorithms
    for quantity, values in found.quantities.items():
        if "fedavg" not in names or quantity == "clients":
            continue
        for name in ("local_ridge", "local", "rtfa"):
            if name not in names or (name == "local" and "local_ridge" in names):
                continue
            words = "local training" if name.startswith("local") else name
            points = [found.at(quantity, value, name) for value in values]
            sentence = compare_points(points, quantity, words)
            if sentence.startswith("local"):  # names of algorithms begin as they are
                sentence = sentence[0].upper() + sentence[1:]
            said.append(sentence)
    return said


def compare_points(points: Sequence[WhatIfPoint], quantity: str, words: str) -> str:
    """One algorithm beside fedavg along a quantity, in a sentence."""
    sides = [point.side for point in points]
    runs = [side for place, side in enumerate(sides) if place == 0 or side != sides[place - 1]]
    every = f"at every value of {quantity} looked at"
    if runs == [0]:
        return (
            f"Whether {words} beats fedavg is not decided at any value of {quantity} looked at: on"
            " the same clients the two differ by less than the error of their difference."
        )
    if len(runs) == 1:
        first, second = (words, "fedavg") if runs[0] > 0 else ("fedavg", words)
        return f"{first} beats {second} {every}."
    if runs in ([-1, 1], [1, -1]):
        place = sides.index(runs[1]) - 1
        x = np.log([each.at for each in points[place : place + 2]])
        h = np.array([each.gain for each in points[place : place + 2]], float)
        cross = float(np.exp(x[0] - h[0] * (x[1] - x[0]) / (h[1] - h[0])))
        where = f"{cross:.0f} samples" if quantity == "samples" else f"alpha {cross:.2g}"
        if runs[1] > 0:
            return f"From {where} on {words} beats fedavg."
        return f"Up to {where} {words} beats fedavg."
    cases = {
        1: f"{words} beats fedavg",
        -1: f"fedavg beats {words}",
        0: f"which of {words} and fedavg is better is not decided",
    }
    told = []
    for side, text in cases.items():
        values = [f"{point.at:g}" for point in points if point.side == side]
        if values:
            listed = [", ".join(values[:-1]), values[-1]] if values[1:] else values
            told.append(f"{text} at {' and '.join(listed)}")
    unit = " samples" if quantity == "samples" else " (alpha)"
    return f"{f'{unit}; '.join(told)}{unit}."


def newcomer_sentences(found: WhatIf) -> list[str]:
    """What a client that comes later should do with its few samples."""
    if not found.newcomer:
        return []
    gain = found.newcomer["personal"] - found.newcomer["shared"]
    gain = -gain if found.metric.lower else gain
    few = f"A newcomer with {found.newcomer['samples']:g} samples"
    if gain <= SURE * found.newcomer["error"]:
        return [f"{few}: keep the shared model."]
    by = f"{100 * gain:.1f} points" if found.metric.share else three_digits(gain)
    return [f"{few}: personalise the shared model at once, which gains {by}."]


def show_change(value: float) -> str:
    """Three digits with a sign."""
    return f"{'+' if value > 0 else ''}{three_digits(value)}"


def growth_sentences(found: WhatIf) -> list[str]:
    """Whether to recruit clients or to collect samples: the best score at twice as many of each."""
    gains = {}
    error2 = 0.0
    for quantity in ("samples", "clients"):
        values = found.quantities.get(quantity, [])
        now = found.present[quantity]
        if not {now, 2 * now} <= set(values):
            return []
        best = []
        for value in (now, 2 * now):
            points = [found.at(quantity, value, name) for name in found.algorithms]
            order = sorted(points, key=lambda point: point.value, reverse=not found.metric.lower)
            best.append(order[0].value)
        error2 += order[0].error ** 2  # what there is today is the same point twice
        gains[quantity] = best[0] - best[1] if found.metric.lower else best[1] - best[0]
    way = -1 if found.metric.lower else 1
    shown = {
        name: f"{100 * gain:+.1f} points" if found.metric.share else show_change(way * gain)
        for name, gain in gains.items()
    }
    told = (
        f"twice the samples of each client change the best score by {shown['samples']}, twice the"
        f" clients by {shown['clients']}"
    )
    if abs(gains["samples"] - gains["clients"]) <= SURE * np.sqrt(error2):
        unclear = f"{told.capitalize()}: within the luck of the draws."
        return [f"Recruit clients or collect samples? {unclear}"]
    first = "Collect samples" if gains["samples"] > gains["clients"] else "Recruit clients"
    return [f"{first} first: {told}."]
