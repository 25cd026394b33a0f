"""What one round of sums finds, on the host: the ridge head of all samples, and the first models of
clusters.

The ridge head needs X'X and X'Y alone, whoever holds which samples (AFL, He et al. 2025; Fed3R,
Fani et al. 2024). Clusters begin from clients' gradients at the first shared model, which are told
apart by their angles (Sattler et al. 2020) and averaged. Random starts, as in the first experiments
with IFCA, often give two clusters one model for ever, and ask for many runs.
"""

from __future__ import annotations

import numpy as np

from fedasym.core.numbers import Array
from fedasym.data.federation import Federation
from fedasym.data.splits import START, mix_hash
from fedasym.exact.clients import group_by_angle
from fedasym.exact.outputs import GramSums
from fedasym.training.convergence import curvature, stable_step
from fedasym.training.settings import Protocol
from fedasym.training.twin import batch_of, first_head, gradient

ROWS = 20_000  # of samples whose products are summed at a time
ASKED = 256  # clients whose gradients tell clusters apart, at most


def pooled_sums(federation: Federation, protocol: Protocol) -> GramSums:
    """The sums of products of all training samples (or positions that count); classes as 0 and 1.

    >>> from fedasym.training.settings import TEXT
    >>> pair = Federation.from_arrays(
    ...     np.eye(4), [0.0, 1.0] * 2, clients=list("aabb"), split=[0] * 4, intercept=False
    ... )
    >>> pooled_sums(pair, TEXT).solve(shared_ridge=0.25).ravel().tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    rows = np.flatnonzero(federation.split == 0)
    side = federation.dimension + protocol.intercept
    gram, cross, count = np.zeros((side, side)), np.zeros((side, federation.outputs)), 0
    for first in range(0, len(rows), ROWS):
        part = rows[first : first + ROWS]
        D = batch_of(federation, part, protocol.intercept, protocol.count_padding, np.float64)
        real = D.weights > 0
        X, Y = D.X[real], D.Y[real]
        gram, cross, count = gram + X.T @ X, cross + X.T @ Y, count + len(X)
    return GramSums(count, gram, cross, protocol.intercept)


def cluster_starts(
    federation: Federation, protocol: Protocol, seed: int, clusters: int
) -> list[Array]:
    """First models of so many clusters: a step from the first shared model, along the mean gradient
    of clients whose gradients point the same way.
    """
    W = np.asarray(first_head(federation, protocol, seed, np.float64))
    order = np.argsort(mix_hash(seed, START, federation.identities), kind="stable")
    counts = federation.counts("train")
    asked = [federation.clients[place] for place in order[counts[order] > 0][:ASKED]]
    told = (protocol.intercept, protocol.count_padding, np.float64)
    gradients = np.stack(
        [
            gradient(W, batch_of(federation, federation.rows(name, "train"), *told)).ravel()
            for name in asked
        ]
    )
    groups = group_by_angle(gradients - gradients.mean(0), min(clusters, len(asked)))
    step = stable_step(curvature(federation, protocol.intercept, int(counts.max())))
    means = [gradients[groups == place].mean(0) for place in range(groups.max() + 1)]
    means += [gradients[place % len(gradients)] for place in range(clusters - len(means))]
    return [W - step * mean.reshape(W.shape) for mean in means]
