"""Client by client: who gets more labels right with a model of its own, who is predicted to lose by it.

A client's own samples, each left out or held out, give a noisy gain; the model gives that of a client of its size. The two
are weighed by how much clients really differ beyond that noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedasym.advisor.classes.comparing import chosen_ratios
from fedasym.advisor.classes.probes import Probes
from fedasym.advisor.persons import ClientAdvice
from fedasym.core.arrays import Array


def persons(
    names: Sequence[object], sizes: Array, dimension: int, ratio: float, gains: Array, error: float, probes: Probes,
    places: Sequence[int], held_only: bool,
) -> tuple[ClientAdvice, ...]:  # fmt: skip
    """Every client's gain in accuracy with the ridge ratio/n.

    gains: what the model says for a client of each one's size. error: of the mean gain, which all share. places: the clients
    that the probes have seen. held_only: training samples are not to be trusted.
    """
    own, error2 = np.full(len(names), np.nan), np.full(len(names), np.inf)
    best, none = chosen_ratios(probes)["rtfa"], len(probes.ratios) - 1
    curves = (probes.shared_held,) if held_only else (probes.shared, probes.shared_held)
    for i, place in enumerate(places):
        counts = np.array([curve.count[i] for curve in curves], dtype=float)
        if counts.sum() < 2:
            continue
        first, second = (np.nan_to_num([curve.right[i, at] for curve in curves]) @ counts / counts.sum() for at in (best, none))
        own[place] = first - second
        # as many answers change as either model gets wrong, at most; a half more counts for what a few samples cannot show
        changed = min(2 - first - second, 1.0)
        error2[place] = (max(changed - own[place] ** 2, 0.0) + 0.5 / counts.sum()) / counts.sum()
    seen = np.isfinite(own)
    off = np.where(seen, own - gains, 0.0)
    weight = np.where(seen, 1 / error2, 0.0)
    between = max(float((weight**2 * (off**2 - np.where(seen, error2, 0.0))).sum() / max((weight**2).sum(), 1e-300)), 0.0)
    trust = np.where(seen, between / (between + error2), 0.0)
    gain = gains + trust * off
    spread = 1.96 * np.sqrt(np.where(seen, trust * np.where(seen, error2, 0.0), between) + error**2)
    return tuple(
        ClientAdvice(
            name,
            int(sizes[i]),
            dimension / float(sizes[i]),
            ratio / float(sizes[i]),
            float(gain[i]),
            float(gain[i] - spread[i]),
            float(gain[i] + spread[i]),
        )
        for i, name in enumerate(names)
    )
