"""The written app: short, readable, what Flower takes, and errors in words where it cannot be
written or configured.
"""

import ast
import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.cli.config_utils import load_and_validate
from tests.command import fedasym

import fedasym as fa
from fedasym.algorithms import TRAINED
from fedasym.deploy.flower import (
    ADVISE,
    RunConfiguration,
    advise_nodes,
    default_config,
    read_rules,
    write_app,
)
from fedasym.deploy.flower.grid import try_app
from fedasym.deploy.flower.messages import Change, shorten_changes
from fedasym.deploy.flower.nodes import head_file, heads_folder
from fedasym.deploy.flower.policy import load_clients
from fedasym.deploy.flower.strategy import Personalized
from fedasym.models import SavedHead
from fedasym.training.settings import Settings, resolve_ridge, used_settings

DEPLOYED = (*TRAINED, ADVISE)


@pytest.mark.parametrize("what", DEPLOYED)
def test_flower_takes_the_app_and_linters_like_it(what, tmp_path):
    folder = write_app(what, tmp_path / "My App-2")
    config, warnings = load_and_validate(folder / "pyproject.toml", check_module=False)
    assert not warnings
    assert config["tool"]["flwr"]["app"]["components"]["serverapp"] == "my_app_2.server_app:app"
    modules = sorted((folder / "my_app_2").glob("*.py"))
    assert [module.name for module in modules] == [
        "__init__.py",
        "client_app.py",
        "server_app.py",
        "task.py",
    ]
    assert sum(len(module.read_text().splitlines()) for module in modules) < 90
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--select",
            "E,F,I,D,ANN,UP",
            "--ignore",
            "D203,D213,E501",
            folder,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("what", TRAINED)
def test_the_config_has_what_the_algorithm_uses_and_means_what_training_means(what, tmp_path):
    text = (write_app(what, tmp_path / "app") / "pyproject.toml").read_text()
    values = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    for name in used_settings(TRAINED[what]):
        assert name.replace("_", "-") in values
    usual = resolve_ridge(Settings(rounds=50, evaluate_every=10), TRAINED[what])
    assert Personalized(what, values).configuration.settings == usual
    assert default_config(TRAINED[what]).items() <= values.items()


@pytest.mark.parametrize(
    ("what", "name", "setting"),
    [
        ("fedavg(local_steps=7)", "local_sgd", {"local_steps": 7}),
        ("fedprox(penalty=2)", "fedprox", {"penalty": 2}),
    ],
)
def test_settings_in_parentheses_are_those_of_the_config(what, name, setting, tmp_path):
    app = write_app(what, tmp_path / "app")
    assert f'ALGORITHM = "{name}"' in (app / "app" / "task.py").read_text()
    values = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings = Personalized(name, values).configuration.settings
    for each, value in setting.items():
        assert {**vars(settings), **dict(settings.own)}[each] == value


def test_the_command_writes_and_says_what_to_do(tmp_path):
    into = tmp_path / "my-app"
    done = fedasym("deploy", "rtfa", "--into", into)
    assert done.returncode == 0, done.stderr
    assert f"\n    fedasym try {into}\n" in done.stdout
    assert "not installed" not in done.stdout
    again = fedasym("deploy", "rtfa", "--into", into)
    assert again.returncode == 2
    assert "is not an empty folder: name a new one, or empty it first" in again.stderr
    misspelt = fedasym("deploy", "rfta", "--into", tmp_path / "other")
    assert misspelt.returncode == 2
    assert "did you mean rtfa" in misspelt.stderr
    assert all(name in misspelt.stderr for name in DEPLOYED)


