"""A real federation: SuperLink and SuperNodes as processes on loopback, TLS on, nodes known by
their keys.

A node starts a process for every message: the runs here are short, and all share one federation at
the same time, since most of their time is waiting; in the last a node is killed, when no other run
needs it. What a bad node does is in the app of its run, and so is where the faulty tables are.
"""

import json
import re
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

import fedasym as fa
from fedasym.advisor import advise_summaries
from fedasym.advisor.data import read_clients
from fedasym.advisor.federated import play_federation
from fedasym.algorithms import TRAINED
from fedasym.deploy.flower import digest_app, write_app
from fedasym.deploy.flower.messages import REFUSED_APP, Fault
from fedasym.deploy.flower.nodes import head_file
from fedasym.deploy.flower.policy import select_clients
from fedasym.models import SavedHead
from fedasym.training.settings import TEXT, Settings, resolve_ridge
from fedasym.training.twin import TwinClient, local_work

from .flower_federation import Federation, Process, node_keys, wait_until

MARK = "XMARKx"  # in words that must not leave a node

NODES = ("north", "south", "east")
OPTIONS = {
    "rounds": 2,
    "evaluate_every": 2,
    "cohort": 4,
    "local_steps": 4,
    "batch": 4,
    "personal_epochs": 2,
    "server_step": 0.03,
    "local_step": 0.1,
    "intercept": True,
}
DONE = "The shared head is in"
PATIENCE = 400  # seconds; a busy machine may need minutes for what takes seconds
TIMEOUT = 180.0  # of a round: nothing here waits for its end
ENDURED = 30.0  # of runs that must fail: all of them wait for it at the same time
AGAIN = "start the run again"  # the last words of such a run
CODES = {
    "first": {"north": "not-numbers", "south": "unreadable-file", "east": "missing-column"},
    "second": {"north": "missing-values", "south": "unforeseen", "east": "other-classes"},
}
TROUBLES = {
    "hostile": dict.fromkeys(NODES, REFUSED_APP.text),
    "asking": dict.fromkeys(NODES, Fault.NOT_ALLOWED.sentence),
} | {
    name: {node: Fault.find(code).sentence for node, code in codes.items()}
    for name, codes in CODES.items()
}  # of the runs that must fail, what the server hears of each node
ADVISED_IN = "The advice is in"
BAD_HEAD = "bad.safetensors"
FAULTY = "faulty"  # a folder beside the nodes' tables
BAD_RUN = OPTIONS | {
    "rounds": 2,
    "evaluate_every": 0,
    "cohort": 7,
    "min_nodes": 3,
    "timeout": TIMEOUT,
    "precision": "float64",
    "scale": "none",
    "intercept": False,
    "features": "x9,x10,x11",
    "classes": "no,perhaps,yes",
}

SPOIL = '''
import time
from pathlib import Path

import numpy as np
from flwr.app import Array


def spoil(message, context, call_next):
    """What a bad node does, by its name and the round."""
    config = message.content.config_records.get("config", {})
    deed = DEEDS.get((Path(context.node_config["data-path"]).stem, config.get("server-round")))
    if deed == "sleep" and message.metadata.message_type == "train":
        Path("asleep").touch()
        time.sleep(600)
    reply = call_next(message, context)
    if message.metadata.message_type == "train" and deed in SPOILED:
        head = reply.content["arrays"]["head"].numpy()
        reply.content["arrays"]["head"] = Array(SPOILED[deed](head))
    return reply


SPOILED = {
    "nan": lambda head: head * np.nan,
    "shape": lambda head: head[:-1],
    "large": lambda head: np.zeros((1000, 1000)),
}
'''


