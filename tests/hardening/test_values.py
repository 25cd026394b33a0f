"""Values that make no sense, in every argument of what is public: taken, or refused in words; never
a traceback.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Keep, Meta, Ridge
from fedasym.training.settings import Settings

from .guard import Finding, guarded

HUGE = 10**400  # a whole number that no float holds
WRONG = {
    "huge": HUGE,
    "list": [],
    "dict": {},
    "none": None,
    "text": "x",
    "digits": "0.5",
    "object": object(),
    "nan": float("nan"),
    "true": True,
    "negative": -1,
    "ragged": [[1], [1, 2]],
    "huge list": [HUGE],
    "array": np.array([1.0, 2.0]),
    "complex": 1j,
    "set": {1},
    "date": np.datetime64("2020"),
    "large": 1e300,
}
WORLD, CLASSES = fa.Population(1, 0.5, 2, norm=2), fa.ClassPopulation(1, 1, 2)
NAMES = ["fedavg", "rtfa"]
SMALL = {"dimension": 6, "clients": 3, "trials": 1, "algorithms": NAMES}
SHORT = {"rounds": 1, "evaluate_every": 1, "local_steps": 1, "personal_epochs": 1}
TWO = {
    "first": "rtfa",
    "second": "fedavg",
    "vary": {"radius": (0.5, 1, 3)},
    "ridge": 1,
    "clients": 500,
    "member": True,
}
CLIENTS = fa.datasets.synthetic(
    task="classification", clients=4, dimension=3, classes=2, aspect=0.5
)
SAMPLES, OWNERS = (
    np.random.default_rng(0).standard_normal((12, 2)),
    np.repeat(["a", "b", "c", "d"], 3),
)
TABLE = pl.DataFrame(
    {"who": OWNERS, "a": SAMPLES[:, 0], "b": SAMPLES[:, 1], "y": np.arange(12) / 7}
)
OUTSIDE = {
    "options",
    "settings",
    "on",
    "into",
    "folder",
    "device",
}  # places and machines of the user's own


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Population": (fa.Population, {"radius": 1, "noise": 0.5, "aspect": 2}),
    "ClassPopulation": (fa.ClassPopulation, {"radius": 1, "centre": 1, "aspect": 2}),
    "Algorithm": (fa.Algorithm, {"name": "own", "server": Average(), "personalise": Keep()}),
    "Meta": (Meta, {}),
    "Ridge": (Ridge, {}),
    "Descend": (Descend, {"local_step": 0.1}),
    "Flow": (Flow, {"time": 0.1}),
    "Spectrum": (fa.Spectrum, {"values": [1, 2], "weights": [0.5, 0.5], "name": "two"}),
    "identity": (fa.spectra.identity, {}),
    "atoms": (fa.spectra.atoms, {"values": [1, 2], "weights": [0.5, 0.5]}),
    "eigenvalues": (fa.spectra.eigenvalues, {"values": [1, 2]}),
    "ar1": (fa.spectra.ar1, {"correlation": 0.5}),
    "power law": (fa.spectra.power_law, {"exponent": 1}),
    "from data": (fa.spectra.from_data, {"features": np.eye(3)}),
    "predict": (fa.predict, {"world": WORLD, "clients": 3}),
    "predict many": (
        fa.predict,
        {"world": [WORLD, fa.Population(1, 1, 2, norm=2)], "clients": [3, 4]},
    ),
    "predict classes": (fa.predict, {"world": CLASSES, "algorithms": ["fedavg"]}),
    "compare": (fa.compare, {"world": WORLD, **TWO, "maml_step": 0.1}),
    "compare classes": (fa.compare, {"world": CLASSES, **TWO}),
    "fine_tuning": (fa.fine_tuning, {"world": WORLD, "steps": [0, 1]}),
    "fine_tuning classes": (fa.fine_tuning, {"world": CLASSES, "times": [0, 1]}),
    "one_step": (fa.one_step, {"world": WORLD}),
    "one_step classes": (fa.one_step, {"world": CLASSES}),
    "optimal_ridge": (fa.optimal_ridge, {"world": WORLD}),
    "optimal_loss": (fa.optimal_loss, {"world": WORLD}),
    "noise_threshold": (fa.noise_threshold, {"world": WORLD}),
    "separability": (fa.separability, {"world": CLASSES}),
    "interpolation": (fa.interpolation, {"world": CLASSES}),
    "simulate": (fa.simulate, {"world": WORLD, **SMALL}),
    "simulate many": (fa.simulate, {"world": [WORLD, WORLD], **SMALL, "clients": [3, 3]}),
    "simulate classes": (fa.simulate, {"world": CLASSES, **SMALL, "clients": None}),
    "fit": (
        fa.linear.fit,
        {"algorithm": "rtfa", "X": np.eye(4), "y": np.arange(4.0), "clients": ["a", "a", "b", "b"]},
    ),
    "synthetic": (fa.datasets.synthetic, {"clients": 2, "dimension": 2, "aspect": 1}),
    "synthetic classes": (
        fa.datasets.synthetic,
        {"task": "classification", "clients": 2, "dimension": 2, "classes": 2},
    ),
    "synthetic literature": (
        fa.datasets.synthetic,
        {"alpha": 1, "beta": 1, "clients": 2, "dimension": 2, "samples": 9},
    ),
    "NetworkRecipe": (fa.pretraining.NetworkRecipe, {"network": "cnn"}),
    "Settings": (Settings, {}),
    "from_frame": (
        fa.Federation.from_frame,
        {
            "frame": TABLE,
            "label": "y",
            "client": "who",
            "features": ["a", "b"],
            "roles": {"a": "shared"},
        },
    ),
    "from_arrays": (
        fa.Federation.from_arrays,
        {"features": SAMPLES, "labels": np.arange(12) % 2, "clients": OWNERS},
    ),
    "from_arrays of sequences": (
        fa.Federation.from_arrays,
        {
            "features": np.ones((4, 2, 3)),
            "labels": np.ones((4, 2)),
            "clients": [1, 1, 2, 2],
            "mask": np.ones((4, 2), bool),
        },
    ),
    "merge_rare": (CLIENTS.merge_rare, {"classes": 2}),
    "advise": (fa.advise, {"data": SAMPLES, "y": SAMPLES[:, 0], "clients": OWNERS}),
    "advise classes": (fa.advise, {"data": SAMPLES, "y": np.arange(12) % 2, "clients": OWNERS}),
    "sweep": (
        fa.sweep,
        {"algorithms": "fedavg", "federation": CLIENTS, "grid": {"server_step": [0.1]}, **SHORT},
    ),
    "report": (fa.report, {"results": "nowhere", "path": "page.html"}),
    "train": (fa.train, {"algorithm": "rtfa", "federation": CLIENTS, **SHORT}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_value_that_makes_no_sense(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a text in the place of a file is its name
    call, given = CALLS[name]
    known = inspect.signature(call).parameters
    guarded(lambda: call(**given))
    for argument in sorted({**given, **known}.keys() - OUTSIDE):
        usual = given.get(argument, known[argument].default if argument in known else CALLS)
        for kind, value in WRONG.items():
            if value is usual:  # the same call again
                continue
            try:
                guarded(lambda given=given | {argument: value}: call(**given))
            except Finding as finding:
                raise Finding(f"{name}, {argument} is {kind}: {finding}") from finding


@pytest.mark.parametrize(
    ("name", "argument", "value", "says"),
    [
        ("Population", "radius", None, "radius is None: it must be a number"),
        ("Population", "noise", "0.5", "noise is '0.5': it must be a number"),
        (
            "Population",
            "norm",
            1e300,
            r"norm is 1e\+300: numbers hold the square of at most 1e\+150",
        ),
        ("Spectrum", "values", [HUGE], "values is .1000"),
        ("ar1", "points", HUGE, "points is 1000.*at least 1 and at most 10000000"),
        ("ar1", "points", [], r"points is \[\]: it must be a whole number"),
        ("power law", "points", True, "points is True"),
        (
            "predict",
            "world",
            3,
            "world is 3: give a Population, a ClassPopulation or a list of Population",
        ),
        ("predict", "algorithms", 3, "algorithms is 3: give names or Algorithm objects"),
        ("predict", "member", "no", "member is 'no': it must be True or False"),
        ("predict", "clients", [], r"clients is \[\]: it must be a whole number"),
        (
            "predict",
            "clients",
            1e300,
            r"clients is 1e\+300: it must be a whole number from 1 to 2\^53",
        ),
        ("predict", "ridge", [], r"ridge is \[\]"),
        ("predict classes", "algorithms", 3, "algorithms is 3: give names"),
        ("compare", "world", None, "world is None: give a Population or a ClassPopulation"),
        (
            "compare classes",
            "ridge",
            [1, 2],
            r"ridge is \[1, 2\]: give one number; for several, put ridge into vary",
        ),
        ("compare classes", "member", [], r"member is \[\]"),
        ("fine_tuning", "world", [WORLD], "world is .*: give a Population or a ClassPopulation"),
        ("fine_tuning", "flow", [], r"flow is \[\]: it must be True or False"),
        ("one_step", "world", 3, "world is 3"),
        ("optimal_ridge", "world", "x", "world is 'x'"),
        ("optimal_loss", "world", {}, "world is {}: give a Population"),
        ("noise_threshold", "world", None, "world is None: give a Population"),
        ("simulate", "world", 3, "world is 3: give a Population, or a list of them"),
        ("simulate", "clients", HUGE, "clients is 1000.*at most 9007199254740992"),
        ("simulate", "clients", [[1], [1, 2]], r"clients is \[\[1\], \[1, 2\]\]: give one number"),
        ("simulate", "trials", HUGE, "trials is 1000"),
        ("simulate", "seed", HUGE, r"seed is 1000.*from 0 to 2\^64 - 1"),
        ("simulate", "mode", np.zeros(2), "unknown mode array"),
        (
            "simulate",
            "progress",
            True,
            "progress is True: give a function of the share that is done",
        ),
        ("train", "progress", "x", "progress is 'x': give a function"),
        ("sweep", "progress", 3, "progress is 3: give a function"),
        ("advise", "progress", "x", "progress is 'x': give a function"),
        ("simulate", "save", 3, "save is 3: give the path of a file or folder"),
        ("simulate many", "clients", [3, HUGE], "clients is 1000"),
        ("simulate classes", "vary", np.zeros(2), "vary is array.*for a Population"),
        ("fit", "clients", 3, "clients is 3: give a list of names"),
        (
            "fit",
            "ridge",
            [[1], [1, 2]],
            r"ridge is \[\[1\], \[1, 2\]\]: give one number per client",
        ),
        ("synthetic", "clients", HUGE, "clients is 1000"),
        (
            "synthetic",
            "clients",
            10**12,
            "the heads of 1000000000000 clients of 2 features need .* GB",
        ),
        ("synthetic", "dimension", HUGE, "dimension is 1000"),
        ("synthetic", "positions", HUGE, "positions is 1000"),
        ("synthetic", "noise", 1e300, r"noise is 1e\+300"),
        ("synthetic classes", "centre", 1e300, r"centre is 1e\+300.*from 0 to 1e\+150"),
        ("synthetic classes", "task", np.zeros(2), "unknown task array"),
        ("synthetic literature", "samples", HUGE, "samples is 1000"),
        (
            "synthetic literature",
            "samples",
            [[1], [1, 2]],
            r"samples is \[1\]: it must be a whole number",
        ),
        ("synthetic literature", "classes", 10**12, "need .* GB"),
        ("NetworkRecipe", "step", [], r"step is \[\]: it must be finite and above 0"),
        ("NetworkRecipe", "step", HUGE, "step is 1000"),
        ("NetworkRecipe", "momentum", {}, "momentum is {}: it must be finite and at least 0"),
        ("NetworkRecipe", "epochs", True, "epochs is True: it must be a whole number"),
        ("NetworkRecipe", "decay_at", 3, "decay_at is 3: it must be a list"),
        ("NetworkRecipe", "augmentation", "crop", "augmentation is 'crop': it must be a list"),
        ("NetworkRecipe", "network", None, "network is None: give a name"),
        ("train", "algorithm", np.zeros(2), "unknown algorithm"),
        ("train", "rounds", HUGE, "rounds is 1000.*at least 0 and at most 2147483647"),
        ("train", "grid", np.zeros(2), "grid is array.*it must name settings"),
        ("train", "intercept", "yes", "intercept is 'yes': it must be True or False"),
        ("train", "precision", np.zeros(2), "precision is array.*it must be float32 or"),
    ],
)
def test_it_is_said_which_and_what_to_do(name, argument, value, says):
    call, given = CALLS[name]
    with pytest.raises(fa.InvalidInput, match=says):
        call(**given | {argument: value})


def test_what_is_no_federation_or_file():
    tiny = fa.Experiment(name="tiny")
    for call in (
        lambda: fa.pretraining.features("mine", 3),
        lambda: fa.train("fedavg", 3),
        lambda: fa.run(tiny, 3),
    ):
        with pytest.raises(fa.InvalidInput, match="federation is a int: make one of your data"):
            call()
    with pytest.raises(fa.InvalidInput, match="path is 3: give the path"):
        fa.datasets.read(3)
    with pytest.raises(fa.InvalidInput, match="experiment is 3: give the path"):
        fa.run(3)
    with pytest.raises(fa.InvalidInput, match=r"name is \[\]: give the name of a data set"):
        fa.pretraining.features([], CLIENTS)
    with pytest.raises(fa.InvalidInput, match="array is 3: give the path"):
        fa.pretraining.features("mine", CLIENTS, array=3)


def test_several_ridges_are_for_predictions():
    own = fa.Algorithm("own", Average(), Ridge([1.0, 2.0]))
    with pytest.raises(fa.InvalidInput, match="ridge must be one number here"):
        fa.simulate(CLASSES, dimension=6, trials=1, algorithms=own)
