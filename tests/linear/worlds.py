"""Populations that the tests of `simulate` share, and plans of what is drawn from them."""

from __future__ import annotations

import fedasym as fa
from fedasym.verbs.simulation import SimulationRequest, read_setting
from fedasym.verbs.trials import TrialPlan, make_plan

TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
AR1, POWER = fa.spectra.ar1(0.5, points=20), fa.spectra.power_law(1, points=20)
WORLD = fa.Population(1, 0.5, 2, norm=2)


def plan_of(world, **options) -> TrialPlan:
    defaults = {
        "dimension": 40,
        "clients": 5,
        "trials": 1,
        "seed": 3,
        "algorithms": None,
        "member": True,
        "ridge": None,
    }
    more = {
        "maml_step": 0.1,
        "weights": None,
        "features": "gaussian",
        "mode": "expectation",
        "vary": None,
    }
    alike = isinstance(world, fa.Population)
    worlds = (world,) if alike else tuple(world)
    return make_plan(read_setting(SimulationRequest(worlds, alike, **(defaults | more | options))))


DIFFERENT = [
    fa.Population(1, 0.7, 2, norm=2, spectrum=TWO),
    fa.Population(1.5, 0.4, 4, norm=5.25**0.5, spectrum=fa.spectra.atoms([2, 0.3], [0.6, 0.4])),
    fa.Population(0.6, 1, 0.5, norm=3.36**0.5),
]
