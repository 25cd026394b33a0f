"""Numbers at the door: what a user gave as floats, with one answer for all that is none, or too large for one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def floats(value: Any) -> NDArray[np.float64] | None:
    """A new array of floats; None where the value is no number, no array of numbers, or too large for a float.

    >>> floats([1, 2]), floats("many"), floats(10**400)
    (array([1., 2.]), None, None)
    """
    try:
        return np.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return None


def one_float(value: Any) -> float:
    """One number as a float; NaN, which no range allows, for everything else.

    >>> one_float(2), one_float([2]), one_float(10**400)
    (2.0, nan, nan)
    """
    array = floats(value)
    return float(array) if array is not None and array.ndim == 0 else float("nan")
