"""Every method's accuracy and log-loss on the estimated population, for the clients at hand and for new ones, with intervals.

Sizes: clients of a kind get their own aspect. Intervals: accuracies at the estimates and at a star of four points around
them, along the axes of their errors, make a quadratic that is evaluated at all draws; to that comes how much a federation of so
many clients and features varies by itself, in its truth and in what its models learn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from fedasym.advisor.classes import squares
from fedasym.advisor.classes.moments import Moments
from fedasym.advisor.classes.scores import DIRECT, Ridges, Score, best_ridges, more_classes, softmax_excess, two_classes
from fedasym.advisor.classes.worlds import Sizes, World
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.restricted import even_points
from fedasym.core.arrays import Array
from fedasym.theory.classes import metrics
from fedasym.theory.classes.optimum import step_from_shared as one_step
from fedasym.theory.classes.ridge import fedavg, shrinkage
from fedasym.theory.classes.ridge import solve_ridge as solve
from fedasym.theory.classes.softmax import SEARCH, softmax_fedavg, softmax_step
from fedasym.theory.classes.softmax import draw_points as samples
from fedasym.theory.classes.softmax_ridge import softmax_ridge_path as path

STOPPED = "stopped early, at the time that matches rtfa's ridge"
FRACTION = 0.1  # of an estimate: how near to nothing the star may go


@dataclass(frozen=True)
class AccuracyPrediction:
    """One method: accuracy of a member and of a new client, log-loss, the ridge of the logistic loss, and what a probe says.

    accuracy, new, log_loss: with 95% intervals.
    ridge: of the logistic loss, for a client of middling size; times `samples` it is the same for all.
    probe, probe_error: the accuracy of a least-squares classifier around the others' model, on held-out samples or by leaving
        out one sample after the other, and its standard error over clients; expected: what the model says of that probe.
    trusted: the accuracy to rank by: the model's, or where the probe contradicts it (`contradicted`) moved by as much.
    """

    algorithm: str
    accuracy: Quantity
    new: Quantity
    log_loss: Quantity
    ridge: float | None
    probe: float | None = None
    probe_error: float | None = None
    expected: float | None = None
    trusted: float = float("nan")
    note: str = ""
    contradicted: bool = False

    @property
    def shown(self) -> Quantity:
        """The accuracy to be read: the model's, or the one that the samples say with their error."""
        if not self.contradicted:
            return self.accuracy
        wide = 1.96 * (self.probe_error or 0.0)
        return Quantity(self.trusted, max(self.trusted - wide, 0.0), min(self.trusted + wide, 1.0))


Table = dict[str, AccuracyPrediction]


def scores_of(world: World, sizes: Sizes, kind: int, ridges: Ridges, found: Moments) -> dict[str, Score]:
    """All methods for clients of one kind."""
    gamma, n = float(sizes.aspects[kind]), float(sizes.kinds.samples[kind])
    if world.link.classes == 2:
        return two_classes(world, gamma, n, float(sizes.equivalent[kind]), ridges)
    if found.scarce or world.link.classes > DIRECT or world.strange:
        return more_classes(world, gamma, n, ridges, found.excess)
    return more_classes(world, gamma, n, ridges, softmax_excess(world, sizes.pooled_aspect, sizes.alike), sizes.alike)


def predictions(found: Moments, world: World, sizes: Sizes, *, intervals: bool = True) -> tuple[Table, Ridges]:
    """Every method; without intervals a little faster."""
    middle = sizes.middle
    ridges = best_ridges(world, float(sizes.aspects[middle]), sizes.samples, float(sizes.equivalent[middle]))
    centre = scores_of(world, sizes, middle, ridges, found)
    shifts = by_kind(found, world, sizes, ridges, centre)
    moves = responses(found, world, sizes) if intervals else {}
    out: Table = {}
    for name, score in centre.items():
        values = {field: getattr(score, field) + shifts[name].get(field, 0.0) for field in ("accuracy", "new", "log_loss")}
        parts = {
            field: around(value, moves.get((name, field)), np.inf if field == "log_loss" else 1.0)
            for field, value in values.items()
        }
        ridge = {"rtfa": ridges.shared, "local_ridge": ridges.alone}.get(name)
        out[name] = AccuracyPrediction(
            name,
            parts["accuracy"],
            parts["new"],
            parts["log_loss"],
            None if ridge is None else ridge / sizes.samples,
            trusted=values["accuracy"],
        )
    out["ftfa"] = replace(out["rtfa"], algorithm="ftfa", ridge=None, note=STOPPED)
    out["one_step"] = stepped(out, world, float(sizes.aspects[middle]), ridges.shared / sizes.samples)
    if "local" in out:
        note = "to convergence, which fine-tuning (ftfa) comes to as well"
        if np.isinf(out["local"].log_loss.value):
            note += "; it separates the classes of some clients, and a wrong sample then has no finite log-loss"
        out["local"] = replace(out["local"], note=note)
    return out, ridges


