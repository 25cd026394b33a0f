"""Fetching archives from a server that is slow, forgetful, full of tricks or gone: whole files or none, and nothing twice."""

import errno
import hashlib
import http.server
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from fedasym.datasets import archives, downloading, fetching
from fedasym.datasets.archives import ADDRESS, ARCHIVES, Archive
from fedasym.datasets.fetching import data_folder, fetch
from fedasym.errors import InvalidInput

HDF5 = b"\x89HDF\r\n\x1a\n"
# Random, so that it does not shrink when it is packed: the archive is about 120 kB.
TRAIN = HDF5 + np.random.default_rng(0).bytes(100_000)
TEST = HDF5 + np.random.default_rng(1).bytes(20_000)
FILES = {"toy_train.h5": TRAIN, "toy_test.h5": TEST}


def member(name, kind=tarfile.REGTYPE, link=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


def packed(files, *others):
    """A .tar.bz2 with these files and other members."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:bz2") as tar:
        for name, content in files.items():
            entry = member(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for entry in others:
            tar.addfile(entry)
    return held.getvalue()


def described(content, size=None, inside=tuple(FILES), **limits):
    return Archive("toy", "toy.tar.bz2", hashlib.sha256(content).hexdigest(), size, inside, **limits)


BODY = packed(FILES)
HALF = len(BODY) // 2


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` with Range, as `answer` wants it; remembers what it was asked and how many bytes it sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.sent, self.answer, self.etag = {"/toy.tar.bz2": BODY}, [], 0, Handler.whole, '"one"'
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A client that goes away is no news."""

    @property
    def ranges(self):
        return [headers.get("Range") for _, headers in self.asked]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        if self.path not in self.server.files:
            self.send_error(404)
            return
        self.server.answer(self)

    def log_message(self, *_):
        pass

    def begin(self, ranges=True, length=True):
        """Send the headers, and give the bytes that are due."""
        body = self.server.files[self.path]
        asked = self.headers.get("Range") if ranges else None
        if asked and self.headers.get("If-Range", self.server.etag) == self.server.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return b""
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            start = 0
            self.send_response(200)
        if length:
            self.send_header("Content-Length", str(len(body) - start if length is True else length))
        self.send_header("ETag", self.server.etag)
        self.end_headers()
        return body[start:]

    def send(self, content):
        self.wfile.write(content)
        self.server.sent += len(content)

    def whole(self):
        self.send(self.begin())


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    """The data set of these tests, an empty data folder, and no long waits."""
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY),))
    monkeypatch.setenv("FEDASYM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(downloading, "WAIT", 0.01)
    monkeypatch.setattr(downloading, "TRIES", 2)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "data" / "toy"


def left(home):
    """Everything in the folder but the lock, which stays."""
    return sorted(path.name for path in home.iterdir() if path.name != ".lock")


def check(home):
    assert {name: (home / name).read_bytes() for name in FILES} == FILES
    assert left(home) == sorted([*FILES, ".toy.tar.bz2.json"])


def drop_after(pieces):
    """Send the answers to the first requests only so far."""
    numbers = count()

    def answer(self):
        due, number = self.begin(), next(numbers)
        self.send(due[: pieces[number]] if number < len(pieces) else due)

    return answer


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


def test_data_folder_of_each_system(monkeypatch, tmp_path):
    assert data_folder() == tmp_path / "data"
    monkeypatch.setenv("FEDASYM_DATA", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_folder() == tmp_path / "x" / "fedasym" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == tmp_path / ".cache" / "fedasym" / "data"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder() == tmp_path / "Library" / "Caches" / "fedasym" / "data"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data_folder() == tmp_path / "local" / "fedasym" / "data"


def test_unknown_name():
    with pytest.raises(InvalidInput, match="did you mean shakespeare"):
        fetch("shakespear")


# Downloading


def test_fetch_then_no_request_again(server, home):
    told = []
    assert fetch("toy", source=server.url, progress=lambda *each: told.append(each)) == home
    check(home)
    assert told[0] == (0.0, f"toy.tar.bz2, {archives.amount(len(BODY))} from {server.url}/toy.tar.bz2")
    assert told[-1] == (1.0, "done")
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert len(server.asked) == 1
    told.clear()
    assert fetch("toy", source=server.url, progress=lambda *each: told.append(each)) == home
    assert fetch("toy") == home
    assert len(server.asked) == 1
    assert not told


def test_default_address(server, home, monkeypatch):
    monkeypatch.setattr(fetching, "ADDRESS", f"{server.url}/")
    check(fetch("toy"))


def test_mirror_by_file_and_other_folder(server, tmp_path):
    assert fetch("toy", source=f"{server.url}/toy.tar.bz2", folder=tmp_path / "other") == tmp_path / "other" / "toy"
    check(tmp_path / "other" / "toy")


def test_damaged_or_changed_data_is_fetched_again(server, home):
    fetch("toy", source=server.url)
    for damage in (
        lambda: (home / "toy_test.h5").write_bytes(TEST[:-1]),
        (home / "toy_train.h5").unlink,
        lambda: (home / ".toy.tar.bz2.json").write_text("{"),
        lambda: (home / ".toy.tar.bz2.json").write_text("[]"),
    ):
        before = len(server.asked)
        damage()
        fetch("toy", source=server.url)
        assert len(server.asked) == before + 1
        check(home)


def test_two_archives_in_one_folder(server, tmp_path, monkeypatch):
    first, second = packed({"a.h5": TRAIN}), packed({"words": b"the 3\n"})
    pair = (described(first, inside=("a.h5",)), Archive("w", "w.tar.bz2", hashlib.sha256(second).hexdigest(), None, ("words",)))
    monkeypatch.setitem(ARCHIVES, "pair", pair)
    server.files = {"/m/toy.tar.bz2": first, "/m/w.tar.bz2": second}
    told = []
    home = fetch("pair", source=f"{server.url}/m/toy.tar.bz2", progress=lambda *each: told.append(each))
    assert sorted(path.name for path in home.glob("[a-z]*")) == ["a.h5", "words"]
    assert [share for share, text in told if " from http" in text] == [0.0, 0.5]
    (home / "words").unlink()
    fetch("pair", source=f"{server.url}/m/")
    assert [path for path, _ in server.asked] == ["/m/toy.tar.bz2", "/m/w.tar.bz2", "/m/w.tar.bz2"]


def test_slow_server_tells_bytes_and_rate(server, home, monkeypatch):
    monkeypatch.setattr(downloading, "OFTEN", 0.02)

    def answer(self):
        due = self.begin()
        for start in range(0, len(due), 10_000):
            self.send(due[start : start + 10_000])
            time.sleep(0.02)

    server.answer = answer
    told = []
    fetch("toy", source=server.url, progress=lambda _, text: told.append(text))
    check(home)
    assert any(text.startswith("toy.tar.bz2: ") and " of " in text and text.endswith("/s") for text in told)


def test_dropped_connections_resume_and_nothing_is_sent_twice(server, home):
    server.answer = drop_after([30_000, 0, 20_000, 1])
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == [None, "bytes=30000-", "bytes=30000-", "bytes=50000-", "bytes=50001-"]
    assert server.sent == len(BODY)
    assert server.asked[1][1]["If-Range"] == '"one"'


def test_file_that_changes_between_two_connections_begins_again(server, home):
    pieces = drop_after([30_000])

    def answer(self):
        if len(server.asked) == 1:
            server.files["/toy.tar.bz2"] = bytes(len(BODY))
        pieces(self)
        server.files["/toy.tar.bz2"], server.etag = BODY, '"two"'

    server.answer = answer
    fetch("toy", source=server.url)
    check(home)
    assert server.sent == 30_000 + len(BODY)


@pytest.mark.parametrize("etag", ['"one"', 'W/"weak"'])
def test_stale_part_of_another_file_begins_again(server, home, etag):
    server.etag = etag
    home.mkdir(parents=True)
    (home / "toy.tar.bz2.part").write_bytes(bytes(1000))
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == ["bytes=1000-", None]


def test_part_that_is_longer_than_the_file_begins_again(server, home):
    home.mkdir(parents=True)
    (home / "toy.tar.bz2.part").write_bytes(bytes(len(BODY) + 1))
    fetch("toy", source=server.url)
    check(home)


def test_whole_part_is_unpacked_without_a_request(server, home):
    home.mkdir(parents=True)
    (home / "toy.tar.bz2.part").write_bytes(BODY)
    fetch("toy", source=server.url)
    check(home)
    assert not server.asked


def test_stalled_connection_is_given_up_and_resumed(server, home, monkeypatch):
    monkeypatch.setattr(downloading, "STALL", 0.2)
    release = threading.Event()

    def answer(self):
        due = self.begin()
        if len(server.asked) > 1:
            self.send(due)
        else:
            self.send(due[:HALF])
            release.wait(10)

    server.answer = answer
    began = time.monotonic()
    fetch("toy", source=server.url)
    assert time.monotonic() - began < 5
    release.set()
    check(home)
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_server_without_ranges_restarts_cleanly(server, home):
    def answer(self):
        due = self.begin(ranges=False)
        self.send(due if len(server.asked) > 2 else due[:HALF])

    server.answer = answer
    fetch("toy", source=server.url)
    check(home)
    assert len(server.asked) == 3


def test_server_that_sends_another_piece(server, home):
    def answer(self):
        if self.headers.get("Range"):
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 5-{len(BODY) - 1}/{len(BODY)}")
            self.send_header("Content-Length", str(len(BODY) - 5))
            self.end_headers()
            self.send(BODY[5:])
        else:
            self.send(self.begin()[: None if len(server.asked) > 1 else HALF])

    server.answer = answer
    told = []
    fetch("toy", source=server.url, progress=lambda _, text: told.append(text))
    check(home)
    assert any("another piece than it was asked for" in text for text in told)


def test_passing_trouble_of_a_server_is_waited_out(server, home):
    numbers = count()
    server.answer = lambda self: self.whole() if next(numbers) else self.send_error(503)
    fetch("toy", source=server.url)
    check(home)


def test_absent_file_is_not_asked_for_twice(server, home):
    server.files = {}
    with pytest.raises(InvalidInput, match=r"answers 404 Not Found; give source="):
        fetch("toy", source=server.url)
    assert len(server.asked) == 1
    assert left(home) == []


def test_chunked_answer(server, home):
    Handler.protocol_version = "HTTP/1.1"

    def answer(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for start in range(0, len(BODY), 50_000):
            piece = BODY[start : start + 50_000]
            self.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            if len(server.asked) == 1:
                return  # without the last chunk: this one was dropped
        self.send(b"0\r\n\r\n")

    server.answer = answer
    told = []
    try:
        fetch("toy", source=server.url, progress=lambda _, text: told.append(text))
    finally:
        Handler.protocol_version = "HTTP/1.0"
    check(home)
    assert "of a size that the server does not say" in told[0]


# Servers that lie


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_wrong_checksum_is_refused_and_nothing_is_left(server, home, size, monkeypatch):
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY, size),))
    wrong = BODY[:-1] + bytes([BODY[-1] ^ 1])
    server.files["/toy.tar.bz2"] = wrong
    with pytest.raises(InvalidInput) as caught:
        fetch("toy", source=server.url)
    for word in ("toy.tar.bz2", hashlib.sha256(BODY).hexdigest(), hashlib.sha256(wrong).hexdigest()):
        assert word in str(caught.value)
    assert left(home) == []


