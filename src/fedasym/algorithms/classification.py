"""Stages that only clients with classes have a theory of: least squares on the labels, the best step and the best time.

And two that no client can take, the ceilings of a table: what could be reached if more were known.
"""

from __future__ import annotations

import numpy as np

from fedasym.algorithms.stages import Array, ClientStage, ServerStage


class AverageSquares(ServerStage):
    """Server stage: FedAvg of the squared loss, labels taken as numbers (with two classes, -1 and 1)."""

    def weight(self, x: Array) -> Array:
        """b(x) = 1, as for FedAvg."""
        return np.ones_like(x)


class BestStep(ClientStage):
    """Client stage: one gradient step from the shared model, of the size that is the most accurate."""


class BestTime(ClientStage):
    """Client stage: gradient descent from the shared model, stopped when it is the most accurate."""


class Posterior(ClientStage):
    """No client can: the best of all rules if theta_0 is known."""


class Truth(ClientStage):
    """No client can: the client's own optimum."""
