"""What the server takes from a node, and what it refuses: pure rules, none of which trusts a number that was sent.

Refused, and left out of the round: a head of another name, shape or kind than was sent out, one larger in bytes than it can
be, one with NaN or infinity, and counts other than the node announced. Shortened: a change of the head that is longer than
`clip` times the median of the round, where at least three nodes replied (of two, nobody can tell which one is wrong).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.version import __version__
from fedasym.data.federation.damage import BROKEN

Head = NDArray[np.floating[Any]]
ROOM = 4096  # bytes that the header of an array may take beside its numbers
WRITTEN = r"[0-9][0-9A-Za-z.+]{0,30}"  # what a version looks like in a log
JUDGES = 3  # replies from which the median says what is usual


class Refused(Exception):
    """A reply that does not count; the message says why."""


@dataclass(frozen=True)
class Trouble:
    """Why a node does not count, in words; a permanent one stays until somebody mends it."""

    text: str
    permanent: bool = False


class Change(NamedTuple):
    """How a node's clients would move the shared head, and how many training samples speak for it."""

    step: NDArray[np.float64]
    samples: int


def array_in(data: bytes, shape: tuple[int, ...], what: str = "head") -> Head:
    """The array in these bytes (NumPy's format), unread where it is too large, and finite numbers of this shape.

    >>> file = io.BytesIO()
    >>> np.save(file, np.array([[1.0], [np.nan]]))
    >>> array_in(file.getvalue(), (2, 1))
    Traceback (most recent call last):
    ...
    fedasym.deploy.flower.replies.Refused: its head has NaN or infinity in 1 of 2 places
    """
    most = 8 * int(np.prod(shape)) + ROOM
    if len(data) > most:
        raise Refused(f"its {what} has {len(data)} bytes where {shape} numbers take at most {most}")
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except BROKEN:
        raise Refused(f"its {what} cannot be read as an array") from None
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise Refused(f"its {what} has shape {getattr(array, 'shape', '?')} instead of {shape}")
    if array.dtype.kind != "f":
        raise Refused(f"its {what} holds {array.dtype.name} instead of floating-point numbers")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise Refused(f"its {what} has NaN or infinity in {bad} of {array.size} places")
    return array


def count_in(metrics: Mapping[str, Any], name: str, expected: int) -> int:
    """A count that must be what the server knows already."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value != expected:
        raise Refused(f"its {name} is {value!r}, and it announced {expected}")
    return expected


def check_version(version: Any) -> None:
    """Refuse a node with another fedasym than the server's: the two would not compute, or not say, the same."""
    if version == __version__:
        return
    has = f"fedasym {version}" if isinstance(version, str) and re.fullmatch(WRITTEN, version) else "no version"
    raise Refused(f"it says that it has {has}, and the server has fedasym {__version__}: install the same on both")


def scores_in(metrics: Mapping[str, Any], names: tuple[str, ...], most: Mapping[str, float]) -> dict[str, float]:
    """Finite metrics of at least 0, and no larger than they can be.

    >>> scores_in({"accuracy": 1.5}, ("accuracy",), {"accuracy": 1.0})
    Traceback (most recent call last):
    ...
    fedasym.deploy.flower.replies.Refused: its accuracy is 1.5: it must be a number from 0 to 1
    """
    taken = {}
    for name in names:
        value, top = metrics.get(name), most.get(name, float("inf"))
        if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value) or not 0 <= value <= top:
            upper = f"from 0 to {top:g}" if np.isfinite(top) else "of at least 0"
            raise Refused(f"its {name} is {value!r}: it must be a number {upper}")
        taken[name] = float(value)
    return taken


def shortened(changes: Mapping[int, Change], clip: float) -> tuple[dict[int, Change], dict[int, float]]:
    """Changes no longer than `clip` times the median length, and by node what was cut to which share of its length.

    >>> usual = {node: Change(np.full((4, 1), 0.5), 10) for node in (1, 2)}
    >>> changes, cut = shortened(usual | {3: Change(np.full((4, 1), 500.0), 10)}, clip=10)
    >>> cut, float(np.linalg.norm(changes[3].step))
    ({3: 0.01}, 10.0)
    """
    with np.errstate(over="ignore"):  # a length beyond all numbers is cut to nothing
        lengths = {node: float(np.linalg.norm(change.step)) for node, change in changes.items()}
    if clip <= 0 or len(lengths) < JUDGES:
        return dict(changes), {}
    longest = clip * float(np.median(list(lengths.values())))
    cut = {node: longest / length for node, length in lengths.items() if length > longest}
    return {node: Change(each.step * cut.get(node, 1.0), each.samples) for node, each in changes.items()}, cut


def mean_change(changes: Mapping[int, Change]) -> NDArray[np.float64]:
    """sum_j p_j (w_j - W) with p_j the nodes' shares of samples, in one order whatever came first.

    >>> mean_change({1: Change(np.ones((1, 1)), 30), 2: Change(np.zeros((1, 1)), 10)}).tolist()
    [[0.75]]
    """
    n = sum(change.samples for change in changes.values())
    return np.asarray(sum(change.samples / n * change.step for _, change in sorted(changes.items())), np.float64)
