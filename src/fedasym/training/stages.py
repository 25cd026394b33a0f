"""The step of a stage in the compiled programs: it sees models and gradients, whatever form they are held in.

A `Model` is a sum that is not carried out: multiples of points, and moves along batches. So a gradient is the residuals of
its batch, the outputs at w - a g(w) are those at w and an echo of the move, and a step ends in one sum, whatever it is made
of. This is what makes a step that reads like its formula as fast as one that is written for the machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedasym.algorithms.stages import Stage
from fedasym.core.errors import InvalidInput
from fedasym.training.heads import Batch, Point, Space, blend, without_filling
from fedasym.training.losses import difference, residual, slope


class Move(NamedTuple):
    """Multiples of a batch's samples; own: in the weights that may be a client's own alone."""

    batch: Batch
    amounts: Array
    own: bool = False

    def along(self, other: Move) -> bool:
        """Whether both go along the same samples."""
        return self.batch is other.batch and self.own == other.own


@jax.tree_util.register_pytree_node_class
class Model:
    """A model or a gradient: sums, differences and multiples by numbers, and nothing else, so that every form has them."""

    __slots__ = ("moves", "points")
    __array_ufunc__ = None  # NumPy's numbers leave the product to the model

    def __init__(self, points: tuple[tuple[Any, Point], ...] = (), moves: tuple[Move, ...] = ()) -> None:
        self.points, self.moves = points, moves

    @classmethod
    def at(cls, point: Point) -> Model:
        """A point as it is."""
        return cls(((1, point),))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """For JAX, which carries models in a stage's state, once they are carried out."""
        ((_, point),) = self.points
        return (point,), None

    @classmethod
    def tree_unflatten(cls, _: None, parts: tuple[Any]) -> Model:
        """The inverse of `tree_flatten`."""
        return cls.at(*parts)

    def __add__(self, other: Any) -> Model:
        if not isinstance(other, Model):
            return NotImplemented
        points, moves = list(self.points), list(self.moves)
        for c, point in other.points:
            same = [place for place, (_, mine) in enumerate(points) if mine is point]
            if same:
                points[same[0]] = (points[same[0]][0] + c, point)
            else:
                points.append((c, point))
        for move in other.moves:
            same = [place for place, mine in enumerate(moves) if mine.along(move)]
            if same:
                moves[same[0]] = move._replace(amounts=moves[same[0]].amounts + move.amounts)
            else:
                moves.append(move)
        return Model(tuple(points), tuple(moves))

    def __mul__(self, number: Any) -> Model:
        if isinstance(number, Model):
            return NotImplemented
        points = tuple((number * c, point) for c, point in self.points)
        return Model(points, tuple(move._replace(amounts=number * move.amounts) for move in self.moves))

    __rmul__ = __mul__

    def __neg__(self) -> Model:
        return self * -1

    def __sub__(self, other: Any) -> Model:
        return self + -other if isinstance(other, Model) else NotImplemented

    def __truediv__(self, number: Any) -> Model:
        return NotImplemented if isinstance(number, Model) else self * (1 / number)


def carry_out(space: Space, model: Model, like: Point) -> Point:
    """The sum as a point; `like`: one of the same form."""
    terms = model.points or ((0, like),)
    point = terms[0][1] if len(terms) == 1 and is_one(terms[0][0]) else blend(*terms)
    for move in model.moves:
        point = space.move(point, *move)
    return point


