"""Histories in files: what comes back predicts, prints and tabulates as before; what is no such
file is refused in words.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Algorithm, ServerStage, setting

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
