"""What could make the advice wrong, each in a sentence with what to do: the doubts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedasym.advisor.assumptions import (
    assumption_1,
    assumption_2,
    assumption_3,
    duplicates,
    few_clients,
    few_samples,
    no_radius,
    planned_features,
    scarce,
    threshold,
    unlike_features,
)
from fedasym.advisor.evidence import Check, Doubt, Evidence
from fedasym.advisor.variation import kurtosis_of, variation_of

SURE = 5.0  # standard deviations from which a check on the distribution speaks
CLEAR = 3.0  # standard errors
OPTIMISTIC = 1.25  # held-out error over predicted error


def varying(seen: Evidence) -> str | None:
    """Noise that differs between clients."""
    found = variation_of(seen.summaries, seen.about)
    if found.noise_z < SURE or found.noise_cv < 0.2:
        return None
    return (
        f"noise differs between clients (noise^2 by about {found.noise_cv:.0%}): a client with more noise wants a larger "
        "ridge, and weights by samples over noise^2 would do better."
    )


def spreading(seen: Evidence) -> str | None:
    """Radii that differ between clients."""
    found = variation_of(seen.summaries, seen.about)
    if found.radius_z < SURE or found.radius_cv < 0.3:
        return None
    return (
        f"some clients are much further from the shared model than others (radius^2 varies by about {found.radius_cv:.0%}): "
        "one ridge cannot suit all; see advice.clients."
    )


def tails(seen: Evidence) -> str | None:
    """Residuals with heavy tails."""
    excess, z = kurtosis_of(seen.summaries)
    if z < SURE or excess < 0.5:
        return None
    return (
        f"residuals have heavy tails (excess kurtosis {excess:.2g}): least squares chases outliers; predictions hold for "
        "squared error, and a robust loss or clipped labels may do better."
    )


def clusters(seen: Evidence) -> str | None:
    """Groups of clients instead of one centre."""
    if not seen.structure.clustered:
        return None
    return (
        "clients fall into groups along a common direction: one shared model for each group would beat a single one; cluster "
        "the clients first and ask again for each group."
    )


def aligned(seen: Evidence) -> str | None:
    """A displacement along strong or weak features."""
    if not seen.structure.aligned:
        return None
    power = seen.estimates.power
    where = "strong" if seen.structure.alignment > 0 else "weak"
    return (
        f"clients differ mostly along {where} features (the displacement's covariance is about Sigma^{power:g}): this is in "
        "the numbers, and the rule ridge = noise^2 aspect/radius^2 does not hold."
    )


def ridges(seen: Evidence) -> str | None:
    """GCV wants another ridge than the model."""
    row = seen.predictions["rtfa"]
    if row.ridge is None or not np.isfinite(row.ridge):
        return None
    samples = float(np.median(seen.sizes))
    gain, error = seen.shared.gain(seen.shared.best, row.ridge * samples)
    level = seen.shared.at(row.ridge * samples)[0]
    if gain < CLEAR * error or gain < 0.01 * level:
        return None
    return (
        f"cross-validation over clients wants the ridge {seen.shared.best / samples:.3g} where the model wants {row.ridge:.3g}"
        f", and its error is lower by {gain / level:.1%}: the model of how clients differ does not fit; its ridge is taken."
    )


def levels(seen: Evidence) -> str | None:
    """GCV gives other losses than the model."""
    off = [row for row in seen.predictions.values() if row.contradicted and row.gcv is not None]
    if not off:
        return None
    listed = ", ".join(f"{row.algorithm} {row.new.value:.3g} against {row.gcv:.3g}" for row in off)
    return (
        f"model and cross-validation disagree on the loss of a new client by more than their errors ({listed}): the ranking "
        "follows cross-validation there."
    )


def optimistic(seen: Evidence) -> str | None:
    """Training residuals far below held-out ones."""
    if seen.held.size < 2:
        return None
    expected = seen.estimates.noise2 + seen.predictions["fedavg"].loss.value
    measured, error = float(seen.held.mean()), float(seen.held.std(ddof=1) / np.sqrt(seen.held.size))
    if measured < OPTIMISTIC * expected or measured - expected < CLEAR * error:
        return None
    return (
        f"the shared model's error on held-out samples is {measured:.3g} where {expected:.3g} was predicted: were the features "
        "trained on these very samples? Levels are optimistic, test errors below use the held-out level; ridge and ranking "
        "can still be right."
    )


CHECKS: dict[str, Callable[[Evidence], str | None]] = {
    "few clients": few_clients,
    "few samples": few_samples,
    "no difference": no_radius,
    "too few samples in all": scarce,
    "near a threshold": threshold,
    "small eigenvalues": assumption_2,
    "clients are not overparameterised": assumption_1,
    "client growth": assumption_3,
    "unlike features": unlike_features,
    "planned features": planned_features,
    "duplicate clients": duplicates,
    "noise varies": varying,
    "radius varies": spreading,
    "heavy tails": tails,
    "clusters": clusters,
    "aligned displacement": aligned,
    Check.RIDGE: ridges,
    "levels": levels,
    Check.TRAINED_FEATURES: optimistic,
}


def doubts_of(seen: Evidence) -> tuple[Doubt, ...]:
    """All checks that speak, in their order."""
    return tuple(Doubt(name, text) for name, check in CHECKS.items() if (text := check(seen)) is not None)
