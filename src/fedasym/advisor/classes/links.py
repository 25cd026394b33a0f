"""From least squares on labels to the population of the logistic model (section 13), and back.

Per free output y = zeta x'theta_i + e: two classes have zeta = 2 phi(rho) and mean square 1, C classes zeta = phi_C(rho) and
mean square 1/C. What the features explain, zeta^2 rho^2 = total - s2, increases with rho, which gives rho, then zeta, then
all lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from fedasym.core.arrays import Array
from fedasym.theory.classes.metrics import phi
from fedasym.theory.classes.softmax import softmax_phi

LEAST, MOST = 1e-3, 15.0  # signals that labels can tell apart: above, they have no noise left
POINTS = 120


@dataclass(frozen=True)
class Link:
    """How labels of `classes` classes follow from the signal."""

    classes: int

    @property
    def total(self) -> float:
        """Mean square of a free output."""
        return 1.0 if self.classes == 2 else 1 / self.classes

    def slope(self, rho: Array | float) -> Array:
        """The zeta of section 8.

        >>> round(float(Link(2).slope(np.sqrt(4.5))), 6)
        0.292117
        """
        grid, slopes = tabulated(self.classes)
        return np.asarray(np.exp(CubicSpline(grid, slopes)(np.log(np.clip(rho, LEAST, MOST)))))

    def signal(self, explained: Array | float) -> Array:
        """The rho at which features explain so much of a free output, clipped where nothing or everything is explained.

        >>> link = Link(3)
        >>> round(float(link.signal(link.slope(2.0) ** 2 * 4.0)), 6)
        2.0
        """
        grid, slopes = tabulated(self.classes)
        energy = 2 * (slopes + grid)
        at = np.clip(np.log(np.maximum(explained, 1e-300)), energy[0], energy[-1])
        return np.asarray(np.exp(CubicSpline(energy, grid)(at)))

    @property
    def most(self) -> float:
        """The most that features can explain: labels that follow them without noise."""
        grid, slopes = tabulated(self.classes)
        return float(np.exp(2 * (slopes[-1] + grid[-1])))


@lru_cache(maxsize=16)
def tabulated(classes: int) -> tuple[Array, Array]:
    """Logarithms of rho and of zeta."""
    rho = np.geomspace(LEAST, MOST, POINTS)
    slope = 2 * phi(rho) if classes == 2 else np.array([softmax_phi(float(each), classes) for each in rho])
    return np.log(rho), np.log(slope)
