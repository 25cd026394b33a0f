"""Experiments in words: what pydantic refuses, said in the style of the house; what an experiment is about to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from fedasym.core.errors import InvalidInput
from fedasym.training.wording import columns, folded

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from fedasym.experiments.spec import Experiment

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


def rephrased(error: ValidationError, experiment: type[BaseModel]) -> str:
    """The first problem as one sentence: the field by its path, the value, what is allowed; misspelt fields first."""
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    problem, others = problems[0], len(problems) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    return said(dict(problem), experiment) + more


def said(problem: Mapping[str, Any], experiment: type[BaseModel]) -> str:
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
            return f"{path} is {told}: there is no such field; {hint}known are {', '.join(known)}"
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


def summary(experiment: Experiment) -> str:
    """What an experiment is about to do."""
    tried = {name: math.prod(map(len, axes.values())) for name, axes in experiment.grid.items()}
    told, trials = experiment.settings, experiment.trials
    parts = [experiment.name, *([experiment.about] if experiment.about else [])]
    open_ = told.protocol is None
    rules = ["intercept and steps as the data ask"] if open_ else [f"protocol {told.rules.name}"]
    sizes = [f"{told.rounds} rounds", *rules, f"{experiment.pieces} pieces"]
    lines = [
        *folded(" · ".join(parts)),
        *folded(" · ".join(sizes)),
        "Configurations to tune over: " + ", ".join(f"{name} {count}" for name, count in tried.items()) + ".",
        f"Trials of what is chosen: seeds {spoken(trials.seeds)}; splits {spoken(trials.splits)}.",
    ]
    if experiment.gains:
        gains = experiment.gains
        epochs = ", ".join(map(str, gains.epochs))
        lines.append(f"Gains of {', '.join(gains.algorithms)} over epochs {epochs}: seeds {spoken(gains.seeds)}.")
    return "\n".join(lines)


def spoken(numbers: tuple[int, ...]) -> str:
    """Numbers of trials, a run of them by its ends.

    >>> spoken((1, 2, 3)), spoken((4, 7)), spoken(())
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


def flush(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Columns, the first `left` ones and the last flush left.

    >>> flush([["a", "1", "word"], ["b", "10", "words"]], left=1)
    ['a   1  word', 'b  10  words']
    """
    width = max(len(row[-1]) for row in rows)
    return columns([[*row[:-1], f"{row[-1]:<{width}}"] for row in rows], left=left)
