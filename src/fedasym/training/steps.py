"""Local steps in compiled programs: a linear head's losses, what a step sees, a client's walk.

A step sees models and gradients, whatever form they are held in. A `ModelSum` is a sum that is not
carried out: multiples of points, and moves along batches. So a gradient is the residuals of its
batch, the outputs at w - a g(w) are those at w and an echo of the move, and a step ends in one sum,
whatever it is made of. This is what makes a step that reads like its formula as fast as one that is
written for the machine. The same in plain NumPy, with comments for the newcomer, is in `twin.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedasym.algorithms.stages import ClientStage, ScoreStage, ServerStage, Stage
from fedasym.core.errors import InvalidInput
from fedasym.training.heads import (
    BatchRows,
    Matrix,
    Packed,
    Point,
    Space,
    Span,
    blend,
    index_within,
    mask_filling,
)

CLASSES, VALUES = "classification", "regression"
Leaves = TypeVar("Leaves")  # a tree of arrays
Points = tuple[tuple[Any, Point], ...]  # with their coefficients


def widen(z: Array) -> Array:
    """At least float32, for exponentials and sums."""
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def softmax_probabilities(z: Array) -> Array:
    """The softmax; short outputs are read twice rather than exponentials stored: less traffic."""
    if z.dtype.itemsize >= 4:
        return jax.nn.softmax(z)
    return jnp.exp(widen(z) - jax.nn.logsumexp(widen(z), axis=-1, keepdims=True))


def residual(task: str, z: Array, y: Array) -> Array:
    """dF/dz: softmax(z) - onehot(y), or z - y; outputs shorter than float32 are read as float32."""
    if task == VALUES:
        return widen(z) - y
    p = softmax_probabilities(z)
    return p - jax.nn.one_hot(y, z.shape[-1], dtype=p.dtype)


def slope(task: str, z: Array, u: Array) -> Array:
    """D residual(z + t u)/dt at t = 0: the exact Hessian's part."""
    u = widen(u)
    if task == VALUES:
        return u
    p = softmax_probabilities(z)
    return p * (u - (p * u).sum(-1, keepdims=True))


def difference(task: str, z: Array, u: Array, delta: Array) -> Array:
    """[residual(z + delta u) - residual(z - delta u)] / (2 delta), without cancellation in float32.

    With p = softmax(z), a = expm1(delta u), b = expm1(-delta u), A = sum p a and B = sum p b, the
    two softmaxes are p (1 + a)/(1 + A) and p (1 + b)/(1 + B): they differ from p by p (a - A)/(1 +
    A) and p (b - B)/(1 + B), of opposite signs.
    """
    u = widen(u)
    if task == VALUES:
        return u
    p = softmax_probabilities(z)
    # softmax ignores a shift; centred, the exponents are smallest, and A, B >= 0
    u = u - (p * u).sum(-1, keepdims=True)
    largest = jnp.abs(u).max(-1, keepdims=True)
    # beyond, exp overflows, and the softmaxes have settled
    most = 0.9 * math.log(float(np.finfo(p.dtype).max))
    step = jnp.minimum(delta, most / jnp.maximum(largest, 1e-30))
    grown = jnp.expm1(step * jnp.abs(u))
    shrunk = -grown / (1 + grown)  # expm1(-step |u|)
    a, b = jnp.where(u > 0, grown, shrunk), jnp.where(u > 0, shrunk, grown)
    A, B = (p * a).sum(-1, keepdims=True), (p * b).sum(-1, keepdims=True)
    return p * ((a - A) / (1 + A) - (b - B) / (1 + B)) / (2 * delta)


def score(task: str, z: Array, y: Array) -> tuple[Array, Array]:
    """Whether predictions are right (NaN for values and outputs not finite), and losses, by row."""
    if task == VALUES:
        squared = ((z - y) ** 2).sum(-1) / 2
        return jnp.full_like(squared, jnp.nan), squared
    hit = (z.argmax(-1) == y).astype(z.dtype)
    loss = jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]
    return jnp.where(jnp.isfinite(loss), hit, jnp.nan), loss


class Move(NamedTuple):
    """Multiples of a batch's samples; own: in the weights that may be a client's own alone."""

    batch: BatchRows
    amounts: Array
    own: bool = False

    def along(self, other: Move) -> bool:
        """Whether both go along the same samples."""
        return self.batch is other.batch and self.own == other.own


