"""Processes that die: killed at any moment, at the worst moments, or stopped by Ctrl-C; and several
at work on one folder. They are forked from one that has imported the package.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

import fedasym as fa
from fedasym.experiments.folder import RunFolder, wanted_pieces

from ..warm import Process, Starter, wait_until
from .small import MANY, MANY_PIECES, environment, frames, same_bits, small, times_computed, written


@pytest.fixture(scope="module")
def start(tmp_path_factory, cache):
    """Starts `fedasym` or `python` with more words."""
    imported = ("fedasym.cli.experiments", "fedasym.training.runner", "jax.numpy", "polars")
    starter = Starter(environment(cache), *imported)
    home, running = tmp_path_factory.mktemp("logs"), []

    def begin(*words: object) -> Process:
        running.append(Process(starter, list(words), home / f"{len(running)}.log"))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
    starter.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, start):
    """A file, a run of it by one process, and how long that took with compiled programs at hand."""
    home = tmp_path_factory.mktemp("undisturbed")
    fa.run(small(home, MANY), into=home / "here")
    file = written(home, MANY)
    process, begun = start("fedasym", "run", file, "--into", home / "run"), time.monotonic()
    assert process.wait(60, pause=0.01) == 0, process.text
    seconds = time.monotonic() - begun
    same_bits(home / "here", home / "run")
    assert len(frames(home / "run")) == MANY_PIECES
    return file, home / "run", seconds


def written_once(folder) -> dict[str, tuple[int, int]]:
    """What tells whether a piece was written again."""
    return {
        file.name: (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in (folder / "pieces").glob("*.parquet")
    }


def test_killed_at_random_moments_it_repeats_nothing_and_ends_the_same(
    undisturbed, start, tmp_path
):
    file, whole, seconds = undisturbed
    into, chance = tmp_path / "run", random.Random(1)
    before: dict[str, tuple[int, int]] = {}
    for _ in range(3):
        process = start("fedasym", "run", file, "--into", into)
        time.sleep(chance.uniform(0.5, 1.0) * seconds)
        process.kill()
        after = written_once(into) if into.exists() else {}
        assert before.items() <= after.items()
        before = after
    fa.run(file, into=into)
    assert before.items() <= written_once(into).items()
    assert max(times_computed(into).values()) == 1
    same_bits(into, whole)


DYING = """
import os, signal, sys
real, count = os.replace, 0
def replace(source, target):
    global count
    if str(target).endswith(".parquet"):
        count += 1
        if count == 2 and "{when}" == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)
        if count == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        real(source, target)
os.replace = replace
import fedasym as fa
fa.run(sys.argv[1], into=sys.argv[2])
"""


@pytest.mark.parametrize(("when", "kept"), [("before", 1), ("after", 2)])
def test_killed_around_the_moment_of_putting_in_place(undisturbed, start, tmp_path, when, kept):
    file, whole, _ = undisturbed
    into = tmp_path / "run"
    died = start("python", "-c", DYING.replace("{when}", when), file, into)
    assert died.wait(60, pause=0.01) == -signal.SIGKILL, died.text
    assert len(frames(into)) == kept
    halves = list((into / "pieces").glob(".*.part"))
    assert len(halves) == (1 if when == "before" else 0)
    held = written_once(into)
    fa.run(file, into=into)
    assert held.items() <= written_once(into).items()
    assert not list((into / "pieces").glob(".*.part"))
    assert times_computed(into).total() == MANY_PIECES - (
        when == "after"
    )  # it died before it could tell of its last piece
    same_bits(into, whole)


def test_two_processes_share_a_folder(undisturbed, start, tmp_path):
    file, whole, _ = undisturbed
    into = tmp_path / "run"
    both = [start("fedasym", "run", file, "--into", into) for _ in range(2)]
    for process in both:
        assert process.wait(120, pause=0.01) == 0, process.text
    assert times_computed(into) == dict.fromkeys(frames(into), 1)
    assert len(frames(into)) == MANY_PIECES
    same_bits(into, whole)


def test_a_process_waits_for_the_piece_of_another_and_takes_it_over_when_that_one_dies(
    undisturbed, start, tmp_path
):
    file, whole, _ = undisturbed
    into = tmp_path / "run"
    into.mkdir()
    key = next(iter(wanted_pieces(RunFolder(whole))[0]))
    for name in ("pieces", "locks"):
        (into / name).mkdir()
    (into / "experiment.toml").write_text((whole / "experiment.toml").read_text())
    holding = "import sys, time; from fedasym.experiments.folder import RunFolder\n"
    holding += (
        "with RunFolder(sys.argv[1]).lock(sys.argv[2]) as held:\n    print(held, flush=True);"
        " time.sleep(600)"
    )
    holder = start("python", "-c", holding, into, key)
    assert holder.wait_for("\n") == "True\n"
    assert RunFolder(into).is_running()
    process = start("fedasym", "run", file, "--into", into)
    process.wait_for("waiting for 1 of another process")
    assert not (into / "pieces" / f"{key}.parquet").exists()
    assert len(frames(into)) == 2  # the rest of tuning; what comes after is not known yet
    holder.kill()
    assert process.wait(60, pause=0.01) == 0, process.text
    assert times_computed(into).total() == MANY_PIECES
    same_bits(into, whole)


LONG = """
name = "long"
algorithms = ["fedavg"]
grid = { server_step = [0.1, 1] }
[data.synthetic]
task = "classification"
clients = 8
dimension = 10
aspect = 0.3
[settings]
rounds = 1_000
evaluate_every = 500
cohort = 3
local_steps = 3
"""


def test_ctrl_c_says_that_the_same_command_goes_on(start, tmp_path):
    into = tmp_path / "run"
    process = start("fedasym", "run", written(tmp_path, LONG), "--into", into)
    wait_until(
        lambda: list((into / "pieces").glob("*.parquet")) or process.poll() is not None,
        60,
        "piece",
        pause=0.01,
    )
    os.kill(process.number, signal.SIGINT)
    assert process.wait(60, pause=0.01) == 130, process.text
    said = process.text
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    kept = frames(into)
    assert 1 <= len(kept) < 2 + 11
    assert sorted(os.listdir(into / "pieces")) == sorted(f"{key}.parquet" for key in kept)
