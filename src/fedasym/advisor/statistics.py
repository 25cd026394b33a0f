"""What a client's samples come to: numbers per axis; clients by size, pooled fit, spectrum.

A client's features are X = U diag(s) V'. Along its axes the residuals about the shared model have
the variances sigma^2 + (r^2/d) s_k^2, whatever the covariance of the features: with theta_0 known,
the squares along the axes and the eigenvalues s_k^2 are all that noise and radius need. theta_0 is
not known; `federated` says what takes its place.

The spectrum (section 8.4, turned round): with v(lambda) = (1/n) sum 1/(e_k + lambda) over a
client's n Gram eigenvalues, kappa = 1/v estimates kappa(lambda), and (1 - lambda/kappa)/gamma =
sum_s h_s s/(s + kappa) is linear in the shares h_s of eigenvalues s: non-negative least squares on
a grid of s finds a spectrum with the clients' own kappa, for clients of any size. Eigenvalues that
the clients cannot tell apart stay smeared; predictions see the covariance only through kappa.

Given the clients' own features: a ridge fit of one client, X'X = V diag(x) V', keeps the part f =
x/(x + c) of a displacement along each axis. With q_k = v_k'Sigma v_k its loss is, on average over
displacements and noise, (r^2/d) (tr Sigma - sum q_k (2 f_k - f_k^2)) + sigma^2 sum q_k x_k/(x_k +
c)^2: exact for any size and covariance. The other clients' samples estimate Sigma independently of
v_k, so that q_k comes without bias (`Summary.strength`). Formulas for finitely many clients are
multiplied by these over their limits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from fedasym.advisor.data import ClientData, spread_places
from fedasym.core.numbers import Array
from fedasym.exact.clients import Client
from fedasym.exact.least_squares import SharedSolution, stack_triangle
from fedasym.exact.profile_likelihood import SEGMENTS, TurnedClients, in_threads
from fedasym.worlds.spectra import Spectrum

# what clients' covariances may differ by, over what draws from one covariance do
ALIKE_FEATURES = (0.5, 2.0)
MOST_SIZES = 8
SIMILAR_SIZES = 1.1  # sizes within this factor are one
RIDGES = 40
ATOMS = 60
FIRMLY = 100.0  # weight of the two facts that must hold: shares sum to one, and the mean eigenvalue
EVEN_SHARES = 0.02  # weight of shares that are even where the samples do not tell
BLIND = 0.02  # eigenvalues below this share of kappa are all the same to a client
TOGETHER = 5  # clients whose products are one: threads then rarely wait for one another
ENOUGH_CLIENTS = 400  # clients whose Gram matrices are looked at
MANY_ENTRIES = 1 << 23  # of clients' rows along axes: more are kept in single precision
# smallest over largest eigenvalue of XX' from which rows in single precision keep four digits
FIRM_AXES = 1e-6
FIRM_SUMS = 1e-6  # the condition of sums of products above which ten digits are left


def empty_vector() -> Array:
    """An empty vector: what is not sent."""
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Summary:
    """One client in numbers per axis of its samples (at most min(n, d)), and a few more.

    name, samples, dimension: who, n and d.
    power: s_k^2, the eigenvalues of XX'.
    residual: squares (or products of two independent ones) of the residuals about the others'
        shared model, per axis.
    raw: squares of the labels per axis.
    rest: the part of |y|^2 that no linear model explains, where samples outnumber the features.
    tails: fourth moment over squared second moment of the residuals about the pooled model; 3 for
        Gaussian ones.
    pooled: mean square of the residuals about the pooled model.
    pull: X'W y, a vector of d numbers, and probes: X'W X times shared random vectors; only where
        samples are scarce.
    strength: v'Sigma v along each axis v, Sigma from the other clients' samples; only where samples
        are at one place.

    >>> import numpy as np
    >>> from fedasym.advisor.statistics import Summary
    >>> Summary("ann", 2, 500, power=np.ones(2), residual=np.ones(2), raw=np.ones(2)).bytes
    88
    """

    name: Hashable
    samples: int
    dimension: int
    power: Array
    residual: Array
    raw: Array
    rest: float = 0.0
    tails: float = 3.0
    pooled: float = float("nan")
    pull: Array = field(default_factory=empty_vector)
    probes: Array = field(default_factory=empty_vector)
    strength: Array = field(default_factory=empty_vector)

    @property
    def bytes(self) -> int:
        """What is sent: 8 bytes per number, the name apart."""
        values = [getattr(self, each.name) for each in fields(self) if each.name != "name"]
        return 8 * sum(np.size(value) for value in values)

    @property
    def aspect(self) -> float:
        """Features per sample, d/n."""
        return self.dimension / self.samples


@dataclass(frozen=True, eq=False)
class Axes:
    """A client's samples along their own axes: the rows U'X and U'y, and s_k^2.

    rows: in double or in single precision. labels: of one output or of several.
    """

    power: Array
    rows: NDArray[Any]
    labels: Array
    rest: float
    samples: int


def axes_of(X: Array, y: Array) -> Axes:
    """Samples turned to orthogonal rows, by eigenvectors of XX'; more than d are cut to d first."""
    return axes_of_each([(X, y)])[0]


