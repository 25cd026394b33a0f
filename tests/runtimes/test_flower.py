"""The Flower apps at one table: every algorithm agrees with `fa.train`, and what must stay on a
node stays there.
"""

import logging
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import Result

import fedasym as fa
from fedasym.algorithms import find
from fedasym.algorithms.registry import REGISTRY
from fedasym.deploy.flower import RULES, roster
from fedasym.deploy.flower.nodes import head_file, heads_folder
from fedasym.deploy.flower.policy import select_clients
from fedasym.deploy.flower.strategy import Personalized
from fedasym.models import SavedHead
from fedasym.training import twin
from fedasym.training.settings import Settings, default_of, find_protocol, own_settings

from ..training.clients import SMALL, federation, optimised
from .flower_table import Table, table

NODES = 3


def parts(whole: fa.Federation, folder: Path, nodes: int = NODES) -> list[Path]:
    """The clients dealt out to nodes, a file each."""
    dealt = [select_clients(whole, whole.clients[k::nodes]) for k in range(nodes)]
    return [part.save(folder / f"part{k}.safetensors") for k, part in enumerate(dealt)]


def trained(grid: Table, what: str = "ftfa") -> Result:
    return Personalized(what, grid.config).train(grid)


ALL = [name for name, each in REGISTRY.items() if not each.alias_of]


OPTIONS = SMALL | {"difference": 0.01, "mixing": 0.8}


def own_heads(grid: Table, what: str) -> dict[str, np.ndarray]:
    """The clients' own heads that the nodes keep."""
    kept = {}
    for node in grid.nodes.values():
        held = fa.Federation.from_safetensors(node["data-path"])
        for name, identity in zip(held.clients, held.identities, strict=True):
            kept[name] = SavedHead.load(head_file(heads_folder(node), what, name, identity)).head
    return kept


@pytest.mark.parametrize(
    ("protocol", "algorithms"),
    [("text", ALL), ("code", ["rtfa", "maml_hf", "pfedme", "ftfa_share", "scaffold"])],
    ids=["text", "code"],
)
def test_every_algorithm_agrees_with_the_plain_loops(protocol, algorithms, tmp_path):
    """The compiled programs of `fa.train` are held against the same loops in the tests of
    training.
    """
    whole = federation(classes=3)
    files = parts(whole, tmp_path)
    for what in algorithms:
        grid = table(
            tmp_path,
            what,
            files,
            protocol=protocol,
            precision="float64",
            min_nodes=NODES,
            outlier_bound=0.0,
            **OPTIONS,
        )
        for node in grid.nodes.values():
            node["least-rows"] = 1  # clusters begin from clients of any size
        result = trained(grid, what)
        own = {name: default_of(find(what), name) for name in own_settings(find(what))}
        settings = Settings(**OPTIONS, own=tuple(own.items()))
        *_, last = twin.run(find(what), whole, settings, find_protocol(protocol), seed=0)
        np.testing.assert_allclose(
            result.arrays["head"].numpy(), last.shared, rtol=0, atol=1e-12, err_msg=what
        )
        for name, head in own_heads(grid, what).items():
            np.testing.assert_allclose(head, last.personal[name], rtol=0, atol=1e-12, err_msg=what)
        told = result.evaluate_metrics_clientapp[last.round]
        padding = find_protocol(protocol).count_padding
        for score, of in (("accuracy", twin.accuracy), ("loss", twin.loss)):
            assert told[score] == pytest.approx(
                of(whole, last.personal, "test", padding), rel=1e-9
            ), (what, score)
            assert told[f"shared-{score}"] == pytest.approx(
                of(whole, last.shared, "test", padding), rel=1e-9
            ), (what, score)
            own = of(whole, last.personal, "validation", padding)
            assert told[f"validation-{score}"] == pytest.approx(own, rel=1e-9), (what, score)


