"""How much clients differ, from their samples: noise and a variance per unknown, for few features and for many.

Few features: restricted likelihood with a variance for the intercept and one for the rest, or one per feature
(`fedasym.exact.reml`). Many: one for all features, from samples about their clients' own means, whose likelihood no intercept
enters; the intercept's from what the clients' mean residuals vary beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Average
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import Client, turn_out
from fedasym.exact.likelihood import estimated
from fedasym.exact.reml import Components, estimate_components
from fedasym.exact.server import pooled
from fedasym.exact.sums import Sums

MANY = 60  # unknowns from which on one variance serves all features


@dataclass(frozen=True, eq=False)
class Spread:
    """sigma^2, and tau_k^2 for each unknown: 0 where clients do not differ, or may not.

    components: where they come from the likelihood of few features; None otherwise.
    """

    noise2: float
    variances: Array
    components: Components | None = None

    def ridges(self, counts: Array) -> Array:
        """sigma^2/(n_j tau_k^2), (clients, unknowns); infinite where clients do not differ."""
        ratio = np.divide(self.noise2, self.variances, out=np.full(self.variances.shape, np.inf), where=self.variances > 0)
        return np.asarray(ratio / np.asarray(counts, float)[:, None])


def estimate_spread(
    clients: Sequence[Client], intercept: bool, personal: NDArray[np.bool_] | None, shared: bool = True
) -> Spread:
    """Noise and variances of these clients; not `shared`: of the coefficients themselves, about 0.

    intercept: whether the last unknown is one. personal: by unknown, whether it may differ between clients.
    """
    p, N = clients[0].X.shape[1], sum(client.n for client in clients)
    if p > MANY or not shared:
        return _many(clients, intercept, personal, shared)
    if len(clients) == 1:
        raise InvalidInput(
            f"ridge='optimal' needs two clients to see how they differ, and there is only {clients[0].name!r}: "
            "give ridge as a number, or ridge='cv'"
        )
    pool = pooled(Average(), clients, np.array([client.n / N for client in clients]))
    # About the pooled fit, to which the restricted likelihood is blind, no digits cancel.
    sums = gather_sums([replace(client, y=client.y - client.X @ pool.theta) for client in clients])
    rank = pool.rank
    if rank >= N:
        raise InvalidInput(
            f"ridge='optimal' needs more samples than unknowns, and all clients together have {N} for {p}: "
            "give ridge as a number, or ridge='cv'"
        )
    lengths = sum(float(client.y @ client.y) + client.rest for client in clients)
    if float(sums.square.sum()) <= (np.finfo(float).eps * N) ** 2 * lengths:
        return Spread(0.0, np.zeros(p))  # the shared model explains everything
    found = estimate_components(sums, intercept, personal)
    return Spread(found.noise2, found.variances, replace(found, beta=found.beta + pool.theta))


def gather_sums(clients: Sequence[Client]) -> Sums:
    """The sums of clients that are at hand one by one."""
    return Sums(
        np.array([client.n for client in clients], float),
        np.stack([client.X.T @ client.X for client in clients]),
        np.stack([client.X.T @ client.y for client in clients]),
        np.array([float(client.y @ client.y) + client.rest for client in clients]),
    )


def _many(
    clients: Sequence[Client], intercept: bool, personal: NDArray[np.bool_] | None, shared: bool
) -> Spread:  # fmt: skip
    p = clients[0].X.shape[1]
    may = np.ones(p, bool) if personal is None or not shared else np.asarray(personal, bool)
    if not intercept:
        found = estimated(clients, shared=shared)
        return Spread(found.noise**2, np.where(may, found.radius**2 / p, 0.0))
    within = [each for client in clients if (each := about_means(client)) is not None]
    found = estimated(within, shared=shared)
    variances = np.where(may, found.radius**2 / (p - 1), 0.0)
    variances[-1] = 0.0
    variances[-1] = intercept_variance(clients, found.noise**2, variances, shared) if may[-1] else 0.0
    return Spread(found.noise**2, variances)


def about_means(client: Client) -> Client | None:
    """The client's problem once its intercept, the last unknown, is minimised out: one sample less; None where none is left.

    The rows are turned so that one of them holds all of the intercept's column, and that row goes.
    """
    if client.n < 2:
        return None
    rows = np.column_stack([client.X[:, :-1], client.y])
    rest = turn_out(rows, client.X[:, -1])
    if not len(rest):  # all samples were cut to one row; what is left of them is noise alone
        rest = np.zeros((1, rows.shape[1]))
    return Client(client.name, rest[:, :-1], rest[:, -1], client.n - 1, client.rest)


def intercept_variance(clients: Sequence[Client], noise2: float, variances: Array, shared: bool) -> float:
    """tau_0^2 by moments: what mean residuals vary beyond the noise and the features' part in it."""
    means = np.array([mean_row(client) for client in clients])
    x, y = means[:, :-1], means[:, -1]
    if shared:
        weights = np.sqrt([float(client.n) for client in clients])
        slope = np.linalg.lstsq(weights[:, None] * x, weights * y, rcond=None)[0] if len(x) > x.shape[1] else None
        y = y - (x @ slope if slope is not None else y.mean())
    expected = np.array([noise2 / client.n for client in clients]) + x[:, :-1] ** 2 @ variances[:-1]
    return max(float(np.mean(y**2 - expected)), 0.0)


def mean_row(client: Client) -> Array:
    """The client's mean features and label, from sums: the intercept's column is among them."""
    ones = client.X[:, -1]
    return np.append(ones @ client.X, ones @ client.y) / client.n
