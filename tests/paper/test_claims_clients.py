"""Claims of the paper about few clients, and about more and more of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedasym as fa

from .settings import EXAMPLE, close, shows


def test_claim_pfedme_beats_rtfa_and_small_step_maml_beats_ftfa_with_few_clients() -> None:
    """The equalities of theorems 3 and 4 are those of the limit: with few clients the shared models
    differ.
    """
    for m, member in product((3, 10, 100), (True, False)):
        table = fa.predict(EXAMPLE, ridge=1, maml_step=0.1, clients=m, member=member)
        assert table["pfedme"].loss < table["rtfa"].loss
        assert table["maml"].loss < table["ftfa"].loss
        large = fa.predict(EXAMPLE, ["maml", "ftfa"], maml_step=0.3, clients=m, member=member)
        assert large["maml"].loss > large["ftfa"].loss


def test_claim_pfedme_is_optimal_with_few_clients_at_the_same_ridge() -> None:
    """With m clients pFedMe's best ridge is still lam* = 1, while RTFA's is smaller: 0.64, 0.84 and
    0.98.
    """
    for m, smaller in ((4, "0.64"), (10, "0.84"), (100, "0.98")):

        def loss(log_ridge: float, m: int = m) -> float:
            return fa.predict(EXAMPLE, "pfedme", ridge=np.exp(log_ridge), clients=m)["pfedme"].loss

        found = minimize_scalar(loss, bounds=(-1, 1), method="bounded", options={"xatol": 1e-9})
        assert abs(found.x) < 1e-6
        best = fa.predict(EXAMPLE, ["pfedme", "rtfa"], clients=m)
        close(best["pfedme"].loss, found.fun)
        shows(best["rtfa"].ridge, smaller)
        assert best["pfedme"].loss < best["rtfa"].loss


@pytest.mark.parametrize(
    ("algorithm", "rate"),
    [("fedavg", "2.00"), ("ftfa", "2.00"), ("rtfa", "2.41"), ("maml", "1.73"), ("pfedme", "2.06")],
)
def test_claim_limits_are_reached_like_one_over_the_clients(algorithm: str, rate: str) -> None:
    """m (R_m - R) of a member tends to a constant; taking part differs from staying out only at
    order 1/m^2.
    """
    options = {"ridge": 1, "maml_step": 0.1}
    limit = fa.predict(EXAMPLE, algorithm, **options)[algorithm].loss
    m = 10**4
    member = fa.predict(EXAMPLE, algorithm, clients=m, **options)[algorithm].loss
    shows(m * (member - limit), rate)
    if algorithm != "fedavg":
        gaps = []
        for count in (100, 1000):
            inside = fa.predict(EXAMPLE, algorithm, clients=count, **options)[algorithm].loss
            outside = fa.predict(EXAMPLE, algorithm, clients=count - 1, member=False, **options)[
                algorithm
            ].loss
            gaps.append(outside - inside)
        assert 0 < gaps[1] < gaps[0] / 90


@pytest.mark.parametrize("q", [2.5, 3, 4])
def test_claim_client_growth_for_equal_clients_and_equal_samples(q: float) -> None:
    """sum p^(q/2+1) n = (N/m) m^(-q/2) for p = 1/m; for p = n/N at most
    (gamma_max/gamma_min)^(q/2+1) times that.
    """
    n = np.random.default_rng(8).integers(20, 60, 50)
    m, N = n.size, n.sum()
    target = N / m / m ** (q / 2)
    close(np.sum((1 / m) ** (q / 2 + 1) * n), target)
    share = np.sum((n / N) ** (q / 2 + 1) * n)
    assert target < share < (n.max() / n.min()) ** (q / 2 + 1) * target
