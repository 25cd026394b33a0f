"""Section 11.1: softmax of Gaussian logits, proximal points, means and scores for C classes.

Every model is W = d x C with centred columns, and each of its overlaps is a number times P = I -
11'/C: with theta_i'Sigma theta_i = rho^2, a rule w has T = w'Sigma theta_i and Q = w'Sigma w per
contrast, as in section 1.

By quadrature, without sampling: the softmax does not see a common shift, so that logits with
covariance a^2 P are as good as C independent N(0, a^2). Then 1/S = int e^(-tS) dt with S = sum_j
e^(x_j) makes every expectation of a ratio a product over classes under one integral:

    1 - E|softmax(x)|^2 = C(C-1) int E[e1(x+u)]^2 E[e0(x+u)]^(C-2) du,   e0(y) = e^(-e^y),  e1 = e^y
    e0,  t = e^u E lse(x)            = int e0(u) - E[e0(x+u)]^C du E p(s)'q(w)         = C int int
    E[e1(s+u) e1(w+v)] E[e0(s+u) e0(w+v)]^(C-1) du dv E p_{argmax w}(s)   = C int E[e1(s+u)
    F(w,u)^(C-1)] du,   F(x,u) = E[e0(s+u); w < x]

The page samples these with 2^17 points and an error of 5e-4; here the error is about 1e-12 and the
cost some milliseconds.

Other expectations are taken at points, the same for every ridge of a path: a shifted lattice rule
of a prime number of points, its generator found component by component (Nuyens and Cools 2006, one
FFT per dimension), mapped to Gaussians in pairs (Box and Muller), centred, second moments matched.
The page uses scrambled Sobol points, which need SciPy's statistics; the controls of `softmax_ridge`
remove most of what sampling leaves, and with it the difference.

The proximal point of the loss is eta = w + V (e_k - softmax eta) for every label k. Its arrays have
the class of the logit first, then the label, then the points: sums over classes are then sums of
long rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.polynomial import legendre
from numpy.typing import NDArray

from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.roots import find_roots
from fedasym.worlds.classes import Energies

SEED = 11
MOST_CLASSES = 200
BUDGET = 1 << 19  # points x classes^2 held by the fixed point
SEARCH = 1 << 17  # the same, for a search whose result is computed again


@dataclass(frozen=True, eq=False)
class SoftmaxPoints:
    """Independent standard normal xi1, xi2 (C-1, N), (C-1, N) at N points of given weights (N,).

    z1, z2: the same as centred logits with covariance P, shape (C, N).
    """

    xi1: Array
    xi2: Array
    weight: Array

    @property
    def classes(self) -> int:
        """C."""
        return len(self.xi1) + 1

    @cached_property
    def z1(self) -> Array:
        """Centred logits."""
        return contrasts(self.classes) @ self.xi1

    @cached_property
    def z2(self) -> Array:
        """Centred logits, independent of z1."""
        return contrasts(self.classes) @ self.xi2


@lru_cache(maxsize=32)
def contrasts(classes: int) -> Array:
    """B: an orthonormal (Helmert) basis of vectors of C numbers that sum to 0, (C, C-1); BB' = P.

    >>> B = contrasts(3)
    >>> bool(np.allclose(B.T @ B, np.eye(2))) and bool(np.allclose(B.sum(0), 0))
    True
    """
    j = np.arange(1, classes)
    B = np.triu(np.ones((classes, classes - 1)))
    B[j, j - 1] = -j
    return np.asarray(B / np.sqrt(j * (j + 1)))


@lru_cache(maxsize=8)
def draw_points(classes: int, budget: int = BUDGET, seed: int = SEED) -> SoftmaxPoints:
    """Points for the fixed point with C classes: by budget, between 499 (or 10 C) and 8192."""
    if classes > MOST_CLASSES:
        raise NoFormula(
            f"classes is {classes}: the softmax limits are computed for up to {MOST_CLASSES}; "
            "take fewer classes, or fa.train on drawn clients"
        )
    count = largest_prime(int(np.clip(budget // classes**2, max(499, 10 * classes), 8192)))
    z = lattice_generator(count, 2 * (classes - 1))
    u = (np.arange(count)[:, None] * z % count / count + lattice_shift(z.size, seed)) % 1.0
    x = whiten(gaussian_points(u))
    return SoftmaxPoints(x[: classes - 1], x[classes - 1 :], np.full(count, 1 / count))


def whiten(x: Array) -> Array:
    """The points x (coordinates, N) moved and turned to mean zero and covariance I."""
    mean = np.asarray(x.mean(1), dtype=float)
    root = np.linalg.cholesky(x @ x.T / x.shape[1] - np.outer(mean, mean))
    return np.asarray(np.linalg.solve(root, x - mean[:, None]), dtype=np.float64)


def gaussian_points(u: Array) -> Array:
    """Normal points (coordinates, N) from uniform ones (N, an even number of coordinates)."""
    radius = np.sqrt(-2 * np.log1p(-u[:, 0::2]))
    angle = 2 * np.pi * u[:, 1::2]
    return np.concatenate([(radius * np.cos(angle)).T, (radius * np.sin(angle)).T])


def lattice_shift(dimensions: int, seed: int) -> Array:
    """The random shift of a lattice."""
    return np.random.default_rng([seed, dimensions]).random(dimensions)


@lru_cache(maxsize=16)
def lattice_generator(count: int, dimensions: int) -> NDArray[np.int64]:
    """The generator of a rank-one lattice of a prime number of points, component by component.

    The criterion is the worst-case error in the Korobov space of smoothness 2 with product weights
    1/j^2. With the powers of a primitive root as indices each search over all candidates is one
    cyclic convolution.
    """
    root = primitive_root(count)
    order = count - 1
    powers = np.empty(order, dtype=np.int64)
    value = 1
    for i in range(order):
        powers[i] = value
        value = value * root % count
    x = powers / count
    kernel = 2 * np.pi**2 * (x * x - x + 1 / 6)
    spectrum = np.fft.rfft(kernel)
    product = np.ones(order)
    z = np.empty(dimensions, dtype=np.int64)
    for j in range(dimensions):
        error = np.fft.irfft(spectrum * np.fft.rfft(product), order)
        # ties by index, whatever the rounding
        best = int(np.argmin(np.round(error / np.abs(error).max(), 9)))
        z[j] = powers[best]
        product *= 1 + kernel[(best - np.arange(order)) % order] / (j + 1) ** 2
        product /= product.mean()
    return z


def largest_prime(most: int) -> int:
    """The largest prime up to `most`.

    >>> largest_prime(8192), largest_prime(1 << 17)
    (8191, 131071)
    """
    return next(n for n in range(most, 1, -1) if all(n % q for q in range(2, int(n**0.5) + 1)))


def primitive_root(p: int) -> int:
    """The least primitive root of a prime."""
    rest = p - 1
    factors = set()
    for q in range(2, int(p**0.5) + 2):
        while rest % q == 0:
            factors.add(q)
            rest //= q
    if rest > 1:
        factors.add(rest)
    return next(g for g in range(2, p) if all(pow(g, (p - 1) // q, p) != 1 for q in factors))


STEPS = 100
HALVINGS = 40
CLOSE = 1e-9  # of a full Newton step, after which the error is that squared


def softmax(x: Array) -> Array:
    """Over the first axis."""
    e = np.exp(x - x.max(0))
    return np.asarray(e / e.sum(0))


def prox_start(w: Array, V: float) -> Array:
    """Where Newton's method starts: the label's logit raised by at most log(1+V)."""
    classes = len(w)
    return np.asarray(w[:, None] + np.log1p(V) * (np.eye(classes) - 1 / classes)[..., None])


def softmax_prox(w: Array, V: float, eta: Array) -> tuple[Array, Array]:
    """The root eta (C, C, N) and its softmax, for logits w (C, N) and V > 0, from a guess of eta.

    Newton's method on |eta - w|^2/2 + V (lse(eta) - eta_k), strictly convex; its matrix I + V(diag
    p - pp') is inverted by Sherman and Morrison: with u = p/(1+Vp), 1 - V p'u = sum u does not
    cancel. Points whose value rises halve their step.
    """
    classes = len(w)
    aim = w[:, None] + V * np.eye(classes)[..., None]
    shape = eta.shape
    aim, eta = aim.reshape(classes, -1), eta.reshape(classes, -1)
    value, p = prox_merit(eta, aim, V)
    for _ in range(STEPS):
        r = aim - eta - V * p
        D = 1 + V * p
        r /= D
        step = r + (V * (p * r).sum(0) / (p / D).sum(0)) * (p / D)
        descent = (D * r * step).sum(0)
        trial = eta + step
        new, q = prox_merit(trial, aim, V)
        slack = 1e-13 * (1 + np.abs(value))
        bad = np.flatnonzero(new > value - 1e-4 * descent + slack)
        length = 1.0
        for _ in range(HALVINGS):
            if not bad.size:
                break
            length /= 2
            trial[:, bad] = eta[:, bad] + length * step[:, bad]
            new[bad], q[:, bad] = prox_merit(trial[:, bad], aim[:, bad], V)
            bad = bad[new[bad] > value[bad] - 1e-4 * length * descent[bad] + slack[bad]]
        eta, value, p = trial, new, q
        if np.abs(step).max() < CLOSE:
            break
    return eta.reshape(shape), p.reshape(shape)


def prox_merit(eta: Array, aim: Array, V: float) -> tuple[Array, Array]:
    """|eta - aim|^2/2 + V lse(eta), the objective up to a constant, and softmax(eta)."""
    top = eta.max(0)
    e = np.exp(eta - top)
    total = e.sum(0)
    gap = eta - aim
    return 0.5 * np.einsum("jn,jn->n", gap, gap) + V * (np.log(total) + top), e / total


def prox_curvature(p: Array, V: float) -> Array:
    """tr[L (I+VL)^-1] with L = diag p - pp' over the first axis; stable for V -> 0.

    >>> p = np.array([0.2, 0.3, 0.5])
    >>> L = np.diag(p) - np.outer(p, p)
    >>> bool(np.isclose(prox_curvature(p, 2.0), np.trace(L @ np.linalg.inv(np.eye(3) + 2 * L))))
    True
    """
    u = p / (1 + V * p)
    total, pu = u.sum(0), (p * u).sum(0)
    return np.asarray(total - pu + V * ((p * u * u).sum(0) - pu * pu) / total)


REACH = 7.6  # of a standard normal variable: its tails hold 3e-14
FAR = 8.6  # the same to rounding, where that costs little
TAIL = 30.0  # e^-30: where e1 has died out on the left; e0 has on the right after FRONT
FRONT = 3.6
# of u: e0 is analytic for |Im u| < pi/2, which makes the trapezoid's error e^(-pi^2/STEP)
STEP = 0.25
FINE = 5  # tabulated points per step
STENCIL = 12  # points of the interpolation between them
BLOCK = 1 << 20  # numbers held at once
PANEL = 14  # nodes of a panel


def softmax_nodes(width: float) -> tuple[Array, Array]:
    """Nodes and weights for N(0,1) and functions of e^(width z): section 3.1, poles as for e0."""
    h = min(0.16, np.pi**2 / (TAIL * max(width, 1e-3)))
    z = h * np.arange(-np.ceil(REACH / h), np.ceil(REACH / h) + 1)
    weight = np.exp(-0.5 * z * z)
    return z, weight / weight.sum()


@lru_cache(maxsize=64)
def normal_panels(width: float) -> tuple[Array, Array, Array, float]:
    """Gauss-Legendre panels on [-REACH, REACH] for N(0,1): nodes (panels, PANEL), their normal
    weights, and the matrix of integrals from a panel's left end to each of its nodes, with the
    scale of a panel.
    """
    x, w = legendre.leggauss(PANEL)
    count = int(np.ceil(2 * REACH / min(0.8, 1.6 / max(width, 1e-3))))
    half = REACH / count
    nodes = half * (2 * np.arange(count)[:, None] + 1 + x) - REACH
    fit = np.linalg.inv(legendre.legvander(x, PANEL - 1))
    upto = np.stack(
        [legendre.legval(x, legendre.legint(fit[:, m], lbnd=-1)) for m in range(PANEL)], axis=1
    )
    density = np.exp(-0.5 * nodes**2)
    return (
        nodes,
        np.asarray(density / (half * (density * w).sum())),
        np.asarray(half * upto, dtype=float),
        half,
    )


def logit_grid(width: float, classes: int) -> Array:
    """The values of u where the integrands live, for logits of this standard deviation."""
    low = -REACH * width - np.log(classes) - TAIL
    return np.asarray(
        STEP * np.arange(np.floor(low / STEP), np.ceil((REACH * width + FRONT) / STEP) + 1)
    )


def gumbel_kernels(y: Array) -> tuple[Array, Array]:
    """e0 and e1."""
    t = np.exp(np.minimum(y, 10.0))  # both are 0 beyond
    e0 = np.exp(-t)
    return e0, t * e0


def blur_kernels(y: Array, spread: float) -> tuple[Array, Array]:
    """E e0(y + x) and E e1(y + x) for x ~ N(0, spread^2), y evenly spaced: convolutions, unless
    x is narrow.
    """
    step = float(y[1] - y[0])
    if spread >= 2 * step:
        reach = np.ceil(FAR * spread / step)
        weight = np.exp(-0.5 * (step / spread * np.arange(-reach, reach + 1)) ** 2)
        wide = y[0] + step * np.arange(-reach, y.size + reach)
        e0, e1 = (np.convolve(e, weight / weight.sum(), "valid") for e in gumbel_kernels(wide))
        return e0, e1
    z, weight = softmax_nodes(spread)
    rows = max(1, BLOCK // z.size)
    parts = [
        [values @ weight for values in gumbel_kernels(y[i : i + rows, None] + spread * z)]
        for i in range(0, y.size, rows)
    ]
    e0, e1 = np.concatenate(parts, axis=1)
    return e0, e1


@lru_cache(maxsize=256)
def gini(a: float, classes: int) -> float:
    """1 - E|softmax(a z)|^2 = sum over j != k of E p_j p_k, without cancelling near 0."""
    e0, e1 = blur_kernels(logit_grid(a, classes), a)
    return float(STEP * classes * (classes - 1) * np.sum(e1**2 * e0 ** (classes - 2)))


def softmax_phi(a: float, classes: int) -> float:
    """phi_C(a) = E[1 - |softmax(a z)|^2]/(C-1), the mean slope of the softmax."""
    return gini(a, classes) / (classes - 1)


def mean_log_sum(a: float, classes: int) -> float:
    """E lse(a z), the logits centred."""
    u = logit_grid(a, classes)
    return float(STEP * np.sum(gumbel_kernels(u)[0] - blur_kernels(u, a)[0] ** classes))


def conditional_kernels(u: Array, mean: Array, spread: float) -> tuple[Array, Array]:
    """E e0(s+u) and E e1(s+u), s ~ N(mean, spread^2): (means, u), from a table along the sum."""
    from scipy.sparse import csr_array

    h = STEP / FINE
    first = np.floor(mean.min() / h) - STENCIL
    table = u[0] + h * (first + np.arange(FINE * u.size + np.ceil(np.ptp(mean) / h) + 2 * STENCIL))
    e0, e1 = blur_kernels(table, spread)
    left = np.floor(mean / h) - STENCIL // 2 + 1
    offset = mean / h - left  # in the stencil's units
    nodes = np.arange(STENCIL)
    gaps = (nodes[nodes != m] for m in nodes)
    share = [np.prod((offset[:, None] - a) / (m - a), axis=1) for m, a in enumerate(gaps)]
    at = (left - first).astype(int)[:, None] + nodes
    stencils = csr_array(
        (np.stack(share, axis=1).ravel(), at.ravel(), np.arange(0, at.size + 1, STENCIL)),
        shape=(mean.size, table.size - FINE * (u.size - 1)),
    )

    def interpolate(values: Array) -> Array:
        shifts = sliding_window_view(values, FINE * (u.size - 1) + 1)[:, ::FINE]
        return np.asarray(stencils @ np.ascontiguousarray(shifts))

    return interpolate(e0), interpolate(e1)


def softmax_overlap(T: float, Q: float, rho: float, classes: int) -> float:
    """E softmax(s)'softmax(w)."""
    if Q == 0:
        return 1 / classes
    spread = np.sqrt(max(rho * rho - T * T / Q, 0.0))
    z, weight = softmax_nodes(max(np.sqrt(Q), abs(T) / np.sqrt(Q)))
    u, v = logit_grid(rho, classes), logit_grid(np.sqrt(Q), classes)
    e0, e1 = conditional_kernels(u, T / np.sqrt(Q) * z, spread)
    f0, f1 = gumbel_kernels(np.sqrt(Q) * z[:, None] + v)
    both = (e1.T * weight) @ f1
    rest = np.clip((e0.T * weight) @ f0, 0.0, 1.0)
    return float(STEP * STEP * classes * np.sum(both * rest ** (classes - 1)))


