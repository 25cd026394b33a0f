"""Experiments on Ray: the numbers of one process, whatever dies; on a real cluster of several nodes
on loopback.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import fedasym as fa
from fedasym.deploy.ray import CRASHES
from fedasym.deploy.shards import ShardKeepers, ShardWorker
from fedasym.experiments.execution import complete_run
from fedasym.experiments.fields import record_data
from fedasym.experiments.folder import LOST, RESUMED, RunFolder
from fedasym.training.convergence import column_sizes

from ..experiments.small import (
    TOML,
    command,
    environment,
    flipped,
    frames,
    same_bits,
    times_computed,
    written,
)
from ..training.test_shard_keepers import HereCrew, draw_advised
from .ray_host import QUIET
from .ray_processes import LOOPBACK, at_work, ended, inside, listening, wait_until
from .ray_warm import write_program

pytestmark = [
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="processes are looked for in /proc"
    ),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]
HOST, WARM = (Path(__file__).with_name(name) for name in ("ray_host.py", "ray_warm.py"))
PYTHON = "python"  # in the home: what stands in for Python, and forks
# Every worker traces the programs of its pieces again: without ftfa and its gains they are half as
# many.
FEWER = TOML.replace(', "ftfa"]\ngrid', "]\ngrid").replace(
    'gains = { algorithms = ["ftfa"], epochs = [0, "batch", 2], seeds = 1 }\n', ""
)
PIECES = 3 + 2 * 2 + 2 * 2


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with a short name, since names of sockets must be short, where every process of
    these tests works.
    """
    folder = Path(tempfile.mkdtemp(prefix="fa-ray-"))
    yield folder
    ended(folder)
    shutil.rmtree(folder)


class Cluster:
    """A head without CPUs, where drivers join, and nodes of one CPU each."""

    def __init__(self, home: Path) -> None:
        self.home = home
        words = [sys.executable, str(HOST), str(home), str(home / PYTHON)]
        self.host = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home
        )
        self.address = self._answer()

    def _answer(self) -> str:
        line = self.host.stdout.readline().strip()
        assert line, "the cluster's process died"
        return line

    def told(self, words: str) -> str:
        self.host.stdin.write(words + "\n")
        self.host.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.host.communicate(timeout=60)


@pytest.fixture(scope="module")
def variables(home) -> dict[str, str]:
    for name in ("cache", "tmp"):
        (home / name).mkdir()
    found = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    paths = {"PYTHONPATH": os.pathsep.join(found), "TMPDIR": str(home / "tmp")}
    return environment(home / "cache") | QUIET | paths  # what the killed leave goes with the home


@pytest.fixture(scope="module")
def warm(home, variables) -> Iterator[Path]:
    """A stand-in for Python that has imported everything already."""
    place = home / "warm"
    with subprocess.Popen([sys.executable, WARM, place], env=variables, cwd=home) as server:
        wait_until(place.exists)
        yield write_program(home / PYTHON, place)
        server.terminate()


