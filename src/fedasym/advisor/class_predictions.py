"""Accuracy and log-loss of every method, for members and new clients, and when to stop tuning.

Two classes, then more. Sizes: clients of a kind get their own aspect. Intervals: accuracies at the
estimates and at a star of four points around them, along the axes of their errors, make a quadratic
that is evaluated at all draws; to that comes how much a federation of so many clients and features
varies by itself, in its truth and in what its models learn. Stopping: the time of gradient descent
that matches a ridge (section 7), from few points of the ridge path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from fedasym.advisor.class_estimates import ClassLook, ClassMoments, ClientSizes
from fedasym.advisor.estimates import UNKNOWN, Quantity
from fedasym.advisor.predictions import Prediction, Steps
from fedasym.algorithms import PAPER, Algorithm
from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.exact.profile_likelihood import even_points
from fedasym.theory.classes import LogisticWorlds, metrics, time_of
from fedasym.theory.classes.finite import member_fit, newcomer_fit, pooled_fit
from fedasym.theory.classes.margins import fit_to_convergence
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.metrics import phi as binary_phi
from fedasym.theory.classes.optimum import step_from_shared
from fedasym.theory.classes.ridge import fedavg, shrinkage, solve_ridge
from fedasym.theory.classes.softmax import (
    SEARCH,
    draw_points,
    softmax_centre,
    softmax_fedavg,
    softmax_phi,
    softmax_step,
)
from fedasym.theory.classes.softmax_ridge import (
    descent_clock,
    softmax_curvature,
    softmax_ridge_path,
)
from fedasym.theory.classes.squared_labels import (
    LabelModel,
    best_label_ridge,
    least_squares_state,
    probe_accuracy,
    rule_accuracy,
    shared_error,
)
from fedasym.verbs import predict
from fedasym.worlds.classes import ClassPopulation, Energies

MANY_CLIENTS = 60  # clients from which a member is a new client, in the search for the ridge
RULE_GRID = np.geomspace(1 / 9, 9, 5)  # about the rule of section 9.1
# classes up to which the softmax system itself is solved: beyond, it takes minutes
DIRECT_CLASSES = 20
SHARED_RIDGES = np.geomspace(1e-3, 10, 9)  # of the pooled fit, where it has no end without one
STOPPED_EARLY = "stopped early, at the time that matches rtfa's ridge"
STAR_FRACTION = 0.1  # of an estimate: how near to nothing the star may go
PER_DECADE = 3
ABOVE_CURVATURE = 3.0  # the first ridge in units of the largest curvature
CLOSE_ACCURACY = 0.001  # accuracies within this are one
TRAIN_BATCH = 32  # of `fa.train`
# epochs that early stopping is spread over, where a large step would do it in fewer
SEVERAL_EPOCHS = 5


@dataclass(frozen=True)
class MethodScore:
    """One method: accuracy and log-loss of a member, accuracy of a new client."""

    accuracy: float
    log_loss: float
    new: float


@dataclass(frozen=True)
class LogisticRidges:
    """Ridge x samples of rtfa and local_ridge (ratio/n at n samples), and the pooled fit's mu."""

    shared: float
    alone: float
    pooled: float = 0.0


def ridge_rule(world: LabelModel, aspect: float, *, alone: bool = False) -> float:
    """Section 9's logistic ridge: gamma/(c r^2); with directions, least squares' zeta^2/(c s2)."""
    e = world.energies.alone if alone else world.energies
    c = 1.0
    if not alone:
        c = max(
            (
                float(shrinkage(e))
                if world.link.classes == 2
                else softmax_centre(e, world.link.classes)
            ),
            0.05,
        )
    if np.allclose(e.ed / e.ed.sum(), e.h):
        return aspect / max(c * float(e.ed.sum()), 1e-9)
    s2 = world.link.total - (world.zeta * world.rho) ** 2
    return best_label_ridge(world, aspect, alone=alone) * world.zeta**2 / (c * s2)


