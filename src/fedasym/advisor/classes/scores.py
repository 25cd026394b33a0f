"""Accuracy and log-loss of every method in a world with finitely many clients, member and new: two classes, then more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.advisor.classes import squares
from fedasym.advisor.classes.worlds import World
from fedasym.core.arrays import Array
from fedasym.theory.classes import metrics
from fedasym.theory.classes.finite import member_fit as member
from fedasym.theory.classes.finite import newcomer_fit as newcomer
from fedasym.theory.classes.finite import pooled_fit as pooled
from fedasym.theory.classes.margins import fit_to_convergence as converged
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.ridge import shrinkage
from fedasym.theory.classes.ridge import solve_ridge as solve
from fedasym.theory.classes.softmax import SEARCH, softmax_fedavg
from fedasym.theory.classes.softmax import draw_points as samples
from fedasym.theory.classes.softmax import softmax_centre as centre
from fedasym.theory.classes.softmax_ridge import softmax_ridge_path as path
from fedasym.worlds.energies import Energies

MANY = 60  # clients from which a member is a new client, in the search for the ridge
GRID = np.geomspace(1 / 9, 9, 5)  # about the rule of section 9.1
DIRECT = 20  # classes up to which the softmax system itself is solved: beyond, it takes minutes
SHARED_RIDGES = np.geomspace(1e-3, 10, 9)  # of the pooled fit, where it has no end without one


@dataclass(frozen=True)
class Score:
    """One method: accuracy and log-loss of a member, accuracy of a new client."""

    accuracy: float
    log_loss: float
    new: float


@dataclass(frozen=True)
class Ridges:
    """Ridge x samples for rtfa and local_ridge (a client of n samples takes ratio/n), and mu of the pooled fit (0: none)."""

    shared: float
    alone: float
    pooled: float = 0.0


def rule(world: World, aspect: float, *, alone: bool = False) -> float:
    """The logistic loss's ridge by section 9: gamma/(c r^2); with preferred directions least squares' times zeta^2/(c s2)."""
    e = world.energies.alone if alone else world.energies
    c = 1.0
    if not alone:
        c = max(float(shrinkage(e)) if world.link.classes == 2 else centre(e, world.link.classes), 0.05)
    if np.allclose(e.ed / e.ed.sum(), e.h):
        return aspect / max(c * float(e.ed.sum()), 1e-9)
    s2 = world.link.total - (world.zeta * world.rho) ** 2
    return squares.best_ridge(world, aspect, alone=alone) * world.zeta**2 / (c * s2)


def best_ridges(world: World, aspect: float, samples_: float, clients: float) -> Ridges:
    """For a middling client: two classes by search about the rule, more by the rule itself (it loses at most .02 points)."""
    own = rule(world, aspect, alone=True)
    if world.link.classes > 2:
        return Ridges(rule(world, aspect) * samples_, own * samples_)
    e = row(world.energies, GRID.size)
    alone = peak(own * GRID, metrics.accuracy(solve(e.alone, np.full(GRID.size, aspect), own * GRID, 0.0)))
    mu = pooled_ridge(world, aspect, clients)
    lam = rule(world, aspect) * GRID
    right = np.array([rtfa(world, aspect, float(each), clients, mu)[0 if clients < MANY else 1].accuracy for each in lam])
    return Ridges(peak(lam, right) * samples_, alone * samples_, mu)


def peak(at: Array, values: Array) -> float:
    """The best of a logarithmic grid, by a parabola through its neighbours."""
    values = np.nan_to_num(values, nan=-np.inf)
    i = int(np.argmax(values))
    if i in (0, len(at) - 1) or not np.isfinite(values[i - 1 : i + 2]).all():
        return float(at[i])
    a, b, c = values[i - 1 : i + 2]
    bend = a - 2 * b + c
    move = 0.5 * (a - c) / bend if bend < 0 else 0.0
    return float(np.exp(np.log(at[i]) + np.clip(move, -1, 1) * np.log(at[1] / at[0])))


def pooled_ridge(world: World, aspect: float, clients: float) -> float:
    """0, or where the pooled samples are separable the ridge of the shared model that serves a new client best."""
    e = row(world.energies, 1)
    if not bool(np.any(pooled(e, np.array([aspect]), np.array([clients])).member.diverged)):
        return 0.0
    wide = row(world.energies, SHARED_RIDGES.size)
    each = np.full(SHARED_RIDGES.size, aspect)
    mu = SHARED_RIDGES * aspect / clients
    return peak(mu, metrics.accuracy(pooled(wide, each, np.full(each.size, clients), mu).new))


def row(e: Energies, count: int) -> Energies:
    """The same energies so many times."""
    return e.broadcast((count,))


@dataclass(frozen=True)
class Rated:
    """Accuracy and log-loss of a state."""

    accuracy: float
    log_loss: float


def rated(state: State) -> Rated:
    """Of one world."""
    return Rated(float(np.ravel(metrics.accuracy(state))[0]), float(np.ravel(metrics.log_loss(state, np.zeros(1)))[0]))


def rtfa(world: World, aspect: float, ridge: float, clients: float, mu: float) -> tuple[Rated, Rated]:
    """Member and new client of two classes."""
    e = row(world.energies, 1)
    g, lam, m, at = (np.array([float(x)]) for x in (aspect, ridge, clients, mu))
    new = rated(newcomer(e, g, lam, m, at))
    if clients >= MANY:
        return new, new
    return rated(member(e, g, lam, m, at).state), new


def two_classes(world: World, aspect: float, samples_: float, clients: float, ridges: Ridges) -> dict[str, Score]:
    """fedavg, rtfa, local_ridge and training to convergence, with the ridges given."""
    e = row(world.energies, 1)
    g, m, mu = (np.array([float(x)]) for x in (aspect, clients, ridges.pooled))
    together = pooled(e, g, m, mu)
    own, new = rated(together.member), rated(together.new)
    mine, theirs = rtfa(world, aspect, ridges.shared / samples_, clients, ridges.pooled)
    alone = rated(solve(e.alone, g, np.array([ridges.alone / samples_]), 0.0))
    end = converged(e, g, np.zeros(1))
    last = rated(end.fit)
    endless = np.inf if bool(end.separable[0]) else last.log_loss
    return {
        "fedavg": Score(own.accuracy, own.log_loss, new.accuracy),
        "rtfa": Score(mine.accuracy, mine.log_loss, theirs.accuracy),
        "local_ridge": Score(alone.accuracy, alone.log_loss, alone.accuracy),
        "local": Score(last.accuracy, endless, last.accuracy),
    }


def softmax_excess(world: World, pooled_aspect: float, alike: float) -> tuple[float, float]:
    """How much the shared softmax model of these clients errs, in units of least squares: from noise and from displacements.

    To first order in d/N the pooled fit is c W0 plus a step Hh^{-1} of the gradient, c = phi(rho)/Hh: its noise per contrast is
    that of the residuals e_y - softmax, G = Brier/(C - 1), and it has of each displacement its client's weight, whose squares
    sum to `alike`. Least squares has larger residuals; 1/(1 - d/N) is what its own noise is multiplied with.
    """
    C = world.link.classes
    G = softmax_fedavg(world.energies, C).brier / (C - 1)
    return pooled_aspect / (1 - pooled_aspect) * G, world.r2 * world.spectrum.mean * alike


def more_classes(
    world: World, aspect: float, samples_: float, ridges: Ridges, excess: tuple[float, float], alike: float = 0.0
) -> dict[str, Score]:
    """The softmax system of infinitely many clients, moved to those at hand by what least squares says (`squares`).

    excess: of the shared model. alike: the part of a member's own displacement that is in the shared model; around it a member
    is taken as a new client: not derived, and a member does slightly better. With more than DIRECT classes the
    accuracies are those of tuned least squares, within half a point of the softmax's, and only the shared model has a log-loss.
    """
    e, C, n = world.energies, world.link.classes, samples_
    shared, error = softmax_fedavg(e, C), squares.error_of(world, excess)
    best, finite = squares.best_ridge(world, aspect), squares.best_ridge(world, aspect, error)
    T, Q = squares.state_of(world, aspect, np.inf, error)
    kept, member_kept = (squares.accuracy_of(world, T + world.zeta * part * float(e.bd), Q) for part in (0.0, alike))
    mine = squares.probe(world, aspect, finite, error)
    theirs = squares.probe(world, aspect, squares.best_ridge(world, aspect, alone=True), alone=True)
    if C > DIRECT or world.strange:
        unknown = float("nan")
        return {
            "fedavg": Score(member_kept, shared.log_loss, kept),
            "rtfa": Score(mine, unknown, mine),
            "local_ridge": Score(theirs, unknown, theirs),
        }
    few = samples(C, SEARCH)
    (own,) = path(e, aspect, [ridges.shared / n], C, points=few)
    (alone,) = path(e, aspect, [ridges.alone / n], C, shared=False, points=few)
    moved = mine - squares.probe(world, aspect, best)
    return {
        "fedavg": Score(member_kept, shared.log_loss, kept),
        "rtfa": Score(own.accuracy + moved, own.log_loss, own.accuracy + moved),
        "local_ridge": Score(alone.accuracy, alone.log_loss, alone.accuracy),
    }
