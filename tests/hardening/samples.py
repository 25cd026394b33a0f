"""Valid inputs of the ways in: client data in every format, archives, dumps, arrays and
commands.
"""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import polars as pl

import fedasym as fa
from fedasym.data import archives

RNG = np.random.default_rng(0)
X, Y, WHO = (
    RNG.standard_normal((24, 3)).round(3),
    np.arange(24) % 3,
    np.repeat(["ann", "bob", "cem"], 8),
)
SPLIT = (b"test", b"train")


def federation(sequences: bool = False) -> fa.Federation:
    """A small federation, of rows or of sequences."""
    if not sequences:
        return fa.Federation.from_arrays(X, Y, WHO)
    tokens = np.arange(24 * 4).reshape(24, 4) % 5
    return fa.Federation.from_arrays(
        tokens[..., None].astype(float), tokens, WHO, mask=tokens > 0, classes=5
    )


def made(write: Callable[[Path], object], ending: str = "") -> bytes:
    """The bytes of a file that something writes."""
    with TemporaryDirectory() as folder:
        write(Path(folder, f"file{ending}"))
        return Path(folder, f"file{ending}").read_bytes()


def csvs() -> list[bytes]:
    rows = "\n".join(f"{who},{a},{b},{c},{y}" for who, (a, b, c), y in zip(WHO, X, Y, strict=True))
    return [
        f"client,a,b,c,label\n{rows}\n".encode(),
        b"client,split,x,label\n"
        + b"".join(b"%d,%s,%d.5,%d\n" % (n % 2, SPLIT[n % 3 > 0], n, n) for n in range(9)),
        b'client,x,label\r\n"a ""b""",1e3,yes\r\n"a, b",2,no\r\n007,-3.25,yes\r\n',
    ]


def parquets() -> list[bytes]:
    frame = pl.DataFrame({"client": WHO, "a": X[:, 0], "b": X[:, 1], "label": Y})
    compressions = ("uncompressed", "snappy", "zstd")
    tables = [
        made(lambda file, by=by: frame.write_parquet(file, compression=by)) for by in compressions
    ]  # type: ignore[misc]
    return [*(made(federation(kind).save, ".parquet") for kind in (False, True)), *tables]


def npzs() -> list[bytes]:
    def packed(file: Path, how: Callable[..., None], **held: np.ndarray) -> None:
        with file.open("wb") as out:
            how(out, **held)

    split = np.array(["train", "test", "validation"] * 8)
    return [
        made(lambda file: packed(file, np.savez, x=X, y=Y, client=WHO)),
        made(
            lambda file: packed(
                file,
                np.savez_compressed,
                x=X.astype("f2"),
                labels=Y.astype(str),
                writer=WHO,
                split=split,
            )
        ),
    ]


def leafs() -> list[bytes]:
    data = {
        str(who): {"x": X[who == WHO].tolist(), "y": Y[who == WHO].tolist()}
        for who in np.unique(WHO)
    }
    held = {"users": list(data), "num_samples": [8] * 3, "user_data": data}
    texts = {
        "users": ["a"],
        "num_samples": [3],
        "user_data": {"a": {"x": [[1], [2], [3]], "y": ["p", "q", "p"]}},
    }
    return [json.dumps(each).encode() for each in (held, texts)]


def hdf5s() -> list[bytes]:
    def write(file: Path, **options: object) -> None:
        with h5py.File(file, "w", libver="latest" if options else "earliest") as held:
            for who in np.unique(WHO):
                held.create_dataset(
                    f"examples/{who}/pixels", data=X[who == WHO].astype("f4"), **options
                )
                held[f"examples/{who}/label"] = (
                    Y[who == WHO] if options else Y[who == WHO].astype("S1")
                )

    return [made(write), made(lambda file: write(file, compression="gzip", chunks=(2, 3)))]


def message(x: np.ndarray, label: int) -> bytes:
    """A tf.train.Example."""

    def part(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2, len(body)]) + body

    floats, whole = part(2, part(1, x.astype("<f4").tobytes())), part(3, part(1, bytes([label])))
    return part(
        1, part(1, part(1, b"x") + part(2, floats)) + part(1, part(1, b"label") + part(2, whole))
    )


def sqlites() -> list[bytes]:
    def write(file: Path) -> None:
        base = sqlite3.connect(file)
        base.execute("PRAGMA page_size = 512")
        base.execute(
            "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        base.execute(
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        for who in map(str, np.unique(WHO)):
            for split, rows in (("train", slice(0, 6)), ("test", slice(6, 8))):
                held = [
                    (split, who, message(x, int(y)))
                    for x, y in zip(X[who == WHO][rows], Y[who == WHO][rows], strict=True)
                ]
                base.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)", (who, split, len(held))
                )
                base.executemany("INSERT INTO examples VALUES (?, ?, ?)", held)
        base.commit()
        base.close()

    return [made(write)]


def safetensors_files() -> list[bytes]:
    return [made(federation(kind).save, ".safetensors") for kind in (False, True)]


TABLE = b"x,label\n1,0\n2,1\n3,0\n"


def tars() -> list[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, body in (
            ("a.h5", archives.HDF5 + bytes(90)),
            ("./b.h5", archives.HDF5),
            ("more/c.txt", b"text"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return [out.getvalue()[:4608]]


ROW = (
    b'  <row Id="%d" PostTypeId="1" OwnerUserId="%d" Body="&lt;p&gt;So,'
    b' &lt;code&gt;a&lt;/code&gt;.&lt;/p&gt;" />\n'
)
POSTS = (
    b'<?xml version="1.0"?>\n<posts>\n'
    + b"".join(ROW % (n, n % 2) for n in range(4))
    + b"</posts>\n"
)


def array_bytes(array: np.ndarray) -> bytes:
    """NumPy's own format."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


COMMANDS = [
    "predict --radius 1 --noise 0.5 --aspect 2 --norm 2",
    "predict --radius 1 --noise 0.5 --aspect 0.7 --clients 10 --algorithms ftfa,pfedme --json",
    "predict --task classification --radius 1.5 --centre 1.5 --aspect 2 --algorithms fedavg,ftfa",
    "predict --radius 1 --noise 0.5 --aspect 2 --spectrum atoms:0.5@0.6,3@0.4 --ridge 0.1",
    "compare ftfa fedavg --radius 1 --vary noise=0:2:5 --vary aspect=1.1:10:4",
    "path --radius 1 --noise 0.7 --aspect 2 --flow",
    (
        "simulate --radius 1 --noise 0.5 --aspect 2 --dimension 8 --clients 3 --trials 1"
        " --algorithms fedavg,ftfa"
    ),
    "data list",
    "data show digits",
    "data fetch emnist --from nowhere",
    "runs list",
    "runs show nothing --comparisons",
    "runs clean nothing",
    "report nothing --into page.html",
    "run missing.toml",
    "run --schema",
    "deploy fedavg --into app",
    "reproduce --list",
    "train missing.csv --rounds 2 --grid server-step=0.1,1 --seeds 0:2",
    "advise missing.csv --label score --json",
    "features missing.csv --array features.npy",
    "pretrain missing.csv --network cnn --epochs 1",
]
