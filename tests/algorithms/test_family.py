"""The algorithms that people type beside the paper's: each limit against exact algebra, each step
against the plain twin, each alias with its sentence.
"""

import json

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Pooled

import fedasym as fa
from fedasym.algorithms import Algorithm, Descend, Keep, Meta, ModelMixture, Moreau, Ridge, verbs_of
from fedasym.algorithms.family import FAMILY
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.exact.class_clients import (
    draw_class_client,
    draw_shared,
    fit_ridge,
    lay_out,
    step_from,
)
from fedasym.exact.draws import seeded_generator
from fedasym.exact.outputs import group_by_angle
from fedasym.theory.classes.finite import meta_scale, moreau_fit, step_around
from fedasym.theory.classes.metrics import log_loss
from fedasym.theory.classes.ridge import shrinkage

from ..command import fedasym
from ..training.clients import DOUBLE, as_twin, federation

WORLD = fa.Population(radius=1, noise=0.7, aspect=2, norm=2)
UNEVEN = fa.spectra.atoms([0.5, 3], [0.6, 0.4])


def near(row, dimension):
    """3 standard errors and the term of order 1/dimension."""
    return abs(row.loss - row.predicted.loss) < 3 * row.error + row.loss / dimension


# Limits


@pytest.mark.parametrize("member", [True, False])
def test_limits_agree_with_exact_algebra(member):
    """Every algorithm that has a name and a limit: clients are drawn, and systems solved."""
    own = Algorithm("mixed", fa.algorithms.Average(), ModelMixture(0.4, own_ridge=0.5))
    every = [each for each in REGISTRY.values() if "simulate" in verbs_of(each)]
    names = [each for each in every if not each.alias_of]
    assert {"ifca", "pfedme_ridge", "rtfa_directed", "scaffold"} <= {each.name for each in names}
    told = {"dimension": 120, "clients": 9, "trials": 6, "member": member}
    for row in fa.simulate(WORLD, algorithms=[*names, own], **told).values():
        assert near(row, 120), row.algorithm


def test_mixtures_have_limits_for_any_covariance():
    for world in (
        fa.Population(1, 0.5, 0.5, 1.5),
        fa.Population(1, 0.7, 2, 2, spectrum=UNEVEN, shift_power=1, optimum_power=1),
    ):
        limit = fa.predict(world, "apfl")["apfl"]
        drawn = fa.predict(world, "apfl", method="simulate")["apfl"]
        assert drawn.loss == pytest.approx(limit.loss, abs=3 * drawn.error + limit.loss / 400)
        # the weight is the best of all
        for weight in (limit.mixture - 0.01, limit.mixture + 0.01):
            other = Algorithm("other", fa.algorithms.Average(), ModelMixture(weight))
            assert fa.predict(world, [other])["other"].loss > limit.loss
        few = fa.simulate(world, algorithms="apfl", clients=8, dimension=100, member=False)["apfl"]
        assert near(few, 100)


def test_local_steps_are_nearly_pfedme():
    """At size x steps = 1/lambda*, with the best ridge of a client (the reviewed numbers)."""
    world = fa.Population(1, 0.5**0.5, 2)
    steps = fa.algorithms.find("fedavg(local_steps=10, server_step=0.1)")
    pair = Algorithm("steps", steps.server, Ridge())
    losses = fa.predict(world, [pair, "pfedme", "rtfa"], clients=10)
    assert losses["steps"].loss == pytest.approx(0.9640, abs=2e-4)
    assert losses["pfedme"].loss == pytest.approx(0.9635, abs=1e-4)
    assert losses["rtfa"].loss == pytest.approx(1.0004, abs=1e-4)


