"""What a table of risks means, in one sentence each: does fine-tuning pay, does sharing pay, what to be careful about."""

from __future__ import annotations

import numpy as np

from fedasym.algorithms import ClientStage, Interpolate
from fedasym.core.arrays import Array
from fedasym.results.comparison import TIE, Comparison
from fedasym.theory.limits import CRITICAL
from fedasym.verbs.regimes import noise_threshold
from fedasym.worlds.population import Population

NEAR = 0.1  # an aspect within this of 1 is near the threshold: the limit needs a dimension well above (3/NEAR)^2 = 900


def verdicts(table: Comparison, world: Population, count: Array | None, member: bool) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.losses.ndim != 1:
        return []
    lines = []
    ratio = 0.0 if count is None else float(np.asarray(world.aspect)) * world.spectrum.rank / float(count[0])
    if abs(ratio - 1) < CRITICAL:
        lines.append("All samples together just match the unknowns: the shared model's error has no bound.")
    elif ratio > 1 and member:
        lines.append(
            "All samples together are fewer than the unknowns: the shared model interpolates every member's samples, "
            "so all methods that share agree on members."
        )
    elif {"ftfa", "fedavg"} <= set(table):
        lines.append(tuning(table, world, count is None))
    if {"rtfa", "local_ridge"} <= set(table):
        lines.append(sharing(table))
    if count is not None and {"maml", "ftfa"} <= set(table) and table["maml"].loss > float(table["ftfa"].loss) * (1 + TIE):
        lines.append("MAML's step is too large here: it loses to ftfa; a smaller maml_step would do better.")
    if "rtfa" in table and (ridge := table["rtfa"].ridge) is not None and float(ridge) < 0:
        lines.append(
            f"The best ridge is negative ({float(ridge):.4g}): the displacement lies along strong features, so even the "
            "interpolant shrinks too much; where a penalty must not be negative, ridge 0 (ftfa) is the best."
        )
    return lines


def tuning(table: Comparison, world: Population, limiting: bool) -> str:
    """Whether fine-tuning pays, with its noise threshold, and what ridge adds."""
    fedavg, ftfa = float(table["fedavg"].loss), float(table["ftfa"].loss)
    edge = ""
    tie = ftfa == fedavg or abs(ftfa - fedavg) <= TIE * fedavg
    if limiting:
        side = "at" if tie else "below" if ftfa < fedavg else "above"
        edge = f", as the noise {float(np.asarray(world.noise)):g} is {side} the threshold {float(noise_threshold(world)):.4g}"
    if tie:
        text = f"Fine-tuning neither pays nor hurts: ftfa and fedavg both have {fedavg:.4g}{edge}"
    elif ftfa < fedavg:
        text = f"Fine-tuning pays: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    else:
        text = f"Plain fine-tuning does not pay: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    if "rtfa" in table and (rtfa := float(table["rtfa"].loss)) < fedavg:
        text += f"; with ridge {float(table['rtfa'].ridge or 0):.4g} it cuts fedavg's loss by {1 - rtfa / fedavg:.0%}"
    return text + "."


def sharing(table: Comparison) -> str:
    """Whether learning together pays, ridge against ridge."""
    together, alone = float(table["rtfa"].loss), float(table["local_ridge"].loss)
    if together < alone * (1 - TIE):
        return f"Sharing pays: rtfa {together:.4g} against local_ridge {alone:.4g}, {1 - together / alone:.0%} less."
    if together > alone * (1 + TIE):
        return f"Sharing does not pay: rtfa {together:.4g} against local_ridge {alone:.4g}."
    return f"Sharing neither pays nor hurts: rtfa and local_ridge both have {together:.4g}."


def how_many(count: Array | None, member: bool) -> str:
    """The number of clients in words."""
    if count is None:
        return "infinitely many clients"
    many = f"{count[0]:g}" if np.all(count == count[0]) else f"{count.min():g} to {count.max():g}"
    return f"{many} client{'' if many == '1' else 's'}, seen by {'a member' if member else 'a new client'}"


def thresholds(aspect: Array, pooled: Array | None, stages: list[ClientStage]) -> list[str]:
    """A sentence for each interpolation threshold that is near: a client's aspect = 1 and the pooled aspect = 1.

    Both count only the unknowns that samples can see.
    """
    near = []
    if any(isinstance(stage, Interpolate) for stage in stages):
        near.append(("aspect", "a client's samples just match its unknowns", np.abs(aspect - 1)))
    if pooled is not None:
        near.append(("the pooled aspect", "all samples together just match the unknowns", np.abs(pooled - 1)))
    return [threshold(*each) for each in near if np.any(each[2] < NEAR)]


def threshold(ratio: str, meaning: str, off: Array) -> str:
    """One sentence on being near a threshold."""
    least = float(off.min())
    needed = f"well above {(3 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has " if off.size > 1 else ""
    return (
        f"Near a threshold: {where}{ratio} {'is ' if not where else ''}within {least:.2g} of 1, where {meaning}; "
        f"finite sizes deviate from the limit unless the dimension is {needed}."
    )
