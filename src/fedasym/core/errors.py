"""What fedasym raises: bad input and questions that no formula answers, each with one sentence that
says what to do.

A package that is not installed is one of them: optional ones are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

Entry = TypeVar("Entry")


class InvalidInput(ValueError):
    """A value outside its range; the message names the field, the value, what is allowed and what
    to do.

    >>> import fedasym as fa
    >>> fa.Population(radius=1, noise=0.5, aspect=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: aspect is 0: it is unknowns per sample, d/n, and must be finite and ...
    """

    def at(self, where: object) -> Self:
        """The same refusal, of the same kind, with the place of what is refused before it.

        >>> MissingColumn("no column 'mark': name another").at("pupils.csv")
        MissingColumn("pupils.csv: no column 'mark': name another")
        """
        return type(self)(f"{where}: {self}")


class UnreadableFile(InvalidInput):
    """A file or folder that is not there, or that cannot be read in its format."""


class MissingColumn(InvalidInput):
    """A column, array or field that is asked for and that the data do not have."""


class MissingValues(InvalidInput):
    """Samples with something missing, or a number that is not finite."""


class NotNumbers(InvalidInput):
    """Text, or anything else, where numbers are expected."""


class UnknownClass(InvalidInput):
    """A label that is none of the classes."""


class NoFormula(InvalidInput):
    """A combination that no formula covers; the message says what is missing and offers what works.

    >>> import fedasym as fa
    >>> world = fa.Population(
    ...     radius=1, noise=0.5, aspect=2, spectrum=fa.spectra.atoms([1, 4], [0.5, 0.5])
    ... )
    >>> fa.predict(world, "maml", clients=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.NoFormula: maml: with finitely many clients there is a formula only for ...
    """


class MissingNorm(InvalidInput):
    """A method shares nothing, and the population lacks the length of a client's optimum."""

    def __init__(self, message: str = "") -> None:
        alone = (
            "a method that shares nothing depends on the length of a client's optimum: give norm"
        )
        super().__init__(message or alone)


class MissingPackage(InvalidInput, ImportError):
    """An optional package that is not installed; the message says which, and how to install it.

    >>> issubclass(MissingPackage, ImportError)
    True
    """


class ThresholdWarning(UserWarning):
    """The population is near an interpolation threshold, where finite sizes deviate from the limit.

    >>> import warnings, fedasym as fa
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=1.02), ["ftfa"])
    >>> caught[0].category.__name__
    'ThresholdWarning'
    """


def unknown_name(
    kind: str, name: object, allowed: Iterable[str], error: type[InvalidInput] = InvalidInput
) -> InvalidInput:
    """The error for a misspelt name: the nearest names first, then all."""
    import difflib  # only a misspelling needs it

    allowed = list(allowed)
    lower = {each.lower(): each for each in allowed}  # capitals are not what a name is known by
    matches = difflib.get_close_matches(str(name).lower(), lower, n=2, cutoff=0.5)
    near = [lower[each] for each in matches]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return error(f"unknown {kind} {name!r}: {hint}choose from {', '.join(allowed)}")


def find_entry(kind: str, name: Any, table: Mapping[str, Entry]) -> Entry:
    """The entry of that name; a name that is not in the table, or no name at all, is refused.

    >>> find_entry("size", ["small"], {"small": 1, "large": 2})
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: unknown size ['small']: did you mean small? choose from small, large
    """
    return table[one_of(kind, name, table)]


def one_of(kind: str, name: Any, allowed: Collection[str]) -> str:
    """The name, where it is one of the allowed ones."""
    if not isinstance(name, str) or name not in allowed:  # a list, say, cannot even be looked up
        raise unknown_name(kind, name, allowed)
    return name


def read_list(field: str, values: Any, wanted: str = "it must be a list of values") -> list[Any]:
    """Several values as a list, read once: an iterator has nothing left afterwards. Text, or a
    single value, is refused.

    >>> read_list("seeds", 3)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: seeds is 3: it must be a list of values
    """
    try:
        entries = None if isinstance(values, str | bytes) else iter(values)
    except TypeError:
        entries = None
    if entries is None:
        raise InvalidInput(f"{field} is {values!r}: {wanted}")
    return list(entries)


def path_of(field: str, value: Any) -> Path:
    """A path of a file or folder; what is none, a number say, is refused."""
    if not isinstance(value, str | PathLike) or "\0" in str(value):
        raise InvalidInput(f"{field} is {value!r}: give the path of a file or folder")
    return Path(value)


for public in (
    InvalidInput,
    NoFormula,
    MissingPackage,
    ThresholdWarning,
):  # tracebacks name them as users import them
    public.__module__ = "fedasym"


def import_package(package: str, what: str) -> Any:
    """An optional package, imported when it is asked for."""
    try:
        return import_module(package)
    except ImportError as missing:
        raise MissingPackage(
            f"{what} needs {package.partition('.')[0]}: pip install 'fedasym[tables]'"
        ) from missing
