"""The Flower apps at one table: every algorithm agrees with `fa.train`, and what must stay on a node stays there."""

import logging
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import Result

import fedasym as fa
from fedasym.runtimes.flower.configuration import SHARING
from fedasym.runtimes.flower.heads import Model, file_of
from fedasym.runtimes.flower.holdings import heads_folder, of_clients
from fedasym.runtimes.flower.strategy import Personalized

from ..training.clients import SMALL, federation, optimised
from .flower_table import Table, table

NODES = 3


def parts(whole: fa.Federation, folder: Path, nodes: int = NODES) -> list[Path]:
    """The clients dealt out to nodes, a file each."""
    dealt = [of_clients(whole, whole.clients[k::nodes]) for k in range(nodes)]
    return [part.save(folder / f"part{k}.safetensors") for k, part in enumerate(dealt)]


def trained(grid: Table, what: str = "ftfa") -> Result:
    return Personalized(what, grid.config).train(grid)


ALL = list(SHARING)


@pytest.mark.parametrize(
    ("protocol", "classes", "positions", "algorithms"),
    [
        ("text", 3, None, ALL),
        ("code", 3, None, ["rtfa", "maml_hf", "pfedme"]),
        ("text", None, None, ["rtfa"]),
        ("text", 3, 2, ["ftfa"]),
    ],
    ids=["text", "code", "regression", "sequences"],
)
def test_every_algorithm_agrees_with_training_here(protocol, classes, positions, algorithms, tmp_path):
    whole = federation(classes=classes, positions=positions)
    options = SMALL | {"difference": 0.01, "mixing": 0.8}
    with optimised(False):
        histories = fa.train(algorithms, whole, protocol=protocol, precision="float64", **options)
    files = parts(whole, tmp_path)
    for history in histories:
        what = history.algorithm.name
        grid = table(tmp_path, what, files, protocol=protocol, precision="float64", min_nodes=NODES, clip=0.0, **options)
        result = trained(grid, what)
        np.testing.assert_allclose(result.arrays["head"].numpy(), history.shared, rtol=0, atol=1e-9)
        for node, file in zip(grid.nodes.values(), files, strict=True):
            held = fa.Federation.from_safetensors(file)
            for name, identity in zip(held.clients, held.identities, strict=True):
                own = Model.load(file_of(heads_folder(node), what, name, identity))
                np.testing.assert_allclose(own.head, history.personal(name), rtol=0, atol=2e-5)  # made in float32 there
        for at, round_ in list(enumerate(history.rounds))[1:]:
            told = result.evaluate_metrics_clientapp[int(round_)]
            names = {"loss": "loss", "shared-loss": "shared_loss", "validation-loss": "validation_loss", "hurt": "hurt"}
            if classes:
                names |= {
                    "accuracy": "accuracy",
                    "shared-accuracy": "shared_accuracy",
                    "validation-accuracy": "validation_accuracy",
                }
            for ours, theirs in names.items():
                assert told[ours] == pytest.approx(float(getattr(history, theirs)[at]), rel=1e-6), (what, ours)


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
    "its head has NaN or infinity in 12 of 12 places": lambda reply: replaced(reply, Array(whole_head(reply) * np.nan)),
    "its head has NaN or infinity in 1 of 12 places": lambda reply: replaced(reply, Array(one_infinity())),
    "its head has shape (3, 4) instead of (4, 3)": lambda reply: replaced(reply, Array(whole_head(reply).T.copy())),
    "its head has 8000128 bytes where (4, 3) numbers take at most": lambda reply: replaced(reply, Array(np.ones((1000, 1000)))),
    "its head holds int64 instead of": lambda reply: replaced(reply, Array(np.ones((4, 3), int))),
    "its head holds complex128 instead of": lambda reply: replaced(reply, Array(np.ones((4, 3), complex))),
    "its head cannot be read as an array": lambda reply: replaced(
        reply, Array("float64", (4, 3), "numpy.ndarray", b"pickle me")
    ),
    "it sent arrays named 'tail' instead of 'head'": lambda reply: replaced(
        reply, ArrayRecord({"tail": Array(np.ones((4, 3)))})
    ),
    "its num-examples is 1000000, and it announced 12": lambda reply: lied(reply, "num-examples", 1000000),
    "its num-examples is 12.0, and it announced 12": lambda reply: lied(reply, "num-examples", 12.0),
    "its reply has not the records that were asked for": emptied,
    "it did not reply in time": lambda reply: None,
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_reply_is_named_and_the_round_completes_with_the_rest(reason, clients, tmp_path, told):
    whole, files = clients
    grid = seated(tmp_path, files, rounds=1)
    grid.spoil = lambda node, reply: BAD[reason](reply) if node == 12 and is_trained(reply) else reply
    result = trained(grid)
    assert f"Node 12 is left out: {reason}" in told.text
    assert "aggregate_train: Received 2 results and 1 failures" in told.text
    rest = of_clients(whole, [name for name in whole.clients if name not in whole.clients[1::3]])
    with optimised(False):
        alone = fa.train("fedavg", rest, rounds=1, evaluate_every=0, local_steps=3, batch=4, precision="float64")
    np.testing.assert_allclose(result.arrays["head"].numpy(), alone.shared, atol=1e-12)