def test_a_ridge_by_direction():
    """The reviewed numbers; the best is Bayes' and a power finds it; drawn clients agree."""
    for power, scalar, directed in ((-1, 0.589, 0.500), (1, 0.754, 0.641), (2, 0.761, 0.535)):
        told = {"shift_power": power, "optimum_power": power, "spectrum": UNEVEN}
        world = fa.Population(1, 0.5, 2, 2, **told)
        named = f"rtfa_directed(power={power})"
        found = fa.predict(world, ["rtfa", "rtfa_directed", named])
        assert found["rtfa"].loss == pytest.approx(scalar, abs=1e-3)
        assert found["rtfa_directed"].loss == pytest.approx(directed, abs=1e-3)
        assert found[named].loss == pytest.approx(found["rtfa_directed"].loss, rel=1e-12)
    drawn = fa.predict(world, "rtfa_directed", method="simulate")["rtfa_directed"]
    assert drawn.loss == pytest.approx(found[named].loss, abs=3 * drawn.error + drawn.loss / 100)
    for member in (True, False):
        told = {"clients": 8, "dimension": 100, "member": member}
        few = fa.simulate(world, algorithms=["rtfa", "rtfa_directed"], **told)
        assert all(near(row, 50) for row in few.values())
    with pytest.raises(NoFormula, match="clients that differ"):
        fa.predict([WORLD, WORLD], "rtfa_directed")


def test_clusters_are_populations_of_their_own():
    """The reviewed table: 20 clients in 2 clusters pay, in 4 they do not."""
    world = fa.Population(1, 0.5**0.5, 2)
    found = fa.clusters(world, between=0.5, clients=20, counts=[2, 4])
    losses = [round(row.loss, 3) for row in found.values()]
    assert losses == [0.839, 0.597, 0.929]
    assert found.best == "rtfa in 2 clusters"
    assert "Clusters pay" in found.notes[0]
    inside = fa.simulate(world.within(0.5), algorithms="rtfa", clients=10, dimension=100, trials=6)[
        "rtfa"
    ]
    assert inside.loss == pytest.approx(
        found["rtfa in 2 clusters"].loss, abs=3 * inside.error + inside.loss / 50
    )
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        world.within(1.5)
    with pytest.raises(InvalidInput, match="for 4 clusters"):
        fa.clusters(world, between={2: 0.5}, clients=20, counts=[2, 4])


# Classes


def test_the_shared_model_of_pfedme_is_the_mean_of_the_personal_ones():
    """On drawn clients: around c theta_0 personal fits overlap with theta_0 as c theta_0 does."""
    world = fa.ClassPopulation(radius=1.2, centre=1.5, aspect=1.5, spectrum=UNEVEN)
    layout = lay_out(world, 120)
    theta = draw_shared(layout, 0, 0)
    _, c = moreau_fit(layout.world.energies, 1.5, 0.3)
    overlaps = []
    for place in range(30):
        client = draw_class_client(layout, theta, seeded_generator(0, 1, place))
        own = fit_ridge(client, 0.3, float(c) * theta)
        overlaps.append(np.vdot(own, theta) / np.vdot(theta, theta))
    error = np.std(overlaps) / np.sqrt(len(overlaps))
    assert np.mean(overlaps) == pytest.approx(float(c), abs=3 * error + 0.01)
    assert abs(float(c) - float(shrinkage(layout.world.energies))) > 10 * error  # not FedAvg's


def test_the_claim_of_the_paper_holds_for_the_logistic_loss():
    world = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    found = fa.predict(world, ["rtfa", "pfedme", "maml", "ftfa"])
    assert found["pfedme"].accuracy == pytest.approx(found["rtfa"].accuracy, abs=1e-4)
    assert found["maml"].accuracy == found["ftfa"].accuracy
    # off the best ridge, pFedMe's shared model helps
    off = fa.predict(world, ["rtfa", "pfedme"], ridge=0.3)
    assert off["pfedme"].accuracy > off["rtfa"].accuracy + 0.005
    shared = fa.predict(world, [Algorithm("kept", Moreau(0.3), Keep()), "fedavg"])
    assert shared["kept"].accuracy == pytest.approx(shared["fedavg"].accuracy)
    drawn = fa.simulate(world, algorithms=["pfedme"], ridge=0.3, dimension=100, trials=6)["pfedme"]
    assert abs(drawn.deviation) < 3.5
    with pytest.raises(NoFormula, match="finitely many"):
        fa.predict(world, "pfedme", clients=10)
    with pytest.raises(NoFormula, match="two classes"):
        fa.predict(fa.ClassPopulation(1.1, 1.4, 2.3, classes=3), "pfedme")


