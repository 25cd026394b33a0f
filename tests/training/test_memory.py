"""What clients and the server keep from round to round, in the twin and in the compiled programs:
the package's algorithms, each against formulas that are written here once more, and a user's stage.
"""

import jax
import numpy as np
import optax
import pytest
from sklearn.linear_model import Ridge as Pooled

import fedasym as fa
from fedasym.algorithms import Interpolate, Keep, Ridge, ServerStage, find, setting
from fedasym.algorithms.family import AverageRounds, ClusterModels, ControlVariates, ServerAdam
from fedasym.training import twin
from fedasym.training.settings import CODE, TEXT, Settings

from .clients import SMALL, as_twin, federation
from .plain import WHOLE, drawn, last

EXACT = SMALL | {"precision": "float64"}


class Momentum(ServerStage):
    """FedAvgM, as a user writes it."""

    share: float = setting(0.9, least=0, most=1)

    def init_server(self, w):
        return 0 * w

    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)

    def update(self, w, change, speed, sent, portion):
        speed = self.share * speed + change
        return w + speed, speed


CLASSES, VALUES = ({}, {}), ({"classes": None, "outputs": 2}, {"protocol": CODE})


@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [
        ("feddyn", [VALUES]),
        ("fednova", [CLASSES]),
        ("fedadam", [VALUES]),
        ("gram_ridge", [CLASSES, VALUES]),
        (fa.Algorithm("control", ControlVariates(), Interpolate()), [VALUES]),
        (fa.Algorithm("clusters", ClusterModels(2), Ridge()), [CLASSES, VALUES]),
    ],
    ids=lambda each: "" if isinstance(each, list) else getattr(each, "name", each),
)
def test_compiled_programs_are_the_twin(algorithm, kinds):
    """What depends on the task is held against the twin on both."""
    for kind, told in kinds:
        clients = federation(**kind)
        run = fa.train(algorithm, clients, **EXACT, **told, seed=3)
        as_twin(run, clients, tolerance=1e-10)


def test_sequences_choose_clusters_and_are_summed_by_the_positions_that_count():
    texts = federation(sizes=[(3, 1, 1), (2, 0, 1), (4, 1, 2)], positions=3)
    for name in ("ifca(clusters=2)", "gram_ridge"):
        as_twin(fa.train(name, texts, **EXACT), texts, tolerance=1e-10)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("fedavgm", {"momentum": [0, 0.5, 0.9], "server_step": [0.1, 0.3]}),
        ("scaffold", {"server_step": [0.1, 0.3]}),
        ("ifca", {"clusters": [1, 2], "server_step": [0.1, 0.3]}),
    ],
)
def test_configurations_and_seeds_side_by_side_have_their_own_memories(name, grid):
    for run in fa.train(name, federation(), grid=grid, seeds=[0, 1], **EXACT):
        as_twin(run, federation(), tolerance=1e-10)


def test_reshuffled_splits_have_their_own_sums_and_clusters():
    clients = federation()
    for name in ("gram_ridge", "ifca"):
        for run in fa.train(name, clients, splits=[0, 1], **EXACT):
            as_twin(run, clients.resplit(run.split, fractions=None), tolerance=1e-10)


def test_a_user_s_stage_is_the_package_s():
    mine = fa.Algorithm("mine", Momentum(share=0.7), Keep())
    np.testing.assert_allclose(
        fa.train(mine, federation(), **EXACT).shared,
        fa.train("fedavgm", federation(), momentum=0.7, **EXACT).shared,
        rtol=1e-12,
    )


def test_without_what_they_add_they_are_fedavg():
    plain = fa.train("fedavg", federation(), **EXACT).shared
    for name, told in {"fedavgm": {"momentum": 0}, "fednova": {"local_epochs": 100}}.items():
        same = fa.train(name, federation(), **EXACT, **told).shared
        np.testing.assert_allclose(same, plain, rtol=1e-12, err_msg=name)


def test_without_drift_the_fixed_point_is_the_pooled_solution():
    """With whole clients as batches FedAvg's fixed point is biased by local steps; SCAFFOLD's and
    FedDyn's are the minimiser of all samples.
    """
    clients = drawn([30, 20, 40], d=3, classes=None)
    sizes = {"evaluate_every": 0, "cohort": 3, "local_steps": 10, "batch": WHOLE}
    told = Settings(rounds=300, server_step=0.1, **sizes, own=(("penalty", 1.0),))
    X, y = clients.features.astype(float), clients.labels
    pooled = np.linalg.lstsq(X, y.reshape(len(y), -1), rcond=None)[0]
    for name in ("scaffold", "feddyn"):
        found = last(find(name), clients, told).shared
        np.testing.assert_allclose(found, pooled, rtol=1e-8, err_msg=name)
    plain = last(find("fedavg"), clients, told).shared
    assert np.abs(plain - pooled).max() > 1e-3


