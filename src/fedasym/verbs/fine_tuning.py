"""`fine_tuning`: the loss along early-stopped fine-tuning and where to stop; `one_step`: a single gradient step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array, flag, floats, one_float
from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.core.text import number
from fedasym.results.comparison import Risk
from fedasym.results.result import Result
from fedasym.theory.contours import sample_support as support
from fedasym.theory.filters import DescentFilter as Filter
from fedasym.theory.filters import best_stop, check_stable, horizon, single_step
from fedasym.theory.filters import stopped_risk as stopped
from fedasym.theory.finite import stopped_risk_of_clients as along
from fedasym.theory.limits import Parts, Worlds, centre_energy, flatten
from fedasym.verbs.sentences import how_many
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import Population, check_world, checked_clients

if TYPE_CHECKING:
    from fedasym.results.accuracy import Accuracy
    from fedasym.verbs.classes.fine_tuning import AccuracyPath

LARGEST = 1e100  # aspect whose square floating-point numbers still hold


class Stop(NamedTuple):
    """The best stopping point: steps or time (infinite: train to convergence) and the risk there."""

    at: float | Array
    risk: Risk


@dataclass(frozen=True)
class FineTuning(Result):
    """Risks along fine-tuning; `times` are steps or flow times, the last axis of bias and variance.

    >>> import fedasym as fa
    >>> path = fa.fine_tuning(fa.Population(1, 0.5**0.5, 2), flow=True)
    >>> round(path.best.at, 4), round(path.best.risk.loss, 5)
    (0.6185, 0.71162)
    """

    times: Array
    bias: Array
    variance: Array
    best: Stop
    step: float | None
    title: str

    @property
    def loss(self) -> Array:
        """Bias + variance along the path."""
        return np.asarray(self.bias + self.variance)

    def table(self) -> list[dict[str, float]]:
        """One record per stopping time (of a single world): feed it to any data frame."""
        if self.loss.ndim > 1:
            raise InvalidInput("table() is for a path of a single world; index .bias and .variance for a grid")
        columns = zip(self.times, self.loss, self.bias, self.variance, strict=True)
        return [{self.unit: float(t), "loss": float(x), "bias": float(b), "variance": float(v)} for t, x, b, v in columns]

    @property
    def unit(self) -> str:
        """What `times` counts."""
        return "time" if self.step is None else "steps"

    def to_json(self) -> str:
        """Full precision: the path and its best stopping point."""
        best = {self.unit: plain(self.best.at), "bias": plain(self.best.risk.bias)}
        best |= {"variance": plain(self.best.risk.variance), "loss": plain(self.best.risk.loss)}
        path = {name: plain(getattr(self, name)) for name in ("bias", "variance", "loss")}
        return json.dumps({"step": self.step, self.unit: plain(self.times), **path, "best": best}, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw the path to a file (PNG, SVG or PDF by its ending) and return where it is."""
        return write_file("draw path", self, path)

    def __str__(self) -> str:
        lines = [self.title, ""]
        if self.loss.ndim > 1:
            return "\n".join([*lines, f"{self.times.size} stopping times for each of {self.loss[..., 0].size} worlds"])
        lines.append(f"  {self.unit:>11}{'loss':>11}{'bias':>11}{'variance':>11}")
        for record in self.table():
            lines.append("  " + "".join(f"{number(value):>11}" for value in record.values()))
        where = "at convergence" if np.isinf(self.best.at) else f"at {self.unit} {number(self.best.at)}"
        return "\n".join([*lines, "", f"Best stopping point: {where}, loss {number(self.best.risk.loss)}."])


@overload
def fine_tuning(
    world: Population, *, step: float | None = None, steps: ArrayLike | None = None, flow: bool = False,
    times: ArrayLike | None = None, clients: float | None = None, member: bool = True,
) -> FineTuning: ...  # fmt: skip
@overload
def fine_tuning(
    world: ClassPopulation, *, step: float | None = None, steps: ArrayLike | None = None, flow: bool = False,
    times: ArrayLike | None = None, clients: float | None = None, member: bool = True,
) -> AccuracyPath: ...  # fmt: skip


