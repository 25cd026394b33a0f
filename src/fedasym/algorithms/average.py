"""FedAvg (McMahan et al. 2017): the minimiser of the weighted sum of the clients' losses; nothing
shared at all; and what a client may do with a shared model without a penalty.

At the end, stages that only clients with classes have a theory of: least squares on the labels, the
best step and the best time; and two that no client can take, the ceilings of a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedasym.algorithms.stages import Array, ClientStage, Gradient, Objective, ServerStage, setting
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import one_float


class Nothing(ServerStage):
    """Server stage: the clients share nothing."""

    objective = Objective.NOTHING


class Average(ServerStage):
    """Server stage: minimise clients' weighted losses (FedAvg; equation param-fedavg)."""

    objective = Objective.POOLED

    def weight(self, x: Array) -> Array:
        """b(x) = 1."""
        return np.ones_like(x)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """W - eta g(w; D): plain SGD (alg:fedavg, lines 6 to 9)."""
        return w - rate * gradient(w)


class Keep(ClientStage):
    """Client stage: use the shared model as it is."""

    objective = Objective.SHARED

    @property
    def step_count(self) -> int:
        """None at all."""
        return 0

    def keep(self, x: Array) -> Array:
        """P(x) = 1."""
        return np.ones_like(x)


class Interpolate(ClientStage):
    """Client stage: descent to convergence, the nearest interpolant (equation param-perfedavg)."""

    objective = Objective.OWN

    def keep(self, x: Array) -> Array:
        """P(x) = 0 wherever there are samples."""
        return np.where(np.asarray(x) > 0, 0.0, 1.0)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Theta - alpha g(theta; D) (alg:ftfa-detail, line 3; alg:local)."""
        return w - rate * gradient(w)


class Descend(ClientStage):
    """Client stage: `steps` gradient steps of size `local_step` from the shared model."""

    local_step: float = setting(least=0, meaning="size of a client's own steps")
    steps: int = setting(default=1, least=0, meaning="how many steps it takes")

    @property
    def step_count(self) -> int:
        """As many as it is told."""
        return self.steps

    def keep(self, x: Array) -> Array:
        """P(x) = (1 - alpha x)^steps."""
        return np.asarray(descent_factors(self.local_step, self.steps, x)[0])

    def learn(self, x: Array) -> Array:
        """1 - (1 - alpha x)^steps, accurate for small x."""
        return np.asarray(descent_factors(self.local_step, self.steps, x)[1])

    def check_largest(self, x: float, where: str) -> None:
        """Alpha x must stay below 2 for more than one step."""
        if self.steps > 1 and self.local_step * x >= 2:
            raise InvalidInput(
                f"step is {self.local_step:g}: gradient descent diverges {where} from {2 / x:.6g}"
                " on; give a smaller step"
            )

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Theta - alpha g(theta; D)."""
        return w - rate * gradient(w)


class Flow(ClientStage):
    """Client stage: gradient flow from the shared model for time `time`."""

    untrainable = "ends in gradient flow, which has no stochastic form: use Descend(step, steps)"

    time: float

    def __post_init__(self) -> None:
        time = one_float(self.time)
        if not time >= 0:
            raise InvalidInput(
                f"time is {self.time!r}: it must be a number of at least 0, or infinite for"
                " convergence"
            )
        object.__setattr__(self, "time", time)

    def keep(self, x: Array) -> Array:
        """P(x) = exp(-time x)."""
        return np.asarray(np.exp(exponent(self.time, -np.asarray(x))))

    def learn(self, x: Array) -> Array:
        """1 - exp(-time x)."""
        return np.asarray(-np.expm1(exponent(self.time, -np.asarray(x))))


def exponent(time: Any, rate: Any) -> Any:
    """Time x rate; zero stays zero for endless time."""
    with np.errstate(invalid="ignore"):
        return np.where(rate == 0, 0, time * rate)


def descent_factors(step: Any, steps: Any, x: Any) -> tuple[Any, Any]:
    """(1 - step x)^steps, and one minus that without cancellation, for real or complex x."""
    slow = np.abs(step * x) < 0.5
    rate = exponent(steps, log1p(-step * np.where(slow, x, 0)))
    power = (1 - step * x) ** steps
    return np.where(slow, np.exp(rate), power), np.where(slow, -np.expm1(rate), 1 - power)


def log1p(x: Any) -> Any:
    """log(1 + x) for real or complex x: NumPy's loses the digits of small complex ones."""
    if not np.iscomplexobj(x):
        return np.log1p(x)
    a = np.real(x)
    b = np.imag(x)
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))


class AverageSquares(ServerStage):
    """Server stage: FedAvg of the squared loss on labels as numbers (-1 and 1 for two classes)."""

    def weight(self, x: Array) -> Array:
        """b(x) = 1, as for FedAvg."""
        return np.ones_like(x)


class BestStep(ClientStage):
    """Client stage: one gradient step from the shared model, of the most accurate size."""


class BestTime(ClientStage):
    """Client stage: gradient descent from the shared model, stopped at its most accurate."""


class Posterior(ClientStage):
    """No client can: the best of all rules if theta_0 is known."""


class Truth(ClientStage):
    """No client can: the client's own optimum."""
