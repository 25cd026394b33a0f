"""Clients with classes, drawn at a finite dimension, and the models of every pair of stages fitted
to their labels.

theta_0 and each displacement have exactly the population's energy in every atom and are orthogonal
there, as in the limit; what is left between a drawn client and the limit is of order 1/dimension,
and the luck of the draw. A model is (d, K). Every fit that starts from a centre stays in centre +
span of the samples, so that with fewer samples than unknowns all work is done in n coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize, nnls
from scipy.special import expit, logsumexp, softmax

from fedasym.algorithms.methods import MAML_STEP
from fedasym.algorithms.stages import ClientStage, Objective, ServerStage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.draws import apportion, seeded_generator
from fedasym.theory.classes import metrics
from fedasym.theory.classes.finite import meta_scale, moreau_fit
from fedasym.theory.classes.ridge import shrinkage
from fedasym.theory.classes.softmax import contrasts, softmax_phi
from fedasym.theory.classes.softmax import softmax_centre as shared_scale
from fedasym.theory.classes.squared_labels import label_probe
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.spectra import Spectrum

CENTRE, CLIENT, NEWCOMER = 0, 1, 2  # roles in a path of seeds
FRESH = 20_000  # samples on which a model of more than two classes is scored
RUNAWAY = 1e6  # length of a fit that has no end
# accuracy, log-loss, Brier score, slope; NaN where there is none
Scored = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class ClassLayout:
    """A population over whole directions and whole samples; `world` is exactly what is drawn."""

    world: ClassPopulation
    room: NDArray[np.intp]  # directions of each atom
    n: int

    @property
    def s(self) -> Array:
        """The eigenvalue of each direction."""
        return np.repeat(self.world.spectrum.values, self.room)

    @property
    def K(self) -> int:
        """Columns of a model: 1 for two classes, else the contrasts of the classes."""
        return 1 if self.world.classes == 2 else self.world.classes - 1


@dataclass(frozen=True, eq=False)
class DrawnClassClient:
    """Features, labels, and the truth: models are (d, K) in contrasts of the classes; two classes
    have labels -1 and +1.

    Y: (n, 1) of -1 and +1 for two classes, else one-hot labels (n, C).
    """

    X: Array
    Y: Array
    truth: Array
    s: Array


def lay_out(world: ClassPopulation, dimension: int) -> ClassLayout:
    """The population that this many directions can hold."""
    gamma = float(np.asarray(world.aspect))
    n = round(dimension / gamma)
    if n < 2:
        least = int(np.ceil(1.5 * gamma))
        raise InvalidInput(
            f"dimension is {dimension}: with aspect {gamma:g} a client has {n} samples; give"
            f" dimension of at least {least}"
        )
    room = apportion(world.spectrum.weights, dimension)
    kept = room > 0
    columns = 2 * (1 if world.classes == 2 else world.classes - 1)
    if np.any(room[kept] < columns):
        raise InvalidInput(
            f"dimension is {dimension}: an eigenvalue would have {room[kept].min()} directions, and"
            f" the optima need {columns}; give a larger dimension, or a spectrum of fewer"
            " eigenvalues (spectra.atoms)"
        )
    shares = {owner: world.share(owner)[kept] for owner in ("shift", "centre")}
    weights: dict[str, Any] = {
        f"{owner}_weights": share / share.sum() for owner, share in shares.items()
    }
    if np.array_equal(shares["shift"], world.spectrum.weights[kept]):
        weights["shift_weights"] = room[kept] / dimension
    if np.array_equal(shares["centre"], world.spectrum.weights[kept]):
        weights["centre_weights"] = room[kept] / dimension
    exact = Spectrum(world.spectrum.values[kept], room[kept] / dimension, world.spectrum.name)
    return ClassLayout(
        replace(
            world,
            aspect=dimension / n,
            spectrum=exact,
            shift_power=0.0,
            centre_power=0.0,
            **weights,
        ),
        room[kept],
        n,
    )


def draw_shared(layout: ClassLayout, seed: int, trial: int) -> Array:
    """theta_0: (d, K) with columns at right angles and the exact energy in every atom."""
    rng = seeded_generator(seed, trial, CENTRE)
    return draw_model(layout, layout.world.energies.e0, rng, None)


def draw_model(
    layout: ClassLayout, energy: Array, rng: np.random.Generator, away: Array | None
) -> Array:
    """A model of this energy by atom, of random direction; orthogonal to the columns of `away`."""
    out = np.zeros((int(layout.room.sum()), layout.K))
    ends = np.cumsum(layout.room)
    for k, (end, size) in enumerate(zip(ends, layout.room, strict=True)):
        rows = slice(end - size, end)
        G = rng.standard_normal((size, layout.K))
        if away is not None and (known := away[rows]).any():
            basis = np.linalg.qr(known)[0]
            G -= basis @ (basis.T @ G)
        out[rows] = np.sqrt(energy[k]) * np.linalg.qr(G)[0]
    return out


def draw_class_client(
    layout: ClassLayout, theta0: Array, rng: np.random.Generator
) -> DrawnClassClient:
    """One client: its displacement, features and labels."""
    world = layout.world
    truth = theta0 + draw_model(layout, world.energies.ed, rng, theta0)
    X = rng.standard_normal((layout.n, truth.shape[0])) * np.sqrt(layout.s)
    if world.classes == 2:
        flips = float(np.asarray(world.flips))
        p = flips + (1 - 2 * flips) * expit(X @ truth)
        return DrawnClassClient(X, np.where(rng.random(p.shape) < p, 1.0, -1.0), truth, layout.s)
    p = softmax(X @ truth @ contrasts(world.classes).T, axis=1)
    label = (rng.random((layout.n, 1)) > p.cumsum(1)[:, :-1]).sum(1)
    return DrawnClassClient(X, np.eye(world.classes)[label], truth, layout.s)


@dataclass(frozen=True, eq=False)
class LabelProblem:
    """(1/n) sum loss(X(centre + Q b)) + (lam/2) |b|^2 in b: L = XQ, and the centre's outputs."""

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