def test_wrong_file_that_always_drops_is_given_up(server, home):
    server.files["/toy.tar.bz2"] = bytes(len(BODY))
    numbers = count()

    def answer(self):
        due = self.begin()
        self.send(due if next(numbers) % 2 else due[:HALF])

    server.answer = answer
    with pytest.raises(InvalidInput, match="checksum"):
        fetch("toy", source=server.url)
    assert len(server.asked) == 4
    assert left(home) == []


def test_length_said_too_long(server, home):
    server.answer = lambda self: self.send(self.begin(ranges=False, length=len(BODY) + 10))
    with pytest.raises(InvalidInput, match=f"ended after {len(BODY)} of {len(BODY) + 10} bytes"):
        fetch("toy", source=server.url)


def test_length_said_too_short(server, home):
    server.answer = lambda self: self.send(self.begin(length=1000))
    with pytest.raises(InvalidInput, match="checksum"):
        fetch("toy", source=server.url)
    assert left(home) == []


@pytest.mark.parametrize("length", [1000, len(BODY) + 1])
def test_length_that_the_archive_does_not_have(server, home, monkeypatch, length):
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY, len(BODY)),))
    server.answer = lambda self: self.send(self.begin(length=length))
    with pytest.raises(InvalidInput, match=f"has {length} bytes, but toy.tar.bz2 has {len(BODY)} bytes"):
        fetch("toy", source=server.url)
    assert left(home) == []


