"""Covariance spectra: the eigenvalues s_k of the features' covariance and the share h_k of
directions that have each.

Every formula of the theory sees a covariance only through these atoms (and the energy of a vector
along each of them).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import SUM_TOLERANCE, Array, floats, one_float, whole

MOST_POINTS = 10**7  # atoms of a spectrum: a formula goes over all of them


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues `values` with shares `weights` that sum to one, in the order given; zeros are
    allowed.

    The order matters when clients differ: atom k of every client is the same set of directions.

    >>> import fedasym as fa
    >>> spectrum = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
    >>> round(spectrum.mean, 12)
    1.5
    """

    values: Array
    weights: Array
    name: str

    def __post_init__(self) -> None:
        values, weights = check_list("values", self.values), check_list("weights", self.weights)
        if values.ndim != 1 or values.size == 0:
            raise InvalidInput(
                f"eigenvalues must be a list of at least one number; got shape {values.shape}"
            )
        if weights.shape != values.shape:
            raise InvalidInput(
                f"weights has {weights.size} entries for {values.size} eigenvalues: give one weight"
                " for each"
            )
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            bad = values[~np.isfinite(values) | (values < 0)][0]
            raise InvalidInput(
                f"an eigenvalue is {bad:g}: a covariance has finite eigenvalues of at least 0"
            )
        check_weights("weights", weights)
        if not np.any((values > 0) & (weights > 0)):
            raise InvalidInput("all eigenvalues are 0: at least one direction must vary")
        for array in (values, weights):
            array.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "weights", weights / weights.sum())

    @cached_property
    def support(self) -> NDArray[np.bool_]:
        """The atoms that samples can see: positive eigenvalue, positive weight."""
        return (self.values > 0) & (self.weights > 0)

    @cached_property
    def positive(self) -> tuple[Array, Array]:
        """Eigenvalues and weights of the atoms that samples can see."""
        return self.values[self.support], self.weights[self.support]

    @cached_property
    def rank(self) -> float:
        """Share of directions with a positive eigenvalue, 1 - h0."""
        total = float(self.positive[1].sum())
        return 1.0 if abs(total - 1) < 1e-15 * self.values.size else total

    @cached_property
    def mean(self) -> float:
        """tau(Sigma), the mean eigenvalue."""
        return float(self.values @ self.weights)

    @cached_property
    def scale(self) -> float | None:
        """The common eigenvalue where the covariance is a multiple of the identity, else None."""
        first = float(self.values[0])
        return first if np.all(self.values == first) else None

    @cached_property
    def key(self) -> tuple[bytes, bytes]:
        """What identifies the spectrum: two with the same key are the same."""
        return self.values.tobytes(), self.weights.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spectrum) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return (
            f"Spectrum({self.name}, {self.values.size} atom{'s' if self.values.size > 1 else ''})"
        )


def check_weights(field: str, weights: Array) -> None:
    """Refuse weights that are negative, not finite or do not sum to one along the last axis."""
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        bad = weights[~np.isfinite(weights) | (weights < 0)].flat[0]
        raise InvalidInput(f"{field} holds {bad:g}: weights must be finite and at least 0")
    total = weights.sum(-1)
    if np.any(np.abs(total - 1) > SUM_TOLERANCE):
        bad = np.ravel(total)[np.argmax(np.abs(np.ravel(total) - 1))]
        raise InvalidInput(f"{field} sum to {bad:g}: they must sum to 1; divide them by their sum")


def identity(scale: float = 1.0) -> Spectrum:
    """Uncorrelated features of equal variance: Sigma = scale * I.

    >>> identity().values
    array([1.])
    """
    size = one_float(scale)
    return Spectrum(
        np.array([size]), np.array([1.0]), "identity" if size == 1 else f"{size:g} x identity"
    )


def atoms(values: ArrayLike, weights: ArrayLike) -> Spectrum:
    """Finitely many eigenvalues, each with its share of the directions.

    >>> atoms([0.5, 3], [0.6, 0.4])
    Spectrum(2 atoms at 0.5, 3, 2 atoms)
    """
    shown = check_list("values", values)
    few = ", ".join(f"{s:g}" for s in shown[:4]) + (", ..." if shown.size > 4 else "")
    return Spectrum(shown, check_list("weights", weights), f"{shown.size} atoms at {few}")


