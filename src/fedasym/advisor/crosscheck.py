"""Predictions beside what samples say without a model of how clients differ; who gains.

Numbers: GCV (section 9). A client's residuals e are about the shared model of the others (or, for
local methods, its labels). Along its axes, with k = c/(c + x) for the ridge c/n, GCV_i(c) = (sum (k
e)^2 + rest)/n / ((n - sum (1 - k))/n)^2 estimates the client's test error. Classes: the probes of
`class_statistics`. Where predictions and samples disagree by more than their errors, the ranking
follows the samples.

A client's own samples give a noisy estimate of its gain; the model gives the gain of a client of
its size. The two are weighed by how much clients really differ beyond the noise of the estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.class_estimates import (
    ClassLook,
    ClassMoments,
    ClientSizes,
    estimate_from_held,
    estimate_world,
    look_at_clients,
)
from fedasym.advisor.class_predictions import (
    AccuracyTable,
    LogisticRidges,
    predict_class_accuracies,
)
from fedasym.advisor.class_statistics import LEAST_TESTED, PROBE_ROWS, Probes
from fedasym.advisor.data import Classes, read_classes, spread_places
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.moments import AxisVariances
from fedasym.advisor.predictions import Prediction, is_average_or_alone, stage_ridge
from fedasym.advisor.statistics import SizeGroups, Summary
from fedasym.algorithms import PAPER, Algorithm, Objective
from fedasym.core.numbers import Array
from fedasym.core.runtime import few_threads
from fedasym.data.federation import Federation
from fedasym.exact.held_out import (
    STRENGTHS,
    TEST,
    VALIDATION,
    HeldOut,
    PooledSamples,
    SoftmaxHeldOut,
)
from fedasym.theory.classes.squared_labels import (
    LabelModel,
    best_label_ridge,
    probe_accuracy,
    shared_error,
)

Heads = TypeVar("Heads", bound=HeldOut)

CURVE_POINTS = 49
# ridges, in units of the samples' own scale, that mean none and infinite
NO_RIDGE, ENDLESS_RIDGE = (1e-9, 1e9)
CONTRADICTED = 3.0  # standard errors
NOTABLE_LOSS = 0.05  # share of the error
# of accuracy: a smaller disagreement between model and probe is not worth a word
NOTABLE_ACCURACY = 0.02
# methods without a probe of their own
LIKE_METHODS = {"ftfa": "rtfa", "one_step": "rtfa", "local": "local_ridge"}
JOINT_METHODS = ("maml", "pfedme")
QUICK_CLIENTS = 200  # that are looked at
QUICK_FEATURES = 600  # more are projected at random
QUICK_WORK = 1e10  # multiplications of the second look
LEVELLED = ("fedavg", "rtfa", "local_ridge")  # whose levels are measured
# clients whose least-squares heads give the levels: their number, samples, numbers, multiplications
MOST_LEVEL_CLIENTS = 1000
MOST_LEVEL_ROWS = 2000
LEVEL_NUMBERS = 2**25
SQUARED_WORK = 4e10
# clients whose heads with the logistic loss are set beside these, and multiplications of one pass
LEVEL_CLIENTS = 40
LEAST_LEVEL_CLIENTS = 16
LEVEL_ROWS = 500  # training samples of each
LEVEL_WORK = 1e8
# multiplications of one pass over the samples of the shared model with that loss, and passes
SHARED_WORK = 1.5e9
SHARED_STEPS = 20
JOINT_CLIENTS = 100  # on which least-squares heads of all algorithms are compared
JOINT_FEATURES = 300
CLEAR = 2.0  # standard errors of a difference on the same clients
LEAST_LEVELLED = 200  # held-out samples; with fewer, training samples are left out in turn


@dataclass(frozen=True, eq=False)
class RidgeCurves:
    """Estimated test errors (m, C) of clients along ratios c; first: no ridge, last: no change."""

    ratios: Array
    errors: Array

    @cached_property
    def mean(self) -> Array:
        """Over clients."""
        return np.asarray(self.errors.mean(0))

    @property
    def best(self) -> float:
        """The ratio of lowest mean error."""
        return float(self.ratios[int(np.argmin(self.mean))])

    def at(self, ratio: float) -> tuple[float, float]:
        """Mean error at a ratio, interpolated, and its standard error over clients."""
        errors = self.of_clients(ratio)
        return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))

    def of_clients(self, ratio: float) -> Array:
        """Every client's error at a ratio."""
        logs = np.log(self.ratios)
        at = float(np.log(np.clip(ratio, self.ratios[0], self.ratios[-1])))
        after = int(np.clip(np.searchsorted(logs, at), 1, logs.size - 1))
        share = (at - logs[after - 1]) / (logs[after] - logs[after - 1])
        return np.asarray((1 - share) * self.errors[:, after - 1] + share * self.errors[:, after])

    def gain(self, ratio: float, over: float) -> tuple[float, float]:
        """How much lower the mean error is at `ratio` than at `over`, with its standard error."""
        paired = self.of_clients(over) - self.of_clients(ratio)
        return float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired)))


