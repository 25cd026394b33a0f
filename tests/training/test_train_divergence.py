"""Training that diverges: when it is noticed, what is said, and whom it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.training import twin

from .clients import GRAM, as_twin, federation, same, scores

pytestmark = pytest.mark.usefixtures("_light")


def first_broken(run):
    """`History.diverged` by the twin: when the shared head broke, or when a test met a loss that is
    not finite.
    """
    with np.errstate(all="ignore"):
        every = twin.run(
            run.algorithm,
            run.federation,
            replace(run.settings, evaluate_every=1),
            run.protocol,
            run.seed,
        )
        broken = None
        for snapshot in every:
            broken = (
                snapshot.round
                if broken is None and not np.isfinite(snapshot.shared).all()
                else broken
            )
            if snapshot.round in run.rounds:
                lost = scores(run.federation, snapshot.personal, run.protocol)[1]
                if broken is not None or not np.isfinite(lost).all():
                    return snapshot.round if broken is None else broken
    return None


def test_a_configuration_that_diverges_leaves_its_neighbours_alone():
    clients = federation(classes=None)
    told = {**GRAM, "rounds": 70, "evaluate_every": 40}
    runs = fa.train("rtfa", clients, **told, grid={"server_step": [0.1, 2000.0]}, seeds=[0, 1])
    for run in runs:
        expected = first_broken(run)
        assert run.diverged == expected
        if expected is None:
            same(
                run, fa.train("rtfa", clients, **{**told, "server_step": 0.1}, seed=run.seed), 1e-12
            )
            continue
        assert 25 < expected < 40  # in the second piece of rounds, between two tests
        finite = np.isfinite(run.losses[:, run.totals > 0]).all(1)
        np.testing.assert_array_equal(finite, run.rounds < expected)
        assert not np.isfinite(run.shared).any()
        assert f"not finite from round {expected} on" in str(run)
    assert [run.diverged is None for run in runs] == [True, True, False, False]
    assert runs.choose()[0].settings.server_step == 0.1


def test_a_loss_that_overflows_is_divergence_at_the_test_that_meets_it():
    clients = federation(classes=None)
    run = fa.train(
        "rtfa", clients, **{**GRAM, "rounds": 40, "evaluate_every": 20, "server_step": 60.0}
    )
    assert np.isfinite(run.shared).all()
    assert run.diverged == first_broken(run) == 40


def test_a_client_stage_may_diverge_on_its_own():
    clients = federation(classes=None)
    good, bad = fa.train("rtfa", clients, **GRAM, grid={"local_step": [0.2, 1e70]})
    assert (good.diverged, bad.diverged) == (None, 0)
    assert np.isfinite(bad.shared_losses).all()
    np.testing.assert_array_equal(good.shared, bad.shared)
    alone = fa.train("rtfa", clients, **GRAM)
    same(good, alone, 1e-12)
    as_twin(alone, clients)


def test_alone_divergence_is_seen_at_the_first_test_after_it():
    clients = federation(classes=None)
    run = fa.train("local", clients, **{**GRAM, "local_step": 1e30})
    assert run.diverged == first_broken(run) > 0
    assert "local_step (now 1e+30)" in str(run)
