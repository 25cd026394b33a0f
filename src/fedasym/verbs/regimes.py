"""What separates regimes: who wins where (`compare`), best ridges and losses, and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, find
from fedasym.algorithms.methods import MAML_STEP
from fedasym.core.errors import InvalidInput, NoFormula, unknown_name
from fedasym.core.numbers import Array, floats, one_float
from fedasym.theory import Worlds, best_ridge, flatten, interpolant_limit, ridge_limit, shared_limit
from fedasym.verbs import PredictionRequest, box, task_of
from fedasym.worlds import Population, World
from fedasym.worlds.classes import ClassPopulation

if TYPE_CHECKING:  # the limits alone, which ask for the noise threshold, should start quickly
    from fedasym.results.regimes import Diagram, Mixture, Separability

OPTIONS = ("ridge", "clients")  # parameters of predict that can vary beside the population's


def compare(
    first: str | Algorithm,
    second: str | Algorithm,
    world: Population | ClassPopulation,
    *,
    vary: Mapping[str, ArrayLike],
    **options: Any,
) -> Diagram:
    """Who wins where: two algorithms over one or two parameters, at their best or given ridges.

    vary: parameter -> (start, stop, count) or a list of values; any of the population's numbers,
        ridge or clients.
    options: ridge, clients, member and maml_step, as for `predict`. Of a `ClassPopulation` it
        compares accuracies.

    The boundary solves loss(first) = loss(second) along each grid line to rounding. For FTFA
    against FedAvg with uncorrelated features it is noise^2 = radius^2 (aspect - 1)/aspect.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> diagram = fa.compare(
    ...     "ftfa", "fedavg", world, vary={"noise": (0, 2, 21), "aspect": (1.1, 10, 12)}
    ... )
    >>> diagram.winner.shape, str(diagram.winner[0, 0]), str(diagram.winner[-1, 0])
    ((21, 12), 'ftfa', 'fedavg')
    """
    from fedasym.results.regimes import Diagram

    if name_of(first) == name_of(second):
        raise InvalidInput(f"both algorithms are {name_of(first)}: name two different ones")
    task = task_of(world)
    axes = check_axes(vary, world, options, task.options)
    names = list(axes)

    def evaluate(*values: Array) -> tuple[Array, Array]:
        given = dict(zip(names, values, strict=True))
        changed: dict[str, Any] = {
            name: value for name, value in given.items() if name not in OPTIONS
        }
        more = {**options, **{name: value for name, value in given.items() if name in OPTIONS}}
        step = more.pop("maml_step", None)
        chosen = task.resolve(
            [first, second], more.pop("ridge", None), MAML_STEP if step is None else step
        )
        one, two = task.evaluate(
            replace(world, **changed), chosen, values[0].shape, PredictionRequest(**more)
        )
        return one, two

    grid = np.meshgrid(*axes.values(), indexing="ij")
    precision = task.check_grid(world, grid[0].size)
    a, b = evaluate(*grid)
    gap = a - b
    if task.metric.share:  # of values that are as good as equal neither is ahead
        gap = np.where(np.abs(gap) <= task.metric.tie, 0.0, gap)
    edge = crossings(axes, gap, lambda *values: np.subtract(*evaluate(*values)), precision)
    title = " · ".join(world.facts(without=names))
    return Diagram(name_of(first), name_of(second), axes, a, b, edge, title, task.metric)


def crossings(
    axes: dict[str, Array], difference: Array, f: Callable[..., Array], tolerance: float = 1e-12
) -> Array:
    """Points where the difference changes sign, solved along every grid line of every axis."""
    from fedasym.theory.roots import find_roots, first_whole_number

    columns = list(axes.values())
    found: list[Array] = []
    for axis, values in enumerate(columns):
        along = np.moveaxis(difference, axis, 0)
        finite = np.isfinite(along[:-1]) & np.isfinite(along[1:])
        change = finite & (np.sign(along[:-1]) * np.sign(along[1:]) < 0)
        at = np.argwhere(change)
        if at.size == 0:
            continue
        others = [
            columns[other][at[:, i + 1]]
            for i, other in enumerate(o for o in range(len(columns)) if o != axis)
        ]

        def line(x: Array, axis: int = axis, others: list[Array] = others) -> Array:
            return f(*others[:axis], x, *others[axis:])

        ends = values[at[:, 0]], values[at[:, 0] + 1]
        root = (
            first_whole_number(line, *ends)
            if list(axes)[axis] == "clients"
            else find_roots(line, *ends, tolerance=tolerance)
        )
        found.append(np.stack([*others[:axis], root, *others[axis:]], axis=1))
    if not found:
        return np.empty((0, len(columns)))
    points = np.concatenate(found)
    return (
        points[np.lexsort(points.T[::-1])] if len(columns) == 1 else sort_boundary(points, columns)
    )


def sort_boundary(points: Array, columns: list[Array]) -> Array:
    """Boundary points sorted along the axis over which they spread the most."""
    spread = [
        np.ptp(points[:, i]) / max(np.ptp(column), 1e-300) for i, column in enumerate(columns)
    ]
    lead = int(np.argmax(spread))
    return points[np.lexsort((points[:, 1 - lead], points[:, lead]))]


def check_axes(
    vary: Mapping[str, ArrayLike], world: World, options: dict[str, Any], allowed: tuple[str, ...]
) -> dict[str, Array]:
    """The values of each varied parameter: one or two of them, known, and not fixed elsewhere."""
    if not isinstance(vary, Mapping) or not 1 <= len(vary) <= 2:
        raise InvalidInput(
            'vary must name one or two parameters, such as {"noise": (0, 2, 200), "aspect": (1.1,'
            " 10, 200)}"
        )
    if world.shape != ():
        raise InvalidInput(
            "the population holds arrays: give plain numbers, and the ranges in vary"
        )
    for name, value in options.items():
        if name not in allowed:
            raise unknown_name("option", name, allowed)
        if name in OPTIONS and (given := floats(value)) is not None and given.ndim:
            raise InvalidInput(
                f"{name} is {value!r}: give one number; for several, put {name} into vary"
            )
    axes = {}
    variable = (*world.ranges, *OPTIONS)
    for name, values in vary.items():
        if name not in variable:
            raise unknown_name("parameter in vary", name, variable)
        if name in options:
            raise InvalidInput(f"{name} is both varied and fixed: drop one of the two")
        array = np.unique(read_range(name, values))
        if array.ndim != 1 or array.size < 2 or not np.all(np.isfinite(array)):
            raise InvalidInput(
                f"vary[{name!r}] must hold at least two different finite numbers; it has"
                f" {array.size}"
            )
        axes[name] = np.unique(np.round(array)) if name == "clients" else array
    return axes


def name_of(algorithm: str | Algorithm) -> str:
    """The name of an algorithm given by name, as module:name, or as an object."""
    return (
        find(algorithm).name
        if isinstance(algorithm, Algorithm) or ":" in str(algorithm)
        else str(algorithm)
    )


def read_range(name: str, values: ArrayLike | tuple[Any, ...]) -> Array:
    """The values of a varied parameter: a list as it is, (start, stop, count) evenly spaced."""
    array = floats(values)
    if not isinstance(values, tuple) and array is not None:
        return array
    if (
        array is None
        or array.shape != (3,)
        or not np.all(np.isfinite(array))
        or array[2] != np.round(array[2])
        or array[2] < 2
    ):
        raise InvalidInput(
            f"vary[{name!r}] is {values!r}: give (start, stop, count) with a count of at least 2,"
            " or a list"
        )
    return np.linspace(array[0], array[1], int(array[2]))


def optimal_ridge(world: Population | ClassPopulation) -> float | Array:
    """The ridge of RTFA's and pFedMe's lowest limiting loss; with classes RTFA's best accuracy.

    lambda* = noise^2 aspect / radius^2 for every covariance when the displacement is isotropic.
    Under an alignment it minimises the loss numerically and may be negative, where the displacement
    lies along strong features and even the interpolant shrinks too much; it is infinite when
    clients do not differ. With classes it is near aspect/(c radius^2), where c theta_0 is the
    shared model.

    >>> import fedasym as fa
    >>> fa.optimal_ridge(fa.Population(radius=1, noise=0.5, aspect=2))
    0.5
    >>> aligned = fa.Population(
    ...     1, 0.02**0.5, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1
    ... )
    >>> round(fa.optimal_ridge(aligned), 4)
    -0.0563
    >>> round(fa.optimal_ridge(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)), 2)
    2.33
    """
    return box(task_of(world).best_ridge(world), world.shape)


def optimal_loss(world: Population) -> float | Array:
    """The best possible limiting loss, RTFA's at its best ridge lambda*.

    R* = (radius^2/aspect)(kappa(lambda*) - lambda*) when the displacement is isotropic.

    >>> import fedasym as fa
    >>> round(fa.optimal_loss(fa.Population(radius=1, noise=0.5**0.5, aspect=2)), 6)
    0.707107
    """
    check_squared(world, "the best accuracy is that of rtfa in predict")
    flat = flatten(world, world.shape)
    return box(np.asarray(sum(ridge_limit(flat, best_ridge(flat)))), world.shape)


def noise_threshold(world: Population) -> float | Array:
    """The noise (standard deviation) below which FTFA beats FedAvg; 0: it never does.

    sigma_c^2 = (r^2 sum g s - B_0) / (kappa'(0) - 1), which is r^2 (aspect - 1)/aspect for
    uncorrelated features. The population's own noise plays no part.

    >>> import fedasym as fa
    >>> round(fa.noise_threshold(fa.Population(radius=1, noise=0, aspect=2)), 6)
    0.707107
    """
    check_squared(
        world, "with classes fine-tuning to convergence forgets the shared model; see separability"
    )
    flat = flatten(world, world.shape)
    unit = Worlds(flat.r2, np.ones_like(flat.s2), flat.gamma, flat.g, flat.spectrum)
    bias, variance = interpolant_limit(unit)
    gain = np.maximum(shared_limit(flat)[0] - bias, 0)
    with np.errstate(invalid="ignore"):
        return box(np.sqrt(np.where(gain == 0, 0.0, gain / variance)), world.shape)


def check_squared(world: World, instead: str) -> None:
    """Refuse a population of classes, which has no squared loss, and what is no population."""
    if getattr(type(world), "task", None) == "classification":
        raise InvalidInput(
            "world is a ClassPopulation, and this is about the squared loss of a Population:"
            f" {instead}"
        )
    task_of(world, "give a Population")


def check_has_classes(world: World) -> None:
    """Refuse what has no classes."""
    if getattr(type(world), "task", None) != "classification":
        raise InvalidInput(
            f"world is {type(world).__name__}: this is for a ClassPopulation, clients whose labels"
            " are classes"
        )


def separability(world: ClassPopulation) -> Separability:
    """The aspect above which a client's classes are separable, and training never converges.

    gamma* = min_t E[(Z2 - t y Z1)_+^2] with P(y = 1 | Z1) = flips + (1 - 2 flips) sigmoid(rho Z1);
    it depends on the covariance through rho^2 = theta_i'Sigma theta_i alone, and is at most 1/2.

    >>> import fedasym as fa
    >>> round(fa.separability(fa.ClassPopulation(radius=1, centre=1, aspect=2)).threshold, 4)
    0.3985
    """
    check_has_classes(world)
    from fedasym.results.regimes import Separability
    from fedasym.theory.classes.ridge import separability_threshold

    if world.classes > 2:
        raise NoFormula(
            f"the separability threshold is derived for two classes, not {world.classes}: give"
            " classes=2; a ridge or an early stop (optimal_ridge, fine_tuning) is needed"
            " either way"
        )
    e = world.energies
    aspect = np.broadcast_to(np.asarray(world.aspect) * e.rank, world.shape)
    edge = np.broadcast_to(separability_threshold(e.rho, world.flips).gamma, world.shape)
    return Separability(box(aspect, world.shape), box(edge, world.shape))


def interpolation(
    world: ClassPopulation, *, ridge: ArrayLike | None = None, alpha: float | None = None
) -> Mixture:
    """What mixing the shared and the personal model's weights repairs, at the best or given alpha.

    With O = theta_hat'Sigma theta_0, Gram = [[c^2 B0, c O], [c O, Q]] and t = (c B0, T) the best
    weights are v = Gram^-1 t.

    ridge: of the personal model, rtfa; 0: trained to convergence; by default its best, which leaves
    little to repair.

    >>> import fedasym as fa
    >>> world = fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2)
    >>> ended = fa.interpolation(world, ridge=0)
    >>> round(ended.personal.accuracy, 4), round(ended.mixed.accuracy, 4)
    (0.594, 0.6935)
    """
    check_has_classes(world)
    if alpha is not None and not np.isfinite(one_float(alpha)):
        raise InvalidInput(
            f"alpha is {alpha!r}: it must be finite, 0 for the shared and 1 for the personal model"
        )
    from fedasym.results.regimes import Mixture
    from fedasym.theory.classes import LogisticAnswer, margins, rtfa_state
    from fedasym.theory.classes.margins import fit_to_convergence
    from fedasym.theory.classes.ridge import fedavg, shrinkage, solve_ridge
    from fedasym.verbs.accuracies import check_penalty, flatten_classes, score_state, shape_scores

    lam = None if ridge is None else check_penalty(ridge)
    if lam is not None and np.ndim(lam):
        raise InvalidInput("ridge must be one number here; call interpolation once for each")
    if world.classes > 2:
        return mix_multinomial(world, lam, alpha)
    worlds = flatten_classes(world, world.shape, None, True)
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    c = shrinkage(e, eps)
    end = fit_to_convergence(e, gamma, eps) if lam == 0 else None
    if end is not None and np.any(end.separable) and not np.all(end.separable):
        raise InvalidInput(
            "ridge is 0 and the grid has worlds on both sides of separability: give a ridge above 0"
        )
    if end is None:
        best = np.full(gamma.shape, lam) if lam is not None else rtfa_state(worlds, None).ridge
        fit = solve_ridge(e, gamma, best, c, eps)  # type: ignore[arg-type]
        found = margins.mix_weights(e, c, fit, alpha)
        personal = LogisticAnswer(fit, ridge=best)
    else:
        mix = margins.add_direction if np.all(end.separable) else margins.mix_weights
        found = mix(e, c, end.fit, alpha)
        personal = LogisticAnswer(end.fit, endless=end.separable)
    states = LogisticAnswer(found.state), personal, LogisticAnswer(fedavg(e, eps))
    mixed, own, shared = (shape_scores([score_state(each, eps)], world.shape) for each in states)
    weight = box(np.broadcast_to(found.alpha, gamma.shape), world.shape)
    return Mixture(weight, mixed, own, shared, end is not None and bool(np.all(end.separable)))


def mix_multinomial(
    world: ClassPopulation, lam: float | Array | None, alpha: float | None
) -> Mixture:
    """The same for more classes, at the best alpha of one world."""
    from fedasym.results.regimes import Mixture
    from fedasym.theory.classes import SoftmaxAnswer, shared_rule
    from fedasym.theory.classes import softmax_ridge as ridges
    from fedasym.theory.classes.margins import best_softmax_mixture
    from fedasym.verbs.accuracies import score_rule

    if alpha is not None:
        raise NoFormula("with more than two classes the best alpha is given: leave alpha out")
    if world.shape:
        raise InvalidInput(
            "the population holds arrays: with more than two classes give plain numbers, one world"
            " at a time"
        )
    e = world.energies
    gamma = float(np.asarray(world.aspect))
    C = world.classes
    if lam == 0:
        raise ridges.refuse_convergence(C)
    fit = (
        ridges.best_softmax_ridge(e, gamma, C)
        if lam is None
        else ridges.softmax_rtfa(e, gamma, float(np.asarray(lam)), C)
    )
    rule, weight = best_softmax_mixture(fit, e)
    rules = (
        SoftmaxAnswer(rule),
        SoftmaxAnswer(fit, ridge=fit.ridge),
        SoftmaxAnswer(shared_rule(e, C)),
    )
    mixed, own, shared = (score_rule(each) for each in rules)
    return Mixture(weight, mixed, own, shared)