def test_endless_answer_is_stopped(server, home, monkeypatch):
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY, download_limit=10**6),))

    def answer(self):
        self.begin(length=False)
        while True:
            self.send(bytes(65536))

    server.answer = answer
    with pytest.raises(InvalidInput, match=r"does not end: toy.tar.bz2 has at most 1000000 bytes"):
        fetch("toy", source=server.url)
    assert left(home) == []


def test_server_that_drops_every_byte_is_given_up(server, home, monkeypatch):
    monkeypatch.setattr(downloading, "CONNECTIONS", 10)
    monkeypatch.setattr(downloading, "WAIT", 0.0)
    server.answer = lambda self: self.send(self.begin()[:1])
    with pytest.raises(InvalidInput, match="the first 10 bytes are kept"):
        fetch("toy", source=server.url)
    assert len(server.asked) == 10


def test_redirects_stay_on_http(server, home, tmp_path):
    (tmp_path / "toy.tar.bz2").write_bytes(BODY)

    def answer(self):
        self.send_response(302)
        self.send_header("Location", (tmp_path / "toy.tar.bz2").as_uri())
        self.send_header("Content-Length", "0")
        self.end_headers()

    server.answer = answer
    with pytest.raises(InvalidInput, match="302"):
        fetch("toy", source=server.url)