def test_maml_is_best_after_one_step():
    world = fa.ClassPopulation(radius=1.2, centre=1.5, aspect=1.5)
    e, gamma, eps = world.energies, np.array([1.5]), np.zeros(1)
    c = meta_scale(e.broadcast((1,)), gamma, 0.8, eps)
    layout = lay_out(world, 200)
    theta = draw_shared(layout, 0, 0)
    states, lost = [], []
    fresh = np.random.default_rng(0).standard_normal((400, 200))  # samples of nobody's training
    for place in range(30):
        client = draw_class_client(layout, theta, seeded_generator(0, 2, place))
        w, *others = (step_from(client, 0.8, f * float(c[0]) * theta) for f in (1, 0.8, 1.25))
        states.append((np.vdot(w, client.truth), np.vdot(w, w)))
        truth = (fresh @ client.truth).ravel()
        margins = [(fresh @ each).ravel() for each in (w, *others)]
        lost.append([np.mean(np.logaddexp(0, m) - m / (1 + np.exp(-truth))) for m in margins])
    best, *others = np.mean(lost, axis=0)  # after the step c is best there, too
    assert best < min(others) - 1e-3
    wanted = step_around(e, 1.5, c[0], 0.8)
    for found, value in zip(np.array(states).T, (wanted.T, wanted.Q), strict=True):
        error = found.std() / np.sqrt(found.size)
        assert found.mean() == pytest.approx(float(value), abs=3 * error + 0.01 * float(value))
    around = [float(log_loss(step_around(e, 1.5, c[0] * each, 0.8))) for each in (0.95, 1, 1.05)]
    assert around[1] < min(around[0], around[2])
    pair = Algorithm("one", Meta(0.8), Descend(0.8, 1))
    assert fa.predict(world, [pair])["one"].log_loss == pytest.approx(around[1], rel=1e-9)


# Exact fits


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((90, 6)), rng.integers(0, 12, 90)
    return X, fa.linear.one_hot(labels, range(12)), np.repeat(np.arange(9), 10)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_pooled_ridge_head_in_one_round(table, intercept):
    """scikit-learn's ridge on all samples, whatever the partition."""
    X, Y, ids = table
    known = Pooled(alpha=3.0, fit_intercept=intercept).fit(X, Y).predict(X)
    name = f"gram_ridge(shared_ridge={3 / 90})"
    mixed = np.random.default_rng(1).permutation(ids)
    for owner in (ids, mixed):
        found = fa.linear.fit(name, X, Y, clients=owner, intercept=intercept)
        np.testing.assert_allclose(found.predict(X), known, rtol=0, atol=1e-12)
        parts = (
            fa.linear.GramSums.of(X[owner == each], Y[owner == each], intercept=intercept)
            for each in range(9)
        )
        total = next(parts)
        for each in parts:
            total = total + each
        np.testing.assert_allclose(total.solve(3 / 90), found.shared, rtol=0, atol=1e-12)
    with pytest.raises(InvalidInput, match=r"\(7, 12\) and \(6, 12\) do not add up"):
        fa.linear.GramSums.of(X, Y) + fa.linear.GramSums.of(X, Y, intercept=False)
    with pytest.raises(InvalidInput, match="do not determine"):
        fa.linear.GramSums.of(X[:2], Y[:2], intercept=False).solve(0.0)