def gcv_curves(summaries: Sequence[Summary]) -> tuple[RidgeCurves, RidgeCurves]:
    """The curves of all clients, about the others' model (from residuals) and alone (labels)."""
    scale = np.mean([each.power.mean() for each in summaries])
    between = np.geomspace(1e-4, 1e4, CURVE_POINTS)
    ratios = scale * np.concatenate([[NO_RIDGE], between, [ENDLESS_RIDGE]])
    about, alone = np.stack([gcv(each, ratios) for each in summaries], axis=1)
    return RidgeCurves(ratios, about), RidgeCurves(ratios, alone)


def gcv(client: Summary, ratios: Array) -> Array:
    """One client's curves (2, C), from the squares of its residuals and of its labels."""
    n = client.samples
    k = 1 / (1 + client.power / ratios[:, None])
    left = (np.stack([client.residual, client.raw]) @ (k**2).T + client.rest) / n
    return np.asarray(left / ((n - k.shape[1] + k.sum(1)) / n) ** 2)


def compare_losses(
    table: dict[str, Prediction],
    shared: RidgeCurves,
    alone: RidgeCurves,
    found: Estimates,
    samples: float,
    blind: Sequence[str] = (),
    algorithms: Mapping[str, Algorithm] = PAPER,
) -> dict[str, Prediction]:
    """Beside each prediction its GCV estimate, and the loss at that level where the two disagree.

    Where samples are scarce it does not decide: the others' model is then nothing like the one with
    the client's samples in. Nor for the methods in `blind`, which rest on a few tiny eigenvalues
    that the model was told and GCV divides by. Shared models of other servers than averages have no
    such estimate: they follow the average with the same kind of client stage.
    """
    out = dict(table)
    noise2 = found.noise2
    averages: dict[Objective | None, str] = {}
    for name, row in table.items():
        algorithm = algorithms[name]
        ridge = stage_ridge(algorithms[name], row.ridge)
        if ridge is None or not is_average_or_alone(algorithm):
            continue
        if not algorithm.shares_nothing:
            averages.setdefault(algorithm.personalise.linear_objective, name)
        curve = alone if algorithm.shares_nothing else shared
        error, spread = curve.at(max(float(ridge) * samples, curve.ratios[0]))
        gcv = error - noise2
        out[name] = replace(row, measured=gcv, measured_error=spread)
        wide = np.hypot(spread, (row.new.high - row.new.low) / 4)
        apart = abs(gcv - row.new.value)
        notable = np.isfinite(apart) and apart > max(CONTRADICTED * wide, NOTABLE_LOSS * error)
        if notable and row.new.value > 0 and not found.scarce and name not in blind:
            factor = max(gcv, 0.0) / row.new.value
            out[name] = replace(out[name], trusted=row.loss.value * factor, contradicted=True)
    for name, row in out.items():
        like = averages.get(algorithms[name].personalise.linear_objective)
        if row.measured is None and like is not None and out[like].contradicted:
            factor = out[like].trusted / out[like].loss.value
            out[name] = replace(row, trusted=row.loss.value * factor, contradicted=True)
    return out


