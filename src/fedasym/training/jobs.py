"""What `train` is asked for, checked before any work: algorithms, seeds, and the configurations of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm, find
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, listed, unknown
from fedasym.data.federation.federation import Federation
from fedasym.training.probes import check_steps
from fedasym.training.scales import stable_steps
from fedasym.training.settings import (
    CHOSEN,
    SETTINGS,
    Settings,
    check_trainable,
    default_of,
    fixed_settings,
    own_settings,
    resolve_ridge,
    used_settings,
)

Grid = Mapping[str, Iterable[float]] | Mapping[str, Mapping[str, Iterable[float]]]
COHORT = 20  # clients a round, where there are that many


def named(algorithm: str | Algorithm | Iterable[str | Algorithm]) -> tuple[list[Algorithm], bool]:
    """The algorithms asked for, and whether several were."""
    several = not isinstance(algorithm, str | Algorithm)
    chosen: list[Algorithm] = []
    for entry in listed("algorithm", algorithm) if several else [algorithm]:
        chosen.append(find(entry))
        check_trainable(chosen[-1])
        check_steps(chosen[-1])
    if not chosen:
        raise InvalidInput(f"algorithm is empty: name at least one of {', '.join(REGISTRY)}")
    names = [entry.name for entry in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput(f"algorithm has {max(names, key=names.count)} twice: give each its own name")
    return chosen, several


def check_own(algorithms: Sequence[Algorithm], told: Iterable[str]) -> None:
    """Refuse a setting that neither every run nor any of these algorithms has."""
    known = (*SETTINGS, *(name for algorithm in algorithms for name in own_settings(algorithm)))
    for name in told:
        if name not in known:
            raise unknown("setting", name, known)


def whole_numbers(name: str, values: Iterable[int]) -> list[int]:
    """Seeds, or numbers of splits, each once."""
    numbers = listed(name, values)
    if not numbers:
        raise InvalidInput(f"{name} is empty: give at least one whole number")
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**64:
            raise InvalidInput(f"{name.removesuffix('s')} is {value!r}: it must be a whole number from 0 to 2^64 - 1")
    return list(dict.fromkeys(map(int, numbers)))


def read_grid(grid: Any) -> dict[str, Any]:
    """A grid with lists of values."""
    if not isinstance(grid, Mapping):
        raise InvalidInput(f"grid is {grid!r}: it must name settings and list their values")
    return {
        name: read_grid(values) if isinstance(values, Mapping) else listed(f"grid's {name}", values)
        for name, values in grid.items()
    }


def grid_of(algorithm: Algorithm, algorithms: Sequence[Algorithm], grid: dict[str, Any]) -> dict[str, list[float]]:
    """The values to try for an algorithm, of the settings that it uses: from one grid for all, or from its own."""
    names = [each.name for each in algorithms]
    own = any(isinstance(values, Mapping) for values in grid.values())
    for name, values in grid.items() if own else ():
        if name not in names:
            raise InvalidInput(f"grid has a part for {name}, which is not trained: trained are {', '.join(names)}")
        if not isinstance(values, Mapping):
            raise InvalidInput(f"grid's part for {name} is {values!r}: it must name settings and list their values")
    axes = grid.get(algorithm.name, {}) if own else grid
    users = [algorithm] if own else algorithms
    for name, values in axes.items():
        known = (*SETTINGS, *(own for user in users for own in own_settings(user)))
        if name not in known:
            raise unknown("grid entry", name, known)
        if not any(name in tunable(user) for user in users):
            raise InvalidInput(f"grid has {name}, which {', '.join(user.name for user in users)} does not use: leave it out")
        if not values:
            raise InvalidInput(f"grid has no values for {name}: give at least one, or leave it out")
    return {name: values for name, values in axes.items() if name in tunable(algorithm)}


def tunable(algorithm: Algorithm) -> list[str]:
    """The settings that make a difference to an algorithm: those it uses, but for a ridge that is its own."""
    own = "ridge" in fixed_settings(algorithm.personalise)
    return [name for name in used_settings(algorithm) if not (own and name == "ridge")]


def configurations(
    algorithms: Sequence[Algorithm],
    told: Mapping[str, Any],
    grid: Grid | None,
    federation: Federation,
    scaled: bool | None = None,
) -> list[tuple[Algorithm, Settings]]:
    """Every algorithm with every combination of its grid's values, validated.

    scaled: whether there is an intercept, where steps that are not told are to suit the features' scale; None: the paper's.
    """
    able = int((federation.counts("train") > 0).sum())
    tried = {} if grid is None else read_grid(grid)
    jobs = []
    for algorithm in algorithms:
        axes = grid_of(algorithm, algorithms, tried)
        for values in product(*axes.values()):
            plain = (np.asarray(value).item() if np.ndim(value) == 0 else value for value in values)
            settings = settle(told, dict(zip(axes, plain, strict=True)), algorithm, federation, scaled)
            if settings.cohort is not None and settings.cohort > able and not algorithm.shares_nothing:
                raise InvalidInput(
                    f"cohort is {settings.cohort}, and {able} clients have training samples: give at most that many"
                )
            jobs.append((algorithm, replace(settings, cohort=settings.cohort or min(COHORT, able))))
    return jobs


def settle(
    told: Mapping[str, Any], tried: Mapping[str, Any], algorithm: Algorithm, federation: Federation, scaled: bool | None
) -> Settings:
    """What is told with the values of a grid; the ridge and the steps that neither says are put in."""
    missing = [name for name in CHOSEN if told.get(name) is None and name not in tried]
    given = {name: value for name, value in {**told, **tried}.items() if name not in missing}
    mine = own_settings(algorithm)
    values = {name: each.check(given.get(name, default_of(algorithm, name))) for name, each in mine.items()}
    run = {name: value for name, value in given.items() if name in SETTINGS}
    settings = resolve_ridge(Settings(**run, own=tuple(values.items())), algorithm)
    if scaled is None or not set(missing) & set(used_settings(algorithm)):
        return settings
    chosen = stable_steps(federation, scaled, settings.batch, settings.ridge)
    steps: dict[str, Any] = {name: chosen[name] for name in missing}
    return replace(settings, **steps)
