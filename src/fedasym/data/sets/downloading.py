"""One file over HTTP into a `.part` file that the next call goes on from, its SHA-256 computed while it is read.

What a server says is not believed: lengths are counted, an endless answer is stopped, and only the hash decides in the end.
"""

from __future__ import annotations

import hashlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from types import TracebackType

from fedasym.core.errors import InvalidInput
from fedasym.data.sets.archives import PIECE, Archive, amount, check_room, stored

STALL = 30.0  # seconds without a byte after which a connection counts as dropped
WAIT = 0.25  # seconds before trying again, doubled after each try that brought nothing
TRIES = 5  # tries in a row that may bring nothing
CONNECTIONS = 200  # for one file at most: a server that drops each after a byte is given up
OFTEN = 0.1  # seconds between two reports
Tell = Callable[[float, str], None]


class Dropped(Exception):
    """A connection that ended before the file did; another try may go on."""


class Part:
    """The bytes that are here, in their file and in their hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("a+b", buffering=0)  # no buffer: what is counted is in the file, also when killed
        self.sha, self.size = hashlib.sha256(), 0
        self.file.seek(0)
        while piece := self.file.read(PIECE):
            self.sha.update(piece)
            self.size += len(piece)
        self.resumed = self.size > 0

    def __enter__(self) -> Part:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.close()

    def add(self, piece: bytes, total: int | None, name: str) -> None:
        """Write a piece that arrived."""
        needed = len(piece) if total is None else total - self.size
        stored(self.file, piece, needed, name, self.path.parent)
        self.sha.update(piece)
        self.size += len(piece)

    def restart(self) -> None:
        """Forget everything."""
        self.file.truncate(0)
        self.sha, self.size, self.resumed = hashlib.sha256(), 0, False

    def remove(self) -> None:
        """Leave nothing."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def download(archive: Archive, url: str, path: Path, tell: Tell, offer: str) -> None:
    """Bring `path` to hold exactly the archive, from what is there already; `offer` says what else a user can do."""
    with Part(path) as part:
        again = False
        while part.sha.hexdigest() != archive.sha256:
            if part.size >= archive.largest:
                part.restart()  # longer than the archive can be: of no use
            brought(archive, url, part, tell, offer)
            found = part.sha.hexdigest()
            if found != archive.sha256 and part.resumed and not again:
                again = True  # perhaps the halves of two different files: once more, from one
                part.restart()
            elif found != archive.sha256:
                part.remove()
                raise InvalidInput(
                    f"{url} has another checksum than {archive.file} must have: expected SHA-256 {archive.sha256}, found "
                    f"{found}; it was removed. Try again, try another mirror, or {offer}"
                )


def brought(archive: Archive, url: str, part: Part, tell: Tell, offer: str) -> None:
    """Connect as often as it takes until the server says that the file is complete."""
    vain, etag, why = 0, "", ""
    for _ in range(CONNECTIONS):
        before = part.size
        try:
            with connected(url, part, etag, offer) as response:
                etag = response.headers.get("ETag", "")
                received(archive, url, response, part, tell, offer)
            return
        except Dropped as reason:
            vain = 0 if part.size > before else vain + 1
            why = str(reason)
        if vain >= TRIES:
            break
        tell(0.0, f"{archive.file}: {why}; trying again")
        time.sleep(min(WAIT * 2**vain, 30))
    kept = f" (the first {amount(part.size)} are kept, the next call goes on from there)" if part.size else ""
    if not part.size:
        part.remove()
    raise InvalidInput(f"{url} cannot be downloaded: {why}{kept}; check the network and try again, or {offer}")


def connected(url: str, part: Part, etag: str, offer: str) -> HTTPResponse:
    """The server's answer to the request for what is missing."""
    headers = {"User-Agent": "fedasym", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if etag.startswith('"'):  # a weak one says nothing about bytes
            headers["If-Range"] = etag
    # Only HTTP, and only redirects that stay on it: the usual opener would also read local files and FTP.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        answer = opener.open(urllib.request.Request(url, headers=headers), timeout=STALL)
    except urllib.error.HTTPError as reason:
        reason.close()
        if reason.code == 416:  # there is nothing after what is here, and what is here is not the archive
            part.restart()
        if reason.code in (408, 416, 429) or reason.code >= 500:
            raise Dropped(f"the server answers {reason.code} {reason.reason}") from None
        if not part.size:
            part.remove()
        raise InvalidInput(f"{url} is not to be had: the server answers {reason.code} {reason.reason}; {offer}") from None
    except (OSError, HTTPException, ValueError) as reason:  # the last for an address that is none
        raise Dropped(f"no answer from the server ({getattr(reason, 'reason', reason)})") from None
    assert isinstance(answer, HTTPResponse)
    return answer


def received(archive: Archive, url: str, response: HTTPResponse, part: Part, tell: Tell, offer: str) -> None:
    """Read one answer to its end; `Dropped` if that is not the end of the file."""
    total = lengths(response, part)
    limit = archive.largest
    if (total or 0) > limit or (total is not None and archive.size_bytes not in (None, total)):
        part.remove()
        raise InvalidInput(f"{url} has {total} bytes, but {archive.file} has {said(archive)}; try another mirror, or {offer}")
    size = amount(total) if total is not None else "of a size that the server does not say"
    share = (part.size / total) if total else 0.0
    tell(share, f"{archive.file}, {size} from {url}" + (f", going on after {amount(part.size)}" if part.size else ""))
    check_room(part.path.parent, 1 if total is None else total - part.size, archive.file)
    start, began, told = part.size, time.monotonic(), time.monotonic()
    while total is None or part.size < total:
        try:
            # One byte beyond the limit is enough to know that there is more; one arrival at a time, so that a slow one shows.
            piece = response.read1(min(PIECE, (limit + 1 if total is None else total) - part.size))
        except (OSError, HTTPException) as reason:
            raise Dropped(f"the connection was lost ({reason or type(reason).__name__})") from None
        if not piece:
            break
        try:
            part.add(piece, total, archive.file)
        except OSError as reason:
            raise InvalidInput(f"{str(part.path)!r} cannot be written: {reason.strerror or reason}") from None
        if part.size > limit:
            part.remove()
            raise InvalidInput(f"{url} does not end: {archive.file} has {said(archive)}; try another mirror, or {offer}")
        now = time.monotonic()
        if now - told >= OFTEN:
            told, rate = now, amount((part.size - start) / (now - began))
            of = f" of {amount(total)}" if total else ""
            tell(part.size / total if total else 0.0, f"{archive.file}: {amount(part.size)}{of}, {rate}/s")
    expected = total if total is not None else archive.size_bytes
    if expected is not None and part.size < expected:
        raise Dropped(f"the connection ended after {part.size} of {expected} bytes")


def said(archive: Archive) -> str:
    """The size of an archive in words."""
    return f"at most {archive.largest} bytes" if archive.size_bytes is None else f"{archive.size_bytes} bytes"


def lengths(response: HTTPResponse, part: Part) -> int | None:
    """The size of the whole file as this answer says; a server that sends it all again makes the part begin again."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range", "").strip())
        if match is None or int(match[1]) != part.size:
            part.restart()
            raise Dropped("the server sent another piece than it was asked for")
        part.resumed = True
        return int(match[2]) + 1 if match[3] == "*" else int(match[3])
    if part.size:
        part.restart()
    return response.length
