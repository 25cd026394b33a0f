"""The answer of the advisor: estimates, predictions, a recommendation with its doubts, and how to prove it wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedasym.advisor.confirming import Confirmation
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.evidence import Doubt
from fedasym.advisor.mixed_confirmation import MixedConfirmation
from fedasym.advisor.persons import ClientAdvice
from fedasym.advisor.predictions import Prediction
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.results.result import Result
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum


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
                {**{key: numbered(value) for key, value in asdict(each).items()}, "verdict": each.verdict}
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
        from fedasym.advisor.wording import page

        return page(self)


def keep_finite(record: dict[str, Any]) -> dict[str, Any]:
    """The record with None for numbers that are infinite or missing.

    >>> keep_finite({"algorithm": "local", "loss": float("inf"), "new": 2.5})
    {'algorithm': 'local', 'loss': None, 'new': 2.5}
    """
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}


def numbered(value: Any) -> Any:
    """What JSON can hold."""
    return plain(value) if isinstance(value, float) else value
