"""Federations drawn from known worlds: exact lengths, moments within their standard errors, and what the lenses say of them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import fedasym as fa
from fedasym import datasets
from fedasym.datasets.literature import lognormal_sizes
from fedasym.federations.federation import Federation
from fedasym.linear.draw import laid_out
from fedasym.machine import few_threads

ERRORS = 4.5  # standard errors that a fixed seed may be off: one draw in 150 000 is further
WORLD = fa.Population(radius=1.5, noise=0.7, aspect=2, norm=3)
ATOMS = fa.Population(
    radius=1.5, noise=0.7, aspect=2, norm=3, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1, optimum_power=0.5
)


def near(found, expected, error):
    """Whether estimates are within their standard errors of what they estimate."""
    distance = np.max(np.abs(np.asarray(found) - expected) / error)
    assert distance < ERRORS, distance


def rows_of(federation, client, split=None):
    """Features and labels of one client, read from the fields alone."""
    mine = federation.owner == client
    if split is not None:
        mine &= federation.split == split
    return federation.features[mine], federation.labels[mine].squeeze()


def residuals(federation):
    """What the heads leave of a regression's outputs."""
    fitted = np.einsum("nd,nd->n", federation.features, federation.truth["heads"][federation.owner])
    return federation.labels[:, 0] - fitted


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
    for split, counts in (((0.8, 0.1, 0.1), (40, 5, 5)), ((0.5, 0.0, 0.5), (40, 0, 40)), ((1, 0, 0), (40, 0, 0))):
        federation = datasets.synthetic(WORLD, clients=3, dimension=80, split=split)
        assert [federation.counts(kind).tolist() for kind in ("train", "validation", "test")] == [[n] * 3 for n in counts]
    tiny = datasets.synthetic(WORLD, clients=2, dimension=4)
    assert [tiny.counts(kind).tolist() for kind in ("train", "validation", "test")] == [[2, 2], [1, 1], [1, 1]]


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
    np.testing.assert_allclose(np.linalg.norm(federation.truth["heads"] - federation.truth["shared"], axis=1), 1.5)


@pytest.mark.parametrize("world", [WORLD, ATOMS], ids=["identity", "aligned"])
def test_the_linear_lens_loses_what_the_theory_predicts(world):
    """Exact losses on the data's own truth, against the prediction for this many clients."""
    d, m, seeds = 100, 30, 6
    exact, _ = laid_out(world, d)
    predicted = fa.predict(exact, ["local", "fedavg", "ftfa", "rtfa", "local_ridge"], clients=m)
    losses = {name: np.empty((seeds, m)) for name in predicted}
    held_out = np.empty((seeds, m))
    for seed in range(seeds):
        federation = datasets.synthetic(world, clients=m, dimension=d, seed=seed)
        truth, training = federation.truth, federation.split == 0
        X, y, ids = federation.features[training], federation.labels[training, 0], federation.owner[training]
        for name in predicted:
            with few_threads(d):
                fit = fa.linear.fit(name, X, y, clients=ids.tolist(), ridge=predicted[name].ridge)
            models = np.array([fit.personal[client] for client in range(m)])
            losses[name][seed] = ((models - truth["heads"]) ** 2 * truth["covariance"]).sum(1)
        for client in range(m):
            rows, labels = rows_of(federation, client, split=2)
            held_out[seed, client] = np.mean((rows @ fit.personal[client] - labels) ** 2) - 0.7**2
        near((held_out[seed] - losses[name][seed]).mean(), 0, np.std(held_out[seed] - losses[name][seed], ddof=1) / np.sqrt(m))
    for name, found in losses.items():
        # One shared model per seed moves all clients together: seeds are what is independent.
        error = max(found.mean(1).std(ddof=1) / np.sqrt(seeds), found.std(ddof=1) / np.sqrt(found.size))
        expected = float(predicted[name].loss)
        assert abs(found.mean() - expected) < ERRORS * error + 2 / d * expected, (name, found.mean(), expected, error)


# ------------------------------------------------------------------------------------------------------------ classification


def accuracy(cosine, rho, flips):
    """Section 1 of the classification theory: accuracy of a linear rule at this cosine from a logistic teacher of scale rho."""
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
    for scores, cosine in ((own, np.ones(50)), (X @ shared, (s * heads * shared).sum(1) / rho / np.sqrt(b0))):
        right = (scores > 0) == y
        expected = np.array([accuracy(c, r, flips) for c, r in zip(cosine, rho, strict=True)])
        near(right.mean(), expected.mean(), np.sqrt((expected * (1 - expected)).mean() / len(y)))
    p = flips + (1 - 2 * flips) / (1 + np.exp(-own))
    near(X.T @ (y - p), 0, np.sqrt((X**2 * (p * (1 - p))[:, None]).sum(0)))  # the score of the truth


