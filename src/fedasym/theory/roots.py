"""Roots, minima and fixed points of many functions: brackets, and Anderson (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebfit, chebroots, chebval, chebvander
from numpy.typing import NDArray

from fedasym.core.numbers import Array

GOLDEN = (np.sqrt(5) - 1) / 2


def find_roots(
    f: Callable[[Array], Array], low: Array, high: Array, tolerance: float = 4e-16
) -> Array:
    """Where each f changes sign between low and high: Chandrupatla's method, inverse quadratic
    steps with bisection.

    `f` is evaluated on the whole array at once; the signs at low and high must differ (or one be
    zero).
    """
    a, b = np.array(high, dtype=float), np.array(low, dtype=float)
    fa, fb = f(a), f(b)
    c, fc = a.copy(), fa.copy()
    t = np.full(a.shape, 0.5)
    for _ in range(200):
        x = a + t * (b - a)
        fx = f(x)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        width = np.abs(b - a)
        limit = 2 * tolerance * np.abs(best) + 1e-300
        done = (width <= limit) | (fa == 0) | (fb == 0)
        if np.all(done):
            break
        with np.errstate(all="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
            inverse = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (
                fc - fb
            )
            edge = np.minimum(0.5, limit / width)
        t = np.where(smooth & np.isfinite(inverse), np.clip(inverse, edge, 1 - edge), 0.5)
        t = np.where(done, 0.0, t)
    return np.asarray(np.where(fa == 0, a, np.where(fb == 0, b, best)))


def first_whole_number(f: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The first whole number between low and high where each f has the sign that it has at high."""
    sign = np.sign(f(high))
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        over = np.sign(f(middle)) == sign
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return high


def find_minima(
    f: Callable[[Array], Array],
    low: Array,
    high: Array,
    points: int = 64,
    rounds: int = 60,
    several: Callable[[Array], Array] | None = None,
) -> Array:
    """The minimiser of each f on [low, high]: the best of a grid, then golden-section search
    between its neighbours.

    several: f for many points of each at once, a row for each point, where f is smooth: a
    polynomial takes the place of the search if it has the values of f.
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    grid = np.linspace(0, 1, points)
    places = [low + u * (high - low) for u in grid]
    values = (
        np.stack([f(place) for place in places]) if several is None else several(np.stack(places))
    )
    at = np.argmin(np.where(np.isnan(values), np.inf, values), axis=0)
    a = low + grid[np.maximum(at - 1, 0)] * (high - low)
    b = low + grid[np.minimum(at + 1, points - 1)] * (high - low)
    if several is not None:
        place, value = interpolate_minima(several, a, b)
        if np.all(np.abs(f(place) - value) <= SMOOTH * np.abs(value)):
            return place
    x, y = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    fx, fy = f(x), f(y)
    for _ in range(rounds):
        left = fx < fy
        a, b = np.where(left, a, x), np.where(left, y, b)
        new = np.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        fnew = f(new)
        x, y = np.where(left, new, y), np.where(left, x, new)
        fx, fy = np.where(left, fnew, fy), np.where(left, fx, fnew)
    return np.asarray(np.where(fx < fy, x, y))


SMOOTH = 1e-11  # relative error of a polynomial that stands for a function


def interpolate_minima(
    several: Callable[[Array], Array], low: Array, high: Array
) -> tuple[Array, Array]:
    """Where a polynomial through a few values of each function on [low, high] is least, and its
    value there.

    >>> import numpy as np
    >>> place, value = interpolate_minima(lambda x: np.cosh(x - 0.3), np.zeros(1), np.ones(1))
    >>> round(float(place[0]), 12), round(float(value[0]), 12)
    (0.3, 1.0)
    """
    nodes = np.polynomial.chebyshev.chebpts1(18)
    values = several(np.stack([low + (high - low) * (node + 1) / 2 for node in nodes]))
    series = np.linalg.solve(np.polynomial.chebyshev.chebvander(nodes, nodes.size - 1), values)
    slope = np.polynomial.chebyshev.chebder(series)
    bend = np.polynomial.chebyshev.chebder(slope)
    grid = np.linspace(-1, 1, 65)
    at = grid[np.argmin(np.polynomial.chebyshev.chebval(grid, series), axis=-1)]
    first, last = np.maximum(at - 1 / 32, -1), np.minimum(at + 1 / 32, 1)
    for _ in range(5):  # Newton, where the slope rises
        down, up = (np.polynomial.chebyshev.chebval(at, each, False) for each in (slope, bend))
        move = np.divide(down, up, out=np.zeros_like(down), where=up > 0)
        at = np.clip(at - move, first, last)
    return low + (high - low) * (at + 1) / 2, np.polynomial.chebyshev.chebval(at, series, False)


# unknowns (P, n) of the settings listed -> their image
FixedPointMap = Callable[[Array, NDArray[np.intp]], Array]
StopRule = Callable[[Array, NDArray[np.intp]], NDArray[np.bool_]]  # where to give up

TOLERANCE = 2e-14
ACCEPTED = 1e-10  # a residual that no longer falls is taken below this
DEPTH = 4
DAMPED = 5  # plain steps before acceleration, from far away
PATIENCE = 12  # rounds without progress
DIFFERENCE = 1e-6  # step of differenced derivatives


class FixedPoint(NamedTuple):
    """Unknowns (P, n), and each setting's largest residual: infinite where it was given up."""

    u: Array
    residual: Array


