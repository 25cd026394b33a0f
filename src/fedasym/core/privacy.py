"""Budgets of client-level differential privacy: clipping and the Gaussian mechanism.

Every client's update is clipped to a length C, and Gaussian noise of deviation z C is added to
their sum: z is the noise multiplier. What T rounds spend of a budget (epsilon, delta) is counted
by the accountant of the library dp-accounting, never by a formula of our own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from fedasym.core.errors import InvalidInput, MissingPackage, one_of, unknown_name
from fedasym.core.numbers import one_float, whole

SAMPLINGS = ("poisson", "fixed")
ACCOUNTANTS = ("rdp", "pld")
LARGEST_MULTIPLIER = 1e6
SMALLEST_MULTIPLIER = 0.05  # below it no budget that anyone would call one is kept
FIRST_CLIP = 0.1  # where an adaptive clip begins, unless another is given
CLIP_RATE = 0.2  # how fast it moves, on a logarithmic scale
COUNT_SHARE = 0.05  # noise of the count of short updates, as a part of the cohort
SAFETY = 1e-4  # logarithms of multipliers are found so closely, and taken by so much larger


@dataclass(frozen=True)
class Privacy:
    """A budget (epsilon, delta), or a noise multiplier with what it spends at delta.

    delta: must be well below 1/clients; 1e-6 unless you say another.
    clip: the length to which each client's update is clipped; None: the best that is predicted, or
        must be given, as the verb says.
    quantile: an adaptive clip: after every round it moves towards the length below which this part
        of the updates lies (Andrew et al. 2021), from `clip`, or 0.1. What that takes of the
        budget is counted.
    sampling: "poisson": each client takes part in a round with the same probability, whatever the
        others do, and neighbouring federations have one client more or less. "fixed": cohorts of
        a fixed size without replacement; neighbours then have one client replaced, which moves the
        sum by twice the clip, and the same noise protects half as well.
    accountant: "rdp" (Renyi divergences), or "pld" (loss distributions, tighter and slower, for
        Poisson sampling).

    >>> import fedasym as fa
    >>> budget = fa.Privacy(noise_multiplier=1, delta=1e-6)
    >>> round(budget.spend(rounds=400, cohort=20, clients=3000), 2)
    1.47
    >>> fixed = fa.Privacy(noise_multiplier=1, delta=1e-6, sampling="fixed")
    >>> round(fixed.spend(rounds=400, cohort=20, clients=3000), 1)
    14.4
    >>> round(fa.Privacy(epsilon=4).find_multiplier(rounds=400, cohort=20, clients=3000), 2)
    0.69
    """

    epsilon: float | None = None
    delta: float = 1e-6
    clip: float | None = None
    noise_multiplier: float | None = None
    sampling: Literal["poisson", "fixed"] = "poisson"
    accountant: Literal["rdp", "pld"] = "rdp"
    quantile: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise InvalidInput(
                f"privacy has epsilon {self.epsilon!r} and noise_multiplier"
                f" {self.noise_multiplier!r}: give one of the two; the other follows from rounds,"
                " cohort and clients"
            )
        for name in ("epsilon", "noise_multiplier", "clip"):
            value = getattr(self, name)
            if value is None:
                continue
            number = one_float(value)
            if not 0 < number < np.inf:
                raise InvalidInput(f"{name} is {value!r}: it must be finite and above 0")
            object.__setattr__(self, name, number)
        delta = one_float(self.delta)
        if not 0 < delta < 1:
            raise InvalidInput(
                f"delta is {self.delta!r}: it must be between 0 and 1, and well below 1/clients"
            )
        object.__setattr__(self, "delta", delta)
        if self.quantile is not None:
            share = one_float(self.quantile)
            if not 0 < share < 1:
                raise InvalidInput(
                    f"quantile is {self.quantile!r}: it must be between 0 and 1, such as 0.5"
                )
            object.__setattr__(self, "quantile", share)
        one_of("sampling", self.sampling, SAMPLINGS)
        one_of("accountant", self.accountant, ACCOUNTANTS)
        if (self.sampling, self.accountant) == ("fixed", "pld"):
            raise InvalidInput(
                'accountant is "pld", which has no cohorts of a fixed size: take accountant="rdp",'
                ' or sampling="poisson"'
            )

    def spend(self, rounds: int, cohort: int, clients: int) -> float:
        """The epsilon, at `delta`, that so many rounds with the noise multiplier spend."""
        if self.noise_multiplier is None:
            self.find_multiplier(rounds, cohort, clients)  # refuses what cannot be kept
            return float(self.epsilon)  # type: ignore[arg-type]
        return self._epsilon(self.noise_multiplier, *check_sizes(rounds, cohort, clients))

    def find_multiplier(self, rounds: int, cohort: int, clients: int) -> float:
        """The least noise multiplier that keeps the budget over so many rounds."""
        sizes = check_sizes(rounds, cohort, clients)
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        return find_least_multiplier(self, *sizes)

    def _epsilon(self, multiplier: float, rounds: int, cohort: int, clients: int) -> float:
        if rounds == 0:
            return 0.0
        release = Release(multiplier, self.sampling, rounds, cohort, clients)
        if cohort == clients:
            return compose_gaussians([release], self.delta)
        return count_epsilon(self.accountant, (release,), self.delta)

    def settle(self, rounds: int, cohort: int, clients: int) -> Privacy:
        """The same with the noise multiplier of so many rounds in place of epsilon."""
        multiplier = self.find_multiplier(rounds, cohort, clients)
        return replace(self, epsilon=None, noise_multiplier=multiplier)


def read_privacy(given: Any) -> Privacy | None:
    """A budget as verbs take it: an `fa.Privacy`, the fields of one by name, or None."""
    if given is None or isinstance(given, Privacy):
        return given
    if isinstance(given, Mapping):
        known = [each.name for each in fields(Privacy)]
        for name in given:
            if name not in known:
                raise unknown_name("field of privacy", name, known)
        return Privacy(**given)
    raise InvalidInput(f"privacy is {given!r}: give an fa.Privacy, such as fa.Privacy(epsilon=4)")


def split_noise(multiplier: Any, cohort: Any) -> tuple[Any, Any]:
    """What an adaptive clip makes of the noise: the multiplier of the sum of moves, and the
    deviation of what is added to the count of short ones.

    Two Gaussian sums a round, of deviations z' C and b, are one of multiplier z where 1/z^2 =
    1/z'^2 + 1/(2 b)^2: a client changes the second by 1/2.
    """
    b = np.maximum(COUNT_SHARE * cohort, multiplier)
    return (multiplier**-2.0 - (2 * b) ** -2.0) ** -0.5, b


@dataclass(frozen=True)
class Release:
    """So many rounds of private averages, with what they are noised by: what an accountant counts.

    >>> Release(1.0, "poisson", rounds=400, cohort=20, clients=3000).multiplier
    1.0
    """

    multiplier: float
    sampling: str
    rounds: int
    cohort: int
    clients: int


def spend_together(releases: Sequence[Release], delta: float) -> float:
    """The epsilon, at delta, of several trainings on the same clients: of all that is tried.

    Renyi divergences add up, whatever the trainings' noise and cohorts are.

    >>> one = Release(1.0, "poisson", rounds=400, cohort=20, clients=3000)
    >>> round(spend_together([one], 1e-6), 2), round(spend_together([one] * 4, 1e-6), 2)
    (1.47, 2.02)
    """
    if releases and all(each.cohort == each.clients for each in releases):
        return compose_gaussians(releases, delta)
    return count_epsilon("rdp", tuple(releases), float(delta))


EFFECTIVE = {"poisson": 1.0, "fixed": 0.5}  # part of the noise that hides one neighbour's update


def compose_gaussians(releases: Sequence[Release], delta: float) -> float:
    """Where everyone takes part, Gaussian mechanisms are together one, of precision sum T/z^2."""
    precision = sum(
        each.rounds / (each.multiplier * EFFECTIVE[each.sampling]) ** 2 for each in releases
    )
    return spend_gaussian(float(1 / np.sqrt(precision)), delta) if precision else 0.0


@cache
def spend_gaussian(deviation: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism, whose noise has this deviation for a move of 1."""
    return float(import_accounting().get_epsilon_gaussian(deviation, delta))


