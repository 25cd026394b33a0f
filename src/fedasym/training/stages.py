"""The step of a stage in the compiled programs: it sees models and gradients, whatever form they are held in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedasym.algorithms.stages import Stage
from fedasym.core.errors import InvalidInput
from fedasym.training.heads import Batch, Head, Point, Space, blend
from fedasym.training.losses import residual, slope


@jax.tree_util.register_pytree_node_class
class Model:
    """A model or a gradient: sums, differences and multiples by numbers, and nothing else, so that every form has them."""

    __slots__ = ("point",)
    __array_ufunc__ = None  # NumPy's numbers leave the product to the model

    def __init__(self, point: Point) -> None:
        self.point = point

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """For JAX, which carries models in a stage's state."""
        return (self.point,), None

    @classmethod
    def tree_unflatten(cls, _: None, parts: tuple[Any]) -> Model:
        """The inverse of `tree_flatten`."""
        return cls(*parts)

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


class Gradients:
    """gradient(w) and gradient(w, batch) of a step's batches; `along` is the Hessian times a direction."""

    def __init__(self, stage: Stage, task: str, space: Space, zero: Point, batches: list[Batch]) -> None:
        self.stage, self.task, self.space, self.zero, self.batches = stage, task, space, zero, batches

    def __call__(self, at: Model, batch: int = 0) -> Model:
        """Of the mean loss on one of the batches."""
        D = self.batch(batch)
        r = residual(self.task, self.space.outputs(at.point, D), D.labels) * D.weights
        return Model(self.space.move(self.zero, D, r))

    def along(self, at: Model, direction: Model, batch: int = 0) -> Model:
        """The Hessian at a model times a direction."""
        D = self.batch(batch)
        bent = slope(self.task, self.space.outputs(at.point, D), self.space.outputs(direction.point, D))
        return Model(self.space.move(self.zero, D, bent * D.weights))

    def batch(self, place: int) -> Batch:
        """One of the step's batches."""
        if place not in range(self.stage.batches):
            raise InvalidInput(
                f"gradient is asked for batch {place}, and a step of {type(self.stage).__name__} has {self.stage.batches}, "
                "from 0: set its `batches`"
            )
        return self.batches[place]


def begin_state(stage: Stage, space: Space) -> Any:
    """What the stage carries from step to step, before the first; nothing for most."""
    return stage.init(Model(space.start())) if stage.has_state() else ()


def take_step(
    stage: Stage, task: str, space: Space, state: tuple[Point, Any], batches: list[Batch], rates: Any, rate: Any
) -> tuple[Point, Any]:
    """One step of a client; an empty batch is none, whatever the step does without a gradient."""
    point, carried = state
    bound = stage.at(**{name: rates[name] for name in stage.settings() if name in rates})
    gradient = Gradients(stage, task, space, jax.tree.map(jnp.zeros_like, point), batches)
    words = (Model(point), Model(space.start()), gradient, rate)
    name = type(stage).__name__
    try:
        found, later = bound.advance(words, carried)
    except jax.errors.ConcretizationTypeError:
        raise InvalidInput(
            f"step of {name} decides by a number that is known only when it runs: write it without if and while on numbers; "
            "settings that are whole numbers may steer loops"
        ) from None
    if not isinstance(found, Model):
        raise InvalidInput(
            f"step of {name} returned {type(found).__name__}: it must return a model, made of w, start and gradients "
            "by sums, differences and multiples"
        )
    live = batches[0].weights.sum() > 0
    new = space.held(found.point, space.shared) if isinstance(space, Head) and space.keep else found.point

    def chosen(new: Any, old: Any) -> Any:
        return jnp.where(live, jnp.asarray(new).astype(jnp.asarray(old).dtype), old)

    return jax.tree.map(chosen, new, point), jax.tree.map(chosen, later, carried)
