"""An algorithm is a pair of stages under one name; those that verbs know by name are the paper's,
those of installed packages, and those that a user registers.

For files, an algorithm is plain values: a stage by its name and settings, one from outside the
package with a digest of its source. Reading imports nothing: a stage whose code is not at hand
prints and is compared, and does no more.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms.methods import (
    Average,
    AverageSquares,
    BestStep,
    BestTime,
    Descend,
    Flow,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Posterior,
    Ridge,
    Share,
    Truth,
)
from fedasym.algorithms.stages import (
    ClientStage,
    Objective,
    ScoreStage,
    ServerStage,
    Setting,
    Stage,
)
from fedasym.core.errors import InvalidInput, NoFormula, read_list, unknown_name
from fedasym.core.numbers import amount, check_ridge, join_with_and

GROUP = "fedasym.algorithms"  # entry points by which an installed package brings algorithms
CHENG = "Cheng, Chadha and Duchi 2021"
STEPS = (0.0001, 0.001, 0.01, 0.1, 1)  # the paper's


@dataclass(frozen=True)
class Algorithm:
    """A server and a client stage under one name; formulas predict it, and any pair is trained.

    correction: what clients add to the scores of classes, in training alone.
    words: what it does, in a few; reference: where it is from. colour, marker, dash: how it is
    drawn. grid: what tuning tries by default, settings and their values. simplicity: its place
    among algorithms that do equally well, of which the first is taken. alias_of: the algorithm
    that it is under another name, limit_of: the one that it ends at by other rounds, and note: the
    sentence that says so. variant_of: whose settings in parentheses it takes, as in
    "fedavg(local_steps=20)".

    >>> import fedasym as fa
    >>> one_step = fa.Algorithm(
    ...     "one-step MAML", fa.algorithms.Meta(0.1), fa.algorithms.Descend(0.3)
    ... )
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> round(fa.predict(world, [one_step])["one-step MAML"].loss, 6)
    0.715
    """

    name: str
    server: ServerStage
    personalise: ClientStage
    correction: ScoreStage | None = field(default=None, kw_only=True)
    words: str = field(default="", compare=False, kw_only=True)
    reference: str = field(default="", compare=False, kw_only=True)
    colour: str | None = field(default=None, compare=False, kw_only=True)
    marker: str | None = field(default=None, compare=False, kw_only=True)
    dash: tuple[float, ...] = field(default=(), compare=False, kw_only=True)
    grid: Mapping[str, Sequence[float]] | None = field(
        default=None, compare=False, kw_only=True, repr=False
    )
    simplicity: float = field(default=math.inf, compare=False, kw_only=True, repr=False)
    alias_of: str = field(default="", compare=False, kw_only=True, repr=False)
    limit_of: str = field(default="", compare=False, kw_only=True, repr=False)
    variant_of: str = field(default="", compare=False, kw_only=True, repr=False)
    note: str = field(default="", compare=False, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(f"name is {self.name!r}: it must be text, which tables show")
        for kind, stage, base in (
            ("server", self.server, ServerStage),
            ("client", self.personalise, ClientStage),
        ):
            if not isinstance(stage, base):
                wrong = (
                    f"the class {stage.__name__}"
                    if isinstance(stage, type)
                    else type(stage).__name__
                )
                raise InvalidInput(
                    f"the {kind} stage of {self.name} is {wrong}: give one of fa.algorithms, "
                    f"or an instance of a subclass of fa.algorithms.{base.__name__}"
                )
        if not isinstance(self.correction, ScoreStage | None):
            raise InvalidInput(
                f"correction of {self.name} is a {type(self.correction).__name__}: give"
                " fa.algorithms.Share(), or leave it out"
            )

    @property
    def shares_nothing(self) -> bool:
        """Whether clients are on their own: the optimum's length matters, not its displacement."""
        return not self.server.shares

    @property
    def stages(self) -> tuple[ServerStage, ClientStage]:
        """Both."""
        return self.server, self.personalise

    @property
    def parts(self) -> dict[str, Stage]:
        """All of its stages by their role, the correction too where there is one."""
        both: dict[str, Stage] = {"server": self.server, "personalise": self.personalise}
        return both if self.correction is None else {**both, "correction": self.correction}

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that its stages bring, by name."""
        return {
            name: each for stage in self.parts.values() for name, each in stage.settings().items()
        }

    @property
    def fine_tunes(self) -> bool:
        """Whether clients descend from a shared model until they are told to stop."""
        return self.personalise.objective is Objective.OWN and not self.shares_nothing

    @property
    def interpolates(self) -> bool:
        """Whether clients of a linear model end at the interpolant next to where they started."""
        return self.personalise.linear_objective is Objective.OWN

    @property
    def is_penalised(self) -> bool:
        """Whether clients of a linear model are held by a squared penalty, their ridge."""
        return self.personalise.linear_objective is Objective.PENALISED

    @property
    def is_regularised(self) -> bool:
        """Whether its fits are exact, and clients keep the shared model or are held near it."""
        held = self.personalise.objective in (Objective.SHARED, Objective.PENALISED)
        return held and self.server.objective is not None

    @property
    def personal_from_server(self) -> bool:
        """Whether clients' own models come out of their work for the server, as in pFedMe."""
        return self.server.gives_personal(self.personalise)

    @property
    def takes_own_steps(self) -> bool:
        """Whether clients take steps of their own, from the shared model."""
        return self.personalise.step_count != 0 and not self.personal_from_server

    def default_grid(self) -> dict[str, list[float]]:
        """What tuning tries: its own grid, or steps for stages that take some, and its settings."""
        if self.grid is not None:
            return {name: list(values) for name, values in self.grid.items()}
        steps = {} if self.shares_nothing else {"server_step": list(STEPS)}
        if self.personalise.step_count != 0 and "local_step" not in self.personalise.settings():
            steps["local_step"] = list(STEPS)
        own = {
            name: list(each.grid)
            for stage in self.parts.values()
            for name, each in stage.settings().items()
            if each.grid and name in stage.relevant_settings()
        }
        return steps | own

    def with_steps(self, name: str, step: float, steps: int = 1) -> Algorithm:
        """The same shared model under another name, then so many own steps of a size from it."""
        return Algorithm(name, self.server, Descend(step, steps))

    @property
    def has_ridge(self) -> bool:
        """Whether a client is held by a ridge, of which theory and data know the best."""
        return "ridge" in self.personalise.settings()


