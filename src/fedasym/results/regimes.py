"""What separates regimes: who wins, when to stop, where classes separate, what mixing repairs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, json_value, notebook_text, number, one_float
from fedasym.core.runtime import write_file
from fedasym.results import LOSS, Accuracy, Metric, MetricResult, Result, Scores, percent
from fedasym.worlds import describe_values


@dataclass(frozen=True, eq=False)
class Diagram(MetricResult):
    """Losses (accuracies) of two algorithms over one or two parameters; prints and draws itself.

    `axes` maps each varied parameter to its values; `first_values` and `second_values` have one
    axis per parameter, in that order. `boundary` has one row per point where the winner changes,
    one column per parameter.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> line = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 50)})
    >>> line.boundary.round(6).tolist(), line.best
    ([[0.707107]], 'fedavg')
    >>> classes = fa.ClassPopulation(radius=1, centre=1, aspect=0.3)
    >>> line = fa.compare("local_ridge", "fedavg", classes, vary={"radius": (0.5, 3, 6)})
    >>> line.winner.tolist()[:2], line.boundary.round(2).tolist()
    (['fedavg', 'local_ridge'], [[0.99]])
    """

    _kind: ClassVar[str] = "diagram"
    first: str
    second: str
    axes: dict[str, Array]
    first_values: Array
    second_values: Array
    boundary: Array
    title: str
    metric: Metric = LOSS

    @property
    def winner(self) -> NDArray[np.str_]:
        """The name of the better one at each point; "tie" where they agree."""
        a, b = self.first_values, self.second_values
        with np.errstate(invalid="ignore"):
            ahead = np.where(self.metric.is_better(a, b), self.first, self.second)
        return np.where(self.metric.are_tied(a, b), "tie", ahead)

    @property
    def best(self) -> str:
        """The one that wins at more points, of equal ones the first."""
        return max((self.first, self.second), key=lambda name: int(np.sum(self.winner == name)))

    @property
    def gain(self) -> Array:
        """The first's lead: log2(second loss / first loss), 1 for half the loss; or in points."""
        if self.metric.share:
            return np.asarray(100 * (self.first_values - self.second_values))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log2(self.second_values / self.first_values)
        return np.where(self.first_values == self.second_values, 0.0, ratio)

    def table(self) -> list[dict[str, Any]]:
        """One record per point: the parameters, both values, the winner."""
        winner = self.winner
        values = list(self.axes.values())
        return [
            {name: float(axis[i]) for name, axis, i in zip(self.axes, values, at, strict=True)}
            | {self.first: float(self.first_values[at]), self.second: float(self.second_values[at])}
            | {"winner": str(winner[at])}
            for at in np.ndindex(self.first_values.shape)
        ]

    def to_json(self) -> str:
        """Full precision: axes, losses or accuracies, and the boundary."""
        held = {
            "first": self.first,
            "second": self.second,
            "axes": {name: json_value(values) for name, values in self.axes.items()},
            self.metric.plural: {
                "first": json_value(self.first_values),
                "second": json_value(self.second_values),
            },
            "boundary": json_value(self.boundary) if self.boundary.size else [],
        }
        return json.dumps(held, indent=2)

    def __str__(self) -> str:
        spans = ", ".join(
            f"{name} from {v.min():g} to {v.max():g}" for name, v in self.axes.items()
        )
        opening = [self.title, "", f"{self.first} against {self.second} over {spans}:"]
        return "\n".join(
            [*opening, *self._shares(), "", *self._lead_lines(), *boundary_lines(self)]
        )

    def _shares(self) -> list[str]:
        """Who wins how often; with accuracies, between which values."""
        winner = self.winner
        lines = []
        for name, values in ((self.first, self.first_values), (self.second, self.second_values)):
            share = float(np.mean(winner == name))
            span = ""
            if self.metric.share:
                span = (
                    f", accuracy {self.metric.show(np.nanmin(values))} to"
                    f" {self.metric.show(np.nanmax(values))}"
                )
            lines += [f"  {name:<12}wins {share:.1%}{span}"] if share > 0 or span else []
        tied = float(np.mean(winner == "tie"))
        return lines + ([f"  {'tie':<12}is {tied:.1%}"] if tied > 0 else [])

    def _lead_lines(self) -> list[str]:
        """With accuracies, by how many points."""
        if not self.metric.share:
            return []
        low, high = np.nanmin(self.gain), np.nanmax(self.gain)
        return [f"{self.first} is ahead by {low:+.2f} to {high:+.2f} percentage points."]


