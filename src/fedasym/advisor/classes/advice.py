"""The advisor's answer where labels are classes: estimates, accuracies, a recommendation with its doubts, how to check it."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedasym.advisor.advice import keep_finite, numbered
from fedasym.advisor.classes.confirming import Measurement
from fedasym.advisor.classes.predictions import AccuracyPrediction
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.evidence import Doubt
from fedasym.advisor.persons import ClientAdvice
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.results.result import Result
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.spectra import Spectrum


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
class Epochs:
    """Where to stop fine-tuning the shared model, and the accuracy there.

    time: step x steps of full-batch gradient descent on the logistic (softmax) loss; step, steps: one way to spend it.
    local_step, epochs: the same for `fa.train`, whose epoch of a middling client takes one step per batch of 32.
    """

    time: float
    step: float
    steps: int
    local_step: float
    epochs: int
    accuracy: float


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
            "steps": None if self.steps is None else {key: numbered(value) for key, value in asdict(self.steps).items()},
            "training": self.training,
            "population": population,
            "predictions": self.table(),
            "doubts": [asdict(doubt) for doubt in self.doubts],
            "ranking_aid": self.ranking_aid,
            "sent": self.sent,
            "confirm": {"settings": self.confirm.settings, "what": str(self.confirm)},
            "clients": [
                {**{key: numbered(value) for key, value in asdict(each).items()}, "verdict": each.verdict}
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
        from fedasym.advisor.classes.wording import page

        return page(self)
