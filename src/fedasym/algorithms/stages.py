"""A stage of an algorithm owns what it is: formulas for limits and exact fits, a step to train.

On a linear model everything that a stage does is a function of the eigenvalues x of a client's
sample covariance. A server stage weighs them, b(x), in the shared model

    theta_0 = Q^{-1} sum_j p_j b(S_j) X_j'y_j/n_j,   Q = sum_j p_j b(S_j) S_j,

and a client stage keeps P(x) of the shared model's error along them. Limits, exact fits and
simulations follow from these two functions; training and federations from `step`.

A setting has its name, default, range and meaning here, once: signatures, experiment files, flags
and the reference are made of the fields of a stage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, NoFormula, one_of
from fedasym.core.numbers import one_float

LARGEST = 2**53  # of the whole numbers that are exact as others
# eigenvalues and ridges at which a stage's formula is compared with those of the objectives
EIGENVALUES = np.concatenate([[0, 1e-150, 1e-20], np.geomspace(1e-4, 1e4, 81), [1e20, 1e150]])
RIDGES = (0.3, 7.0)
ABSENT: Any = ...  # no default: a value must be given


@dataclass(frozen=True)
class Setting:
    """What a value may be: a number above or at least a bound, whole or not, one of a few words.

    A default of None is allowed as a value too: something else decides then, as `meaning` says.

    >>> Setting("penalty", 0.1, above=0).check(-1)
    Traceback (most recent call last):
    fedasym.InvalidInput: penalty is -1: it must be a finite number above 0
    """

    name: str
    default: Any = ABSENT
    above: float | None = None
    least: float | None = None
    most: float | None = None
    whole: bool = False
    choices: tuple[str, ...] = ()
    meaning: str = ""
    grid: tuple[float, ...] = ()
    usual: float | None = None

    @property
    def allowed_range(self) -> str:
        """The range in words."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        bounds = [] if self.above is None else [f"above {self.above:g}"]
        bounds += [] if self.least is None else [f"of at least {self.least:g}"]
        bounds += [] if self.most is None else [f"of at most {self.most:g}"]
        kind = "a whole number" if self.whole else "a finite number"
        return " ".join([kind, *([" and ".join(bounds)] if bounds else [])])

    def check(self, value: Any) -> Any:
        """The value as a plain number or word, or a sentence about what is wrong with it."""
        if value is None and self.default is None:
            return None
        if self.choices:
            one_of(self.name, value, self.choices)
            return value
        number = one_float(value)
        huge = self.whole and isinstance(value, int) and value > LARGEST
        if huge:
            raise self.refusal(value, f" and at most {LARGEST}")
        if isinstance(value, bool | np.bool_) or not math.isfinite(number):
            raise self.refusal(value)
        if self.whole and number != int(number):
            raise self.refusal(value)
        low = self.above is not None and not number > self.above
        small = self.least is not None and not number >= self.least
        large = self.most is not None and not number <= self.most
        if low or small or large:
            raise self.refusal(value)
        return int(number) if self.whole else number

    def refusal(self, value: Any, more: str = "") -> InvalidInput:
        """The sentence for a value that is not allowed."""
        return InvalidInput(f"{self.name} is {value!r}: it must be {self.allowed_range}{more}")


def setting(
    default: Any = ABSENT,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool | None = None,
    choices: Sequence[str] = (),
    meaning: str = "",
    grid: Sequence[float] = (),
    usual: float | None = None,
) -> Any:
    """A field of a stage that runs may set and grids may tune.

    default: its value where nobody says another; None: something else decides. above, least, most:
    its range. whole: whether it is a whole number, which a default that is one says too. grid: what
    tuning tries by default. meaning: a few words for tables and the reference. usual: what training
    takes where the default is None and a run says nothing.

    >>> import fedasym as fa
    >>> class Shrink(fa.algorithms.ClientStage):
    ...     pull: float = fa.algorithms.setting(
    ...         0.5, above=0, meaning="pull towards the shared model"
    ...     )
    ...
    ...     def keep(self, x):
    ...         return self.pull / (x + self.pull)
    >>> float(Shrink(pull=3).keep(1.0))
    0.75
    """
    whole = isinstance(default, int) and not isinstance(default, bool) if whole is None else whole
    tried = tuple(map(float, grid))
    about = Setting("", default, above, least, most, whole, tuple(choices), meaning, tried, usual)
    told = {} if default is ABSENT else {"default": default}
    return dataclasses.field(**told, metadata={"setting": about})


