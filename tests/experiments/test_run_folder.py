"""Run folders: nothing is lost, nothing is done twice, and what is damaged is noticed."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

import fedasym as fa
from fedasym.experiments import execution, tables
from fedasym.experiments.folder import DAMAGED, ENVIRONMENT, RunFolder, wanted_pieces

from .small import PIECES, flipped, frames, same_bits, times_computed


@pytest.fixture
def copy(finished, tmp_path):
    """A run folder to do things to."""
    return shutil.copytree(finished[2], tmp_path / "run")


@pytest.fixture
def counted(monkeypatch):
    """The pieces that are computed from now on."""
    titles, real = [], execution.compute_piece

    def computed(piece, *args):
        titles.append(piece.title)
        return real(piece, *args)

    monkeypatch.setattr(execution, "compute_piece", computed)
    return titles


def test_a_second_run_repeats_nothing_and_finds_the_same(finished, copy, counted):
    experiment, results, _ = finished
    again = fa.run(experiment, into=copy)
    assert counted == []
    assert str(again) == str(results)
    assert again.to_json() == results.to_json()
    assert times_computed(copy).total() == PIECES


def test_what_is_missing_is_computed_and_nothing_else(finished, copy, counted):
    experiment, _, whole = finished
    lost = sorted(file.stem for file in (copy / "pieces").iterdir())[::3]
    for key in lost:
        (copy / "pieces" / f"{key}.parquet").unlink()
    fa.run(experiment, into=copy)
    assert len(counted) == len(lost)
    same_bits(copy, whole)


@pytest.mark.parametrize("harm", ["truncated", "flipped", "edited", "swapped", "emptied"])
def test_a_damaged_piece_is_noticed_computed_again_and_said(finished, copy, counted, harm):
    experiment, _, whole = finished
    first, second, *_ = sorted((copy / "pieces").iterdir())
    match harm:
        case "truncated":
            first.write_bytes(first.read_bytes()[:-100])
        case "flipped":
            first.write_bytes(flipped(first.read_bytes(), first.stat().st_size // 3))
        case "edited":
            column = "validation_accuracy"
            edited = pl.read_parquet(first).with_columns(pl.col(column) * 1.01)
            edited.write_parquet(first, metadata=pl.read_parquet_metadata(first))
        case "swapped":
            shutil.copy(second, first)
        case "emptied":
            first.write_bytes(b"")
    heard = []
    partly = fa.Results.read(copy)
    assert any("damaged" in note for note in partly.notes)
    again = fa.run(experiment, into=copy, progress=lambda share, text: heard.append((share, text)))
    assert len(counted) == 1
    assert any(
        f"piece {first.stem[:12]} is damaged" in text and "computed again" in text
        for _, text in heard
    )
    assert any("Damaged on the disk and computed again: 1 of" in note for note in again.notes)
    assert [entry.key for entry in RunFolder(copy).log() if entry.event == DAMAGED] == [first.stem]
    same_bits(copy, whole)


def test_progress_rises_and_says_how_long(tmp_path, finished):
    heard = []
    experiment = finished[0]
    fa.run(
        experiment, into=tmp_path / "run", progress=lambda share, text: heard.append((share, text))
    )
    shares = [share for share, _ in heard]
    assert all(0 <= share <= 1 for share in shares)
    assert heard[-1] == (1.0, "done")
    assert heard[0][1].startswith(f"0 of {PIECES} pieces · tuning: local")
    assert any("about" in text and "left" in text for _, text in heard)
    same_bits(tmp_path / "run", finished[2])


def test_the_environment_is_kept_without_names_of_this_machine(finished):
    held = json.loads((finished[2] / ENVIRONMENT).read_text())
    assert set(held) == {"python", "fedasym", "jax", "device", "platform", "command"}
    assert "/" not in held["command"].split()[0]


def test_another_experiment_makes_other_pieces_and_orphans_are_cleaned(finished, copy, counted):
    experiment, _, whole = finished
    changed = experiment.model_copy(
        update={"settings": experiment.settings.model_copy(update={"rounds": 3})}
    )
    fa.run(changed, into=copy)
    assert len(counted) == PIECES
    assert tables.run_status(copy).orphans == PIECES
    (copy / "pieces" / f".{'0' * 64}.parquet.1.ab.part").write_bytes(b"half")
    files, size = tables.clean_run(copy)
    assert files == PIECES + 1
    assert size > 0
    assert len(list((copy / "pieces").iterdir())) == len(list((copy / "locks").iterdir())) == PIECES
    counted.clear()
    fa.run(changed, into=copy)
    assert counted == []
    assert not frames(copy).keys() & frames(whole).keys()


def test_cleaning_waits_until_it_is_known_what_is_wanted(finished, copy):
    assert tables.clean_run(copy) == (0, 0)
    experiment = finished[0]
    key = next(iter(wanted_pieces(RunFolder(copy))[0]))
    (copy / "pieces" / f"{key}.parquet").unlink()
    before = len(list((copy / "pieces").iterdir()))
    with pytest.raises(fa.InvalidInput, match="has not finished tuning"):
        tables.clean_run(copy)
    assert len(list((copy / "pieces").iterdir())) == before
    assert tables.run_status(copy).state == "unfinished"
    unfinished = fa.Results.read(copy)
    assert unfinished.tuned == {}
    assert any(
        note.startswith("Unfinished: 1 of the 3 pieces planned so far") for note in unfinished.notes
    )
    assert experiment.name in str(unfinished)


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path, finished):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(fa.InvalidInput, match="holds other things"):
        fa.run(finished[0], into=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(fa.InvalidInput, match="cannot be a run folder"):
        fa.run(finished[0], into=tmp_path / "thesis.txt" / "run")
    with pytest.raises(fa.InvalidInput, match="is not a run folder"):
        fa.Results.read(tmp_path)


def test_a_run_that_was_only_just_begun_is_gone_on_with(tmp_path, finished):
    """By another process at this moment, or by one that was killed before it wrote the
    experiment.
    """
    (tmp_path / "pieces").mkdir()
    (tmp_path / "locks").mkdir()
    (tmp_path / ".experiment.toml.17.0a1b2c3d.part").write_text("name = ")
    assert fa.run(finished[0], into=tmp_path).tuned == finished[1].tuned


def test_ctrl_c_within_a_piece_keeps_the_others_and_nothing_of_it(finished, tmp_path, counted):
    experiment, _, whole = finished

    def stop(share, text):
        if text.startswith("5 of") and "round 2" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fa.run(experiment, into=tmp_path / "run", progress=stop)
    assert len(frames(tmp_path / "run")) == 5
    counted.clear()
    fa.run(experiment, into=tmp_path / "run")
    assert len(counted) == PIECES - 5
    same_bits(tmp_path / "run", whole)