@jax.tree_util.register_pytree_node_class
class ModelSum:
    """A model or a gradient: sums, differences and multiples alone, which every form has."""

    __slots__ = ("moves", "points")
    __array_ufunc__ = None  # NumPy's numbers leave the product to the model

    def __init__(self, points: Points = (), moves: tuple[Move, ...] = ()) -> None:
        self.points, self.moves = points, moves

    @classmethod
    def at(cls, point: Point) -> ModelSum:
        """A point as it is."""
        return cls(((1, point),))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """For JAX, which carries models in a stage's state, once they are carried out."""
        ((_, point),) = self.points
        return (point,), None

    @classmethod
    def tree_unflatten(cls, _: None, parts: tuple[Any]) -> ModelSum:
        """The inverse of `tree_flatten`."""
        return cls.at(*parts)

    def __add__(self, other: Any) -> ModelSum:
        if not isinstance(other, ModelSum):
            return NotImplemented
        points, moves = list(self.points), list(self.moves)
        for c, point in other.points:
            at = next((at for at, (_, mine) in enumerate(points) if mine is point), None)
            if at is None:
                points.append((c, point))
            else:
                points[at] = (points[at][0] + c, point)
        for move in other.moves:
            at = next((at for at, mine in enumerate(moves) if mine.along(move)), None)
            if at is None:
                moves.append(move)
            else:
                moves[at] = move._replace(amounts=moves[at].amounts + move.amounts)
        return ModelSum(tuple(points), tuple(moves))

    def __mul__(self, number: Any) -> ModelSum:
        if isinstance(number, ModelSum):
            return NotImplemented
        points = tuple((number * c, point) for c, point in self.points)
        moves = (move._replace(amounts=number * move.amounts) for move in self.moves)
        return ModelSum(points, tuple(moves))

    __rmul__ = __mul__

    def __neg__(self) -> ModelSum:
        return self * -1

    def __sub__(self, other: Any) -> ModelSum:
        return self + -other if isinstance(other, ModelSum) else NotImplemented

    def __truediv__(self, number: Any) -> ModelSum:
        return NotImplemented if isinstance(number, ModelSum) else self * (1 / number)


def carry_out(space: Space, model: ModelSum, like: Point) -> Point:
    """The sum as a point; `like`: one of the same form."""
    terms = model.points or ((0, like),)
    point = terms[0][1] if len(terms) == 1 and is_one(terms[0][0]) else blend(*terms)
    for move in model.moves:
        point = space.move(point, *move)
    return point