def check_sizes(rounds: Any, cohort: Any, clients: Any) -> tuple[int, int, int]:
    """How many rounds, with how many of how many clients."""
    sizes = (
        whole("rounds", rounds, least=0),
        whole("cohort", cohort, least=1),
        whole("clients", clients, least=1),
    )
    if sizes[1] > sizes[2]:
        raise InvalidInput(
            f"cohort is {cohort}: it must be at most the number of clients, {clients}"
        )
    return sizes


@cache
def find_least_multiplier(budget: Privacy, rounds: int, cohort: int, clients: int) -> float:
    """A root in logarithms, which are nearly linear in each other: epsilon falls in the
    multiplier. Where everyone takes part, one Gaussian mechanism's noise serves any rounds.
    """
    from scipy.optimize import brentq

    assert budget.epsilon is not None
    allowed = budget.epsilon
    if cohort == clients:
        alone = calibrate_gaussian(allowed, budget.delta) / EFFECTIVE[budget.sampling]
        least = float(np.sqrt(rounds) * alone * (1 + 1e-9))  # found to 1e-12
        if least > LARGEST_MULTIPLIER:
            raise refuse_budget(budget, rounds)
        return max(least, SMALLEST_MULTIPLIER)

    def excess(log: float) -> float:
        spent = budget._epsilon(float(np.exp(log)), rounds, cohort, clients)
        return float(np.log(max(spent, 1e-300) / allowed))

    low, high = float(np.log(SMALLEST_MULTIPLIER)), 0.0
    if rounds == 0 or excess(low) <= 0:
        return SMALLEST_MULTIPLIER
    while excess(high) > 0:
        low, high = high, high + 1.0
        if high > np.log(LARGEST_MULTIPLIER):
            raise refuse_budget(budget, rounds)
    return float(np.exp(brentq(excess, low, high, xtol=SAFETY) + SAFETY))


