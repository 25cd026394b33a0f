"""Features whose weights may not differ between clients: personal models keep the shared model's,
in every algorithm.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Algorithm, Average, ClientStage, Descend, Keep
from fedasym.training import twin
from fedasym.training.settings import CODE, TEXT, Settings

from .clients import DOUBLE, as_twin, federation

pytestmark = pytest.mark.usefixtures("_light")
OWN = np.array([True, False, True, False])


class Decayed(ClientStage):
    def step(self, w, start, gradient, rate):
        return 0.9 * (w - rate * gradient(w - 0.1 * gradient(w)))


ALL = TRAINED | {
    "few": Algorithm("few", Average(), Descend(0.1, 3)),
    "own": Algorithm("own", Average(), Decayed()),
    "inner": Algorithm("inner", TRAINED["pfedme"].server, Keep()),
}


def partly(**kind):
    return replace(federation(**kind), personal=OWN)


# Each kind of labels and each protocol once: test_train.py has them crossed, without the mask.
@pytest.mark.parametrize(
    ("kind", "protocol"),
    [({}, TEXT), ({"classes": None}, CODE)],
    ids=["classes, text", "values, code"],
)
def test_compiled_programs_are_the_twin(kind, protocol):
    clients = partly(**kind)
    rules = replace(protocol, random_start=True)  # so that shared rows are not 0
    for run in fa.train(
        list(ALL.values()),
        clients,
        **{**DOUBLE, "server_step": 0.1, "inner_step": 0.03},
        protocol=rules,
    ):
        as_twin(run, clients)


@pytest.mark.parametrize("name", ALL)
def test_personal_models_keep_the_weights_that_all_share(name):
    clients = partly(classes=None)
    settings = Settings(
        rounds=3,
        evaluate_every=3,
        cohort=3,
        local_steps=3,
        batch=8,
        personal_epochs=2,
        server_step=0.1,
    )
    *_, last = twin.run(ALL[name], clients, settings, replace(TEXT, intercept=True), seed=1)
    alone = ALL[name].shares_nothing
    trained = [client for client in clients.clients if len(clients.rows(client, "train"))]
    kept = [
        np.array_equal(last.personal[client][:4][~OWN], last.shared[:4][~OWN]) for client in trained
    ]
    assert alone != all(kept)
    if not alone:
        assert np.abs(last.shared[:4][~OWN]).min() > 0  # the shared model learns them
    if name not in ("fedavg", "inner"):
        assert all(
            not np.allclose(last.personal[client][4], last.shared[4]) for client in trained
        )  # an intercept is personal


def test_all_features_personal_is_the_same_as_none_said():
    plain = federation(classes=None)
    ours = fa.train("rtfa", replace(plain, personal=np.ones(4, bool)), **DOUBLE, form="gram")
    np.testing.assert_array_equal(
        ours.losses, fa.train("rtfa", plain, **DOUBLE, form="gram").losses
    )


def test_the_gram_form_is_refused():
    with pytest.raises(
        fa.InvalidInput, match="form is 'gram': some features' weights are the same for all clients"
    ):
        fa.train("ftfa", partly(), form="gram", rounds=1)


def test_splits_side_by_side_are_masked_too():
    clients = partly(sizes=((6, 2, 2), (9, 3, 2), (5, 2, 3)), classes=None)
    told = {**DOUBLE, "cohort": 2}
    runs = fa.train("ftfa", clients, **told, splits=[1, 2])
    for run, split in zip(runs, (1, 2), strict=True):
        np.testing.assert_allclose(
            run.losses, fa.train("ftfa", clients.resplit(split, fractions=None), **told).losses
        )
