"""Every algorithm's loss on the estimated population, members and new clients, intervals.

Clients of about one size are one kind; otherwise up to eight kinds by size, each with its own
aspect. Bias scales with radius^2 (for local methods norm^2) and variance with noise^2, so that one
prediction serves all draws of the estimates; where samples are scarce it does not, and draws are
predicted one by one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from fedasym.advisor.data import ClientData, spread_places
from fedasym.advisor.estimates import LEAST_SHARE, UNKNOWN, Estimates, Quantity
from fedasym.advisor.moments import PartedLoss, lacking_variance
from fedasym.advisor.statistics import (
    SizeGroups,
    Summary,
    have_common_covariance,
    noise_freedom,
    unit_losses,
)
from fedasym.algorithms import PAPER, Algorithm, Objective
from fedasym.algorithms.paper import SIMPLEST, averaging_twin
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.core.numbers import Array
from fedasym.exact.profile_likelihood import even_points
from fedasym.results import Comparison, Metric, Risk
from fedasym.theory.transforms import sample_support
from fedasym.verbs import fine_tuning, predict
from fedasym.worlds import Population
from fedasym.worlds.spectra import Spectrum

BARE_ASPECT = 0.05  # an aspect this close to 1 is moved away from it before paths are predicted
LOG_LOSS = Metric("log_loss", "log-losses", lower=True, share=False, tie=1e-10, columns=())
SAME_LIMITS = {  # algorithms that have no formula for given clients, and what stands for them
    name: averaging_twin(each).name for name, each in PAPER.items() if each.server.objective is None
}
PREDICTED = tuple(name for name in PAPER if name not in SAME_LIMITS)
PREDICTED_DRAWS = 512  # draws at which losses are predicted where samples are scarce
# |d - n| up to which the variance of (X'X)^{-1} is infinite: losses without a ridge have no upper
# end
NO_VARIANCE = 3


def ratio_to_limits(
    summaries: Sequence[Summary],
    place: NDArray[np.intp],
    samples: Array,
    ridge: Array,
    spectrum: Spectrum,
) -> tuple[Array, Array]:
    """Mean bias and variance by kind over their limits at its ridge; 1 if a limit is 0 or inf, or
    no client of the kind is there.
    """
    own = unit_losses(summaries, ridge[place] * np.array([each.samples for each in summaries]))
    world = Population(1.0, 1.0, summaries[0].dimension / samples, spectrum=spectrum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        limits = (
            predict(world, "rtfa", ridge=ridge)["rtfa"]
            if np.all(ridge > 0)
            else predict(world, "ftfa")["ftfa"]
        )
    count = np.maximum(np.bincount(place, minlength=samples.size), 1)

    def ratio(mine: Array, limit: Array) -> Array:
        mean = np.bincount(place, mine, samples.size) / count
        sound = np.isfinite(limit) & (limit > 0) & (mean > 0)
        return np.asarray(np.where(sound, mean / np.where(sound, limit, 1.0), 1.0))

    return ratio(own[0], np.asarray(limits.bias)), ratio(own[1], np.asarray(limits.variance))


@dataclass(frozen=True)
class Prediction:
    """One algorithm: what members and new clients can expect, the ridge, and what samples say.

    loss: above the noise, where labels are numbers; accuracy, log_loss: where they are classes;
        new: the first of these that is known, for a new client. All with 95% intervals; NaN where
        there is none.
    bias, variance: of the member's loss. ridge: that of a client of middling size; for classes the
        logistic loss's.
    measured, measured_error: what the samples say without the model, and its standard error: for
        numbers the loss of a new client by cross-validation over clients, or by folds where
        features are few; for classes the accuracy of a least-squares classifier around the others'
        model. expected: what the model says of that classifier.
    trusted: the number to rank by: the model's, or where the samples contradict it (`contradicted`:
        by more than the errors of both) the one moved to their level.
    note: where a number is not a formula's own.
    """

    algorithm: str
    loss: Quantity = UNKNOWN
    accuracy: Quantity = UNKNOWN
    log_loss: Quantity = UNKNOWN
    new: Quantity = UNKNOWN
    bias: float = float("nan")
    variance: float = float("nan")
    ridge: float | None = None
    measured: float | None = None
    measured_error: float | None = None
    expected: float | None = None
    trusted: float = float("nan")
    note: str = ""
    contradicted: bool = False

    @property
    def level(self) -> Quantity:
        """The number to rank by, in its interval: the model's, or as wide as the samples' error."""
        return self._ranked_loss() if np.isnan(self.accuracy.value) else self._ranked_accuracy()

    def _ranked_loss(self) -> Quantity:
        low, high = self.loss.low, self.loss.high
        error = self.measured_error
        if self.contradicted and self.loss.value > 0 and np.isfinite(self.trusted):
            factor = self.trusted / self.loss.value
            low, high = low * factor, high * factor
            if error is not None and np.isfinite(error):
                low, high = (
                    min(low, self.trusted - 1.96 * error),
                    max(high, self.trusted + 1.96 * error),
                )
        if not np.isfinite(self.trusted):
            return Quantity(self.trusted, low, high)
        return Quantity(self.trusted, max(min(low, self.trusted), 0.0), max(high, self.trusted))

    def _ranked_accuracy(self) -> Quantity:
        if not self.contradicted:
            return self.accuracy
        wide = 1.96 * (self.measured_error or 0.0)
        return Quantity(self.trusted, max(self.trusted - wide, 0.0), min(self.trusted + wide, 1.0))


@dataclass(frozen=True)
class Steps:
    """Where to stop fine-tuning: full-batch steps (epochs) of a size, and a new client's loss then.

    steps is infinite where training to convergence is best. loss: above the noise, where labels are
    numbers; accuracy: where they are classes. For classes, time is step x steps of descent on the
    logistic (softmax) loss, step and steps one way to spend it, local_step and epochs the same for
    `fa.train`, whose epoch of a middling client takes one step per batch of 32.
    """

    step: float
    steps: float
    loss: float = float("nan")
    accuracy: float = float("nan")
    time: float = float("nan")
    local_step: float = float("nan")
    epochs: int = 0


def population_of(
    found: Estimates, dimension: int, samples: float, power: float | None = None
) -> Population:
    """The estimated population for clients with so many samples."""
    world = Population(
        radius=np.sqrt(found.radius2),
        noise=np.sqrt(found.noise2),
        aspect=dimension / samples,
        norm=np.sqrt(max(found.norm2, found.radius2)),
        spectrum=found.spectrum,
        shift_power=found.power if power is None else power,
    )
    if not found.power or power is not None:
        return world
    # What is common has no preferred direction; what differs has: the optimum is their sum.
    share = min(found.radius2 / max(found.norm2, found.radius2), 1.0)
    return replace(
        world, optimum_weights=share * world.displacement + (1 - share) * found.spectrum.weights
    )


def candidates_of(beside: Sequence[Algorithm] = ()) -> dict[str, Algorithm]:
    """The paper's algorithms by name, and those that are looked at beside them."""
    return PAPER | {each.name: each for each in beside}


