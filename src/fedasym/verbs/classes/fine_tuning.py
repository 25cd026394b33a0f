"""`fine_tuning` and `one_step` for a `ClassPopulation`: accuracy along early-stopped fine-tuning, and where to stop."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array, floats, one_float
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.core.text import number
from fedasym.results.accuracy import Accuracy, fixed, percent
from fedasym.results.result import Result
from fedasym.theory.classes import softmax_ridge as multinomial_stopping
from fedasym.theory.classes.optimum import logistic_curvature as curvature
from fedasym.theory.classes.optimum import stopped_fits as stopped
from fedasym.verbs.classes import multinomial
from fedasym.verbs.classes.binary import Answer, best_time
from fedasym.verbs.classes.methods import Method
from fedasym.verbs.classes.prediction import computed, flattened
from fedasym.verbs.classes.scores import scored
from fedasym.verbs.fine_tuning import checked_size, unboxed
from fedasym.worlds.classes import ClassPopulation

ALONG = ("accuracy", "log_loss", "brier", "slope", "ridge")
CLOCK = "Times are matched to ridges by an arc-length clock: accuracies along the path are good to about 0.3 percentage points."


class AccuracyStop(NamedTuple):
    """The best stopping point: steps or time, and the scores there."""

    at: float | Array
    scores: Accuracy


@dataclass(frozen=True, eq=False)
class AccuracyPath(Result):
    """Scores along fine-tuning; `times` are steps or step x steps, the last axis of every array.

    `ridge` is that of rtfa with the same model: stopping early is a ridge in disguise, here too.

    >>> import fedasym as fa
    >>> path = fa.fine_tuning(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), times=[0, 1, 100])
    >>> path.accuracy.round(3).tolist(), round(path.best.scores.accuracy, 3), round(path.best.at, 2)
    ([0.686, 0.696, 0.627], 0.697, 0.66)
    """

    times: Array
    accuracy: Array
    log_loss: Array
    brier: Array
    slope: Array
    ridge: Array
    best: AccuracyStop
    step: float | None
    title: str

    @property
    def unit(self) -> str:
        """What `times` counts."""
        return "time" if self.step is None else "steps"

    def table(self) -> list[dict[str, float]]:
        """One record per stopping time (of a single world): feed it to any data frame."""
        if self.accuracy.ndim > 1:
            raise InvalidInput("table() is for a path of a single world; index .accuracy for a grid")
        columns = {self.unit: self.times} | {name: getattr(self, name) for name in ALONG}
        return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_json(self) -> str:
        """Full precision: the path and its best stopping point."""
        best = {self.unit: plain(self.best.at)} | {name: plain(getattr(self.best.scores, name)) for name in ALONG[:-1]}
        path = {name: plain(getattr(self, name)) for name in ALONG}
        return json.dumps({"step": self.step, self.unit: plain(self.times), **path, "best": best}, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw the path to a file (PNG, SVG or PDF by its ending) and return where it is."""
        return write_file("draw path of accuracies", self, path)

    def __str__(self) -> str:
        lines = [self.title, ""]
        if self.accuracy.ndim > 1:
            return "\n".join([*lines, f"{self.times.size} stopping times for each of {self.accuracy[..., 0].size} worlds"])
        lines.append(f"  {self.unit:>11}{'accuracy':>11}{'log-loss':>11}{'Brier':>10}{'slope':>10}{'ridge':>11}")
        for t, right, loss, brier, slope, ridge in (row.values() for row in self.table()):
            cells = f"{number(t):>11}{percent(right):>11}{number(loss):>11}{fixed(brier):>10}{fixed(slope):>10}"
            lines.append(f"  {cells}{number(ridge):>11}")
        best = f"Best stopping point: at {self.unit} {number(self.best.at)}, accuracy {percent(self.best.scores.accuracy)}."
        return "\n".join([*lines, "", best, CLOCK])


