"""What the tests of synthetic data share: a world, distances in standard errors, one client's rows,
and residuals.
"""

import numpy as np

import fedasym as fa

ERRORS = 4.5  # standard errors that a fixed seed may be off: one draw in 150 000 is further
WORLD = fa.Population(radius=1.5, noise=0.7, aspect=2, norm=3)


def near(found, expected, error):
    """Whether estimates are within their standard errors of what they estimate."""
    distance = np.max(np.abs(np.asarray(found) - expected) / error)
    assert distance < ERRORS, distance


def rows_of(federation, client, split=None):
    """Features and labels of one client, read from the fields alone."""
    mine = federation.owner == client
    if split is not None:
        mine &= federation.split == split
    return federation.features[mine], federation.labels[mine].squeeze()


def residuals(federation):
    """What the heads leave of a regression's outputs."""
    fitted = np.einsum("nd,nd->n", federation.features, federation.truth["heads"][federation.owner])
    return federation.labels[:, 0] - fitted