def best_ridges(
    world: LabelModel, aspect: float, samples_: float, clients: float
) -> LogisticRidges:
    """For a middling client: two classes by search, more by the rule (at most .02 points lost)."""
    own = ridge_rule(world, aspect, alone=True)
    if world.link.classes > 2:
        return LogisticRidges(ridge_rule(world, aspect) * samples_, own * samples_)
    e = repeat_energies(world.energies, RULE_GRID.size)
    alone = grid_peak(
        own * RULE_GRID,
        metrics.accuracy(
            solve_ridge(e.alone, np.full(RULE_GRID.size, aspect), own * RULE_GRID, 0.0)
        ),
    )
    mu = pooled_ridge(world, aspect, clients)
    lam = ridge_rule(world, aspect) * RULE_GRID
    state = fit_two_classes(world, aspect, lam, clients, mu, clients < MANY_CLIENTS)
    right = metrics.accuracy(state)
    return LogisticRidges(grid_peak(lam, right) * samples_, alone * samples_, mu)


def grid_peak(at: Array, values: Array) -> float:
    """The best of a logarithmic grid, by a parabola through its neighbours."""
    values = np.nan_to_num(values, nan=-np.inf)
    i = int(np.argmax(values))
    if i in (0, len(at) - 1) or not np.isfinite(values[i - 1 : i + 2]).all():
        return float(at[i])
    a, b, c = values[i - 1 : i + 2]
    bend = a - 2 * b + c
    move = 0.5 * (a - c) / bend if bend < 0 else 0.0
    return float(np.exp(np.log(at[i]) + np.clip(move, -1, 1) * np.log(at[1] / at[0])))


def pooled_ridge(world: LabelModel, aspect: float, clients: float) -> float:
    """0, or with separable pooled samples the shared model's ridge that best serves newcomers."""
    e = repeat_energies(world.energies, 1)
    if not bool(np.any(pooled_fit(e, np.array([aspect]), np.array([clients])).member.diverged)):
        return 0.0
    wide = repeat_energies(world.energies, SHARED_RIDGES.size)
    each = np.full(SHARED_RIDGES.size, aspect)
    mu = SHARED_RIDGES * aspect / clients
    return grid_peak(
        mu, metrics.accuracy(pooled_fit(wide, each, np.full(each.size, clients), mu).new)
    )


def repeat_energies(e: Energies, count: int) -> Energies:
    """The same energies so many times."""
    return e.broadcast((count,))


@dataclass(frozen=True)
class StateScore:
    """Accuracy and log-loss of a state."""

    accuracy: float
    log_loss: float


def score_population(state: State) -> StateScore:
    """Of one world."""
    return StateScore(
        float(np.ravel(metrics.accuracy(state))[0]),
        float(np.ravel(metrics.log_loss(state, np.zeros(1)))[0]),
    )


def score_rtfa(
    world: LabelModel, aspect: float, ridge: float, clients: float, mu: float
) -> tuple[StateScore, StateScore]:
    """Member and new client of two classes."""
    lam = np.array([float(ridge)])
    new = score_population(fit_two_classes(world, aspect, lam, clients, mu, False))
    if clients >= MANY_CLIENTS:
        return new, new
    return score_population(fit_two_classes(world, aspect, lam, clients, mu, True)), new


def fit_two_classes(
    world: LabelModel, aspect: float, ridges: Array, clients: float, mu: float, member: bool
) -> State:
    """RTFA of a member, or of a new client, of two classes, at these ridges."""
    e = repeat_energies(world.energies, 1 if member else ridges.size)
    g, m, at = (np.full(e.batch, float(x)) for x in (aspect, clients, mu))
    return member_fit(e, g, ridges, m, at).state if member else newcomer_fit(e, g, ridges, m, at)