def around(value: float, moves: Array | None, most: float) -> Quantity:
    """A value with its interval, within 0 and what it can be at most."""
    if moves is None or not np.isfinite(value):
        return Quantity(value, float("nan"), float("nan"))
    low, high = np.quantile(moves, [0.025, 0.975])
    return Quantity(value, max(value + min(float(low), 0.0), 0.0), min(value + max(float(high), 0.0), most))


def by_kind(
    found: Moments, world: World, sizes: Sizes, ridges: Ridges, centre: dict[str, Score]
) -> dict[str, dict[str, float]]:
    """What the mean over kinds of clients adds to the middling kind: exact for two classes, by least squares for more."""
    if sizes.share.size == 1:
        return {name: {} for name in centre}
    if world.link.classes == 2:
        kinds = [scores_of(world, sizes, kind, ridges, found) for kind in range(sizes.share.size)]
        return {
            name: {
                field: float(sizes.share @ [getattr(each[name], field) for each in kinds]) - getattr(score, field)
                for field in ("accuracy", "new", "log_loss")
                if np.isfinite(getattr(score, field))
            }
            for name, score in centre.items()
        }
    error = squares.error_of(world, found.excess)
    out: dict[str, dict[str, float]] = {"fedavg": {}}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        right = np.array([squares.probe(world, g, squares.best_ridge(world, g, error, alone=alone), error, alone=alone)
                          for g in sizes.aspects])  # fmt: skip
        shift = float(sizes.share @ right) - float(right[sizes.middle])
        out[name] = {"accuracy": shift, "new": shift}
    return out


def responses(found: Moments, world: World, sizes: Sizes) -> dict[tuple[str, str], Array]:
    """How far each score moves at every draw of the estimates."""
    point = np.array([world.r2, world.B])
    offsets = found.draws[:, 1:] - point
    values, axes = np.linalg.eigh(np.cov(offsets.T))
    sizes2 = np.sqrt(np.maximum(values, 1e-300))
    along = offsets @ axes / sizes2
    here = near(world, sizes, found)
    lucky = luck(world, sizes, found)
    energy, standard = own_spread(world, sizes), even_normal(len(offsets))
    wide = {name: float(np.hypot(energy, lucky.get(name, 0.0))) for name in here}
    out = {(name, field): wide[name] * standard for name in here for field in ("accuracy", "new")}
    out |= {(name, "log_loss"): np.zeros(len(offsets)) for name in here if np.isfinite(here[name].log_loss)}
    for axis in range(2):
        ends = []
        for sign in (-1.0, 1.0):
            step = sign * sizes2[axis] * axes[:, axis]
            room = min([1.0, *(float((1 - FRACTION) * p / -s) for p, s in zip(point, step, strict=True) if s < 0)])
            moved = near(world.moved(*(point + room * step)), sizes, found)
            ends.append((sign * room, moved))
        for name, field in out:
            (a, one), (b, two) = ends
            ya, yb = (getattr(each[name], field) - getattr(here[name], field) for each in (one, two))
            bend = (yb / b - ya / a) / (b - a)
            tilt = ya / a - bend * a
            t = np.clip(along[:, axis], -4, 4)
            out[name, field] += tilt * t + bend * t**2
    return out


