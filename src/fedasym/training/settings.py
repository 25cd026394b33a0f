"""What a training run is told: sizes, steps and penalties with the paper's defaults, the protocol
they are used under; and whether the steps of an algorithm can be taken.

A step must be a function of what it is given: one that keeps something outside itself, or draws
random numbers, would be compiled once and repeated. It may add, subtract and multiply models, as
these are not always held as matrices. Steps of stages from outside the package are tried on a small
model before anything is trained.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from fedasym.algorithms import Algorithm, asks_for_all, find, verbs_of
from fedasym.algorithms.paper import SHARED
from fedasym.algorithms.registry import REGISTRY, is_built_in
from fedasym.algorithms.stages import ClientStage, ServerStage, Setting, Stage, setting
from fedasym.core.errors import InvalidInput, NoFormula, find_entry, read_list, unknown_name
from fedasym.core.numbers import flag, one_float
from fedasym.core.privacy import Privacy
from fedasym.data.federation import Federation

Verb = TypeVar("Verb", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=Stage)
LARGEST = 2**31 - 1  # of the whole numbers that JAX counts with
RIDGE = 0.1  # where neither a run nor a stage says another


@dataclass(frozen=True)
class Settings:
    """The numbers of one configuration (appendix "Hyperparameter Tuning Details";
    `docs/notation.md` has the letters).

    >>> Settings(server_step=0.01).local_steps
    20
    """

    rounds: int = setting(
        default=400,
        least=0,
        meaning="communication rounds (R); local training takes as many epochs",
    )
    evaluate_every: int = setting(
        default=50,
        least=0,
        meaning=(
            "all clients are personalised and tested each time this many rounds are done; 0: only"
            " after the last"
        ),
    )
    cohort: int | None = setting(
        default=None,
        least=1,
        whole=True,
        meaning="clients drawn in a round (D); 20, or all where there are fewer",
    )
    local_steps: int = setting(
        default=20, least=1, meaning="batches that a drawn client trains on (K)"
    )
    batch: int = setting(default=32, least=1, meaning="samples in a batch (B)")
    personal_epochs: int = setting(
        default=10, least=0, meaning="passes over a client's own samples in personalization (P)"
    )
    server_step: float = setting(
        default=0.1, least=0, meaning="step size of local work for the shared model (eta)"
    )
    local_step: float = setting(
        default=0.1,
        least=0,
        meaning="step size of personalization, and of MAML's inner step (alpha)",
    )
    ridge: float | None = setting(
        default=None,
        least=0,
        meaning=(
            "penalty on the distance to the shared model (lambda); 15 for pFedMe, 0.1 elsewhere"
        ),
    )
    difference: float = setting(
        default=1e-3, above=0, meaning="finite difference for MAML's Hessian (delta)"
    )
    mixing: float = setting(
        default=1.0, least=0, meaning="weight of the new average in pFedMe (beta)"
    )
    inner_step: float = setting(
        default=0.05, least=0, meaning="step size of pFedMe's inner problem"
    )
    inner_steps: int = setting(default=5, least=1, meaning="steps of pFedMe's inner problem")
    own: tuple[
        tuple[str, float], ...
    ] = ()  # settings that an algorithm's stages bring beside these
    privacy: Privacy | None = None  # clipping and noise of every round; None: neither

    def __post_init__(self) -> None:
        for name, about in ABOUT.items():
            value = getattr(self, name)
            if value is None and about.default is None:
                continue
            if about.whole:
                least = int(about.least or 0)
                if not is_size(value, least):
                    end = f" and at most {LARGEST}" if is_size(value, least, math.inf) else ""
                    raise InvalidInput(
                        f"{name} is {value!r}: it must be a whole number of at least {least}{end}"
                    )
                object.__setattr__(self, name, int(value))
                continue
            if not is_rate(value):
                raise InvalidInput(f"{name} is {value!r}: it must be a finite number of at least 0")
            object.__setattr__(self, name, float(value))
        if self.difference == 0:
            raise InvalidInput(
                'difference is 0: it must be above 0; for the exact Hessian train "maml"'
            )

    def value_of(self, name: str) -> Any:
        """A setting by its name, of the run or of a stage."""
        return dict(self.own)[name] if name in dict(self.own) else getattr(self, name)

    @property
    def evaluated_rounds(self) -> list[int]:
        """The rounds of tests: 0, every `evaluate_every`-th and the last; or the last alone."""
        return [
            *(range(0, self.rounds, self.evaluate_every) if self.evaluate_every else ()),
            self.rounds,
        ]


ABOUT = {  # what each setting of every run may be, and what it means
    each.name: replace(each.metadata["setting"], name=each.name)
    for each in fields(Settings)
    if "setting" in each.metadata
}
SETTINGS = tuple(ABOUT)
# numbers that one program takes many of
RATES = tuple(name for name, each in ABOUT.items() if not each.whole)
SIZES = tuple(name for name, each in ABOUT.items() if each.whole)
# which are chosen for the data where nobody says them
CHOSEN = ("server_step", "local_step", "inner_step")


def default_for(name: str) -> Any:
    """A setting's default where nobody says it; None: chosen for the data, or by the algorithm."""
    return None if name in CHOSEN else ABOUT[name].default