def eigenvalues(values: ArrayLike) -> Spectrum:
    """A covariance matrix of finite size, by its eigenvalues: each has weight 1/d.

    >>> eigenvalues([3, 1, 0.5]).mean
    1.5
    """
    given = check_list("values", values)
    return Spectrum(
        given, np.full(given.shape, 1.0 / max(given.size, 1)), f"{given.size} eigenvalues"
    )


def check_list(field: str, values: ArrayLike) -> Array:
    """Numbers in a list, or a single one."""
    array = floats(values)
    if array is None:
        raise InvalidInput(f"{field} is {values!r}: give numbers, one for each eigenvalue")
    return np.atleast_1d(array)


def ar1(correlation: float, points: int | None = None) -> Spectrum:
    """Neighbouring features correlate: Sigma_ij = correlation^|i-j|, in the limit of large d (trace
    1 per direction).

    s(w) = (1 - c^2) / (1 - 2 c cos w + c^2) at midpoints w_k = (k + 1/2) pi / points of [0, pi].
    The error falls like correlation^points; without `points` enough are taken for double precision.

    >>> round(ar1(0.5).mean, 12)
    1.0
    """
    if not -1 < one_float(correlation) < 1:
        raise InvalidInput(f"correlation is {correlation!r}: it must lie strictly between -1 and 1")
    if points is None:
        points = (
            1
            if correlation == 0
            else int(np.clip(np.ceil(-37 / np.log(abs(correlation))), 16, 4096))
        )
    points = whole("points", points, 1, MOST_POINTS)
    w = (np.arange(points) + 0.5) * np.pi / points
    values = (1 - correlation**2) / (1 - 2 * correlation * np.cos(w) + correlation**2)
    return Spectrum(values, np.full(points, 1 / points), f"AR(1) with correlation {correlation:g}")


def power_law(exponent: float, points: int | None = None, offset: float = 0.05) -> Spectrum:
    """Eigenvalues that fall like a power of their rank u in (0, 1): s(u) ~ (u + offset)^-exponent,
    of mean 1.

    `offset` > 0 keeps the largest eigenvalue bounded, as the theory needs. With `points` the ranks
    are that many midpoints of equal weight; without, 128 Gauss-Legendre nodes integrate over u to
    double precision.

    >>> power_law(1, points=64)
    Spectrum(power law with exponent 1, 64 atoms)
    """
    if not np.isfinite(one_float(exponent)):
        raise InvalidInput(f"exponent is {exponent!r}: it must be finite")
    if not 0 < one_float(offset) < np.inf:
        raise InvalidInput(
            f"offset is {offset!r}: it must be above 0, or the largest eigenvalue is unbounded"
        )
    if points is None:
        nodes, weights = np.polynomial.legendre.leggauss(128)
        u, weights = (nodes + 1) / 2, weights / 2
    else:
        points = whole("points", points, 1, MOST_POINTS)
        u = (np.arange(points) + 0.5) / points
        weights = np.full(points, 1 / points)
    values = (u + offset) ** -float(exponent)
    return Spectrum(values / (values @ weights), weights, f"power law with exponent {exponent:g}")


def from_data(features: ArrayLike) -> Spectrum:
    """The eigenvalues of X'X/n of the features X (samples in rows), or of several clients' features
    pooled.

    Sampling spreads eigenvalues apart: give many more samples than features (pool the clients), or
    the spectrum comes out wider than the truth. Features should have mean zero, as in the model.

    >>> import numpy as np
    >>> from_data(np.eye(4) * 2).values
    array([1., 1., 1., 1.])
    """
    parts = list(features) if isinstance(features, list | tuple) else [features]
    pooled = parts if parts and all(np.ndim(part) == 2 for part in parts) else [features]
    try:
        x = np.concatenate([np.atleast_1d(np.asarray(part, dtype=float)) for part in pooled])
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            "features do not fit together: give tables of numbers with the same columns"
        ) from None
    if x.ndim != 2 or 0 in x.shape:
        raise InvalidInput(
            f"features have shape {x.shape}: give a table with one row per sample and one column"
            " per feature"
        )
    if not np.all(np.isfinite(x)):
        raise InvalidInput("features hold a NaN or an infinity: drop or fill those samples first")
    n, d = x.shape
    small = np.linalg.eigvalsh(x @ x.T if n < d else x.T @ x)[::-1] / n
    values = np.zeros(d)
    values[: small.size] = np.maximum(small, 0)
    values[values < values[0] * max(n, d) * np.finfo(float).eps] = 0
    return Spectrum(values, np.full(d, 1 / d), f"data, {n} samples of {d} features")
