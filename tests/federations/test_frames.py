"""Client data from frames gives what arrays give."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from fedasym.core.errors import InvalidInput, NotNumbers
from fedasym.data.federation import Federation
from fedasym.data.splits import SPLITS

from .small import NEXT, REAL, WORDS, federations, same

NAMED = {"label": "what", "client": "who", "split": "when"}


def in_words(name):
    """A name that a table takes for one: no number, nothing missing, no space around it."""
    return f"[{name}]" if isinstance(name, str) else name


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(federations(sequences=False))
def test_frames_give_what_arrays_give(federation):
    names = [in_words(federation.clients[i]) for i in federation.owner]
    codes = federation.labels
    labels = (
        codes[:, 0]
        if federation.classes is None
        else np.array([in_words(each) for each in federation.classes])[codes]
    )
    split = [SPLITS[code] for code in federation.split]
    columns = [f"x{j}" for j in range(federation.dimension)]
    data = {
        "who": names,
        "what": labels,
        "when": split,
        **dict(zip(columns, federation.features.T, strict=True)),
    }
    expected = Federation.from_arrays(federation.features, labels, names, split=split)
    for frame in (
        pl.DataFrame(data),
        pl.DataFrame(data).lazy(),
        pd.DataFrame(data),
        pd.DataFrame(data)[::-1][::-1],
    ):
        read = Federation.from_frame(
            frame, **NAMED, features=columns, scale="none", task=federation.task
        )
        same(expected, replace(read, features=read.features.astype(federation.features.dtype)))
        assert read.names == tuple(columns)
    lists = [row.tolist() for row in federation.features]
    fixed = Federation.from_arrays(federation.features.astype(float), labels, names, split=split)
    for frame in (pl.DataFrame({**data, "x": lists}), pd.DataFrame({**data, "x": lists})):
        same(fixed, Federation.from_frame(frame, **NAMED, features="x", task=federation.task))


def test_frames_of_sequences_of_several_outputs_and_of_categories():
    frame = pl.DataFrame({"who": [1, 2, 1], "x": WORDS, "y": NEXT, "real": REAL})
    expected = Federation.from_arrays(WORDS, NEXT, [1, 2, 1], mask=REAL, seed=4)
    same(
        expected,
        Federation.from_frame(frame, label="y", client="who", features="x", mask="real", seed=4),
    )
    rows = {
        "who": [1, 2, 1],
        "x": [list(each) for each in WORDS],
        "y": list(NEXT),
        "real": list(REAL),
    }
    same(
        expected,
        Federation.from_frame(
            pd.DataFrame(rows), label="y", client="who", features="x", mask="real", seed=4
        ),
    )
    lists = frame.with_columns(pl.col("y").arr.to_list())
    same(
        expected,
        Federation.from_frame(lists, label="y", client="who", features=["x"], mask=REAL, seed=4),
    )

    frame = pl.DataFrame(
        {
            "who": list("aab"),
            "note": list("xyy"),
            "flag": [True] * 3,
            "x": [1, 2, 3],
            "u": [0.5] * 3,
            "v": [1] * 3,
        }
    )
    two = Federation.from_frame(frame, label=["u", "v"], client="who")
    assert (two.outputs, two.names, two.task) == (2, ("note=y", "x"), "regression")
    same(
        two,
        Federation.from_frame(
            frame.to_pandas(), label=("u", "v"), client="who", split=(0.8, 0.1, 0.1)
        ),
    )
    same(two, Federation.from_frame(frame.to_arrow(), label=["u", "v"], client="who"))
    named = frame.with_columns(
        pl.col("note").cast(pl.Categorical), pl.col("who").cast(pl.Enum(["a", "b"]))
    )
    expected = Federation.from_frame(frame, label="note", client="who", features=["flag", "x"])
    same(expected, Federation.from_frame(named, label="note", client="who", features=["flag", "x"]))
    same(
        expected,
        Federation.from_frame(
            named.to_pandas(), label="note", client="who", features=["flag", "x"]
        ),
    )
    decimal = frame.with_columns(pl.col("u").cast(pl.Decimal(10, 2)))
    assert (
        Federation.from_frame(decimal, label="u", client="who", features=["x"])
        .labels.ravel()
        .tolist()
        == [0.5] * 3
    )
    nullable = frame.to_pandas().convert_dtypes()
    same(two, Federation.from_frame(nullable, label=["u", "v"], client="who"))


BASE = {"who": list("aabb"), "x": [1.0, 2.0, 4.0, 7.0], "y": [1.0, 2.5, 3.0, 4.0]}


def column(values, frame=pd.DataFrame, **options):
    """The values as a column "z" beside a number: what is read of it, unscaled; None where it is
    left out.
    """
    held = frame({**BASE, "z": values})
    given = {"scale": "none", "split": ["train"] * 4, **options}
    read = Federation.from_frame(held, label="y", client="who", **given)
    return read.features[:, read.names.index("z")].tolist() if "z" in read.names else None


def objects(*values):
    return pd.Series(values, dtype=object)


def test_numbers_of_any_python_type_are_numbers():
    half, three = Fraction(1, 2), Decimal(3)
    assert column(objects(half, None, three, 4), missing="mean") == [0.5, 2.5, 3, 4]
    assert column(objects(1, 2**70, 3, 4)) == [1, 2.0**70, 3, 4]
    unsigned = pl.Series([1, 2**64 - 1, 3, 4], dtype=pl.UInt64)
    assert column(unsigned, pl.DataFrame) == [1, 2.0**64, 3, 4]
    decimals = pl.DataFrame({"who": [1, 1], "x": [[1.0], [2.0]], "y": [Decimal("1.5"), three]})
    read = Federation.from_frame(decimals, label="y", client="who", features="x")
    assert read.labels.ravel().tolist() == [1.5, 3]


def test_spans_of_time_are_days_and_dates_beside_them_are_no_missing_cells():
    spans = [timedelta(1), timedelta(hours=6), timedelta(3), timedelta(2)]
    assert column(spans, pl.DataFrame) == column(objects(*spans)) == [1, 0.25, 3, 2]
    days = objects(date(2024, 5, 1), None, datetime(2024, 5, 2, 6), date(2024, 5, 9))
    assert column(days, dates="number", missing="mean")[::2] == [0, 1.25]
    zones = objects(*(datetime(2024, 5, at, tzinfo=(None, UTC)[at % 2]) for at in range(1, 5)))
    assert column(zones, dates="number") == [0, 1, 2, 3]
    for mixed in (objects(*spans[:3], date(2024, 5, 1)), objects(date(2024, 5, 1), *spans[:3])):
        assert column(mixed, missing="drop", roles={"z": "category"}) is None
        with pytest.raises(NotNumbers, match=r"column 'z' holds words .*such as '(2024|1 day)"):
            column(mixed, missing="drop", features=["x", "z"], roles={"z": "number"})


def test_columns_that_hold_nothing_or_no_values_are_left_out():
    for empty in (objects(None, None, None, None), np.full(4, np.nan)):
        assert column(empty, missing="drop") is None
    for empty in (pl.Series([None] * 4, dtype=pl.Int64), pl.Series([float("nan")] * 4)):
        assert column(empty, pl.DataFrame) is None
    assert column(objects({}, {"a": 1}, None, {})) is None
    assert column([0.0, 0, 0, 5], split=["train"] * 3 + ["test"]) is None
    assert column(objects(None, None, None, None), missing="mean", roles={"z": "number"}) == [0] * 4


def test_names_of_clients_as_categories_beside_lists():
    frame = pl.DataFrame({"x": [[1.0], [2.0]], "y": [0.5, 1.5], "who": ["b", "a"]})
    expected = Federation.from_frame(frame, label="y", client="who", features="x")
    named = frame.with_columns(pl.col("who").cast(pl.Categorical))
    same(expected, Federation.from_frame(named, label="y", client="who", features="x"))


def test_columns_of_numbers_with_labels_that_are_lists():
    frame = pl.DataFrame({"who": list("ab"), "u": [1, 2], "v": [0.5, 1], "y": [[0.0, 1], [1, 1]]})
    expected = Federation.from_arrays([[1, 0.5], [2, 1]], [[0.0, 1], [1, 1]], ["a", "b"])
    same(expected, Federation.from_frame(frame, label="y", client="who", features=["u", "v"]))


class Arrow:
    """A table that can only hand itself over as an Arrow stream, as DuckDB's relations do."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, schema=None):
        return self.frame.__arrow_c_stream__(schema)


