"""The laws by which a double draws clients: what real features look like, in a few arrays.

Classes. In coordinates where samples vary alike in all directions (covariance within clients and
classes = I), turned so that the class means span the first r of them, a sample of class c of client
i is

    z = m_c + (what a sample has of its own) + (1 + w) (a_i + b_ic),

with client effects a_i, common to its classes, and b_ic, one per class, each class along its own
directions; w varies from sample to sample: a writer's slant does, so that it says less about what
is written. A misclassified sample does not lie in the tail of its class: it lies in another class.
So its first r coordinates are a mixture over the class k that the nearest mean says: about rho m_c
where k = c, else about u m_c + v m_k, where rho, u and v vary among samples. Instead they may be
resampled from all clients' residuals of the class, clients' effects taken out. The rest is Gaussian
given the coordinates, which it follows by a slope, each class by its own where samples are enough:
what tells two classes apart is not what tells two others apart, and a client of few classes gains
from that. A share of its variance is in a few directions of the class, and another in a few of the
client's class: a writer's sevens are alike in more than their mean, so that more of them teach
less. Samples that a network was trained on have a law of their own, and held-out ones another.
Class shares are Dirichlet-multinomial.

Numbers: y = x'(theta + d_i) + noise with variance components by feature, and features that are
Gaussian within clients, about client means that are Gaussian too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import gammaln

from fedasym.core.numbers import Array
from fedasym.exact.draws import seeded_generator
from fedasym.models.sums import (
    SHAPED,
    ClassRows,
    Codes,
    EffectSums,
    Frame,
    Owner,
    Rows,
    SampleSums,
    ShapeSums,
    add_up,
    factor_covariance,
)

SHARES, LABELS, EFFECTS, COORDINATES, REST, SHAPES = range(6)  # roles in a path of seeds
SMOOTHING = 4.0  # samples of a class that its prior confusions count for
NEARNESS = 0.15  # of the middle squared distance of two classes: the reach of prior confusions
SHRINKAGE = 0.05  # of a covariance that has as many directions as samples, towards its mean
DISTINCT = 3.0  # standard errors by which two laws differ
FARTHER = 0.1  # and the share of squared distances from the class mean
DIRECTIONS = 2000  # that shapes are made of
LEAST_TOLD = 10  # training samples for each unknown of slopes of the classes
MOST_SLOPES = 2**22  # numbers in slopes of the classes, which a file keeps
LEAST_LEANING = 10  # samples that tell how much these vary along their class means
LEAST_LAW = 50  # held-out samples that make a law
MOST_RESAMPLED = 2**25  # numbers in coordinates that are kept to be resampled
BALANCING = 30  # turns in which shares are scaled to the classes' total, and to one
LOG_POWERS, POWER_STEPS = (-1.5, 1.5), 8  # of weights, so that balanced shares are uneven enough
LOG_TOTAL = (-6.0, 9.0)  # range of the logarithm of a Dirichlet law's total


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
        if counts is not None:
            return normalise(logs)
        uneven = np.sum(self.base * (1 - self.base)) / (self.total + 1) + np.sum(self.base**2)
        return balance_shares(logs, self.base, float(uneven))


def normalise(logs: Array) -> Array:
    """Shares from logarithms of weights, by client."""
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def balance_shares(logs: Array, base: Array, uneven: float) -> Array:
    """Shares whose mean over clients is the base, and whose squares add up to `uneven` on average,
    as those of a Dirichlet law do: scaling weights to the base alone would even clients out.

    >>> law = ShareLaw(np.full(10, 0.1), 1.0, 0.1, 0.1)
    >>> shares = law.draw_shares(60, np.random.default_rng(0))
    >>> bool(np.abs(shares.mean(0) - 0.1).max() < 0.001)
    True
    >>> round(float(np.sum(shares**2, axis=1).mean()), 2)  # (alpha + 1) / (10 alpha + 1)
    0.55
    """

    def scale(power: float) -> Array:
        shares = normalise(power * logs)
        for _ in range(BALANCING):
            shares *= base / np.maximum(shares.mean(0), 1e-300)
            shares /= shares.sum(1, keepdims=True)
        return shares

    low, high = LOG_POWERS
    for _ in range(POWER_STEPS):
        middle = (low + high) / 2
        found = float(np.sum(scale(np.exp(middle)) ** 2)) / len(logs)
        low, high = (middle, high) if found < uneven else (low, middle)
    return scale(np.exp((low + high) / 2))


@dataclass(frozen=True, eq=False)
class CoordinateLaw:
    """What a sample has of its own: coordinates by the nearest class k, and the rest given them.

    confusion: (K, K) shares of k. pull: rho. blend: u, v. right, wrong: factors of the coordinates'
    covariance where k = c, and else. slope: (r, d - r) of the rest on the coordinates' residual.
    rest: the symmetric root of the covariance of what is left, by which a class has its directions
    in training as in held-out samples. residuals, codes: coordinates less the class mean, and their
    classes, where they are resampled. class_slopes: (K, r, d - r), what each class's own slope adds
    to `slope`, where samples are enough to tell. leans: (2, 2, 2), roots of the covariances of
    rho (where k = c) and of u, v among samples.
    """

    confusion: Array
    pull: float
    blend: Array
    right: Array
    wrong: Array
    slope: Array
    rest: Array
    leans: Array
    residuals: Rows | None = None
    codes: Codes | None = None
    class_slopes: Array | None = None

    @property
    def errors(self) -> float:
        """The share of samples that lie nearest to another class, classes alike."""
        return float(1 - np.mean(np.diag(self.confusion)))


def estimate_coordinates(
    sums: SampleSums,
    means: Array,
    rank: int,
    kept: tuple[Rows, Codes] | None = None,
    moments: Array | None = None,
) -> CoordinateLaw:
    """From sums over samples. kept: residuals of the coordinates and their classes, where they are
    resampled; moments: sums of products by class, where samples tell slopes of classes apart.
    """
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
    leans = np.stack(
        [
            estimate_leans(part, np.array(middle), float(np.trace(S)), rank)
            for part, middle, S in zip(
                sums.leans, ((pull, 0.0), blend), (spread, other), strict=True
            )
        ]
    )
    spread = spread - leans[0, 0, 0] * m.T @ (hits[:, None] * m) / max(float(hits.sum()), 1.0)
    crossed_means = leans[1, 0, 1] * m.T @ off @ m
    both = m.T @ ((leans[1, 0, 0] * off.sum(1) + leans[1, 1, 1] * off.sum(0))[:, None] * m)
    other = other - (both + crossed_means + crossed_means.T) / max(missed, 1.0)
    if kept is not None:
        right, wrong = sums.scatter(means, 1.0, np.array([1.0, 0.0]))
    samples = float(sums.counts.sum())
    slope, left = regress_rest(right + wrong, rank, samples)
    class_slopes = None
    if moments is not None:
        class_slopes, taken = regress_classes(moments, slope, left, samples)
        left = left - taken
    return CoordinateLaw(
        smooth_confusions(sums.counts, m, missed / max(float(sums.counts.sum()), 1.0)),
        pull,
        blend,
        factor_covariance(spread),
        factor_covariance(other),
        slope,
        root_of_rest(left, samples),
        np.stack([root_covariance(each) for each in leans]),
        None if kept is None else kept[0],
        None if kept is None else kept[1],
        class_slopes,
    )


def estimate_leans(sums: Array, middle: Array, spread: float, rank: int) -> Array:
    """The covariance of the coefficients among samples, about `middle`, less what other directions
    add to it: where these vary by s, s times the inverse of the means' products.

    spread: the trace of the covariance of all, of which s is what the leans leave to a direction.
    """
    count = sums[0, 0, 0]
    if count < LEAST_LEANING:
        return np.zeros((2, 2))
    first, moment = sums[0, 0, 1:] / count, sums[0, 1:, 1:] / count
    inverse, products = sums[1, 1:, 1:] / count, sums[2, 1:, 1:] / count
    crossed = np.outer(middle, first)
    found = moment - crossed - crossed.T + np.outer(middle, middle)
    room = rank - float(np.sum(inverse * products))
    if room < 1:  # the means leave no direction to compare with
        return np.zeros((2, 2))
    s = max(spread - float(np.sum(found * products)), 0.0) / room
    S = found - s * inverse
    root = root_covariance(S) if np.trace(S) > 0 else np.zeros((2, 2))
    return np.asarray(root @ root)


def regress_rest(scatter: Array, rank: int, samples: float) -> tuple[Array, Array]:
    """The slope of the rest on the coordinates' residuals, and products of what is left, from sums
    of products of both.
    """
    if len(scatter) == rank:
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
    return slope, scatter[rank:, rank:] - taken - taken.T + slope.T @ base @ slope


def add_products(about: Rows, codes: Codes, rank: int, classes: int) -> Array:
    """Sums of products by class, of samples' coordinates about their class means and all of them,
    (K, r, d).
    """
    found = np.zeros((classes, rank, about.shape[1]))
    for kind in np.unique(codes):
        rows = about[codes == kind]
        found[kind] = rows[:, :rank].T @ rows
    return found


def regress_classes(
    moments: Array, slope: Array, left: Array, samples: float
) -> tuple[Array, Array]:
    """What each class's own slope adds to the common one, as far as it explains more than chance,
    and the products that it takes from what that one left.

    moments: (K, r, d) sums of products by class, of the coordinates' residuals and all.
    """
    rank = len(slope)
    found = np.zeros((len(moments), *slope.shape))
    taken = np.zeros_like(left)
    chance = rank * max(float(np.trace(left)), 0.0) / max(samples - rank * len(moments), 1.0)
    for kind, moment in enumerate(moments):
        base, cross = moment[:, :rank], moment[:, rank:] - moment[:, :rank] @ slope
        firm = base + max(0.02 * np.trace(base) / rank, 1e-300) * np.eye(rank)
        own = np.asarray(scipy.linalg.solve(firm, cross, assume_a="pos"))
        own *= max(1 - chance / max(float(np.sum(own * cross)), 1e-300), 0.0)
        explained = own.T @ cross
        taken += explained + explained.T - own.T @ base @ own
        found[kind] = own
    return found, taken


def root_of_rest(left: Array, samples: float) -> Array:
    """The root of the rest's covariance, from sums of products, a little towards its mean."""
    S = (1 - SHRINKAGE) * left / max(samples, 1.0)
    more = max(len(S), 1)
    S[np.diag_indices(len(S))] += SHRINKAGE / (1 - SHRINKAGE) * np.trace(S) / more
    return root_covariance(S) if len(S) else S


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


