"""How long work tells how far it is: one kind of function, whatever the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedasym.core.errors import InvalidInput


class Notice(str):
    """Words of progress that stay to be read: something was damaged or lost."""

    __slots__ = ()


Progress = Callable[[float, str], None]  # hears what share of all is done, and a few words on where that is


def check_progress(progress: Any) -> None:
    """Refuse what cannot be told anything, before any work.

    >>> check_progress(True)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: progress is True: give a function of the share that is done and of a few words, such as print
    """
    if progress is not None and not callable(progress):
        raise InvalidInput(
            f"progress is {progress!r}: give a function of the share that is done and of a few words, such as print"
        )
