"""A run folder, here or behind a URL: experiment, data's record, sealed pieces, locks, a log.

What was finished is whole and found again, whatever kills a process; several may fill one folder.

A folder behind a URL (s3://, gs://, sftp://, file://, whatever fsspec knows) has a mirror on this
machine. What is there is fetched once; what is finished is written to the mirror, sent under
another name and then renamed, so that the URL never shows half a file. All that reads run folders
reads the mirror. No lock reaches beyond it.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import tempfile
import time
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedasym.algorithms.registry import ALGORITHMS, describe_brought, remember_brought
from fedasym.core.errors import InvalidInput
from fedasym.core.runtime import (
    PART,
    explain_unwritable,
    is_url,
    open_store,
    replace_file,
    try_lock,
    write_text,
)
from fedasym.experiments import plan
from fedasym.experiments.fields import Record, read_record
from fedasym.experiments.pieces import Damaged, Finished, join_rows, read_piece, write_piece
from fedasym.experiments.plan import chosen_settings

if TYPE_CHECKING:
    from fedasym.experiments import Experiment


EXPERIMENT, DATA, ENVIRONMENT, LOG = "experiment.toml", "data.json", "environment.json", "log.txt"
PIECES, LOCKS = "pieces", "locks"
STATES = "states"  # of pieces that are being computed on a cluster
STALE = 60.0  # seconds after which a half-written small file was left by a killed process
COMPUTED, DAMAGED, LOST, RESUMED = "computed", "damaged", "lost", "resumed"  # what a log tells


def is_run(path: Path) -> bool:
    """Whether a folder was run in; one of saved results has no pieces."""
    return (path / EXPERIMENT).is_file() and (path / PIECES).is_dir()


class Entry(NamedTuple):
    """A line of the log."""

    when: str
    process: str
    event: str
    key: str
    text: str


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.pieces, self.locks = self.path / PIECES, self.path / LOCKS
        self.states = self.path / STATES
        # checked once in a process: nobody writes a finished piece again
        self._read: dict[str, Finished] = {}

    @classmethod
    def prepare(cls, path: str | Path, experiment: Experiment, data: Record) -> RunFolder:
        """A folder to run in, made or gone on with; refuses one that holds other things."""
        folder = cls(path)
        try:
            if folder.is_foreign():
                raise InvalidInput(
                    f"into is {str(path)!r}: this folder holds other things; name an empty one"
                )
            for each in (folder.pieces, folder.locks):
                each.mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise InvalidInput(
                f"into is {str(path)!r}: it cannot be a run folder: {reason.strerror}; name another"
            ) from None
        folder.write(EXPERIMENT, experiment.to_toml())
        folder.write(DATA, json.dumps(data._asdict()))
        if brought := describe_brought(experiment.algorithms):
            folder.write(ALGORITHMS, brought)
        return folder

    @classmethod
    def open_existing(cls, path: str | Path) -> RunFolder:
        """A folder that was run in."""
        folder = cls(path)
        if not is_run(folder.path):
            raise InvalidInput(
                f"{path} is not a run folder, with {EXPERIMENT} and {PIECES}: see fedasym runs list"
            )
        return folder

    def is_foreign(self) -> bool:
        """Whether there is something other than a run, or one that another process just began."""
        names = [each.name for each in self.path.glob("*")]
        begun = all(name in (PIECES, LOCKS, STATES) or name.endswith(PART) for name in names)
        return not begun and not is_run(self.path)

    def write(self, name: str, text: str) -> None:
        """Keep a small file."""
        write_text(self.path / name, text)

    def close(self) -> None:
        """Nothing more is asked of it."""

    def experiment(self) -> Experiment:
        """What was run in it last."""
        from fedasym.experiments import Experiment

        remember_brought(self.path)
        return Experiment.from_toml(self.path / EXPERIMENT)

    def environment(self) -> dict[str, str]:
        """What computed its last piece; empty where that is missing or damaged."""
        try:
            held = json.loads((self.path / ENVIRONMENT).read_text(encoding="utf-8"))
            words = {str(name): str(value) for name, value in held.items()}
            # a ValueError for half a character, which no page can hold
            "".join((*words, *words.values())).encode()
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}
        return words

    def data(self) -> Record:
        """The record of its data."""
        try:
            return read_record((self.path / DATA).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InvalidInput(
                f"{self.path / DATA} is missing or damaged: run the experiment again, it goes on"
                " from here"
            ) from None

    def has(self, key: str) -> bool:
        """Whether there is a file of that piece."""
        return (self.pieces / f"{key}.parquet").exists()

    def piece(self, key: str) -> Finished | None:
        """A finished piece, None where there is none; raises `Damaged`."""
        if key not in self._read and self.has(key):
            self._read[key] = read_piece(self.pieces / f"{key}.parquet")
        return self._read.get(key)

    def add(self, key: str, frame: Any, description: dict[str, Any], made: dict[str, Any]) -> None:
        """Keep a finished piece."""
        path = self.pieces / f"{key}.parquet"
        # left by a process that was killed: only a lock's holder writes
        for left in self.pieces.glob(f".{path.name}.*{PART}"):
            left.unlink(missing_ok=True)
        write_piece(path, frame, description, made)

    def keep_state(self, name: str, arrays: dict[str, Any]) -> None:
        """Keep a state of a piece that is being computed; its name begins with the key."""
        content = io.BytesIO()
        np.savez(content, **arrays)
        with explain_unwritable(self.states):
            self.states.mkdir(exist_ok=True)
        with explain_unwritable(self.states / name), replace_file(self.states / name) as fresh:
            fresh.write_bytes(content.getvalue())

    def state(self, name: str) -> dict[str, Any] | None:
        """A state that was kept, whole; None where there is none."""
        try:
            with np.load(self.states / name, allow_pickle=False) as held:
                return dict(held)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def drop_states(self, key: str) -> None:
        """Forget the states of a piece: it is finished."""
        for file in self.states.glob(f"{key}.*"):
            file.unlink(missing_ok=True)

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Try to hold a piece; the system frees it when its holder dies. False: it is held."""
        with try_lock(self.locks / f"{key}.lock") as free:
            yield free

    def is_running(self) -> bool:
        """Whether some process is computing a piece."""
        for file in self.locks.glob("*.lock"):
            with self.lock(file.stem) as free:
                if not free:
                    return True
        return False

    def say(self, event: str, key: str, text: str) -> None:
        """Add a line to the log; one write, so that lines of several processes do not mix."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = "\t".join((when, str(os.getpid()), event, key, " ".join(text.split())))
        with (self.path / LOG).open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def log(self) -> list[Entry]:
        """All that was said; a line that a killed process left half is passed over."""
        path = self.path / LOG
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = (line.split("\t") for line in text.splitlines())
        return [Entry(*parts) for parts in lines if len(parts) == len(Entry._fields)]

    def clean(self, wanted: set[str]) -> tuple[int, int]:
        """Remove pieces not asked for, damaged ones, and what killed processes left: files, bytes.

        What another process is computing right now is left alone.
        """
        removed = size = 0
        old = time.time() - STALE
        halves = [file for file in self.path.glob(f".*{PART}") if file.stat().st_mtime < old]
        for file in [*self.pieces.glob("*.parquet"), *self.pieces.glob(f".*{PART}"), *halves]:
            key = file.name.lstrip(".").split(".")[0]
            with self.lock(key) as free:
                if free and not (
                    file.suffix == ".parquet" and key in wanted and self._is_whole(key)
                ):
                    removed, size = removed + 1, size + file.stat().st_size
                    file.unlink()
        for file in self.states.glob("*"):
            key = file.name.lstrip(".").split(".")[0]
            with self.lock(key) as free:
                if free and (key not in wanted or self.has(key)):
                    removed, size = removed + 1, size + file.stat().st_size
                    file.unlink()
        for file in self.locks.glob("*.lock"):
            with self.lock(file.stem) as free:
                if free and file.stem not in wanted:
                    file.unlink()
        return removed, size

    def _is_whole(self, key: str) -> bool:
        try:
            return self.piece(key) is not None
        except Damaged:
            return False


def folder_class(path: str | Path) -> type[RunFolder]:
    """The class of a run folder, by how it is named."""
    return RemoteFolder if is_url(path) else RunFolder


class RemoteFolder(RunFolder):
    """The files of one run behind a URL, and their mirror, which lives as long as this object."""

    def __init__(self, url: str | Path) -> None:
        super().__init__(tempfile.mkdtemp(prefix="fedasym-"))
        self._removed = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self.url = str(url)
        for each in (self.pieces, self.locks, self.states):
            each.mkdir()
        with explain_errors(self.url):
            self.system, self.root = open_store(self.url)
            self.names = self._fetch_run()

    def _fetch_run(self) -> list[str]:
        """Fetch a run; of anything else, the names alone."""
        found = self.system.find(self.root) if self.system.exists(self.root) else []
        names = [name.removeprefix(self.root).lstrip("/") for name in found]
        for name in names if EXPERIMENT in names else ():
            kept = (self.path, self.pieces, self.states)
            if not name.endswith(PART) and (self.path / name).parent in kept:
                self.system.get_file(f"{self.root}/{name}", str(self.path / name))
        return names

    def close(self) -> None:
        """Remove the mirror."""
        self._removed()

    def is_foreign(self) -> bool:
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

    def keep_state(self, name: str, arrays: dict[str, Any]) -> None:
        """Keep the state of a piece that is being computed."""
        super().keep_state(name, arrays)
        self._send(f"{STATES}/{name}")

    def drop_states(self, key: str) -> None:
        """Forget the states of a piece: it is finished."""
        for file in self.states.glob(f"{key}.*"):
            with explain_errors(self.url):
                self.system.rm_file(f"{self.root}/{STATES}/{file.name}")
        super().drop_states(key)

    def say(self, event: str, key: str, text: str) -> None:
        """Add a line to the log."""
        super().say(event, key, text)
        self._send(LOG)

    def _send(self, name: str) -> None:
        fresh = f"{self.root}/{name}.{secrets.token_hex(4)}{PART}"
        with explain_errors(self.url):
            self.system.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.system.put_file(str(self.path / name), fresh)
            self.system.mv(fresh, f"{self.root}/{name}")


@contextmanager
def explain_errors(url: str) -> Iterator[None]:
    """Say in a sentence what a file system says; each has errors of its own."""
    try:
        yield
    except (InvalidInput, KeyboardInterrupt):
        raise
    except Exception as reason:
        what = f"{type(reason).__name__}: {reason}".rstrip(": ")
        raise InvalidInput(
            f"{url!r} cannot be used: {what}; finished pieces are kept, check address and access"
        ) from None


_SHOWN: list[RemoteFolder] = []  # whose mirrors stay until the process ends


def mirror_folder(url: str) -> Path:
    """A run behind a URL as a folder on this machine, to be read."""
    folder = RemoteFolder.open_existing(url)
    assert isinstance(folder, RemoteFolder)
    _SHOWN.append(folder)
    return folder.path


def wanted_pieces(folder: RunFolder) -> tuple[set[str], set[str] | None]:
    """The keys of the pieces asked for: of tuning, and once that is done, of trials."""
    experiment = folder.experiment()
    data = folder.data()
    pieces = plan.tuning(experiment)
    tuning = {piece.key(data) for piece in pieces}
    try:
        held = [folder.piece(piece.key(data)) for piece in pieces]
    except Damaged:
        return tuning, None
    finished = [each for each in held if each is not None]
    if len(finished) < len(pieces):
        return tuning, None
    choice = chosen_settings(experiment, join_rows(finished, plan.TUNING, data.task), data.task)
    return tuning, {piece.key(data) for piece in plan.trials(experiment, choice)}