@dataclass(frozen=True, eq=False)
class ClassLaws:
    """The laws of classes: z = (x - mean) turn.

    common, by_class: factors of the effects' covariances; by_kind: of those of each class along the
    class means, (K, r, r) or none. sums: by client, what the powers of the effects are ratios of
    (`EffectSums`). class_shape, cell_shape: in how many directions of its own a class, and a
    client's class, varies more; 0: none. swing: the variance of how much of a client's move its
    samples have.
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
    swing: float
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
        unknown = frame.rank * len(frame.class_sizes)
        told = resampled and unknown * shape[1] <= MOST_SLOPES
        told = told and frame.class_sizes.sum() >= LEAST_TOLD * unknown
        counts, by_client = [], []
        seen = [0, 0]
        for rows in blocks():
            codes, owner, train = rows.codes, rows.owner, rows.train
            centred = (rows.x - frame.mean.astype(kind)).astype(kind)
            distances = frame.measure_distances(centred, codes, train)
            z = centred @ frame.turn.astype(kind)
            del centred
            parts = frame.read_samples(z, codes, owner, train)
            first, second = (frame.add_samples(*part) for part in parts)
            shapes = frame.add_shapes(z[train], codes[train], owner[train], parts[0][0])
            del z
            effects = rows.cells(kind).measure_effects(frame, rows.clients)
            by_client.append(effects.by_client)
            counts.append(rows.count_classes())
            moments = [add_products(*part, frame.rank, rows.classes) for part in parts if told]
            sums = (
                first,
                second,
                replace(effects, by_client=np.zeros(())),
                shapes,
                distances,
                np.stack(moments) if told else np.zeros(0),
            )
            total = tuple(map(add_up, total, sums)) or sums
            for place, (about, kinds) in enumerate(parts if resampled else ()):
                some = np.arange(-seen[place] % every, len(kinds), every)
                kept[place].append((about[some, : frame.rank].astype(np.float32), kinds[some]))
                seen[place] += len(kinds)
        *samples, effects, shapes, distances, products = total
        effects = replace(effects, by_client=np.concatenate(by_client))
        every_count = np.concatenate(counts)
        apart = [
            (np.concatenate([rows for rows, _ in part]), np.concatenate([kind for _, kind in part]))
            for part in kept
            if part
        ]
        laws = cls.from_sums(
            frame, samples, distances, effects, shapes, every_count, apart, list(products)
        )
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
        products: Sequence[Array] = (),
    ) -> ClassLaws:
        """From sums over the training samples and over the held-out ones. kept: residuals and codes
        of each to resample; products: by class (`add_products`).
        """
        distinct = are_distinct(distances, len(frame.class_sizes))
        parts = samples if distinct else samples[:1]
        laws = [
            estimate_coordinates(
                part,
                frame.means,
                frame.rank,
                kept[place] if kept else None,
                products[place] if products else None,
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
            shapes.swing,
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
        scales = self._leave_room(scales)
        for part, (law, rows) in enumerate(((self.train, split == 0), (self.held, split > 0))):
            z[rows] = self._draw_samples(
                law, codes[rows], (picks[rows], weights), seed, part, scales
            )
        amount = np.ones(len(owner))
        for part, rows in enumerate((split == 0, split > 0)):
            rng = seeded_generator(seed, EFFECTS, 1 + part)
            amount[rows] += np.sqrt(self.swing) * rng.standard_normal(int(rows.sum()))
        z += amount[:, None].astype(np.float32) * self._draw_effects(
            owner, codes, m, seed, scales.effects
        )
        back = np.linalg.inv(self.turn).astype(np.float32)
        return z @ back + self.mean.astype(np.float32), codes, owner, split

    def _leave_room(self, scales: Scales) -> Scales:
        """Scales less what samples vary by as they have more or less of a move."""
        power = np.sum(self.common**2, axis=1) + np.sum(self.by_class**2, axis=1)
        taken = self.swing * scales.effects**2 * power
        first, rest = (
            float(np.sqrt(max(1 - each.mean(), 0.0))) if each.size else 1.0
            for each in (taken[: self.rank], taken[self.rank :])
        )
        return replace(scales, coordinates=first * scales.coordinates, rest=rest * scales.rest)

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
            lean = rng.standard_normal((n, 2), dtype=np.float32)
            a, b = np.where(right, *(lean @ each.T.astype(np.float32) for each in law.leans)).T
            base += a[:, None] * means[codes, :r] + b[:, None] * means[nearest, :r]
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
        rest = noise @ law.rest.T.astype(np.float32) + base @ law.slope.astype(np.float32)
        if law.class_slopes is not None:
            for kind in np.unique(codes):
                here = codes == kind
                rest[here] += base[here] @ law.class_slopes[kind].astype(np.float32)
        z[:, r:] += np.float32(scales.rest) * rest
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