def spoiled_app(folder: Path, name: str, deeds: dict[tuple[str, int], str]) -> Path:
    """The app of FTFA with nodes that do these deeds, by node and round."""
    app = write_app("ftfa", folder / name)
    file = app / name / "client_app.py"
    told = file.read_text().replace(
        "app = NodeApp()", f"DEEDS = {deeds!r}\n{SPOIL}\n\napp = NodeApp(mods=[spoil])"
    )
    file.write_text(told)
    return app


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Seven clients in three tables, and all of them in one; numbers of very different sizes."""
    folder = tmp_path_factory.mktemp("data")
    drawn = fa.datasets.synthetic(
        task="classification", clients=7, dimension=30, aspect=2, centre=2, radius=1, classes=3
    )
    names = [f"client {place}" for place in range(7)]
    columns = {
        "client": [names[each] for each in drawn.owner],
        "label": np.array(["no", "perhaps", "yes"])[drawn.labels],
        "split": np.array(["train", "validation", "test"])[drawn.split],
    }
    features = drawn.features.astype(np.float64) * np.logspace(-2, 3, 30) + np.linspace(0, 50, 30)
    frame = pl.DataFrame(columns | {f"x{k}": features[:, k] for k in range(30)})
    frame = frame.with_columns(number=pl.lit(drawn.labels))
    for place, node in enumerate(NODES):
        frame.filter(pl.col("client").is_in(names[place::3])).write_csv(folder / f"{node}.csv")
    frame.write_csv(folder / "all.csv")
    return folder


@pytest.fixture(scope="module")
def apps(tmp_path_factory) -> dict[str, Path]:
    """All apps, which owners must know before they list them; and one that they do not."""
    folder = tmp_path_factory.mktemp("apps")
    deeds = {("south", 1): "nan", ("east", 1): "shape", ("south", 2): "large", ("east", 2): "sleep"}
    written = {name: write_app("rtfa", folder / name) for name in ("rtfa", "hostile")}
    written["advice"] = write_app("advise", folder / "advice")
    written["bad"] = spoiled_app(folder, "bad", deeds)
    written |= {name: recording_app(folder, name) for name in ("first", "second")}
    client = written["hostile"] / "hostile" / "client_app.py"
    client.write_text(
        f"from pathlib import Path\n\nPath({str(folder / 'read')!r}).touch()\n{client.read_text()}"
    )
    return written


FEATURES = ",".join(f"x{k}" for k in range(30))
ADVISED = ["x9", "x10"]  # a message for each, and some more
POLICY = """
data-path = "{file}"
apps = {apps}
labels = ["label", "number", "mark"]
features = {features}
categories = ["label"]
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory, data, apps):
    """The SuperLink, three nodes with policies, one that it does not know, and one that takes
    signed apps alone.
    """
    running = Federation(tmp_path_factory.mktemp("federation"))
    listed = [digest_app(app) for name, app in apps.items() if name != "hostile"]
    features = FEATURES.split(",")
    for name in NODES:
        text = POLICY.format(file=f"{name}.csv", apps=listed, features=features)
        (data / f"{name}.toml").write_text(text.replace("'", '"'))
    try:
        running.open()
        running.keys = {
            name: node_keys(running.folder, f"{name}.key") for name in (*NODES, "signed")
        }
        running.numbers = dict(
            zip(running.keys, running.register(*running.keys.values()), strict=True)
        )
        place = {"data_path": str(data / "north.csv")}
        running.stranger = running.node(
            "stranger", node_keys(running.folder, "stranger.key"), **place
        )
        running.nodes = {name: start_node(running, name, data) for name in NODES}
        trusted = running.folder / "trusted.yaml"
        key = ed25519.Ed25519PrivateKey.generate().public_key()
        form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        trusted.write_text(f"fpk_1: '{key.public_bytes(*form).decode()}'\n")
        running.nodes["signed"] = running.node(
            "signed", running.keys["signed"], more=["--trusted-entities", trusted], **place
        )
        yield running
    finally:
        running.stop()


def start_node(running: Federation, name: str, data: Path) -> Process:
    interval = 12 if name == "east" else 30  # it is killed, and must be missed soon
    return running.node(name, running.keys[name], interval=interval, policy=data / f"{name}.toml")


