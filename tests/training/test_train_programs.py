"""Compiled programs: what they are given is computed once, and they neither grow nor become
more.
"""

from functools import partial

import jax
import numpy as np
import pytest

import fedasym as fa
from fedasym.training import evaluation, runner
from fedasym.training.programs import advance, personalise

from .clients import GRAM, RAGGED, SMALL, federation

pytestmark = pytest.mark.usefixtures("_light")


@pytest.fixture
def dry(monkeypatch):
    """Training without arithmetic: the arguments that the compiled programs are given."""
    asked = {"advance": [], "personalise": []}

    def advancing(*arguments):
        asked["advance"].append(arguments)
        return arguments[2]

    def personalising(*arguments):
        asked["personalise"].append(arguments)
        _, _, shared, members, _, rates, stops, *_ = arguments
        asked_of = next(iter(rates.values())).shape  # servers, configurations
        return np.zeros((len(shared), len(members), *asked_of, len(stops), 2, 2), shared.dtype)

    monkeypatch.setattr(runner, "advance", advancing)
    monkeypatch.setattr(evaluation, "personalise", personalising)
    return asked


def test_configurations_that_differ_in_the_client_stage_train_the_shared_model_once(dry):
    clients = federation()
    steps, ridges = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0], [0.1, 0.5, 1.0, 5.0, 10.0]
    grid = {"server_step": steps, "local_step": steps[:5], "ridge": ridges}
    told = {**SMALL, "rounds": 60, "evaluate_every": 20, "form": "gram"}
    runs = fa.train(["fedavg", "ftfa", "rtfa"], clients, **told, grid=grid, seeds=range(3))
    assert len(runs) == 3 * (6 + 6 * 5 + 6 * 5 * 5)
    trained = sum(
        state[0].shape[0] * state[0].shape[1] * int(count)
        for _, _, state, *_, count, _ in dry["advance"]
    )
    assert trained == 60 * 6 * 3  # rounds, server steps and seeds: as for FedAvg alone
    tuned = {"Keep": 0, "Interpolate": 0, "Ridge": 0}
    for program, _, shared, _, _, rates, *_ in dry["personalise"]:
        tuned[type(program.stage).__name__] += len(shared) * rates["local_step"].size
    assert tuned == {
        "Keep": 4 * 3 * 6,
        "Interpolate": 4 * 3 * 6 * 5,
        "Ridge": 4 * 3 * 6 * 25,
    }  # 4 evaluated rounds
    dry["advance"].clear()
    fa.train(["maml", "maml_fo", "pfedme", "fedavg"], clients, **told)
    stages = {program.stage for program, *_ in dry["advance"]}
    assert sorted(type(stage).__name__ for stage in stages) == ["Average", "Meta", "Meta", "Moreau"]


def test_one_walk_is_tested_after_every_number_of_passes(dry):
    told = {**SMALL, "form": "gram"}
    passes = {"personal_epochs": [5, 0, 1, 2], "local_step": [0.1, 0.3]}
    runs = fa.train(
        ["ftfa", "maml_fo"],
        federation(),
        **told,
        grid={"ftfa": passes, "maml_fo": {"personal_epochs": [1, 3]}},
    )
    walks = [
        (type(program.stage).__name__, rates["local_step"].size, stops.tolist())
        for program, _, _, _, _, rates, stops, *_ in dry["personalise"]
    ]
    per_pass = -(-17 // 8)
    ftfa, maml = [each * per_pass for each in (0, 1, 2, 5)], [per_pass, 3 * per_pass]
    assert [walk for walk in walks if walk[0] == "Interpolate"] == [
        ("Interpolate", 2, ftfa)
    ] * 3 + [("Interpolate", 1, maml)] * 3
    assert len(runs) == 8 + 2


def test_alone_no_round_is_trained_together(dry):
    fa.train(["local", "local_ridge"], federation(), **SMALL)
    assert dry["advance"] == []


def equations(function, arguments):
    program, *arrays = arguments
    return str(jax.make_jaxpr(partial(function.__wrapped__, program))(*arrays)).count(" = ")


def shapes(arguments):
    return jax.tree.leaves(jax.tree.map(np.shape, arguments[1:]))


@pytest.mark.parametrize(
    ("name", "form"), [("rtfa", "gram"), ("maml_hf", "head"), ("pfedme", "gram"), ("local", "head")]
)
def test_programs_do_not_grow(dry, name, form):
    """With rounds, clients, samples, rates, seeds, local steps or passes; one of each alone has a
    smaller one.
    """
    axis = "local_step" if name == "local" else "server_step"
    fa.train(name, federation(), **SMALL, form=form)
    alone = {
        called: {type(arguments[0].stage).__name__: arguments for arguments in asked}
        for called, asked in dry.items()
    }
    for asked in dry.values():
        asked.clear()
    fa.train(name, federation(), **SMALL, form=form, grid={axis: [0.1, 0.2]}, seeds=range(2))
    more = {
        **SMALL,
        "rounds": 90,
        "cohort": 9,
        "local_steps": 8,
        "personal_epochs": 7,
        "form": form,
    }
    fa.train(name, federation(RAGGED * 3), **more, grid={axis: [0.1, 0.2, 0.3]}, seeds=range(3))
    for called, function in (("advance", advance), ("personalise", personalise)):
        first, last = (
            {type(arguments[0].stage).__name__: arguments for arguments in asked}
            for asked in (dry[called][::-1], dry[called])
        )
        for kind, arguments in first.items():
            assert shapes(arguments) != shapes(last[kind])
            assert equations(function, arguments) == equations(function, last[kind]), kind
            assert equations(function, alone[called][kind]) < equations(function, arguments), kind


def test_other_rounds_rates_and_seeds_need_no_new_program():
    clients = federation()
    names = ["ftfa", "maml_hf", "pfedme"]
    fa.train(names, clients, **GRAM)
    before = advance._cache_size(), personalise._cache_size()
    other = {
        **GRAM,
        "rounds": 33,
        "evaluate_every": 7,
        "server_step": 0.11,
        "local_step": 0.03,
        "ridge": 2.0,
    }
    fa.train(names, clients, **other, difference=0.02, mixing=0.7, inner_step=0.01, seed=9)
    fa.train(names, federation(order=[3, 5, 1, 0, 6, 2, 4], seed=4), **other)
    assert (advance._cache_size(), personalise._cache_size()) == before
