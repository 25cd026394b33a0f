"""What the tests of fetching share: an archive, a server that answers as it is told, and what a
folder then holds.
"""

import hashlib
import http.server
import io
import tarfile

import numpy as np

from fedasym.data.archives import Archive

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
    return Archive(
        "toy", "toy.tar.bz2", hashlib.sha256(content).hexdigest(), size, inside, **limits
    )


BODY = packed(FILES)
HALF = len(BODY) // 2


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` with Range, as `answer` wants it; remembers what it was asked and how many
    bytes it sent.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.sent, self.answer, self.etag = (
            {"/toy.tar.bz2": BODY},
            [],
            0,
            Handler.whole,
            '"one"',
        )
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


def left(home):
    """Everything in the folder but the lock, which stays."""
    return sorted(path.name for path in home.iterdir() if path.name != ".lock")


def check(home):
    assert {name: (home / name).read_bytes() for name in FILES} == FILES
    assert left(home) == sorted([*FILES, ".toy.tar.bz2.json"])
