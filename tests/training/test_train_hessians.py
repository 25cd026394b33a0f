"""Hessians in compiled training: differences of softmaxes, for any step and in either precision."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

import fedasym as fa
from fedasym.training.steps import difference, slope

from .clients import GRAM, federation

pytestmark = pytest.mark.usefixtures("_light")


def test_finite_differences_find_the_hessian_at_second_order():
    clients = federation()
    exact = fa.train("maml", clients, **GRAM).shared
    errors = [
        np.linalg.norm(fa.train("maml_hf", clients, **GRAM, difference=difference).shared - exact)
        for difference in (0.1, 0.01, 0.001, 1e-7)
    ]
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 100, rtol=0.02)
    assert errors[3] < 1e-13  # where differences of softmaxes have lost half of their digits


by_difference = jax.jit(difference, static_argnums=0)


def naive(z, u, delta):
    up, down = (softmax(z + step * u, axis=-1) for step in (delta, -delta))
    return (up - down) / (2 * delta)


def test_the_difference_of_softmaxes_is_accurate_for_any_step():
    rng = np.random.default_rng(0)
    z, u = rng.standard_normal((2, 40, 5)) * np.array([3, 2])[:, None, None]
    for delta in (2.0, 0.3, 1e-2, 1e-3):
        with jax.enable_x64(True):
            np.testing.assert_allclose(
                by_difference("classification", z, u, delta),
                naive(z, u, delta),
                rtol=1e-9,
                atol=1e-13,
            )
        single = np.asarray(by_difference("classification", *np.float32([z, u]), np.float32(delta)))
        np.testing.assert_allclose(single, naive(z, u, delta), rtol=2e-5, atol=1e-6)
    exact = np.asarray(slope("classification", *np.float32([z, u])))
    ours = np.asarray(by_difference("classification", *np.float32([z, u]), np.float32(1e-6)))
    theirs = naive(*np.float32([z, u]), np.float32(1e-6))
    assert np.abs(ours - exact).max() < 1e-6
    assert np.abs(theirs - exact).max() > 1e-2  # plain differences in single precision are noise
    numbers = np.float32([z, u])
    np.testing.assert_array_equal(
        by_difference("regression", *numbers, np.float32(1e-6)), numbers[1]
    )
    np.testing.assert_array_equal(slope("regression", *numbers), numbers[1])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_saturated_softmaxes_stay_finite_and_right(precision):
    z = np.array([[0.0, -69.0, -70.0], [800.0, 0.0, -800.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    u = np.array([[0.0, 1.0, 0.0], [-0.01, 0.01, 0.0], [1e6, -1e6, 0.0], [0.0, 0.0, 0.0]])
    for delta in (1e-3, 1.0, 100.0, 1e4):
        with jax.enable_x64(precision == "float64"):
            found = np.asarray(
                by_difference(
                    "classification", *np.array([z, u], precision), np.asarray(delta, precision)
                )
            )
        assert found.dtype == precision
        np.testing.assert_allclose(found, naive(z, u, delta), rtol=1e-4, atol=1e-6 / delta)