@pytest.fixture(scope="module")
def whole(home, variables, warm) -> Path:
    """The small experiment, run in one process; what it compiled is kept for the others."""
    done = subprocess.run(
        [warm, *command("run", written(home, FEWER), "--into", home / "whole")[1:]],
        env=variables,
        cwd=home,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return home / "whole"


@pytest.fixture(scope="module")
def cluster(home, whole) -> Iterator[Cluster]:
    made = Cluster(home)
    try:
        for _ in range(2):
            made.told("add")
        yield made
    finally:
        made.close()


@pytest.fixture
def started(cluster, variables, warm):
    """Start a driver that runs the small experiment on the cluster."""
    begun = []

    def start(
        into: str | Path, *more: Any, experiment: str = "small.toml"
    ) -> subprocess.Popen[str]:
        words = command(
            "run",
            cluster.home / experiment,
            "--into",
            into,
            "--on",
            "ray",
            "--address",
            cluster.address,
            *more,
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen([warm, *words[1:]], env=variables, cwd=cluster.home, **pipes))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return out, said


def losses(folder: Path) -> list[str]:
    return [entry.text for entry in RunFolder(folder).log() if entry.event == LOST]


def test_a_killed_driver_goes_on_where_it_was_and_the_numbers_are_those_of_one_process(
    cluster, started, whole, tmp_path
):
    """In a folder behind a URL; and the cluster listens to this machine alone."""
    folder = tmp_path / "run"
    pieces = folder / "pieces"

    def kept() -> dict[str, tuple[int, int]]:
        return {
            file.name: (file.stat().st_ino, file.stat().st_mtime_ns)
            for file in pieces.glob("*.parquet")
        }

    process = started(folder.as_uri())
    wait_until(lambda: len(kept()) >= 4 or process.poll() is not None)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = kept()
    assert 4 <= len(before) < PIECES
    wait_until(lambda: not at_work(cluster.home))  # nobody works for the dead
    out, said = finished(started(folder.as_uri()))
    assert before.items() <= kept().items()
    assert max(times_computed(folder).values()) == 1
    assert (
        times_computed(folder).total() >= PIECES - 1
    )  # it may have died before it told of its last piece
    assert losses(folder) == []
    same_bits(folder, whole)
    read = fa.Results.read(folder.as_uri())
    assert str(read) == str(fa.Results.read(whole))
    place = folder.as_uri()
    assert out == f"{read}\n\nKept in {place}. For an HTML report: fedasym report {place}\n"
    # a line now and then, and a last one
    assert re.search(
        rf"\d of {PIECES} pieces · (about .* left · )?(\d at work|waiting for workers)", said
    )
    assert said.endswith("100%  done\n")
    assert listening(inside(cluster.home)) <= LOOPBACK


def test_workers_and_nodes_may_die_and_nodes_may_join(cluster, started, whole, tmp_path):
    process = started(tmp_path / "run", "--json")
    wait_until(lambda: bool(at_work(cluster.home)))
    killed = at_work(cluster.home)[0]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(losses(tmp_path / "run")) == 1)
    wait_until(lambda: bool(at_work(cluster.home)))
    for node in range(2):  # all that can compute
        assert cluster.told(f"remove {node}") == "gone"
    assert process.poll() is None
    before = frames(tmp_path / "run")
    assert len(before) < PIECES
    cluster.told("add")  # the rest can be computed here alone
    out, said = finished(process)
    first, *others = losses(tmp_path / "run")
    assert "was lost, its worker died: it is computed again" in first
    assert others
    assert all(lost in " ".join(said.split()) for lost in (first, *others))
    assert (
        json.loads(out)["tuned"] == fa.Results.read(whole).tuned
    )  # what Ray says of it does not come between
    assert times_computed(tmp_path / "run") == dict.fromkeys(frames(whole), 1)
    same_bits(tmp_path / "run", whole)


SHARDS = """
name = "shards"
algorithms = ["ftfa"]
grid = {}
trials = { seeds = 1 }

[data]
file = "clients"

[settings]
rounds = 12
evaluate_every = 4
cohort = 5
local_steps = 3
personal_epochs = 2
"""


