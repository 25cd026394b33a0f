"""An algorithm is a pair of stages: what clients learn together, and what each does with it."""

from fedasym.algorithms.family import (
    AverageRidge,
    DirectedRidge,
    LocalSteps,
    ModelMixture,
    MoreauRidge,
    Prox,
    overview,
)
from fedasym.algorithms.methods import (
    Average,
    Descend,
    Flow,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Ridge,
    Share,
)
from fedasym.algorithms.registry import PAPER, TRAINED, Algorithm, find, register
from fedasym.algorithms.stages import (
    ClientStage,
    Objective,
    ScoreStage,
    ServerStage,
    Setting,
    rule,
    setting,
)

__all__ = [
    "GRIDS",
    "PAPER",
    "TRAINED",
    "Algorithm",
    "Average",
    "AverageRidge",
    "ClientStage",
    "Descend",
    "DirectedRidge",
    "Flow",
    "Interpolate",
    "Keep",
    "LocalSteps",
    "Meta",
    "ModelMixture",
    "Moreau",
    "MoreauRidge",
    "Nothing",
    "Objective",
    "Prox",
    "Ridge",
    "ScoreStage",
    "ServerStage",
    "Setting",
    "Share",
    "find",
    "overview",
    "register",
    "rule",
    "setting",
]

GRIDS = {
    name: {key: list(values) for key, values in each.grid.items()}
    for name, each in TRAINED.items()
    if each.grid
}
