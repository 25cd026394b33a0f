"""Training at its edges: odd clients, no rounds, no passes, rare tests and small cohorts."""

import numpy as np
import pytest

import fedasym as fa
from fedasym import training
from fedasym.training.settings import Settings

from .clients import GRAM, as_twin, federation

pytestmark = pytest.mark.usefixtures("_light")


def test_one_client_with_one_sample_of_the_only_class():
    clients = fa.Federation.from_arrays(
        [[1.0, 2.0], [0.5, 1.0]], ["yes", "yes"], clients=["a", "a"], split=[0, 2]
    )
    for run in fa.train(
        ["rtfa", "fedavg"], clients, rounds=3, evaluate_every=1, precision="float64", form="gram"
    ):
        assert run.settings.cohort == 1
        as_twin(run, clients)
        np.testing.assert_array_equal(run.accuracy, 1)
        np.testing.assert_array_equal(run.loss, 0)


def test_no_rounds_is_the_beginning():
    clients = federation()
    for name in ("ftfa", "local", "pfedme"):
        run = fa.train(name, clients, **{**GRAM, "rounds": 0})
        assert run.rounds.tolist() == [0]
        np.testing.assert_array_equal(run.shared, 0)
        as_twin(run, clients)


def test_no_passes_leave_the_shared_model():
    run = fa.train("rtfa", federation(), **{**GRAM, "personal_epochs": 0})
    np.testing.assert_allclose(run.losses, run.shared_losses, rtol=1e-13)
    np.testing.assert_array_equal(run.correct, run.shared_correct)
    assert (run.hurt == 0).all()


def test_rare_tests_are_of_the_first_and_the_last_round():
    run = fa.train("ftfa", federation(), **{**GRAM, "evaluate_every": 99})
    assert run.rounds.tolist() == [0, 4]
    assert fa.train("ftfa", federation(), **{**GRAM, "rounds": 5}).rounds.tolist() == [0, 2, 4, 5]


def test_a_cohort_is_twenty_clients_or_all_that_can_train():
    many, few = federation([(1, 0, 1)] * 25), federation()
    found = {}

    class Stop(Exception):
        pass

    def stopped(jobs, *_):
        found["cohorts"] = [settings.cohort for _, settings in jobs]
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "compute_histories", stopped)
        for clients, told, cohort in (
            (many, None, 20),
            (few, None, 6),
            (many, 25, 25),
            (few, 6, 6),
        ):
            with pytest.raises(Stop):
                fa.train(["fedavg", "local"], clients, cohort=told)
            assert found["cohorts"] == [cohort, cohort]


def test_settings_say_when_clients_are_tested():
    assert Settings(rounds=7, evaluate_every=3).evaluated_rounds == [0, 3, 6, 7]
    assert Settings(rounds=6, evaluate_every=3).evaluated_rounds == [0, 3, 6]
    assert Settings(rounds=0).evaluated_rounds == [0]
