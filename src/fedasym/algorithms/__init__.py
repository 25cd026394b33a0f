"""An algorithm is a pair of stages: what the clients learn together, then what a client does with it."""

from fedasym.algorithms.algorithm import Algorithm
from fedasym.algorithms.average import Average, Descend, Flow, Interpolate, Keep
from fedasym.algorithms.local import Nothing
from fedasym.algorithms.meta import Meta
from fedasym.algorithms.moreau import Moreau
from fedasym.algorithms.registry import PAPER, TRAINED, find, register
from fedasym.algorithms.ridge import Ridge
from fedasym.algorithms.settings import Setting, setting
from fedasym.algorithms.stages import ClientStage, ServerStage

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
    "Ridge",
    "ServerStage",
    "Setting",
    "find",
    "register",
    "setting",
]

GRIDS = {name: {key: list(values) for key, values in each.grid.items()} for name, each in TRAINED.items() if each.grid}
