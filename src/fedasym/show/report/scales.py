"""The axes of curves: which part of the values is shown, and where the ticks are. Used for figures and for the page alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedasym.core.arrays import Array
from fedasym.show.report.curves import Curve
from fedasym.show.report.ticks import ticks

LEAST = 12.0  # points of accuracy that are shown below the second half of training, where there are any
WIDE = 20  # ratio of the largest to the smallest loss from which the axis is logarithmic


class Span(NamedTuple):
    """What an axis shows; cut: some early values lie outside."""

    low: float
    high: float
    logarithmic: bool = False
    cut: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one.

        >>> Span(0, 50).share(25), Span(1, 100, logarithmic=True).share(10)
        (0.5, 0.5)
        """
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def finite(values: Iterable[Array]) -> Array:
    """All finite entries."""
    flat = np.concatenate([np.ravel(each) for each in values]) if (values := list(values)) else np.empty(0)
    return np.asarray(flat[np.isfinite(flat)])


def span(curves: Iterable[Curve], *, loss: bool) -> Span:
    """Limits that give the second half of training its share of the height: the first rounds would flatten the rest.

    >>> span([Curve((0, 50, 100), np.array([[1.0, 80.0, 82.0]]))], loss=False)
    Span(low=68.0, high=82.7, logarithmic=False, cut=True)
    """
    held = list(curves)
    last = max((curve.rounds[-1] for curve in held), default=0)
    every = finite(curve.values for curve in held)
    late = finite(curve.values[:, 2 * np.array(curve.rounds) >= last] for curve in held)
    if not late.size:
        return Span(0.0, 1.0)
    if loss and every.min() > 0 and late.max() > WIDE * late.min():
        return Span(float(every.min()) / 1.2, float(every.max()) * 1.2, logarithmic=True)
    low, high = float(late.min()), float(late.max())
    room = max(1.5 * (high - low), 0.5 * abs(high) if loss else LEAST)
    floor, ceiling = float(every.min()), float(every.max())
    cut = ceiling > high + room if loss else floor < low - room
    if cut:
        floor, ceiling = (max(low - room, floor), high + room) if loss else (low - room, ceiling)
    margin = max(0.05 * (ceiling - floor), 0.005 * abs(ceiling)) or 1.0
    bottom = floor if cut and not loss else floor - margin
    top = ceiling if cut and loss else ceiling + margin
    return Span(bottom, top, cut=bool(cut))


def axis_ticks(shown: Span, most: int = 6) -> list[float]:
    """Ticks of an axis; a logarithmic one has them at 1, 2 and 5 times powers of ten.

    >>> axis_ticks(Span(0.03, 1.5, logarithmic=True))
    [0.05, 0.1, 0.2, 0.5, 1.0]
    """
    if not shown.logarithmic:
        return ticks(shown.low, shown.high, most)
    powers = range(math.floor(math.log10(shown.low)), math.ceil(math.log10(shown.high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    found = [float(f"{factor * 10.0**power:.12g}") for power in powers for factor in factors]
    return [each for each in found if shown.low <= each <= shown.high]
