"""Numbers at the door and as text, and what counts over clients come to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput

Array = NDArray[np.float64]

SUM_TOLERANCE = 1e-9  # what shares may be off from one in all

MOST = 2**53  # up to here every whole number is a float
# kinds of arrays that NumPy would read as floats, or try to: complex numbers, dates, text
NO_NUMBERS = "cmMSUV"


def floats(value: Any) -> NDArray[np.float64] | None:
    """A new array of floats; None where the value is no number, no array of numbers, or too large
    for a float.

    >>> floats([1, 2]), floats("1"), floats(10**400)
    (array([1., 2.]), None, None)
    """
    try:
        array = np.asarray(value)
        return None if value is None or array.dtype.kind in NO_NUMBERS else array.astype(float)
    except (TypeError, ValueError, OverflowError):
        return None


def one_float(value: Any) -> float:
    """One number as a float; NaN, which no range allows, for everything else.

    >>> one_float(2), one_float([2]), one_float(10**400)
    (2.0, nan, nan)
    """
    array = floats(value)
    return float(array) if array is not None and array.ndim == 0 else float("nan")


def amount(field: str, value: Any) -> float:
    """A finite number of at least 0: the size of a step, a time."""
    number = one_float(value)
    if not 0 <= number < np.inf:
        raise InvalidInput(f"{field} is {value!r}: it must be finite and at least 0")
    return number


def whole(field: str, value: Any, least: int, most: int = MOST) -> int:
    """A whole number in its range; a float that is one will do.

    >>> whole("clients", 3.0, least=1)
    3
    >>> whole("clients", [3], least=1)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: clients is [3]: it must be a whole number of at least 1
    """
    number = one_float(value)
    large = value > most if isinstance(value, int) else number > most
    if large or isinstance(value, bool | np.bool_) or not (number >= least and number.is_integer()):
        end = f" and at most {most}" if large else ""
        raise InvalidInput(
            f"{field} is {value!r}: it must be a whole number of at least {least}{end}"
        )
    return int(number)


def flag(field: str, value: Any) -> bool:
    """True or False; anything else, which might mean either, is refused.

    >>> flag("member", "no")
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: member is 'no': it must be True or False
    """
    if not isinstance(value, int | np.bool_) or value not in (0, 1):
        raise InvalidInput(f"{field} is {value!r}: it must be True or False")
    return bool(value)


def check_seed(seed: Any) -> int:
    """A whole number that fits 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InvalidInput(f"seed is {seed!r}: it must be a whole number from 0 to 2^64 - 1")
    return int(seed)


def number(value: Any) -> str:
    """A number in five significant digits, a dash where there is none."""
    return "-" if value is None or np.ndim(value) else f"{float(value):.5g}"


def json_value(value: Any) -> Any:
    """A number or nested list for JSON, which lacks infinities (strings here) and NaN (null)."""
    if value is None or np.ndim(value):
        return None if value is None else [json_value(entry) for entry in np.asarray(value)]
    value = float(value)
    return value if np.isfinite(value) else None if np.isnan(value) else str(value)


def notebook_text(result: object) -> str:
    """A result's text for a notebook."""
    from html import escape

    return f"<pre>{escape(str(result))}</pre>"