def test_more_classes_follow_the_softmax_teacher():
    C, m, flips = 4, 30, 0.1
    federation = datasets.synthetic(
        task="classification", classes=C, centre=3, radius=2, flips=flips, clients=m, dimension=50, samples=500, seed=2
    )
    truth, X, y = federation.truth, federation.features, federation.labels
    assert truth["heads"].shape == (m, 50, C)
    P, shift = np.eye(C) - 1 / C, truth["heads"] - truth["shared"]
    np.testing.assert_allclose(truth["shared"].T @ truth["shared"], 9 * P, atol=1e-12)
    np.testing.assert_allclose(np.einsum("mda,mdb->mab", shift, shift), np.broadcast_to(4 * P, (m, C, C)), atol=1e-12)
    logits = np.einsum("nd,ndc->nc", X, truth["heads"][federation.owner])
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p = (1 - flips) * p + flips * (1 - p) / (C - 1)
    onehot = np.eye(C)[y]
    for k in range(C):
        near(X.T @ (onehot - p)[:, k], 0, np.sqrt((X**2 * (p * (1 - p))[:, [k]]).sum(0)))
    right = logits.argmax(1) == y
    # The teacher's accuracy depends on the heads through their Gram matrix alone: independent Gaussian logits with it.
    rng, expected = np.random.default_rng(8), []
    for W in truth["heads"]:
        z = rng.standard_normal((4000, 50)) @ W
        best = 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)
        expected.append((1 - flips) * best + flips * (1 - best) / (C - 1))
    a = np.mean(expected)
    near(right.mean(), a, np.sqrt(a * (1 - a) / y.size + np.var(expected) / np.size(expected)))


def test_teachers_turn_freely():
    """Every direction and every class is alike: entries of the displacements have mean 0 and variance radius^2 (1 - 1/C)/d."""
    C, m, d = 3, 600, 12
    truth = datasets.synthetic(task="classification", classes=C, radius=2, centre=1, clients=m, dimension=d, samples=1).truth
    shift = truth["heads"] - truth["shared"]
    v = 4 * (1 - 1 / C) / d
    near(shift.mean(0), 0, np.sqrt(v / m))
    near((shift**2).mean(0), v, v * np.sqrt(2 / m))
    assert shift.sum(-1) == pytest.approx(0, abs=1e-12)


def test_flips_replace_labels_by_any_other_and_leave_the_rest():
    settings = {"task": "classification", "classes": 5, "clients": 20, "dimension": 10, "samples": 500}
    clean, noisy = (datasets.synthetic(**settings, flips=flips) for flips in (0, 0.3))
    np.testing.assert_array_equal(clean.features, noisy.features)
    changed = clean.labels != noisy.labels
    near(changed.mean(), 0.3, np.sqrt(0.3 * 0.7 / changed.size))
    step = (noisy.labels - clean.labels)[changed] % 5
    assert scipy.stats.chisquare(np.bincount(step, minlength=5)[1:]).pvalue > 1e-4
    blank = datasets.synthetic(**settings, flips=0.8)
    assert scipy.stats.chi2_contingency(np.histogram2d(clean.labels, blank.labels, 5)[0]).pvalue > 1e-4


def test_the_truth_is_saved_with_the_data(tmp_path):
    federation = datasets.synthetic(task="classification", classes=3, clients=3, dimension=6)
    again = Federation.from_safetensors(federation.save(tmp_path / "data.safetensors"))
    assert again.truth.keys() == federation.truth.keys()
    for name, array in federation.truth.items():
        np.testing.assert_array_equal(again.truth[name], array)


def test_a_class_that_nobody_draws_is_still_a_class():
    assert datasets.synthetic(alpha=0, beta=0, clients=1, samples=2).classes == tuple(range(10))


def test_a_plane_holds_three_classes():
    truth = datasets.synthetic(task="classification", classes=3, dimension=2, clients=2, samples=4, centre=1).truth
    np.testing.assert_allclose(truth["shared"].T @ truth["shared"], np.eye(3) - 1 / 3, atol=1e-12)


# ---------------------------------------------------------------------------------------------------- Synthetic(alpha, beta)


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
    assert (len(federation.clients), federation.dimension, federation.task) == (30, 60, "classification")
    np.testing.assert_array_equal(np.bincount(federation.owner), lognormal_sizes(30, 0))
    logits = np.einsum("nd,ndc->nc", federation.features, truth["heads"][federation.owner])
    np.testing.assert_array_equal(federation.labels, (logits + truth["intercepts"][federation.owner]).argmax(1))
    np.testing.assert_allclose(truth["covariance"], np.arange(1, 61) ** -1.2)