def softmax_accuracy(cos: float, rho: float, classes: int) -> float:
    """E p_{argmax w}(s): the chance that rule w names the label. cos = 1: E max_k p_k(s)."""
    cos = min(cos, 1.0)
    u = logit_grid(rho, classes)
    nodes, density, upto, half = normal_panels(float(np.round(rho * abs(cos), 1)) + 0.1)
    weight = half * density * legendre.leggauss(PANEL)[1]
    e0, e1 = conditional_kernels(
        u, rho * cos * nodes.ravel(), rho * np.sqrt(max(1.0 - cos * cos, 0.0))
    )
    e0, e1 = (values.reshape(*nodes.shape, u.size) for values in (e0, e1))
    inside = np.einsum("im,pmu->piu", upto, density[..., None] * e0)
    whole = np.einsum("pm,pmu->pu", weight, e0)
    before = np.cumsum(whole, axis=0) - whole
    F = np.clip(before[:, None] + inside, 0.0, 1.0)
    return float(STEP * classes * np.einsum("pm,pmu->", weight, e1 * F ** (classes - 1)))


@dataclass(frozen=True)
class SoftmaxRule:
    """A rule for C classes and its scores on a client's fresh samples; logits have deviation rho.

    >>> rule = softmax_ceiling(Energies.isotropic(1.5, 1.5), 3)
    >>> round(rule.accuracy, 6), round(rule.slope, 6)
    (0.753403, 1.0)
    """

    classes: int
    rho: float
    T: float
    Q: float

    @property
    def cos(self) -> float:
        """T/(rho sqrt Q), all that the accuracy depends on."""
        return float(min(self.T / max(self.rho * np.sqrt(self.Q), 1e-300), 1.0))

    @cached_property
    def accuracy(self) -> float:
        """E p_{argmax w}(s)."""
        return softmax_accuracy(self.cos, self.rho, self.classes)

    @cached_property
    def log_loss(self) -> float:
        """E[lse(w) - p(s)'w]; by Stein's identity the second term is (C-1) T phi_C(rho)."""
        return mean_log_sum(np.sqrt(self.Q), self.classes) - self.T * gini(self.rho, self.classes)

    @cached_property
    def brier(self) -> float:
        """E|e_y - softmax(w)|^2."""
        agree = softmax_overlap(self.T, self.Q, self.rho, self.classes)
        return 2 - 2 * agree - gini(np.sqrt(self.Q), self.classes)

    @cached_property
    def slope(self) -> float:
        """Calibration: the best k of logits k w, k Q phi_C(k sqrt Q) = T phi_C(rho) (section 1)."""
        # x phi_C(x) increases, so that x = k sqrt Q is at most rho
        aim = self.cos * self.rho * softmax_phi(self.rho, self.classes)

        def excess(x: Array) -> Array:
            return np.array([each * softmax_phi(each, self.classes) - aim for each in x])

        return float(
            find_roots(excess, np.array([0.0]), np.array([self.rho]), 1e-14)[0] / np.sqrt(self.Q)
        )


