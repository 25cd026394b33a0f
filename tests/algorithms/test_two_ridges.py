"""A ridge on the shared model: reference cases, exact algebra on drawn clients, the posterior mean,
and what the data say of it.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import fedasym as fa
from fedasym.algorithms import (
    Algorithm,
    AverageRidge,
    Interpolate,
    Keep,
    LocalSteps,
    Meta,
    MoreauRidge,
    Ridge,
    setting,
)
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula

CASES = json.loads((Path(__file__).parents[1] / "golden_two_ridges.json").read_text())["cases"]
WORLD = fa.Population(radius=1, noise=0.5**0.5, aspect=2, norm=2)


class ShrunkMeta(Meta):
    """MAML with a ridge on its shared model, as a user would write it."""

    shared_ridge: float = setting(0.0, least=0)


class ShrunkSteps(LocalSteps):
    """Local steps likewise."""

    shared_ridge: float = setting(0.0, least=0)


def server_of(case):
    """The server stage of a case; its ridge is in units of the sum over clients, ours of the mean.

    pFedMe's weight is lambda/(x + lambda) here, 1/(x + lambda) there.
    """
    at = case["server_setting"]
    mu = case["shared_ridge"] / case["world"]["m"]
    match case["server"]:
        case "average":
            return AverageRidge(mu)
        case "moreau":
            return MoreauRidge(at, shared_ridge=mu * at)
        case "local_steps":
            return ShrunkSteps(*at, shared_ridge=mu)
    dropped = case["server"].endswith("first_order")
    return ShrunkMeta(at, "dropped" if dropped else "exact", shared_ridge=mu)


def test_reference_cases():
    clients = {"keep": lambda _: Keep(), "interpolate": lambda _: Interpolate(), "ridge": Ridge}
    for case in CASES:
        one = case["world"]
        length = (one["r2"] + one["b2"]) ** 0.5
        world = fa.Population(one["r2"] ** 0.5, one["s2"] ** 0.5, one["gamma"], length)
        if case["kind"] == "bayes":
            found = fa.predict(world, "pfedme_ridge", clients=one["m"])["pfedme_ridge"]
            assert found.loss == pytest.approx(case["loss"], rel=1e-12)
            continue
        client = clients[case["client"]](case["client_setting"])
        pair = Algorithm("pair", server_of(case), client)
        for member in (True, False):
            found = fa.predict(world, [pair], clients=one["m"], member=member)["pair"]
            wanted = case["member" if member else "new"]
            assert found.loss == pytest.approx(sum(wanted), rel=1e-12)
            assert found.bias == pytest.approx(wanted[0], rel=1e-11, abs=1e-12), case
            assert found.variance == pytest.approx(wanted[1], rel=1e-11, abs=1e-12), case


def test_the_posterior_mean_is_below_all_and_has_no_peak():
    table = fa.predict(WORLD, ["pfedme_ridge", "fedavg_ridge"], clients=2)  # samples = unknowns
    assert table["pfedme_ridge"].loss == pytest.approx(1.7978, abs=1e-4)
    few = fa.predict(WORLD, ["local_ridge", "rtfa", "pfedme", "pfedme_ridge"], clients=3)
    assert few["pfedme_ridge"].loss == pytest.approx(1.4764, abs=1e-4)
    assert few.best == "pfedme_ridge"
    assert few["pfedme_ridge"].shared_ridge == pytest.approx(0.5 * 2 / (3 * 3))
    assert "shared ridge" in str(few)
    # no other pair of ridges is better for a member
    for ridge, mu in ((0.9, 1 / 9), (1.1, 1 / 9), (1, 0.1), (1, 0.12)):
        other = Algorithm("other", MoreauRidge(ridge, shared_ridge=mu), Ridge(ridge))
        assert fa.predict(WORLD, [other], clients=3)["other"].loss > few["pfedme_ridge"].loss


def test_alone_or_without_anything_in_common_it_is_local():
    """One client, or a shared optimum of length zero: what is shared tells nothing."""
    alone = fa.predict(WORLD, ["pfedme_ridge", "local_ridge"], clients=1)
    apart = fa.predict(fa.Population(1, 0.5, 2, 1), ["pfedme_ridge", "local_ridge"], clients=6)
    for found in (alone, apart):
        assert found["pfedme_ridge"].loss == pytest.approx(found["local_ridge"].loss, rel=1e-9)
    still = fa.predict(fa.Population(1, 0, 2, 2), "pfedme_ridge", clients=6)["pfedme_ridge"]
    assert still.variance == 0
    assert still.loss == pytest.approx(0.7081, abs=1e-4)


def test_grids_have_a_ridge_for_each_world():
    grid = fa.Population(1, np.array([0.2, 0.5, 1]), 2, 2)
    for name in ("pfedme_ridge", "fedavg_ridge"):
        found = fa.predict(grid, name, clients=6)[name]
        one = fa.predict(fa.Population(1, 0.5, 2, 2), name, clients=6)[name]
        assert found.loss[1] == pytest.approx(one.loss, rel=1e-9)
        assert found.shared_ridge[1] == pytest.approx(one.shared_ridge, rel=1e-5)


def test_the_average_is_best_at_a_ridge_in_closed_form():
    """The clients' mean has energy b^2 + r^2/m, and what differs from it is noise to a ridge."""
    m, r2, s2, b2, gamma = 3, 1, 0.5, 3, 2
    found = fa.predict(WORLD, "fedavg_ridge", clients=m)["fedavg_ridge"].shared_ridge
    assert found == pytest.approx(gamma * (s2 + r2 * (1 - 1 / m)) / (m * (b2 + r2 / m)), rel=1e-6)


