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

from dataclasses import dataclass

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.contours import MOST_NODES_SQUARED, settled
from fedasym.theory.paths import Filter, by_length, check_stable, horizon
from fedasym.theory.transforms import kappa, slope
from fedasym.worlds.spectra import Spectrum


@dataclass(frozen=True)
class Moments:
    """What one client's move does to energies by atom; leading axes are settings of the procedure.

    p: E P, atom by atom. T: E[P M P]_k = p_k^2 M_k + sum_l T_kl M_l. nu: energy of the noise that
    it fits, for labels' noise 1.
    """

    p: Array  # (..., K)
    T: Array  # (..., K, K)
    nu: Array  # (..., K)

    def through(self, energy: Array) -> Array:
        """E[P M P] by atom, for energies (..., K): equation (R3)."""
        return np.asarray(self.p**2 * energy + np.einsum("...kl,...l->...k", self.T, energy))


def moments_of_steps(filter_: Filter, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments after the filter's numbers of local steps (or times of gradient flow), one each.

    Equations (R2) to (R4) by quadrature along an arc in the kappa plane, where the resolvent is
    R_k(z) = 1/(c (s_k + kappa)) with c = 1 - gamma df1(kappa).
    """
    check_stable(filter_, gamma, spectrum)
    count, atoms = filter_.times.size, spectrum.values.size
    out = Moments(np.zeros((count, atoms)), np.zeros((count, atoms, atoms)), np.zeros((count, atoms)))
    finished = filter_.times >= horizon(gamma, spectrum, filter_.step)
    parts = [(some, integrate_moments(part, gamma, spectrum)) for some, part in by_length(filter_, ~finished)]
    if np.any(finished):
        parts.append((np.flatnonzero(finished), moments_of_ridge(0.0, gamma, spectrum)))
    for some, part in parts:
        out.p[some], out.T[some], out.nu[some] = part.p, part.T, part.nu
    return out


def integrate_moments(filter_: Filter, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments of times that differ by a factor of ten at the most, for which one contour serves."""
    contour = filter_.contour(gamma, spectrum)
    s, h = spectrum.positive
    atoms, times = s.size, filter_.times.size
    row, column = np.triu_indices(atoms)  # T/(h_k s_k s_l) is symmetric

    def rule(count: int) -> tuple[Array, Array]:
        k, z, _, arc = contour.nodes(count)
        near = 1 / (s[:, None] + k)  # 1/(s_k + kappa), (K, n)
        f = filter_.fitted(z)  # (times, n)
        once, noise = f * arc, f**2 / z * arc
        pairs = (once[:, None] * (near[row] * near[column])).reshape(-1, k.size)
        weighted = near.T * (gamma * h * s**2)
        # The second variable runs over both halves of the contour; the lower one is conjugate.
        other = pairs @ (1 / (1 - weighted @ near)) + (pairs @ (1 / (1 - weighted @ near.conj()))).conj()
        found = [once @ near.T, noise @ near.T, (pairs * other).sum(-1).reshape(times, -1)]
        sizes = [
            np.abs(once) @ np.abs(near).T,
            np.abs(noise) @ np.abs(near).T,
            np.abs(pairs * other).sum(-1).reshape(times, -1),
        ]
        return 2 * np.concatenate(found, axis=1).real, np.concatenate(sizes, axis=1)

    found = settled(rule, MOST_NODES_SQUARED // contour.size)
    p, nu, half = np.split(found, [atoms, 2 * atoms], axis=1)
    T = np.empty((times, atoms, atoms))
    T[:, row, column] = T[:, column, row] = half
    return over_seen(p, gamma * np.outer(h * s, s) * T, gamma * h * nu, spectrum)


def moments_of_ridge(ridge: float, gamma: float, spectrum: Spectrum) -> Moments:
    """Moments of an exact proximal step, f(x) = x/(x + ridge): the residues of (R2) to (R4).

    Without a ridge they are those of local steps to convergence.
    """
    s, h = spectrum.positive
    aspect, lam = np.array([gamma]), np.array([float(ridge)])
    k = kappa(lam, aspect, spectrum)
    growth = slope(k, lam, aspect, spectrum)  # 1/(1 - gamma df2), endless at the interpolation threshold
    near = 1 / (s + k)
    spread = np.where(k > 0, k**2 * np.where(np.isfinite(growth), growth, 0), 0.0)
    T = gamma * spread * np.outer(h * s * near**2, s * near**2)
    return over_seen(s * near, T, gamma * growth * h * s * near**2, spectrum)


def over_seen(p: Array, T: Array, nu: Array, spectrum: Spectrum) -> Moments:
    """The moments over all atoms: nothing moves along those that samples cannot see."""
    seen, count = np.flatnonzero(spectrum.seen), spectrum.values.size
    if seen.size == count:
        return Moments(p, T, nu)
    wide = np.zeros((*p.shape[:-1], count)), np.zeros((*T.shape[:-2], count, count)), np.zeros((*p.shape[:-1], count))
    wide[0][..., seen], wide[2][..., seen] = p, nu
    wide[1][..., seen[:, None], seen] = T
    return Moments(*wide)


@dataclass(frozen=True)
class Round:
    """What a server does with the moves of a cohort; arrays broadcast over settings, (...,).

    cohort: D, of infinitely many clients. server_step: times the average. clip: bound on a move's
    length, infinite for none. noise: the multiplier z; the average gets Gaussian noise of deviation
    z clip/D per coordinate, of which there are `dimension`.
    """

    cohort: Array
    server_step: Array
    clip: Array
    noise: Array
    dimension: Array


def advance(M: Array, moments: Moments, own: Array, rule: Round, shares: Array) -> tuple[Array, Array]:
    """One round of (R5) and (R6): energies by atom (..., K) of the shared model's error, and the length of a move.

    own: what clients' displacements and label noise add to a move, `moments.through(r^2 g) + sigma^2 nu`.
    """
    spread = np.einsum("...kl,...l->...k", moments.T, M)
    length = np.sqrt(np.sum(moments.p**2 * M + spread + own, axis=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        short = np.where(length > rule.clip, rule.clip / length, 1.0)
    a = (rule.server_step * short)[..., None]
    after = (1 - a * moments.p) ** 2 * M + a**2 / rule.cohort[..., None] * (spread + own)
    sent = np.where(rule.noise > 0, rule.server_step * rule.noise * np.where(rule.noise > 0, rule.clip, 0), 0)
    blur = rule.dimension * (sent / rule.cohort) ** 2
    return after + shares * np.asarray(blur)[..., None], length
