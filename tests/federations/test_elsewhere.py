"""Shards that are not on this machine: behind a URL they are copied when they are read, and of a
folder some may be missing as long as nobody reads them.
"""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from tests.federations.test_shards import alike, clients_of

import fedasym as fa
from fedasym.data.shard_files import CACHE, INDEX, MANIFEST
from fedasym.data.shards import ShardedFederation

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["safetensors", "parquet"])
def url(request, tmp_path, monkeypatch):
    """A federation in three shards in memory that fsspec lends, and a folder of copies."""
    monkeypatch.setattr("fedasym.data.shard_files.cache_folder", lambda: tmp_path / "cache")
    folder = clients_of("classes").save(tmp_path / "clients", shards=3, layout=request.param)
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/store/clients", recursive=True)
    yield "memory://store/clients"
    store.rm("/store", recursive=True)


def copies(tmp_path: Path) -> dict[str, Path]:
    return {file.stem: file for file in (tmp_path / "cache").glob("shards/*/*")}


def remove(name: str) -> None:
    fsspec.filesystem("memory").rm(f"/store/clients/{name}")


def test_only_shards_that_are_read_are_copied_and_once(url, tmp_path):
    opened, whole = fa.Federation.open(url), clients_of("classes")
    assert isinstance(opened, ShardedFederation)
    assert opened.counts("train").tolist() == whole.counts("train").tolist()
    assert copies(tmp_path) == {}
    assert alike(opened.take([8, 6]), whole.take([8, 6]))
    assert [*copies(tmp_path)] == ["shard-00002"]
    assert alike(opened.take(range(9)), whole)
    for file in fsspec.filesystem("memory").ls("/store/clients", detail=False):
        if "shard-" in file:
            remove(file.rpartition("/")[2])
    again = fa.datasets.read(url)  # the same data, whatever the object
    assert alike(again.take(range(9)), whole)
    assert again.files.address == url


def test_a_damaged_or_removed_copy_is_fetched_again(url, tmp_path):
    opened, whole = fa.Federation.open(url), clients_of("classes")
    opened.take([4])
    (copy,) = copies(tmp_path).values()
    content = bytearray(copy.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    copy.write_bytes(content)
    assert alike(opened.take([3, 4]), whole.take([3, 4]))
    copies(tmp_path)["shard-00001"].unlink()
    assert alike(opened.take([5]), whole.take([5]))


def test_what_is_wrong_behind_a_url_is_said_in_a_sentence(url, tmp_path):
    opened = fa.Federation.open(url)
    store = fsspec.filesystem("memory")
    name = next(
        file.rpartition("/")[2]
        for file in store.ls("/store/clients", detail=False)
        if "00001" in file
    )
    content = bytearray(store.cat_file(f"/store/clients/{name}"))
    content[100] ^= 255
    store.pipe_file(f"/store/clients/{name}", bytes(content))
    with pytest.raises(fa.InvalidInput, match=rf"{url}/{name} (is damaged|cannot be read)"):
        opened.take([4])
    remove(name)
    (copy,) = copies(tmp_path).values()
    copy.unlink()
    with pytest.raises(fa.InvalidInput, match=rf"{url}/{name} cannot be read: FileNotFoundError"):
        opened.take([4])
    assert opened.take([0]).clients == ("client 0",)
    store.pipe_file(f"/store/clients/{INDEX}", b"something else")
    with pytest.raises(fa.InvalidInput, match=f"{INDEX} is damaged"):
        fa.Federation.open(url)
    remove(MANIFEST)
    with pytest.raises(fa.InvalidInput, match="memory://store/clients"):
        fa.Federation.open(url)


def test_copies_go_where_there_is_no_room_the_oldest_first(url, tmp_path, monkeypatch):
    listed = fsspec.filesystem("memory").ls("/store/clients", detail=True)
    every = sum(each["size"] for each in listed if "shard-" in each["name"])
    monkeypatch.setenv(CACHE, str((every - 1) / 2**30))
    opened, whole = fa.Federation.open(url), clients_of("classes")
    opened.take([0])
    os.utime(copies(tmp_path)["shard-00000"], (1, 1))
    opened.take([3])
    assert [*sorted(copies(tmp_path))] == ["shard-00000", "shard-00001"]
    opened.take([6])
    assert [*sorted(copies(tmp_path))] == ["shard-00001", "shard-00002"]
    assert alike(opened.take(range(9)), whole)
    monkeypatch.setenv(CACHE, "much")
    with pytest.raises(fa.InvalidInput, match=f"{CACHE} is 'much': it must be a number of gigab"):
        fa.Federation.open(url)


def test_a_full_disk_leaves_no_half_copies(url, tmp_path, monkeypatch):
    opened = fa.Federation.open(url)

    def full(path: str, target: str) -> None:
        Path(target).write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(opened.files.system, "get_file", full)
    with pytest.raises(fa.InvalidInput, match=rf"cache/shards is full: make room, or set {CACHE}"):
        opened.take([0])
    assert copies(tmp_path) == {}


@pytest.mark.parametrize("layout", ["safetensors", "parquet"])
def test_shards_may_be_missing_as_long_as_nobody_reads_them(tmp_path, layout):
    whole = clients_of("classes")
    folder = whole.save(tmp_path / "clients", shards=3, layout=layout)
    gone = folder / f"shard-00001.{layout}"
    content = gone.read_bytes()
    gone.unlink()
    opened = fa.Federation.open(folder)
    assert opened.readable_shards == [0, 2]
    assert alike(opened.take([0, 8]), whole.take([0, 8]))
    with pytest.raises(fa.InvalidInput, match=r"shard-00001.*cannot be read: No such file"):
        opened.take([4])
    for reads_all in (lambda: fa.train("fedavg", opened, rounds=1), lambda: fa.advise(opened)):
        with pytest.raises(fa.InvalidInput, match=r"\(1 of 3 shards are not on this machine\)"):
            reads_all()
    gone.write_bytes(content)  # it may come later
    assert opened.readable_shards == [0, 1, 2]
    np.testing.assert_array_equal(opened.take([4]).features, whole.take([4]).features)
    gone.write_bytes(content[:-5])
    with pytest.raises(fa.InvalidInput, match=r"shard-00001.*is damaged"):
        fa.Federation.open(folder).take([4])