def is_average_or_alone(algorithm: Algorithm) -> bool:
    """Whether clients share their average, or nothing: a ridge about it then says all there is."""
    return algorithm.server.linear_objective in (Objective.POOLED, Objective.NOTHING)


def best_local_algorithm(rows: Mapping[str, Prediction]) -> str:
    """The better of the two ways of each client alone."""
    ways = [name for name in SIMPLEST if PAPER[name].shares_nothing]
    return min(ways, key=lambda name: rows[name].trusted)


def stage_ridge(algorithm: Algorithm, ridge: float | Array | None) -> float | Array | None:
    """The ridge that a client stage amounts to: infinite if it keeps its start, 0 if it fits all.

    None: the stage is of another kind, and has no form in the clients' own features here.
    """
    match algorithm.personalise.linear_objective:
        case Objective.SHARED:
            return np.inf
        case Objective.OWN:
            return 0.0
        case Objective.PENALISED:
            return 0.0 if ridge is None else ridge
    return None


def predict_regression(
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    clients: Sequence[Summary] = (),
    beside: Sequence[Algorithm] = (),
) -> dict[str, Prediction]:
    """The paper's algorithms and those beside them, members and new clients.

    clients: those at hand, for losses given their features.
    """
    algorithms = {
        name: each for name, each in candidates_of(beside).items() if name not in SAME_LIMITS
    }
    paper = {name: each for name, each in algorithms.items() if name in PAPER}
    tables = {
        member: predict_kinds(found, dimension, kinds, member, paper) for member in (True, False)
    }
    notes = {}
    for each in beside:
        for member, table in tables.items():
            risk, notes[each.name] = predict_one(each, found, dimension, kinds, member, table)
            tables[member] = Comparison({**table.rows, each.name: risk})
    share = kinds.count / kinds.count.sum()
    middle = kinds.median_kind
    out: dict[str, Prediction] = {}
    for name, algorithm in algorithms.items():
        parts = {}
        own_bias, own_variance = finite_factors(
            algorithm, tables[True][name].ridge, found, dimension, kinds, clients
        )
        for member, table in tables.items():
            risk = table[name]
            parts[member] = (
                mean_of(risk.bias * own_bias, share),
                mean_of(risk.variance * own_variance, share),
            )
        alone = algorithm.shares_nothing
        loss, new = (
            loss_interval(found, bias, variance, alone)
            for bias, variance in (parts[True], parts[False])
        )
        ridge = tables[True][name].ridge
        typical = (
            None
            if ridge is None
            else float(np.broadcast_to(np.asarray(ridge, dtype=float), share.shape)[middle])
        )
        bias, variance = parts[True]
        out[name] = Prediction(
            name, loss, new=new, bias=bias, variance=variance, ridge=typical, trusted=loss.value
        )
        out[name] = replace(out[name], note=notes.get(name, ""))
    out = (
        predict_draws(out, found, dimension, kinds, algorithms)
        if found.scarce
        else widen_for_clients(out, found, dimension, kinds, clients, algorithms)
    )
    if found.power:
        for each in filter(learns_jointly, paper.values()):
            out[each.name] = aligned_moreau(each, out, found, dimension, kinds)
    for name, like in SAME_LIMITS.items():
        note = f"as {like}, its limit: no formula for these clients"
        out[name] = replace(out[like], algorithm=name, note=note)
    return out


