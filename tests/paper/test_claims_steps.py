"""Claims of the paper about gradient steps, and what they converge to."""

from __future__ import annotations

import numpy as np

import fedasym as fa

from ..cases import TWO_ATOM, draw_clients, sample
from .settings import FINITE_SIZE, HALF, apart, close, over_spectra


@over_spectra
def test_claim_more_steps_not_always_better(covariance: fa.Spectrum) -> None:
    """Above the noise threshold more gradient steps end up worse than none; without noise they
    always help.
    """
    edge = fa.noise_threshold(fa.Population(1, 0, 2, spectrum=covariance))
    noisy = fa.fine_tuning(
        fa.Population(1, 1.2 * edge, 2, spectrum=covariance), steps=[0, 1, 10, 100, np.inf]
    )
    assert np.isfinite(noisy.best.at)
    assert noisy.best.at > 0
    assert noisy.best.scores.loss < min(noisy.loss[0], noisy.loss[-1])
    assert noisy.loss[0] < noisy.loss[-1]
    silent = fa.fine_tuning(
        fa.Population(1, 0, 2, spectrum=covariance), steps=[0, 1, 3, 10, 30, 100, np.inf]
    )
    assert np.isinf(silent.best.at)
    assert np.all(np.diff(silent.loss) < 0)


def test_claim_more_steps_may_hurt_below_the_threshold_too() -> None:
    """At 90% of the threshold convergence beats no step at all, and still stopping early is
    better.
    """
    path = fa.fine_tuning(fa.Population(1, 0.9 * HALF, 2), flow=True, times=[0, 0.7, np.inf])
    assert path.best.scores.loss <= path.loss[1] < path.loss[2] < path.loss[0]


def test_claim_gradient_descent_converges_to_the_nearest_interpolant() -> None:
    """Run to convergence from the shared model, gradient descent gives equation param-perfedavg."""
    clients = draw_clients(11, [4, 4, 4], np.linspace(0.5, 2, 6))
    y = list(np.random.default_rng(12).standard_normal((3, 4, 1)))
    theta = start = clients.fedavg(y)
    step = 1 / np.linalg.eigvalsh(clients.S(0))[-1]
    for _ in range(3000):
        theta = theta - step * clients.gradient(y, 0, theta)
    close(theta, clients.interpolate(y, 0, start), rel=1e-9)
    apart(theta, clients.interpolate(y, 0, 0 * start))


def test_claim_one_gradient_step_differs_from_convergence() -> None:
    """The remark after theorem 3: B = r^2 [t1 - 2 a t2 + a^2 (t3 + gamma t1 t2)], V = sigma^2 gamma
    a^2 t2 after one step.
    """
    world, draw = fa.Population(1, HALF, 2, spectrum=TWO_ATOM), sample(TWO_ATOM, 2.0)
    t1, t2, t3 = (TWO_ATOM.weights @ TWO_ATOM.values**power for power in (1, 2, 3))
    best, risk = fa.one_step(world)
    close(best, t2 / (t3 + 2 * t1 * t2 + 0.5 * 2 * t2))
    close(
        [risk.bias, risk.variance],
        [t1 - 2 * best * t2 + best**2 * (t3 + 2 * t1 * t2), 0.5 * 2 * best**2 * t2],
    )
    close(draw.risk(lambda x: 1 - best * x, 0.5), [risk.bias, risk.variance], rel=FINITE_SIZE)
    assert all(fa.one_step(world, best * factor)[1].loss > risk.loss for factor in (0.99, 1.01))
    apart(risk.loss, fa.predict(world, "maml")["maml"].loss)


def test_claim_maml_objective_need_not_be_convex() -> None:
    """The loss after a gradient step of a convex loss, here log(1 + exp(-x)), has negative
    curvature somewhere.
    """
    x = np.linspace(-6, 6, 1201)
    after = x + 8 / (1 + np.exp(x))
    convex, stepped = np.logaddexp(0, -x), np.logaddexp(0, -after)
    assert np.diff(convex, 2).min() > 0
    assert np.diff(stepped, 2).min() < -1e-6
