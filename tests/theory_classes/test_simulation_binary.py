"""An unrelated route: draw clients in hundreds of dimensions, train them with Newton's method,
score them exactly.

Given the trained weights their test accuracy is known, so that the only noise is which client was
drawn: means must agree within three standard errors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedasym.theory.classes.finite import member_fit, newcomer_fit, pooled_fit
from fedasym.theory.classes.margins import fit_to_convergence
from fedasym.theory.classes.metrics import State, accuracy, log_loss
from fedasym.theory.classes.optimum import step_from_shared, stopped_fits
from fedasym.theory.classes.ridge import shrinkage, solve_ridge
from fedasym.worlds.classes import Energies

from .settings import TWO, Array, Drawn, draw, logistic_ridge

D, DRAWS = 300, 10
ALIGNED = Energies(
    np.array([0.5, 3.0]), np.array([0.6, 0.4]), np.array([0.2, 0.8]), np.array([2.0, 0.1])
)


def agree(states: list[State], predicted: State, eps: float = 0.0) -> None:
    """Mean accuracy and log-loss within three standard errors."""
    for metric in (accuracy, log_loss):
        values = np.array([float(metric(state, eps)) for state in states])
        error = 3 * values.std(ddof=1) / np.sqrt(values.size)
        assert abs(values.mean() - float(metric(predicted, eps))) < error, metric


def trained(
    e: Energies, gamma: float, how: Callable[[Drawn], Array], seed: int, eps: float = 0.0
) -> list[State]:
    rng = np.random.default_rng(seed)
    clients = [draw(e, gamma, D, rng, eps=eps)[0] for _ in range(DRAWS)]
    return [client.state(how(client)) for client in clients]


@pytest.mark.parametrize(
    ("e", "gamma", "lam", "eps"),
    [
        (Energies.isotropic(1.5, 1.5), 2.0, 1.0, 0.0),
        (Energies.isotropic(1.5, 1.5), 2.0, 0.01, 0.0),
        (Energies.isotropic(1.0, 2.0, **TWO), 0.5, 0.2, 0.1),
        (ALIGNED, 1.0, 0.1, 0.0),
    ],
    ids=["even", "overtrained", "flips", "aligned"],
)
def test_ridge(e: Energies, gamma: float, lam: float, eps: float) -> None:
    c = float(shrinkage(e, eps))
    agree(
        trained(
            e,
            gamma,
            lambda client: logistic_ridge(client.x, client.y, lam, c * client.theta0),
            1,
            eps,
        ),
        solve_ridge(e, gamma, lam, c, eps),
        eps,
    )


def test_local_ridge_and_maximum_likelihood() -> None:
    e = Energies.isotropic(1.0, 1.0, **TWO)
    agree(
        trained(
            e, 1.0, lambda client: logistic_ridge(client.x, client.y, 0.3, 0 * client.theta0), 2
        ),
        solve_ridge(e.alone, 1.0, 0.3),
    )
    agree(
        trained(
            e, 0.15, lambda client: logistic_ridge(client.x, client.y, 0.0, 0 * client.theta0), 3
        ),
        fit_to_convergence(e, 0.15).fit,
    )


def test_shared_model_of_very_many_samples() -> None:
    """Section 2 without the limit's system: the population's logistic fit is c theta_0."""
    e = Energies.isotropic(1.2, 1.5)
    rng = np.random.default_rng(4)
    z = rng.standard_normal((2, 2_000_000))
    p = 1 / (1 + np.exp(-(1.2 * z[0] + 1.5 * z[1])))
    c = float(shrinkage(e))
    slope = 1.2 * z[0] * (p - 1 / (1 + np.exp(-c * 1.2 * z[0])))
    assert abs(slope.mean()) < 3 * slope.std() / np.sqrt(slope.size)


def test_one_gradient_step() -> None:
    e, gamma = Energies.isotropic(1.5, 1.5, **TWO), 2.0
    c, found = float(shrinkage(e)), step_from_shared(e, gamma)

    def step(client: Drawn) -> Array:
        centre = c * client.theta0
        residual = (client.y + 1) / 2 - 1 / (1 + np.exp(-client.x @ centre))
        return centre + float(found.step) * client.x.T @ residual / client.y.size

    agree(trained(e, gamma, step, 5), found.state)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_early_stopping(gamma: float) -> None:
    """Section 7 claims .6 pp with Monte Carlo noise, and 1% of the log-loss on the same draws."""
    e, eta, steps = Energies.isotropic(1.5, 1.5), 0.2, (5, 50, 500)
    c = float(shrinkage(e))
    predicted = stopped_fits(e, gamma, eta * np.array(steps)).fit
    rng = np.random.default_rng(6)
    measured = []
    for _ in range(8):
        client = draw(e, gamma, D, rng)[0]
        theta, row = c * client.theta0, []
        for step in range(1, max(steps) + 1):
            theta = (
                theta
                + eta
                * client.x.T
                @ (client.y / (1 + np.exp(client.y * (client.x @ theta))))
                / client.y.size
            )
            if step in steps:
                row.append(float(accuracy(client.state(theta))))
        measured.append(row)
    error = np.abs(np.mean(measured, axis=0) - accuracy(predicted))
    spread = 3 * np.std(measured, axis=0, ddof=1) / np.sqrt(8)
    assert np.all(error < 0.003 + spread)


@pytest.mark.parametrize("mu", [0.0, 0.2])
def test_few_clients(mu: float) -> None:
    """12.1 to 12.3 on the same draws: the pooled model on members and others, a member's and a
    newcomer's ridge around it.
    """
    e, gamma, m, lam = Energies.isotropic(1.5, 1.5), 1.0, 6, 0.3
    rng = np.random.default_rng(7)
    found: dict[str, list[State]] = {"member": [], "new": [], "rtfa": [], "rtfa_new": []}
    for _ in range(6):
        *inside, other = draw(e, gamma, 150, rng, clients=m + 1)
        x, y = np.concatenate([one.x for one in inside]), np.concatenate([one.y for one in inside])
        shared = logistic_ridge(x, y, mu, 0 * other.theta0)
        found["member"] += [one.state(shared) for one in inside]
        found["new"].append(other.state(shared))
        found["rtfa"] += [one.state(logistic_ridge(one.x, one.y, lam, shared)) for one in inside]
        found["rtfa_new"].append(other.state(logistic_ridge(other.x, other.y, lam, shared)))
    together = pooled_fit(e, gamma, m, mu)
    predicted = {
        "member": together.member,
        "new": together.new,
        "rtfa": member_fit(e, gamma, lam, m, mu).state,
        "rtfa_new": newcomer_fit(e, gamma, lam, m, mu),
    }
    for key, states in found.items():
        agree(states, predicted[key])
