"""The verb `fit`: what the advisor recommends for these clients, or what is named, fitted exactly and kept with its recipe."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedasym.advisor.advise import advise
from fedasym.advisor.intake import LEAST_CLIENTS
from fedasym.advisor.wording import error_of, rivals, short
from fedasym.algorithms import Algorithm, find
from fedasym.core.arrays import flag
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.text import plural
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.splits import TRAIN
from fedasym.exact.classes import ClassFit, fit_classes
from fedasym.exact.estimators import fit as fit_linear
from fedasym.models.model import Model


def fit(
    federation: Federation, algorithm: str | Algorithm | None = None, *, intercept: bool | None = None, ridge: Any = None
) -> Model:
    """Fit what the advisor recommends for these clients, or the algorithm that is named, exactly, to the training samples.

    intercept: whether models have one; by default as the federation says. ridge: as `fa.linear.fit` takes it; by default from
        the estimated variances.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(radius=1, noise=0.5, aspect=0.2, clients=30, dimension=8, seed=1)
    >>> model = fit(clients)
    >>> model.algorithm in ("rtfa", "pfedme"), model.predict(clients.features[:3], client=0).shape
    (True, (3,))
    """
    if not isinstance(federation, Federation):
        raise InvalidInput(f"federation is a {type(federation).__name__}: make one with fa.Federation or fa.datasets.read")
    if federation.sequences or (federation.classes is None and federation.outputs != 1):
        raise NoFormula("a sample has several positions or outputs: exact fits are for one output per sample; train instead")
    free = federation.intercept if intercept is None else flag("intercept", intercept)
    rows = np.flatnonzero(federation.split == TRAIN)
    names = np.empty(len(federation.clients), dtype=object)
    names[:] = federation.clients
    owners = names[federation.owner[rows]].tolist()
    X = np.asarray(federation.features[rows], float)
    named, recipe = federation.names, federation.recipe
    if federation.classes is not None:
        if ridge is not None:
            raise InvalidInput("ridge is given, and the labels are classes: their variances are estimated; leave it out")
        labels = federation.labels[rows]
        options: dict[str, Any] = {"personal": federation.personal, "intercept": free}
        found = fit_classes(algorithm, X, labels, owners, classes=federation.classes, **options)
        return Model(found, named, recipe, choice_of_classes(found))
    why, chosen = "", algorithm
    if chosen is None:
        chosen, expected = recommend(federation, free)
        why = expected if ridge is None else ""  # what is expected is so with the estimated ridges
    if ridge is not None:
        check_ridged(chosen)
    model = fit_linear(chosen, X, federation.labels[rows, 0], owners, ridge=ridge, intercept=free, personal=federation.personal)
    return Model(model, named, recipe, why)


def check_ridged(algorithm: str | Algorithm) -> None:
    """Refuse a ridge for an algorithm that has none."""
    named = find(algorithm)
    if not named.has_ridge:
        raise InvalidInput(f"ridge is given, and {named.name} has none: leave it out, or take local_ridge, rtfa or pfedme")


def recommend(federation: Federation, intercept: bool) -> tuple[str, str]:
    """What the advisor recommends, and its sentence; too few clients for an estimate share one model, and keep near it."""
    trained = int(np.count_nonzero(federation.counts("train")))
    if trained < LEAST_CLIENTS:
        name = "fedavg" if trained < 2 else "rtfa"
        return name, f"With {plural(trained, 'client')} there is no advice: {name} is the usual choice."
    advice = advise(federation, task="regression", intercept=intercept)
    others = [f"{words} {short(error_of(advice, name))}" for name, words in rivals(advice).items()]
    expected = f"Expected squared error {short(error_of(advice, advice.recommended))}"
    return advice.recommended, ", ".join([expected, *others]) + "."


def choice_of_classes(found: ClassFit) -> str:
    """Why an algorithm for classes was chosen: held-out log-losses."""
    if found.losses is None:
        return ""
    named = {"fedavg": "with one model for all", "local_ridge": "with each client alone"}
    others = [f"{words} {short(found.losses[name])}" for name, words in named.items() if name != found.algorithm.name]
    return ", ".join([f"Held-out log-loss {short(found.losses[found.algorithm.name])}", *others]) + "."