def score_two_classes(
    world: LabelModel, aspect: float, samples_: float, clients: float, ridges: LogisticRidges
) -> dict[str, MethodScore]:
    """fedavg, rtfa, local_ridge and training to convergence, with the ridges given."""
    e = repeat_energies(world.energies, 1)
    g, m, mu = (np.array([float(x)]) for x in (aspect, clients, ridges.pooled))
    together = pooled_fit(e, g, m, mu)
    own, new = score_population(together.member), score_population(together.new)
    mine, theirs = score_rtfa(world, aspect, ridges.shared / samples_, clients, ridges.pooled)
    alone = score_population(solve_ridge(e.alone, g, np.array([ridges.alone / samples_]), 0.0))
    end = fit_to_convergence(e, g, np.zeros(1))
    last = score_population(end.fit)
    endless = np.inf if bool(end.separable[0]) else last.log_loss
    return {
        "fedavg": MethodScore(own.accuracy, own.log_loss, new.accuracy),
        "rtfa": MethodScore(mine.accuracy, mine.log_loss, theirs.accuracy),
        "local_ridge": MethodScore(alone.accuracy, alone.log_loss, alone.accuracy),
        "local": MethodScore(last.accuracy, endless, last.accuracy),
    }


def softmax_excess(world: LabelModel, pooled_aspect: float, alike: float) -> tuple[float, float]:
    """The shared softmax model's error in units of least squares: from noise, from displacements.

    To first order in d/N the pooled fit is c W0 plus a step Hh^{-1} of the gradient, c =
    phi(rho)/Hh: its noise per contrast is that of the residuals e_y - softmax, G = Brier/(C - 1),
    and it has of each displacement its client's weight, whose squares sum to `alike`. Least squares
    has larger residuals; 1/(1 - d/N) is what its own noise is multiplied with.
    """
    C = world.link.classes
    G = softmax_fedavg(world.energies, C).brier / (C - 1)
    return pooled_aspect / (1 - pooled_aspect) * G, world.r2 * world.spectrum.mean * alike


def score_more_classes(
    world: LabelModel,
    aspect: float,
    samples_: float,
    ridges: LogisticRidges,
    excess: tuple[float, float],
    alike: float = 0.0,
) -> dict[str, MethodScore]:
    """Infinitely many clients' softmax system, moved to those at hand by what least squares says.

    excess: of the shared model. alike: the part of a member's own displacement that is in the
    shared model; around it a member is taken as a new client: not derived, and a member does
    slightly better. With more than DIRECT classes the accuracies are those of tuned least squares,
    within half a point of the softmax's, and only the shared model has a log-loss.
    """
    e = world.energies
    C = world.link.classes
    n = samples_
    shared = softmax_fedavg(e, C)
    error = shared_error(world, excess)
    best, finite = best_label_ridge(world, aspect), best_label_ridge(world, aspect, error)
    T, Q = least_squares_state(world, aspect, np.inf, error)
    kept, member_kept = (
        rule_accuracy(world, T + world.zeta * part * float(e.bd), Q) for part in (0.0, alike)
    )
    mine = probe_accuracy(world, aspect, finite, error)
    theirs = probe_accuracy(world, aspect, best_label_ridge(world, aspect, alone=True), alone=True)
    if C > DIRECT_CLASSES or world.strange:
        unknown = float("nan")
        return {
            "fedavg": MethodScore(member_kept, shared.log_loss, kept),
            "rtfa": MethodScore(mine, unknown, mine),
            "local_ridge": MethodScore(theirs, unknown, theirs),
        }
    few = draw_points(C, SEARCH)
    (own,) = softmax_ridge_path(e, aspect, [ridges.shared / n], C, points=few)
    (alone,) = softmax_ridge_path(e, aspect, [ridges.alone / n], C, shared=False, points=few)
    moved = mine - probe_accuracy(world, aspect, best)
    return {
        "fedavg": MethodScore(member_kept, shared.log_loss, kept),
        "rtfa": MethodScore(own.accuracy + moved, own.log_loss, own.accuracy + moved),
        "local_ridge": MethodScore(alone.accuracy, alone.log_loss, alone.accuracy),
    }


AccuracyTable = dict[str, Prediction]