@pytest.mark.parametrize("name", ["local_ridge", "ftfa", "maml", "pfedme", "apfl", "pfedme_ridge"])
def test_outputs_do_not_know_of_each_other(table, name, tmp_path):
    """With the penalties that are common to all, one output alone has the same models."""
    X, Y, ids = table
    many = fa.linear.fit(name, X, Y, clients=ids)
    server, client = many.algorithm.stages
    if many.shared_ridge is not None:
        server = server.at(shared_ridge=many.shared_ridge)
    alone = Algorithm("alone", server, client)
    ridge = None if many.ridge is None else np.array([many.ridge[each] for each in range(9)])
    one = fa.linear.fit(alone, X, Y[:, 3], clients=ids, ridge=ridge)
    np.testing.assert_allclose(many.shared[:, 3], one.shared, rtol=0, atol=1e-10)
    for each in range(9):
        np.testing.assert_allclose(many.personal[each][:, 3], one.personal[each], atol=1e-10)
    assert many.predict(X[:2], client=[0, 1]).shape == (2, 12)
    again = fa.linear.LinearFit.load(many.save(tmp_path / "fit.safetensors"))
    np.testing.assert_array_equal(again.predict(X, client=0), many.predict(X, client=0))


def test_outputs_are_checked(table):
    X, Y, _ = table
    with pytest.raises(InvalidInput, match="same outputs"):
        fa.linear.fit("fedavg", [X[:5], X[5:10]], [Y[:5], Y[5:10, 0]])
    with pytest.raises(InvalidInput, match="not one of the classes"):
        fa.linear.one_hot(["a", "b"], ["a"])


def test_a_mixture_is_weighed_by_the_samples():
    """The weight is near the limit's; an intercept shifts nothing."""
    rng = np.random.default_rng(0)
    m, n, d = 12, 40, 80
    centre = rng.standard_normal(d) * np.sqrt(3 / d)
    X = [rng.standard_normal((n, d)) for _ in range(m)]
    y = [
        x @ (centre + rng.standard_normal(d) / np.sqrt(d)) + 0.7 * rng.standard_normal(n) for x in X
    ]
    found = fa.linear.fit("apfl", X, y, intercept=False).algorithm.personalise.mixture
    assert found == pytest.approx(fa.predict(WORLD, "apfl", clients=m)["apfl"].mixture, abs=0.08)
    near, far = (fa.linear.fit("apfl", X, [each + level for each in y]) for level in (0, 50))
    assert far.personal[0][-1] == pytest.approx(near.personal[0][-1] + 50, abs=1e-6)
    with pytest.raises(InvalidInput, match="give mixture as a number"):
        fa.linear.fit("apfl", X[0], y[0])
    two = fa.linear.fit("apfl", [X[0], X[1][:1]], [y[0], y[1][:1]])  # one sample is all level
    assert two.algorithm.personalise.mixture == 0
    np.testing.assert_array_equal(two.personal[0], two.shared)


def test_a_directed_ridge_is_the_weighted_one():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((60, 5)) * [1, 2, 0.5, 1, 3], rng.standard_normal(60)
    ids = np.repeat(range(4), 15)
    name = "rtfa_directed(power=1, ridge=0.3)"
    found = fa.linear.fit(name, X, y, clients=ids, intercept=False)
    x, V = np.linalg.eigh(X.T @ X / 60)
    penalty = 0.3 * (V * (x.mean() / x)) @ V.T
    shared, own = np.linalg.lstsq(X, y, rcond=None)[0], X[:15]
    moved = np.linalg.solve(own.T @ own / 15 + penalty, own.T @ (y[:15] - own @ shared) / 15)
    np.testing.assert_allclose(found.personal[0], shared + moved, rtol=0, atol=1e-12)