def is_trained(reply: Message) -> bool:
    return reply.metadata.message_type == "train"


def test_a_change_that_is_far_too_long_is_shortened_and_named(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], rounds=1, clip=5.0)
    honest = trained(grid).arrays["head"].numpy()
    assert "shortened" not in told.text.replace("shortened-nodes", "")
    grid.spoil = lambda node, reply: (
        replaced(reply, Array(whole_head(reply) * 1e9)) if node == 12 and is_trained(reply) else reply
    )
    clipped = trained(grid).arrays["head"].numpy()
    assert "Node 12 sent a change" in told.text
    assert 0 < np.linalg.norm(clipped - honest) < 10 * np.linalg.norm(honest)
    grid.config["clip"] = 0.0
    assert np.linalg.norm(trained(grid).arrays["head"].numpy()) > 1e7


def test_where_every_reply_is_bad_the_shared_head_stays(clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], shared_path=str(tmp_path / "shared.safetensors"))
    grid.spoil = lambda node, reply: replaced(reply, Array(whole_head(reply) * np.inf)) if is_trained(reply) else reply
    with np.errstate(invalid="ignore"):
        grid.play()
    assert "The shared head stays as it is" in told.text
    assert not Model.load(tmp_path / "shared.safetensors").head.any()


@pytest.mark.parametrize("lie", [{"accuracy": 1.5}, {"loss": float("nan")}, {"hurt": 7}, {"num-examples": 10**9}])
def test_scores_that_cannot_be_are_left_out(lie, clients, tmp_path, told):
    grid = seated(tmp_path, clients[1], rounds=1)

    def spoil(node, reply):
        for name, value in lie.items() if node == 12 and reply.metadata.message_type == "evaluate" else ():
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
    assert "Node 15 is left out: it failed" in told.text
    assert "there is no such file or folder" in told.text
    assert "is on nodes [11, 16] and counts on each" in told.text
    assert result.train_metrics_clientapp[1]["clients"] == 8


# What stays, and what is sent


def test_personal_heads_stay_on_the_node_and_persist_between_runs(clients, tmp_path):
    whole, files = clients
    grid = seated(tmp_path, files, shared_path=str(tmp_path / "server" / "shared.safetensors"))
    grid.play()
    path = file_of(tmp_path / "part1.heads", "ftfa", "b", whole.identities[1])
    first = Model.load(path)
    assert first.about["client"] == "b"
    assert first.about["round"] == 2
    assert [each.name for each in (tmp_path / "server").iterdir()] == ["shared.safetensors"]
    sent = [array.numpy() for message, reply in grid.sent for each in (message, reply) for array in arrays_of(each)]
    assert not any(np.array_equal(array, first.head) for array in sent)
    grid.config |= {"rounds": 1}
    grid.play()
    assert Model.load(path).about["round"] == 1
    assert not list(path.parent.glob("*.part"))
    x = whole.client("b").features
    assert first.predict(x).tolist() == (x @ first.head).argmax(1).tolist()


def test_a_head_that_diverged_replaces_none_that_works(clients, tmp_path, told):
    whole, files = clients
    grid = seated(tmp_path, files)
    trained(grid)
    path = file_of(tmp_path / "part1.heads", "ftfa", "b", whole.identities[1])
    before = Model.load(path).head
    grid.config |= {"local-step": 1.7e308}
    with np.errstate(all="ignore"):
        trained(grid)
    assert np.array_equal(Model.load(path).head, before)
    assert "Node 12 is left out: its loss is" in told.text


def arrays_of(message: Message) -> list[Array]:
    return [array for record in message.content.array_records.values() for array in record.values()]


def test_what_is_sent_is_heads_counts_and_scores(clients, tmp_path):
    whole, files = clients
    grid = seated(tmp_path, files, precision="float32")
    trained(grid)
    for message, reply in grid.sent:
        for array in [*arrays_of(message), *arrays_of(reply)]:
            assert (array.shape, array.dtype) == ((4, 3), "float32")
        assert len(arrays_of(reply)) == (reply.metadata.message_type == "train")
        words = str(dict(reply.content)).replace("'", " ").split()
        assert not set(whole.clients) & set(words)