def takes_settings(function: Verb) -> Verb:
    """Show the settings of every run in the signature of a verb with keyword arguments."""
    signature = inspect.signature(function)
    kinds = inspect.Parameter
    first: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        (
            first if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) else last
        ).append(each)
    told = [
        kinds(
            name,
            kinds.KEYWORD_ONLY,
            default=default_for(name),
            annotation=int if about.whole else float,
        )
        for name, about in ABOUT.items()
    ]
    shown = signature.replace(parameters=[*first, *told, *last])
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def is_size(value: Any, least: int, most: float = LARGEST) -> bool:
    """Whether it is a whole number that is large enough, and small enough to be counted up to."""
    return (
        isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most
    )


def is_rate(value: Any) -> bool:
    """Whether it is a finite number of at least 0."""
    return (
        isinstance(value, Real) and not isinstance(value, bool) and 0 <= one_float(value) < math.inf
    )


@dataclass(frozen=True)
class Protocol:
    """Choices on which the paper's text and code differ; `docs/how-to/train.md` lists them."""

    name: str
    intercept: bool  # whether the head has one, as a last row
    random_start: bool  # the first shared head: uniform in +-1/sqrt(d), or zero
    continued_passes: (
        bool  # a client drawn again goes on where its pass stopped, or starts a new one
    )
    penalty: float  # the gradient of RTFA's penalty is this times ridge (theta - theta_0)
    warm_start: bool  # pFedMe's inner problem starts from the last theta, or from w
    decay: float  # weight decay inside pFedMe's inner problem
    test_inner: bool  # pFedMe's personal model is theta, or the local w
    count_padding: bool  # padded positions of sequences are trained on and counted
    passes_ahead: int = 0  # local training's passes before its first test: round r is r + so many


TEXT = Protocol("text", False, False, False, 1.0, False, 0.0, True, False)
CODE = Protocol("code", True, True, True, 2.0, True, 0.001, False, True, 1)


def find_protocol(name: str | Protocol) -> Protocol:
    """The protocol of that name; one composed with `dataclasses.replace` is taken as it is."""
    return (
        name
        if isinstance(name, Protocol)
        else find_entry("protocol", name, {each.name: each for each in (TEXT, CODE)})
    )


def with_intercept(protocol: Protocol, intercept: bool | None) -> Protocol:
    """The protocol with an intercept or without one, named so where that is not its own choice.

    >>> (
    ...     with_intercept(TEXT, True).name,
    ...     with_intercept(CODE, True).name,
    ...     with_intercept(CODE, None).intercept,
    ... )
    ('text with intercept', 'code', True)
    """
    if intercept is None or flag("intercept", intercept) == protocol.intercept:
        return protocol
    name = f"{protocol.name} {'with' if intercept else 'without'} intercept"
    return replace(protocol, intercept=intercept, name=name)


