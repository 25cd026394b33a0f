"""The laws by which a double draws clients: what real features look like, in a few arrays.

Classes. In coordinates where samples vary alike in all directions (covariance within clients and
classes = I), turned so that the class means span the first r of them, a sample of class c of client
i is

    z = m_c + (what a sample has of its own) + a_i + b_ic,

with client effects a_i, common to its classes, and b_ic, one per class, each class along its own
directions. A misclassified sample does not lie in the tail of its class: it lies in another class.
So its first r coordinates are a mixture over the class k that the nearest mean says: about rho m_c
where k = c, else about u m_c + v m_k. Instead they may be resampled from all clients' residuals of
the class, clients' effects taken out. The rest is Gaussian given the coordinates, with a share of
its variance in a few directions of the class, and another in a few of the client's class: a
writer's sevens are alike in more than their mean, so that more of them teach less. Samples that a
network was trained on have a law of their own, and held-out ones another. Class shares are
Dirichlet-multinomial.

Numbers: y = x'(theta + d_i) + noise with variance components by feature, and features that are
Gaussian within clients, about client means that are Gaussian too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import gammaln

from fedasym.core.numbers import Array
from fedasym.exact.draws import seeded_generator

Codes = NDArray[np.int64]
Owner = NDArray[np.intp]
Rows = NDArray[np.floating]

SHARES, LABELS, EFFECTS, COORDINATES, REST, SHAPES = range(6)  # roles in a path of seeds
FLOOR = 1e-4  # of the mean variance: directions in which nothing varies keep this much
SMOOTHING = 4.0  # samples of a class that its prior confusions count for
NEARNESS = 0.15  # of the middle squared distance of two classes: the reach of prior confusions
SHRINKAGE = 0.05  # of a covariance that has as many directions as samples, towards its mean
LEAST_CELL = 0.05  # a cell that is nearly all of its class says nothing of how clients differ
DISTINCT = 3.0  # standard errors by which two laws differ
FARTHER = 0.1  # and the share of squared distances from the class mean
SKETCH = 32  # random directions in which shapes are compared
SHAPED = 0.4  # share of the variance in a shape's directions, by third moments of two data sets
DIRECTIONS = 2000  # that shapes are made of
MOST_SHAPED = 100  # directions of one shape: more are hardly told from all
LEAST_ROOM = 0.1  # of a covariance that has seen hardly more samples than directions
LEAST_LAW = 50  # held-out samples that make a law
MOST_RESAMPLED = 2**25  # numbers in coordinates that are kept to be resampled
BALANCING = 30  # turns in which shares are scaled to the classes' total, and to one
LOG_TOTAL = (-6.0, 9.0)  # range of the logarithm of a Dirichlet law's total


def factor_covariance(S: Array, trace: float | None = None) -> Array:
    """L of the nearest covariance L L' to S, at the trace of S (which cutting negative eigenvalues
    would raise) or the given one.
    """
    values, vectors = scipy.linalg.eigh((S + S.T) / 2)
    aim = max(float(values.sum()) if trace is None else trace, 0.0)
    values = np.maximum(values, 0.0)
    if values.sum() > 0:
        values *= aim / values.sum()
    kept = values > 1e-8 * max(float(values.max(initial=0.0)), 1e-300)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def root_covariance(S: Array) -> Array:
    """The symmetric root of the same covariance, which leaves directions where they are: two laws
    that are alike move the same numbers alike.

    >>> S = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> R = root_covariance(S)
    >>> np.allclose(R @ R, S), np.allclose(R, R.T)
    (True, True)
    """
    L = factor_covariance(S)
    return np.asarray((L / np.linalg.norm(L, axis=0)) @ L.T)


@dataclass(frozen=True, eq=False)
class ShareLaw:
    """Class shares Dirichlet(total * base); alpha = total / classes is that of a symmetric law.

    low, high: a 95 % interval of alpha, from the likelihood.
    """

    base: Array
    total: float
    low: float
    high: float

    @property
    def alpha(self) -> float:
        """In the units of partitioners."""
        return self.total / self.base.size

    @classmethod
    def of(cls, counts: NDArray[np.integer]) -> ShareLaw:
        """Maximum likelihood of the Dirichlet-multinomial law, given the classes' pooled shares.

        >>> rng = np.random.default_rng(0)
        >>> shares = rng.dirichlet(np.full(5, 0.4), 200)
        >>> law = ShareLaw.of(np.stack([rng.multinomial(50, each) for each in shares]))
        >>> law.low < 0.4 < law.high
        True
        """
        C = np.asarray(counts, float)
        C = C[C.sum(1) > 0]
        base = (C.sum(0) + 0.5) / (C.sum() + 0.5 * C.shape[1])
        n = C.sum(1)

        def deviance(log_total: float) -> float:
            total = np.exp(log_total)
            a = total * base
            within = gammaln(a + C) - gammaln(a)
            return -2 * float(np.sum(gammaln(total) - gammaln(total + n)) + np.sum(within))

        best = float(minimize_scalar(deviance, bounds=LOG_TOTAL, method="bounded").x)
        least = deviance(best)
        ends = []
        for end in LOG_TOTAL:
            near, far = best, end
            if deviance(far) - least > 3.84:  # the 95 % point of chi-square with one degree
                for _ in range(40):
                    middle = (near + far) / 2
                    near, far = (middle, far) if deviance(middle) - least < 3.84 else (near, middle)
            ends.append(float(np.exp(far)) / base.size)
        return cls(base, float(np.exp(best)), *ends)

    def draw_shares(
        self, clients: int, rng: np.random.Generator, counts: Array | None = None
    ) -> Array:
        """Class shares of so many clients; given the counts of each, by their posterior law.

        Without counts, all clients together have the classes as often as the base, as where one
        pool is dealt out: few clients of a few classes each would miss some.
        """
        shape = np.tile(self.total * self.base, (clients, 1))
        if counts is not None:
            shape = shape + counts
        logs = np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(shape.shape) / shape
        weights = np.exp(logs - logs.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        for _ in range(BALANCING if counts is None else 0):
            weights *= self.base / np.maximum(weights.mean(0), 1e-300)
            weights /= weights.sum(1, keepdims=True)
        return np.asarray(weights)


@dataclass(frozen=True, eq=False)
class CoordinateLaw:
    """What a sample has of its own: coordinates by the nearest class k, and the rest given them.

    confusion: (K, K) shares of k. pull: rho. blend: u, v. right, wrong: factors of the coordinates'
    covariance where k = c, and else. slope: (r, d - r) of the rest on the coordinates' residual.
    rest: the symmetric root of the covariance of what is left, by which a class has its directions
    in training as in held-out samples. residuals, codes: coordinates less the class mean, and their
    classes, where they are resampled.
    """

    confusion: Array
    pull: float
    blend: Array
    right: Array
    wrong: Array
    slope: Array
    rest: Array
    residuals: Rows | None = None
    codes: Codes | None = None

    @property
    def errors(self) -> float:
        """The share of samples that lie nearest to another class, classes alike."""
        return float(1 - np.mean(np.diag(self.confusion)))


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums over samples in turned coordinates, from which a law of coordinates is estimated.

    counts: (K, K) of classes and nearest classes. right: (K, d) sums by class of samples that lie
    nearest to their own; own, near: of the others, by class and by the nearest. right_moment,
    wrong_moment: (d, d) sums of products.
    """

    counts: Array
    right: Array
    own: Array
    near: Array
    right_moment: Array
    wrong_moment: Array

    @classmethod
    def of(cls, z: Rows, codes: Codes, nearest: Codes, classes: int) -> SampleSums:
        """From samples, client effects and all; nearest: the class whose mean is nearest."""
        hit = nearest == codes
        counts = np.zeros((classes, classes))
        np.add.at(counts, (codes, nearest), 1.0)

        def add_up(rows: NDArray[np.bool_], kind: Codes) -> Array:
            places = np.flatnonzero(rows)
            ones = np.ones(places.size, z.dtype)
            table = csr_array((ones, (kind[places], places)), shape=(classes, len(z)))
            return np.asarray(table @ z, dtype=float)

        wrong = z[~hit]
        moment = np.asarray(wrong.T @ wrong, dtype=float)
        return cls(
            counts,
            add_up(hit, codes),
            add_up(~hit, codes),
            add_up(~hit, nearest),
            np.asarray(z.T @ z, dtype=float) - moment,
            moment,
        )

    def scatter(self, means: Array, pull: float, blend: Array) -> tuple[Array, Array]:
        """Sums of products about pull m_c where a sample lies nearest to its own class c, and about
        u m_c + v m_k where it lies nearest to k.
        """
        u, v = blend
        off = self.counts - np.diag(np.diag(self.counts))
        first = self.right.T @ (pull * means)
        middle = pull**2 * means.T @ (np.diag(self.counts)[:, None] * means)
        right = self.right_moment - first - first.T + middle
        cross = self.own.T @ (u * means) + self.near.T @ (v * means)
        both = u * v * means.T @ off @ means
        middle = u**2 * means.T @ (off.sum(1)[:, None] * means) + both + both.T
        middle += v**2 * means.T @ (off.sum(0)[:, None] * means)
        return right, self.wrong_moment - cross - cross.T + middle


