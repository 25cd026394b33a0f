"""The reference cases of golden_cases.json (30 digits each) and the populations and spectra that they name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedasym as fa

Array = NDArray[np.float64]
Inputs = dict[str, str | int | None]

GOLDEN = json.loads((Path(__file__).parent / "golden_cases.json").read_text(encoding="utf-8"))["cases"]

TWO_ATOM = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
THREE_ATOM = fa.spectra.atoms([0.1, 1, 10], [0.3, 0.5, 0.2])
SPIKED = fa.spectra.atoms([1, 20], [0.99, 0.01])
SPECTRA = {"identity": fa.spectra.identity(), "two_atom": TWO_ATOM, "three_atom": THREE_ATOM, "spiked": SPIKED}


def spectrum(name: str) -> fa.Spectrum:
    """A spectrum by its name in the reference cases, such as ar1_0.5_64 or power_1_64."""
    if name in SPECTRA:
        return SPECTRA[name]
    family, parameter, points = name.split("_")
    make = {"ar1": fa.spectra.ar1, "power": fa.spectra.power_law}[family]
    return make(float(parameter), points=int(points))


def population(inputs: Inputs, **changes: object) -> fa.Population:
    """The population of a reference case; the noise defaults to 0 where the case has none."""
    numbers = {
        "radius": float(inputs["r2"]) ** 0.5,
        "noise": float(inputs.get("sigma2", 0)) ** 0.5,
        "aspect": float(inputs["gamma"]),
        "spectrum": spectrum(inputs.get("spectrum", "identity")),
        "shift_power": float(inputs.get("align_power", 0)),
    }
    return fa.Population(**(numbers | changes))


def name_of(case: dict) -> str:
    """A test id from the kind of a case and its inputs."""
    given = case["inputs"]
    parts = [f"{key}={given[key]}" for key in ("alg", "gamma", "lam", "m", "steps", "time", "align_power") if given.get(key)]
    return "-".join([case["kind"], *([given["spectrum"]] if "spectrum" in given else []), *parts]).replace(" ", "")
