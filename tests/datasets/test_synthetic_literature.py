"""Synthetic(alpha, beta) of the literature: its sizes, its parameters, and the released recipe."""

import numpy as np
import pytest
import scipy.stats

from fedasym import datasets
from fedasym.data.synthesis import lognormal_sizes

from .drawn import near, rows_of


def released_recipe(alpha, beta, clients, samples, rng):
    """The published generator, written down plainly: each client's features and labels."""
    for _ in range(clients):
        u, B = rng.normal(0, alpha), rng.normal(0, beta)
        v, W, b = rng.normal(B, 1, 60), rng.normal(u, 1, (60, 10)), rng.normal(u, 1, 10)
        covariance = np.diag([(j + 1) ** -1.2 for j in range(60)])
        x = rng.multivariate_normal(v, covariance, samples, method="cholesky")
        yield x, np.array([np.argmax(row @ W + b) for row in x])


def test_the_usual_sizes_and_the_truth():
    federation = datasets.synthetic(alpha=1, beta=1)
    truth = federation.truth
    assert (len(federation.clients), federation.dimension, federation.task) == (
        30,
        60,
        "classification",
    )
    np.testing.assert_array_equal(np.bincount(federation.owner), lognormal_sizes(30, 0))
    logits = np.einsum("nd,ndc->nc", federation.features, truth["heads"][federation.owner])
    np.testing.assert_array_equal(
        federation.labels, (logits + truth["intercepts"][federation.owner]).argmax(1)
    )
    np.testing.assert_allclose(truth["covariance"], np.arange(1, 61) ** -1.2)


def test_sizes_are_lognormal():
    sizes = lognormal_sizes(4000, 5)
    assert sizes.min() >= 50
    levels = np.array(
        [0, 5, 20, 54, 150, 400, 1000]
    )  # whole numbers: at most a level is below the next one
    expected = scipy.stats.lognorm(s=2, scale=np.exp(4)).cdf(levels + 1)
    near(
        (sizes[:, None] - 50 <= levels).mean(0), expected, np.sqrt(expected * (1 - expected) / 4000)
    )


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.5), (2.0, 0.0), (0.5, 2.0)])
def test_alpha_and_beta_are_standard_deviations(alpha, beta):
    m, d, C = 1000, 20, 5
    federation = datasets.synthetic(
        alpha=alpha, beta=beta, clients=m, dimension=d, classes=C, samples=2
    )
    heads, intercepts, means = (federation.truth[name] for name in ("heads", "intercepts", "means"))
    u = np.concatenate([heads.reshape(m, -1), intercepts], 1)
    for entries, deviation in ((u, alpha), (means, beta)):
        between = deviation**2 + 1 / entries.shape[1]
        near(entries.mean(1).mean(), 0, np.sqrt(between / m))
        near(entries.mean(1).var(ddof=1), between, between * np.sqrt(2 / (m - 1)))
        within = entries.var(1, ddof=1).mean()
        near(within, 1, np.sqrt(2 / (entries.size - m)))
    standard = (federation.features - means[federation.owner]) / np.sqrt(
        federation.truth["covariance"]
    )
    near((standard**2).mean(0), 1, np.sqrt(2 / (2 * m)))


def test_labels_never_depend_on_alpha_and_features_spread_with_beta():
    federations = {
        (a, b): datasets.synthetic(alpha=a, beta=b, clients=200, samples=20)
        for a in (0, 1, 5)
        for b in (0, 1)
    }
    for b in (0, 1):
        for a in (1, 5):
            np.testing.assert_array_equal(federations[0, b].labels, federations[a, b].labels)
            np.testing.assert_array_equal(federations[0, b].features, federations[a, b].features)
            assert not np.allclose(
                federations[0, b].truth["heads"], federations[a, b].truth["heads"]
            )
    apart = [federations[0, b].features.reshape(200, 20, 60).mean((1, 2)).var() for b in (0, 1)]
    assert apart[1] > 10 * apart[0]


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (1, 1)])
def test_the_same_data_as_the_released_recipe(alpha, beta):
    """Client by client, the share of the commonest class, the labels present and the size of
    features have the same law.
    """

    def summaries(parts):
        rows = [
            (np.bincount(y).max() / len(y), np.unique(y).size, np.mean(x), np.mean(x**2))
            for x, y in parts
        ]
        return np.array(rows).T

    federation = datasets.synthetic(alpha=alpha, beta=beta, clients=200, samples=40, seed=1)
    ours = summaries(rows_of(federation, client) for client in range(200))
    theirs = summaries(released_recipe(alpha, beta, 200, 40, np.random.default_rng(2)))
    for one, other in zip(ours, theirs, strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3
