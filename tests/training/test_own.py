"""Stages of a user's own: the same step runs in the plain twin and in both compiled forms, and is refused with a sentence."""

from functools import partial

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Interpolate, Keep, Meta, Moreau, Nothing, Own, Ridge
from fedasym.training.settings import CODE

from .clients import SMALL, as_twin, federation, same

QUARTER = np.float64(0.25)  # NumPy's numbers multiply models too
EXACT = SMALL | {"precision": "float64"}


def plain(w, start, gradient, *, server_step):
    return w - server_step * gradient(w)


def proximal(w, start, gradient, *, server_step, ridge):
    return w - server_step * (gradient(w) + ridge * (w - start))


def first_order(w, start, gradient, *, server_step, local_step):
    return w - server_step * gradient(w - local_step * gradient(w), 1)


def tuned(w, start, gradient, *, local_step):
    return w - local_step * gradient(w)


def shrunk(w, start, gradient, *, local_step, ridge):
    return w - local_step * (gradient(w) + ridge * (w - start))


def mixed(w, start, gradient, *, local_step, pull=QUARTER):
    return -(-w - local_step * -gradient(w) / 0.5) * 0.75 + pull * start


@pytest.mark.parametrize(
    ("form", "server", "client", "twin"),
    [
        ("gram", Own(plain), Own(tuned), "ftfa"),
        ("head", Own(plain), Ridge(), "rtfa"),
        ("gram", Average(), Own(shrunk), "rtfa"),
        ("head", Own(first_order, batches=2), Interpolate(), "maml_fo"),
        ("head", Nothing(), Own(shrunk), "local_ridge"),
    ],
)
def test_a_known_algorithm_written_as_an_own_step_gives_its_numbers(form, server, client, twin):
    clients = federation()
    mine = fa.train(fa.Algorithm("mine", server, client), clients, form=form, **EXACT)
    same(mine, fa.train(twin, clients, form=form, **EXACT), tolerance=1e-10)


@pytest.mark.parametrize(
    ("form", "server", "client"),
    [
        ("gram", Own(first_order, batches=2), Own(mixed)),
        ("head", Own(proximal), Own(mixed)),
        ("gram", Moreau(), Own(shrunk)),
        ("gram", Nothing(), Own(mixed)),
    ],
)
def test_compiled_steps_are_those_of_the_twin(form, server, client):
    as_twin(fa.train(fa.Algorithm("mine", server, client), federation(), form=form, **EXACT), federation())


def test_other_tasks_protocols_and_precisions():
    mine = fa.Algorithm("mine", Own(proximal), Own(mixed))
    values, words = federation(classes=None, outputs=2), federation(positions=3)
    as_twin(fa.train(mine, values, protocol=CODE, **EXACT), values)
    as_twin(fa.train(mine, words, **EXACT), words)
    as_twin(fa.train(mine, federation(), **SMALL), federation(), tolerance=2e-4)


def test_its_settings_are_tuned_like_any_other():
    mine = fa.Algorithm("mine", Own(proximal), Keep())
    runs = fa.train(["fedavg", mine], federation(), grid={"ridge": [0, 0.5, 5], "server_step": [0.1, 0.3]}, **SMALL)
    assert len(runs.select(algorithm="mine")) == 6
    assert len(runs.select(algorithm="fedavg")) == 2
    for step in (0.1, 0.3):
        (own,) = runs.select(algorithm="mine", ridge=0, server_step=step)
        (average,) = runs.select(algorithm="fedavg", server_step=step)
        np.testing.assert_allclose(own.shared, average.shared, rtol=1e-5, atol=1e-6)
    far = [np.linalg.norm(runs.select(algorithm="mine", ridge=r, server_step=0.3)[0].shared) for r in (0, 0.5, 5)]
    assert far == sorted(far, reverse=True)
    (own,) = runs.select(algorithm="mine", ridge=0.5, server_step=0.3)
    assert own.predict(np.ones((2, 4)), client="a").shape == (2,)


def test_numbers_of_its_own_are_bound():
    def step(w, start, gradient, *, server_step, pull):
        return w - server_step * (gradient(w) + pull * (w - start))

    bound = fa.train(fa.Algorithm("mine", Own(partial(step, pull=0.5)), Keep()), federation(), **EXACT)
    asked = fa.train(fa.Algorithm("mine", Own(proximal), Keep()), federation(), ridge=0.5, **EXACT)
    np.testing.assert_array_equal(bound.shared, asked.shared)
    with pytest.raises(fa.InvalidInput, match=r"asks for pull, which is no setting: .*functools\.partial"):
        fa.train(fa.Algorithm("mine", Own(step), Keep()), federation(), **SMALL)


@pytest.mark.parametrize(
    ("server", "client", "match"),
    [
        (Own(3), Keep(), "has the step 3: it must be a function"),
        (Own(lambda w, start: w), Keep(), "it must be a function of"),
        (Own(lambda w, start, gradient: gradient(w, 1)), Keep(), "asked for batch 1, and a step has 1, from 0"),
        (Own(plain, batches=0), Keep(), "takes 0 batches a step: it must be a whole number"),
        (Average(), Own(tuned, batches=2), "takes 2 batches a step: it must be 1 in a client stage"),
        (Own(lambda w, start, gradient: None), Keep(), "returned NoneType: it must return a model"),
    ],
)
def test_what_cannot_be_run_is_said(server, client, match):
    with pytest.raises(fa.InvalidInput, match=match):
        fa.train(fa.Algorithm("mine", server, client), federation(), **SMALL)


@pytest.mark.parametrize("pair", [(Own(plain), Keep()), (Average(), Own(tuned)), (Meta(), Own(tuned))])
def test_it_is_trained_not_predicted(pair):
    mine = fa.Algorithm("mine", *pair)
    world = fa.Population(1, 0.5, 2, norm=2)
    with pytest.raises(fa.NoFormula, match=r"mine, which has a stage of your own: measure it with fa\.train"):
        fa.predict(world, [mine])
    with pytest.raises(fa.NoFormula, match="stage of your own"):
        fa.simulate(world, algorithms=[mine], dimension=20, clients=3, trials=1)
    with pytest.raises(fa.NoFormula, match="stage of your own"):
        fa.linear.fit(mine, np.eye(4), np.ones(4), clients=[0, 0, 1, 1], intercept=False)
    with pytest.raises(fa.NoFormula, match=r"fa\.train"):
        fa.predict(fa.ClassPopulation(radius=1, centre=1, aspect=2), [mine])
