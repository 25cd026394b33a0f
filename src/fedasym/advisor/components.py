"""Two variances from squares along the clients' axes: E p_k = noise^2 + spread^2 x_k/d (section 8.2, weighted).

The normal equations with the weights 1/v_k^2, v_k the fitted mean, are those of maximum likelihood; they need nothing but
means to be right, so products of independent residuals serve as well as squares. Errors come from how clients differ
(the sandwich), not from a distribution that is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.summaries import Summary, owners, stacked
from fedasym.core.arrays import Array

ROUNDS = 200
SETTLED = 1e-12


@dataclass(frozen=True, eq=False)
class Components:
    """noise^2 and spread^2 (radius^2 about a shared model, norm^2 about the origin), and what clients add to their error."""

    noise2: float
    spread2: float
    influence: Array  # (m, 2): the estimate moves by about -influence_i without client i
    gaussian: Array  # (2,) the variances that Gaussian residuals of equal clients would give

    @property
    def covariance(self) -> Array:
        """Of (noise2, spread2), over clients."""
        m = len(self.influence)
        return np.asarray(self.influence.T @ self.influence * m / (m - 1))

    @property
    def excess(self) -> Array:
        """How much larger the variances over clients are than the model's; never below 1, which the model itself has."""
        ratio = np.diag(self.covariance) / np.maximum(self.gaussian, 1e-300)
        return np.asarray(np.where(self.gaussian > 0, np.maximum(ratio, 1.0), 1.0))


@dataclass(frozen=True, eq=False)
class Squares:
    """Products p_k with x_k/d, owner by owner, and the samples beyond the axes, whose squares add up to `rest`."""

    p: Array
    z: Array  # x_k/d
    owner: NDArray[np.intp]
    rest: Array  # (m,)
    extra: Array  # (m,) how many samples are beyond the axes

    @classmethod
    def of(cls, summaries: list[Summary], field: str) -> Squares:
        """From a field of the summaries: "residual" or "raw"."""
        z = np.concatenate([each.power / each.dimension for each in summaries])
        extra = np.array([each.samples - each.power.size for each in summaries], dtype=float)
        rest = np.array([each.rest for each in summaries])
        return cls(stacked(summaries, field), z, owners(summaries), rest, extra)


def components(summaries: list[Summary], field: str = "residual") -> Components:
    """Weighted least squares until the weights agree with the fit; neither variance is below 0."""
    data = Squares.of(summaries, field)
    total = float(data.p.sum() + data.rest.sum())
    count = data.p.size + data.extra.sum()
    if total <= 0:
        return Components(0.0, 0.0, np.zeros((len(summaries), 2)), np.zeros(2))
    floor = 1e-12 * total / count
    fit = np.array([0.5 * total / count, 0.5 * total / max(data.z.sum(), 1e-300)])
    for _ in range(ROUNDS):
        new = solved(data, fit, floor)
        moved = np.abs(new - fit) / np.maximum(new, floor)
        fit = new
        if np.all(moved < SETTLED):
            break
    influence, gaussian = errors_of(data, fit, floor, len(summaries))
    return Components(float(fit[0]), float(fit[1]), influence, gaussian)


def solved(data: Squares, fit: Array, floor: float) -> Array:
    """One round: weights from the last fit; where the best has a negative variance, that variance is 0."""
    v, beyond = np.maximum(fit[0] + fit[1] * data.z, floor), max(float(fit[0]), floor)
    w, w0 = v**-2, beyond**-2
    J = normal(data, w, w0)
    b = np.array([w @ data.p + w0 * data.rest.sum(), (w * data.z) @ data.p])
    if sound(J):
        both = np.linalg.solve(J, b)
        if both.min() >= 0:
            return np.asarray(both)
    # On an edge: no spread, or no noise; the one with the smaller weighted error.
    edges = [np.array([max(b[0] / J[0, 0], 0), 0.0]), np.array([0.0, max(b[1] / max(J[1, 1], 1e-300), 0)])]
    return min(edges, key=lambda e: float(e @ J @ e - 2 * e @ b))


def normal(data: Squares, w: Array, w0: float) -> Array:
    """The information: sums of w, w z and w z^2."""
    one, two = float(w @ data.z), float((w * data.z) @ data.z)
    return np.array([[w.sum() + w0 * data.extra.sum(), one], [one, two]])


def errors_of(data: Squares, fit: Array, floor: float, clients: int) -> tuple[Array, Array]:
    """What the estimate moves by without each client, and the diagonal of 2 J^{-1}.

    Without client i it is one step (J - J_i)^{-1} s_i away, with the client's score s_i and information J_i: the jackknife.
    J^{-1} s_i would make the errors too small where a few clients hold much of the information. The factor (m - 1)/m makes
    squares sum to the variance, but for the m/(m - 1) of a sample.
    """
    v, beyond = np.maximum(fit[0] + fit[1] * data.z, floor), max(float(fit[0]), floor)
    w, w0 = v**-2, beyond**-2
    off = w * (data.p - v)

    def summed(values: Array) -> Array:
        return np.asarray(np.bincount(data.owner, values, clients))

    scores = np.column_stack([summed(off) + w0 * (data.rest - data.extra * beyond), summed(off * data.z)])
    one, two = summed(w * data.z), summed(w * data.z**2)
    own = np.array([[summed(w) + w0 * data.extra, one], [one, two]]).transpose(2, 0, 1)
    J = own.sum(0)
    if not sound(J):
        inverse = np.linalg.pinv(J)
        return np.asarray(scores @ inverse), np.asarray(2 * np.diag(inverse))
    others = J - own
    others[~sound(others)] = J
    moved = np.linalg.solve(others, scores[:, :, None])[:, :, 0]
    return np.asarray(moved * (clients - 1) / clients), np.asarray(2 * np.diag(np.linalg.inv(J)))


def sound(J: Array) -> Any:
    """Whether an information matrix, or each of a stack, can be inverted."""
    return np.linalg.det(J) > 1e-12 * J[..., 0, 0] * J[..., 1, 1]


def length2(summaries: list[Summary], noise2: float) -> tuple[float, Array, float]:
    """norm^2 from the labels themselves at a given noise, what each client adds to its error, and its slope in noise^2.

    It is the length of an optimum without preferred directions that explains as much of the labels: what local methods need.
    """
    data = Squares.of(summaries, "raw")
    floor = 1e-12 * float(data.p.sum()) / data.p.size
    fit = max(float((data.p - noise2).sum() / max(data.z.sum(), 1e-300)), 0.0)
    for _ in range(ROUNDS):
        w = np.maximum(noise2 + fit * data.z, floor) ** -2 * data.z
        new = max(float(w @ (data.p - noise2)) / max(float(w @ data.z), 1e-300), 0.0)
        done = abs(new - fit) <= SETTLED * max(new, floor)
        fit = new
        if done:
            break
    m, scale = len(summaries), max(float(w @ data.z), 1e-300)
    scores = np.bincount(data.owner, w * (data.p - noise2 - fit * data.z), m)
    others = np.maximum(scale - np.bincount(data.owner, w * data.z, m), scale / m**2)
    return fit, np.asarray(scores / others * (m - 1) / m), -float(w.sum()) / scale
