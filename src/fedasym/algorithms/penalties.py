"""Squared penalties: ridge-tuning (RTFA), where a client stays near a given shared model, and
pFedMe (Dinh et al. 2020), where shared and personal models are learned together, tied by the same
penalty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms.stages import (
    Array,
    ClientStage,
    Gradient,
    Objective,
    ServerStage,
    rule,
    setting,
)
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import floats


class Ridge(ClientStage, eq=False):
    """Client stage: a squared penalty to the shared model (equation param-perridge); None: best."""

    objective = Objective.PENALISED

    ridge: ArrayLike | None = setting(
        default=None,
        least=0,
        meaning="penalty on a client's distance from the shared model",
        grid=(0.001, 0.01, 0.1, 1, 10),
        usual=0.1,
    )
    # the gradient of the penalty is this times ridge (theta - theta_0)
    penalty: float = rule(default=1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", None if self.ridge is None else check_ridge(self.ridge))

    def __eq__(self, other: object) -> bool:
        """Ridges may be arrays."""
        if not isinstance(other, Ridge) or self.penalty != other.penalty:
            return False
        return np.array_equal(np.asarray(self.ridge), np.asarray(other.ridge))

    def __hash__(self) -> int:
        return hash((type(self), np.shape(self.ridge) if self.ridge is not None else None))

    def keep(self, x: Array) -> Array:
        """P(x) = lambda/(x + lambda)."""
        ridge = np.asarray(self.ridge, dtype=float)
        return np.asarray(ridge / (x + ridge)) if np.all(np.isfinite(ridge)) else np.ones_like(x)

    def learn(self, x: Array) -> Array:
        """x/(x + lambda)."""
        return np.asarray(x / (x + np.asarray(self.ridge, dtype=float)))

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Descent on the loss and lambda/2 |theta - theta_0|^2 (alg:rtfa, line 3)."""
        ridge: Any = self.ridge
        return w - rate * (gradient(w) + self.penalty * ridge * (w - start))


class Moreau(ServerStage):
    """Server stage: minimise losses and squared distances to the shared model together (pFedMe;
    equation param-prox).

    ridge None: that of the client stage, or the best.
    """

    objective = Objective.JOINT
    step_settings = ("server_step", "ridge", "inner_step")
    relative_step = True
    everyone_works = True

    ridge: float | None = setting(
        default=None, least=0, meaning="penalty that ties clients to the shared model", usual=15.0
    )
    mixing: float = setting(
        default=1.0, least=0, meaning="how far the server moves to the clients' mean", grid=(1, 2)
    )
    inner_step: float | None = setting(default=None, least=0, meaning="step of the inner problem")
    inner_steps: int = setting(default=5, least=1, meaning="steps of the inner problem")
    # the inner problem starts from the last theta, or from w
    warm_start: bool = rule(default=False)
    decay: float = rule(default=0.0)  # weight decay inside the inner problem
    test_inner: bool = rule(default=True)  # the personal model is theta, or the local w

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

    def init(self, w: Any) -> Any:
        """theta, the solution of the last inner problem."""
        return w

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, theta: Any
    ) -> Any:
        """Theta nearly minimises the batch's loss + lambda/2 |theta - w|^2, and w follows it
        (alg:pfedme, lines 8 and 9).

        Weights that may not be a client's own are the same in theta and w, and follow the loss at
        theta.
        """
        parts: Any = gradient  # which has more than a call

        def descend(theta: Any) -> Any:
            pulled = parts(theta) + self.ridge * (theta - w) + self.decay * theta
            return theta - self.inner_step * parts.own(pulled)

        theta = parts.repeat(self.inner_steps, descend, theta if self.warm_start else w)
        moved = w - rate * self.ridge * (w - theta) - rate * parts.common(parts(theta))
        return moved, parts.own(theta) + parts.common(moved)

    def gives_personal(self, client: ClientStage) -> bool:
        """pFedMe: with a ridge, clients' own models are those of the inner problem."""
        return isinstance(client, Ridge)

    def personal_model(self, w: Any, state: Any) -> Any:
        """theta, or w."""
        return state if self.test_inner else w

    def update(self, w: Any, change: Any) -> Any:
        """(1 - beta) w + beta sum_j p_j w_j (alg:pfedme, line 13)."""
        return w + self.mixing * change


def check_ridge(ridge: ArrayLike) -> float | NDArray[np.float64]:
    """A ridge: a real number, infinity, or an array; negative ones meet the population later."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(
            f"ridge is {ridge!r}: it must be a number or an array of numbers; leave it out for the"
            " best"
        )
    if np.any(np.isnan(array)) or np.any(array == -np.inf):
        raise InvalidInput(
            "ridge is not a number: give a number of at least 0, or leave it out for the best ridge"
        )
    return float(array) if array.ndim == 0 else array