def add_up(one: Any, other: Any) -> Any:
    """The sum of two messages, or arrays, of one kind."""
    return one + other if isinstance(one, np.ndarray) else add_sums([one, other])


def add_sums(parts: Sequence[Any]) -> Any:
    """The sum of messages of one kind, field by field."""
    names = [each.name for each in fields(parts[0])]
    return type(parts[0])(
        **{
            name: sum(getattr(part, name) for part in parts[1:]) + getattr(parts[0], name)
            for name in names
        }
    )


def estimate_coordinates(
    sums: SampleSums, means: Array, rank: int, residuals: Rows | None, codes: Codes | None
) -> CoordinateLaw:
    """From sums over samples; residuals, codes: of the coordinates, where they are resampled."""
    m = means[:, :rank]
    hits = np.diag(sums.counts)
    off = sums.counts - np.diag(hits)
    missed = float(off.sum())
    squares = np.sum(m**2, axis=1)
    pull = float(np.sum(sums.right[:, :rank] * m) / max(float(hits @ squares), 1e-30))
    blend = np.array([0.5, 0.5])
    if missed > 5:
        crossed = float(np.sum(off * (m @ m.T)))
        system = [[off.sum(1) @ squares, crossed], [crossed, off.sum(0) @ squares]]
        aim = [np.sum(sums.own[:, :rank] * m), np.sum(sums.near[:, :rank] * m)]
        blend = np.linalg.lstsq(np.array(system), np.array(aim), rcond=None)[0]
    right, wrong = sums.scatter(means, pull, blend)
    spread = right[:rank, :rank] / max(float(hits.sum()), 1.0)
    other = spread
    if missed > 5:
        apart = wrong[:rank, :rank] / missed
        other = spread * (np.trace(apart) / max(float(np.trace(spread)), 1e-300))
        if missed > 3 * rank:
            other = 0.9 * apart + 0.1 * other
    if residuals is not None:
        right, wrong = sums.scatter(means, 1.0, np.array([1.0, 0.0]))
    slope, rest = regress_rest(right + wrong, rank, float(sums.counts.sum()))
    return CoordinateLaw(
        smooth_confusions(sums.counts, m, missed / max(float(sums.counts.sum()), 1.0)),
        pull,
        blend,
        factor_covariance(spread),
        factor_covariance(other),
        slope,
        rest,
        None if residuals is None else residuals.astype(np.float32),
        codes,
    )


