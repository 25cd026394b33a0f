"""Data sets by name, and the commands that list, fetch and show them."""

import json
import os
from pathlib import Path

import pytest

import fedasym as fa
from fedasym.data import CATALOGUE

from .. import command

DATA = Path(os.environ.get("FEDASYM_DATA", Path(__file__).parents[3] / "shared" / "data"))
real = pytest.mark.skipif(
    not (DATA / "shakespeare").is_dir(), reason=f"the true Shakespeare files are not in {DATA}"
)


def fedasym(*args, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDASYM_DATA", str(data))
        return command.fedasym("data", *args)


def test_the_list_says_what_is_here(tmp_path):
    (tmp_path / "digits_by_writer").mkdir()
    (tmp_path / "digits_by_writer" / "mnist_by_writer.npz").touch()
    (tmp_path / "emnist").mkdir()  # empty: nothing is here
    lines = {
        line.split()[0]: line.split()[1:3]
        for line in fedasym("list", data=tmp_path).stdout.splitlines()[1:7]
    }
    assert set(lines) == set(CATALOGUE)
    assert lines["digits"] == ["yes", "no"]
    assert lines["emnist"] == ["no", "yes"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["show", "emnist"], "run fedasym data fetch emnist, or give the folder"),
        (["show", "digits"], "get its files, see docs/how-to/datasets.md"),
        (["show", "emnst"], "did you mean emnist"),
        (["fetch", "digits"], "digits cannot be fetched"),
        (["fetch", "shakespeare", "--from", "missing"], "missing"),
        (["show", "shakespeare", "--folder", "missing"], "is not a folder"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(tmp_path, args, sentence):
    done = fedasym(*args, data=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@real
def test_shakespeare_has_the_papers_counts(tmp_path):
    done = fedasym("show", "shakespeare", "--json", data=DATA)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {name: shown[name] for name in shown["paper"]} == shown["paper"]
    assert "33,244" in fedasym("show", "shakespeare", data=DATA).stdout


@real
def test_files_that_a_user_has_are_used_where_they_are(tmp_path):
    done = fedasym("fetch", "shakespeare", "--from", str(DATA / "shakespeare"), data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"shakespeare is in {DATA / 'shakespeare'}"


@real
def test_loading_by_name_is_loading_from_its_folder(monkeypatch):
    monkeypatch.setenv("FEDASYM_DATA", str(DATA))
    named, placed = (
        fa.datasets.load("shakespeare", seed=3),
        fa.datasets.load("shakespeare", folder=DATA / "shakespeare", seed=3),
    )
    assert named.clients == placed.clients
    assert (named.split == placed.split).all()