# Colours are safe for the colour-blind: methods that learn alone in greys, those that share in
# colours. Grids are what the paper tunes over (appendix "Hyperparameter Tuning Details"); what it
# does not tune has none.
AVERAGE = Average()
KEEP = Keep()
PAPER = {
    each.name: each
    for each in (
        Algorithm(
            "local",
            Nothing(),
            Interpolate(),
            words="each client on its own",
            simplicity=5,
            colour="#9a9a9a",
            marker="v",
            grid={"local_step": (*STEPS, 10)},
        ),
        Algorithm(
            "local_ridge",
            Nothing(),
            Ridge(),
            words="each client on its own, with a ridge",
            simplicity=4,
            colour="#5f5f5f",
            marker="^",
        ),
        Algorithm(
            "fedavg",
            AVERAGE,
            KEEP,
            words="one model for all",
            simplicity=0,
            reference="McMahan et al. 2017",
            colour="#e69f00",
            marker="s",
            grid={"server_step": (*STEPS, 10)},
        ),
        Algorithm(
            "ftfa",
            Average(),
            Interpolate(),
            words="FedAvg, then fine-tuning to convergence",
            simplicity=1,
            reference=CHENG,
            colour="#56b4e9",
            marker="o",
            grid={"server_step": STEPS, "local_step": STEPS},
        ),
        Algorithm(
            "rtfa",
            Average(),
            Ridge(),
            words="FedAvg, then a ridge towards it",
            simplicity=2,
            reference=CHENG,
            colour="#0072b2",
            marker="D",
            grid={
                "server_step": STEPS,
                "local_step": STEPS,
                "ridge": Ridge.settings()["ridge"].grid,
            },
        ),
        Algorithm(
            "maml",
            Meta(),
            Interpolate(),
            words="a shared model that is good after one step",
            simplicity=6,
            reference="Fallah et al. 2020",
            colour="#cc79a7",
            marker="P",
        ),
        Algorithm(
            "pfedme",
            Moreau(),
            Ridge(),
            words="shared and personal models together, tied by a ridge",
            simplicity=3,
            reference="Dinh et al. 2020",
            colour="#009e73",
            marker="*",
            grid={"server_step": (0.0005, 0.005, 0.05), "mixing": Moreau.settings()["mixing"].grid},
        ),
    )
}
# of an inner problem, where a run gives none
USUAL_PENALTY = Moreau.settings()["ridge"].usual or 0.0
SIMPLEST = tuple(sorted(PAPER, key=lambda name: PAPER[name].simplicity))  # the first first
TRAINED = PAPER | {
    each.name: each
    for each in (
        Algorithm(
            "maml_fo",
            Meta(hessian="dropped"),
            Interpolate(),
            words="MAML without its Hessian",
            reference="Fallah et al. 2020",
            colour="#882255",
            marker="X",
            grid={"server_step": STEPS, "local_step": STEPS},
        ),
        Algorithm(
            "maml_hf",
            Meta(hessian="free"),
            Interpolate(),
            words="MAML with its Hessian by differences",
            reference="Fallah et al. 2020",
            colour="#d55e00",
            marker="<",
            dash=(4.0, 2.0),
            grid={
                "server_step": STEPS,
                "local_step": STEPS,
                "difference": Meta.settings()["difference"].grid,
            },
        ),
    )
}
CEILINGS = {  # rows of a table that are no algorithms
    each.name: each
    for each in (
        Algorithm("bayes", Average(), Posterior(), words="best of all methods if theta_0 is known"),
        Algorithm("truth", Nothing(), Truth(), words="the client's own optimum, known"),
    )
}
CLASSES = CEILINGS | {  # what has a name with classes alone
    each.name: each
    for each in (
        Algorithm(
            "one_step", Average(), BestStep(), words="FedAvg, then one gradient step, as in MAML"
        ),
        Algorithm(
            "stopped",
            Average(),
            BestTime(),
            words="FedAvg, then gradient descent until the best time",
        ),
        Algorithm(
            "ftfa_squares",
            AverageSquares(),
            Interpolate(),
            words="ftfa with the squared loss on labels",
        ),
        Algorithm(
            "rtfa_squares", AverageSquares(), Ridge(), words="rtfa with the squared loss on labels"
        ),
    )
}