@pytest.fixture(scope="module")
def runs(federation, data, apps):
    """A run that trains, whose server dies on the way and which is resumed, beside one that
    advises; then four that must fail; and one with bad replies, which begins as soon as the nodes
    have answered the others, while those still wait for healthy nodes.
    """
    folder, rules = federation.folder, {"min_nodes": 3, "timeout": TIMEOUT}
    shared = folder / "rtfa.safetensors"
    told = OPTIONS | rules | {"precision": "float64", "save_every": 1, "shared_path": str(shared)}
    told["features"] = FEATURES
    broken = federation.run(apps["rtfa"], **told)
    write_faulty_tables(data)
    state = shared.with_suffix(".state.safetensors")
    wait_until(state.exists, PATIENCE, "saved state", lambda: broken.text[-3000:])
    federation.kill_server(broken)
    assert DONE not in broken.text
    federation.open()
    asked = {"min-nodes": 3, "timeout": TIMEOUT, "label": "number", "task": "regression"}
    asked |= {"features": ",".join(ADVISED), "advice-path": str(folder / "advice.json")}
    code = f"from fedasym.deploy.flower import advise_nodes; advise_nodes('here', {asked!r})"
    refused = {"min_nodes": 2, "timeout": ENDURED, "rounds": 1, "features": "x1"}
    faulty = {"min_nodes": 2, "timeout": ENDURED, "rounds": 1, "classes": "no,perhaps,yes"}
    started = {
        "rtfa": federation.run(apps["rtfa"], **told, resume=True),
        "advise": federation.start(["python", "-c", code], "advise"),
    }
    started["rtfa"].wait_for(DONE, PATIENCE)  # a node answers one message after another
    started |= {
        "hostile": federation.run(apps["hostile"], **refused),
        "asking": federation.run(apps["rtfa"], **refused | {"client": "x3"}),
        "first": federation.run(apps["first"], **faulty, features="x3", label="mark"),
        "second": federation.run(apps["second"], **faulty, features="x5"),
    }
    started["advise"].wait_for(ADVISED_IN, PATIENCE)
    federation.nodes["signed"].stop()
    for name, troubles in TROUBLES.items():
        for node, text in troubles.items():
            started[name].wait_for(f"Node {federation.numbers[node]} is left out: {text}", PATIENCE)
    started["bad"] = federation.run(apps["bad"], **BAD_RUN, shared_path=str(folder / BAD_HEAD))
    return started


def write_faulty_tables(data: Path) -> None:
    """The tables of two runs: three nodes with two faults each, by the columns that a run names."""
    frame = pl.read_csv(data / "all.csv").with_columns(
        pl.col("client").str.replace("client", f"{MARK}client")
    )
    first = pl.int_range(pl.len()) == 0
    word = (
        pl.when(first)
        .then(pl.lit(f"{MARK}HIV-positive"))
        .otherwise(pl.col("x3").cast(pl.String))
        .alias("x3")
    )
    hole = pl.when(first).then(None).otherwise("x5").alias("x5")
    (data / FAULTY).mkdir()
    frame.with_columns(word, hole, mark="label").write_csv(data / FAULTY / "north.csv")
    outside = pl.when(first).then(pl.lit("7351942")).otherwise("label").alias("label")
    frame.with_columns(outside).write_csv(data / FAULTY / "east.csv")
    (data / FAULTY / "south.csv").write_bytes(b"\x1f\x8b" + MARK.encode())


def test_a_killed_server_is_resumed_and_learns_what_training_here_learns(federation, runs, data):
    """Over tables on three nodes, scaled over all of them, with an intercept: to rounding."""
    what = "rtfa"
    frame = pl.read_csv(data / "all.csv").drop("number")
    whole = fa.Federation.from_frame(frame, label="label", client="client", split="split")
    history = fa.train(what, whole, precision="float64", protocol="text", **OPTIONS)
    log = runs[what].wait_for(DONE, PATIENCE)
    assert re.search("Resuming after round 1 of 2", log)
    shared = SavedHead.load(federation.folder / f"{what}.safetensors")
    np.testing.assert_allclose(shared.head, history.shared, rtol=0, atol=1e-12)
    assert shared.about["classes"] == ["no", "perhaps", "yes"]
    for place, node in enumerate(NODES):
        model = fa.Model.load(data / f"{node}.heads" / f"{what}.safetensors")
        for client in whole.clients[place::3]:
            identity = whole.identities[whole.clients.index(client)]
            own = SavedHead.load(head_file(data / f"{node}.heads", what, client, identity))
            np.testing.assert_allclose(
                own.head, history.personal(client), rtol=0, atol=1e-5
            )  # made in float32 there
            x = whole.client(client).features
            assert own.predict(x).tolist() == history.predict(x, client).tolist()
            raw = frame.filter(pl.col("client") == client)
            assert model.predict(raw).tolist() == own.predict(x).tolist()
    for name in ("accuracy", "shared_accuracy", "loss", "hurt"):
        value = float(getattr(history, name)[-1])
        assert f"'{name.replace('_', '-')}': '{value:.4e}'" in log  # Flower's summary of results
    for node in NODES:
        assert f"Node {federation.numbers[node]} introduced" in log
    assert shared.about["data"].startswith("7 clients with ")
    assert f"Training rtfa on {shared.about['data']}" in log
    assert "drawn clients" not in log


