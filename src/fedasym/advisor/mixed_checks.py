"""What could make advice on few features wrong, each in a sentence with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedasym.advisor.evidence import Doubt
from fedasym.advisor.predictions import Prediction
from fedasym.core.arrays import Array
from fedasym.exact.reml import Components

if TYPE_CHECKING:
    from fedasym.advisor.mixed import Fold, Table

FEW_CLIENTS, FEW_SAMPLES = 10, 3
FLAT = 2.7  # twice the log-likelihood: below, no difference at all fits as well (one sided, 5%)
SURE, CLEAR = 5.0, 3.0
OPTIMISTIC = 1.25  # held-out error over predicted error


def doubts_of(
    table: Table, found: Components, rows: dict[str, Prediction], fold: Fold, notes: tuple[Doubt, ...]
) -> tuple[Doubt, ...]:
    """All checks that speak, and what the data brought along."""
    residuals = table.y - table.X @ (table.pooled + found.beta)
    said = {
        "few clients": few_clients(table),
        "few samples": few_samples(table),
        "no difference": no_difference(found),
        "noise varies": noise_varies(table, found),
        "heavy tails": heavy_tails(residuals),
        "levels": levels(rows),
        "held-out samples": held_out(table, found, rows),
    }
    return (*(Doubt(name, text) for name, text in said.items() if text), *notes)


def few_clients(table: Table) -> str | None:
    """Variances between clients rest on how many there are."""
    m = len(table.clients)
    if m >= FEW_CLIENTS:
        return None
    return f"there are {m} clients: how they differ is hardly known, and the intervals say so; more clients would tell."


def few_samples(table: Table) -> str | None:
    """Clients with hardly any samples."""
    count = int((table.sums.counts < FEW_SAMPLES).sum())
    if count * 2 < len(table.clients):
        return None
    return (
        f"{count} of {len(table.clients)} clients have fewer than {FEW_SAMPLES} training samples: their own models are little "
        "more than the shared one."
    )


def no_difference(found: Components) -> str | None:
    """Data that are compatible with one model for all."""
    if np.any(found.ratios > 0):
        return None
    return (
        "the likeliest clients do not differ at all: one model for all serves them as well; more samples per client would show "
        "smaller differences."
    )


def noise_varies(table: Table, found: Components) -> str | None:
    """Clients whose residual variances differ more than chance allows."""
    n, p = table.sums.counts, table.sums.unknowns
    S, b, q = table.sums.gram, table.sums.cross, table.sums.square
    x, axes = np.linalg.eigh(S)
    known = x > 1e-10 * np.maximum(x[:, -1:], 1e-300)
    turned = np.einsum("jkl,jk->jl", axes, b)
    left = q - np.divide(turned**2, x, out=np.zeros_like(x), where=known).sum(1)
    freedom = n - known.sum(1)
    big = freedom >= max(2, p // 2)
    if big.sum() < FEW_CLIENTS:
        return None
    ratio = left[big] / freedom[big] / found.noise2
    expected = 2 / freedom[big]
    excess = float(np.mean((ratio - ratio.mean()) ** 2 - expected))
    error = float(np.std((ratio - ratio.mean()) ** 2) / np.sqrt(big.sum()))
    if excess < SURE * error or excess < 0.04:
        return None
    return (
        f"noise differs between clients (noise^2 by about {np.sqrt(excess):.0%}): a client with more noise wants a larger "
        "ridge, and expected errors are means over clients."
    )


def heavy_tails(residuals: Array) -> str | None:
    """Residuals that least squares chases."""
    second = float(np.mean(residuals**2))
    excess = float(np.mean(residuals**4)) / second**2 - 3 if second > 0 else 0.0
    if excess < 1 or excess < SURE * np.sqrt(24 / len(residuals)):
        return None
    return (
        f"residuals have heavy tails (excess kurtosis {excess:.2g}): least squares chases outliers; look at the extreme "
        "labels, or take their logarithm."
    )


def levels(rows: dict[str, Prediction]) -> str | None:
    """Where folds of the training samples contradict the model."""
    off = [row for row in rows.values() if row.contradicted]
    if not off:
        return None
    return (
        f"held-out folds contradict the model's expected error for {', '.join(row.algorithm for row in off)} by more than "
        "their errors: the numbers and the ranking follow the folds there."
    )


def held_out(table: Table, found: Components, rows: dict[str, Prediction]) -> str | None:
    """Validation and test samples that the shared model serves far worse than foreseen."""
    X, y, owner = table.held
    if len(y) < 20 or np.unique(owner).size < 2:
        return None
    errors = (y - X @ (table.pooled + found.beta)) ** 2
    expected = rows["fedavg"].trusted + found.noise2
    measured, error = float(errors.mean()), float(errors.std() / np.sqrt(len(errors)))
    if measured < OPTIMISTIC * expected or measured - expected < CLEAR * error:
        return None
    return (
        f"the shared model's error on held-out samples is {measured:.3g} where {expected:.3g} was expected: are validation and "
        "test samples drawn from the same clients and times as the training samples?"
    )