@pytest.mark.parametrize("member", [True, False])
def test_exact_algebra_agrees(member):
    """With correlated features, with samples fewer than unknowns, and for clients that differ."""
    uneven = fa.Population(1, 0.7, 2, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]))
    tuned = Algorithm("rtfa_ridge", AverageRidge(0.3), Ridge(0.8))
    three = ["fedavg_ridge", "pfedme_ridge", tuned]
    told = {"dimension": 120, "trials": 6, "member": member, "algorithms": three}
    crowded = fa.Population(1, 0.7, 4, 2)
    differ = [fa.Population(1, 0.5, 2, 2), fa.Population(1, 0.8, 1.5, 2)]
    for world, clients in ((uneven, 3), (crowded, 2), (differ, [2, 2])):
        for row in fa.simulate(world, clients=clients, **told).values():
            near = 3 * np.asarray(row.error) + 0.6 / 120 * np.asarray(row.loss)
            assert np.all(np.abs(row.loss - row.predicted.loss) < near)


def test_sampled_labels_agree():
    sampled = fa.simulate(
        WORLD, clients=3, dimension=60, trials=20, mode="sampling", algorithms="pfedme_ridge"
    )["pfedme_ridge"]
    assert abs(sampled.deviation) < 3.5


def test_infinitely_many_clients_need_no_ridge():
    ends = fa.predict(WORLD, ["pfedme_ridge", "rtfa", "fedavg_ridge", "fedavg"])
    assert ends["pfedme_ridge"].loss == ends["rtfa"].loss
    assert ends["fedavg_ridge"].loss == ends["fedavg"].loss
    # a ridge that does not vanish keeps a part of theta_0 away, whatever the weights
    for server in (AverageRidge(0.5), MoreauRidge(1.0, shared_ridge=0.2)):
        pair = Algorithm("pair", server, Ridge(1.0))
        limit = fa.predict(WORLD, [pair])["pair"].loss
        many = fa.predict(WORLD, [pair], clients=10**6)["pair"].loss
        assert many == pytest.approx(limit, rel=1e-5)


def draw(rng, m, n, d, noise=0.5**0.5):
    centre = rng.standard_normal(d) * np.sqrt(3 / d)
    optima = [centre + rng.standard_normal(d) / np.sqrt(d) for _ in range(m)]
    X = [rng.standard_normal((n, d)) for _ in range(m)]
    y = [x @ one + noise * rng.standard_normal(n) for x, one in zip(X, optima, strict=True)]
    return X, y, optima


def covariance(X, shared, own, noise2):
    rows = np.vstack(X)
    V = shared * rows @ rows.T + noise2 * np.eye(len(rows))
    start = 0
    for x in X:
        part = slice(start, start := start + len(x))
        V[part, part] += own * x @ x.T
    return V


def test_a_fit_is_the_posterior_mean():
    m, n, d = 3, 12, 20
    X, y, _ = draw(np.random.default_rng(1), m, n, d)
    weights = np.linalg.solve(covariance(X, 3 / d, 1 / d, 0.5), np.concatenate(y))
    shared = 3 / d * np.vstack(X).T @ weights
    second = shared + X[1].T @ weights[n : 2 * n] / d
    algorithm = fa.algorithms.find(f"pfedme_ridge(shared_ridge={0.5 * d / (m * n * 3)})")
    found = fa.linear.fit(algorithm, X, y, ridge=0.5 * d / n, intercept=False)
    np.testing.assert_allclose(found.shared, shared, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.personal[1], second, rtol=0, atol=1e-13)


def test_variances_are_the_likeliest():
    """Against a plain search over the normal density of all labels; with many and few samples."""
    for m, n, d in ((4, 20, 70), (5, 30, 70)):
        X, y, _ = draw(np.random.default_rng(d), m, n, d)
        labels = np.concatenate(y)

        def deviance(logs, X=X, labels=labels):
            V = covariance(X, *np.exp(logs))
            return np.linalg.slogdet(V)[1] + labels @ np.linalg.solve(V, labels)

        found = fa.linear.fit("pfedme_ridge", X, y, intercept=False)
        here = np.log([found.centre**2 / d, found.radius**2 / d, found.noise**2])
        best = scipy.optimize.minimize(deviance, here, method="Nelder-Mead", tol=1e-8)
        assert deviance(here) == pytest.approx(best.fun, abs=1e-4)
        assert found.shared_ridge == pytest.approx(found.noise**2 * d / (m * n * found.centre**2))


