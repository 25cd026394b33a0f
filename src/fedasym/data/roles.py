"""What each column of a table is: a number, a category, or something that no model should learn
from.

Identifiers, row numbers and groups nested in the clients are told by their values alone: a quantity
repeats itself by chance, a designed number does not. What a user says of a column goes before all
of this.

Features that others determine, constants and exact linear combinations of the features before them,
cannot be told apart by a model, so the later one is left out. Columns are taken in their order and
orthogonalised one after the other (Gram and Schmidt, twice, which is enough); what is left of a
combination is rounding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.data.cells import CellKind, Cells

TOLERANCE = 1e-8  # of a column's length that must be its own
WIDEST = 2000  # features up to which combinations are looked for
SKETCH = 1000  # rows beyond four per feature are added up in random signs first


def find_combinations(
    X: NDArray[np.float64], fixed: NDArray[np.bool_] | None = None, tolerance: float = TOLERANCE
) -> dict[int, list[int]]:
    """The columns that are combinations of earlier ones, each with those that it is made of.

    X: centred where there is an intercept. fixed: columns that stay whatever they are.

    With at least as many features as rows every further feature is a combination of the others,
    which says nothing of them: then none is looked for.

    >>> a, b = np.random.default_rng(0).standard_normal((2, 50))
    >>> find_combinations(np.stack([a, b, a - 2 * b], 1))
    {2: [0, 1]}
    """
    n, p = X.shape
    if p < 2 or p + 1 >= n or p > WIDEST:
        return {}
    fixed = np.zeros(p, bool) if fixed is None else fixed
    A = add_rows(X, 4 * p + SKETCH)
    length = np.linalg.norm(A, axis=0)
    A = A / np.where(length > 0, length, 1)
    Q = np.empty((len(A), p))
    own: list[int] = []
    found: dict[int, list[int]] = {}
    order = [*np.flatnonzero(fixed), *np.flatnonzero(~fixed)]
    for j in order:
        v = A[:, j]
        for _ in range(2):
            v = v - Q[:, : len(own)] @ (Q[:, : len(own)].T @ v)
        left = float(np.linalg.norm(v))
        if left > tolerance:
            Q[:, len(own)] = v / left
            own.append(int(j))
        elif not fixed[j]:
            found[int(j)] = find_parts(A[:, own], A[:, j], own)
    return {j: found[j] for j in sorted(found)}


def find_parts(A: NDArray[np.float64], v: NDArray[np.float64], names: list[int]) -> list[int]:
    """The columns with a weight in the combination."""
    weights = np.linalg.lstsq(A, v, rcond=None)[0]
    return sorted(names[i] for i in np.flatnonzero(np.abs(weights) > 1e-6))


def add_rows(X: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """At most so many rows: random signed sums, which keep linear relations between columns."""
    n, p = X.shape
    if n <= 2 * most:
        return X
    signs = np.random.default_rng(0).choice((-1.0, 1.0), n)
    times = n // most
    head = (X[: times * most] * signs[: times * most, None]).reshape(times, most, p).sum(0)
    head[: n - times * most] += X[times * most :] * signs[times * most :, None]
    return np.asarray(head)


NAMED = re.compile(
    r"(^|.*[_\W])(ids?|uuid|guid|key|index|idx|row|rownames?|no|nr)$|.*[a-z](Id|ID)$"
    r"|.*[a-z]{3}id$|^unnamed.*|^$"
)
TIMES = re.compile(
    r"(year|month|week|day|date|hour|minute|time|age|wave|visit|period|round|session|occasion"
    r"|trial)s?",
    re.I,
)
FEWEST = 10  # rows from which on a column that never repeats itself says something
NEARLY = 0.9  # distinct values per row that are nearly one each
BY_CHANCE = 5.0  # repeated values that chance would bring: none at all has a probability below 1 %
DIGITS = 10**6  # numbers of seven digits or more, all of one length, look like numbers of an office
# values of numbers that restart in every client, from which on they number persons, not times
RESTARTS = 100
# share of the clients that have a typical value: from here on it is a design, such as days 0 to 9
OFTEN = 0.5
VALUES_PER_CLIENT, ROWS_PER_VALUE = 2.0, 1.5  # of nested groups
CLIENTS_OF_NUMBERS = 5  # clients from which on whole numbers that never cross them are groups


class Reason(StrEnum):
    """Why a column serves no model."""

    IDENTIFIER = "identifier"
    NESTED = "nested"
    CONSTANT = "constant"
    COMBINATION = "combination"
    DATE = "date"
    EMPTY = "empty"
    LISTS = "lists"
    IGNORED = "ignored"


ROLE_KINDS = ("number", "category")
LEFT_ROLES = {"identifier": Reason.IDENTIFIER, "ignore": Reason.IGNORED}
SHARING = {"shared": False, "personal": True}
ROLES = (*ROLE_KINDS, *LEFT_ROLES, *SHARING)


@dataclass(frozen=True)
class Role:
    """What is made of a column.

    kind: "number" or "category"; None where it is left out.
    reason: why it is left out.
    personal: whether its weights may differ between clients.
    fixed: whether the user asked for it, so that it stays even if it is constant.
    """

    kind: str | None
    reason: Reason | None = None
    personal: bool = True
    fixed: bool = False


def check_roles(
    roles: Any, columns: Sequence[str], taken: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Roles by column, each one word or several joined by +, such as "category+shared".

    taken: columns that are the label, the client, the split or the mask, and what they are.
    """
    if roles is None:
        return {}
    if not isinstance(roles, Mapping):
        raise InvalidInput(
            f"roles is {roles!r}: give a column and its role each, such as {{'zip': 'ignore'}}"
        )
    checked = {}
    for name, text in roles.items():
        if str(name) in taken:
            raise InvalidInput(
                f"roles gives {name!r} the role {text!r}, and this column is the"
                f" {taken[str(name)]}: leave it out"
            )
        if str(name) not in columns:
            raise unknown_name("column in roles", name, columns)
        words = (
            tuple(word.strip() for word in re.split(r"[+,]", text))
            if isinstance(text, str)
            else (text,)
        )
        for word in words:
            if word not in ROLES:
                raise unknown_name(f"role of column {name!r}", word, ROLES)
        for group in (
            ROLE_KINDS,
            tuple(LEFT_ROLES),
            tuple(SHARING),
            (*LEFT_ROLES, *ROLE_KINDS),
            (*LEFT_ROLES, *SHARING),
        ):
            if sum(word in group for word in words) > 1:
                raise InvalidInput(
                    f"the role of column {name!r} is {text!r}, which contradicts itself: choose one"
                )
        checked[str(name)] = words
    return checked


