"""Misprints of the algorithms. Every client takes part with all its samples, so rounds are exact
gradient steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ..cases import Array
from .settings import FEW, LABELS, MANY, apart, close

STEP, RIDGE, INNER = 0.2, 0.8, 0.15
Update = Callable[[int, Array], Array]


def fedavg_update(j: int, theta: Array) -> Array:
    """Line 1756: one gradient step."""
    return theta - STEP * MANY.gradient(LABELS, j, theta)


def hessian_free(j: int, theta: Array, difference: float = 1e-3) -> tuple[Array, Array]:
    """MAML's gradient after the inner step, and the Hessian of the loss times it by finite
    differences.
    """
    after = MANY.gradient(LABELS, j, theta - INNER * MANY.gradient(LABELS, j, theta))
    up, down = (MANY.gradient(LABELS, j, theta + sign * difference * after) for sign in (1, -1))
    return after, (up - down) / (2 * difference)


def maml_update(j: int, theta: Array) -> Array:
    """theta - eta (g2 - alpha H g2): a step on the loss after the inner step."""
    after, curved = hessian_free(j, theta)
    return theta - STEP * (after - INNER * curved)


def first_order_update(j: int, theta: Array) -> Array:
    """The first-order variant drops the Hessian."""
    return theta - STEP * hessian_free(j, theta)[0]


def pfedme_update(j: int, theta: Array) -> Array:
    """Line 1832, with the proximal model of the (corrected) line 1831."""
    return theta - STEP * RIDGE * (theta - MANY.shrink(LABELS, j, theta, RIDGE))


def train(
    update: Update,
    aggregate: Callable[[list[Array]], Array],
    mixing: float = 1.0,
    rounds: int = 2000,
) -> Array:
    """Rounds of local updates and aggregation, from zero, to convergence."""
    theta = np.zeros((3, 1))
    for _ in range(rounds):
        theta = (1 - mixing) * theta + mixing * aggregate([update(j, theta) for j in range(3)])
    return theta


def weighted(models: list[Array]) -> Array:
    """sum over j in the round of n_j / (sum of n_l over the round) theta_j."""
    return np.tensordot(MANY.sizes / MANY.sizes.sum(), models, axes=1)


def printed_aggregate(models: list[Array]) -> Array:
    """sum_{j=1}^D n_j / (sum_j n_j) theta_i: the index of the model is that of the last client of
    the loop.
    """
    return sum(n / MANY.sizes.sum() * models[-1] for n in MANY.sizes)


AGGREGATION = {
    "1760": (fedavg_update, 1.0, MANY.fedavg(LABELS)),
    "1809": (maml_update, 1.0, MANY.maml(LABELS, INNER)),
    "1836": (pfedme_update, 0.6, MANY.pfedme(LABELS, RIDGE)[0]),
}


@pytest.mark.parametrize(("update", "mixing", "target"), AGGREGATION.values(), ids=AGGREGATION)
def test_erratum_aggregation_averages_the_models_of_the_round(
    update: Update, mixing: float, target: Array
) -> None:
    """With the models theta_j of the round, weighted by n_j, training solves its objective; with
    theta_i it follows one.
    """
    close(train(update, weighted, mixing), target, rel=1e-9)
    printed = train(update, printed_aggregate, mixing)
    alone = np.linalg.lstsq(MANY.X[2], LABELS[2])[
        0
    ]  # every update of client 2 alone vanishes at its own fit
    close(printed, alone, rel=1e-9)
    apart(printed, target)


def test_erratum_1760_1809_1836_weights_are_those_of_the_sampled_clients() -> None:
    """When clients 0 and 2 are sampled, sum_{j=1}^D takes the sample counts of clients 0 and 1."""
    models = [fedavg_update(j, np.ones((3, 1))) for j in range(3)]
    chosen, n = [0, 2], MANY.sizes
    right = sum(n[j] * models[j] for j in chosen) / n[chosen].sum()
    printed = sum(n[k] * models[j] for k, j in enumerate(chosen)) / n[:2].sum()
    pooled = (
        np.concatenate([MANY.X[j] for j in chosen]),
        np.concatenate([LABELS[j] for j in chosen]),
    )
    step = np.ones((3, 1)) - STEP * pooled[0].T @ (pooled[0] @ np.ones((3, 1)) - pooled[1]) / len(
        pooled[1]
    )
    close(right, step, rel=1e-10)  # one gradient step on the pooled samples of the round
    apart(printed, step, rel=0.01)


def test_erratum_1790_1806_maml_hf_takes_steps_on_the_loss_after_the_inner_step() -> None:
    """As printed (plain steps of size alpha) it is FedAvg; g2 - alpha H g2 is the gradient of
    MAML's objective.
    """
    theta = np.ones((3, 1))
    for j, X in enumerate(MANY.X):
        W = np.eye(len(X)) - INNER / len(X) * X @ X.T
        after, curved = hessian_free(j, theta)
        close(after - INNER * curved, X.T @ W @ W @ (X @ theta - LABELS[j]) / len(X), rel=1e-9)
        close(after, X.T @ W @ (X @ theta - LABELS[j]) / len(X), rel=1e-9)
    printed = train(lambda j, theta: theta - INNER * MANY.gradient(LABELS, j, theta), weighted)
    target = MANY.maml(LABELS, INNER)
    close(printed, MANY.fedavg(LABELS), rel=1e-9)
    close(train(maml_update, weighted), target, rel=1e-9)
    apart(printed, target)
    first_order = train(first_order_update, weighted)
    apart(first_order, target, rel=0.01)
    apart(first_order, printed, rel=0.01)


def test_erratum_1815_maml_hf_returns_the_personalised_models() -> None:
    """The algorithm computes personalised models and must return them: the shared one does not fit
    the client's samples.
    """
    y = [np.random.default_rng(81 + j).standard_normal((4, 1)) for j in range(3)]
    shared = FEW.maml(y, 0.1)
    personal, step = shared, 1 / np.linalg.eigvalsh(FEW.S(0))[-1]
    for _ in range(12000):
        personal = personal - step * FEW.gradient(y, 0, personal)
    assert np.abs(FEW.X[0] @ personal - y[0]).max() < 1e-9
    assert np.abs(FEW.X[0] @ shared - y[0]).max() > 0.1
    close(personal, FEW.model("maml", 0, alpha=0.1)(y), rel=1e-8)


def test_erratum_1831_pfedme_minimises_the_loss_not_its_gradient() -> None:
    """In one dimension the printed objective (gradient plus penalty) has the minimiser w - s/lam,
    whatever the labels.
    """
    x, w, lam = np.array([0.5, -1.2, 2.0]), 0.3, 0.8
    s = x @ x / 3

    def printed(y: Array) -> float:
        grid = np.linspace(-10, 10, 200001)
        gradient = s * grid - x @ y / 3
        return grid[np.argmin(gradient + lam / 2 * (grid - w) ** 2)]

    one, two = np.array([1.0, 2, 3]), np.array([-4.0, 0, 5])
    for y in (one, two):
        right = minimize_scalar(
            lambda b, y=y: np.sum((x * b - y) ** 2) / 6 + lam / 2 * (b - w) ** 2
        ).x
        assert right == pytest.approx((lam * w + x @ y / 3) / (s + lam), abs=1e-6)
        assert printed(y) == pytest.approx(w - s / lam, abs=1e-4)
        apart(printed(y), right)
    assert printed(one) == printed(two)


def test_erratum_1838_pfedme_returns_the_local_models() -> None:
    """The personalised models of equation param-prox are theta_i(theta_0), not the shared model
    that is returned.
    """
    shared = train(pfedme_update, weighted, 0.6)
    solution = MANY.pfedme(LABELS, RIDGE)
    for j in range(3):
        close(MANY.shrink(LABELS, j, shared, RIDGE), solution[1 + j], rel=1e-8)
        apart(shared, solution[1 + j])
