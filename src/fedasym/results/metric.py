"""What results are compared by: a name, which way is better, and how a value is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.text import number


@dataclass(frozen=True)
class Metric:
    """A number by which algorithms are ranked.

    tie: values closer than this, relatively for losses and absolutely for shares, are the same limit.

    >>> ACCURACY.show(0.8125), LOSS.show(0.8125), LOSS.better(1.0, 2.0), ACCURACY.better(1.0, 2.0)
    ('81.25%', '0.8125', True, False)
    """

    name: str
    lower: bool
    share: bool
    tie: float

    def better(self, one: Any, other: Any) -> Any:
        """Whether the first value is the better one, ties aside."""
        return one < other if self.lower else one > other

    def equal(self, one: Array, other: Array) -> NDArray[np.bool_]:
        """Where two values are the same limit."""
        with np.errstate(invalid="ignore"):
            near = self.tie if self.share else self.tie * np.minimum(one, other)
            return np.asarray((one == other) | (np.abs(one - other) <= near))

    def show(self, value: Any) -> str:
        """A value as tables have it; a dash where there is none."""
        if value is None or np.ndim(value) or (self.share and np.isnan(value)):
            return "-"
        return f"{100 * float(value):.2f}%" if self.share else number(value)

    @property
    def most(self) -> str:
        """The word for the best value."""
        return "lowest" if self.lower else "highest"


LOSS = Metric("loss", lower=True, share=False, tie=1e-10)
ACCURACY = Metric("accuracy", lower=False, share=True, tie=1e-9)
