"""The options that describe a population of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.arguments import numbers, parse_spectrum

Member = Annotated[
    bool, Parameter(negative=["--no-member", "--new-client"], help="Whether the client took part in training, or is new.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World:
    """The population of clients."""

    radius: float | None = None
    """Distance of a client's optimum from the shared one (r)."""
    noise: float | None = None
    """Standard deviation of the label noise (sigma)."""
    aspect: float | None = None
    """Unknowns per sample of one client, d/n (gamma)."""
    norm: float | None = None
    """Length of a client's optimum (rho); only the local methods need it."""
    spectrum: str = "identity"
    """Covariance of the features: identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4, eigenvalues:3,1,0.5 or a file of
    eigenvalues (.txt, .csv, .npy)."""
    shift_power: float = 0.0
    """Alignment of the displacement: weights proportional to h s^p."""
    shift_weights: str | None = None
    """Instead: the share of the displacement's energy along each atom, separated by commas."""
    optimum_power: float = 0.0
    """Alignment of the optimum, for the local methods."""
    optimum_weights: str | None = None
    """Instead: the share of the optimum's energy along each atom, separated by commas."""

    def population(self, varied: Mapping[str, Any] | None = None) -> fa.Population:
        """The `Population` of these options; a number that varies anyway need not be given."""
        needed = {name: getattr(self, name) for name in ("radius", "noise", "aspect")}
        for name, value in needed.items():
            if value is None:
                if name not in (varied or {}):
                    raise fa.InvalidInput(f"{name} is missing: give --{name}")
                needed[name] = (varied or {})[name][0]
        return fa.Population(
            **needed,
            norm=self.norm,
            spectrum=parse_spectrum(self.spectrum),
            shift_power=self.shift_power,
            shift_weights=numbers("shift_weights", self.shift_weights),
            optimum_power=self.optimum_power,
            optimum_weights=numbers("optimum_weights", self.optimum_weights),
        )


WORLD = World()
