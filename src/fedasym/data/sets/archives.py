"""The public archives of federated data by name, and how one is unpacked: only the expected files, whole or not at all.

The data sets of the paper's experiments as TensorFlow Federated serves them. Nothing that comes from outside is trusted: an
archive is known by its SHA-256, and even then no member of it is written under a name of its own choosing.
"""

from __future__ import annotations

import bz2
import errno
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from fedasym.core.errors import InvalidInput
from fedasym.core.files import replace_text

ADDRESS = "https://storage.googleapis.com/tff-datasets-public/"
FORMAT = "fedasym archive 1"
HDF5 = b"\x89HDF\r\n\x1a\n"  # how every .h5 file begins: an error page that was saved as one does not
UNPACKING = ".unpacking-"  # how the folder of a half-unpacked archive begins: what a killed process left is known by it
FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
PIECE = 1 << 18  # bytes that are read and written at once
MEGA, GIGA = 10**6, 10**9


class Refused(InvalidInput):
    """An archive that is not unpacked because of what is in it: it is of no use, also later."""


@dataclass(frozen=True)
class Archive:
    """A file to download: what it is called, the hash that it must have, and the files inside that are wanted.

    >>> from fedasym.data.sets.archives import ARCHIVES
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
    def largest(self) -> int:
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


def amount(count: float) -> str:
    """Bytes in words.

    >>> amount(152_345_678), amount(1_300_000), amount(12_340_000_000), amount(900)
    ('152 MB', '1.3 MB', '12.3 GB', '900 bytes')
    """
    for unit, size in (("GB", GIGA), ("MB", MEGA), ("kB", 1000)):
        if count >= size:
            return f"{count / size:.0f} {unit}" if count >= 100 * size else f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def no_room(folder: Path, needed: int, what: str) -> InvalidInput:
    """The error for a full disk."""
    return InvalidInput(
        f"no room for {what} in {str(folder)!r}: it needs {needed} bytes ({amount(needed)}) more; make room and call again "
        "(what was downloaded is kept and not downloaded again), or set FEDASYM_DATA to a folder on a larger disk"
    )


def check_room(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin what the disk cannot hold."""
    if shutil.disk_usage(folder).free < needed:
        raise no_room(folder, needed, what)


def unpack(archive: Archive, path: Path, home: Path, tell: Callable[[float], None]) -> dict[str, int]:
    """Unpack the expected files of `path` into `home`, and give their sizes: first beside, then each put in its place whole."""
    fresh = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=home))
    try:
        with path.open("rb") as raw:
            sizes = unpacked(archive, raw, path, fresh, tell)
        for name in archive.inside:
            os.replace(fresh / name, home / name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return sizes


def unpacked(archive: Archive, raw: IO[bytes], path: Path, fresh: Path, tell: Callable[[float], None]) -> dict[str, int]:
    """Stream the archive once from front to back; memory stays small however large it is."""
    sizes: dict[str, int] = {}
    total, length = 0, max(path.stat().st_size, 1)
    try:
        # Not tarfile's own "r|bz2": that unpacks all that a piece of the archive expands to at once, which may be gigabytes.
        with bz2.open(raw) as plain, tarfile.open(fileobj=plain, mode="r|", bufsize=PIECE) as tar:
            for member in tar:
                name = harmless(member, path)
                total += member.size  # of a skipped one as well: it has to be read, too
                if total > archive.unpacked_limit:
                    raise refused(path, f"unpacks to more than {amount(archive.unpacked_limit)}")
                if name not in archive.inside or member.isdir():
                    continue
                if name in sizes:
                    raise refused(path, f"has {name!r} twice")
                check_room(fresh.parent, member.size, name)
                content = tar.extractfile(member)
                if content is None:
                    raise refused(path, f"has {name!r} as no plain file")
                with content, (fresh / name).open("xb", buffering=0) as out:
                    while piece := content.read(PIECE):
                        stored(out, piece, member.size - out.tell(), name, fresh.parent)
                        tell(raw.tell() / length)
                    os.fsync(out.fileno())
                    sizes[name] = out.tell()
    except (tarfile.TarError, EOFError, OSError) as reason:
        if isinstance(reason, OSError) and reason.errno is not None:  # of the disk; those of bz2 have no number
            raise
        raise refused(path, f"cannot be read as a .tar.bz2 archive ({reason})") from None
    if missing := [name for name in archive.inside if name not in sizes]:
        raise refused(path, f"has no {' and no '.join(missing)}")
    return sizes


def stored(out: IO[bytes], piece: bytes, needed: int, what: str, folder: Path) -> None:
    """Write a piece; a disk that is full has a sentence of its own."""
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[out.write(rest) :]  # an unbuffered file may take less than all
    except OSError as reason:
        raise (no_room(folder, needed, what) if reason.errno in FULL else reason) from None


def harmless(member: tarfile.TarInfo, path: Path) -> str:
    """The name of a member that stays in its folder; one that would leave it, or is a link or a device, is refused."""
    name = member.name.removeprefix("./")
    windows = PureWindowsPath(name)
    if name.startswith("/") or windows.drive or windows.root or ".." in PurePosixPath(name).parts or ".." in windows.parts:
        raise refused(path, f"has the member {member.name!r}, which would leave its folder")
    if not (member.isreg() or member.isdir()):
        raise refused(path, f"has the member {member.name!r}, which is a link or a device")
    return name


def refused(path: Path, why: str) -> Refused:
    """The error for an archive that is not unpacked."""
    return Refused(f"the archive {str(path)!r} {why}: nothing of it was unpacked; get it again from {ADDRESS}")


def marker(archive: Archive, home: Path) -> Path:
    """The small file that says that an archive was unpacked whole."""
    return home / f".{archive.file}.json"


def record(archive: Archive, home: Path, sizes: Mapping[str, int]) -> None:
    """Write the marker, after everything that it vouches for."""
    replace_text(marker(archive, home), json.dumps({"format": FORMAT, "sha256": archive.sha256, "files": sizes}))


def complete(archive: Archive, home: Path) -> bool:
    """Whether the files are there as the marker says; without one, whether a user has put them there."""
    try:
        held = json.loads(marker(archive, home).read_text())
        sizes = {name: (home / name).stat().st_size for name in archive.inside}
        return bool(held["format"] == FORMAT and held["sha256"] == archive.sha256 and held["files"] == sizes)
    except FileNotFoundError:
        return not marker(archive, home).exists() and unmarked(archive, home)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def unmarked(archive: Archive, folder: Path) -> bool:
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
