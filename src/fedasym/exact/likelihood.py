"""Noise and radius from the data themselves: restricted maximum likelihood (REML) of y_j = X_j theta_j + noise.

With theta_j spread by (r^2/d) I around theta_0, y_j has the mean X_j theta_0 and the covariance sigma^2 (I + X_j X_j'/c),
c = sigma^2 d/r^2: one ratio to search over, and the best ridge of a client is lambda_j = c/n_j = sigma^2 gamma_j/r^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from fedasym.algorithms import Average
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import Client
from fedasym.exact.server import Pool, pooled

SPAN = np.log(1e8)  # ratios this far beyond the samples' own scale mean no noise, or no radius
FLAT = 1e-8  # a difference in likelihood that no data tell from none


@dataclass(frozen=True)
class Variances:
    """sigma, r, and their ratio c = sigma^2 d/r^2."""

    noise: float
    radius: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Likelihood:
    """All clients along their own axes: squared singular values x, residuals u, and the shared unknowns as seen there, G."""

    x: Array
    u: Array
    G: Array
    rest: float
    freedom: int

    @classmethod
    def of(cls, clients: Sequence[Client], pool: Pool | None) -> Likelihood:
        """Residuals are about the pooled fit: the likelihood is blind to it, and so no digits cancel."""
        x = np.concatenate([client.axes[1] ** 2 for client in clients])
        start = np.zeros(clients[0].X.shape[1]) if pool is None else pool.theta
        u = np.concatenate([client.axes[0].T @ (client.y - client.X @ start) for client in clients])
        # In the pool's coordinates the columns of G are orthogonal: well scaled, without directions that nobody saw.
        G = np.zeros((x.size, 0)) if pool is None else np.vstack([pool.root(c.axes[1][:, None] * c.axes[2]) for c in clients])
        return cls(x, u, G, sum(c.rest for c in clients), sum(c.n for c in clients) - G.shape[1])

    def at(self, ratio: float) -> tuple[float, float]:
        """-2 log restricted likelihood at its best noise, up to a constant, and that noise variance.

        k = c/(c + x), P = G'kG, t = P^{-1} G'ku, rss = sum k (u - Gt)^2 + rest, noise^2 = rss/freedom:
        freedom log noise^2 - sum log k + log det P.
        """
        k, P, rss, _ = self._fitted(ratio)
        noise2 = rss / self.freedom
        return float(self.freedom * np.log(noise2) - np.log(k).sum() + np.linalg.slogdet(P)[1]), noise2

    def slope(self, ratio: float) -> float:
        """Its derivative in log c, with dk/dlog c = k (1 - k); t is at its best, so that it does not move."""
        k, P, rss, left = self._fitted(ratio)
        speed = k * (1 - k)
        turned = np.linalg.solve(P, self.G.T @ (speed[:, None] * self.G))
        return float(self.freedom * (speed @ left**2) / rss - (1 - k).sum() + np.trace(turned))

    def _fitted(self, ratio: float) -> tuple[Array, Array, float, Array]:
        k = 1 / (1 + self.x / ratio)
        kG = k[:, None] * self.G
        P = kG.T @ self.G
        left = self.u - self.G @ np.linalg.solve(P, kG.T @ self.u)
        return k, P, float(k @ left**2) + self.rest, left


def estimated(clients: Sequence[Client], shared: bool) -> Variances:
    """Noise and radius of these clients; not `shared`: around the origin, with no common model to estimate."""
    N, d = sum(client.n for client in clients), clients[0].X.shape[1]
    pool = pooled(Average(), clients, np.array([client.n / N for client in clients])) if shared else None
    rank = 0 if pool is None else pool.rank
    if rank >= N:
        raise InvalidInput(
            f"ridge='optimal' needs more samples than unknowns, and all clients together have {N} for {d}: "
            "give ridge as a number, or ridge='cv'"
        )
    if shared and len(clients) == 1:
        raise InvalidInput(
            f"ridge='optimal' needs two clients to see how they differ, and there is only {clients[0].name!r}: "
            "give ridge as a number, or ridge='cv'"
        )
    likelihood = Likelihood.of(clients, pool)
    unexplained = float(likelihood.u @ likelihood.u) + likelihood.rest
    lengths = sum(float(client.y @ client.y) + client.rest for client in clients)
    if unexplained <= (np.finfo(float).eps * N) ** 2 * lengths:
        return Variances(0.0, 0.0, np.inf)  # the shared model explains everything
    ratio = best_ratio(likelihood)
    noise2 = likelihood.at(ratio)[1]
    return Variances(float(np.sqrt(noise2)), float(np.sqrt(noise2 * d / ratio)), ratio)


def best_ratio(likelihood: Likelihood) -> float:
    """The likeliest c: a grid, a search around its best, and a Newton step on the slope; infinite when r = 0 does as well."""
    scale = np.log(np.mean(likelihood.x) or 1.0)

    def deviance(log_ratio: float) -> float:
        return likelihood.at(np.exp(log_ratio))[0]

    grid = np.linspace(scale - SPAN, scale + SPAN, 33)
    place = int(np.argmin([deviance(at) for at in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, grid.size - 1)]
    best = float(scipy.optimize.minimize_scalar(deviance, bounds=(low, high), method="bounded").x)
    if deviance(best) > likelihood.at(np.inf)[0] - FLAT:
        return np.inf
    step = 1e-3
    before, here, after = (likelihood.slope(np.exp(best + move)) for move in (-step, 0.0, step))
    newton = best - here * 2 * step / (after - before) if after > before else best
    # An end of the range stays an end: there the slope has no root to find.
    return float(np.exp(newton if abs(newton - best) < step else best))