def resolve_protocol(
    name: str | Protocol | None, intercept: bool | None, of_data: bool | None = None
) -> Protocol:
    """A run's rules: a given intercept decides, else a named protocol, else what the data say.

    of_data: the federation's `intercept`. Without a protocol named, all other rules are those of
    the paper's text.

    >>> (
    ...     resolve_protocol(None, None, of_data=True).name,
    ...     resolve_protocol("text", None, of_data=True).name,
    ... )
    ('text with intercept', 'text')
    """
    if name is None:
        return with_intercept(TEXT, of_data if intercept is None else intercept)
    return with_intercept(find_protocol(name), intercept)


def resolve_ridge(settings: Settings, algorithm: Algorithm) -> Settings:
    """Put in the ridge: the one the algorithm fixes, the given one, its default, or the paper's;
    and the local steps that it fixes.
    """
    stages = [
        stage for stage in (algorithm.personalise, algorithm.server) if "ridge" in stage.settings()
    ]
    fixed = [stage.get("ridge") for stage in stages if "ridge" in fixed_settings(stage)]
    if fixed and np.ndim(fixed[0]):
        raise InvalidInput(
            f"{algorithm.name} has the ridges {fixed[0]!r}: training takes one number; vary it with"
            " grid"
        )
    about = [stage.settings()["ridge"] for stage in stages]
    defaults = [each.default for each in about] + [each.usual for each in reversed(about)]
    default = next((value for value in defaults if value is not None), RIDGE)
    given = np.asarray(fixed[0]).item() if fixed else settings.ridge
    sizes = {
        name: getattr(algorithm.server, name)
        for name in ("local_steps", "server_step")
        if name in fixed_settings(algorithm.server)
    }
    return replace(settings, ridge=default if given is None else given, **sizes)


def check_trainable(algorithm: Algorithm) -> None:
    """Refuse what has no stochastic form."""
    if (plain := algorithm.personalise.plain_stage) is not None:
        algorithm = replace(algorithm, personalise=plain)
    name = algorithm.name
    still = (algorithm.shares_nothing, algorithm.personalise.step_count == 0)
    for stage, takes_none in zip(algorithm.stages, still, strict=True):
        if stage.untrainable:
            raise NoFormula(f"{name} {stage.untrainable}")
        taken = [each for each in stage.settings() if each in SETTINGS and each != "ridge"]
        if taken and not is_built_in(type(stage)):
            raise InvalidInput(
                f"{type(stage).__name__} has the setting {taken[0]}, which every run has: give it"
                " another name"
            )
        if not takes_none and not stage.owns("step"):
            raise NoFormula(
                f"{name} cannot be trained: {type(stage).__name__} has no step(w, start, gradient,"
                " rate)"
            )
    if algorithm.personalise.batches != 1:
        raise InvalidInput(
            f"{name} takes {algorithm.personalise.batches!r} batches a step: it must be 1 in a"
            " client stage"
        )
    server = algorithm.server
    if server.keeps_client() and not server.owns("finish"):
        raise NoFormula(
            f"{name} cannot be trained: {type(server).__name__} has no finish(w, start, state,"
            " rate, steps)"
        )
    if not is_size(algorithm.server.batches, 1):
        raise InvalidInput(
            f"{name} takes {algorithm.server.batches!r} batches a step: it must be a whole number"
            " of at least 1"
        )


def own_settings(algorithm: Algorithm) -> dict[str, Setting]:
    """The numbers that an algorithm's stages bring beside those of every run, by name."""
    unused: set[str] = set()
    for stage in algorithm.stages:
        unused |= set(stage.settings()) - stage.relevant_settings()
    numbers = {
        name: each
        for name, each in algorithm.settings.items()
        if not each.choices and name != "steps" and name not in unused
    }
    return {name: each for name, each in numbers.items() if name not in SETTINGS}


def default_of(algorithm: Algorithm, name: str) -> Any:
    """The value that an algorithm's own setting has where nobody says another."""
    stage = next(each for each in algorithm.parts.values() if name in each.settings())
    value = getattr(stage, name)
    return stage.settings()[name].usual if value is None else value


def fixed_settings(stage: Stage) -> set[str]:
    """The settings for which a stage has a value of its own, instead of the run's."""
    return {
        name
        for name, each in stage.settings().items()
        if getattr(stage, name) is not None and np.any(getattr(stage, name) != each.default)
    }


