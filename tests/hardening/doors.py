"""Every way in from outside, each with valid inputs and the call that takes them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import safetensors.numpy

import fedasym as fa
from fedasym.core.errors import InvalidInput
from fedasym.data import archives, formats, images, texts, tff
from fedasym.show.foresight import read_foresights

from .guard import Finding, guarded, listing
from .mutation import changed_bytes, changed_json, changed_words
from .samples import (
    COMMANDS,
    POSTS,
    TABLE,
    WHO,
    X,
    array_bytes,
    csvs,
    hdf5s,
    leafs,
    message,
    npzs,
    parquets,
    safetensors_files,
    sqlites,
    tars,
)

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
        """Take an input; the words of a refusal. Anything else than a result or a refusal is a
        `Finding`.
        """
        with TemporaryDirectory() as home:
            inside, canary = Path(home, "a", "inside"), Path(home, "canary")
            inside.mkdir(parents=True)
            canary.mkdir()
            (canary / "bird").write_text("alive")
            words = guarded(lambda: self.enter(inside, data), self.refusals)
            escaped = {name for name in listing(Path(home)) if not name.startswith("a/inside/")} - {
                "canary/bird"
            }
            if escaped or (canary / "bird").read_text() != "alive":
                raise Finding(f"it wrote outside its place: {sorted(escaped)}")
            return words


def file_door(
    ending: str, samples: Callable[[], list[bytes]], change: Change = changed_bytes
) -> Door:
    """Client data in a file of that ending."""

    def enter(folder: Path, data: bytes) -> object:
        (folder / f"clients{ending}").write_bytes(data)
        federation = fa.datasets.read(folder / f"clients{ending}")
        return str(federation), federation.save(folder / "again.safetensors")

    return Door(f"client data {ending}", cache(samples), enter, change)


PREDICTIONS = (
    b'{"format": "fedasym prediction 1", "predictor": "mine", "values": {"local": 0.5, "rtfa": 1}}'
)


def board_of(folder: Path, given: bytes) -> object:
    """A predictor's file beside what was measured."""
    place = folder / "set"
    place.mkdir()
    (place / "foreseen-mine.json").write_bytes(given)
    measured = PREDICTIONS.replace(b"prediction 1", b"measured 1").replace(
        b'"predictor": "mine"', b'"name": "x", "metric": "accuracy"'
    )
    (place / "measured.json").write_bytes(measured)
    return str(read_foresights(folder))


def changed_npz(sample: bytes, random: Random) -> bytes:
    """One of the arrays changed and all packed again, so that the edit is not found by a checksum;
    or any bytes changed.
    """
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sample)) as held, zipfile.ZipFile(out, "w") as packed:
        chosen = random.choice(held.namelist())
        for name in held.namelist():
            packed.writestr(
                name, changed_bytes(held.read(name), random) if name == chosen else held.read(name)
            )
    return out.getvalue()


def recipe_text() -> bytes:
    frame = {"client": WHO, "a": X[:, 0], "b": list("xyz" * len(WHO))[: len(WHO)], "label": X[:, 1]}
    federation = fa.Federation.from_frame(
        pl.DataFrame(frame), label="label", client="client", missing="mean"
    )
    assert federation.recipe is not None
    return federation.recipe.to_json().encode()


def recipe_of(data: bytes) -> object:
    recipe = fa.Recipe.from_json(data.decode(errors="replace"))
    return recipe.describe(), recipe.apply(
        pl.DataFrame({column.name: ["1", "2"] for column in recipe.columns})
    )


def folder_of_tables(folder: Path, data: bytes) -> object:
    (folder / "ann.csv").write_bytes(TABLE)
    (folder / "bob.csv").write_bytes(data)
    return fa.datasets.read(folder)