def fine_tuning_classes(
    world: ClassPopulation,
    step: float | None,
    steps: ArrayLike | None,
    times: ArrayLike | None,
    clients: ArrayLike | None,
) -> AccuracyPath:
    """Accuracy after each number of gradient steps from the shared model; see `fedasym.fine_tuning`."""
    if clients is not None:
        raise NoFormula("early stopping with finitely many clients is not derived for classes: leave clients out, "
                        "or take rtfa, which predict gives for any number")  # fmt: skip
    if times is not None and (steps is not None or step is not None):
        raise InvalidInput("times and steps are both given: give times, which are step x steps, or step and steps")
    every = singles(world)
    steepest = max(curvature_of(each) for each in every)
    size = checked_step(step, steps, steepest)
    wanted = checked_times(times, steps, size, steepest, world.classes)
    at = wanted if size is None else wanted * size
    walk = path_binary if world.classes == 2 else path_multinomial
    rows = [walk(each, at, size) for each in every]
    columns = {name: np.array([np.asarray(getattr(row, name)) for row in rows]) for name in (*ALONG, "time")}
    along = {name: columns[name][:, :-1].reshape(*world.shape, -1) for name in ALONG}
    last = {name: unboxed(column[:, -1].reshape(world.shape)) for name, column in columns.items()}
    stop = AccuracyStop(last["time"] if size is None else unboxed(np.round(np.asarray(last["time"]) / size)), Accuracy(**last))
    how = "gradient flow, time = step x steps" if size is None else f"gradient steps of {size:.4g}"
    title = f"{world} · infinitely many clients · {how}"
    return AccuracyPath(times=wanted, **along, best=stop, step=size, title=title)


def singles(world: ClassPopulation) -> list[ClassPopulation]:
    """The worlds of a grid one by one."""
    return [world.at(index) for index in np.ndindex(world.shape)] if world.shape else [world]


def curvature_of(world: ClassPopulation) -> float:
    """A bound on the loss's largest curvature: descent needs steps below 2 over it."""
    bound = curvature if world.classes == 2 else multinomial_stopping.softmax_curvature
    return float(bound(world.energies, float(np.asarray(world.aspect))))


def path_binary(world: ClassPopulation, times: Array, step: float | None) -> Accuracy:
    """Scores at these times and, last, at the best one, of a single world."""
    worlds = flattened(world, (), None, True)
    at = np.append(times, whole(float(best_time(worlds)[0]), step))
    found = stopped(world.energies, world.aspect, at, world.flips)
    eps = np.broadcast_to(np.asarray(world.flips, dtype=float), at.shape)
    return scored(Answer(found.fit, ridge=found.lam, time=at), eps)


def path_multinomial(world: ClassPopulation, times: Array, step: float | None) -> Accuracy:
    """The same for more classes."""
    at = np.append(times, whole(multinomial.best_time(world), step))
    fits = multinomial_stopping.stopped_softmax_fits(world.energies, float(np.asarray(world.aspect)), at, world.classes)
    rows = [multinomial.scored(fit, ridge=fit.ridge) for fit in fits]
    return Accuracy(**{name: np.array([getattr(row, name) for row in rows]) for name in ALONG}, time=at)


def whole(time: float, step: float | None) -> float:
    """The time of a whole number of steps that is nearest."""
    return time if step is None else float(np.round(time / step) * step)


def one_step_classes(world: ClassPopulation, step: ArrayLike | None) -> tuple[float | Array, Accuracy]:
    """One gradient step from the shared model; see `fedasym.one_step`."""
    size = None if step is None else one_float(step)
    if size is not None and not 0 <= size < np.inf:
        raise InvalidInput(f"step is {step!r}: it must be one finite number of at least 0; leave it out for the best")
    worlds = flattened(world, world.shape, None, True)
    found = computed(Method("one_step", "one_step", step=size), world, worlds, world.shape)
    assert found.step is not None
    return found.step, found


def checked_step(step: float | None, steps: ArrayLike | None, steepest: float) -> float | None:
    """The size of a step, below 2/curvature; half of that where only their number is given; None for times."""
    if step is None:
        return None if steps is None else 1 / steepest
    size = checked_size(step)
    if size >= 2 / steepest:
        raise InvalidInput(f"step is {size:g}: descent diverges with steps of {2 / steepest:.4g} or more; give a smaller one")
    return size


def checked_times(times: ArrayLike | None, steps: ArrayLike | None, step: float | None, steepest: float, classes: int) -> Array:
    """The stopping times or numbers of steps asked for; by default from none to far beyond the best."""
    given, name, kind = (times, "times", "times of at least 0") if step is None else (steps, "steps", "whole numbers from 0 on")
    if given is None:
        grid = np.geomspace(0.1, 1e4, 28) if classes == 2 else np.geomspace(0.1, 300, 10)
        return np.append(0, grid / steepest) if step is None else np.unique(np.round(np.append(0, np.maximum(grid, 1))))
    asked = floats(given)
    at = np.atleast_1d(np.nan if asked is None else asked)
    good = np.isfinite(at) & (at >= 0) & ((step is None) | (at == np.round(np.where(np.isfinite(at), at, 0.5))))
    if at.ndim != 1 or at.size == 0 or not np.all(good):
        endless = "; to convergence, see ftfa in predict" if np.any(np.isinf(at)) else ""
        raise InvalidInput(f"{name} is {given!r}: give a list of {kind}{endless}")
    return at