def used_settings(algorithm: Algorithm) -> tuple[str, ...]:
    """The settings that matter to an algorithm, in the order of their fields, its own last."""
    server, client = algorithm.server, algorithm.personalise
    used = {"rounds", "evaluate_every", "batch"}
    if not algorithm.shares_nothing:
        used |= set() if server.reads_sums else {"cohort", "local_steps", "server_step"}
        used |= server.relevant_settings() - fixed_settings(server)
    if algorithm.takes_own_steps:
        used |= {"local_step"} if "local_step" not in client.settings() else set()
        used |= (
            {"personal_epochs"}
            if client.step_count is None and not algorithm.shares_nothing
            else set()
        )
        # a run's ridge is the stage's, if it has one
        used |= client.relevant_settings() - (fixed_settings(client) - {"ridge"})
    return (*(name for name in SETTINGS if name in used), *own_settings(algorithm))


def named_settings(settings: Settings, algorithm: Algorithm) -> dict[str, Any]:
    """What an algorithm uses of its settings, by name."""
    used = {name: settings.value_of(name) for name in used_settings(algorithm)}
    return used | dict(settings.own) | privacy_settings(settings.privacy)


def privacy_settings(privacy: Privacy | None) -> dict[str, Any]:
    """What a run was told of privacy, by name; nothing where it is not private."""
    if privacy is None:
        return {}
    told = {each.name: getattr(privacy, each.name) for each in fields(privacy)}
    told.pop("accountant")
    return {name: value for name, value in told.items() if value is not None}


def bind_stage(stage: Kind, settings: Settings, protocol: Protocol) -> Kind:
    """The stage with a run's numbers (its own, those it fixes, the run's) and protocol's rules."""
    fixed = fixed_settings(stage)
    own = dict(settings.own)
    values = {name: getattr(protocol, name) for name in stage.rules() if hasattr(protocol, name)}
    for name, each in stage.settings().items():
        if name in own:
            values[name] = own[name]
        elif name not in fixed and not each.choices and hasattr(settings, name):
            values[name] = getattr(settings, name)
    return stage.at(**values)


def own_rate(stage: ClientStage, settings: Settings) -> float:
    """The size of a client's own steps: the stage's, where it says one."""
    return float(getattr(stage, "local_step", settings.local_step))


SHAPE = (3, 2)
RATE = 0.125


