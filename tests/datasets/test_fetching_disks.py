"""Fetching to full disks and to folders that cannot be written."""

import errno
import hashlib
import io
import os
import shutil
import subprocess
import sys

import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import archives, fetch

from .serving import BODY, FILES, check, left

pytestmark = pytest.mark.usefixtures("toy")


def test_no_room_is_said_before_the_first_byte(server, home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
    with pytest.raises(InvalidInput) as caught:
        fetch("toy", source=server.url)
    for word in (str(home), f"{len(BODY)} bytes", "toy.tar.bz2", "FEDASYM_DATA"):
        assert word in str(caught.value)
    monkeypatch.undo()
    assert not (home / "toy.tar.bz2.part").read_bytes()


LIMITED = """
import resource, sys
from fedasym.data import archives, fetch
from fedasym.core.errors import InvalidInput
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
archives.ARCHIVES["toy"] = (archives.Archive("toy", "toy.tar.bz2", {sha!r}, None, {inside!r}),)
try:
    fetch("toy", source={url!r})
except InvalidInput as reason:
    print(reason)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_disk_that_fills_up_leaves_a_part_that_is_resumed(server, home):
    code = LIMITED.format(
        limit=50_000, sha=hashlib.sha256(BODY).hexdigest(), inside=tuple(FILES), url=server.url
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no room for toy.tar.bz2" in done.stdout
    assert str(home) in done.stdout
    assert (home / "toy.tar.bz2.part").stat().st_size == 50_000
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == [None, "bytes=50000-"]


def test_disk_that_fills_up_while_unpacking(server, home, monkeypatch):
    write = archives.write_bytes

    def full(out, piece, needed, what, folder):
        if what == "toy.tar.bz2":  # the download itself has room
            return write(out, piece, needed, what, folder)
        raise archives.full_disk_error(folder, needed, what) from OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(archives, "write_bytes", full)
        with pytest.raises(InvalidInput, match=r"no room for toy_train.h5"):
            fetch("toy", source=server.url)
    assert left(home) == ["toy.tar.bz2.part"]
    fetch("toy", source=server.url)
    check(home)
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_what_a_failed_write_says(code, tmp_path):
    class Failing(io.BytesIO):
        def write(self, piece):
            raise OSError(code, os.strerror(code))

    with pytest.raises(
        InvalidInput if code == errno.ENOSPC else OSError,
        match="no room" if code == errno.ENOSPC else "I/O|output",
    ):
        archives.write_bytes(Failing(), b"x", 7, "it", tmp_path)


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(InvalidInput, match=r"data folder .* cannot be used"):
        fetch("toy", source="http://127.0.0.1:9")
