"""Archives that are not what they should be: nothing escapes, nothing fills the memory."""

import tarfile
import tracemalloc

import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import fetch
from fedasym.data.archives import ARCHIVES

from .serving import BODY, FILES, HALF, TRAIN, check, described, left, member, packed

pytestmark = pytest.mark.usefixtures("toy")


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("a/../../outside"),
        member("/tmp/outside"),
        member("..\\outside"),
        member("C:\\outside"),
        member("toy_extra", tarfile.SYMTYPE, "/etc/passwd"),
        member("toy_extra", tarfile.LNKTYPE, "toy_train.h5"),
        member("toy_extra", tarfile.CHRTYPE),
        member("toy_extra", tarfile.FIFOTYPE),
    ],
    ids=lambda entry: f"{entry.name}{entry.type}",
)
def test_archives_that_try_to_escape_are_refused_by_name(server, home, monkeypatch, bad):
    body = packed(FILES, bad)
    monkeypatch.setitem(ARCHIVES, "toy", (described(body),))
    server.files["/toy.tar.bz2"] = body
    with pytest.raises(InvalidInput) as caught:
        fetch("toy", source=server.url)
    assert repr(bad.name) in str(caught.value)
    assert "nothing of it was unpacked" in str(caught.value)
    assert left(home) == []
    assert sorted(path.name for path in home.parent.parent.iterdir()) == ["data"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (packed({"toy_train.h5": TRAIN}), "has no toy_test.h5"),
        (packed(FILES, member("./toy_test.h5")), "'toy_test.h5' twice"),
        (
            packed({"toy_train.h5": TRAIN}, member("toy_test.h5", tarfile.DIRTYPE)),
            "has no toy_test.h5",
        ),
        (
            packed({"toy_train.h5": TRAIN}, member("toy_test.h5", tarfile.SYMTYPE, "toy_train.h5")),
            "link or a device",
        ),
        (packed(FILES | {"huge": bytes(2_000_000)}), "unpacks to more than 1.0 MB"),
        (BODY[:HALF], "cannot be read|has no"),
        (BODY[:HALF] + bytes(9) + BODY[HALF + 9 :], "cannot be read|has no"),
        (b"no archive", "cannot be read as a .tar.bz2"),
        (b"", "cannot be read as a .tar.bz2"),
    ],
)
def test_archives_that_are_refused(home, tmp_path, monkeypatch, body, words):
    monkeypatch.setitem(ARCHIVES, "toy", (described(body, unpacked_limit=10**6),))
    (tmp_path / "toy.tar.bz2").write_bytes(body)
    with pytest.raises(InvalidInput, match=words):
        fetch("toy", source=tmp_path)
    assert left(home) == []
    assert (tmp_path / "toy.tar.bz2").read_bytes() == body


def test_unexpected_members_are_not_unpacked(home, tmp_path, monkeypatch):
    body = packed(
        {"notes.txt": b"hello", **{f"./{name}": FILES[name] for name in FILES}},
        member("sub", tarfile.DIRTYPE),
    )
    monkeypatch.setitem(ARCHIVES, "toy", (described(body),))
    (tmp_path / "toy.tar.bz2").write_bytes(body)
    fetch("toy", source=tmp_path)
    check(home)


def test_memory_stays_small_however_much_an_archive_expands_to(home, tmp_path, monkeypatch):
    body = packed({"big": bytes(60_000_000), "after": b"x"})
    assert len(body) < 1000
    monkeypatch.setitem(ARCHIVES, "toy", (described(body, inside=("big", "after")),))
    (tmp_path / "toy.tar.bz2").write_bytes(body)
    tracemalloc.start()
    try:
        fetch("toy", source=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert (home / "big").stat().st_size == 60_000_000