def score_kind(
    world: LabelModel, sizes: ClientSizes, kind: int, ridges: LogisticRidges, found: ClassMoments
) -> dict[str, MethodScore]:
    """All methods for clients of one kind."""
    gamma, n = float(sizes.aspects[kind]), float(sizes.kinds.samples[kind])
    if world.link.classes == 2:
        return score_two_classes(world, gamma, n, float(sizes.equivalent_clients[kind]), ridges)
    if found.scarce or world.link.classes > DIRECT_CLASSES or world.strange:
        return score_more_classes(world, gamma, n, ridges, found.excess)
    return score_more_classes(
        world,
        gamma,
        n,
        ridges,
        softmax_excess(world, sizes.pooled_aspect, sizes.squared_weights),
        sizes.squared_weights,
    )


def predict_class_accuracies(
    found: ClassMoments, world: LabelModel, sizes: ClientSizes, *, intervals: bool = True
) -> tuple[AccuracyTable, LogisticRidges]:
    """Every method; without intervals a little faster."""
    middle = sizes.median_kind
    ridges = best_ridges(
        world, float(sizes.aspects[middle]), sizes.samples, float(sizes.equivalent_clients[middle])
    )
    centre = score_kind(world, sizes, middle, ridges, found)
    shifts = kind_shifts(found, world, sizes, ridges, centre)
    moves = draw_responses(found, world, sizes) if intervals else {}
    out: AccuracyTable = {}
    for name, score in centre.items():
        values = {
            field: getattr(score, field) + shifts[name].get(field, 0.0)
            for field in ("accuracy", "new", "log_loss")
        }
        parts = {
            field: accuracy_interval(
                value, moves.get((name, field)), np.inf if field == "log_loss" else 1.0
            )
            for field, value in values.items()
        }
        ridge = {"rtfa": ridges.shared, "local_ridge": ridges.alone}.get(name)
        out[name] = Prediction(
            name,
            accuracy=parts["accuracy"],
            new=parts["new"],
            log_loss=parts["log_loss"],
            ridge=None if ridge is None else ridge / sizes.samples,
            trusted=values["accuracy"],
        )
    out["ftfa"] = replace(out["rtfa"], algorithm="ftfa", ridge=None, note=STOPPED_EARLY)
    out["one_step"] = predict_one_step(
        out, world, float(sizes.aspects[middle]), ridges.shared / sizes.samples
    )
    if "local" in out:
        note = "to convergence, which fine-tuning (ftfa) comes to as well"
        if np.isinf(out["local"].log_loss.value):
            note += (
                "; it separates the classes of some clients, and a wrong sample then has no finite"
                " log-loss"
            )
        out["local"] = replace(out["local"], note=note)
    return out, ridges


def accuracy_interval(value: float, moves: Array | None, most: float) -> Quantity:
    """A value with its interval, within 0 and what it can be at most."""
    if moves is None or not np.isfinite(value):
        return Quantity(value, float("nan"), float("nan"))
    low, high = np.quantile(moves, [0.025, 0.975])
    return Quantity(
        value, max(value + min(float(low), 0.0), 0.0), min(value + max(float(high), 0.0), most)
    )


def kind_shifts(
    found: ClassMoments,
    world: LabelModel,
    sizes: ClientSizes,
    ridges: LogisticRidges,
    centre: dict[str, MethodScore],
) -> dict[str, dict[str, float]]:
    """What averaging over kinds adds to the middling kind: exact for two classes, else squares."""
    if sizes.share.size == 1:
        return {name: {} for name in centre}
    if world.link.classes == 2:
        kinds = [score_kind(world, sizes, kind, ridges, found) for kind in range(sizes.share.size)]
        return {
            name: {
                field: (
                    float(sizes.share @ [getattr(each[name], field) for each in kinds])
                    - getattr(score, field)
                )
                for field in ("accuracy", "new", "log_loss")
                if np.isfinite(getattr(score, field))
            }
            for name, score in centre.items()
        }
    error = shared_error(world, found.excess)
    out: dict[str, dict[str, float]] = {"fedavg": {}}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        right = np.array(
            [
                probe_accuracy(
                    world, g, best_label_ridge(world, g, error, alone=alone), error, alone=alone
                )
                for g in sizes.aspects
            ]
        )
        shift = float(sizes.share @ right) - float(right[sizes.median_kind])
        out[name] = {"accuracy": shift, "new": shift}
    return out


