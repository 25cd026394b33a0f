"""The cheap experiment that could prove the advice wrong: the leading candidates, fitted exactly, on held-out samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedasym.advisor.covariance import spread
from fedasym.advisor.intake import Data, taken_in
from fedasym.algorithms import PAPER, Ridge
from fedasym.core.arrays import Array
from fedasym.core.machine import few_threads
from fedasym.core.text import notebook_text as preformatted
from fedasym.exact.estimators import fit

AT_MOST = 300  # clients in the experiment: as many as seconds allow
SHARE = 0.2  # of a client's samples, held out where none are
SURE = 2.0  # standard errors over clients


@dataclass(frozen=True)
class Outcome:
    """Held-out mean squared errors, each candidate's excess over the recommended one with its standard error, the verdict."""

    recommended: str
    errors: dict[str, float]
    excess: dict[str, tuple[float, float]]
    clients: int

    @property
    def refuted(self) -> bool:
        """Whether some candidate beats the recommended one by more than two standard errors."""
        return any(mean < -SURE * error for mean, error in self.excess.values())

    def __str__(self) -> str:
        lines = [f"held-out error over {self.clients} clients"]
        for name, error in self.errors.items():
            apart = "" if name == self.recommended else "  {:+.4g} (standard error {:.2g})".format(*self.excess[name])
            lines.append(f"  {name:<14}{error:>11.5g}{apart}")
        verdict = "REFUTED: another candidate is better" if self.refuted else "not refuted"
        return "\n".join([*lines, f"The advice is {verdict}."])

    def _repr_html_(self) -> str:
        return preformatted(self)


@dataclass(frozen=True)
class Confirmation:
    """What to compare, with which ridge (ratio/n for a client of n samples), and which result would refute the advice.

    Call it with the data: `advice.confirm(federation)`, or with X, y and clients.
    """

    recommended: str
    ratios: dict[str, float | None]  # candidates and their ridge times samples
    expected: dict[str, float]  # predicted excess loss of each over the recommended one
    level: float | None = None  # the intercept's own ridge times samples; None: models have none

    @property
    def candidates(self) -> tuple[str, ...]:
        """What is compared, the recommended algorithm first."""
        return tuple(self.ratios)

    def __call__(self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0) -> Outcome:
        """Fit the candidates on training samples and compare them, client by client, on held-out ones."""
        source = taken_in(data, y, clients)
        places = spread(len(source.parts), AT_MOST)
        names = [source.parts[place].name for place in places]
        train, test = zip(*(divided(source, int(place), seed) for place in places), strict=True)
        X, labels = [rows for rows, _ in train], [values for _, values in train]
        scores: dict[str, Array] = {}
        with few_threads(source.dimension):
            for name, ratio in self.ratios.items():
                ridge = self._ridges(name, ratio, labels, source.dimension)
                model = fit(name, X, labels, names, ridge=ridge, intercept=self.level is not None)
                scores[name] = np.array(
                    [np.mean((values - model.predict(rows, client=who)) ** 2) if len(values) else np.nan
                     for who, (rows, values) in zip(names, test, strict=True)]
                )  # fmt: skip
        used = np.isfinite(scores[self.recommended])
        excess = {}
        for name in self.ratios:
            if name != self.recommended:
                apart = (scores[name] - scores[self.recommended])[used]
                excess[name] = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(apart.size))
        errors = {name: float(each[used].mean()) for name, each in scores.items()}
        return Outcome(self.recommended, errors, excess, int(used.sum()))

    def _ridges(self, name: str, ratio: float | None, labels: Sequence[Array], dimension: int) -> Array | None:
        if ratio is None or not isinstance(PAPER[name].personalise, Ridge):
            return None
        each = np.array([ratio / len(values) for values in labels])
        if self.level is None or PAPER[name].shares_nothing:
            return each
        own = np.array([self.level / len(values) for values in labels])
        return np.column_stack([np.repeat(each[:, None], dimension, axis=1), own])

    def __str__(self) -> str:
        from fedasym.advisor.wording import short

        others = [name for name in self.ratios if name != self.recommended]
        worse = ", ".join(f"{name} to be worse by {short(self.expected[name])}" for name in others)
        return (
            f"Fit {', '.join(self.ratios)} exactly (seconds) and compare them on held-out samples, client by client: "
            f"advice.confirm(data). Expected: {worse}. Refuted if any of them is better than {self.recommended} by more than "
            "two standard errors over clients."
        )


def divided(source: Data, place: int, seed: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """A client's training and held-out samples; where none are held out, a fifth is, and at least one sample stays."""
    X, y = source.rows(place)
    held = source.held(place)
    if len(held[1]) or any(part.held.size for part in source.parts):
        return (X, y), held
    order = np.random.default_rng([seed, place]).permutation(len(y))
    out = min(max(round(SHARE * len(y)), 1), len(y) - 1)
    return (X[order[out:]], y[order[out:]]), (X[order[:out]], y[order[:out]])
