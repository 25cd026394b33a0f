"""Grids, seeds and splits that are trained together are their single runs, however they are cut."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Interpolate
from fedasym.training import evaluation, plans
from fedasym.training.programs import personalise
from fedasym.training.settings import SETTINGS

from .clients import DOUBLE, GRAM, as_twin, federation, same

pytestmark = pytest.mark.usefixtures("_light")

GRID = {"server_step": [0.1, 0.3, 0.5], "local_step": [0.05, 0.4]}
SEEDS = [0, 7]


def singles(clients, runs):
    """Each configuration and seed of a grid, run on its own."""
    told = [
        {
            **{name: getattr(run.settings, name) for name in SETTINGS},
            "precision": "float64",
            "form": "gram",
            "seed": run.seed,
        }
        for run in runs
    ]
    return [fa.train(run.algorithm, clients, **each) for run, each in zip(runs, told, strict=True)]


SHAPES = {  # all kinds of stages on the first, and one of them on every other
    "gram": ({}, {"form": "gram"}, ("local", "rtfa", "maml_hf", "pfedme")),
    "head": ({}, {"form": "head"}, ("maml_hf",)),
    "gram, clients side by side": ({}, {"form": "gram"}, ("pfedme",)),
    "sequences": ({"positions": 4}, {"form": None}, ("rtfa",)),
    "sequences, short": ({"positions": 4}, {"form": None, "precision": "bfloat16"}, ("maml_hf",)),
    "values": ({"classes": None}, {"form": "gram"}, ("local", "maml_hf")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_splits_side_by_side_are_the_reshuffled_federations_one_by_one(monkeypatch, shape):
    kind, form, algorithms = SHAPES[shape]
    if "side by side" in shape:
        monkeypatch.setattr(plans, "default_device", lambda: plans.Machine(True, 1e9, 1e9))
    clients, told = federation(**kind), {**DOUBLE, **form}
    for name in algorithms:
        runs = fa.train(name, clients, **told, seeds=SEEDS, splits=[3, 1])
        assert [(run.split, run.seed) for run in runs] == [(3, 0), (3, 7), (1, 0), (1, 7)]
        assert "2 seeds · 2 splits" in runs.title
        assert [run.seed for run in runs.select(split=1)] == SEEDS
        assert {row["split"] for row in runs.table()} == {1, 3}
        assert not np.array_equal(runs[0].correct, runs[2].correct) or not np.array_equal(
            runs[0].losses, runs[2].losses
        )
        for run in runs:
            reshuffled = clients.resplit(run.split, fractions=None)
            np.testing.assert_array_equal(run.federation.split, reshuffled.split)
            if shape.endswith("short"):
                same(run, fa.train(name, reshuffled, **told, seed=run.seed), 0.02)
            else:  # the twin has one federation at a time, and nothing to compile
                as_twin(run, reshuffled, 1e-9)


# clients side by side or not, bytes of memory, bytes for runs side by side, bytes for planned
# batches
LAYOUTS = {
    "all at once": (False, 1e9, 1e9, 1e8),
    "one by one": (False, 1e9, 1, 1e8),
    "two by two": (False, 1e9, 10000, 600),
    "clients side by side": (True, 1.2e5, 1e9, 1e8),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_grid_is_its_single_runs_however_it_is_cut(monkeypatch, name):
    """To rounding, not to the bit: another shape is another order of summation."""
    together, memory, close, planned = LAYOUTS[name]
    asked = []

    def watched(program, data, shared, places, *rest):
        asked.append((shared.shape[:2], len(places), program.form == "gram" and data.grams is None))
        return personalise(program, data, shared, places, *rest)

    clients = federation()
    algorithms = ["ftfa", "pfedme"] if name in ("all at once", "one by one") else ["ftfa", "local"]
    with monkeypatch.context() as patch:
        patch.setattr(plans, "default_device", lambda: plans.Machine(together, memory, close))
        patch.setattr(evaluation, "ROWS", planned)
        patch.setattr(evaluation, "personalise", watched)
        runs = fa.train(algorithms, clients, **GRAM, grid=GRID, seeds=SEEDS)
    assert [run.seed for run in runs] == SEEDS * (len(runs) // 2)
    assert len(runs) == 2 * sum({"ftfa": 6, "pfedme": 3, "local": 2}[each] for each in algorithms)
    shapes, pieces, bare = (set(each) for each in zip(*asked, strict=True))
    assert ((1, 2) in shapes) == (
        name == "two by two"
    )  # three server steps, two at a time: the last pair is filled up
    assert ((2, 3) in shapes) == (name in ("all at once", "clients side by side"))
    assert (max(pieces) < 7 or min(pieces) < 7) == (name in ("two by two", "clients side by side"))
    assert (
        True in bare
    ) == together  # little memory: Gram matrices are computed when they are needed
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)


def test_sequences_side_by_side_in_many_groups_are_those_one_by_one(monkeypatch):
    """Small clients' batches are cut to their own rows, and the groups are more: the numbers
    stay.
    """
    clients = federation(positions=3)
    told = {**DOUBLE, "batch": 20, "grid": {"local_step": [0.1, 0.2]}}
    plain = fa.train(["ftfa", "local"], clients, **told)
    widths = set()

    def watched(program, data, shared, places, rows, *rest):
        widths.add(rows.shape[-1])
        return personalise(program, data, shared, places, rows, *rest)

    monkeypatch.setattr(plans, "MANY", 6)
    monkeypatch.setattr(plans, "FEW", 0)
    monkeypatch.setattr(plans, "default_device", lambda: plans.Machine(True, 1e9, 1e9))
    monkeypatch.setattr(evaluation, "personalise", watched)
    for run, alone in zip(fa.train(["ftfa", "local"], clients, **told), plain, strict=True):
        same(run, alone, 1e-12)
    assert len(widths - {1}) > 1  # the shared model, as it is, takes no batch


def test_algorithms_that_share_some_trajectories_are_their_single_runs():
    clients = federation()
    tuned = fa.Algorithm("tuned", Average(), Interpolate())
    grid = {
        "ftfa": {"server_step": [0.1, 0.3], "local_step": [0.2, 0.1]},
        "tuned": {
            "server_step": [0.3],
            "local_step": [0.05, 0.4],
        },  # four client stages start from 0.3, and two from 0.1
        "fedavg": {"server_step": [0.3]},
    }
    runs = fa.train(["ftfa", tuned, "fedavg"], clients, **GRAM, grid=grid, seeds=SEEDS)
    assert len(runs) == 2 * 7
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)


def test_in_single_precision_a_grid_is_its_single_runs_to_rounding():
    clients = federation()
    told = {**GRAM, "precision": "float32"}
    for run in fa.train("fedavg", clients, **told, grid={"server_step": [0.1, 0.3]}, seeds=SEEDS):
        alone = fa.train(
            "fedavg", clients, **{**told, "server_step": run.settings.server_step}, seed=run.seed
        )
        np.testing.assert_allclose(run.losses, alone.losses, rtol=1e-5)
        np.testing.assert_allclose(run.shared, alone.shared, rtol=1e-5, atol=1e-6)


def test_fewer_passes_are_the_beginning_of_more():
    clients = federation()
    grid = {
        "ftfa": {"personal_epochs": [3, 0, 1]},
        "rtfa": {"personal_epochs": [2, 1], "ridge": [0.5, 2]},
    }
    runs = fa.train(["ftfa", "rtfa"], clients, **GRAM, grid=grid, seeds=SEEDS)
    assert len(runs) == 2 * 7
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)