class TextTable(NamedTuple):
    """A table as it is printed: headings and rows of words; `left` columns are flush left.

    >>> table = TextTable(["a", "b"], [["x", "1%"], ["y_1", "10%"]], left=1)
    >>> table.lines()
    ['a      b', 'x     1%', 'y_1  10%']
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1
    last_left: bool = False

    def lines(self) -> list[str]:
        """As text."""
        rows = [list(self.head), *map(list, self.rows)]
        if self.last_left:
            width = max(len(row[-1]) for row in rows)
            rows = [[*row[:-1], f"{row[-1]:<{width}}"] for row in rows]
        return columns(rows, left=self.left)

    def is_left(self, at: int) -> bool:
        """Whether a column is flush left."""
        return at < self.left or (self.last_left and at == len(self.head) - 1)


def columns(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Rows of cells as lines, each column as wide as it needs, the first `left` ones flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            f"{text:<{width}}" if i < left else f"{text:>{width}}"
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def html_tables(tables: Iterable[TextTable], title: str = "", notes: Iterable[str] = ()) -> str:
    """Tables for a notebook, with their words above and below.

    >>> html_tables([TextTable(["a"], [["<1"]])], notes=["One."])
    '<table><thead><tr><th style="text-align:left">a</th></tr></thead>\
<tbody><tr><td style="text-align:left">&lt;1</td></tr></tbody></table><p>One.</p>'
    """
    from html import escape

    parts = [f"<p>{escape(title)}</p>"] if title else []
    for table in tables:
        sides = ["left" if table.is_left(at) else "right" for at in range(len(table.head))]

        def row(cells: Sequence[str], tag: str, sides: list[str] = sides) -> str:
            told = (
                f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr>{''.join(told)}</tr>"

        above = f"<p>{escape(table.title)}</p>" if table.title else ""
        body = "".join(row(cells, "td") for cells in table.rows)
        head = row(table.head, "th")
        parts.append(f"{above}<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    return "".join([*parts, *(f"<p>{escape(note)}</p>" for note in notes)])


LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {each: f"\\{each}" for each in "&%$#_{}"} | {"–": "--", "±": r"$\pm$", "<": "$<$"}
LATEX |= {">": "$>$"}


def latex_tables(tables: Iterable[TextTable]) -> str:
    r"""Tables for a paper, in the style of the package booktabs.

    >>> print(latex_tables([TextTable(["a_1", "share"], [["x", "1%"]])]))
    \begin{tabular}{lr}
    \toprule
    a\_1 & share \\
    \midrule
    x & 1\% \\
    \bottomrule
    \end{tabular}
    """

    def row(cells: Iterable[str]) -> str:
        told = ("".join(LATEX.get(sign, sign) for sign in cell) for cell in cells)
        return f"{' & '.join(told)} \\\\"

    parts = []
    for table in tables:
        sides = "".join("l" if table.is_left(at) else "r" for at in range(len(table.head)))
        above = [f"% {table.title}"] if table.title else []
        top = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", row(table.head), r"\midrule"]
        rows = [row(cells) for cells in table.rows]
        parts.append("\n".join([*above, *top, *rows, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(parts)


def plural(count: int, noun: str) -> str:
    """A count and its noun.

    >>> plural(1, "class"), plural(2, "class"), plural(0, "client")
    ('1 class', '2 classes', '0 clients')
    """
    return (
        f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"
    )


def join_names(names: Iterable[Any], most: int = 8, quoted: bool = False) -> str:
    """Names with commas, the first few of many; "nothing" where there are none.

    >>> join_names("abc", most=2), join_names([])
    ('a, b and 1 more', 'nothing')
    """
    known = [repr(str(name)) if quoted else str(name) for name in names]
    rest = len(known) - most
    return (
        ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "") if known else "nothing"
    )


def join_with_and(names: Sequence[str]) -> str:
    """Names as in a sentence.

    >>> join_with_and(["ftfa"]), join_with_and(["ftfa", "rtfa", "maml_fo"])
    ('ftfa', 'ftfa, rtfa and maml_fo')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


Sums = NDArray[np.floating[Any]]  # (rounds, clients)
Counts = NDArray[np.integer[Any]]  # (clients,)


def ratio(sums: ArrayLike, counts: ArrayLike) -> Array:
    """Sums over counts, NaN where nothing was counted.

    >>> ratio([3, 0], [4, 0]).tolist()
    [0.75, nan]
    """
    top, bottom = np.broadcast_arrays(np.asarray(sums, float), np.asarray(counts, float))
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0))


def pooled_ratio(sums: Sums, counts: Counts) -> Array:
    """All clients' samples together: a client weighs as much as it has samples.

    >>> pooled_ratio(np.array([[1.0, 6.0]]), np.array([2, 8])).tolist()
    [0.7]
    """
    return ratio(sums[:, counts > 0].sum(1, dtype=float), counts.sum())


def client_ratios(sums: Sums, counts: Counts) -> Array:
    """Each client's own, for the clients that have samples."""
    return ratio(sums[:, counts > 0], counts[counts > 0])