def near(world: World, sizes: Sizes, found: Moments) -> dict[str, Score]:
    """Scores to take differences of: those of least squares, which move as the logistic loss's do, in a tenth of the time."""
    gamma, error = float(sizes.aspects[sizes.middle]), squares.error_of(world, found.excess)
    own, alone = (squares.best_ridge(world, gamma, error, alone=each) for each in (False, True))
    kept, mine = squares.probe(world, gamma, np.inf, error), squares.probe(world, gamma, own, error)
    theirs = squares.probe(world, gamma, alone, alone=True)
    if world.link.classes == 2:
        loss = float(np.ravel(metrics.log_loss(fedavg(world.energies.broadcast((1,))), np.zeros(1)))[0])
    else:
        loss = softmax_fedavg(world.energies, world.link.classes).log_loss
    out = {"fedavg": Score(kept, loss, kept), "rtfa": Score(mine, loss, mine)}
    unknown = float("nan")
    return out | {name: Score(theirs, unknown, theirs) for name in ("local_ridge", "local")}


def own_spread(world: World, sizes: Sizes) -> float:
    """How much the mean accuracy of so many clients with so many features varies by itself: the energy of one client's
    displacement varies by sqrt(2/d).
    """
    e, d, m = world.energies, sizes.dimension, float(sizes.kinds.count.sum())
    wide = np.sqrt(2 * float(e.h @ e.s**2) / world.spectrum.mean**2 / d)
    slope = abs(squares.probe(world.moved(1.05 * world.r2, 1.05 * world.B), 1.0, np.inf) - squares.probe(world, 1.0, np.inf))
    share = float(e.b0 / (e.b0 + e.bd))
    return float(slope / 0.05 * wide * (1 - share) / np.sqrt(m))


def luck(world: World, sizes: Sizes, found: Moments) -> dict[str, float]:
    """How much the mean accuracy of so many models varies with the samples that they were trained on.

    What a model w errs by, beyond its multiple of the truth, has the energy E = Q - T^2/rho^2 and points anywhere: its part
    along the truth moves T by sqrt(E rho^2 w/d), w = mean(s^2)/mean(s)^2, and Q by twice that times T/rho^2.
    """
    gamma, error, rho2 = float(sizes.aspects[sizes.middle]), squares.error_of(world, found.excess), world.rho**2
    s, h = world.spectrum.values, world.spectrum.weights
    share = float(h @ s**2) / world.spectrum.mean**2 / sizes.dimension
    out = {}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        ridge = squares.best_ridge(world, gamma, error, alone=alone)
        T, Q = squares.state_of(world, gamma, ridge, error, alone=alone)
        step = np.sqrt(max(Q - T**2 / rho2, 0.0) * rho2 * share)
        moved = [squares.accuracy_of(world, T + way * step, Q + 2 * way * step * T / rho2) for way in (-1.0, 1.0)]
        out[name] = abs(moved[1] - moved[0]) / 2 / float(np.sqrt(sizes.kinds.count.sum()))
    return out | {"local": out["local_ridge"]}


def even_normal(count: int) -> Array:
    """Normal quantiles in an order of their own, the same every time."""
    return np.asarray(ndtri(even_points(count, 5)[:, 4]))


def stepped(out: Table, world: World, aspect: float, ridge: float) -> AccuracyPrediction:
    """One gradient step of its best length, less than rtfa by as much as with infinitely many clients."""
    e, C = world.energies, world.link.classes
    if C == 2:
        one = one_step(e, aspect, None)
        right, step = float(metrics.accuracy(one.state)), float(one.step)
        best = float(metrics.accuracy(solve(e, aspect, ridge, shrinkage(e))))
    else:
        rule, step = softmax_step(e, aspect, C)
        right = rule.accuracy
        direct = C <= DIRECT and not world.strange
        best = path(e, aspect, [ridge], C, points=samples(C, SEARCH))[0].accuracy if direct else squares.probe(
            world, aspect, squares.best_ridge(world, aspect)
        )  # fmt: skip
    rtfa, less = out["rtfa"], right - best

    def shifted(q: Quantity) -> Quantity:
        value, low, high = np.clip([q.value + less, q.low + less, q.high + less], 0.0, 1.0).tolist()
        return Quantity(value, low, high)

    lost = Quantity(float("nan"), float("nan"), float("nan"))
    accuracy = shifted(rtfa.accuracy)
    return AccuracyPrediction(
        "one_step", accuracy, shifted(rtfa.new), lost, None, trusted=accuracy.value,
        note=f"one full-batch gradient step of {step:.3g}",
    )  # fmt: skip