def axes_of_each(samples: Sequence[tuple[Array, Array]], single: bool = False) -> list[Axes]:
    """`axes_of` for several clients, at once where they have equally many rows.

    single: rows in single precision, which takes half the time, unless a client has axes so weak
        that a rounded row would no longer point along them.
    """
    clients = [Client.of(None, X, y) for X, y in samples]
    if len({len(client.y) for client in clients}) > 1:
        return [axes_of_each([each], single)[0] for each in samples]
    power, U = np.linalg.eigh(np.stack([client.X @ client.X.T for client in clients]))
    n = np.array([[client.n] for client in clients])
    power = np.where(power > n * np.finfo(float).eps * np.maximum(power[:, -1:], 0), power, 0.0)
    kind = np.float32 if single and (power[:, 0] > FIRM_AXES * power[:, -1]).all() else np.float64
    rows = np.empty((*power.shape, clients[0].X.shape[1]), dtype=kind)
    turns = U.astype(kind, copy=False)
    for turn, client, out in zip(turns, clients, rows, strict=True):
        np.matmul(turn.T, client.X.astype(kind, copy=False), out=out)
    return [
        Axes(power[k], rows[k], U[k].T @ one.y, float(np.ravel(one.rest)[0]), one.n)
        for k, one in enumerate(clients)
    ]


def tails_of(residuals: Array) -> float:
    """Fourth moment over the squared second, scaled so that Gaussian residuals average 3."""
    n = residuals.size
    squares = residuals**2
    second = float(squares.sum()) / n if n else 0.0
    return 3.0 if second == 0 or n < 2 else float(squares @ squares) / second**2 * (n + 2) / n**2


def stack_field(summaries: Sequence[Summary], name: str) -> Array:
    """One field of all clients, end to end."""
    return np.concatenate([getattr(each, name) for each in summaries])


def field_owners(summaries: Sequence[Summary]) -> NDArray[np.intp]:
    """Whose each entry of `stack_field` is."""
    return np.repeat(np.arange(len(summaries)), [each.power.size for each in summaries])


@dataclass(frozen=True, eq=False)
class SizeGroups:
    """Clients by size: how many of each kind and their samples."""

    count: Array
    samples: Array
    place: NDArray[np.intp]  # which kind each client is
    sizes: Array  # the samples of each client

    @classmethod
    def of(cls, sizes: Array) -> SizeGroups:
        """One kind where sizes are alike, otherwise parts of about equally many clients."""
        if sizes.max() <= SIMILAR_SIZES * sizes.min():
            return cls(
                np.array([sizes.size], dtype=float),
                np.array([sizes.mean()]),
                np.zeros(sizes.size, dtype=int),
                sizes,
            )
        edges = np.unique(np.quantile(sizes, np.linspace(0, 1, MOST_SIZES + 1)[1:-1]))
        _, place = np.unique(np.searchsorted(edges, sizes, side="left"), return_inverse=True)
        count = np.bincount(place)
        return cls(count.astype(float), np.bincount(place, sizes) / count, place, sizes)

    @property
    def median_kind(self) -> int:
        """The kind of the median client."""
        return int(np.argmin(np.abs(np.cumsum(self.count) / self.count.sum() - 0.5)))


