"""A federation in a few lines and as one record per client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.core.text import plural
from fedasym.data.federation.splits import SPLITS

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation


def summarised(federation: Federation) -> str:
    """Clients, task, sizes and split, and who has nothing to train on."""
    sizes = np.diff(federation.starts)
    about = [plural(len(federation), "client"), federation.task]
    if federation.sequences:
        about.append(f"sequences of {plural(federation.features.shape[1], 'position')}")
    about += [
        plural(federation.dimension, "feature"),
        plural(federation.outputs, "output" if federation.classes is None else "class"),
    ]
    totals = ", ".join(f"{split} {federation.counts(split).sum()}" for split in SPLITS)
    lines = [
        f"Federation: {' · '.join(about)}",
        f"samples: {sizes.sum()}, a client has {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}",
        f"split: {totals}",
    ]
    if federation.mask is not None:
        lines.append(f"padding: {1 - federation.mask.mean():.1%} of the positions")
    idle = int(np.count_nonzero(federation.counts("train") == 0))
    if idle:
        lines.append(f"{plural(idle, 'client')} without training samples: never drawn, served by the shared model")
    return "\n".join(lines)


def records(federation: Federation) -> list[dict[str, Any]]:
    """Each client's name and number of samples, in all and by split."""
    counts = {"samples": np.diff(federation.starts), **{split: federation.counts(split) for split in SPLITS}}
    lists = {name: count.tolist() for name, count in counts.items()}
    return [{"client": name, **{key: lists[key][i] for key in lists}} for i, name in enumerate(federation.clients)]