def averaging_twin(algorithm: Algorithm) -> Algorithm:
    """The paper's algorithm with the same client stage whose shared model is FedAvg's.

    >>> averaging_twin(PAPER["maml"]).name, averaging_twin(PAPER["pfedme"]).name
    ('ftfa', 'rtfa')
    """
    return next(
        each
        for each in PAPER.values()
        if each.server.objective is Objective.POOLED and each.personalise == algorithm.personalise
    )


SHARES = "fedavg_share"  # one model for all, with clients' class shares
SHARED = "_share"  # behind the name of an algorithm: clients add their class shares


def with_shares(algorithm: Algorithm, correction: ScoreStage | None = None) -> Algorithm:
    """The algorithm whose clients also add their class shares to the scores, as `<name>_share`.

    >>> with_shares(PAPER["rtfa"]).name, with_shares(PAPER["rtfa"]).default_grid()["share_power"]
    ('rtfa_share', [0.25, 0.5, 1.0, 1.5])
    """
    if algorithm.correction is not None:
        return algorithm
    added = Share() if correction is None else correction
    tuned = {name: list(each.grid) for name, each in added.settings().items() if each.grid}
    return replace(
        algorithm,
        name=f"{algorithm.name}{SHARED}",
        correction=added,
        words=f"{algorithm.words}; scores with the client's class shares",
        grid=algorithm.default_grid() | tuned,
        dash=(2.0, 1.0),
        simplicity=math.inf,
        alias_of="",
        variant_of="",
        note="",
    )


