"""The public archives of federated data: how one is downloaded and unpacked, only the expected
files, whole or not at all.

The data sets of the paper's experiments as TensorFlow Federated serves them. Nothing that comes
from outside is trusted: an archive is known by its SHA-256, and even then no member of it is
written under a name of its own choosing. A download goes into a `.part` file that the next call
goes on from; lengths are counted, an endless answer is stopped, and only the hash, computed while
the file is read, decides in the end.
"""

from __future__ import annotations

import bz2
import errno
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import TracebackType
from typing import IO

from fedasym.core.errors import InvalidInput
from fedasym.core.runtime import replace_text

ADDRESS = "https://storage.googleapis.com/tff-datasets-public/"
FORMAT = "fedasym archive 1"
HDF5 = (  # how every .h5 file begins: an error page that was saved as one does not
    b"\x89HDF\r\n\x1a\n"
)
# how the folder of a half-unpacked archive begins: what a killed process left is known by it
UNPACKING = ".unpacking-"
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
PIECE = 1 << 18  # bytes that are read and written at once
MEGA, GIGA = 10**6, 10**9


class RefusedArchive(InvalidInput):
    """An archive that is not unpacked because of what is in it: it is of no use, also later."""


@dataclass(frozen=True)
class Archive:
    """A file to download: what it is called, the hash that it must have, and the files inside that
    are wanted.

    >>> from fedasym.data.archives import ARCHIVES
    >>> [archive.file for archive in ARCHIVES["stackoverflow"]]
    ['stackoverflow.tar.bz2', 'stackoverflow.word_count.tar.bz2']
    """

    name: str
    file: str
    sha256: str
    size_bytes: int | None  # None: as the server says, within `download_limit`
    inside: tuple[str, ...]
    download_limit: int = GIGA  # generous: it only ends a download that would never end
    unpacked_limit: int = 16 * GIGA

    @property
    def size_limit(self) -> int:
        """Bytes beyond which a download cannot be this archive."""
        return self.download_limit if self.size_bytes is None else self.size_bytes


ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "emnist": (
        Archive(
            "emnist",
            "fed_emnist.tar.bz2",
            "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
            None,
            ("fed_emnist_train.h5", "fed_emnist_test.h5"),
        ),
    ),
    "cifar100": (
        Archive(
            "cifar100",
            "fed_cifar100.tar.bz2",
            "e8575e22c038ecef1ce6c7d492d7abee7da13b1e1ba9b70a7fc18531ba7590de",
            None,
            ("fed_cifar100_train.h5", "fed_cifar100_test.h5"),
        ),
    ),
    "shakespeare": (
        Archive(
            "shakespeare",
            "shakespeare.tar.bz2",
            "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
            None,
            ("shakespeare_train.h5", "shakespeare_test.h5"),
        ),
    ),
    "stackoverflow": (
        Archive(
            "stackoverflow",
            "stackoverflow.tar.bz2",
            "99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
            None,
            ("stackoverflow_train.h5", "stackoverflow_held_out.h5", "stackoverflow_test.h5"),
            download_limit=64 * GIGA,
            unpacked_limit=512 * GIGA,
        ),
        Archive(
            "stackoverflow_word_count",
            "stackoverflow.word_count.tar.bz2",
            "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
            None,
            ("stackoverflow.word_count",),
        ),
    ),
}


def byte_amount(count: float) -> str:
    """Bytes in words.

    >>> (
    ...     byte_amount(152_345_678),
    ...     byte_amount(1_300_000),
    ...     byte_amount(12_340_000_000),
    ...     byte_amount(900),
    ... )
    ('152 MB', '1.3 MB', '12.3 GB', '900 bytes')
    """
    for unit, size in (("GB", GIGA), ("MB", MEGA), ("kB", 1000)):
        if count >= size:
            return (
                f"{count / size:.0f} {unit}"
                if count >= 100 * size
                else f"{count / size:.1f} {unit}"
            )
    return f"{count:.0f} bytes"


def full_disk_error(folder: Path, needed: int, what: str) -> InvalidInput:
    """The error for a full disk."""
    return InvalidInput(
        f"no room for {what} in {str(folder)!r}: it needs {needed} bytes ({byte_amount(needed)})"
        " more; make room and call again (what was downloaded is kept and not downloaded again),"
        " or set FEDASYM_DATA to a folder on a larger disk"
    )


