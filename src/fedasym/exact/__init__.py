"""The same algorithms solved exactly on the data of finitely many clients: the linear lens.

>>> import fedasym as fa
>>> fit = fa.linear.fit(
...     "ftfa", [[[1.0, 0.0]], [[0.0, 2.0]]], [[3.0], [4.0]], clients=["a", "b"], intercept=False
... )
>>> fit.shared.tolist()
[3.0, 2.0]

Several outputs of one linear model, such as one-hot classes (least-squares heads), and penalties
that are common to them.

Given the penalties, outputs do not know of each other: one factorisation of the features serves
all. The penalties are common, so that the factorisation is; they are estimated from a few
combinations of the outputs with random signs, each of which has the common ratio of noise to
differences.

A ridge head of all samples needs of a client no more than X'X and X'Y (AFL, He et al. 2025;
Fed3R, Fani et al. 2024): sums that one round adds up, however samples are dealt out to clients.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, amount
from fedasym.exact.clients import Client, append_ones, check_rows
from fedasym.exact.penalties import SharedPenalty
from fedasym.exact.spread import Spread

if TYPE_CHECKING:
    from fedasym.exact.estimators import LinearFit, fit
    from fedasym.exact.regressor import PersonalizedRegressor

_HOME = {
    "LinearFit": "fedasym.exact.estimators",
    "PersonalizedRegressor": "fedasym.exact.regressor",
    "fit": "fedasym.exact.estimators",
}

__all__ = ["GramSums", "LinearFit", "PersonalizedRegressor", "fit", "one_hot"]

COMBINATIONS = 8  # of outputs that estimate what is common to all; so many are looked at themselves


def one_hot(labels: Sequence[Hashable], classes: Sequence[Hashable] | None = None) -> Array:
    """Classes as outputs of zeros and ones, (samples, classes), for least-squares heads.

    classes: their order; sorted by default.

    >>> one_hot(["b", "a", "b"]).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    given: Any = np.asarray(labels)
    values = given.tolist()
    known = sorted(set(values)) if classes is None else list(classes)
    places = {each: place for place, each in enumerate(known)}
    strange = next((each for each in values if each not in places), None)
    if strange is not None:
        raise InvalidInput(
            f"labels hold {strange!r}, which is not one of the classes: add it to them"
        )
    out = np.zeros((len(values), len(known)))
    out[np.arange(len(values)), [places[each] for each in values]] = 1.0
    return out


@dataclass(frozen=True, eq=False)
class GramSums:
    """What a client sends for the pooled ridge head, and what the server adds up: X'X and X'Y.

    >>> import numpy as np, fedasym as fa
    >>> X, Y = np.eye(3), np.array([[1.0], [2.0], [3.0]])
    >>> half = [fa.linear.GramSums.of(X[i], Y[i], intercept=False) for i in ([0], [1, 2])]
    >>> (half[0] + half[1]).solve(shared_ridge=1 / 3).ravel().round(12).tolist()
    [0.5, 1.0, 1.5]
    """

    samples: int
    gram: Array
    cross: Array
    intercept: bool

    @classmethod
    def of(cls, X: Any, Y: Any, *, intercept: bool = True) -> GramSums:
        """The sums of one client's samples; Y: (samples,) or (samples, outputs)."""
        rows, labels = check_rows(None, X, Y, several=True)
        rows = append_ones(rows, intercept)
        return cls(len(rows), rows.T @ rows, rows.T @ labels, intercept)

    def __add__(self, other: GramSums) -> GramSums:
        """Of both together: order and partition make no difference."""
        same = self.cross.shape == other.cross.shape and self.intercept == other.intercept
        if not same:
            raise InvalidInput(
                f"sums of models of shape {self.cross.shape} and {other.cross.shape} do not add up:"
                " give all clients the same features, outputs and intercept"
            )
        total = self.samples + other.samples
        return GramSums(total, self.gram + other.gram, self.cross + other.cross, self.intercept)

    def solve(self, shared_ridge: float) -> Array:
        """Argmin |X b - Y|^2/(2 N) + shared_ridge/2 |b|^2, the intercept free and last."""
        ridge = np.full(len(self.gram), self.samples * amount("shared_ridge", shared_ridge))
        if self.intercept:
            ridge[-1] = 0.0
        system = self.gram + np.diag(ridge)
        try:
            return np.asarray(scipy.linalg.solve(system, self.cross, assume_a="pos"))
        except np.linalg.LinAlgError:
            raise InvalidInput(
                f"shared_ridge is {shared_ridge:g}: {self.samples} samples do not determine"
                f" {len(self.gram)} weights without one; give more"
            ) from None


def combine_outputs(clients: Sequence[Client]) -> list[list[Client]]:
    """Clients with one output each: their only one, each of a few, or combinations of many."""
    several = clients[0].y.shape[1:]
    if not several:
        return [list(clients)]
    outputs = several[0]
    signs = np.eye(outputs)
    if outputs > COMBINATIONS:
        rng = np.random.default_rng(0)
        signs = rng.choice([-1.0, 1.0], (outputs, COMBINATIONS)) / np.sqrt(outputs)
    return [
        [
            replace(client, y=client.y @ sign, rest=float(np.sum(client.rest * sign**2)))
            for client in clients
        ]
        for sign in signs.T
    ]


def common_penalties(
    found: Sequence[tuple[Array | None, Spread | None]], counts: Array, free_intercept: bool
) -> tuple[Array | None, Spread | None]:
    """Ridges for all outputs: of the mean variances, or the geometric mean of those found.

    counts: of clients' samples. free_intercept: whether ridges are for the features alone.
    """
    ridges, spreads = zip(*found, strict=True)
    if len(found) == 1 or ridges[0] is None:
        return found[0]
    known = [each for each in spreads if each is not None]
    if not known:
        with np.errstate(divide="ignore"):
            return np.exp(np.mean(np.log(np.stack(ridges)), axis=0)), None
    shared = [each.shared_variance for each in known if each.shared_variance is not None]
    spread = Spread(
        float(np.mean([each.noise2 for each in known])),
        np.mean([each.variances for each in known], axis=0),
        shared_variance=float(np.mean(shared)) if shared else None,
    )
    each = spread
    if free_intercept:
        each = replace(spread, variances=spread.variances[:-1])
    wide = each.ridges(counts)
    return wide[:, 0] if np.ptp(each.variances) == 0 else wide, spread


def common_shared_ridge(found: Sequence[SharedPenalty]) -> SharedPenalty:
    """One ridge on the shared model for all outputs: the geometric mean."""
    if len(found) == 1:
        return found[0]
    known = [each.variance for each in found if each.variance is not None]
    ridge = float(np.exp(np.mean([np.log(max(each.ridge, 1e-300)) for each in found])))
    return SharedPenalty(ridge, float(np.mean(known)) if known else None)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use: scikit-learn only for its estimator."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(
        f"module 'fedasym.exact' has no attribute {name!r}; it has {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