class Vector:
    """A model on which only what a step may do is defined; anything else is refused in words."""

    __array_ufunc__ = None

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, other: Any) -> Vector:
        return (
            Vector(self.values + other.values)
            if isinstance(other, Vector)
            else refuse("added to a number")
        )

    def __sub__(self, other: Any) -> Vector:
        return (
            Vector(self.values - other.values)
            if isinstance(other, Vector)
            else refuse("reduced by a number")
        )

    def __mul__(self, number: Any) -> Vector:
        return (
            refuse("multiplied by a model")
            if isinstance(number, Vector)
            else Vector(self.values * number)
        )

    def __truediv__(self, number: Any) -> Vector:
        return (
            refuse("divided by a model")
            if isinstance(number, Vector)
            else Vector(self.values / number)
        )

    def __neg__(self) -> Vector:
        return Vector(-self.values)

    __rmul__ = __mul__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refuse(f"asked for .{name}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return refuse("given to a function of NumPy, such as a norm")

    def __getitem__(self, _: Any) -> Any:
        return refuse("indexed")

    def __abs__(self) -> Any:
        return refuse("given to abs")

    def __pow__(self, _: Any) -> Any:
        return refuse("raised to a power")

    def __matmul__(self, _: Any) -> Any:
        return refuse("multiplied by a model")

    def __float__(self) -> Any:
        return refuse("taken for a number")

    def __lt__(self, _: Any) -> Any:
        return refuse("compared")

    __gt__ = __le__ = __ge__ = __lt__
    __radd__ = __add__
    __rsub__ = __sub__
    __rmatmul__ = __matmul__


def refuse(what: str) -> Any:
    """The sentence for what a model cannot do."""
    raise InvalidInput(
        f"a model is {what}: in a step, models and gradients may be added, subtracted and"
        " multiplied by numbers, nothing else"
    )


class Quadratic:
    """gradient(w, batch) of |w - c|^2/2 times a number of the batch's own."""

    def __init__(self, batches: int) -> None:
        rng = np.random.default_rng(0)
        self.centres = rng.standard_normal((batches, *SHAPE))
        self.batches = batches

    def __call__(self, at: Vector, batch: int = 0) -> Vector:
        """Of one of the batches."""
        if batch not in range(self.batches):
            raise InvalidInput(
                f"gradient is asked for batch {batch}, but a step has {self.batches}, from 0: set"
                " `batches`"
            )
        return Vector((batch + 1) * (at.values - self.centres[batch]))

    def along(
        self, at: Vector, direction: Vector, batch: int = 0, difference: float | None = None
    ) -> Vector:
        """The Hessian times a direction, which a finite difference finds exactly."""
        return Vector((batch + 1) * direction.values)

    def own_part(self, of: Vector) -> Vector:
        """All weights are a client's own."""
        return of

    def common_part(self, of: Vector) -> Vector:
        """None is the same for all clients."""
        return 0 * of

    def repeat(self, count: int, step: Callable[[Any], Any], w: Vector) -> Vector:
        """A step, over and over."""
        for _ in range(count):
            w = step(w)
        return w


def check_steps(algorithm: Algorithm) -> None:
    """Refuse a step that fails, sees more than it is given, or misuses models."""
    for stage in algorithm.stages:
        if not is_built_in(type(stage)) and stage.has_code and stage.owns("step"):
            check_step(algorithm.name, stage)


def check_step(name: str, stage: Stage) -> None:
    """Take the same step three times, from the same place and state."""
    where = f"step of {type(stage).__name__} ({name})"
    try:
        answers = [try_steps(stage) for _ in range(3)]
    except InvalidInput as reason:
        raise InvalidInput(f"{where}: {reason}") from None
    except Exception as reason:
        raise InvalidInput(
            f"{where} fails on a model of {SHAPE[0]} x {SHAPE[1]} numbers: {type(reason).__name__}:"
            f" {reason}; it is called as step(w, start, gradient, rate), and with a state where the"
            " stage has `init`"
        ) from reason
    for other in answers[1:]:
        if not all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(answers[0], other, strict=True)
        ):
            raise InvalidInput(
                f"{where} gives another answer when it is repeated: it draws random numbers, or"
                " keeps something outside itself; what a step must remember goes into a state"
                " (`init`, and one more argument)"
            )


def as_vectors(kept: Any) -> Any:
    """What a server keeps as steps see it: matrices are models."""
    if isinstance(kept, tuple):
        return tuple(as_vectors(each) for each in kept)
    return Vector(kept) if np.shape(kept) == SHAPE else kept


def try_steps(stage: Stage) -> list[Any]:
    """The model after each of two steps."""
    rng = np.random.default_rng(1)
    start = Vector(rng.standard_normal(SHAPE))
    w = Vector(rng.standard_normal(SHAPE))
    gradient = Quadratic(stage.batches)
    bound = copy.copy(stage).fill_missing(**dict.fromkeys(stage.settings(), 0.5))
    state: Any = None
    if isinstance(bound, ServerStage) and bound.keeps_client():
        state = bound.init_client(start), as_vectors(bound.init_server(start.values))
    elif stage.has_state():
        state = bound.init(start)
    seen = []
    for _ in range(2):
        w, state = bound.advance((w, start, gradient, RATE), state)
        if not isinstance(w, Vector):
            raise InvalidInput(
                f"it returned {type(w).__name__}: it must return a model, made of w, start and"
                " gradients"
            )
        if w.values.shape != SHAPE:
            raise InvalidInput("it returned a model of another shape")
        seen.append(w.values)
    return seen


def check_own(algorithms: Sequence[Algorithm], told: Iterable[str]) -> None:
    """Refuse a setting that neither every run nor any of these algorithms has."""
    known = (*SETTINGS, *(name for algorithm in algorithms for name in own_settings(algorithm)))
    for name in told:
        if name not in known:
            raise unknown_name("setting", name, known)


