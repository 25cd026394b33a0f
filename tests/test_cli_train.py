"""`fedasym train`: the library's numbers from a file, one sentence for a bad value, what is
finished after Ctrl-C.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedasym as fa

from .command import fedasym

FEW = ["--rounds", "4", "--evaluate-every", "2", "--local-steps", "3", "--personal-epochs", "1"]
TOLD = {"rounds": 4, "evaluate_every": 2, "local_steps": 3, "personal_epochs": 1}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def federation():
    return fa.datasets.synthetic(
        task="classification", classes=3, clients=6, dimension=8, aspect=0.5
    )


@pytest.fixture(scope="module")
def environment(cache):
    """As users have it, but for programs that are compiled quickly."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return {**kept, "XDG_CACHE_HOME": str(cache), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


@pytest.mark.parametrize("ending", ["safetensors", "parquet"])
def test_a_file_gives_the_numbers_of_the_library(federation, tmp_path, ending):
    path = fa.Federation.from_arrays(
        federation.features,
        federation.labels,
        [f"client {i}" for i in federation.owner],
        split=federation.split,
        classes=3,
    ).save(tmp_path / f"clients.{ending}")
    done = fedasym(
        "train",
        path,
        *FEW,
        "--algorithms",
        "fedavg,rtfa",
        "--grid",
        "server-step=0.01,0.1",
        "--seeds",
        "0:2",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    told = (
        fa.Federation.from_safetensors(path)
        if ending == "safetensors"
        else fa.Federation.from_parquet(path)
    )
    expected = fa.train(
        ["fedavg", "rtfa"], told, grid={"server_step": [0.01, 0.1]}, seeds=range(2), **TOLD
    )
    assert json.loads(done.stdout) == json.loads(expected.to_json())


def test_columns_are_named(federation, tmp_path):
    import polars as pl

    frame = pl.DataFrame(federation.features, schema=[f"x{i}" for i in range(8)])
    frame = frame.with_columns(
        user=pl.Series(federation.owner), word=pl.Series(federation.labels), junk=pl.lit(1.0)
    )
    frame.write_parquet(tmp_path / "table.parquet")
    columns = [
        "--label",
        "word",
        "--client",
        "user",
        "--features",
        ",".join(f"x{i}" for i in range(8)),
    ]
    columns += ["--task", "classification", "--scale", "none"]
    done = fedasym(
        "train", tmp_path / "table.parquet", *columns, *FEW, "--algorithms", "fedavg", "--json"
    )
    assert done.returncode == 0, done.stderr
    same = fa.Federation.from_arrays(
        np.asarray(federation.features), federation.labels, federation.owner
    )
    assert json.loads(done.stdout) == json.loads(
        fa.train(["fedavg"], same, seeds=[0], **TOLD).to_json()
    )


def test_table_and_figure(tmp_path):
    done = fedasym(
        "train",
        "synthetic",
        *FEW,
        "--algorithms",
        "local,fedavg",
        "--plot",
        tmp_path / "curves.png",
    )
    assert done.returncode == 0, done.stderr
    assert "worst decile" in done.stdout
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_compiled_programs_are_kept_for_the_next_command(environment, cache):
    words = [
        sys.executable,
        "-m",
        "fedasym",
        "train",
        "synthetic",
        *FEW[2:],
        "--algorithms",
        "fedavg",
        "--rounds",
    ]
    # those that are compiled in a moment are kept as well
    environment = environment | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    subprocess.run([*words, "4"], capture_output=True, check=True, env=environment)
    kept = set((cache / "fedasym" / "jax").iterdir())
    assert kept
    subprocess.run([*words, "6"], capture_output=True, check=True, env=environment)
    assert {
        file.name for file in (cache / "fedasym" / "jax").iterdir() if file.name.endswith("cache")
    } == {file.name for file in kept if file.name.endswith("cache")}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["README.md"], "README.md"),
        (["missing.parquet"], "there is no such file"),
        (["synthetic", "--algorithms", "ftfo"], "did you mean ftfa"),
        (["synthetic", "--grid", "server_step"], "write it like server_step=0.01,0.1,1"),
        (["synthetic", "--grid", "server_step=a"], "give numbers separated by commas"),
        (["synthetic", "--grid", "batch=1", "--grid", "batch=2"], "grid names batch twice"),
        (["synthetic", "--grid", "speed=1"], "unknown grid entry 'speed'"),
        (["synthetic", "--algorithms", "fedavg", "--grid", "ridge=1"], "which fedavg does not use"),
        (["synthetic", "--seeds", "one"], "give whole numbers like 0,1,2, or 0:11"),
        (["synthetic", "--cohort", "1000"], "cohort is 1000"),
        (["synthetic", "--rounds", "-1"], "rounds is -1: it must be a whole number of at least 0"),
        (["synthetic", "--protocol", "paper"], "unknown protocol 'paper'"),
        (["synthetic", "--precision", "half"], "precision is 'half'"),
        (["synthetic", "--clip", "1"], "clip is 1 without noise"),
        (["synthetic", "--quantile", "0.5"], "quantile is 0.5 without noise"),
        (["table.csv", "--role", "grade"], "role is 'grade': write it like grade=category"),
        (["table.csv", "--role", "=category"], "role is '=category'"),
        (["table.csv", "--role", "a=b=number", "--role", "a=b=ignore"], "column 'a=b' twice"),
    ],
)
def test_a_bad_value_gives_one_sentence(args, sentence):
    done = fedasym("train", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_shows_what_is_finished():
    args = [
        "train",
        "synthetic",
        *FEW[4:],
        "--algorithms",
        "fedavg",
        "--rounds",
        "20000",
        "--evaluate-every",
        "20",
    ]
    terminal, theirs = pty.openpty()  # progress is shown on terminals
    command = [sys.executable, "-m", "fedasym", *args]
    environment = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment
    )
    os.close(theirs)  # the terminal ends with the process
    shown = b""
    # which of the two texts the bar has when it is drawn is for the threads to decide
    while not re.search(rb"(round \d{3,} of 20000|testing after round \d{3,})", shown):
        shown += os.read(terminal, 1000)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 130, shown
    assert "interrupted" in output.lower()
    assert b"Traceback" not in shown


@pytest.mark.parametrize(
    ("missing", "args", "sentence"),
    [
        ("jax", ["train", "synthetic"], "training needs JAX: pip install 'fedasym[train]'"),
        ("polars", ["train", "table.csv"], "pip install 'fedasym[tables]'"),
        (
            "h5py",
            ["data", "show", "shakespeare", "--folder", "."],
            "needs h5py: pip install 'fedasym[data]'",
        ),
    ],
)
def test_a_missing_package_is_named_in_a_sentence(missing, args, sentence, tmp_path):
    (tmp_path / "table.csv").write_text("client,label,x\na,0,1.5\n")
    for part in ("train", "test"):
        (tmp_path / f"shakespeare_{part}.h5").touch()
    code = f"import sys; sys.modules[{missing!r}] = None; from fedasym.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
