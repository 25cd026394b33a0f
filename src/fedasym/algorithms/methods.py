"""The stages of the methods: FedAvg and fine-tuning, squared penalties, MAML.

FedAvg (McMahan et al. 2017): the minimiser of the weighted sum of the clients' losses; nothing
shared at all; and what a client may do with a shared model without a penalty. Squared penalties:
ridge-tuning (RTFA), where a client stays near a given shared model, and pFedMe (Dinh et al. 2020),
where shared and personal models are learned together, tied by the same penalty. MAML (Finn et al.
2017; Fallah et al. 2020): a shared model that is good after one own step.

Between them, stages that only clients with classes have a theory of: least squares on the labels,
the best step and the best time; and two that no client can take, the ceilings of a table. Last, a
client's own class shares, which are added to the scores of any model.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms.stages import (
    Array,
    ClientStage,
    Gradient,
    Objective,
    ScoreStage,
    ServerStage,
    rule,
    setting,
)
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import check_ridge, log1p, one_float


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
                f"step is {self.local_step:g}: gradient descent diverges {where} with"
                f" steps of {2 / x:.6g} or more; give a smaller one"
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


class AverageSquares(ServerStage):
    """Server stage: FedAvg of the squared loss on labels as numbers (-1 and 1 for two classes)."""

    squares_labels = True

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
    step_settings: ClassVar[tuple[str, ...]] = ("server_step", "ridge", "inner_step")
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
            return theta - self.inner_step * parts.own_part(pulled)

        theta = parts.repeat(self.inner_steps, descend, theta if self.warm_start else w)
        moved = w - rate * self.ridge * (w - theta) - rate * parts.common_part(parts(theta))
        return moved, parts.own_part(theta) + parts.common_part(moved)

    def gives_personal(self, client: ClientStage) -> bool:
        """pFedMe: with a ridge, clients' own models are those of the inner problem."""
        return client.linear_objective is Objective.PENALISED

    def personal_model(self, w: Any, state: Any) -> Any:
        """theta, or w."""
        return state if self.test_inner else w

    def update(self, w: Any, change: Any) -> Any:
        """(1 - beta) w + beta sum_j p_j w_j (alg:pfedme, line 13)."""
        return w + self.mixing * change


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
        g = parts(w - a * parts.own_part(parts(w)), 1)
        if self.hessian == "dropped":  # MAML-FO
            return w - rate * g
        by = self.difference if self.hessian == "free" else None  # MAML-HF, or the exact Hessian
        return w - rate * (g - a * parts.along(w, parts.own_part(g), 2, by))


class Share(ScoreStage):
    """Score stage: the logarithm of a client's class shares above everybody's (label shift).

    If clients differ in how often they meet a class, and not in what a class looks like, Bayes'
    rule makes the shared model's probabilities a client's own:

        p_i(c | x) ~ p(c | x) s_ic/pi_c,   so scores_c + log(s_ic/pi_c),

    with pi_c the share of class c among all samples, and s_ic that of client i, estimated from its
    n_i labels with a = `share_smoothing` samples of everybody's added: (n_ic + a pi_c)/(n_i + a). A
    client without labels has s = pi, and keeps the scores. `share_power` 1 is Bayes' rule.

    >>> Share(share_smoothing=2).offset(np.array([2.0, 0.0]), np.array([0.5, 0.5])).round(3)
    array([ 0.405, -0.693])
    """

    share_power: float = setting(
        default=1.0,
        least=0,
        meaning="power of a client's class shares (tau)",
        grid=(0.25, 0.5, 1, 1.5),
    )
    share_smoothing: float = setting(
        default=10.0,
        above=0,
        meaning="samples of everybody's classes that are added to a client's",
        grid=(3, 10, 30, 100),
    )

    def offset(self, counts: Any, pooled: Any) -> Any:
        """Tau log((n_c/pi_c + a)/(n + a)): 0 without labels."""
        a = self.share_smoothing
        numbers = counts.__array_namespace__()
        return self.share_power * numbers.log((counts / pooled + a) / (counts.sum() + a))