def predict_one(
    algorithm: Algorithm,
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    member: bool,
    table: Comparison[Risk],
) -> tuple[Risk, str]:
    """An algorithm beside the paper's, and a note where its formula is for infinitely many clients.

    Then it is moved to these by as much as rtfa is.
    """
    try:
        return (
            predict_kinds(found, dimension, kinds, member, {algorithm.name: algorithm})[
                algorithm.name
            ],
            "",
        )
    except NoFormula:
        world = replace(population_of(found, dimension, 1.0), aspect=dimension / kinds.samples)
        limits = predict(world, [algorithm, PAPER["rtfa"]])
    moved = np.asarray(table["rtfa"].loss) / np.asarray(limits["rtfa"].loss)
    risk = limits[algorithm.name]
    note = "with infinitely many clients, moved to these as rtfa is"
    return replace(risk, bias=risk.bias * moved, variance=risk.variance * moved), note


def finite_factors(
    algorithm: Algorithm,
    ridge: float | Array | None,
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    clients: Sequence[Summary],
) -> tuple[Array, Array]:
    """What bias and variance of each kind of client at hand are, over their limits for large sizes.

    Where clients' features were seen against the others' (`strength`) they tell; an aligned
    displacement has no such form.
    """
    ones = np.ones(kinds.samples.size)
    own = stage_ridge(algorithm, ridge)
    if own is None or np.all(np.isinf(own)):
        return ones, ones
    if found.power or not have_common_covariance(clients):
        return ones, ones if np.any(own) else unridged_factors(dimension, kinds)
    each = np.broadcast_to(np.asarray(own, dtype=float), ones.shape)
    place = kinds.place[spread_places(kinds.place.size, len(clients))]  # of those looked at
    return ratio_to_limits(clients, place, kinds.samples, each, found.spectrum)