def assign_role(
    cells: Cells, owner: NDArray[np.intp], words: Sequence[str], named: bool, dates: str
) -> Role:
    """The role of one column.

    owner: each row's client. words: what the user says of the column. named: whether it is among
    the features that the user names. dates: "ignore" or "number".

    >>> import polars as pl
    >>> from fedasym.data.cells import read_cells
    >>> rows = read_cells(pl.Series(range(1, 31)), "rownames")
    >>> assign_role(rows, np.repeat([0, 1], 15), (), False, "ignore").reason
    <Reason.IDENTIFIER: 'identifier'>
    """
    left = [LEFT_ROLES[word] for word in words if word in LEFT_ROLES]
    if left:
        return Role(None, left[0])
    fixed = named or bool(words)
    kind = next((word for word in words if word in ROLE_KINDS), None)
    personal = next((SHARING[word] for word in words if word in SHARING), None)
    if personal is None:
        personal = not is_constant_in_clients(cells, owner)
    if kind is None:
        reason = find_reason(cells, owner, dates)
        if reason is not None and (not fixed or reason in (Reason.EMPTY, Reason.LISTS)):
            return Role(None, reason)
        numeric = (
            cells.kind in (CellKind.NUMBER, CellKind.WHOLE, CellKind.DATE)
            or cells.stray is not None
        )
        kind = "number" if numeric else "category"
    return Role(kind, None, personal, fixed)


def find_reason(cells: Cells, owner: NDArray[np.intp], dates: str) -> Reason | None:
    """Why nothing should be learnt from a column, as far as seen without the training rows."""
    if cells.kind is CellKind.EMPTY:
        return Reason.EMPTY
    if cells.kind is CellKind.LISTS:
        return Reason.LISTS
    if cells.kind is CellKind.DATE:
        return None if dates == "number" else Reason.DATE
    if (
        cells.kind in (CellKind.NUMBER, CellKind.BOOLEAN)
        or cells.declared
        or cells.stray is not None
    ):
        return None
    values, clients = encode_values(cells, owner)
    if is_identifier(cells, values, clients):
        return Reason.IDENTIFIER
    return Reason.NESTED if nests_in_clients(cells, values, clients) else None