@dataclass(frozen=True)
class ClientAdvice:
    """One client: its ridge, and how much lower its test error is predicted with its own model.

    gain: in squared labels, with its 95% interval; below 0 the client is predicted to lose.
    """

    client: Hashable
    samples: int
    aspect: float
    ridge: float
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """gains, loses, or unclear where the interval holds 0."""
        return "gains" if self.low > 0 else "loses" if self.high < 0 else "unclear"


def regression_gains(
    summaries: Sequence[Summary], about: AxisVariances, ratio: float, kurtosis: float, error: float
) -> tuple[ClientAdvice, ...]:
    """Every client's gain with the ridge ratio/n.

    about: variances of residuals about the others' model. error: of the mean gain, common to all.
    """
    seen = np.array([gain_of_client(each, about, ratio, kurtosis) for each in summaries])
    model, own, error2 = seen.T
    off = own - model
    weight = 1 / np.maximum(error2 / max(error2.max(), 1e-300), 1e-12)
    between = max(float((weight**2 * (off**2 - error2)).sum() / (weight**2).sum()), 0.0)
    trust = between / (between + error2) if between else np.zeros_like(error2)
    gain, spread = model + trust * off, 1.96 * np.sqrt(trust * error2 + error**2)
    return tuple(
        ClientAdvice(each.name, each.samples, each.aspect, ratio / each.samples, *ends)
        for each, ends in zip(summaries, interval_ends(gain, spread), strict=True)
    )


def interval_ends(middle: Array, spread: Array) -> list[list[float]]:
    """By client: the middle of an interval, its low and its high end."""
    found: list[list[float]] = np.stack([middle, middle - spread, middle + spread], 1).tolist()
    return found


def gain_of_client(
    client: Summary, about: AxisVariances, ratio: float, kurtosis: float
) -> tuple[float, float, float]:
    """GCV(no change) - GCV(ratio): expected by the model, seen in samples, and its variance."""
    n, x = client.samples, client.power
    ratio = max(ratio, NO_RIDGE * max(float(x.mean()), 1e-300))
    k = 1 / (1 + x / ratio) if np.isfinite(ratio) else np.ones_like(x)
    room = (n - k.size + k.sum()) / n
    a, a0 = (1 - k**2 / room**2) / n, (1 - 1 / room**2) / n
    v = about.noise2 + about.spread2 * x / client.dimension
    beyond = (n - x.size) * about.noise2
    squares = float(((a * v) ** 2).sum()) + a0**2 * beyond * about.noise2
    variance = 2 * (1 + max(kurtosis, 0) / 2) * squares
    return float(a @ v + a0 * beyond), float(a @ client.residual + a0 * client.rest), variance