def boundary_lines(diagram: Diagram) -> list[str]:
    """The last lines: the boundary, or some of its points."""
    points = diagram.boundary
    names = list(diagram.axes)
    if not points.size:
        return ["There is no boundary within this range."]
    shown = points[np.unique(np.linspace(0, len(points) - 1, 9).astype(int))]
    head = (
        f"The boundary ({len(points)} points, {len(shown)} shown):"
        if len(names) == 2
        else "They cross at:"
    )
    return [
        head,
        *(
            "  " + "  ".join(f"{name} {number(x)}" for name, x in zip(names, row, strict=True))
            for row in shown
        ),
    ]


class Stop(NamedTuple, Generic[Scores]):
    """The best stopping point: steps or time (infinite: to convergence) and the scores there."""

    at: float | Array
    scores: Scores


@dataclass(frozen=True, eq=False)
class FineTuning(MetricResult, Generic[Scores]):
    """Scores along fine-tuning; `times` are steps or flow times, the last axis of every array.

    The numbers along the path are attributes: `loss`, `bias` and `variance`; with classes
    `accuracy`, `log_loss`, `brier`, `slope`, and `ridge`, that of rtfa with the same model:
    stopping early is a ridge in disguise.

    >>> import fedasym as fa
    >>> path = fa.fine_tuning(fa.Population(1, 0.5**0.5, 2), flow=True)
    >>> round(path.best.at, 4), round(path.best.scores.loss, 5)
    (0.6185, 0.71162)
    >>> path = fa.fine_tuning(
    ...     fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), times=[0, 1, 100]
    ... )
    >>> path.accuracy.round(3).tolist(), round(path.best.scores.accuracy, 3), round(path.best.at, 2)
    ([0.686, 0.696, 0.627], 0.697, 0.66)
    """

    _kind: ClassVar[str] = "path"
    times: Array
    along: Scores
    best: Stop[Scores]
    step: float | None
    title: str
    metric: Metric = LOSS
    notes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """A number of the metric's, along the path."""
        held = self.__dict__
        if "metric" not in held or name not in (each.name for each in held["metric"].columns):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(held["along"], name)
        if found is None:
            raise AttributeError(f"this path has no {name}")
        return np.asarray(found)

    @property
    def unit(self) -> str:
        """What `times` counts."""
        return "time" if self.step is None else "steps"

    @property
    def _values(self) -> Array:
        return np.asarray(getattr(self.along, self.metric.name))

    @property
    def _columns(self) -> list[Any]:
        return [each for each in self.metric.columns if getattr(self.along, each.name) is not None]

    def table(self) -> list[dict[str, float]]:
        """One record per stopping time (of a single world): feed it to any data frame."""
        if self._values.ndim > 1:
            raise InvalidInput(
                f"table() is for a path of a single world; index .{self.metric.name} for a grid"
            )
        columns = {self.unit: self.times} | {
            each.name: getattr(self, each.name) for each in self._columns
        }
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, map(float, row), strict=True)) for row in rows]

    def to_json(self) -> str:
        """Full precision: the path and its best stopping point."""
        names = [each.name for each in self._columns]
        path = {name: json_value(getattr(self, name)) for name in names}
        best = {self.unit: json_value(self.best.at)} | {
            name: json_value(getattr(self.best.scores, name)) for name in names
        }
        return json.dumps(
            {"step": self.step, self.unit: json_value(self.times), **path, "best": best}, indent=2
        )

    def __str__(self) -> str:
        lines = [self.title, ""]
        if self._values.ndim > 1:
            count = self._values[..., 0].size
            return "\n".join(
                [*lines, f"{self.times.size} stopping times for each of {count} worlds"]
            )
        first, *others = self._columns
        columns = [first._replace(width=11), *others]
        lines.append(
            f"  {self.unit:>11}" + "".join(f"{each.head:>{each.width}}" for each in columns)
        )
        for record in self.table():
            lines.append(
                f"  {number(record[self.unit]):>11}"
                + "".join(each.cell(record) for each in columns)
            )
        where = (
            "at convergence" if np.isinf(self.best.at) else f"at {self.unit} {number(self.best.at)}"
        )
        value = self.metric.show(getattr(self.best.scores, self.metric.name))
        return "\n".join(
            [*lines, "", f"Best stopping point: {where}, {self.metric.name} {value}.", *self.notes]
        )


