"""What privacy costs (`privacy_costs`): how many clients it takes for sharing to pay nonetheless.

For every budget and number of clients the best rounds, cohort, local steps and clip are taken, by
the recursion of `verbs/rounds.py`. Beside the losses stands what clients reach alone, which costs
no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, resolve
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula
from fedasym.core.numbers import Array, floats, number, one_float
from fedasym.core.privacy import Privacy
from fedasym.verbs import predict
from fedasym.worlds import Population

if TYPE_CHECKING:
    from fedasym.results.regimes import PrivacyCosts


PRIVATE_ROUNDS = (2, 4, 8, 16, 32, 64, 128)
EPSILONS = (0.5, 1, 2, 4, 8)
CLIENTS = (100, 300, 1000, 3000, 10_000)
MOST_CLIENTS = 1e9  # where the search for a number of clients ends
ALONE = "local_ridge"


def check_budgets(
    given: dict[str, Array],
    dimension: int | None,
    max_bytes: float | None,
    privacy: Privacy | None,
    clients: Any,
) -> None:
    """Refuse budgets without their units, and cohorts of more clients than there are."""
    if np.any(given["cohort"] > np.broadcast_arrays(given["cohort"], given["clients"])[1]):
        raise InvalidInput(
            f"cohort is {number(np.max(given['cohort']))}: it must be at most clients,"
            f" {number(np.min(given['clients']))}"
        )
    if max_bytes is not None:
        bytes_ = floats(max_bytes)
        if bytes_ is None or bytes_.ndim or not bytes_ > 0:
            raise InvalidInput(f"max_bytes is {max_bytes!r}: it must be a number above 0")
        if dimension is None:
            raise InvalidInput(
                "max_bytes needs the number of unknowns that are sent: give dimension"
            )
    if privacy is None:
        return
    if clients is None or np.any(np.isinf(given["clients"])) or dimension is None:
        raise InvalidInput(
            "privacy depends on how many clients and unknowns there are: give clients and dimension"
        )


class PrivateCell(NamedTuple):
    """The best that is found for one budget and number of clients."""

    loss: float
    shared_error: float
    clip: float
    rounds: int
    cohort: float
    local_steps: float
    server_step: float
    multiplier: float
    ridge: float | None


class Candidates(NamedTuple):
    """What is tried: every combination, in flat arrays; cohort 0 is everyone."""

    rounds: Array
    cohort: Array
    local_steps: Array
    server_step: Array

    @classmethod
    def of_all(
        cls,
        rounds: ArrayLike,
        cohort: ArrayLike | None,
        local_steps: ArrayLike,
        server_step: ArrayLike,
    ) -> Candidates:
        """Every combination of these."""
        from fedasym.verbs.rounds import MOST_ROUNDS, read_plan_numbers

        lists: Sequence[Array] = [
            read_plan_numbers("rounds", rounds, 1, MOST_ROUNDS, integer=True).ravel(),
            np.zeros(1)
            if cohort is None
            else read_plan_numbers("cohort", cohort, 1, np.inf, integer=True).ravel(),
            read_plan_numbers("local_steps", local_steps, 1, np.inf, integer=True).ravel(),
            read_plan_numbers("server_step", server_step, 0, np.inf, above=True).ravel(),
        ]
        return cls(*(np.array(each) for each in zip(*product(*lists), strict=True)))

    def of(self, clients: float) -> dict[str, Array]:
        """The settings of `rounds`, without those that ask for more clients than there are."""
        everyone = np.where(self.cohort == 0, clients, self.cohort)
        fits = everyone <= clients
        if not fits.any():
            raise InvalidInput(
                f"cohort is {number(everyone.min())}: it must be at most clients, {clients:g};"
                " leave it out for everyone"
            )
        return {
            "rounds": self.rounds[fits],
            "cohort": everyone[fits],
            "local_steps": self.local_steps[fits],
            "server_step": self.server_step[fits],
        }


def privacy_costs(
    world: Population,
    algorithm: str | Algorithm = "rtfa",
    *,
    dimension: int,
    epsilon: ArrayLike = EPSILONS,
    clients: ArrayLike = CLIENTS,
    delta: float = 1e-6,
    sampling: Literal["poisson", "fixed"] = "poisson",
    rounds: ArrayLike = PRIVATE_ROUNDS,
    cohort: ArrayLike | None = None,
    local_steps: ArrayLike = 20,
    server_step: ArrayLike = 0.1,
    margin: float = 0.05,
) -> PrivacyCosts:
    """Loss over privacy budgets and numbers of clients, and how many it takes for sharing to pay.

    For every cell the best of all combinations of `rounds`, `cohort`, `local_steps` and
    `server_step` is taken, with the best clip. Training then costs what a larger radius would cost:
    the shared model's error acts like more displacement, and personalising costs no privacy.

    dimension: how many unknowns are sent. cohort: everyone in every round by default, which hides
        most with the same noise; give numbers where bytes count.
    margin: sharing pays where its loss is by this part below that of learning alone. With the best
        clip it hardly ever has more loss: a tight clip leaves the shared model at zero.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> told = {"dimension": 1000, "epsilon": [1, 4], "clients": [100, 1000]}
    >>> costs = fa.privacy_costs(world, rounds=[4, 16], **told)
    >>> costs.loss.round(3).tolist(), round(costs.alone, 3)
    ([[1.953, 0.698], [1.026, 0.648]], 2.204)
    >>> costs.pays.astype(int).tolist()
    [65, 19]
    """
    from fedasym.results.regimes import PrivacyCosts
    from fedasym.verbs.rounds import read_plan_numbers

    (chosen,) = resolve(algorithm, None, 0.1)
    if world.norm is None:
        raise MissingNorm("what clients reach alone depends on how far their optima are: give norm")
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, one world at a time")
    budgets = read_plan_numbers("epsilon", epsilon, 0, np.inf, above=True).ravel()
    many = read_plan_numbers("clients", clients, 1, np.inf, integer=True).ravel()
    if not np.all(np.isfinite(many)):
        raise InvalidInput("clients is infinite: give a number, on which privacy depends")
    tried = Candidates.of_all(rounds, cohort, local_steps, server_step)
    search = RoundSearch(world, chosen, tried, dimension, delta, sampling)
    share = one_float(margin)
    if not 0 <= share < 1:
        raise InvalidInput(f"margin is {margin!r}: it must be at least 0 and below 1, such as 0.05")
    cells = [[search.find(e, m) for m in many] for e in budgets]
    plain = [search.find(None, m) for m in many]
    alone = search.local_loss
    radius = [
        [equal_radius(world, chosen, cell, free) for cell, free in zip(row, plain, strict=True)]
        for row in cells
    ]

    def table(of: Any) -> Array:
        return np.array([[float(of(cell)) for cell in row] for row in cells])

    return PrivacyCosts(
        algorithm=chosen.name,
        epsilon=budgets,
        clients=many,
        delta=float(delta),
        loss=table(lambda cell: cell.loss),
        shared_error=table(lambda cell: cell.shared_error),
        plain=np.array([cell.loss for cell in plain]),
        alone=alone,
        margin=share,
        radius=np.array(radius),
        pays=np.array([search.count_clients(e, (1 - share) * alone) for e in budgets]),
        clip=table(lambda cell: cell.clip),
        rounds=table(lambda cell: cell.rounds),
        cohort=table(lambda cell: cell.cohort),
        local_steps=table(lambda cell: cell.local_steps),
        server_step=table(lambda cell: cell.server_step),
        noise_multiplier=table(lambda cell: cell.multiplier),
        title=f"{world} · {chosen.name} · {dimension} unknowns, delta {delta:g}",
    )


class RoundSearch:
    """Finds the best of the candidates for a budget and a number of clients."""

    def __init__(
        self,
        world: Population,
        algorithm: Algorithm,
        tried: Candidates,
        dimension: int,
        delta: float,
        sampling: Literal["poisson", "fixed"],
    ) -> None:
        from fedasym.theory.rounds import check_shared

        check_shared(algorithm)
        self.world, self.algorithm, self.tried = world, algorithm, tried
        self.dimension, self.delta, self.sampling = dimension, delta, sampling

    @property
    def local_loss(self) -> float:
        """The loss of clients that share nothing, which costs no privacy."""
        return float(predict(self.world, [ALONE])[ALONE].loss)

    def find(self, epsilon: float | None, clients: float) -> PrivateCell:
        """The candidate with the least loss after its last round."""
        from fedasym.core.privacy import Privacy
        from fedasym.verbs.rounds import rounds

        told: dict[str, Any] = {**self.tried.of(clients)}
        budget = None
        if epsilon is not None:
            budget = Privacy(epsilon=float(epsilon), delta=self.delta, sampling=self.sampling)
        path = rounds(
            self.world,
            self.algorithm,
            **told,
            clients=clients,
            dimension=self.dimension,
            privacy=budget,
        )
        at = int(np.nanargmin(path.final))
        place = int(np.searchsorted(path.rounds, path.last[at]))
        return PrivateCell(
            float(path.final[at]),
            float(path.shared_error[at, place]),
            float(path.privacy["clip"][at]) if budget else np.inf,
            int(told["rounds"][at]),
            float(told["cohort"][at]),
            float(told["local_steps"][at]),
            float(told["server_step"][at]),
            float(path.privacy["noise_multiplier"][at]) if budget else 0.0,
            None if path.ridge is None else float(path.ridge[at, place]),
        )

    def count_clients(self, epsilon: float, target: float) -> float:
        """The least number of clients with a loss of at most the target; infinite for none."""

        def reaches(m: float) -> bool:
            try:
                return self.find(epsilon, m).loss <= target
            except NoFormula:  # fewer samples than unknowns
                return False

        fixed = self.tried.cohort[self.tried.cohort > 0]
        low = max(float(fixed.min()) if fixed.size == self.tried.cohort.size else 1.0, 1.0)
        if reaches(low):
            return low
        high = low
        while not reaches(high):
            low, high = high, 4 * high
            if high > MOST_CLIENTS:
                return np.inf
        while high - low > max(1, 0.002 * high):
            middle = float(np.round(np.sqrt(low * high)))
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return high


def equal_radius(
    world: Population, algorithm: Algorithm, cell: PrivateCell, free: PrivateCell
) -> float:
    """The radius at which the limit's loss is higher by what privacy costs: a root."""
    from scipy.optimize import brentq

    radius = float(np.asarray(world.radius))
    limit = float(predict(world, [algorithm])[algorithm.name].loss)
    wanted = limit + cell.loss - free.loss
    if wanted <= limit:
        return radius

    def excess(log: float) -> float:
        other = replace(world, radius=float(np.exp(log)), norm=None)
        return float(predict(other, [algorithm])[algorithm.name].loss) - wanted

    low = np.log(max(radius, 1e-6))
    high = low + 1
    while excess(high) < 0:
        high += 1
        if high > low + 40:
            return np.inf
    return float(np.exp(brentq(excess, low, high, xtol=1e-8)))