@dataclass(frozen=True, eq=False)
class LevelRows:
    """Samples of some clients on which heads are set beside one another, in few directions.

    split: 0 for training, 1 for validation, 2 for test. halves: too few are for validation or for
    test, so that every other one of each client has the place of the one, and then of the other.
    """

    rows: Array
    codes: NDArray[np.intp]
    owner: NDArray[np.intp]
    split: NDArray[np.intp]
    count: int
    halves: bool

    @classmethod
    def of(cls, classes: Classes, most: int, samples: int = LEVEL_ROWS) -> LevelRows:
        """Up to so many clients, evenly spread, and up to so many training samples of each."""
        data = thin_clients(classes, most).data
        parts: list[tuple[Array, Array, int, NDArray[np.intp]]] = []
        for place in range(len(data.parts)):
            (X, codes), (held, answers) = data.rows(place), data.held_out_rows(place)
            chosen = spread_places(len(codes), samples)
            parts.append((X[chosen], codes[chosen], place, np.zeros(chosen.size, np.intp)))
            chosen = spread_places(len(answers), PROBE_ROWS)
            kinds = 1 + data.test_mask(place)[chosen].astype(np.intp)
            parts.append((held[chosen], answers[chosen], place, kinds))
        split = np.concatenate([part[3] for part in parts])
        halves = any(np.sum(split == part) < LEAST_TESTED for part in (1, 2))
        if halves:
            places = np.flatnonzero(split > 0)
            split[places] = 1 + np.arange(places.size) % 2
        return cls(
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]).astype(np.intp),
            np.repeat([part[2] for part in parts], [len(part[1]) for part in parts]),
            split,
            classes.count,
            halves,
        )

    @property
    def leaves_out(self) -> bool:
        """Whether so few samples are held out that training samples are left out in turn."""
        return bool(np.sum(self.split > 0) < LEAST_LEVELLED)

    def prepare(self, kind: type[Heads]) -> Heads:
        """The clients ready to be scored with a kind of heads."""
        told = self.rows, self.codes, self.owner, self.split, self.count
        return kind.of(*told, intercept=False, left_out=self.leaves_out)

    def score(self, board: HeldOut, names: Sequence[str] = LEVELLED) -> dict[str, Array]:
        """Accuracies of heads by client on held-out samples, or with training samples left out one
        by one where few are held out.
        """
        score = board.score_halves if self.halves else board.score
        return {name: score(PAPER[name]) for name in names}

    def score_shared(self, theta: Array, part: int) -> Array:
        """Accuracies of one model by client, on validation samples or on those to report."""
        held = self.split > 0 if self.halves and part == TEST else self.split == part + 1
        right = (self.rows[held] @ theta).argmax(1) == self.codes[held]
        clients = int(self.owner.max()) + 1
        counts = np.bincount(self.owner[held], minlength=clients)
        hits = np.bincount(self.owner[held], right, minlength=clients)
        shares: Array = np.full(clients, np.nan)
        np.divide(hits, counts, out=shares, where=counts > 0)
        return shares

    def fit_logistic(self, strengths: Sequence[float], theta: Array) -> Array:
        """The shared model with the logistic loss of all these clients, from one of some of them
        on, with the ridge that is best on validation samples.
        """
        train = np.flatnonzero(self.split == 0)
        most = int(SHARED_WORK / theta.size)
        chosen = train[spread_places(train.size, most)]
        X = self.rows[chosen].astype(np.float32)
        Y = np.eye(self.count, dtype=np.float32)[self.codes[chosen]]
        samples = PooledSamples.of(X, Y, (X.T @ X).astype(float))
        tried = []
        for strength in strengths:
            theta = samples.fit(strength, theta, SHARED_STEPS)
            tried.append((float(np.nanmean(self.score_shared(theta, VALIDATION))), theta))
        return max(tried, key=lambda each: each[0])[1]


def clear_difference(ours: Array, theirs: Array) -> float:
    """By how much ours are above theirs on the same clients, in the mean; 0 where that is within
    CLEAR standard errors.

    >>> clear_difference(np.array([0.8, 0.9, 0.7]), np.array([0.7, 0.7, 0.6])) > 0.1
    True
    >>> clear_difference(np.array([0.8, 0.6, 0.7]), np.array([0.7, 0.7, 0.6]))
    0.0
    """
    apart = (ours - theirs)[np.isfinite(ours - theirs)]
    if apart.size < 2:
        return 0.0
    mean = float(apart.mean())
    error = float(apart.std(ddof=1)) / np.sqrt(apart.size)
    return mean if abs(mean) > CLEAR * error else 0.0


class Level(NamedTuple):
    """The accuracy of heads by least squares, and what the logistic loss adds to it, as far as that
    is clear.
    """

    squared: float
    added: float

    @property
    def value(self) -> float:
        """What training is expected to reach."""
        return float(np.clip(self.squared + self.added, 0.0, 1.0))