def test_shards_survive_a_worker_a_node_and_the_driver(cluster, started, whole, variables, warm):
    """The bits of a run in which nobody died, the numbers of one process; so with advice."""
    home = cluster.home
    drawn = fa.datasets.synthetic(
        task="classification", clients=20, dimension=6, classes=3, aspect=0.3, seed=1
    ).take(range(20))
    drawn.save(home / "clients", shards=7)
    shutil.copytree(home / "clients", home / "damaged")
    shard = home / "damaged" / "shard-00004.safetensors"
    shard.write_bytes(flipped(shard.read_bytes(), shard.stat().st_size - 200))
    (home / "shards.toml").write_text(SHARDS)
    advised = draw_advised("many classes").save(home / "advised", shards=7)
    tried = fa.Experiment.from_toml(home / "shards.toml")
    node = cluster.told("add")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    words = ["-m", "tests.runtimes.ray_shards", cluster.address, "shards.toml", "kept"]
    words += [str(home / "damaged"), "advised"]
    driver = subprocess.Popen([warm, *words], env=variables, cwd=home, text=True, **pipes)
    said = next((each for each in driver.stdout if each.startswith("the shard")), None)
    assert said, driver.communicate()[1]
    with pytest.raises(fa.InvalidInput) as refused:
        column_sizes(fa.Federation.open(home / "damaged"))
    assert said.strip() == str(refused.value)
    assert "node\n" in driver.stdout
    advice = str(fa.advise(fa.Federation.open(advised)))
    told = (home / "advised.txt").read_text()
    assert told.startswith(advice)
    assert "a worker was lost, its worker died: its shards are looked at again" in told
    assert cluster.told(f"remove {node}") == "gone"
    driver.stdin.write("\n")
    driver.stdin.flush()
    _, told = driver.communicate(timeout=120)
    assert driver.returncode == 137, told  # its stand-in says how it ended: by a kill
    first, *others = losses(home / "kept")
    assert "a worker was lost, its worker died: the round is computed again" in first
    assert others  # a node may be noticed by its worker first
    finished(started(home / "kept", experiment="shards.toml"))
    (resumed,) = [e.text for e in RunFolder(home / "kept").log() if e.event == RESUMED]
    assert "goes on after round 8" in resumed
    assert not [*(home / "kept" / "states").iterdir()]
    opened = fa.Federation.open(home / "clients")
    keepers = ShardKeepers(opened, HereCrew(opened, 1))
    record = record_data(opened, ())
    undisturbed = RunFolder.prepare(home / "undisturbed", tried, record)
    complete_run(tried, ShardWorker(keepers, keepers.federation, record, undisturbed, None))
    same_bits(home / "kept", home / "undisturbed")
    here = fa.run(tried, opened, into=home / "here").trials
    there = fa.Results.read(home / "kept").trials
    assert_frame_equal(here, there, rel_tol=1e-6)


@pytest.fixture(scope="module")
def alone(home, variables) -> dict[str, Any]:
    """What a driver finds on a cluster of its own."""
    code = "from tests.runtimes.ray_alone import main; main()"
    own = {
        name: value
        for name, value in variables.items()
        if name != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    }
    own |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=own | {"RAY_TMPDIR": str(home / "own")},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_node_holds_the_data_once(alone):
    assert len({each["process"] for each in alone["data"]}) == 2
    assert len({tuple(each["place"]) for each in alone["data"]}) == 1
    assert all("plasma" in each["file"] and not each["writable"] for each in alone["data"])


def test_a_worker_has_one_thread_and_no_accelerator_and_hears_what_jax_is_told_here(alone):
    told = alone["told"]
    assert set(told["blas"]) == {1}
    assert told["xla"] == 1
    assert told["platforms"] == "cpu"
    assert told["mine"] == "1"


def test_a_cluster_of_this_machine_listens_to_it_alone(alone):
    assert alone["listening"]
    assert set(alone["listening"]) <= LOOPBACK


def test_a_task_that_kills_its_workers_is_given_up(alone):
    assert alone["crashes"] == CRASHES + 1
    assert alone["crashed"].startswith(
        f"InvalidInput: a task was lost {CRASHES + 1} times, at last because its worker died"
    )


def test_errors_of_tasks_come_back(alone):
    assert alone["refused"] == "InvalidInput: it is wrong: mend it"
    assert "a mistake of ours" in alone["failed"]
    assert alone["failed"].startswith("RayTaskError(ZeroDivisionError)")
    assert alone["missing"].startswith(
        "InvalidInput: a node of the cluster has no fedasym: install fedasym"
    )


def test_what_no_node_has_is_refused(alone):
    assert alone["too much"].startswith(
        "InvalidInput: no node of the cluster has the 99 CPUs and 0.0 GB that a task is given"
    )


def test_simulated_trials_are_those_of_one_process(alone):
    assert alone["simulated"]
    assert alone["heard"] == [1.0, "done"]
