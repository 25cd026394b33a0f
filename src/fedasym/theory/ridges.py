"""The best ridge, equation (5) and section 3.4: sigma^2 aspect / r^2 if the displacement is isotropic, else a search."""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.limits import kept
from fedasym.theory.roots import bracketed
from fedasym.theory.transforms import edges, slack, sums
from fedasym.theory.worlds import Worlds

PER_FOLD = 40  # grid points per factor e
BATCH = 1 << 17  # worlds x atoms searched at once


def best_ridge(world: Worlds) -> Array:
    """The ridge of lowest limiting loss; infinite where keeping the shared model is best, negative under some alignments."""
    if world.isotropic or world.spectrum.scale is not None:
        return bayes_ridge(world)
    size = max(1, BATCH // world.spectrum.values.size)
    parts = [searched_ridge(world.take(slice(i, i + size))) for i in range(0, world.r2.size, size)]
    return np.concatenate(parts)


def bayes_ridge(world: Worlds) -> Array:
    """lambda* = sigma^2 aspect / r^2, r^2 the energy's total; infinite for clients that do not differ."""
    r2 = world.r2 * world.g.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(r2 == 0, np.inf, world.s2 * world.gamma / r2)


def searched_ridge(world: Worlds) -> Array:
    """Minimise the loss over kappa, where it is explicit, on a grid common to all worlds, then solve dR/dkappa = 0.

    The loss is R = N/D with N = r^2 kappa^2 sum g s/(s+kappa)^2 + sigma^2 aspect df2 and D = 1 - aspect df2. With
    P = sum g s^2/(s+kappa)^3 and Q the same for h,  dR/dkappa = 0  <=>  r^2 kappa P = aspect (sigma^2 + R) Q.
    """
    s, h = world.spectrum.positive
    g = world.g[:, world.spectrum.seen]
    r2, s2, gamma = world.r2, world.s2, world.gamma
    floor = edges(gamma, world.spectrum)[0]

    def uphill(k: Array) -> Array:
        reach = s + k[:, None]
        near = (s / reach) ** 2
        df2, drag = near @ h, (g * s / reach**2).sum(-1)
        room = 1 - gamma * df2
        with np.errstate(divide="ignore", invalid="ignore"):  # unbounded at the lowest ridge
            loss = np.where(room > 0, (r2 * k**2 * drag + s2 * gamma * df2) / room, np.inf)
        return np.asarray(r2 * k * (g * near / reach).sum(-1) - gamma * (s2 + loss) * ((near / reach) @ h))

    with np.errstate(divide="ignore", invalid="ignore"):
        far = gamma * (s2 + kept(world)[0]) * (s**2 @ h) / (r2 * (g @ s**2))
    endless = ~np.isfinite(far)  # clients that do not differ, at least not where samples can see it
    top = s.max() + np.max(far, where=~endless, initial=0)
    low, high = np.log((floor + s.min()).min()), np.log(100 * top)
    grid = np.exp(np.linspace(low, high, int(np.clip(PER_FOLD * (high - low), 400, 8000)))) - s.min()
    reach = s + grid[:, None]
    df2, drag = (s / reach) ** 2 @ h, g @ (s / reach**2).T
    room = 1 - gamma[:, None] * df2
    loss = (r2[:, None] * grid**2 * drag + s2[:, None] * gamma[:, None] * df2) / np.where(room > 0, room, 1)
    place = np.argmin(np.where(room > 0, loss, np.inf), axis=1)
    left = np.maximum(grid[np.maximum(place - 1, 0)], floor * (1 + np.sign(floor) * 1e-15))
    right = grid[np.minimum(place + 1, grid.size - 1)]
    k = bracketed(uphill, left, right)
    return np.where(endless, np.inf, k * slack(sums(k, world.spectrum), gamma, world.spectrum))