def unridged_factors(dimension: int, kinds: SizeGroups) -> Array:
    """The variance without a ridge for clients of finite sizes, over its limit at the mean size.

    The mean of (X'X)^{-1} is Sigma^{-1}/(n - d - 1) where the limit has n - d, for any covariance.
    For n < d the limit is kept, with each client's own gap instead of its kind's. At |d - n| <= 1
    there is no mean: a gap of 1 stands for it.
    """

    def level(n: Array, lost: float) -> Array:
        gap = np.where(n > dimension, n - dimension - lost, dimension - n)
        return np.asarray(np.minimum(n, dimension) / np.maximum(gap, 1.0))

    mean = np.bincount(kinds.place, level(kinds.sizes, 1.0)) / kinds.count
    return np.asarray(mean / level(kinds.samples, 0.0))


def widen_for_clients(
    out: dict[str, Prediction],
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    clients: Sequence[Summary],
    algorithms: Mapping[str, Algorithm],
) -> dict[str, Prediction]:
    """Intervals for the mean over these clients, by `lacking_variance`; without a form, as rtfa's.

    They are never made narrower than the population's: errors of the estimated covariance are not
    in them. Without a ridge, clients with about as many samples as features have no variance to
    find: given their features the noise alone makes the loss vary, and where these were not seen
    the interval has no upper end.
    """
    losses = {}
    for name, row in out.items():
        algorithm = algorithms[name]
        ridge = stage_ridge(algorithms[name], row.ridge)
        if is_average_or_alone(algorithm) and ridge is not None and np.isfinite(row.loss.value):
            ratio = float(ridge) * kinds.samples[kinds.median_kind]
            losses[name] = PartedLoss(row.bias, row.variance, ratio, algorithm.shares_nothing)
    unridged = [name for name, each in algorithms.items() if each.interpolates]
    lacking = lacking_variance(found, dimension, kinds.sizes, losses)
    noise, radius, norm = found.scale.T
    wide = {}
    for name, each in losses.items():
        draws = each.bias * (norm if each.alone else radius) + each.variance * noise
        wide[name] = float(np.sqrt(1 + max(lacking[name], 0.0) / max(float(draws.var()), 1e-300)))
    near = lacks_variance(dimension, kinds.sizes)
    if near and not have_common_covariance(clients):
        wide |= dict.fromkeys(unridged, np.inf)
    most = wide.get("rtfa", 1.0)
    rows = {
        name: replace(row, loss=widen_interval(row.loss, wide.get(name, most)))
        for name, row in out.items()
    }
    if near and have_common_covariance(clients):
        noisy = scipy.stats.chi2(noise_freedom(clients)).ppf(
            even_points(len(noise), 5)[:, 4]
        ) / noise_freedom(clients)
        for name in (each for each in unridged if np.isfinite(out[each].loss.value)):
            scale = norm if algorithms[name].shares_nothing else radius
            moved = out[name].bias * scale + out[name].variance * noise * noisy
            rows[name] = replace(rows[name], loss=enclose_draws(out[name].loss.value, moved))
    return rows


def lacks_variance(dimension: int, sizes: Array) -> bool:
    """Whether a client has so nearly d samples that a loss without a ridge has no variance."""
    return bool(np.min(np.abs(dimension - sizes)) <= NO_VARIANCE)