def test_flowers_trusted_entities_refuse_every_app_that_is_not_signed(federation, runs):
    log = runs["rtfa"].wait_for(DONE, PATIENCE)
    assert f"Node {federation.numbers['signed']} is left out: {REFUSED_APP.text}" in log
    assert "The FAB could not be verified" in federation.nodes["signed"].text


def test_it_is_advised(federation, runs, data):
    log = runs["advise"].wait_for(ADVISED_IN, PATIENCE)
    advice = json.loads((federation.folder / "advice.json").read_text())
    frame = pl.read_csv(data / "all.csv").drop("label")
    whole = fa.Federation.from_frame(
        frame, label="number", client="client", split="split", task="regression", features=ADVISED
    )
    expected = advise_summaries(
        play_federation(
            read_clients(
                select_clients(whole, [whole.clients[at] for at in np.argsort(whole.identities)])
            ).level()
        )
    )
    assert advice["recommended"] == expected.recommended
    assert expected.recommended in log
    assert "client 0" not in log


def test_an_app_that_no_owner_lists_is_refused_before_anything_of_it_runs(federation, runs, apps):
    log = runs["hostile"].wait_for(AGAIN, PATIENCE)
    for node in NODES:
        assert f"node {federation.numbers[node]}: {REFUSED_APP.text}" in log
        assert f"digest {digest_app(apps['hostile'])} is refused" in federation.nodes[node].text
    assert not (apps["hostile"].parent / "read").exists()
    log = runs["asking"].wait_for(AGAIN, PATIENCE)  # a config that asks for too much
    for node in NODES:
        assert f"node {federation.numbers[node]}: {Fault.NOT_ALLOWED.sentence}" in log


def test_it_refuses_a_wrong_key(federation, runs):
    log = runs["rtfa"].wait_for(DONE, PATIENCE)
    assert len(re.findall(r"Node \d+ introduced ", log)) == 3
    assert federation.stranger.poll() not in (None, 0)


RECORDER = '''
from flwr.common.serde import message_to_proto
from fedasym.deploy.flower.messages import Attentive


class Recorder(Attentive):
    """Keeps all that the server receives."""

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        with open(RECORDED, "ab") as file:
            for reply in replies:
                file.write(message_to_proto(reply).SerializeToString() + b"\\n")
        return replies
'''


def recording_app(folder: Path, name: str) -> Path:
    """An app whose server keeps what it receives, in a file, and whose node in the south has a
    fault of its own, which passes for all that the server knows: it is asked again and again.
    """
    app = write_app("ftfa", folder / name)
    server, task = app / name / "server_app.py", app / name / "task.py"
    told = server.read_text().replace(
        "app = ServerApp()",
        f"RECORDED = {str(folder / f'{name}.bin')!r}\n{RECORDER}\n\napp = ServerApp()",
    )
    server.write_text(told.replace("strategy.train(grid)", "strategy.train(Recorder(grid))"))
    fault = f"""    table = Path(context.node_config["data-path"])
    if "{name}" == "second" and table.stem == "south":
        raise RuntimeError("{MARK}south")
    told = {{**context.node_config, "data-path": str(table.parent / "{FAULTY}" / table.name)}}
    return load_clients(told, """
    text = task.read_text().replace("    return load_clients(context.node_config, ", fault)
    task.write_text(text.replace("import fedasym", "from pathlib import Path\n\nimport fedasym", 1))
    return app


