"""What fetching needs no server for: names, data folders, files and archives that the user has, and
importing.
"""

import shutil
import subprocess
import sys

import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import archives, data_folder, fetch
from fedasym.data.archives import ADDRESS, ARCHIVES

from .serving import BODY, FILES, check, left

pytestmark = pytest.mark.usefixtures("toy")


# What is there


def test_the_public_archives():
    assert sorted(set(ARCHIVES) - {"toy"}) == ["cifar100", "emnist", "shakespeare", "stackoverflow"]
    for name, each in ARCHIVES.items():
        for archive in each:
            assert len(archive.sha256) == 64, name
            assert archive.inside, name
    assert [archive.file for archive in ARCHIVES["stackoverflow"]] == [
        "stackoverflow.tar.bz2",
        "stackoverflow.word_count.tar.bz2",
    ]
    assert ADDRESS == "https://storage.googleapis.com/tff-datasets-public/"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_data_folder(monkeypatch, tmp_path):
    assert data_folder() == tmp_path / "data"
    monkeypatch.setenv("FEDASYM_DATA", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert data_folder() == tmp_path / "x" / "fedasym" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == tmp_path / ".cache" / "fedasym" / "data"


def test_unknown_name():
    with pytest.raises(InvalidInput, match="did you mean shakespeare"):
        fetch("shakespear")


# What the user has


def test_unpacked_files_are_used_in_place(tmp_path, home):
    mine = tmp_path / "mine" / "toy"
    mine.mkdir(parents=True)
    for name, content in FILES.items():
        (mine / name).write_bytes(content)
    for source in (mine, str(mine), mine.parent, mine / "toy_test.h5"):
        assert fetch("toy", source=source) == mine
    assert not home.exists()
    shutil.copytree(mine, home)  # and so are those that a user puts into the data folder
    assert fetch("toy") == home
    assert left(home) == sorted(FILES)


@pytest.mark.parametrize("renamed", ["toy.tar.bz2", "download (1)"])
def test_archive_that_the_user_has(tmp_path, home, renamed):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / renamed).write_bytes(BODY)
    told = []
    fetch("toy", source=mine / renamed, progress=lambda *each: told.append(each))
    check(home)
    assert (mine / renamed).read_bytes() == BODY
    assert told[0][1] == f"toy.tar.bz2, {archives.byte_amount(len(BODY))} from {mine / renamed}"
    assert told[-1] == (1.0, "done")


def test_sources_that_are_refused(tmp_path, home):
    with pytest.raises(InvalidInput, match="no such file or folder"):
        fetch("toy", source=tmp_path / "absent")
    with pytest.raises(InvalidInput, match=r"toy_train.h5 and toy_test.h5"):
        fetch("toy", source=tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("<html>not found</html>")
    with pytest.raises(InvalidInput, match="HDF5"):
        fetch("toy", source=tmp_path)
    (tmp_path / "toy.tar.bz2").write_bytes(BODY[:-1])
    with pytest.raises(InvalidInput, match="expected SHA-256"):
        fetch("toy", source=tmp_path / "toy.tar.bz2")
    assert (tmp_path / "toy.tar.bz2").exists()
    assert left(home) == []


def test_importing_asks_nothing_of_the_network():
    code = (
        "import sys, socket; socket.socket.connect = None; import fedasym.data;"
        " print('numpy' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )
