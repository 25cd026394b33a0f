"""Processes that die: killed at any moment, at the worst moments, or stopped by Ctrl-C; and several
at work on one folder.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import fedasym as fa
from fedasym.experiments import tables
from fedasym.experiments.folder import RunFolder

from .small import (
    MANY,
    MANY_PIECES,
    command,
    environment,
    fedasym,
    frames,
    same_bits,
    small,
    times_computed,
    written,
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    """A run by one process, how long it took with compiled programs at hand, and what the others
    share with it.
    """
    home = tmp_path_factory.mktemp("undisturbed")
    fa.run(small(home, MANY), into=home / "here")
    file, start = written(home, MANY), time.monotonic()
    done = fedasym(cache, "run", file, "--into", home / "run")
    assert done.returncode == 0, done.stderr
    same_bits(home / "here", home / "run")
    assert len(frames(home / "run")) == MANY_PIECES
    return cache, file, home / "run", time.monotonic() - start


def started(undisturbed, into, **options):
    cache, file, _, _ = undisturbed
    words = command("run", file, "--into", into)
    return subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cache),
        **options,
    )


def written_once(folder) -> dict[str, tuple[int, int]]:
    """What tells whether a piece was written again."""
    return {
        file.name: (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in (folder / "pieces").glob("*.parquet")
    }


def test_killed_at_random_moments_it_repeats_nothing_and_ends_the_same(undisturbed, tmp_path):
    _, file, whole, seconds = undisturbed
    into, chance = tmp_path / "run", random.Random(1)
    before: dict[str, tuple[int, int]] = {}
    for _ in range(3):
        with started(undisturbed, into) as process:
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
def test_killed_around_the_moment_of_putting_in_place(undisturbed, tmp_path, when, kept):
    cache, file, whole, _ = undisturbed
    into = tmp_path / "run"
    code = DYING.replace("{when}", when)
    died = subprocess.run(
        [sys.executable, "-c", code, file, into],
        env=environment(cache),
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
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


def test_two_processes_share_a_folder(undisturbed, tmp_path):
    into = tmp_path / "run"
    both = [started(undisturbed, into) for _ in range(2)]
    for process in both:
        assert process.wait(timeout=120) == 0, process.stderr.read()
        process.stderr.close()
    assert times_computed(into) == dict.fromkeys(frames(into), 1)
    assert len(frames(into)) == MANY_PIECES
    same_bits(into, undisturbed[2])


def test_a_process_waits_for_the_piece_of_another_and_takes_it_over_when_that_one_dies(
    undisturbed, tmp_path
):
    whole = undisturbed[2]
    into = tmp_path / "run"
    into.mkdir()
    key = next(iter(tables.wanted_pieces(RunFolder(whole))[0]))
    for name in ("pieces", "locks"):
        (into / name).mkdir()
    (into / "experiment.toml").write_text((whole / "experiment.toml").read_text())
    holding = "import sys; from fedasym.experiments.folder import RunFolder\n"
    holding += (
        "with RunFolder(sys.argv[1]).lock(sys.argv[2]) as held:\n    print(held, flush=True);"
        " sys.stdin.read()"
    )
    words = [sys.executable, "-c", holding, str(into), key]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "True\n"
        assert RunFolder(into).running()
        with started(undisturbed, into) as process:
            said = ""
            while "waiting for 1 of another process" not in said:
                said = process.stderr.readline()
            assert not (into / "pieces" / f"{key}.parquet").exists()
            assert len(frames(into)) == 2  # the rest of tuning; what comes after is not known yet
            holder.kill()
            assert process.wait(timeout=60) == 0
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
rounds = 5_000
evaluate_every = 2_500
cohort = 3
local_steps = 3
"""


def test_ctrl_c_says_that_the_same_command_goes_on(cache, tmp_path):
    into, file = tmp_path / "run", written(tmp_path, LONG)
    words, options = (
        command("run", file, "--into", into),
        {"stderr": subprocess.PIPE, "env": environment(cache), "text": True},
    )
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, **options) as process:
        while not list((into / "pieces").glob("*.parquet")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    kept = frames(into)
    assert 1 <= len(kept) < 2 + 11
    assert sorted(os.listdir(into / "pieces")) == sorted(f"{key}.parquet" for key in kept)