class BatchGradients:
    """gradient(w), gradient(w, batch) of a step's batches; `along`: the Hessian on a direction."""

    def __init__(
        self, stage: Stage, task: str, space: Space, like: Point, batches: list[BatchRows]
    ) -> None:
        self.stage, self.task, self.space = stage, task, space
        self.like, self.batches = like, batches
        # points, and what of them may be a client's own
        self.parts: dict[int, tuple[Point, Point]] = {}
        # products of points or batches with batches
        self.known: dict[tuple[int, int], tuple[Point, Any]] = {}
        # how often a batch's products with itself are asked for
        self.uses = max(stage.gradients // stage.batches, 1)

    def __call__(self, at: ModelSum, batch: int = 0) -> ModelSum:
        """Of the mean loss on one of the batches."""
        D = self.batch(batch)
        return self.move(D, residual(self.task, self.outputs(at, D), D.labels))

    def along(self, at: ModelSum, direction: ModelSum, batch: int = 0, by: Any = None) -> ModelSum:
        """The Hessian at a model times a direction; `by`: as a difference without cancellation."""
        D = self.batch(batch)
        z = self.outputs(at, D)
        u = self.products(direction, D)
        exact = by is None
        return self.move(D, slope(self.task, z, u) if exact else difference(self.task, z, u, by))

    def own_part(self, of: ModelSum) -> ModelSum:
        """The part in weights that may be a client's own."""
        if not self.space.splits:
            return of
        moves = tuple(move._replace(own=True) for move in of.moves)
        points = (ModelSum(((c, self.own_point(point)),)) for c, point in of.points)
        return sum(points, start=ModelSum((), moves))

    def own_point(self, point: Point) -> Point:
        """A point in a client's own weights: the same array for the same point keeps sums short."""
        if id(point) not in self.parts:
            part = self.space.part(point, True)
            self.parts[id(point)] = (point, part)
            self.parts[id(part)] = (part, part)
        return self.parts[id(point)][1]

    def common_part(self, of: ModelSum) -> ModelSum:
        """The part in weights that are the same for all clients."""
        if not self.space.splits:
            return ModelSum()
        point = carry_out(self.space, of, self.like)
        return ModelSum.at(self.space.part(point, False))

    def repeat(self, count: int, step: Callable[[ModelSum], ModelSum], w: ModelSum) -> ModelSum:
        """A step, over and over: one loop over coefficients and amounts; the points stay."""
        if count < 2:
            return step(w) if count else w
        # what the loop's models are made of; and the products that it needs are known after this
        last = step(step(w))
        ones = self.batches[0].weights.dtype

        def numbers(model: ModelSum) -> tuple[list[Array], list[Array]]:
            coefficients = {id(point): c for c, point in model.points}
            moves = {(id(move.batch), move.own): move.amounts for move in model.moves}
            amounts = [
                moves.get((id(move.batch), move.own), jnp.zeros_like(move.amounts))
                for move in last.moves
            ]
            held = (coefficients.get(id(point), 0) for _, point in last.points)
            return [jnp.asarray(c, ones) for c in held], amounts

        def model(numbers: tuple[list[Array], list[Array]]) -> ModelSum:
            held = zip(numbers[0], last.points, strict=True)
            moves = zip(last.moves, numbers[1], strict=True)
            return ModelSum(
                tuple((c, point) for c, (_, point) in held),
                tuple(move._replace(amounts=amounts) for move, amounts in moves),
            )

        def repeat_step(_: Any, held: tuple[list[Array], list[Array]]) -> Any:
            return numbers(step(model(held)))

        return model(lax.fori_loop(0, count, repeat_step, numbers(w)))

    def outputs(self, at: ModelSum, D: BatchRows) -> Array:
        """The outputs of a model at a batch."""
        return mask_filling(self.products(at, D), self.space.classes)

    def products(self, of: ModelSum, D: BatchRows) -> Array:
        """The products of a batch's samples with a model or a direction."""
        terms = [self.multiple(c, point, D) for c, point in of.points]
        terms += [self.echo(move, D) for move in of.moves]
        return sum(terms[1:], start=terms[0]) if terms else jnp.zeros(())

    def multiple(self, c: Any, point: Point, D: BatchRows) -> Array:
        """A multiple of a point's products; once is as it is, however short its numbers are."""
        key = id(point), id(D)
        if key not in self.known:
            self.known[key] = point, self.space.products(point, D)
        products: Array = self.known[key][1]
        return products if is_one(c) else c * products

    def echo(self, move: Move, D: BatchRows) -> Array:
        """What a move adds to the products at a batch."""
        key = id(move.batch), id(D)
        if key not in self.known:
            self.known[key] = None, self.space.overlap(move.batch, D, self.uses, move.own)
        overlap = self.known[key][1]
        if overlap is not None:
            return jnp.matmul(overlap, move.amounts)
        moved = self.space.move(jax.tree.map(jnp.zeros_like, self.like), *move)
        return self.space.products(moved, D)

    def move(self, D: BatchRows, amounts: Array) -> ModelSum:
        """Along a batch's samples, by the weighted amounts."""
        return ModelSum((), (Move(D, amounts * D.weights),))

    def batch(self, place: int) -> BatchRows:
        """One of the step's batches."""
        if place not in range(self.stage.batches):
            raise InvalidInput(
                f"gradient is asked for batch {place}, and a step of {type(self.stage).__name__}"
                f" has {self.stage.batches}, from 0: set its `batches`"
            )
        return self.batches[place]


def is_one(c: Any) -> bool:
    """Whether a coefficient is 1 before the program runs: then nothing is multiplied."""
    return isinstance(c, int) and c == 1


def begin_state(stage: Stage, space: Space) -> Any:
    """What the stage carries from step to step, before the first; nothing for most."""
    if not stage.has_state():
        return ()
    return carry_out_state(space, stage.init(ModelSum.at(space.start())), space.start())


def carry_out_state(space: Space, state: Any, like: Point) -> Any:
    """A state whose models are carried out, which JAX can hand from step to step."""

    def carry_out_leaf(leaf: Any) -> Any:
        return ModelSum.at(carry_out(space, leaf, like)) if isinstance(leaf, ModelSum) else leaf

    return jax.tree.map(carry_out_leaf, state, is_leaf=lambda leaf: isinstance(leaf, ModelSum))


def take_step(
    program: Program, space: Space, state: tuple[Point, Any], batches: list[BatchRows], rates: Rates
) -> tuple[Point, Any]:
    """One step of a client; an empty batch is none, whatever the step does without a gradient."""
    (point, carried) = state
    stage = program.stage
    bound = stage.at(**{name: rates[name] for name in stage.settings() if name in rates})
    gradient = BatchGradients(bound, program.task, space, point, batches)
    words = (ModelSum.at(point), ModelSum.at(space.start()), gradient, rates[program.rate])
    name = type(stage).__name__
    try:
        found, later = bound.advance(words, carried)
    except jax.errors.ConcretizationTypeError:
        raise InvalidInput(
            f"step of {name} decides by a number that is known only when it runs: write it without"
            " if and while on numbers; settings that are whole numbers may steer loops"
        ) from None
    if not isinstance(found, ModelSum):
        raise InvalidInput(
            f"step of {name} returned {type(found).__name__}: it must return a model, made of w,"
            " start and gradients by sums, differences and multiples"
        )
    live = batches[0].weights.sum() > 0
    new = space.fix_shared_rows(carry_out(space, found, point))

    def keep_if_empty(new: Any, old: Any) -> Any:
        return jnp.where(live, jnp.asarray(new).astype(jnp.asarray(old).dtype), old)

    later = carry_out_state(space, later, point)
    return jax.tree.map(keep_if_empty, new, point), jax.tree.map(keep_if_empty, later, carried)


Rates = Mapping[str, Array]


@dataclass(frozen=True)
class Program:
    """What is compiled into a program; the rest is data, for any rounds, rates and seeds."""

    stage: Stage  # without its rates, which are data
    rate: str  # which of the rates is the size of its steps
    task: str
    form: str  # "gram" or "head"
    width: int  # training rows of the largest client that it serves
    together: bool  # clients side by side (accelerators) or one after another (a processor's cache)
    tested: int = 0  # validation and test rows of the largest client that it serves
    block: int = 0  # rows tested at a time
    classes: int = 0  # real outputs, where heads have more to fill up their shape
    personal: bool = False  # a client stage: what moves is a client's own model
    correction: ScoreStage | None = None  # what is added to tested outputs, without its rates
    server: ServerStage | None = None  # which says where clients begin, if not at the shared model
    divided: bool = False  # whether this is what one of several devices has to do


def bound_stage(program: Program, rates: Rates) -> ServerStage:
    """A server stage with its rates."""
    assert isinstance(program.stage, ServerStage)
    known = {name: rates[name] for name in program.stage.settings() if name in rates}
    return program.stage.at(**known)


def space_of(program: Program, data: Packed, member: Array, shared: Array) -> Space:
    """The form in which a client's model moves."""
    if program.form == "head":
        return Matrix(data.training, shared, program.classes, data.personal, program.personal)
    x = client_rows(program, data, member)
    width = program.width
    gram = (
        jnp.matmul(x, x.T)
        if data.grams is None
        else index_within(data.grams, member)[:width, :width]
    )
    return Span(gram, jnp.matmul(x, shared), shared=shared)


def client_rows(program: Program, data: Packed, member: Array) -> Array:
    """A client's training rows, and its neighbour's up to the width."""
    first = index_within(data.training.first, member)
    return data.training.read(data.training.features, first, program.width)


def vectorise(function: Callable[..., Leaves], *trees: Any) -> Leaves:
    """`jax.vmap(function)(*trees)`; one alone needs no axis, and compiles smaller and sooner."""
    if jax.tree.leaves(trees)[0].shape[0] > 1:
        return jax.vmap(function)(*trees)
    alone = function(*jax.tree.map(lambda leaf: leaf[0], trees))
    along: Leaves = jax.tree.map(lambda leaf: leaf[None], alone)
    return along


def walk(
    program: Program,
    space: Space,
    planned: BatchRows,
    rates: Rates,
    state: tuple[Point, Any],
    start: Array | int,
    stop: Array | int,
) -> tuple[Point, Any]:
    """Local steps `start` to `stop` of one client, whose batches, (steps, batches a step, ...), are
    read at once; the state: its model, what the stage carries.
    """

    def step(k: Array, state: tuple[Point, Any]) -> tuple[Point, Any]:
        now = jax.tree.map(lambda leaf: index_within(leaf, k), planned)
        places = range(program.stage.batches)
        batches = [jax.tree.map(lambda leaf, i=i: leaf[i], now) for i in places]
        return take_step(program, space, state, batches, rates)

    if isinstance(program.stage, ClientStage) and program.stage.step_count == 0:
        return state
    walked: tuple[Point, Any] = lax.fori_loop(start, stop, step, state)
    return walked


def first_state(program: Program, space: Space) -> tuple[Point, Any]:
    """The state before the first step."""
    return space.start(), begin_state(program.stage, space)
