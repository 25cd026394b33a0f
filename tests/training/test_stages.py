"""Stages from outside the package: the same step runs in the plain twin and in both compiled forms,
or is refused.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import (
    Average,
    ClientStage,
    Interpolate,
    Keep,
    Moreau,
    Nothing,
    Ridge,
    ServerStage,
    setting,
)
from fedasym.training import twin
from fedasym.training.settings import CODE

from .clients import SMALL, as_twin, federation, same

pytestmark = pytest.mark.usefixtures("_light")

QUARTER = np.float64(0.25)  # NumPy's numbers multiply models too
EXACT = SMALL | {"precision": "float64"}


class Plain(ServerStage):
    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)


class Proximal(ServerStage):
    pull: float = setting(0.1, least=0, meaning="pull towards the shared model", grid=(0, 0.5, 5))

    def step(self, w, start, gradient, rate):
        return w - rate * (gradient(w) + self.pull * (w - start))


class FirstOrder(ServerStage):
    batches = 2
    inner: float = setting(0.1, least=0)

    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w - self.inner * gradient(w), 1)


class SecondOrder(ServerStage):
    batches = 3
    inner: float = setting(0.1, least=0)

    def step(self, w, start, gradient, rate):
        g = gradient(w - self.inner * gradient(w), 1)
        return w - rate * (g - self.inner * gradient.along(w, g, 2))


class Repeated(ServerStage):
    times: int = setting(2, least=1)

    def step(self, w, start, gradient, rate):
        for _ in range(self.times):
            w = w - rate / self.times * gradient(w)
        return w


class Momentum(ServerStage):
    share: float = setting(0.5, least=0, most=1)

    def init(self, w):
        return 0 * w

    def step(self, w, start, gradient, rate, speed):
        speed = self.share * speed + gradient(w)
        return w - rate * speed, speed


class Tuned(ClientStage):
    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)


class Shrunk(ClientStage):
    ridge: float | None = setting(None, least=0)

    def step(self, w, start, gradient, rate):
        return w - rate * (gradient(w) + self.ridge * (w - start))


class Mixed(ClientStage):
    pull: float = setting(float(QUARTER), least=0)

    def step(self, w, start, gradient, rate):
        return (
            -(-w - rate * -gradient(w) / 0.5) * 0.75 + QUARTER * start + self.pull * (start - start)
        )


@pytest.mark.parametrize(
    ("form", "server", "client", "twin"),
    [
        ("gram", Plain(), Tuned(), "ftfa"),
        ("head", Plain(), Ridge(), "rtfa"),
        ("gram", Average(), Shrunk(), "rtfa"),
        ("head", FirstOrder(0.2), Interpolate(), "maml_fo"),
        ("gram", SecondOrder(0.2), Interpolate(), "maml"),
        ("head", Nothing(), Shrunk(), "local_ridge"),
    ],
)
def test_a_known_algorithm_written_as_a_step_gives_its_numbers(form, server, client, twin):
    clients = federation()
    mine = fa.train(fa.Algorithm("mine", server, client), clients, form=form, **EXACT)
    same(mine, fa.train(twin, clients, form=form, **EXACT), tolerance=1e-10)


@pytest.mark.parametrize(
    ("form", "server", "client"),
    [
        ("gram", FirstOrder(), Mixed()),
        ("head", Proximal(), Mixed()),
        ("gram", Moreau(), Shrunk()),
        ("gram", Nothing(), Mixed()),
        ("gram", Momentum(), Keep()),
        ("head", Momentum(0.9), Tuned()),
        ("gram", Repeated(3), Keep()),
    ],
)
def test_compiled_steps_are_those_of_the_twin(form, server, client):
    as_twin(
        fa.train(fa.Algorithm("mine", server, client), federation(), form=form, **EXACT),
        federation(),
    )


def test_momentum_is_carried_from_step_to_step():
    still, moving = (
        fa.train(fa.Algorithm("mine", Momentum(share), Keep()), federation(), **EXACT)
        for share in (0, 0.9)
    )
    np.testing.assert_allclose(
        still.shared, fa.train("fedavg", federation(), **EXACT).shared, rtol=1e-12
    )
    assert not np.allclose(still.shared, moving.shared, rtol=1e-3)


def test_other_tasks_protocols_and_precisions():
    mine = fa.Algorithm("mine", Proximal(), Mixed())
    values, words = federation(classes=None, outputs=2), federation(positions=3)
    as_twin(fa.train(mine, values, protocol=CODE, **EXACT), values)
    as_twin(fa.train(mine, words, **EXACT), words)
    as_twin(fa.train(mine, federation(), **SMALL), federation(), tolerance=2e-4)


def test_its_settings_are_tuned_like_any_other():
    mine = fa.Algorithm("mine", Proximal(), Keep())
    runs = fa.train(
        ["fedavg", mine],
        federation(),
        grid={"pull": [0, 0.5, 5], "server_step": [0.1, 0.3]},
        **SMALL,
    )
    assert len(runs.select(algorithm="mine")) == 6
    assert len(runs.select(algorithm="fedavg")) == 2
    for step in (0.1, 0.3):
        (own,) = runs.select(algorithm="mine", pull=0, server_step=step)
        (average,) = runs.select(algorithm="fedavg", server_step=step)
        np.testing.assert_allclose(own.shared, average.shared, rtol=1e-5, atol=1e-6)
    far = [
        np.linalg.norm(runs.select(algorithm="mine", pull=r, server_step=0.3)[0].shared)
        for r in (0, 0.5, 5)
    ]
    assert far == sorted(far, reverse=True)
    (own,) = runs.select(algorithm="mine", pull=0.5, server_step=0.3)
    assert own.predict(np.ones((2, 4)), client="a").shape == (2,)
    assert runs.select(algorithm="mine").table()[0]["pull"] == 0


def test_a_setting_is_the_stages_own_or_the_runs():
    made = fa.train(fa.Algorithm("mine", Proximal(0.5), Keep()), federation(), **EXACT)
    told = fa.train(fa.Algorithm("mine", Proximal(), Keep()), federation(), pull=0.5, **EXACT)
    np.testing.assert_array_equal(made.shared, told.shared)
    with pytest.raises(
        fa.InvalidInput, match="pull is -1: it must be a finite number of at least 0"
    ):
        fa.train(fa.Algorithm("mine", Proximal(), Keep()), federation(), pull=-1, **EXACT)
    with pytest.raises(fa.InvalidInput, match="unknown setting 'pul': did you mean pull"):
        fa.train(fa.Algorithm("mine", Proximal(), Keep()), federation(), pul=1, **EXACT)


def server(step: Any, **more: Any) -> ServerStage:
    return type("Made", (ServerStage,), {"step": step, **more})()


MEMORY: dict[str, Any] = {}
RANDOM = np.random.default_rng(0)


def with_memory(self, w, start, gradient, rate):
    MEMORY["speed"] = gradient(w) + 0.9 * MEMORY["speed"] if "speed" in MEMORY else gradient(w)
    return w - rate * MEMORY["speed"]


def branching(self, w, start, gradient, rate):
    return w - rate * gradient(w) if rate > 0.05 else w


REFUSED = {
    "two arguments": (lambda self, w, start: w, "it is called as step"),
    "batch 1": (
        lambda self, w, start, gradient, rate: gradient(w, 1),
        "gradient is asked for batch 1, but a step has 1",
    ),
    "nothing": (
        lambda self, w, start, gradient, rate: None,
        "it returned NoneType: it must return a model",
    ),
    "memory": (with_memory, "gives another answer when it is repeated.*into a state"),
    "chance": (
        lambda self, w, start, gradient, rate: w * RANDOM.random(),
        "gives another answer when it is repeated",
    ),
    "a norm": (
        lambda self, w, start, gradient, rate: w / np.linalg.norm(w),
        "a model is given to a function of NumPy",
    ),
    "a product": (lambda self, w, start, gradient, rate: w * w, "a model is multiplied by a model"),
    "a square": (lambda self, w, start, gradient, rate: w**2, "a model is raised to a power"),
    "an inner product": (
        lambda self, w, start, gradient, rate: w @ w,
        "a model is multiplied by a model",
    ),
    "a number": (lambda self, w, start, gradient, rate: w * float(w), "a model is taken for a num"),
    "a comparison": (lambda self, w, start, gradient, rate: w * (w > 0), "a model is compared"),
    "an absolute value": (lambda self, w, start, gradient, rate: abs(w), "a model is given to abs"),
    "a norm of JAX": (
        lambda self, w, start, gradient, rate: w / jnp.linalg.norm(w),
        r"a model is asked for \.dtype",
    ),
    "an entry": (lambda self, w, start, gradient, rate: w - w[0], "a model is indexed"),
    "a method": (lambda self, w, start, gradient, rate: w.sum(), r"a model is asked for \.sum"),
    "a sum with a number": (
        lambda self, w, start, gradient, rate: w + 1,
        "a model is added to a number",
    ),
    "an error": (
        lambda self, w, start, gradient, rate: {}["a"],
        "fails on a model of 3 x 2 numbers: KeyError",
    ),
    "a branch": (branching, "decides by a number that is known only when it runs"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_step_that_cannot_be_run_is_refused_in_words(what):
    step, says = REFUSED[what]
    with pytest.raises(fa.InvalidInput, match=says):
        fa.train(fa.Algorithm("mine", server(step), Keep()), federation(), **SMALL)


def test_stages_that_cannot_be_are_refused():
    with pytest.raises(fa.InvalidInput, match="takes 0 batches a step: it must be a whole number"):
        fa.train(fa.Algorithm("mine", server(Plain.step, batches=0), Keep()), federation(), **SMALL)
    two = type("Two", (ClientStage,), {"step": Tuned.step, "batches": 2})()
    with pytest.raises(
        fa.InvalidInput, match="takes 2 batches a step: it must be 1 in a client stage"
    ):
        fa.train(fa.Algorithm("mine", Average(), two), federation(), **SMALL)
    with pytest.raises(fa.NoFormula, match=r"mine cannot be trained: Still has no step\("):
        fa.train(
            fa.Algorithm("mine", type("Still", (ServerStage,), {})(), Keep()), federation(), **SMALL
        )
    long = type(
        "Long",
        (ServerStage,),
        {"__annotations__": {"rounds": int}, "rounds": setting(3), "step": Plain.step},
    )()
    with pytest.raises(fa.InvalidInput, match="has the setting rounds, which every run has"):
        fa.train(fa.Algorithm("mine", long, Keep()), federation(), **SMALL)
    with pytest.raises(fa.InvalidInput, match=r"the stage Bare cannot be made: .* with their type"):
        type("Bare", (ServerStage,), {"penalty": setting(0.1)})
    with pytest.raises(
        fa.InvalidInput, match="the server stage of mine is the class Plain: give one of"
    ):
        fa.Algorithm("mine", Plain, Keep())
    with pytest.raises(fa.InvalidInput, match=r"algorithm is a str: give an fa\.Algorithm"):
        fa.algorithms.register("mine")
    for name in ("", "my:own", " mine"):
        with pytest.raises(fa.InvalidInput, match="it must be a word, without ':'"):
            fa.algorithms.register(fa.Algorithm(name, Average(), Keep()))
    lone = server(lambda self, w, start, gradient, rate, state: w, init=lambda self, w: 0 * w)
    with pytest.raises(fa.InvalidInput, match="it must return the model and the state"):
        lone.advance((np.ones(2), np.zeros(2), lambda w: w, 0.1), np.zeros(2))


def test_without_formulas_it_is_trained_not_predicted():
    mine = fa.Algorithm("mine", Plain(), Tuned())
    world = fa.Population(1, 0.5, 2, norm=2)
    with pytest.raises(fa.NoFormula, match=r"Tuned has no keep\(x\)"):
        fa.predict(world, [mine])
    with pytest.raises(fa.NoFormula, match=r"Plain has no weight\(x\)"):
        fa.simulate(world, algorithms=[mine], dimension=20, clients=3, trials=1)
    with pytest.raises(fa.NoFormula, match=r"Plain has no weight\(x\)"):
        fa.linear.fit(mine, np.eye(4), np.ones(4), clients=[0, 0, 1, 1], intercept=False)
    with pytest.raises(fa.NoFormula, match=r"fa\.train"):
        fa.predict(fa.ClassPopulation(radius=1, centre=1, aspect=2), [mine])


# A ridge by direction


def test_a_ridge_by_direction_is_its_twin_and_ends_where_the_exact_fit_is():
    """Compiled programs train rtfa on scaled features; heads are for features as they are."""
    scales = np.array([1.5, 1.0, 0.8])
    drawn = fa.datasets.synthetic(clients=4, dimension=3, samples=30, noise=0.5, seed=6)
    clients = replace(drawn, features=drawn.features * scales)
    told = {"power": 1.2, "ridge": 0.6, "precision": "float64", "server_step": 0.2}
    for protocol in ("text", "code"):
        short = {"rounds": 3, "evaluate_every": 3, "local_step": 0.1, "protocol": protocol}
        for run in fa.train("rtfa_directed", clients, splits=[1], **told, **short):
            of = (run.algorithm, run.federation, run.settings, run.protocol, run.seed)
            last = list(twin.run(*of))[-1]
            np.testing.assert_allclose(run.shared, last.shared, atol=1e-12)
            np.testing.assert_allclose(
                run.loss[-1], twin.loss(run.federation, last.personal), rtol=1e-12
            )
            one = clients.clients[1]
            np.testing.assert_allclose(run.personal(one), last.personal[one], atol=1e-6)
    train = replace(clients, split=np.zeros_like(clients.split))
    whole = {"rounds": 400, "evaluate_every": 0, "batch": 10**6, "local_steps": 1}
    long = fa.train(
        "rtfa_directed",
        train,
        **told,
        **whole,
        personal_epochs=400,
        local_step=0.1,
        protocol="text",
    )
    exact = fa.linear.fit(
        "rtfa_directed(power=1.2)",
        train.features,
        train.labels[:, 0],
        train.owner,
        ridge=0.6,
        intercept=False,
    )
    for client in train.clients:
        np.testing.assert_allclose(long.personal(client)[:, 0], exact.personal[client], atol=1e-4)
    scalar = fa.linear.fit(
        "rtfa", train.features, train.labels[:, 0], train.owner, ridge=0.6, intercept=False
    )
    assert abs(scalar.personal[client] - exact.personal[client]).max() > 1e-2


def test_a_ridge_by_direction_takes_all_features():
    clients = fa.datasets.synthetic(clients=3, dimension=2, samples=8, seed=0)
    fixed = replace(clients, personal=np.array([True, False]))
    with pytest.raises(fa.InvalidInput, match="rtfa_directed scales all features together"):
        fa.train("rtfa_directed", fixed, rounds=1)
