"""Losses over communication rounds, for one setting or a grid of them; prints itself and draws itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array, one_float
from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value, number
from fedasym.results.result import Result

BYTES = 4  # of a number that is sent
SHOWN = 12  # rows of a printed path


class BestRounds(NamedTuple):
    """The setting with the lowest loss after its last round."""

    settings: dict[str, float]
    loss: float
    rounds: int


@dataclass(frozen=True, eq=False)
class Rounds(Result):
    """What `fedasym.rounds` predicts; the last axis of every path is `rounds`, those before it are settings.

    bias, variance: of the personal model's loss; what label noise and privacy noise left in the
        shared model counts as variance. ridge: at which it was reached, where the algorithm has one.
    shared_error: E||theta_t - theta_0||^2 in the covariance's norm, the excess loss of the shared model.
    floor: where shared_error ends, however many rounds; NaN where clipping makes it depend on the path.
    length: of a client's update before it is clipped.
    settings: the varied numbers by name, broadcast to the shape of the grid; last: the last round of each setting.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> path = fa.rounds(world, "fedavg", rounds=200, local_steps=[1, 5, 20], server_step=0.1)
    >>> path.best.settings, path.rounds_to(1.1).tolist()
    ({'local_steps': 1.0}, [17.0, 6.0, 4.0])
    """

    algorithm: str
    rounds: NDArray[np.int64]
    bias: Array
    variance: Array
    ridge: Array | None
    shared_error: Array
    length: Array
    floor: Array
    settings: dict[str, Array]
    last: NDArray[np.int64]
    cohort: Array
    dimension: int | None
    title: str
    notes: tuple[str, ...] = ()
    privacy: dict[str, Array] = field(default_factory=dict)  # epsilon, noise multiplier and clip by setting

    @property
    def loss(self) -> Array:
        """Bias + variance of the personal model."""
        return np.asarray(self.bias + self.variance)

    @property
    def final(self) -> Array:
        """The loss after the last round of each setting."""
        at = np.searchsorted(self.rounds, self.last)
        return np.asarray(np.take_along_axis(self.loss, at[..., None], axis=-1)[..., 0])

    @property
    def best(self) -> BestRounds:
        """The setting with the lowest loss after its last round; of equal ones the first."""
        final = np.where(np.isnan(self.final), np.inf, self.final)
        at = np.unravel_index(int(np.argmin(final)), final.shape)
        chosen = {name: float(values[at]) for name, values in self.settings.items()}
        return BestRounds(chosen, float(self.final[at]), int(self.last[at]))

    @property
    def bytes_per_round(self) -> Array:
        """What a round sends both ways: cohort x unknowns x 4 bytes, down and up."""
        if self.dimension is None:
            raise InvalidInput("bytes need the number of unknowns: give dimension to fa.rounds")
        return np.asarray(2.0 * BYTES * self.dimension * self.cohort)

    def rounds_to(self, target: float) -> Array:
        """The first reported round whose loss is at most `target`; infinite where none is."""
        if not one_float(target) >= 0:
            raise InvalidInput(f"target is {target!r}: it must be a loss of at least 0")
        with np.errstate(invalid="ignore"):
            reached = self.loss <= target
        first = np.where(reached.any(-1), self.rounds[np.argmax(reached, axis=-1)], np.inf)
        return np.asarray(first, dtype=float)

    def bytes_to(self, target: float) -> Array:
        """The bytes that are sent until then."""
        return np.asarray(self.rounds_to(target) * self.bytes_per_round)

    def table(self) -> list[dict[str, Any]]:
        """One record per setting and round: feed it to any data frame."""
        records = []
        for at in np.ndindex(self.loss.shape[:-1]):
            setting = {name: float(values[at]) for name, values in self.settings.items()}
            for i, t in enumerate(self.rounds):
                if t > self.last[at]:
                    continue
                place = (*at, i)
                record = setting | {"round": int(t), "loss": float(self.loss[place])}
                record |= {"bias": float(self.bias[place]), "variance": float(self.variance[place])}
                record |= {"shared_error": float(self.shared_error[place]), "length": float(self.length[place])}
                records.append(record if self.ridge is None else record | {"ridge": float(self.ridge[place])})
        return records

    def to_json(self) -> str:
        """Full precision: settings, rounds, paths, the best setting, what privacy costs."""
        paths = {
            name: json_value(getattr(self, name)) for name in ("loss", "bias", "variance", "ridge", "shared_error", "length")
        }
        held = {
            "algorithm": self.algorithm,
            "rounds": self.rounds.tolist(),
            "settings": {name: json_value(values) for name, values in self.settings.items()},
            **paths,
            "floor": json_value(self.floor),
            "best": {"settings": self.best.settings, "loss": self.best.loss, "rounds": self.best.rounds},
            "privacy": {name: json_value(values) for name, values in self.privacy.items()},
            "notes": list(self.notes),
        }
        return json.dumps(held, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw losses over rounds, or the last loss over a grid of two settings, to a PNG, SVG or PDF file."""
        return write_file("draw rounds", self, path)

    def __str__(self) -> str:
        lines = [self.title, "", *(self._path_lines() if self.loss.ndim == 1 else self._grid_lines())]
        return "\n".join([*lines, "", *self.notes] if self.notes else lines)

    def _path_lines(self) -> list[str]:
        heads = ("round", "loss", "bias", "variance", "shared error", *(() if self.ridge is None else ("ridge",)))
        lines = ["  " + "".join(f"{head:>14}" for head in heads)]
        keys = [head.replace(" ", "_") for head in heads]
        records = self.table()
        for i in np.unique(np.linspace(0, len(records) - 1, SHOWN).astype(int)):
            lines.append("  " + "".join(f"{number(records[i][key]):>14}" for key in keys))
        return lines

    def _grid_lines(self) -> list[str]:
        names, final = list(self.settings), self.final
        lines = ["  " + "".join(f"{name:>14}" for name in (*names, "last loss"))]
        order = np.argsort(np.where(np.isnan(final), np.inf, final), axis=None)
        for place in order[:SHOWN]:
            at = np.unravel_index(int(place), final.shape)
            cells = "".join(f"{number(self.settings[name][at]):>14}" for name in names)
            lines.append(f"{'*' if place == order[0] else ' '} {cells}{number(final[at]):>14}")
        rest = final.size - SHOWN
        return lines + ([f"  ... and {rest} more settings, which do worse"] if rest > 0 else [])
