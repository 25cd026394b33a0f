"""What an algorithm looks like wherever it is drawn: one colour, one marker, one line; plain data, without matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedasym.algorithms import TRAINED
from fedasym.algorithms.registry import REGISTRY


class Mark(NamedTuple):
    """A colour, a marker and a dash pattern (empty: a solid line); `key` is a safe name for it in style sheets."""

    key: str
    colour: str
    marker: str
    dash: tuple[float, ...] = ()


ALGORITHMS = {
    name: Mark(name, each.colour, each.marker, each.dash) for name, each in TRAINED.items() if each.colour and each.marker
}
SPARE = tuple(  # algorithms that the paper does not name
    Mark(f"spare{at}", colour, marker)
    for at, (colour, marker) in enumerate(
        (("#222222", "p"), ("#8c6d31", "h"), ("#6a3d9a", ">"), ("#b15928", "d"), ("#17717a", "^"))
    )
)
STEPS = tuple(  # a scale from little to much: epochs of personalization
    Mark(f"step{at}", colour, marker)
    for at, (colour, marker) in enumerate(
        (
            ("#7a7a7a", "v"),
            ("#b5830b", "s"),
            ("#d1602b", "D"),
            ("#b03060", "X"),
            ("#7a3b9a", "<"),
            ("#2f3f9f", "o"),
            ("#17717a", "*"),
        )
    )
)
EVERY = (*ALGORITHMS.values(), *SPARE, *STEPS)


def marks_of(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for each algorithm: its own, or one of the spare ones in turn.

    >>> marks_of(["ftfa", "mine"])["mine"].key
    'spare0'
    """
    found: dict[str, Mark] = {}
    spare = 0
    for name in names:
        if name in found:
            continue
        if name in ALGORITHMS:
            found[name] = ALGORITHMS[name]
            continue
        mark, known = SPARE[spare % len(SPARE)], REGISTRY.at_hand(name)
        chosen = mark if known is None else mark._replace(marker=known.marker or mark.marker)
        found[name] = chosen
        spare += 1
    return found


def scale_of(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for each step of a scale, in its order.

    >>> [mark.key for mark in scale_of(["0", "batch", "10"]).values()]
    ['step0', 'step1', 'step2']
    """
    return {name: STEPS[at % len(STEPS)] for at, name in enumerate(dict.fromkeys(names))}


def luminance(colour: str) -> float:
    """Relative luminance of a colour, by the definition of the Web Content Accessibility Guidelines."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, from 1 to 21.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def readable(colour: str, background: str, least: float = 3.0) -> str:
    """The colour itself, or the nearest shade of it that stands out from the background: 3 is asked of graphics.

    >>> readable("#0072b2", "#ffffff"), readable("#e69f00", "#ffffff")
    ('#0072b2', '#c68900')
    """
    end = 255 if luminance(background) < 0.18 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    for share in range(0, 101, 1):
        mixed = "#" + "".join(f"{round(part + (end - part) * share / 100):02x}" for part in parts)
        if contrast(mixed, background) >= least:
            return mixed
    raise AssertionError(f"neither black nor white stands out from {background}")