def draw_responses(
    found: ClassMoments, world: LabelModel, sizes: ClientSizes
) -> dict[tuple[str, str], Array]:
    """How far each score moves at every draw of the estimates."""
    point = np.array([world.r2, world.B])
    offsets = found.draws[:, 1:] - point
    values, axes = np.linalg.eigh(np.cov(offsets.T))
    sizes2 = np.sqrt(np.maximum(values, 1e-300))
    along = offsets @ axes / sizes2
    here = least_squares_scores(world, sizes, found)
    lucky = training_spread(world, sizes, found)
    energy = energy_spread(world, sizes)
    standard = normal_points(len(offsets))
    wide = {name: float(np.hypot(energy, lucky.get(name, 0.0))) for name in here}
    out = {(name, field): wide[name] * standard for name in here for field in ("accuracy", "new")}
    out |= {
        (name, "log_loss"): np.zeros(len(offsets))
        for name in here
        if np.isfinite(here[name].log_loss)
    }
    for axis in range(2):
        ends = []
        for sign in (-1.0, 1.0):
            step = sign * sizes2[axis] * axes[:, axis]
            room = min(
                [
                    1.0,
                    *(
                        float((1 - STAR_FRACTION) * p / -s)
                        for p, s in zip(point, step, strict=True)
                        if s < 0
                    ),
                ]
            )
            moved = least_squares_scores(world.with_estimates(*(point + room * step)), sizes, found)
            ends.append((sign * room, moved))
        for name, field in out:
            (a, one), (b, two) = ends
            ya, yb = (
                getattr(each[name], field) - getattr(here[name], field) for each in (one, two)
            )
            bend = (yb / b - ya / a) / (b - a)
            tilt = ya / a - bend * a
            t = np.clip(along[:, axis], -4, 4)
            out[name, field] += tilt * t + bend * t**2
    return out


def least_squares_scores(
    world: LabelModel, sizes: ClientSizes, found: ClassMoments
) -> dict[str, MethodScore]:
    """Least squares' scores, for differences: like the logistic ones, in a tenth of the time."""
    gamma = float(sizes.aspects[sizes.median_kind])
    error = shared_error(world, found.excess)
    own, alone = (best_label_ridge(world, gamma, error, alone=each) for each in (False, True))
    kept, mine = (
        probe_accuracy(world, gamma, np.inf, error),
        probe_accuracy(world, gamma, own, error),
    )
    theirs = probe_accuracy(world, gamma, alone, alone=True)
    if world.link.classes == 2:
        loss = float(
            np.ravel(metrics.log_loss(fedavg(world.energies.broadcast((1,))), np.zeros(1)))[0]
        )
    else:
        loss = softmax_fedavg(world.energies, world.link.classes).log_loss
    out = {"fedavg": MethodScore(kept, loss, kept), "rtfa": MethodScore(mine, loss, mine)}
    unknown = float("nan")
    return out | {name: MethodScore(theirs, unknown, theirs) for name in ("local_ridge", "local")}


def energy_spread(world: LabelModel, sizes: ClientSizes) -> float:
    """How much the mean accuracy of so many clients with so many features varies by itself: the
    energy of one client's displacement varies by sqrt(2/d).
    """
    e = world.energies
    d = sizes.dimension
    m = float(sizes.kinds.count.sum())
    wide = np.sqrt(2 * float(e.h @ e.s**2) / world.spectrum.mean**2 / d)
    slope = abs(
        probe_accuracy(world.with_estimates(1.05 * world.r2, 1.05 * world.B), 1.0, np.inf)
        - probe_accuracy(world, 1.0, np.inf)
    )
    share = float(e.b0 / (e.b0 + e.bd))
    return float(slope / 0.05 * wide * (1 - share) / np.sqrt(m))


