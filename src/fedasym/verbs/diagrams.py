"""`compare`: who beats whom over one or two parameters, and the boundary between them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, ThresholdWarning, unknown
from fedasym.core.hooks import write_file
from fedasym.core.numbers import floats
from fedasym.core.text import number, plain, preformatted
from fedasym.results.comparison import TIE
from fedasym.theory.roots import bracketed, first_whole
from fedasym.verbs.prediction import predict
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import RANGES, Population, check_world, facts

if TYPE_CHECKING:
    from fedasym.verbs.classes.diagrams import AccuracyDiagram

OPTIONS = ("ridge", "clients")  # parameters of predict, rather than of the population, that can vary
VARIABLE = (*RANGES, *OPTIONS)


@dataclass(frozen=True)
class Diagram:
    """Losses of two algorithms over one or two parameters; prints itself and draws itself.

    `axes` maps each varied parameter to its values; losses have one axis per parameter, in that order. `boundary` has
    one row per point where the winner changes, one column per parameter.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> line = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 50)})
    >>> line.boundary.round(6).tolist()
    [[0.707107]]
    """

    first: str
    second: str
    axes: dict[str, Array]
    first_loss: Array
    second_loss: Array
    boundary: Array
    title: str

    @property
    def winner(self) -> NDArray[np.str_]:
        """The name of the better one at each point; "tie" where their losses agree."""
        a, b = self.first_loss, self.second_loss
        with np.errstate(invalid="ignore"):
            equal = (a == b) | (np.abs(a - b) <= TIE * np.minimum(a, b))
        return np.where(equal, "tie", np.where(a < b, self.first, self.second))

    @property
    def gain(self) -> Array:
        """log2(second loss / first loss): positive where the first wins, 1 where it halves the loss."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.first_loss == self.second_loss, 0.0, np.log2(self.second_loss / self.first_loss))

    def to_json(self) -> str:
        """Full precision: axes, losses and the boundary."""
        return diagram_json(self, "losses", self.first_loss, self.second_loss)

    def plot(self, path: str | Path) -> Path:
        """Draw the diagram to a file (PNG, SVG or PDF by its ending) and return where it is."""
        return write_file("draw diagram", self, path)

    def __str__(self) -> str:
        winner = self.winner
        shares = {name: float(np.mean(winner == name)) for name in (self.first, self.second, "tie")}
        lines = [f"  {name:<12}{'wins' if name != 'tie' else 'is'} {share:.1%}" for name, share in shares.items() if share > 0]
        return "\n".join([*opening(self), *lines, "", *boundary_lines(self)])

    def _repr_html_(self) -> str:
        return preformatted(self)


def diagram_json(diagram: Diagram | AccuracyDiagram, what: str, first: Array, second: Array) -> str:
    """A diagram as JSON, in full precision."""
    held = {
        "first": diagram.first,
        "second": diagram.second,
        "axes": {name: plain(values) for name, values in diagram.axes.items()},
        what: {"first": plain(first), "second": plain(second)},
        "boundary": plain(diagram.boundary) if diagram.boundary.size else [],
    }
    return json.dumps(held, indent=2)


def opening(diagram: Diagram | AccuracyDiagram) -> list[str]:
    """The first lines of a printed diagram: who is compared, where."""
    spans = ", ".join(f"{name} from {v.min():g} to {v.max():g}" for name, v in diagram.axes.items())
    return [diagram.title, "", f"{diagram.first} against {diagram.second} over {spans}:"]


def boundary_lines(diagram: Diagram | AccuracyDiagram) -> list[str]:
    """The last lines: the boundary, or some of its points."""
    points, names = diagram.boundary, list(diagram.axes)
    if not points.size:
        return ["There is no boundary within this range."]
    shown = points[np.unique(np.linspace(0, len(points) - 1, 9).astype(int))]
    head = f"The boundary ({len(points)} points, {len(shown)} shown):" if len(names) == 2 else "They cross at:"
    return [head, *("  " + "  ".join(f"{name} {number(x)}" for name, x in zip(names, row, strict=True)) for row in shown)]


@overload
def compare(
    first: str | Algorithm, second: str | Algorithm, world: Population, *, vary: Mapping[str, ArrayLike], **options: Any
) -> Diagram: ...
@overload
def compare(
    first: str | Algorithm, second: str | Algorithm, world: ClassPopulation, *, vary: Mapping[str, ArrayLike], **options: Any
) -> AccuracyDiagram: ...