class Secants(NamedTuple):
    """Anderson's history (P, n, depth): moves of the unknowns, and changes of the step there."""

    moves: Array
    changes: Array

    @classmethod
    def none(cls, settings: int, n: int) -> Secants:
        """No history yet."""
        return cls(*np.zeros((2, settings, n, min(DEPTH, n))))


def find_fixed_points(
    image: FixedPointMap,
    start: Array,
    stop: StopRule | None = None,
    rounds: int = 150,
    damping: float = 0.7,
    tolerance: float = TOLERANCE,
    damped: int = DAMPED,
    secants: Secants | None = None,
) -> FixedPoint:
    """Where u = image(u), from `start` (P, n): settings that have converged are frozen, the others
    go on.

    damped: plain steps before acceleration; none from a start that is near.
    secants: those of a like map, to begin with; the last ones are left there.

    >>> import numpy as np
    >>> found = find_fixed_points(lambda u, _: np.cos(u), np.ones((1, 1)))
    >>> round(float(found.u[0, 0]), 12)
    0.739085133215
    """
    u = np.array(start, dtype=float)
    settings, n = u.shape
    best = u.copy()
    residual = np.full(settings, np.inf)
    waited = np.zeros(settings, dtype=np.intp)
    moves, changes = Secants.none(settings, n) if secants is None else secants
    depth = moves.shape[2]
    last_u = u.copy()
    last_f = np.zeros_like(u)
    active = np.arange(settings)
    for round_ in range(rounds):
        now = u[active]
        f = image(now, active) - now
        size = np.max(np.abs(f), axis=1)
        size = np.where(np.isnan(size), np.inf, size)
        better = size < residual[active]
        best[active[better]] = (now + f)[better]
        residual[active[better]] = size[better]
        waited[active] = np.where(better, 0, waited[active] + 1)
        if round_ > damped:
            slot = round_ % depth
            moves[active, :, slot], changes[active, :, slot] = (
                now - last_u[active],
                f - last_f[active],
            )
        last_u[active], last_f[active] = now, f
        u[active] = now + next_move(f, moves, changes, active, damping if round_ < damped else 1.0)
        done = (
            (size <= tolerance)
            | ((waited[active] > PATIENCE) & (residual[active] <= ACCEPTED))
            | np.isinf(size)
        )
        if stop is not None:
            lost = stop(u[active], active) & ~done
            residual[active[lost]] = np.inf
            best[active[lost]] = u[active[lost]]
            done |= lost
        active = active[~done]
        if active.size == 0:
            break
    return FixedPoint(best, residual)


def next_move(
    f: Array, moves: Array, changes: Array, active: NDArray[np.intp], damping: float
) -> Array:
    """The next move: Anderson's with a history; a long one forgets it for half a plain step."""
    plain = np.clip(damping * f, -1, 1)
    past = changes[active]
    if not np.any(past):
        return plain
    weight = (np.linalg.pinv(np.nan_to_num(past), rcond=1e-9) @ f[:, :, None])[:, :, 0]
    move = f - ((moves[active] + past) @ weight[:, :, None])[:, :, 0]
    far = ~(np.max(np.abs(move), axis=1) <= 1)
    moves[active[far]], changes[active[far]] = 0.0, 0.0
    fresh = ~np.any(past, axis=(1, 2))
    return np.where(far[:, None], 0.5 * plain, np.where(fresh[:, None], plain, move))


