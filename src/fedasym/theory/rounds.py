"""The shared model over communication rounds: local steps, cohorts, clipping and privacy noise.

In a round each of D fresh clients moves from the shared model theta_t along its own samples, by the
filter f of its procedure, P = f(S):

    u = P (theta_i - theta_t) + q(S) X'eps/n,   q(x) = f(x)/x                                  (R1)

and the server adds the average of the moves times its step. With infinitely many clients the error
theta_t - theta_0 has in the limit an energy per atom of the covariance, M_k, which follows a linear
recursion (R5). Losses are the limits for one client with r^2 g + M(t) in place of r^2 g: the shared
model's error acts like more displacement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedasym.algorithms.paper import Algorithm
from fedasym.algorithms.stages import ServerStage
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.filters import DescentFilter, check_stable, horizon, split_by_decades
from fedasym.theory.transforms import (
    MOST_NODES_SQUARED,
    Complex,
    Contour,
    kappa,
    kappa_slope,
    sample_support,
    sum_until_settled,
)
from fedasym.worlds.spectra import Spectrum

CAUCHY_NODES = 80  # a panel of the contour, to look for poles inside it
MANY_TIMES = 16  # lengths of work from which their filters are expressed by a few
SEMICIRCLE_NODES = 6  # of the law of the clients' mean move
LONGEST = 1e7  # local steps at which the variation of lengths is taken as that of convergence
CLOSE = 1e-9  # how near Cauchy's formula comes where there is none
NUMBERS_AT_ONCE = 1 << 18  # complex ones, of the integrands of pairs of atoms


@dataclass(frozen=True)
class Moments:
    """What one client's move does to energies by atom; leading axes are settings of the procedure.

    p: E P, atom by atom. T: E[P M P]_k = p_k^2 M_k + sum_l T_kl M_l. nu: energy of the noise that
    it fits, for labels' noise 1.
    """

    p: Array  # (..., K)
    T: Array  # (..., K, K)
    nu: Array  # (..., K)

    def kept_energy(self, energy: Array) -> Array:
        """E[P M P] by atom, for energies (..., K): equation (R3)."""
        return np.asarray(self.p**2 * energy + np.einsum("...kl,...l->...k", self.T, energy))


class LocalFilter(Protocol):
    """What a client's local work fits of its own optimum, f(z), for several lengths of work."""

    @property
    def times(self) -> Array:
        """The lengths of work."""

    def learn(self, x: Complex | Array) -> Complex:
        """f(x), one row per length of work."""

    def contour(self, gamma: float, spectrum: Spectrum) -> Contour:
        """A contour around the spectrum on which f stays of order one."""


