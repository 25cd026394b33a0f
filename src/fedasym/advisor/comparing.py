"""Predictions beside what cross-validation over clients says: where the two disagree, the ranking follows the samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedasym.advisor.curves import Curves
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.predictions import Prediction

CONTRADICTED = 3.0  # standard errors
NOTABLE = 0.05  # share of the error


def compared(
    table: dict[str, Prediction], shared: Curves, alone: Curves, found: Estimates, samples: float, blind: tuple[str, ...] = ()
) -> dict[str, Prediction]:
    """Beside each prediction what GCV estimates, and the loss moved to its level where the two disagree.

    Where samples are scarce it does not decide: the others' model is then nothing like the one with the client's samples in.
    Nor for the methods in `blind`, which rest on a few tiny eigenvalues that the model was told and GCV divides by.
    """
    out, noise2 = dict(table), found.noise2
    for name, curve in (("fedavg", shared), ("ftfa", shared), ("rtfa", shared), ("local", alone), ("local_ridge", alone)):
        row = table[name]
        ridge = {"fedavg": np.inf, "ftfa": 0.0, "local": 0.0}.get(name, row.ridge)
        error, spread = curve.at(max(float(ridge or 0.0) * samples, curve.ratios[0]))
        gcv = error - noise2
        row = replace(row, gcv=gcv, gcv_error=spread)
        wide = np.hypot(spread, (row.new.high - row.new.low) / 4)
        apart = abs(gcv - row.new.value)
        if (
            not found.scarce
            and name not in blind
            and np.isfinite(apart)
            and apart > CONTRADICTED * wide
            and apart > NOTABLE * error
            and row.new.value > 0
        ):
            factor = max(gcv, 0.0) / row.new.value
            row = replace(row, trusted=row.loss.value * factor, contradicted=True)
        out[name] = row
    if out["rtfa"].contradicted:
        factor = out["rtfa"].trusted / out["rtfa"].loss.value
        out["pfedme"] = replace(out["pfedme"], trusted=out["pfedme"].loss.value * factor, contradicted=True)
    if out["ftfa"].contradicted:
        out["maml"] = replace(out["maml"], trusted=out["ftfa"].trusted, contradicted=True)
    return out
