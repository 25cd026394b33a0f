"""Algorithms that keep something between rounds, or ask for sums and gradients before the first, in
a federation: nodes and server learn what the plain twin learns from all clients together.
"""

import json
import logging

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Message, RecordDict

import fedasym as fa
from fedasym.deploy.flower.messages import Change, Fault, shorten_changes
from fedasym.deploy.flower.nodes import SavedHead
from fedasym.deploy.flower.policy import select_clients
from fedasym.deploy.flower.strategy import Personalized
from fedasym.training import twin
from fedasym.training.settings import Settings, default_of, find_protocol, own_settings

from ..training.clients import federation
from .flower_table import table

SIZES = ((6, 2, 2), (9, 1, 2), (4, 2, 1), (12, 1, 2))
TOLD = {"rounds": 3, "evaluate_every": 3, "cohort": 3, "batch": 4, "local_steps": 3, "ridge": 0.5}


def seat(folder, name, whole, parts=2, **more):
    """The nodes of one process, before they train."""
    files = [
        select_clients(whole, whole.clients[k::parts]).save(folder / f"part{k}.safetensors")
        for k in range(parts)
    ]
    told = {**TOLD, "min_nodes": parts, "precision": "float64", **more}
    return table(folder, name, files, **told)


def deploy(folder, name, whole, parts=2):
    """Train on nodes of one process: the table, the shared head, and each client's own."""
    grid = seat(folder, name, whole, parts)
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


def gradients_told(grid):
    """What nodes said of which clients' gradients, by the order of their replies."""
    return [
        (reply.content["config"]["clients"], reply.content["arrays"]["gradients"].numpy())
        for _, reply in grid.passed
        if "gradients" in reply.content.array_records.get("arrays", {})
    ]


def test_clusters_begin_from_clients_with_rows_enough_for_a_sum(tmp_path):
    """Each gradient by hand: of squares at zero, -X'y/n."""
    whole = federation(sizes=SIZES, classes=None)
    grid = seat(tmp_path, "ifca", whole, clusters=2)
    Personalized("ifca", grid.config).train(grid)
    names = {
        f"{int(each):016x}": name
        for each, name in zip(whole.identities, whole.clients, strict=True)
    }
    told = {
        names[each]: row
        for clients, rows in gradients_told(grid)
        for each, row in zip(clients, rows, strict=True)
    }
    counts = dict(zip(whole.clients, whole.counts("train"), strict=True))
    assert set(told) == {name for name in whole.clients if counts[name] >= 5}
    assert len(told) == len(whole) - 1
    for name, row in told.items():
        own = whole.rows(name, "train")
        X, y = whole.features[own].astype(float), whole.labels[own].reshape(len(own), -1)
        np.testing.assert_allclose(row, -(X.T @ y / len(y)).ravel(), rtol=1e-12)
    for node in grid.nodes.values():
        node["least-rows"] = 1000
    with pytest.raises(fa.InvalidInput, match="no node has answered what the first round needs"):
        Personalized("ifca", grid.config).train(grid)


def spoil_node(grid, change):
    """Node 12 sends what `change` makes of its replies."""

    def spoil(node, reply):
        if node == 12:
            change(reply)
        return reply

    grid.spoil = spoil


def lie_of_gradients(reply):
    if "gradients" in reply.content.array_records.get("arrays", {}):
        reply.content["config"]["clients"] = ["0" * 16]


def lie_of_moments(reply):
    if "moments" in reply.content.array_records.get("arrays", {}):
        skew = np.arange(16.0).reshape(4, 4)
        reply.content["arrays"]["moments"] = Array(skew)


def lie_of_form(reply):
    if "sent" in reply.content.config_records.get("config", {}):
        reply.content["config"]["sent"] = json.dumps(["array"] * 5)
        del reply.content["arrays"]["sent.0"]


LIES = {
    "ifca": (lie_of_gradients, "it sent gradients of clients that it was not asked for"),
    "rtfa_directed": (lie_of_moments, "its moments are not symmetric"),
    "fednova": (lie_of_form, "it sent arrays named 'head', 'sent.1' instead of 'head', 'sent.0'"),
}


@pytest.mark.parametrize("name", LIES)
def test_what_algorithms_ask_beside_heads_has_rules_too(name, tmp_path, caplog):
    grid = seat(tmp_path, name, federation(sizes=SIZES), parts=2, min_nodes=1)
    change, reason = LIES[name]
    spoil_node(grid, change)
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy = Personalized(name, grid.config)
        strategy.train(grid)
    assert f"Node 12 is left out: {reason}" in caplog.text
    assert np.isfinite(strategy.head).all()


def test_what_is_sent_beside_heads_is_shortened_like_heads():
    """Models and numbers each by their own median: a count of steps says nothing of a model."""
    usual = {node: Change(np.ones((3, 1)), 10, (np.ones((3, 1)), 20.0)) for node in (1, 2, 3)}
    lie = Change(np.ones((3, 1)), 10, (np.full((3, 1), 1e9), 1e6))
    found, cut = shorten_changes(usual | {4: lie}, bound=10)
    model, steps = found[4].sent
    np.testing.assert_allclose(model, 10.0)
    assert steps == pytest.approx(200.0)
    assert cut == {4: pytest.approx(1e-8)}
    assert all(np.array_equal(found[node].sent[0], np.ones((3, 1))) for node in usual)
    assert shorten_changes(usual, bound=10)[1] == {}


def test_sums_of_fewer_rows_than_the_owner_says_do_not_leave(tmp_path):
    for name in ("gram_ridge", "rtfa_directed"):
        (tmp_path / name).mkdir()
        grid = seat(tmp_path / name, name, federation(sizes=SIZES), timeout=0.1)
        for node in grid.nodes.values():
            node["least-rows"] = 1000
        strategy = Personalized(name, grid.config)
        if name == "gram_ridge":
            strategy.train(grid)
            assert not strategy.head.any()
        else:
            with pytest.raises(fa.InvalidInput, match="no node has answered"):
                strategy.train(grid)
        told = [
            reply.content.config_records.get("config", {}).get("fault") for _, reply in grid.passed
        ]
        assert told.count(Fault.TOO_FEW_ROWS.value) == 2
        sums = {"gram", "cross", "moments"}
        for _, reply in grid.passed:
            assert not sums & set(reply.content.array_records.get("arrays", {}))


def test_gradients_and_products_leave_for_those_who_need_them_alone(tmp_path):
    whole = federation(sizes=SIZES)
    grid = seat(tmp_path, "rtfa", whole)
    known = f"{int(whole.identities[0]):016x}"
    for step in ("gradients", "moments"):
        content = RecordDict({"config": ConfigRecord({"step": step, "clients": [known]})})
        message = Message(content, 11, "query")
        grid.push_messages([message])
        told = dict(grid.pull_messages([])[0].content["config"])
        assert told == {"fault": Fault.BAD_MESSAGE.value, "version": fa.__version__}
