"""Restricted maximum likelihood (REML): how much clients differ, in each direction or all together.

y_j = X_j (beta + u_j) + noise, u_j ~ N(0, sigma^2 diag(v)): V_j = I + X_j diag(v) X_j' in units of
the noise. The restricted likelihood is blind to beta, and sigma^2 is profiled out of it; what is
searched over are the ratios v, one per component: one for the intercept and one for all features,
or one for each feature where the data support it.

For many features there is one ratio: theta_j is spread by (r^2/d) I around theta_0, so that y_j has
the mean X_j theta_0 and the covariance sigma^2 (I + X_j X_j'/c), c = sigma^2 d/r^2, and the best
ridge of a client is lambda_j = c/n_j = sigma^2 gamma_j/r^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from fedasym.algorithms.paper import AVERAGE
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, covariance_of
from fedasym.exact.clients import Client, ClientSums
from fedasym.exact.least_squares import SharedSolution, fit_shared
from fedasym.exact.storage import SpilledRows, count_samples, keep_rows, row_blocks

WARM = 12  # steps of the monotone iteration before the search proper
# of a component's own scale: beyond, clients do not differ, or have no noise
SMALL, LARGE = (1e-9, 1e8)
POLISH = 4
FLAT = 1e-7  # of twice the log-likelihood: no data tell this from none
FEW = 24  # features up to which each may have a variance of its own
SHARE = 2**24  # numbers in one batch of clients' matrices


@dataclass(frozen=True, eq=False)
class Point:
    """The restricted likelihood at some ratios: deviance, noise^2, beta, information, gradient."""

    deviance: float
    noise2: float
    beta: Array
    information: Array
    pull: Array  # sum_j (g_j^2)/sigma^2, by unknown: what the data say
    trace: Array  # sum_j (G_j - G_j A^{-1} G_j), by unknown: what is expected of it

    @property
    def slope(self) -> Array:
        """Of the deviance in each unknown's own ratio v_k."""
        return self.trace - self.pull


