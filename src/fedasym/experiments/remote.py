"""A run folder behind a URL (s3://, gs://, sftp://, file://, whatever fsspec knows), through a mirror on this machine.

What is there is fetched once; what is finished is written to the mirror, sent under another name and then renamed, so that
the URL never shows half a file. All that reads run folders reads the mirror. No lock reaches beyond it.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.core.files import PART
from fedasym.experiments.folder import EXPERIMENT, LOG, PIECES, RunFolder

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")


def is_url(path: str | Path) -> bool:
    """Whether a run folder is named by a URL.

    >>> is_url("s3://bucket/run"), is_url("runs/mine"), is_url("C:/runs")
    (True, False, False)
    """
    return isinstance(path, str) and URL.match(path) is not None


def kind_of(path: str | Path) -> type[RunFolder]:
    """The class of a run folder, by how it is named."""
    return RemoteFolder if is_url(path) else RunFolder


class RemoteFolder(RunFolder):
    """The files of one run behind a URL, and their mirror, which lives as long as this object."""

    def __init__(self, url: str | Path) -> None:
        super().__init__(tempfile.mkdtemp(prefix="fedasym-"))
        self._removed = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.url = str(url)
        for each in (self.pieces, self.locks):
            each.mkdir()
        with told(self.url):
            self.system, self.root = opened(self.url)
            self.names = self._fetched()

    def _fetched(self) -> list[str]:
        """Fetch a run; of anything else, the names alone."""
        found = self.system.find(self.root) if self.system.exists(self.root) else []
        names = [name.removeprefix(self.root).lstrip("/") for name in found]
        for name in names if EXPERIMENT in names else ():
            if not name.endswith(PART) and (self.path / name).parent in (self.path, self.pieces):
                self.system.get_file(f"{self.root}/{name}", str(self.path / name))
        return names

    def close(self) -> None:
        """Remove the mirror."""
        self._removed()

    def foreign(self) -> bool:
        """Whether there are other things than a run."""
        return EXPERIMENT not in self.names and not all(name.endswith(PART) for name in self.names)

    def write(self, name: str, text: str) -> None:
        """Keep a small file."""
        super().write(name, text)
        self._send(name)

    def add(self, key: str, frame: Any, description: dict[str, Any], made: dict[str, Any]) -> None:
        """Keep a finished piece."""
        super().add(key, frame, description, made)
        self._send(f"{PIECES}/{key}.parquet")

    def say(self, event: str, key: str, text: str) -> None:
        """Add a line to the log."""
        super().say(event, key, text)
        self._send(LOG)

    def _send(self, name: str) -> None:
        fresh = f"{self.root}/{name}.{secrets.token_hex(4)}{PART}"
        with told(self.url):
            self.system.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.system.put_file(str(self.path / name), fresh)
            self.system.mv(fresh, f"{self.root}/{name}")


def opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it."""
    try:
        import fsspec
    except ImportError:
        raise MissingPackage(f"{url!r} is a URL, which needs fsspec: pip install 'fedasym[remote]'") from None
    try:
        system, root = fsspec.url_to_fs(url)
    except ImportError as reason:
        raise MissingPackage(f"{url!r} needs one more package: {reason}") from None
    return system, root.rstrip("/")


@contextmanager
def told(url: str) -> Iterator[None]:
    """Say in a sentence what a file system says; each has errors of its own."""
    try:
        yield
    except (InvalidInput, KeyboardInterrupt):
        raise
    except Exception as reason:
        what = f"{type(reason).__name__}: {reason}".rstrip(": ")
        raise InvalidInput(
            f"{url!r} cannot be used: {what}; what is finished is kept, check the address and your access"
        ) from None


_SHOWN: list[RemoteFolder] = []  # whose mirrors stay until the process ends


def mirrored(url: str) -> Path:
    """A run behind a URL as a folder on this machine, to be read."""
    folder = RemoteFolder.existing(url)
    assert isinstance(folder, RemoteFolder)
    _SHOWN.append(folder)
    return folder.path
