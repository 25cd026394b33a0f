"""Round numbers for axes."""

from __future__ import annotations

import math


def ticks(low: float, high: float, most: int = 6, least: float = 0.0) -> list[float]:
    """Round numbers between two ends, about so many at most, and no nearer to each other than `least`.

    >>> ticks(67.3, 83), ticks(0, 400, 5), ticks(0, 2, least=1)
    ([70.0, 75.0, 80.0], [0.0, 100.0, 200.0, 300.0, 400.0], [0.0, 1.0, 2.0])
    """
    rough = max((high - low) / most, least)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{at * step:.12g}") for at in range(first, math.floor(high / step + 1e-9) + 1)]
