"""A setting of an algorithm: its name, default, range and meaning, written once where it belongs.

A stage declares its settings as fields; signatures, experiment files, flags and the reference are
made of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedasym.core.arrays import one_float
from fedasym.core.errors import InvalidInput, one_of

LARGEST = 2**53  # of the whole numbers that are exact as others
ABSENT: Any = ...  # no default: a value must be given


@dataclass(frozen=True)
class Setting:
    """What a value may be: a number above or at least a bound, whole or not, one of a few words.

    A default of None is allowed as a value too: something else decides then, as `meaning` says.

    >>> Setting("penalty", 0.1, above=0).check(-1)
    Traceback (most recent call last):
    fedasym.InvalidInput: penalty is -1: it must be a finite number above 0
    """

    name: str
    default: Any = ABSENT
    above: float | None = None
    least: float | None = None
    most: float | None = None
    whole: bool = False
    choices: tuple[str, ...] = ()
    meaning: str = ""
    grid: tuple[float, ...] = ()
    usual: float | None = None

    @property
    def allowed(self) -> str:
        """The range in words."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        bounds = [] if self.above is None else [f"above {self.above:g}"]
        bounds += [] if self.least is None else [f"of at least {self.least:g}"]
        bounds += [] if self.most is None else [f"of at most {self.most:g}"]
        kind = "a whole number" if self.whole else "a finite number"
        return " ".join([kind, *([" and ".join(bounds)] if bounds else [])])

    def check(self, value: Any) -> Any:
        """The value as a plain number or word, or a sentence about what is wrong with it."""
        if value is None and self.default is None:
            return None
        if self.choices:
            one_of(self.name, value, self.choices)
            return value
        number = one_float(value)
        huge = self.whole and isinstance(value, int) and value > LARGEST
        if huge:
            raise self.refusal(value, f" and at most {LARGEST}")
        if isinstance(value, bool | np.bool_) or not math.isfinite(number):
            raise self.refusal(value)
        if self.whole and number != int(number):
            raise self.refusal(value)
        low = self.above is not None and not number > self.above
        small = self.least is not None and not number >= self.least
        large = self.most is not None and not number <= self.most
        if low or small or large:
            raise self.refusal(value)
        return int(number) if self.whole else number

    def refusal(self, value: Any, more: str = "") -> InvalidInput:
        """The sentence for a value that is not allowed."""
        return InvalidInput(f"{self.name} is {value!r}: it must be {self.allowed}{more}")


def setting(
    default: Any = ABSENT,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool | None = None,
    choices: Sequence[str] = (),
    meaning: str = "",
    grid: Sequence[float] = (),
    usual: float | None = None,
) -> Any:
    """A field of a stage that runs may set and grids may tune.

    default: its value where nobody says another; None: something else decides. above, least, most:
    its range. whole: whether it is a whole number, which a default that is one says too. grid: what
    tuning tries by default. meaning: a few words for tables and the reference. usual: what training
    takes where the default is None and a run says nothing.

    >>> import fedasym as fa
    >>> class Shrink(fa.algorithms.ClientStage):
    ...     pull: float = fa.algorithms.setting(0.5, above=0, meaning="pull towards the shared model")
    ...     def keep(self, x):
    ...         return self.pull / (x + self.pull)
    >>> float(Shrink(pull=3).keep(1.0))
    0.75
    """
    whole = isinstance(default, int) and not isinstance(default, bool) if whole is None else whole
    tried = tuple(map(float, grid))
    about = Setting("", default, above, least, most, whole, tuple(choices), meaning, tried, usual)
    told = {} if default is ABSENT else {"default": default}
    return dataclasses.field(**told, metadata={"setting": about})


def rule(default: Any) -> Any:
    """A field of a stage that is no number to tune: the protocol of a run decides, by its field of the same name.

    >>> import fedasym as fa
    >>> class Shrink(fa.algorithms.ServerStage):
    ...     decay: float = fa.algorithms.rule(0.0)
    >>> Shrink().decay, list(Shrink.settings())
    (0.0, [])
    """
    return dataclasses.field(default=default, kw_only=True, repr=False, metadata={"rule": True})