def test_the_likeliest_power_is_near_the_true_one():
    rng = np.random.default_rng(0)
    d, n, m = 20, 20, 25
    s = np.repeat([0.5, 4.0], d // 2)
    shift = np.sqrt(s / s.sum())
    X = [rng.standard_normal((n, d)) * np.sqrt(s) for _ in range(m)]
    y = [x @ (1 + shift * rng.standard_normal(d)) + 0.3 * rng.standard_normal(n) for x in X]
    assert fa.linear.fit("rtfa_directed", X, y).algorithm.personalise.power == pytest.approx(
        1, abs=0.5
    )


# Training


@pytest.mark.parametrize("name", sorted({*FAMILY} - {"rtfa_directed"}))  # which has its own test
def test_steps_agree_with_the_twin(name):
    clients = federation()
    as_twin(fa.train(name, clients, **DOUBLE), clients)


def test_local_steps_in_parentheses_are_taken():
    run = fa.train("fedavg(local_steps=2)", federation(), **DOUBLE)
    assert run.settings.local_steps == 2


# Names


def test_aliases_say_what_they_are():
    found = fa.predict(WORLD, ["ditto", "rtfa", "mr_mtl", "pfedme"], clients=10)
    assert found["ditto"].loss == found["rtfa"].loss
    assert found["mr_mtl"].loss == found["pfedme"].loss
    assert "ditto is rtfa at its optimum: same limit." in str(found)
    drawn = fa.simulate(WORLD, algorithms="fedper", clients=4, dimension=30, trials=2)
    assert "fedper is local" in str(drawn)
    fitted = fa.linear.fit("ditto", np.eye(4), np.ones(4), [0, 0, 1, 1], ridge=1)
    assert "ditto is rtfa" in str(fitted)


@pytest.mark.parametrize(
    "name", ["fedavg_ridge(shared_ridge=0.1)", "apfl", "rtfa_directed", "fedavg(local_steps=5)"]
)
def test_rounds_refuse_what_no_formula_covers(name):
    with pytest.raises(NoFormula, match="rounds"):
        fa.rounds(WORLD, name, rounds=5, cohort=4)


def test_names_with_settings():
    assert fa.algorithms.find("fedprox(penalty=2)").server.penalty == 2
    assert fa.algorithms.find("reptile(local_steps=3)").server.local_steps == 3
    for name, says in (
        ("fedprox(penalty)", "is not a setting with a number"),
        ("fedprox(penaly=1)", "did you mean penalty"),
        ("fedprox(penalty=-1)", "must be a finite number above 0"),
        ("fedproks", "did you mean fedprox"),
        ("SCAFOLD", "did you mean scaffold"),
    ):
        with pytest.raises(InvalidInput, match=says):
            fa.algorithms.find(name)


def test_all_algorithms_are_listed_and_run():
    listed = json.loads(fedasym("algorithms", "--json").stdout)
    assert {"ditto", "apfl", "pfedme_ridge"} <= {each["algorithm"] for each in listed}
    plain = fedasym("algorithms").stdout
    assert "(limit of rtfa)" in plain
    world = ("--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2", "--clients", "6")
    every = json.loads(fedasym("predict", *world, "--algorithms", "all", "--json").stdout)
    own = {each["algorithm"] for each in listed if not each["alias of"]}
    shares = {"fedavg_share", "ftfa_share", "rtfa_share"}  # class shares have no limit
    assert set(every["algorithms"]) == own - shares
    assert shares < own
    assert every["best"] == "pfedme_ridge"
    named = "fedavg(local_steps=20,server_step=0.05),rtfa"
    some = json.loads(fedasym("predict", *world, "--algorithms", named, "--json").stdout)
    assert list(some["algorithms"]) == ["fedavg(local_steps=20,server_step=0.05)", "rtfa"]


# Other rounds, and clusters


def test_limits_that_are_another_s_are_told_in_one_sentence():
    names = ["scaffold", "feddyn", "fednova", "fedavgm", "fedadam"]
    for clients in (None, 8):
        found = fa.predict(WORLD, ["fedavg", *names], clients=clients)
        assert len({row.loss for row in found.values()}) == 1
    told = "scaffold, feddyn, fednova, fedavgm and fedadam end where fedavg does, by other rounds"
    assert f"{told}: same limit." in found.notes
    classes = fa.predict(fa.ClassPopulation(1.1, 1.4, 2.3), ["rtfa", "ditto", "fedavg", "scaffold"])
    assert classes["ditto"].accuracy == classes["rtfa"].accuracy
    assert classes["scaffold"].accuracy == classes["fedavg"].accuracy
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5)), rng.standard_normal(60)
    fits = [fa.linear.fit(name, X, y, np.repeat([0, 1, 2], 20)) for name in ("fedavg", "feddyn")]
    np.testing.assert_array_equal(fits[0].shared, fits[1].shared)
    for wrong, right in {
        "scafold": "scaffold",
        "fedadm": "fedadam",
        "hypclust": "hypcluster",
    }.items():
        with pytest.raises(InvalidInput, match=f"did you mean {right}"):
            fa.algorithms.find(wrong)


