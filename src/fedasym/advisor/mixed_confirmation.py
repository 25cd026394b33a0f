"""The experiment that could prove advice on few features wrong: one model for all, each alone, and a mixed model beside it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.confirming import Outcome, divided
from fedasym.advisor.intake import taken_in
from fedasym.core.arrays import Array
from fedasym.core.machine import few_threads
from fedasym.exact.estimators import fit

MIXED = "mixed model"
PATIENCE = 20_000  # samples up to which statsmodels answers in seconds

Samples = list[tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class MixedConfirmation:
    """What to compare, and which result would refute the advice. Call it with the data: `advice.confirm(federation)`."""

    recommended: str
    expected: dict[str, float]  # predicted excess loss of each rival over the recommended one
    intercept: bool
    personal: NDArray[np.bool_] | None  # by unknown

    @property
    def candidates(self) -> tuple[str, ...]:
        """What is compared, the recommended algorithm first."""
        return (self.recommended, *self.expected)

    def __call__(self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0) -> Outcome:
        """Fit the candidates to training samples and compare them on held-out ones, client by client."""
        source = taken_in(data, y, clients)
        pairs = [divided(source, place, seed) for place in range(len(source.parts))]
        train, test = [each for each, _ in pairs], [each for _, each in pairs]
        d = source.dimension
        may = None if self.personal is None else self.personal[:d]
        scores: dict[str, Array] = {}
        with few_threads(d):
            for name in self.candidates:
                shares = name not in ("local", "local_ridge")
                model = fit(
                    name,
                    [rows for rows, _ in train],
                    [values for _, values in train],
                    intercept=self.intercept,
                    personal=may if shares else None,
                )
                scores[name] = score(lambda place, rows, m=model: m.predict(rows, client=place), test)
            mixed = predict_mixed(train, test, self.intercept)
            if mixed is not None:
                scores[MIXED] = score(lambda place, _: mixed[place], test)
        used = np.isfinite(scores[self.recommended])
        weight = np.array([len(values) for _, values in test], float)[used]
        share = weight / weight.sum()
        excess = {}
        for name, each in scores.items():
            if name != self.recommended:
                apart = (each - scores[self.recommended])[used]
                mean = float(share @ apart)
                excess[name] = mean, float(np.sqrt((share**2 * (apart - mean) ** 2).sum()))
        errors = {name: float(share @ each[used]) for name, each in scores.items()}
        return Outcome(self.recommended, errors, excess, int(used.sum()))

    def __str__(self) -> str:
        from fedasym.advisor.wording import short

        worse = ", ".join(f"{name} worse by {short(excess)}" for name, excess in self.expected.items())
        return (
            f"fit {', '.join(self.candidates)} exactly (seconds), beside a mixed model where statsmodels is installed, and "
            f"compare them on held-out samples: advice.confirm(data), or --confirm. Expected: {worse}. Refuted if any of them "
            f"is better than {self.recommended} by more than two standard errors."
        )


def score(predict: Any, test: Samples) -> Array:
    """Each client's mean squared error; NaN where it has no held-out samples."""
    return np.array(
        [np.mean((values - predict(place, rows)) ** 2) if len(values) else np.nan for place, (rows, values) in enumerate(test)]
    )


def predict_mixed(train: Samples, test: Samples, intercept: bool) -> list[Array] | None:
    """A random-intercept mixed model of statsmodels, restricted likelihood; None where it is not installed or does not end.

    Its random intercepts, the usual first model of grouped data, are added to its fixed effects.
    """
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError:
        return None
    X, y = np.concatenate([rows for rows, _ in train]), np.concatenate([values for _, values in train])
    if not intercept or len(y) > PATIENCE:
        return None
    owner = np.repeat(np.arange(len(train)), [len(values) for _, values in train])
    design = np.column_stack([np.ones(len(X)), X])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = MixedLM(y, design, owner).fit(reml=True)
        except (ValueError, np.linalg.LinAlgError):
            return None
    fixed = np.asarray(found.fe_params)
    level = {group: float(np.asarray(effect)[0]) for group, effect in found.random_effects.items()}
    return [fixed[0] + rows @ fixed[1:] + level.get(place, 0.0) for place, (rows, _) in enumerate(test)]