def problem_of(client: DrawnClassClient, centre: Array) -> tuple[LabelProblem, Array]:
    """The client's problem around a centre, and the basis Q of its coordinates."""
    n, d = client.X.shape
    Q = np.linalg.qr(client.X.T)[0] if n < d else np.eye(d)
    return LabelProblem(client.X @ Q if n < d else client.X, client.X @ centre, client.Y), Q


def fit_ridge(client: DrawnClassClient, lam: float, centre: Array) -> Array:
    """RTFA: the minimum of loss + (lam/2)|theta - centre|^2."""
    if np.isinf(lam):
        return centre
    task, Q = problem_of(client, centre)
    return centre + Q @ (newton(task, lam) if centre.shape[1] == 1 else descend_far(task, lam))


def newton(task: LabelProblem, lam: float) -> Array:
    """Two classes: Newton's method with halved steps; gives up where the fit runs away."""
    n = len(task.Y)
    b = np.zeros((task.L.shape[1], 1))

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
        move = cho_solve(cho_factor(hessian), slope)
        share = 1.0
        while (new := value(b - share * move)) > now + 1e-12 and share > 1e-6:
            share /= 2
        b = b - share * move
        now = new
    return b


def descend_far(task: LabelProblem, lam: float) -> Array:
    """More classes: the same minimum by L-BFGS."""
    shape = (task.L.shape[1], task.start.shape[1])

    def value_and_slope(x: Array) -> tuple[float, Array]:
        b = x.reshape(shape)
        slope = task.L.T @ task.residual(b) / len(task.Y) + lam * b
        return task.value(b) + lam / 2 * float(np.sum(b**2)), slope.ravel()

    close = {"maxiter": 3000, "ftol": 1e-14, "gtol": 1e-7}
    start = np.zeros(shape).ravel()
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=close)
    return np.asarray(found.x).reshape(shape)


def descend_for(client: DrawnClassClient, time: float, centre: Array) -> Array:
    """Gradient descent from the centre for a time = step x steps, in small steps."""
    task, Q = problem_of(client, centre)
    n = len(task.Y)
    steepest = (0.25 if centre.shape[1] == 1 else 0.5) * float(np.linalg.norm(task.L, 2)) ** 2 / n
    steps = max(int(np.ceil(time * steepest / 0.2)), 10) if time > 0 else 0
    b = np.zeros((task.L.shape[1], centre.shape[1]))
    for _ in range(steps):
        b -= time / steps * (task.L.T @ task.residual(b)) / n
    return centre + Q @ b


def step_from(client: DrawnClassClient, size: float, centre: Array) -> Array:
    """One gradient step."""
    start = LabelProblem(client.X, client.X @ centre, client.Y)
    return np.asarray(
        centre - size * client.X.T @ start.residual(np.zeros_like(centre)) / len(client.Y)
    )


def fit_label_squares(client: DrawnClassClient, lam: float, centre: Array) -> Array:
    """Ridge regression of labels (-1 and +1, or one-hot) to a centre; lam 0: least squares."""
    if np.isinf(lam):
        return centre
    task, Q = problem_of(client, centre)
    target = client.Y if centre.shape[1] == 1 else client.Y @ contrasts(client.Y.shape[1])
    gap = target - task.start
    if lam == 0:
        return np.asarray(centre + Q @ np.linalg.lstsq(task.L, gap, rcond=None)[0])
    gram = task.L.T @ task.L / len(gap) + lam * np.eye(task.L.shape[1])
    return np.asarray(centre + Q @ np.linalg.solve(gram, task.L.T @ gap / len(gap)))


def fit_converged(client: DrawnClassClient) -> tuple[Array, bool]:
    """Where descent on two classes ends: the max-margin direction if separable, else the MLE."""
    task, Q = problem_of(client, np.zeros((client.X.shape[1], 1)))
    if (
        len(task.Y) > 2 * task.L.shape[1]
    ):  # else always separable in the limit, and nearly always here
        b = newton(task, 0.0)
        if np.min(task.Y * (task.L @ b)) <= 0:
            return Q @ b, False
    if (widest := fit_max_margin(client.Y * task.L)) is not None:
        return Q @ widest, True
    return Q @ newton(task, 0.0), False