def rule(default: Any) -> Any:
    """A field of a stage that is not tuned: the run's protocol decides, by its field of that name.

    >>> import fedasym as fa
    >>> class Shrink(fa.algorithms.ServerStage):
    ...     decay: float = fa.algorithms.rule(0.0)
    >>> Shrink().decay, list(Shrink.settings())
    (0.0, [])
    """
    return dataclasses.field(default=default, kw_only=True, repr=False, metadata={"rule": True})


Array = NDArray[np.float64]
Gradient = Callable[..., Any]  # gradient(w), gradient(w, batch): of the loss on a step's batches


class Objective(Enum):
    """What a stage minimises, where its exact solution is known without training."""

    NOTHING = "nothing is shared"
    POOLED = "the loss of all samples together"
    JOINT = "losses and distances of the personal models, and the shared one with them"
    SHARED = "the shared model is kept as it is"
    OWN = "the client's loss"
    PENALISED = "the client's loss and its squared distance from the shared model"


@dataclass_transform(frozen_default=True, field_specifiers=(setting, rule, dataclasses.field))
@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """What the two kinds of stages have in common; fields are settings, checked when one is made.

    A subclass is a frozen dataclass without being told: `class Prox(ServerStage)` with
    `penalty: float = setting(0.1, above=0)` is made as `Prox(penalty=0.5)`.
    """

    batches: ClassVar[int] = 1  # how many a step reads
    # what it minimises, whatever the loss, where exact solutions are known; None: nothing of these
    objective: ClassVar[Objective | None] = None
    has_code: ClassVar[bool] = True  # False where a file has kept the name alone
    untrainable: ClassVar[str] = ""  # why it has no step, for a stage that cannot have one

    def __init_subclass__(cls, eq: bool = True, **more: Any) -> None:
        super().__init_subclass__(**more)
        try:
            dataclasses.dataclass(frozen=True, eq=eq)(cls)
        except TypeError as reason:
            raise InvalidInput(
                f"the stage {cls.__name__} cannot be made: {reason}; write settings as "
                "`penalty: float = setting(0.1)`, with their type"
            ) from None
        if cls.objective is Objective.PENALISED and "ridge" not in cls.settings():
            raise InvalidInput(
                f"the stage {cls.__name__} has a penalty on the distance and no setting of the name"
                " ridge, which is its size: add `ridge: float | None = setting(None, least=0)`"
            )

    def __post_init__(self) -> None:
        for about in self.settings().values():
            object.__setattr__(self, about.name, about.check(getattr(self, about.name)))

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """The settings that a stage of this class has, by name."""
        return {
            each.name: dataclasses.replace(each.metadata["setting"], name=each.name)
            for each in dataclasses.fields(cls)
            if "setting" in each.metadata
        }

    @classmethod
    def rules(cls) -> list[str]:
        """The choices that it leaves to the protocol of a run, by name."""
        return [each.name for each in dataclasses.fields(cls) if "rule" in each.metadata]

    def relevant_settings(self) -> set[str]:
        """Those of its settings that make a difference to it, as it is."""
        return set(self.settings())

    def get(self, name: str) -> Any:
        """The value of a setting; None where the stage has none of that name."""
        return getattr(self, name, None)

    def at(self, **values: Any) -> Self:
        """A copy with other values, unchecked: arrays of them, or those of a program."""
        made = object.__new__(type(self))
        for each in dataclasses.fields(self):
            object.__setattr__(made, each.name, values.get(each.name, getattr(self, each.name)))
        return made

    def fill_missing(self, **values: Any) -> Self:
        """A copy in which settings that are None have these values."""
        missing = {
            name: value
            for name, value in values.items()
            if name in self.settings() and getattr(self, name) is None
        }
        return self.at(**missing) if missing else self

    @property
    def linear_objective(self) -> Objective | None:
        """What it minimises on a linear model with squared loss: its objective, or the one whose
        weight or filter it has.
        """
        return self.objective

    def has_formula(
        self, formula: str, expected: Callable[..., Any], ridge: float | None = None
    ) -> bool:
        """Whether the weight or filter of that name is the expected function of x, to rounding.

        ridge: one for the stage and the expected function; None: the function has none.
        """
        settled = self if ridge is None else self.at(ridge=ridge)
        values = [settled.get(name) for name in self.settings()]
        if any(each is None or np.ndim(each) for each in values):
            return False  # something else decides, or it is a different function in each world
        with np.errstate(all="ignore"):
            try:
                found = np.asarray(getattr(settled, formula)(EIGENVALUES))
            except NoFormula:
                return False
            if found.shape not in ((), EIGENVALUES.shape):
                return False  # whoever needs its values refuses it in words
            aim = expected(EIGENVALUES) if ridge is None else expected(EIGENVALUES, ridge)
            return bool(np.allclose(found, aim, rtol=1e-9, atol=0 if ridge is None else 1e-12))

    def has_ridge_formula(self, formula: str) -> bool:
        """Whether it has a setting `ridge` and the formula is ridge/(x + ridge), whatever that."""
        return "ridge" in self.settings() and all(
            self.has_formula(formula, lambda x, lam: lam / (x + lam), ridge) for ridge in RIDGES
        )

    @property
    def gradients(self) -> int:
        """How many gradients of a batch a step takes: what its time is guessed by."""
        return int(self.batches)

    @classmethod
    def owns(cls, method: str) -> bool:
        """Whether the class has a form of its own for a method that may be absent."""
        base = ServerStage if issubclass(cls, ServerStage) else ClientStage
        return getattr(cls, method) is not getattr(base, method)

    @classmethod
    def digest(cls) -> str:
        """A fingerprint of the stage's source, which says whether it is still the same."""
        import hashlib
        import inspect

        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):  # typed in a console
            source = repr(sorted(name for name in vars(cls) if not name.startswith("__")))
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    @classmethod
    def has_state(cls) -> bool:
        """Whether it carries anything from step to step."""
        return cls.init is not Stage.init

    @classmethod
    def has_memory(cls) -> bool:
        """Whether clients or the server keep anything from round to round."""
        return False

    def init(self, w: Any) -> Any:
        """What a client's steps carry from one to the next, at the start; None: nothing."""
        return None

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """The model after one local step.

        w: the client's model; start: the shared one it began at; gradient(w): of the loss on the
        step's batch; rate: the step's size, `server_step` or `local_step`. Models and gradients are
        added, subtracted and multiplied by numbers. gradient.along(w, v) is the Hessian times v;
        gradient.own_part(v) the part of v in weights that may be a client's own,
        gradient.common_part(v) the rest (nothing, unless some features have the same weights for
        all clients). A stage with `init` takes `state` as one more argument, and returns the model
        and the next state.
        """
        raise NoFormula(
            f"{type(self).__name__} has no step(w, start, gradient, rate): add one to train it"
        )

    def advance(self, words: tuple[Any, Any, Any, Any], state: Any) -> tuple[Any, Any]:
        """One step with or without a state: the model, and the state after it."""
        take: Callable[..., Any] = self.step
        if not self.has_state():
            return take(*words), state
        found = take(*words, state)
        if not isinstance(found, tuple) or len(found) != 2:
            raise InvalidInput(
                f"step of {type(self).__name__} has `init`: it must return the model and the state"
            )
        return found


