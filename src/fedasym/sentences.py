"""What a table of risks means, in one sentence each: does fine-tuning pay, does sharing pay?"""

from __future__ import annotations

import numpy as np

from fedasym.population import Population
from fedasym.risk import TIE, Comparison
from fedasym.theory.regimes import noise_threshold


def verdicts(table: Comparison, world: Population, limiting: bool) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.losses.ndim != 1:
        return []
    lines = [tuning(table, world, limiting)] if {"ftfa", "fedavg"} <= set(table) else []
    if {"rtfa", "local_ridge"} <= set(table):
        lines.append(sharing(table))
    if "rtfa" in table and negative(table["rtfa"].ridge):
        lines.append(
            f"The best ridge is negative ({float(np.asarray(table['rtfa'].ridge)):.4g}): the displacement lies along strong "
            "features, so interpolation already shrinks too much; ridge 0 (ftfa) is the best that a penalty can do."
        )
    return lines


def tuning(table: Comparison, world: Population, limiting: bool) -> str:
    """Whether fine-tuning pays, with its noise threshold, and what ridge adds."""
    fedavg, ftfa = (float(np.asarray(table[name].loss)) for name in ("fedavg", "ftfa"))
    edge = ""
    if limiting:
        threshold = float(np.asarray(noise_threshold(world)))
        side = "below" if ftfa < fedavg else "at or above"
        edge = f", as the noise {float(np.asarray(world.noise)):g} is {side} the threshold {threshold:.4g}"
    if abs(ftfa - fedavg) <= TIE * fedavg:
        text = f"Fine-tuning neither pays nor hurts: ftfa and fedavg both have {fedavg:.4g}{edge}"
    elif ftfa < fedavg:
        text = f"Fine-tuning pays: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    else:
        text = f"Plain fine-tuning does not pay: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    if "rtfa" in table:
        rtfa = float(np.asarray(table["rtfa"].loss))
        text += f"; with ridge it {'cuts' if rtfa < fedavg else 'does not cut'} fedavg's loss"
        text += f" by {1 - rtfa / fedavg:.0%}" if rtfa < fedavg else ""
    return text + "."


def sharing(table: Comparison) -> str:
    """Whether learning together pays, ridge against ridge."""
    together, alone = (float(np.asarray(table[name].loss)) for name in ("rtfa", "local_ridge"))
    if together < alone:
        return f"Sharing pays: rtfa {together:.4g} against local_ridge {alone:.4g}, {1 - together / alone:.0%} less."
    if together > alone * (1 + TIE):
        return f"Sharing does not pay: rtfa {together:.4g} against local_ridge {alone:.4g}."
    return f"Sharing neither pays nor hurts: rtfa and local_ridge both have {together:.4g}."


def negative(ridge: object) -> bool:
    """Whether a single ridge is below zero."""
    return ridge is not None and np.ndim(ridge) == 0 and float(np.asarray(ridge)) < 0
