"""What an owner allows, tables that lie on several nodes, runs that go on, and digests of apps."""

import hashlib
import io
import json
import logging
import shutil
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.server.workflow import SecAggPlusWorkflow

import fedasym as fa
from fedasym import cli
from fedasym.data.roles import Role
from fedasym.deploy.flower import digest_app, digest_archive, digest_files, write_app
from fedasym.deploy.flower.grid import AppGuard, import_app, read_app, start_node
from fedasym.deploy.flower.messages import Fault, NodeFault
from fedasym.deploy.flower.policy import Policy, load_clients, select_clients
from fedasym.deploy.flower.preparation import Asked, read_asked
from fedasym.deploy.flower.strategy import Personalized
from fedasym.models import SavedHead
from fedasym.training import twin
from fedasym.training.convergence import stable_steps
from fedasym.training.settings import Settings, find_protocol, resolve_ridge, with_intercept

from ..training.clients import federation
from .flower_table import Table, table

ROWS = 400
OPEN = {"allow-labels": "score", "allow-clients": "school", "allow-features": "*"}
WORDS = {"allow-categories": "sex,sector,grade,mark"}


@pytest.fixture(scope="module")
def pupils() -> pl.DataFrame:
    """A table as people have it: row numbers, words, a level that is rare, a column that others
    determine, one that describes schools, dates, and cells that are missing.
    """
    rng = np.random.default_rng(0)
    school = rng.integers(0, 9, ROWS)
    hours = rng.gamma(2.0, 3.0, ROWS)
    age = rng.integers(20, 60, ROWS)
    frame = pl.DataFrame(
        {
            "rownames": np.arange(1, ROWS + 1),
            "school": [f"school {each}" for each in school],
            "hours": hours,
            "age": age,
            "sex": np.where(rng.random(ROWS) < 0.4, "F", "M"),
            "sector": np.array(["public", "private"])[school % 2],
            "grade": rng.choice([*"abc", "odd", "rare"], ROWS, p=[0.5, 0.3, 0.19, 0.005, 0.005]),
            "size": 100.0 + 7 * school,
            "nothing": 1.0,
            "when": [f"2024-01-{1 + each % 28:02d}" for each in range(ROWS)],
            "twice": 2 * hours - age,
            "score": 300 + 5 * hours + school + rng.standard_normal(ROWS),
        }
    )
    marks = np.digitize(hours + rng.standard_normal(ROWS), [4, 7])
    return frame.with_columns(mark=np.array(["low", "middle", "high"])[marks])


