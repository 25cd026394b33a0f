"""Every algorithm's loss on the estimated population, for the clients at hand and for new ones, with intervals.

Clients of about one size are one kind; otherwise up to eight kinds by size, each with its own aspect. Bias scales with
radius^2 (for local methods norm^2) and variance with noise^2, so that one prediction serves all draws of the estimates; where
samples are scarce it does not, and draws are predicted one by one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.stats

from fedasym.advisor.estimates import LEAST, Estimates, Quantity
from fedasym.advisor.given import freedom, over_limits, seen
from fedasym.advisor.kinds import Kinds
from fedasym.advisor.realised import beyond
from fedasym.advisor.restricted import even_points
from fedasym.advisor.summaries import Summary
from fedasym.algorithms import PAPER
from fedasym.core.arrays import Array
from fedasym.core.errors import ThresholdWarning
from fedasym.results.comparison import Comparison, Risk
from fedasym.verbs.prediction import predict
from fedasym.worlds.population import Population

ASKED = ("local", "local_ridge", "fedavg", "ftfa", "rtfa", "pfedme")
UNRIDGED = ("local", "ftfa")
LOOKED_AT = 512  # draws at which losses are predicted where samples are scarce
ENDLESS = 3  # |d - n| up to which the variance of (X'X)^{-1} is infinite: losses without a ridge have no upper end


@dataclass(frozen=True)
class Prediction:
    """One algorithm: loss above the noise for a member and for a new client, the ridge, and what GCV makes of it.

    loss, new: with 95% intervals; test error is loss + noise^2.
    bias, variance, ridge: of the member's loss; the ridge is that of a client of middling size.
    gcv, gcv_error: the loss that cross-validation over clients estimates for a new client, without the model, and its
        standard error; None where there is no such estimate.
    trusted: the loss to rank by: the model's, or where GCV contradicts it (`contradicted`: by more than the errors of both)
        the one moved to GCV's level.
    note: where a number is not a formula's own.
    """

    algorithm: str
    loss: Quantity
    new: Quantity
    bias: float
    variance: float
    ridge: float | None
    gcv: float | None = None
    gcv_error: float | None = None
    trusted: float = float("nan")
    note: str = ""
    contradicted: bool = False

    @property
    def shown(self) -> Quantity:
        """The loss to rank by, with an interval that holds it: the model's, moved with the value where folds moved it."""
        low, high = self.loss.low, self.loss.high
        if self.contradicted and self.loss.value > 0 and np.isfinite(self.trusted):
            factor = self.trusted / self.loss.value
            low, high = low * factor, high * factor
            if self.gcv_error is not None and np.isfinite(self.gcv_error):
                low, high = min(low, self.trusted - 1.96 * self.gcv_error), max(high, self.trusted + 1.96 * self.gcv_error)
        if not np.isfinite(self.trusted):
            return Quantity(self.trusted, low, high)
        return Quantity(self.trusted, max(min(low, self.trusted), 0.0), max(high, self.trusted))


def population_of(found: Estimates, dimension: int, samples: float, power: float | None = None) -> Population:
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
    return replace(world, optimum_weights=share * world.displacement + (1 - share) * found.spectrum.weights)


def predictions(found: Estimates, dimension: int, kinds: Kinds, clients: Sequence[Summary] = ()) -> dict[str, Prediction]:
    """All of the paper's algorithms, members and new clients; `clients`: those at hand, for losses given their features."""
    tables = {member: asked(found, dimension, kinds, member) for member in (True, False)}
    share, middle = kinds.count / kinds.count.sum(), kinds.middle
    out: dict[str, Prediction] = {}
    for name in ASKED:
        parts = {}
        own_bias, own_variance = finite(name, tables[True][name].ridge, found, dimension, kinds, clients)
        for member, table in tables.items():
            risk = table[name]
            parts[member] = mean_of(risk.bias * own_bias, share), mean_of(risk.variance * own_variance, share)
        alone = PAPER[name].shares_nothing
        loss, new = (interval(found, bias, variance, alone) for bias, variance in (parts[True], parts[False]))
        ridge = tables[True][name].ridge
        typical = None if ridge is None else float(np.broadcast_to(np.asarray(ridge, dtype=float), share.shape)[middle])
        bias, variance = parts[True]
        out[name] = Prediction(name, loss, new, bias, variance, typical, trusted=loss.value)
    out = of_draws(out, found, dimension, kinds) if found.scarce else of_these(out, found, dimension, kinds, clients)
    if found.power:
        out["pfedme"] = aligned_moreau(out, found, dimension, kinds)
    out["maml"] = replace(out["ftfa"], algorithm="maml", note="as ftfa, its limit: no formula for these clients")
    return out


