"""Steps of stages from outside the package, tried on a small model before anything is trained.

A step must be a function of what it is given: one that keeps something outside itself, or draws random numbers, would be
compiled once and repeated. It may add, subtract and multiply models, as these are not always held as matrices.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm
from fedasym.algorithms.description import Stored, is_built_in
from fedasym.algorithms.stages import Stage
from fedasym.core.errors import InvalidInput

SHAPE = (3, 2)
RATE = 0.125


class Vector:
    """A model on which only what a step may do is defined; anything else is refused in words."""

    __array_ufunc__ = None

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, other: Any) -> Vector:
        return Vector(self.values + other.values) if isinstance(other, Vector) else refuse("added to a number")

    def __sub__(self, other: Any) -> Vector:
        return Vector(self.values - other.values) if isinstance(other, Vector) else refuse("reduced by a number")

    def __mul__(self, number: Any) -> Vector:
        return refuse("multiplied by a model") if isinstance(number, Vector) else Vector(self.values * number)

    def __truediv__(self, number: Any) -> Vector:
        return refuse("divided by a model") if isinstance(number, Vector) else Vector(self.values / number)

    def __neg__(self) -> Vector:
        return Vector(-self.values)

    __rmul__ = __mul__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refuse(f"asked for .{name}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return refuse("given to a function of NumPy, such as a norm")

    def __jax_array__(self) -> Any:
        return refuse("given to a function of JAX, such as a norm")

    def __getitem__(self, _: Any) -> Any:
        return refuse("indexed")

    def __abs__(self) -> Any:
        return refuse("given to abs")

    def __pow__(self, _: Any) -> Any:
        return refuse("raised to a power")

    def __matmul__(self, _: Any) -> Any:
        return refuse("multiplied by a model")

    def __float__(self) -> Any:
        return refuse("taken for a number")

    def __lt__(self, _: Any) -> Any:
        return refuse("compared")

    __gt__ = __le__ = __ge__ = __lt__
    __radd__ = __add__
    __rsub__ = __sub__
    __rmatmul__ = __matmul__


def refuse(what: str) -> Any:
    """The sentence for what a model cannot do."""
    raise InvalidInput(
        f"a model is {what}: in a step, models and gradients may be added, subtracted and multiplied by numbers, nothing else"
    )


class Quadratic:
    """gradient(w, batch) of |w - c|^2/2 times a number of the batch's own."""

    def __init__(self, batches: int) -> None:
        rng = np.random.default_rng(0)
        self.centres, self.batches = rng.standard_normal((batches, *SHAPE)), batches

    def __call__(self, at: Vector, batch: int = 0) -> Vector:
        """Of one of the batches."""
        if batch not in range(self.batches):
            raise InvalidInput(f"gradient is asked for batch {batch}, and a step has {self.batches}, from 0: set `batches`")
        return Vector((batch + 1) * (at.values - self.centres[batch]))

    def along(self, at: Vector, direction: Vector, batch: int = 0) -> Vector:
        """The Hessian times a direction."""
        return Vector((batch + 1) * direction.values)


def check_steps(algorithm: Algorithm) -> None:
    """Refuse a step that fails, depends on more than it is given, or does with models what they cannot."""
    for stage in algorithm.stages:
        if not is_built_in(type(stage)) and not isinstance(stage, Stored) and stage.owns("step"):
            check_step(algorithm.name, stage)


def check_step(name: str, stage: Stage) -> None:
    """Take the same step three times, from the same place and state."""
    where = f"step of {type(stage).__name__} ({name})"
    try:
        answers = [walk(stage) for _ in range(3)]
    except InvalidInput as reason:
        raise InvalidInput(f"{where}: {reason}") from None
    except Exception as reason:
        raise InvalidInput(
            f"{where} fails on a model of {SHAPE[0]} x {SHAPE[1]} numbers: {type(reason).__name__}: {reason}; it is called as "
            "step(w, start, gradient, rate), and with a state where the stage has `init`"
        ) from reason
    for other in answers[1:]:
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(answers[0], other, strict=True)):
            raise InvalidInput(
                f"{where} gives another answer when it is repeated: it draws random numbers, or keeps something outside "
                "itself; what a step must remember goes into a state (`init`, and one more argument)"
            )


def walk(stage: Stage) -> list[Any]:
    """The model after each of two steps."""
    rng = np.random.default_rng(1)
    start = Vector(rng.standard_normal(SHAPE))
    w = Vector(rng.standard_normal(SHAPE))
    gradient = Quadratic(stage.batches)
    bound = copy.copy(stage).filled(**dict.fromkeys(stage.settings(), 0.5))
    state = bound.init(start) if stage.has_state() else None
    seen = []
    for _ in range(2):
        w, state = bound.advance((w, start, gradient, RATE), state)
        if not isinstance(w, Vector):
            raise InvalidInput(f"it returned {type(w).__name__}: it must return a model, made of w, start and gradients")
        if w.values.shape != SHAPE:
            raise InvalidInput("it returned a model of another shape")
        seen.append(w.values)
    return seen
