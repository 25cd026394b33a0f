"""fedasym: which personalized federated-learning algorithm will win on a population of clients, by how much, and why.

>>> import fedasym as fa
>>> fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2)).best
'rtfa'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedasym import algorithms, datasets, linear, pretraining
    from fedasym.algorithms import Algorithm
    from fedasym.comparing import Diagram, compare
    from fedasym.errors import InvalidInput, NoFormula, ThresholdWarning
    from fedasym.federations.federation import Federation
    from fedasym.linear.simulated import Simulation
    from fedasym.linear.simulation import simulate
    from fedasym.population import Population
    from fedasym.prediction import predict
    from fedasym.risk import Comparison, Risk
    from fedasym.theory import spectra
    from fedasym.theory.regimes import noise_threshold, optimal_loss, optimal_ridge
    from fedasym.theory.spectra import Spectrum
    from fedasym.training.histories import Histories
    from fedasym.training.history import History
    from fedasym.training.training import train
    from fedasym.tuning import FineTuning, fine_tuning, one_step

_HOME = {
    "Algorithm": "fedasym.algorithms",
    "Comparison": "fedasym.risk",
    "Diagram": "fedasym.comparing",
    "Federation": "fedasym.federations.federation",
    "FineTuning": "fedasym.tuning",
    "Histories": "fedasym.training.histories",
    "History": "fedasym.training.history",
    "InvalidInput": "fedasym.errors",
    "NoFormula": "fedasym.errors",
    "Population": "fedasym.population",
    "Risk": "fedasym.risk",
    "Simulation": "fedasym.linear.simulated",
    "Spectrum": "fedasym.theory.spectra",
    "ThresholdWarning": "fedasym.errors",
    "compare": "fedasym.comparing",
    "fine_tuning": "fedasym.tuning",
    "noise_threshold": "fedasym.theory.regimes",
    "one_step": "fedasym.tuning",
    "optimal_loss": "fedasym.theory.regimes",
    "optimal_ridge": "fedasym.theory.regimes",
    "predict": "fedasym.prediction",
    "simulate": "fedasym.linear.simulation",
    "train": "fedasym.training.training",
}
_MODULES = {
    "algorithms": "fedasym.algorithms",
    "datasets": "fedasym.datasets",
    "linear": "fedasym.linear",
    "pretraining": "fedasym.pretraining",
    "spectra": "fedasym.theory.spectra",
}

__all__ = [
    "Algorithm",
    "Comparison",
    "Diagram",
    "Federation",
    "FineTuning",
    "Histories",
    "History",
    "InvalidInput",
    "NoFormula",
    "Population",
    "Risk",
    "Simulation",
    "Spectrum",
    "ThresholdWarning",
    "__version__",
    "algorithms",
    "compare",
    "datasets",
    "fine_tuning",
    "linear",
    "noise_threshold",
    "one_step",
    "optimal_loss",
    "optimal_ridge",
    "predict",
    "pretraining",
    "simulate",
    "spectra",
    "train",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, on first use: importing fedasym alone stays cheap."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'fedasym' has no attribute {name!r}; it has {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted(__all__)
