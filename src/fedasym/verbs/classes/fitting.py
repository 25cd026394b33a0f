"""Logistic and softmax models fitted to drawn clients: ridge, descent, one step, least squares, to convergence.

A model is (d, K). Every fit that starts from a centre stays in centre + span of the samples, so that with fewer samples than
unknowns all work is done in n coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize, nnls
from scipy.special import expit, logsumexp, softmax

from fedasym.core.arrays import Array
from fedasym.theory.classes.softmax import contrasts
from fedasym.verbs.classes.drawn import Client

RUNAWAY = 1e6  # length of a fit that has no end


@dataclass(frozen=True, eq=False)
class Problem:
    """(1/n) sum loss(X(centre + Q b)) + (lam/2) |b|^2 in coordinates b: L = XQ, and the outputs of the centre."""

    L: Array
    start: Array  # X centre
    Y: Array

    def residual(self, b: Array) -> Array:
        """The derivative of a sample's loss by its outputs, (n, K)."""
        out = self.start + self.L @ b
        if self.Y.shape[1] == 1:
            return np.asarray(-self.Y * expit(-self.Y * out))
        B = contrasts(self.Y.shape[1])
        return np.asarray((softmax(out @ B.T, axis=1) - self.Y) @ B)

    def value(self, b: Array) -> float:
        """The mean loss."""
        out = self.start + self.L @ b
        if self.Y.shape[1] == 1:
            return float(np.logaddexp(0, -self.Y * out).mean())
        logits = out @ contrasts(self.Y.shape[1]).T
        return float((logsumexp(logits, axis=1) - (self.Y * logits).sum(1)).mean())


def problem(client: Client, centre: Array) -> tuple[Problem, Array]:
    """The client's problem around a centre, and the basis Q of its coordinates."""
    n, d = client.X.shape
    Q = np.linalg.qr(client.X.T)[0] if n < d else np.eye(d)
    return Problem(client.X @ Q if n < d else client.X, client.X @ centre, client.Y), Q


def ridge(client: Client, lam: float, centre: Array) -> Array:
    """RTFA: the minimum of loss + (lam/2)|theta - centre|^2."""
    if np.isinf(lam):
        return centre
    task, Q = problem(client, centre)
    return centre + Q @ (newton(task, lam) if centre.shape[1] == 1 else descend_far(task, lam))


def newton(task: Problem, lam: float) -> Array:
    """Two classes: Newton's method with halved steps; gives up where the fit runs away."""
    n, b = len(task.Y), np.zeros((task.L.shape[1], 1))

    def value(b: Array) -> float:
        return task.value(b) + lam / 2 * float(np.sum(b**2))

    now = value(b)
    for _ in range(100):
        g = expit(-task.Y * (task.start + task.L @ b))
        slope = -(task.L.T @ (task.Y * g)) / n + lam * b
        if np.max(np.abs(slope)) < 1e-8 or np.sum(b**2) > RUNAWAY**2:
            break
        hessian = (task.L.T * (g * (1 - g))[:, 0]) @ task.L / n
        hessian[np.diag_indices_from(hessian)] += lam + 1e-12
        move, share = cho_solve(cho_factor(hessian), slope), 1.0
        while (new := value(b - share * move)) > now + 1e-12 and share > 1e-6:
            share /= 2
        b, now = b - share * move, new
    return b


def descend_far(task: Problem, lam: float) -> Array:
    """More classes: the same minimum by L-BFGS."""
    shape = (task.L.shape[1], task.start.shape[1])

    def both(x: Array) -> tuple[float, Array]:
        b = x.reshape(shape)
        slope = task.L.T @ task.residual(b) / len(task.Y) + lam * b
        return task.value(b) + lam / 2 * float(np.sum(b**2)), slope.ravel()

    close = {"maxiter": 3000, "ftol": 1e-14, "gtol": 1e-7}
    found = minimize(both, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=close)
    return np.asarray(found.x).reshape(shape)


def descend(client: Client, time: float, centre: Array) -> Array:
    """Gradient descent from the centre for a time = step x steps, in small steps."""
    task, Q = problem(client, centre)
    n = len(task.Y)
    steepest = (0.25 if centre.shape[1] == 1 else 0.5) * float(np.linalg.norm(task.L, 2)) ** 2 / n
    steps = max(int(np.ceil(time * steepest / 0.2)), 10) if time > 0 else 0
    b = np.zeros((task.L.shape[1], centre.shape[1]))
    for _ in range(steps):
        b -= time / steps * (task.L.T @ task.residual(b)) / n
    return centre + Q @ b


def step(client: Client, size: float, centre: Array) -> Array:
    """One gradient step."""
    start = Problem(client.X, client.X @ centre, client.Y)
    return np.asarray(centre - size * client.X.T @ start.residual(np.zeros_like(centre)) / len(client.Y))


def squares(client: Client, lam: float, centre: Array) -> Array:
    """Ridge regression of the labels (-1 and +1, or one-hot) towards a centre; lam 0: the nearest interpolant, or the fit."""
    if np.isinf(lam):
        return centre
    task, Q = problem(client, centre)
    target = client.Y if centre.shape[1] == 1 else client.Y @ contrasts(client.Y.shape[1])
    gap = target - task.start
    if lam == 0:
        return np.asarray(centre + Q @ np.linalg.lstsq(task.L, gap, rcond=None)[0])
    gram = task.L.T @ task.L / len(gap) + lam * np.eye(task.L.shape[1])
    return np.asarray(centre + Q @ np.linalg.solve(gram, task.L.T @ gap / len(gap)))


def converged(client: Client) -> tuple[Array, bool]:
    """Where gradient descent on two classes ends: the max-margin direction if they are separable, else the MLE."""
    task, Q = problem(client, np.zeros((client.X.shape[1], 1)))
    if len(task.Y) > 2 * task.L.shape[1]:  # else always separable in the limit, and nearly always here
        b = newton(task, 0.0)
        if np.min(task.Y * (task.L @ b)) <= 0:
            return Q @ b, False
    if (widest := max_margin(client.Y * task.L)) is not None:
        return Q @ widest, True
    return Q @ newton(task, 0.0), False


def max_margin(G: Array) -> Array | None:
    """The shortest w with Gw >= 1, by non-negative least squares (Lawson and Hanson's LDP); None if there is none."""
    scale = float(np.abs(G).mean()) or 1.0
    E = np.concatenate([G.T / scale, np.ones((1, len(G)))])
    aim = np.zeros(len(E))
    aim[-1] = 1
    u, length = nnls(E, aim, maxiter=50 * E.shape[1])
    if length < 1e-7:
        return None
    rest = E @ u - aim
    return np.asarray(-rest[:-1, None] / rest[-1] / scale)


def pooled(clients: list[Client]) -> Array:
    """The logistic fit of all clients' samples together."""
    X, Y = (np.concatenate([getattr(each, part) for each in clients]) for part in ("X", "Y"))
    return newton(Problem(X, np.zeros_like(Y), Y), 0.0)