def test_redirect_to_another_place(server, home):
    server.files["/old/toy.tar.bz2"] = b""

    def answer(self):
        if self.path.startswith("/old"):
            self.send_response(302)
            self.send_header("Location", f"{server.url}/toy.tar.bz2")
            self.end_headers()
        else:
            self.whole()

    server.answer = answer
    fetch("toy", source=f"{server.url}/old")
    check(home)


def test_offline_says_what_to_do(home):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(InvalidInput) as caught:
        fetch("toy", source=f"http://127.0.0.1:{port}")
    for word in (f"http://127.0.0.1:{port}/toy.tar.bz2", "refused", "give source=", "FEDASYM_DATA", "toy.tar.bz2"):
        assert word in str(caught.value)
    assert left(home) == []


@pytest.mark.parametrize("address", ["ftp://there/toy", "file:///tmp/toy.tar.bz2", "http://", "http://a b/"])
def test_addresses_that_are_none(address):
    with pytest.raises(InvalidInput, match="http"):
        fetch("toy", source=address)


# Full disks and folders that cannot be written


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
from fedasym.datasets import archives, fetching
from fedasym.errors import InvalidInput
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
archives.ARCHIVES["toy"] = (archives.Archive("toy", "toy.tar.bz2", {sha!r}, None, {inside!r}),)
try:
    fetching.fetch("toy", source={url!r})