def encode_values(
    cells: Cells, owner: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The values that are there, whole numbers as they are, words as codes, and their clients."""
    there = ~cells.missing
    held = cells.values.drop_nulls()
    if cells.kind is CellKind.WHOLE:
        return np.asarray(held.to_numpy(), np.int64), owner[there]
    return np.asarray(held.rank("dense").to_numpy(), np.int64), owner[there]


def is_constant_in_clients(cells: Cells, owner: NDArray[np.intp]) -> bool:
    """Whether a column describes clients, not samples: constant in each, with two rows in some."""
    if cells.kind in (CellKind.EMPTY, CellKind.LISTS):
        return False
    there = ~cells.missing
    held = cells.values.drop_nulls()
    clients = owner[there]
    numeric = cells.kind in (CellKind.NUMBER, CellKind.WHOLE, CellKind.BOOLEAN)
    values = np.asarray(held.to_numpy() if numeric else held.rank("dense").to_numpy())
    if values.size == 0 or np.bincount(clients).max() < 2 or np.all(values == values[0]):
        return False
    if np.any(np.diff(clients) < 0):
        order = np.argsort(clients, kind="stable")
        values = values[order]
        clients = clients[order]
    return not np.any((values[1:] != values[:-1]) & (clients[1:] == clients[:-1]))


def count_pairs(values: NDArray[np.int64], clients: NDArray[np.intp]) -> int:
    """How many different pairs of client and value there are."""
    order = np.lexsort((values, clients))
    v = values[order]
    c = clients[order]
    return int(np.count_nonzero((np.diff(v) != 0) | (np.diff(c) != 0))) + 1 if v.size else 0


def is_called_identifier(name: str) -> bool:
    """Whether the name alone is that of an identifier.

    >>> [name for name in ("pupil_id", "schoolID", "row", "paid") if is_called_identifier(name)]
    ['pupil_id', 'schoolID', 'row']
    """
    return NAMED.match(name.strip().lower() if name.islower() else name) is not None


def is_identifier(cells: Cells, values: NDArray[np.int64], clients: NDArray[np.intp]) -> bool:
    """Whether values number the rows: over the table, or within each client."""
    n, distinct = values.size, np.unique(values).size
    called = is_called_identifier(cells.name)
    if n < FEWEST:
        return called and n > 1 and distinct == n
    if cells.kind is CellKind.TEXT:
        return distinct > NEARLY * n or (
            distinct * ROWS_PER_VALUE > n and count_pairs(values, clients) == distinct
        )
    if distinct == n and (np.all(np.diff(values) > 0) or np.all(np.diff(values) < 0)):
        return True  # it counts up, or down, through the whole table
    width = float(values.max()) - float(values.min()) + 1
    if distinct == n and n * (n - 1) / 2 / width >= BY_CHANCE:
        return True  # chance would have repeated some
    if distinct > NEARLY * n:
        low, high = np.abs(values).min(), np.abs(values).max()
        office = low >= DIGITS and len(str(low)) == len(str(high))
        return called or office
    return restarts_in_clients(cells, values, clients, distinct)


def restarts_in_clients(
    cells: Cells, values: NDArray[np.int64], clients: NDArray[np.intp], distinct: int
) -> bool:
    """Whether values number the rows of each client anew, as pupils of a school, rather than times
    of a design.

    Both never repeat within a client. Times return in most clients (days 0 to 9 of every subject),
    are few, or increase without counting one by one; numbers of persons are many, and a typical one
    occurs in few clients.
    """
    if distinct <= RESTARTS or TIMES.search(cells.name):
        return False
    counts = np.bincount(clients)
    pairs = count_pairs(values, clients)
    repeated = values.size - pairs
    by_chance = float(np.sum(counts * (counts - 1.0)) / 2 / distinct)
    often = pairs / (distinct * np.count_nonzero(counts))
    if by_chance < BY_CHANCE or repeated > 0.1 * by_chance or often >= OFTEN:
        return False
    order = np.argsort(clients, kind="stable")
    steps = np.diff(values[order])[np.diff(clients[order]) == 0]
    return bool(np.mean(steps > 0) < NEARLY or np.mean(steps == 1) > NEARLY)


def nests_in_clients(cells: Cells, values: NDArray[np.int64], clients: NDArray[np.intp]) -> bool:
    """Whether values are groups: each in one client, several in a client, several rows in each."""
    distinct, held = np.unique(values).size, np.unique(clients).size
    least = 2 if cells.kind is CellKind.TEXT else CLIENTS_OF_NUMBERS
    if (
        held < least
        or distinct < VALUES_PER_CLIENT * held
        or values.size < ROWS_PER_VALUE * distinct
    ):
        return False
    return count_pairs(values, clients) == distinct


def explain_variance(
    groups: NDArray[np.int64], clients: NDArray[np.intp], labels: NDArray[np.float64]
) -> float | None:
    """The share of the variance within clients that lies between nested groups: the intraclass
    correlation.

    By the nested analysis of variance: with N rows, G groups, C clients, n_g rows of a group and
    n_c of a client, k = (N - sum_c sum_{g in c} n_g^2/n_c)/(G - C) and the share is (MSB -
    MSW)/(MSB + (k - 1) MSW).

    >>> codes, who = np.repeat(np.arange(8), 2), np.repeat(np.arange(2), 8)
    >>> explain_variance(codes, who, np.repeat([1.0, 2, 3, 4, 5, 6, 7, 8], 2))
    1.0
    """
    _, g = np.unique(groups, return_inverse=True)
    _, c = np.unique(clients, return_inverse=True)
    N = labels.size
    G = int(g.max()) + 1
    C = int(c.max()) + 1
    if G <= C or N <= G:
        return None
    n_g, n_c = np.bincount(g), np.bincount(c)
    residual = labels - (np.bincount(c, labels) / n_c)[c]
    group_mean = np.bincount(g, residual) / n_g
    between = float(np.sum(n_g * group_mean**2)) / (G - C)
    within = float(np.sum((residual - group_mean[g]) ** 2)) / (N - G)
    of_group = np.zeros(G, np.intp)
    of_group[g] = c
    k = (N - float(np.sum(n_g**2 / n_c[of_group]))) / (G - C)
    total = between + (k - 1) * within
    return None if total <= 0 or k <= 0 else float(np.clip((between - within) / total, 0, 1))
