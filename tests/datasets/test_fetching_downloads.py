"""Downloads from servers that are slow, forgetful or drop connections: whole files, resumed, and
nothing twice.
"""

import hashlib
import threading
import time
from itertools import count

import pytest

from fedasym import data
from fedasym.core.errors import InvalidInput
from fedasym.data import archives, fetch
from fedasym.data.archives import ARCHIVES, Archive

from .serving import BODY, HALF, TEST, TRAIN, Handler, check, described, left, packed

pytestmark = pytest.mark.usefixtures("toy")


def drop_after(pieces):
    """Send the answers to the first requests only so far."""
    numbers = count()

    def answer(self):
        due, number = self.begin(), next(numbers)
        self.send(due[: pieces[number]] if number < len(pieces) else due)

    return answer


def test_fetch_then_no_request_again(server, home):
    told = []
    assert fetch("toy", source=server.url, progress=lambda *each: told.append(each)) == home
    check(home)
    assert told[0] == (
        0.0,
        f"toy.tar.bz2, {archives.byte_amount(len(BODY))} from {server.url}/toy.tar.bz2",
    )
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
    monkeypatch.setattr(data, "ADDRESS", f"{server.url}/")
    check(fetch("toy"))


def test_mirror_by_file_and_other_folder(server, tmp_path):
    assert (
        fetch("toy", source=f"{server.url}/toy.tar.bz2", folder=tmp_path / "other")
        == tmp_path / "other" / "toy"
    )
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
    pair = (
        described(first, inside=("a.h5",)),
        Archive("w", "w.tar.bz2", hashlib.sha256(second).hexdigest(), None, ("words",)),
    )
    monkeypatch.setitem(ARCHIVES, "pair", pair)
    server.files = {"/m/toy.tar.bz2": first, "/m/w.tar.bz2": second}
    told = []
    home = fetch(
        "pair", source=f"{server.url}/m/toy.tar.bz2", progress=lambda *each: told.append(each)
    )
    assert sorted(path.name for path in home.glob("[a-z]*")) == ["a.h5", "words"]
    assert [share for share, text in told if " from http" in text] == [0.0, 0.5]
    (home / "words").unlink()
    fetch("pair", source=f"{server.url}/m/")
    assert [path for path, _ in server.asked] == ["/m/toy.tar.bz2", "/m/w.tar.bz2", "/m/w.tar.bz2"]


def test_slow_server_tells_bytes_and_rate(server, home, monkeypatch):
    monkeypatch.setattr(archives, "OFTEN", 0.02)

    def answer(self):
        due = self.begin()
        for start in range(0, len(due), 10_000):
            self.send(due[start : start + 10_000])
            time.sleep(0.02)

    server.answer = answer
    told = []
    fetch("toy", source=server.url, progress=lambda _, text: told.append(text))
    check(home)
    assert any(
        text.startswith("toy.tar.bz2: ") and " of " in text and text.endswith("/s") for text in told
    )


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
    monkeypatch.setattr(archives, "STALL", 0.2)
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