except InvalidInput as reason:
    print(reason)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_disk_that_fills_up_leaves_a_part_that_is_resumed(server, home):
    code = LIMITED.format(limit=50_000, sha=hashlib.sha256(BODY).hexdigest(), inside=tuple(FILES), url=server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "no room for toy.tar.bz2" in done.stdout
    assert str(home) in done.stdout
    assert (home / "toy.tar.bz2.part").stat().st_size == 50_000
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == [None, "bytes=50000-"]


def test_disk_that_fills_up_while_unpacking(server, home, monkeypatch):
    def full(out, piece, needed, what, folder):
        raise archives.no_room(folder, needed, what) from OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(archives, "stored", full)
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
        InvalidInput if code == errno.ENOSPC else OSError, match="no room" if code == errno.ENOSPC else "I/O|output"
    ):
        archives.stored(Failing(), b"x", 7, "it", tmp_path)


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(InvalidInput, match=r"data folder .* cannot be used"):
        fetch("toy", source="http://127.0.0.1:9")


# Archives that are not what they should be


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
        (packed({"toy_train.h5": TRAIN}, member("toy_test.h5", tarfile.DIRTYPE)), "has no toy_test.h5"),
        (packed({"toy_train.h5": TRAIN}, member("toy_test.h5", tarfile.SYMTYPE, "toy_train.h5")), "link or a device"),
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
    body = packed({"notes.txt": b"hello", **{f"./{name}": FILES[name] for name in FILES}}, member("sub", tarfile.DIRTYPE))
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
    assert told[0][1] == f"toy.tar.bz2, {archives.amount(len(BODY))} from {mine / renamed}"
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


# Several processes, and some that die

FETCH = """
from fedasym.datasets import archives, fetching
archives.ARCHIVES["toy"] = (archives.Archive("toy", "toy.tar.bz2", {sha!r}, None, {inside!r}),)
print(fetching.fetch("toy", source={url!r}))
"""


def started(server):
    code = FETCH.format(sha=hashlib.sha256(BODY).hexdigest(), inside=tuple(FILES), url=server.url)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_download_once(server, home):
    both = threading.Event()

    def answer(self):
        both.wait(10)  # the other one is started and waits, or will find it there
        self.whole()

    server.answer = answer
    processes = [started(server) for _ in range(2)]
    time.sleep(0.5)
    both.set()
    for process in processes:
        assert Path(process.communicate(timeout=20)[0].strip()) == home
        assert process.returncode == 0
    assert len(server.asked) == 1
    assert server.sent == len(BODY)
    check(home)


def test_threads_wait_for_each_other_and_say_so(server, home):
    release, told = threading.Event(), []

    def answer(self):
        release.wait(10)
        self.whole()

    def waited(_, text):
        told.append(text)
        if text.startswith("waiting"):
            release.set()

    server.answer = answer
    threads = [threading.Thread(target=fetch, args=("toy",), kwargs={"source": server.url, "progress": waited}) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert told[0] == "waiting for another process that is fetching toy"
    assert len(server.asked) == 1
    check(home)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_in_the_middle_then_resumed(server, home):
    killed = threading.Event()

    def answer(self):
        due = self.begin()
        if len(server.asked) == 1:
            self.send(due[:HALF])
            killed.wait(30)
        else:
            self.send(due)

    server.answer = answer
    process = started(server)
    part, deadline = home / "toy.tar.bz2.part", time.monotonic() + 30
    while not (part.exists() and part.stat().st_size == HALF) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    killed.set()
    (home / ".unpacking-left").mkdir()  # as one that is killed while it unpacks would leave
    (home / ".unpacking-left" / "toy_train.h5").write_bytes(TRAIN[:10])
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert server.sent == len(BODY)


def test_importing_asks_nothing_of_the_network():
    code = "import sys, socket; socket.socket.connect = None; import fedasym.datasets.fetching; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
