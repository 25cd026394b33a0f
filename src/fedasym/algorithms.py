"""An algorithm is a pair of stages: what the clients learn together, then what a client does with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.errors import InvalidInput, NoFormula, known, listed, one_of, unknown
from fedasym.numeric import amount, floats, one_float, whole

__all__ = [
    "GRIDS",
    "PAPER",
    "TRAINED",
    "Algorithm",
    "Average",
    "Descend",
    "Flow",
    "Interpolate",
    "Keep",
    "Meta",
    "Moreau",
    "Nothing",
    "Own",
    "Ridge",
]

HESSIANS = ("exact", "free", "dropped")


@dataclass(frozen=True)
class Nothing:
    """Server stage: the clients share nothing."""


@dataclass(frozen=True)
class Average:
    """Server stage: minimise the weighted sum of the clients' losses (FedAvg; equation param-fedavg)."""


@dataclass(frozen=True)
class Meta:
    """Server stage: minimise the losses after one gradient step of size `step` (MAML-FL; equation param-maml).

    Training may take the Hessian in its gradient as it is ("exact"), by finite differences ("free": MAML-FL-HF), or leave it
    out ("dropped": MAML-FL-FO).
    """

    step: float = 0.1
    hessian: Literal["exact", "free", "dropped"] = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", amount("step", self.step))
        one_of("hessian", self.hessian, HESSIANS)


@dataclass(frozen=True)
class Moreau:
    """Server stage: minimise losses and squared distances to the shared model together (pFedMe; equation param-prox)."""


@dataclass(frozen=True)
class Keep:
    """Client stage: use the shared model as it is."""


@dataclass(frozen=True)
class Interpolate:
    """Client stage: gradient descent to convergence, the nearest interpolant (equation param-perfedavg)."""


@dataclass(frozen=True, eq=False)
class Ridge:
    """Client stage: stay within a squared penalty of the shared model (equation param-perridge); None: the best ridge."""

    ridge: ArrayLike | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", None if self.ridge is None else checked_ridge(self.ridge))


@dataclass(frozen=True)
class Descend:
    """Client stage: `steps` gradient steps of size `step` from the shared model."""

    step: float
    steps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", amount("step", self.step))
        object.__setattr__(self, "steps", whole("steps", self.steps, 0))


@dataclass(frozen=True)
class Flow:
    """Client stage: gradient flow from the shared model for time `time`."""

    time: float

    def __post_init__(self) -> None:
        time = one_float(self.time)
        if not time >= 0:
            raise InvalidInput(f"time is {self.time!r}: it must be a number of at least 0, or infinite for convergence")
        object.__setattr__(self, "time", time)


