"""Fixed points of a few unknowns in many settings at once: damped steps, then Anderson acceleration (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array

Map = Callable[[Array, NDArray[np.intp]], Array]  # unknowns (P, n) of the settings listed -> their image
Stop = Callable[[Array, NDArray[np.intp]], NDArray[np.bool_]]  # where to give up

TOLERANCE = 2e-14
ACCEPTED = 1e-10  # a residual that no longer falls is taken below this
DEPTH = 4
DAMPED = 5  # plain steps before acceleration
PATIENCE = 12  # rounds without progress
DIFFERENCE = 1e-6  # step of differenced derivatives


class Found(NamedTuple):
    """Unknowns (P, n), and the largest residual of each setting: infinite where the search was given up."""

    u: Array
    residual: Array


def fixed_points(
    image: Map, start: Array, stop: Stop | None = None, rounds: int = 150, damping: float = 0.7, tolerance: float = TOLERANCE
) -> Found:
    """Where u = image(u), from `start` (P, n): settings that have converged are frozen, the others go on.

    >>> import numpy as np
    >>> found = fixed_points(lambda u, _: np.cos(u), np.ones((1, 1)))
    >>> round(float(found.u[0, 0]), 12)
    0.739085133215
    """
    u = np.array(start, dtype=float)
    settings, n = u.shape
    best, residual, waited = u.copy(), np.full(settings, np.inf), np.zeros(settings, dtype=np.intp)
    depth = min(DEPTH, n)
    moves, changes = np.zeros((settings, n, depth)), np.zeros((settings, n, depth))
    last_u, last_f = u.copy(), np.zeros_like(u)
    active = np.arange(settings)
    for round_ in range(rounds):
        now = u[active]
        f = image(now, active) - now
        size = np.max(np.abs(f), axis=1)
        size = np.where(np.isnan(size), np.inf, size)
        better = size < residual[active]
        best[active[better]], residual[active[better]] = (now + f)[better], size[better]
        waited[active] = np.where(better, 0, waited[active] + 1)
        if round_ > DAMPED:
            slot = round_ % depth
            moves[active, :, slot], changes[active, :, slot] = now - last_u[active], f - last_f[active]
        last_u[active], last_f[active] = now, f
        u[active] = now + stepped(f, moves, changes, active, damping if round_ < DAMPED else 1.0)
        done = (size <= tolerance) | ((waited[active] > PATIENCE) & (residual[active] <= ACCEPTED)) | np.isinf(size)
        if stop is not None:
            lost = stop(u[active], active) & ~done
            residual[active[lost]], best[active[lost]] = np.inf, u[active[lost]]
            done |= lost
        active = active[~done]
        if active.size == 0:
            break
    return Found(best, residual)


def stepped(f: Array, moves: Array, changes: Array, active: NDArray[np.intp], damping: float) -> Array:
    """The next move: Anderson's where there is a history; a long one forgets its history and takes half a plain step."""
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


def newton(image: Map, start: Array, rounds: int = 40, tolerance: float = TOLERANCE) -> Found:
    """Where u = image(u), by Newton with differenced derivatives and step halving: for what acceleration cannot do.

    >>> import numpy as np
    >>> found = newton(lambda u, _: np.cos(u), np.ones((1, 1)))
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
        now, value = u[active], f[active]
        slope = np.stack([(gap(now + DIFFERENCE * e, active) - value) / DIFFERENCE for e in np.eye(n)], axis=2)
        move = -(np.linalg.pinv(slope, rcond=1e-13) @ value[:, :, None])[:, :, 0]
        move *= np.minimum(1, 2 / np.maximum(np.max(np.abs(move), axis=1, keepdims=True), 1e-300))
        share, left = np.ones(active.size), np.arange(active.size)
        for _ in range(10):
            rows = active[left]
            tried = now[left] + share[left, None] * move[left]
            new = gap(tried, rows)
            size = np.max(np.abs(new), axis=1)
            good = size < residual[rows] * (1 - 1e-3 * share[left])
            u[rows[good]], f[rows[good]], residual[rows[good]] = tried[good], new[good], size[good]
            left = left[~good]
            share[left] *= 0.4
            if left.size == 0:
                break
        active = np.delete(active, left)  # no step helps any more
    return Found(u, residual)