def finite(
    name: str, ridge: float | Array | None, found: Estimates, dimension: int, kinds: Kinds, clients: Sequence[Summary]
) -> tuple[Array, Array]:
    """What bias and variance of each kind of client at hand are, over their limits for large sizes.

    Where clients' features were seen against the others' (`strength`) they tell; an aligned displacement has no such form.
    """
    ones = np.ones(kinds.samples.size)
    if name == "fedavg":
        return ones, ones
    if found.power or not seen(clients):
        return ones, small(name, dimension, kinds)
    each = np.broadcast_to(np.asarray(0.0 if ridge is None else ridge, dtype=float), ones.shape)
    return over_limits(clients, kinds.place, kinds.samples, each, found.spectrum)


def small(name: str, dimension: int, kinds: Kinds) -> Array:
    """What the variance without a ridge is for clients of finite sizes, over its limit at their kind's mean size.

    The mean of (X'X)^{-1} is Sigma^{-1}/(n - d - 1) where the limit has n - d, for any covariance. For n < d the limit is kept,
    with each client's own gap instead of its kind's. At |d - n| <= 1 there is no mean: a gap of 1 stands for it.
    """
    if name not in UNRIDGED:
        return np.ones(kinds.samples.size)

    def level(n: Array, lost: float) -> Array:
        gap = np.where(n > dimension, n - dimension - lost, dimension - n)
        return np.asarray(np.minimum(n, dimension) / np.maximum(gap, 1.0))

    mean = np.bincount(kinds.place, level(kinds.sizes, 1.0)) / kinds.count
    return np.asarray(mean / level(kinds.samples, 0.0))


def of_these(
    out: dict[str, Prediction], found: Estimates, dimension: int, kinds: Kinds, clients: Sequence[Summary]
) -> dict[str, Prediction]:
    """Intervals for the mean over these very clients, as wide as `realised` finds; pfedme's as rtfa's.

    They are never made narrower than the population's: errors of the estimated covariance are not in them. Without a ridge,
    clients with about as many samples as features have no variance to find: given their features the noise alone makes the
    loss vary, and where these were not seen the interval has no upper end.
    """
    middle = kinds.middle
    ratio = {name: np.inf if name == "fedavg" else float(row.ridge or 0.0) * kinds.samples[middle] for name, row in out.items()}
    losses = {
        name: (row.bias, row.variance, ratio[name])
        for name, row in out.items()
        if name != "pfedme" and np.isfinite(row.loss.value)
    }
    lacking = beyond(found, dimension, kinds.sizes, losses)
    noise, radius, norm = found.scale.T
    wide = {}
    for name, (bias, variance, _) in losses.items():
        draws = bias * (norm if PAPER[name].shares_nothing else radius) + variance * noise
        wide[name] = float(np.sqrt(1 + max(lacking[name], 0.0) / max(float(draws.var()), 1e-300)))
    wide["pfedme"] = wide["rtfa"]
    near = endless(dimension, kinds.sizes)
    if near and not seen(clients):
        wide |= dict.fromkeys(UNRIDGED, np.inf)
    rows = {name: replace(row, loss=stretched(row.loss, wide.get(name, 1.0))) for name, row in out.items()}
    if near and seen(clients):
        noisy = scipy.stats.chi2(freedom(clients)).ppf(even_points(len(noise), 5)[:, 4]) / freedom(clients)
        for name in (each for each in UNRIDGED if np.isfinite(out[each].loss.value)):
            moved = out[name].bias * (norm if PAPER[name].shares_nothing else radius) + out[name].variance * noise * noisy
            rows[name] = replace(rows[name], loss=quantity(out[name].loss.value, moved))
    return rows


