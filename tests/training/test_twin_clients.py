"""Client stages of the plain twin: fine-tuning, ridge, a few steps and training alone, against hand
loops and closed forms.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Average, Descend, Keep, Moreau, Nothing, Ridge
from fedasym.data.splits import PERSONAL, mix_hash
from fedasym.training import plans, twin
from fedasym.training.settings import CODE, TEXT, Settings
from fedasym.training.twin import TwinClient, batch_of, gradient

from .plain import SMALL, WHOLE, drawn, last, local_batches, same


def of_client(federation, name):
    rows = federation.rows(name, "train")
    return federation.features[rows], federation.labels[rows]


def test_fine_tuning_by_hand():
    federation = drawn([10, 5], seed=1)
    settings = replace(SMALL, personal_epochs=3)
    for snapshot in twin.run(TRAINED["ftfa"], federation, settings, TEXT, 2):
        streams = mix_hash(2, PERSONAL, federation.identities, snapshot.round)
        work = plans.epochs(streams, federation.counts("train"), 0, 3, batch=4, width=10)
        for name, steps in zip(federation.clients, work, strict=True):
            theta, rows = snapshot.shared, federation.rows(name, "train")
            for step in steps:
                if (step >= 0).any():
                    theta = theta - 0.1 * gradient(
                        theta, batch_of(federation, rows[step[step >= 0]], False, False, float)
                    )
            np.testing.assert_allclose(snapshot.personal[name], theta, rtol=1e-12)


@pytest.mark.parametrize("penalty", [1.0, 2.0])
def test_ridge_pulls_towards_the_shared_head(penalty):
    federation = drawn([8, 5], classes=None, outputs=2)
    protocol = replace(TEXT, penalty=penalty)
    settings = Settings(rounds=1, evaluate_every=1, batch=WHOLE, personal_epochs=400, ridge=0.7)
    found = last(TRAINED["rtfa"], federation, settings, protocol)
    short = last(TRAINED["rtfa"], federation, replace(settings, personal_epochs=2), protocol)
    for name in "ab":
        X, y = of_client(federation, name)
        S, b, W = X.T @ X / len(X), X.T @ y / len(X), found.shared
        np.testing.assert_allclose(
            found.personal[name],
            np.linalg.solve(S + penalty * 0.7 * np.eye(4), b + penalty * 0.7 * W),
            rtol=1e-10,
        )
        one = W - 0.1 * (S @ W - b)
        np.testing.assert_allclose(
            short.personal[name], one - 0.1 * (S @ one - b + penalty * 0.7 * (one - W)), rtol=1e-12
        )


def test_more_ridge_stays_closer_and_none_is_fine_tuning():
    federation = drawn([8, 5])
    tuned = {
        ridge: last(TRAINED["rtfa"], federation, replace(SMALL, ridge=ridge))
        for ridge in (0.0, 0.5, 5.0)
    }
    same(tuned[0.0], last(TRAINED["ftfa"], federation, SMALL))
    away = [np.linalg.norm(each.personal["a"] - each.shared) for each in tuned.values()]
    assert away == sorted(away, reverse=True)


def test_the_ridge_is_the_stage_own_then_that_of_the_settings_then_the_papers():
    federation = drawn([8, 5])
    for server, paper in ((Average(), 0.1), (Nothing(), 0.1), (Moreau(), 15.0)):
        plain, own = fa.Algorithm("plain", server, Ridge()), fa.Algorithm("own", server, Ridge(0.4))
        given = {
            ridge: last(plain, federation, replace(SMALL, ridge=ridge)) for ridge in (0.4, paper)
        }
        same(last(own, federation, replace(SMALL, ridge=3.0)), given[0.4])
        same(last(plain, federation, SMALL), given[paper])


def test_a_few_steps_are_the_first_batches():
    federation = drawn([10])
    few = fa.Algorithm("few", Average(), Descend(local_step=0.4, steps=4))
    for snapshot in twin.run(few, federation, SMALL, TEXT, 3):
        theta = snapshot.shared
        for D in local_batches(
            federation, "a", 4, 4, mix_hash(3, PERSONAL, federation.identities, snapshot.round)
        ):
            theta = theta - 0.4 * gradient(theta, D)
        np.testing.assert_allclose(snapshot.personal["a"], theta, rtol=1e-12)


def descended(W, work, step, pull=0.0):
    """SGD from W on the client's loss + pull/2 |theta - W|^2."""
    theta = W
    for D in work:
        theta = theta - step * (gradient(theta, D) + pull * (theta - W))
    return theta


def test_alone_a_round_is_a_pass_over_the_own_samples():
    federation = drawn([10, 3])
    start, two, four = twin.run(TRAINED["local"], federation, SMALL, CODE, 7)
    for snapshot in (start, two, four):
        np.testing.assert_array_equal(snapshot.shared, start.shared)
    client = TwinClient(federation, "a", SMALL, CODE, 7, float)
    passes = list(client.passes(mix_hash(7, PERSONAL, client.identity, 0), 5))
    # the released code tests after the first pass, the text before it
    np.testing.assert_array_equal(start.personal["a"], descended(start.shared, passes[:3], 0.1))
    np.testing.assert_array_equal(two.personal["a"], descended(start.shared, passes[:9], 0.1))
    np.testing.assert_array_equal(four.personal["a"], descended(start.shared, passes, 0.1))
    text = replace(CODE, passes_ahead=0)
    none, after_two, _ = twin.run(TRAINED["local"], federation, SMALL, text, 7)
    np.testing.assert_array_equal(none.personal["a"], start.shared)
    np.testing.assert_array_equal(after_two.personal["a"], descended(start.shared, passes[:6], 0.1))
    ridged = last(TRAINED["local_ridge"], federation, replace(SMALL, ridge=0.5), CODE, 7).personal[
        "a"
    ]
    np.testing.assert_array_equal(ridged, descended(start.shared, passes, 0.1, pull=2 * 0.5))
    idle = last(fa.Algorithm("idle", Nothing(), Keep()), federation, SMALL, CODE, 7)
    same(idle, none)
    step = last(fa.Algorithm("step", Nothing(), Descend(0.1)), federation, SMALL, CODE, 7)
    (first,) = client.batches(mix_hash(7, PERSONAL, client.identity, 4), 0, 1)
    np.testing.assert_array_equal(
        step.personal["a"], start.shared - 0.1 * gradient(start.shared, first)
    )


def test_no_passes_leave_the_shared_head():
    federation = drawn([6, 3])
    found = last(TRAINED["ftfa"], federation, replace(SMALL, personal_epochs=0))
    same(found, last(TRAINED["fedavg"], federation, SMALL))
    (only,) = twin.run(TRAINED["rtfa"], federation, replace(SMALL, rounds=0), TEXT, 0)
    assert only.round == 0