def test_of_six_faults_the_server_hears_codes_alone_and_the_runs_fail(federation, runs, data, apps):
    recorded = apps["first"].parent
    for name, expected in CODES.items():
        log = runs[name].wait_for(AGAIN, PATIENCE)
        received = (recorded / f"{name}.bin").read_bytes()
        for node, code in expected.items():
            assert f"node {federation.numbers[node]}: {Fault.find(code).sentence}" in log
            assert code.encode() in received
        links = [each.text for each in federation.started if each.log.name.startswith("superlink")]
        for text in (log, *links, received.decode(errors="replace")):
            assert MARK not in text
            assert "7351942" not in text
            assert str(data) not in text
    logs = [each.log for each in federation.started]
    told = {
        node: "".join(log.read_text() for log in logs if log.name.startswith(node))
        for node in NODES
    }  # what the server must not know is in the nodes' own logs
    assert f"{MARK}HIV-positive" in told["north"]
    assert "missing values in 'x5' (row 0 (line 2))" in told["north"]
    assert "7351942" in told["east"]
    assert f"RuntimeError: {MARK}south" in told["south"]

    def failed() -> bool:
        told = federation.told("flwr", "list", "here", "--format", "json")
        return told.count("finished:failed") >= len(TROUBLES)

    wait_until(failed, 60, "end of the runs")


def test_rounds_complete_without_nodes_that_reply_badly_or_die(federation, runs, data):
    """Round 1: NaN, and a wrong shape. 2: a huge array, and a node killed at work, which is started
    again.
    """
    shared, asleep = (federation.folder / name for name in (BAD_HEAD, "asleep"))
    run = runs["bad"]
    wait_until(asleep.exists, PATIENCE, "sleeping node", lambda: run.text[-3000:])
    for name in TROUBLES:  # a node that is not connected is not at fault
        runs[name].wait_for(AGAIN, PATIENCE)
    federation.nodes["east"].kill()
    run.wait_for(f"Node {federation.numbers['east']} is left out: it did not reply", PATIENCE)
    while not accepted(
        node := start_node(federation, "east", data)
    ):  # as a service manager would, until it is taken back
        node.stop()
        time.sleep(2)
    federation.nodes["east"] = node
    log, number = run.wait_for(DONE, PATIENCE), federation.numbers
    rounds = log.split("[ROUND ")[1:]
    assert (
        f"Node {number['south']} is left out: its head has NaN or infinity in 9 of 9 places"
        in rounds[0]
    )
    assert (
        f"Node {number['east']} is left out: its head has shape (2, 3) instead of (3, 3)"
        in rounds[0]
    )
    assert (
        f"Node {number['south']} is left out: its head has 8000128 bytes where (3, 3) numbers take"
        " at most" in rounds[1]
    )
    assert f"Node {number['east']} is left out: it did not reply" in rounds[1]
    for text in rounds:
        assert "aggregate_train: Received 1 results and 2 failures" in text
    # The killed node may still count as connected when it is asked to evaluate; that it is back,
    # the next test sees.
    assert re.search(
        r"aggregate_evaluate: Received (3 results and 0|2 results and 1) failures", rounds[1]
    )
    np.testing.assert_allclose(SavedHead.load(shared).head, by_hand(data), rtol=0, atol=1e-9)


def by_hand(data: Path) -> np.ndarray:
    """The shared head after two rounds to which the clients of one node alone contribute."""
    whole = fa.Federation.from_frame(
        pl.read_csv(data / "north.csv"), label="label", client="client", split="split",
        features=["x9", "x10", "x11"], scale="none", intercept=False,
    )  # fmt: skip
    told = {name: value for name, value in OPTIONS.items() if name != "intercept"}
    settings = resolve_ridge(Settings(**told), TRAINED["ftfa"])
    clients = [TwinClient(whole, name, settings, TEXT, 0, np.float64) for name in whole.clients]
    W = np.zeros((3, 3))
    for r in range(2):
        W = sum(
            client.n * local_work(TRAINED["ftfa"], client, W, r, r).head for client in clients
        ) / sum(client.n for client in clients)
    return W


def accepted(node: Process) -> bool:
    """Whether the SuperLink takes a node that has just been started; one that it does not take ends
    itself.
    """
    wait_until(
        lambda: "SuperNode ID" in node.text or node.poll() is not None,
        60,
        "answer",
        lambda: node.text[-3000:],
    )
    return "SuperNode ID" in node.text