class Registry(Mapping[str, Algorithm]):
    """Algorithms by name; installed packages are asked for a name that is not known otherwise."""

    def __init__(self, first: Mapping[str, Algorithm]) -> None:
        self._known = dict(first)
        self._built_in = frozenset((*first, *CLASSES))
        self._described: dict[str, Algorithm] = {}  # by files of results: names without code

    def register(self, algorithm: Algorithm) -> Algorithm:
        """Make an algorithm known to all verbs by its name, in place of any other of that name."""
        if not isinstance(algorithm, Algorithm):
            raise InvalidInput(f"algorithm is a {type(algorithm).__name__}: give an fa.Algorithm")
        if self.is_built_in(algorithm.name):
            raise InvalidInput(
                f"name is {algorithm.name!r}, which the package has: give the algorithm another"
                " name"
            )
        if not algorithm.name or ":" in algorithm.name or algorithm.name != algorithm.name.strip():
            raise InvalidInput(f"name is {algorithm.name!r}: it must be a word, without ':'")
        self._known[algorithm.name] = algorithm
        return algorithm

    def include(self, algorithms: Iterable[Algorithm], stages: Iterable[type[Stage]]) -> None:
        """Take in more of the package's own, with the stages that files may name."""
        brought = {each.name: each for each in algorithms}
        self._known.update(brought)
        self._built_in |= set(brought)
        STAGES.update({each.__name__: each for each in stages})

    def is_built_in(self, name: str) -> bool:
        """Whether an algorithm is the package's own, with class shares or without."""
        return name in self._built_in or name.removesuffix(SHARED) in self._built_in

    def remember(self, algorithm: Algorithm) -> None:
        """Know the name of an algorithm in a file until one of that name is registered."""
        self._described[algorithm.name] = algorithm

    def look_up(self, name: str) -> Algorithm | None:
        """The algorithm of a name if it is known without importing anything."""
        found = self._known.get(name) or self._described.get(name)
        if found is not None or not isinstance(name, str) or not name.endswith(SHARED):
            return found
        plain = self.look_up(name.removesuffix(SHARED))
        return None if plain is None else with_shares(plain)

    def read_packages(self) -> None:
        """Know what installed packages bring."""
        for name, algorithm in read_entry_points().items():
            self._known.setdefault(name, algorithm)

    def __getitem__(self, name: str) -> Algorithm:
        if (found := self.look_up(name)) is not None:
            return found
        self.read_packages()
        found = self.look_up(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        self.read_packages()
        return iter(dict.fromkeys((*self._known, *self._described)))

    def __len__(self) -> int:
        return len(list(iter(self)))


@cache
def read_entry_points() -> dict[str, Algorithm]:
    """The entry points of installed packages by name; a broken one is reported and left out."""
    # which takes longer to import than a prediction takes
    from importlib.metadata import entry_points

    found: dict[str, Algorithm] = {}
    for point in entry_points(group=GROUP):
        try:
            algorithm = point.load()
        except (
            Exception
        ) as reason:  # whatever it is: the others, and runs that do not ask for it, must go on
            algorithm = f"{type(reason).__name__}: {reason}"
        if isinstance(algorithm, Algorithm):
            found[algorithm.name] = algorithm
            continue
        told = algorithm if isinstance(algorithm, str) else "it is not an fa.Algorithm"
        warnings.warn(
            f"{point.value!r} of an installed package is left out: {told}; fix or uninstall it",
            stacklevel=2,
        )
    return found


REGISTRY = Registry(TRAINED)


def register(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known to every verb and command by its name; returns it.

    >>> import fedasym as fa
    >>> halfway = fa.Algorithm("halfway", fa.algorithms.Average(), fa.algorithms.Ridge(1.0))
    >>> fa.algorithms.register(halfway).name, fa.algorithms.find("halfway") is halfway
    ('halfway', True)
    """
    return REGISTRY.register(algorithm)


def find(
    entry: Any, more: Mapping[str, Algorithm] | None = None, others: Iterable[str] = ()
) -> Algorithm:
    """The algorithm meant: an object, a registered name, or a `module:name` to import.

    "share(rtfa)" or "rtfa_share" is an algorithm whose clients also add their class shares. Names
    may be written as papers do. more: algorithms that have a name here alone. others: what else a
    caller knows by name, for the refusal.

    >>> find("Per-FedAvg").name, find("FedAvg(local_steps=20)").server.local_steps
    ('per_fedavg', 20)
    >>> find("rtfa").words, find("fedasym.algorithms.registry:REGISTRY")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedasym.InvalidInput: algorithm is 'fedasym.algorithms.registry:REGISTRY': it is a ...
    """
    if isinstance(entry, Algorithm):
        return entry
    if isinstance(entry, str) and ":" in entry:
        return import_algorithm(entry)
    if isinstance(entry, str) and more is not None and entry in more:
        return more[entry]
    if isinstance(entry, str) and entry.startswith("share(") and entry.endswith(")"):
        return with_shares(find(entry[len("share(") : -1].strip(), more, others))
    if isinstance(entry, str) and entry.endswith(")") and "(" in entry:
        return read_call(entry, more, others)
    for name in (entry, entry.lower().replace("-", "_")) if isinstance(entry, str) else ():
        if name in REGISTRY:
            return REGISTRY[name]
    raise unknown_name("algorithm", entry, (*REGISTRY, *(more or ()), *others))


def read_call(
    entry: str, more: Mapping[str, Algorithm] | None = None, others: Iterable[str] = ()
) -> Algorithm:
    """An algorithm with settings of its own: "fedprox(penalty=1)", "fedavg(local_steps=20)".

    >>> read_call("fedavg(local_steps=20)").server.local_steps
    20
    """
    base, _, inside = entry[:-1].partition("(")
    algorithm = find(base.strip(), more, others)
    base = algorithm.name
    values: dict[str, float] = {}
    for part in filter(str.strip, inside.split(",")):
        name, equals, text = (each.strip() for each in part.partition("="))
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not equals or math.isnan(number):
            raise InvalidInput(
                f"algorithm is {entry!r}: {part.strip()!r} is not a setting with a number; write"
                f" {base}(setting=number)"
            )
        values[name] = int(number) if number.is_integer() else number
    kin = [algorithm, *(each for each in REGISTRY.values() if each.variant_of == base)]
    meant = next((each for each in kin if set(values) <= set(each.settings)), None)
    if meant is None:
        known = dict.fromkeys(name for each in kin for name in each.settings)
        bad = next(name for name in values if name not in known)
        raise unknown_name(f"setting of {base}", bad, known)
    parts: dict[str, Any] = {
        role: replace(stage, **{name: values[name] for name in values if name in stage.settings()})
        for role, stage in meant.parts.items()
    }
    return replace(meant, name=entry, **parts)


def import_algorithm(path: str) -> Algorithm:
    """The algorithm at `module:name`."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a command's path does not have the folder it is typed in
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as reason:
        raise InvalidInput(
            f"algorithm is {path!r}: {reason}; is its folder on PYTHONPATH?"
        ) from None
    except AttributeError:
        raise InvalidInput(
            f"algorithm is {path!r}: {module} has no {name}; check the spelling"
        ) from None
    if not isinstance(found, Algorithm):
        raise InvalidInput(
            f"algorithm is {path!r}: it is a {type(found).__name__}, not an fa.Algorithm"
        )
    return found


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


STAGES: dict[str, type[Any]] = {  # the package's own that files may name
    each.__name__: each
    for each in (Nothing, Average, Meta, Moreau, Keep, Interpolate, Ridge, Descend, Flow, Share)
}


ALGORITHMS = (  # in a folder of results: what is known of algorithms from outside the package
    "algorithms.json"
)


class Stored(Stage, eq=False):
    """A stage of a file whose code is not here: name, settings, and the digest of its source."""

    has_code = False
    name: str
    values: tuple[tuple[str, Any], ...]
    code: str

    def __post_init__(self) -> None:
        """Nothing is known of what the values may be."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in dict(self.values):
            raise AttributeError(name)
        return dict(self.values)[name]

    def settings(self) -> dict[str, Setting]:  # type: ignore[override]
        """The numbers that it had."""
        numbers = {
            name: value for name, value in self.values if isinstance(value, int | float | None)
        }
        return {
            name: Setting(name, value, whole=isinstance(value, int))
            for name, value in numbers.items()
        }

    def step(self, w: Any, start: Any, gradient: Any, rate: Any) -> Any:
        """Refused."""
        raise missing_code_error(self.name)


class StoredServer(Stored, ServerStage):
    """A server stage of which a file keeps the name."""


class StoredClient(Stored, ClientStage):
    """A client stage of which a file keeps the name."""


class StoredScores(Stored, ScoreStage):
    """A score stage of which a file keeps the name."""


def missing_code_error(name: str) -> NoFormula:
    """The sentence for a stage whose code is not here."""
    return NoFormula(
        f"the code of the stage {name} is in no file: register its algorithm to train it again"
    )


def describe_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """Name and stages as plain values.

    >>> read_algorithm(describe_algorithm(REGISTRY["maml"])) == REGISTRY["maml"]
    True
    """
    described = {
        "name": algorithm.name,
        "server": describe_stage(algorithm.server),
        "client": describe_stage(algorithm.personalise),
    }
    if algorithm.correction is not None:
        described["correction"] = describe_stage(algorithm.correction)
    return described


def describe_stage(stage: Stage) -> dict[str, Any]:
    """A stage by name, settings and, unless it is the package's own, the digest of its source."""
    if isinstance(stage, Stored):
        return {"stage": stage.name, "code": stage.code, **dict(stage.values)}
    held = {
        each.name: plain_value(getattr(stage, each.name))
        for each in fields(stage)
        if "rule" not in each.metadata
    }
    name = type(stage).__name__
    own = {} if is_built_in(type(stage)) else {"code": stage.digest()}
    return {"stage": name, **own, **held}


def is_built_in(kind: type[Stage]) -> bool:
    """Whether a stage is the package's own."""
    return STAGES.get(kind.__name__) is kind


def plain_value(value: Any) -> Any:
    """A number, a word, or an array as lists."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def read_algorithm(described: Mapping[str, Any]) -> Algorithm:
    """The described algorithm; the registered one of this name where the two are the same."""
    name = described["name"]
    known = REGISTRY.get(name) if isinstance(name, str) else None
    server = read_stage(described["server"], StoredServer, None if known is None else known.server)
    client = read_stage(
        described["client"], StoredClient, None if known is None else known.personalise
    )
    added = described.get("correction")
    scores = None
    if added is not None:
        scores = read_stage(added, StoredScores, None if known is None else known.correction)
    made = Algorithm(name, server, client, correction=scores)
    if known == made or known is None:
        return made if known is None else known
    return replace(known, server=server, personalise=client, correction=scores)


def read_stage(described: Mapping[str, Any], stored: type[Any], known: Stage | None) -> Any:
    """A stage of the package, a registered one with the same code, or one that is only a name."""
    values = dict(described)
    name, code = values.pop("stage"), values.pop("code", None)
    if code is None:
        if name not in STAGES:
            raise InvalidInput(f"the stage {name!r} is none of {', '.join(STAGES)}: save it again")
        return STAGES[name](**values)
    if known is not None and type(known).__name__ == name and known.digest() == code:
        return type(known)(**values)
    return stored(str(name), tuple(values.items()), str(code))


def describe_brought(names: Iterable[str]) -> str | None:
    """Those of these algorithms that are not the package's own, as JSON; None: there are none."""
    brought = [
        describe_algorithm(REGISTRY[name]) for name in names if not REGISTRY.is_built_in(name)
    ]
    return json.dumps(brought, indent=2) + "\n" if brought else None


def remember_brought(folder: Path) -> None:
    """Know the names of algorithms that a folder of results describes, without importing any."""
    file = folder / ALGORITHMS
    if not file.is_file():
        return
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        for each in described:
            REGISTRY.remember(read_algorithm(each))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidInput(
            f"{file} is damaged: run the experiment again, it goes on from here"
        ) from None