def enclose_draws(value: float, draws: Array) -> Quantity:
    """A value and the interval of its draws, with the value in it."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Quantity(value, float(min(low, value)), float(max(high, value)))


def predict_draws(
    out: dict[str, Prediction],
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    algorithms: Mapping[str, Algorithm],
) -> dict[str, Prediction]:
    """Intervals for scarce samples: the loss at draws of the estimates over that at the estimates.

    The shared model then interpolates: its loss rests on noise, radius and norm at once, and is no
    multiple of one of them. The ratios are those of clients of the mean size.
    """
    point = np.array([found.noise2, found.radius2, found.norm2])
    drawn = np.maximum(np.vstack([point, found.draws[:PREDICTED_DRAWS]]), LEAST_SHARE * point)
    noise, radius, norm = np.sqrt(drawn.T)
    world = Population(
        radius,
        noise,
        dimension / float(kinds.sizes.mean()),
        np.maximum(norm, radius),
        found.spectrum,
    )
    rows = dict(out)
    for member in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)
            table = predict(
                world,
                [PAPER[name] for name in out if name in PAPER],
                clients=float(kinds.sizes.size),
                member=member,
            )
        for name, row in out.items():
            losses = np.asarray(table[name if name in PAPER else like_paper(algorithms[name])].loss)
            value = row.loss.value if member else row.new.value
            near = enclose_draws(value, value * losses[1:] / losses[0])
            rows[name] = replace(rows[name], loss=near) if member else replace(rows[name], new=near)
    return rows


def like_paper(algorithm: Algorithm) -> str:
    """The paper's algorithm nearest to another: as it shares or not, and by its client stage."""
    near = [name for name, each in PAPER.items() if is_average_or_alone(each)]
    near = [name for name in near if PAPER[name].shares_nothing == algorithm.shares_nothing]
    own = algorithm.personalise.linear_objective
    alike = [name for name in near if PAPER[name].personalise.linear_objective is own]
    return alike[0] if alike else near[-1]


def widen_interval(loss: Quantity, wide: float) -> Quantity:
    """An interval so many times as wide; without an upper end it begins where it did."""
    if np.isinf(wide) or not np.isfinite(loss.value):
        return replace(loss, high=wide if np.isfinite(loss.value) else loss.high)
    low, high = (loss.value + wide * (end - loss.value) for end in (loss.low, loss.high))
    return Quantity(loss.value, max(low, 0.0), high)


def mean_of(values: float | Array, share: Array) -> float:
    """Over clients, from one value per kind."""
    return float(np.broadcast_to(np.asarray(values, dtype=float), share.shape) @ share)


