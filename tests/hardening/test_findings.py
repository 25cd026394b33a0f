"""What fuzzing found once, as small as it can be: each ended in a traceback, or was taken."""

from __future__ import annotations

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest

import fedasym as fa
from fedasym.data.formats import read
from fedasym.deploy.flower import write_app
from fedasym.deploy.flower.messages import RefusedReply, array_in
from fedasym.deploy.flower.roster import Node
from fedasym.experiments.fields import read_record
from fedasym.models import SavedHead

from . import states
from .guard import guarded
from .messages import INTRODUCTION
from .samples import WHO, X, Y, array_bytes, sqlites


def refused(call, *words, by=(fa.InvalidInput,)):
    told = guarded(call, by)
    assert told is not None, "it was taken"
    for word in words:
        assert word in told, told


@pytest.mark.parametrize("shape", ["(3, 2", "(99999999999999,)", "(2**70,)"])
def test_a_node_that_sends_a_broken_header(shape):
    good = array_bytes(np.ones((3, 2)))
    bad = good.replace(b"(3, 2)", shape.encode())
    refused(lambda: array_in(bad, (3, 2)), "cannot be read as an array", by=(RefusedReply,))


def test_a_node_whose_clients_are_no_text():
    refused(
        lambda: Node.of(INTRODUCTION | {"clients": [{}, []]}),
        "its clients must be hashes",
        by=(RefusedReply,),
    )


def test_text_that_is_none(tmp_path):
    who = WHO.astype("U3").view(np.uint32).copy()
    who[0] = 0x110000
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=who.view("U3"))
    refused(lambda: read(tmp_path / "a.npz"), "'client' holds text that is not valid Unicode")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("examples").create_group(b"\xff")
    refused(lambda: read(tmp_path / "a.h5"), "a.h5")
    held = {
        "users": ["\ud800"],
        "num_samples": [1],
        "user_data": {"\ud800": {"x": [[1]], "y": [0]}},
    }
    (tmp_path / "a.json").write_text(json.dumps(held))
    refused(lambda: read(tmp_path / "a.json"), "half a character")


def test_sqlite_with_a_damaged_length(tmp_path):
    """Any one byte of the file changed; one of them made SQLite ask for more memory than
    there is.
    """
    (sample,) = sqlites()
    for at in range(0, len(sample), 37):
        (tmp_path / "a.sqlite").write_bytes(
            sample[:at] + bytes([sample[at] ^ 0xFF]) + sample[at + 1 :]
        )
        guarded(lambda: read(tmp_path / "a.sqlite"))


@pytest.mark.parametrize(
    "change",
    [{"clients": ["ann"]}, {"clients": ["ann", "\ud800"]}, {"samples": "\ud800"},
     {"training": [8, {}]}, {"counts": {"train": []}}, {"task": "guess"},
     {"splits": []}, {"dimension": 10**400}],
    ids=str,
)  # fmt: skip
def test_a_record_of_data_that_was_edited(change):
    text = (states.saved_results() / "data.json").read_text()
    assert read_record(text).clients == ["ann", "bob"]
    with pytest.raises(ValueError, match=r"not a record|surrogates"):
        read_record(json.dumps(json.loads(text) | change))


@pytest.mark.parametrize(
    "change",
    [{"remarks": [[]]}, {"remarks": None}, {"tuned": {"ftfa": "a"}}, {"tuned": {"a": {}}}, {"environment": 0.5},
     {"environment": {"command": "\ud800"}}],
    ids=str,
)  # fmt: skip
def test_saved_results_that_were_edited(tmp_path, change):
    held = json.loads((states.saved_results() / "results.json").read_text())
    data = b"results.json\n" + json.dumps(held | change).encode()
    refused(lambda: states.saved(tmp_path, data), "does not hold saved results")


def test_an_environment_that_no_page_can_hold(tmp_path):
    data = b"environment.json\n" + json.dumps({"command": "\ud800"}).encode()
    assert guarded(lambda: states.ran(tmp_path, data)) is None


@pytest.mark.parametrize(
    "trial", [[], 3, {}, {"fedavg": [[1, 2]]}, {"fedavg": [[1], [2, 3]], "ftfa": [[1, 2]]}], ids=str
)
def test_a_simulation_that_was_edited(tmp_path, trial):
    (sample,) = states.ledger_samples()
    held = json.loads(sample)
    held["trials"] = dict.fromkeys(held["trials"], trial)
    refused(lambda: states.ledger(tmp_path, json.dumps(held).encode()), "not a saved simulation")


@pytest.mark.parametrize(
    "about",
    [{}, {"bias": True}, {"bias": True, "classes": "é"}, {"bias": 1, "classes": None}],
    ids=str,
)
def test_a_head_that_was_edited(tmp_path, about):
    path = SavedHead(np.ones((4, 3)), about).save(tmp_path / "ann.safetensors")
    refused(lambda: SavedHead.load(path), "is not a head")


def test_a_name_that_no_disk_can_hold():
    done = subprocess.run(
        [sys.executable, "-m", "fedasym", "train", "a" * 5000],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_sizes_beyond_bounds():
    world = fa.Population(radius=1, noise=0.5, aspect=2)
    refused(lambda: fa.simulate(world, dimension=10**400, clients=2), "dimension is 1000")
    refused(
        lambda: fa.simulate(
            fa.Population(radius=1, noise=0.5, aspect=1e-300), dimension=8, clients=2
        ),
        "aspect is 1e-300",
    )
    refused(
        lambda: fa.Experiment(name="a", grid={"server_step": [10**400]}),
        "it must be a finite number",
    )


@pytest.mark.parametrize(
    "size",
    [
        {"centre": 2.0**31},
        {"radius": 2.0**53},
        {"centre": 5.0, "spectrum": fa.spectra.atoms([1e6], [1])},
    ],
)
def test_classes_whose_logits_no_grid_follows(size):
    world = {"radius": 1.5, "centre": 1.5, "aspect": 2} | size
    refused(
        lambda: fa.predict(fa.ClassPopulation(**world)),
        "radius is",
        "limits are computed up to 1000",
        "give smaller ones",
    )


def test_classes_as_far_apart_as_is_allowed_are_predicted():
    table = fa.predict(fa.ClassPopulation(radius=1.5, centre=999, aspect=2), ["fedavg"])
    assert 0.999 < table["fedavg"].accuracy < 1


def test_an_app_in_a_folder_that_no_disk_can_name():
    refused(lambda: write_app("rtfa", "app\0"), "into is", "give the path of a file or folder")
