"""Files that are there whole or not at all."""

import os

import pytest

from fedasym.core.runtime import replace_file, replace_text


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def failing(fresh, reason):
    fresh.write_text("half")
    raise reason


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    replace_text(path, "old")
    with replace_file(path) as fresh:
        fresh.write_text("n")
        assert path.read_text() == "old"
        fresh.write_text("new")
    assert path.read_text() == "new"
    assert left(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    "reason", [OSError("the disk is full"), ValueError("no number"), KeyboardInterrupt()]
)
def test_what_fails_leaves_the_old_file_and_nothing_beside(tmp_path, reason):
    path = tmp_path / "a.txt"
    replace_text(path, "old")
    with pytest.raises(type(reason)), replace_file(path) as fresh:
        failing(fresh, reason)
    assert path.read_text() == "old"
    assert left(tmp_path) == ["a.txt"]


def test_a_folder_in_the_way_or_missing_is_an_error_of_the_system(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_text(tmp_path / "folder", "text")
    with pytest.raises(FileNotFoundError):
        replace_text(tmp_path / "missing" / "a.txt", "text")
    assert left(tmp_path) == ["folder"]


def test_content_reaches_the_disk_before_the_name_and_then_the_folder(tmp_path, monkeypatch):
    path, happened = tmp_path / "a.txt", []
    fsync, replace = os.fsync, os.replace

    def flushing(descriptor):
        happened.append(
            "folder" if os.fstat(descriptor).st_ino == tmp_path.stat().st_ino else "content"
        )
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", lambda *paths: (happened.append("name"), replace(*paths)))
    replace_text(path, "text")
    assert happened == ["content", "name", "folder"]


def test_a_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain.txt").write_text("text")
    replace_text(tmp_path / "ours.txt", "text")
    assert (tmp_path / "ours.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_text_is_the_same_bytes_everywhere(tmp_path):
    replace_text(tmp_path / "a.txt", "d/n = γ\n")
    assert (tmp_path / "a.txt").read_bytes() == "d/n = γ\n".encode()
