"""Experiments: from a TOML file to tuned, repeated, compared runs in a folder that survives.

Here is an experiment as a value: data, algorithms, what is tuned, how often repeated; in words. It
is what a TOML file says, checked at the door by the rules of `fedasym.train` itself.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

# The fields come first: they say it in a sentence where pydantic is missing.
from fedasym.experiments.fields import (  # isort: skip
    Data,
    Gains,
    Names,
    Part,
    SettingsTable,
    Trials,
)

from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema
from pydantic import field_validator as field
from pydantic import model_validator as model

from fedasym.algorithms import GRIDS, TRAINED, as_names
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import notebook_text
from fedasym.experiments.fields import GRID_SCHEMA, Axes, Grid, complete_grid
from fedasym.training.convergence import PAPER_STEPS, stable_steps
from fedasym.training.settings import TEXT, find_algorithms, resolve_protocol
from fedasym.training.wording import fold_line

if TYPE_CHECKING:
    from pydantic import BaseModel

    from fedasym.data.federation import Federation


PAPER = Path(__file__).parent / "paper"
# What the paper tunes and compares; those whose clients take steps of their own come first.
ALL = tuple(sorted(GRIDS, key=lambda name: TRAINED[name].personal_from_server))


class Experiment(Part):
    """Data, algorithms, grids and trials: what decides a comparison; `fedasym.run` runs it.

    name: of its run folder. about: what it is, in words.
    data: one of features = "cifar100", file = "clients.parquet" (with label, client, columns,
        split) and synthetic = {...}; left out, the federation is given to `run`.
    algorithms: names, the paper's seven by default. settings: as `fedasym.train` takes them; name
        the protocol to have the paper's head and steps, whatever the data.
    grid: "paper"; or settings and values, {"server_step": [0.01, 0.1]}, for all that use them; or
        such a grid by algorithm.
    trials: seeds and splits of the chosen settings; a number n stands for 1, ..., n. gains: see
        `Gains`; none by default.
    pieces: "fine" (one server step, seed or split is the least that a crash can cost) or "coarse"
        (fewer, larger calls).

    >>> import fedasym as fa
    >>> mine = fa.Experiment(
    ...     name="mine",
    ...     algorithms=["fedavg", "ftfa"],
    ...     grid={"server_step": [0.01, 0.1]},
    ...     trials={"seeds": 3},
    ... )
    >>> mine.grid["ftfa"], mine.trials.seeds
    ({'server_step': (0.01, 0.1)}, (1, 2, 3))
    >>> fa.Experiment(name="mine", settings={"round": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: settings.round is 3: there is no such field; did you mean rounds? ...
    """

    name: str
    about: str = ""
    data: Data | None = None
    algorithms: Names = ALL
    settings: SettingsTable = SettingsTable()
    grid: Annotated[Grid, WithJsonSchema(GRID_SCHEMA)] = Field("paper", validate_default=True)
    trials: Trials = Trials()
    gains: Gains | None = None
    pieces: Literal["fine", "coarse"] = "fine"

    def __init__(self, /, **given: Any) -> None:
        if "algorithms" in given:
            given["algorithms"] = as_names(given["algorithms"])
        try:
            super().__init__(**given)
        except ValidationError as reason:
            raise InvalidInput(rephrase_error(reason, Experiment)) from None
        except OverflowError:
            raise InvalidInput("a number is too large: give ordinary numbers") from None

    @field("name")
    @classmethod
    def _folder_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError("it names a folder: use letters, digits, points, dashes, underscores")
        return name

    @field("algorithms")
    @classmethod
    def _check_registered(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if paths := [name for name in names if ":" in name]:
            raise ValueError(f"{paths[0]!r} would be imported: give names of registered algorithms")
        find_algorithms(names)
        return names

    @field("grid", mode="before")
    @classmethod
    def _by_algorithm(cls, grid: Any, info: ValidationInfo) -> Any:
        names = info.data.get("algorithms")
        # wrong algorithms are a problem of their own
        return {} if names is None else complete_grid(grid, names)

    @model(mode="after")
    def _gains_of_tuned(self) -> Self:
        for name in self.gains.algorithms if self.gains else ():
            if name not in self.algorithms:
                trained = ", ".join(self.algorithms)
                raise InvalidInput(
                    f"gains.algorithms has {name}, which is not trained: choose from {trained}"
                )
            if not REGISTRY[name].fine_tunes:
                raise InvalidInput(
                    f"gains.algorithms has {name}, which does not fine-tune: leave it out"
                )
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> Experiment:
        r"""The experiment of a file; a `data.file` is taken relative to where the file is.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "mine.toml")
        ...     size = file.write_text(
        ...         'name = "mine"\nalgorithms = ["fedavg"]\n'
        ...         "[data.synthetic]\nalpha = 1\nbeta = 1\n"
        ...     )
        ...     Experiment.from_toml(file).data.synthetic.alpha
        1.0
        """
        from fedasym.experiments.fields import read_toml

        given = read_toml(Path(path))
        try:
            return cls(**given)
        except InvalidInput as reason:
            raise InvalidInput(f"{path}: {reason}") from None

    @classmethod
    def paper(cls, name: str) -> Experiment:
        """One of the paper's experiments, or its stand-in, that come with the package.

        >>> len(Experiment.paper("cifar100").grid["rtfa"]["ridge"])
        5
        """
        known = sorted(file.stem for file in PAPER.glob("*.toml"))
        if name not in known:
            raise unknown_name("experiment", name, known)
        return cls.from_toml(PAPER / f"{name}.toml")

    def to_toml(self) -> str:
        """The experiment as a file's text: what `from_toml` reads back as the same.

        >>> Experiment(name="mine", algorithms=["local"]).to_toml().splitlines()[0]
        'name = "mine"'
        """
        from fedasym.experiments.fields import write_toml

        return write_toml(self)

    def quick(self) -> Experiment:
        """A scaled copy for a first look: few clients, rounds, values, trials; rough numbers.

        >>> Experiment.paper("cifar100").quick().settings.rounds
        20
        """
        return scale_experiment(self)

    def with_data(self, file: str | Path) -> Experiment:
        """The same on the data of a file, whose columns have the usual names."""
        limit = self.data.clients if self.data else None
        told = {"file": str(Path(file).absolute()), "clients": limit}
        return self.model_copy(update={"data": Data.model_validate(told)})

    def settle_choices(self, federation: Federation) -> Experiment:
        """The same with the data's choices put in: intercept, and steps unless a protocol is named.

        >>> import fedasym as fa
        >>> long = fa.Federation.from_arrays(
        ...     [[30.0], [10.0]] * 5, [1.0, 2.0] * 5, clients=list("aabbccddee")
        ... )
        >>> told = Experiment(name="mine").settle_choices(long).settings
        >>> text = Experiment(name="mine", settings={"protocol": "text"}).settings
        >>> told.rules.name, told.server_step, text.rules.name
        ('text with intercept', 0.0011, 'text')
        """
        told = self.settings
        rules = resolve_protocol(told.protocol, told.intercept, federation.intercept)
        steps = PAPER_STEPS
        changed: dict[str, Any] = {}
        if told.protocol is None:
            steps = stable_steps(federation, rules.intercept, told.batch, told.ridge)
            changed |= {"protocol": TEXT.name, "intercept": rules.intercept}
        changed |= {name: step for name, step in steps.items() if getattr(told, name) is None}
        return self.model_copy(update={"settings": told.model_copy(update=changed)})

    def portable(self) -> Experiment:
        """The same without the folders of this machine: a data file by its name alone.

        >>> Experiment(name="mine", data={"file": "/home/ann/clients.parquet"}).portable().data.file
        'clients.parquet'
        """
        if self.data is None or self.data.file is None:
            return self
        data = self.data.model_copy(update={"file": Path(self.data.file).name})
        return self.model_copy(update={"data": data})

    @classmethod
    def schema_text(cls) -> str:
        """The JSON schema of experiment files, for editors that check and complete them."""
        return json.dumps(cls.model_json_schema(), indent=2)

    def __str__(self) -> str:
        return summarize(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_text(self)


CLIENTS = 30
ROUNDS = 20
EVALUATIONS = 2
VALUES = 2  # of each setting in a grid
TRIALS = 3


def scale_experiment(experiment: Experiment) -> Experiment:
    """The copy, named so; what is small already stays."""
    told, data = experiment.settings, experiment.data
    trials, gains = experiment.trials, experiment.gains
    rounds = min(told.rounds, ROUNDS)
    every = min(told.evaluate_every, max(1, rounds // EVALUATIONS))
    fewer = {"rounds": rounds, "evaluate_every": every, "cohort": None}
    repeats = {"seeds": trials.seeds[:TRIALS], "splits": trials.splits[:TRIALS]}
    changed: dict[str, Any] = {
        "name": f"{experiment.name}-quick",
        "settings": told.model_copy(update=fewer),
        "grid": {name: thin_values(axes) for name, axes in experiment.grid.items()},
        "trials": trials.model_copy(update=repeats),
        "gains": gains and gains.model_copy(update={"seeds": gains.seeds[:TRIALS]}),
        "data": data and data.model_copy(update={"clients": min(data.clients or CLIENTS, CLIENTS)}),
    }
    return experiment.model_copy(update=changed)


def thin_values(axes: Axes) -> Axes:
    """Two values of each setting from the upper half: too small a step learns nothing soon.

    >>> thin_values({"server_step": (0.0001, 0.001, 0.01, 0.1, 1.0), "mixing": (1.0, 2.0)})
    {'server_step': (0.01, 0.1), 'mixing': (1.0, 2.0)}
    """
    return {
        name: values if len(values) <= VALUES else upper_values(values)
        for name, values in axes.items()
    }


def upper_values(values: tuple[int | float, ...]) -> tuple[int | float, ...]:
    """The values half and three quarters up."""
    return values[len(values) // 2], values[3 * len(values) // 4]


WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a table of settings",
    "dict_type": "a table of settings",
}
RENAMED = {"settings.bias": "intercept"}
LONG = 60  # characters of a value that a sentence repeats


def rephrase_error(error: ValidationError, experiment: type[BaseModel]) -> str:
    """The first problem in a sentence, misspelt fields first: path, value, what is allowed."""
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    others = len(problems) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    return describe_problem(dict(problem), experiment) + more


def describe_problem(problem: Mapping[str, Any], experiment: type[BaseModel]) -> str:
    """One of pydantic's problems in a sentence."""
    kind, where, value = problem["type"], problem["loc"], problem["input"]
    path = ".".join(map(str, where))
    context = problem.get("ctx", {})
    told = repr(value) if len(repr(value)) <= LONG else f"{repr(value)[:LONG]}..."
    match kind:
        case "extra_forbidden":
            if path in RENAMED:
                return f"{path} is {told}: it is called {RENAMED[path]} now; rename it"
            known = list(fields_at(experiment, where[:-1]))
            near = difflib.get_close_matches(str(where[-1]), known, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            return f"{path} is {told}: there is no such field; {hint}choose from {', '.join(known)}"
        case "missing":
            return f"{path} is missing: give it a value"
        case "literal_error":
            return f"{path} is {told}: it must be {context['expected']}"
        case "value_error" if isinstance(context["error"], InvalidInput):
            sentence = str(context["error"])
            return sentence if sentence.startswith(path) else f"{path}: {sentence}"
        case "value_error":
            return f"{path} is {told}: {context['error']}"
        case _ if kind in WANTED:
            return f"{path} is {told}: it must be {WANTED[kind]}"
        case _:
            return f"{path} is {told}: {problem['msg'].replace('Input', 'it', 1)}"


def fields_at(experiment: type[BaseModel], where: tuple[int | str, ...]) -> list[str]:
    """The fields of the table at a path."""
    fields = experiment.model_fields
    for part in where:
        kind = fields[str(part)].annotation
        table = next(each for each in (kind, *get_args(kind)) if hasattr(each, "model_fields"))
        fields = table.model_fields
    return list(fields)


def summarize(experiment: Experiment) -> str:
    """What an experiment is about to do."""
    tried = {name: math.prod(map(len, axes.values())) for name, axes in experiment.grid.items()}
    told, trials = experiment.settings, experiment.trials
    parts = [experiment.name, *([experiment.about] if experiment.about else [])]
    open_ = told.protocol is None
    by_data = "intercept and steps chosen from the data"
    rules = [by_data if open_ else f"protocol {told.rules.name}"]
    sizes = [f"{told.rounds} rounds", *rules, f"{experiment.pieces} pieces"]
    lines = [
        *fold_line(" · ".join(parts)),
        *fold_line(" · ".join(sizes)),
        "Configurations to tune over: "
        + ", ".join(f"{name} {count}" for name, count in tried.items())
        + ".",
        (
            f"Trials of what is chosen: seeds {describe_numbers(trials.seeds)}; splits"
            f" {describe_numbers(trials.splits)}."
        ),
    ]
    if experiment.gains:
        gains = experiment.gains
        epochs = ", ".join(map(str, gains.epochs))
        lines.append(
            f"Gains of {', '.join(gains.algorithms)} over epochs {epochs}: seeds"
            f" {describe_numbers(gains.seeds)}."
        )
    return "\n".join(lines)


def describe_numbers(numbers: tuple[int, ...]) -> str:
    """Numbers of trials, a run of them by its ends.

    >>> describe_numbers((1, 2, 3)), describe_numbers((4, 7)), describe_numbers(())
    ('1 to 3', '4, 7', 'none')
    """
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42.4), duration(5 * 60), duration(7300)
    ('42 s', '5 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
