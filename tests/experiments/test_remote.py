"""Run folders behind URLs: what is sent is whole, what is there is gone on with, and everything
reads it as if it were here.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from pathlib import Path

import fsspec
import pytest

import fedasym as fa
from fedasym import cli
from fedasym.core.runtime import PART, is_url
from fedasym.experiments.fields import load_data
from fedasym.experiments.folder import RemoteFolder, RunFolder
from fedasym.experiments.tables import find_run

from .small import PIECES, same_bits, times_computed


@pytest.fixture
def memory():
    """A file system that is no folder of this machine."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def fetched(system, root: str, into: Path) -> Path:
    for name in system.find(root):
        file = into / name.removeprefix(root).lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(system.cat_file(name))
    return into


def test_a_run_behind_a_url_is_the_same_run_and_leaves_no_mirror(
    memory, finished, tmp_path, monkeypatch
):
    experiment, results, whole = finished
    (tmp_path / "mirrors").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "mirrors"))
    there = fa.run(experiment, into="memory://store/run")
    assert str(there) == str(results)
    here = fetched(memory, "/store/run", tmp_path / "run")
    same_bits(here, whole)
    assert times_computed(here).total() == PIECES
    assert not [name for name in memory.find("/store") if name.endswith(PART)]
    assert str(fa.Results.read("memory://store/run")) == str(results)
    gc.collect()
    assert not list((tmp_path / "mirrors").iterdir())


def test_what_is_there_is_gone_on_with(memory, finished, tmp_path):
    experiment, _, whole = finished
    memory.put(str(whole), "/store/run", recursive=True)
    root = next(
        name for name in memory.find("/store") if name.endswith("experiment.toml")
    ).rpartition("/")[0]
    lost = sorted(name for name in memory.find(root) if name.endswith(".parquet"))[::5]
    for name in lost:
        memory.rm_file(name)
    fa.run(experiment, into=f"memory:/{root}")
    same_bits(fetched(memory, root, tmp_path / "run"), whole)
    assert times_computed(tmp_path / "run").total() == PIECES + len(lost)


class Broken(Exception):
    """What a store may raise."""


@pytest.mark.parametrize("moment", ["put_file", "mv"])
def test_a_store_that_breaks_is_told_and_shows_no_half_piece(
    memory, finished, tmp_path, monkeypatch, moment
):
    experiment, _, whole = finished
    real = getattr(type(memory), moment)
    calls = 0

    def breaking(self, *args, **options):
        nonlocal calls
        calls += 1
        if calls == 8:
            raise Broken("the line is dead")
        return real(self, *args, **options)

    monkeypatch.setattr(type(memory), moment, breaking)
    with pytest.raises(
        fa.InvalidInput, match=r"'memory://store/run' cannot be used: Broken: the line is dead"
    ):
        fa.run(experiment, into="memory://store/run")
    monkeypatch.undo()
    fa.run(experiment, into="memory://store/run")
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    same_bits(fetched(memory, "/store/run", tmp_path / "run"), whole)


def test_a_run_whose_first_file_never_arrived_is_gone_on_with(memory, finished):
    memory.pipe_file("/store/run/experiment.toml.part", b"name = ")
    assert fa.run(finished[0], into="memory://store/run").tuned == finished[1].tuned


def test_other_things_are_refused_and_left_alone(memory, finished):
    memory.pipe_file("/store/thesis.txt", b"do not touch")
    with pytest.raises(
        fa.InvalidInput, match="into is 'memory://store': this folder holds other things"
    ):
        fa.run(finished[0], into="memory://store")
    assert memory.find("/store") == ["/store/thesis.txt"]
    with pytest.raises(fa.InvalidInput, match="memory://store is not a run folder"):
        fa.Results.read("memory://store")


def test_commands_read_a_url(finished, capsys):
    _, results, whole = finished
    cli.import_commands(["runs"])
    code = cli.run(lambda: cli.app(["runs", "show", whole.as_uri()], result_action="return_value"))
    assert code == 0
    assert str(results) in capsys.readouterr().out
    kept = RunFolder.open_existing(find_run(whole.as_uri())).experiment()
    assert kept == finished[0].settle_choices(load_data(finished[0].data))
    assert (
        cli.run(lambda: cli.app(["runs", "clean", whole.as_uri()], result_action="return_value"))
        == 2
    )
    assert "is cleaned with the tools of its store" in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch, finished):
    with pytest.raises(fa.InvalidInput, match=r"needs one more package: .*s3fs"):
        fa.run(finished[0], into="s3://bucket/run")
    with pytest.raises(fa.InvalidInput, match="'nowhere://bucket/run' cannot be used"):
        fa.run(finished[0], into="nowhere://bucket/run")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(fa.InvalidInput, match=r"needs fsspec: pip install 'fedasym\[remote\]'"):
        fa.run(finished[0], into="s3://bucket/run")


def test_paths_need_no_fsspec(monkeypatch, finished, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    copy = shutil.copytree(finished[2], tmp_path / "run")
    assert str(fa.run(finished[0], into=copy)) == str(finished[1])
    assert not is_url(tmp_path)
    assert is_url("simplecache::s3://bucket/run")


def test_a_mirror_goes_with_its_folder(finished):
    folder = RemoteFolder.open_existing(finished[2].as_uri())
    assert folder.path.is_dir()
    folder.close()
    assert not folder.path.exists()
