"""Regression from a known world: exact lengths, moments within their standard errors, and what the
lenses say of it.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

import fedasym as fa
from fedasym import datasets
from fedasym.core.runtime import few_threads
from fedasym.data.federation import Federation
from fedasym.exact.draws import lay_out_population

from .drawn import ERRORS, WORLD, near, residuals, rows_of

ATOMS = fa.Population(
    radius=1.5,
    noise=0.7,
    aspect=2,
    norm=3,
    spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]),
    shift_power=1,
    optimum_power=0.5,
)


def test_a_federation_that_knows_its_parameters():
    federation = datasets.synthetic(WORLD, clients=7, dimension=30, seed=3)
    assert isinstance(federation, Federation)
    assert federation.task == "regression"
    assert federation.clients == tuple(range(7))
    assert federation.features.dtype == np.float64
    assert {name: array.shape for name, array in federation.truth.items()} == {
        "shared": (30,), "heads": (7, 30), "covariance": (30,), "noise": ()
    }  # fmt: skip
    assert federation.truth["noise"] == pytest.approx(0.7)
    with pytest.raises(ValueError, match="read-only"):
        federation.truth["heads"][0, 0] = 1


def test_lengths_are_exact_along_every_eigenvector():
    federation = datasets.synthetic(ATOMS, clients=5, dimension=40)
    shared, heads, s = (federation.truth[name] for name in ("shared", "heads", "covariance"))
    np.testing.assert_allclose(s, np.repeat([0.5, 3], [24, 16]))
    np.testing.assert_allclose(((heads - shared) ** 2).sum(1), 1.5**2)
    for place, atom in enumerate((0.5, 3)):
        moved, optimum = 1.5**2 * ATOMS.displacement[place], 3**2 * ATOMS.optimum[place]
        np.testing.assert_allclose(((heads - shared) ** 2)[:, s == atom].sum(1), moved)
        np.testing.assert_allclose((shared**2)[s == atom].sum(), optimum - moved)


def test_displacements_have_no_common_direction_and_optima_the_length_norm_on_average():
    m, d = 400, 50
    truth = datasets.synthetic(WORLD, clients=m, dimension=d, samples=3).truth
    shift, b = truth["heads"] - truth["shared"], np.sqrt(3**2 - 1.5**2)
    near(shift.mean(0), 0, 1.5 / np.sqrt(d * m))
    near((truth["heads"] ** 2).sum(1).mean(), 9, 2 * b * 1.5 / np.sqrt(d * m))
    gram = shift @ shift.T
    near(gram[np.triu_indices(m, 1)].mean(), 0, 1.5**2 / np.sqrt(d * m * (m - 1) / 2))


def test_features_and_noise_have_their_moments():
    federation = datasets.synthetic(ATOMS, clients=40, dimension=20, samples=500, seed=1)
    X, s, e = federation.features, federation.truth["covariance"], residuals(federation)
    N = len(X)
    near(X.mean(0), 0, np.sqrt(s / N))
    covariance = X.T @ X / N
    near(covariance, np.diag(s), np.sqrt((np.outer(s, s) + np.diag(s**2)) / N))
    near(e.mean(), 0, 0.7 / np.sqrt(N))
    near((e**2).mean(), 0.7**2, 0.7**2 * np.sqrt(2 / N))
    near(X.T @ e / N, 0, 0.7 * np.sqrt(s / N))
    assert scipy.stats.kstest(e / 0.7, "norm").pvalue > 1e-4
    assert scipy.stats.kstest((X / np.sqrt(s)).ravel()[:50_000], "norm").pvalue > 1e-4


def test_the_aspect_fixes_training_samples_and_the_split_adds_the_others():
    for split, counts in (
        ((0.8, 0.1, 0.1), (40, 5, 5)),
        ((0.5, 0.0, 0.5), (40, 0, 40)),
        ((1, 0, 0), (40, 0, 0)),
    ):
        federation = datasets.synthetic(WORLD, clients=3, dimension=80, split=split)
        assert [federation.counts(kind).tolist() for kind in ("train", "validation", "test")] == [
            [n] * 3 for n in counts
        ]
    tiny = datasets.synthetic(WORLD, clients=2, dimension=4)
    assert [tiny.counts(kind).tolist() for kind in ("train", "validation", "test")] == [
        [2, 2],
        [1, 1],
        [1, 1],
    ]


def test_samples_are_all_of_a_client_and_may_differ():
    federation = datasets.synthetic(WORLD, clients=3, dimension=5, samples=[1, 10, 25])
    assert np.bincount(federation.owner).tolist() == [1, 10, 25]
    assert federation.counts("train").tolist() == [1, 8, 19]
    wide = replace(WORLD, aspect=1000)
    assert len(datasets.synthetic(wide, clients=2, dimension=5, samples=10).features) == 20


def test_directions_that_no_sample_sees_are_kept():
    blind = replace(WORLD, spectrum=fa.spectra.atoms([0, 2], [0.5, 0.5]))
    federation = datasets.synthetic(blind, clients=2, dimension=10)
    assert federation.features.shape[1] == 10
    assert not federation.features[:, :5].any()
    np.testing.assert_allclose(
        np.linalg.norm(federation.truth["heads"] - federation.truth["shared"], axis=1), 1.5
    )


@pytest.mark.parametrize("world", [WORLD, ATOMS], ids=["identity", "aligned"])
def test_the_linear_lens_loses_what_the_theory_predicts(world):
    """Exact losses on the data's own truth, against the prediction for this many clients."""
    d, m, seeds = 100, 30, 6
    exact, _ = lay_out_population(world, d)
    predicted = fa.predict(exact, ["local", "fedavg", "ftfa", "rtfa", "local_ridge"], clients=m)
    losses = {name: np.empty((seeds, m)) for name in predicted}
    held_out = np.empty((seeds, m))
    for seed in range(seeds):
        federation = datasets.synthetic(world, clients=m, dimension=d, seed=seed)
        truth, training = federation.truth, federation.split == 0
        X, y, ids = (
            federation.features[training],
            federation.labels[training, 0],
            federation.owner[training],
        )
        for name in predicted:
            with few_threads(d):
                fit = fa.linear.fit(
                    name, X, y, clients=ids.tolist(), ridge=predicted[name].ridge, intercept=False
                )
            models = np.array([fit.personal[client] for client in range(m)])
            losses[name][seed] = ((models - truth["heads"]) ** 2 * truth["covariance"]).sum(1)
        for client in range(m):
            rows, labels = rows_of(federation, client, split=2)
            held_out[seed, client] = np.mean((rows @ fit.personal[client] - labels) ** 2) - 0.7**2
        near(
            (held_out[seed] - losses[name][seed]).mean(),
            0,
            np.std(held_out[seed] - losses[name][seed], ddof=1) / np.sqrt(m),
        )
    for name, found in losses.items():
        # One shared model per seed moves all clients together: seeds are what is independent.
        error = max(
            found.mean(1).std(ddof=1) / np.sqrt(seeds), found.std(ddof=1) / np.sqrt(found.size)
        )
        expected = float(predicted[name].loss)
        assert abs(found.mean() - expected) < ERRORS * error + 2 / d * expected, (
            name,
            found.mean(),
            expected,
            error,
        )
