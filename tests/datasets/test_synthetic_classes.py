"""Classes from a shared teacher: logistic, softmax and flipped labels."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import fedasym as fa
from fedasym import datasets
from fedasym.data.federation import Federation

from .drawn import near


def accuracy(cosine, rho, flips):
    """Section 1 of the classification theory: accuracy of a linear rule at this cosine from a
    logistic teacher of scale rho.
    """
    slope = cosine / np.sqrt(1 - cosine**2) if cosine < 1 else np.inf

    def integrand(z):
        p = flips + (1 - 2 * flips) / (1 + np.exp(-rho * z))
        right = scipy.special.ndtr(slope * z)
        return np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) * (p * right + (1 - p) * (1 - right))

    return scipy.integrate.quad(integrand, 0, 9, epsabs=1e-10)[0]


@pytest.mark.parametrize("flips", [0.0, 0.15])
def test_two_classes_follow_the_logistic_teacher(flips):
    spectrum = fa.spectra.atoms([0.5, 2], [0.5, 0.5])
    federation = datasets.synthetic(
        task="classification",
        classes=2,
        centre=2,
        radius=1.5,
        flips=flips,
        spectrum=spectrum,
        clients=50,
        dimension=40,
        samples=400,
    )
    truth, X, y = federation.truth, federation.features, federation.labels
    assert federation.classes == (0, 1)
    assert np.linalg.norm(truth["shared"]) == pytest.approx(2)
    np.testing.assert_allclose(np.linalg.norm(truth["heads"] - truth["shared"], axis=1), 1.5)
    s, shared, heads = truth["covariance"], truth["shared"], truth["heads"]
    rho = np.sqrt((s * heads**2).sum(1))
    b0 = (s * shared**2).sum()
    assert b0 == pytest.approx(4 * 1.25)
    own = (X * heads[federation.owner]).sum(1)
    for scores, cosine in (
        (own, np.ones(50)),
        (X @ shared, (s * heads * shared).sum(1) / rho / np.sqrt(b0)),
    ):
        right = (scores > 0) == y
        expected = np.array([accuracy(c, r, flips) for c, r in zip(cosine, rho, strict=True)])
        near(right.mean(), expected.mean(), np.sqrt((expected * (1 - expected)).mean() / len(y)))
    p = flips + (1 - 2 * flips) / (1 + np.exp(-own))
    near(
        X.T @ (y - p), 0, np.sqrt((X**2 * (p * (1 - p))[:, None]).sum(0))
    )  # the score of the truth


def test_more_classes_follow_the_softmax_teacher():
    C, m, flips = 4, 30, 0.1
    federation = datasets.synthetic(
        task="classification",
        classes=C,
        centre=3,
        radius=2,
        flips=flips,
        clients=m,
        dimension=50,
        samples=500,
        seed=2,
    )
    truth, X, y = federation.truth, federation.features, federation.labels
    assert truth["heads"].shape == (m, 50, C)
    P, shift = np.eye(C) - 1 / C, truth["heads"] - truth["shared"]
    np.testing.assert_allclose(truth["shared"].T @ truth["shared"], 9 * P, atol=1e-12)
    np.testing.assert_allclose(
        np.einsum("mda,mdb->mab", shift, shift), np.broadcast_to(4 * P, (m, C, C)), atol=1e-12
    )
    logits = np.einsum("nd,ndc->nc", X, truth["heads"][federation.owner])
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p = (1 - flips) * p + flips * (1 - p) / (C - 1)
    onehot = np.eye(C)[y]
    for k in range(C):
        near(X.T @ (onehot - p)[:, k], 0, np.sqrt((X**2 * (p * (1 - p))[:, [k]]).sum(0)))
    right = logits.argmax(1) == y
    # The teacher's accuracy depends on the heads through their Gram matrix alone: independent
    # Gaussian logits with it.
    rng, expected = np.random.default_rng(8), []
    for W in truth["heads"]:
        z = rng.standard_normal((4000, 50)) @ W
        best = 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)
        expected.append((1 - flips) * best + flips * (1 - best) / (C - 1))
    a = np.mean(expected)
    near(right.mean(), a, np.sqrt(a * (1 - a) / y.size + np.var(expected) / np.size(expected)))


def test_teachers_turn_freely():
    """Every direction and every class is alike: entries of the displacements have mean 0 and
    variance radius^2 (1 - 1/C)/d.
    """
    C, m, d = 3, 600, 12
    truth = datasets.synthetic(
        task="classification", classes=C, radius=2, centre=1, clients=m, dimension=d, samples=1
    ).truth
    shift = truth["heads"] - truth["shared"]
    v = 4 * (1 - 1 / C) / d
    near(shift.mean(0), 0, np.sqrt(v / m))
    near((shift**2).mean(0), v, v * np.sqrt(2 / m))
    assert shift.sum(-1) == pytest.approx(0, abs=1e-12)


def test_flips_replace_labels_by_any_other_and_leave_the_rest():
    settings = {
        "task": "classification",
        "classes": 5,
        "clients": 20,
        "dimension": 10,
        "samples": 500,
    }
    clean, noisy = (datasets.synthetic(**settings, flips=flips) for flips in (0, 0.3))
    np.testing.assert_array_equal(clean.features, noisy.features)
    changed = clean.labels != noisy.labels
    near(changed.mean(), 0.3, np.sqrt(0.3 * 0.7 / changed.size))
    step = (noisy.labels - clean.labels)[changed] % 5
    assert scipy.stats.chisquare(np.bincount(step, minlength=5)[1:]).pvalue > 1e-4
    blank = datasets.synthetic(**settings, flips=0.8)
    assert (
        scipy.stats.chi2_contingency(np.histogram2d(clean.labels, blank.labels, 5)[0]).pvalue > 1e-4
    )


def test_the_truth_is_saved_with_the_data(tmp_path):
    federation = datasets.synthetic(task="classification", classes=3, clients=3, dimension=6)
    again = Federation.from_safetensors(federation.save(tmp_path / "data.safetensors"))
    assert again.truth.keys() == federation.truth.keys()
    for name, array in federation.truth.items():
        np.testing.assert_array_equal(again.truth[name], array)


def test_a_class_that_nobody_draws_is_still_a_class():
    assert datasets.synthetic(alpha=0, beta=0, clients=1, samples=2).classes == tuple(range(10))


def test_a_plane_holds_three_classes():
    truth = datasets.synthetic(
        task="classification", classes=3, dimension=2, clients=2, samples=4, centre=1
    ).truth
    np.testing.assert_allclose(truth["shared"].T @ truth["shared"], np.eye(3) - 1 / 3, atol=1e-12)