def fit_max_margin(G: Array) -> Array | None:
    """The shortest w with Gw >= 1, by Lawson and Hanson's LDP; None if there is none."""
    scale = float(np.abs(G).mean()) or 1.0
    E = np.concatenate([G.T / scale, np.ones((1, len(G)))])
    aim = np.zeros(len(E))
    aim[-1] = 1
    u, length = nnls(E, aim, maxiter=50 * E.shape[1])
    if length < 1e-7:
        return None
    rest = E @ u - aim
    return np.asarray(-rest[:-1, None] / rest[-1] / scale)


def fit_pooled(clients: list[DrawnClassClient]) -> Array:
    """The logistic fit of all clients' samples together."""
    X, Y = (np.concatenate([getattr(each, part) for each in clients]) for part in ("X", "Y"))
    return newton(LabelProblem(X, np.zeros_like(Y), Y), 0.0)


@dataclass(frozen=True, eq=False)
class Starts:
    """The shared models that clients start from: FedAvg's, and that of least squares."""

    shared: Array
    squared: Array


def fit_pair(
    client: DrawnClassClient,
    pair: tuple[ServerStage, ClientStage],
    starts: Starts,
    *,
    ridge: float | None,
    step: float | None,
    time: float | None,
) -> tuple[Array, bool]:
    """A client's model, and whether it lacks probabilities; at the pair's ridge, step and time."""
    server, stage = pair
    if server.squares_labels:
        return fit_label_squares(client, ridge or 0.0, starts.squared), True
    match stage.objective:
        case Objective.OWN:  # wherever it starts
            return fit_converged(client)
        case Objective.SHARED:
            return starts.shared, False
        case Objective.PENALISED:
            assert ridge is not None
            centre = starts.shared if server.shares else np.zeros_like(starts.shared)
            return fit_ridge(client, ridge, centre), False
    if step is not None:
        return step_from(client, step, starts.shared), False
    assert time is not None
    return descend_for(client, time, starts.shared), False


def start_scale(world: ClassPopulation, server: ServerStage, ridge: float | None) -> float:
    """The c of a server stage's shared model c theta_0 of infinitely many clients."""
    gamma = float(np.asarray(world.aspect))
    if server.objective is Objective.JOINT:
        own = server.get("ridge")
        tied = ridge if own is None else own
        return float(moreau_fit(world.energies, gamma, tied or 0.0, world.flips)[1])
    if "local_step" in server.settings():  # losses are minimised after one step of it
        step = float(server.get("local_step") or MAML_STEP)
        one = world.energies.broadcast((1,))
        flips = np.array([float(np.asarray(world.flips))])
        return float(meta_scale(one, np.array([gamma]), step, flips)[0])
    return shared_shrinkage(world)


def shared_shrinkage(world: ClassPopulation) -> float:
    """The c of the shared model c theta_0 of infinitely many clients."""
    if world.classes == 2:
        return float(shrinkage(world.energies, world.flips))
    return shared_scale(world.energies, world.classes) if float(world.energies.b0) > 0 else 1.0


def squared_slope(world: ClassPopulation) -> float:
    """The zeta of the shared least-squares model zeta theta_0."""
    rho = float(world.energies.rho)
    return (
        float(label_probe(rho, world.flips).zeta)
        if world.classes == 2
        else softmax_phi(rho, world.classes)
    )


def score_model(
    one: DrawnClassClient, w: Array, world: ClassPopulation, rng: np.random.Generator, endless: bool
) -> Scored:
    """The scores of a model on fresh samples of its client."""
    gram = {
        key: (a.T * one.s) @ b
        for key, (a, b) in {"T": (w, one.truth), "Q": (w, w), "R": (one.truth, one.truth)}.items()
    }
    if world.classes == 2:
        eps = np.asarray(world.flips)
        state = metrics.State.of(gram["T"][0, 0], gram["Q"][0, 0], np.sqrt(gram["R"][0, 0]))
        right = float(metrics.accuracy(state, eps))
        if endless:
            return right, np.nan, np.nan, np.nan
        loss, brier, slope = (
            float(each(state, eps))
            for each in (metrics.log_loss, metrics.brier, metrics.calibration)
        )
        return right, loss, brier, slope
    B = contrasts(world.classes)
    K = w.shape[1]
    both = np.block([[gram["R"], gram["T"].T], [gram["T"], gram["Q"]]])
    values, vectors = np.linalg.eigh(both)
    x = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((2 * K, FRESH))
    own, logits = B @ x[:K], B @ x[K:]
    p = softmax(own, axis=0)
    right = float(np.take_along_axis(p, logits.argmax(0)[None], axis=0).mean())
    if endless:
        return right, np.nan, np.nan, np.nan
    q = softmax(logits, axis=0)
    loss = float((logsumexp(logits, axis=0) - (p * logits).sum(0)).mean())
    return right, loss, float((1 - 2 * (p * q).sum(0) + (q**2).sum(0)).mean() / 2), np.nan