def check_corrections(algorithms: Sequence[Algorithm], federation: Federation) -> None:
    """Refuse corrections of classes' scores where numbers are predicted."""
    for algorithm in algorithms:
        if algorithm.correction is not None and federation.classes is None:
            raise InvalidInput(
                f"{algorithm.name} adds the shares of a client's classes, and these labels are"
                f" numbers: train {algorithm.name.removesuffix(SHARED)}"
            )


def check_whole_numbers(name: str, values: Iterable[int]) -> list[int]:
    """Seeds, or numbers of splits, each once."""
    numbers = read_list(name, values)
    if not numbers:
        raise InvalidInput(f"{name} is empty: give at least one whole number")
    for value in numbers:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | np.integer)
            or not 0 <= value < 2**64
        ):
            raise InvalidInput(
                f"{name.removesuffix('s')} is {value!r}: it must be a whole number from 0 to"
                " 2^64 - 1"
            )
    return list(dict.fromkeys(map(int, numbers)))


def all_trainable(classes: bool) -> list[Algorithm]:
    """Every algorithm that has a name and is trained, other names of the same left out.

    classes: whether labels are classes, of which scores may be corrected by their shares.
    """
    known = (each for each in REGISTRY.values() if "train" in verbs_of(each) and not each.alias_of)
    return [each for each in known if classes or each.correction is None]


Grid = Mapping[str, Iterable[float]] | Mapping[str, Mapping[str, Iterable[float]]]


COHORT = 20  # clients a round, where there are that many


def find_algorithms(
    algorithm: str | Algorithm | Iterable[str | Algorithm], classes: bool = True
) -> tuple[list[Algorithm], bool]:
    """The algorithms asked for, and whether several were."""
    if asks_for_all(algorithm):
        algorithm = all_trainable(classes)
    several = not isinstance(algorithm, str | Algorithm)
    chosen: list[Algorithm] = []
    for entry in read_list("algorithm", algorithm) if several else [algorithm]:
        chosen.append(find(entry))
        check_trainable(chosen[-1])
        check_steps(chosen[-1])
    if not chosen:
        raise InvalidInput(f"algorithm is empty: name at least one of {', '.join(REGISTRY)}")
    names = [entry.name for entry in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput(
            f"algorithm has {max(names, key=names.count)} twice: give each its own name"
        )
    return chosen, several


def read_grid(grid: Any) -> dict[str, Any]:
    """A grid with lists of values."""
    if not isinstance(grid, Mapping):
        raise InvalidInput(f"grid is {grid!r}: it must name settings and list their values")
    return {
        name: (
            read_grid(values)
            if isinstance(values, Mapping)
            else read_list(f"grid's {name}", values)
        )
        for name, values in grid.items()
    }


def grid_of(
    algorithm: Algorithm, algorithms: Sequence[Algorithm], grid: dict[str, Any]
) -> dict[str, list[float]]:
    """The values to try of the settings an algorithm uses: from one grid for all, or its own."""
    names = [each.name for each in algorithms]
    own = any(isinstance(values, Mapping) for values in grid.values())
    for name, values in grid.items() if own else ():
        if name not in names:
            raise InvalidInput(
                f"grid has a part for {name}, which is not trained: choose from {', '.join(names)}"
            )
        if not isinstance(values, Mapping):
            raise InvalidInput(
                f"grid's part for {name} is {values!r}: it must name settings and list their values"
            )
    axes = grid.get(algorithm.name, {}) if own else grid
    users = [algorithm] if own else algorithms
    for name, values in axes.items():
        known = (*SETTINGS, *(own for user in users for own in own_settings(user)))
        if name not in known:
            raise unknown_name("grid entry", name, known)
        if not any(name in tunable_settings(user) for user in users):
            raise InvalidInput(
                f"grid has {name}, which {', '.join(user.name for user in users)} does not use:"
                " leave it out"
            )
        if not values:
            raise InvalidInput(f"grid has no values for {name}: give at least one, or leave it out")
    return {name: values for name, values in axes.items() if name in tunable_settings(algorithm)}


def tunable_settings(algorithm: Algorithm) -> list[str]:
    """The settings that matter to an algorithm: those it uses, except a ridge of its own."""
    own = "ridge" in fixed_settings(algorithm.personalise)
    return [name for name in used_settings(algorithm) if not (own and name == "ridge")]