class ServerStage(Stage, eq=False):
    """What the clients learn together."""

    # of which smaller ones help against divergence
    step_settings: ClassVar[tuple[str, ...]] = ("server_step",)
    # whether its steps are relative to a penalty, not to the loss's curvature
    relative_step: ClassVar[bool] = False
    # in every round, and the work of clients that are not drawn is lost
    everyone_works: ClassVar[bool] = False
    # whether classes are numbers to it, -1 and 1 for two, with the squared loss
    squares_labels: ClassVar[bool] = False
    # whether one round finds its model, from the clients' sums of products X'X and X'Y
    reads_sums: ClassVar[bool] = False

    @property
    def shares(self) -> bool:
        """Whether clients learn anything together."""
        return self.objective is not Objective.NOTHING

    @property
    def linear_objective(self) -> Objective | None:
        """Where it declares none: POOLED with the weight 1, JOINT with ridge/(x + ridge)."""
        if self.objective is not None or self.shrinks or not self.owns("weight"):
            return self.objective
        if self.has_formula("weight", np.ones_like):
            return Objective.POOLED
        return Objective.JOINT if self.has_ridge_formula("weight") else None

    def weight(self, x: Array) -> Array:
        """b(x): how an eigenvalue x of a client's sample covariance counts in the shared model."""
        raise NoFormula(
            f"{type(self).__name__} has no weight(x), from which limits and exact fits follow: "
            "add one to the stage, or measure it with fa.train"
        )

    @property
    def look_ahead(self) -> float | None:
        """a, where b(x) = (1 - a x)^2: exact fits then need no eigenvalues."""
        return None

    @property
    def weighs_alike(self) -> bool:
        """Whether b(x) is the same for all x: theorems then hold for any covariance."""
        return self.linear_objective is Objective.POOLED

    @property
    def shrinks(self) -> bool:
        """Whether its shared model is pulled towards zero, by the setting `shared_ridge`."""
        return "shared_ridge" in self.settings()

    @property
    def group_stage(self) -> ServerStage | None:
        """Of a stage with a model for each group of clients: what it is within one; else None.

        The setting `clusters` says how many groups there are, `between` which share of the squared
        radius lies between their centres.
        """
        return None

    def gives_personal(self, client: ClientStage) -> bool:
        """Whether a client's own model comes from its work for the server, not from that stage."""
        return False

    def personal_model(self, w: Any, state: Any) -> Any:
        """The client's own model after work for the server, from its model and the steps' state."""
        return w

    @classmethod
    def has_state(cls) -> bool:
        """Whether steps carry anything: of their own, or what the client and the server keep."""
        return super().has_state() or cls.keeps_client()

    @classmethod
    def has_memory(cls) -> bool:
        """Whether clients or the server keep anything from round to round."""
        return cls.keeps_client() or cls.keeps_server()

    @classmethod
    def keeps_client(cls) -> bool:
        """Whether clients keep something from round to round."""
        return cls.init_client is not ServerStage.init_client

    @classmethod
    def keeps_server(cls) -> bool:
        """Whether the server does."""
        return cls.init_server is not ServerStage.init_server

    @property
    def start_models(self) -> int:
        """How many models, one for each group of clients, `init_server` begins with beside w."""
        return 0

    def client_steps(self, samples: int, batch: int, steps: int) -> int:
        """How many of a round's local steps a client of so many samples takes: all of them."""
        return steps

    def init_client(self, w: Any) -> Any:
        """What a client keeps from round to round, before the first; w: the first shared model.

        A client's steps then begin with the state (what the client keeps, what the server keeps).
        """
        return None

    def init_server(self, w: Any) -> Any:
        """What the server keeps between rounds, before the first; w: the first shared model.

        With `start_models` it is init_server(w, starts), and is given so many models more.
        """
        return None

    def first_memory(self, w: Any, starts: Sequence[Any]) -> Any:
        """`init_server` in either form."""
        init: Callable[..., Any] = self.init_server
        return init(w, tuple(starts)) if self.start_models else init(w)

    def begin(self, start: Any, state: Any, choose: Callable[..., Any]) -> tuple[Any, Any]:
        """Where a client's work begins, and the state of its first step: at the shared model.

        choose(models): a number for each, 1 for the one with the least loss on all the client's
        training samples and 0 for the others. A client stage begins there, too.
        """
        return start, state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """After a client's steps: what it keeps until its next draw, and what else it sends.

        steps: how many it took.
        """
        raise NoFormula(
            f"{type(self).__name__} has init_client, and no finish(w, start, state, rate, steps):"
            " add one"
        )

    def update(self, w: Any, change: Any) -> Any:
        """The next shared model: w moved by the drawn clients' mean change, sum_j p_j (w_j - w).

        With `init_server` it is update(w, change, kept, sent, portion), and returns the model and
        what the server keeps;
        sent: the mean of what clients sent beside their models, a model or a tuple of models and
            numbers; portion: how many of all clients were drawn.
        """
        return w + change

    def move_server(
        self, w: Any, change: Any, kept: Any, sent: Any, portion: float
    ) -> tuple[Any, Any]:
        """`update` in either form: the model, and what the server keeps."""
        update: Callable[..., Any] = self.update
        if not self.keeps_server():
            return update(w, change), kept
        moved: tuple[Any, Any] = update(w, change, kept, sent, portion)
        return moved


