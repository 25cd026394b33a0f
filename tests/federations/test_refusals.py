"""Bad client data is refused with a sentence that says where."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedasym as fa
from fedasym.data.federation import Federation

from .small import NEXT, REAL, WHO, WORDS, X, Y, small


class Later:
    """A stand-in for a value that a frame marks as missing."""


NAN = np.where(np.arange(12).reshape(6, 2) == 7, np.nan, X)
FRAME = pl.DataFrame({"who": WHO, "x": X[:, 0], "y": Y, "text": list("abcdef")})
LABELLED, SHORT = {"label": "y", "client": "who"}, {"label": "y", "client": "w"}
arrays, parts, frame = Federation.from_arrays, Federation.from_clients, Federation.from_frame


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: arrays(NAN, Y, WHO), r"hold 1 NaN .* client 'bob', row 3 \(its own row 1\), column 1: drop"),
        (lambda: arrays(np.where(X > 5, np.inf, X), Y, WHO), r"hold 6 NaN or infinite .* 'bob', row 3 .*column 0"),
        (lambda: arrays(X[:5], Y, WHO), "features have 5 rows and clients 6 names: give one name per row"),
        (lambda: arrays(X, Y[:5], WHO), r"labels have shape \(5,\) for 6 samples"),
        (lambda: arrays(X, 3, WHO), r"labels have shape \(\) for 6 samples"),
        (lambda: arrays([], [], []), "no samples: .*give at least one"),
        (lambda: arrays(X[:, :0], Y, WHO), r"features have shape \(6, 0\): give at least one"),
        (lambda: arrays(X[:, 0], Y, WHO), r"features have shape \(6,\): .*reshape\(-1, 1\)"),
        (lambda: arrays(np.ones((6, 2, 2, 3)), Y, WHO), r"shape \(6, 2, 2, 3\): .*flatten each sample"),
        (lambda: arrays([["a", "b"]] * 6, Y, WHO), "features hold str.*: give numbers; encode text"),
        (lambda: arrays([[1, 2], [3]] * 3, Y, WHO), "features cannot be read as an array of numbers: "),
        (lambda: arrays([[1j]] * 6, Y, WHO), "features hold complex128"),
        (lambda: arrays(np.full((6, 1), 2**24 + 1), Y, WHO), "whole number 16777217, which float32 cannot"),
        (lambda: arrays(np.full((6, 1), -(2**40)), Y, WHO), "whole number -1099511627776"),
        # labels
        (lambda: arrays(X, [0.5, np.nan] * 3, WHO), r"labels hold 3 NaN .* client 'bob', row 1 \(its own row 0\)"),
        (lambda: arrays(X, ["a", None] * 3, WHO), "label at client 'bob', row 1 .* is None: drop"),
        (lambda: arrays(X, ["a", np.nan] * 3, WHO), "label at client 'bob', row 1 .* is nan: drop"),
        (lambda: arrays(X, ["a", 1] * 3, WHO), "label at client 'bob', row 1 .* is 1, of type int, while .* 'a'"),
        (lambda: arrays(X, [Later()] * 6, WHO), "label at client 'ann', row 0 .*Later.*all numbers or all str"),
        (lambda: arrays(X, [2**70] * 6, WHO), "do not fit 64 bits"),
        (lambda: arrays(X, [b"a"] * 6, WHO), "label at client 'ann', row 0 .*bytes"),
        (lambda: arrays(X, np.array([b"a"] * 6), WHO), r"labels hold bytes8: decode them"),
        (lambda: arrays(X, [[1], [1, 2]] * 3, WHO), "labels cannot be read as an array"),
        (lambda: arrays(X, np.eye(6, dtype=int), WHO), r"labels have shape \(6, 6\).*argmax\(-1\)"),
        (lambda: arrays(X, np.ones((6, 2, 2)), WHO), r"labels have shape \(6, 2, 2\): give \(6,\), or one more"),
        (lambda: small(classes=1), "label at client 'bob', row 1 .* is 1, not among the 1 classes 0: "),
        (lambda: arrays(X, Y - 1, WHO, classes=2), "label at client 'ann', row 0 .* is -1, not among the 2 classes"),
        (lambda: small(classes=["cat", "dog"]), "is 0, not among the 2 classes 'cat', 'dog': classes=2 takes codes 0 to 1"),
        (lambda: arrays(X, list("abcabc"), WHO, classes=list("ab")), "'ann', row 2 .* is 'c', not among the 2"),
        (lambda: small(classes=0), "classes is 0: give the number"),
        (lambda: small(classes=True), "classes is True: give the number"),
        (lambda: small(classes="cat"), "classes is 'cat': give the number"),
        (lambda: small(classes=["a", "a"]), "classes is .*each once"),
        (lambda: small(classes=["a", 1]), "classes is .*all strings or all whole"),
        (lambda: small(classes=[]), r"classes is \[\]"),
        (lambda: small(classes=2, task="regression"), "task is 'regression' and classes is 2: leave one"),
        (lambda: small(task="clasification"), "unknown task 'clasification': did you mean classification"),
        (lambda: arrays(X, [0.5, 1] * 3, WHO, task="classification"), "'ann', row 0 .* is 0.5, no whole number"),
        (lambda: arrays(X, list("abcabc"), WHO, task="regression"), "task is 'regression' while .* 'a': give"),
        # sequences
        (lambda: arrays(WORDS, [0, 1, 2], [1, 2, 3]), r"shape \(3,\) while features have 4 positions: .*flatten"),
        (lambda: arrays(WORDS, NEXT[:, :3], [1, 2, 3]), r"shape \(3, 3\) while features have 4 positions"),
        (lambda: small(mask=np.ones((6, 2))), r"mask has shape \(6, 2\) .*it is for sequences"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 3], mask=REAL[:, :3]), r"mask has shape \(3, 3\): it must be \(3, 4\)"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 3], mask=REAL * 2), "mask holds int64: give True"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 1], mask=REAL & [[1], [1], [0]]), "client 1, row 2 .*no real position"),
        (
            lambda: arrays(np.where(WORDS == 11, np.nan, WORDS), NEXT, [1, 2, 1], mask=REAL),
            r"hold 1 NaN .*client 2, row 1 \(its own row 0\), position 1, column 1",
        ),
        (
            lambda: arrays(WORDS, np.where(NEXT == 2, np.nan, 1.0), [1, 2, 1], mask=REAL),
            "labels hold 3 NaN .*client 1, row 0 .*, position 2",
        ),
        (lambda: arrays(WORDS, NEXT, [1, 2, 1], classes=2), "client 1, row 0 .*, position 2 is 2, not among"),
        # clients
        (lambda: arrays(X, Y, ["a", 1] * 3), "client of row 1 is 1, of type int while row 0 has 'a': .*str"),
        (lambda: arrays(X, Y, [0.5] * 6), "client of row 0 is 0.5, of type float: names are all strings or"),
        (lambda: arrays(X, Y, [True] * 6), "client of row 0 is True, of type bool"),
        (lambda: arrays(X, Y, [b"a"] * 6), "client of row 0 is b'a', of type bytes"),
        (lambda: arrays(X, Y, [*WHO[:5], None]), "entry 5 of clients is None: give every row a client"),
        (lambda: arrays(X, Y, [np.nan] * 6), "entry 0 of clients is nan"),
        (lambda: arrays(X, Y, "abcdef"), "clients is 'abcdef': give a list of names"),
        (lambda: arrays(X, Y, 3), "clients is 3: give a list of names"),
        (lambda: arrays(X, Y, [[1]] * 6), r"label of a client is \[1\]"),
        (lambda: arrays(X, Y, ["\ud800"] * 6), "client name .* is not valid text: rename"),
        # splits
        (lambda: small(split=(0.8, 0.1, 0.2)), r"split is \(0.8, 0.1, 0.2\): they sum to 1.1 and must sum to 1"),
        (lambda: small(split=(1.2, -0.1, -0.1)), "at least 0"),
        (lambda: small(split=(np.nan, 0, 1)), "finite"),
        (lambda: small(split=(0, 0.5, 0.5)), "without training samples there is nothing to learn"),
        (lambda: small(split=(0.8, 0.2)), "split has 2 values for 6 samples: give one per sample, or three fractions"),
        (lambda: small(split="half"), "split is 'half': give three fractions .* or one of train, validation, test per sample"),
        (lambda: small(split=0.8), "split is 0.8: give three fractions"),
        (lambda: small(split=["train"] * 5 + ["tset"]), r"client 'bob', row 5 .*: unknown split 'tset': did you mean test"),
        (lambda: small(split=[0, 1, 2, 3, 0, 0]), "client 'bob', row 3 .*: unknown split 3: choose from .*or 0, 1, 2"),
        (lambda: small(split=[0, 0, 0, 0, 0, None]), "client 'bob', row 5 .*: unknown split None"),
        (lambda: small(split=[True] * 6), "unknown split True"),
        (lambda: small(split=["test"] * 6), "split leaves no training sample at all"),
        (lambda: small(seed=-1), "seed is -1: it must be a whole number from 0"),
        (lambda: small(seed=0.5), "seed is 0.5"),
        (lambda: small(seed=2**64), "seed is 18446744073709551616"),
        (lambda: small().resplit(0, fractions=(0.5, 0.5)), r"fractions is \(0.5, 0.5\): give three fractions"),
        (lambda: small().resplit("a"), "seed is 'a'"),
        (lambda: small().counts("val"), "unknown split 'val': .*choose from train, validation, test"),
        (lambda: small().rows("anna"), "unknown client 'anna': did you mean ann"),
        (lambda: arrays(np.ones((50, 1)), [0] * 50, range(50)).rows(99), "unknown client 99: .*30 more"),
        (lambda: small().rows("ann", "dev"), "unknown split 'dev'"),
        (lambda: small(task="regression").class_counts(), "the labels are numbers: only classes can be counted"),
        # part by part
        (lambda: parts([]), "no samples: give at least one"),
        (lambda: parts(3), "the clients are 3: give an iterable"),
        (lambda: parts([("ann", X)]), r"part 0 is not \(client, features, labels\)"),
        (lambda: parts([("ann", X, Y), ("bob", X[:, :1], Y)]), r"client 'bob' \(part 1\) has samples of shape \(1,\)"),
        (lambda: parts([("ann", X, Y), ("bob", X, Y[:, None])]), r"'bob' \(part 1\) has labels of shape \(1,\)"),
        (lambda: parts([("ann", X, Y), ("bob", X, list("abcdef"))]), r"'bob' \(part 1\) has labels .*same kind"),
        (lambda: parts([("ann", X, Y[:4])]), r"'ann' \(part 0\): features have shape \(6, 2\) and labels \(4,\)"),
        (lambda: parts([("ann", X[:, 0], Y)]), r"'ann' \(part 0\): .*one sample, and labels \(6,\): give one label"),
        (lambda: parts([("ann", X[:0], Y[:0])]), r"'ann' \(part 0\): .*leave out clients without"),
        (lambda: parts([("ann", [["a"]], [0])]), r"'ann' \(part 0\): features hold str"),
        (lambda: parts([("ann", X, Y), ("bob", NAN, Y)]), r"client 'bob', row 9 \(its own row 3\), column 1"),
        # frames
        (lambda: frame(X, **LABELLED), "frame is a numpy.ndarray: give a polars or pandas"),
        (lambda: frame(FRAME, label="z", client="who"), "unknown label column 'z': .*choose from who, x, y"),
        (lambda: frame(FRAME, **SHORT), "unknown client column 'w'"),
        (lambda: frame(FRAME, **LABELLED, features=["xx"]), "unknown features column 'xx': did you mean x"),
        (lambda: frame(FRAME, **LABELLED, split="s"), "unknown split column 's'"),
        (lambda: frame(FRAME, **LABELLED, features=["y"]), "column 'y' is a feature and also"),
        (lambda: frame(FRAME, **LABELLED, roles={"text": "number"}), "column 'text' holds words where numbers are expected"),
        (lambda: frame(FRAME[["who", "y"]], **LABELLED), "no column is left .*there is no other column"),
        (
            lambda: frame(pl.DataFrame({"a": [[1]], "b": [[1]], "y": [1], "w": [1]}), **SHORT),
            "there are 2 columns of lists",
        ),
        (
            lambda: frame(pl.DataFrame({"a": [[1]], "b": [1], "y": [1], "w": [1]}), **SHORT, features=["a", "b"]),
            "column 'a' holds lists: name it alone",
        ),
        (
            lambda: frame(pl.DataFrame({"a": [[1.0], [1.0, 2.0]], "y": [1, 1], "w": [1, 1]}), **SHORT),
            "column 'a', row 1 holds a list of 2 while the first has 1: .*mask",
        ),
        (
            lambda: frame(pd.DataFrame({"a": [[1.0], None], "y": [1, 1], "w": [1, 1]}), **SHORT),
            "column 'a', row 1 holds a list of 0 while",
        ),
        (
            lambda: frame(pl.DataFrame({"a": ["b"], "x": [1], "y": [[1]], "w": [1]}), **SHORT, features=["x", "a"]),
            "features column 'a' holds String: give numbers",
        ),
        (
            lambda: frame(pl.DataFrame({"a": [[1]], "y": [1], "w": [1]}), **SHORT, features=["a", "y"]),
            "column 'y' is a feature and also the label",
        ),
        (lambda: frame(FRAME, **LABELLED, features=["x", "x"]), "features name column 'x' twice"),
        (lambda: frame(FRAME, **LABELLED, split=["test"] * 6), "split leaves no training sample at all"),
        (lambda: frame(FRAME, label=["x", "y"], client="who", task="classification"), "label names 2 columns"),
        (lambda: frame(FRAME, label=["x", "text"], client="who"), "label column 'text' holds text: .*give numbers"),
        (
            lambda: frame(FRAME.with_columns(y=pl.struct("x")), **LABELLED),
            "label column 'y' holds lists: name one with a number or class",
        ),
        (
            lambda: frame(FRAME.with_columns(a=pl.Series([[1], [2, 3]] * 3)), **LABELLED, roles={"a": "number"}),
            r"column 'a' holds lists .*'\[1\]' in row 0: give it the role ignore",
        ),
        (
            lambda: frame(FRAME.with_columns(a=pl.Series([[1], [2, 3]] * 3)), **LABELLED, roles={"a": "category"}),
            "column 'a' holds lists .*: give it the role ignore",
        ),
        (
            lambda: frame(
                FRAME.with_columns(a=pl.Series([None, 1] * 3), b=pl.Series([1, None] * 3)), **LABELLED, missing="drop"
            ),
            "missing is 'drop', and every row lacks its client, its label or a feature",
        ),
        (
            lambda: frame(pd.DataFrame([[1, 2, 3, 4]], columns=["w", "y", 1, "1"]), **SHORT),
            "several columns '1' when read as text: rename",
        ),
        (
            lambda: frame(pd.DataFrame({"w": ["a", "\ud800"], "y": [1, 2]}, dtype=object), **SHORT),
            "column 'w' holds text that is not valid Unicode",
        ),
        (
            lambda: frame(pd.DataFrame({"w": [1, None, "a"], "y": [1, 2, 3]}, dtype=object), **SHORT),
            "column 'w', row 2 holds 'a', of type str, while row 0 has 1",
        ),
        (
            lambda: frame(pd.DataFrame({"w": [1, 1], "x": [1, 10**400], "y": [1, 2]}, dtype=object), **SHORT),
            "column 'x', row 1 holds inf: numbers may be at most",
        ),
        (
            lambda: frame(pd.DataFrame([[1, 2]], columns=["a", "a"]), label="a", client="a"),
            "several columns 'a': rename",
        ),
        (
            lambda: frame(FRAME.with_columns(y=pl.Series([1, None, 1, 1, 1, 1])), **LABELLED),
            r"missing values in 'y' \(row 1\): choose missing=.drop",
        ),
        (
            lambda: frame(pd.DataFrame({"w": ["a", None], "x": [1, 2], "y": [1, 1]}), **SHORT),
            r"missing values in 'w' \(row 1\)",
        ),
        (
            lambda: frame(
                pd.DataFrame({"w": [1, 1], "x": pd.array([1, None], "Int64"), "y": pd.array([1, 2], "Int64")}), **SHORT
            ),
            r"missing values in 'x' \(row 1\)",
        ),
        (
            lambda: frame(
                pd.DataFrame({"w": [1, 1], "x": [1, 2], "y": pd.array(["a", None], "string")}), **SHORT
            ),
            r"missing values in 'y' \(row 1\)",
        ),
        (
            lambda: frame(pl.DataFrame({f"x{i}": [1] for i in range(99)}), label="x100", client="x1"),
            "unknown label column 'x100': did you mean .*94 more",
        ),
        # files, and fields that do not fit together
        (lambda: small().save("data.csv"), "path is 'data.csv': its name must end in .safetensors or .parquet"),
        (lambda: small().save("/nowhere/at/all.parquet"), "the folder '/nowhere/at' does not exist; make it first"),
        (lambda: replace(small(), owner=np.array([0, 1, 0, 1, 0, 1])), r"owner of shape \(6,\) does not fit .*from_arrays"),
        (lambda: replace(small(), split=np.full(6, 7)), "split of shape"),
        (lambda: replace(small(), labels=np.arange(6)), "labels of shape"),
        (lambda: replace(small(), features=X[:, :, None, None]), "features of shape"),
        (lambda: replace(small(), mask=np.ones((6, 2))), "mask of shape"),
        (lambda: replace(small(), clients=("ann", "ann")), "owner of shape"),
        (lambda: replace(small(), clients=("ann", 1)), "client of row 1 is 1"),
    ],
)  # fmt: skip
def test_bad_data_gets_a_sentence_that_says_where(call, says):
    with pytest.raises(fa.InvalidInput, match=says):
        call()


def test_a_path_that_cannot_be_replaced_is_named(tmp_path):
    target = tmp_path / "a.parquet"
    target.mkdir()
    with pytest.raises(fa.InvalidInput, match=r"a.parquet': it cannot be written: "):
        small().save(target)
    assert os.listdir(tmp_path) == ["a.parquet"]
