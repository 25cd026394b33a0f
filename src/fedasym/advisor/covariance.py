"""The features' eigenvalues from the clients' own Gram matrices (section 8.4, turned round).

With v(lambda) = (1/n) sum 1/(e_k + lambda) over a client's n Gram eigenvalues, kappa = 1/v estimates kappa(lambda), and
(1 - lambda/kappa)/gamma = sum_s h_s s/(s + kappa) is linear in the shares h_s of eigenvalues s: non-negative least squares on a
grid of s finds a spectrum with the clients' own kappa, for clients of any size. Eigenvalues that the clients cannot tell
apart stay smeared; the predictions see the covariance only through kappa, and kappa is what was fitted.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize

from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array
from fedasym.worlds.spectra import Spectrum

RIDGES = 40
ATOMS = 60
FIRMLY = 100.0  # weight of the two facts that must hold: shares sum to one, and the mean eigenvalue
EVEN = 0.02  # weight of shares that are even where the samples do not tell
BLIND = 0.02  # eigenvalues below this share of kappa are all the same to a client
ENOUGH = 400  # clients whose Gram matrices are looked at


def spectrum_of(summaries: list[Summary]) -> Spectrum:
    """The spectrum whose kappa is the clients'."""
    chosen = summaries if len(summaries) <= ENOUGH else [summaries[i] for i in spread(len(summaries), ENOUGH)]
    d = summaries[0].dimension
    samples = sum(each.samples for each in summaries)
    mean = sum(float(each.power.sum()) for each in summaries) / (samples * d)
    largest = max(float(each.power.max()) / each.samples for each in summaries)
    gamma = float(np.mean([each.aspect for each in chosen]))
    ridges = mean * (1 + gamma) * np.geomspace(1e-3, 1e3, RIDGES)
    unseen = BLIND * float(np.median([kappa_of(each, ridges[:1])[0] for each in chosen]))
    s = np.geomspace(min(unseen, mean / 2), max(largest, 2 * mean), ATOMS)
    left, right = np.zeros((RIDGES, ATOMS)), np.zeros(RIDGES)
    for each in chosen:
        kappa = kappa_of(each, ridges)
        weight = each.samples / d  # the trace counts samples: large clients say more
        left += weight * s / (s + kappa[:, None])
        right += weight * (1 - ridges / kappa) / each.aspect
    scale = right + np.finfo(float).tiny  # relative errors, small and large ridges alike
    facts = FIRMLY * np.vstack([np.ones(ATOMS), s / mean])
    rows = np.vstack([left / scale[:, None], facts, EVEN * np.eye(ATOMS)])
    h, _ = scipy.optimize.nnls(rows, np.concatenate([np.ones(RIDGES), [FIRMLY, FIRMLY], np.zeros(ATOMS)]))
    kept = h > 1e-6 * h.sum()
    values, weights = s[kept], h[kept] / h[kept].sum()
    values = values * mean / float(values @ weights)
    return Spectrum(values, weights, f"estimated ({values.size} eigenvalues from {values.min():.3g} to {values.max():.3g})")


def kappa_of(client: Summary, ridges: Array) -> Array:
    """1/v at each ridge; samples beyond the axes have Gram eigenvalue 0."""
    e = client.power / client.samples
    beyond = (client.samples - e.size) / ridges
    return np.asarray(client.samples / ((1 / (e + ridges[:, None])).sum(1) + beyond))


def spread(count: int, wanted: int) -> Array:
    """`wanted` places out of `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(wanted, count)).round().astype(int))