def test_sizes_are_lognormal():
    sizes = lognormal_sizes(4000, 5)
    assert sizes.min() >= 50
    levels = np.array([0, 5, 20, 54, 150, 400, 1000])  # whole numbers: at most a level is below the next one
    expected = scipy.stats.lognorm(s=2, scale=np.exp(4)).cdf(levels + 1)
    near((sizes[:, None] - 50 <= levels).mean(0), expected, np.sqrt(expected * (1 - expected) / 4000))


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.5), (2.0, 0.0), (0.5, 2.0)])
def test_alpha_and_beta_are_standard_deviations(alpha, beta):
    m, d, C = 1000, 20, 5
    federation = datasets.synthetic(alpha=alpha, beta=beta, clients=m, dimension=d, classes=C, samples=2)
    heads, intercepts, means = (federation.truth[name] for name in ("heads", "intercepts", "means"))
    u = np.concatenate([heads.reshape(m, -1), intercepts], 1)
    for entries, deviation in ((u, alpha), (means, beta)):
        between = deviation**2 + 1 / entries.shape[1]
        near(entries.mean(1).mean(), 0, np.sqrt(between / m))
        near(entries.mean(1).var(ddof=1), between, between * np.sqrt(2 / (m - 1)))
        within = entries.var(1, ddof=1).mean()
        near(within, 1, np.sqrt(2 / (entries.size - m)))
    standard = (federation.features - means[federation.owner]) / np.sqrt(federation.truth["covariance"])
    near((standard**2).mean(0), 1, np.sqrt(2 / (2 * m)))