class OptaxServer(AverageRounds):
    """A user's server stage that leaves its step to an optimiser of optax."""

    def optimiser(self):
        return optax.adam(0.3, b1=0.8, b2=0.95, eps=0.01)

    def init_server(self, w):
        return self.optimiser().init(w)

    def update(self, w, change, state, sent, portion):
        move, state = self.optimiser().update(-change, state, w)
        return w + move, state


ADAM = {"server_rate": 0.3, "momentum": 0.8, "second_momentum": 0.95, "floor": 0.01}


def test_adam_on_the_server_is_optax_s():
    """The gradient is minus the clients' change; moments are divided by 1 - decay^count, and `floor`
    is optax's eps. Reddi et al. leave those divisions out: their step is ours at another rate and
    floor, which are theirs after a few rounds.
    """
    ours, theirs = ServerAdam(**ADAM), OptaxServer()
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 2))
    m, v, kept = 0 * w, 0 * w, ours.init_server(w)
    with jax.enable_x64(True):
        state = theirs.init_server(jax.numpy.asarray(w))
        for count in range(1, 8):
            change = rng.standard_normal(w.shape)
            m, v = 0.8 * m + 0.2 * change, 0.95 * v + 0.05 * change**2
            left, left2 = 1 - 0.8**count, np.sqrt(1 - 0.95**count)
            published = ours.at(server_rate=0.3 * left / left2, floor=0.01 / left2)
            there, _ = published.update(w, change, kept, None, 1.0)
            np.testing.assert_allclose(there, w + 0.3 * m / (np.sqrt(v) + 0.01), rtol=1e-12)
            moved, state = theirs.update(w, change, state, None, 1.0)
            w, kept = ours.update(w, change, kept, None, 1.0)
            np.testing.assert_allclose(w, moved, rtol=1e-12)


def test_compiled_runs_of_fedadam_are_those_of_optax():
    """Random cohorts and batches; the twin is held against the same program above."""
    stage = fa.Algorithm("optax", OptaxServer(), Keep())
    both = [fa.train(each, federation(), **EXACT, **told) for each, told in (
        ("fedadam", ADAM), (stage, {}))]  # fmt: skip
    np.testing.assert_allclose(both[0].shared, both[1].shared, rtol=1e-12)
    assert np.abs(both[0].shared).max() > 0.1


def test_changes_are_averaged_per_step_where_clients_take_different_numbers():
    """Clients of one, two and four batches in a pass: FedNova's round in plain NumPy."""
    clients = drawn([4, 8, 16], d=3, classes=None)
    one = Settings(
        rounds=1, evaluate_every=0, cohort=3, local_steps=4, batch=4, server_step=0.1,
        own=(("local_epochs", 1),),
    )  # fmt: skip
    found = last(find("fednova"), clients, one).shared
    assert not np.allclose(found, last(find("fedavg"), clients, one).shared)
    steps, n = np.array([1, 2, 4]), np.array([4, 8, 16])
    whole = [twin.TwinClient(clients, name, one, TEXT, 0, np.float64) for name in clients.clients]
    total, mean = 0.0, 0.0
    for client, K, size in zip(whole, steps, n, strict=True):
        W = np.zeros((3, 1))
        for (D,), _ in zip(client.steps(0, 0, 1), range(K), strict=False):
            W = W - 0.1 * D.X.T @ (D.X @ W - D.Y) / len(D.Y)
        total = total + size / n.sum() * W / K
        mean += size / n.sum() * K
    np.testing.assert_allclose(found, mean * total, rtol=1e-12)


def pooled_clients(partition):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((90, 5)) * [1, 2, 0.5, 1, 3]
    y = rng.integers(0, 3, 90)
    owner = {"even": np.arange(90) % 6, "sorted": y, "one": np.zeros(90, int)}[partition]
    split = np.where(np.arange(90) < 70, 0, 2)
    return X, y, fa.Federation.from_arrays(X, y, owner, split=split, classes=3)


@pytest.mark.parametrize("partition", ["even", "sorted", "one"])
def test_the_head_from_sums_is_the_ridge_of_all_samples_whoever_holds_them(partition):
    X, y, clients = pooled_clients(partition)
    run = fa.train("gram_ridge(shared_ridge=0.2)", clients, precision="float64", rounds=1)
    told = Pooled(alpha=0.2 * 70).fit(X[:70], np.eye(3)[y[:70]])
    np.testing.assert_allclose(run.shared[:-1], told.coef_.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.shared[-1], told.intercept_, rtol=0, atol=1e-10)
    right = told.predict(X[70:]).argmax(1) == y[70:]
    assert run.accuracy[-1] == pytest.approx(right.mean())