@dataclass(frozen=True, eq=False)
class Separability:
    """Whether a client's classes are separable: its aspect (unknowns seen per sample), the limit.

    >>> import fedasym as fa
    >>> str(fa.separability(fa.ClassPopulation(radius=1, centre=1, aspect=2)))
    'separable: aspect 2 is above the threshold 0.39855; the logistic fit diverges'
    """

    aspect: float | Array
    threshold: float | Array

    @property
    def separable(self) -> bool | NDArray[np.bool_]:
        """Where the logistic fit diverges."""
        over = np.asarray(self.aspect) >= np.asarray(self.threshold)
        return bool(over) if over.ndim == 0 else over

    def to_json(self) -> str:
        """Full precision."""
        over = self.separable if isinstance(self.separable, bool) else self.separable.tolist()
        return json.dumps(
            {
                "aspect": json_value(self.aspect),
                "threshold": json_value(self.threshold),
                "separable": over,
            },
            indent=2,
        )

    def __str__(self) -> str:
        if np.ndim(self.separable):
            return (
                f"separable in {np.mean(self.separable):.0%} of the grid; thresholds"
                f" {describe_values(self.threshold)}"
            )
        side, end = (
            ("above", "diverges")
            if self.separable
            else ("below", "is the maximum-likelihood estimate")
        )
        word = "separable" if self.separable else "not separable"
        return (
            f"{word}: aspect {number(self.aspect)} is {side} the threshold"
            f" {number(self.threshold)}; the logistic fit {end}"
        )

    def _repr_html_(self) -> str:
        return notebook_text(self)


@dataclass(frozen=True, eq=False)
class Mixture:
    """The shared and the personal model mixed: theta_bar + alpha (theta_hat - theta_bar).

    For a personal model without a length (trained to convergence on separable classes, `direction`)
    it is theta_bar + alpha theta_hat, with theta_hat scaled to margin 1.

    >>> import fedasym as fa
    >>> mixed = fa.interpolation(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), ridge=0.01)
    >>> round(mixed.alpha, 2), round(mixed.personal.accuracy, 3), round(mixed.mixed.accuracy, 3)
    (0.13, 0.637, 0.695)
    """

    alpha: float | Array
    mixed: Accuracy
    personal: Accuracy
    shared: Accuracy
    direction: bool = False

    def to_json(self) -> str:
        """Full precision: alpha, and the scores of the mixture and its two parts."""
        scores = ("accuracy", "log_loss", "brier", "slope")
        rows = {"mixed": self.mixed, "personal": self.personal, "shared": self.shared}
        parts = {
            part: {name: json_value(getattr(row, name)) for name in scores}
            for part, row in rows.items()
        }
        return json.dumps(
            {"alpha": json_value(self.alpha), "direction": self.direction, **parts}, indent=2
        )

    def __str__(self) -> str:
        if np.ndim(self.alpha):
            return f"mixtures of {np.size(self.alpha)} worlds, alpha {describe_values(self.alpha)}"
        formula = (
            "shared + alpha personal" if self.direction else "shared + alpha (personal - shared)"
        )
        told = f"alpha {number(self.alpha)} in {formula}: accuracy {percent(self.mixed.accuracy)}"
        return (
            f"{told}; personal alone {percent(self.personal.accuracy)}, shared alone"
            f" {percent(self.shared.accuracy)}"
        )

    def _repr_html_(self) -> str:
        return notebook_text(self)


BYTES = 4  # of a number that is sent
SHOWN = 12  # rows of a printed path


