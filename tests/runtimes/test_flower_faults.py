"""What leaves a node when something is wrong there: a code of a closed list, and not a word of its
data.
"""

import logging
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.supercore.task_identity import TaskIdentity

import fedasym as fa
from fedasym.deploy.flower import write_app
from fedasym.deploy.flower.grid import import_app, read_app
from fedasym.deploy.flower.messages import CODES, Fault
from fedasym.deploy.flower.nodes import NodeApp

MARK = "XMARKx"
CLASSES = 2


def healthy() -> pl.DataFrame:
    """Two clients with names, words and headers that must not leave: two classes, numbers, a
    diagnosis, a patient.
    """
    n = 12
    return pl.DataFrame(
        {
            "client": [f"{MARK}ann", f"{MARK}bob"] * (n // 2),
            "label": [place // 2 % CLASSES for place in range(n)],
            "x0": [0.5 * place for place in range(n)],
            "x1": [1.0 - place for place in range(n)],
            "diagnosis": [f"{MARK}ill", f"{MARK}well"] * (n // 2),
            "patient": [f"{MARK}patient{place}" for place in range(n)],
            f"{MARK}ward": [7.0 + place for place in range(n)],
        }
    )


def with_cell(column: str, value: object) -> pl.DataFrame:
    frame = healthy()
    values = [*frame[column].to_list()[:-1], value]
    kind = pl.String if isinstance(value, str) else None
    texts = [None if each is None else str(each) for each in values] if kind else values
    return frame.with_columns(pl.Series(column, texts, dtype=kind, strict=False))


TABLES = {
    "healthy": healthy,
    "word among numbers": lambda: with_cell("x0", f"{MARK}HIV-positive"),
    "infinity": lambda: with_cell("x1", float("inf")),
    "nothing": lambda: with_cell("x0", None),
    "no label": lambda: with_cell("label", None),
    "no client": lambda: with_cell("client", None),
    "word as label": lambda: with_cell("label", f"{MARK}label"),
    "label outside": lambda: with_cell("label", 7351942),
    "half a label": lambda: healthy().with_columns(pl.col("label") + 0.5),
    "lost label": lambda: healthy().drop("label"),
    "lost client": lambda: healthy().drop("client"),
    "lost features": lambda: healthy().drop("x0", "x1", f"{MARK}ward"),
    "no rows": lambda: healthy().head(0),
    "odd split": lambda: healthy().with_columns(split=pl.lit(f"{MARK}split")),
}


def write_leaf(path: Path, frame: pl.DataFrame) -> None:
    import json

    names = frame["client"].unique(maintain_order=True).to_list()
    parts = {name: frame.filter(pl.col("client") == name) for name in names}
    data = {
        name: {"x": part.select("x0", "diagnosis").rows(), "y": part["label"].to_list()}
        for name, part in parts.items()
    }
    path.write_text(
        json.dumps(
            {
                "users": names,
                "num_samples": [part.height for part in parts.values()],
                "user_data": data,
            }
        )
    )


def write_hdf5(path: Path, frame: pl.DataFrame) -> None:
    with h5py.File(path, "w") as file:
        for name in frame["client"].unique(maintain_order=True).to_list():
            part = frame.filter(pl.col("client") == name)
            group = file.create_group(f"examples/{name}")
            group.create_dataset(
                f"{MARK}field", data=part["patient"].to_list(), dtype=h5py.string_dtype()
            )
            group.create_dataset("label", data=part["label"].to_numpy())


def write_sqlite(path: Path, frame: pl.DataFrame) -> None:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE client_metadata (client_id, split_name, num_examples)")
        base.execute("CREATE TABLE examples (split_name, client_id, serialized_example_proto)")
        base.execute("INSERT INTO client_metadata VALUES (?, ?, 1)", (f"{MARK}ann", f"{MARK}split"))
        base.execute(
            "INSERT INTO examples VALUES (?, ?, ?)",
            (f"{MARK}split", f"{MARK}ann", f"{MARK}cell".encode()),
        )


def write_npz(path: Path, frame: pl.DataFrame) -> None:
    np.savez(
        path,
        x=frame["patient"].to_numpy().astype(str),
        y=frame["label"].to_numpy(),
        client=frame["client"].to_numpy().astype(str),
    )


WRITERS = {
    ".csv": lambda path, frame: frame.write_csv(path),
    ".tsv": lambda path, frame: frame.write_csv(path, separator="\t"),
    ".parquet": lambda path, frame: frame.write_parquet(path),
    ".jsonl": lambda path, frame: frame.write_ndjson(path),
}
ONCE = {".npz": write_npz, ".json": write_leaf, ".h5": write_hdf5, ".sqlite": write_sqlite}


def damaged(folder: Path) -> Iterator[Path]:
    """Files that are cut short, empty, packed, of another kind, twice named, not there, or no files
    at all.
    """
    whole = healthy().write_csv().encode()
    contents = {
        "cut.parquet": b"PAR1" + whole,
        "cut.npz": b"PK\x03\x04" + whole,
        "cut.h5": b"\x89HDF\r\n\x1a\n" + whole,
    }
    contents |= {
        "cut.sqlite": b"SQLite format 3\x00" + whole,
        "cut.json": b'{"users": ["' + whole,
        "cut.safetensors": whole,
    }
    contents |= {
        "packed.csv": b"\x1f\x8b" + whole,
        "zero.csv": b"",
        "bytes.csv": b"\xff\xfe\x00" + whole,
        "noending": whole,
    }
    contents |= {
        "twice.csv": whole.replace(b"x1", b"x0", 1),
        "ragged.csv": whole + f"{MARK},,,,,,,,,,,\n".encode(),
    }
    for name, data in contents.items():
        (folder / f"{MARK}{name}").write_bytes(data)
        yield folder / f"{MARK}{name}"
    (folder / f"{MARK}mixed").mkdir()
    for name in ("a.csv", "b.parquet", "c.json"):
        (folder / f"{MARK}mixed" / f"{MARK}{name}").write_bytes(whole)
    yield folder / f"{MARK}mixed"
    (folder / f"{MARK}empty").mkdir()
    yield folder / f"{MARK}empty"
    yield folder / f"{MARK}nowhere.csv"
    yield folder / f"{MARK}\0zero.csv"
    saved = fa.Federation.from_arrays(
        np.eye(4), [f"{MARK}a", f"{MARK}b"] * 2, [f"{MARK}ann"] * 4, split=["train"] * 4
    )
    yield saved.save(folder / f"{MARK}saved.safetensors")


RUNS = [
    {"classes": "2"},
    {},
    {"classes": "well,ill"},
    {"task": "regression"},
    {"features": "diagnosis", "classes": "2"},
    {"features": "x0,diagnosis", "task": "regression"},
    {"features": "nothing", "classes": "2"},
    {"label": "patient"},
    {"label": "patient", "classes": "2"},
    {"label": "diagnosis", "task": "regression"},
    {"client": "nobody", "classes": "2"},
    {"split": "diagnosis", "classes": "2"},
    {"task": "odd"},
    {"precision": "float16", "classes": "2"},
    {"classes": "ill,ill"},
]
OPEN = {"allow-labels": "*", "allow-clients": "*", "allow-features": "x0,x1"}  # no words
NODES = [
    {"least-rows": 1000},
    {"policy": f"/{MARK}nowhere.toml"},
    {"allow-algorithms": f"{MARK}"},
    {"partition-id": 99, "num-partitions": 100},
    {"partition-id": f"{MARK}first"},
    {"classes": f"{MARK}well,{MARK}ill"},
    {"classes": f"{MARK}well,{MARK}well"},
    {"label": f"{MARK}column"},
    {"features": 5},
    {"data-path": 5},
]


def content(arrays: dict[str, Array] | None, config: dict[str, object] | None) -> RecordDict:
    made = RecordDict()
    if arrays is not None:
        made["arrays"] = ArrayRecord(arrays)
    if config is not None:
        made["config"] = ConfigRecord(config)
    return made


# what a server may ask of a table or before the first round, of columns and words that it guesses
STEPS = [
    {"step": "sums"},
    {"step": "gradients"},
    {"step": "moments"},
    {"step": "curvature"},
    {"step": "sums", "roles": "[]"},
    {"step": "sums", "roles": "[[]]"},
    {"step": "sums", "roles": '[["x0", "number", true]]'},
    *(
        {"step": "sums", "roles": f'[["{name}", "{kind}", true]]'}
        for name in ("diagnosis", "patient", f"{MARK}ward", "nothing")
        for kind in ("category", "number")
    ),
    {"step": "products", "recipe": "{}"},
    {"step": "products", "recipe": "[1", "class-names": f'["{MARK}ill"]'},
]


def orders(known: str) -> dict[str, list[RecordDict]]:
    """Messages by their type, the first of each as it should be, where `known` is a client of the
    node.
    """
    good = {"head": Array(np.zeros((3, 2)))}
    told = {"server-round": 1, "drawn": [known], "turns": [0]}
    heads = [
        {},
        {"tail": Array(np.zeros((3, 2)))},
        {"head": Array(np.zeros((9, 9)))},
        {"head": Array(np.array(["a"]))},
    ]
    heads.append({"head": Array("float64", (3, 2), "numpy.ndarray", b"no array")})
    lies = [
        {},
        {"server-round": "one"},
        {"server-round": -1},
        {"drawn": ["0" * 16]},
        {"drawn": []},
        {"turns": [0, 1]},
        {"turns": [-1]},
    ]
    trained = [content(good, told), RecordDict(), content(good, None), content(None, told)]
    trained += [content(head, told) for head in heads] + [
        content(good, told | lie if lie else {}) for lie in lies
    ]
    asked = {"live": [True, True, True], "groups": [0, 1]}
    models = {"models": Array(np.zeros((10, 3)))}
    wrong = [
        {},
        {"live": [True]},
        {"live": "abc", "groups": 3},
        {"groups": [0]},
        {"live": [False] * 3},
        {"told": [1.0]},
    ]
    told_again = [
        content(models, asked),
        RecordDict(),
        content(None, asked),
        content({"models": Array(np.zeros((2, 2)))}, asked),
    ]
    told_again += [content(models, asked | lie if lie else {}) for lie in wrong]
    return {
        "train": trained,
        "evaluate": trained,
        "query": [RecordDict(), content(heads[-1], {"any": "thing"})]
        + [content(None, {"clients": [known], **step}) for step in STEPS],
        "query.introduce": [RecordDict()],
        "query.differentiate": told_again,
        "query.tell": told_again,
        "train.odd": [RecordDict()],
    }


class Node:
    """An app on a node: what it answers, and everything that leaves it."""

    def __init__(self, folder: Path, what: str) -> None:
        app = write_app(what, folder / f"{what}_faults")
        told = {"intercept": False, "server-step": 0.1, "local-step": 0.1}
        self.config = read_app(app)["config"] | told
        self.app = import_app(app, read_app(app)["components"]["clientapp"])
        self.codes: list[str | None] = []

    def ask(
        self, kind: str, records: RecordDict, node: dict[str, object], run: dict[str, object]
    ) -> None:
        message = Message(records, 1, kind)
        message.metadata.__dict__["_message_id"] = "m"
        reply = self.app(message, Context(1, 1, node, RecordDict(), self.config | run))
        assert not reply.has_error()
        sent = message_to_proto(reply).SerializeToString()
        assert MARK.encode() not in sent, (kind, node, run)
        assert b"7351942" not in sent, (kind, node, run)
        told = dict(reply.content.config_records.get("config", {}))
        self.codes.append(told.get("fault"))
        if "fault" in told:
            assert told == {"fault": self.codes[-1], "version": fa.__version__}
            assert list(reply.content) == ["config"]
            assert Fault.find(told["fault"]) is not None


@pytest.fixture(scope="module", autouse=True)
def process():
    """Where Flower runs an app, it knows whose process it is."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp(f"{MARK}folder")


@pytest.fixture(scope="module")
def files(folder) -> list[Path]:
    made = []
    for (name, table), (ending, write) in product(TABLES.items(), WRITERS.items()):
        made.append(folder / f"{MARK}{name}{ending}")
        write(made[-1], table())
    for ending, write in ONCE.items():
        made.append(folder / f"{MARK}once{ending}")
        write(made[-1], healthy())
    return [*made, *damaged(folder)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> dict[str, Node]:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # thousands of lines that nobody reads
    yield {what: Node(tmp_path_factory.mktemp("apps"), what) for what in ("rtfa", "advise")}
    logging.getLogger("flwr").setLevel(logging.INFO)


def paired(files: list[Path]) -> Iterator[tuple[Path, dict[str, object]]]:
    """Files and runs: every run with every table in some format and with every format of some
    table, and with every other file.
    """
    tables = len(TABLES) * len(WRITERS)
    for (at, file), (number, run) in product(enumerate(files), enumerate(RUNS)):
        if at >= tables or (at + number) % 3 == 0:
            yield file, run


def test_the_pairs_of_files_and_runs_leave_out_no_table_and_no_format(files):
    met = [(file.stem.removeprefix(MARK), file.suffix, str(run)) for file, run in paired(files)]
    for name in TABLES:
        assert len({run for table, _, run in met if table == name}) == len(RUNS), name
    for ending in WRITERS:
        runs = {run for table, kind, run in met if kind == ending and table in TABLES}
        assert len(runs) == len(RUNS), ending


def test_no_word_of_a_node_leaves_it_whatever_is_wrong_there(files, folder, nodes):
    table = {"data-path": str(folder / f"{MARK}healthy.csv")}
    good = {what: {"data-path": str(folder / f"{MARK}{what}.safetensors")} for what in nodes}
    for what, task in (("rtfa", "classification"), ("advise", "regression")):
        numbers = ["x0", "x1", f"{MARK}ward"]
        whole = fa.Federation.from_frame(
            healthy(), label="label", client="client", features=numbers, task=task
        )
        whole.save(good[what]["data-path"])
    known = f"{whole.identities[0]:016x}"
    for file, run in paired(files):
        nodes["rtfa"].ask("query", RecordDict(), {"data-path": str(file)} | OPEN, run)
    for file, run in product(files[::4], RUNS):  # tables as CSV, and some others
        nodes["rtfa"].ask("query", RecordDict(), {"data-path": str(file)}, run)
    for node, run in product(NODES, RUNS[:3]):
        nodes["rtfa"].ask("query", RecordDict(), table | OPEN | node, run)
    nodes["rtfa"].ask("query", RecordDict(), {}, {})
    (folder / f"{MARK}blocked").touch()
    blocked = good["rtfa"] | {"heads-path": str(folder / f"{MARK}blocked")}
    nodes["rtfa"].ask("evaluate", orders(known)["evaluate"][0], blocked, {"classes": "2"})
    nodes["advise"].ask("query.introduce", RecordDict(), good["rtfa"], {"classes": "2"})
    for what, kinds in {
        "rtfa": ("query", "train", "evaluate"),
        "advise": ("introduce", "differentiate", "tell"),
    }.items():
        for kind in kinds:  # what is as it should be is answered
            name = kind if what == "rtfa" else f"query.{kind}"
            run = {"classes": "2"} if what == "rtfa" else {}
            nodes[what].ask(name, orders(known)[name][0], good[what], run)
            assert nodes[what].codes[-1] is None, kind
            if what == "rtfa" and kind == "query":
                nodes[what].ask(name, orders(known)[name][0], table | OPEN, run)
                assert nodes[what].codes[-1] is None
    for what, node in nodes.items():
        for kind, messages in orders(known).items():
            for place, message in product([good[what], good["rtfa"], table | OPEN], messages):
                node.ask(kind, message, place, {"classes": "2"} if what == "rtfa" else {})
    codes = [code for node in nodes.values() for code in node.codes]
    assert sum(code is not None for code in codes) >= 500
    assert sum(code is None for code in codes) >= 10  # healthy ones are healthy
    assert set(codes) - {None} >= {fault.value for fault in Fault} - {
        "out-of-memory",
        "missing-package",
    }


def test_what_an_app_raises_is_a_code_and_its_words_are_in_the_nodes_log(caplog):
    class Panic(BaseException):
        """As libraries of other languages raise."""

    kinds = [*CODES, ValueError, RecursionError, ZeroDivisionError, KeyError, StopIteration, Panic]
    app = NodeApp()

    @app.query()
    def ask(message: Message, context: Context) -> Message:
        raise kinds[context.node_id](f"row 5 holds {MARK}")

    logging.getLogger("flwr").propagate = True
    for place, kind in enumerate(kinds):
        message = Message(RecordDict(), 1, "query")
        message.metadata.__dict__["_message_id"] = "m"
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="flwr"):
            reply = app(message, Context(1, place, {}, RecordDict(), {}))
        expected = CODES.get(kind, Fault.UNFORESEEN)
        assert reply.content["config"]["fault"] == expected.value
        assert MARK.encode() not in message_to_proto(reply).SerializeToString()
        assert f"row 5 holds {MARK}" in caplog.text
    kinds[0] = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        app(message, Context(1, 0, {}, RecordDict(), {}))


def test_class_names_of_an_owner_stay_and_their_number_is_said(folder, files, nodes):
    saved = {"data-path": str(folder / f"{MARK}saved.safetensors")}
    node = nodes["rtfa"]
    for run, code in (
        ({}, None),
        ({"classes": "2"}, None),
        ({"classes": "3"}, "other-classes"),
        ({"classes": "a,b"}, "other-classes"),
    ):
        node.ask("query", RecordDict(), saved, run)
        assert node.codes[-1] == code


def test_the_page_has_every_code():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "flower.md").read_text(encoding="utf-8")
    for fault in Fault:
        assert (
            f"| `{fault.value}` | {fault.meaning} | {'yes' if fault.permanent else 'no'} |\n"
            in page
        )
