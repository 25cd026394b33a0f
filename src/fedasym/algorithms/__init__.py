"""An algorithm is a pair of stages: what clients learn together, and what each does with it.

Here are the table of all that have a name, and what is meant where algorithms are asked for.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms.family import (
    AverageRidge,
    DirectedRidge,
    LocalSteps,
    ModelMixture,
    MoreauRidge,
    Prox,
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
from fedasym.algorithms.paper import PAPER, SHARED, TRAINED, Algorithm
from fedasym.algorithms.registry import REGISTRY, find, register
from fedasym.algorithms.stages import (
    ClientStage,
    Objective,
    ScoreStage,
    ServerStage,
    Setting,
    rule,
    setting,
)
from fedasym.core.errors import InvalidInput, NoFormula, read_list
from fedasym.core.numbers import amount, check_ridge, join_with_and

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
VERBS = ("predict", "simulate", "fit", "train", "deploy")


def verbs_of(algorithm: Algorithm) -> list[str]:
    """What can be done with an algorithm, from what its stages have.

    >>> verbs_of(REGISTRY["ifca"]), verbs_of(REGISTRY["rtfa_share"])
    (['predict', 'simulate', 'fit', 'train', 'deploy'], ['train', 'deploy'])
    """
    server, client = algorithm.stages
    weighed = algorithm.shares_nothing or server.owns("weight") or server.group_stage is not None
    filtered = client.own_stage is not None or client.owns("keep")
    takes = algorithm.shares_nothing or server.owns("step") or server.reads_sums
    stepping = client.plain_stage or client
    trained = takes and (stepping.step_count == 0 or stepping.owns("step"))
    trained = trained and not (server.untrainable or client.untrainable)
    formulas = weighed and filtered and algorithm.correction is None
    able = dict.fromkeys(("predict", "simulate", "fit"), formulas)
    able |= {"train": trained, "deploy": trained}
    return [verb for verb in VERBS if able[verb]]


def overview() -> list[dict[str, str]]:
    """Every algorithm that has a name: what it does, which others it equals, which verbs take it.

    >>> import fedasym as fa
    >>> [each["limit of"] for each in fa.algorithms.overview() if each["algorithm"] == "ditto"]
    ['rtfa']
    """
    return [
        {
            "algorithm": name,
            "words": each.words,
            "alias of": each.alias_of,
            "limit of": each.limit_of,
            "verbs": ", ".join(verbs_of(each)),
            "settings": ", ".join(each.settings),
            "reference": each.reference,
        }
        for name, each in REGISTRY.items()
    ]


def requested_algorithms(algorithms: Any, default: Iterable[str]) -> list[str | Algorithm]:
    """The names and objects that are asked for: one alone, several, "all", or the default."""
    if algorithms is None:
        return list(default)
    if asks_for_all(algorithms):
        return [name for name, each in REGISTRY.items() if not each.alias_of]
    if isinstance(algorithms, str | Algorithm):
        return [algorithms]
    return read_list(
        "algorithms", algorithms, "give names or Algorithm objects; leave it out for all"
    )


def equality_notes(algorithms: Iterable[Algorithm]) -> list[str]:
    """The sentences that say whom algorithms equal; those that end at one place share theirs.

    >>> equality_notes([find("scaffold"), find("feddyn"), find("afl")])[0]
    'scaffold and feddyn end where fedavg does, by other rounds: same limit.'
    """
    told = [each for each in algorithms if each.note]
    groups: dict[str, list[Algorithm]] = {}
    for each in told:
        groups.setdefault(each.limit_of or each.name, []).append(each)
    notes = []
    for target, group in groups.items():
        if len(group) == 1:
            notes.append(group[0].note)
            continue
        names = join_with_and([each.name for each in group])
        notes.append(f"{names} end where {target} does, by other rounds: same limit.")
    return notes


def asks_for_all(algorithms: Any) -> bool:
    """Whether every algorithm that has a name is asked for, other names of the same left out."""
    return isinstance(algorithms, str | list | tuple) and algorithms in ("all", ["all"], ("all",))


def as_names(algorithms: Any) -> Any:
    """Names for a file: algorithm objects are registered under theirs; the rest stays as it is."""
    if isinstance(algorithms, Algorithm):
        algorithms = [algorithms]
    if not isinstance(algorithms, list | tuple):
        return algorithms
    names = []
    for each in algorithms:
        if isinstance(each, Algorithm) and REGISTRY.get(each.name) != each:
            register(each)
        names.append(each.name if isinstance(each, Algorithm) else each)
    return names


def resolve(
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None,
    ridge: ArrayLike | None,
    maml_step: float,
) -> list[Algorithm]:
    """The algorithms asked for (default: the paper's) with the given ridge and MAML step."""
    step = amount("maml_step", maml_step)
    penalty = None if ridge is None else check_ridge(ridge)
    found = [find(entry) for entry in requested_algorithms(algorithms, PAPER)]
    if asks_for_all(algorithms):
        found = [each for each in found if each.correction is None]
    for each in found:
        check_uncorrected(each)
    chosen = [with_numbers(each, penalty, step) for each in found]
    if not chosen:
        raise InvalidInput(f"algorithms is empty: name at least one of {', '.join(PAPER)}")
    return chosen


def check_uncorrected(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose scores are corrected, where only models are known."""
    if algorithm.correction is not None:
        raise NoFormula(
            f"{algorithm.name} adds a client's class shares to its scores, which no limit and no"
            f" exact fit has: measure it with fa.train, or ask for"
            f" {algorithm.name.removesuffix(SHARED)}"
        )


def with_numbers(
    algorithm: Algorithm, ridge: float | np.ndarray | None, maml_step: float
) -> Algorithm:
    """The algorithm with a ridge, where it has one, and with MAML's step where it has none."""
    server = algorithm.server.fill_missing(local_step=maml_step)
    client = algorithm.personalise
    if ridge is not None and algorithm.has_ridge:
        client = client.at(ridge=ridge)
    if server is algorithm.server and client is algorithm.personalise:
        return algorithm
    return replace(algorithm, server=server, personalise=client)
