"""Federations in files: the same comes back, and what is damaged, edited or foreign is named."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

import fedasym as fa
from fedasym.data.federation import Federation

from .small import NEXT, REAL, WHO, WORDS, X, Y, federations, same, small


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_files_bring_back_the_same(suffix, tmp_path):
    path, read = tmp_path / f"data.{suffix}", getattr(Federation, f"from_{suffix}")

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(federations())
    def check(federation):
        assert federation.save(path) == path
        same(federation, read(str(path)))

    check()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # nothing is left beside it


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_files_keep_classes_that_do_not_occur_and_large_names(suffix, tmp_path):
    federation = Federation.from_arrays(X, Y, [2**64 - 1] * 6, classes=5)
    same(
        federation, getattr(Federation, f"from_{suffix}")(federation.save(tmp_path / f"a.{suffix}"))
    )


def test_names_too_large_for_parquet_are_sent_to_safetensors(tmp_path):
    federation = Federation.from_arrays(X, Y, [2**130] * 6)
    with pytest.raises(fa.InvalidInput, match=r"too large for Parquet: save to \.safetensors"):
        federation.save(tmp_path / "a.parquet")
    same(federation, Federation.from_safetensors(federation.save(tmp_path / "a.safetensors")))


def test_truth_is_kept_in_safetensors(tmp_path):
    truth = {
        "shared": np.arange(3.0),
        "noise": np.array(0.5),
        "personal": np.ones((2, 3), np.float32)[:, ::2],
        "k": np.arange(2),
    }
    federation = replace(small(), truth=truth)
    again = Federation.from_safetensors(federation.save(tmp_path / "a.safetensors"))
    same(federation, again)
    assert again.truth["noise"].shape == ()
    with pytest.raises(
        fa.InvalidInput, match=r"truth does not fit a table: save to a \.safetensors"
    ):
        federation.save(tmp_path / "a.parquet")
    with pytest.raises(fa.InvalidInput, match=r"truth\['name'\] holds .*give numbers"):
        replace(small(), truth={"name": np.array(["a"])})


def test_equal_federations_make_equal_files(tmp_path):
    one, other = small(), Federation.from_clients(zip(WHO, X, Y, strict=True))
    for suffix in ("safetensors", "parquet"):
        assert (
            one.save(tmp_path / f"1.{suffix}").read_bytes()
            == other.save(tmp_path / f"2.{suffix}").read_bytes()
        )


def test_any_parquet_file_is_a_table(tmp_path):
    frame = pd.DataFrame({"client": WHO, "a": X[:, 0], "b": X[:, 1], "label": Y})
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    raw = {"features": ["a", "b"], "scale": "none"}
    same(small(), Federation.from_parquet(path, **raw))
    same(small(seed=2), Federation.from_parquet(path, seed=2, **raw))
    same(
        Federation.from_arrays(X[:, 1:], Y, WHO),
        Federation.from_parquet(path, features=["b"], scale="none"),
    )
    frame.rename(columns={"client": "who", "label": "what"}).to_parquet(path)
    same(small(), Federation.from_parquet(path, client="who", label="what", **raw))


def test_a_saved_parquet_file_is_readable_by_others_and_as_a_plain_table(tmp_path):
    federation = Federation.from_arrays(X, [*"ababbb"], WHO)
    path = federation.save(tmp_path / "a.parquet")
    frame = pd.read_parquet(path)
    assert frame.columns.tolist() == ["client", "split", "label", "features"]
    assert frame["label"].tolist() == [federation.classes[code] for code in federation.labels]
    same(federation, Federation.from_parquet(path, split="split"))
    same(federation, Federation.from_parquet(path, split=None, classes=None, seed=9))
    same(federation, Federation.from_frame(frame, label="label", client="client", split="split"))


def test_a_failed_save_leaves_what_was_there(tmp_path):
    code = (
        "import resource, sys, numpy as np; from fedasym.data.federation import Federation\nbig ="
        " Federation.from_arrays(np.random.default_rng(0).random((500, 9)), [0] * 500, [1] *"
        " 500)\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\nfor path in"
        " sys.argv[1:]:\n    try: big.save(path)\n    except Exception as error:"
        " print(type(error).__name__, error)\n"
    )
    paths = [small().save(tmp_path / f"a.{suffix}") for suffix in ("safetensors", "parquet")]
    before = [path.read_bytes() for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True
    )
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"InvalidInput path is {str(path)!r}: it cannot be written: ")
        assert "too large" in line
    assert [path.read_bytes() for path in paths] == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_damage_is_noticed_wherever_it_is(suffix, tmp_path):
    read = getattr(Federation, f"from_{suffix}")
    rng = np.random.default_rng(0)
    federation = Federation.from_arrays(
        rng.random((60, 4)).astype(np.float32), rng.integers(3, size=60), rng.integers(5, size=60)
    )
    whole = federation.save(tmp_path / f"a.{suffix}").read_bytes()
    path = tmp_path / f"bad.{suffix}"
    cuts = [whole[:size] for size in (0, 7, len(whole) // 2, len(whole) - 1)]
    flips = [whole[:i] + bytes([whole[i] ^ 16]) + whole[i + 1 :] for i in range(0, len(whole), 41)]
    told = 0
    for content in [*cuts, *flips]:
        path.write_bytes(content)
        try:
            same(federation, read(path))  # a byte that says nothing, such as a statistic
        except fa.InvalidInput as error:
            told += str(path) in str(error) or pytest.fail(str(error))
    assert told > 0.6 * len([*cuts, *flips])


def test_foreign_files_are_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    other = tmp_path / "other.safetensors"
    save_file({"weight": np.ones(3)}, other)
    with pytest.raises(
        fa.InvalidInput,
        match=r"other.safetensors': this is not a federation that save wrote; use from_arrays",
    ):
        Federation.from_safetensors(other)
    save_file({"weight": np.ones(3)}, other, metadata={"fedasym": "[1]"})
    with pytest.raises(fa.InvalidInput, match="this is not a federation"):
        Federation.from_safetensors(other)
    held = {"format": "fedasym federation 1", "clients": ["a"], "classes": None}
    save_file({"features": np.ones(3)}, other, metadata={"fedasym": json.dumps(held)})
    with pytest.raises(fa.InvalidInput, match=r"other.safetensors': an array is missing"):
        Federation.from_safetensors(other)
    for read in (Federation.from_safetensors, Federation.from_parquet):
        with pytest.raises(fa.InvalidInput, match=r"nothing.here': there is no such file"):
            read(tmp_path / "nothing.here")
        with pytest.raises(fa.InvalidInput, match=f"{tmp_path.name}': this is a folder"):
            read(tmp_path)
        text = tmp_path / "notes.txt"
        text.write_text("not a table")
        with pytest.raises(fa.InvalidInput, match=r"notes.txt': it cannot be read as"):
            read(text)
    table = tmp_path / "table.parquet"
    pd.DataFrame({"client": WHO, "labels": Y}).to_parquet(table)
    with pytest.raises(
        fa.InvalidInput, match=r"table.parquet': unknown label column 'label': did you mean labels"
    ):
        Federation.from_parquet(table)


def test_an_edited_parquet_file_is_told_apart(tmp_path):
    federation = small()
    path = federation.save(tmp_path / "a.parquet")
    metadata = {"fedasym": pl.read_parquet_metadata(path)["fedasym"]}
    pl.read_parquet(path).head(5).write_parquet(path, metadata=metadata)
    with pytest.raises(
        fa.InvalidInput,
        match="damaged or edited after it was saved; to read it as a plain table, name",
    ):
        Federation.from_parquet(path)
    assert (
        Federation.from_parquet(path, features="features").split.tolist()
        == federation.split[:5].tolist()
    )
    pl.read_parquet(path).drop("split").write_parquet(path, metadata=metadata)
    with pytest.raises(fa.InvalidInput, match="damaged or edited"):
        Federation.from_parquet(path)


def test_a_table_keeps_the_split_and_mask_it_brings(tmp_path):
    federation = Federation.from_arrays(WORDS, NEXT, [1, 2, 1], mask=REAL, split=[0, 2, 1])
    path = federation.save(tmp_path / "a.parquet")
    pq.write_table(pq.read_table(path), path)  # no longer known as saved
    same(federation, Federation.from_parquet(path))
    assert Federation.from_parquet(path, split=(1, 0, 0)).split.tolist() == [0, 0, 0]
    same(federation, Federation.from_parquet(path, features=None, split=None, seed=3))


def test_missing_packages_are_named(tmp_path, monkeypatch):
    for package in ("polars", "safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, package, None)
    for suffix in ("parquet", "safetensors"):
        with pytest.raises(ImportError, match=r"pip install 'fedasym\[tables\]'"):
            small().save(tmp_path / f"a.{suffix}")
    assert list(tmp_path.iterdir()) == []