def find_nearest(z: Rows, means: Array, known: NDArray[np.bool_]) -> Codes:
    """The class whose mean is nearest to each sample, among those that have one."""
    away = np.sum(means**2, axis=1) - 2 * (z @ means.T.astype(z.dtype))
    away[:, ~known] = np.inf
    return np.asarray(away.argmin(1))


def regress_rest(scatter: Array, rank: int, samples: float) -> tuple[Array, Array]:
    """The slope of the rest on the coordinates' residuals, and a factor of what is left, from sums
    of products of both.
    """
    more = len(scatter) - rank
    if not more:
        return np.zeros((rank, 0)), np.zeros((0, 0))
    base, cross = scatter[:rank, :rank], scatter[:rank, rank:]
    firm = base + 0.02 * np.trace(base) / max(rank, 1) * np.eye(rank)
    slope = np.asarray(scipy.linalg.solve(firm, cross, assume_a="pos"))
    # what so many unknowns explain by chance is no slope
    explained = float(np.sum(slope * cross))
    unexplained = max(float(np.trace(scatter[rank:, rank:])) - explained, 0.0)
    chance = rank * unexplained / max(samples - rank, 1.0)
    slope *= max(1 - chance / max(explained, 1e-300), 0.0)
    taken = slope.T @ cross
    left = scatter[rank:, rank:] - taken - taken.T + slope.T @ base @ slope
    S = (1 - SHRINKAGE) * left / max(samples, 1.0)
    S[np.diag_indices(more)] += SHRINKAGE / (1 - SHRINKAGE) * np.trace(S) / more
    return slope, root_covariance(S)


def smooth_confusions(counts: Array, means: Array, errors: float) -> Array:
    """Shares of the nearest class: counts, and a few samples by how near classes are."""
    K = len(counts)
    squares = np.sum(means**2, axis=1)
    apart = np.maximum(squares[:, None] + squares - 2 * means @ means.T, 0.0)
    middle = np.median(apart[~np.eye(K, dtype=bool)]) if K > 1 else 1.0
    near = np.exp(-apart / (2 * NEARNESS * max(float(middle), 1e-300)))
    np.fill_diagonal(near, 0.0)
    prior = errors * near / np.maximum(near.sum(1, keepdims=True), 1e-300)
    np.fill_diagonal(prior, 1 - errors)
    found = counts + SMOOTHING * prior
    return np.asarray(found / found.sum(1, keepdims=True))


@dataclass(frozen=True)
class Scales:
    """What calibration multiplies: client effects, the coordinates' spread, the rest's."""

    effects: float = 1.0
    coordinates: float = 1.0
    rest: float = 1.0


class ClassRows(NamedTuple):
    """Samples of some clients, so many: features, codes of so many classes, owners from 0, and
    which a network may have trained on.
    """

    x: Rows
    codes: Codes
    owner: Owner
    train: NDArray[np.bool_]
    clients: int
    classes: int

    def cells(self, kind: Any) -> CellMeans:
        """Means of the training samples of each client and class."""
        train = self.train
        rows = self.x[train].astype(kind)
        return CellMeans.of(rows, self.codes[train], self.owner[train], self.classes)

    def count_classes(self) -> NDArray[np.intp]:
        """Samples (clients, classes)."""
        found = np.bincount(
            self.owner * self.classes + self.codes, minlength=self.clients * self.classes
        )
        return found.reshape(self.clients, self.classes)