def check_disk(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin what the disk cannot hold."""
    if shutil.disk_usage(folder).free < needed:
        raise full_disk_error(folder, needed, what)


def unpack(
    archive: Archive, path: Path, home: Path, tell: Callable[[float], None]
) -> dict[str, int]:
    """Unpack the expected files of `path` into `home`, each placed whole; gives their sizes."""
    fresh = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=home))
    try:
        with path.open("rb") as raw:
            sizes = stream_members(archive, raw, path, fresh, tell)
        for name in archive.inside:
            os.replace(fresh / name, home / name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return sizes


def stream_members(
    archive: Archive, raw: IO[bytes], path: Path, fresh: Path, tell: Callable[[float], None]
) -> dict[str, int]:
    """Stream the archive once from front to back; memory stays small however large it is."""
    sizes: dict[str, int] = {}
    total = 0
    length = max(path.stat().st_size, 1)
    try:
        # Not tarfile's own "r|bz2": that unpacks all that a piece of the archive expands to at
        # once, which may be gigabytes.
        with bz2.open(raw) as plain, tarfile.open(fileobj=plain, mode="r|", bufsize=PIECE) as tar:
            for member in tar:
                name = safe_member_name(member, path)
                total += member.size  # of a skipped one as well: it has to be read, too
                if total > archive.unpacked_limit:
                    raise refuse_archive(
                        path, f"unpacks to more than {byte_amount(archive.unpacked_limit)}"
                    )
                if name not in archive.inside or member.isdir():
                    continue
                if name in sizes:
                    raise refuse_archive(path, f"has {name!r} twice")
                check_disk(fresh.parent, member.size, name)
                content = tar.extractfile(member)
                if content is None:
                    raise refuse_archive(path, f"has {name!r}, which is not a plain file")
                with content, (fresh / name).open("xb", buffering=0) as out:
                    while piece := content.read(PIECE):
                        write_bytes(out, piece, member.size - out.tell(), name, fresh.parent)
                        tell(raw.tell() / length)
                    os.fsync(out.fileno())
                    sizes[name] = out.tell()
    except (tarfile.TarError, EOFError, OSError) as reason:
        if (
            isinstance(reason, OSError) and reason.errno is not None
        ):  # of the disk; those of bz2 have no number
            raise
        raise refuse_archive(path, f"cannot be read as a .tar.bz2 archive ({reason})") from None
    if missing := [name for name in archive.inside if name not in sizes]:
        raise refuse_archive(path, f"has no {' and no '.join(missing)}")
    return sizes


def write_bytes(out: IO[bytes], piece: bytes, needed: int, what: str, folder: Path) -> None:
    """Write a piece; a disk that is full has a sentence of its own."""
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[out.write(rest) :]  # an unbuffered file may take less than all
    except OSError as reason:
        raise (full_disk_error(folder, needed, what) if reason.errno in FULL else reason) from None


def safe_member_name(member: tarfile.TarInfo, path: Path) -> str:
    """A member's name within its folder; one that would leave it, a link or a device is refused."""
    name = member.name.removeprefix("./")
    windows = PureWindowsPath(name)
    if (
        name.startswith("/")
        or windows.drive
        or windows.root
        or ".." in PurePosixPath(name).parts
        or ".." in windows.parts
    ):
        raise refuse_archive(path, f"has the member {member.name!r}, which would leave its folder")
    if not (member.isreg() or member.isdir()):
        raise refuse_archive(path, f"has the member {member.name!r}, which is a link or a device")
    return name


def refuse_archive(path: Path, why: str) -> RefusedArchive:
    """The error for an archive that is not unpacked."""
    return RefusedArchive(
        f"the archive {str(path)!r} {why}: nothing of it was unpacked; get it again from {ADDRESS}"
    )


def marker_path(archive: Archive, home: Path) -> Path:
    """The small file that says that an archive was unpacked whole."""
    return home / f".{archive.file}.json"


def write_marker(archive: Archive, home: Path, sizes: Mapping[str, int]) -> None:
    """Write the marker, after everything that it vouches for."""
    replace_text(
        marker_path(archive, home),
        json.dumps({"format": FORMAT, "sha256": archive.sha256, "files": sizes}),
    )


def is_complete(archive: Archive, home: Path) -> bool:
    """Whether the files are as the marker says; without a marker, whether a user put them there."""
    try:
        held = json.loads(marker_path(archive, home).read_text())
        sizes = {name: (home / name).stat().st_size for name in archive.inside}
        return bool(
            held["format"] == FORMAT and held["sha256"] == archive.sha256 and held["files"] == sizes
        )
    except FileNotFoundError:
        return not marker_path(archive, home).exists() and has_unmarked_files(archive, home)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def has_unmarked_files(archive: Archive, folder: Path) -> bool:
    """Whether a folder has the unpacked files, as far as a look at their beginnings tells."""
    try:
        for name in archive.inside:
            with (folder / name).open("rb") as file:
                begins = file.read(len(HDF5))
            if not begins or (name.endswith(".h5") and begins != HDF5):
                return False
    except OSError:
        return False
    return True


STALL = 30.0  # seconds without a byte after which a connection counts as dropped
WAIT = 0.25  # seconds before trying again, doubled after each try that brought nothing
TRIES = 5  # tries in a row that may bring nothing
CONNECTIONS = 200  # for one file at most: a server that drops each after a byte is given up
OFTEN = 0.1  # seconds between two reports
Tell = Callable[[float, str], None]


class DroppedConnection(Exception):
    """A connection that ended before the file did; another try may go on."""


class DownloadPart:
    """The bytes that are here, in their file and in their hash."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # no buffer: what is counted is in the file, also when killed
        self.file = path.open("a+b", buffering=0)
        self.sha = hashlib.sha256()
        self.size = 0
        self.file.seek(0)
        while piece := self.file.read(PIECE):
            self.sha.update(piece)
            self.size += len(piece)
        self.resumed = self.size > 0

    def __enter__(self) -> DownloadPart:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()

    def add(self, piece: bytes, total: int | None, name: str) -> None:
        """Write a piece that arrived."""
        needed = len(piece) if total is None else total - self.size
        write_bytes(self.file, piece, needed, name, self.path.parent)
        self.sha.update(piece)
        self.size += len(piece)

    def restart(self) -> None:
        """Forget everything."""
        self.file.truncate(0)
        self.sha = hashlib.sha256()
        self.size = 0
        self.resumed = False

    def remove(self) -> None:
        """Leave nothing."""
        self.file.close()
        self.path.unlink(missing_ok=True)


def download(archive: Archive, url: str, path: Path, tell: Tell, offer: str) -> None:
    """Bring `path` to hold exactly the archive; `offer` says what else a user can do."""
    with DownloadPart(path) as part:
        again = False
        while part.sha.hexdigest() != archive.sha256:
            if part.size >= archive.size_limit:
                part.restart()  # longer than the archive can be: of no use
            bring_whole(archive, url, part, tell, offer)
            found = part.sha.hexdigest()
            if found != archive.sha256 and part.resumed and not again:
                again = True  # perhaps the halves of two different files: once more, from one
                part.restart()
            elif found != archive.sha256:
                part.remove()
                raise InvalidInput(
                    f"{url} has another checksum than {archive.file} must have: expected SHA-256"
                    f" {archive.sha256}, found {found}; it was removed. Try again, try another"
                    f" mirror, or {offer}"
                )


def bring_whole(archive: Archive, url: str, part: DownloadPart, tell: Tell, offer: str) -> None:
    """Connect as often as it takes until the server says that the file is complete."""
    vain, etag, why = 0, "", ""
    for _ in range(CONNECTIONS):
        before = part.size
        try:
            with connect(url, part, etag, offer) as response:
                etag = response.headers.get("ETag", "")
                receive_answer(archive, url, response, part, tell, offer)
            return
        except DroppedConnection as reason:
            vain = 0 if part.size > before else vain + 1
            why = str(reason)
        if vain >= TRIES:
            break
        tell(0.0, f"{archive.file}: {why}; trying again")
        time.sleep(min(WAIT * 2**vain, 30))
    kept = (
        f" (the first {byte_amount(part.size)} are kept, the next call goes on from there)"
        if part.size
        else ""
    )
    if not part.size:
        part.remove()
    raise InvalidInput(
        f"{url} cannot be downloaded: {why}{kept}; check the network and try again, or {offer}"
    )


def connect(url: str, part: DownloadPart, etag: str, offer: str) -> HTTPResponse:
    """The server's answer to the request for what is missing."""
    headers = {"User-Agent": "fedasym", "Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if etag.startswith('"'):  # a weak one says nothing about bytes
            headers["If-Range"] = etag
    # Only HTTP, and only redirects that stay on it: the usual opener would also read local files
    # and FTP.
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
        if (
            reason.code == 416
        ):  # there is nothing after what is here, and what is here is not the archive
            part.restart()
        if reason.code in (408, 416, 429) or reason.code >= 500:
            raise DroppedConnection(f"the server answers {reason.code} {reason.reason}") from None
        if not part.size:
            part.remove()
        raise InvalidInput(
            f"{url} is not available: the server answers {reason.code} {reason.reason}; {offer}"
        ) from None
    except (OSError, HTTPException, ValueError) as reason:  # the last for an address that is none
        raise DroppedConnection(
            f"no answer from the server ({getattr(reason, 'reason', reason)})"
        ) from None
    assert isinstance(answer, HTTPResponse)
    return answer


def receive_answer(
    archive: Archive, url: str, response: HTTPResponse, part: DownloadPart, tell: Tell, offer: str
) -> None:
    """Read one answer to its end; `DroppedConnection` if that is not the end of the file."""
    total = whole_length(response, part)
    limit = archive.size_limit
    if (total or 0) > limit or (total is not None and archive.size_bytes not in (None, total)):
        part.remove()
        raise InvalidInput(
            f"{url} has {total} bytes, but {archive.file} has {archive_size(archive)}; try another"
            f" mirror, or {offer}"
        )
    size = byte_amount(total) if total is not None else "of a size that the server does not say"
    share = (part.size / total) if total else 0.0
    tell(
        share,
        f"{archive.file}, {size} from {url}"
        + (f", going on after {byte_amount(part.size)}" if part.size else ""),
    )
    check_disk(part.path.parent, 1 if total is None else total - part.size, archive.file)
    start = part.size
    began = time.monotonic()
    told = time.monotonic()
    while total is None or part.size < total:
        try:
            # One byte beyond the limit is enough to know that there is more; one arrival at a time,
            # so that a slow one shows.
            piece = response.read1(min(PIECE, (limit + 1 if total is None else total) - part.size))
        except (OSError, HTTPException) as reason:
            raise DroppedConnection(
                f"the connection was lost ({reason or type(reason).__name__})"
            ) from None
        if not piece:
            break
        try:
            part.add(piece, total, archive.file)
        except OSError as reason:
            raise InvalidInput(
                f"{str(part.path)!r} cannot be written: {reason.strerror or reason}"
            ) from None
        if part.size > limit:
            part.remove()
            raise InvalidInput(
                f"{url} does not end: {archive.file} has {archive_size(archive)}; try another"
                f" mirror, or {offer}"
            )
        now = time.monotonic()
        if now - told >= OFTEN:
            told = now
            rate = byte_amount((part.size - start) / (now - began))
            of = f" of {byte_amount(total)}" if total else ""
            tell(
                part.size / total if total else 0.0,
                f"{archive.file}: {byte_amount(part.size)}{of}, {rate}/s",
            )
    expected = total if total is not None else archive.size_bytes
    if expected is not None and part.size < expected:
        raise DroppedConnection(f"the connection ended after {part.size} of {expected} bytes")


def archive_size(archive: Archive) -> str:
    """The size of an archive in words."""
    return (
        f"at most {archive.size_limit} bytes"
        if archive.size_bytes is None
        else f"{archive.size_bytes} bytes"
    )


def whole_length(response: HTTPResponse, part: DownloadPart) -> int | None:
    """The size of the whole file by this answer; a server that sends it all restarts the part."""
    if response.status == 206:
        match = re.fullmatch(
            r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range", "").strip()
        )
        if match is None or int(match[1]) != part.size:
            part.restart()
            raise DroppedConnection("the server sent another piece than it was asked for")
        part.resumed = True
        return int(match[2]) + 1 if match[3] == "*" else int(match[3])
    if part.size:
        part.restart()
    return response.length


def check_hash(archive: Archive, path: Path, tell: Tell) -> None:
    """Refuse a user's file that is not the archive; it is the user's, so it stays."""
    sha = hashlib.sha256()
    size = max(path.stat().st_size, 1)
    seen = 0
    tell(0.0, f"{archive.file}, {byte_amount(size)} from {path}")
    with path.open("rb") as file:
        while piece := file.read(4 * PIECE):
            sha.update(piece)
            seen += len(piece)
            tell(seen / size, f"{archive.file}: checking")
    if sha.hexdigest() != archive.sha256:
        raise InvalidInput(
            f"source is {str(path)!r}: this is not {archive.file} as published: expected SHA-256"
            f" {archive.sha256}, found {sha.hexdigest()}; get it again from {ADDRESS}{archive.file}"
        )
