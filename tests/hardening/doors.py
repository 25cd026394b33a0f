"""Every way in from outside, each with valid inputs and the call that takes them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sqlite3
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import polars as pl
import safetensors.numpy

import fedasym as fa
from fedasym.datasets import archives, arrays, digits, dumps, examples, stackexchange, stackoverflow
from fedasym.errors import InvalidInput

from .guard import Finding, guarded, listing
from .mutation import changed_bytes, changed_json, changed_words

RNG = np.random.default_rng(0)
X, Y, WHO = RNG.standard_normal((24, 3)).round(3), np.arange(24) % 3, np.repeat(["ann", "bob", "cem"], 8)
SPLIT = (b"test", b"train")
Change = Callable[[bytes, Random], bytes]


@dataclass(frozen=True)
class Door:
    """A way in.

    samples: valid inputs, made when they are needed first. change: how one is made wrong.
    enter: takes an input, with a folder of its own to put it into. refusals: how it may say no.
    """

    name: str
    samples: Callable[[], list[bytes]]
    enter: Callable[[Path, bytes], object]
    change: Change = changed_bytes
    refusals: tuple[type[Exception], ...] = (InvalidInput,)

    def case(self, random: Random) -> bytes:
        """A valid input, made wrong."""
        return self.change(random.choice(self.samples()), random)

    def try_(self, data: bytes) -> str | None:
        """Take an input; the words of a refusal. Anything else than a result or a refusal is a `Finding`."""
        with TemporaryDirectory() as home:
            inside, canary = Path(home, "a", "inside"), Path(home, "canary")
            inside.mkdir(parents=True)
            canary.mkdir()
            (canary / "bird").write_text("alive")
            words = guarded(lambda: self.enter(inside, data), self.refusals)
            escaped = {name for name in listing(Path(home)) if not name.startswith("a/inside/")} - {"canary/bird"}
            if escaped or (canary / "bird").read_text() != "alive":
                raise Finding(f"it wrote outside its place: {sorted(escaped)}")
            return words


def file_door(ending: str, samples: Callable[[], list[bytes]], change: Change = changed_bytes) -> Door:
    """Client data in a file of that ending."""

    def enter(folder: Path, data: bytes) -> object:
        (folder / f"clients{ending}").write_bytes(data)
        federation = fa.datasets.read(folder / f"clients{ending}")
        return str(federation), federation.save(folder / "again.safetensors")

    return Door(f"client data {ending}", cache(samples), enter, change)


def federation(sequences: bool = False) -> fa.Federation:
    """A small federation, of rows or of sequences."""
    if not sequences:
        return fa.Federation.from_arrays(X, Y, WHO)
    tokens = np.arange(24 * 4).reshape(24, 4) % 5
    return fa.Federation.from_arrays(tokens[..., None].astype(float), tokens, WHO, mask=tokens > 0, classes=5)


def made(write: Callable[[Path], object], ending: str = "") -> bytes:
    """The bytes of a file that something writes."""
    with TemporaryDirectory() as folder:
        write(Path(folder, f"file{ending}"))
        return Path(folder, f"file{ending}").read_bytes()


def csvs() -> list[bytes]:
    rows = "\n".join(f"{who},{a},{b},{c},{y}" for who, (a, b, c), y in zip(WHO, X, Y, strict=True))
    return [
        f"client,a,b,c,label\n{rows}\n".encode(),
        b"client,split,x,label\n" + b"".join(b"%d,%s,%d.5,%d\n" % (n % 2, SPLIT[n % 3 > 0], n, n) for n in range(9)),
        b'client,x,label\r\n"a ""b""",1e3,yes\r\n"a, b",2,no\r\n007,-3.25,yes\r\n',
    ]  # fmt: skip


def parquets() -> list[bytes]:
    frame = pl.DataFrame({"client": WHO, "a": X[:, 0], "b": X[:, 1], "label": Y})
    compressions = ("uncompressed", "snappy", "zstd")
    tables = [made(lambda file, by=by: frame.write_parquet(file, compression=by)) for by in compressions]  # type: ignore[misc]
    return [*(made(federation(kind).save, ".parquet") for kind in (False, True)), *tables]


def npzs() -> list[bytes]:
    def packed(file: Path, how: Callable[..., None], **held: np.ndarray) -> None:
        with file.open("wb") as out:
            how(out, **held)

    split = np.array(["train", "test", "validation"] * 8)
    return [
        made(lambda file: packed(file, np.savez, x=X, y=Y, client=WHO)),
        made(lambda file: packed(file, np.savez_compressed, x=X.astype("f2"), labels=Y.astype(str), writer=WHO, split=split)),
    ]