def newton_fixed_points(
    image: FixedPointMap, start: Array, rounds: int = 40, tolerance: float = TOLERANCE
) -> FixedPoint:
    """Where u = image(u), by Newton with differenced derivatives and step halving: for what
    acceleration cannot do.

    >>> import numpy as np
    >>> found = newton_fixed_points(lambda u, _: np.cos(u), np.ones((1, 1)))
    >>> round(float(found.u[0, 0]), 12)
    0.739085133215
    """
    u = np.array(start, dtype=float)
    settings, n = u.shape
    active = np.arange(settings)

    def gap(x: Array, rows: NDArray[np.intp]) -> Array:
        return np.nan_to_num(image(x, rows) - x, nan=1e3, posinf=1e3, neginf=-1e3)

    f = gap(u, active)
    residual = np.max(np.abs(f), axis=1)
    for _ in range(rounds):
        active = active[residual[active] > tolerance]
        if active.size == 0:
            break
        now = u[active]
        value = f[active]
        slope = np.stack(
            [(gap(now + DIFFERENCE * e, active) - value) / DIFFERENCE for e in np.eye(n)], axis=2
        )
        move = -(np.linalg.pinv(slope, rcond=1e-13) @ value[:, :, None])[:, :, 0]
        move *= np.minimum(1, 2 / np.maximum(np.max(np.abs(move), axis=1, keepdims=True), 1e-300))
        share = np.ones(active.size)
        left = np.arange(active.size)
        for _ in range(10):
            rows = active[left]
            tried = now[left] + share[left, None] * move[left]
            new = gap(tried, rows)
            size = np.max(np.abs(new), axis=1)
            good = size < residual[rows] * (1 - 1e-3 * share[left])
            u[rows[good]] = tried[good]
            f[rows[good]] = new[good]
            residual[rows[good]] = size[good]
            left = left[~good]
            share[left] *= 0.4
            if left.size == 0:
                break
        active = np.delete(active, left)  # no step helps any more
    return FixedPoint(u, residual)


def interpolate_between(nodes: Array, values: Array, places: Array) -> Array:
    """Polynomials through values (settings, nodes, unknowns) at places (settings, points).

    >>> interpolate_between(
    ...     np.array([-1.0, 0.0, 1.0]), np.array([[[1.0], [0.0], [1.0]]]), np.array([[0.5]])
    ... ).tolist()
    [[[0.25]]]
    """
    degree = nodes.size - 1
    return np.asarray(
        chebvander(places, degree) @ np.linalg.solve(chebvander(nodes, degree), values)
    )


def lowest_between(nodes: Array, values: Array) -> float:
    """Where the polynomial through values at Chebyshev nodes of [-1, 1] is lowest."""
    if not np.all(np.isfinite(values)) or np.ptp(values) == 0:
        return 0.0
    series = chebfit(nodes, (values - values.min()) / np.ptp(values), nodes.size - 1)
    turns = chebroots(chebder(series))
    inside = turns.real[(np.abs(turns.imag) < 1e-6) & (np.abs(turns.real) <= 1)]
    places = np.concatenate([[-1.0, 1.0], inside])
    return float(places[np.argmin(chebval(places, series))])


def search_lowest(
    loss: Callable[[Array], Array], start: Array, nodes: int = 7, width: float = np.log(8)
) -> Array:
    """Where each loss(x), x (worlds, nodes), is lowest: polynomials on shrinking intervals."""
    at = np.cos(np.pi * np.arange(nodes) / (nodes - 1))
    best = start
    moves = 0
    while True:
        values = np.nan_to_num(loss(best[:, None] + width * at), nan=np.inf)
        place = np.array([lowest_between(at, row) for row in values])
        best = best + width * place
        if np.any(np.abs(place) > 0.98) and moves < 4:
            moves += 1
            continue
        if width < 0.5:
            return best
        width /= 6