def spectrum_of(summaries: list[Summary]) -> Spectrum:
    """The spectrum whose kappa is the clients'."""
    chosen = (
        summaries
        if len(summaries) <= ENOUGH_CLIENTS
        else [summaries[i] for i in spread_places(len(summaries), ENOUGH_CLIENTS)]
    )
    d = summaries[0].dimension
    samples = sum(each.samples for each in summaries)
    mean = sum(float(each.power.sum()) for each in summaries) / (samples * d)
    largest = max(float(each.power.max()) / each.samples for each in summaries)
    gamma = float(np.mean([each.aspect for each in chosen]))
    ridges = mean * (1 + gamma) * np.geomspace(1e-3, 1e3, RIDGES)
    unseen = BLIND * float(np.median([kappa_of(each, ridges[:1])[0] for each in chosen]))
    s = np.geomspace(min(unseen, mean / 2), max(largest, 2 * mean), ATOMS)
    left, right = np.zeros((RIDGES, ATOMS)), np.zeros(RIDGES)
    for each in chosen:
        kappa = kappa_of(each, ridges)
        weight = each.samples / d  # the trace counts samples: large clients say more
        left += weight * s / (s + kappa[:, None])
        right += weight * (1 - ridges / kappa) / each.aspect
    scale = right + np.finfo(float).tiny  # relative errors, small and large ridges alike
    facts = FIRMLY * np.vstack([np.ones(ATOMS), s / mean])
    rows = np.vstack([left / scale[:, None], facts, EVEN_SHARES * np.eye(ATOMS)])
    h, _ = scipy.optimize.nnls(
        rows, np.concatenate([np.ones(RIDGES), [FIRMLY, FIRMLY], np.zeros(ATOMS)])
    )
    kept = h > 1e-6 * h.sum()
    values = s[kept]
    weights = h[kept] / h[kept].sum()
    values = values * mean / float(values @ weights)
    return Spectrum(
        values,
        weights,
        f"estimated ({values.size} eigenvalues from {values.min():.3g} to {values.max():.3g})",
    )


def kappa_of(client: Summary, ridges: Array) -> Array:
    """1/v at each ridge; samples beyond the axes have Gram eigenvalue 0."""
    e = client.power / client.samples
    beyond = (client.samples - e.size) / ridges
    return np.asarray(client.samples / ((1 / (e + ridges[:, None])).sum(1) + beyond))


def strength_of(
    rows: NDArray[Any], power: Array, pool: SharedSolution, others: int | Array
) -> Array:
    """q_k along clients' axes from the others' samples: v'Sv less the client's own part, x."""
    along = power > 0
    whole = pool.row_lengths(rows) / np.where(along, power, 1.0)
    return np.asarray(np.where(along, whole - power, 0.0) / others)


def pool_clients(data: ClientData) -> SharedSolution:
    """The pooled fit from sums of products; from a triangular factor where digits would be lost."""
    d = data.dimension
    if data.sizes.sum() >= d:
        edges = np.linspace(0, len(data.parts), SEGMENTS + 1).astype(int)

        def add_up(place: int) -> Array:
            total = np.zeros((d + 1, d + 1))
            for first in range(edges[place], edges[place + 1], TOGETHER):
                some = range(first, min(first + TOGETHER, edges[place + 1]))
                both = np.vstack([data.table(client) for client in some])
                total += both.T @ both
            return total

        S = np.asarray(sum(in_threads(add_up, SEGMENTS, d)))
        R, failed = scipy.linalg.lapack.dpotrf(S[:d, :d], lower=False)
        if (
            not failed
            and scipy.linalg.lapack.dpocon(R, np.abs(S[:d, :d]).sum(0).max())[0] > FIRM_SUMS
        ):
            return SharedSolution.of(
                np.column_stack([R, scipy.linalg.solve_triangular(R, S[:d, d], trans="T")])
            )
    return SharedSolution.of(stack_triangle(iter(data)))