@cache
def calibrate_gaussian(epsilon: float, delta: float) -> float:
    """The least deviation of the noise with which one Gaussian mechanism keeps a budget."""
    return float(import_accounting().get_sigma_gaussian(epsilon, delta))


def refuse_budget(budget: Privacy, rounds: int) -> InvalidInput:
    """Where no noise is enough."""
    return InvalidInput(
        f"epsilon is {budget.epsilon:g}: no noise keeps it over {rounds} rounds at delta "
        f"{budget.delta:g}; give a larger epsilon, or fewer rounds"
    )


@cache
def count_epsilon(accountant: str, releases: tuple[Release, ...], delta: float) -> float:
    """What the library's accountant says of releases of one sampling."""
    dp = import_accounting()
    poisson = all(each.sampling == "poisson" for each in releases)
    relations = dp.NeighboringRelation
    relation = relations.ADD_OR_REMOVE_ONE if poisson else relations.REPLACE_ONE
    kind = dp.rdp.RdpAccountant if accountant == "rdp" else dp.pld.PLDAccountant
    ledger = kind(neighboring_relation=relation)
    log = logging.getLogger("absl")  # tells of every order that it leaves out, which is safe
    before = log.disabled
    log.disabled = True
    try:
        for each, times in Counter(releases).items():
            if each.rounds > 0:
                ledger.compose(
                    dp.SelfComposedDpEvent(describe_release(dp, each), each.rounds), times
                )
        return float(ledger.get_epsilon(delta))
    finally:
        log.disabled = before


def describe_release(dp: Any, release: Release) -> Any:
    """One round as the accountant's event; a replaced client moves the sum by twice the clip."""
    if release.sampling == "poisson":
        noise = dp.GaussianDpEvent(release.multiplier)
        return dp.PoissonSampledDpEvent(release.cohort / release.clients, noise)
    noise = dp.GaussianDpEvent(release.multiplier / 2)
    return dp.SampledWithoutReplacementDpEvent(release.clients, release.cohort, noise)


def import_accounting() -> Any:
    """The library dp-accounting with both accountants."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as missing:
        raise MissingPackage(
            "privacy budgets need dp-accounting: pip install 'fedasym[privacy]'"
        ) from missing
    return dp_accounting
