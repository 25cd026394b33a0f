"""Small files that claim to be large, or that ask for another file: refused before anything is
allocated or followed.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sqlite3
import zipfile

import h5py
import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.core import runtime
from fedasym.data import formats, images, texts
from fedasym.data.formats import read

from .guard import guarded
from .samples import WHO, X, Y


def refused(call, *words):
    told = guarded(call)
    assert told is not None, "it was taken"
    for word in words:
        assert word in told, told


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    """A .npy file with any header."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.fixture
def small_machine(monkeypatch):
    """A machine with a megabyte of memory."""
    monkeypatch.setattr(runtime, "physical_memory", lambda: 1e6)


@pytest.mark.parametrize(
    "shape",
    [
        "(10**13, 3)",
        "(99999999999999, 3)",
        "(9223372036854775807,)",
        "(2**70,)",
        "(-1, 3)",
        "(24, 3",
    ],
)
def test_a_header_that_claims_what_is_not_there(tmp_path, shape):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for name, body in (
            ("x", npy("<f8", shape)),
            ("y", npy("<i8", "(24,)", Y.tobytes())),
            ("client", npy("<U3", "(24,)", WHO.tobytes())),
        ):
            file.writestr(f"{name}.npy", body)
    refused(lambda: read(tmp_path / "a.npz"), "'x' is damaged")
    (tmp_path / "a.npy").write_bytes(npy("<f8", shape))
    refused(lambda: formats.only_array(tmp_path / "a.npy"), "cannot be read")


def test_an_archive_that_unpacks_to_more_than_the_memory(tmp_path, small_machine):
    np.savez_compressed(
        tmp_path / "a.npz",
        x=np.zeros((60_000, 3)),
        y=np.zeros(60_000, int),
        client=np.zeros(60_000, int),
    )
    assert (tmp_path / "a.npz").stat().st_size < 10_000
    refused(lambda: read(tmp_path / "a.npz"), "array 'x' claims 0.00144 GB", "memory")


def test_pickled_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=np.array([object()] * 24))
    refused(lambda: read(tmp_path / "a.npz"), "pickled Python objects")