class Gradients:
    """gradient(w) and gradient(w, batch) of a step's batches; `along` is the Hessian times a direction."""

    def __init__(self, stage: Stage, task: str, space: Space, like: Point, batches: list[Batch]) -> None:
        self.stage, self.task, self.space, self.like, self.batches = stage, task, space, like, batches
        self.parts: dict[int, tuple[Point, Point]] = {}  # points, and what of them may be a client's own
        self.known: dict[tuple[int, int], tuple[Point, Any]] = {}  # products of points or batches with batches
        self.uses = max(stage.gradients // stage.batches, 1)  # how often a batch's products with itself are asked for

    def __call__(self, at: Model, batch: int = 0) -> Model:
        """Of the mean loss on one of the batches."""
        D = self.batch(batch)
        return self.move(D, residual(self.task, self.outputs(at, D), D.labels))

    def along(self, at: Model, direction: Model, batch: int = 0, by: Any = None) -> Model:
        """The Hessian at a model times a direction; `by`: as a finite difference, without its cancellation."""
        D = self.batch(batch)
        z, u = self.outputs(at, D), self.products(direction, D)
        return self.move(D, slope(self.task, z, u) if by is None else difference(self.task, z, u, by))

    def own(self, of: Model) -> Model:
        """The part in weights that may be a client's own."""
        if not self.space.splits:
            return of
        moves = tuple(move._replace(own=True) for move in of.moves)
        return sum((Model(((c, self.own_part(point)),)) for c, point in of.points), start=Model((), moves))

    def own_part(self, point: Point) -> Point:
        """A point in the weights that may be a client's own: the same array for the same point, so that sums stay short."""
        if id(point) not in self.parts:
            part = self.space.part(point, True)
            self.parts[id(point)] = (point, part)
            self.parts[id(part)] = (part, part)
        return self.parts[id(point)][1]

    def common(self, of: Model) -> Model:
        """The part in weights that are the same for all clients."""
        if not self.space.splits:
            return Model()
        point = carry_out(self.space, of, self.like)
        return Model.at(self.space.part(point, False))

    def outputs(self, at: Model, D: Batch) -> Array:
        """The outputs of a model at a batch."""
        return without_filling(self.products(at, D), self.space.classes)

    def products(self, of: Model, D: Batch) -> Array:
        """The products of a batch's samples with a model or a direction."""
        terms = [self.multiple(c, point, D) for c, point in of.points]
        terms += [self.echo(move, D) for move in of.moves]
        return sum(terms[1:], start=terms[0]) if terms else jnp.zeros(())

    def multiple(self, c: Any, point: Point, D: Batch) -> Array:
        """A multiple of a point's products; once is as it is, however short its numbers are."""
        key = id(point), id(D)
        if key not in self.known:
            self.known[key] = point, self.space.products(point, D)
        products = self.known[key][1]
        return products if is_one(c) else c * products

    def echo(self, move: Move, D: Batch) -> Array:
        """What a move adds to the products at a batch."""
        key = id(move.batch), id(D)
        if key not in self.known:
            self.known[key] = None, self.space.overlap(move.batch, D, self.uses, move.own)
        overlap = self.known[key][1]
        if overlap is not None:
            return jnp.matmul(overlap, move.amounts)
        return self.space.products(self.space.move(jax.tree.map(jnp.zeros_like, self.like), *move), D)

    def move(self, D: Batch, amounts: Array) -> Model:
        """Along a batch's samples, by the weighted amounts."""
        return Model((), (Move(D, amounts * D.weights),))

    def batch(self, place: int) -> Batch:
        """One of the step's batches."""
        if place not in range(self.stage.batches):
            raise InvalidInput(
                f"gradient is asked for batch {place}, and a step of {type(self.stage).__name__} has {self.stage.batches}, "
                "from 0: set its `batches`"
            )
        return self.batches[place]


def is_one(c: Any) -> bool:
    """Whether a coefficient is 1 before the program runs: then nothing is multiplied."""
    return isinstance(c, int) and c == 1


def begin_state(stage: Stage, space: Space) -> Any:
    """What the stage carries from step to step, before the first; nothing for most."""
    if not stage.has_state():
        return ()
    return settle(space, stage.init(Model.at(space.start())), space.start())


def settle(space: Space, state: Any, like: Point) -> Any:
    """A state whose models are carried out, which JAX can hand from step to step."""

    def settled(leaf: Any) -> Any:
        return Model.at(carry_out(space, leaf, like)) if isinstance(leaf, Model) else leaf

    return jax.tree.map(settled, state, is_leaf=lambda leaf: isinstance(leaf, Model))


def take_step(
    stage: Stage, task: str, space: Space, state: tuple[Point, Any], batches: list[Batch], rates: Any, rate: Any
) -> tuple[Point, Any]:
    """One step of a client; an empty batch is none, whatever the step does without a gradient."""
    point, carried = state
    bound = stage.at(**{name: rates[name] for name in stage.settings() if name in rates})
    gradient = Gradients(bound, task, space, point, batches)
    words = (Model.at(point), Model.at(space.start()), gradient, rate)
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
    new = space.held(carry_out(space, found, point))

    def chosen(new: Any, old: Any) -> Any:
        return jnp.where(live, jnp.asarray(new).astype(jnp.asarray(old).dtype), old)

    return jax.tree.map(chosen, new, point), jax.tree.map(chosen, settle(space, later, point), carried)
