"""Where to stop fine-tuning: the lowest loss over all numbers of steps, or all times of gradient flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.limits import Parts
from fedasym.theory.paths import horizon
from fedasym.theory.worlds import Worlds

LONGEST = 1e7  # gradient steps (or flow times in units of the largest eigenvalue) searched for the best stopping point


def best_stop(evaluate: Callable[[Array], Parts], world: Worlds, step: float | None, high: float) -> tuple[float, float, float]:
    """The stopping point of lowest loss: a geometric grid, then golden section (flow) or a zoom over whole numbers."""
    end = horizon(float(world.gamma[0]), world.spectrum, step)

    def loss(at: Array) -> Array:
        bias, variance = evaluate(np.atleast_1d(at))
        return np.asarray(bias + variance)

    furthest = min(end, LONGEST / high if step is None else LONGEST)
    if step is None:
        grid = np.geomspace(1e-4 / high, furthest, 200)
    else:
        grid = np.unique(np.round(np.append(0, np.geomspace(1, furthest, 120))))
    values = loss(grid)
    bias, variance = evaluate(np.array([np.inf]))
    if bias[0] + variance[0] <= values.min() * (1 + 1e-12):
        return np.inf, float(bias[0]), float(variance[0])
    place = int(np.argmin(values))
    low, top = grid[max(place - 1, 0)], grid[min(place + 1, grid.size - 1)]
    if step is None:
        if place == 0:
            low = 0.0
        at = smooth_minimum(loss, low, top)
        at = 0.0 if loss(np.zeros(1))[0] <= loss(np.array([at]))[0] else at
    else:
        while top - low > 2:
            zoom = np.unique(np.round(np.linspace(low, top, 12))).astype(float)
            place = int(np.argmin(loss(zoom)))
            low, top = zoom[max(place - 1, 0)], zoom[min(place + 1, zoom.size - 1)]
            if zoom.size == top - low + 1 or zoom.size < 12:
                low = top = zoom[place]
        zoom = np.arange(low, top + 1, dtype=float)
        at = float(zoom[int(np.argmin(loss(zoom)))])
    bias, variance = evaluate(np.array([at]))
    return at, float(bias[0]), float(variance[0])


def smooth_minimum(loss: Callable[[Array], Array], low: float, top: float) -> float:
    """The minimiser on a short interval: the loss is analytic, so a polynomial through a few points finds it at once."""
    series: Any = np.polynomial.Chebyshev.interpolate(loss, 12, domain=[low, top])
    roots = series.deriv().roots()
    inside = [float(root.real) for root in roots if abs(root.imag) < 1e-6 * (top - low) and low <= root.real <= top]
    candidates = np.array([*inside, low, top])
    return float(candidates[np.argmin(series(candidates))])
