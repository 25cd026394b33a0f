"""Tables with every nuisance that files of users have, drawn at random: for tests and for
benchmarks/tables_fuzz.py.
"""

import contextlib
import csv
import io
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

import fedasym as fa
from fedasym.core.errors import InvalidInput
from fedasym.data.federation import Federation
from fedasym.data.formats import read

WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "na", " ")
WEAK = (".", "?", "-")


@dataclass
class Table:
    """Columns of text, how they are written, and what the reader is told."""

    columns: dict[str, list[str]]
    separator: str = ","
    comma: bool = False
    mark: bool = False
    ends: str = "\n"
    quoted: bool = False
    form: str = "csv"  # csv, polars, pandas
    options: dict[str, Any] = field(default_factory=dict)


def number(random: Random) -> float:
    return random.gauss(0, 1)


def cells_of_numbers(random: Random, n: int) -> list[str]:
    scale = random.choice([1, 1, 1, 1e3, 1e-9, 1e20, 1e60, 1e200, 1e-200, 1e-320])
    digits = random.choice([2, 6, 17])
    return [f"{scale * random.gauss(random.choice([0, 3]), 1):.{digits}g}" for _ in range(n)]


def cells_of_whole(random: Random, n: int) -> list[str]:
    top = random.choice([1, 2, 5, 100, 10**6, 10**12, 10**30])
    return [str(random.randrange(-top if random.random() < 0.3 else 0, top + 1)) for _ in range(n)]


def cells_of_category(random: Random, n: int) -> list[str]:
    levels = random.choice(
        [
            ["f", "m"],
            ["yes", "no"],
            ["true", "false"],
            ["TRUE", "FALSE"],
            [f"l{i}" for i in range(60)],
            ["é", "水", "a=b"],
        ]
    )
    weights = [1 / (i + 1) ** random.choice([0, 1, 3]) for i in range(len(levels))]
    return random.choices(levels, weights, k=n)


def cells_of_dates(random: Random, n: int) -> list[str]:
    form = random.choice(
        [
            "2024-{m:02}-{d:02}",
            "{d}/{m}/2024",
            "2024-{m:02}-{d:02} 12:{d:02}:00",
            "2024-{m:02}-{d:02}T09:00",
            "31.12.{m}",
        ]
    )
    return [form.format(m=random.randint(1, 12), d=random.randint(1, 28)) for _ in range(n)]


def cells_of_codes(random: Random, n: int) -> list[str]:
    return [f"{random.randrange(10**5):05}" for _ in range(n)]


def cells_of_identifiers(random: Random, n: int) -> list[str]:
    kind = random.randrange(4)
    if kind == 0:
        return [str(i + 1) for i in range(n)]
    if kind == 1:
        return [str(i) for i in random.sample(range(10**7, 10**7 + 3 * n + 1), n)]
    if kind == 2:
        return [f"user {i:x}" for i in random.sample(range(16 * n + 1), n)]
    return [str(random.randrange(1, n + 1)) for _ in range(n)]


def cells_of_trouble(random: Random, n: int) -> list[str]:
    kind = random.randrange(6)
    cells = cells_of_numbers(random, n)
    if kind == 0:
        cells[random.randrange(n)] = random.choice(
            ["oops", "inf", "-inf", "1e999", "12 kg", "0x10"]
        )
    elif kind == 1:
        cells = [f"{random.randrange(1, 999)},{random.randrange(1000):03}" for _ in range(n)]
    elif kind == 2:
        cells = [random.choice(["1.234.567", "1,234,567", "1 234"]) for _ in range(n)]
    elif kind == 3:
        cells = [""] * n
    elif kind == 4:
        cells = [random.choice(["7", "constant"])] * n
    else:
        cells = [random.choice(["12", "12a", "K"]) for _ in range(n)]
    return cells


MAKERS = (cells_of_numbers,) * 4 + (
    cells_of_whole,
    cells_of_whole,
    cells_of_category,
    cells_of_category,
    cells_of_dates,
    cells_of_codes,
    cells_of_identifiers,
    cells_of_trouble,
)
NAMES = (
    "x",
    "age",
    " size ",
    "sex",
    "sex=m",
    "id",
    "rownames",
    "day",
    "Größe",
    "水",
    "a b",
    'quo"te',
    "x missing",
    "features",
    "mask",
    "",
)


def draw_table(random: Random) -> Table:
    n = random.choice([1, 2, 5, 12, 40, 40, 120, 120])
    m = random.choice([1, 2, 5, 8])
    owner = [random.randrange(m) for _ in range(n)]
    if random.random() < 0.5:
        owner.sort()
    clients = random.choice(
        [
            ["a", "b", "c", "d", "e", "f", "g", "h"],
            list("12345678"),
            ["007", "7", "08", "9", "x", "y", "z", "NA"],
        ]
    )
    columns: dict[str, list[str]] = {"client": [clients[i] for i in owner]}
    for name in random.sample(NAMES, random.randint(0, 6)):
        columns[name] = random.choice(MAKERS)(random, n)
    if random.random() < 0.3:
        columns["school size"] = [str(100 + 7 * i) for i in owner]
    if random.random() < 0.3:
        columns["pupil"] = [f"{1000 * i + random.randrange(max(1, n // (3 * m)))}" for i in owner]
    numbers = [
        name for name in columns if columns[name] and re.fullmatch(r"-?\d+\.\d+", columns[name][0])
    ]
    if len(numbers) > 1 and random.random() < 0.5:
        with contextlib.suppress(ValueError):
            columns["sum"] = [
                str(float(a) - 2 * float(b))
                for a, b in zip(columns[numbers[0]], columns[numbers[1]], strict=True)
            ]
    columns["label"] = random.choice([*MAKERS, cells_of_numbers, cells_of_numbers])(random, n)
    if random.random() < 0.2:
        columns["split"] = [
            random.choice(["train", "train", "test", "validation"]) for _ in range(n)
        ]
    if random.random() < 0.4:
        for name, cells in columns.items():
            if random.random() < 0.4:
                word = random.choice(WORDS + WEAK)
                columns[name] = [word if random.random() < 0.1 else cell for cell in cells]
    form = random.choice(["csv", "csv", "csv", "polars", "pandas"])
    separator = random.choice([",", ",", ";", "\t", "|"])
    table = Table(
        columns,
        separator,
        separator != "," and random.random() < 0.5,
        random.random() < 0.2,
        random.choice(["\n", "\r\n"]),
        random.random() < 0.3,
        form,
    )
    table.options = draw_options(random, list(columns))
    return table