class AxisRows:
    """Arrays for all clients along axes; each client has its rows in them."""

    def __init__(self, data: ClientData, pool: SharedSolution) -> None:
        self.edges = np.cumsum([0, *np.minimum(data.sizes, data.dimension)])
        shape = self.edges[-1], pool.rank + 1
        self.single = bool(np.prod(shape) >= MANY_ENTRIES)
        self.x = np.empty(shape[0])
        self.Gu = np.empty(shape, dtype=np.float32 if self.single else np.float64)
        self.u = np.empty(shape[0])
        self.rest = np.zeros(len(data.parts))
        self.freedom = int(data.sizes.sum()) - pool.rank

    def part(self, place: int) -> slice:
        """Where a client's rows are."""
        return slice(self.edges[place], self.edges[place + 1])

    @property
    def G(self) -> NDArray[Any]:
        """Rows times the pool's root, which is where the pooled X'X is the identity."""
        return self.Gu[:, :-1]

    def put(self, place: int, power: Array, residuals: Array, rest: float) -> None:
        """One client more: its axes, and its residuals about the pool along them; its rows times
        the pool's root are written into G.
        """
        part = self.part(place)
        self.x[part] = power
        self.Gu[part, -1] = self.u[part] = residuals
        self.rest[place] = rest

    def all_clients(self) -> TurnedClients:
        """All clients."""
        rest = float(self.rest.sum())
        return TurnedClients(self.x, self.Gu, self.u**2, rest, self.freedom)


def unit_losses(summaries: Sequence[Summary], ratios: Array) -> tuple[Array, Array]:
    """Each client's bias at r^2 = 1 and variance at sigma^2 = 1, its ridge times samples c."""
    x, q = stack_field(summaries, "power"), stack_field(summaries, "strength")
    owner = field_owners(summaries)
    count = len(summaries)

    def add_up(values: Array) -> Array:
        return np.asarray(np.bincount(owner, values, count))

    f = np.divide(x, x + ratios[owner], out=np.zeros_like(x), where=x > 0)
    lengths = add_up(x)
    samples = np.array([each.samples for each in summaries], dtype=float)
    traces = (lengths.sum() - lengths) / (samples.sum() - samples)
    bias = (traces - add_up(q * (2 * f - f**2))) / summaries[0].dimension
    return bias, add_up(q * np.divide(f**2, x, out=np.zeros_like(x), where=x > 0))


def noise_freedom(summaries: Sequence[Summary]) -> float:
    """Degrees of freedom of the noise in the mean loss without a ridge, sum q z^2/x over axes with
    normal z (Satterthwaite).

    About as many as axes; near one where a single axis with hardly any power, of a client with
    about as many samples as features, makes most of the loss.
    """
    weights = np.concatenate(
        [each.strength[each.power > 0] / each.power[each.power > 0] for each in summaries]
    )
    return float(weights.sum() ** 2 / (weights @ weights))


def have_common_covariance(summaries: Sequence[Summary]) -> bool:
    """Whether the clients' features were seen against the others', and look like draws from one
    covariance.

    Otherwise the others' samples say little about where a client will be tested: schools whose
    pupils differ, say, or days that are the same for all.
    """
    found = covariance_difference(summaries)
    return found is not None and ALIKE_FEATURES[0] <= found <= ALIKE_FEATURES[1]


def covariance_difference(summaries: Sequence[Summary]) -> float | None:
    """How much the clients' covariances differ, over what normal draws from one covariance would;
    None where it was not seen.

    For those, |S_i|^2 - tr S_i S_others has the mean ((tr Sigma)^2 + tr Sigma^2)/n: clients of
    unlike features are far above 1, clients with the same planned features far below.
    """
    if not summaries or not all(each.strength.size for each in summaries):
        return None
    n = np.array([each.samples for each in summaries], dtype=float)
    length = np.array([float(each.power.sum()) for each in summaries]) / n
    own = np.array([float(each.power @ each.power) for each in summaries]) / n**2
    cross = np.array([float(each.power @ each.strength) for each in summaries]) / n
    chance = (length.mean() ** 2 + cross.mean()) * n.size / n.sum()
    return float(np.average(own - cross, weights=n) / chance)
