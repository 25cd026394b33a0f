"""Which methods have an accuracy in theory: by name, or as a pair of stages with the logistic or softmax loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, Average, Descend, Flow, Interpolate, Keep, Meta, Moreau, Nothing, Ridge
from fedasym.algorithms.registry import asked
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula, known
from fedasym.core.numbers import floats

Kind = Literal[
    "converged", "local_ridge", "fedavg", "rtfa", "one_step", "stopped", "ftfa_squares", "rtfa_squares", "bayes", "truth"
]


@dataclass(frozen=True, eq=False)
class Method:
    """One row of a table: what is computed (`kind`), under its name; a ridge, step or time of None is the best."""

    name: str
    kind: Kind
    ridge: ArrayLike | None = None
    step: float | None = None
    time: float | None = None

    @property
    def alone(self) -> bool:
        """Whether the shared model plays no part."""
        return self.kind in ("converged", "local_ridge", "truth")

    @property
    def ridged(self) -> bool:
        """Whether it takes the ridge that is asked for; least squares has ridges of another scale, and keeps its best."""
        return self.kind in ("local_ridge", "rtfa")


METHODS = {
    "local": Method("local", "converged"),
    "local_ridge": Method("local_ridge", "local_ridge"),
    "fedavg": Method("fedavg", "fedavg"),
    "ftfa": Method("ftfa", "converged"),
    "rtfa": Method("rtfa", "rtfa"),
    "one_step": Method("one_step", "one_step"),
    "ftfa_squares": Method("ftfa_squares", "ftfa_squares"),
    "rtfa_squares": Method("rtfa_squares", "rtfa_squares"),
    "bayes": Method("bayes", "bayes"),
    "truth": Method("truth", "truth"),
}
KNOWN = METHODS | {"maml": Method("maml", "converged"), "stopped": Method("stopped", "stopped")}
MEANINGS = {
    "local": "each client alone, trained to convergence",
    "local_ridge": "each client alone, with a ridge",
    "fedavg": "the shared model",
    "ftfa": "the shared model fine-tuned to convergence",
    "rtfa": "the shared model fine-tuned with a ridge",
    "one_step": "one gradient step from the shared model, as in MAML",
    "stopped": "gradient descent from the shared model, stopped at the best time",
    "ftfa_squares": "fine-tuning the least-squares classifier to convergence",
    "rtfa_squares": "the least-squares classifier fine-tuned with a ridge",
}


def resolve_methods(algorithms: Iterable[str | Algorithm] | str | Algorithm | None, ridge: ArrayLike | None) -> list[Method]:
    """The methods asked for, all of METHODS by default, with the given ridge put in."""
    penalty = None if ridge is None else check_ridge(ridge)
    chosen = []
    for entry in asked(algorithms, METHODS):
        method = from_stages(entry) if isinstance(entry, Algorithm) else named(entry)
        chosen.append(replace(method, ridge=penalty) if method.ridged and penalty is not None else method)
    if not chosen:
        raise InvalidInput(f"algorithms is empty: name at least one of {', '.join(METHODS)}")
    if len({method.name for method in chosen}) < len(chosen):
        raise InvalidInput("algorithms names one method twice: give each once, and each Algorithm a name of its own")
    return chosen


def named(name: str) -> Method:
    """A method by its name."""
    if isinstance(name, str) and name == "pfedme":
        raise unshared("pfedme", "pFedMe's")
    return known("method", name, KNOWN)


def unshared(name: str, whose: str) -> NoFormula:
    """The error for a shared model that is not derived."""
    return NoFormula(
        f"{name}: {whose} shared model is not derived for the logistic loss; take rtfa or one_step, which start from FedAvg's, "
        f"or fa.train, which takes any pair of stages"
    )


def from_stages(algorithm: Algorithm) -> Method:
    """A pair of stages as a method; what no formula covers is refused."""
    name = algorithm.name
    match algorithm.server, algorithm.personalise:
        case (Nothing() | Average() | Meta() | Moreau(), Interpolate()):  # gradient descent forgets where it started
            return Method(name, "converged")
        case (Moreau(), _):
            raise unshared(name, "pFedMe's")
        case (Meta(), _):
            raise unshared(name, "MAML's")
        case (Nothing(), Ridge(ridge)):
            return Method(name, "local_ridge", ridge=None if ridge is None else check_ridge(ridge))
        case (Average(), Keep()):
            return Method(name, "fedavg")
        case (Average(), Ridge(ridge)):
            return Method(name, "rtfa", ridge=None if ridge is None else check_ridge(ridge))
        case (Average(), Descend(step, 1)):
            return Method(name, "one_step", step=step)
        case (Average(), Descend(step, steps)):
            return Method(name, "stopped", time=step * steps, step=step)
        case (Average(), Flow(time)):
            return Method(name, "converged") if np.isinf(time) else Method(name, "stopped", time=time)
    pair = f"{type(algorithm.server).__name__} then {type(algorithm.personalise).__name__}"
    works = "Nothing with Interpolate or Ridge, Average with Keep, Interpolate, Ridge, Descend or Flow"
    raise NoFormula(f"{name}: no accuracy is derived for the pair {pair}; covered are {works}; fa.train takes any pair")


def check_ridge(ridge: ArrayLike) -> float | Array:
    """A ridge of the logistic loss: a number of at least 0 or infinity, or an array of them."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(f"ridge is {ridge!r}: give a number or an array of numbers; leave it out for the best")
    if not np.all(array >= 0):
        bad = array[~(array >= 0)].flat[0]
        raise InvalidInput(f"ridge is {bad:g}: with classes it must be at least 0; leave it out for the best")
    return float(array) if array.ndim == 0 else array
