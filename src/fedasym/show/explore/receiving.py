"""A file that a browser sent: in a temporary folder that is gone afterwards, and its faults as sentences."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from fedasym.core.errors import InvalidInput

PIECE = 1 << 20


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


@contextmanager
def receive_file(source: Readable, size: int, name: str) -> Iterator[Path]:
    """Receive a file of `size` bytes; whatever goes wrong with it is told in words, by the name that was sent."""
    from fedasym.data.sets.formats import ENDINGS, READ

    ending = Path(name).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="fedasym-explore-") as folder:
        file = Path(folder, f"data{ending if ending in ENDINGS else ''}")  # never the name that was sent
        receive(source, size, file)
        if ending not in ENDINGS:
            raise InvalidInput(f"the file is {name!r}: its ending tells the format, and {READ}")
        try:
            yield file
        except InvalidInput as reason:
            raise InvalidInput(str(reason).replace(str(file), name)) from None
        except MemoryError:
            raise InvalidInput(f"{name} takes more memory than there is: give fewer samples or features") from None
        except Exception as reason:  # a broken file fails in the reader's own way; whoever sent it should read a sentence
            told = " ".join(str(reason).replace(str(file), name).split())[:300]
            raise InvalidInput(f"{name} cannot be read as {ENDINGS[ending]}: {told or type(reason).__name__}") from None


def receive(source: Readable, size: int, file: Path | None) -> None:
    """Write what comes to a file (None: to nowhere), piece by piece."""
    with open(os.devnull if file is None else file, "wb") as out:
        while size > 0:
            try:
                piece = source.read(min(PIECE, size))
            except OSError:  # the sender has gone, or fell silent
                piece = b""
            if not piece:
                raise InvalidInput("the file did not arrive whole: send it again")
            out.write(piece)
            size -= len(piece)
