"""Algorithms that keep something between rounds, and sums of products, in a federation: nodes and
server learn what the plain twin learns from all clients together.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.deploy.flower.nodes import SavedHead, select_clients
from fedasym.training import twin
from fedasym.training.settings import Settings, default_of, find_protocol, own_settings

from ..training.clients import federation
from .flower_table import table

SIZES = ((6, 2, 2), (9, 1, 2), (4, 2, 1), (12, 1, 2))
TOLD = {"rounds": 3, "evaluate_every": 3, "cohort": 3, "batch": 4, "local_steps": 3, "ridge": 0.5}


def deploy(folder, name, whole, parts=2):
    """Train on nodes of one process: the table, the shared head, and each client's own."""
    files = [
        select_clients(whole, whole.clients[k::parts]).save(folder / f"part{k}.safetensors")
        for k in range(parts)
    ]
    told = {**TOLD, "min_nodes": parts, "precision": "float64"}
    grid = table(folder, name, files, **told)
    grid.play()
    own = {}
    for client, identity in zip(whole.clients, whole.identities, strict=True):
        (file,) = folder.glob(f"*.heads/{name}/*{int(identity):016x}*")
        own[client] = SavedHead.load(file).head
    return grid, SavedHead.load(folder / "shared.safetensors").head, own


@pytest.mark.parametrize("name", ["feddyn", "fednova", "fedadam", "ditto", "gram_ridge"])
def test_a_federation_learns_what_the_twin_learns(name, tmp_path):
    whole = federation(sizes=SIZES)
    _, shared, own = deploy(tmp_path, name, whole)
    algorithm = fa.algorithms.find(name)
    brought = tuple((each, default_of(algorithm, each)) for each in own_settings(algorithm))
    settings = Settings(**TOLD, own=brought)
    *_, last = twin.run(algorithm, whole, settings, find_protocol("text"), seed=0)
    np.testing.assert_allclose(shared, last.shared, rtol=0, atol=1e-11)
    for client, head in own.items():
        np.testing.assert_allclose(head, last.personal[client], rtol=0, atol=1e-11)


def test_nodes_send_sums_of_products_once_and_no_client_s_own(tmp_path):
    whole = federation(sizes=SIZES)
    grid, _, _ = deploy(tmp_path, "gram_ridge", whole)
    sent = [
        reply.content["arrays"]
        for message, reply in grid.passed
        if message.metadata.message_type == "train"
    ]
    assert [sorted(each) for each in sent] == [["cross", "gram"]] * 2
    X = whole.features[whole.split == 0]
    np.testing.assert_allclose(sum(each["gram"].numpy() for each in sent), X.T @ X, rtol=1e-12)
