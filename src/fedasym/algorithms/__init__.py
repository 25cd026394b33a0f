"""An algorithm is a pair of stages: what clients learn together, and what each does with it."""

from fedasym.algorithms.average import Average, Descend, Flow, Interpolate, Keep, Nothing
from fedasym.algorithms.meta import Meta
from fedasym.algorithms.penalties import Moreau, Ridge
from fedasym.algorithms.registry import PAPER, TRAINED, Algorithm, find, register
from fedasym.algorithms.stages import ClientStage, Objective, ServerStage, Setting, rule, setting

__all__ = [
    "GRIDS",
    "PAPER",
    "TRAINED",
    "Algorithm",
    "Average",
    "ClientStage",
    "Descend",
    "Flow",
    "Interpolate",
    "Keep",
    "Meta",
    "Moreau",
    "Nothing",
    "Objective",
    "Ridge",
    "ServerStage",
    "Setting",
    "find",
    "register",
    "rule",
    "setting",
]

GRIDS = {
    name: {key: list(values) for key, values in each.grid.items()}
    for name, each in TRAINED.items()
    if each.grid
}
