"""Synthetic sequences are padded and masked."""

import numpy as np
import pytest
import scipy.stats

from fedasym import datasets

from .drawn import near


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_sequences_are_padded_and_masked(task):
    federation = datasets.synthetic(task=task, positions=6, clients=30, dimension=10, samples=40)
    X, y, mask, truth = (
        federation.features,
        federation.labels.squeeze(),
        federation.mask,
        federation.truth,
    )
    assert X.shape == (1200, 6, 10)
    assert y.shape == mask.shape == (1200, 6)
    lengths = mask.sum(1)
    np.testing.assert_array_equal(mask, np.arange(6) < lengths[:, None])
    assert scipy.stats.chisquare(np.bincount(lengths, minlength=7)[1:]).pvalue > 1e-4
    assert not X[~mask].any()
    assert not y[~mask].any()
    heads = truth["heads"][federation.owner]
    if task == "regression":
        e = (y - np.einsum("ntd,nd->nt", X, heads))[mask]
        near((e**2).mean(), 0.25, 0.25 * np.sqrt(2 / e.size))
    else:
        logits = np.einsum("ntd,ndc->ntc", X, heads)[mask]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        right = p.max(1).mean()
        near((p.argmax(1) == y[mask]).mean(), right, np.sqrt(right * (1 - right) / len(p)))
