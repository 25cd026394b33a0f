"""What train takes and what it refuses, before any work."""

import numpy as np
import pytest

import fedasym as fa
from fedasym import training
from fedasym.algorithms import Average, Flow, Keep, Meta, Moreau, Ridge

from .clients import GRAM, federation, named, same

pytestmark = pytest.mark.usefixtures("_light")


@pytest.fixture
def _no_work(monkeypatch):
    def compute(*_):
        raise AssertionError("began to work")

    monkeypatch.setattr(training, "compute_histories", compute)


REFUSED = {
    "unknown algorithm": ("fedavgg", {}, "unknown algorithm 'fedavgg': did you mean fedavg"),
    "unknown among several": (["ftfa", "rtf"], {}, "unknown algorithm 'rtf'"),
    "no algorithm": ([], {}, "algorithm is empty: name at least one of local"),
    "the same twice": (["ftfa", "ftfa"], {}, "algorithm has ftfa twice: give each its own name"),
    "gradient flow": (
        named(Average(), Flow(1.0)),
        {},
        r"gradient flow, which has no stochastic form: use Descend",
    ),
    "several ridges": (
        named(Average(), Ridge([0.1, 1.0])),
        {},
        "training takes one number; vary it with grid",
    ),
    "negative ridge": (
        named(Average(), Ridge(-1.0)),
        {},
        "ridge is -1.0: it must be a finite number of at least 0",
    ),
    "no algorithm's name": (3, {}, "algorithm is 3: it must be a list"),
    "lists in a list": ([["ftfa"]], {}, r"unknown algorithm \['ftfa'\]"),
    "cohort too large": (
        "ftfa",
        {"cohort": 7},
        "cohort is 7, and 6 clients have training samples: give at most that many",
    ),
    "unknown entry": (
        "ftfa",
        {"grid": {"server_stepp": [1]}},
        "unknown grid entry 'server_stepp': did you mean server_step",
    ),
    "seed in grid": ("ftfa", {"grid": {"seed": [1]}}, "unknown grid entry 'seed'"),
    "no values": (
        "ftfa",
        {"grid": {"server_step": []}},
        "grid has no values for server_step: give at least one",
    ),
    "a bare value": (
        "ftfa",
        {"grid": {"server_step": 0.1}},
        "grid's server_step is 0.1: it must be a list",
    ),
    "a word": (
        "ftfa",
        {"grid": {"server_step": "0.1"}},
        "grid's server_step is '0.1': it must be a list",
    ),
    "no mapping": (
        "ftfa",
        {"grid": [0.1]},
        r"grid is \[0.1\]: it must name settings and list their values",
    ),
    "bad value in grid": ("ftfa", {"grid": {"server_step": [0.1, -1]}}, "server_step is -1"),
    "unused entry": (
        ["fedavg", "ftfa"],
        {"grid": {"ridge": [0.1]}},
        "grid has ridge, which fedavg, ftfa does not use",
    ),
    "own ridge": (
        named(Average(), Ridge(0.3)),
        {"grid": {"ridge": [0.1]}},
        "grid has ridge, which own does not use",
    ),
    "list in grid": (
        "ftfa",
        {"grid": {"server_step": [[0.1, 0.2]]}},
        r"server_step is \[0.1, 0.2\]: it must be a finite",
    ),
    "part without names": (
        ["ftfa", "rtfa"],
        {"grid": {"ftfa": [1], "rtfa": {}}},
        "grid's part for ftfa .* must name settings",
    ),
    "own step": (
        named(Meta(0.1), Keep()),
        {"grid": {"local_step": [0.1]}},
        "grid has local_step, which own does not use",
    ),
    "part for nobody": (
        "ftfa",
        {"grid": {"rtfa": {"ridge": [1]}}},
        "grid has a part for rtfa, which is not trained",
    ),
    "no seeds": ("ftfa", {"seeds": []}, "seeds is empty: give at least one whole number"),
    "one seed as seeds": ("ftfa", {"seeds": 3}, "seeds is 3: it must be a list"),
    "negative seed": ("ftfa", {"seed": -1}, "seed is -1: it must be a whole number"),
    "half a seed": ("ftfa", {"seeds": [0, 0.5]}, "seed is 0.5: it must be a whole number"),
    "true seed": ("ftfa", {"seed": True}, "seed is True: it must be a whole number"),
    "endless seed": ("ftfa", {"seed": 2**64}, "it must be a whole number from 0 to"),
    "negative step": (
        "ftfa",
        {"server_step": -0.1},
        "server_step is -0.1: it must be a finite number of at least 0",
    ),
    "endless step": (
        "ftfa",
        {"local_step": np.inf},
        "local_step is inf: it must be a finite number",
    ),
    "nan ridge": ("rtfa", {"ridge": np.nan}, "ridge is nan: it must be a finite number"),
    "step as a word": (
        "ftfa",
        {"server_step": "0.1"},
        "server_step is '0.1': it must be a finite number",
    ),
    "no difference": (
        "maml_hf",
        {"difference": 0},
        'difference is 0.*for the exact Hessian train "maml"',
    ),
    "negative rounds": (
        "ftfa",
        {"rounds": -1},
        "rounds is -1: it must be a whole number of at least 0",
    ),
    "half a round": ("ftfa", {"rounds": 1.5}, "rounds is 1.5: it must be a whole number"),
    "no batch": ("ftfa", {"batch": 0}, "batch is 0: it must be a whole number of at least 1"),
    "true batch": ("ftfa", {"batch": True}, "batch is True: it must be a whole number"),
    "never tested": (
        "ftfa",
        {"evaluate_every": -1},
        "evaluate_every is -1: it must be a whole number of at least 0",
    ),
    "no cohort": ("ftfa", {"cohort": 0}, "cohort is 0: it must be a whole number of at least 1"),
    "no local steps": ("ftfa", {"local_steps": 0}, "local_steps is 0"),
    "negative passes": (
        "ftfa",
        {"personal_epochs": -1},
        "personal_epochs is -1: it must be a whole number of at least 0",
    ),
    "unknown protocol": ("ftfa", {"protocol": "txt"}, "unknown protocol 'txt': did you mean text"),
    "unknown precision": (
        "ftfa",
        {"precision": "float16"},
        "precision is 'float16': it must be .* or mixed or bfloat16",
    ),
    "short samples": (
        "ftfa",
        {"precision": "bfloat16"},
        "precision is 'bfloat16': it serves sequences.*use 'mixed'",
    ),
    "unknown form": ("ftfa", {"form": "span"}, "form is 'span': it must be gram or head"),
}


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_before_any_work(case):
    algorithm, told, message = REFUSED[case]
    with pytest.raises(fa.InvalidInput, match=message):
        fa.train(algorithm, federation(), **told)


