"""Client data from frames gives what arrays give."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import HealthCheck, given, settings

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