def planted_clients(seed, clusters=3, clients=24, n=15, d=20):
    """Clients of a few clusters, far apart and alike within, and which is whose."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, d)) / d**0.5
    whose = rng.permutation(np.arange(clients) % clusters)
    own = centres[whose] + 0.2 * rng.standard_normal((clients, d)) / d**0.5
    X = rng.standard_normal((clients, 2 * n, d))
    y = np.einsum("mnd,md->mn", X, own) + 0.3 * rng.standard_normal((clients, 2 * n))
    split = np.tile(np.repeat([0, 2], n), clients)
    names = np.repeat(np.arange(clients), 2 * n)
    rows = (X.reshape(-1, d), y.ravel(), names)
    return fa.Federation.from_arrays(*rows, split=split, intercept=False), whose


@pytest.mark.parametrize("seed", range(3))
def test_planted_clusters_are_found(seed):
    clients, whose = planted_clients(seed)
    told = Settings(
        rounds=15, evaluate_every=0, cohort=12, local_steps=5, batch=WHOLE, server_step=0.1,
        own=(("clusters", 3),),
    )  # fmt: skip
    heads = last(find("ifca"), clients, told, seed=seed).personal
    groups = np.unique([heads[name][:, 0] for name in clients.clients], axis=0, return_inverse=True)
    for cluster in range(3):
        assert len(set(groups[1].ravel()[whose == cluster])) == 1
    assert len(groups[0]) == 3
    one = last(find("fedavg"), clients, told, seed=seed).shared
    assert twin.loss(clients, heads) < 0.5 * twin.loss(clients, one)


def test_models_that_clients_keep_are_their_own_models():
    clients = drawn([8, 5, 6])
    told = Settings(rounds=30, evaluate_every=30, cohort=3, local_steps=2, batch=4, ridge=0.5)
    start, *_, end = twin.run(find("ditto"), clients, told, TEXT, 0)
    *_, same = twin.run(find("fedavg"), clients, told, TEXT, 0)
    np.testing.assert_array_equal(start.personal["a"], start.shared)
    np.testing.assert_array_equal(end.shared, same.shared)
    assert twin.loss(clients, end.personal, "train") < twin.loss(clients, end.shared, "train")


def test_kept_models_converge_to_ridge_tuning():
    """Both forms of Ditto: with whole batches, models that are kept between rounds end where a
    ridge towards the shared model does, solved exactly.
    """
    clients = drawn([9, 12, 10], d=3, classes=None)
    told = Settings(
        rounds=400, evaluate_every=0, cohort=3, local_steps=1, batch=WHOLE, server_step=0.2,
        local_step=0.2, ridge=0.5,
    )  # fmt: skip
    end = last(find("ditto"), clients, told)
    for name in clients.clients:
        rows = clients.rows(name, "train")
        X, y = clients.features[rows].astype(float), clients.labels[rows].reshape(len(rows), -1)
        system = X.T @ X / len(X) + 0.5 * np.eye(3)
        exact = np.linalg.solve(system, X.T @ y / len(X) + 0.5 * end.shared)
        np.testing.assert_allclose(end.personal[name], exact, rtol=1e-8)


@pytest.mark.parametrize(("cohort", "kind"), [(1, {"classes": None, "outputs": 2}), (3, {})])
def test_compiled_models_that_clients_keep_are_the_twin_s(cohort, kind):
    """Configurations and seeds side by side; with few rounds some clients are never drawn."""
    grid = {"ridge": [0.1, 2.0], "server_step": [0.1, 0.3]}
    told = EXACT | {"rounds": 3, "cohort": cohort}
    clients = federation(**kind)
    for run in fa.train("ditto", clients, grid=grid, seeds=[0, 1], **told):
        as_twin(run, clients, tolerance=1e-10)


def test_a_model_that_a_client_keeps_is_handed_out():
    run = fa.train("ditto", federation(), **EXACT | {"rounds": 3})
    *_, end = twin.run(
        find("ditto"), federation(), run.settings, run.protocol, run.seed, np.float32
    )
    np.testing.assert_allclose(run.personal("a"), end.personal["a"], rtol=1e-6)


def test_a_memory_without_an_end_is_refused():
    class Endless(ServerStage):
        def init_client(self, w):
            return 0 * w

        def step(self, w, start, gradient, rate, state):
            return w - rate * gradient(w), state

    with pytest.raises(
        fa.NoFormula, match=r"Endless has no finish\(w, start, state, rate, steps\)"
    ):
        fa.train(fa.Algorithm("endless", Endless(), Keep()), federation(), **SMALL)