def compare(
    first: str | Algorithm,
    second: str | Algorithm,
    world: Population | ClassPopulation,
    *,
    vary: Mapping[str, ArrayLike],
    **options: Any,
) -> Diagram | AccuracyDiagram:
    """Who wins where: two algorithms over a grid of one or two parameters, each at its best ridge unless one is given.

    vary: parameter -> (start, stop, count) or a list of values; any of the population's numbers, ridge or clients.
    options: ridge, clients, member and maml_step, as for `predict`. A `ClassPopulation` gives an `AccuracyDiagram`.

    The boundary solves loss(first) = loss(second) along each grid line to rounding. For FTFA against FedAvg with
    uncorrelated features it is noise^2 = radius^2 (aspect - 1)/aspect.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> diagram = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 21), "aspect": (1.1, 10, 12)})
    >>> diagram.winner.shape, str(diagram.winner[0, 0]), str(diagram.winner[-1, 0])
    ((21, 12), 'ftfa', 'fedavg')
    """
    if name_of(first) == name_of(second):
        raise InvalidInput(f"both algorithms are {name_of(first)}: name two different ones")
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.diagrams import compare_classes

        return compare_classes(first, second, world, vary, options)
    check_world(world)
    axes = checked_axes(vary, world, options, VARIABLE, ("ridge", "clients", "member", "maml_step"))
    names = list(axes)

    def losses(*values: Array) -> tuple[Array, Array]:
        given = dict(zip(names, values, strict=True))
        changed: dict[str, Any] = {name: value for name, value in given.items() if name not in OPTIONS}
        here = replace(world, **changed)
        more = {**options, **{name: value for name, value in given.items() if name in OPTIONS}}
        with warnings.catch_warnings():  # a diagram may cross thresholds on purpose
            warnings.simplefilter("ignore", ThresholdWarning)
            table = predict(here, [first, second], **more)
        one, two = (np.asarray(risk.loss, dtype=float) for risk in table.values())
        return np.broadcast_to(one, values[0].shape), np.broadcast_to(two, values[0].shape)

    grid = np.meshgrid(*axes.values(), indexing="ij")
    a, b = losses(*grid)
    edge = crossings(axes, a - b, lambda *values: np.subtract(*losses(*values)))
    return Diagram(name_of(first), name_of(second), axes, a, b, edge, " · ".join(facts(world, without=names)))


def crossings(axes: dict[str, Array], difference: Array, f: Callable[..., Array], tolerance: float = 1e-12) -> Array:
    """Points where the difference changes sign, solved along every grid line of every axis."""
    columns = list(axes.values())
    found = []
    for axis, values in enumerate(columns):
        along = np.moveaxis(difference, axis, 0)
        change = np.isfinite(along[:-1]) & np.isfinite(along[1:]) & (np.sign(along[:-1]) * np.sign(along[1:]) < 0)
        at = np.argwhere(change)
        if at.size == 0:
            continue
        others = [columns[other][at[:, i + 1]] for i, other in enumerate(o for o in range(len(columns)) if o != axis)]

        def line(x: Array, axis: int = axis, others: list[Array] = others) -> Array:
            return f(*others[:axis], x, *others[axis:])

        ends = values[at[:, 0]], values[at[:, 0] + 1]
        root = first_whole(line, *ends) if list(axes)[axis] == "clients" else bracketed(line, *ends, tolerance=tolerance)
        found.append(np.stack([*others[:axis], root, *others[axis:]], axis=1))
    if not found:
        return np.empty((0, len(columns)))
    points = np.concatenate(found)
    return points[np.lexsort(points.T[::-1])] if len(columns) == 1 else ordered(points, columns)


def ordered(points: Array, columns: list[Array]) -> Array:
    """Boundary points sorted along the axis over which they spread the most."""
    spread = [np.ptp(points[:, i]) / max(np.ptp(column), 1e-300) for i, column in enumerate(columns)]
    lead = int(np.argmax(spread))
    return points[np.lexsort((points[:, 1 - lead], points[:, lead]))]


def checked_axes(
    vary: Mapping[str, ArrayLike],
    world: Population | ClassPopulation,
    options: dict[str, Any],
    variable: tuple[str, ...],
    allowed: tuple[str, ...],
) -> dict[str, Array]:
    """The values of each varied parameter: one or two of them, known, and not fixed elsewhere."""
    if not isinstance(vary, Mapping) or not 1 <= len(vary) <= 2:
        raise InvalidInput('vary must name one or two parameters, such as {"noise": (0, 2, 200), "aspect": (1.1, 10, 200)}')
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, and the ranges in vary")
    for name, value in options.items():
        if name not in allowed:
            raise unknown("option", name, allowed)
        if name in OPTIONS and (given := floats(value)) is not None and given.ndim:
            raise InvalidInput(f"{name} is {value!r}: give one number; for several, put {name} into vary")
    axes = {}
    for name, values in vary.items():
        if name not in variable:
            raise unknown("parameter in vary", name, variable)
        if name in options:
            raise InvalidInput(f"{name} is both varied and fixed: drop one of the two")
        array = np.unique(spread_of(name, values))
        if array.ndim != 1 or array.size < 2 or not np.all(np.isfinite(array)):
            raise InvalidInput(f"vary[{name!r}] must hold at least two different finite numbers; it has {array.size}")
        axes[name] = np.unique(np.round(array)) if name == "clients" else array
    return axes


def name_of(algorithm: str | Algorithm) -> str:
    """The name of an algorithm given by name or as an object."""
    return algorithm.name if isinstance(algorithm, Algorithm) else str(algorithm)


def spread_of(name: str, values: ArrayLike | tuple[Any, ...]) -> Array:
    """The values of a varied parameter: a list as it is, (start, stop, count) evenly spaced."""
    array = floats(values)
    if not isinstance(values, tuple) and array is not None:
        return array
    if array is None or array.shape != (3,) or not np.all(np.isfinite(array)) or array[2] != np.round(array[2]) or array[2] < 2:
        raise InvalidInput(f"vary[{name!r}] is {values!r}: give (start, stop, count) with a count of at least 2, or a list")
    return np.linspace(array[0], array[1], int(array[2]))