def cut(data: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    """Packed; one in eight inputs loses its end, the same ones always."""
    return pack(data)[: -3 if zlib.crc32(data) % 8 == 3 else None]


TOY = archives.Archive("toy", "toy.tar.bz2", "0" * 64, None, ("a.h5", "b.h5"), unpacked_limit=10**6)


def unpacked(folder: Path, data: bytes) -> object:
    """The edits are made before packing, where they mean something; now and then the end is
    missing.
    """
    (folder / "toy.tar.bz2").write_bytes(cut(data, bz2.compress))
    return archives.unpack(TOY, folder / "toy.tar.bz2", folder, lambda share: None)


def idx(folder: Path, data: bytes) -> object:
    (folder / "images.gz").write_bytes(cut(data, gzip.compress))
    return images.read_idx(folder / "images.gz", images.IDX_BYTES, 3)


def posts(folder: Path, data: bytes) -> object:
    (folder / texts.POSTS).write_bytes(data)
    return list(texts.dump_texts(folder))


def dump(folder: Path, data: bytes) -> object:
    (folder / "dump.jsonl.xz").write_bytes(cut(data, lzma.compress))
    return list(texts.read_posts(folder / "dump.jsonl.xz"))


def word_counts(folder: Path, data: bytes) -> object:
    (folder / texts.WORD_COUNTS).write_bytes(data)
    return texts.frequent_words(folder, 3)


def one_array(folder: Path, data: bytes) -> object:
    ending = ".safetensors" if data[8:9] == b"{" else ".npz" if data[:2] == b"PK" else ".npy"
    (folder / f"features{ending}").write_bytes(data)
    return formats.only_array(folder / f"features{ending}")


def eigenvalues(folder: Path, data: bytes) -> object:
    from fedasym.cli import read_numbers

    ending = ".npy" if data[:6] == b"\x93NUMPY" else ".txt"
    (folder / f"values{ending}").write_bytes(data)
    return fa.spectra.eigenvalues(read_numbers(str(folder / f"values{ending}")))


def command_line(folder: Path, data: bytes) -> object:
    """A command, as the shell would start it; paths stay in the folder, whatever the words are."""
    from fedasym import cli

    words = data.decode(errors="replace").replace("/", "_").replace("..", "_").split("\n")
    sizes = (
        "--trials",
        "--clients",
        "--dimension",
    )  # asking for much work gets it: that is no finding
    words = [
        word[:2] if last in sizes else word for last, word in zip(["", *words], words, strict=False)
    ]
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
    file_door(".tsv", lambda: [sample.replace(b",", b"\t") for sample in csvs()]),
    Door("recipe .json", lambda: [recipe_text()], lambda _, it: recipe_of(it), changed_json),
    Door("folder of tables", lambda: [TABLE], folder_of_tables),
    Door("predictions .json", lambda: [PREDICTIONS], board_of, changed_json),
    Door(
        "tf.train.Example",
        lambda: [message(X[0], 3)],
        lambda _, it: tff.decode_example(it),
        refusals=(tff.Malformed,),
    ),
    Door("archive .tar.bz2", cache(tars), unpacked),
    Door(
        "IDX .gz",
        lambda: [bytes([0, 0, 8, 3]) + np.array([2, 2, 2], ">u4").tobytes() + bytes(8)],
        idx,
    ),
    Door("dump .jsonl.xz", lambda: [b'{"site": "a", "user": 1, "text": "So. Yes!"}\n' * 3], dump),
    Door("dump .xml", lambda: [POSTS], posts),
    Door("word counts", lambda: [b"the 5\nof 4\nand 3\n"], word_counts),
    Door(
        "array for features", lambda: [array_bytes(X), safetensors.numpy.save({"x": X})], one_array
    ),
    Door(
        "eigenvalues",
        lambda: [b"1,2,3\n", b"3\n1\n0.5\n", array_bytes(np.arange(4.0))],
        eigenvalues,
    ),
]
WORDS = [
    Door(
        "command line",
        lambda: [text.replace(" ", "\n").encode() for text in COMMANDS],
        command_line,
        changed_command,
    )
]
