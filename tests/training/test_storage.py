"""Histories in files: what comes back predicts, prints and tabulates as before; what is no such
file is refused in words.
"""

import json
from dataclasses import fields

import numpy as np
import pytest
from safetensors import numpy as safetensors
from safetensors import safe_open

import fedasym as fa
from fedasym.algorithms import Algorithm, ServerStage, setting
from fedasym.training import storage
from fedasym.training.plans import PrivacySpent

from .clients import SMALL, federation

pytestmark = pytest.mark.usefixtures("_light")


class Proximal(ServerStage):
    pull: float = setting(0.1)

    def step(self, w, start, gradient, rate):
        return w - rate * (gradient(w) + self.pull * (w - start))


ALGORITHMS = [
    "local",
    "fedavg",
    "rtfa",
    Algorithm("proximal", Proximal(), fa.algorithms.TRAINED["ftfa"].personalise),
]


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ({}, (0, 1, 2, 3)),
        ({"classes": None}, (0, 3)),
        ({"classes": None, "outputs": 2}, (1, 2)),
        ({"positions": 3}, (0, 3)),
    ],
    ids=str,
)
def test_a_history_comes_back(tmp_path, kind, places):
    clients = federation(**kind)
    new = clients.features[:4]
    for place in places:
        run = fa.train(ALGORITHMS[place], clients, **SMALL, intercept=bool(place % 2))
        again = fa.History.load(run.save(tmp_path / f"{place}.safetensors"))
        for client in clients.clients:
            np.testing.assert_array_equal(again.predict(new, client), run.predict(new, client))
        if not run.algorithm.shares_nothing:
            np.testing.assert_array_equal(again.predict(new), run.predict(new))
        assert (str(again), repr(again.table())) == (str(run), repr(run.table()))
        assert repr(again.clients()) == repr(run.clients())
        assert again.to_json() == run.to_json()
        assert again.converged == run.converged
        assert (
            again.save(tmp_path / "twice.safetensors").read_bytes()
            == (tmp_path / f"{place}.safetensors").read_bytes()
        )


def test_clients_that_are_not_there_are_refused(tmp_path):
    run = fa.train("ftfa", federation(), **SMALL)
    again = fa.History.load(run.save(tmp_path / "run.safetensors"))
    with pytest.raises(fa.InvalidInput, match="unknown client 'z'"):
        again.predict(np.zeros((1, 4)), client="z")
    alone = fa.train("local", federation(), **SMALL)
    with pytest.raises(fa.InvalidInput, match="local has no shared model"):
        fa.History.load(alone.save(tmp_path / "run.safetensors")).predict(np.zeros((1, 4)))


def test_names_of_files_are_checked(tmp_path):
    run = fa.train("fedavg", federation(), **SMALL)
    with pytest.raises(fa.InvalidInput, match=r"its name must end in \.safetensors"):
        run.save(tmp_path / "run.pickle")
    with pytest.raises(fa.InvalidInput, match="does not exist; make it first"):
        run.save(tmp_path / "nowhere" / "run.safetensors")
    with pytest.raises(fa.InvalidInput, match="there is no such file"):
        fa.History.load(tmp_path / "run.safetensors")


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = fa.train("fedavg", federation(), **SMALL).save(tmp_path / "run.safetensors")
    whole = path.read_bytes()
    for changed in (
        whole[:-1],
        whole[:-9] + b"\1" + whole[-8:],
        whole.replace(b"fedavg", b"fedawg", 1)[:-3],
        b"",
        b"{}",
    ):
        path.write_bytes(changed)
        with pytest.raises(
            fa.InvalidInput, match="not a history that save wrote, or it was damaged"
        ):
            fa.History.load(path)
    federation().save(path)
    with pytest.raises(fa.InvalidInput, match="not a history that save wrote"):
        fa.History.load(path)


def change(path, **changes):
    """A history's file with other fields or arrays, and their checksum: as no run would write it,
    and with nothing for the checksum to find.
    """
    with safe_open(str(path), framework="numpy") as file:
        about = json.loads(file.metadata()[storage.KEY])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    arrays |= {name: each for name, each in changes.items() if name in arrays}
    about |= {name: each for name, each in changes.items() if name not in arrays}
    told = {name: each for name, each in about.items() if name != "sum"}
    sums = json.dumps(told | {"sum": storage.checksum(arrays, told)})
    path.write_bytes(safetensors.save(arrays, metadata={storage.KEY: sums}))


def test_fields_that_do_not_fit_together_are_refused(tmp_path):
    run = fa.train("fedavg", federation(), **SMALL)
    path = run.save(tmp_path / "run.safetensors")
    whole = path.read_bytes()
    change(path)
    assert path.read_bytes() == whole
    assert fa.History.load(path).to_json() == run.to_json()
    clients = list(run.federation.clients)
    protocol = {each.name: getattr(run.protocol, each.name) for each in fields(run.protocol)}
    spent = dict.fromkeys((each.name for each in fields(PrivacySpent)), 1)
    change(path, privacy=spent)
    assert fa.History.load(path).privacy == PrivacySpent(**spent)
    for changes in (
        {"heads": np.zeros((1, 2, 3), np.float32)},
        {"rounds": np.array([0.5, 1.5, 2.5])},
        {"seed": None},
        {"split": "1"},
        {"clients": clients[1:]},
        {"clients": [*clients[1:], clients[1]]},
        {"clients": dict.fromkeys(clients)},
        {"dimension": 0},
        {"outputs": 3.0},
        {"names": ["a"]},
        {"classes": [0, 1, None]},
        {"training": np.ones(len(clients))},
        {"protocol": protocol | {"intercept": "yes"}},
        {"privacy": spent | {"epsilon": None}},
    ):
        path.write_bytes(whole)
        change(path, **changes)
        with pytest.raises(fa.InvalidInput, match="not a history that save wrote"):
            fa.History.load(path)


def test_a_loaded_history_knows_its_training_samples_only(tmp_path):
    clients = federation()
    run = fa.train("fedavg", clients, **SMALL)
    again = fa.History.load(run.save(tmp_path / "run.safetensors"))
    np.testing.assert_array_equal(again.federation.counts("train"), clients.counts("train"))
    with pytest.raises(fa.InvalidInput, match="split is 'test'"):
        again.federation.counts("test")
    with pytest.raises(fa.InvalidInput, match=r"its name must end in \.parquet"):
        again.write_clients(tmp_path / "clients.csv")
