"""What `synthetic` is asked for, checked at the door: which world, with which parameters, and how many samples a client has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import one_float, whole
from fedasym.data.federation.splits import Fractions, sizes
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import identity
from fedasym.worlds.world import LONGEST

TASKS = ("regression", "classification")
LITERATURE = "Synthetic(alpha, beta)"
LENGTH = 2.0  # of the shared optimum of a regression, unless norm is given
SIZES = {"clients": 100, "dimension": 100}
# What each world takes and is made of unless told otherwise: worlds in which sharing and personalising both pay.
WORLDS: dict[str, dict[str, Any]] = {
    "regression": {**SIZES, "population": None, "radius": 1.0, "noise": 0.5, "aspect": 2.0, "norm": None, "spectrum": None},
    "classification": {**SIZES, "classes": 10, "centre": 4.0, "radius": 2.0, "aspect": 2.0, "flips": 0.0, "spectrum": None},
    LITERATURE: {"clients": 30, "dimension": 60, "alpha": None, "beta": None, "classes": 10},
}

Counts = NDArray[np.intp]


def chosen(task: str | None, given: dict[str, Any], sized: bool) -> tuple[str, dict[str, Any]]:
    """The world that is asked for, and its parameters, checked; refuses what it does not take."""
    task = None if task is None else one_of("task", task, TASKS)
    name = LITERATURE if "alpha" in given or "beta" in given else task or "regression"
    if name == LITERATURE and task == "regression":
        raise InvalidInput('task is "regression", and alpha and beta make a classification: leave out either')
    for key, value in given.items():
        if key not in WORLDS[name]:
            takers = " and ".join(world for world, options in WORLDS.items() if key in options)
            takes = ", ".join(each for each in WORLDS[name] if each not in SIZES)
            hint = ', or give task="classification"' if task is None and "classification" in takers else ""
            shown = value if isinstance(value, int | float) else "given"
            raise InvalidInput(f"{key} is {shown}, which is for {takers}: {name} takes {takes}; leave {key} out{hint}")
    if sized and "aspect" in given:
        raise InvalidInput("samples and aspect are both given, and aspect is dimension over training samples: give one of them")
    options = {**WORLDS[name], **given}
    if name == LITERATURE:
        for key, other in (("alpha", "beta"), ("beta", "alpha")):
            if key not in given:
                raise InvalidInput(f"{other} is given without {key}: {LITERATURE} needs both; give {key}, 0 if you like")
            options[key] = number(key, options[key], "a standard deviation")
    else:
        options["population"] = population_of(given, options)
    if "classes" in options:
        options["classes"] = whole("classes", options["classes"], 2)
    if "centre" in options:
        options["centre"] = number("centre", options["centre"], "the length of the shared teacher")
        most = 1 - 1 / options["classes"]
        options["flips"] = number("flips", options["flips"], "the probability of a replaced label", most)
    return name, options


def population_of(given: Mapping[str, Any], options: Mapping[str, Any]) -> Population:
    """The population that is given, or the one of the given numbers."""
    population = options.get("population")
    if population is None:
        numbers = {key: options[key] for key in ("radius", "aspect", "norm", "noise") if options.get(key) is not None}
        spectrum = identity() if options["spectrum"] is None else options["spectrum"]
        population = Population(**{"noise": 0.0} | numbers, spectrum=spectrum)
        if population.norm is None:  # not a number among the defaults: any radius leaves room for the shared optimum
            population = replace(population, norm=np.hypot(population.radius, LENGTH))
    elif not isinstance(population, Population):
        raise InvalidInput(f"population is {population!r}: give a Population, or radius, noise, aspect and norm as keywords")
    elif len(given) > 1:
        others = ", ".join(key for key in given if key != "population")
        raise InvalidInput(f"population and {others} are both given: put {others} into the Population")
    if population.shape != ():
        raise InvalidInput(f"population holds arrays of shape {population.shape}: give plain numbers, one world at a time")
    return population


def number(name: str, value: Any, meaning: str, most: float = LONGEST) -> float:
    """A number from 0 to `most`."""
    found = one_float(value)
    if not 0 <= found <= most:
        span = f"from 0 to {most:g}" if most < LONGEST or most < found < np.inf else "finite and at least 0"
        raise InvalidInput(f"{name} is {value!r}: it is {meaning} and must be {span}")
    return found


def counted(samples: Any, clients: int) -> Counts:
    """Each client's number of samples."""
    given = np.asarray(samples, dtype=object)  # each number as it is: they are checked one by one
    if given.ndim == 0:
        return np.full(clients, whole("samples", samples, 1))
    if len(given) != clients:
        raise InvalidInput(f"samples has {len(given)} numbers for {clients} clients: give one number, or one per client")
    return np.array([whole("samples", each, 1) for each in given.tolist()], dtype=np.intp)


def by_fractions(totals: Counts, fractions: Fractions) -> tuple[Counts, Counts, Counts]:
    """How many samples of each client train, validate and test, out of these."""
    validation, test = sizes(totals, fractions)
    return totals - validation - test, validation, test


def by_training(n: int, clients: int, fractions: Fractions) -> tuple[Counts, Counts, Counts]:
    """The same beside n training samples, which the aspect fixes; what is asked for gets at least one sample."""
    train, *others = fractions
    counts = [n, *(0 if share == 0 else max(1, round(n * share / train)) for share in others)]
    train_, validation, test = (np.full(clients, count, dtype=np.intp) for count in counts)
    return train_, validation, test
