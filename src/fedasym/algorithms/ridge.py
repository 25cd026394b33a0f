"""Ridge-tuning (RTFA): a client stays within a squared penalty of the shared model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms.settings import setting
from fedasym.algorithms.stages import Array, ClientStage, Gradient
from fedasym.core.arrays import floats
from fedasym.core.errors import InvalidInput


class Ridge(ClientStage, eq=False):
    """Client stage: stay within a squared penalty of the shared model (equation param-perridge); None: the best ridge."""

    ridge: ArrayLike | None = setting(default=None, least=0, meaning="penalty on a client's distance from the shared model",
        grid=(0.001, 0.01, 0.1, 1, 10),
    )  # fmt: skip

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", None if self.ridge is None else checked_ridge(self.ridge))

    def keep(self, x: Array) -> Array:
        """P(x) = lambda/(x + lambda)."""
        ridge = np.asarray(self.ridge, dtype=float)
        return np.asarray(ridge / (x + ridge)) if np.all(np.isfinite(ridge)) else np.ones_like(x)

    def learn(self, x: Array) -> Array:
        """x/(x + lambda)."""
        return np.asarray(x / (x + np.asarray(self.ridge, dtype=float)))

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Descent on the loss and lambda/2 |theta - theta_0|^2."""
        return w - rate * (gradient(w) + self.ridge * (w - start))


def checked_ridge(ridge: ArrayLike) -> float | NDArray[np.float64]:
    """A ridge: any real number or infinity (a negative one is checked against the population later), or an array of them."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(f"ridge is {ridge!r}: it must be a number or an array of numbers; leave it out for the best")
    if np.any(np.isnan(array)) or np.any(array == -np.inf):
        raise InvalidInput("ridge is not a number: give a number of at least 0, or leave it out for the best ridge")
    return float(array) if array.ndim == 0 else array
