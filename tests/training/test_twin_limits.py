"""Limits of the plain twin: long training with whole batches is what the closed forms say."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedasym as fa
from fedasym.algorithms import TRAINED, Descend, Meta
from fedasym.training.settings import TEXT, Settings

from .plain import WHOLE, drawn, last

LONG = Settings(
    rounds=400,
    evaluate_every=400,
    batch=WHOLE,
    local_steps=1,
    personal_epochs=400,
    server_step=0.4,
    local_step=0.2,
)
CLOSED = {
    "fedavg": LONG,
    "ftfa": LONG,
    "rtfa": replace(LONG, ridge=0.6),
    "local": LONG,
    "local_ridge": replace(LONG, ridge=0.6),
    "maml": LONG,
    "pfedme": replace(LONG, ridge=1.2, server_step=1.5, inner_step=0.2, inner_steps=60),
}


@pytest.mark.parametrize("sizes", [[40, 60, 50], [3, 60, 50]], ids=["many samples", "one with few"])
@pytest.mark.parametrize("name", CLOSED)
def test_long_training_on_squares_is_the_linear_lens(name, sizes):
    federation = drawn(sizes, classes=None, seed=3)
    found = last(TRAINED[name], federation, CLOSED[name])
    exact = fa.linear.fit(
        name,
        federation.features,
        federation.labels[:, 0],
        np.array(federation.clients)[federation.owner],
        ridge=CLOSED[name].ridge,
        maml_step=0.2,
        intercept=False,
    )
    np.testing.assert_allclose(found.shared[:, 0], exact.shared, atol=1e-7)
    for client, head in found.personal.items():
        np.testing.assert_allclose(head[:, 0], exact.personal[client], atol=1e-7)


def test_the_own_step_of_a_meta_stage_is_that_of_the_linear_lens():
    federation = drawn([40, 60, 50], classes=None, seed=3)
    own = fa.Algorithm("own", Meta(0.1), Descend(local_step=0.2, steps=3))
    found = last(own, federation, LONG)
    exact = fa.linear.fit(
        own,
        federation.features,
        federation.labels[:, 0],
        np.array(federation.clients)[federation.owner],
        intercept=False,
    )
    np.testing.assert_allclose(found.shared[:, 0], exact.shared, atol=1e-9)
    np.testing.assert_allclose(found.personal["b"][:, 0], exact.personal["b"], atol=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_long_training_on_classes_is_logistic_regression(bias):
    federation = drawn([60], seed=5)
    protocol = replace(TEXT, intercept=bias)
    settings = replace(LONG, rounds=600, evaluate_every=600, local_step=1.0, ridge=0.05)
    found = last(TRAINED["local_ridge"], federation, settings, protocol)
    X = np.column_stack([federation.features, np.ones(60)]) if bias else federation.features
    theirs = LogisticRegression(
        C=1 / (0.05 * 60), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(X, federation.labels)
    np.testing.assert_allclose(found.personal["a"], theirs.coef_.T, atol=1e-6)


def test_more_passes_of_small_batches_come_close_as_well():
    federation = drawn([200, 150], classes=None, seed=6)
    exact = fa.linear.fit(
        "fedavg", federation.features, federation.labels[:, 0], federation.owner, intercept=False
    )
    settings = Settings(rounds=60, evaluate_every=60, batch=16, local_steps=1)
    errors = [
        np.linalg.norm(
            last(
                TRAINED["fedavg"], federation, replace(settings, server_step=step, rounds=rounds)
            ).shared[:, 0]
            - exact.shared
        )
        for step, rounds in ((0.2, 60), (0.02, 600))
    ]
    assert errors[1] < errors[0] < 0.5
