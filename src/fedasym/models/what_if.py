"""`what_if`: accuracy (or error) of every algorithm at sizes that nobody has yet.

Clients are drawn from a double at each value of one quantity at a time, the others as they are, and
every algorithm's exact least-squares head is scored on held-out samples. Bands hold what drawing
leaves open, the standard errors of the real probes, and what calibration could not match.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.algorithms import PAPER, Algorithm
from fedasym.algorithms.registry import asks_for_all, find, requested_algorithms
from fedasym.core.errors import InvalidInput, find_entry, read_list
from fedasym.core.numbers import Array, check_seed, json_value, one_float, plural, whole
from fedasym.core.runtime import Progress, few_threads, progress_shown, write_file
from fedasym.data.federation import Federation
from fedasym.exact.held_out import HeldOut
from fedasym.models.doubles import Double, resemble
from fedasym.results import ACCURACY, LOSS, Metric, Result

AXES = ("samples", "clients", "alpha")
UNITS = {"samples": "training samples a client", "clients": "clients", "alpha": "Dirichlet alpha"}
HELD = 20  # validation samples of a drawn client, and as many for test
DRAWS = 3
MOST_EARLIER = 200  # clients that make the shared model of newcomers
NEWCOMERS = 40  # clients that come after the shared model was made
FEW = 5  # samples of a newcomer
SURE = 1.96


@dataclass(frozen=True)
class WhatIfPoint:
    """One algorithm where one quantity has one value: its mean score and its band."""

    quantity: str
    at: float
    algorithm: str
    value: float
    low: float
    high: float


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
            lines += ["", f"{UNITS[quantity]:<26}" + "".join(f"{v:>14g}" for v in values)]
            for name in self.algorithms:
                cells = [self.at(quantity, value, name) for value in values]
                told = "".join(f"{show_band(cell, self.metric):>14}" for cell in cells)
                lines.append(f"  {name:<24}{told}")
        return "\n".join([*lines, "", *self.sentences] if self.sentences else lines)


def show_band(point: WhatIfPoint, metric: Metric) -> str:
    """A score and half the width of its band."""
    wide = (point.high - point.low) / 2
    if metric.share:
        return f"{100 * point.value:.1f} ± {100 * wide:.1f}"
    rounded = float(f"{wide:.2g}")
    return f"{point.value:.4g} ± {rounded:g}"


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
    present = {"samples": float(np.median(double.sizes[:, 0])), "clients": float(len(double.sizes))}
    axes = check_vary(default_axes(present) if vary is None else vary, double)
    rounds = whole("draws", draws, 1)
    seed = check_seed(seed)
    mismatch, error = match_error(double)
    points: list[WhatIfPoint] = []
    total = sum(map(len, axes.values())) * rounds + 1
    done = 0
    with few_threads(double.laws.mean.size):
        for quantity, values in axes.items():
            for value in values:
                scores = np.empty((rounds, len(chosen)))
                for draw in range(rounds):
                    if progress is not None:
                        progress(done / total, f"{quantity} {value:g}")
                    told: dict[str, Any] = {quantity: value}
                    drawn = double.draw(**told, held=HELD, seed=seed + draw)
                    scores[draw] = score_clients(drawn, chosen)
                    done += 1
                spread = scores.std(0, ddof=1) / np.sqrt(rounds) if rounds > 1 else 0 * scores[0]
                wide = SURE * np.sqrt(spread**2 + error**2 + mismatch**2)
                for name, mean, band in zip(chosen, scores.mean(0), wide, strict=True):
                    ends = np.clip([mean - band, mean + band], 0.0, None)
                    ends = np.minimum(ends, 1.0) if double.classes is not None else ends
                    points.append(
                        WhatIfPoint(quantity, value, name.name, float(mean), *map(float, ends))
                    )
        newcomer = score_newcomers(double, FEW, seed)
    if progress is not None:
        progress(1.0, "newcomers")
    m = plural(len(double.sizes), "client")
    title = f"What if · {m} of {present['samples']:g} training samples today · least-squares heads"
    metric = LOSS if double.classes is None else ACCURACY
    return WhatIf(tuple(points), present, newcomer, metric, title)


def default_axes(present: Mapping[str, float]) -> dict[str, list[float]]:
    """From a quarter of the samples to four times as many, and half to twice the clients."""
    n, m = present["samples"], present["clients"]
    samples = [max(round(n * factor), 2) for factor in (0.25, 0.5, 1, 2, 4)]
    return {
        "samples": list(dict.fromkeys(map(float, samples))),
        "clients": [float(max(round(m * factor), 4)) for factor in (0.5, 1, 2)],
    }


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


def match_error(double: Double) -> tuple[float, float]:
    """How far drawn clients of the present size are from real ones, and the real standard error."""
    card = double.card
    off = [card.drawn[name] - value for name, value in card.measured.items()]
    return float(np.sqrt(np.mean(np.square(off)))), float(np.mean(double.goal_error))


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
    personal = last.final(tuned[last.choose(tuned)])
    gain = personal - last.final(shared)
    return {
        "samples": float(samples),
        "shared": float(np.nanmean(last.final(shared))),
        "personal": float(np.nanmean(personal)),
        "error": float(np.nanstd(gain) / np.sqrt(max(np.isfinite(gain).sum(), 1))),
    }


def crossing_sentences(found: WhatIf) -> list[str]:
    """From how many samples on clients do better on their own, or personalised, than shared."""
    said: list[str] = []
    names = found.algorithms
    for quantity in found.quantities:
        if "fedavg" not in names or quantity == "clients":
            continue
        shared = found.curve(quantity, "fedavg")
        for name in ("local_ridge", "local", "rtfa"):
            if name not in names or (name == "local" and "local_ridge" in names):
                continue
            own = found.curve(quantity, name)
            ahead = own[:, 1] - shared[:, 1]
            ahead = -ahead if found.metric.lower else ahead
            words = "local training" if name.startswith("local") else name
            if np.all(ahead > 0) or np.all(ahead <= 0):
                side = "beats" if ahead[0] > 0 else "does not beat"
                said.append(f"{words} {side} fedavg at every value of {quantity} looked at.")
                continue
            place = int(np.flatnonzero(np.diff(np.sign(ahead)))[0])
            x, h = np.log(own[place : place + 2, 0]), ahead[place : place + 2]
            cross = float(np.exp(x[0] - h[0] * (x[1] - x[0]) / (h[1] - h[0])))
            unit = "samples" if quantity == "samples" else "alpha"
            at = f"{cross:.0f} samples" if unit == "samples" else f"alpha {cross:.2g}"
            way = "From" if ahead[-1] > 0 else "Up to"
            on = " on" if ahead[-1] > 0 else ""
            said.append(f"{way} {at}{on} {words} beats fedavg.")
    return said


def newcomer_sentences(found: WhatIf) -> list[str]:
    """What a client that comes later should do with its few samples."""
    if not found.newcomer:
        return []
    gain = found.newcomer["personal"] - found.newcomer["shared"]
    gain = -gain if found.metric.lower else gain
    few = f"A newcomer with {found.newcomer['samples']:g} samples"
    if gain <= SURE * found.newcomer["error"]:
        return [f"{few}: keep the shared model."]
    by = f"{100 * gain:.1f} points" if found.metric.share else f"{gain:.3g}"
    return [f"{few}: personalise the shared model at once, which gains {by}."]


def growth_sentences(found: WhatIf) -> list[str]:
    """Whether to recruit clients or to collect samples: the best score at twice as many of each."""
    gains = {}
    for quantity in ("samples", "clients"):
        values = found.quantities.get(quantity, [])
        now = found.present[quantity]
        if not {now, 2 * now} <= set(values):
            return []
        best = []
        for value in (now, 2 * now):
            scores = [found.at(quantity, value, name).value for name in found.algorithms]
            best.append(min(scores) if found.metric.lower else max(scores))
        gains[quantity] = best[0] - best[1] if found.metric.lower else best[1] - best[0]
    first = "Collect samples" if gains["samples"] >= gains["clients"] else "Recruit clients"
    shown = {
        name: f"{100 * gain:.1f} points" if found.metric.share else f"{gain:.3g}"
        for name, gain in gains.items()
    }
    return [
        f"{first} first: twice the samples of each client gain {shown['samples']}, twice the"
        f" clients {shown['clients']}."
    ]
