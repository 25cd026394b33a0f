"""`fedasym run`, `sweep` and `runs`: the library's words, one sentence for a mistake, progress for
those who watch.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
from contextlib import suppress
from importlib import import_module

import pytest

import fedasym as fa
from fedasym.core.runtime import Notice

from ..command import fedasym
from .small import MANY, MANY_PIECES, PIECES, command, environment, written

FEW = ["--rounds", "3", "--evaluate-every", "3", "--local-steps", "2", "--personal-epochs", "1"]

CLI = import_module("fedasym.cli")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home):
    """The small experiment by its command, in a folder of its own."""
    return fedasym("run", written(home), cwd=home), home / "runs" / "small"


def test_run_prints_the_results_and_tells_little_to_a_log(run):
    done, folder = run
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == f"{fa.Results.read(folder)}\n\nKept in runs/small. For an HTML report: fedasym report"
        " runs/small\n"
    )
    told = done.stderr.splitlines()  # a line every five seconds
    assert len(told) < PIECES
    assert all(f"of {PIECES} pieces" in line for line in told[:-1])
    assert told[-1:] in ([], ["100%  done"])  # a log that has lines ends in a last one


def test_runs_are_listed_shown_saved_and_cleaned(home, run, tmp_path):
    _, folder = run
    listed = fedasym("runs", "list", cwd=home)
    assert f"{PIECES}/{PIECES}" in listed.stdout
    assert "complete" in listed.stdout
    shown = fedasym(
        "runs",
        "show",
        "small",
        "--budget",
        "--comparisons",
        "--save",
        tmp_path / "tables",
        cwd=home,
    )
    results = fa.Results.read(folder)
    for part in (str(results), str(results.comparisons()), *results.budget):
        assert part in shown.stdout
    assert "fedasym run" not in shown.stderr
    assert fa.Results.load(tmp_path / "tables").to_json() == results.to_json()
    as_json = fedasym("runs", "show", folder, "--json")
    assert json.loads(as_json.stdout) == json.loads(results.to_json())
    assert fedasym("runs", "clean", folder).stdout == "Removed 0 files, 0.0 MB.\n"
    (folder.parent / "broken" / "pieces").mkdir(parents=True)
    (folder.parent / "broken" / "experiment.toml").write_text("name = ")
    assert "unreadable" in fedasym("runs", "list", cwd=home).stdout
    assert "There are no runs" in fedasym("runs", "list", tmp_path).stdout


def test_progress_on_a_terminal_is_one_line(cache, tmp_path):
    ours, theirs = pty.openpty()
    words, shown = command("run", written(tmp_path, MANY), "--into", tmp_path / "run"), ""
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=theirs, env=environment(cache)
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # the end of a terminal that nobody writes to
            while part := os.read(ours, 10_000):
                shown += part.decode(errors="replace")
    os.close(ours)
    assert process.returncode == 0
    assert f"of {MANY_PIECES} pieces" in shown
    assert shown.count("\n") == 1  # of the bar's end, which is taken back
    assert shown.endswith("\x1b[2K")


def test_a_log_has_a_line_every_few_seconds_and_all_that_is_damaged(capsys, monkeypatch):
    times = iter([0.0, 1.0, 5.5, 6.0, 11.0])
    monkeypatch.setattr(CLI.time, "monotonic", lambda: next(times))
    tell = CLI.Display()
    for text in (
        "0 of 3 pieces · a",
        "0 of 3 pieces · b",
        Notice("1 of 3 pieces · piece ab is damaged: it is computed again"),
        "1 of 3 pieces",
    ):
        tell(0.25, text)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == " 25%  0 of 3 pieces · b"
    assert said[1] == "fedasym: 1 of 3 pieces · piece ab is damaged: it is computed again"
    assert said[2] == " 25%  1 of 3 pieces"


def test_a_users_own_data_and_a_quick_copy(tmp_path):
    data = fa.datasets.synthetic(
        task="classification", clients=40, dimension=4, classes=2, aspect=0.5
    )
    federation = fa.Federation.from_arrays(
        data.features, data.labels, [f"client {i}" for i in data.owner], split=data.split, classes=2
    )
    path = federation.save(tmp_path / "clients.parquet")
    text = (
        'name = "small"\nalgorithms = ["fedavg"]\ngrid = {}\n[settings]\nrounds = 3\nlocal_steps'
        " = 2\n"
    )
    written(tmp_path, text)
    words = [
        "run",
        tmp_path / "small.toml",
        "--quick",
        "--data",
        path,
        "--into",
        tmp_path / "run",
        "--json",
    ]
    done = fedasym(*words)
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert held["experiment"]["name"] == "small-quick"
    assert held["data"]["clients"] == 30
    without = fedasym("run", tmp_path / "small.toml")
    assert without.returncode == 2
    assert "data is missing" in without.stderr


def test_a_sweep_over_a_file(tmp_path):
    data = fa.datasets.synthetic(
        task="classification", clients=6, dimension=4, classes=2, aspect=0.5
    )
    frame_path = fa.Federation.from_arrays(
        data.features, data.labels, data.owner, split=data.split
    ).save(tmp_path / "own.parquet")
    words = [
        "sweep",
        frame_path,
        "--algorithms",
        "fedavg,ftfa",
        "--grid",
        "server-step=0.01,1",
        *FEW,
    ]
    done = fedasym(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = fa.Results.read(tmp_path / "runs" / "sweep-own")
    assert done.stdout == f"{results}\n"
    assert results.experiment.grid["ftfa"] == {"server_step": (0.01, 1.0)}
    assert results.trials["trial"].unique().to_list() == [1]


def test_the_schema_is_json():
    done = fedasym("run", "--schema")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(fa.Experiment.schema_text())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run"], "file is missing"),
        (["run", "cifar10"], "did you mean cifar100"),
        (["run", "missing.toml"], "there is no such file"),
        (["run", "wrong.toml"], "did you mean rounds"),
        (["runs", "show", "nothing"], "is not a run folder"),
        (["runs", "list", "nowhere"], "there is no folder"),
        (["runs", "clean", "nothing"], "is not a run folder"),
        (["sweep", "missing.parquet"], "there is no such file"),
        (["sweep", "synthetic", "--algorithms", "ftfo"], "did you mean ftfa"),
        (["sweep", "synthetic", "--protocol", "paper"], "settings.protocol is 'paper'"),
        (["sweep", "synthetic", "--seeds", "-1"], "trials.seeds is -1"),
    ],
)
def test_a_mistake_gives_one_sentence(tmp_path, args, says):
    (tmp_path / "wrong.toml").write_text('name = "a"\n[settings]\nround = 3\n')
    done = fedasym(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
