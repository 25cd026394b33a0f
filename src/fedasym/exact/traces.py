"""Every algorithm's risk given the features: expectations over noise and displacements are traces, so neither is sampled.

A client keeps P = I - q(S_i) S_i of the shared model's error and adds q(S_i) X_i'noise_i/n_i. In the eigenbasis of S_i, which
has n of d directions, its bias and its variance are quadratic forms in the vector q, whatever the client stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.algorithms.stages import ClientStage, Objective
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.draw import Drawn
from fedasym.exact.shared import Shared


@dataclass(frozen=True, eq=False)
class Form:
    """constant + linear'q + q'square q; `square` is a vector where the form is diagonal."""

    constant: float
    linear: Array
    square: Array

    def __call__(self, q: Array) -> float:
        """Its value."""
        return float(self.constant + (self.linear + (self.square * q if self.square.ndim == 1 else self.square @ q)) @ q)


Forms = tuple[Form, Form]  # bias, variance


def learned(stage: ClientStage, x: Array, ridge: float | None) -> Array:
    """q(x) = (1 - P(x))/x, what a client stage makes of its own samples."""
    if stage.objective is Objective.PENALISED:
        assert ridge is not None
        if np.isinf(ridge):
            return np.zeros_like(x)
        if ridge <= -x[0]:
            raise InvalidInput(
                f"ridge is {ridge:g}: a drawn client has the eigenvalue {x[0]:.3g}, and the ridge must stay above minus "
                "that; give a larger ridge"
            )
        return 1 / (x + ridge)
    stage.check_largest(float(x.max()), "on a drawn client")
    return np.asarray(np.broadcast_to(stage.learn(x), x.shape) / x)


def alone(client: Drawn) -> Forms:
    """A client that shares nothing: its error is its optimum."""
    energy = client.kind.optimum
    assert energy is not None
    nothing = np.zeros_like(client.x)
    return kept(client, client.Y * energy, float(client.kind.s @ energy)), fitted(client, Form(0.0, nothing, nothing), None)


def newcomer(client: Drawn, shared: Shared) -> Forms:
    """A client that took no part in the shared model."""
    s, E, Y = client.kind.s, client.kind.shift, client.Y
    away = kept(client, Y @ shared.away + client.shifted, float(s @ (np.diag(shared.away) + E)))
    return away, fitted(client, kept(client, Y @ shared.blur, float(s @ np.diag(shared.blur))), None)


def member(client: Drawn, shared: Shared, j: int) -> Forms:
    """Client j of the federation: its own displacement and noise moved the shared model, by R.

    The displacements' part of the covariance of theta_0_hat - theta_j is away - R Y E - E Y'R' + E.
    """
    s, E, Y, spread = client.kind.s, client.kind.shift, client.Y, client.spread
    R = shared.response(j, client)
    V = Y @ shared.away + (np.eye(len(Y)) - Y @ R) @ client.shifted
    V -= spread[:, None] * R.T if spread.ndim == 1 else spread @ R.T
    trace = s @ (np.diag(shared.away) + E) - 2 * (E @ along(R, client.scaled.T))
    blur = kept(client, Y @ shared.blur, float(s @ np.diag(shared.blur)))
    return kept(client, V, float(trace)), fitted(client, blur, R)


def kept(client: Drawn, V: Array, trace: float) -> Form:
    """tr(Sigma P B P) with P = I - Y'qY, from V = Y B and tr(Sigma B)."""
    return Form(trace, -2 * along(V, client.scaled), met(client, V))


def fitted(client: Drawn, blur: Form, R: Array | None) -> Form:
    """The variance: what is kept of the shared model's noise, the client's own, and what the two have in common.

    c [tr(Sigma Y'q^2 Y) + 2 tr(Sigma P R q Y)], c = noise^2/n.
    """
    c, metric = client.kind.noise2 / client.kind.n, client.metric
    linear, square = blur.linear, blur.square + c * (metric if metric.ndim == 1 else np.diag(np.diag(metric)))
    if R is not None:
        linear = linear + 2 * c * along(R.T, client.scaled)
        square = square - 2 * c * met(client, R.T)
    return Form(blur.constant, linear, square)


def met(client: Drawn, V: Array) -> Array:
    """(Y Sigma Y') * (V Y'), entry by entry; only the diagonal counts where Y Sigma Y' is diagonal."""
    return np.asarray(client.metric * (along(V, client.Y) if client.metric.ndim == 1 else V @ client.Y.T))


def along(first: Array, second: Array) -> Array:
    """The diagonal of first second'."""
    return np.asarray(np.einsum("ij,ij->i", first, second))