def softmax_shrinkage(b0: float, slope: float, classes: int) -> float:
    """The c of the shared model c W0: c phi_C(c sqrt B0) = the clients' mean of phi_C(rho_i)."""

    def excess(c: Array) -> Array:
        return np.array([x * softmax_phi(x * np.sqrt(b0), classes) - slope for x in c])

    return float(find_roots(excess, np.array([1e-12]), np.array([1.0]), 1e-14)[0])


def softmax_centre(energies: Energies, classes: int) -> float:
    """The c of the shared model when all clients have the same rho.

    >>> round(softmax_centre(Energies.isotropic(1.5, 1.5), 3), 6)
    0.647836
    """
    return softmax_shrinkage(float(energies.b0), softmax_phi(float(energies.rho), classes), classes)


def softmax_fedavg(energies: Energies, classes: int) -> SoftmaxRule:
    """The shared model of infinitely many clients, c W0."""
    c = softmax_centre(energies, classes)
    B0 = float(energies.b0)
    return SoftmaxRule(classes, float(energies.rho), c * B0, c * c * B0)


def softmax_ceiling(energies: Energies, classes: int) -> SoftmaxRule:
    """The client's own truth: accuracy E max_k softmax(s)_k."""
    rho = float(energies.rho)
    return SoftmaxRule(classes, rho, rho * rho, rho * rho)


def softmax_step(
    energies: Energies, aspect: float, classes: int, step: float | None = None
) -> tuple[SoftmaxRule, float]:
    """One gradient step from the shared model (section 6), and its length, by default the best.

    E[x g'] = Sigma Delta f at the shared model, with f = phi_C(rho), because c W0 is stationary for
    the mean client; the noise per contrast is G0 = E|g|^2/(C-1), the Brier score of FedAvg over
    C-1. The rest is section 6 as it stands.
    """
    s, h, ED = energies.s, energies.h, energies.ed
    shared = softmax_fedavg(energies, classes)
    c = softmax_centre(energies, classes)
    f = softmax_phi(shared.rho, classes)
    G0 = shared.brier / (classes - 1)
    signal, noise = (
        float(np.sum(s**2 * ED)),
        float(np.sum(s**2 * (f * f * s * ED + aspect * G0 * h))),
    )
    a = c * f * signal / noise if step is None else step
    return SoftmaxRule(classes, shared.rho, shared.T + a * f * signal, shared.Q + a * a * noise), a