class ClientStage(Stage, eq=False):
    """What a client does with the shared model."""

    @property
    def own_stage(self) -> ClientStage | None:
        """Of a mixture of models: how the client's own is made, from nothing; else None.

        The setting `mixture` is the weight of the own model, the shared one has the rest.
        """
        return None

    @property
    def plain_stage(self) -> ClientStage | None:
        """Of a stage whose penalty differs by direction: what it is once features are scaled by
        the power `power` of their covariance (None: the best); else None.
        """
        return None

    @property
    def step_count(self) -> int | None:
        """How many steps it takes; None: the batches of the run's `personal_epochs` passes."""
        return None

    @property
    def linear_objective(self) -> Objective | None:
        """Where it declares none: SHARED if it keeps 1, OWN if 0 where x > 0, PENALISED if
        ridge/(x + ridge).
        """
        if self.objective is not None or not self.owns("keep"):
            return self.objective
        if self.has_formula("keep", np.ones_like):
            return Objective.SHARED
        if self.has_formula("keep", lambda x: np.where(x > 0, 0.0, 1.0)):
            return Objective.OWN
        return Objective.PENALISED if self.has_ridge_formula("keep") else None

    def keep(self, x: Array) -> Array:
        """P(x): what the client keeps of the shared model's error along an eigenvalue x."""
        raise NoFormula(
            f"{type(self).__name__} has no keep(x), from which limits and exact fits follow: "
            "add one to the stage, or measure it with fa.train"
        )

    def check_largest(self, x: float, where: str) -> None:
        """Refuse settings whose steps diverge at the largest eigenvalue x; `where`: whose it is."""

    def learn(self, x: Array) -> Array:
        """1 - P(x): a stage whose P is near one has a form without cancellation."""
        return np.asarray(1 - self.keep(x))


class ScoreStage(Stage, eq=False):
    """What a client adds to its model's scores of the classes, after its client stage; nothing is
    trained.
    """

    def offset(self, counts: Any, pooled: Any) -> Any:
        """(classes,) numbers to add, in NumPy or JAX.

        counts: the client's training samples of each class; pooled: the shares of the classes among
        all clients' samples, all above 0.
        """
        raise NoFormula(f"{type(self).__name__} has no offset(counts, pooled): add one")