def fine_tuning(
    world: Population | ClassPopulation,
    *,
    step: float | None = None,
    steps: ArrayLike | None = None,
    flow: bool = False,
    times: ArrayLike | None = None,
    clients: float | None = None,
    member: bool = True,
) -> FineTuning | AccuracyPath:
    """The loss (for a `ClassPopulation` the accuracy) after gradient steps from the shared model, and where to stop.

    With f(x) = (1 - step x)^t, or exp(-t x) for gradient flow, B = r^2 lim tau(Sigma f(S)^2) (its two-resolvent form
    under an alignment) and V = noise^2 aspect lim tau(Sigma (1 - f(S))^2/S).

    step: the size of a gradient step on 1/(2n)||Xb - y||^2; by default half of the largest stable one.
    steps: the numbers of steps wanted. flow, times: gradient flow instead, and the times wanted.
    clients, member: as in `predict`. With classes, `times` are step x steps, and clients are infinitely many.

    >>> import fedasym as fa
    >>> path = fa.fine_tuning(fa.Population(1, 0.5, 2), step=0.3, steps=[0, 1, 5, 20, 100])
    >>> path.loss.round(4).tolist()
    [1.0, 0.715, 0.6544, 0.7202, 0.7499]
    >>> path.best.at
    4.0
    """
    flow, member = flag("flow", flow), flag("member", member)
    if flow and (step is not None or steps is not None):
        raise InvalidInput("flow=True takes times=[...], not step or steps: leave those out")
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.fine_tuning import fine_tuning_classes

        return fine_tuning_classes(world, step, steps, times, clients)
    check_world(world)
    if not flow and times is not None:
        raise InvalidInput("times=[...] is for gradient flow: pass flow=True, or steps=[...] for gradient steps")
    flat = flatten(world, world.shape)
    alone = None if world.norm is None else flatten(world, world.shape, alone=True)
    centre = None if alone is None else centre_energy(flat, alone)
    m = None if clients is None else checked_clients(clients)
    if m is not None and m.ndim:
        raise InvalidInput("clients must be one number here; call fine_tuning once for each")
    if float(np.max(flat.gamma)) > LARGEST:
        raise InvalidInput(f"aspect is {float(np.max(flat.gamma)):g}: gradient descent is computed up to {LARGEST:g}")
    high = max(support(float(gamma), world.spectrum)[1] for gamma in flat.gamma)
    step = None if flow else 1 / high if step is None else checked_size(step)
    wanted = checked_times(times if flow else steps, flow, high, step, flat)

    def evaluator(i: int) -> Callable[[Array], Parts]:
        one = flat.take(slice(i, i + 1))

        def evaluate(at: Array) -> Parts:
            filter_ = Filter(at, step)
            if m is None:
                return stopped(one, filter_)
            return along(one, filter_, m.reshape(1), member, None if centre is None else centre[i : i + 1])

        return evaluate

    bias, variance, best = [], [], []
    for i in range(flat.r2.size):
        evaluate = evaluator(i)
        found = evaluate(wanted)
        bias.append(found[0])
        variance.append(found[1])
        best.append(best_stop(evaluate, flat.take(slice(i, i + 1)), step, high))
    shape = world.shape
    at, stop_bias, stop_variance = (unboxed(part) for part in np.array(best).T.reshape(3, *shape))
    stop = Stop(at, Risk(stop_bias, stop_variance))
    who = how_many(None if m is None else m.reshape(1), member)
    how = "gradient flow" if flow else f"gradient steps of {step:.4g}"
    return FineTuning(
        wanted,
        np.reshape(bias, (*shape, -1)),
        np.reshape(variance, (*shape, -1)),
        stop,
        step,
        f"{world} · {who} · {how}",
    )


