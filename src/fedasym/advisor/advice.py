"""The answer of the advisor: estimates, predictions, a recommendation with its doubts, and how to prove it wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.advisor.assumptions import Check, Doubt
from fedasym.advisor.class_estimates import ClassLook, ClassMoments
from fedasym.advisor.class_predictions import CLOSE_ACCURACY, AccuracyPrediction, AccuracyTable, Epochs, normal_points
from fedasym.advisor.confirmation import Confirmation, FoldConfirmation, Measurement, MixedConfirmation
from fedasym.advisor.crosscheck import ClientAdvice, RidgeCurves
from fedasym.advisor.estimates import Estimates, Quantity, length_variance
from fedasym.advisor.predictions import Prediction
from fedasym.advisor.statistics import Summary
from fedasym.advisor.wording import fill_lines, scored_sentence, three_digits
from fedasym.algorithms import PAPER, Ridge
from fedasym.core.arrays import Array
from fedasym.core.hooks import write_file
from fedasym.core.text import plain, plural, preformatted
from fedasym.results.result import Result
from fedasym.theory.classes.squared_labels import LabelModel, Link
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum

CLOSE_LOSS = 0.005  # losses within this share are one: the simpler algorithm is taken
SIMPLEST_MIXED = ("fedavg", "rtfa", "pfedme", "ftfa", "local_ridge", "local", "maml")
SIMPLEST = ("fedavg", "ftfa", "rtfa", "pfedme", "local_ridge", "local", "maml")
CLASS_CANDIDATES = ("fedavg", "rtfa", "local_ridge")  # the simpler first


@dataclass(frozen=True)
class EstimatedClasses:
    """The population behind the clients, with 95% intervals.

    radius, centre: r and b, the lengths of a displacement and of the shared optimum; signal: rho, the standard deviation of a
        client's logits; aspect: the median of d/n with its least and largest over clients.
    world: the estimates as a `ClassPopulation`, for `fa.predict` and its kin.
    """

    radius: Quantity
    centre: Quantity
    signal: Quantity
    aspect: Quantity
    spectrum: Spectrum
    world: ClassPopulation
    classes: tuple[Any, ...]
    shares: tuple[float, ...]
    clients: int
    dimension: int
    samples: int
    method: str


@dataclass(frozen=True)
class ClassAdvice(Result):
    """What `fa.advise` returns for class labels; prints itself as a page.

    population: estimates with intervals. predictions: one `AccuracyPrediction` per method. recommended, ridge, steps: what to
    do; ridge is that of the logistic loss for a client of middling size (times `samples` it is the same for all clients).
    training: settings of `fa.train` for each method; with two classes its softmax has twice the ridge of one weight vector.
    doubts: what may be wrong; ranking_aid: whether levels are not to be trusted. confirm: the quick measurement that could
    prove it wrong, to be called with the data. clients: who gains. sent: bytes that a client sent (the most), where the
    advice came from summaries. columns: what became of a table's columns, in words.

    >>> import fedasym as fa
    >>> options = {"task": "classification", "classes": 2, "radius": 1.5, "centre": 1.5}
    >>> advice = fa.advise(fa.datasets.synthetic(**options, clients=30, dimension=40, seed=1))
    >>> advice.recommended, advice.population.radius.low < 1.5 < advice.population.radius.high
    ('rtfa', True)
    """

    population: EstimatedClasses
    predictions: dict[str, AccuracyPrediction]
    recommended: str
    ridge: float | None
    samples: float
    steps: Epochs | None
    training: dict[str, dict[str, float]]
    doubts: tuple[Doubt, ...]
    ranking_aid: bool
    confirm: Measurement
    clients: tuple[ClientAdvice, ...]
    sent: int | None = None
    columns: str = ""

    def table(self) -> list[dict[str, Any]]:
        """One record per method: feed it to any data frame. None: there is no finite number."""
        records = [
            {
                "algorithm": name,
                "accuracy": row.trusted,
                "predicted": row.accuracy.value,
                "low": row.accuracy.low,
                "high": row.accuracy.high,
                "new": row.new.value,
                "new_low": row.new.low,
                "new_high": row.new.high,
                "log_loss": row.log_loss.value,
                "log_loss_low": row.log_loss.low,
                "log_loss_high": row.log_loss.high,
                "probe": row.probe,
                "ridge": row.ridge,
                "recommended": name == self.recommended,
            }
            for name, row in self.predictions.items()
        ]
        return [keep_finite(record) for record in records]

    def client(self, name: Hashable) -> ClientAdvice:
        """One client's advice."""
        return next(each for each in self.clients if each.client == name)

    def to_json(self) -> str:
        """Full precision, stable keys."""
        about = self.population
        population: dict[str, Any] = {name: asdict(getattr(about, name)) for name in ("radius", "centre", "signal", "aspect")}
        population |= {name: getattr(about, name) for name in ("clients", "dimension", "samples", "method")}
        population |= {"classes": list(map(str, about.classes)), "shares": list(about.shares)}
        population["spectrum"] = {"eigenvalues": about.spectrum.values.tolist(), "shares": about.spectrum.weights.tolist()}
        answer = {
            "task": "classification",
            "recommended": self.recommended,
            "ridge": plain(self.ridge),
            "steps": None if self.steps is None else {key: json_number(value) for key, value in asdict(self.steps).items()},
            "training": self.training,
            "population": population,
            "predictions": self.table(),
            "doubts": [asdict(doubt) for doubt in self.doubts],
            "ranking_aid": self.ranking_aid,
            "sent": self.sent,
            "confirm": {"settings": self.confirm.settings, "what": str(self.confirm)},
            "clients": [
                {**{key: json_number(value) for key, value in asdict(each).items()}, "verdict": each.verdict}
                for each in self.clients
            ],
        }
        return json.dumps(answer, indent=2)

    @property
    def best(self) -> str:
        """The recommended algorithm."""
        return self.recommended

    def plot(self, path: str | Path) -> Path:
        """Draw what is expected, with intervals, to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw advice", self, path)

    def write(self, path: str | Path) -> Path:
        """Write a page of HTML that needs nothing else; returns where it is."""
        return write_file("write advice", self, path)

    def __str__(self) -> str:
        from fedasym.advisor.wording import class_page

        return class_page(self)


@dataclass(frozen=True)
class Estimated:
    """The population behind the clients, with 95% intervals.

    radius, noise, norm: r, sigma and rho; aspect: the median of d/n with its least and largest over clients.
    spectrum: the covariance's eigenvalues, as far as the clients' samples tell them; shift_power: the displacement's
        alignment with them.
    """

    radius: Quantity
    noise: Quantity
    norm: Quantity
    aspect: Quantity
    spectrum: Spectrum
    shift_power: float
    clients: int
    dimension: int
    samples: int
    method: str

    @property
    def world(self) -> Population:
        """The estimates as a `Population`, for `fa.predict` and its kin."""
        return Population(
            self.radius.value,
            self.noise.value,
            self.aspect.value,
            max(self.norm.value, self.radius.value),
            self.spectrum,
            self.shift_power,
        )


@dataclass(frozen=True)
class Steps:
    """Where to stop fine-tuning the shared model: full-batch steps (epochs) of a size, and the predicted loss of a new client.

    steps is infinite where training to convergence is best.
    """

    step: float
    steps: float
    loss: float


@dataclass(frozen=True)
class Weight:
    """One unknown of the model: its shared weight, and how much clients' own vary about it (None: it is shared only)."""

    name: str
    shared: Quantity
    deviation: Quantity | None