@dataclass(frozen=True)
class StepFilter:
    """The filter of any stage's own step, from its code: on a linear model a step is affine in w.

    Along an eigenvalue x, with the client's optimum at 1 and the shared model at 0, a step takes w
    to A w + B, and K of them reach f = B (1 - A^K)/(1 - A).
    """

    stage: ServerStage
    times: Array  # numbers of steps, infinite: until they converge
    rate: float

    def learn(self, x: Complex | Array) -> Complex:
        """B (1 - A^K)/(1 - A)."""
        z = np.asarray(x, dtype=np.complex128)
        B = self._step(z, np.zeros_like(z))
        left = np.asarray(B - (self._step(z, np.ones_like(z)) - 1))  # 1 - A
        far = self._step(z, np.full_like(z, 2.5))  # at 2 an odd power of w - 1 would pass for w - 1
        if not np.allclose(far, B + 2.5 * (1 - left), rtol=1e-8, atol=1e-10):
            raise NoFormula(
                f"the step of {type(self.stage).__name__} is not linear in the model, and rounds"
                " are predicted for linear ones only: measure it with fa.train"
            )
        K = self.times[:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            power = np.where(np.isinf(K), 0, (1 - left) ** np.where(np.isinf(K), 1, K))
            return np.where(left == 0, K * B, B * (1 - power) / left)

    def contour(self, gamma: float, spectrum: Spectrum) -> Contour:
        """The widest contour with |1 - f| of order one and no pole of f inside."""
        low, high = sample_support(gamma, spectrum)
        inside = np.linspace(low, high, 11)[1:-1]
        for halving in range(44):
            contour = Contour(gamma, spectrum, high * 0.5**halving, high * (1 + 0.5**halving))
            kappa_, z, _, arc = contour.nodes(CAUCHY_NODES)
            f = self.learn(z)
            if not np.abs(1 - f).max() < 4:
                continue
            again = 2 * ((f * (z / kappa_ * arc)) @ (1 / (z[:, None] - inside))).real
            off = np.abs(again - self.learn(inside).real).max()
            if off < CLOSE:  # Cauchy's formula gives f back
                return contour
        raise InvalidInput(
            f"server_step is {self.rate:g}: local steps of {type(self.stage).__name__} diverge"
            f" here, where clients have eigenvalues up to {high:.4g}; give a smaller step"
        )

    @property
    def descends(self) -> bool:
        """Whether a step is w - rate g(w), and nothing is carried to the next."""
        if self.stage.has_state() or self.stage.has_memory():
            return False
        z = np.geomspace(1e-3, 1e3, 25).astype(np.complex128)
        starts = (np.full_like(z, at) for at in (-1.5, 0.0, 0.7))
        return all(
            np.allclose(self._step(z, w), w - self.rate * z * (w - 1), rtol=1e-12, atol=0)
            for w in starts
        )

    def _step(self, z: Complex, w: Complex) -> Complex:
        """One step of the stage from w; its gradient is z (w - 1) on every batch."""
        state = self.stage.init(w) if self.stage.has_state() else None
        found = self.stage.advance((w, np.zeros_like(z), ScalarGradient(z), self.rate), state)[0]
        return np.asarray(found, dtype=np.complex128)


def filter_of_work(stage: ServerStage, times: Array, rate: float) -> DescentFilter | StepFilter:
    """The filter of so many steps; plain descent has a power of 1 - rate x, to the last digit."""
    steps = StepFilter(stage, times, rate)
    return DescentFilter(times, rate) if steps.descends else steps


@dataclass(frozen=True)
class ScalarGradient:
    """The gradient of a client's loss along one eigenvalue, for a step's code."""

    z: Complex

    def __call__(self, w: Any, batch: int = 0) -> Any:
        """At w."""
        return self.z * (w - 1)

    def along(self, w: Any, direction: Any, batch: int = 0, difference: float | None = None) -> Any:
        """The Hessian times a direction, which a difference of linear gradients is as well."""
        return self.z * direction

    def own_part(self, part: Any) -> Any:
        """All unknowns may be a client's own."""
        return part

    def common_part(self, part: Any) -> Any:
        """None is the same for all clients."""
        return 0 * part

    def repeat(self, count: int, step: Callable[[Any], Any], w: Any) -> Any:
        """A step, over and over."""
        for _ in range(count):
            w = step(w)
        return w


def moments_of_steps(filter_: DescentFilter, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments after numbers of plain gradient steps (or times of gradient flow), one each.

    Equations (R2) to (R4) by quadrature along an arc in the kappa plane, where the resolvent is
    R_k(z) = 1/(c (s_k + kappa)) with c = 1 - gamma df1(kappa).
    """
    return moments_of_times(tuple(filter_.times.tolist()), filter_.step, gamma, spectrum)


@lru_cache(maxsize=8)
def moments_of_times(
    times: tuple[float, ...], step: float | None, gamma: float, spectrum: Spectrum
) -> Moments:
    """The same, kept: a search over budgets and numbers of clients asks for them every time."""
    filter_ = DescentFilter(np.array(times), step)
    check_stable(filter_, gamma, spectrum, "server_step")
    shape = filter_.times.size, spectrum.values.size
    out = Moments(np.zeros(shape), np.zeros((*shape, shape[1])), np.zeros(shape))
    finished = filter_.times >= horizon(gamma, spectrum, filter_.step)
    parts = [
        (some, integrate_moments(part, gamma, spectrum))
        for some, part in split_by_decades(filter_, ~finished)
    ]
    if np.any(finished):
        parts.append((np.flatnonzero(finished), moments_of_ridge(0.0, gamma, spectrum)))
    for some, part in parts:
        out.p[some], out.T[some], out.nu[some] = part.p, part.T, part.nu
    return out


def integrate_moments(filter_: LocalFilter, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments of lengths of work for which one contour serves."""
    contour = filter_.contour(gamma, spectrum)
    s, h = spectrum.positive
    atoms, times = s.size, filter_.times.size
    row, column = np.triu_indices(atoms)  # T/(h_k s_k s_l) is symmetric

    def rule(count: int) -> tuple[Array, Array]:
        k, z, _, arc = contour.nodes(count)
        near = 1 / (s[:, None] + k)  # 1/(s_k + kappa), (K, n)
        f = filter_.learn(z)  # (times, n)
        once, noise = f * arc, f**2 / z * arc
        weights, basis = split_rows(once)
        products = near[row] * near[column]
        weighted = near.T * (gamma * h * s**2)
        # The second variable runs over both halves of the contour; the lower one is conjugate.
        upper, lower = 1 / (1 - weighted @ near), 1 / (1 - weighted @ near.conj())
        twice = np.empty((times, row.size), dtype=complex)
        size = max(1, NUMBERS_AT_ONCE // basis.size)
        for at in range(0, row.size, size):
            pairs = products[at : at + size, None] * basis
            rows, columns = pairs.reshape(-1, k.size), pairs.swapaxes(1, 2)
            through = (rows @ upper).reshape(pairs.shape) @ columns
            across = (rows @ lower).reshape(pairs.shape) @ columns.conj()
            both = weights @ through * weights + weights @ across * weights.conj()
            twice[:, at : at + size] = both.sum(-1).T
        found = [once @ near.T, noise @ near.T, twice]
        lengths = np.abs(once)
        sizes = [
            lengths @ np.abs(near).T,
            np.abs(noise) @ np.abs(near).T,
            (lengths @ np.abs(products).T) ** 2,
        ]
        return 2 * np.concatenate(found, axis=1).real, np.concatenate(sizes, axis=1)

    found = sum_until_settled(rule, MOST_NODES_SQUARED // contour.size)
    p, nu, half = np.split(found, [atoms, 2 * atoms], axis=1)
    T = np.empty((times, atoms, atoms))
    T[:, row, column] = T[:, column, row] = half
    return moments_over_atoms(p, gamma * np.outer(h * s, s) * T, gamma * h * nu, spectrum)


def fourth_moments(filter_: LocalFilter, gamma: float, spectrum: Spectrum) -> Array:
    """Means of f^4, f^4/x and f^4/x^2 over a client's eigenvalues, (times, 3): how lengths vary."""
    s, h = spectrum.positive
    out = np.empty((filter_.times.size, 3))
    parts: list[tuple[Any, LocalFilter]] = [(slice(None), filter_)]
    if isinstance(filter_, DescentFilter):
        check_stable(filter_, gamma, spectrum, "server_step")
        converged = np.minimum(filter_.times, horizon(gamma, spectrum, filter_.step))
        most = np.minimum(converged, LONGEST)
        every = DescentFilter(most, filter_.step)
        parts = list(split_by_decades(every, np.ones(most.size, bool)))
    for some, part in parts:
        contour = part.contour(gamma, spectrum)

        def rule(
            count: int, part: LocalFilter = part, contour: Contour = contour
        ) -> tuple[Array, Array]:
            k, z, _, arc = contour.nodes(count)
            powers = part.learn(z)[:, None] ** 4 / z ** np.arange(3)[:, None]
            weights = (h / (s + k[:, None])).sum(1) * arc
            return 2 * (powers @ weights).real, np.abs(powers) @ np.abs(weights)

        out[some] = sum_until_settled(rule, MOST_NODES_SQUARED // contour.size)
    return out


def split_rows(rows: Complex) -> tuple[Complex, Complex]:
    """W and B with W B = rows and few rows in B: filters of many lengths of work are much alike."""
    if len(rows) < MANY_TIMES:
        return np.eye(len(rows), dtype=complex), rows
    u, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.sum(sizes > np.finfo(float).eps * sizes[0]))
    return u[:, :rank], sizes[:rank, None] * basis[:rank]


def moments_of_ridge(ridge: float, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments of an exact proximal step, f(x) = x/(x + ridge): the residues of (R2) to (R4).

    Without a ridge they are those of local steps to convergence.
    """
    s, h = spectrum.positive
    aspect, lam = np.array([gamma]), np.array([float(ridge)])
    k = kappa(lam, aspect, spectrum)
    # 1/(1 - gamma df2), endless at the interpolation threshold
    growth = kappa_slope(k, lam, aspect, spectrum)
    near = 1 / (s + k)
    spread = np.where(k > 0, k**2 * np.where(np.isfinite(growth), growth, 0), 0.0)
    T = gamma * spread * np.outer(h * s * near**2, s * near**2)
    return moments_over_atoms(s * near, T, gamma * growth * h * s * near**2, spectrum)


def moments_over_atoms(p: Array, T: Array, nu: Array, spectrum: Spectrum) -> Moments:
    """The moments over all atoms: nothing moves along those that samples cannot see."""
    seen = np.flatnonzero(spectrum.support)
    count = spectrum.values.size
    if seen.size == count:
        return Moments(p, T, nu)
    wide = (
        np.zeros((*p.shape[:-1], count)),
        np.zeros((*T.shape[:-2], count, count)),
        np.zeros((*p.shape[:-1], count)),
    )
    wide[0][..., seen], wide[2][..., seen] = p, nu
    wide[1][..., seen[:, None], seen] = T
    return Moments(*wide)


@dataclass(frozen=True)
class Round:
    """What a server does with the moves of a cohort; arrays over settings, (...,).

    cohort: D clients. share: what sampling leaves of the variance of their own parts: 1 with
    infinitely many clients, 1 - (D - 1)/(m - 1) for D of m without replacement, 1 - D/m where each
    takes part by itself. step: the server's, times the average. clip: bound on a move's length,
    infinite for none.
    noise: the multiplier z; the average gets Gaussian noise of deviation z clip/D per coordinate,
    of which there are `dimension`. poisson: whether each client takes part by itself, so that the
    mean of the moves varies with the size of the cohort. lengths: how moves' lengths vary; None:
    not at all, which is the limit.
    """

    cohort: Array
    share: Array
    step: Array
    clip: Array
    noise: Array
    dimension: Array
    poisson: bool = False
    lengths: MoveLengths | None = None


@dataclass(frozen=True)
class MoveLengths:
    """How lengths of moves vary from client to client, in a finite dimension.

    A move has the energy w(x) = f^2 (A + B/x) along an eigenvalue x of its client, in a random
    direction; so its squared length varies by 2/d times the mean of w^2, less what is common to all
    clients of the round. A comes from the mean energy, B = sigma^2 gamma from label noise.
    """

    second: Array  # mean of f^2 over the eigenvalues, (...)
    fourth: Array  # of f^4, f^4/x and f^4/x^2, (..., 3)
    noise: Array  # B, (...)
    dimension: Array

    def spread(self, square: Array, common: Array, fitted: Array) -> Array:
        """The deviation of a length over its mean; square: of the length, of which `common` comes
        from the shared error and `fitted` from label noise.
        """
        A = (square - fitted) / self.second
        terms = np.stack([A**2, 2 * A * self.noise, self.noise**2], axis=-1)
        variance = np.maximum((terms * self.fourth).sum(-1) - common**2, 0)
        return np.asarray(np.sqrt(variance / (2 * self.dimension)) / square)


def cut_lengths(clip: Array, length: Array, spread: Array | float) -> tuple[Array, Array]:
    """The part of moves that are no longer than the clip, and what clipping leaves of the mean.

    With all of one length it is all or none of them, and min(1, clip/length).
    """
    from scipy.special import ndtr  # predictions without a clip start without SciPy

    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.asarray(clip / length)
        least = np.minimum(c, 1.0)
        away = (c - 1) / spread
        within = np.where(spread > 0, ndtr(away), c >= 1)
        density = np.exp(-np.minimum(away**2, 1e3) / 2) / np.sqrt(2 * np.pi)
        mean = within + c * ((1 - within) - spread * density)
    near = (np.asarray(spread) > 0) & (np.abs(c - 1) < 8 * np.asarray(spread))
    return np.asarray(within, dtype=float), np.asarray(np.where(near, mean, least))


@dataclass(frozen=True)
class ErrorEnergies:
    """The shared model's error by atom, (..., K): from displacements and start, and from noise."""

    bias: Array
    noise: Array

    @property
    def total(self) -> Array:
        """Both."""
        return self.bias + self.noise


@dataclass(frozen=True)
class MeanFilter:
    """The law of the eigenvalues of (1/m) sum_i P_i, the mean move of all m clients, by atom.

    The same clients come back, so that this matrix is the same in every round: directions along
    which it is weak stay behind, and the error decays as a mixture of powers, not as one. With
    endlessly many clients it is p itself. By the free central limit theorem it is nearly p_k plus a
    semicircle of variance T_kk/m. x: (..., K, J) nodes; weights: (J,), of sum one.
    """

    x: Array
    weights: Array
    clients: Array  # m, (...)

    def mean(self, values: Array) -> Array:
        """The mean over the nodes of (..., K, J)."""
        return np.asarray(values @ self.weights)

    def reach(self, left: Array) -> Array:
        """What share of the energy of the clients' common optimum is reached, by atom, where a part
        `left` of every direction is still to go; that optimum is the inverse of the mean filter
        times something without a direction.
        """
        far = np.where(self.x > 0, self.x, 1.0)
        return np.asarray(self.mean(((1 - left) / far) ** 2) / self.mean(far**-2.0))


def mean_filter(moments: Moments, clients: Array) -> MeanFilter:
    """The law of the clients' mean move: Gauss's nodes of a semicircle; one for endless clients."""
    m = np.asarray(clients, dtype=float)
    if not np.any(np.isfinite(m)):
        return MeanFilter(moments.p[..., None], np.ones(1), m)
    angle = np.arange(1, SEMICIRCLE_NODES + 1) * np.pi / (SEMICIRCLE_NODES + 1)
    own = np.maximum(np.diagonal(moments.T, axis1=-2, axis2=-1), 0)
    # beyond, some node would be below 0: so few clients have another law
    radius = np.minimum(2 * np.sqrt(own / m[..., None]), 0.9 * moments.p)
    x = moments.p[..., None] + radius[..., None] * np.cos(angle)
    return MeanFilter(x, 2 / (SEMICIRCLE_NODES + 1) * np.sin(angle) ** 2, m)


def scatter_matrix(moments: Moments, rule: Round, law: MeanFilter, step: Array) -> Array:
    """What a round scatters between atoms, (..., K, K): the cohort's part, that is new in every
    round, and between different atoms also the part that all clients have in common.
    """
    a2 = np.asarray(step)[..., None, None] ** 2
    fresh = a2 * np.asarray(rule.share / rule.cohort)[..., None, None]
    eye = np.eye(moments.p.shape[-1])
    mean = eye * moments.p[..., None] ** 2 if rule.poisson else 0.0
    common = a2 / law.clients[..., None, None] * (1 - eye) * moments.T
    return np.asarray(fresh * (moments.T + mean) + common)


class RoundMoves(NamedTuple):
    """Of a round: the length of a move, the part of them no longer than the clip, and the server's
    step after clipping.
    """

    length: Array
    short: Array
    step: Array


def advance_energies(
    M: ErrorEnergies,
    moments: Moments,
    own: ErrorEnergies,
    rule: Round,
    shares: Array,
    law: MeanFilter,
) -> tuple[ErrorEnergies, RoundMoves]:
    """One round of (R5) and (R6): the energies after it, and what its moves were.

    M: energies by atom and node of the law, (..., K, J). own: what clients' displacements,
    `moments.kept_energy(r^2 g)`, and label noise, `sigma^2 nu`, add to a move.
    """
    parts = [law.mean(part) for part in (M.bias, M.noise)]
    common = moments.kept_energy(parts[0] + parts[1]).sum(-1)
    square = common + own.total.sum(-1)
    length = np.sqrt(square)
    spread: Array | float = 0.0
    if rule.lengths is not None:
        spread = rule.lengths.spread(square, common, own.noise.sum(-1))
    short, factor = cut_lengths(rule.clip, length, spread)
    a = np.asarray(rule.step * factor)
    C = scatter_matrix(moments, rule, law, a)
    fresh = (a**2 * rule.share / rule.cohort)[..., None]
    kept = (1 - a[..., None, None] * law.x) ** 2
    bias, noise = (
        kept * old + (np.einsum("...kl,...l->...k", C, part) + fresh * added)[..., None]
        for old, part, added in zip((M.bias, M.noise), parts, (own.bias, own.noise), strict=True)
    )
    sent = rule.step * rule.noise * np.where(rule.noise > 0, rule.clip, 0.0) / rule.cohort
    added = shares * (rule.dimension * sent**2)[..., None]
    return ErrorEnergies(bias, noise + added[..., None]), RoundMoves(length, short, a)


def finite_optimum(moments: Moments, own: ErrorEnergies, clients: Array) -> ErrorEnergies:
    """Energies of what m clients' common optimum misses of theta_0, to leading order in 1/m."""
    scale = (
        np.asarray(clients, dtype=float)[..., None]
        * np.where(moments.p > 0, moments.p, np.inf) ** 2
    )
    return ErrorEnergies(own.bias / scale, own.noise / scale)


def check_shared(algorithm: Algorithm) -> None:
    """Refuse what has no rounds, and stages that leave a number of their step open."""
    if algorithm.shares_nothing:
        raise NoFormula(
            f"{algorithm.name} shares nothing, so it has no rounds: see predict, or name another"
        )
    if not algorithm.server.owns("step"):
        raise NoFormula(
            f"{algorithm.name}: its server stage has no step, which rounds follow from; add one"
        )
    if algorithm.server.has_memory():
        raise NoFormula(
            f"{algorithm.name}: clients or the server keep state from round to round, which no"
            " formula covers; measure it with fa.train"
        )
    stage = algorithm.personalise
    if algorithm.server.shrinks or stage.own_stage or stage.plain_stage:
        raise NoFormula(
            f"{algorithm.name}: rounds are predicted without a ridge on the shared model, and for"
            " client stages with a filter; take rtfa or pfedme, or measure it with fa.train"
        )
    if "local_steps" in algorithm.server.settings():
        raise NoFormula(
            f"{algorithm.name}: rounds take local_steps and server_step themselves; give them with"
            " fedavg, which it is then"
        )
    unset = [
        name for name in algorithm.server.settings() if getattr(algorithm.server, name) is None
    ]
    if unset:
        kind = type(algorithm.server).__name__
        raise NoFormula(
            f"{algorithm.name}: its server stage leaves {' and '.join(unset)} open; give an"
            " fa.Algorithm whose stage names them, such as"
            f" {kind}({', '.join(f'{name}=0.1' for name in unset)})"
        )


def server_factor(algorithm: Algorithm) -> float:
    """What the server multiplies the average move with, by the stage's own update of a scalar."""
    stage = algorithm.server
    factor, still = float(stage.update(0.0, 1.0)), float(stage.update(1.0, 0.0))
    if still != 1 or not np.isclose(float(stage.update(1.0, 2.0)), 1 + 2 * factor):
        raise NoFormula(
            f"{algorithm.name}: its update is not a multiple of the average move, and rounds are"
            " predicted for those alone; measure it with fa.train"
        )
    return factor
