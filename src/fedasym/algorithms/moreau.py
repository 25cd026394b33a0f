"""pFedMe (Dinh et al. 2020): shared and personal models together, tied by a squared penalty."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedasym.algorithms.settings import setting
from fedasym.algorithms.stages import Array, Gradient, ServerStage


class Moreau(ServerStage):
    """Server stage: minimise losses and squared distances to the shared model together (pFedMe; equation param-prox).

    ridge None: that of the client stage, or the best.
    """

    ridge: float | None = setting(default=None, least=0, meaning="penalty that ties clients to the shared model")
    mixing: float = setting(default=1.0, least=0, meaning="how far the server moves to the clients' mean", grid=(1, 2))
    inner_step: float | None = setting(default=None, least=0, meaning="step of the inner problem")
    inner_steps: int = setting(default=5, least=1, meaning="steps of the inner problem")

    @property
    def gradients(self) -> int:
        """One in each step of the inner problem."""
        return self.inner_steps

    def weight(self, x: Array) -> Array:
        """b(x) = lambda/(x + lambda): what is left once the personal models are minimised out."""
        ridge = np.asarray(self.ridge, dtype=float)
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = np.where(ridge == 0, 1 / x, ridge / (x + ridge))
        return np.where(np.isinf(ridge), 1.0, inner)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Theta nearly minimises the batch's loss + lambda/2 |theta - w|^2; w moves towards it."""
        theta = w
        for _ in range(self.inner_steps):
            theta = theta - self.inner_step * (gradient(theta) + self.ridge * (theta - w))
        return w - rate * self.ridge * (w - theta)
