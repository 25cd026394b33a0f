"""Features: what the last layer sees, made once; and the commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from safetensors.torch import load_file

import fedasym as fa
from fedasym import pretraining
from fedasym.pretraining import RECIPES, description_key, features_file
from fedasym.pretraining.networks import build

from ..command import fedasym
from .small import images, perceptron, sentences, vectors

LAST = {"digits": "11", "shakespeare": "head"}


def test_features_are_what_the_last_layer_sees(tmp_path):
    """The stored features times the network's own last layer are the network's scores."""
    for name, federation in (("digits", images()), ("shakespeare", sentences())):
        trained = fa.pretraining.pretrain(
            name, federation, recipe=RECIPES[name].replace(epochs=1), into=tmp_path
        )
        path = fa.pretraining.features(name, federation, dtype="float32", into=tmp_path)
        result = fa.Federation.from_safetensors(path)
        network = build(RECIPES[name].network, federation.outputs).eval()
        weights = load_file(trained.path)
        network.load_state_dict(weights)
        weight, shift = (
            network.state_dict()[f"{LAST[name]}.weight"],
            network.state_dict()[f"{LAST[name]}.bias"],
        )
        assert result.dimension == {"digits": 512, "shakespeare": 256}[name]
        scores = result.features @ weight.numpy().T + shift.numpy()
        if name == "digits":
            rows = federation.features[federation.split == 0]
            given = ((federation.features - rows.mean()) / rows.std()).reshape(-1, 1, 28, 28)
        else:
            given = federation.features[..., 0].astype(np.int64)
        with torch.no_grad():
            expected = network(torch.tensor(given)).numpy()
        np.testing.assert_allclose(scores, expected, atol=2e-4)
        for field in ("labels", "owner", "split"):
            assert np.array_equal(getattr(result, field), getattr(federation, field))
        assert result.clients == federation.clients
        assert (result.mask is None) == (federation.mask is None)


def test_the_file_says_how_it_was_made_and_is_made_once(mine, tmp_path, monkeypatch):
    path = fa.pretraining.features("mine", vectors(), network="my_networks:made", into=tmp_path)
    with safe_open(str(path), framework="numpy") as file:
        held = file.metadata()
    recipe = json.loads(held["recipe"])
    assert recipe["network"] == "my_networks:made"
    assert recipe["dtype"] == "float16"
    assert held["hash"] == description_key(recipe)
    assert held["hash"] in path.name
    assert sorted(each.name for each in path.parent.iterdir()) == [
        path.name
    ]  # nothing is left over
    before = path.stat().st_mtime_ns
    monkeypatch.setattr(pretraining, "extract_features", None)  # would fail if it were called
    assert (
        fa.pretraining.features("mine", vectors(), network="my_networks:made", into=tmp_path)
        == path
    )
    assert path.stat().st_mtime_ns == before
    assert features_file("mine", tmp_path) == path
    for changed in ({"dtype": "float32"}, {"federation": vectors(seed=1)}):
        with pytest.raises(TypeError):
            fa.pretraining.features(
                "mine",
                **(
                    {"federation": vectors(), "network": "my_networks:made", "into": tmp_path}
                    | changed
                ),
            )
    with torch.no_grad():
        sys.modules["my_networks"].made[0].weight += 1
    with pytest.raises(TypeError):
        fa.pretraining.features("mine", vectors(), network="my_networks:made", into=tmp_path)


def test_half_precision_is_rounding(mine, tmp_path):
    half, whole = (
        fa.Federation.from_safetensors(
            fa.pretraining.features(
                "mine", vectors(), network="my_networks:model", dtype=dtype, into=tmp_path
            )
        ).features
        for dtype in ("float16", "float32")
    )
    with torch.no_grad():
        expected = perceptron()[:2](torch.tensor(vectors().features)).numpy()
    np.testing.assert_allclose(whole, expected, rtol=1e-6, atol=1e-7)
    assert half.dtype == np.float16
    assert np.array_equal(half, whole.astype(np.float16))


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors"])
def test_a_users_own_features(tmp_path, ending):
    mine = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
    path = tmp_path / f"mine{ending}"
    {
        ".npy": lambda: np.save(path, mine),
        ".npz": lambda: np.savez(path, x=mine),
        ".safetensors": lambda: save_file({"x": mine}, path),
    }[ending]()
    result = fa.Federation.from_safetensors(
        fa.pretraining.features("mine", vectors(), array=path, dtype="float32", into=tmp_path)
    )
    assert np.array_equal(result.features, mine)
    assert np.array_equal(result.labels, vectors().labels)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((99, 4)), "shape (99, 4): give numbers, one row for each of 100 samples"),
        (np.zeros(100), "shape (100,): give numbers"),
        (np.full((100, 2), np.nan), "not all finite"),
        (
            np.full((100, 2), 1e6),
            (
                "dtype is float16, which holds numbers up to 65,504, and a feature is 1e+06: give"
                " float32"
            ),
        ),
        (np.full((100, 2), "a"), "give numbers"),
        (np.array([[None]] * 100), "cannot be read as .npy"),
    ],
)
def test_a_features_file_that_does_not_fit_is_told(tmp_path, array, says):
    np.save(tmp_path / "mine.npy", array, allow_pickle=True)
    with pytest.raises(fa.InvalidInput) as error:
        fa.pretraining.features("mine", vectors(), array=tmp_path / "mine.npy", into=tmp_path)
    assert says in str(error.value)
    assert not list((tmp_path / "features").glob("*")) if (tmp_path / "features").exists() else True


def test_other_bad_input_is_told(mine, tmp_path):
    np.savez(tmp_path / "two.npz", x=np.eye(2), y=np.eye(2))
    for options, says in (
        ({"array": tmp_path / "two.npz"}, "it has the arrays"),
        ({"array": tmp_path / "none.npy"}, "is not a file: check the name"),
        ({"network": tmp_path / "none"}, "is not a file: check the name"),
        ({"network": tmp_path / "two.npz"}, "cannot be read as a network of fedasym pretrain"),
        ({"network": None}, "mine has no pretrained network in"),
        ({"dtype": "float61"}, "unknown dtype 'float61': did you mean float16"),
    ):
        with pytest.raises(fa.InvalidInput) as error:
            fa.pretraining.features("mine", vectors(), into=tmp_path, **options)
        assert says in str(error.value), options


def test_a_network_of_other_classes_does_not_fit(tmp_path):
    trained = fa.pretraining.pretrain(
        "digits", images(), recipe=RECIPES["digits"].replace(epochs=1), into=tmp_path
    )
    fewer = fa.Federation.from_arrays(images().features, images().labels % 5, images().owner)
    with pytest.raises(fa.InvalidInput, match="its weights do not fit this data set"):
        fa.pretraining.features("digits", fewer, network=trained.path, into=tmp_path)


SLOW = """
import sys, time
sys.path.insert(0, sys.argv[1])
from small import vectors
import fedasym as fa
from fedasym import pretraining
pretraining.SIZE, pretraining.EVERY = 5, 0.0
plain = pretraining.as_dtype
pretraining.as_dtype = lambda *given: (time.sleep(0.1), plain(*given))[1]
fa.pretraining.features("mine", vectors(), network="my_networks:made", into="out")
"""


def test_killed_features_go_on_where_they_were(mine, tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, "slow.py", str(Path(__file__).parent)]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    note = tmp_path / "out" / "features"
    start = time.monotonic()
    while (
        not (found := list(note.glob("*.progress")))
        or json.loads(found[0].read_text())["done"] < 30
    ):
        assert process.poll() is None
        assert time.monotonic() - start < 60
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(note.glob("*.safetensors"))
    monkeypatch.setattr(pretraining, "SIZE", 5)
    told = []
    path = fa.pretraining.features(
        "mine",
        vectors(),
        network="my_networks:made",
        into="out",
        progress=lambda *it: told.append(it),
    )
    assert len(told) <= 1 + (100 - 30) // 5  # 20 pieces and a last word in an undisturbed run
    with torch.no_grad():
        expected = perceptron()[:2](torch.tensor(vectors().features)).numpy().astype(np.float16)
    assert np.array_equal(fa.Federation.from_safetensors(path).features, expected)
    assert len(list(note.iterdir())) == 1


def test_from_a_users_file_to_training_by_commands(mine):
    vectors().save("mine.parquet")
    told = fedasym(
        "pretrain",
        "mine.parquet",
        "--network",
        "my_networks:model",
        "--epochs",
        "2",
        "--into",
        "out",
    )
    assert "accuracy of the network itself: validation" in told.stdout, told.stderr
    told = fedasym("features", "mine.parquet", "--into", "out")
    assert "5 clients · classification · 16 features · 3 classes" in told.stdout, told.stderr
    path = told.stdout.split("fedasym train ")[1].strip()
    assert fa.Federation.from_safetensors(path).dimension == 16


def test_the_commands_name_what_is_wrong(mine):
    vectors().save("mine.parquet")
    for words, says in (
        (("pretrain", "cifr100"), "unknown data set 'cifr100': did you mean cifar100?"),
        (("pretrain", "mine.parquet", "--into", "out"), "recipe is missing"),
        (("features", "mine.parquet", "--into", "out"), "run fedasym pretrain mine"),
    ):
        told = fedasym(*words)
        assert told.returncode == 2
        assert says in told.stderr
        assert "Traceback" not in told.stderr
