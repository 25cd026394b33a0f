"""What the pieces of a training run have in common, and what is measured of each job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.federation.federation import Federation
from fedasym.training.layout import Machine, cheaper_form
from fedasym.training.packing import in_full
from fedasym.training.settings import Protocol
from fedasym.training.sharing import Client, Jobs, Numbers

Piece = TypeVar("Piece")
Scored = NDArray[np.floating]  # (m, rounds, [validation, test], [hits, loss])


@dataclass(frozen=True)
class Work:
    """What all pieces of a run have in common."""

    federation: Federation
    protocol: Protocol
    precision: str  # of models
    stored: str  # precision of features
    machine: Machine
    form: str | None  # forced, for comparisons; by cost otherwise
    splits: tuple[int, ...]  # numbers of reshuffles to train on; none: the federation's own split
    report: Callable[[int, str], None]  # gradient steps done, and where that is

    @property
    def features(self) -> int:
        """Rows of a head: the features, and the intercept."""
        return in_full(self.federation.dimension + self.protocol.intercept, self.stored)

    @property
    def outputs(self) -> int:
        """Columns of a head."""
        return in_full(self.federation.outputs, self.stored)

    @property
    def filled(self) -> int:
        """The real columns, where there are more."""
        return self.federation.outputs if self.outputs > self.federation.outputs else 0

    @property
    def bytes_per_output(self) -> float:
        """Bytes of one number for every output."""
        return float(self.outputs * np.dtype(self.precision).itemsize)

    @property
    def partly_shared(self) -> bool:
        """Whether some features' weights are the same for all clients; clients then do not move along their samples alone."""
        return self.federation.personal is not None and not bool(self.federation.personal.all())

    @property
    def many_groups(self) -> bool:
        """Whether a client stage is worth more compiled programs."""
        return self.machine.together and self.federation.sequences

    def best_form(self, width: int, steps: int, batch: int) -> str:
        """Gram or head form for clients of that width; sequences have too many rows for the Gram form, and it has no rows."""
        if self.federation.sequences or self.partly_shared:
            return "head"
        return self.form or cheaper_form(width, self.features, steps, batch)


@dataclass
class Outcome:
    """What was measured of one job and seed."""

    rounds: list[int] = field(default_factory=list)
    personal: list[Scored] = field(default_factory=list)  # by round
    shared: list[Scored] = field(default_factory=list)
    fitted: list[Scored] = field(default_factory=list)  # by round: (m,) losses on training samples, in regression
    shared_fitted: list[Scored] = field(default_factory=list)
    head: NDArray[np.floating] | None = None
    diverged: int | None = None

    def add(self, rounds: Sequence[int], personal: Scored, shared: Scored, broken: int) -> None:
        """What all clients scored after some rounds, (m, rounds, ...), and the shared model in the same or in one of them.

        `broken` is the round after which the shared head was not finite, or -1.
        """
        for moment, round_ in enumerate(rounds):
            own = personal[:, min(moment, personal.shape[1] - 1)]
            self.rounds.append(round_)
            self.personal.append(own[:, :2])
            self.shared.append(shared[:, 0, :2])
            if own.shape[1] > 2:
                self.fitted.append(own[:, 2, 1])
                self.shared_fitted.append(shared[:, 0, 2, 1])
            if self.diverged is None and (broken >= 0 or not np.isfinite(own[:, :2, 1]).all()):
                self.diverged = broken if broken >= 0 else round_


Trajectory = tuple[Numbers, dict[Client, Jobs]]  # a server's rates, and the client stages that start from it


class Draw(NamedTuple):
    """What is random in a run: the seed of its training, and which of the work's splits it trains on."""

    seed: int
    split: int = 0


class Slab(NamedTuple):
    """Seeds and trajectories that run side by side; those behind the real ones only fill up the shape."""

    seeds: list[tuple[int, Draw]]  # with their places
    trajectories: list[Trajectory]
    real_seeds: int
    real_trajectories: int

    @property
    def draws(self) -> list[Draw]:
        """The seeds without their places."""
        return [draw for _, draw in self.seeds]


def parts(items: Sequence[Piece], size: int) -> Iterator[tuple[list[Piece], int]]:
    """Runs of `size` items and how many are real: the last is filled up by repeating its end, so that one program serves."""
    for start in range(0, len(items), size):
        part = list(items[start : start + size])
        yield part + part[-1:] * (size - len(part)), len(part)


def rates_of(rows: Sequence[Numbers], dtype: Any) -> dict[str, Array]:
    """Named rates as arrays."""
    return {name: jnp.asarray([dict(row)[name] for row in rows], dtype) for name, _ in rows[0]}