@dataclass(frozen=True)
class Advice(Result):
    """What `fa.advise` returns; prints itself as a page.

    population: estimates with intervals. predictions: one `Prediction` per algorithm. recommended, ridge, steps: what to do.
    doubts: what may be wrong. confirm: the experiment that could prove it wrong, to be called with the data.
    clients: who gains. floor: the noise^2 that makes a loss a test error (from held-out samples where levels are optimistic).
    sent: bytes that a client sent (the most), where the advice came from summaries.
    weights: by feature, what is shared and how much clients differ, where features are few; intercept: whether models have one.
    columns: what became of a table's columns, in words.

    >>> import fedasym as fa
    >>> advice = fa.advise(fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1))
    >>> advice.recommended, advice.population.noise.low < 0.5 < advice.population.noise.high
    ('pfedme', True)
    """

    population: Estimated
    predictions: dict[str, Prediction]
    recommended: str
    ridge: float | None
    steps: Steps | None
    doubts: tuple[Doubt, ...]
    confirm: Confirmation | MixedConfirmation
    clients: tuple[ClientAdvice, ...]
    floor: float
    sent: int | None = None
    weights: tuple[Weight, ...] = ()
    intercept: bool = False
    columns: str = ""

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm: feed it to any data frame. None: there is no finite number."""
        records = [
            {
                "algorithm": name,
                "loss": row.trusted,
                "predicted": row.loss.value,
                "low": row.loss.low,
                "high": row.loss.high,
                "new": row.new.value,
                "new_low": row.new.low,
                "new_high": row.new.high,
                "gcv": row.gcv,
                "ridge": row.ridge,
                "test_error": row.trusted + self.floor,
                "recommended": name == self.recommended,
            }
            for name, row in self.predictions.items()
        ]
        return [keep_finite(record) for record in records]

    def client(self, name: Hashable) -> ClientAdvice:
        """One client's advice."""
        return next(each for each in self.clients if each.client == name)

    def to_json(self) -> str:
        """Full precision, stable keys."""
        about = self.population
        spectrum = {"eigenvalues": about.spectrum.values.tolist(), "shares": about.spectrum.weights.tolist()}
        population = {name: asdict(getattr(about, name)) for name in ("radius", "noise", "norm", "aspect")}
        population |= {name: getattr(about, name) for name in ("shift_power", "clients", "dimension", "samples", "method")}
        answer = {
            "recommended": self.recommended,
            "ridge": plain(self.ridge),
            "steps": None if self.steps is None else {key: plain(value) for key, value in asdict(self.steps).items()},
            "population": population | {"spectrum": spectrum},
            "predictions": self.table(),
            "doubts": [asdict(doubt) for doubt in self.doubts],
            "confirm": {"candidates": list(self.confirm.candidates), "what": str(self.confirm)},
            "weights": [asdict(each) for each in self.weights],
            "intercept": self.intercept,
            "clients": [
                {**{key: json_number(value) for key, value in asdict(each).items()}, "verdict": each.verdict}
                for each in self.clients
            ],
            "floor": self.floor,
            "sent": self.sent,
        }
        return json.dumps(answer, indent=2)

    @property
    def best(self) -> str:
        """The recommended algorithm."""
        return self.recommended

    def plot(self, path: str | Path) -> Path:
        """Draw what is expected, with intervals, to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw advice", self, path)

    def write(self, path: str | Path) -> Path:
        """Write a page of HTML that needs nothing else; returns where it is."""
        return write_file("write advice", self, path)

    def __str__(self) -> str:
        from fedasym.advisor.wording import regression_page

        return regression_page(self)


def keep_finite(record: dict[str, Any]) -> dict[str, Any]:
    """The record with None for numbers that are infinite or missing.

    >>> keep_finite({"algorithm": "local", "loss": float("inf"), "new": 2.5})
    {'algorithm': 'local', 'loss': None, 'new': 2.5}
    """
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}


def json_number(value: Any) -> Any:
    """What JSON can hold."""
    return plain(value) if isinstance(value, float) else value


def better_alone(rows: dict[str, Prediction]) -> str:
    """The better of the two ways of each client alone."""
    return min(("local_ridge", "local"), key=lambda name: rows[name].trusted)


def choose_mixed(rows: dict[str, Prediction]) -> str:
    """The lowest loss; of those within half a percent the simplest."""
    least = min(row.trusted for row in rows.values() if np.isfinite(row.trusted))
    order = dict.fromkeys((*SIMPLEST_MIXED, *rows))  # those of the user's own last
    return next(name for name in order if rows[name].trusted <= least * (1 + CLOSE_LOSS) + np.finfo(float).tiny)


@dataclass(frozen=True)
class FoldScore:
    """One algorithm on held-out folds: log-loss and accuracy with their 95% intervals over clients."""

    algorithm: str
    log_loss: Quantity
    accuracy: Quantity


@dataclass(frozen=True)
class ScoredAdvice(Result):
    """What `fa.advise` returns for classes and few features; prints itself as a page.

    scores: by algorithm, measured on held-out folds. shares: of the classes. doubts: what may be wrong. confirm: the
    comparison on samples that no fold saw, to be called with the data. columns: what became of a table's columns, in words.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> X, owner = rng.standard_normal((400, 2)), np.repeat(np.arange(10), 40)
    >>> labels = np.where(X[:, 0] + 2 * (owner % 2) - 1 + rng.logistic(size=400) > 0, "yes", "no")
    >>> advice = fa.advise(fa.Federation.from_arrays(X, labels, owner))
    >>> advice.recommended in ("rtfa", "pfedme"), len(advice.scores)
    (True, 4)
    """

    recommended: str
    scores: dict[str, FoldScore]
    classes: tuple[Any, ...]
    shares: tuple[float, ...]
    clients: int
    samples: int
    names: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    confirm: FoldConfirmation
    columns: str = ""

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm: feed it to any data frame."""
        return [
            {
                "algorithm": name,
                "accuracy": row.accuracy.value,
                "low": row.accuracy.low,
                "high": row.accuracy.high,
                "log_loss": row.log_loss.value,
                "log_loss_low": row.log_loss.low,
                "log_loss_high": row.log_loss.high,
                "recommended": name == self.recommended,
            }
            for name, row in self.scores.items()
        ]

    def to_json(self) -> str:
        """Full precision, stable keys."""
        answer = {
            "task": "classification",
            "recommended": self.recommended,
            "scores": self.table(),
            "classes": list(map(str, self.classes)),
            "shares": list(self.shares),
            "clients": self.clients,
            "samples": self.samples,
            "features": list(self.names),
            "doubts": [asdict(doubt) for doubt in self.doubts],
            "confirm": {"candidates": list(self.confirm.candidates), "what": str(self.confirm)},
        }
        return json.dumps(answer, indent=2)

    @property
    def best(self) -> str:
        """The recommended algorithm."""
        return self.recommended

    def plot(self, path: str | Path) -> Path:
        """Draw what is expected, with intervals, to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw advice", self, path)

    def write(self, path: str | Path) -> Path:
        """Write a page of HTML that needs nothing else; returns where it is."""
        return write_file("write advice", self, path)

    def __str__(self) -> str:
        lines = [
            fill_lines(scored_sentence(self), ""),
            "",
            f"Held-out folds of {plural(self.samples, 'sample')} of {plural(self.clients, 'client')}, "
            f"{plural(len(self.names), 'feature')}; the largest class is {max(self.shares):.1%} of the labels",
            f"  {'algorithm':<13}{'log-loss':>10}{'95% interval':>24}{'accuracy':>11}{'95% interval':>18}",
        ]
        for row in sorted(self.scores.values(), key=lambda row: row.log_loss.value):
            mark = "*" if row.algorithm == self.recommended else " "
            loss = f"[{three_digits(row.log_loss.low)}, {three_digits(row.log_loss.high)}]"
            right = f"[{100 * row.accuracy.low:.1f}, {100 * row.accuracy.high:.1f}]"
            lines.append(
                f"{mark} {row.algorithm:<13}{three_digits(row.log_loss.value):>10}{loss:>24}"
                f"{row.accuracy.value:>11.1%}{right:>18}"
            )
        if self.doubts:
            lines += ["", "Doubts", *(fill_lines(f"- {doubt}.".replace("..", "."), "  ") for doubt in self.doubts)]
        return "\n".join([*lines, "", fill_lines(f"To prove this wrong: {self.confirm}", "")])

    def _repr_html_(self) -> str:
        return preformatted(self)


def choose_loss(table: dict[str, Prediction]) -> str:
    """The lowest loss; of those within half a percent the simplest."""
    least = min(row.trusted for row in table.values() if np.isfinite(row.trusted))
    return next(name for name in SIMPLEST if table[name].trusted <= least * (1 + CLOSE_LOSS) + np.finfo(float).tiny)


def caution_sharing(table: dict[str, Prediction]) -> dict[str, Prediction]:
    """Where samples are scarce, sharing counts for what the model or what clients left out say of it, the worse of the two.

    The model's level then rests on a shared length that hardly anything tells, and sharing without cause costs far more than
    not sharing.
    """
    left_out = {name: table[name].gcv or table["rtfa"].gcv or 0.0 for name in table if not PAPER[name].shares_nothing}
    return table | {name: replace(table[name], trusted=max(table[name].trusted, loss)) for name, loss in left_out.items()}


def choose_rivals(table: dict[str, Prediction], recommended: str) -> list[str]:
    """Two others for the experiment: the next best, and what stands for not personalising or not sharing."""
    others = sorted((row.trusted, name) for name, row in table.items() if name not in (recommended, "maml"))
    first = others[0][1]
    plain = [name for name in ("fedavg", "local_ridge") if name not in (recommended, first)]
    return [first, min(plain, key=lambda name: table[name].trusted)] if plain else [first]


def choose_ratio(
    row: Prediction, shared: RidgeCurves, alone: RidgeCurves, samples: float, doubts: tuple[Doubt, ...]
) -> float | None:
    """Ridge times samples: the model's, or GCV's where it is clearly better."""
    if not isinstance(PAPER[row.algorithm].personalise, Ridge):
        return None
    model = float(row.ridge or 0.0) * samples
    if row.algorithm == "local_ridge":
        gain, error = alone.gain(alone.best, model)
        return alone.best if gain > 3 * error and gain > 0.01 * alone.at(model)[0] else model
    return shared.best if any(doubt.check == Check.RIDGE for doubt in doubts) else model


def describe_regression(found: Estimates, summaries: list[Summary], sizes: Array) -> Estimated:
    """The estimates in the population's own words."""
    d = summaries[0].dimension
    return Estimated(
        radius=found.quantity(1, found.radius2),
        noise=found.quantity(0, found.noise2),
        norm=found.quantity(2, max(found.norm2, found.radius2)),
        aspect=Quantity(float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())),
        spectrum=found.spectrum,
        shift_power=found.power,
        clients=len(summaries),
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def choose_accuracy(table: AccuracyTable) -> str:
    """The highest accuracy; of those within a tenth of a point the simplest."""
    most = max(table[name].trusted for name in CLASS_CANDIDATES)
    return next(name for name in CLASS_CANDIDATES if table[name].trusted >= most - CLOSE_ACCURACY)