def test_labels_never_depend_on_alpha_and_features_spread_with_beta():
    federations = {(a, b): datasets.synthetic(alpha=a, beta=b, clients=200, samples=20) for a in (0, 1, 5) for b in (0, 1)}
    for b in (0, 1):
        for a in (1, 5):
            np.testing.assert_array_equal(federations[0, b].labels, federations[a, b].labels)
            np.testing.assert_array_equal(federations[0, b].features, federations[a, b].features)
            assert not np.allclose(federations[0, b].truth["heads"], federations[a, b].truth["heads"])
    apart = [federations[0, b].features.reshape(200, 20, 60).mean((1, 2)).var() for b in (0, 1)]
    assert apart[1] > 10 * apart[0]


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (1, 1)])
def test_the_same_data_as_the_released_recipe(alpha, beta):
    """Client by client, the share of the commonest class, the labels present and the size of features have the same law."""

    def summaries(parts):
        rows = [(np.bincount(y).max() / len(y), np.unique(y).size, np.mean(x), np.mean(x**2)) for x, y in parts]
        return np.array(rows).T

    federation = datasets.synthetic(alpha=alpha, beta=beta, clients=200, samples=40, seed=1)
    ours = summaries(rows_of(federation, client) for client in range(200))
    theirs = summaries(released_recipe(alpha, beta, 200, 40, np.random.default_rng(2)))
    for one, other in zip(ours, theirs, strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3


# ------------------------------------------------------------------------------------------------------------------- streams

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
    parts = {name: getattr(federation, name) for name in ("features", "labels", "owner", "split", "mask")}
    return {name: array for name, array in {**parts, **federation.truth}.items() if array is not None}


@every_world
def test_same_seed_same_numbers(settings):
    first, again, other = (datasets.synthetic(**settings, clients=4, seed=seed) for seed in (5, 5, 6))
    for name, array in fields(first).items():
        np.testing.assert_array_equal(array, fields(again)[name])
    assert not np.allclose(first.truth["heads"], other.truth["heads"])
    if first.features.shape == other.features.shape:
        assert not np.any(first.features[first.features != 0] == other.features[first.features != 0])


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
    one, other = (datasets.synthetic(**settings, clients=3, samples=sizes) for sizes in ([8, 20, 10], [8, 5, 10]))
    for client in (0, 2):
        for mine, same in zip(rows_of(one, client), rows_of(other, client), strict=True):
            np.testing.assert_array_equal(mine, same)
    longer, shorter = rows_of(one, 1)[0], rows_of(other, 1)[0]
    np.testing.assert_array_equal(longer[:5], shorter)


def test_parameters_do_not_disturb_each_others_draws():
    plain = datasets.synthetic(clients=3, dimension=20)
    for change in ({"noise": 2.0}, {"radius": 3.0}, {"norm": 7.0}):
        np.testing.assert_array_equal(datasets.synthetic(clients=3, dimension=20, **change).features, plain.features)
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
        assert np.linalg.norm(datasets.synthetic(radius=radius, clients=2, dimension=9).truth["shared"]) == pytest.approx(2)


# ----------------------------------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_sequences_are_padded_and_masked(task):
    federation = datasets.synthetic(task=task, positions=6, clients=30, dimension=10, samples=40)
    X, y, mask, truth = federation.features, federation.labels.squeeze(), federation.mask, federation.truth
    assert X.shape == (1200, 6, 10)
    assert y.shape == mask.shape == (1200, 6)
    lengths = mask.sum(1)
    np.testing.assert_array_equal(mask, np.arange(6) < lengths[:, None])
    assert scipy.stats.chisquare(np.bincount(lengths, minlength=7)[1:]).pvalue > 1e-4
    assert not X[~mask].any()
    assert not y[~mask].any()
    heads = truth["heads"][federation.owner]
    if task == "regression":
        e = (y - np.einsum("ntd,nd->nt", X, heads))[mask]
        near((e**2).mean(), 0.25, 0.25 * np.sqrt(2 / e.size))
    else:
        logits = np.einsum("ntd,ndc->ntc", X, heads)[mask]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        right = p.max(1).mean()
        near((p.argmax(1) == y[mask]).mean(), right, np.sqrt(right * (1 - right) / len(p)))


# -------------------------------------------------------------------------------------------------------------------- errors

REFUSED = [
    ({"task": "clustering"}, "unknown task 'clustering'.*regression, classification"),
    (
        {"population": WORLD, "alpha": 1, "beta": 1},
        "population is given, which is for regression: Synthetic.* takes alpha, beta, cl",
    ),
    ({"population": WORLD, "task": "classification"}, "population is given.* classification takes classes, centre"),
    ({"population": WORLD, "radius": 2, "noise": 1}, "population and radius, noise are both given: put radius, noise into"),
    ({"population": [WORLD]}, "population is \\[.*give a Population"),
    ({"population": fa.Population([1, 2], 1, 1, 2)}, r"population holds arrays of shape \(2,\): give plain numbers"),
    ({"population": fa.Population(1, 1, 1)}, "population has no norm.*give it one"),
    ({"radius": 3, "norm": 1}, "give norm of at least radius"),
    ({"radius": -1}, "radius is -1.*at least 0"),
    ({"spectrum": "ar1"}, "spectrum is 'ar1'.*make one with"),
    ({"classes": 3}, 'classes is 3, which is for classification.*leave classes out, or give task="classification"'),
    ({"task": "classification", "norm": 3}, "norm is 3, which is for regression.*takes classes, centre.*leave norm out"),
    ({"task": "classification", "classes": 1}, "classes is 1.*at least 2"),
    ({"task": "classification", "dimension": 5}, "dimension is 5: 10 classes need at least 9"),
    ({"task": "classification", "centre": -2}, "centre is -2.*at least 0"),
    ({"task": "classification", "centre": "far"}, "centre is 'far'.*at least 0"),
    ({"task": "classification", "classes": 2, "flips": 0.6}, "flips is 0.6.*from 0 to 0.5"),
    ({"alpha": 1}, "alpha is given without beta.*give beta"),
    ({"beta": 1}, "beta is given without alpha.*give alpha"),
    ({"alpha": 1, "beta": np.nan}, "beta is nan.*finite"),
    ({"alpha": 1, "beta": 1, "task": "regression"}, "alpha and beta make a classification"),
    ({"alpha": 1, "beta": 1, "radius": 2}, "radius is 2, which is for regression and classification: Synthetic"),
    ({"clients": 0}, "clients is 0.*at least 1"),
    ({"clients": 2.5}, "clients is 2.5.*whole number"),
    ({"dimension": 0}, "dimension is 0.*at least 1"),
    ({"dimension": 1, "aspect": 4}, "dimension is 1: with aspect 4 a client would have no sample"),
    ({"samples": 0}, "samples is 0.*at least 1"),
    ({"samples": [3, 4], "clients": 3}, "samples has 2 numbers for 3 clients"),
    ({"samples": [3, 0], "clients": 2}, "samples is 0.*at least 1"),
    ({"samples": [[3, 4]], "clients": 1}, r"samples is \[3, 4\].*whole number"),
    ({"samples": 10, "aspect": 2}, "samples and aspect are both given"),
    ({"positions": 0}, "positions is 0.*at least 1"),
    ({"split": (0.5, 0.5)}, "three fractions"),
    ({"seed": -1}, "seed is -1"),
    ({"samples": 10**9}, "need .* GB and this machine has"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED, ids=lambda value: None if isinstance(value, dict) else value[:40])
def test_bad_input_is_refused_with_a_sentence(settings, sentence):
    with pytest.raises(fa.InvalidInput, match=sentence):
        datasets.synthetic(**settings)


def test_no_accelerator_library_is_imported():
    code = (
        "import sys; from fedasym import datasets; print('numpy' in sys.modules); "
        "datasets.synthetic(clients=2, dimension=4); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="it has duplicates, fetch, load, read, synthetic"):
        datasets.synthetics  # noqa: B018
    assert dir(datasets) == sorted(datasets.__all__)
