"""A user's own tables, as Parquet, safetensors or CSV, and folders of them."""

import numpy as np
import polars as pl
import pytest

from fedasym.data.federation import Federation
from fedasym.data.formats import read

from .owned import CLIENTS, EXPECTED, HELD_OUT, RNG, TESTED, TRAINED, WHO, X, Y, refused, same

# Parquet, safetensors


@pytest.mark.parametrize("ending", [".parquet", ".safetensors"])
def test_saved_federations_come_back_and_can_be_split_anew(tmp_path, ending):
    path = EXPECTED.save(tmp_path / f"saved{ending}")
    same(read(path), EXPECTED)
    same(
        read(path, split=(0.5, 0.2, 0.3), seed=4),
        Federation.from_arrays(X, Y, WHO, split=(0.5, 0.2, 0.3), seed=4),
    )


def test_a_saved_federation_takes_no_other_names(tmp_path):
    refused(
        EXPECTED.save(tmp_path / "saved.safetensors"),
        "saved.safetensors",
        "has its own",
        label="score",
    )
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    refused(tmp_path / "bad.safetensors", "bad.safetensors", "cannot be read")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    refused(tmp_path / "bad.parquet", "bad.parquet", "cannot be read")


# CSV, folders of tables

RAW = {"scale": "none", "task": "classification"}


def frame(x, y, **more):
    return pl.DataFrame(
        {f"f{each}": x[:, each].astype(float) for each in range(4)} | {"label": y} | more
    )


def test_csv(tmp_path):
    order = RNG.permutation(60)  # rows in any order: clients stand by first appearance
    frame(X[order], Y[order], client=WHO[order], note=["text"] * 60).write_csv(tmp_path / "all.csv")
    same(read(tmp_path / "all.csv", **RAW), Federation.from_arrays(X[order], Y[order], WHO[order]))
    same(
        read(tmp_path / "all.csv", features=["f1"], **RAW),
        Federation.from_arrays(X[order, 1:2], Y[order], WHO[order]),
    )
    split = np.where(TESTED, "test", "train")
    frame(X, Y, client=WHO, split=split).write_csv(tmp_path / "split.CSV")
    same(read(tmp_path / "split.CSV", **RAW), Federation.from_arrays(X, Y, WHO, split=split))
    same(read(tmp_path / "split.CSV", split=(0.8, 0.1, 0.1), **RAW), EXPECTED)
    frame(X, Y, client=WHO, fold=split).write_csv(tmp_path / "fold.csv")
    same(
        read(tmp_path / "fold.csv", split="fold", **RAW),
        Federation.from_arrays(X, Y, WHO, split=split),
    )


def test_csv_clients_keep_leading_zeros_and_numbers_stay_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("client,x,label\n7,1,0\n07,2,1\n")
    assert read(tmp_path / "a.csv").clients == ("7", "07")
    (tmp_path / "a.csv").write_text("client,x,label\n7,1,0\n8, 2.5,1\n")
    federation = read(tmp_path / "a.csv", scale="none")
    assert federation.clients == (7, 8)
    assert federation.features.tolist() == [[1.0], [2.5]]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("client,x,label\na,1,0\na,2,1\na,oops,1\n", ("column 'x'", "row 2", "line 4", "'oops'")),
        (
            "client,x,label\na,1,0\na,,1\n",
            ("missing values in 'x'", "row 1 (line 3)", "--missing drop|mean|indicator"),
        ),
        ("client,x,label\na,1,0\na,2,\n", ("missing values in 'label'", "row 1 (line 3)")),
        ("client,x,label\na,1,0,5\n", ("cannot be read as CSV",)),
        ("client,x,x,label\na,1,2,0\n", ("several columns 'x'",)),
        ("who,x,label\na,1,0\n", ("unknown client column 'client'", "who")),
        ("client,x,y\na,1,0\n", ("unknown label column 'label'",)),
        ("", ("cannot be read as CSV",)),
    ],
)
def test_a_broken_csv_is_told_where(tmp_path, text, parts):
    (tmp_path / "bad.csv").write_text(text)
    refused(tmp_path / "bad.csv", "bad.csv", *parts)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_tables_has_a_client_per_file(tmp_path, ending):
    for name, (x, y) in CLIENTS.items():
        getattr(frame(x, y), f"write_{ending}")(tmp_path / f"{name}.{ending}")
    same(read(tmp_path, **RAW), EXPECTED)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_tables_may_have_a_client_column(tmp_path, ending):
    for number, rows in enumerate((slice(0, 35), slice(35, 60))):
        getattr(frame(X[rows], Y[rows], client=WHO[rows]), f"write_{ending}")(
            tmp_path / f"part-{number}.{ending}"
        )
    same(read(tmp_path, **RAW), EXPECTED)


@pytest.mark.parametrize("layout", ["{kind}/{name}.csv", "{name}_{kind}.csv"])
def test_tables_named_train_and_test(tmp_path, layout):
    for kind, side in (("train", TRAINED), ("test", HELD_OUT)):
        for name, (x, y) in side.items():
            path = tmp_path / layout.format(kind=kind, name=name)
            path.parent.mkdir(exist_ok=True)
            frame(x, y).write_csv(path)
    federation = read(tmp_path)
    assert federation.counts("test").tolist() == [6, 4, 2]
    assert federation.counts("validation").tolist() == [24 - 21, 16 - 14, 8 - 7]


def test_train_and_test_are_no_clients(tmp_path):
    for name in ("train", "test"):
        frame(X, Y).write_csv(tmp_path / f"{name}.csv")
    refused(tmp_path, "unknown client column 'client'")
    frame(X, Y).write_csv(tmp_path / "ann.csv")
    refused(tmp_path, "ann.csv does not")


def test_a_split_column_and_names_that_say_train_and_test_contradict(tmp_path):
    split = np.where(TESTED, "test", "train")
    for kind, rows in (("train", ~TESTED), ("test", TESTED)):
        held = frame(X, Y, client=WHO, split=split).filter(pl.Series(rows))
        held.write_csv(tmp_path / f"{kind}.csv")
    refused(tmp_path, "there is a column 'split'", "choose the column with split='split'")
    federation = read(tmp_path, split="split", **RAW)
    assert federation.counts("test").sum() == TESTED.sum()


def test_sequences_in_parquet_bring_their_mask(tmp_path):
    words = np.arange(24.0).reshape(3, 4, 2)
    real = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
    held = {"client": [1, 2, 1], "x": words, "label": np.arange(12).reshape(3, 4) % 3, "mask": real}
    pl.DataFrame(held).write_parquet(tmp_path / "a.parquet")
    federation = read(tmp_path / "a.parquet", features="x")
    expected = Federation.from_arrays(words, held["label"], [1, 2, 1], mask=real)
    np.testing.assert_array_equal(federation.mask, expected.mask)
    np.testing.assert_array_equal(federation.features, expected.features)
    np.testing.assert_array_equal(federation.labels, expected.labels)


def test_tables_of_a_folder_are_alike(tmp_path):
    frame(X, Y).write_csv(tmp_path / "ann.csv")
    frame(X, Y).drop("f2").write_csv(tmp_path / "bob.csv")
    refused(tmp_path, "bob.csv: column 'f2' is missing", "ann.csv")
    frame(X, Y).with_columns(pl.lit("good").alias("label")).write_csv(tmp_path / "bob.csv")
    refused(tmp_path, "bob.csv: column 'label' holds String", "ann.csv")
    (tmp_path / "cem.parquet").write_bytes(b"")
    refused(tmp_path, "several formats")