def measure_levels(classes: Classes) -> dict[str, Level]:
    """Accuracies of heads by algorithm: by least squares on as many clients as the work allows, and
    how much more accurate heads with the logistic loss, which training has, are.

    The shared model with that loss is of all these clients, since the more samples it has the more
    it is above least squares; clients' own heads, which take their time, are of some of them.
    """
    classes = project_features(classes, QUICK_FEATURES)
    wide = LevelRows.of(classes, count_levelled(classes), MOST_LEVEL_ROWS)
    board = wide.prepare(HeldOut)
    squared = wide.score(board)
    n, d = min(float(classes.data.sizes.mean()), LEVEL_ROWS), wide.rows.shape[1]
    most = int(LEVEL_WORK / max(n * min(n, d) * classes.count, 1.0))
    some = LevelRows.of(classes, int(np.clip(most, LEAST_LEVEL_CLIENTS, LEVEL_CLIENTS)))
    theirs, heads = some.score(some.prepare(HeldOut)), some.prepare(SoftmaxHeldOut)
    ours = some.score(heads)
    added = {name: clear_difference(ours[name], theirs[name]) for name in LEVELLED}
    if not (wide.leaves_out or some.leaves_out):
        strength, theta = heads.fit_shared()
        theta = wide.fit_logistic((strength, strength / 10), theta)
        told = (wide.score_shared(each, TEST) for each in (theta, board.pooled))
        added["fedavg"] = clear_difference(*told)
        gains = (each["rtfa"] - each["fedavg"] for each in (ours, theirs))
        added["rtfa"] = added["fedavg"] + clear_difference(*gains)
    return {name: Level(float(np.nanmean(squared[name])), added[name]) for name in LEVELLED}


def count_levelled(classes: Classes) -> int:
    """On how many clients heads by least squares can be afforded."""
    d = int(classes.data.live.sum()) if classes.data.basis is None else classes.data.basis.shape[1]
    n = min(float(classes.data.sizes.mean()), MOST_LEVEL_ROWS)
    held = min(float(classes.data.held_sizes.mean()), PROBE_ROWS)
    k = min(n, d)
    work = 10 * k**3 + n * k * max(n, d) + 2 * STRENGTHS.size * held * k * classes.count
    most = min(SQUARED_WORK / work, LEVEL_NUMBERS / ((n + held) * d), MOST_LEVEL_CLIENTS)
    return max(int(most), LEVEL_CLIENTS)


def add_joint_methods(table: AccuracyTable, classes: Classes) -> dict[str, ExpectedAccuracy]:
    """The table, and algorithms whose shared model is not an average: they have no theory of
    classes, and follow rtfa as far as least-squares heads of both differ clearly on held-out
    samples.
    """
    found = {
        name: ExpectedAccuracy(row.accuracy.value, row.measured, row.trusted)
        for name, row in table.items()
    }
    level = LevelRows.of(project_features(classes, JOINT_FEATURES), JOINT_CLIENTS)
    if level.leaves_out:  # leaving out is exact for averages alone
        return found
    scores = level.score(level.prepare(HeldOut), ("rtfa", *JOINT_METHODS))
    for name in JOINT_METHODS:
        near = found["rtfa"].trusted + clear_difference(scores[name], scores["rtfa"])
        measured = float(np.nanmean(scores[name]))
        found[name] = ExpectedAccuracy(None, measured, float(np.clip(near, 0.0, 1.0)))
    return found