@pytest.mark.parametrize(
    ("classes", "positions", "what"),
    [(3, None, "rtfa"), (None, None, "rtfa"), (3, 2, "ftfa")],
    ids=["classes", "regression", "sequences"],
)
def test_all_scores_agree_with_training_here(classes, positions, what, tmp_path):
    whole = federation(classes=classes, positions=positions)
    rules = {
        "precision": "float64",
        "intercept": True,
        **OPTIONS,
    }  # as an app has it unless it is told otherwise
    with optimised(False):
        history = fa.train(what, whole, **rules)
    grid = table(
        tmp_path, what, parts(whole, tmp_path), min_nodes=NODES, outlier_bound=0.0, **rules
    )
    assert RULES["intercept"] is True
    result = trained(grid, what)
    np.testing.assert_allclose(result.arrays["head"].numpy(), history.shared, rtol=0, atol=1e-9)
    for name, head in own_heads(grid, what).items():
        np.testing.assert_allclose(
            head, history.personal(name), rtol=0, atol=2e-5
        )  # made in float32 there
    scores = ["loss", "shared-loss", "validation-loss", "hurt"]
    scores += ["accuracy", "shared-accuracy", "validation-accuracy"] if classes else []
    for at, round_ in list(enumerate(history.rounds))[1:]:
        told = result.evaluate_metrics_clientapp[int(round_)]
        for score in scores:
            theirs = float(getattr(history, score.replace("-", "_"))[at])
            assert told[score] == pytest.approx(theirs, rel=1e-6), (round_, score)


# Nodes that come, go and misbehave


@pytest.fixture
def clients(tmp_path):
    whole = federation(sizes=((6, 2, 2),) * 6)
    return whole, parts(whole, tmp_path)


