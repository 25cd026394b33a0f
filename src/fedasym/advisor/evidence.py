"""What the checks look at, and what they say: one sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fedasym.advisor.components import Components
from fedasym.advisor.curves import Curves
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.predictions import Prediction
from fedasym.advisor.structure import Structure
from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array


class Check(StrEnum):
    """Checks that change what is advised, beside saying so."""

    RIDGE = "ridge"  # the samples want another ridge than the model
    LINK = "link"  # the labels do not follow a logistic law
    TRAINED_FEATURES = "trained features"  # levels on training samples are optimistic
    CLASS_SHARES = "class shares differ"


@dataclass(frozen=True)
class Doubt:
    """A reason to be careful: the check that spoke, and what it means in a sentence."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What every check may look at: clients, estimates, and features that are always 0 or follow from others (`dropped`)."""

    summaries: list[Summary]
    estimates: Estimates
    dropped: int

    @property
    def sizes(self) -> Array:
        """Samples of each client."""
        return np.array([each.samples for each in self.summaries], dtype=float)

    @property
    def dimension(self) -> int:
        """How many features there are."""
        return self.summaries[0].dimension


@dataclass(frozen=True, eq=False)
class Evidence(Seen):
    """Everything that the checks of a regression look at."""

    about: Components  # variances of residuals about the others' model
    predictions: dict[str, Prediction]
    shared: Curves
    structure: Structure
    held: Array  # mean square of held-out residuals about the pooled model, of the clients that have any
