"""A simulation's finished trials in a file, written after each: work survives an interruption and is never repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.files import replace_text
from fedasym.verbs.simulation_plans import Losses

FORMAT = "fedasym simulation 1"


class Ledger:
    """The losses of finished trials by point and trial; with a path they are also in that file, whole at every moment."""

    def __init__(self, path: str | Path | None, arguments: dict[str, Any]) -> None:
        # Through JSON and back, so that what is compared is what a file can hold.
        self.arguments = json.loads(json.dumps(arguments))
        self.path = None if path is None else path_of("save", path)
        self.trials: dict[str, Losses] = {} if self.path is None else self._opened(self.path)

    def _opened(self, path: Path) -> dict[str, Losses]:
        if not path.parent.exists():
            raise InvalidInput(f"save is {str(path)!r}: the folder {str(path.parent)!r} does not exist; make it first")
        if not path.exists():
            return {}
        try:
            held = json.loads(path.read_text())
            known, trials = held["arguments"], held["trials"]
            if held["format"] != FORMAT or not isinstance(known, dict):
                raise ValueError
            if len({shape_of(losses, len(self.arguments["world"])) for losses in trials.values()}) > 1:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError):
            raise self._foreign() from None
        other = [name for name in self.arguments if known.get(name) != self.arguments[name]]
        if other:
            raise InvalidInput(
                f"save is {str(path)!r}: this file holds a simulation with another {' and '.join(other)}; "
                "name another file, or ask for the same again"
            )
        return dict(trials)

    def _foreign(self) -> InvalidInput:
        return InvalidInput(f"save is {str(self.path)!r}: this file is not a saved simulation; name another one")

    def check(self, names: set[str]) -> None:
        """Refuse a file whose trials are of other algorithms than these."""
        if any(losses.keys() != names for losses in self.trials.values()):
            raise self._foreign()

    def get(self, point: int, trial: int) -> Losses | None:
        """The losses of a finished trial."""
        return self.trials.get(f"{point}.{trial}")

    def add(self, point: int, trial: int, losses: Losses) -> None:
        """One more finished trial."""
        self.trials[f"{point}.{trial}"] = losses
        self.write()

    def write(self, result: dict[str, Any] | None = None) -> None:
        """Write everything; there is no moment without a whole file."""
        if self.path is None:
            return
        held = {"format": FORMAT, "arguments": self.arguments, "trials": self.trials, "result": result}
        try:
            replace_text(self.path, json.dumps(held))
        except OSError as reason:
            raise InvalidInput(f"save is {str(self.path)!r}: it cannot be written: {reason.strerror}") from None


def shape_of(losses: Any, kinds: int) -> tuple[Any, ...]:
    """The algorithms of a trial in a file, and how many numbers each has for a kind of clients; a `ValueError` for no trial.

    >>> shape_of({"fedavg": [[1.0, 0.5]], "ftfa": [[0.25, 0.0]]}, kinds=1)
    (2, 'fedavg', 'ftfa')
    """
    table = np.array(list(losses.values()))
    if table.shape[1:] not in ((kinds, 1), (kinds, 2)) or table.dtype.kind not in "iuf":
        raise ValueError("this is no trial")
    return (table.shape[-1], *sorted(losses))