@pytest.fixture
def told(caplog):
    """What the server logs."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO, logger="flwr"):
        yield caplog
    logger.propagate = before


def seated(folder: Path, files: list[Path], **options: object) -> Table:
    usual = {
        "rounds": 2,
        "evaluate_every": 0,
        "local_steps": 3,
        "batch": 4,
        "precision": "float64",
        "min_nodes": 1,
        "timeout": 2.0,
    }
    return table(folder, "ftfa", files, **usual | options)


def replaced(reply: Message, head: Array | ArrayRecord) -> Message:
    reply.content["arrays"] = head if isinstance(head, ArrayRecord) else ArrayRecord({"head": head})
    return reply


def whole_head(reply: Message) -> np.ndarray:
    return reply.content["arrays"]["head"].numpy()


def lied(reply: Message, name: str, value: float) -> Message:
    reply.content["metrics"][name] = value
    return reply


def emptied(reply: Message) -> Message:
    reply.content.clear()
    return reply


def one_infinity() -> np.ndarray:
    head = np.zeros((4, 3))
    head[2, 1] = -np.inf
    return head


BAD = {
    "its head has NaN or infinity in 12 of 12 places": lambda reply: replaced(
        reply, Array(whole_head(reply) * np.nan)
    ),
    "its head has NaN or infinity in 1 of 12 places": lambda reply: replaced(
        reply, Array(one_infinity())
    ),
    "its head has shape (3, 4) instead of (4, 3)": lambda reply: replaced(
        reply, Array(whole_head(reply).T.copy())
    ),
    "its head has 8000128 bytes where (4, 3) numbers take at most": lambda reply: replaced(
        reply, Array(np.ones((1000, 1000)))
    ),
    "its head holds int64 instead of": lambda reply: replaced(reply, Array(np.ones((4, 3), int))),
    "its head holds complex128 instead of": lambda reply: replaced(
        reply, Array(np.ones((4, 3), complex))
    ),
    "its head cannot be read as an array": lambda reply: replaced(
        reply, Array("float64", (4, 3), "numpy.ndarray", b"pickle me")
    ),
    "it sent arrays named 'tail' instead of 'head'": lambda reply: replaced(
        reply, ArrayRecord({"tail": Array(np.ones((4, 3)))})
    ),
    "its num-examples is 1000000, and it announced 12": lambda reply: lied(
        reply, "num-examples", 1000000
    ),
    "its num-examples is 12.0, and it announced 12": lambda reply: lied(
        reply, "num-examples", 12.0
    ),
    "its reply has not the records that were asked for": emptied,
    "it did not reply in time": lambda reply: None,
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_reply_is_named_and_the_round_completes_with_the_rest(
    reason, clients, tmp_path, told
):
    whole, files = clients
    grid = seated(tmp_path, files, rounds=1)
    grid.spoil = lambda node, reply: (
        BAD[reason](reply) if node == 12 and is_trained(reply) else reply
    )
    result = trained(grid)
    assert f"Node 12 is left out: {reason}" in told.text
    assert "aggregate_train: Received 2 results and 1 failures" in told.text
    rest = select_clients(
        whole, [name for name in whole.clients if name not in whole.clients[1::3]]
    )
    with optimised(False):
        alone = fa.train(
            "fedavg", rest, rounds=1, evaluate_every=0, local_steps=3, batch=4, precision="float64"
        )
    np.testing.assert_allclose(result.arrays["head"].numpy(), alone.shared, atol=1e-12)


def is_trained(reply: Message) -> bool:
    return reply.metadata.message_type == "train"


def test_a_change_that_is_far_too_long_is_shortened_and_named(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], rounds=1, outlier_bound=5.0)
    honest = trained(grid).arrays["head"].numpy()
    assert "shortened" not in told.text.replace("shortened-nodes", "")
    grid.spoil = lambda node, reply: (
        replaced(reply, Array(whole_head(reply) * 1e9))
        if node == 12 and is_trained(reply)
        else reply
    )
    clipped = trained(grid).arrays["head"].numpy()
    assert "Node 12 sent a change" in told.text
    assert 0 < np.linalg.norm(clipped - honest) < 10 * np.linalg.norm(honest)
    grid.config["outlier-bound"] = 0.0
    assert np.linalg.norm(trained(grid).arrays["head"].numpy()) > 1e7


def test_where_every_reply_is_bad_the_shared_head_stays(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], shared_path=str(tmp_path / "shared.safetensors"))
    grid.spoil = lambda node, reply: (
        replaced(reply, Array(whole_head(reply) * np.inf)) if is_trained(reply) else reply
    )
    with np.errstate(invalid="ignore"):
        grid.play()
    assert "The shared head stays as it is" in told.text
    assert not SavedHead.load(tmp_path / "shared.safetensors").head.any()


@pytest.mark.parametrize(
    "lie", [{"accuracy": 1.5}, {"loss": float("nan")}, {"hurt": 7}, {"num-examples": 10**9}]
)
def test_scores_that_cannot_be_are_left_out(lie, clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], rounds=1)

    def spoil(node, reply):
        for name, value in (
            lie.items() if node == 12 and reply.metadata.message_type == "evaluate" else ()
        ):
            reply.content["metrics"][name] = value
        return reply

    grid.spoil = spoil
    scores = trained(grid).evaluate_metrics_clientapp[1]
    assert f"Node 12 is left out: its {next(iter(lie))} is" in told.text
    assert scores["clients"] == 4
    assert 0 <= scores["accuracy"] <= 1


def test_nodes_come_and_go_without_being_announced(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], rounds=3, cohort=4)
    late = {13: grid.nodes.pop(13)}

    def spoil(node, reply):
        if is_trained(reply) and late:
            grid.nodes.update(late)  # connects while the first round goes on
            late.clear()
        return reply

    grid.spoil = spoil
    trained(grid)
    assert told.text.count("(out of 4 on 2)") == 1
    assert told.text.count("(out of 6 on 3)") == 2
    assert "Sampled 4 clients" in told.text


def test_a_node_with_other_data_or_none_is_named_and_the_others_go_on(clients, tmp_path, told):
    files = clients[1]
    wide = federation(sizes=((6, 2, 2),) * 2, d=5).save(tmp_path / "wide.safetensors")
    grid = seated(tmp_path, [*files, wide, tmp_path / "nowhere.csv", files[0]], rounds=1)
    result = trained(grid)
    assert "Node 14 is left out: its data have 5 features and 3 outputs" in told.text
    assert (
        "Node 15 is left out: its data are not there, or cannot be read (code unreadable-file)"
        in told.text
    )
    assert "is on nodes [11, 16] and counts on each" in told.text
    assert result.train_metrics_clientapp[1]["clients"] == 8


def at_fault(grid: Table) -> str:
    """The sentences that a run ends with."""
    with pytest.raises(fa.InvalidInput) as caught:
        trained(grid)
    return str(caught.value)


def test_a_run_that_faulty_nodes_cannot_make_complete_ends_with_a_sentence_for_each(
    clients, tmp_path, told
):
    wide = federation(sizes=((6, 2, 2),) * 2, d=5).save(tmp_path / "wide.safetensors")
    grid = seated(
        tmp_path, [*clients[1][:2], wide, tmp_path / "nowhere.csv"], min_nodes=3, timeout=0.3
    )
    grid.nodes[15] = {}
    said = at_fault(grid).splitlines()
    assert (
        said[0]
        == "min-nodes is 3, and 2 of the connected nodes can take part, 0.3 seconds after the last"
        " one connected:"
    )
    assert said[1:4] == [
        (
            "node 13: its data have 5 features and 3 outputs (classification), and the others' 4"
            " features and 3 outputs (classification)"
        ),
        (
            "node 14: its data are not there, or cannot be read (code unreadable-file); the node's"
            " own log says more"
        ),
        (
            "node 15: its node config names no data-path (code no-data-path); the node's own log"
            " says more"
        ),
    ]
    assert said[4].startswith("Fix these nodes or the run config, or lower min-nodes")
    assert len(grid.passed) == 5  # nobody was asked twice


def test_a_passing_fault_is_asked_about_again(clients, tmp_path, told, monkeypatch):
    monkeypatch.setattr(roster, "WAIT_PAUSE", 0.01)
    grid = seated(tmp_path, clients[1], min_nodes=3, rounds=1)
    lost = [12, 12, 13]

    def spoil(node, reply):
        if node in lost:
            lost.remove(node)
            reply.content.clear()
            reply.content["config"] = ConfigRecord(
                {"fault": "unforeseen", "version": fa.__version__}
            )
        return reply

    grid.spoil = spoil
    trained(grid)
    assert (
        told.text.count("Node 12 is left out: an unexpected error occurred there (code unforeseen)")
        == 1
    )
    assert "(out of 6 on 3)" in told.text


def test_a_run_waits_for_nodes_that_have_yet_to_connect(clients, tmp_path, told, monkeypatch):
    monkeypatch.setattr(roster, "WAIT_PAUSE", 0.01)
    grid = seated(tmp_path, clients[1], min_nodes=3, rounds=1, timeout=0.05)
    late, looks = {13: grid.nodes.pop(13)}, []
    known = grid.get_node_ids

    def connected():
        looks.append(len(looks))
        if len(looks) == 20:
            grid.nodes.update(late)
        return known()

    monkeypatch.setattr(grid, "get_node_ids", connected)
    trained(grid)
    assert told.text.count("Waiting for nodes: 2 introduced (minimum required: 3)") == 1


@pytest.mark.parametrize(
    ("version", "has"),
    [("0.0.9", "fedasym 0.0.9"), (None, "no version"), ("XMARKx " * 9, "no version")],
)
def test_another_version_is_told_from_other_faults(version, has, clients, tmp_path):
    grid = seated(tmp_path, clients[1], min_nodes=3, timeout=0.1)

    def spoil(node, reply):
        if node == 12:
            told = {
                name: value for name, value in reply.content["config"].items() if name != "version"
            }
            reply.content["config"] = ConfigRecord(
                told | ({} if version is None else {"version": version})
            )
        return reply

    grid.spoil = spoil
    assert (
        f"node 12: it says that it has {has}, and the server has fedasym {fa.__version__}: install"
        " the same" in at_fault(grid)
    )
    grid.spoil = lambda node, reply: (
        faulty(reply, version or "", "unforeseen") if node == 12 else reply
    )
    assert f"node 12: it says that it has {has}, and the server" in at_fault(grid)
    grid.spoil = lambda node, reply: (
        faulty(reply, fa.__version__, "row 5 holds XMARKx") if node == 12 else reply
    )
    assert "node 12: it reports a fault by a code that is unknown here" in at_fault(grid)


def faulty(reply: Message, version: str, code: str) -> Message:
    reply.content.clear()
    reply.content["config"] = ConfigRecord({"fault": code, "version": version})
    return reply


def test_an_app_that_lets_errors_through_is_not_repeated(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], min_nodes=3, timeout=0.1)
    codes = {11: ErrorCode.LOAD_CLIENT_APP_EXCEPTION, 12: ErrorCode.CLIENT_APP_RAISED_EXCEPTION}

    def spoil(node, reply):
        if node not in codes:
            return reply
        changed = Message(Error(codes[node], "row 5 holds XMARKx"), reply_to=grid.asked)
        changed.metadata.__dict__["_src_node_id"] = node
        return changed

    grid.spoil = spoil
    said = at_fault(grid)
    assert (
        "node 11: the app cannot be loaded there: install the server's version of fedasym" in said
    )
    assert "node 12: it failed (Flower's error 2)" in said
    assert "XMARKx" not in said + told.text


def test_the_run_says_what_it_trains_on(clients, tmp_path, told):
    shared = tmp_path / "shared.safetensors"
    grid = seated(tmp_path, clients[1][:2], rounds=1, shared_path=str(shared), classes="3")
    grid.play()
    about = SavedHead.load(shared).about
    assert about["data"] == "4 clients with 24 training samples on 2 nodes"
    assert about["classes"] == [0, 1, 2]
    assert f"Training ftfa on {about['data']}" in told.text
    assert f"Trained on {about['data']}" in told.text
    drawn = seated(tmp_path / "drawn", [], rounds=1, shared_path=str(shared))
    drawn.nodes = {
        k: {"data-path": "synthetic", "partition-id": k, "num-partitions": 10} for k in range(2)
    }
    drawn.nodes |= {
        k: each | {"heads-path": str(tmp_path / "heads")} for k, each in drawn.nodes.items()
    }
    drawn.play()
    assert (
        SavedHead.load(shared).about["data"]
        == "6 drawn clients (no data was given) with 360 training samples on 2 nodes"
    )
    assert SavedHead.load(shared).about["classes"] == [0, 1, 2, 3, 4]


# What stays, and what is sent


def test_personal_heads_stay_on_the_node_and_persist_between_runs(clients, tmp_path):
    whole, files = clients
    grid = seated(tmp_path, files, shared_path=str(tmp_path / "server" / "shared.safetensors"))
    grid.play()
    path = head_file(tmp_path / "part1.heads", "ftfa", "b", whole.identities[1])
    first = SavedHead.load(path)
    assert first.about["client"] == "b"
    assert first.about["round"] == 2
    assert sorted(each.name for each in (tmp_path / "server").iterdir()) == [
        "shared.safetensors",
        "shared.state.safetensors",
    ]
    sent = [
        array.numpy()
        for message, reply in grid.passed
        for each in (message, reply)
        for array in arrays_of(each)
    ]
    assert not any(np.array_equal(array, first.head) for array in sent)
    grid.config |= {"rounds": 1}
    grid.play()
    assert SavedHead.load(path).about["round"] == 1
    assert not list(path.parent.glob("*.part"))
    x = whole.client("b").features
    assert first.predict(x).tolist() == (x @ first.head).argmax(1).tolist()


def test_a_head_that_diverged_replaces_none_that_works(clients, tmp_path, told):
    whole, files = clients
    grid = seated(tmp_path, files)
    trained(grid)
    path = head_file(tmp_path / "part1.heads", "ftfa", "b", whole.identities[1])
    before = SavedHead.load(path).head
    grid.config |= {"local-step": 1.7e308}
    with np.errstate(all="ignore"):
        trained(grid)
    assert np.array_equal(SavedHead.load(path).head, before)
    assert "Node 12 is left out: its loss is" in told.text


def arrays_of(message: Message) -> list[Array]:
    return [array for record in message.content.array_records.values() for array in record.values()]


def test_what_is_sent_is_heads_counts_and_scores(clients, tmp_path):
    whole, files = clients
    grid = seated(tmp_path, files, precision="float32")
    trained(grid)
    for message, reply in grid.passed:
        for array in [*arrays_of(message), *arrays_of(reply)]:
            assert (array.shape, array.dtype) == ((4, 3), "float32")
        assert len(arrays_of(reply)) == (reply.metadata.message_type == "train")
        words = str(dict(reply.content)).replace("'", " ").split()
        assert not set(whole.clients) & set(words)