def training_spread(world: LabelModel, sizes: ClientSizes, found: ClassMoments) -> dict[str, float]:
    """How much the mean accuracy of so many models varies with their training samples.

    What a model w errs by, beyond its multiple of the truth, has the energy E = Q - T^2/rho^2 and
    points anywhere: its part along the truth moves T by sqrt(E rho^2 w/d), w = mean(s^2)/mean(s)^2,
    and Q by twice that times T/rho^2.
    """
    gamma = float(sizes.aspects[sizes.median_kind])
    error = shared_error(world, found.excess)
    rho2 = world.rho**2
    s, h = world.spectrum.values, world.spectrum.weights
    share = float(h @ s**2) / world.spectrum.mean**2 / sizes.dimension
    out = {}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        ridge = best_label_ridge(world, gamma, error, alone=alone)
        T, Q = least_squares_state(world, gamma, ridge, error, alone=alone)
        step = np.sqrt(max(Q - T**2 / rho2, 0.0) * rho2 * share)
        moved = [
            rule_accuracy(world, T + way * step, Q + 2 * way * step * T / rho2)
            for way in (-1.0, 1.0)
        ]
        out[name] = abs(moved[1] - moved[0]) / 2 / float(np.sqrt(sizes.kinds.count.sum()))
    return out | {"local": out["local_ridge"]}


def normal_points(count: int) -> Array:
    """Normal quantiles in an order of their own, the same every time."""
    return np.asarray(ndtri(even_points(count, 5)[:, 4]))


def predict_one_step(
    out: AccuracyTable, world: LabelModel, aspect: float, ridge: float
) -> Prediction:
    """One gradient step of the best length, as far below rtfa as with infinitely many clients."""
    e, C = world.energies, world.link.classes
    if C == 2:
        one = step_from_shared(e, aspect, None)
        right, step = float(metrics.accuracy(one.state)), float(one.step)
        best = float(metrics.accuracy(solve_ridge(e, aspect, ridge, shrinkage(e))))
    else:
        rule, step = softmax_step(e, aspect, C)
        right = rule.accuracy
        direct = C <= DIRECT_CLASSES and not world.strange
        if direct:
            best = softmax_ridge_path(e, aspect, [ridge], C, points=draw_points(C, SEARCH))[
                0
            ].accuracy
        else:
            best = probe_accuracy(world, aspect, best_label_ridge(world, aspect))
    rtfa = out["rtfa"]
    less = right - best

    def shift_quantity(q: Quantity) -> Quantity:
        value, low, high = np.clip([q.value + less, q.low + less, q.high + less], 0.0, 1.0).tolist()
        return Quantity(value, low, high)

    accuracy = shift_quantity(rtfa.accuracy)
    note = f"one full-batch gradient step of {step:.3g}"
    return Prediction(
        "one_step",
        accuracy=accuracy,
        new=shift_quantity(rtfa.new),
        trusted=accuracy.value,
        note=note,
    )


def descent_time(world: LabelModel, aspect: float, ridge: float) -> float:
    """Step x steps of full-batch descent from the shared model that comes to the ridge fit.

    With more than DIRECT classes, or where the model hardly fits, as if all of the displacement had
    one curvature h: tau = log(1 + h/ridge)/h.
    """
    e, C = world.energies, world.link.classes
    if C == 2 and not world.strange:
        one = LogisticWorlds(e.broadcast((1,)), np.array([aspect]), np.zeros(1), None, True)
        return time_of(one, 0, ridge)
    if C > DIRECT_CLASSES or world.strange:
        B0 = float(e.b0)
        slope = (
            float(binary_phi(shrinkage(e) * np.sqrt(B0)))
            if C == 2
            else softmax_phi(softmax_centre(e, C) * np.sqrt(B0), C)
        )
        h = slope * float(e.s**2 @ e.ed) / float(e.s @ e.ed)
        return float(np.log1p(h / ridge) / h)
    top = max(ABOVE_CURVATURE * softmax_curvature(e, aspect), 3 * ridge)
    ridges = np.geomspace(top, ridge, 2 + int(PER_DECADE * np.log10(top / ridge)))
    fits = softmax_ridge_path(e, aspect, ridges, C, points=draw_points(C, SEARCH))
    return float(descent_clock(ridges, np.array([fit.distance for fit in fits]))[-1])