def compare_accuracies(
    table: AccuracyTable,
    probes: Probes,
    world: LabelModel,
    sizes: ClientSizes,
    found: ClassMoments,
    levels: Callable[[], Mapping[str, Level]] | None = None,
) -> AccuracyTable:
    """Beside each prediction what the samples say; they decide the ranking where the two disagree.

    One contradiction is enough: some by samples and others by the model would mix two scales.
    levels: measures accuracies on more clients and with the loss that training has
    (`measure_levels`), where samples decide.
    """
    out = dict(table)
    error = shared_error(world, found.excess)
    for name, place in best_ratios(probes).items():
        alone = PAPER[name].shares_nothing
        row = table[name]
        right, spread = probes.levels(alone).at(place)
        ratio = float(probes.ratios[place])
        kinds = zip(sizes.aspects.tolist(), sizes.kinds.samples.tolist(), strict=True)
        by_kind = [probe_accuracy(world, g, ratio / n, error, alone=alone) for g, n in kinds]
        expected = float(sizes.share @ by_kind)
        wide = np.hypot(spread, np.nan_to_num(row.new.high - row.new.low) / 4)
        off = bool(abs(right - expected) > max(CONTRADICTED * wide, NOTABLE_ACCURACY))
        told: dict[str, Any] = {"measured": right, "measured_error": spread, "expected": expected}
        out[name] = replace(row, contradicted=off, **told)
    probed = best_ratios(probes)
    if any(out[name].contradicted for name in probed):
        levelled = levels() if levels else {}
        for name in probed:
            level = levelled.get(name, Level(out[name].measured or 0.0, 0.0))
            out[name] = replace(out[name], contradicted=True, trusted=level.value)
    for name, like in LIKE_METHODS.items():
        if name in out and out[like].contradicted:
            gap = min(table[name].accuracy.value - table[like].accuracy.value, 0.0)
            trusted = float(np.clip(out[like].trusted + gap, 0.0, 1.0))
            near = replace(out[name], measured_error=out[like].measured_error)
            out[name] = replace(near, contradicted=True, trusted=trusted)
    return out


def best_ratios(probes: Probes) -> dict[str, int]:
    """The places of the best ratios by the samples."""
    return {
        "fedavg": len(probes.ratios) - 1,
        "rtfa": int(np.argmax(probes.choose_curve(False).mean)),
        "local_ridge": int(np.argmax(probes.choose_curve(True).mean[:-1])),
    }


def accuracy_gains(
    names: Sequence[object],
    sizes: Array,
    dimension: int,
    ratio: float,
    gains: Array,
    error: float,
    probes: Probes,
    places: Sequence[int],
    held_only: bool,
) -> tuple[ClientAdvice, ...]:
    """Every client's gain in accuracy with the ridge ratio/n.

    gains: what the model says for a client of each one's size. error: of the mean gain, which all
    share. places: the clients that the probes have seen. held_only: training samples are not to be
    trusted.
    """
    own, error2 = np.full(len(names), np.nan), np.full(len(names), np.inf)
    best = best_ratios(probes)["rtfa"]
    none = len(probes.ratios) - 1
    curves = (probes.shared_held,) if held_only else (probes.shared, probes.shared_held)
    for i, place in enumerate(places):
        counts = np.array([curve.count[i] for curve in curves], dtype=float)
        if counts.sum() < 2:
            continue
        first, second = (
            np.nan_to_num([curve.right[i, at] for curve in curves]) @ counts / counts.sum()
            for at in (best, none)
        )
        own[place] = first - second
        # as many answers change as either model gets wrong, at most; half a sample more is unseen
        changed = min(2 - first - second, 1.0)
        error2[place] = (max(changed - own[place] ** 2, 0.0) + 0.5 / counts.sum()) / counts.sum()
    seen = np.isfinite(own)
    off = np.where(seen, own - gains, 0.0)
    weight = np.where(seen, 1 / error2, 0.0)
    known2 = np.where(seen, error2, 0.0)
    excess = float((weight**2 * (off**2 - known2)).sum()) / max(float((weight**2).sum()), 1e-300)
    between = max(excess, 0.0)
    trust = np.where(seen, between / (between + error2), 0.0)
    gain = gains + trust * off
    spread = 1.96 * np.sqrt(np.where(seen, trust * known2, between) + error**2)
    return tuple(
        ClientAdvice(name, int(n), dimension / float(n), ratio / float(n), *ends)
        for name, n, ends in zip(names, sizes, interval_ends(gain, spread), strict=True)
    )


