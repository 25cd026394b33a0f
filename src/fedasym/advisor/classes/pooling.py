"""The shared least-squares model of all clients for several outputs, and what a client makes of it without its own samples.

theta = S^{-1} sum X_i'Y_i, S = sum X_i'X_i. A client's residuals about the model of the others are (I - H)^{-1} (Y - X theta),
H = X S^{-1} X'. Their covariance is known: noise and displacements of the others come in through
X S_{-i}^{-1} (sum_{j != i} s2 G_j + (r^2/d) G_j^2) S_{-i}^{-1} X', G_j = X_j'X_j and X S_{-i}^{-1} = (I - H)^{-1} X S^{-1}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from fedasym.advisor.classes.intake import Classes
from fedasym.core.arrays import Array
from fedasym.exact.clients import RANK

FIRM = 1e-6  # a ridge, as a share of the mean curvature: directions that a single client has seen stay finite without it
SOFT = 5.0  # a ridge where samples are scarce, as a share of the mean curvature times unknowns per sample
ROOM = 1.5  # samples per unknown from which a shared model is fitted without a ridge


@dataclass(frozen=True, eq=False)
class Shared:
    """S, its inverse, the sum of G_j^2, the model, and the mean of the features (over samples)."""

    S: Array
    inverse: Array
    squares: Array
    theta: Array
    cross: Array  # sum X_i'Y_i
    mean: Array
    samples: int
    scarce: bool  # all samples together are too few for it without a ridge

    @property
    def covariance(self) -> Array:
        """Second moments of the features."""
        return np.asarray(self.S / self.samples)

    def without(self, client: Client) -> Array:
        """The others' model: theta - S^{-1} X' (what a client's residuals gained by being left out)."""
        return np.asarray(self.theta - self.inverse @ (client.X.T @ client.about))


@dataclass(frozen=True, eq=False)
class Client:
    """One client along its axes (U, x): X = U diag(sqrt x) V', at most min(n, d) of them, and its residuals.

    labels: Y, (n, outputs). about: what the others' model leaves of them, (n, outputs).
    noise, shift: how much of the others' noise^2 and radius^2 is in the squares of `about` along each axis.
    """

    X: Array
    U: Array
    x: Array
    labels: Array
    about: Array
    noise: Array
    shift: Array


def pooled(classes: Classes) -> tuple[Classes, Shared]:
    """One pass over the clients. Where features follow from one another, the data come back in the directions they span."""
    data = classes.data
    d, outputs = data.dimension, 1 if classes.count == 2 else classes.count
    S, cross, squares, mean = np.zeros((d, d)), np.zeros((d, outputs)), np.zeros((d, d)), np.zeros(d)
    for X, codes in data:
        G = X.T @ X
        S += G
        squares += G @ G if len(X) >= d else X.T @ (X @ X.T) @ X
        cross += X.T @ classes.targets(codes)
        mean += X.sum(0)
    samples = int(data.sizes.sum())
    values, vectors = scipy.linalg.eigh(S)
    kept = values > max(RANK, d * np.finfo(float).eps) * values[-1]
    if samples < ROOM * kept.sum():
        return classes, shared_of(S, squares, cross, mean / samples, samples, SOFT * d / samples, True)
    if kept.all():
        return classes, shared_of(S, squares, cross, mean / samples, samples, FIRM, False)
    basis = vectors[:, kept]
    spanned = replace(classes, data=replace(data, basis=basis))
    sums = basis.T @ S @ basis, basis.T @ squares @ basis, basis.T @ cross, basis.T @ mean / samples
    return spanned, shared_of(*sums, samples, FIRM, False)


def shared_of(
    S: Array, squares: Array, cross: Array, mean: Array, samples: int, ridge: float, scarce: bool
) -> Shared:  # fmt: skip
    """The model from its sums, with a ridge as a share of the mean curvature."""
    inverse = scipy.linalg.inv(S + ridge * np.trace(S) / len(S) * np.eye(len(S)))
    inverse = (inverse + inverse.T) / 2
    return Shared(S, inverse, squares, inverse @ cross, cross, mean, samples, scarce)


def axes_of(X: Array) -> tuple[Array, Array]:
    """Orthogonal axes of a client's samples (n, k) and their powers, from the smaller of the two Gram matrices."""
    n, d = X.shape
    if n <= d:
        x, U = scipy.linalg.eigh(X @ X.T)
        return U, np.maximum(x, 0.0)
    x, V = scipy.linalg.eigh(X.T @ X)
    kept = x > d * np.finfo(float).eps * x[-1]
    return (X @ V[:, kept]) / np.sqrt(x[kept]), x[kept]


def looked_at(shared: Shared, X: Array, labels: Array) -> Client:
    """A client about the model of the others."""
    U, x = axes_of(X)
    rows = U.T @ X if len(X) > x.size else None  # only along the axes do the others' errors show
    A = X if rows is None else rows
    left = labels - X @ shared.theta
    back = A @ shared.inverse
    slack = np.eye(len(A)) - back @ A.T
    solved = scipy.linalg.solve(slack, np.column_stack([back, left if rows is None else U.T @ left]), assume_a="sym")
    back, e = solved[:, : X.shape[1]], solved[:, X.shape[1] :]
    about = e if rows is None else left + U @ (e - U.T @ left)
    turned = U.T @ back if rows is None else back
    along = U.T @ X if rows is None else A
    own = turned @ along.T  # X S_{-i}^{-1} X' along the axes
    # (X S^-1_{-i}) (sum_j G_j^2 - G_i^2) (..)'; the client's own G^2 is X'(XX')X, diag(x) along the axes
    shift = np.einsum("kd,kd->k", turned @ shared.squares, turned) - (own**2) @ x
    return Client(X, U, x, labels, about, np.diag(own).copy(), np.maximum(shift, 0.0))