@dataclass(frozen=True, eq=False)
class ClassLaws:
    """The laws of classes: z = (x - mean) turn.

    common, by_class: factors of the effects' covariances; by_kind: of those of each class along the
    class means, (K, r, r) or none. sums: by client, what the powers of the effects are ratios of
    (`EffectSums`). class_shape, cell_shape: in how many directions of its own a class, and a
    client's class, varies more; 0: none.
    """

    mean: Array
    turn: Array
    means: Array
    rank: int
    common: Array
    by_class: Array
    by_kind: Array
    sums: Array
    class_shape: int
    cell_shape: int
    train: CoordinateLaw
    held: CoordinateLaw
    shares: ShareLaw

    @property
    def distinct(self) -> bool:
        """Whether held-out samples have a law of their own."""
        return self.train is not self.held

    @classmethod
    def of(
        cls, blocks: Callable[[], Iterator[ClassRows]], shape: tuple[int, int], resampled: bool
    ) -> tuple[ClassLaws, NDArray[np.intp]]:
        """Estimated from all clients' samples, in two looks at blocks of clients, one block after
        the other; and counts (clients, classes). shape: (samples, features) of all. resampled: keep
        coordinates of samples, of some that are evenly spread where they are very many.
        """
        kind: Any = np.float32 if shape[0] * shape[1] > 10**6 else np.float64
        frame = Frame.of(reduce(add_up, (rows.cells(kind).sums for rows in blocks())))
        every = -(-shape[0] * frame.rank // MOST_RESAMPLED)
        total: tuple[Any, ...] = ()
        kept: tuple[list[tuple[Rows, Codes]], list[tuple[Rows, Codes]]] = ([], [])
        counts, by_client = [], []
        seen = [0, 0]
        for rows in blocks():
            codes, owner, train = rows.codes, rows.owner, rows.train
            centred = (rows.x - frame.mean.astype(kind)).astype(kind)
            distances = frame.measure_distances(centred, codes, train)
            z = centred @ frame.turn.astype(kind)
            del centred
            parts = frame.read_samples(z, codes, owner, train)
            del z
            first, second = (frame.add_samples(*part) for part in parts)
            rest = parts[0][0][:, frame.rank :]
            shapes = ShapeSums.of(rest, codes[train], owner[train], rows.classes)
            effects = rows.cells(kind).measure_effects(frame, rows.clients)
            by_client.append(effects.by_client)
            counts.append(rows.count_classes())
            sums = (first, second, replace(effects, by_client=np.zeros(())), shapes, distances)
            total = tuple(map(add_up, total, sums)) or sums
            for place, (about, kinds) in enumerate(parts if resampled else ()):
                some = np.arange(-seen[place] % every, len(kinds), every)
                kept[place].append((about[some, : frame.rank].astype(np.float32), kinds[some]))
                seen[place] += len(kinds)
        *samples, effects, shapes, distances = total
        effects = replace(effects, by_client=np.concatenate(by_client))
        every_count = np.concatenate(counts)
        apart = [
            (np.concatenate([rows for rows, _ in part]), np.concatenate([kind for _, kind in part]))
            for part in kept
            if part
        ]
        laws = cls.from_sums(frame, samples, distances, effects, shapes, every_count, apart)
        return laws, every_count

    @classmethod
    def from_sums(
        cls,
        frame: Frame,
        samples: Sequence[SampleSums],
        distances: Array,
        effects: EffectSums,
        shapes: ShapeSums,
        counts: NDArray[np.integer],
        kept: Sequence[tuple[Rows, Codes]] = (),
    ) -> ClassLaws:
        """From sums over the training samples and over the held-out ones; kept: residuals and codes
        to resample, of both together or apart.
        """
        distinct = are_distinct(distances, len(frame.class_sizes))
        parts = samples if distinct else samples[:1]
        laws = [
            estimate_coordinates(
                part, frame.means, frame.rank, *(kept[place] if kept else (None, None))
            )
            for place, part in enumerate(parts)
        ]
        common, by_class, by_kind = effects.factors(frame)
        return cls(
            frame.mean,
            frame.turn,
            frame.means,
            frame.rank,
            common,
            by_class,
            by_kind,
            effects.by_client,
            *shapes.sizes(frame.means.shape[1] - frame.rank),
            laws[0],
            laws[-1],
            ShareLaw.of(counts),
        )

    def draw(
        self, shares: Array, sizes: NDArray[np.intp], seed: int, scales: Scales
    ) -> tuple[Rows, Codes, Owner, NDArray[np.int8]]:
        """Features, codes, owners and splits of clients with these shares; sizes: (clients, 3)."""
        m = len(shares)
        owner = np.repeat(np.arange(m), sizes.sum(1))
        split = np.repeat(np.tile(np.arange(3, dtype=np.int8), m), sizes.ravel())
        draws = seeded_generator(seed, LABELS).random((len(owner), 1))
        codes = np.sum(draws > np.cumsum(shares, axis=1)[owner, :-1], axis=1)
        picks, weights = self._choose_directions(codes, owner, seed)
        z = np.empty((len(owner), self.means.shape[1]), np.float32)
        for part, (law, rows) in enumerate(((self.train, split == 0), (self.held, split > 0))):
            z[rows] = self._draw_samples(
                law, codes[rows], (picks[rows], weights), seed, part, scales
            )
        z += self._draw_effects(owner, codes, m, seed, scales.effects)
        back = np.linalg.inv(self.turn).astype(np.float32)
        return z @ back + self.mean.astype(np.float32), codes, owner, split

    def _draw_effects(
        self, owner: Owner, codes: Codes, clients: int, seed: int, scale: float
    ) -> Rows:
        """What clients, and classes of clients, are moved by."""
        rng = seeded_generator(seed, EFFECTS)
        K = len(self.means)
        common = rng.standard_normal((clients, self.common.shape[1])) @ self.common.T
        cells, place = np.unique(owner * K + codes, return_inverse=True)
        own = rng.standard_normal((len(cells), self.by_class.shape[1])) @ self.by_class.T
        if self.by_kind.size and self.by_class.size:  # each class along its own directions
            kind = cells % K
            noise = rng.standard_normal((len(cells), self.rank))
            for each in np.unique(kind):
                here = kind == each
                own[here, : self.rank] = noise[here] @ self.by_kind[each].T
        effect = (scale * (own + common[cells // K])).astype(np.float32)
        return np.asarray(effect[place])

    def _draw_samples(
        self,
        law: CoordinateLaw,
        codes: Codes,
        shape: tuple[Codes, Array],
        seed: int,
        part: int,
        scales: Scales,
    ) -> Rows:
        """What samples have of their own, class means included."""
        rng = seeded_generator(seed, COORDINATES, part)
        r, n = self.rank, len(codes)
        means = self.means.astype(np.float32)
        if law.residuals is None or law.codes is None:
            ends = np.cumsum(law.confusion, axis=1)[codes, :-1]
            nearest = np.sum(rng.random((n, 1)) > ends, axis=1)
            right = (nearest == codes)[:, None]
            u, v = law.blend.astype(np.float32)
            z = np.where(
                right, np.float32(law.pull) * means[codes], u * means[codes] + v * means[nearest]
            )
            spread = [
                rng.standard_normal((n, each.shape[1]), dtype=np.float32) @ each.T.astype("f4")
                for each in (law.right, law.wrong)
            ]
            base = np.where(right, *spread)
        else:
            z = means[codes].copy()
            base = np.zeros((n, r), np.float32)
            for kind in np.unique(codes):
                pool = np.flatnonzero(law.codes == kind)
                if not self.distinct and pool.size > 1:  # no vector both trains and tests
                    pool = pool[part::2]
                here = np.flatnonzero(codes == kind)
                if pool.size:  # another sample of the class, of whichever client
                    base[here] = law.residuals[rng.choice(pool, here.size)]
        base = np.float32(scales.coordinates) * base
        z[:, :r] += base
        rng = seeded_generator(seed, REST, part)
        picks, weights = shape
        noise = rng.standard_normal((n, law.rest.shape[1]), dtype=np.float32)
        if weights.size:
            every = seeded_generator(0, SHAPES, 2).standard_normal(
                (DIRECTIONS, noise.shape[1]), dtype=np.float32
            )
            along = weights * rng.standard_normal(picks.shape, dtype=np.float32)
            starts = np.arange(n + 1) * weights.size
            table = csr_array((along.ravel(), picks.ravel(), starts), shape=(n, DIRECTIONS))
            noise *= np.float32(np.sqrt(max(1 - float(weights @ weights), 0.0)))
            noise += table @ every
        z[:, r:] += np.float32(scales.rest) * (
            noise @ law.rest.T.astype(np.float32) + base @ law.slope.astype(np.float32)
        )
        return np.asarray(z)

    def _choose_directions(self, codes: Codes, owner: Owner, seed: int) -> tuple[Codes, Array]:
        """For each sample the directions in which it varies more, those of its class, which are the
        same in all draws, and those of its client's class; and the roots of their shares.
        """
        K = len(self.means)
        cells, cell = np.unique(owner * K + codes, return_inverse=True)
        picks = [
            seeded_generator(*path).integers(DIRECTIONS, size=(rows, f), dtype=np.int32)[place]
            for path, rows, f, place in (
                ((0, SHAPES), K, self.class_shape, codes),
                ((seed, SHAPES, 1), len(cells), self.cell_shape, cell),
            )
        ]
        weights = [
            np.full(each.shape[1], np.sqrt(SHAPED / max(each.shape[1], 1)), np.float32)
            for each in picks
        ]
        return np.concatenate(picks, axis=1), np.concatenate(weights)


def are_distinct(distances: Array, classes: int) -> bool:
    """Whether held-out samples have a law of their own: lie farther from the mean of their class.

    distances: (2, 3), of training and of held-out samples, how many, and sums of the squared
    distances and of their squares, in the features' own units: in directions scaled by training
    samples, those always look nearer where they are few.
    """
    n, first, second = distances.T
    if n[1] < max(LEAST_LAW, 2 * classes):
        return False
    unit = max(float(first.sum() / n.sum()), 1e-300)
    means = first / n / unit
    variances = np.maximum(second / n / unit**2 - means**2, 0.0)
    error = float(np.sqrt(np.sum(variances / n)))
    return bool(means[1] - means[0] > max(DISTINCT * error, FARTHER))


def powers_of(sums: Array) -> Array:
    """The variances of common effects and of those by class, per direction."""
    top, below, squares, free = sums.T
    common = np.divide(top, below, out=np.zeros_like(top), where=below > 0)
    both = np.divide(squares, free, out=np.zeros_like(top), where=free > 0)
    return np.stack([common, both - np.maximum(common, 0.0)], axis=1)


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums over training samples: how many of each class, (K,), and the squares of how many each
    client has, (K,); their features, (K, d), products about the means of each client's classes and
    of these means, (d, d); and how many means.
    """

    counts: Array
    squares: Array
    totals: Array
    within: Array
    between: Array
    cells: float


def positive_mean(values: Array) -> float:
    """The mean, or 0 where it is below or there is none."""
    return max(float(values.mean()), 0.0) if values.size else 0.0


def shrink_means(centres: Array, known: NDArray[np.bool_], noise: Array) -> Array:
    """Class means less what noise, of this variance per direction and class, adds to them.

    In units of each class's own noise it adds the same to all singular values: means of common
    classes, which are certain, lose little, and where features are more than classes, those of rare
    ones lose most. Squares of singular values together lose what noise adds to their sum.

    >>> rng = np.random.default_rng(0)
    >>> means = rng.standard_normal((20, 100))
    >>> noise = np.repeat([0.01, 9.0], 10)
    >>> found = means + np.sqrt(noise)[:, None] * rng.standard_normal(means.shape)
    >>> shrunken = shrink_means(found, np.ones(20, bool), noise)
    >>> kept = np.linalg.norm(shrunken, axis=1) / np.linalg.norm(found, axis=1)
    >>> bool(kept[:10].min() > 0.98), bool(kept[10:].max() < 0.6)
    (True, True)
    """
    if known.sum() < 2:
        return centres
    weight = 1 / noise[known]
    level = weight @ centres[known] / weight.sum()
    unit = np.sqrt(noise[known])[:, None]
    U, powers, V = np.linalg.svd((centres[known] - level) / unit, full_matrices=False)
    added = (known.sum() - 1.0) * centres.shape[1]
    found = np.zeros_like(centres)
    found[known] = level + unit * ((U * np.sqrt(take_from(powers**2, added))) @ V)
    return found


def take_from(values: Array, amount: float) -> Array:
    """Values, none below 0, in falling order, less one number, but not below 0, so that their sum
    loses this amount.

    >>> take_from(np.array([5.0, 3.0, 1.0]), 3.0).tolist()
    [4.0, 2.0, 0.0]
    >>> take_from(np.array([5.0, 1.0]), 3.0).tolist()
    [3.0, 0.0]
    """
    left = max(float(values.sum()) - amount, 0.0)
    counts = np.arange(1, values.size + 1)
    levels = (np.cumsum(values) - left) / counts  # where so many remain
    remain = max(int(np.sum(values > levels)), 1)
    return np.asarray(np.maximum(values - levels[remain - 1], 0.0))


@dataclass(frozen=True, eq=False)
class Frame:
    """The coordinates z = (x - mean) turn in which samples vary alike, and class means in them.

    A covariance of few samples shows them too close to their means, and others too far: of d
    directions and so many degrees of freedom that gamma = d/freedom, the inverse is too large by
    1/(1 - gamma). The coordinates are less by that, so that what the covariance has not seen, such
    as means, is as long in them as it should be, and `room` is what samples that it has seen vary
    by. The means themselves are shrunken by what samples and client effects add to each of them.

    centres: class means as they were found; means: shrunken ones. moved: the variance that clients'
    effects have per direction, along the class means and in the rest. within: the covariance in
    clients and classes. has_kinds: whether there are clients enough for effects of each class to
    have directions of their own.
    """

    mean: Array
    turn: Array
    centres: Array
    means: Array
    class_means: Array
    class_sizes: Array
    rank: int
    room: float
    moved: tuple[float, float]
    within: Array
    has_kinds: bool

    @property
    def known(self) -> NDArray[np.bool_]:
        """The classes that have samples."""
        return self.class_sizes > 0

    @classmethod
    def of(cls, sums: ClassSums) -> Frame:
        """From sums over all clients."""
        samples = float(sums.counts.sum())
        mean = sums.totals.sum(0) / samples
        sizes = np.maximum(sums.counts, 1.0)
        middle = sums.totals / sizes[:, None] - mean
        middle[sums.counts == 0] = 0.0
        freedom = max(samples - sums.cells, 1.0)
        covariance = sums.within / freedom
        d = len(mean)
        firm = FLOOR * np.trace(covariance) / d
        values, vectors = scipy.linalg.eigh(covariance + firm * np.eye(d))
        values = np.maximum(values, FLOOR * values.mean())
        room = max(1 - float(np.sum(1 - firm / values)) / freedom, LEAST_ROOM)
        white = vectors * np.sqrt(room / values)
        known = (middle @ white)[sums.counts > 0]
        _, powers, turn = np.linalg.svd(known - known.mean(0), full_matrices=True)
        rank = max(int(np.sum(powers > 1e-6 * max(float(powers[0]), 1e-300))), 1)
        turn = white @ turn.T
        within = turn.T @ covariance @ turn / room
        # cell means about class means, weighted by their samples: effects, and what sampling adds
        away = turn.T @ (sums.between - samples * np.outer(mean, mean)) @ turn
        centres = middle @ turn
        away -= centres.T @ (sums.counts[:, None] * centres)
        held = sums.counts > 0
        free = samples - float(np.sum(sums.squares / sizes))
        apart = np.diag(away) - np.diag(within) * (sums.cells - held.sum())
        apart = apart / max(free, 1e-300) if free > LEAST_CELL * samples else np.zeros(d)
        moved = positive_mean(apart[:rank]), positive_mean(apart[rank:])
        noise = 1 / sizes + positive_mean(apart) * sums.squares / sizes**2
        return cls(
            mean,
            turn,
            centres,
            shrink_means(centres, held, noise),
            middle,
            sums.counts,
            rank,
            room,
            moved,
            within,
            bool(sums.cells >= rank * held.sum()),
        )

    def take_effects_out(self, z: Rows, codes: Codes, owner: Owner) -> Rows:
        """Training samples about their class means, with so much of their client's class's mean
        taken out that they vary as samples of one client do, and as far from the means as samples
        that these and the covariance were not made of.
        """
        K = len(self.means)
        cells, place, sizes = np.unique(owner * K + codes, return_inverse=True, return_counts=True)
        about = z - self.centres[codes].astype(z.dtype)
        of_cell = csr_array(
            (np.ones(len(z), z.dtype), (place, np.arange(len(z)))), shape=(len(cells), len(z))
        )
        level = np.asarray(of_cell @ about) / sizes[:, None].astype(z.dtype)
        parts = (slice(None, self.rank), slice(self.rank, None))
        for part, power in zip(parts, self.moved, strict=True):
            share = 1 - 1 / np.sqrt(1 + sizes * power)
            about[:, part] -= (share[:, None].astype(z.dtype) * level[:, part])[place]
        n = np.maximum(self.class_sizes[codes], 2.0)
        wide = np.sqrt(n / (n - 1) / self.room)
        return np.asarray(about * wide[:, None].astype(z.dtype))

    def read_samples(
        self, z: Rows, codes: Codes, owner: Owner, train: NDArray[np.bool_]
    ) -> tuple[tuple[Rows, Codes], tuple[Rows, Codes]]:
        """Training and held-out samples about their class means, and their classes. Held-out ones
        keep what moves them: their law, where they have one, is of where they really lie.
        """
        held = ~train
        first = self.take_effects_out(z[train], codes[train], owner[train])
        about = z[held] - self.means[codes[held]].astype(z.dtype)
        return (first, codes[train]), (about, codes[held])

    def add_samples(self, about: Rows, codes: Codes) -> SampleSums:
        """Sums over samples about their class means, which lie about the shrunken ones."""
        z = about + self.means[codes].astype(about.dtype)
        nearest = find_nearest(z, self.means, self.known)
        return SampleSums.of(z, codes, nearest, len(self.means))

    def measure_distances(self, x: Rows, codes: Codes, train: NDArray[np.bool_]) -> Array:
        """Of training and of held-out samples, centred: how many, and sums of the squared distances
        from the mean of their class and of their squares, (2, 3); of training samples as if they
        were not in the mean.
        """
        away = np.zeros(len(x))
        for rows in np.array_split(np.arange(len(x)), max(len(x) // 4096, 1)):
            about = x[rows] - self.class_means.astype(x.dtype)[codes[rows]]
            away[rows] = np.einsum("nd,nd->n", about, about)
        n = np.maximum(self.class_sizes[codes], 2.0)
        away = np.where(train, away * (n / (n - 1)) ** 2, away)
        parts = (away[train], away[~train])
        return np.array([[part.size, part.sum(), np.sum(part**2)] for part in parts], dtype=float)


@dataclass(frozen=True, eq=False)
class ShapeSums:
    """Sums over pairs of samples of one client and class that say how alike their shapes are: of
    products of differences in a few random directions, by class, (K, s, s), and how many, (K,); and
    of their squares within clients' classes.
    """

    by_class: Array
    pairs: Array
    squares: float
    square_pairs: float
    alone: float

    @classmethod
    def of(cls, rest: Rows, codes: Codes, owner: Owner, classes: int) -> ShapeSums:
        """From what samples are across the class means."""
        q = rest.shape[1]
        s = min(q, SKETCH)
        by_class, pairs = np.zeros((classes, s, s)), np.zeros(classes)
        squares = square_pairs = alone = 0.0
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((q, s)))[0] if q else None
        for kind in np.unique(codes) if q else ():
            mine = np.flatnonzero(codes == kind)
            mine = mine[np.argsort(owner[mine], kind="stable")]
            who = owner[mine]
            place = np.arange(len(who)) - np.searchsorted(who, who)
            first = np.flatnonzero((place[:-1] % 2 == 0) & (who[:-1] == who[1:]))
            if not first.size:
                continue
            D = (rest[mine[first]] - rest[mine[first + 1]]).astype(float) @ turn / np.sqrt(2)
            starts = np.flatnonzero(np.diff(who[first], prepend=-1))
            sums = np.add.reduceat(D[:, :, None] * D[:, None, :], starts)
            counts = np.diff(starts, append=len(first))
            by_class[kind], pairs[kind] = sums.sum(0), len(first)
            squares += float(np.sum(sums**2))
            square_pairs += float(np.sum(counts**2))
            alone += float(np.sum(np.sum(D**2, axis=1) ** 2))
        return cls(by_class, pairs, squares, square_pairs, alone)

    def sizes(self, directions: int) -> tuple[int, int]:
        """In how many directions a class, and a client's class, varies more: 0 where it does not.

        Of two samples with the covariance S, E (r's)^2 = tr S^2, which is larger by (1 + q) share^2
        / f where a share of the variance lies in f random directions.
        """
        P, s = float(self.pairs.sum()), self.by_class.shape[1]
        if not s or not P:
            return 0, 0
        total = self.by_class.sum(0)
        classes2 = float(np.sum(self.by_class**2))
        class_pairs = float(np.sum(self.pairs**2))
        unit = (float(np.trace(total)) / P) ** 2 / s
        among = [
            (float(np.sum(total**2)) - classes2, P**2 - class_pairs),
            (classes2 - self.squares, class_pairs - self.square_pairs),
            (self.squares - self.alone, self.square_pairs - P),
        ]
        found, level = [], None
        for top, below in among:
            if below <= 0:
                found.append(0)
                continue
            value = top / below / max(unit, 1e-300)
            excess = value - (1.0 if level is None else level)
            level = value if level is None else max(value, level)
            f = SHAPED**2 * (s + 1) / max(excess, 1e-9)
            found.append(max(round(f), 1) if f < min(directions, MOST_SHAPED) else 0)
        return found[1], found[2]


@dataclass(frozen=True, eq=False)
class EffectSums:
    """Sums over clients that say how their classes' means vary, in turned coordinates.

    crossed, pairs: products of two classes' means of one client, (d, d), and how many. squares:
    those of one with itself, weighted by its samples, (d, d); weight, free, sampling: of these.
    kinds, kind_sums: the same by class along the class means, (K, r, r) or none; free, sampling and
    clients, (3, K).
    by_client: what the traces per direction are ratios of, (clients, 4): traces may be below 0 by
    chance.
    """

    crossed: Array
    pairs: float
    squares: Array
    weight: float
    free: float
    sampling: float
    kinds: Array
    kind_sums: Array
    by_client: Array

    def factors(self, frame: Frame) -> tuple[Array, Array, Array]:
        """Of the covariances of common effects, of those by class, and of the latter for each class
        along the class means, (K, r, r): a class is moved towards those that it is mistaken for.

        Products of two classes' means of one client have the mean S_a; squares of one have S_a +
        S_b and what sampling adds.
        """
        r = frame.rank
        empty, none = np.zeros((len(self.crossed), 0)), np.zeros((0, r, r))
        if self.weight == 0:
            return empty, empty, none
        S_a = self.crossed / max(self.pairs, 1.0)
        S = (self.squares - frame.within * self.sampling) / self.free
        a = float(np.trace(S_a)) if self.pairs else 0.0
        b = float(np.trace(S)) - max(a, 0.0)
        common = factor_covariance(S_a) if a > 0 else empty
        if b <= 0:
            return common, empty, none
        S_b = S - (S_a if a > 0 else 0.0)
        own = factor_covariance(S_b, b)
        if not frame.has_kinds:
            return common, own, none
        free, sampling, cells = self.kind_sums
        trust = cells / (cells + r)  # in a class's own covariance, of r unknowns a direction
        shared = (own @ own.T)[:r, :r]
        by_kind = np.zeros((len(cells), r, r))
        for kind in np.flatnonzero(free > 0):
            found = self.kinds[kind] - frame.within[:r, :r] * sampling[kind]
            found = found / free[kind] - (S_a[:r, :r] if a > 0 else 0.0)
            found = trust[kind] * found + (1 - trust[kind]) * shared
            factor = factor_covariance(found)
            by_kind[kind, :, : factor.shape[1]] = factor
        return common, own, by_kind


def add_effects(parts: Sequence[EffectSums]) -> EffectSums:
    """Sums over all clients; what is kept by client is kept."""
    total: EffectSums = add_sums([replace(part, by_client=np.zeros(())) for part in parts])
    return replace(total, by_client=np.concatenate([part.by_client for part in parts]))


@dataclass(frozen=True, eq=False)
class CellMeans:
    """Means of the samples of each client and class, and what samples vary by about them."""

    means: Array  # (cells, d)
    client: Owner
    code: Codes
    sizes: Array
    within: Array
    classes: int

    @classmethod
    def of(cls, x: Rows, codes: Codes, owner: Owner, classes: int) -> CellMeans:
        """From samples."""
        cells, place, sizes = np.unique(
            owner * classes + codes, return_inverse=True, return_counts=True
        )
        N = len(x)
        of_cell = csr_array((np.ones(N, x.dtype), (place, np.arange(N))), shape=(len(cells), N))
        means = np.asarray(of_cell @ x, dtype=float) / sizes[:, None]
        about = x - means.astype(x.dtype)[place]
        within = np.asarray(about.T @ about, dtype=float)
        return cls(means, cells // classes, cells % classes, sizes.astype(float), within, classes)

    @property
    def sums(self) -> ClassSums:
        """What clients send first."""
        counts, squares = np.zeros((2, self.classes))
        np.add.at(counts, self.code, self.sizes)
        np.add.at(squares, self.code, self.sizes**2)
        totals = np.zeros((self.classes, self.means.shape[1]))
        np.add.at(totals, self.code, self.sizes[:, None] * self.means)
        between = self.means.T @ (self.sizes[:, None] * self.means)
        return ClassSums(counts, squares, totals, self.within, between, float(len(self.sizes)))

    def measure_effects(self, frame: Frame, clients: int) -> EffectSums:
        """How the means of clients' classes lie about those of all."""
        D = (self.means - frame.mean - frame.class_means[self.code]) @ frame.turn
        d = D.shape[1]
        r, K = frame.rank, self.classes
        of_client = csr_array(
            (np.ones(len(D)), (self.client, np.arange(len(D)))), shape=(clients, len(D))
        )
        total = of_client @ D
        cells = np.bincount(self.client, minlength=clients).astype(float)
        free = 1 - self.sizes / np.maximum(frame.class_sizes[self.code], 1)
        weight = np.where(free > LEAST_CELL, self.sizes, 0.0)
        squares = np.sum(D**2, axis=1)
        sampled = free / self.sizes * float(np.trace(frame.within))
        by_client = np.stack(
            [
                (np.sum(total**2, axis=1) - of_client @ squares) / d,
                cells * (cells - 1.0),
                of_client @ (weight * (squares - sampled)) / d,
                of_client @ (weight * free),
            ],
            axis=1,
        )
        kinds, kind_sums = np.zeros((K if frame.has_kinds else 0, r, r)), np.zeros((3, K))
        for kind in np.unique(self.code) if frame.has_kinds else ():
            rows = self.code == kind
            kinds[kind] = (weight[rows, None] * D[rows, :r]).T @ D[rows, :r]
        for place, values in enumerate((weight * free, weight * free / self.sizes, weight > 0)):
            np.add.at(kind_sums[place], self.code, values)
        return EffectSums(
            total.T @ total - D.T @ D,
            float(np.sum(cells * (cells - 1))),
            (weight[:, None] * D).T @ D,
            float(weight.sum()),
            float(weight @ free),
            float(np.sum(weight * free / self.sizes)),
            kinds,
            kind_sums,
            by_client,
        )


@dataclass(frozen=True, eq=False)
class NumberLaws:
    """The laws of numbers: features about client means, and labels with variance components.

    within, between: factors of the features' covariances. theta: (unknowns, outputs), the
    intercept last where there is one; variances: (unknowns,) of clients' weights; noise: standard
    deviations by output.
    """

    mean: Array
    within: Array
    between: Array
    theta: Array
    variances: Array
    noise: Array
    intercept: bool

    def draw(
        self, clients: int, sizes: NDArray[np.intp], seed: int, scales: Scales
    ) -> tuple[Rows, Array, Owner, NDArray[np.int8]]:
        """Features, labels, owners and splits; sizes: (clients, 3).

        Every split has random numbers of its own: held-out samples stay the same where only the
        number of training samples changes, so that chance does not bend a curve over it.
        """
        owner = np.repeat(np.arange(clients), sizes.sum(1))
        split = np.repeat(np.tile(np.arange(3, dtype=np.int8), clients), sizes.ravel())

        def draw_normal(role: int, width: int) -> Array:
            drawn = np.empty((len(owner), width))
            for part in range(3):
                rows = split == part
                rng = seeded_generator(seed, role, part)
                drawn[rows] = rng.standard_normal((int(rows.sum()), width))
            return drawn

        rng = seeded_generator(seed, COORDINATES)
        level = rng.standard_normal((clients, self.between.shape[1])) @ self.between.T
        noise = draw_normal(COORDINATES, self.within.shape[1]) @ self.within.T
        x = self.mean + level[owner] + scales.rest * noise
        rng = seeded_generator(seed, EFFECTS)
        shift = rng.standard_normal((clients, *self.theta.shape))
        theta = self.theta + scales.effects * np.sqrt(self.variances)[:, None] * shift
        rows = np.column_stack([x, np.ones(len(x))]) if self.intercept else x
        labels = np.einsum("np,npk->nk", rows, theta[owner])
        return x, labels + self.noise * draw_normal(REST, labels.shape[1]), owner, split


def estimate_number_laws(
    x: Array, y: Array, owner: Owner, intercept: bool, fitted: Any
) -> NumberLaws:
    """From training rows and a linear fit with estimated variances and noise."""
    clients = int(owner.max()) + 1
    mean = x.mean(0)
    counts = np.bincount(owner, minlength=clients).astype(float)
    sums = np.zeros((clients, x.shape[1]))
    np.add.at(sums, owner, x - mean)
    level = sums / np.maximum(counts, 1)[:, None]
    about = x - mean - level[owner]
    within = about.T @ about / max(len(x) - int(np.sum(counts > 0)), 1)
    held = counts > 0
    between = level[held].T @ level[held] / held.sum() - within * float(np.mean(1 / counts[held]))
    theta = fitted.shared.reshape(len(fitted.shared), -1)
    noise = np.full(theta.shape[1], fitted.noise)
    return NumberLaws(
        mean,
        factor_covariance(within),
        factor_covariance(between),
        theta,
        np.broadcast_to(fitted.variances, (len(theta),)).astype(float),
        noise,
        intercept,
    )