@dataclass(frozen=True)
class Own:
    """A stage of your own, for the server or the client, to be trained: `step` is what a client does with one batch.

    It is called as step(w, start, gradient, ...) and returns the new model. `w` is the client's model, `start` the shared
    one that it began at, and gradient(w) the gradient of the batch's loss; models and gradients are added, subtracted and
    multiplied by numbers. Keyword-only arguments without a default are settings of `fedasym.train`, by name. With `batches`
    above one (server stages only) a step has several batches, and gradient(w, 1) is that of the second.

    >>> import fedasym as fa
    >>> def proximal(w, start, gradient, *, server_step, ridge):
    ...     return w - server_step * (gradient(w) + ridge * (w - start))
    >>> fedprox = fa.Algorithm("fedprox", fa.algorithms.Own(proximal), fa.algorithms.Keep())
    >>> fedprox.server.settings
    ('server_step', 'ridge')
    """

    step: Callable[..., Any]
    batches: int = 1

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that the step asks for."""
        asked = inspect.signature(self.step).parameters.values()
        return tuple(each.name for each in asked if each.kind is each.KEYWORD_ONLY and each.default is each.empty)


Server = Nothing | Average | Meta | Moreau | Own
Client = Keep | Interpolate | Ridge | Descend | Flow | Own

COVERED: dict[type, tuple[type, ...]] = {
    Nothing: (Interpolate, Ridge, Descend, Flow),
    Average: (Keep, Interpolate, Ridge, Descend, Flow),
    Meta: (Interpolate, Descend, Flow),
    Moreau: (Ridge,),
}


@dataclass(frozen=True)
class Algorithm:
    """A server stage and a client stage under one name: any pair can be trained, those that a theorem covers predicted.

    >>> import fedasym as fa
    >>> one_step = fa.Algorithm("one-step MAML", fa.algorithms.Meta(0.1), fa.algorithms.Descend(step=0.3))
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> round(fa.predict(world, [one_step])["one-step MAML"].loss, 6)
    0.715
    """

    name: str
    server: Server
    personalise: Client

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(f"name is {self.name!r}: it must be text, which tables show")
        for kind, stage, allowed in (("server", self.server, Server), ("client", self.personalise, Client)):
            if not isinstance(stage, allowed):
                raise unknown(f"{kind} stage", type(stage).__name__, (each.__name__ for each in get_args(allowed)))

    @property
    def shares_nothing(self) -> bool:
        """Whether each client is on its own, so that the length of its optimum matters instead of its displacement."""
        return isinstance(self.server, Nothing)


def check_covered(algorithm: Algorithm) -> None:
    """Refuse a pair that no theorem covers; it can still be trained."""
    if isinstance(algorithm.server, Own) or isinstance(algorithm.personalise, Own):
        raise NoFormula(f"no theorem covers {algorithm.name}, which has a stage of your own: measure it with fa.train")
    server, works = type(algorithm.server).__name__, COVERED[type(algorithm.server)]
    if not isinstance(algorithm.personalise, works):
        *names, last = [stage.__name__ for stage in works]
        listed = " or ".join(filter(None, (", ".join(names), last)))
        pair = f"{server} then {type(algorithm.personalise).__name__}"
        raise NoFormula(f"no theorem covers the pair {pair}: {server} goes with {listed}; fa.train takes any pair")
    if isinstance(algorithm.server, Meta) and algorithm.server.hessian == "dropped":
        raise NoFormula(
            f"no theorem covers {algorithm.name}, MAML without its Hessian: predict maml, or train {algorithm.name}"
        )


PAPER = {
    "local": Algorithm("local", Nothing(), Interpolate()),
    "local_ridge": Algorithm("local_ridge", Nothing(), Ridge()),
    "fedavg": Algorithm("fedavg", Average(), Keep()),
    "ftfa": Algorithm("ftfa", Average(), Interpolate()),
    "rtfa": Algorithm("rtfa", Average(), Ridge()),
    "maml": Algorithm("maml", Meta(), Interpolate()),
    "pfedme": Algorithm("pfedme", Moreau(), Ridge()),
}
TRAINED = PAPER | {
    "maml_fo": Algorithm("maml_fo", Meta(hessian="dropped"), Interpolate()),
    "maml_hf": Algorithm("maml_hf", Meta(hessian="free"), Interpolate()),
}
STEPS = [0.0001, 0.001, 0.01, 0.1, 1]
GRIDS: dict[str, dict[str, list[float]]] = {  # what the paper tunes over (appendix "Hyperparameter Tuning Details")
    "local": {"local_step": [*STEPS, 10]},
    "fedavg": {"server_step": [*STEPS, 10]},
    "ftfa": {"server_step": STEPS, "local_step": STEPS},
    "rtfa": {"server_step": STEPS, "local_step": STEPS, "ridge": [0.001, 0.01, 0.1, 1, 10]},
    "maml_fo": {"server_step": STEPS, "local_step": STEPS},
    "maml_hf": {"server_step": STEPS, "local_step": STEPS, "difference": [0.001, 0.00001]},
    "pfedme": {"server_step": [0.0005, 0.005, 0.05], "mixing": [1, 2]},
}


def resolve(
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None, ridge: ArrayLike | None, maml_step: float
) -> list[Algorithm]:
    """The algorithms asked for (all of the paper's by default) with the given ridge and MAML step put in."""
    step = amount("maml_step", maml_step)
    penalty = None if ridge is None else checked_ridge(ridge)
    chosen = []
    for entry in asked(algorithms, PAPER):
        algorithm = entry if isinstance(entry, Algorithm) else known("algorithm", entry, PAPER)
        if not isinstance(entry, Algorithm) and isinstance(algorithm.server, Meta):
            algorithm = replace(algorithm, server=Meta(step))
        if isinstance(algorithm.personalise, Ridge) and penalty is not None:
            algorithm = replace(algorithm, personalise=Ridge(penalty))
        check_covered(algorithm)
        chosen.append(algorithm)
    if not chosen:
        raise InvalidInput(f"algorithms is empty: name at least one of {', '.join(PAPER)}")
    return chosen


def asked(algorithms: Any, default: Iterable[str]) -> list[str | Algorithm]:
    """The names and objects that are asked for: one alone, several, or the default."""
    if algorithms is None:
        return list(default)
    if isinstance(algorithms, str | Algorithm):
        return [algorithms]
    return listed("algorithms", algorithms, "give names or Algorithm objects; leave it out for all")


def checked_ridge(ridge: ArrayLike) -> float | NDArray[np.float64]:
    """A ridge: any real number or infinity (a negative one is checked against the population later), or an array of them."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(f"ridge is {ridge!r}: it must be a number or an array of numbers; leave it out for the best")
    if np.any(np.isnan(array)) or np.any(array == -np.inf):
        raise InvalidInput("ridge is not a number: give a number of at least 0, or leave it out for the best ridge")
    return float(array) if array.ndim == 0 else array
