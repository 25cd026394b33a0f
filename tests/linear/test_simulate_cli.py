"""`fedasym simulate`, and files of finished trials: interrupted work goes on, and nothing is done
twice.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

import fedasym as fa
from fedasym.verbs import simulation as trials

from ..command import fedasym

WORLD = ["--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2"]
SMALL = ["--dimension", "30", "--clients", "4", "--trials", "2"]


def test_prints_what_the_library_prints():
    done = fedasym("simulate", *WORLD, *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress where nobody watches
    table = fa.simulate(fa.Population(1, 0.5, 2, norm=2), dimension=30, clients=4, trials=2)
    assert done.stdout == f"{table}\n"


def test_json_figure_and_vary(tmp_path):
    figure = tmp_path / "clients.png"
    args = [
        "--vary",
        "clients=2,5",
        "--algorithms",
        "fedavg,pfedme",
        "--new-client",
        "--json",
        "--plot",
        str(figure),
    ]
    done = fedasym("simulate", *WORLD, *SMALL, *args)
    world = fa.Population(1, 0.5, 2, norm=2)
    options = {
        "dimension": 30,
        "trials": 2,
        "member": False,
        "algorithms": ["fedavg", "pfedme"],
        "vary": {"clients": [2, 5]},
    }
    assert json.loads(done.stdout) == json.loads(fa.simulate(world, **options).to_json())
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_progress_is_told_to_a_terminal():
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fedasym", "simulate", *WORLD, *SMALL],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=False,
        )
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert re.search(r"%.* trial [12] of 2", shown)
    assert shown.endswith("\x1b[2K")  # the line is gone, the cursor is back
    assert "\x1b[?25h" in shown


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--dimension", "0"], "dimension is 0"),
        (["--clients", "0"], "clients is 0"),
        (["--features", "cauchy"], "unknown features 'cauchy'"),
        (["--mode", "guess"], "unknown mode 'guess'"),
        (["--algorithms", "ftfq"], "did you mean ftfa"),
        (["--vary", "clients"], "clients"),
        (["--plot", "figure.gif"], "must end in .png"),
        (["--save", "no/such/folder/trials.json"], "does not exist"),
    ],
)
def test_a_bad_value_exits_with_2_and_one_sentence(args, says):
    small = dict(zip(SMALL[::2], SMALL[1::2], strict=True)) | dict([args])
    done = fedasym("simulate", *WORLD, *(word for pair in small.items() for word in pair))
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


LONG = {
    "dimension": 60,
    "clients": 6,
    "trials": 40,
    "seed": 5,
    "algorithms": ["fedavg", "ftfa", "pfedme"],
}


def interrupted(file, how) -> tuple[int, str, int]:
    """Start a long simulation and stop it once some trials are in the file: its exit code, its
    words, and how many trials.
    """
    flags = [
        "--dimension",
        "60",
        "--clients",
        "6",
        "--trials",
        "4000",
        "--seed",
        "5",
        "--algorithms",
        "fedavg,ftfa,pfedme",
    ]
    command = [sys.executable, "-m", "fedasym", "simulate", *WORLD, *flags, "--save", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while finished(file) < 3 and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(how)
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    return process.returncode, said, finished(file)


def finished(file) -> int:
    return len(json.loads(file.read_text())["trials"]) if file.exists() else 0


def test_killed_work_goes_on_without_repeating_a_trial(tmp_path, monkeypatch):
    file = tmp_path / "trials.json"
    code, said, kept = interrupted(file, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert re.fullmatch(r"( *\d+%  trial \d+ of 4000\n)*", said)  # a busy machine hears of it
    assert kept >= 3
    world, done, wanted = fa.Population(1, 0.5, 2, norm=2), [], kept + 3
    real = trials.one_trial

    def counted(plan, mode, trial, tick):
        done.append(trial)
        return real(plan, mode, trial, tick)

    monkeypatch.setattr(trials, "one_trial", counted)
    resumed = fa.simulate(world, **(LONG | {"trials": wanted}), save=file)
    assert done == list(range(kept, wanted))
    assert resumed.to_json() == fa.simulate(world, **(LONG | {"trials": wanted})).to_json()
    done.clear()
    assert (
        fa.simulate(world, **(LONG | {"trials": wanted}), save=file).to_json() == resumed.to_json()
    )
    assert done == []
    assert json.loads(file.read_text())["result"] == json.loads(resumed.to_json())
    assert not [
        left for left in tmp_path.iterdir() if left != file and not left.name.endswith(".part")
    ]


def test_ctrl_c_says_how_to_go_on(tmp_path):
    file = tmp_path / "trials.json"
    code, said, kept = interrupted(file, signal.SIGINT)
    assert code == 130
    assert kept >= 3
    assert "the same command goes on from there" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 6}, "seed"),
        ({"dimension": 50}, "dimension"),
        ({"ridge": 0.3}, "algorithms"),
        ({"vary": {"noise": [0.1, 0.2]}}, "vary"),
        ({"member": False, "features": "student"}, "member and features"),
    ],
)
def test_a_file_of_other_arguments_is_refused_and_left_alone(tmp_path, change, named):
    file, world = tmp_path / "trials.json", fa.Population(1, 0.5, 2, norm=2)
    fa.simulate(world, **(LONG | {"trials": 1}), save=file)
    held = file.read_text()
    with pytest.raises(fa.InvalidInput, match=f"another {named};"):
        fa.simulate(world, **(LONG | {"trials": 1} | change), save=file)
    with pytest.raises(fa.InvalidInput, match="another world;"):
        fa.simulate(fa.Population(1, 0.6, 2, norm=2), **(LONG | {"trials": 1}), save=file)
    assert file.read_text() == held


@pytest.mark.parametrize(
    "text", ["", "{}", "[1, 2]", '{"format": "something else", "arguments": {}, "trials": {}}']
)
def test_a_file_of_another_sort_is_refused_and_left_alone(tmp_path, text):
    file = tmp_path / "notes.json"
    file.write_text(text)
    with pytest.raises(fa.InvalidInput, match="not a saved simulation"):
        fa.simulate(fa.Population(1, 0.5, 2), dimension=20, clients=3, trials=1, save=file)
    assert file.read_text() == text


def test_more_trials_may_be_asked_for_later(tmp_path):
    file, world = tmp_path / "trials.json", fa.Population(1, 0.5, 2)
    options = {"dimension": 20, "vary": {"clients": [3, 5]}}
    fa.simulate(world, **options, trials=2, save=file)
    heard = []
    more = fa.simulate(
        world,
        **options,
        trials=3,
        save=file,
        progress=lambda share, text: heard.append((share, text)),
    )
    assert more.to_json() == fa.simulate(world, **options, trials=3).to_json()
    assert {text for _, text in heard} == {
        "clients 3, trial 3 of 3",
        "clients 5, trial 3 of 3",
        "done",
    }
    assert [share for share, _ in heard] == sorted(share for share, _ in heard)
    assert heard[-1][0] == 1
