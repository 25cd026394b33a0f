"""Ctrl-C and kill -9 at some moments; `python benchmarks/interrupts.py` has more of them, in every
long command.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedasym.__main__ import interruptible, is_importing

from ..warm import Process, Starter

FILE = Path(__file__).parents[2] / "benchmarks" / "interrupts.py"


@pytest.fixture(scope="module")
def interrupts():
    spec = importlib.util.spec_from_file_location("interrupts", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRAIN = ["train", "synthetic", "--rounds=2000", "--evaluate-every=0", "--algorithms=fedavg"]


def test_ctrl_c_ends_importing_in_a_line(interrupts, tmp_path):
    with interrupts.start(tmp_path, tmp_path, TRAIN) as process:
        time.sleep(1.3)  # before JAX is there
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "fedasym: stopped" in told
    assert "Traceback" not in told


def test_ctrl_c_ends_training_in_a_line(interrupts, tmp_path):
    imported = ("fedasym.cli.training", "fedasym.training.runner", "jax.numpy")
    starter = Starter(interrupts.environment(tmp_path), *imported)
    for place, seconds in enumerate((0.3, 1.5)):  # compiling, or training
        process = Process(starter, ["fedasym", *TRAIN], tmp_path / f"{place}.log")
        time.sleep(seconds)
        os.kill(process.number, signal.SIGINT)
        assert process.wait(60, pause=0.01) == 130, process.text
        assert "fedasym: stopped" in process.text
        assert "Traceback" not in process.text
    starter.stop()


def test_a_killed_simulation_goes_on(interrupts, tmp_path):
    found, wrong = interrupts.interrupted(
        "simulate", tmp_path, given(tmp_path), 2, random.Random(1)
    )
    assert not wrong
    assert found.total() == 2


def given(home: Path) -> Path:
    (home / "given").mkdir()
    return home / "given"


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=25
    )


def test_an_interruption_that_python_drops_comes_again():
    """Where it arrives while a callback of the garbage collector runs, Python prints it and goes
    on.
    """
    code = (
        "import gc, os, signal, time\n"
        "from fedasym.__main__ import interruptible\n"
        "def callback(phase, info):\n"
        "    gc.callbacks.clear()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.01)\n"
        "with interruptible():\n"
        "    gc.callbacks.append(callback)\n"
        "    gc.collect()\n"
        "    time.sleep(30)\n"
    )
    done = ended(code)
    assert (done.returncode, done.stderr) == (130, "\nfedasym: stopped\n")


def test_ctrl_c_when_all_is_done_breaks_into_nothing():
    """What others do at the interpreter's end, JAX for one, was interrupted, with a traceback after
    a finished command.
    """
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), print('cleaned up')))\n"
        "sys.argv = ['fedasym', '--version']\n"
        "from fedasym.__main__ import main\n"
        "main()\n"
    )
    done = ended(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("cleaned up\n")


def test_other_errors_and_exits_pass():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), interruptible():
        raise ZeroDivisionError
    with pytest.raises(SystemExit, match="2"), interruptible():
        raise SystemExit(2)
    assert signal.getsignal(signal.SIGINT) is before
    assert not is_importing(sys._getframe())
