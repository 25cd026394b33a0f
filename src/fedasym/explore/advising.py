"""A file that a browser sent, and the advice on it: in a temporary folder that is gone afterwards."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedasym.errors import InvalidInput

if TYPE_CHECKING:
    from fedasym.advisor.advice import Estimated

PIECE = 1 << 20
MOST_ATOMS = 12  # eigenvalues that the page is given of an estimated spectrum


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


class Advised(NamedTuple):
    """Advice as a page, as a sentence, and as what the page's sliders take (None for classes)."""

    page: str
    words: str
    estimates: dict[str, Any] | None


def advised(source: Readable, size: int, said: dict[str, str]) -> Advised:
    """Receive a file of `size` bytes and advise on it; `said`: its name, its columns and its task."""
    from fedasym.datasets.reading import ENDINGS, READ

    name = said.get("name", "")
    ending = Path(name).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="fedasym-explore-") as folder:
        file = Path(folder, f"data{ending if ending in ENDINGS else ''}")  # never the name that was sent
        receive(source, size, file)
        if ending not in ENDINGS:
            raise InvalidInput(f"the file is {name!r}: its ending tells the format, and {READ}")
        try:
            return advice_on(file, said)
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


def advice_on(file: Path, said: dict[str, str]) -> Advised:
    """Read, advise, and put it into words."""
    from fedasym.advisor.advice import Advice
    from fedasym.advisor.advise import advise
    from fedasym.datasets.reading import read
    from fedasym.errors import ThresholdWarning
    from fedasym.reporting.advice import page

    named: dict[str, Any] = {key: said[key] for key in ("label", "client") if said.get(key)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # the advice says it among its doubts
        advice = advise(read(file, task=said.get("task") or None, **named))
    words = f"{said['name']}: use {advice.recommended}. The whole advice is below."
    estimates = sliders(advice.population) if isinstance(advice, Advice) else None
    return Advised(page(advice), words, estimates)


def sliders(found: Estimated) -> dict[str, Any]:
    """The estimates as the page's controls name them; the spectrum by a few eigenvalues, each the mean of its share."""
    s, h = binned(found.spectrum.values, found.spectrum.weights)
    pairs = ",".join(f"{value:.6g}@{share:.6g}" for value, share in zip(s, h, strict=True))
    world = found.world
    numbers = {name: float(f"{getattr(world, name):.6g}") for name in ("radius", "noise", "aspect", "norm")}
    return {**numbers, "clients": found.clients, "shift_power": found.shift_power, "kind": "atoms", "atoms": pairs}


def binned(values: Any, weights: Any) -> tuple[list[float], list[float]]:
    """Eigenvalues merged into at most `MOST_ATOMS` of about equal shares, in rising order.

    >>> binned([2.0, 1.0], [0.5, 0.5])
    ([1.0, 2.0], [0.5, 0.5])
    """
    order = np.argsort(values)
    s, h = np.asarray(values, dtype=float)[order], np.asarray(weights, dtype=float)[order]
    place = np.minimum((np.cumsum(h) - h / 2) * MOST_ATOMS // 1, MOST_ATOMS - 1).astype(int)
    kept = [place == at for at in np.unique(place)]
    shares = [round(float(h[some].sum()), 6) for some in kept]
    shares[-1] = round(1 - sum(shares[:-1]), 6)
    return [float(s[some] @ h[some] / h[some].sum()) for some in kept], shares
