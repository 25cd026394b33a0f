"""A stage of the user's own in the compiled programs: its step sees models and gradients, whatever form they are held in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedasym.algorithms import Own
from fedasym.errors import InvalidInput
from fedasym.training.heads import Batch, Head, Point, Space, blend
from fedasym.training.losses import residual


class Model:
    """A model or a gradient: sums, differences and multiples by numbers, and nothing else, so that every form has them."""

    __slots__ = ("point",)
    __array_ufunc__ = None  # NumPy's numbers leave the product to the model

    def __init__(self, point: Point) -> None:
        self.point = point

    def __add__(self, other: Any) -> Model:
        return Model(blend((1, self.point), (1, other.point))) if isinstance(other, Model) else NotImplemented

    def __sub__(self, other: Any) -> Model:
        return Model(blend((1, self.point), (-1, other.point))) if isinstance(other, Model) else NotImplemented

    def __mul__(self, number: Any) -> Model:
        return NotImplemented if isinstance(number, Model) else Model(blend((number, self.point)))

    __rmul__ = __mul__

    def __truediv__(self, number: Any) -> Model:
        return NotImplemented if isinstance(number, Model) else Model(blend((1 / number, self.point)))

    def __neg__(self) -> Model:
        return Model(blend((-1, self.point)))


def moved(own: Own, task: str, space: Space, point: Point, batches: list[Batch], rates: Any) -> Point:
    """One step; an empty batch is none, whatever the step does without a gradient."""

    def gradient(at: Model, batch: int = 0) -> Model:
        if batch not in range(own.batches):
            raise InvalidInput(f"gradient is asked for batch {batch}, and a step has {own.batches}, from 0: see Own's batches")
        D = batches[batch]
        r = residual(task, space.outputs(at.point, D), D.labels) * D.weights
        return Model(space.move(jax.tree.map(jnp.zeros_like, point), D, r))

    told = {name: rates[name] for name in own.settings}
    found = own.step(Model(point), Model(space.start()), gradient, **told)
    if not isinstance(found, Model):
        name = getattr(own.step, "__name__", "the step")
        raise InvalidInput(
            f"{name} returned {type(found).__name__}: it must return a model, made of w, start and gradients "
            "by sums, differences and multiples"
        )
    live = batches[0].weights.sum() > 0
    new = space.held(found.point, space.shared) if isinstance(space, Head) and space.keep else found.point
    return jax.tree.map(lambda new, old: jnp.where(live, new.astype(old.dtype), old), new, point)