def test_ridges_from_few_samples_pay():
    losses = {"pfedme_ridge": [], "local_ridge": [], "fedavg_ridge": []}
    rng = np.random.default_rng(0)
    for _ in range(5):
        X, y, optima = draw(rng, 3, 40, 80)
        for name, seen in losses.items():
            own = fa.linear.fit(name, X, y, intercept=False).personal
            seen.append(np.mean([np.sum((own[i] - one) ** 2) for i, one in enumerate(optima)]))
    mean = {name: np.mean(seen) for name, seen in losses.items()}
    assert mean["pfedme_ridge"] < 0.8 * mean["local_ridge"]
    assert mean["pfedme_ridge"] < mean["fedavg_ridge"]


def test_an_intercept_is_free_and_fits_are_kept(tmp_path):
    X, y, _ = draw(np.random.default_rng(3), 4, 30, 5)
    near = fa.linear.fit("pfedme_ridge", X, y)
    far = fa.linear.fit("pfedme_ridge", X, [each + 1000 for each in y])
    np.testing.assert_allclose(far.shared[:-1], near.shared[:-1], rtol=1e-5, atol=1e-7)
    assert far.shared[-1] == pytest.approx(near.shared[-1] + 1000)
    again = fa.linear.LinearFit.load(near.save(tmp_path / "fit.safetensors"))
    assert again.shared_ridge == near.shared_ridge
    assert "shared ridge" in str(again)


def test_paths_start_from_the_shrunk_model():
    path = fa.fine_tuning(WORLD, "fedavg_ridge", clients=3, steps=[0, 2], step=0.1)
    assert path.loss[0] == pytest.approx(
        fa.predict(WORLD, "fedavg_ridge", clients=3)["fedavg_ridge"].loss
    )


def test_nothing_to_explain_is_explained():
    rng = np.random.default_rng(2)
    X = [rng.standard_normal((6, 2)) for _ in range(4)]
    zero = fa.linear.fit("pfedme_ridge", X, [np.zeros(6)] * 4)
    np.testing.assert_allclose(list(zero.personal.values()), 0, atol=1e-12)
    exact = fa.linear.fit("rtfa", X, [3 + x @ [1.0, -2.0] for x in X])
    np.testing.assert_allclose(list(exact.personal.values()), [[1, -2, 3]] * 4, atol=1e-9)
    assert exact.noise == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("clients", [12, 180], ids=["few clients", "more clients than unknowns"])
def test_levels_of_clients_are_seen_with_more_unknowns_than_samples_of_one(clients):
    """Features that say nothing: what clients have of their own is the level, of variance 4."""
    rng = np.random.default_rng(3)
    levels = 2 * rng.standard_normal(clients)
    X = [rng.standard_normal((4, 60)) for _ in levels]
    y = [level + 0.1 * rng.standard_normal(4) for level in levels]
    fit = fa.linear.fit("pfedme_ridge", X, y)
    assert fit.variances[-1] == pytest.approx(levels.var(), rel=0.2)
    assert fit.variances[:-1].max() < 0.01


def test_a_ridge_by_cross_validation_starts_from_the_likeliest_shared_one():
    rng = np.random.default_rng(4)
    X = [rng.standard_normal((8, 3)) for _ in range(5)]
    y = [x @ (np.ones(3) + 0.5 * rng.standard_normal(3)) + rng.standard_normal(8) for x in X]
    fit = fa.linear.fit("pfedme_ridge", X, y, ridge="cv")
    (ridge,) = set(fit.ridge.values())
    again = fa.linear.fit(f"pfedme_ridge(shared_ridge={fit.shared_ridge!r})", X, y, ridge=ridge)
    np.testing.assert_allclose(again.shared, fit.shared, rtol=1e-6, atol=1e-9)


def test_refusals():
    short = fa.Population(1, 0.5, 2)
    with pytest.raises(MissingNorm, match="towards zero"):
        fa.predict(short, "pfedme_ridge", clients=3)
    uneven = fa.Population(1, 0.7, 2, 2, spectrum=fa.spectra.ar1(0.5))
    off = Algorithm("off", MoreauRidge(0.3, shared_ridge=0.1), Ridge(0.3))
    with pytest.raises(NoFormula, match="uncorrelated"):
        fa.predict(uneven, [off], clients=3)
    with pytest.raises(InvalidInput, match="two clients"):
        fa.linear.fit("pfedme_ridge", np.eye(3), [1.0, 2.0, 3.0])
