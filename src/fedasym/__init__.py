"""fedasym: which personalized federated-learning algorithm will win on a population of clients, by
how much, and why.

>>> import fedasym as fa
>>> fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2)).best
'rtfa'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fedasym.core import __version__

if TYPE_CHECKING:
    from fedasym import algorithms, pretraining
    from fedasym import data as datasets
    from fedasym import deploy as runtimes
    from fedasym import exact as linear
    from fedasym.advisor import advise, fit
    from fedasym.advisor.advice import Advice
    from fedasym.algorithms import Algorithm
    from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
    from fedasym.core.privacy import Privacy
    from fedasym.data.federation import Federation
    from fedasym.data.recipe import Recipe
    from fedasym.experiments import Experiment
    from fedasym.experiments.execution import run, sweep
    from fedasym.experiments.results import Results
    from fedasym.models import Model
    from fedasym.models.doubles import Double, resemble
    from fedasym.models.what_if import WhatIf, what_if
    from fedasym.results import Accuracy, Comparison, Risk
    from fedasym.results.regimes import (
        Diagram,
        FineTuning,
        Mixture,
        PrivacyCosts,
        Rounds,
        Separability,
    )
    from fedasym.results.simulation import Simulation
    from fedasym.show.report import report
    from fedasym.show.reproduction import reproduce
    from fedasym.training import keep_compilations, train
    from fedasym.training.histories import Histories
    from fedasym.training.history import History
    from fedasym.verbs import clusters, fine_tuning, one_step, predict
    from fedasym.verbs.privacy import privacy_costs
    from fedasym.verbs.regimes import (
        compare,
        interpolation,
        noise_threshold,
        optimal_loss,
        optimal_ridge,
        separability,
    )
    from fedasym.verbs.rounds import rounds
    from fedasym.verbs.simulation import simulate
    from fedasym.worlds import Population, spectra
    from fedasym.worlds.classes import ClassPopulation
    from fedasym.worlds.spectra import Spectrum

_HOME = {
    "Accuracy": "fedasym.results",
    "Advice": "fedasym.advisor.advice",
    "Algorithm": "fedasym.algorithms",
    "ClassPopulation": "fedasym.worlds.classes",
    "Comparison": "fedasym.results",
    "Diagram": "fedasym.results.regimes",
    "Double": "fedasym.models.doubles",
    "Experiment": "fedasym.experiments",
    "Federation": "fedasym.data.federation",
    "FineTuning": "fedasym.results.regimes",
    "Histories": "fedasym.training.histories",
    "History": "fedasym.training.history",
    "InvalidInput": "fedasym.core.errors",
    "MissingPackage": "fedasym.core.errors",
    "Mixture": "fedasym.results.regimes",
    "Model": "fedasym.models",
    "NoFormula": "fedasym.core.errors",
    "Population": "fedasym.worlds",
    "Privacy": "fedasym.core.privacy",
    "Recipe": "fedasym.data.recipe",
    "Results": "fedasym.experiments.results",
    "Risk": "fedasym.results",
    "PrivacyCosts": "fedasym.results.regimes",
    "Rounds": "fedasym.results.regimes",
    "Separability": "fedasym.results.regimes",
    "Simulation": "fedasym.results.simulation",
    "Spectrum": "fedasym.worlds.spectra",
    "ThresholdWarning": "fedasym.core.errors",
    "WhatIf": "fedasym.models.what_if",
    "advise": "fedasym.advisor",
    "compare": "fedasym.verbs.regimes",
    "clusters": "fedasym.verbs",
    "fine_tuning": "fedasym.verbs",
    "fit": "fedasym.advisor",
    "interpolation": "fedasym.verbs.regimes",
    "keep_compilations": "fedasym.training",
    "noise_threshold": "fedasym.verbs.regimes",
    "one_step": "fedasym.verbs",
    "optimal_loss": "fedasym.verbs.regimes",
    "optimal_ridge": "fedasym.verbs.regimes",
    "predict": "fedasym.verbs",
    "report": "fedasym.show.report",
    "reproduce": "fedasym.show.reproduction",
    "privacy_costs": "fedasym.verbs.privacy",
    "resemble": "fedasym.models.doubles",
    "rounds": "fedasym.verbs.rounds",
    "run": "fedasym.experiments.execution",
    "separability": "fedasym.verbs.regimes",
    "simulate": "fedasym.verbs.simulation",
    "sweep": "fedasym.experiments.execution",
    "train": "fedasym.training",
    "what_if": "fedasym.models.what_if",
}
_MODULES = {
    "algorithms": "fedasym.algorithms",
    "datasets": "fedasym.data",
    "linear": "fedasym.exact",
    "pretraining": "fedasym.pretraining",
    "runtimes": "fedasym.deploy",
    "spectra": "fedasym.worlds.spectra",
}

__all__ = [
    "Accuracy",
    "Advice",
    "Algorithm",
    "ClassPopulation",
    "Comparison",
    "Diagram",
    "Double",
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
    "Privacy",
    "PrivacyCosts",
    "Recipe",
    "Results",
    "Risk",
    "Rounds",
    "Separability",
    "Simulation",
    "Spectrum",
    "ThresholdWarning",
    "WhatIf",
    "__version__",
    "advise",
    "algorithms",
    "clusters",
    "compare",
    "datasets",
    "fine_tuning",
    "fit",
    "interpolation",
    "keep_compilations",
    "linear",
    "noise_threshold",
    "one_step",
    "optimal_loss",
    "optimal_ridge",
    "predict",
    "pretraining",
    "privacy_costs",
    "report",
    "reproduce",
    "resemble",
    "rounds",
    "run",
    "runtimes",
    "separability",
    "simulate",
    "spectra",
    "sweep",
    "train",
    "what_if",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, on first use: importing fedasym alone stays cheap."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(
        f"module 'fedasym' has no attribute {name!r}; it has {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