@pytest.mark.usefixtures("_no_work")
def test_data_come_as_a_federation():
    with pytest.raises(
        fa.InvalidInput,
        match=r"federation is a list: make one of your data with fa.Federation.from_arrays",
    ):
        fa.train("ftfa", [np.eye(3)])


@pytest.mark.parametrize(
    ("features", "labels", "split", "message"),
    [
        ([[1.0], [np.nan]], [0, 1], [0, 2], "features"),
        ([[1.0], [np.inf]], [0, 1], [0, 2], "features"),
        ([[1.0], [2.0]], [0, 3], [0, 2], "label .* is 3, not among the 2 classes"),
        ([[1.0], [2.0]], [0, -1], [0, 2], "label .* is -1, not among the 2 classes"),
        ([[1.0], [2.0]], [0, 1], [1, 2], "no training sample at all"),
    ],
)
def test_bad_data_is_refused_when_a_federation_is_made(features, labels, split, message):
    with pytest.raises(fa.InvalidInput, match=message):
        fa.Federation.from_arrays(features, labels, clients=[1, 1], split=split, classes=2)


def test_a_grid_takes_any_values_and_each_algorithm_those_it_uses(monkeypatch):
    planned = []

    def compute(jobs, *_):
        planned.extend(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "compute_histories", compute)

    def settings_of(algorithm, *names, **told):
        planned.clear()
        with pytest.raises(KeyboardInterrupt):
            fa.train(algorithm, federation(), **told)
        return [
            (job.name, *(getattr(settings, name) for name in names)) for job, settings in planned
        ]

    grid = {
        "local_step": (step for step in (0.1, 0.2)),
        "ridge": np.array([1, 2], np.float32),
        "cohort": range(2, 4),
    }  # each read once
    assert settings_of(
        ["fedavg", "ftfa", "rtfa", "local"], "cohort", "local_step", "ridge", grid=grid
    ) == [
        *(("fedavg", cohort, 0.1, 0.1) for cohort in (2, 3)),
        *(("ftfa", cohort, step, 0.1) for step in (0.1, 0.2) for cohort in (2, 3)),
        *(
            ("rtfa", cohort, step, ridge)
            for step in (0.1, 0.2)
            for ridge in (1, 2)
            for cohort in (2, 3)
        ),
        *(("local", 6, step, 0.1) for step in (0.1, 0.2)),
    ]
    own = {"ftfa": {"local_step": [0.3]}, "rtfa": {"ridge": [1, 2]}}
    assert settings_of(["fedavg", "ftfa", "rtfa"], "local_step", "ridge", grid=own) == [
        ("fedavg", 0.1, 0.1), ("ftfa", 0.3, 0.1), ("rtfa", 0.1, 1.0), ("rtfa", 0.1, 2.0)
    ]  # fmt: skip
    assert settings_of(["rtfa", "pfedme", named(Moreau(), Ridge(0.3))], "ridge") == [
        ("rtfa", 0.1), ("pfedme", 15.0), ("own", 0.3)
    ]  # fmt: skip
    assert settings_of(
        "ftfa", "rounds", "server_step", rounds=np.int64(3), server_step=np.float32(0.5)
    ) == [("ftfa", 3, 0.5)]


def test_one_run_is_a_history_and_several_are_histories():
    clients = federation()
    assert isinstance(fa.train("fedavg", clients, **GRAM), fa.History)
    assert isinstance(fa.train("fedavg", clients, **GRAM, grid={}), fa.History)
    several = [
        fa.train(["fedavg"], clients, **GRAM),
        fa.train("fedavg", clients, **GRAM, seeds=[0]),
        fa.train("fedavg", clients, **GRAM, grid={"server_step": [0.3]}),
    ]
    for runs in several:
        assert isinstance(runs, fa.Histories)
        same(runs[0], fa.train("fedavg", clients, **GRAM))
    assert [
        run.seed
        for run in fa.train("fedavg", clients, **{**GRAM, "rounds": 0}, seeds=[3, np.int64(1), 3])
    ] == [3, 1]