def changed_npz(sample: bytes, random: Random) -> bytes:
    """One of the arrays changed and all packed again, so that the edit is not found by a checksum; or any bytes changed."""
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sample)) as held, zipfile.ZipFile(out, "w") as packed:
        chosen = random.choice(held.namelist())
        for name in held.namelist():
            packed.writestr(name, changed_bytes(held.read(name), random) if name == chosen else held.read(name))
    return out.getvalue()


def leafs() -> list[bytes]:
    data = {str(who): {"x": X[who == WHO].tolist(), "y": Y[who == WHO].tolist()} for who in np.unique(WHO)}
    held = {"users": list(data), "num_samples": [8] * 3, "user_data": data}
    texts = {"users": ["a"], "num_samples": [3], "user_data": {"a": {"x": [[1], [2], [3]], "y": ["p", "q", "p"]}}}
    return [json.dumps(each).encode() for each in (held, texts)]


def hdf5s() -> list[bytes]:
    def write(file: Path, **options: object) -> None:
        with h5py.File(file, "w", libver="latest" if options else "earliest") as held:
            for who in np.unique(WHO):
                held.create_dataset(f"examples/{who}/pixels", data=X[who == WHO].astype("f4"), **options)
                held[f"examples/{who}/label"] = Y[who == WHO] if options else Y[who == WHO].astype("S1")

    return [made(write), made(lambda file: write(file, compression="gzip", chunks=(2, 3)))]


def message(x: np.ndarray, label: int) -> bytes:
    """A tf.train.Example."""

    def part(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2, len(body)]) + body

    floats, whole = part(2, part(1, x.astype("<f4").tobytes())), part(3, part(1, bytes([label])))
    return part(1, part(1, part(1, b"x") + part(2, floats)) + part(1, part(1, b"label") + part(2, whole)))


def sqlites() -> list[bytes]:
    def write(file: Path) -> None:
        base = sqlite3.connect(file)
        base.execute("PRAGMA page_size = 512")
        base.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        base.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
        for who in map(str, np.unique(WHO)):
            for split, rows in (("train", slice(0, 6)), ("test", slice(6, 8))):
                held = [(split, who, message(x, int(y))) for x, y in zip(X[who == WHO][rows], Y[who == WHO][rows], strict=True)]
                base.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (who, split, len(held)))
                base.executemany("INSERT INTO examples VALUES (?, ?, ?)", held)
        base.commit()
        base.close()

    return [made(write)]


def safetensors_files() -> list[bytes]:
    return [made(federation(kind).save, ".safetensors") for kind in (False, True)]


def folder_of_tables(folder: Path, data: bytes) -> object:
    (folder / "ann.csv").write_bytes(TABLE)
    (folder / "bob.csv").write_bytes(data)
    return fa.datasets.read(folder)


TABLE = b"x,label\n1,0\n2,1\n3,0\n"