def draw_options(random: Random, columns: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "missing": random.choice(["error", "drop", "mean", "indicator", "indicator"])
    }
    if random.random() < 0.3:
        options["scale"] = "none"
    if random.random() < 0.2:
        options["intercept"] = False
    if random.random() < 0.3:
        options["dates"] = "number"
    if random.random() < 0.2:
        options["task"] = random.choice(["regression", "classification"])
    others = [name.strip() for name in columns if name not in ("client", "label", "split")]
    if others and random.random() < 0.2:
        options["features"] = random.sample(others, random.randint(1, len(others)))
    if others and random.random() < 0.2:
        options["roles"] = {
            random.choice(others): random.choice(
                ["number", "category", "ignore", "shared", "personal", "identifier"]
            )
        }
    return options


def tables() -> st.SearchStrategy[Table]:
    """Random tables, which shrink."""
    return st.builds(draw_table, st.randoms(use_true_random=False))


def write_table(table: Table) -> bytes:
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=table.separator,
        lineterminator=table.ends,
        quoting=csv.QUOTE_ALL if table.quoted else csv.QUOTE_MINIMAL,
    )
    writer.writerow(table.columns)
    for row in zip(*table.columns.values(), strict=True):
        writer.writerow(
            [re.sub(r"^(-?\d+)\.(\d+)$", r"\1,\2", cell) for cell in row] if table.comma else row
        )
    return (b"\xef\xbb\xbf" if table.mark else b"") + out.getvalue().encode()


def read_case(table: Table, folder: Path) -> Federation:
    """The federation of a random table, by the way in that it asks for."""
    if table.form == "csv":
        file = folder / "table.csv"
        file.write_bytes(write_table(table))
        return read(file, **table.options)
    columns = {name.strip(): cells for name, cells in table.columns.items()}
    frame: Any = pl.DataFrame(columns)
    if table.form == "pandas":
        import pandas as pd

        frame = pd.DataFrame(columns).replace({"": None, "NA": None})
    options = dict(table.options)
    split = "split" if "split" in columns else None
    return Federation.from_frame(frame, label="label", client="client", split=split, **options)


def answer(table: Table, folder: Path) -> str:
    """What came of a case: "read", or the kind of the refusal; anything else than these two is
    raised.
    """
    try:
        federation = read_case(table, folder)
    except InvalidInput as reason:
        return kind_of(str(reason))
    recipe = federation.recipe
    assert recipe is not None
    assert federation.names == recipe.names
    assert np.isfinite(federation.features).all()
    assert np.isfinite(federation.labels).all()
    assert type(recipe).from_json(recipe.to_json()) == recipe
    assert recipe.describe()
    return judge(federation)


def judge(federation: Federation) -> str:
    """What advice and a fit make of a federation: an answer whose numbers are finite and in their
    intervals, or a sentence.
    """
    if federation.outputs > 1 and federation.classes is None:
        return "read, several outputs"
    try:
        advice = fa.advise(federation)
    except InvalidInput as reason:
        return f"read; {kind_of(str(reason))}"
    judge_numbers(advice)
    steps = getattr(advice, "steps", None)
    scaled = federation.recipe is None or federation.recipe.scale != "none"
    assert steps is None or steps.step > 1e-6 or not scaled, steps
    assert str(advice).startswith("Use ")
    assert not re.search(r"\b(nan|inf)\b", str(advice)), str(advice)
    json.loads(advice.to_json(), parse_constant=refuse_constant)
    model = fa.fit(federation, advice.recommended)
    known = [federation.clients[place] for place in federation.owner]
    predicted = model.predict(federation.features, client=known)
    if federation.classes is None:
        assert np.isfinite(predicted).all()
    return "advised"


def judge_numbers(advice: Any) -> None:
    """Whether every number is finite or None, every value within its interval, and the recommended
    one known.
    """
    for row in advice.table():
        assert all(np.isfinite(value) for value in row.values() if isinstance(value, float)), row
        if row["recommended"]:
            assert row.get("loss", row.get("accuracy")) is not None, row
        for name in ("new", "log_loss"):
            ends = [row.get(key) for key in (f"{name}_low", name, f"{name}_high")]
            known = [value for value in ends if value is not None]
            assert known == sorted(known), row
    rows = advice.predictions
    for row in rows.values():
        shown = [row.log_loss, row.accuracy] if advice.metric.name == "log_loss" else [row.level]
        assert all(
            each.low <= each.value <= each.high for each in shown if np.isfinite(each.value)
        ), row
        if not isinstance(advice, fa.Advice):
            assert all(0 <= value <= 1 for value in asdict(shown[-1]).values()), row


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def kind_of(sentence: str) -> str:
    """A refusal without what is particular to its case."""
    text = re.sub(r"^.*?table\.csv'?: ", "", sentence)
    text = re.sub(r"'[^']*'", "...", text)
    return re.sub(r"[\d.e+-]*\d", "0", text)[:60]
