"""What can be wrong on a node, as a closed list of codes: all that a server ever hears of it.

The sentence of an exception may hold a cell, a client's name or a path. It goes to the node's own log; a code goes to
the server. Which code is decided by the exception's type, never by its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from fedasym.core.errors import (
    InvalidInput,
    MissingColumn,
    MissingPackage,
    MissingValues,
    NotNumbers,
    UnknownClass,
    UnreadableFile,
)

FAULT, VERSION = "fault", "version"  # what a reply calls the code, and the node's version of this package


class Fault(Enum):
    """A code with what it means; a permanent fault stays until somebody mends the node or the run config.

    >>> Fault.MISSING_COLUMN.permanent, Fault.OUT_OF_MEMORY.permanent
    (True, False)
    """

    permanent: bool
    meaning: str

    def __new__(cls, code: str, permanent: bool, meaning: str) -> Fault:
        """A member whose value is its code."""
        fault = object.__new__(cls)
        fault._value_ = code
        fault.permanent = permanent
        fault.meaning = meaning
        return fault

    NO_DATA_PATH = "no-data-path", True, "its node config names no data-path"
    UNREADABLE_FILE = "unreadable-file", True, "its data are not there, or cannot be read"
    MISSING_COLUMN = "missing-column", True, "a column that the run names is missing there"
    MISSING_VALUES = "missing-values", True, "values are missing, or not finite, in its data"
    NOT_NUMBERS = "not-numbers", True, "a column has text where numbers are expected"
    NO_CLASSES = (
        "no-classes", True,
        'its labels are classes, and neither the run nor the node names them: say classes, or task="regression"',
    )  # fmt: skip
    OTHER_CLASSES = "other-classes", True, "its labels are not among the classes that were named"
    UNFIT_DATA = "unfit-data", True, "its data do not make a federation as the run describes it"
    CLASSES_ADVISED = (
        "classes-advised", True,
        'its labels are classes, and advice through a federation is for numbers: task="regression" reads whole ones as such',
    )  # fmt: skip
    BAD_CONFIGURATION = "bad-configuration", True, "the run config or the node config has a value that it cannot take"
    MISSING_PACKAGE = "missing-package", True, "a package that its data need is not installed there"
    BAD_MESSAGE = "bad-message", False, "the message that it was sent is not what it expects"
    UNWRITABLE_HEADS = "unwritable-heads", False, "the clients' own heads cannot be written there"
    OUT_OF_MEMORY = "out-of-memory", False, "its memory did not suffice"
    UNFORESEEN = "unforeseen", False, "something unforeseen went wrong there"

    @classmethod
    def find(cls, code: Any) -> Fault | None:
        """The fault with this code; None where it is no code."""
        return next((fault for fault in cls if fault.value == code), None)

    @property
    def sentence(self) -> str:
        """What the server's log says."""
        return f"{self.meaning} (code {self.value}); the node's own log says more"


class NodeFault(InvalidInput):
    """Something wrong on a node whose code is known where it is raised; the text stays on the node."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


# The first type that fits decides: special ones stand before those that they belong to.
CODES: dict[type[BaseException], Fault] = {
    MissingColumn: Fault.MISSING_COLUMN,
    MissingValues: Fault.MISSING_VALUES,
    NotNumbers: Fault.NOT_NUMBERS,
    UnknownClass: Fault.OTHER_CLASSES,
    UnreadableFile: Fault.UNREADABLE_FILE,
    MissingPackage: Fault.MISSING_PACKAGE,
    InvalidInput: Fault.UNFIT_DATA,
    OSError: Fault.UNREADABLE_FILE,
    MemoryError: Fault.OUT_OF_MEMORY,
}


def find_fault(reason: BaseException) -> Fault:
    """The code of an exception.

    >>> find_fault(MissingColumn("unknown label column 'mark'")), find_fault(ZeroDivisionError())
    (<Fault.MISSING_COLUMN: 'missing-column'>, <Fault.UNFORESEEN: 'unforeseen'>)
    """
    if isinstance(reason, NodeFault):
        return reason.fault
    return next((fault for kind, fault in CODES.items() if isinstance(reason, kind)), Fault.UNFORESEEN)


@contextmanager
def report_as(fault: Fault, kinds: tuple[type[Exception], ...] = (InvalidInput,)) -> Iterator[None]:
    """Give exceptions of these kinds inside this code, unless they have one."""
    try:
        yield
    except NodeFault:
        raise
    except kinds as reason:
        raise NodeFault(fault, f"{type(reason).__name__}: {reason}") from reason
