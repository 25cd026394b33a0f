"""What is tuned over: every algorithm's own values, from the paper, from one grid for all, or from a grid by algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from fedasym.algorithms import GRIDS, TRAINED, Algorithm
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, unknown
from fedasym.training.settings import RATES, SIZES, Settings, own_settings
from fedasym.training.training import find_algorithms, grid_of, read_grid

Axes = dict[str, tuple[int | float, ...]]
Grid = dict[str, Axes]
Values = dict[str, int | float]
TUNED = tuple(name for name in (*RATES, *SIZES) if name not in ("rounds", "evaluate_every"))  # what a grid may vary
ARRAY = {"type": "array", "items": {"type": "number"}, "minItems": 1}
TABLE = {"type": "object", "additionalProperties": ARRAY}
GRID_SCHEMA = {
    "anyOf": [{"const": "paper"}, TABLE, {"type": "object", "additionalProperties": TABLE}],
    "description": 'Values to try: "paper", settings for all algorithms that use them, or settings by algorithm.',
}


def completed(grid: Any, names: Sequence[str]) -> Grid:
    """The values that each algorithm tries, checked; an algorithm without any has its one configuration.

    >>> completed({"server_step": [0.1, 1]}, ["local", "fedavg"])
    {'local': {}, 'fedavg': {'server_step': (0.1, 1.0)}}
    """
    if isinstance(grid, str):
        if grid != "paper":
            raise unknown("grid", grid, ["paper"])
        if missing := [name for name in names if name in TRAINED and name not in GRIDS]:
            raise InvalidInput(f'the paper has no grid for {missing[0]}: give one for each algorithm instead of "paper"')
        grid = {name: REGISTRY[name].default_grid() for name in names}
    tried, algorithms = read_grid(grid), find_algorithms(names)[0]
    return {algorithm.name: checked(grid_of(algorithm, algorithms, tried), algorithm) for algorithm in algorithms}


def checked(axes: Mapping[str, Iterable[Any]], algorithm: Algorithm) -> Axes:
    """The values of one algorithm, each once and in its own type, settings in one order: equal grids make equal pieces."""
    own = own_settings(algorithm)
    for name in axes:
        if name not in TUNED and name not in own:
            raise InvalidInput(f"grid has {name}, which is the same for all: set it under settings")

    def value_of(name: str, value: Any) -> Any:
        return own[name].check(value) if name in own else getattr(Settings(**{name: value}), name)

    return {
        name: tuple(dict.fromkeys(value_of(name, value) for value in axes[name])) for name in (*TUNED, *own) if name in axes
    }


def combinations(axes: Axes) -> list[Values]:
    """Every configuration of a grid, the last setting varying fastest.

    >>> combinations({"server_step": (0.1, 1.0), "ridge": (2.0,)})
    [{'server_step': 0.1, 'ridge': 2.0}, {'server_step': 1.0, 'ridge': 2.0}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
