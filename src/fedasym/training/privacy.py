"""Private rounds: how updates are clipped, what noise is added to their sum, what it spends.

Every drawn client's move is cut to a length of at most C, clients weigh alike, and Gaussian noise
of deviation z C is added to the sum of the moves, which is divided by the cohort D that is expected
(McMahan et al. 2018). One client then moves what is sent by at most C/D: this is what the
accountant in `core/privacy.py` counts. An adaptive clip follows a quantile of the lengths, from one
more noised sum (Andrew et al. 2021).

Noise comes from the run's seed, so that a simulated run can be repeated: what keeps a deployed run
private is noise that nobody can repeat (`deploy/flower`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import number
from fedasym.core.privacy import (
    CLIP_RATE,
    FIRST_CLIP,
    Privacy,
    Release,
    spend_together,
    split_noise,
)
from fedasym.data.splits import NOISE, mix_hash

if TYPE_CHECKING:
    from fedasym.training.history import History
    from fedasym.training.settings import Settings

NOT_COUNTED = "Tests of clients, and steps that were chosen for the data, are not counted."
Move = NDArray[np.floating[Any]]


class PrivateRounds(NamedTuple):
    """The numbers of one run's private averages: a part of what is planned, and hashable."""

    poisson: bool  # each client is drawn by itself; else cohorts have a fixed size
    cohort: int  # D, that is expected
    clip: float  # C, before the first round
    multiplier: float  # of the sum of moves
    rate: float  # of an adaptive clip; 0: it is fixed
    quantile: float
    count_noise: float  # deviation of what is added to the count of short updates

    def adapt(self, clip: Any, short: Any, sent: Any, noise: Any, exp: Any = np.exp) -> Any:
        """The clip after a round in which `short` of `sent` updates were no longer than it.

        Every client counts as 1/2 or -1/2, so that one changes the sum by half as much as a count.
        """
        part = (short - sent / 2 + self.count_noise * noise) / self.cohort + 0.5
        return clip * exp(-self.rate * (part - self.quantile))


def plan_private_rounds(settings: Settings, clients: int) -> PrivateRounds | None:
    """The private averages that a run's settings ask for; None where they ask for none.

    >>> from fedasym.training.settings import Settings
    >>> budget = Privacy(noise_multiplier=1, clip=0.5)
    >>> plan_private_rounds(Settings(cohort=20, privacy=budget), 3000).multiplier
    1.0
    """
    privacy = settings.privacy
    if privacy is None:
        return None
    assert settings.cohort is not None
    poisson = privacy.sampling == "poisson"
    z = privacy.find_multiplier(settings.rounds, settings.cohort, clients)
    if privacy.quantile is None:
        assert privacy.clip is not None
        sizes = (poisson, settings.cohort, privacy.clip)
        return PrivateRounds(*sizes, z, 0.0, 0.0, 0.0)
    sum_noise, count_noise = split_noise(z, settings.cohort)
    sizes = (poisson, settings.cohort, privacy.clip or FIRST_CLIP)
    return PrivateRounds(*sizes, float(sum_noise), CLIP_RATE, privacy.quantile, float(count_noise))


def check_private(algorithm: Algorithm, privacy: Privacy) -> None:
    """Refuse clips that are left open, and algorithms whose clients send more than one model."""
    if privacy.clip is None and privacy.quantile is None:
        raise InvalidInput(
            "privacy has no clip: give the length to which updates are clipped (fa.rounds finds the"
            " best for a population), or quantile=0.5 for one that adapts"
        )
    more = algorithm.server.keeps_client() or algorithm.server.reads_sums
    if more or algorithm.correction is not None:  # which reads the classes of all clients
        raise InvalidInput(
            f"{algorithm.name}: its clients send more than their models, and privacy is for"
            " averages of models alone: take another algorithm, or leave privacy out"
        )


def draw_noise(seed: int, round_: int, shape: tuple[int, ...]) -> tuple[Move, float]:
    """Standard normal noise for a round's sum of moves, and one number for its count."""
    key = int(mix_hash(seed, NOISE, round_))
    rng = np.random.Generator(np.random.Philox(key=key))
    count = float(rng.standard_normal())
    return rng.standard_normal(shape), count


def draw_secret_noise(shape: tuple[int, ...]) -> Move:
    """Standard normal noise of the operating system's random bytes: nobody can draw it again."""
    count = int(np.prod(shape))
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(12)
    return np.asarray(ndtri((bits + 0.5) / 2.0**52)).reshape(shape)


def clip_move(move: Move, clip: float) -> tuple[Move, bool]:
    """A move cut to length `clip`, and whether it was no longer than that.

    >>> clip_move(np.array([[3.0], [4.0]]), 1.0)[0].ravel().tolist()
    [0.6000000000000001, 0.8]
    """
    length = float(np.sqrt((move**2).sum()))
    return (move * (clip / length), False) if length > clip else (move, True)


@dataclass(frozen=True)
class PrivacySpent:
    """What a run's rounds have spent of privacy, and with what noise.

    epsilon, delta: what the shared model says of any one client at most. clip: after the last
    round. clipped: the part of all updates that were longer than the clip, as the simulation saw
    it; no server would know it.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    clip: float
    sampling: str
    clipped: float
    clients: int

    def __str__(self) -> str:
        how = "Poisson sampling" if self.sampling == "poisson" else "cohorts of a fixed size"
        return (
            f"Privacy: epsilon {number(self.epsilon)} at delta {self.delta:g} spent, by noise of"
            f" multiplier {number(self.noise_multiplier)} and {how} among {self.clients} clients;"
            f" updates clipped at {number(self.clip)}, {self.clipped:.0%} of them were longer."
        )


def spent_privacy(
    settings: Settings, clients: int, rounds: int, clip: float, clipped: float
) -> PrivacySpent | None:
    """What so many rounds of a run have spent; None where it is not private."""
    if settings.privacy is None or settings.cohort is None:
        return None
    settled = settings.privacy.settle(settings.rounds, settings.cohort, clients)
    assert settled.noise_multiplier is not None
    return PrivacySpent(
        settled.spend(rounds, settings.cohort, clients),
        settled.delta,
        settled.noise_multiplier,
        clip if settled.quantile is not None or settled.clip is None else settled.clip,
        settled.sampling,
        clipped,
        clients,
    )


def describe_spending(runs: Sequence[History]) -> list[str]:
    """What private runs have spent: each of them, and all together, as choosing among them does."""
    private = {
        (run.seed, run.split, None if run.shared is None else run.shared.tobytes()): run
        for run in runs
        if run.privacy is not None
    }  # runs with the same shared model have trained it once
    spent = [run.privacy for run in private.values() if run.privacy is not None]
    if not spent:
        return []
    low, high = min(each.epsilon for each in spent), max(each.epsilon for each in spent)
    each = number(low) if low == high else f"{number(low)} to {number(high)}"
    told = f"Privacy: a run spends epsilon {each} at delta {spent[0].delta:g}"
    if len(spent) == 1:
        return [f"{told}. {NOT_COUNTED}"]
    releases = [
        Release(
            about.noise_multiplier,
            about.sampling,
            int(run.rounds[-1]),
            int(run.settings.cohort or 1),
            about.clients,
        )
        for run, about in zip(private.values(), spent, strict=True)
    ]
    total = spend_together(releases, max(about.delta for about in spent))
    return [
        f"{told}, and all {len(spent)} together {number(total)}: so much is spent where the best"
        f" of them is chosen. {NOT_COUNTED}"
    ]