def largest_curvature(seen: ClassLook) -> float:
    """A bound on the curvature of a loss: half the largest eigenvalue of the second moments."""
    own = max(float(each.power.max()) / each.samples for each in seen.found.summaries)
    return 0.5 * max(own, 2 * seen.energy / TRAIN_BATCH)


def predict_stopping(
    world: LabelModel,
    shape: ClientSizes,
    ridges: LogisticRidges,
    table: AccuracyTable,
    seen: ClassLook,
) -> Steps | None:
    """The time that matches the ridge: steps of half the stable size, and epochs of `fa.train`."""
    if table["rtfa"].trusted <= table["fedavg"].trusted + CLOSE_ACCURACY:
        return None  # no fine-tuning at all is as good
    if table["rtfa"].contradicted or table["fedavg"].contradicted:
        return None  # the path of a model that does not fit says nothing about time
    time = descent_time(
        world, float(shape.aspects[shape.median_kind]), ridges.shared / shape.samples
    )
    # of two softmax columns each moves as far as the one weight vector of the formulas
    two = seen.classes.count == 2
    own = max(float(each.power.max()) / each.samples for each in seen.found.summaries)
    step = min(1 / ((0.25 if two else 0.5) * own), time)
    batches = math.ceil(shape.samples / TRAIN_BATCH)
    spent = time / (2 if two else 1)
    local_step = min(1 / largest_curvature(seen), spent / (SEVERAL_EPOCHS * batches))
    epochs = max(round(spent / (local_step * batches)), 1)
    return Steps(
        step,
        max(round(time / step), 1),
        accuracy=table["ftfa"].trusted,
        time=time,
        local_step=spent / (epochs * batches),
        epochs=epochs,
    )


def has_accuracy(algorithm: Algorithm, classes: int) -> bool:
    """Whether an algorithm's accuracy has a formula with so many classes."""
    world = ClassPopulation(radius=1, centre=1, aspect=1, classes=classes)
    many = None if classes > 2 else 10
    try:
        predict(world, [algorithm], clients=many)
    except NoFormula:
        return False
    return True


def predict_beside(
    beside: Sequence[Algorithm], table: AccuracyTable, world: LabelModel, sizes: ClientSizes
) -> AccuracyTable:
    """Algorithms beside the paper's for a middling client, as `fa.predict`; needs a formula.

    Formulas for more than two classes are for infinitely many clients: accuracies are moved to
    these as rtfa's is.
    """
    middle = sizes.median_kind
    out = {}
    population = world.population(float(sizes.aspects[middle]))
    clients = float(sizes.equivalent_clients[middle])
    moved = 0.0
    if beside and world.link.classes > 2:
        moved = table["rtfa"].accuracy.value - float(
            predict(population, PAPER["rtfa"])["rtfa"].accuracy
        )
    for each in beside:
        if world.link.classes == 2:
            member, new = (
                predict(population, each, clients=clients, member=one)[each.name]
                for one in (True, False)
            )
        else:
            member = new = predict(population, each)[each.name]
        right = float(np.clip(member.accuracy + moved, 0, 1))
        loss = member.log_loss
        out[each.name] = Prediction(
            each.name,
            accuracy=replace(UNKNOWN, value=right),
            new=replace(UNKNOWN, value=float(np.clip(new.accuracy + moved, 0, 1))),
            log_loss=UNKNOWN if loss is None else replace(UNKNOWN, value=float(loss)),
            ridge=None if member.ridge is None else float(member.ridge),
            trusted=right,
            note="for a middling client, without an interval, and not compared with the samples",
        )
    return out
