"""Budgets of differential privacy: the accountant's numbers, exact Gaussian mechanisms,
refusals.
"""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedasym.core.errors import InvalidInput
from fedasym.core.privacy import Privacy


def exact_epsilon(multiplier, delta):
    """Of one Gaussian mechanism: the root of Balle and Wang's (2018) privacy profile."""

    def excess(epsilon):
        far, near = (
            -epsilon * multiplier - 0.5 / multiplier,
            -epsilon * multiplier + 0.5 / multiplier,
        )
        return norm.cdf(near) - np.exp(epsilon + norm.logcdf(far)) - delta

    return brentq(excess, 0, 200)


@pytest.mark.parametrize(("multiplier", "rounds"), [(5.0, 1), (20.0, 100), (3.0, 10)])
def test_with_all_clients_it_is_the_exact_gaussian_mechanism(multiplier, rounds):
    expected = exact_epsilon(multiplier / np.sqrt(rounds), 1e-6)
    assert Privacy(noise_multiplier=multiplier).spend(rounds, 50, 50) == pytest.approx(
        expected, rel=1e-6
    )
    replaced = Privacy(noise_multiplier=2 * multiplier, sampling="fixed").spend(rounds, 50, 50)
    assert replaced == pytest.approx(
        expected, rel=1e-6
    )  # one client moves the sum by twice the clip


def test_the_moments_accountants_published_example():
    """Abadi et al. 2016: sampling 1 %, multiplier 4, 10,000 steps, delta 1e-5 spend 1.26; later
    conversions are tighter.
    """
    spent = Privacy(noise_multiplier=4, delta=1e-5).spend(10_000, 600, 60_000)
    assert 0.9 < spent < 1.26


def test_loss_distributions_are_tighter():
    tight = Privacy(noise_multiplier=1, accountant="pld").spend(20, 20, 3000)
    assert 0 < tight < Privacy(noise_multiplier=1).spend(20, 20, 3000)


def test_samplings_are_told_apart():
    poisson = Privacy(noise_multiplier=1).spend(400, 20, 3000)
    fixed = Privacy(noise_multiplier=1, sampling="fixed").spend(400, 20, 3000)
    assert (round(poisson, 1), round(fixed)) == (1.5, 14)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
@pytest.mark.parametrize("clients", [3000, 20], ids=["some", "everyone"])
def test_the_least_multiplier_keeps_the_budget_and_less_does_not(sampling, clients):
    budget, sizes = Privacy(epsilon=4, sampling=sampling), (100, 20, clients)
    least = budget.find_multiplier(*sizes)
    assert Privacy(noise_multiplier=least, sampling=sampling).spend(*sizes) <= 4
    assert Privacy(noise_multiplier=least * 0.999, sampling=sampling).spend(*sizes) > 4
    assert budget.spend(*sizes) == 4


def test_fewer_rounds_and_more_clients_spend_less():
    spend = Privacy(noise_multiplier=1).spend
    assert spend(10, 20, 3000) < spend(400, 20, 3000) < spend(400, 20, 300)
    assert spend(0, 20, 3000) == 0
    anything = Privacy(epsilon=1).find_multiplier(0, 20, 3000)  # nothing is sent
    assert Privacy(noise_multiplier=anything).spend(0, 20, 3000) == 0


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "epsilon"),
        ({"epsilon": 1, "noise_multiplier": 1}, "noise_multiplier"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "much"}, "epsilon"),
        ({"epsilon": 1, "delta": 1}, "delta"),
        ({"epsilon": 1, "clip": -1}, "clip"),
        ({"epsilon": 1, "quantile": 1}, "quantile is 1"),
        ({"epsilon": 1, "quantile": 0}, "quantile is 0"),
        ({"epsilon": 1, "sampling": "posson"}, "poisson"),
        ({"epsilon": 1, "sampling": "fixed", "accountant": "pld"}, "accountant"),
    ],
)
def test_refusals_name_the_field(settings, field):
    with pytest.raises(InvalidInput, match=field):
        Privacy(**settings)


def test_sizes_are_checked():
    with pytest.raises(
        InvalidInput, match="cohort is 30: it must be at most the number of clients, 20"
    ):
        Privacy(noise_multiplier=1).spend(1, 30, 20)
    with pytest.raises(InvalidInput, match="epsilon is 1e-07: no noise keeps it"):
        Privacy(epsilon=1e-7).find_multiplier(10_000, 20, 20)