def mean_client_ratio(sums: Sums, counts: Counts) -> Array:
    """The mean of the clients' own: each client weighs the same.

    >>> mean_client_ratio(np.array([[1.0, 6.0]]), np.array([2, 8])).tolist()
    [0.625]
    """
    each = client_ratios(sums, counts)
    return ratio(each.sum(1), each.shape[1])


def lowest_tenth(sums: Sums, counts: Counts) -> Array:
    """The mean of the lowest of the clients' own, a tenth of the clients rounded up.

    >>> lowest_tenth(np.arange(11.0)[None], np.full(11, 10)).tolist()
    [0.05]
    """
    each = client_ratios(sums, counts)
    few = -(-each.shape[1] // 10)
    lowest = ratio(np.sort(each, axis=1)[:, :few].sum(1), few)
    return np.where(np.isnan(each).any(1), np.nan, lowest)  # sorting puts NaN last, among the best


def canonical_json(value: Any) -> str:
    """JSON with one form for equal values.

    >>> canonical_json({"b": [1.0, 0.1], "a": None})
    '{"a":null,"b":[1.0,0.1]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def three_digits(value: float | None) -> str:
    """Three significant digits.

    >>> [three_digits(value) for value in (0.123456, 12345.6, None, 2.0, float("inf"))]
    ['0.123', '12300', '-', '2', 'none']
    """
    if value is None:
        return "-"
    if not np.isfinite(value):
        return "none"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    text = f"{round(value, digits):.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if digits > 0 else text


def four_digits(value: float | None) -> str:
    """Four significant digits; a dash where there is no number, "none" where it is infinite."""
    if value is None or np.isnan(value):
        return "-"
    return "none" if np.isinf(value) else f"{value:.4g}"


def percent_text(value: float | None) -> str:
    """A share in percent, to a tenth."""
    return "-" if value is None or np.isnan(value) else f"{100 * value:.1f}%"


def check_ridge(ridge: ArrayLike) -> float | NDArray[np.float64]:
    """A ridge: a real number, infinity, or an array; negative ones meet the population later."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(
            f"ridge is {ridge!r}: it must be a number or an array of numbers; leave it out for the"
            " best"
        )
    if np.any(np.isnan(array)) or np.any(array == -np.inf):
        raise InvalidInput(
            "ridge is not a number: give a number of at least 0, or leave it out for the best ridge"
        )
    return float(array) if array.ndim == 0 else array


def pool_shares(counts: Any) -> Array:
    """The shares of the classes among all samples, one more of each class counted: none is 0.

    >>> pool_shares(np.array([5, 0, 2])).tolist()
    [0.6, 0.1, 0.3]
    """
    numbers = np.asarray(counts, dtype=float)
    return np.asarray((numbers + 1) / (numbers.sum() + len(numbers)))


ROUNDING = 1e-6  # losses closer than this, relatively, are the same in float32


def share_worse(own: Sums, shared: Sums, counts: Counts, losses: bool) -> Array:
    """The share of clients strictly worse on their own: fewer correct, or more loss than rounding.

    >>> own, shared = np.array([[3.0, 5.0]]), np.array([[4.0, 5.0]])
    >>> share_worse(own, shared, np.array([9, 9]), losses=False).tolist()
    [0.5]
    """
    own, shared = (np.asarray(sums[:, counts > 0], float) for sums in (own, shared))
    hurt = own > shared * (1 + ROUNDING) if losses else own < shared
    lost = (np.isnan(own) | np.isnan(shared)).any(1)
    return np.where(lost, np.nan, ratio(hurt.sum(1), hurt.shape[1]))


def log1p(x: Any) -> Any:
    """log(1 + x) for real or complex x: NumPy's loses the digits of small complex ones."""
    if not np.iscomplexobj(x):
        return np.log1p(x)
    a = np.real(x)
    b = np.imag(x)
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))


def covariance_of(J: Array) -> Array:
    """The inverse of an information matrix; infinite variances where it has none."""
    known = np.diag(J) > 0
    out = np.zeros_like(J)
    out[np.ix_(known, known)] = np.linalg.pinv(J[np.ix_(known, known)], hermitian=True)
    out[~known, ~known] = np.inf
    return out
