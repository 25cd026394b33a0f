"""Sums over clients' samples, from which the laws of a double are estimated.

A client needs two looks at its samples. In the first it adds up its classes' features and products
(`CellMeans.sums`); of all clients together these give the coordinates z in which samples vary alike
and class means in them (`Frame`). In the second it adds up what these coordinates show: where
samples lie about the class means (`SampleSums`), how alike two of one class are (`ShapeSums`), and
how far the client moves its classes (`EffectSums`). Sums of clients are sums over blocks of them:
so they are read from disk, and so clients send them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedasym.core.numbers import Array

Codes = NDArray[np.int64]
Owner = NDArray[np.intp]
Rows = NDArray[np.floating]

FLOOR = 1e-4  # of the mean variance: directions in which nothing varies keep this much
LEAST_CELL = 0.05  # a cell that is nearly all of its class says nothing of how clients differ
LEAST_ROOM = 0.1  # of a covariance that has seen hardly more samples than directions
SKETCH = 32  # random directions in which shapes are compared
SHAPED = 0.4  # share of the variance in a shape's directions, by third moments of two data sets
MOST_MOVED = 64  # samples of a client's class that say how alike they are moved
MOST_SHAPED = 100  # directions of one shape: more are hardly told from all


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
    # eigenvectors are known up to a sign, which would differ between processors, and draws with it
    signs = np.where(fixed_directions(len(S), 1)[:, 0] @ vectors < 0, -1.0, 1.0)
    return np.asarray((vectors * signs)[:, kept] * np.sqrt(values[kept]))


def fixed_directions(dimension: int, count: int) -> Array:
    """So many directions, the same ones always."""
    return np.random.default_rng(0).standard_normal((dimension, count))


def choose_axes(V: Array, rank: int) -> Array:
    """Orthonormal axes, in columns, of what the first `rank` orthonormal rows span, then of what
    the others do: they depend on these spaces alone and not on the rows, which where singular
    values are alike, or 0, differ between processors, so that the same seed draws the same clients
    everywhere.

    >>> V = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
    >>> other = V[[1, 0, 4, 3, 2]] * np.array([1, -1, -1, 1, -1])[:, None]
    >>> np.allclose(choose_axes(V, 2), choose_axes(other, 2))
    True
    """
    fixed = fixed_directions(len(V), len(V))
    found = []
    for rows in (V[:rank], V[rank:]):
        Q, R = np.linalg.qr(rows.T @ (rows @ fixed[:, : len(rows)]))
        found.append(Q * np.where(np.diag(R) < 0, -1.0, 1.0))
    return np.concatenate(found, axis=1)


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
    def known_classes(self) -> NDArray[np.bool_]:
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
        white = vectors * np.sqrt(room / values) @ vectors.T
        known = (middle @ white)[sums.counts > 0]
        _, powers, V = np.linalg.svd(known - known.mean(0), full_matrices=True)
        rank = max(int(np.sum(powers > 1e-6 * max(float(powers[0]), 1e-300))), 1)
        turn = white @ choose_axes(V, rank)
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

    def add_shapes(self, z: Rows, codes: Codes, owner: Owner, out: Rows) -> ShapeSums:
        """Sums over training samples that say how alike their shapes are; out: about their class
        means, clients' effects taken out.
        """
        K = len(self.means)
        moves = sum_moves(z - self.centres[codes].astype(z.dtype), codes, owner, K)
        return ShapeSums.of(out[:, self.rank :], codes, owner, K, moves)

    def add_samples(self, about: Rows, codes: Codes) -> SampleSums:
        """Sums over samples about their class means, which lie about the shrunken ones."""
        z = about + self.means[codes].astype(about.dtype)
        nearest = find_nearest(z, self.means, self.known_classes)
        return SampleSums.of(z, codes, nearest, self.means)

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


def find_nearest(z: Rows, means: Array, known: NDArray[np.bool_]) -> Codes:
    """The class whose mean is nearest to each sample, among those that have one."""
    away = np.sum(means**2, axis=1) - 2 * (z @ means.T.astype(z.dtype))
    away[:, ~known] = np.inf
    return np.asarray(away.argmin(1))


@dataclass(frozen=True, eq=False)
class SampleSums:
    """Sums over samples in turned coordinates, from which a law of coordinates is estimated.

    counts: (K, K) of classes and nearest classes. right: (K, d) sums by class of samples that lie
    nearest to their own; own, near: of the others, by class and by the nearest. right_moment,
    wrong_moment: (d, d) sums of products. leans: (2, 3, 3, 3), see `sum_leans`.
    """

    counts: Array
    right: Array
    own: Array
    near: Array
    right_moment: Array
    wrong_moment: Array
    leans: Array

    @classmethod
    def of(cls, z: Rows, codes: Codes, nearest: Codes, means: Array) -> SampleSums:
        """From samples, client effects and all; nearest: the class whose mean is nearest."""
        classes = len(means)
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
            sum_leans(z, codes, nearest, means),
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


def sum_leans(z: Rows, codes: Codes, nearest: Codes, means: Array) -> Array:
    """Sums that say how samples vary in how much of their class mean, and of the nearest one, is in
    them: of those that lie nearest to their own class, and of the others.

    (2, 3, 3, 3): products of (1, a), a being a sample's coefficients of these means (of its own
    alone where that is the nearest); and, beside an empty first row and column, the inverse of the
    products of the means, and these products.
    """
    found = np.zeros((2, 3, 3, 3))
    squares = np.sum(means**2, axis=1)
    size, other = squares[codes], squares[nearest]
    both = np.einsum("nd,nd->n", means[codes], means[nearest])
    first = np.einsum("nd,nd->n", z, means[codes].astype(z.dtype)).astype(float)
    second = np.einsum("nd,nd->n", z, means[nearest].astype(z.dtype)).astype(float)
    least = 1e-6 * max(float(squares.mean()), 1e-300)
    right = (nearest == codes) & (size > least)
    determinant = size * other - both**2
    wrong = (
        (nearest != codes) & (determinant > 1e-6 * size * other) & (np.minimum(size, other) > least)
    )
    one = np.stack([np.ones(right.sum()), first[right] / size[right], np.zeros(right.sum())])
    found[0, 0] = one @ one.T
    found[0, 1, 1, 1], found[0, 2, 1, 1] = np.sum(1 / size[right]), np.sum(size[right])
    t, u, v, w = determinant[wrong], size[wrong], other[wrong], both[wrong]
    x, y = first[wrong], second[wrong]
    two = np.stack([np.ones(t.size), (v * x - w * y) / t, (u * y - w * x) / t])
    found[1, 0] = two @ two.T
    for place, (uu, vv, uv) in enumerate(((v / t, u / t, -w / t), (u, v, w)), start=1):
        cross = uv.sum()
        found[1, place, 1:, 1:] = [[uu.sum(), cross], [cross, vv.sum()]]
    return found


def sum_moves(about: Rows, codes: Codes, owner: Owner, classes: int) -> Array:
    """Sums over clients' classes of means over their distinct samples i, j, k, l, which lie by x
    about the class mean: how many samples, x_i x_j, (x_i x_j)(x_i x_k), (x_i x_j)(x_k x_l), and
    the variance per direction, (5,).

    Where a class is moved by b, samples vary by C about that and C is no more along b than along
    others, the second less the third is b'Cb = the variance times bb, which is the first.
    """
    found = np.zeros(5)
    _, place, sizes = np.unique(owner * classes + codes, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(sizes)
    for end, size in zip(ends, sizes, strict=True):
        if size < 4:
            continue
        n = min(int(size), MOST_MOVED)
        x = about[order[end - size : end - size + n]].astype(float)
        G = x @ x.T
        own = np.diag(G).copy()
        np.fill_diagonal(G, 0.0)
        rows = G.sum(1)
        squares = float(np.sum(G**2))
        triples = float(np.sum(rows**2)) - squares
        quads = float(rows.sum()) ** 2 - 4 * triples - 2 * squares
        pairs = float(rows.sum()) / (n * (n - 1))
        found += n * np.array(
            [
                1.0,
                pairs,
                triples / (n * (n - 1) * (n - 2)),
                quads / (n * (n - 1) * (n - 2) * (n - 3)),
                (float(own.mean()) - pairs) / x.shape[1],
            ]
        )
    return found


@dataclass(frozen=True, eq=False)
class ShapeSums:
    """Sums over pairs of samples of one client and class that say how alike their shapes are: of
    products of differences in a few random directions, by class, (K, s, s), and how many, (K,); and
    of their squares within clients' classes. moves: see `sum_moves`.
    """

    by_class: Array
    pairs: Array
    squares: float
    square_pairs: float
    alone: float
    moves: Array

    @classmethod
    def of(
        cls, rest: Rows, codes: Codes, owner: Owner, classes: int, moves: Array | None = None
    ) -> ShapeSums:
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
        moves = np.zeros(5) if moves is None else moves
        return cls(by_class, pairs, squares, square_pairs, alone, moves)

    @property
    def swing(self) -> float:
        """The variance, among samples of a client's class, of how much of its move each has."""
        weight, pairs, triples, quads, average = self.moves / max(self.moves[0], 1e-300)
        if not weight or quads <= 0:
            return 0.0
        return float(np.clip((triples - quads - average * pairs) / quads, 0.0, 1.0))

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


def powers_of(sums: Array) -> Array:
    """The variances of common effects and of those by class, per direction."""
    top, below, squares, free = sums.T
    common = np.divide(top, below, out=np.zeros_like(top), where=below > 0)
    both = np.divide(squares, free, out=np.zeros_like(top), where=free > 0)
    return np.stack([common, both - np.maximum(common, 0.0)], axis=1)
