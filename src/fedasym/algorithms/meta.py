"""MAML (Finn et al. 2017; Fallah et al. 2020): a shared model that is good after one own step."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedasym.algorithms.stages import Array, Gradient, ServerStage, setting

HESSIANS = ("exact", "free", "dropped")
MAML_STEP = 0.1  # of limits and exact fits, where nobody says another


class Meta(ServerStage):
    """Server stage: minimise the losses after one gradient step of size `local_step` (MAML-FL;
    equation param-maml).

    local_step None: the step that clients take in training, 0.1 (or `maml_step`) in limits. Its
    Hessian is taken as it is ("exact"), by finite differences ("free": MAML-FL-HF), or left out
    ("dropped": MAML-FL-FO).
    """

    local_step: float | None = setting(
        default=None, least=0, meaning="step after which the losses are minimised"
    )
    hessian: Literal["exact", "free", "dropped"] = setting(default="exact", choices=HESSIANS)
    difference: float = setting(
        default=1e-3, above=0, meaning="finite difference for the Hessian", grid=(0.001, 0.00001)
    )

    step_settings = ("server_step", "local_step")

    @property
    def batches(self) -> int:  # type: ignore[override]
        """One for each part: the inner step, the gradient, the Hessian."""
        return 2 if self.hessian == "dropped" else 3

    @property
    def gradients(self) -> int:
        """The product with the Hessian costs one, differences two."""
        return {"dropped": 2, "free": 4, "exact": 3}[self.hessian]

    @property
    def look_ahead(self) -> float | None:
        """The inner step, unless its Hessian is left out."""
        return None if self.hessian == "dropped" else self.local_step

    def weight(self, x: Array) -> Array:
        """b(x) = (1 - alpha x)^2; without the Hessian 1 - alpha x."""
        left = 1 - np.asarray(self.local_step) * x
        return np.asarray(left if self.hessian == "dropped" else left**2)

    def relevant_settings(self) -> set[str]:
        """The finite difference only where the Hessian is one."""
        return set(self.settings()) - (set() if self.hessian == "free" else {"difference"})

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """A step along the gradient of loss(w - a grad(w)), (I - a Hessian(w)) grad(w - a grad(w)).

        Each of its three parts has a batch of its own. (As printed, alg:maml-hf-app is plain SGD
        with step a.) Where only some weights may be a client's own, P being 1 on them, the loss is
        that of w - a P grad(w), and the Hessian is times P.
        """
        parts: Any = gradient  # which has more than a call
        a = self.local_step
        g = parts(w - a * parts.own(parts(w)), 1)
        if self.hessian == "dropped":  # MAML-FO
            return w - rate * g
        by = self.difference if self.hessian == "free" else None  # MAML-HF, or the exact Hessian
        return w - rate * (g - a * parts.along(w, parts.own(g), 2, by))
