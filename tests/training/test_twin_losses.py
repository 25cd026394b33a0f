"""Losses of the plain twin: against loops and finite differences, and pooled over the clients that
are tested.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED
from fedasym.training import twin
from fedasym.training.settings import CODE
from fedasym.training.twin import Batch, batch_of, gradient, hessian_times, mean_loss

from .plain import SMALL, drawn, last

# Losses

KINDS = {
    "classes": drawn([9]),
    "numbers": drawn([9], classes=None, outputs=2),
    "sequences of classes": drawn([9], positions=5),
    "sequences of numbers": drawn([9], classes=None, outputs=2, positions=5),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_the_loss_is_the_mean_over_real_positions(kind, bias, count_padding):
    federation = KINDS[kind]
    rows = np.array([0, 2, 3, 7])
    W = np.random.default_rng(1).standard_normal((federation.dimension + bias, federation.outputs))
    total, count = 0.0, 0
    for row in rows:
        for place, x in enumerate(np.atleast_2d(federation.features[row])):
            y = (
                federation.labels[row]
                if not federation.sequences
                else federation.labels[row][place]
            )
            if (
                federation.mask is not None
                and not federation.mask[row, place]
                and not count_padding
            ):
                continue
            z = x @ W[: federation.dimension] + (W[-1] if bias else 0)
            total += (
                np.log(np.exp(z).sum()) - z[y] if federation.classes else 0.5 * np.sum((z - y) ** 2)
            )
            count += 1
    D = batch_of(federation, rows, bias, count_padding, float)
    np.testing.assert_allclose(mean_loss(W, D), total / count, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_derivatives_are_those_of_finite_differences(kind, bias, count_padding):
    rng = np.random.default_rng(2)
    D = batch_of(KINDS[kind], np.array([1, 2, 5]), bias, count_padding, float)
    W, V = rng.standard_normal((2, D.X.shape[1], D.Y.shape[1]))
    h = 1e-5
    for place in np.ndindex(W.shape):
        E = np.zeros_like(W)
        E[place] = h
        np.testing.assert_allclose(
            gradient(W, D)[place], (mean_loss(W + E, D) - mean_loss(W - E, D)) / (2 * h), atol=1e-8
        )
    np.testing.assert_allclose(
        hessian_times(W, D, V),
        (gradient(W + h * V, D) - gradient(W - h * V, D)) / (2 * h),
        atol=1e-8,
    )


def test_large_scores_overflow_nowhere():
    D = Batch(np.array([[1.0]]), np.array([[1.0, 0.0]]), np.ones(1), True)
    W = np.array([[-1e4, 1e4]])
    assert mean_loss(W, D) == 2e4
    np.testing.assert_array_equal(gradient(W, D), [[-1.0, 1.0]])


# Testing heads


def test_accuracy_and_loss_pool_the_samples_of_all_clients():
    federation = drawn([3, 5], positions=4, test=6)
    heads = last(TRAINED["ftfa"], federation, SMALL, CODE).personal
    for count_padding in (False, True):
        right, lost, count = 0, 0.0, 0
        for client in federation.clients:
            for row in federation.rows(client, "test"):
                for place in range(4):
                    if federation.mask[row, place] or count_padding:
                        z = federation.features[row, place] @ heads[client][:-1] + heads[client][-1]
                        y = federation.labels[row, place]
                        right, lost, count = (
                            right + (z.argmax() == y),
                            lost + np.log(np.exp(z).sum()) - z[y],
                            count + 1,
                        )
        assert twin.accuracy(federation, heads, "test", count_padding) == right / count
        np.testing.assert_allclose(
            twin.loss(federation, heads, "test", count_padding), lost / count, rtol=1e-12
        )
    everyone = dict.fromkeys(federation.clients, heads["a"])
    assert twin.accuracy(federation, heads["a"]) == twin.accuracy(federation, everyone)
    assert np.isnan(twin.loss(federation, heads, "validation"))


def test_numbers_have_a_loss_and_no_accuracy():
    federation = drawn([3, 5], classes=None)
    assert twin.loss(federation, np.zeros((4, 1)), "train") == pytest.approx(
        np.mean(federation.labels**2) / 2
    )
    with pytest.raises(fa.InvalidInput, match="use loss"):
        twin.accuracy(federation, np.zeros((4, 1)), "train")