def test_tables_of_other_libraries_come_through_arrow():
    frame = pl.DataFrame(BASE)
    same(
        Federation.from_frame(frame, label="y", client="who"),
        Federation.from_frame(Arrow(frame), label="y", client="who"),
    )


class Dataset:
    """What is asked of Hugging Face's `Dataset`, for where that package is not installed."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, frame, classes=None):
        about = {"names": classes, "_type": "ClassLabel"}
        self.frame, self.num_rows = frame, frame.height
        self.features = None if classes is None else SimpleNamespace(to_dict=lambda: {"y": about})

    def with_format(self, name):
        assert name == "arrow"
        return self.frame.to_arrow()


class DatasetDict(dict):
    __module__ = "datasets.dataset_dict"


class IterableDataset:
    __module__ = "datasets.iterable_dataset"


def test_hugging_face_datasets_and_their_splits():
    frame = pl.DataFrame({"who": list("aabb"), "x": [1.0, 2.0, 4.0, 7.0], "y": [0, 1, 1, 0]})
    words = frame.with_columns(y=pl.Series(["cat", "dog", "dog", "cat"]))
    named = {"label": "y", "client": "who", "scale": "none"}
    found = Federation.from_frame(Dataset(frame, ["cat", "dog"]), **named)
    same(found, Federation.from_frame(words, **named))
    same(Federation.from_frame(Dataset(words), **named), found)
    parts = DatasetDict(train=Dataset(words[::2]), test=Dataset(words[1::2]))
    assert Federation.from_frame(parts, **named, split="split").counts("test").tolist() == [1, 1]
    with pytest.raises(InvalidInput, match="frame is a IterableDataset, which streams its rows"):
        Federation.from_frame(IterableDataset(), **named)
