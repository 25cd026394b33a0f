"""Predictions beside what the samples say: where the two disagree, the ranking follows the samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedasym.advisor.classes import squares
from fedasym.advisor.classes.moments import Moments
from fedasym.advisor.classes.predictions import Table
from fedasym.advisor.classes.probes import Probes
from fedasym.advisor.classes.worlds import Sizes, World

CONTRADICTED = 3.0  # standard errors
NOTABLE = 0.02  # of accuracy: a smaller disagreement between model and probe is not worth a word
LIKE = {"ftfa": "rtfa", "one_step": "rtfa", "local": "local_ridge"}  # methods without a probe of their own


def compared(table: Table, probes: Probes, world: World, sizes: Sizes, found: Moments) -> Table:
    """Beside each prediction what the samples say; where the two disagree, ranked by what the samples say.

    One contradiction is enough: the link is then wrong for all methods, and ranking some by the samples and others, whose
    intervals happen to be wide, by the model would compare two scales.
    """
    out, error = dict(table), squares.error_of(world, found.excess)
    for name, place in chosen_ratios(probes).items():
        alone, row = name == "local_ridge", table[name]
        right, spread = probes.measured(alone).at(place)
        ratio = float(probes.ratios[place])
        expected = float(sizes.share @ [squares.probe(world, float(g), ratio / float(n), error, alone=alone)
                                        for g, n in zip(sizes.aspects, sizes.kinds.samples, strict=True)])  # fmt: skip
        wide = np.hypot(spread, np.nan_to_num(row.new.high - row.new.low) / 4)
        off = bool(abs(right - expected) > CONTRADICTED * wide and abs(right - expected) > NOTABLE)
        out[name] = replace(row, probe=right, probe_error=spread, expected=expected, contradicted=off)
    probed = chosen_ratios(probes)
    if any(out[name].contradicted for name in probed):
        out |= {name: replace(out[name], contradicted=True, trusted=float(out[name].probe or 0.0)) for name in probed}
    for name, like in LIKE.items():
        if name in out and out[like].contradicted:
            gap = min(table[name].accuracy.value - table[like].accuracy.value, 0.0)
            trusted = float(np.clip(out[like].trusted + gap, 0.0, 1.0))
            out[name] = replace(out[name], contradicted=True, trusted=trusted, probe_error=out[like].probe_error)
    return out


def chosen_ratios(probes: Probes) -> dict[str, int]:
    """The places of the best ratios by the samples."""
    return {
        "fedavg": len(probes.ratios) - 1,
        "rtfa": int(np.argmax(probes.measured(False).mean)),
        "local_ridge": int(np.argmax(probes.measured(True).mean[:-1])),
    }
