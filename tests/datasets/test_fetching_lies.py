"""Servers that lie, redirect, never end or are gone: refused in words, and nothing is left."""

import hashlib
import socket
from itertools import count

import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import archives, fetch
from fedasym.data.archives import ARCHIVES

from .serving import BODY, HALF, check, described, left

pytestmark = pytest.mark.usefixtures("toy")


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_wrong_checksum_is_refused_and_nothing_is_left(server, home, size, monkeypatch):
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY, size),))
    wrong = BODY[:-1] + bytes([BODY[-1] ^ 1])
    server.files["/toy.tar.bz2"] = wrong
    with pytest.raises(InvalidInput) as caught:
        fetch("toy", source=server.url)
    for word in (
        "toy.tar.bz2",
        hashlib.sha256(BODY).hexdigest(),
        hashlib.sha256(wrong).hexdigest(),
    ):
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
    with pytest.raises(
        InvalidInput, match=f"has {length} bytes, but toy.tar.bz2 has {len(BODY)} bytes"
    ):
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
    monkeypatch.setattr(archives, "CONNECTIONS", 10)
    monkeypatch.setattr(archives, "WAIT", 0.0)
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
    for word in (
        f"http://127.0.0.1:{port}/toy.tar.bz2",
        "refused",
        "give source=",
        "FEDASYM_DATA",
        "toy.tar.bz2",
    ):
        assert word in str(caught.value)
    assert left(home) == []


@pytest.mark.parametrize(
    "address", ["ftp://there/toy", "file:///tmp/toy.tar.bz2", "http://", "http://a b/"]
)
def test_addresses_that_are_none(address):
    with pytest.raises(InvalidInput, match="http"):
        fetch("toy", source=address)
