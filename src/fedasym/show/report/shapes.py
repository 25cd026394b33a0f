"""The paths of SVG drawings: lines that stop where there is no number, bands, and the markers of the figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[tuple[float, float]]

# By matplotlib's letters: corners on the unit circle in degrees (0 to the right, 90 down), with a radius for each.
POLYGONS = {
    "v": ((90, 1.1), (210, 1.1), (330, 1.1)),
    "^": ((270, 1.1), (30, 1.1), (150, 1.1)),
    "<": ((180, 1.1), (300, 1.1), (60, 1.1)),
    ">": ((0, 1.1), (120, 1.1), (240, 1.1)),
    "s": tuple((angle, 1.2) for angle in (45, 135, 225, 315)),
    "D": tuple((angle, 1.2) for angle in (0, 90, 180, 270)),
    "d": ((0, 0.75), (90, 1.25), (180, 0.75), (270, 1.25)),
    "p": tuple((angle, 1.1) for angle in range(-90, 270, 72)),
    "h": tuple((angle, 1.1) for angle in range(30, 390, 60)),
    "*": tuple((angle, 1.35 if at % 2 == 0 else 0.6) for at, angle in enumerate(range(-90, 270, 36))),
    "P": tuple((turn + side, radius) for turn in range(0, 360, 90) for side, radius in ((-22, 1.15), (22, 1.15), (45, 0.6))),
    "X": tuple((turn + side, radius) for turn in range(45, 405, 90) for side, radius in ((-22, 1.25), (22, 1.25), (45, 0.6))),
}


def places(points: Points) -> str:
    """Points as SVG writes them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def marker(letter: str, x: float, y: float, radius: float) -> str:
    """A closed path around a point.

    >>> marker("s", 10, 10, 5)
    'M14.2,14.2 5.8,14.2 5.8,5.8 14.2,5.8Z'
    >>> marker("o", 10, 10, 5)
    'M5.0,10.0a5.0,5.0 0 1 0 10.0,0a5.0,5.0 0 1 0 -10.0,0Z'
    """
    if letter == "o":
        return f"M{x - radius:.1f},{y:.1f}a{radius:.1f},{radius:.1f} 0 1 0 {2 * radius:.1f},0" + (
            f"a{radius:.1f},{radius:.1f} 0 1 0 {-2 * radius:.1f},0Z"
        )
    turned = [(math.radians(angle), radius * size) for angle, size in POLYGONS[letter]]
    return f"M{places([(x + size * math.cos(angle), y + size * math.sin(angle)) for angle, size in turned])}Z"


def stretches(points: Points) -> list[list[tuple[float, float]]]:
    """Runs of finite points.

    >>> stretches([(0, 1), (1, float("nan")), (2, 3)])
    [[(0, 1)], [(2, 3)]]
    """
    found: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def line(points: Points) -> str:
    """A line through points, interrupted where one has no number.

    >>> line([(0, 1), (1, 2)])
    'M0.0,1.0 1.0,2.0'
    """
    return "".join(f"M{places(run)}" for run in stretches(points))


def band(across: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """The area between two lines.

    >>> band([0, 1], [5, 6], [3, 4])
    'M0.0,3.0 1.0,4.0 1.0,6.0 0.0,5.0Z'
    """
    bottom = dict(zip(across, low, strict=True))
    runs = stretches(list(zip(across, high, strict=True)))
    return "".join(f"M{places(run)} {places([(x, bottom[x]) for x, _ in reversed(run)])}Z" for run in runs)
