"""MAML (Finn et al. 2017; Per-FedAvg, Fallah et al. 2020): a shared model that is good after one
gradient step of the client's own.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedasym.algorithms.settings import setting
from fedasym.algorithms.stages import Array, Gradient, ServerStage

HESSIANS = ("exact", "free", "dropped")
MAML_STEP = 0.1  # of limits and exact fits, where nobody says another


class Meta(ServerStage):
    """Server stage: minimise the losses after one gradient step of size `local_step` (MAML-FL; equation param-maml).

    local_step None: the step that clients take in training, 0.1 (or `maml_step`) in limits. Its Hessian is taken as it is
    ("exact"), by finite differences ("free": MAML-FL-HF), or left out ("dropped": MAML-FL-FO).
    """

    local_step: float | None = setting(default=None, least=0, meaning="step after which the losses are minimised")
    hessian: Literal["exact", "free", "dropped"] = setting(default="exact", choices=HESSIANS)
    difference: float = setting(default=1e-3, above=0, meaning="finite difference for the Hessian", grid=(0.001, 0.00001))

    @property
    def batches(self) -> int:  # type: ignore[override]
        """One for each part: the inner step, the gradient, the Hessian."""
        return 2 if self.hessian == "dropped" else 3

    @property
    def gradients(self) -> int:
        """The product with the Hessian costs one, differences two."""
        return {"dropped": 2, "free": 4, "exact": 3}[self.hessian]

    def weight(self, x: Array) -> Array:
        """b(x) = (1 - alpha x)^2; without the Hessian 1 - alpha x."""
        left = 1 - np.asarray(self.local_step) * x
        return np.asarray(left if self.hessian == "dropped" else left**2)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """A step along (I - alpha Hessian(w)) grad(w - alpha grad(w)), each part on a batch of its own."""
        g = gradient(w - self.local_step * gradient(w), 1)
        if self.hessian == "dropped":
            return w - rate * g
        if self.hessian == "free":
            ahead, behind = w + self.difference * g, w - self.difference * g
            Hg = (gradient(ahead, 2) - gradient(behind, 2)) / (2 * self.difference)
        else:
            Hg = gradient.along(w, g, 2)  # type: ignore[attr-defined]
        return w - rate * (g - self.local_step * Hg)