def holes(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with missing cells."""
    some = pl.Series(np.random.default_rng(1).random(ROWS) < 0.06)
    return frame.with_columns(
        pl.when(some).then(None).otherwise("age").alias("age"),
        pl.when(some.reverse()).then(None).otherwise("grade").alias("grade"),
    )


def deal(frame: pl.DataFrame, folder: Path, nodes: int = 3) -> list[Path]:
    """The table, and its schools dealt out to nodes."""
    frame.write_csv(folder / "all.csv")
    names = sorted(set(frame["school"]))
    files = [folder / f"node{k}.csv" for k in range(nodes)]
    for k, file in enumerate(files):
        frame.filter(pl.col("school").is_in(names[k::nodes])).write_csv(file)
    return files


def seated(folder: Path, files: list[Path], what: str = "rtfa", more=(), **config: object) -> Table:
    usual = {"label": "score", "client": "school", "rounds": 2, "evaluate_every": 2, "batch": 8}
    rules = {"min_nodes": len(files), "timeout": 2.0, "precision": "float64", "server_step": 0.01}
    grid = table(folder, what, files, **{"intercept": True} | usual | rules | config)
    for each in grid.nodes.values():
        each.update(OPEN | WORDS | dict(more))
    return grid


@pytest.mark.parametrize(
    ("rules", "full"),
    [
        ({}, True),
        ({"missing": "mean"}, False),
        ({"missing": "indicator", "roles": "sector=category+personal"}, False),
        ({"missing": "drop", "scale": "none", "intercept": False}, False),
        ({"dates": "number", "features": "when,hours,sex,grade,twice"}, True),
    ],
    ids=["full", "mean", "indicator", "drop", "named"],
)
def test_the_recipe_of_all_nodes_is_that_of_one_machine(rules, full, pupils, tmp_path):
    files = deal(pupils if full else holes(pupils), tmp_path)
    told = {name: value for name, value in rules.items() if name not in ("features", "roles")}
    if "features" in rules:
        told["features"] = rules["features"].split(",")
    if "roles" in rules:
        told["roles"] = dict([rules["roles"].split("=")])
    expected = fa.datasets.read(tmp_path / "all.csv", label="score", client="school", **told).recipe
    grid = seated(tmp_path, files, **rules)
    strategy = Personalized("rtfa", grid.config)
    strategy.meet(grid)
    found = strategy.preparation.recipe
    assert found.names == expected.names
    assert [(each.name, each.reason) for each in found.left] == [
        (each.name, each.reason) for each in expected.left
    ]
    assert found.personal.tolist() == expected.personal.tolist()
    for one, other in zip(found.features, expected.features, strict=True):
        assert one.centre == pytest.approx(other.centre, rel=1e-12)
        assert one.spread == pytest.approx(other.spread, rel=1e-12)
    for one, other in zip(found.columns, expected.columns, strict=True):
        assert (one.levels, one.reference) == (other.levels, other.reference)
        assert (one.fill, one.origin) == (pytest.approx(other.fill, rel=1e-12), other.origin)
    counts = ("rows", "training", "dropped", "client", "client_kind", "filled")
    for name in counts:
        assert getattr(found, name) == getattr(expected, name), name


@pytest.mark.parametrize("label", ["score", "mark"])
def test_training_on_tables_of_nodes_is_training_on_one_table(label, pupils, tmp_path):
    """To rounding, with an intercept and scaling; and `fedasym apply` serves the personal models."""
    other = "mark" if label == "score" else "score"
    files = deal(pupils.drop(other), tmp_path)
    whole = fa.datasets.read(tmp_path / "all.csv", label=label, client="school")
    grid = seated(tmp_path, files, label=label, more={"allow-labels": label})
    result = Personalized("rtfa", grid.config).train(grid)
    names = ("rounds", "evaluate-every", "batch", "server-step", "local-steps", "local-step")
    values = {name.replace("-", "_"): grid.config[name] for name in (*names, "ridge")}
    settings = resolve_ridge(Settings(**values), fa.algorithms.find("rtfa"))
    protocol = with_intercept(find_protocol("text"), True)
    *_, last = twin.run(fa.algorithms.find("rtfa"), whole, settings, protocol, seed=0)
    np.testing.assert_allclose(result.arrays["head"].numpy(), last.shared, rtol=0, atol=1e-10)
    fresh = pupils.head(40).drop("score", "mark")
    fresh.write_csv(tmp_path / "new.csv")
    for k, file in enumerate(files):
        kept = file.with_suffix(".heads") / "rtfa.safetensors"
        into = tmp_path / f"out{k}.csv"
        assert cli_told("apply", str(kept), str(tmp_path / "new.csv"), "--into", str(into)) == 0
        done = pl.read_csv(into)
        own = done.filter(pl.col("model") == "own")
        assert set(own["school"]) == set(fresh["school"]) & set(pl.read_csv(file)["school"])
        X, _ = whole.recipe.apply(fresh)
        for row, name in enumerate(done["school"]):
            head = last.personal[name] if done["model"][row] == "own" else last.shared
            outputs = np.append(X[row], 1.0) @ head
            said = done["prediction"][row]
            if label == "mark":
                assert said == whole.classes[int(outputs.argmax())]
            else:
                assert said == pytest.approx(float(outputs[0]), rel=1e-9)


def test_steps_that_are_left_open_are_those_of_one_machine(pupils, tmp_path):
    files = deal(pupils.drop("mark"), tmp_path)
    whole = fa.datasets.read(tmp_path / "all.csv", label="score", client="school", scale="none")
    told = {"server_step": 0.0, "local_step": 0.0, "save_every": 1, "scale": "none"}
    grid = seated(tmp_path, files, **told)
    strategy = Personalized("rtfa", grid.config)
    strategy.train(grid)
    expected = stable_steps(whole, True, grid.config["batch"], grid.config["ridge"])
    assert strategy.steps == {name: expected[name] for name in ("server_step", "local_step")}
    assert expected["server_step"] < 0.1  # so that it is a choice
    steps = tuple(strategy.steps.values())
    settings = Settings(rounds=2, batch=8, server_step=steps[0], local_step=steps[1], ridge=0.1)
    rules = (settings, with_intercept(find_protocol("text"), True))
    *_, last = twin.run(fa.algorithms.find("rtfa"), whole, *rules, seed=0)
    np.testing.assert_allclose(strategy.head, last.shared, rtol=0, atol=1e-10)
    again = Personalized("rtfa", grid.config | {"resume": True})
    again.resume()
    assert again.steps == strategy.steps
    assert again.configuration.settings.server_step == expected["server_step"]

    def spoil(node, reply):
        if node == 12 and "curvature" in reply.content.metric_records.get("metrics", {}):
            reply.content["metrics"]["curvature"] = 1e12
        return reply

    grid.spoil = spoil
    lied = Personalized("rtfa", grid.config | {"outlier-bound": 2.0})
    lied.train(grid)
    assert lied.steps["server_step"] > expected["server_step"] / 3


def cli_told(*words: str) -> int:
    cli.import_commands(words)
    try:
        return cli.run(lambda: cli.app(words, exit_on_error=False, print_error=False))
    except SystemExit as ended:
        return ended.code


def test_a_node_may_call_its_columns_otherwise(pupils, tmp_path):
    files = deal(pupils, tmp_path)
    other = {"hours": "stunden", "age": "alter", "score": "punkte", "school": "schule"}
    pl.read_csv(files[0]).rename(other).write_csv(files[0])
    grid = seated(tmp_path, files, features="hours,age,sex")
    own = {"label": "punkte", "client": "schule", "features": "stunden,alter,sex"}
    grid.nodes[11] |= own | {"allow-features": "stunden,alter"}
    strategy = Personalized("rtfa", grid.config)
    strategy.train(grid)
    assert len(strategy.roster.nodes) == 3
    model = fa.Model.load(files[0].with_suffix(".heads") / "rtfa.safetensors")
    assert [column.name for column in model.recipe.columns] == ["stunden", "alter", "sex"]
    assert model.predict(pl.read_csv(files[0])).shape == (pl.read_csv(files[0]).height,)


HOSTILE = {
    "label": ({"label": "age"}, {}, Fault.NOT_ALLOWED),
    "client": ({"client": "sex"}, {}, Fault.NOT_ALLOWED),
    "split": ({"split": "grade"}, {}, Fault.NOT_ALLOWED),
    "feature": ({"features": "hours,size"}, {"allow-features": "hours"}, Fault.NOT_ALLOWED),
    "words": ({"features": "hours,mark"}, {"allow-categories": "sex"}, Fault.NOT_ALLOWED),
    "words as numbers": ({"roles": "age=category", "features": "age"}, {}, Fault.NOT_ALLOWED),
    "all features": ({}, {"allow-features": ""}, Fault.NO_FEATURES),
    "classes of no list": (
        {"label": "mark", "features": "hours"},
        {"allow-labels": "mark", "allow-categories": "sex"},
        Fault.NO_CLASSES,
    ),
    "many classes": (
        {"label": "mark", "features": "hours"},
        {"allow-labels": "mark", "most-classes": 2},
        Fault.NOT_ALLOWED,
    ),
    "few rows": ({}, {"least-rows": ROWS}, Fault.TOO_FEW_ROWS),
    "algorithm": ({}, {"allow-algorithms": "fedavg,ftfa"}, Fault.NOT_ALLOWED),
    "policy": ({}, {"policy": "nowhere.toml"}, Fault.BAD_CONFIGURATION),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_run_that_asks_for_more_than_the_owner_allows_hears_a_code(case, pupils, tmp_path):
    config, node, fault = HOSTILE[case]
    grid = seated(tmp_path, deal(pupils, tmp_path)[:1], more=node, timeout=0.1, **config)
    with pytest.raises(fa.InvalidInput, match=f"code {fault.value}"):
        Personalized("rtfa", grid.config).train(grid)
    for _, reply in grid.passed:  # and nothing else
        told = str(dict(reply.content))
        assert not any(word in told for word in ("private", "middle", "school 1"))


def test_without_a_policy_the_usual_columns_of_numbers_serve_alone(tmp_path, pupils):
    file = tmp_path / "north.csv"
    pupils.rename({"school": "client", "score": "label"}).write_csv(file)
    place = {"data-path": str(file)}
    assert load_clients(place, {"features": "hours,age"}).config.keys() == {"look"}
    for run in ({"features": "hours,sex"}, {"label": "hours", "features": "age"}):
        with pytest.raises(NodeFault) as caught:
            load_clients(place, run)
        assert caught.value.fault is Fault.NOT_ALLOWED
    beside = tmp_path / "north.policy.toml"
    beside.write_text('labels = ["hours"]\nfeatures = ["age"]\nleast-rows = 9\n')
    assert Policy.of(place) == Policy(labels=("hours",), features=("age",), least_rows=9)
    assert load_clients(place, {"label": "hours"}).config.keys() == {"look"}
    beside.write_text('label = "hours"\nlables = ["hours"]\n')
    with pytest.raises(fa.InvalidInput, match="unknown rule of the policy 'lables': did you mean"):
        Policy.of(place)


def test_levels_and_classes_that_are_rare_on_a_node_do_not_leave_it(pupils, tmp_path):
    files = deal(pupils, tmp_path)
    grid = seated(tmp_path, files, label="mark", more={"allow-labels": "mark"}, features="grade")
    strategy = Personalized("rtfa", grid.config)
    strategy.meet(grid)
    for _, reply in grid.passed:
        assert "odd" not in str(dict(reply.content))
    assert strategy.preparation.classes == ("high", "low", "middle")
    assert strategy.preparation.recipe.columns[0].other


def test_no_cell_of_a_number_leaves_by_itself(tmp_path):
    """Neither the largest one, nor one of a column where there are few, nor the first day."""
    rows = 40
    frame = pl.DataFrame(
        {
            "client": ["a", "b"] * (rows // 2),
            "label": np.arange(rows) / 7,
            "income": [918273.0, *np.arange(1.0, rows)],
            "dose": [56473.5, *[None] * (rows - 1)],
            "day": [f"2021-03-{5 + each % 9:02d}" for each in range(rows)],
        }
    )
    file = tmp_path / "north.csv"
    frame.with_columns(split=pl.lit("train")).write_csv(file)
    place = {"data-path": str(file)}
    config = {"features": "income,dose,day", "missing": "mean", "dates": "number"}
    roles = {name: Role("number", None, True, fixed=True) for name in ("income", "dose", "day")}
    told = json.loads(load_clients(place, config, Asked("sums", roles)).config["sums"])["numbers"]
    assert not any(float(each) == 918273.0 for each in told["income"].values() if each is not None)
    assert told["dose"] == {"count": 0, "missing": rows, "mean": 0, "squares": 0, "first": None}
    first = np.datetime64("1970-01-01") + int(told["day"]["first"])
    assert first == np.datetime64("2021-01-01")


def test_a_server_cannot_ask_for_other_columns_by_its_recipe(pupils, tmp_path):
    files = deal(pupils, tmp_path)
    grid = seated(tmp_path, files)
    strategy = Personalized("rtfa", grid.config)
    strategy.meet(grid)
    told = strategy.preparation.words
    message = Message(RecordDict({"config": ConfigRecord(told)}), 1, "query")
    asked = read_asked(message.content)
    node = {"data-path": str(files[0])} | OPEN
    assert load_clients(node | WORDS, grid.config, asked).recipe.names
    for less in ({"allow-categories": "sex"}, {"allow-features": "hours", **WORDS}):
        with pytest.raises(NodeFault) as caught:
            load_clients(node | less, grid.config, asked)
        assert caught.value.fault is Fault.NOT_ALLOWED


LIES = [
    "nothing",
    '{"rows": 5}',
    '{"rows": -1, "client_kind": "text", "columns": {}}',
    '{"rows": 1, "client_kind": "text", "columns": {"a": {"cells": "number"}}}',
]


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_describes_its_table_badly_is_left_out(lie, pupils, tmp_path, caplog):
    grid = seated(tmp_path, deal(pupils, tmp_path), min_nodes=2)

    def spoil(node, reply):
        if node == 12 and "look" in reply.content["config"]:
            reply.content["config"]["look"] = lie
        return reply

    grid.spoil = spoil
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, logger="flwr"):
        Personalized("rtfa", grid.config).train(grid)
    assert "Node 12 is left out: its description does not have the declared parts" in caplog.text


def test_sums_of_other_columns_are_left_out(pupils, tmp_path, caplog):
    grid = seated(tmp_path, deal(pupils, tmp_path), min_nodes=2)

    def spoil(node, reply):
        if node == 12 and "sums" in reply.content["config"]:
            told = json.loads(reply.content["config"]["sums"])
            told["numbers"]["hours"]["count"] += 10**6
            reply.content["config"]["sums"] = json.dumps(told)
        return reply

    grid.spoil = spoil
    logging.getLogger("flwr").propagate = True
    with caplog.at_level(logging.INFO, logger="flwr"):
        Personalized("rtfa", grid.config).train(grid)
    assert "Node 12 is left out: its sums are not of the columns asked for" in caplog.text


def test_late_nodes_get_the_recipe_that_there_is(pupils, tmp_path):
    grid = seated(tmp_path, deal(pupils, tmp_path), rounds=3, min_nodes=2)
    late = {13: grid.nodes.pop(13)}

    def spoil(node, reply):
        if reply.metadata.message_type == "train" and late:
            grid.nodes.update(late)
            late.clear()
        return reply

    grid.spoil = spoil
    strategy = Personalized("rtfa", grid.config)
    strategy.train(grid)
    assert set(strategy.roster.nodes) == {11, 12, 13}
    assert strategy.preparation.recipe.training < round(0.8 * ROWS)


# Runs that go on


class Killed(BaseException):
    """As if the process ended."""


def kill_after(grid: Table, rounds: int) -> None:
    """End the server in the middle of the round after so many."""

    def spoil(node, reply):
        if (
            reply.metadata.message_type == "train"
            and grid.asked.content["config"]["server-round"] > rounds
        ):
            raise Killed
        return reply

    grid.spoil = spoil


OWN = Path(__file__).with_name("flower_memory.py")


def kept_heads(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The heads that nodes keep, by file."""
    files = folder.glob(f"*.heads/{name}/*.safetensors")
    return {file.name: SavedHead.load(file).head for file in files}


@pytest.mark.parametrize(
    "what",
    ["pfedme", "ifca", "rtfa_directed", f"{OWN}:remembering"],
    ids=["pfedme", "ifca", "directed", "own"],
)
def test_a_killed_run_goes_on_and_ends_bit_for_bit_as_an_unbroken_one(what, tmp_path):
    whole = federation(sizes=((6, 2, 2),) * 6)
    parts = [select_clients(whole, whole.clients[k::3]) for k in range(3)]
    files = [part.save(tmp_path / f"part{k}.safetensors") for k, part in enumerate(parts)]
    app = write_app(what, tmp_path / f"resumed_{what[-3:]}")
    settings = {"rounds": 5, "evaluate_every": 5, "cohort": 4, "batch": 4, "local_steps": 3}
    told = {"protocol": "code", "precision": "float64", "min-nodes": 3, "save-every": 2}
    told |= {"intercept": True, "shared-path": str(tmp_path / "shared.safetensors")}
    told |= {"server-step": 0.1, "local-step": 0.1, "inner-step": 0.05}
    told |= {name.replace("_", "-"): value for name, value in settings.items()}
    nodes = {11 + k: {"data-path": str(file)} for k, file in enumerate(files)}
    for node in nodes.values():
        node["allow-algorithms"] = "*"
    grid = Table(app, read_app(app)["config"] | told, nodes)
    algorithm = import_app(app, f"{app.name}.task:ALGORITHM")
    unbroken = Personalized(algorithm, grid.config)
    unbroken.train(grid)
    heads = kept_heads(tmp_path, unbroken.configuration.algorithm.name)
    assert len(heads) == 6
    for each in (*tmp_path.glob("*.heads"), *tmp_path.glob("shared*")):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    kill_after(grid, 3)
    with pytest.raises(Killed):
        Personalized(algorithm, grid.config).train(grid)
    shared = tmp_path / "shared.safetensors"
    assert SavedHead.load(shared).about["round"] == 2
    grid.spoil = lambda _, reply: reply
    grid.replies.clear()
    again = Personalized(algorithm, grid.config | {"resume": True})
    again.train(grid)
    assert again.done == 2
    assert np.array_equal(again.head, unbroken.head)
    own = kept_heads(tmp_path, again.configuration.algorithm.name)
    assert all(np.array_equal(head, heads[name]) for name, head in own.items())
    assert own.keys() == heads.keys()
    found = again.configuration.algorithm
    *_, last = twin.run(
        found, whole, resolve_ridge(Settings(**settings), found), find_protocol("code"), seed=0
    )
    np.testing.assert_allclose(again.model, last.shared, rtol=0, atol=1e-12)
    for name, identity in zip(whole.clients, whole.identities, strict=True):
        file = next(each for each in own if f"{int(identity):016x}" in each)
        np.testing.assert_allclose(own[file], last.personal[name], rtol=0, atol=1e-12)
    done = Personalized(algorithm, grid.config | {"resume": True})
    assert np.array_equal(done.train(grid).arrays["head"].numpy(), again.model)
    with pytest.raises(fa.InvalidInput, match="is of a run with seed 0, and this one has 7"):
        Personalized(algorithm, grid.config | {"resume": True, "seed": 7}).train(grid)


def test_local_models_are_made_without_sending_any(tmp_path):
    whole = federation(sizes=((6, 2, 2),) * 4)
    files = [
        select_clients(whole, whole.clients[k::2]).save(tmp_path / f"part{k}.safetensors")
        for k in range(2)
    ]
    grid = table(tmp_path, "local", files, rounds=3, evaluate_every=3, min_nodes=2)
    grid.play()
    kinds = [message.metadata.message_type for message, _ in grid.passed]
    assert kinds == ["query", "query", "evaluate", "evaluate"]
    settings = Settings(rounds=3, evaluate_every=3)
    local = fa.algorithms.find("local")
    *_, last = twin.run(local, whole, settings, find_protocol("text"), seed=0)
    kept = kept_heads(tmp_path, "local")
    for name, identity in zip(whole.clients, whole.identities, strict=True):
        file = next(each for each in kept if f"{int(identity):016x}" in each)
        np.testing.assert_allclose(kept[file], last.personal[name], rtol=0, atol=1e-12)


# Digests


def packed_app(app: Path, **more: bytes) -> bytes:
    """An app as Flower packs it, and files that somebody adds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own, and of names that are there twice
        held = io.BytesIO(build_fab_from_disk(app))
        with zipfile.ZipFile(held, "a") as archive:
            for name, content in more.items():
                archive.writestr(name, content)
    return held.getvalue()


def test_a_digest_is_of_the_apps_files_whoever_packs_them(tmp_path, capsys):
    app = write_app("rtfa", tmp_path / "my-app")
    digest = digest_app(app)
    assert digest == digest_archive(packed_app(app))
    files = [app / "pyproject.toml", *app.rglob("*.py")]
    held = {each.relative_to(app).as_posix(): each.read_bytes() for each in files}
    assert digest == digest_files(held)  # as it is found where there is no Flower
    assert cli_told("digest", str(app)) == 0
    assert capsys.readouterr().out.strip() == digest
    assert digest_app(write_app("rtfa", tmp_path / "other" / "my-app")) == digest
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:  # not compressed, in another order
        for name in sorted(held, reverse=True):
            archive.writestr(name, held[name])
    assert digest_archive(packed.getvalue()) == digest
    task = app / "my_app" / "task.py"
    task.write_text(task.read_text() + "\n")
    assert digest_app(app) != digest


def test_what_is_no_app_has_no_digest(tmp_path, monkeypatch):
    with pytest.raises(fa.InvalidInput, match=r"it has no pyproject\.toml"):
        digest_app(tmp_path)
    app = write_app("rtfa", tmp_path / "my-app")
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("pyproject.toml", "[tool")
    with pytest.raises(fa.InvalidInput, match=r"pyproject\.toml is not that of an app"):
        digest_archive(broken.getvalue())
    (app / "pyproject.toml").write_text("[tool]")
    with pytest.raises(fa.InvalidInput, match="Flower does not take it"):
        digest_app(app)
    monkeypatch.setattr("fedasym.deploy.flower.MOST_UNPACKED", 100)
    with pytest.raises(fa.InvalidInput, match="unpacks to more than 100 bytes"):
        digest_archive(packed_app(write_app("rtfa", tmp_path / "another")))


def test_an_app_is_admitted_by_its_digest_name_and_hash(tmp_path):
    app = write_app("rtfa", tmp_path / "my-app")
    content = packed_app(app)
    packed = hashlib.sha256(content).hexdigest()
    fab = SimpleNamespace(content=content)
    run = SimpleNamespace(run_id=1, fab_id="fedasym/my-app", fab_version="1.0.0", fab_hash=packed)
    said: list[str] = []
    assert AppGuard([digest_app(app)], said.append).admits(run, fab)
    assert AppGuard(["*"], said.append).admits(run, fab)
    assert not said
    assert not AppGuard([], said.append).admits(run, fab)
    assert digest_app(app) in said[-1]
    for lie in ({"fab_id": "fedasym/other"}, {"fab_version": "2"}, {"fab_hash": "0" * 64}):
        other = SimpleNamespace(**vars(run) | lie)
        assert not AppGuard([digest_app(app)], said.append).admits(other, fab)
    for more in (
        {"my_app/task.py": b"import os"},  # a second file of that name: which one runs?
        {"../task.py": b""},
        {"my_app/more.py": b""},
    ):
        changed = SimpleNamespace(content=packed_app(app, **more))
        assert not AppGuard([digest_app(app)], said.append).admits(run, changed)
    assert not AppGuard(["*"], said.append).admits(run, SimpleNamespace(content=b"PK nothing"))


def test_a_node_without_listed_apps_or_data_does_not_start(tmp_path):
    policy = tmp_path / "north.toml"
    for text, match in (
        ('data-path = "north.csv"', "apps lists no digest"),
        ('apps = ["sha256:0"]', "data-path is missing"),
        ("apps = 3", "apps is 3: give names in a list"),
        ("apps = [3]", r"apps is \[3\]: give names in a list"),
        ("apps", "this is not TOML"),
    ):
        policy.write_text(text)
        with pytest.raises(fa.InvalidInput, match=match):
            start_node(policy)
    policy.write_text('data-path = "north.csv"\napps = ["sha256:0"]')
    with pytest.raises(fa.InvalidInput, match="would install what apps ask for"):
        start_node(policy, ["--allow-runtime-dependency-installation"])


def test_flowers_secure_aggregation_is_for_its_earlier_interface_alone():
    """What the page says of it; when this fails, Flower has one that may serve."""
    workflow = SecAggPlusWorkflow(3, 2)
    with pytest.raises(TypeError, match="Expect a LegacyContext, but get Context"):
        workflow(None, Context(1, 1, {}, RecordDict(), {}))
    assert (workflow.clipping_range, workflow.quantization_range) == (8.0, 2**22)