class BestRounds(NamedTuple):
    """The setting with the lowest loss after its last round."""

    settings: dict[str, float]
    loss: float
    rounds: int


@dataclass(frozen=True, eq=False)
class Rounds(Result):
    """What `fedasym.rounds` predicts; paths end in an axis of `rounds`, after those of settings.

    bias, variance: of the personal model's loss; what label noise and privacy noise left in the
        shared model counts as variance. ridge: at which it was reached, where the algorithm has
        one.
    shared_error: E||theta_t - theta_0||^2 in the covariance's norm, the excess loss of the shared
        model.
    floor: where shared_error ends, however many rounds; NaN where clipping makes it depend on the
        path.
    length: of a client's update before it is clipped.
    settings: the varied numbers by name, broadcast to the shape of the grid; last: the last round
        of each setting.

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
    # epsilon, noise multiplier and clip by setting
    privacy: dict[str, Array] = field(default_factory=dict)

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
                record |= {
                    "shared_error": float(self.shared_error[place]),
                    "length": float(self.length[place]),
                }
                records.append(
                    record if self.ridge is None else record | {"ridge": float(self.ridge[place])}
                )
        return records

    def to_json(self) -> str:
        """Full precision: settings, rounds, paths, the best setting, what privacy costs."""
        paths = {
            name: json_value(getattr(self, name))
            for name in ("loss", "bias", "variance", "ridge", "shared_error", "length")
        }
        held = {
            "algorithm": self.algorithm,
            "rounds": self.rounds.tolist(),
            "settings": {name: json_value(values) for name, values in self.settings.items()},
            **paths,
            "floor": json_value(self.floor),
            "best": {
                "settings": self.best.settings,
                "loss": self.best.loss,
                "rounds": self.best.rounds,
            },
            "privacy": {name: json_value(values) for name, values in self.privacy.items()},
            "notes": list(self.notes),
        }
        return json.dumps(held, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw losses over rounds, or the last over two settings, to a PNG, SVG or PDF file."""
        return write_file("draw rounds", self, path)

    def __str__(self) -> str:
        lines = [
            self.title,
            "",
            *(self._path_lines() if self.loss.ndim == 1 else self._grid_lines()),
        ]
        return "\n".join([*lines, "", *self.notes] if self.notes else lines)

    def _path_lines(self) -> list[str]:
        heads = (
            "round",
            "loss",
            "bias",
            "variance",
            "shared error",
            *(() if self.ridge is None else ("ridge",)),
        )
        lines = ["  " + "".join(f"{head:>14}" for head in heads)]
        keys = [head.replace(" ", "_") for head in heads]
        records = self.table()
        for i in np.unique(np.linspace(0, len(records) - 1, SHOWN).astype(int)):
            lines.append("  " + "".join(f"{number(records[i][key]):>14}" for key in keys))
        return lines

    def _grid_lines(self) -> list[str]:
        names = list(self.settings)
        final = self.final
        lines = ["  " + "".join(f"{name:>14}" for name in (*names, "last loss"))]
        order = np.argsort(np.where(np.isnan(final), np.inf, final), axis=None)
        for place in order[:SHOWN]:
            at = np.unravel_index(int(place), final.shape)
            cells = "".join(f"{number(self.settings[name][at]):>14}" for name in names)
            lines.append(f"{'*' if place == order[0] else ' '} {cells}{number(final[at]):>14}")
        rest = final.size - SHOWN
        return lines + ([f"  ... and {rest} more settings, which do worse"] if rest > 0 else [])


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyCosts(Result):
    """What `fedasym.privacy_costs` predicts: tables over budgets (rows) and numbers of clients.

    loss, shared_error: of personal and shared models after the best rounds of each cell, which
        have `rounds`, `cohort`, `local_steps`, `server_step`, `clip` and `noise_multiplier`.
    plain: the loss without privacy, by number of clients. alone: of clients that share nothing.
    margin: sharing pays where its loss is by this part below that of learning alone.
    pays: how many clients it takes for sharing to pay, by budget; infinite where it never does.
    radius: with that radius, clients without privacy would have as much more loss.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> told = {"dimension": 100, "epsilon": 1, "clients": [20, 500], "rounds": 8}
    >>> fa.privacy_costs(world, "fedavg", **told).shares.tolist()
    [[False, True]]
    """

    algorithm: str
    epsilon: Array
    clients: Array
    delta: float
    loss: Array
    shared_error: Array
    plain: Array
    alone: float
    margin: float
    radius: Array
    pays: Array
    clip: Array
    rounds: Array
    cohort: Array
    local_steps: Array
    server_step: Array
    noise_multiplier: Array
    title: str

    @property
    def shares(self) -> NDArray[np.bool_]:
        """Where sharing pays."""
        return np.asarray(self.loss <= (1 - self.margin) * self.alone)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the table says, in sentences."""
        told = []
        for budget, count in zip(self.epsilon, self.pays, strict=True):
            many = f"{count:,.0f}" if np.isfinite(count) else "no number"
            told.append(f"{many} at epsilon {number(budget)}")
        return (
            f"Alone, which costs no privacy: {number(self.alone)}. Sharing pays, by"
            f" {self.margin:.0%} or more, with at least so many clients: {', '.join(told)}.",
            "Privacy costs what a larger radius would cost: "
            + "; ".join(
                f"epsilon {number(e)} with {m:,.0f} clients {number(r)}"
                for e, r, m in zip(
                    self.epsilon,
                    self.radius[:, -1],
                    np.full(len(self.epsilon), self.clients[-1]),
                    strict=True,
                )
            )
            + ". Personalising costs no privacy.",
        )

    def table(self) -> list[dict[str, Any]]:
        """One record per budget and number of clients: feed it to any data frame."""
        names = ("loss", "shared_error", "radius", "clip", "rounds", "cohort", "local_steps")
        return [
            {"epsilon": float(e), "clients": int(m)}
            | {name: float(getattr(self, name)[i, j]) for name in names}
            | {
                "server_step": float(self.server_step[i, j]),
                "noise_multiplier": float(self.noise_multiplier[i, j]),
                "plain": float(self.plain[j]),
                "shares": bool(self.shares[i, j]),
            }
            for i, e in enumerate(self.epsilon)
            for j, m in enumerate(self.clients)
        ]

    def to_json(self) -> str:
        """Full precision: the cells, what clients reach alone, and from when on sharing pays."""
        held = {
            "algorithm": self.algorithm,
            "delta": self.delta,
            "alone": self.alone,
            "margin": self.margin,
            "pays": {
                number(e): json_value(m) for e, m in zip(self.epsilon, self.pays, strict=True)
            },
            "cells": [
                {name: json_value(v) if isinstance(v, float) else v for name, v in row.items()}
                for row in self.table()
            ],
            "notes": list(self.notes),
        }
        return json.dumps(held, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw the losses over epsilon, a curve per number of clients, to a PNG, SVG or PDF."""
        return write_file("draw privacy costs", self, path)

    def __str__(self) -> str:
        width = 12
        head = f"{'clients':>{width}}" + "".join(
            f"{f'epsilon {number(e)}':>{width}}" for e in self.epsilon
        )
        lines = [self.title, "", head + f"{'not private':>{width}}"]
        for j, m in enumerate(self.clients):
            cells = "".join(
                f"{number(self.loss[i, j]) + ('' if self.shares[i, j] else ' !'):>{width}}"
                for i in range(len(self.epsilon))
            )
            lines.append(f"{m:>{width},.0f}{cells}{number(self.plain[j]):>{width}}")
        if not self.shares.all():
            lines += ["", f"! beyond the line: sharing gains less than {self.margin:.0%}."]
        best = np.unravel_index(int(np.argmin(self.loss)), self.loss.shape)
        lines += ["", *self.notes]
        lines.append(
            f"Best rounds for epsilon {number(self.epsilon[best[0]])} and"
            f" {self.clients[best[1]]:,.0f} clients: {self.rounds[best]:.0f} rounds of"
            f" {self.cohort[best]:,.0f} clients, {number(self.local_steps[best])} local steps of"
            f" {number(self.server_step[best])}, clip {number(self.clip[best])}, noise multiplier"
            f" {number(self.noise_multiplier[best])}."
        )
        return "\n".join(lines)

    __repr__ = __str__