def test_clusters_that_clients_find_have_the_limit_of_their_own_population():
    """IFCA in exact algebra: first models from gradients' angles, then least squares of each group
    and the best of the groups' models for each client, until nobody moves. One model for all knows
    of clusters by the clients' radius alone: half the mean square distance between two of them.
    """
    d, m, between, world = 100, 10, 0.6, fa.Population(radius=1, noise=0.5, aspect=1)
    name = f"ifca(clusters=2,between={between})"
    losses, together = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        whose = np.arange(m) % 2
        centres, own = rng.standard_normal((2, d)) / d**0.5, rng.standard_normal((m, d)) / d**0.5
        theta = between**0.5 * centres[whose] + (1 - between) ** 0.5 * own
        X = rng.standard_normal((m, d, d))
        y = np.einsum("mnd,md->mn", X, theta) + 0.5 * rng.standard_normal((m, d))
        gradients = np.einsum("mnd,mn->md", X, y) / d
        groups, before = group_by_angle(gradients - gradients.mean(0), 2), None
        while before is None or not np.array_equal(groups, before):
            models = []
            for group in range(2):
                mine = groups == group
                models.append(np.linalg.lstsq(X[mine].reshape(-1, d), y[mine].ravel())[0])
            left = [((np.einsum("mnd,d->mn", X, w) - y) ** 2).sum(1) for w in models]
            before, groups = groups, np.argmin(left, axis=0)
        assert len({*zip(groups.tolist(), whose.tolist(), strict=True)}) == 2  # the planted ones
        losses.append(((theta - np.stack(models)[groups]) ** 2).sum(1).mean())
        together.append(
            ((theta - np.linalg.lstsq(X.reshape(-1, d), y.ravel())[0]) ** 2).sum(1).mean()
        )
        fit = fa.linear.fit("ifca(clusters=2)", list(X), list(y), intercept=False)
        np.testing.assert_allclose(list(fit.personal.values()), np.stack(models)[groups], atol=1e-9)
    aim = float(fa.predict(world, name, clients=m)[name].loss)
    error = np.std(losses, ddof=1) / len(losses) ** 0.5
    assert abs(np.mean(losses) - aim) < 3 * error + 2 * aim / d
    left = 1 - between * (m / 2 - 1) / (m - 1)  # pairs of one cluster have its centre in common
    nearer = fa.Population(radius=left**0.5, noise=0.5, aspect=1)
    both = fa.clusters(nearer, "fedavg", between=1 - (1 - between) / left, clients=m, counts=[2])
    assert both["fedavg in 2 clusters"].loss == pytest.approx(aim, rel=1e-12)
    error_of_all = np.std(together, ddof=1) / len(together) ** 0.5
    apart = abs(np.mean(together) - both["fedavg"].loss)
    assert apart < 3 * error_of_all + 2 * both["fedavg"].loss / d
    independent = fa.predict(world, "fedavg", clients=m)["fedavg"].loss
    assert abs(np.mean(together) - independent) > 5 * error_of_all
    drawn = fa.simulate(world, algorithms=name, clients=m, dimension=60, trials=4)[name]
    assert abs(drawn.loss - aim) < 3 * drawn.error + 2 * aim / 60
    found = fa.predict(world, ["fedavg", "ifca"], clients=m)
    assert found["ifca"].loss > found["fedavg"].loss  # groups without clusters are fewer clients
    endless = fa.predict(world, [name, "fedavg"], method="simulate")
    assert endless[name].loss < 0.5 * endless["fedavg"].loss
