"""Exact expectations of `simulate` against a dense computation."""

from __future__ import annotations

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import PAPER, Average, Descend, Flow, Interpolate, Keep, Meta, Moreau, Ridge
from fedasym.exact.draws import draw_features, seeded_generator
from fedasym.verbs.trials import TrialPlan, expect_losses

from .worlds import AR1, DIFFERENT, POWER, TWO, WORLD, plan_of

SINGULAR = fa.spectra.atoms([0, 1, 3], [0.4, 0.35, 0.25])


def dense(plan: TrialPlan) -> dict[str, np.ndarray]:
    """Bias and variance from the matrices themselves: every estimator as a linear map of theta_0,
    displacements and noise.
    """
    kinds, d = plan.kinds, plan.kinds[0].s.size

    def sample(kind, *path):
        X = draw_features(kind, seeded_generator(plan.seed, 0, *path), plan.features)
        return kind, X, X.T @ X / kind.n

    clients = [sample(plan.kind_of(j), 0, j) for j in range(sum(plan.count))]
    found = {}
    for each in plan.algorithms:
        rows = []
        for kind in kinds:
            risks = []
            for j in plan.places(kind):
                _, X, S = clients[j] if plan.member else sample(kind, 1, kind.place, j)
                P, own = personal(each.algorithm.personalise, S, each.ridge_of(kind))
                own = own @ X.T / kind.n
                loss = lambda M, energy, s=kind.s: float(s @ M**2 @ energy)  # noqa: E731
                if each.pull is None:
                    risks.append([loss(P, kind.optimum), kind.noise2 * loss(own, np.ones(kind.n))])
                    continue
                lost, moved, heard = shared(plan, each, clients)
                bias = 0.0 if kinds[0].centre is None else loss(P @ lost, kinds[0].centre)
                variance = 0.0
                for i, (other, _, _) in enumerate(clients):
                    mine = plan.member and i == j
                    bias += loss(P @ (moved[i] - mine * np.eye(d)), other.shift)
                    variance += other.noise2 * loss(
                        P @ heard[i] + (own if mine else 0), np.ones(other.n)
                    )
                if not plan.member:
                    bias, variance = (
                        bias + loss(P, kind.shift),
                        variance + kind.noise2 * loss(own, np.ones(kind.n)),
                    )
                risks.append([bias, variance])
            rows.append(np.mean(risks, axis=0))
        found[each.name] = np.array(rows)
    return found


def personal(stage, S, ridge):
    """P(S) and F(S) of the table of client stages."""
    x, V = np.linalg.eigh(S)
    x = np.where(x < 1e-10 * x[-1], 0, x)
    match stage:
        case Keep():
            keep = np.ones_like(x)
        case Interpolate():
            keep = np.where(x > 0, 0.0, 1.0)
        case Ridge():
            keep = np.ones_like(x) if np.isinf(ridge) else ridge / (x + ridge)
        case Descend(step, steps):
            keep = (1 - step * x) ** steps
        case Flow(time):
            keep = np.exp(-time * x)
    fit = np.divide(1 - keep, x, out=np.zeros_like(x), where=x > 0)
    return (V * keep) @ V.T, (V * fit) @ V.T


def shared(plan, each, clients):
    """What theta_0_hat - theta_0 makes of theta_0, of each displacement and of each client's
    noise.
    """
    d = plan.kinds[0].s.size
    if plan.underdetermined:
        inverse = np.linalg.pinv(np.vstack([X for _, X, _ in clients]))
        parts = np.split(inverse, np.cumsum([len(X) for _, X, _ in clients])[:-1], axis=1)
        moved = [part @ X for part, (_, X, _) in zip(parts, clients, strict=True)]
        return sum(moved) - np.eye(d), moved, parts
    pulls = []
    for kind, _, S in clients:
        p, ridge = each.pull.p[kind.place], each.ridge_of(kind)
        match each.algorithm.server:
            case Meta(step):
                pulls.append(p * (np.eye(d) - step * S) @ (np.eye(d) - step * S))
            case Moreau() if np.isfinite(ridge):
                pulls.append(p * ridge * np.linalg.inv(S + ridge * np.eye(d)))
            case _:
                pulls.append(p * np.eye(d))
    inverse = np.linalg.inv(sum(b @ S for b, (_, _, S) in zip(pulls, clients, strict=True)))
    moved = [inverse @ b @ S for b, (_, _, S) in zip(pulls, clients, strict=True)]
    return (
        np.zeros((d, d)),
        moved,
        [inverse @ b @ X.T / kind.n for b, (kind, X, _) in zip(pulls, clients, strict=True)],
    )


EVERY = [
    *PAPER,
    fa.Algorithm("steps", Average(), Descend(0.05, 3)),
    fa.Algorithm("flow", Average(), Flow(0.4)),
    fa.Algorithm("one step", Meta(0.05), Descend(0.1, 1)),
]
DENSE = [
    (WORLD, {}),
    (WORLD, {"features": "rademacher", "member": False}),
    (WORLD, {"features": "student", "ridge": np.inf}),
    (fa.Population(1.3, 0.7, 0.5, norm=2, spectrum=TWO), {"clients": 3}),
    (fa.Population(1.3, 0.7, 2, norm=3, spectrum=AR1, shift_power=1), {"ridge": 0.3}),
    (
        fa.Population(
            1, 0.7, 2, norm=3, spectrum=TWO, shift_weights=[1, 0], optimum_weights=[0.8, 0.2]
        ),
        {"ridge": 0.3},
    ),
    (
        fa.Population(1, 0.7, 2, norm=3, spectrum=POWER, shift_power=-1),
        {"ridge": 0.3, "member": False},
    ),
    (fa.Population(1.3, 0.7, 3, norm=3, spectrum=SINGULAR), {"clients": 4}),
    (fa.Population(1.3, 0.7, 4, norm=2.5, spectrum=TWO), {"clients": 2, "ridge": 0.4}),
    (
        fa.Population(1, 0.7, 4, norm=2.5, spectrum=TWO, shift_power=1, optimum_power=1),
        {"clients": 2, "member": False},
    ),
    (DIFFERENT, {"clients": [3, 3, 1]}),
    (DIFFERENT[:2], {"clients": [3, 2], "member": False, "weights": "uniform"}),
    (fa.Population(0, 0.7, 2, norm=2, spectrum=TWO), {}),
    (fa.Population(1, 0, 2, norm=2), {"ridge": 0.2}),
]


@pytest.mark.parametrize(("world", "options"), DENSE)
def test_expectations_equal_a_dense_computation(world, options):
    plan = plan_of(world, algorithms=EVERY, **options)
    truth = dense(plan)
    for name, found in expect_losses(plan, 0, lambda _: None).items():
        assert (
            np.max(np.abs(np.array(found) - truth[name]) / truth[name].sum(-1, keepdims=True))
            < 1e-10
        ), name
