"""When to stop: the time of gradient descent that matches a ridge (section 7), from few points of the ridge path."""

from __future__ import annotations

import numpy as np

from fedasym.advisor.classes.scores import DIRECT
from fedasym.advisor.classes.worlds import World
from fedasym.theory.classes.limits import LogisticWorlds, time_of
from fedasym.theory.classes.links import phi as binary_phi
from fedasym.theory.classes.multinomial_integrals import phi
from fedasym.theory.classes.multinomial_ridge import path
from fedasym.theory.classes.multinomial_rules import centre
from fedasym.theory.classes.multinomial_samples import SEARCH, samples
from fedasym.theory.classes.multinomial_stopping import clock, curvature
from fedasym.theory.classes.shared import shrinkage

PER_DECADE = 3
ABOVE = 3.0  # the first ridge in units of the largest curvature


def time_at(world: World, aspect: float, ridge: float) -> float:
    """Step x steps of full-batch descent from the shared model that comes to the ridge fit.

    With more than DIRECT classes, or where the model hardly fits, as if all of the displacement had one curvature h:
    tau = log(1 + h/ridge)/h.
    """
    e, C = world.energies, world.link.classes
    if C == 2 and not world.strange:
        one = LogisticWorlds(e.broadcast((1,)), np.array([aspect]), np.zeros(1), None, True)
        return time_of(one, 0, ridge)
    if C > DIRECT or world.strange:
        B0 = float(e.b0)
        slope = float(binary_phi(shrinkage(e) * np.sqrt(B0))) if C == 2 else phi(centre(e, C) * np.sqrt(B0), C)
        h = slope * float(e.s**2 @ e.ed) / float(e.s @ e.ed)
        return float(np.log1p(h / ridge) / h)
    top = max(ABOVE * curvature(e, aspect), 3 * ridge)
    ridges = np.geomspace(top, ridge, 2 + int(PER_DECADE * np.log10(top / ridge)))
    fits = path(e, aspect, ridges, C, points=samples(C, SEARCH))
    return float(clock(ridges, np.array([fit.distance for fit in fits]))[-1])