def test_hdf5_that_was_never_written(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("examples/ann/x", (10**9, 10**4), "f4", chunks=(1, 10**4))
        file.create_dataset("examples/ann/label", (10**9,), "i1", chunks=(1000,))
    assert (tmp_path / "a.h5").stat().st_size < 20_000
    refused(lambda: read(tmp_path / "a.h5"), "client 'ann', field 'x' claims 4e+04 GB")


def test_hdf5_that_asks_for_another_file(tmp_path):
    (tmp_path / "secret").write_bytes(np.arange(10.0).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"], file["label"] = np.eye(4), np.arange(4)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["examples/ann"] = h5py.ExternalLink("other.h5", "/")
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file.create_dataset(
            "examples/ann/x",
            (10,),
            "f8",
            external=[(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)],
        )
        file["examples/ann/label"] = np.arange(10)
    with h5py.File(tmp_path / "virtual.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((4, 4), "f8")
        layout[:] = h5py.VirtualSource("other.h5", "x", (4, 4))
        file.create_virtual_dataset("examples/ann/x", layout)
        file["examples/ann/label"] = np.arange(4)
    for name in ("link", "raw", "virtual"):
        refused(lambda name=name: read(tmp_path / f"{name}.h5"), "client 'ann'", "in another file")


def test_a_table_of_more_rows_than_fit(tmp_path, small_machine):
    pl.DataFrame({"client": pl.repeat(0, 60_000, eager=True), "x": 1.0, "label": 1}).write_parquet(
        tmp_path / "a.parquet"
    )
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    refused(lambda: read(tmp_path / "a.parquet"), "a.parquet", "claims 0.00144 GB")


@pytest.mark.parametrize("pack", [gzip.compress, lambda text: __import__("zlib").compress(text)])
def test_a_packed_csv_is_not_unpacked(tmp_path, pack):
    (tmp_path / "a.csv").write_bytes(pack(b"client,x,label\n" + b"a,1.0,1\n" * 9))
    refused(lambda: read(tmp_path / "a.csv"), "it is compressed: unpack it first")


@pytest.mark.parametrize(
    "made",
    [
        (
            "CREATE VIEW examples AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM"
            " c) SELECT 'train' AS split_name, 'ann' AS client_id, zeroblob(n) AS"
            " serialized_example_proto FROM c"
        ),
        (
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, "
            "serialized_example_proto BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL)"
        ),
    ],
    ids=["endless", "computed"],
)
def test_sqlite_that_computes_its_rows(tmp_path, made):
    base = sqlite3.connect(tmp_path / "a.sqlite")
    base.execute(
        "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
    )
    base.execute(made)
    base.execute("INSERT INTO client_metadata VALUES ('ann', 'train', 3)")
    if "VIEW" not in made:
        base.execute("INSERT INTO examples (split_name, client_id) VALUES ('train', 'ann')")
    base.commit()
    base.close()
    refused(lambda: read(tmp_path / "a.sqlite"), "examples", "as a table")


def test_packed_lines_and_pictures_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "LONGEST_LINE", 1000)
    (tmp_path / "a.xz").write_bytes(
        lzma.compress(b'{"site": "a", "user": 1, "text": "' + b"a" * 10**6 + b'"}')
    )
    refused(lambda: list(texts.read_posts(tmp_path / "a.xz")), "line 1 is not a JSON object")
    monkeypatch.setattr(images, "LARGEST_IDX", 1000)
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as file:
        file.write(bytes([0, 0, 8, 3]) + np.array([10**6, 1, 1], ">u4").tobytes() + bytes(10**6))
    (tmp_path / "a.gz").write_bytes(packed.getvalue())
    refused(lambda: images.read_idx(tmp_path / "a.gz", images.IDX_BYTES, 3), "cut short")


def test_xml_with_entities_that_multiply(tmp_path):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    text = (
        f'<!DOCTYPE d [<!ENTITY l0 "ha">{laughs}]><posts><row Id="1" OwnerUserId="1"'
        ' Body="&l11;"/></posts>'
    )
    (tmp_path / texts.POSTS).write_text(text)
    refused(lambda: texts.load_stackexchange(tmp_path, least=0), texts.POSTS)


def test_numbers_and_nests_beyond_bounds(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    refused(lambda: read(tmp_path / "deep.json"), "cannot be read as JSON")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    refused(lambda: fa.Experiment.from_toml(tmp_path / "deep.toml"), "not TOML")
    (tmp_path / "long.toml").write_text("name = 1" + "0" * 5000)
    refused(lambda: fa.Experiment.from_toml(tmp_path / "long.toml"), "long.toml")
    for count in (10**6, 2**63, 10**400):
        (tmp_path / "many.toml").write_text(f'name = "many"\n[trials]\nseeds = {count}\n')
        refused(lambda: fa.Experiment.from_toml(tmp_path / "many.toml"), "at most 100,000")
    user = {"x": [[1.0], [10**400]], "y": [0, 1]}
    (tmp_path / "large.json").write_text(
        json.dumps({"users": ["a"], "num_samples": [2], "user_data": {"a": user}})
    )
    refused(lambda: read(tmp_path / "large.json"), "user 'a', field 'x'")


def test_a_network_file_from_elsewhere_runs_no_code(tmp_path):
    from safetensors.torch import save_file
    from torch import zeros

    held = {
        "reader": {"kind": "vector", "shape": [3], "mean": [], "std": []},
        "recipe": {"network": "os:abort"},
    }
    save_file(
        {"a": zeros(1)}, tmp_path / "network.safetensors", metadata={"fedasym": json.dumps(held)}
    )
    clients = fa.Federation.from_arrays(X, Y, WHO)
    refused(
        lambda: fa.pretraining.features(
            "mine", clients, network=tmp_path / "network.safetensors", device="cpu", into=tmp_path
        ),
        "it asks for code, os:abort",
    )
