"""The label of a table: words and booleans are classes, numbers are numbers, and two whole numbers are two classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.data.federation.targets import TASKS
from fedasym.data.tables.cells import Cells, Kind, check_magnitude, read_numbers, refuse_stray
from fedasym.data.tables.recipe import LARGEST, Target

COUNTED = 2**53  # beyond, neighbouring whole numbers are one float


class Labels(NamedTuple):
    """Labels as `Federation.from_arrays` takes them, the task, and what is said of them."""

    values: NDArray[Any]
    task: str
    target: Target


def read_labels(cells: Sequence[Cells], task: str | None, classes: Any, rows: NDArray[np.intp], line: int | None) -> Labels:
    """Labels of the rows that are kept.

    cells: one column, or several that are the outputs of a regression; all rows of the table.
    """
    if task is not None:
        one_of("task", task, TASKS)
    names = tuple(each.name for each in cells)
    kind = decide_kind(cells)
    if len(cells) == 1:
        refuse_label(cells[0], line)
    counted = cells[0].values.gather(rows).n_unique()
    if kind is Kind.NUMBER and counted == 2 and are_whole(cells[0].values.gather(rows)):
        kind = Kind.WHOLE  # 0.0 and 1.0 are what pandas makes of 0, 1 and a missing cell
    asked = task is not None or classes is not None
    if task is None:
        two = kind in (Kind.WHOLE, Kind.BOOLEAN) and counted == 2 and len(cells) == 1
        words = kind is Kind.TEXT or kind is Kind.BOOLEAN
        task = "classification" if classes is not None or two or words else "regression"
    target = Target(names, kind.value, counted, task, asked)
    if task == "regression":
        if kind in (Kind.TEXT, Kind.DATE):
            word = cells[0].values.gather(rows)[0]
            raise InvalidInput(
                f"task is 'regression' while label column {names[0]!r} holds {str(word)!r}: give numbers, or "
                "task='classification' for classes"
            )
        columns = [read_numbers(each, line) for each in cells]
        for each, values in zip(cells, columns, strict=True):
            check_magnitude(values, each.name, LARGEST, line)
        return Labels(np.stack(columns, 1)[rows], task, target)
    if len(cells) > 1:
        raise InvalidInput(f"label names {len(cells)} columns, which are outputs of a regression: name one for classes")
    return Labels(read_classes(cells[0], rows), task, target)


def are_whole(values: Any) -> bool:
    """Whether all of a column of floats are whole numbers that a float can count."""
    return bool(values.dtype.is_float() and ((values == values.round()) & (values.abs() < COUNTED)).all())


def decide_kind(cells: Sequence[Cells]) -> Kind:
    """What the label's cells are; of several columns, which must be numbers, whole if all are."""
    if len(cells) == 1:
        if cells[0].kind in (Kind.EMPTY, Kind.LISTS):
            held = "is empty" if cells[0].kind is Kind.EMPTY else "holds lists"
            raise InvalidInput(f"label column {cells[0].name!r} {held}: name a column with one number or class a row")
        return cells[0].kind
    for each in cells:
        if each.kind not in (Kind.NUMBER, Kind.WHOLE, Kind.BOOLEAN):
            raise InvalidInput(
                f"label column {each.name!r} holds {each.kind.value}: several label columns are outputs of a regression; "
                "give numbers"
            )
    return Kind.NUMBER


def refuse_label(cells: Cells, line: int | None) -> None:
    """Refuse a word among numbers."""
    refuse_stray(cells, line, "label")


def read_classes(cells: Cells, rows: NDArray[np.intp]) -> NDArray[Any]:
    """Names of classes: text, booleans or whole numbers."""
    held = cells.values.gather(rows)
    if cells.kind is Kind.DATE or held.dtype == "String":
        return np.array([str(value) for value in held.to_list()], object)
    return np.asarray((held.cast(int) if are_whole(held) else held).to_numpy())