@overload
def one_step(world: Population, step: ArrayLike | None = None) -> tuple[float | Array, Risk]: ...
@overload
def one_step(world: ClassPopulation, step: ArrayLike | None = None) -> tuple[float | Array, Accuracy]: ...


def one_step(world: Population | ClassPopulation, step: ArrayLike | None = None) -> tuple[float | Array, Risk | Accuracy]:
    """One gradient step from the shared model, as in one-step MAML: the step size (the best by default) and its risk.

    B = r^2 (sum g s - 2 a sum g s^2 + a^2 (sum g s^3 + aspect t2 sum g s)), V = noise^2 aspect a^2 t2, t2 = tau(Sigma^2);
    the best step is a = sum g s^2 / (sum g s^3 + aspect t2 sum g s + (noise^2 aspect / r^2) t2).

    >>> import fedasym as fa
    >>> size, risk = fa.one_step(fa.Population(radius=1, noise=0.5, aspect=2))
    >>> round(size, 6), round(risk.loss, 6)
    (0.285714, 0.714286)
    """
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.fine_tuning import one_step_classes

        return one_step_classes(world, step)
    check_world(world)
    flat = flatten(world, world.shape)
    b0, b1, b2, v = single_step(flat)
    if step is None:
        size = np.where(flat.r2 == 0, 0.0, flat.r2 * b1 / np.where(flat.r2 == 0, 1, flat.r2 * b2 + flat.s2 * v))
    else:
        given = floats(step)
        if given is None or given.size == 0 or not np.all(np.isfinite(given)) or np.any(given < 0):
            raise InvalidInput(f"step is {step!r}: it must be finite and at least 0; leave it out for the best")
        try:
            size = np.broadcast_to(given, world.shape).ravel()
        except ValueError:
            raise InvalidInput(f"step has shape {given.shape}: give one number, or one for each of {world.shape}") from None
    bias, variance = flat.r2 * (b0 - 2 * size * b1 + size**2 * b2), flat.s2 * v * size**2
    boxed = [unboxed(part.reshape(world.shape)) for part in (size, bias, variance)]
    return boxed[0], Risk(boxed[1], boxed[2])


def unboxed(values: Array) -> float | Array:
    """A plain number where the array holds just one."""
    return float(values) if values.ndim == 0 else values


def checked_size(step: float) -> float:
    """A gradient step: finite and above 0."""
    size = one_float(step)
    if not 0 < size < np.inf:
        raise InvalidInput(f"step is {step!r}: it must be finite and above 0; leave it out for half of the largest stable one")
    return size


def checked_times(wanted: ArrayLike | None, flow: bool, high: float, step: float | None, world: Worlds) -> Array:
    """The stopping times, sorted as given; by default from none to well past convergence, or a thousandfold."""
    name = "times" if flow else "steps"
    if wanted is None:
        ends = [horizon(float(gamma), world.spectrum, step) for gamma in world.gamma]
        unit = 1 / high if flow else 1.0
        grid = np.geomspace(0.1 * unit if flow else 1, min(max(ends), 1e4 * unit), 28)
        return np.append(0, grid) if flow else np.unique(np.round(np.append(0, grid)))
    given = floats(wanted)
    at = np.atleast_1d(np.nan if given is None else given)
    whole = flow | np.isinf(at) | (at == np.round(np.where(np.isfinite(at), at, 0)))
    if at.ndim != 1 or at.size == 0 or np.any(np.isnan(at)) or not np.all((at >= 0) & whole):
        kind = "times of at least 0" if flow else "whole numbers of at least 0"
        raise InvalidInput(f"{name} is {wanted!r}: give a list of {kind}")
    if step is not None:
        for gamma in np.unique(world.gamma):
            check_stable(Filter(at, step), float(gamma), world.spectrum)
    return at