def endless(dimension: int, sizes: Array) -> bool:
    """Whether some client has so nearly as many samples as features that a loss without a ridge has no variance."""
    return bool(np.min(np.abs(dimension - sizes)) <= ENDLESS)


def quantity(value: float, draws: Array) -> Quantity:
    """A value and the interval of its draws, with the value in it."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Quantity(value, float(min(low, value)), float(max(high, value)))


def of_draws(out: dict[str, Prediction], found: Estimates, dimension: int, kinds: Kinds) -> dict[str, Prediction]:
    """Intervals where samples are scarce: the loss at many draws of the estimates over that at the estimates.

    The shared model then interpolates: its loss rests on noise, radius and norm at once, and is no multiple of one of them.
    The ratios are those of clients of the mean size.
    """
    point = np.array([found.noise2, found.radius2, found.norm2])
    drawn = np.maximum(np.vstack([point, found.draws[:LOOKED_AT]]), LEAST * point)
    noise, radius, norm = np.sqrt(drawn.T)
    world = Population(radius, noise, dimension / float(kinds.sizes.mean()), np.maximum(norm, radius), found.spectrum)
    rows = dict(out)
    for member in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)
            table = predict(world, ASKED, clients=float(kinds.sizes.size), member=member)
        for name, row in out.items():
            losses = np.asarray(table[name].loss)
            value = row.loss.value if member else row.new.value
            near = quantity(value, value * losses[1:] / losses[0])
            rows[name] = replace(rows[name], loss=near) if member else replace(rows[name], new=near)
    return rows


def stretched(loss: Quantity, wide: float) -> Quantity:
    """An interval so many times as wide; without an upper end it begins where it did."""
    if np.isinf(wide) or not np.isfinite(loss.value):
        return replace(loss, high=wide if np.isfinite(loss.value) else loss.high)
    low, high = (loss.value + wide * (end - loss.value) for end in (loss.low, loss.high))
    return Quantity(loss.value, max(low, 0.0), high)


def mean_of(values: float | Array, share: Array) -> float:
    """Over clients, from one value per kind."""
    return float(np.broadcast_to(np.asarray(values, dtype=float), share.shape) @ share)


def asked(found: Estimates, dimension: int, kinds: Kinds, member: bool, power: float | None = None) -> Comparison[Risk]:
    """`fa.predict` for the kinds; thresholds are among the doubts and not warned of here."""
    worlds = [population_of(found, dimension, float(n), power) for n in kinds.samples]
    names = [name for name in ASKED if not (name == "pfedme" and worlds[0].shift_power)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        if len(worlds) == 1:
            table = predict(worlds[0], names, clients=float(kinds.count[0]), member=member)
        else:
            table = predict(worlds, names, clients=kinds.count, member=member)
    if "pfedme" in names:
        return table
    return Comparison({**table.rows, "pfedme": table["rtfa"]})


def aligned_moreau(out: dict[str, Prediction], found: Estimates, dimension: int, kinds: Kinds) -> Prediction:
    """No formula for pfedme with an aligned displacement: rtfa's, with the gain over rtfa that it has without alignment."""
    share = kinds.count / kinds.count.sum()
    table = asked(found, dimension, kinds, True, power=0.0)
    means = [mean_of(table[name].loss, share) for name in ("pfedme", "rtfa")]
    gain = min(means[0] / means[1], 1.0)
    rtfa = out["rtfa"]
    loss = Quantity(*(gain * part for part in (rtfa.loss.value, rtfa.loss.low, rtfa.loss.high)))
    note = "rtfa's, less what pfedme gains without alignment: no formula"
    moved = replace(rtfa, algorithm="pfedme", loss=loss, bias=gain * rtfa.bias, variance=gain * rtfa.variance)
    return replace(moved, trusted=loss.value, note=note)


def interval(found: Estimates, bias: float, variance: float, alone: bool) -> Quantity:
    """A loss with its interval over the draws of the estimates."""
    value = bias + variance
    if not np.isfinite(value):
        return Quantity(value, float("nan"), float("nan"))
    noise, radius, norm = found.scale.T
    return quantity(value, bias * (norm if alone else radius) + variance * noise)
