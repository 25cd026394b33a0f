"""Section 12: finitely many clients. Limits m -> infinity, members against newcomers."""

from __future__ import annotations

import numpy as np
import pytest

from fedasym.theory.classes.finite import member_fit, newcomer_fit, pooled_fit
from fedasym.theory.classes.metrics import accuracy, log_loss
from fedasym.theory.classes.ridge import fedavg, shrinkage, solve_ridge
from fedasym.worlds.classes import Energies

from .settings import TWO

MANY = 1e9


@pytest.mark.parametrize("spectrum", [{}, TWO])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_many_clients_are_the_limit(spectrum: dict, eps: float) -> None:
    e = Energies.isotropic([1.0, 2.0], [1.5, 1.0], **spectrum)
    shared = pooled_fit(e, 1.0, MANY, eps=eps)
    limit = fedavg(e, eps)
    for state in (shared.member, shared.new):
        np.testing.assert_allclose(state.T, limit.T, rtol=1e-6)
        np.testing.assert_allclose(state.Q, limit.Q, rtol=1e-6)
    personal = solve_ridge(e, 1.0, 0.5, shrinkage(e, eps), eps)
    for state in (
        newcomer_fit(e, 1.0, 0.5, MANY, eps=eps),
        member_fit(e, 1.0, 0.5, MANY, eps=eps).state,
    ):
        np.testing.assert_allclose(state.T, personal.T, rtol=1e-6)
        np.testing.assert_allclose(state.Q, personal.Q, rtol=1e-6)


def test_one_client_alone_is_local() -> None:
    """m = 1: the pooled fit is the client's own, so a ridge of the same kind is local ridge."""
    e = Energies.isotropic(1.0, 1.5, **TWO)
    one, local = pooled_fit(e, 2.0, 1, mu=0.3).member, solve_ridge(e.alone, 2.0, 0.3)
    assert (float(one.T), float(one.Q)) == pytest.approx(
        (float(local.T), float(local.Q)), rel=1e-11
    )


def test_members_do_better_than_newcomers_with_the_shared_model() -> None:
    e = Energies.isotropic(1.5, 1.5)
    found = pooled_fit(e, 1.0, np.array([6.0, 20.0, 100.0]))
    assert np.all(accuracy(found.member) > accuracy(found.new))
    assert np.all(log_loss(found.member) < log_loss(found.new))
    assert np.all(np.diff(accuracy(found.new)) > 0)


def test_a_newcomers_formula_is_wrong_for_members_of_small_federations() -> None:
    """12.3: off by percentage points at m = 6, by about .1 at m = 40."""
    e = Energies.isotropic(1.5, 1.5)
    gap = [
        abs(
            float(
                accuracy(member_fit(e, 0.3, 0.5, m).state) - accuracy(newcomer_fit(e, 0.3, 0.5, m))
            )
        )
        for m in (6, 40)
    ]
    assert 0.01 < gap[0] < 0.03
    assert gap[1] < 0.002


def test_an_infinite_ridge_keeps_the_pooled_model() -> None:
    e = Energies.isotropic(1.5, 1.0, **TWO)
    shared = pooled_fit(e, 1.0, 8)
    end, near = member_fit(e, 1.0, np.inf, 8), member_fit(e, 1.0, 1e6, 8)
    new = newcomer_fit(e, 1.0, np.inf, 8)
    for found in (end, near):
        assert (float(found.state.T), float(found.state.Q), float(found.Q02)) == pytest.approx(
            (float(shared.member.T), float(shared.member.Q), float(shared.member.Q)), rel=1e-5
        )
    assert (float(new.T), float(new.Q)) == pytest.approx(
        (float(shared.new.T), float(shared.new.Q)), rel=1e-12
    )


def test_separable_pooled_data_are_reported_or_need_a_ridge() -> None:
    e = Energies.isotropic(1.5, 1.0)
    assert bool(pooled_fit(e, 5.0, 2).member.diverged)
    assert np.isnan(float(member_fit(e, 5.0, 0.5, 2).state.T))
    assert not bool(pooled_fit(e, 5.0, 2, mu=0.1).member.diverged)
    assert np.isfinite(float(accuracy(member_fit(e, 5.0, 0.5, 2, mu=0.1).state)))


def test_a_batch_of_members_is_its_settings() -> None:
    e = Energies.isotropic([1.0, 2.0], 1.0)
    both = member_fit(e, 1.0, 0.5, 10)
    for i in range(2):
        one = member_fit(e.take(i), 1.0, 0.5, 10)
        assert float(both.state.Q[i]) == pytest.approx(float(one.state.Q), rel=1e-12)