@dataclass(frozen=True, eq=False)
class Components:
    """Variances of clients' coefficients around the shared ones, and what was estimated with them.

    ratios: v_k = tau_k^2/sigma^2 by unknown, 0 where clients do not differ.
    noise2: sigma^2. beta: the shared model. parameters: how many ratios were free.
    deviance: -2 log restricted likelihood, up to a constant of the data.
    information: of beta, in units of the noise: its covariance is noise2 times the inverse.
    groups: which component each unknown belongs to; -1 for those that serve the shared model only.
    """

    ratios: Array
    noise2: float
    beta: Array
    deviance: float
    parameters: int
    information: Array
    groups: NDArray[np.intp]
    covariance: Array  # of log v by component, and of log sigma^2 last; infinite where a ratio is 0

    @property
    def variances(self) -> Array:
        """tau_k^2 by unknown."""
        return self.ratios * self.noise2


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The restricted likelihood of clients' sums, as a function of the ratios of all unknowns."""

    sums: ClientSums

    @cached_property
    def freedom(self) -> float:
        """N - rank: samples that are left once the shared model is estimated."""
        return self.sums.samples - self.rank

    @cached_property
    def rank(self) -> int:
        """How many directions of the shared model the samples determine."""
        return int(np.linalg.matrix_rank(self.sums.total, hermitian=True))

    def at(self, ratios: Array) -> Point:
        """Deviance and slopes at v.

        L = diag(sqrt v), M_j = I + L S_j L, G_j = S_j - S_j L M_j^{-1} L S_j = X_j'V_j^{-1}X_j, A =
        sum G_j; deviance = (N - rank) log rss + sum log det M_j + log det A.
        """
        sums, p = self.sums, self.sums.unknowns
        root = np.sqrt(ratios)
        A = np.zeros((p, p))
        rhs = np.zeros(p)
        rss = float(sums.square.sum())
        log_det = 0.0
        held: list[tuple[Array, Array]] = []
        in_memory = isinstance(sums.gram, np.ndarray)  # sums in a file are condensed twice
        for part in self.batches():
            G, h, explained, logs = self.condense(part, root)
            rss, log_det = rss - explained, log_det + logs
            A, rhs = A + G.sum(0), rhs + h.sum(0)
            held += [(G, h)] if in_memory else []
        x, axes = np.linalg.eigh(A)
        x = x[p - self.rank :]
        axes = axes[:, p - self.rank :]
        inverse = (axes / x) @ axes.T
        beta = inverse @ rhs
        rss = max(rss - float(rhs @ beta), np.finfo(float).tiny)
        noise2 = rss / self.freedom
        pull, trace = np.zeros(p), np.zeros(p)
        for G, h in held or (self.condense(part, root)[:2] for part in self.batches()):
            pull += ((h - G @ beta) ** 2).sum(0) / noise2
            expected = np.einsum("jkl,jlk->k", G @ inverse, G)
            trace += np.einsum("jkk->k", G) - expected
        deviance = self.freedom * np.log(rss) + log_det + float(np.log(x).sum())
        return Point(float(deviance), noise2, beta, A, pull, trace)

    def condense(self, part: slice, root: Array) -> tuple[Array, Array, float, float]:
        """Of some clients G_j and h_j = X_j'V_j^{-1}y_j, what of q_j is explained, log det M_j."""
        S, b = self.sums.gram[part], self.sums.cross[part]
        live, p = root > 0, root.size
        LS, Lb = root[live, None] * S[:, live, :], root[live] * b[:, live]
        M = LS[:, :, live] * root[live] + np.eye(int(live.sum()))
        factor = np.linalg.cholesky(M)
        half = np.linalg.solve(factor, np.concatenate([LS, Lb[:, :, None]], axis=2))
        G = S - np.swapaxes(half[:, :, :p], 1, 2) @ half[:, :, :p]
        h = b - np.einsum("jik,ji->jk", half[:, :, :p], half[:, :, p])
        logs = 2 * float(np.log(np.diagonal(factor, axis1=1, axis2=2)).sum())
        return G, h, float((half[:, :, p] ** 2).sum()), logs

    def batches(self) -> list[slice]:
        """Clients in parts that fit in memory beside their products."""
        each = max(SHARE // self.sums.unknowns**2, 1)
        return [slice(first, first + each) for first in range(0, len(self.sums.counts), each)]


def maximise(
    sums: ClientSums, groups: Sequence[int] | NDArray[np.integer[Any]], shape: Array | None = None
) -> Components:
    """The likeliest ratios with v_k = w[groups[k]] shape_k; unknowns of group -1 have none.

    A monotone iteration (each ratio times the root of what the data say over what is expected)
    comes near from anywhere; a bounded quasi-Newton search in units of where it came to ends it,
    zeros included.
    """
    group = np.asarray(groups, np.intp)
    p = sums.unknowns
    shape = np.ones(p) if shape is None else np.asarray(shape, float)
    likelihood = Likelihood(sums)
    many = int(group.max(initial=-1)) + 1
    member = (group == np.arange(many)[:, None]) * shape  # (components, unknowns)
    scale = np.array([natural_scale(sums, row) for row in member])
    w = scale.copy()
    for _ in range(WARM if many else 0):
        point = likelihood.at(w @ member)
        said = member @ point.pull
        expected = np.maximum(member @ point.trace, 1e-300)
        w = np.clip(w * np.sqrt(np.maximum(said, 0) / expected), SMALL * scale, None)
    if not many:
        return make_components(likelihood, np.zeros(0), member, group)

    def score(z: Array) -> tuple[float, Array]:
        w = np.exp(z)
        point = likelihood.at(w @ member)
        return point.deviance, w * (member @ point.slope)

    bounds = np.log(scale)[:, None] + np.log([SMALL, LARGE])
    told = {"jac": True, "method": "L-BFGS-B", "options": {"ftol": 1e-15, "gtol": 1e-6}}
    found = scipy.optimize.minimize(score, np.log(w), bounds=bounds, **told)
    best = drop_components(likelihood, np.exp(found.x), member)
    return make_components(likelihood, polish_ratios(likelihood, best, member), member, group)


def drop_components(likelihood: Likelihood, w: Array, member: Array) -> Array:
    """The ratios with those set to 0 that the data do not tell from 0, the smallest first."""
    lowest = likelihood.at(w @ member).deviance
    for place in np.argsort(w / np.maximum(w.max(), 1e-300)):
        without = w.copy()
        without[place] = 0.0
        if (deviance := likelihood.at(without @ member).deviance) <= lowest + FLAT:
            w = without
            lowest = min(deviance, lowest)
    return w


def polish_ratios(likelihood: Likelihood, w: Array, member: Array) -> Array:
    """A few steps of Fisher scoring in log w: a search by values ends at half the digits."""
    active = np.flatnonzero(w)
    for _ in range(POLISH if active.size else 0):
        point = likelihood.at(w @ member)
        J = information(likelihood, w, member, point)
        J = J[:-1, :-1] - np.outer(J[:-1, -1], J[-1, :-1]) / J[-1, -1]  # noise^2 profiled out
        slope = 0.5 * w * (member @ point.slope)
        move = np.linalg.lstsq(J[np.ix_(active, active)], slope[active], rcond=None)[0]
        fresh = w.copy()
        fresh[active] *= np.exp(-np.clip(move, -1, 1))
        after = likelihood.at(fresh @ member)
        if np.abs(fresh * (member @ after.slope)).max() >= 2 * np.abs(slope).max():
            break
        w = fresh
    return w


def natural_scale(sums: ClientSums, row: Array) -> float:
    """A component's scale: one over a sample's mean square along the component's unknowns."""
    power = float(np.diagonal(sums.total) @ row) / max(sums.samples, 1.0)
    return 1 / power if power > 0 else 1.0


def make_components(
    likelihood: Likelihood, w: Array, member: Array, group: NDArray[np.intp]
) -> Components:
    """What was estimated at the components' ratios w, with the covariance of the estimates."""
    point = likelihood.at(v := np.asarray(w @ member))
    covariance = covariance_of(information(likelihood, w, member, point))
    found = (point.noise2, point.beta, point.deviance, int(w.size), point.information)
    return Components(v, *found, group, covariance)


def information(likelihood: Likelihood, w: Array, member: Array, point: Point) -> Array:
    """Expected, of log w by component and log sigma^2 last, with clients apart from the shared.

    1/2 sum_j (G_j[k, l])^2 between ratios, 1/2 sum_j G_j[k, k] between a ratio and log sigma^2, (N
    - rank)/2 for that alone.
    """
    size = int(w.size)
    root = np.sqrt(w @ member)
    J = np.zeros((size + 1, size + 1))
    J[size, size] = likelihood.freedom / 2
    scaled = member * w[:, None]
    for part in likelihood.batches():
        S = likelihood.sums.gram[part]
        M = np.eye(root.size) + root[:, None] * S * root
        G = S - (S * root) @ np.linalg.solve(M, root[:, None] * S)
        J[:size, :size] += 0.5 * np.einsum("ak,jkl,bl->ab", scaled, G**2, scaled, optimize=True)
    J[:size, size] = J[size, :size] = 0.5 * scaled @ point.trace
    return J


# ratios this far beyond the samples' own scale mean no noise, or no radius
RATIO_SPAN = np.log(1e8)
FLAT_RATIO = 1e-8  # a difference in likelihood that no data tell from none


Weighed = tuple[Array, float]


@dataclass(frozen=True)
class Variances:
    """sigma, r, and their ratio c = sigma^2 d/r^2."""

    noise: float
    radius: float
    ratio: float


@dataclass(frozen=True, eq=False)
class RatioLikelihood:
    """Clients along their axes, in rows: the shared unknowns G, residuals u and squared singular
    values x.
    """

    rows: Array | SpilledRows
    scale: float  # the mean of x
    unexplained: float  # by the pooled fit, of the squares of all labels, which are the next
    lengths: float
    rest: float
    freedom: int

    @classmethod
    def of(cls, clients: Sequence[Client], pool: SharedSolution | None) -> RatioLikelihood:
        """Residuals are about the pooled fit, which the likelihood ignores: no digits cancel."""
        start = np.zeros(clients[0].X.shape[1]) if pool is None else pool.theta
        totals = np.zeros(5)  # rows, and sums of x, of squares of residuals and labels, of the rest

        def turn(client: Client) -> Array:
            U, s, Vt = client.axes
            u = U.T @ (client.y - client.X @ start)
            # In the pool's coordinates the columns of G are orthogonal, without unseen directions.
            G = np.zeros((s.size, 0)) if pool is None else pool.root(s[:, None] * Vt)
            lengths = client.y @ client.y + client.rest
            totals[:] += np.array([s.size, s @ s, u @ u, lengths, client.rest])
            return np.column_stack([G, u, s**2])

        rows = keep_rows(map(turn, clients), clients)
        count, x, left, lengths, rest = totals.tolist()
        freedom = int(count_samples(clients).sum()) - (0 if pool is None else pool.rank)
        return cls(rows, x / count, left + rest, lengths, rest, freedom)

    def at(self, ratio: float) -> tuple[float, float]:
        """-2 log restricted likelihood at its best noise, up to a constant, and noise^2.

        k = c/(c + x), P = G'kG, t = P^{-1} G'ku, rss = sum k (u - Gt)^2 + rest, noise^2 =
        rss/freedom: freedom log noise^2 - sum log k + log det P.
        """
        return self.at_each(np.array([ratio]))[0]

    def at_each(self, ratios: Array) -> list[tuple[float, float]]:
        """`at` for several ratios, in one pass."""
        found = []
        for (moment, logs), _ in self._weigh(ratios):
            P, q = moment[:-1, :-1], moment[:-1, -1]
            rss = float(moment[-1, -1] - q @ np.linalg.solve(P, q)) + self.rest
            noise2 = max(rss, np.finfo(float).tiny) / self.freedom
            deviance = self.freedom * np.log(noise2) - logs + np.linalg.slogdet(P)[1]
            found.append((float(deviance), noise2))
        return found

    def slopes(self, ratios: Array) -> list[float]:
        """Derivatives in log c, with dk/dlog c = k (1 - k); t, at its best, does not move."""
        found = []
        for (moment, _), (moved, lost) in self._weigh(ratios, moving=True):
            P, q = moment[:-1, :-1], moment[:-1, -1]
            t = np.linalg.solve(P, np.column_stack([q, moved[:-1, :-1]]))
            rss = float(moment[-1, -1] - q @ t[:, 0]) + self.rest
            left = np.append(-t[:, 0], 1.0)
            speed = self.freedom * float(left @ moved @ left) / rss
            found.append(speed - lost + float(np.trace(t[:, 1:])))
        return found

    def _weigh(self, ratios: Array, moving: bool = False) -> list[tuple[Weighed, Weighed]]:
        """By ratio: [G u]'k[G u] and sum log k; moving: the same with k (1 - k), and sum 1 - k."""
        width = self.rows.shape[1] - 1
        moments, moved = np.zeros((2, len(ratios), width, width))
        logs, lost = np.zeros((2, len(ratios)))
        for rows in row_blocks(self.rows):
            Gu, x = rows[:, :-1], rows[:, -1]
            for place, ratio in enumerate(ratios):
                k = 1 / (1 + x / ratio)
                moments[place] += Gu.T @ (k[:, None] * Gu)
                logs[place] += np.log(k).sum()
                if moving:
                    moved[place] += Gu.T @ ((k * (1 - k))[:, None] * Gu)
                    lost[place] += (1 - k).sum()
        each = zip(moments, logs.tolist(), moved, lost.tolist(), strict=True)
        return [((a, b), (c, d)) for a, b, c, d in each]


def estimate_variances(clients: Sequence[Client], shared: bool) -> Variances:
    """Noise and radius of these clients; not `shared`: about the origin, with no common model."""
    counts = count_samples(clients)
    N = int(counts.sum())
    d = clients[0].X.shape[1]
    pool = fit_shared(AVERAGE, clients, counts / N) if shared else None
    if pool is not None and pool.rank >= N:
        raise InvalidInput(
            f"ridge='optimal' needs more samples than unknowns, and all clients together have {N}"
            f" for {d}: give ridge as a number, or ridge='cv'"
        )
    if shared and len(clients) == 1:
        raise InvalidInput(
            "ridge='optimal' needs two clients to see how they differ, and there is only"
            f" {clients[0].name!r}: give ridge as a number, or ridge='cv'"
        )
    likelihood = RatioLikelihood.of(clients, pool)
    if likelihood.unexplained <= (np.finfo(float).eps * N) ** 2 * likelihood.lengths:
        return Variances(0.0, 0.0, np.inf)  # the shared model explains everything
    ratio = best_ratio(likelihood)
    noise2 = likelihood.at(ratio)[1]
    return Variances(float(np.sqrt(noise2)), float(np.sqrt(noise2 * d / ratio)), ratio)


def best_ratio(likelihood: RatioLikelihood) -> float:
    """The likeliest c: a grid, a search, a Newton step on the slope; infinite if r = 0 fits."""
    scale = np.log(likelihood.scale or 1.0)

    def deviance(log_ratio: float) -> float:
        return likelihood.at(np.exp(log_ratio))[0]

    grid = np.linspace(scale - RATIO_SPAN, scale + RATIO_SPAN, 33)
    place = int(np.argmin([each for each, _ in likelihood.at_each(np.exp(grid))]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, grid.size - 1)]
    best = float(scipy.optimize.minimize_scalar(deviance, bounds=(low, high), method="bounded").x)
    if deviance(best) > likelihood.at(np.inf)[0] - FLAT_RATIO:
        return np.inf
    step = 1e-3
    before, here, after = likelihood.slopes(np.exp(best + step * np.array([-1.0, 0.0, 1.0])))
    newton = best - here * 2 * step / (after - before) if after > before else best
    # An end of the range stays an end: there the slope has no root to find.
    return float(np.exp(newton if abs(newton - best) < step else best))