def predict_kinds(
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
    member: bool,
    algorithms: Mapping[str, Algorithm],
    power: float | None = None,
) -> Comparison[Risk]:
    """`fa.predict` for the kinds; thresholds are among the doubts and not warned of here."""
    worlds = [population_of(found, dimension, float(n), power) for n in kinds.samples]
    aligned = worlds[0].shift_power != 0
    asked = [
        each
        for name, each in algorithms.items()
        if not (aligned and name in PAPER and learns_jointly(each))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        if len(worlds) == 1:
            table = predict(worlds[0], asked, clients=float(kinds.count[0]), member=member)
        else:
            table = predict(worlds, asked, clients=kinds.count, member=member)
    if len(asked) == len(algorithms):
        return table
    rest = (each for each in algorithms.values() if each.name not in table)
    stand_ins = {each.name: table[averaging_twin(each).name] for each in rest}
    return Comparison({**table.rows, **stand_ins})


def learns_jointly(algorithm: Algorithm) -> bool:
    """Whether shared and personal models are learned together, as in pFedMe."""
    return algorithm.server.linear_objective is Objective.JOINT


def aligned_moreau(
    algorithm: Algorithm,
    out: dict[str, Prediction],
    found: Estimates,
    dimension: int,
    kinds: SizeGroups,
) -> Prediction:
    """No formula for joint learning with an aligned displacement: that of its twin which averages,
    with the gain over it that there is without alignment.
    """
    share = kinds.count / kinds.count.sum()
    twin = averaging_twin(algorithm)
    pair = {each.name: each for each in (algorithm, twin)}
    table = predict_kinds(found, dimension, kinds, True, pair, power=0.0)
    joint, apart = (mean_of(table[name].loss, share) for name in pair)
    gain = min(joint / apart, 1.0)
    row = out[twin.name]
    loss = Quantity(*(gain * part for part in (row.loss.value, row.loss.low, row.loss.high)))
    moved = replace(row, loss=loss, bias=gain * row.bias, variance=gain * row.variance)
    note = f"{twin.name}'s, less what {algorithm.name} gains without alignment: no formula"
    return replace(moved, algorithm=algorithm.name, trusted=loss.value, note=note)


def loss_interval(found: Estimates, bias: float, variance: float, alone: bool) -> Quantity:
    """A loss with its interval over the draws of the estimates."""
    value = bias + variance
    if not np.isfinite(value):
        return Quantity(value, float("nan"), float("nan"))
    noise, radius, norm = found.scale.T
    return enclose_draws(value, bias * (norm if alone else radius) + variance * noise)


@dataclass(frozen=True, eq=False)
class ClientLevels:
    """Clients' own means of features and labels, for what an intercept adds to every loss."""

    means: Array  # (clients, d + 1), the label last
    sizes: Array

    @classmethod
    def of(cls, data: ClientData) -> ClientLevels:
        """Of the training samples of each client that has two or more."""
        places = [place for place, part in enumerate(data.parts) if part.train.size > 1]
        return cls(
            np.array([data.means(place) for place in places]), data.sizes[places].astype(float)
        )

    def variance(self, found: Estimates, pooled: Array) -> float:
        """Of clients' intercepts: variation of mean residuals beyond noise and features."""
        x = self.means[:, :-1]
        x = x if pooled.size == x.shape[1] else np.zeros((len(x), 0))
        left = self.means[:, -1] - (x @ pooled if x.size else 0.0)
        share = self.sizes / self.sizes.sum()
        left = left - float(share @ left)
        expected = (
            found.noise2 / self.sizes + found.radius2 * (x**2).mean(1)
            if x.size
            else found.noise2 / self.sizes
        )
        return max(float(np.mean(left**2 - expected)), 0.0)

    def add_to(
        self,
        rows: dict[str, Prediction],
        variance: float,
        noise2: float,
        algorithms: Mapping[str, Algorithm],
    ) -> dict[str, Prediction]:
        """The losses plus the intercept's: its variance where shared, else clients' own error."""
        own = noise2 / self.sizes
        shrunk = float(np.mean(variance * own / np.maximum(variance + own, np.finfo(float).tiny)))
        out = {}
        for name, row in rows.items():
            algorithm = algorithms[name]
            keeps = algorithm.personalise.linear_objective is Objective.SHARED
            kept = variance if keeps else shrunk
            out[name] = raise_loss(row, float(own.mean()) if algorithm.shares_nothing else kept)
        return out


def raise_loss(row: Prediction, extra: float) -> Prediction:
    """A prediction with so much more loss."""
    loss, new = (
        Quantity(q.value + extra, q.low + extra, q.high + extra) for q in (row.loss, row.new)
    )
    measured = None if row.measured is None else row.measured + extra
    return replace(
        row,
        loss=loss,
        new=new,
        measured=measured,
        trusted=row.trusted + extra,
        variance=row.variance + extra,
    )


def predict_steps(
    found: Estimates,
    dimension: int,
    samples: float,
    clients: int,
    summaries: Sequence[Summary] = (),
) -> Steps | None:
    """Where fine-tuning should stop for a middling new client; None without a path to predict."""
    gamma = dimension / samples
    if abs(gamma - 1) < BARE_ASPECT:
        gamma = 1 + BARE_ASPECT if gamma >= 1 else 1 - BARE_ASPECT
    world = population_of(found, dimension, dimension / gamma)
    largest = [float(each.power.max()) / each.samples for each in summaries]
    step = 1 / max(*largest, sample_support(gamma, world.spectrum)[1], 0.0)
    try:
        path = fine_tuning(world, step=step, steps=[0], clients=clients, member=False)
    except InvalidInput:
        return None
    return Steps(step, float(path.best.at), loss=float(np.asarray(path.best.scores.loss)))
