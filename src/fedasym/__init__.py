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
    from fedasym.advisor.advice import Advice
    from fedasym.advisor.advise import advise
    from fedasym.advisor.classes.advice import ClassAdvice
    from fedasym.advisor.mixed_classes import ScoredAdvice
    from fedasym.algorithms import Algorithm
    from fedasym.classification.accuracy import Accuracy, AccuracyTable
    from fedasym.classification.comparing import AccuracyDiagram
    from fedasym.classification.population import ClassPopulation
    from fedasym.classification.regimes import Mixture, Separability, interpolation, separability
    from fedasym.classification.simulated import AccuracySimulation
    from fedasym.classification.tuning import AccuracyPath
    from fedasym.comparing import Diagram, compare
    from fedasym.data.tables.recipe import Recipe
    from fedasym.errors import InvalidInput, NoFormula, ThresholdWarning
    from fedasym.experiments.execution import run
    from fedasym.experiments.reproduction import reproduce
    from fedasym.experiments.results import Results
    from fedasym.experiments.spec import Experiment
    from fedasym.experiments.sweeping import sweep
    from fedasym.federations.federation import Federation
    from fedasym.linear.simulated import Simulation
    from fedasym.linear.simulation import simulate
    from fedasym.models.model import Model, fit
    from fedasym.population import Population
    from fedasym.prediction import predict
    from fedasym.reporting import report
    from fedasym.risk import Comparison, Risk
    from fedasym.theory import spectra
    from fedasym.theory.regimes import noise_threshold, optimal_loss, optimal_ridge
    from fedasym.theory.spectra import Spectrum
    from fedasym.training.histories import Histories
    from fedasym.training.history import History
    from fedasym.training.training import train
    from fedasym.tuning import FineTuning, fine_tuning, one_step

_HOME = {
    "Accuracy": "fedasym.classification.accuracy",
    "AccuracyDiagram": "fedasym.classification.comparing",
    "AccuracyPath": "fedasym.classification.tuning",
    "AccuracySimulation": "fedasym.classification.simulated",
    "AccuracyTable": "fedasym.classification.accuracy",
    "Advice": "fedasym.advisor.advice",
    "Algorithm": "fedasym.algorithms",
    "ClassAdvice": "fedasym.advisor.classes.advice",
    "ClassPopulation": "fedasym.classification.population",
    "Comparison": "fedasym.risk",
    "Diagram": "fedasym.comparing",
    "Experiment": "fedasym.experiments.spec",
    "Federation": "fedasym.federations.federation",
    "FineTuning": "fedasym.tuning",
    "Histories": "fedasym.training.histories",
    "History": "fedasym.training.history",
    "InvalidInput": "fedasym.errors",
    "MissingPackage": "fedasym.errors",
    "Mixture": "fedasym.classification.regimes",
    "Model": "fedasym.models.model",
    "NoFormula": "fedasym.errors",
    "Population": "fedasym.population",
    "Recipe": "fedasym.data.tables.recipe",
    "Results": "fedasym.experiments.results",
    "Risk": "fedasym.risk",
    "ScoredAdvice": "fedasym.advisor.mixed_classes",
    "Separability": "fedasym.classification.regimes",
    "Simulation": "fedasym.linear.simulated",
    "Spectrum": "fedasym.theory.spectra",
    "ThresholdWarning": "fedasym.errors",
    "advise": "fedasym.advisor.advise",
    "compare": "fedasym.comparing",
    "fine_tuning": "fedasym.tuning",
    "fit": "fedasym.models.model",
    "interpolation": "fedasym.classification.regimes",
    "noise_threshold": "fedasym.theory.regimes",
    "one_step": "fedasym.tuning",
    "optimal_loss": "fedasym.theory.regimes",
    "optimal_ridge": "fedasym.theory.regimes",
    "predict": "fedasym.prediction",
    "report": "fedasym.reporting",
    "reproduce": "fedasym.experiments.reproduction",
    "run": "fedasym.experiments.execution",
    "separability": "fedasym.classification.regimes",
    "simulate": "fedasym.linear.simulation",
    "sweep": "fedasym.experiments.sweeping",
    "train": "fedasym.training.training",
}
_MODULES = {
    "algorithms": "fedasym.algorithms",
    "datasets": "fedasym.datasets",
    "linear": "fedasym.linear",
    "pretraining": "fedasym.pretraining",
    "runtimes": "fedasym.runtimes",
    "spectra": "fedasym.theory.spectra",
}

__all__ = [
    "Accuracy",
    "AccuracyDiagram",
    "AccuracyPath",
    "AccuracySimulation",
    "AccuracyTable",
    "Advice",
    "Algorithm",
    "ClassAdvice",
    "ClassPopulation",
    "Comparison",
    "Diagram",
    "Experiment",
    "Federation",
    "FineTuning",
    "Histories",
    "History",
    "InvalidInput",
    "MissingPackage",
    "Mixture",
    "Model",
    "NoFormula",
    "Population",
    "Recipe",
    "Results",
    "Risk",
    "ScoredAdvice",
    "Separability",
    "Simulation",
    "Spectrum",
    "ThresholdWarning",
    "__version__",
    "advise",
    "algorithms",
    "compare",
    "datasets",
    "fine_tuning",
    "fit",
    "interpolation",
    "linear",
    "noise_threshold",
    "one_step",
    "optimal_loss",
    "optimal_ridge",
    "predict",
    "pretraining",
    "report",
    "reproduce",
    "run",
    "runtimes",
    "separability",
    "simulate",
    "spectra",
    "sweep",
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