def cut(data: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    """Packed; one in eight inputs loses its end, the same ones always."""
    return pack(data)[: -3 if zlib.crc32(data) % 8 == 3 else None]


TOY = archives.Archive("toy", "toy.tar.bz2", "0" * 64, None, ("a.h5", "b.h5"), unpacked_limit=10**6)


def tars() -> list[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, body in (("a.h5", archives.HDF5 + bytes(90)), ("./b.h5", archives.HDF5), ("more/c.txt", b"text")):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return [out.getvalue()[:4608]]


def unpacked(folder: Path, data: bytes) -> object:
    """The edits are made before packing, where they mean something; now and then the end is missing."""
    (folder / "toy.tar.bz2").write_bytes(cut(data, bz2.compress))
    return archives.unpack(TOY, folder / "toy.tar.bz2", folder, lambda share: None)


def idx(folder: Path, data: bytes) -> object:
    (folder / "images.gz").write_bytes(cut(data, gzip.compress))
    return digits.read_idx(folder / "images.gz", digits.BYTES, 3)


def posts(folder: Path, data: bytes) -> object:
    (folder / dumps.POSTS).write_bytes(data)
    return list(dumps.texts(folder))


def dump(folder: Path, data: bytes) -> object:
    (folder / "dump.jsonl.xz").write_bytes(cut(data, lzma.compress))
    return list(stackexchange.read(folder / "dump.jsonl.xz"))


ROW = b'  <row Id="%d" PostTypeId="1" OwnerUserId="%d" Body="&lt;p&gt;So, &lt;code&gt;a&lt;/code&gt;.&lt;/p&gt;" />\n'
POSTS = b'<?xml version="1.0"?>\n<posts>\n' + b"".join(ROW % (n, n % 2) for n in range(4)) + b"</posts>\n"


def word_counts(folder: Path, data: bytes) -> object:
    (folder / stackoverflow.COUNTS).write_bytes(data)
    return stackoverflow.frequent(folder, 3)


def one_array(folder: Path, data: bytes) -> object:
    ending = ".safetensors" if data[8:9] == b"{" else ".npz" if data[:2] == b"PK" else ".npy"
    (folder / f"features{ending}").write_bytes(data)
    return arrays.only_array(folder / f"features{ending}")


def array_bytes(array: np.ndarray) -> bytes:
    """NumPy's own format."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def eigenvalues(folder: Path, data: bytes) -> object:
    from fedasym.cli.arguments import read_numbers

    ending = ".npy" if data[:6] == b"\x93NUMPY" else ".txt"
    (folder / f"values{ending}").write_bytes(data)
    return fa.spectra.eigenvalues(read_numbers(str(folder / f"values{ending}")))


def command_line(folder: Path, data: bytes) -> object:
    """A command, as the shell would start it; paths stay in the folder, whatever the words are."""
    from fedasym import cli

    words = data.decode(errors="replace").replace("/", "_").replace("..", "_").split("\n")
    sizes = ("--trials", "--clients", "--dimension")  # asking for much work gets it: that is no finding
    words = [word[:2] if last in sizes else word for last, word in zip(["", *words], words, strict=False)]
    before, argv = os.getcwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["fedasym", *words]
    try:
        cli.main()
    except SystemExit as end:
        if end.code not in (0, None, 2):
            raise Finding(f"exit code {end.code!r}") from None
    finally:
        sys.argv = argv
        os.chdir(before)
    return None


COMMANDS = [
    "predict --radius 1 --noise 0.5 --aspect 2 --norm 2",
    "predict --radius 1 --noise 0.5 --aspect 0.7 --clients 10 --algorithms ftfa,pfedme --json",
    "predict --task classification --radius 1.5 --centre 1.5 --aspect 2 --algorithms fedavg,ftfa",
    "predict --radius 1 --noise 0.5 --aspect 2 --spectrum atoms:0.5@0.6,3@0.4 --ridge 0.1",
    "compare ftfa fedavg --radius 1 --vary noise=0:2:5 --vary aspect=1.1:10:4",
    "path --radius 1 --noise 0.7 --aspect 2 --flow",
    "simulate --radius 1 --noise 0.5 --aspect 2 --dimension 8 --clients 3 --trials 1 --algorithms fedavg,ftfa",
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


def changed_command(sample: bytes, random: Random) -> bytes:
    return "\n".join(changed_words(sample.decode().split("\n"), random)).encode(errors="replace")


FILES = [
    file_door(".csv", csvs),
    file_door(".parquet", parquets),
    file_door(".npz", npzs, changed_npz),
    file_door(".safetensors", safetensors_files),
    file_door(".json", leafs, changed_json),
    file_door(".h5", hdf5s),
    file_door(".sqlite", sqlites),
    Door("folder of tables", lambda: [TABLE], folder_of_tables),
    Door("tf.train.Example", lambda: [message(X[0], 3)], lambda _, it: examples.decoded(it), refusals=(examples.Malformed,)),
    Door("archive .tar.bz2", cache(tars), unpacked),
    Door("IDX .gz", lambda: [bytes([0, 0, 8, 3]) + np.array([2, 2, 2], ">u4").tobytes() + bytes(8)], idx),
    Door("dump .jsonl.xz", lambda: [b'{"site": "a", "user": 1, "text": "So. Yes!"}\n' * 3], dump),
    Door("dump .xml", lambda: [POSTS], posts),
    Door("word counts", lambda: [b"the 5\nof 4\nand 3\n"], word_counts),
    Door("array for features", lambda: [array_bytes(X), safetensors.numpy.save({"x": X})], one_array),
    Door("eigenvalues", lambda: [b"1,2,3\n", b"3\n1\n0.5\n", array_bytes(np.arange(4.0))], eigenvalues),
]  # fmt: skip
WORDS = [Door("command line", lambda: [text.replace(" ", "\n").encode() for text in COMMANDS], command_line, changed_command)]
