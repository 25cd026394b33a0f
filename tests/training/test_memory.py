"""What clients and the server keep from round to round: two stages of a user's, in the twin and in
the compiled programs.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import ClientStage, Interpolate, Keep, ServerStage, setting
from fedasym.training import twin
from fedasym.training.settings import CODE, TEXT, Settings

from .clients import SMALL, as_twin, federation
from .plain import WHOLE, drawn, last

EXACT = SMALL | {"precision": "float64"}


class Scaffold(ServerStage):
    """Control variates (Karimireddy et al. 2020, option II): clients correct their drift by c -
    c_i.
    """

    def init_client(self, w):
        return 0 * w

    def init_server(self, w):
        return 0 * w

    def step(self, w, start, gradient, rate, state):
        own, common = state
        return w - rate * (gradient(w) - own + common), state

    def finish(self, w, start, state, rate, steps):
        own, common = state
        later = own - common + (start - w) / (steps * rate)
        return later, later - own

    def update(self, w, change, common, sent, portion):
        return w + change, common + portion * sent


class ServerMomentum(ServerStage):
    """FedAvgM (Hsu et al. 2019)."""

    share: float = setting(0.9, least=0, most=1)

    def init_server(self, w):
        return 0 * w

    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)

    def update(self, w, change, speed, sent, portion):
        speed = self.share * speed + change
        return w + speed, speed


class Adam(ServerStage):
    """FedAdam (Reddi et al. 2021): the server sees the entries of its model."""

    server_rate: float = setting(0.1, above=0)

    def init_server(self, w):
        return 0 * w, 0 * w

    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)

    def update(self, w, change, moments, sent, portion):
        m, v = 0.9 * moments[0] + 0.1 * change, 0.99 * moments[1] + 0.01 * change**2
        return w + self.server_rate * m / (v**0.5 + 1e-3), (m, v)


class Ditto(ServerStage):
    """Ditto as published (Li et al. 2021): each client keeps a model of its own, pulled to the
    shared one.
    """

    pull: float = setting(0.5, least=0)

    def init_client(self, w):
        return w

    def step(self, w, start, gradient, rate, state):
        own, common = state
        return w - rate * gradient(w), (
            own - rate * (gradient(own) + self.pull * (own - start)),
            common,
        )

    def finish(self, w, start, state, rate, steps):
        return state[0], None

    def gives_personal(self, client: ClientStage) -> bool:
        return True

    def personal_model(self, w, state):
        return state


@pytest.mark.parametrize(
    ("server", "client"),
    [(Scaffold(), Interpolate()), (ServerMomentum(), Keep()), (Adam(), Keep())],
)
def test_compiled_programs_are_the_twin(server, client):
    mine = fa.Algorithm("mine", server, client)
    as_twin(fa.train(mine, federation(), **EXACT, seed=3), federation(), tolerance=1e-10)
    values = federation(classes=None, outputs=2)
    as_twin(fa.train(mine, values, protocol=CODE, **EXACT), values, tolerance=1e-10)


def test_configurations_and_seeds_side_by_side_have_their_own_memories():
    mine = fa.Algorithm("mine", ServerMomentum(), Keep())
    grid = {"share": [0, 0.5, 0.9], "server_step": [0.1, 0.3]}
    for run in fa.train(mine, federation(), grid=grid, seeds=[0, 1], **EXACT):
        as_twin(run, federation(), tolerance=1e-10)
    control = fa.Algorithm("mine", Scaffold(), Keep())
    for run in fa.train(
        control, federation(), grid={"server_step": [0.1, 0.3]}, seeds=[0, 1], **EXACT
    ):
        as_twin(run, federation(), tolerance=1e-10)


def test_momentum_without_a_share_is_fedavg():
    still = fa.Algorithm("still", ServerMomentum(share=0), Keep())
    np.testing.assert_allclose(
        fa.train(still, federation(), **EXACT).shared,
        fa.train("fedavg", federation(), **EXACT).shared,
        rtol=1e-12,
    )


def test_control_variates_remove_the_drift_of_different_clients():
    """With whole clients as batches FedAvg's fixed point is biased by local steps; SCAFFOLD's is
    the pooled solution.
    """
    clients = drawn([30, 30, 30], d=3, classes=None)
    told = Settings(
        rounds=600, evaluate_every=0, cohort=3, local_steps=10, batch=WHOLE, server_step=0.1
    )
    X, y = clients.features.astype(float), clients.labels
    pooled = np.linalg.lstsq(X, y.reshape(len(y), -1), rcond=None)[0]
    control = last(fa.Algorithm("scaffold", Scaffold(), Keep()), clients, told).shared
    plain = last(fa.algorithms.find("fedavg"), clients, told).shared
    np.testing.assert_allclose(control, pooled, rtol=1e-8)
    assert np.abs(plain - pooled).max() > 1e-3


def test_models_that_clients_keep_are_their_own_models():
    ditto = fa.Algorithm("ditto", Ditto(), Keep())
    clients = drawn([8, 5, 6])
    start, *_, end = twin.run(
        ditto,
        clients,
        Settings(rounds=30, evaluate_every=30, cohort=3, local_steps=2, batch=4),
        TEXT,
        0,
    )
    same = twin.run(
        fa.algorithms.find("fedavg"),
        clients,
        Settings(rounds=30, evaluate_every=30, cohort=3, local_steps=2, batch=4),
        TEXT,
        0,
    )
    np.testing.assert_array_equal(start.personal["a"], start.shared)
    np.testing.assert_array_equal(end.shared, list(same)[-1].shared)
    assert twin.loss(clients, end.personal, "train") < twin.loss(clients, end.shared, "train")


@pytest.mark.parametrize("cohort", [1, 3])
def test_compiled_models_that_clients_keep_are_the_twin_s(cohort):
    """Configurations and seeds side by side; with few rounds some clients are never drawn."""
    ditto = fa.Algorithm("ditto", Ditto(), Keep())
    grid = {"pull": [0.1, 2.0], "server_step": [0.1, 0.3]}
    told = EXACT | {"rounds": 3, "cohort": cohort}
    for clients in (federation(), federation(classes=None, outputs=2)):
        for run in fa.train(ditto, clients, grid=grid, seeds=[0, 1], **told):
            as_twin(run, clients, tolerance=1e-10)
    run = fa.train(ditto, federation(), **told)
    *_, end = twin.run(ditto, federation(), run.settings, run.protocol, run.seed, np.float32)
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
