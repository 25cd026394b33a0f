"""The options that describe a population of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.arguments import numbers, parse_spectrum
from fedasym.core.errors import unknown

TASKS = {
    "regression": ("radius", "noise", "aspect", "norm"),
    "classification": ("radius", "centre", "aspect", "classes", "flips"),
}
NEEDED = ("radius", "noise", "centre", "aspect")  # have no default

Member = Annotated[
    bool, Parameter(negative=["--no-member", "--new-client"], help="Whether the client took part in training, or is new.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World:
    """The population of clients."""

    task: str = "regression"
    """regression (squared loss), or classification (accuracy)."""
    radius: float | None = None
    """Distance of a client's optimum from the shared one (r)."""
    noise: float | None = None
    """Standard deviation of the label noise (sigma); regression."""
    aspect: float | None = None
    """Unknowns per sample of one client, d/n (gamma)."""
    norm: float | None = None
    """Length of a client's optimum (rho); only the local methods of regression need it."""
    centre: float | None = None
    """Length of the shared optimum (b); classification."""
    classes: int = 2
    """How many classes there are; classification."""
    flips: float = 0.0
    """Probability that a label is flipped; classification with two classes."""
    spectrum: str = "identity"
    """Covariance of the features: identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4, eigenvalues:3,1,0.5 or a file of
    eigenvalues (.txt, .csv, .npy)."""
    shift_power: float = 0.0
    """Alignment of the displacement: weights proportional to h s^p."""
    shift_weights: str | None = None
    """Instead: the share of the displacement's energy along each atom, separated by commas."""
    optimum_power: float = 0.0
    """Alignment of the optimum, for the local methods of regression; of the shared optimum in classification."""
    optimum_weights: str | None = None
    """Instead: the share of the optimum's energy along each atom, separated by commas."""

    def population(self, varied: Mapping[str, Any] | None = None) -> Any:
        """The `Population` or `ClassPopulation` of these options; a number that varies anyway need not be given."""
        if self.task not in TASKS:
            raise unknown("task", self.task, TASKS)
        theirs, others = TASKS[self.task], {name for names in TASKS.values() for name in names} - set(TASKS[self.task])
        for name in others:
            if getattr(self, name) != getattr(WORLD, name):
                raise fa.InvalidInput(f"{name} is given, and --task {self.task} takes {', '.join(theirs)}: leave --{name} out")
        needed = {name: getattr(self, name) for name in theirs if name in NEEDED}
        for name, value in needed.items():
            if value is None:
                if name not in (varied or {}):
                    raise fa.InvalidInput(f"{name} is missing: give --{name}")
                needed[name] = (varied or {})[name][0]
        shape: dict[str, Any] = {"spectrum": parse_spectrum(self.spectrum), "shift_power": self.shift_power}
        shape["shift_weights"] = numbers("shift_weights", self.shift_weights)
        whose = "optimum" if self.task == "regression" else "centre"
        shape |= {f"{whose}_power": self.optimum_power, f"{whose}_weights": numbers("optimum_weights", self.optimum_weights)}
        if self.task == "regression":
            return fa.Population(**needed, norm=self.norm, **shape)
        return fa.ClassPopulation(**needed, classes=self.classes, flips=self.flips, **shape)


WORLD = World()
