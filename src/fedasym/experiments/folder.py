"""A run folder: the experiment, the data's record, one file per finished piece, a lock per piece and a log.

Whatever kills a process, what was finished is whole and found again; several processes may fill one folder together.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedasym.algorithms.description import ALGORITHMS, describe_brought, remember_brought
from fedasym.core.errors import InvalidInput
from fedasym.core.files import PART, try_lock, write_text
from fedasym.experiments.data import Record, record_in
from fedasym.experiments.pieces import Damaged, Finished, read_piece, write_piece

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment

EXPERIMENT, DATA, ENVIRONMENT, LOG = "experiment.toml", "data.json", "environment.json", "log.txt"
PIECES, LOCKS = "pieces", "locks"
STALE = 60.0  # seconds after which a half-written small file was left by a killed process
COMPUTED, DAMAGED, LOST = "computed", "damaged", "lost"  # what a log tells


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
        self._read: dict[str, Finished] = {}  # checked once in a process: nobody writes a finished piece again

    @classmethod
    def prepared(cls, path: str | Path, experiment: Experiment, data: Record) -> RunFolder:
        """A folder to run in, made or gone on with; refuses one that holds other things."""
        folder = cls(path)
        try:
            if folder.foreign():
                raise InvalidInput(f"into is {str(path)!r}: this folder holds other things; name a new one, or an empty one")
            for each in (folder.pieces, folder.locks):
                each.mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise InvalidInput(f"into is {str(path)!r}: it cannot be a run folder: {reason.strerror}; name another") from None
        folder.write(EXPERIMENT, experiment.to_toml())
        folder.write(DATA, json.dumps(data._asdict()))
        if brought := describe_brought(experiment.algorithms):
            folder.write(ALGORITHMS, brought)
        return folder

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """A folder that was run in."""
        folder = cls(path)
        if not is_run(folder.path):
            raise InvalidInput(f"{path} is not a run folder, with {EXPERIMENT} and {PIECES}: fedasym runs list shows those")
        return folder

    def foreign(self) -> bool:
        """Whether there are other things than a run, or one that another process has only just begun."""
        begun = (each.name in (PIECES, LOCKS) or each.name.endswith(PART) for each in self.path.glob("*"))
        return not all(begun) and not is_run(self.path)

    def write(self, name: str, text: str) -> None:
        """Keep a small file."""
        write_text(self.path / name, text)

    def close(self) -> None:
        """Nothing more is asked of it."""

    def experiment(self) -> Experiment:
        """What was run in it last."""
        from fedasym.experiments.spec import Experiment

        remember_brought(self.path)
        return Experiment.from_toml(self.path / EXPERIMENT)

    def environment(self) -> dict[str, str]:
        """What computed its last piece; empty where that is missing or damaged."""
        try:
            held = json.loads((self.path / ENVIRONMENT).read_text(encoding="utf-8"))
            words = {str(name): str(value) for name, value in held.items()}
            "".join((*words, *words.values())).encode()  # a ValueError for half a character, which no page can hold
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}
        return words

    def data(self) -> Record:
        """The record of its data."""
        try:
            return record_in((self.path / DATA).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InvalidInput(
                f"{self.path / DATA} is missing or damaged: run the experiment again, it goes on from here"
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
        for left in self.pieces.glob(f".{path.name}.*{PART}"):  # by a process that was killed: only a lock's holder writes
            left.unlink(missing_ok=True)
        write_piece(path, frame, description, made)

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Try to hold a piece; the system frees it when its holder dies, however it dies. False: another process has it."""
        with try_lock(self.locks / f"{key}.lock") as free:
            yield free

    def running(self) -> bool:
        """Whether some process is computing a piece."""
        for file in self.locks.glob("*.lock"):
            with self.lock(file.stem) as free:
                if not free:
                    return True
        return False

    def say(self, event: str, key: str, text: str) -> None:
        """Add a line to the log; one write, so that lines of several processes do not mix."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with (self.path / LOG).open("ab", buffering=0) as file:
            file.write(("\t".join((when, str(os.getpid()), event, key, " ".join(text.split()))) + "\n").encode())

    def log(self) -> list[Entry]:
        """All that was said; a line that a killed process left half is passed over."""
        path = self.path / LOG
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return [Entry(*parts) for parts in (line.split("\t") for line in lines) if len(parts) == len(Entry._fields)]

    def clean(self, wanted: set[str]) -> tuple[int, int]:
        """Remove pieces that the experiment does not ask for, damaged ones, and what killed processes left: files and bytes.

        What another process is computing right now is left alone.
        """
        removed = size = 0
        halves = [file for file in self.path.glob(f".*{PART}") if time.time() - file.stat().st_mtime > STALE]
        for file in [*self.pieces.glob("*.parquet"), *self.pieces.glob(f".*{PART}"), *halves]:
            key = file.name.lstrip(".").split(".")[0]
            with self.lock(key) as free:
                if free and not (file.suffix == ".parquet" and key in wanted and self._whole(key)):
                    removed, size = removed + 1, size + file.stat().st_size
                    file.unlink()
        for file in self.locks.glob("*.lock"):
            with self.lock(file.stem) as free:
                if free and file.stem not in wanted:
                    file.unlink()
        return removed, size

    def _whole(self, key: str) -> bool:
        try:
            return self.piece(key) is not None
        except Damaged:
            return False