@dataclass(frozen=True)
class ExpectedAccuracy:
    """What theory and probes say of one algorithm: accuracies, shares of the clients' labels.

    theory: on the estimated population, None where it has no formula; samples: of least squares on
    held-out samples (or each left out), None where there are none; trusted: the one to rank by.
    """

    theory: float | None
    samples: float | None
    trusted: float


def foresee_accuracies(
    federation: Federation, *, clients: int = QUICK_CLIENTS, features: int = QUICK_FEATURES
) -> dict[str, ExpectedAccuracy]:
    """Accuracies of fedavg, rtfa, ftfa (stopped early), local_ridge and one step on classes; where
    enough samples are held out, of MAML and pFedMe too.

    Estimates come from at most `clients` clients, evenly spread, with all of their samples;
    predictions are for as many clients as the federation has. More than `features` features are
    projected onto so many random directions. Seconds.

    >>> import fedasym as fa
    >>> options = {"task": "classification", "classes": 2, "radius": 1.5, "centre": 1.5}
    >>> clients = fa.datasets.synthetic(**options, clients=30, dimension=40, seed=1)
    >>> found = foresee_accuracies(clients)
    >>> found["rtfa"].theory > found["local_ridge"].theory
    True
    """
    taken = read_classes(federation)
    sizes = taken.data.sizes.astype(float)
    some = project_features(thin_clients(taken, clients), features)
    with few_threads(some.data.dimension):
        seen = look_at_clients(some, QUICK_WORK)
        found = estimate_from_held(seen, QUICK_WORK) or seen.found
        share = float(seen.sizes.sum() / sizes.sum())  # the shared model errs less with all clients
        found = replace(found, excess=(found.excess[0] * share, found.excess[1] * share))
        shape = ClientSizes(SizeGroups.of(sizes), seen.dimension)
        world = estimate_world(found, taken.count)
        table, _ = predict_class_accuracies(found, world, shape, intervals=False)
        levels = partial(measure_levels, project_features(taken, features))
        table = compare_accuracies(table, seen.probes, world, shape, found, levels)
        return add_joint_methods(table, some)


def thin_clients(classes: Classes, most: int) -> Classes:
    """Some of the clients, evenly spread."""
    parts = classes.data.parts
    chosen = tuple(parts[int(place)] for place in spread_places(len(parts), most))
    return replace(classes, data=replace(classes.data, parts=chosen))


def project_features(classes: Classes, most: int) -> Classes:
    """Features in so many random directions, where there are more."""
    d = int(classes.data.live.sum())
    if d <= most:
        return classes
    basis: Array = np.linalg.qr(np.random.default_rng(6).standard_normal((d, most)))[0]
    return replace(classes, data=replace(classes.data, basis=basis))


def class_client_gains(
    seen: ClassLook,
    world: LabelModel,
    shape: ClientSizes,
    table: AccuracyTable,
    ridges: LogisticRidges,
    held_only: bool,
) -> tuple[Any, ...]:
    """Who gains, from the model for clients of each size and from their own samples."""
    error = shared_error(world, seen.found.excess)
    kept = probe_accuracy(world, 1.0, np.inf, error)
    tuned = [(float(g), best_label_ridge(world, float(g), error)) for g in shape.aspects]
    by_kind = np.array([probe_accuracy(world, *each, error) - kept for each in tuned])
    gains = by_kind[shape.kinds.place]
    rows = table["rtfa"], table["fedavg"]
    if any(row.contradicted for row in rows):  # then the samples say how much is gained on average
        gains = gains + (rows[0].trusted - rows[1].trusted) - float(shape.share @ by_kind)
    wide = seen.probes.choose_curve(False).gain(best_ratios(seen.probes)["rtfa"], -1)[1]
    sizes, places = seen.sizes, seen.places
    if seen.listed is not None and len(seen.listed) < len(sizes):
        sizes, gains, places = sizes[seen.listed], gains[seen.listed], list(range(len(places)))
    about = (seen.clients, sizes, seen.dimension, ridges.shared, gains, wide)
    return accuracy_gains(*about, seen.probes, places, held_only)