def describe_classes(found: ClassMoments, world: LabelModel, seen: ClassLook) -> EstimatedClasses:
    """The estimates in the population's own words."""
    link, tau = Link(seen.classes.count), world.spectrum.mean
    s = world.spectrum.values
    B, BD = found.draws[:, 2], found.draws[:, 1] * tau
    whole = np.maximum(B + BD, 1e-9 * link.total)
    rho = link.signal(np.minimum(whole, 0.999 * link.most))
    radius = rho * np.sqrt(BD / whole / float(s @ world.shift_share))
    d, sizes = seen.dimension, seen.sizes
    # B tells theta_0'Sigma theta_0; the length |theta_0| varies about it, unless its shares along eigenvalues were measured.
    even = np.allclose(world.centre_share, world.spectrum.weights)
    blind = length_variance(1.0, world.spectrum, s, d) / seen.classes.free if even else 0.0
    length2 = np.maximum(1 + np.sqrt(blind) * normal_points(len(B)), 0.0)
    centre = rho * np.sqrt(length2 * B / whole / float(s @ world.centre_share))
    counts = seen.counts.sum(0)
    return EstimatedClasses(
        radius=enclose_value(world.radius, radius, zero=found.flat),
        centre=enclose_value(world.centre, centre),
        signal=enclose_value(world.rho, rho),
        aspect=Quantity(float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())),
        spectrum=world.spectrum,
        world=world.population(float(np.median(d / sizes))),
        classes=seen.classes.names,
        shares=tuple((counts / counts.sum()).tolist()),
        clients=len(sizes),
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def enclose_value(value: float, draws: Array, *, zero: bool = False) -> Quantity:
    """A value with its interval, which always holds it."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Quantity(value, 0.0 if zero else float(min(low, value)), float(max(high, value)))
