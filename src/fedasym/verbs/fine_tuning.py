"""`fine_tuning`: the loss along early-stopped fine-tuning and where to stop; `one_step`: a single gradient step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array, floats, one_float
from fedasym.core.errors import InvalidInput
from fedasym.results.comparison import Accuracy, Risk
from fedasym.verbs.prediction import TuningRequest, task_of
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import Population

if TYPE_CHECKING:
    from fedasym.results.regimes import FineTuning


@overload
def fine_tuning(
    world: Population, *, step: float | None = None, steps: ArrayLike | None = None, flow: bool = False,
    times: ArrayLike | None = None, clients: float | None = None, member: bool = True,
) -> FineTuning[Risk]: ...  # fmt: skip
@overload
def fine_tuning(
    world: ClassPopulation, *, step: float | None = None, steps: ArrayLike | None = None, flow: bool = False,
    times: ArrayLike | None = None, clients: float | None = None, member: bool = True,
) -> FineTuning[Accuracy]: ...  # fmt: skip


def fine_tuning(
    world: Population | ClassPopulation,
    *,
    step: float | None = None,
    steps: ArrayLike | None = None,
    flow: bool = False,
    times: ArrayLike | None = None,
    clients: float | None = None,
    member: bool = True,
) -> FineTuning[Any]:
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
    return task_of(world).fine_tune(world, TuningRequest(step, steps, flow, times, clients, member))


@overload
def one_step(world: Population, step: ArrayLike | None = None) -> tuple[float | Array, Risk]: ...
@overload
def one_step(world: ClassPopulation, step: ArrayLike | None = None) -> tuple[float | Array, Accuracy]: ...


def one_step(world: Population | ClassPopulation, step: ArrayLike | None = None) -> tuple[float | Array, Any]:
    """One gradient step from the shared model, as in one-step MAML: the step size (the best by default) and its risk.

    B = r^2 (sum g s - 2 a sum g s^2 + a^2 (sum g s^3 + aspect t2 sum g s)), V = noise^2 aspect a^2 t2, t2 = tau(Sigma^2);
    the best step is a = sum g s^2 / (sum g s^3 + aspect t2 sum g s + (noise^2 aspect / r^2) t2).

    >>> import fedasym as fa
    >>> size, risk = fa.one_step(fa.Population(radius=1, noise=0.5, aspect=2))
    >>> round(size, 6), round(risk.loss, 6)
    (0.285714, 0.714286)
    """
    return task_of(world).step_once(world, step)


def check_step_size(step: float) -> float:
    """A gradient step: finite and above 0."""
    size = one_float(step)
    if not 0 < size < np.inf:
        raise InvalidInput(f"step is {step!r}: it must be finite and above 0; leave it out for half of the largest stable one")
    return size


def check_times(wanted: ArrayLike, *, whole: bool, endless: bool) -> Array:
    """A list of times, or (whole) of numbers of steps; endless: whether one may be infinite."""
    given = floats(wanted)
    at = np.atleast_1d(np.nan if given is None else given)
    finite = np.isfinite(at)
    good = (at >= 0) & (finite | (endless & np.isinf(at)))
    if whole:
        good &= ~finite | (at == np.round(np.where(finite, at, 0)))
    if at.ndim != 1 or at.size == 0 or not np.all(good):
        name, kind = ("steps", "whole numbers of at least 0") if whole else ("times", "times of at least 0")
        hint = "; to convergence, see ftfa in predict" if not endless and np.any(np.isinf(at)) else ""
        raise InvalidInput(f"{name} is {wanted!r}: give a list of {kind}{hint}")
    return at