def tried(folder: Path, *words: object) -> subprocess.CompletedProcess:
    """`fedasym try` in an empty folder, with no way out to an index or a link."""
    nowhere = {
        "FLWR_HOME": str(folder / "flwr"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "UV_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "fedasym", "try", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=os.environ | nowhere
    )


def test_the_command_that_is_printed_works_and_says_what_it_trains_on(tmp_path):
    fedasym("deploy", "rtfa", "--into", tmp_path / "my-app")
    done = tried(tmp_path, "my-app", "--run-config", "rounds=2")
    assert done.returncode == 0, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert (
        "Trying my-app on 30 drawn clients (no data was given), dealt out to 3 nodes of this"
        " process" in said[0]
    )
    assert (
        "Trained on 30 drawn clients (no data was given) with 1800 training samples on 3 nodes"
        in said[-2]
    )
    assert "The shared head is in" in said[-1]
    assert "30 drawn clients" in SavedHead.load(tmp_path / "shared.safetensors").about["data"]
    assert len(list((tmp_path / "fedasym.heads" / "rtfa").iterdir())) == 30


def test_an_app_is_tried_on_a_file_and_its_faults_are_told(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    write_app("rtfa", tmp_path / "tried")
    rows = "\n".join(
        f"{'abcde'[k % 5]},{k},{k * k % 7},{('well', 'ill')[k % 2]}" for k in range(60)
    )
    (tmp_path / "wards.csv").write_text(f"ward,hours,age,mark\n{rows}\n")
    config = {
        "label": "mark",
        "client": "ward",
        "rounds": 2,
        "server-step": 1e-4,
        "local-step": 1e-4,
    }
    try_app("tried", "wards.csv", config=config)  # here the user owns all nodes
    assert SavedHead.load("shared.safetensors").about["classes"] == ["ill", "well"]
    try_app("tried", "wards.csv", nodes=9, config=config | {"classes": "well, ill"})
    about = SavedHead.load("shared.safetensors").about
    assert about["classes"] == ["well", "ill"]
    assert about["data"] == "wards.csv: 5 clients with 50 training samples on 5 nodes"
    assert len(list((tmp_path / "wards.heads" / "rtfa").iterdir())) == 5
    with pytest.raises(
        fa.InvalidInput, match="unknown name in the run config 'round': did you mean rounds"
    ):
        try_app("tried", "wards.csv", config={"round": 2})
    with pytest.raises(fa.InvalidInput, match=r"it has no pyproject\.toml of a Flower app"):
        try_app("nowhere")
    (tmp_path / "tried" / "tried" / "task.py").write_text(
        "ALGORITHM = 'rtfa'\ndef load(context, asked):\n    raise RuntimeError('lost')\n"
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "tried"]:
        del sys.modules[name]
    with pytest.raises(
        fa.InvalidInput, match=r"node 12: an unexpected error occurred there \(code unforeseen\)"
    ):
        try_app("tried")
    assert "RuntimeError: lost" in caplog.text  # the nodes' log is this process's


def test_advice_is_tried_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "fedasym.deploy.flower.advice.advise", lambda summaries: Summaries(len(summaries))
    )
    try_app(write_app("advise", tmp_path / "my-advice"))
    assert (tmp_path / "advice.json").read_text() == "30"


class Summaries(int):
    """In place of advice, which takes seconds and has tests of its own: how many clients sent
    summaries.
    """

    def to_json(self) -> str:
        return str(int(self))


def test_a_folder_that_no_app_fits_is_refused(tmp_path):
    with pytest.raises(fa.InvalidInput, match="its name must begin with a letter"):
        write_app("rtfa", tmp_path / "3 + 4")
    (tmp_path / "file").touch()
    with pytest.raises(fa.InvalidInput, match="is not an empty folder"):
        write_app("rtfa", tmp_path / "file")
    with pytest.raises(fa.InvalidInput, match="it cannot be written"):
        write_app("rtfa", tmp_path / "file" / "app")
    with pytest.raises(fa.InvalidInput, match=r"epsilon is 4\.0, which is for training"):
        write_app("advise", tmp_path / "advice", {"epsilon": 4.0})


def test_algorithms_without_a_file_that_nodes_can_have_are_refused(tmp_path, monkeypatch):
    class Here(fa.algorithms.Average):
        """In a function, where no other process finds it."""

    here = fa.Algorithm("here", Here(), fa.algorithms.Keep())
    with pytest.raises(fa.InvalidInput, match="here, whose code is in no module of its own"):
        write_app(here, tmp_path / "app")
    with pytest.raises(fa.InvalidInput, match=r"there is no file .*nowhere\.py"):
        write_app(f"{tmp_path}/nowhere.py:mine", tmp_path / "app")
    (tmp_path / "json.py").write_text("mine = 1")
    with pytest.raises(fa.InvalidInput, match="a module json is imported already"):
        write_app(f"{tmp_path}/json.py:mine", tmp_path / "app")


def test_rules_for_the_columns_are_text():
    for name in ("label", "features", "roles"):
        with pytest.raises(fa.InvalidInput, match=f"{name} is 3: give text"):
            read_rules({name: 3})
    assert read_rules({})["features"] is None


def test_a_federation_that_does_not_run_the_advisor_is_told(monkeypatch):
    asked = []

    def run(words, check):
        asked.append(words)
        return subprocess.CompletedProcess(words, len(asked))

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(fa.InvalidInput, match="flwr run failed"):
        advise_nodes("ours", {"min-nodes": 3})
    assert asked[0][3:] == ["ours", "--stream", "--run-config", "min-nodes=3"]


def test_writing_an_app_needs_no_flower_and_the_command_names_the_extra(tmp_path):
    code = "import sys, importlib.util as u; found = u.find_spec; sys.modules['flwr'] = None; "
    code += "u.find_spec = lambda name, *rest: None if name == 'flwr' else found(name, *rest); "
    code += (
        "sys.argv[1:] = ['deploy', 'advise', '--into', sys.argv[1]]; from fedasym.cli import main;"
        " main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "app")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'fedasym[flower]'" in done.stdout
    assert (tmp_path / "app" / "pyproject.toml").exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"server-step": -1}, "server_step is -1"),
        ({"precision": "float16"}, "unknown precision 'float16'"),
        ({"min-nodes": 0}, "min-nodes is 0"),
        ({"timeout": 0.0}, "timeout is 0.0: it must be a finite number above 0"),
        ({"outlier-bound": -1.0}, "outlier-bound is -1.0: it must be a finite number of at least"),
        ({"clip": 10.0}, "clip is 10.0 and privacy is none: set privacy to central"),
        ({"privacy": "full"}, "privacy"),
        ({"privacy": "central", "clip": 0.1}, "epsilon None and noise_multiplier None"),
        ({"privacy": "local", "epsilon": 4.0}, "privacy has no clip"),
        ({"protocol": "txt"}, "unknown protocol 'txt'"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(config, message):
    with pytest.raises(fa.InvalidInput, match=message):
        RunConfiguration.of("rtfa", config)


def test_own_pairs_are_taken():
    own = fa.Algorithm(
        "mine", fa.algorithms.Average(), fa.algorithms.Descend(local_step=0.1, steps=5)
    )
    assert RunConfiguration.of(own, {"cohort": 0}).settings.cohort is None


def test_where_a_nodes_samples_are_is_its_own_business(tmp_path):
    with pytest.raises(fa.InvalidInput, match="data-path is missing"):
        load_clients({}, {"data-path": "/etc"})
    file = tmp_path / "north.npz"
    arrays = {"x": [[9.0, 1.0], [9.0, 2.0], [8.0, 3.0]], "y": [1, 1, 0]}
    np.savez(file, **arrays, client=["ann", "ann", "bob"])
    held = load_clients({"data-path": str(file)}, {"classes": "3", "task": ""})
    assert held.classes == (0, 1, 2)
    assert held.clients == ("ann", "bob")
    assert held.features[0].tolist() == [9, 1]
    told = {"classes": "3"}
    assert load_clients({"data-path": str(file), "classes": 2}, told).classes == (0, 1)
    part = {"data-path": str(file), "num-partitions": 2}
    assert load_clients(part | {"partition-id": 1}, told).clients == ("bob",)
    with pytest.raises(fa.InvalidInput, match="partition-id is 2 of num-partitions 2"):
        load_clients(part | {"partition-id": 2}, told)
    assert heads_folder({"data-path": str(file)}) == tmp_path / "north.heads"
    assert heads_folder({"data-path": str(file), "heads-path": "/srv/heads"}) == Path("/srv/heads")


def test_how_a_nodes_table_was_saved_is_its_own_business(tmp_path):
    table = "client;Größe;label\n" + "José;1,5;0\nJosé;2,5;1\nAnn;3,5;1\n" * 4
    run = {"classes": "2", "features": "Größe"}
    saved = {}
    for code in ("cp1252", "utf-8"):
        file = tmp_path / f"{code}.csv"
        file.write_bytes(table.encode(code))
        saved[code] = {"data-path": str(file), "allow-features": "Größe"}
    old = saved["cp1252"]
    assert load_clients(old | {"encoding": "cp1252"}, run) == load_clients(saved["utf-8"], run)
    with pytest.raises(fa.InvalidInput, match="encoding="):  # a run does not say how nodes save
        load_clients(old, run | {"encoding": "cp1252"})


def test_names_of_clients_are_safe_names_of_files(tmp_path):
    path = head_file(tmp_path, "ftfa", "../../etc/passwd", 1)
    assert path.parent == tmp_path / "ftfa"
    assert len({head_file(tmp_path, "ftfa", "a" * 500, number).name for number in (1, 2)}) == 2
    assert len(path.name) < 255
    path.parent.mkdir()
    path.write_text("not a head")
    with pytest.raises(fa.InvalidInput, match="is not a head that fedasym wrote"):
        SavedHead.load(path)


def test_two_nodes_cannot_judge_each_other():
    changes = {1: Change(np.ones((2, 2)), 5), 2: Change(np.full((2, 2), 1e300), 5)}
    assert shorten_changes(changes, bound=10)[1] == {}
    many = changes | {3: Change(np.ones((2, 2)), 5)}
    kept, cut = shorten_changes(many, bound=10)
    assert set(cut) == {2}
    assert np.isfinite(kept[2].step).all()
    assert np.linalg.norm(kept[1].step) == 2


def test_only_the_flower_runtime_imports_flower():
    source = Path(fa.__file__).parent
    for file in source.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if source / "deploy" / "flower" in file.parents or "flwr" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] == "flwr" for name in names), file
