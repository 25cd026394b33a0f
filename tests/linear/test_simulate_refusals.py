"""Bad input to `simulate` is refused in one sentence, before any work."""

from __future__ import annotations

import numpy as np
import pytest

import fedasym as fa

from .worlds import DIFFERENT

CLASSES = fa.ClassPopulation(1, 1, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"dimension": 1, "clients": 3},
            "dimension is 1: with aspect 2.5 a client would have no sample",
        ),
        ({"dimension": 0}, "dimension is 0"),
        ({"clients": 0}, "clients is 0: it must be a whole number of at least 1"),
        ({"clients": 2.5}, "clients is 2.5"),
        ({"clients": [3, 4]}, "a list is for a list of populations"),
        ({"trials": 0}, "trials is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"features": "gausian"}, "did you mean gaussian"),
        ({"mode": "exact"}, "unknown mode 'exact'"),
        ({"algorithms": ["ftfq"]}, "did you mean ftfa"),
        ({"algorithms": ["local"]}, "local: a method that shares nothing"),
        ({"ridge": [1, 2]}, "ridge has shape"),
        ({"ridge": -5.0, "algorithms": ["rtfa"]}, "ridge is -5"),
        ({"ridge": -0.01, "algorithms": ["pfedme"]}, "pfedme: ridge is -0.01"),
        ({"vary": {"color": [1, 2]}}, "unknown parameter in vary 'color'"),
        ({"vary": {"noise": [1, 2], "radius": [1, 2]}}, "vary must name one parameter"),
        ({"vary": {"noise": (0, 1)}}, "give \\(start, stop, count\\)"),
        ({"vary": {"noise": [1, -2]}}, "noise is -2"),
        ({"vary": {"ridge": [1, 2]}, "algorithms": ["fedavg"]}, "no algorithm asked for has one"),
        ({"weights": "samples"}, "weights are for a list"),
        ({"clients": 2, "dimension": 40, "world": fa.Population(1, 0.5, 4)}, "give norm"),
        ({"clients": 2, "mode": "sampling", "world": fa.Population(1, 0.5, 4)}, "give norm"),
        ({"world": fa.Population([1, 2], 0.5, 4)}, "the population holds arrays"),
        ({"world": []}, "the list of populations is empty"),
        ({"world": "identity"}, "give a Population"),
        ({"world": DIFFERENT, "clients": [1, 2]}, "one for each"),
        ({"world": DIFFERENT, "vary": {"clients": [1, 2]}}, "vary is for one population"),
        (
            {"world": DIFFERENT, "algorithms": ["ifca"]},
            "ifca is simulated on one population at a time",
        ),
        ({"algorithms": ["rtfa_directed"], "vary": {"noise": [1, 2]}}, "without vary"),
        ({"vary": {"aspect": [1, np.inf]}}, r"vary\['aspect'\] must hold finite numbers"),
        ({"world": [CLASSES, CLASSES]}, "give one ClassPopulation at a time"),
        ({"world": fa.Population(0, 0, 2.5), "vary": {"noise": []}}, r"vary\['noise'\] must hold"),
        ({"save": "no/such/folder/file.json"}, "does not exist"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(options, says):
    world = options.pop("world", fa.Population(1, 0.5, 2.5))
    with pytest.raises(fa.InvalidInput, match=says) as caught:
        fa.simulate(world, **({"trials": 1, "dimension": 20} | options))
    assert "\n" not in str(caught.value)


def test_a_dimension_beyond_memory_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("fedasym.verbs.simulation.physical_memory", lambda: 1e9)
    with pytest.raises(
        fa.InvalidInput, match=r"dimension is 5000: its matrices need 5 GB .*give at most 2041"
    ):
        fa.simulate(fa.Population(1, 1, 2), dimension=5000, clients=3)
