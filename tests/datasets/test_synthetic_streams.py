"""Random streams of synthetic data: by seed, and clients and parameters that do not disturb each
other.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym import datasets

from .drawn import near, residuals, rows_of

WORLDS = {
    "regression": {"dimension": 12, "noise": 0.3},
    "classification": {"task": "classification", "classes": 3, "dimension": 12, "flips": 0.2},
    "two classes": {"task": "classification", "classes": 2, "dimension": 12},
    "sequences": {"task": "classification", "classes": 3, "dimension": 12, "positions": 4},
    "alpha, beta": {"alpha": 1, "beta": 1, "dimension": 12},
}
every_world = pytest.mark.parametrize("settings", WORLDS.values(), ids=WORLDS)


def fields(federation):
    """All arrays of a federation."""
    parts = {
        name: getattr(federation, name) for name in ("features", "labels", "owner", "split", "mask")
    }
    return {
        name: array for name, array in {**parts, **federation.truth}.items() if array is not None
    }


@every_world
def test_same_seed_same_numbers(settings):
    first, again, other = (
        datasets.synthetic(**settings, clients=4, seed=seed) for seed in (5, 5, 6)
    )
    for name, array in fields(first).items():
        np.testing.assert_array_equal(array, fields(again)[name])
    assert not np.allclose(first.truth["heads"], other.truth["heads"])
    if first.features.shape == other.features.shape:
        assert not np.any(
            first.features[first.features != 0] == other.features[first.features != 0]
        )


@every_world
def test_more_clients_leave_the_first_ones_as_they_were(settings):
    few, many = (datasets.synthetic(**settings, clients=m) for m in (3, 9))
    first = many.owner < 3
    for name in ("features", "labels", "split", "mask"):
        if getattr(few, name) is not None:
            np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[first])
    for name, array in few.truth.items():
        other = many.truth[name]
        np.testing.assert_array_equal(array, other if other.shape == array.shape else other[:3])


@every_world
def test_a_client_does_not_depend_on_the_sizes_of_others(settings):
    one, other = (
        datasets.synthetic(**settings, clients=3, samples=sizes)
        for sizes in ([8, 20, 10], [8, 5, 10])
    )
    for client in (0, 2):
        for mine, same in zip(rows_of(one, client), rows_of(other, client), strict=True):
            np.testing.assert_array_equal(mine, same)
    longer, shorter = rows_of(one, 1)[0], rows_of(other, 1)[0]
    np.testing.assert_array_equal(longer[:5], shorter)


def test_parameters_do_not_disturb_each_others_draws():
    plain = datasets.synthetic(clients=3, dimension=20)
    for change in ({"noise": 2.0}, {"radius": 3.0}, {"norm": 7.0}):
        np.testing.assert_array_equal(
            datasets.synthetic(clients=3, dimension=20, **change).features, plain.features
        )
    wide = datasets.synthetic(clients=3, dimension=20, radius=3.0).truth
    shift = plain.truth["heads"] - plain.truth["shared"]
    np.testing.assert_allclose(wide["heads"] - wide["shared"], 3 * shift)
    loud = residuals(datasets.synthetic(clients=3, dimension=20, noise=2.0))
    np.testing.assert_allclose(loud, 4 * residuals(plain), atol=1e-12)


def test_noise_is_no_feature_in_disguise():
    """Streams of their own: two that began alike would give the same numbers in the same order."""
    silent = datasets.synthetic(radius=0, norm=0, noise=1, clients=1, dimension=3, samples=200)
    assert np.intersect1d(silent.features, silent.labels).size == 0
    assert np.unique(silent.features).size == 600


def test_clients_are_unlike_each_other():
    federation = datasets.synthetic(clients=4, dimension=30, samples=40)
    X = federation.features.reshape(4, -1)
    near(np.corrcoef(X)[np.triu_indices(4, 1)], 0, 1 / np.sqrt(X.shape[1]))


def test_keywords_are_a_population():
    world = fa.Population(radius=0.5, noise=1, aspect=3, norm=1, spectrum=fa.spectra.ar1(0.3))
    by_keywords = datasets.synthetic(
        radius=0.5, noise=1, aspect=3, norm=1, spectrum=fa.spectra.ar1(0.3), clients=3, dimension=60
    )
    for name, array in fields(datasets.synthetic(world, clients=3, dimension=60)).items():
        np.testing.assert_array_equal(array, fields(by_keywords)[name])
    for radius in (0, 5):
        assert np.linalg.norm(
            datasets.synthetic(radius=radius, clients=2, dimension=9).truth["shared"]
        ) == pytest.approx(2)
