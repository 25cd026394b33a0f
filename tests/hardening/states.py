"""What people write by hand or keep from earlier work, as ways in: experiment files, results, run
folders, heads, networks.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import polars as pl

import fedasym as fa
from fedasym.core.runtime import SEAL, SEAL_SIZE
from fedasym.experiments import pieces, plan
from fedasym.experiments.fields import lines_of
from fedasym.experiments.tables import clean_run, list_runs

from .doors import Change, Door
from .mutation import changed_bytes, changed_json, changed_tree
from .samples import federation, made

EXPERIMENT = """
name = "small"
about = "A few words."
algorithms = ["local", "fedavg", "ftfa"]
grid = { server_step = [0.1, 1], local_step = [0.01, 0.3] }
trials = { seeds = 2, splits = [3, 4] }
gains = { algorithms = ["ftfa"], epochs = [0, "batch", 2], seeds = 1 }

[data.synthetic]
task = "classification"
clients = 8
dimension = 6
classes = 3
aspect = 0.3
split = [0.6, 0.2, 0.2]

[settings]
rounds = 4
evaluate_every = 2
cohort = 3
"""
BY_FILE = (
    EXPERIMENT.partition("[data.synthetic]")[0]
    + '[data]\nfile = "clients.csv"\nlabel = "y"\ncolumns = ["a", "b"]\n'
)


def changed_toml(sample: bytes, random: Random) -> bytes:
    """TOML, changed as a tree or as bytes; JSON's null and endless numbers have no form in it, and
    are left out.
    """
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    tree = changed_tree(tomllib.loads(sample.decode()), random)
    text = "\n".join(lines_of(without_null(tree), ())) if isinstance(tree, dict) else repr(tree)
    return text.encode(errors="replace")


def without_null(tree: object) -> object:
    if isinstance(tree, dict):
        return {name: without_null(value) for name, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [
            without_null(value)
            for value in tree
            if value is not None and not isinstance(value, dict)
        ]
    return tree


def experiment(folder: Path, data: bytes) -> object:
    (folder / "mine.toml").write_bytes(data)
    found = fa.Experiment.from_toml(folder / "mine.toml")
    (folder / "again.toml").write_text(found.to_toml(), encoding="utf-8")
    again = fa.Experiment.from_toml(folder / "again.toml")
    assert again.to_toml() == found.to_toml()
    return str(found), found.quick()


@cache
def saved_results() -> Path:
    """A folder of saved tables, small."""
    from fedasym.experiments.fields import FORMAT, Record
    from fedasym.experiments.tables import (
        client_columns,
        empty_table,
        gain_columns,
        trial_columns,
        tuning_columns,
    )

    task = "classification"
    about = fa.Experiment(
        name="kept",
        algorithms=["fedavg", "ftfa"],
        grid={"server_step": [0.1, 1]},
        trials={"seeds": 2, "splits": 0},
    )
    counts = {"train": 16, "validation": 2, "test": 6}
    record = Record(FORMAT, "a" * 64, "b" * 64, {}, task, ["ann", "bob"], [8, 8], counts, 3, 3)
    tuned = {
        name: {axis: values[0] for axis, values in axes.items()}
        for name, axes in about.grid.items()
    }

    def frame(columns: dict[str, type[pl.DataType]], rows: list[dict[str, object]]) -> pl.DataFrame:
        number = {
            name: 0.5 + 0.01 * len(name) for name, kind in columns.items() if kind == pl.Float64
        }
        return (
            pl.DataFrame([number | row for row in rows], schema=columns)
            if rows
            else empty_table(columns)
        )

    every = [{"sweep": "seeds", "algorithm": name, "trial": seed, "round": when, "diverged": False}
             for name in about.algorithms for seed in (1, 2) for when in (0, 400)]  # fmt: skip
    people = [
        {
            "sweep": "seeds",
            "algorithm": name,
            "trial": seed,
            "client": who,
            "samples": 8,
            "tested": 3,
        }
        for name in about.algorithms
        for seed in (1, 2)
        for who in record.clients
    ]
    chosen = [{"algorithm": name, "server_step": step, "chosen": step == 0.1, "diverged": False}
              for name in about.algorithms for step in (0.1, 1.0)]  # fmt: skip
    results = fa.Results(
        experiment=about,
        data=record,
        tuning=frame(tuning_columns(about, task), chosen),
        trials=frame(trial_columns(task), every),
        gains=frame(gain_columns(task), []),
        clients=frame(client_columns(task), people),
        tuned=tuned,
    )
    return results.save(Path(mkdtemp(prefix="fedasym-saved-")))


@cache
def run_folder() -> Path:
    """A folder that an experiment really left."""
    home = Path(mkdtemp(prefix="fedasym-run-"))
    text = (
        EXPERIMENT.replace('"local", ', "")
        .replace("[0.01, 0.3]", "[0.3]")
        .replace("seeds = 2, splits = [3, 4]", "seeds = 2, splits = 0")
    )
    (home / "small.toml").write_text(text)
    fa.run(fa.Experiment.from_toml(home / "small.toml"), into=home / "run")
    return home / "run"


def named_files(place: Callable[[], Path]) -> Callable[[], list[bytes]]:
    """Every file of a folder, its name on a line before it. Parquet has doors of its own, whose
    inputs are the same each time: polars ends the process where a page claims more memory than
    there is (SECURITY.md), and no test may do so by chance.
    """

    def samples() -> list[bytes]:
        files = sorted(
            path
            for path in place().rglob("*")
            if path.is_file() and path.suffix not in (".lock", ".parquet")
        )
        return [f"{path.relative_to(place())}\n".encode() + path.read_bytes() for path in files]

    return cache(samples)


def changed_file(sample: bytes, random: Random) -> bytes:
    """The content changed in the way of its kind, under the same name."""
    name, _, content = sample.partition(b"\n")
    change = (
        changed_json
        if name.endswith(b".json")
        else changed_toml
        if name.endswith(b".toml")
        else changed_bytes
    )
    return name + b"\n" + change(content, random)


def with_file(place: Path, folder: Path, data: bytes) -> Path:
    """A copy of the folder in which one file is another."""
    name, _, content = data.partition(b"\n")
    copied = Path(shutil.copytree(place, folder / "copy"))
    (copied / name.decode()).write_bytes(content)
    return copied


DRAWN: set[str] = set()


def draw_page(results: fa.Results, folder: Path) -> None:
    """A page of results that no page was drawn of before: many changes leave them as they were."""
    held = [getattr(results, each.name) for each in fields(results) if each.name != "folder"]
    told = "".join(
        each.write_json() if isinstance(each, pl.DataFrame) else repr(each) for each in held
    )
    if told not in DRAWN:
        fa.report(results, folder / "page.html")
        DRAWN.add(told)


def saved(folder: Path, data: bytes) -> object:
    results = fa.Results.load(with_file(saved_results(), folder, data))
    draw_page(results, folder)
    return str(results), results.to_json()


def ran(folder: Path, data: bytes) -> object:
    place = with_file(run_folder(), folder, data)
    list_runs(place.parent)
    results = fa.Results.read(place)
    str(results)
    draw_page(results, folder)
    return clean_run(place)


def piece_samples() -> list[bytes]:
    key = plan.key_of({"seed": 1})
    frame = pl.DataFrame({"round": [0, 1], "loss": [0.5, float("nan")]})
    path = Path(mkdtemp(prefix="fedasym-piece-"), f"{key}.parquet")
    pieces.write_piece(path, frame, {"seed": 1}, {"seconds": 1.0})
    held = path.read_bytes()
    start = held.index(SEAL)
    return [
        held,
        held[:start] + held[start + SEAL_SIZE :],
    ]  # with its seal, and as older versions wrote it


def piece(folder: Path, data: bytes) -> object:
    path = folder / f"{plan.key_of({'seed': 1})}.parquet"
    path.write_bytes(data)
    return pieces.read_piece(path)


SIMULATION = {"dimension": 6, "clients": 2, "trials": 2, "algorithms": ["fedavg", "ftfa"]}


def ledger_samples() -> list[bytes]:
    world = fa.Population(radius=1, noise=0.5, aspect=2)
    return [made(lambda file: fa.simulate(world, **SIMULATION, save=file))]


def ledger(folder: Path, data: bytes) -> object:
    (folder / "trials.json").write_bytes(data)
    return str(
        fa.simulate(
            fa.Population(radius=1, noise=0.5, aspect=2), **SIMULATION, save=folder / "trials.json"
        )
    )


def head_samples() -> list[bytes]:
    from fedasym.models import SavedHead

    model = SavedHead(
        np.ones((4, 3)), {"bias": True, "classes": ["a", "b", "c"], "round": 3, "client": "ann"}
    )
    return [made(model.save, ".safetensors")]


def head(folder: Path, data: bytes) -> object:
    from fedasym.models import SavedHead

    (folder / "ann.safetensors").write_bytes(data)
    return SavedHead.load(folder / "ann.safetensors").predict([[1.0, 2.0, 3.0]])


def history_samples() -> list[bytes]:
    told = {"rounds": 2, "evaluate_every": 1, "local_steps": 2, "personal_epochs": 1, "batch": 4}
    return [made(fa.train("ftfa", federation(), **told).save, ".safetensors")]


def history(folder: Path, data: bytes) -> object:
    (folder / "run.safetensors").write_bytes(data)
    run = fa.History.load(folder / "run.safetensors")
    return str(run), run.to_json(), run.predict(np.ones((2, 3)))


@cache
def double_samples() -> list[bytes]:
    told = {"clients": 6, "dimension": 3, "aspect": 0.1, "seed": 1}
    kinds = ({"noise": 0.5}, {"task": "classification", "classes": 3, "centre": 3, "radius": 1})
    doubles = (fa.resemble(fa.datasets.synthetic(**told, **kind)) for kind in kinds)
    return [made(each.save, ".safetensors") for each in doubles]


def double(folder: Path, data: bytes) -> object:
    (folder / "double.safetensors").write_bytes(data)
    found = fa.Double.load(folder / "double.safetensors")
    return str(found), found.task


NETWORK = "import torch\n\ndef model():\n    torch.manual_seed(3)\n    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))\n"


@cache
def own_network() -> Path:
    """A module with a network, on the path, and the network trained for a moment."""
    home = Path(mkdtemp(prefix="fedasym-network-"))
    (home / "hardening_network.py").write_text(NETWORK)
    sys.path.insert(0, str(home))
    recipe = fa.pretraining.NetworkRecipe("hardening_network:model").replace(epochs=1, batch=8)
    return fa.pretraining.pretrain(
        "mine", federation(), recipe=recipe, device="cpu", into=home
    ).path


def network(folder: Path, data: bytes) -> object:
    file = folder / "networks" / "network.safetensors"
    file.parent.mkdir()
    file.write_bytes(data)
    return fa.pretraining.features("mine", federation(), network=file, device="cpu", into=folder)


@cache
def shard_files(layout: str) -> dict[str, bytes]:
    """The files of a federation in shards."""
    with TemporaryDirectory() as home:
        folder = federation().save(Path(home) / "clients", shards=1, layout=layout)
        return {file.name: file.read_bytes() for file in folder.iterdir()}


def shard_door(name: str, change: Change, layout: str = "safetensors") -> Door:
    """A folder of shards, one file of which comes from outside."""

    def enter(folder: Path, data: bytes) -> object:
        place = folder / "clients"
        place.mkdir()
        for each, right in shard_files(layout).items():
            (place / each).write_bytes(data if each == name else right)
        opened = fa.Federation.open(place)
        return str(opened), opened.take(range(len(opened))), opened.identities

    return Door(f"shards, {name}", lambda: [shard_files(layout)[name]], enter, change)


def changed_safetensors(sample: bytes, random: Random) -> bytes:
    """The header changed as a tree, its length set right; or any bytes changed."""
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    size = int.from_bytes(sample[:8], "little")
    header = json.loads(sample[8 : 8 + size])
    about = header.get("__metadata__", {})
    if random.randrange(2) and about:
        name = random.choice(list(about))
        try:
            about[name] = json.dumps(changed_tree(json.loads(about[name]), random))
        except ValueError:
            about[name] = changed_bytes(about[name].encode(), random).decode(errors="replace")
    else:
        header = changed_tree(header, random)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + sample[8 + size :]


DOORS = [
    Door(
        "experiment .toml",
        lambda: [EXPERIMENT.encode(), BY_FILE.encode()],
        experiment,
        changed_toml,
    ),
    Door("saved results", named_files(saved_results), saved, changed_file),
    Door("run folder", named_files(run_folder), ran, changed_file),
    Door("piece of a run", cache(piece_samples), piece, refusals=(pieces.Damaged,)),
    Door("saved simulation", cache(ledger_samples), ledger, changed_json),
    Door("client's head", cache(head_samples), head, changed_safetensors),
    Door("saved history", cache(history_samples), history, changed_safetensors),
    Door("saved double", double_samples, double, changed_safetensors),
    shard_door("federation.json", changed_json),
    shard_door("shard-00000.safetensors", changed_safetensors),
    shard_door("shard-00000.parquet", changed_bytes, "parquet"),
    shard_door("clients.parquet", changed_bytes),
    Door(
        "pretrained network",
        cache(lambda: [own_network().read_bytes()]),
        network,
        changed_safetensors,
    ),
]
