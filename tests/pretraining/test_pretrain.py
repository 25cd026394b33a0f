"""Training a network: it learns, survives being killed, and says what is wrong."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import fedasym as fa
from fedasym import pretraining
from fedasym.pretraining import RECIPES, NetworkRecipe, chosen_network, networks
from fedasym.pretraining.networks import Source, mean_cross_entropy, measure_accuracy, reader_for

from ..warm import Process, Starter
from .small import images, perceptron, sentences, vectors

MY = NetworkRecipe("my_networks:model", epochs=2, batch=16, step=0.05, decay_every=2)


def test_a_cnn_learns_images_and_an_lstm_sentences(tmp_path):
    for name, federation in (("digits", images()), ("shakespeare", sentences(each=60))):
        recipe = RECIPES[name].replace(epochs=4, batch=16, decay_every=4)
        result = fa.pretraining.pretrain(name, federation, recipe=recipe, into=tmp_path)
        assert result.test > 0.9, name
        assert [set(each) for each in result.epochs] == [{"loss", "validation", "seconds"}] * 4
        assert f"test {result.test:.4f}" in str(result)


def test_a_thread_learns_the_same(mine, tmp_path):
    """Where Ctrl-C is somebody else's."""
    done = []

    def learn(into):
        done.append(fa.pretraining.pretrain("mine", vectors(), recipe=MY, into=into).path)

    thread = threading.Thread(target=learn, args=[tmp_path / "thread"])
    thread.start()
    thread.join()
    learn(tmp_path / "main")
    one, other = map(load_file, done)
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_it_is_stochastic_gradient_descent(mine, tmp_path):
    """Two epochs against a loop of our own over the same batches."""
    federation = vectors()
    recipe = NetworkRecipe(
        "my_networks:model", epochs=2, batch=16, optimiser="sgd", step=0.1, decay=0.5, momentum=0.9
    )
    result = fa.pretraining.pretrain("mine", federation, recipe=recipe, seed=7, into=tmp_path)
    rows = np.flatnonzero(federation.split == 0)
    network, speed = perceptron(), {}
    for epoch in range(2):
        order = rows[np.random.default_rng([7, epoch]).permutation(rows.size)]
        for start in range(0, rows.size, 16):
            batch = order[start : start + 16]
            scores = network(torch.from_numpy(federation.features[batch]))
            loss = functional.cross_entropy(scores, torch.from_numpy(federation.labels[batch]))
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for number, (weight, gradient) in enumerate(
                    zip(network.parameters(), gradients, strict=True)
                ):
                    speed[number] = gradient + 0.9 * speed.get(number, 0)
                    weight.sub_(0.1 * 0.5**epoch * speed[number])
    for name, tensor in load_file(result.path).items():
        torch.testing.assert_close(tensor, network.state_dict()[name], rtol=1e-5, atol=1e-6)
    guesses = (
        network(torch.from_numpy(federation.features[federation.split == 2])).argmax(1).numpy()
    )
    assert result.test == pytest.approx(
        (guesses == federation.labels[federation.split == 2]).mean()
    )


def test_the_loss_and_the_accuracy_leave_padding_out():
    federation = sentences()
    source = Source(
        federation, reader_for("shakespeare", federation), np.arange(10), torch.device("cpu")
    )
    always = nn.Sequential(nn.Embedding(12, 12), nn.Linear(12, 12))
    tokens, labels = source.batch(np.arange(10))
    scores = always(tokens)
    real = torch.tensor(federation.mask[:10])
    logs = scores.log_softmax(-1).gather(-1, torch.tensor(federation.labels[:10])[..., None])[
        ..., 0
    ]
    torch.testing.assert_close(mean_cross_entropy(scores, labels), -logs[real].mean())
    right = (scores.argmax(-1) == torch.tensor(federation.labels[:10]))[real]
    assert measure_accuracy(always, source, False) == pytest.approx(float(right.float().mean()))


def test_a_finished_network_is_not_trained_again(mine, tmp_path, monkeypatch):
    first = fa.pretraining.pretrain("mine", vectors(), recipe=MY, into=tmp_path)
    monkeypatch.setattr(networks, "fit_network", None)  # would fail if it were called
    again = fa.pretraining.pretrain("mine", vectors(), recipe=MY, into=tmp_path)
    assert again == first
    with pytest.raises(TypeError):
        fa.pretraining.pretrain("mine", vectors(), recipe=MY.replace(step=0.1), into=tmp_path)
    with pytest.raises(TypeError):
        fa.pretraining.pretrain("mine", vectors(seed=1), recipe=MY, into=tmp_path)


def test_random_numbers_of_the_caller_stay_as_they_were(mine, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fa.pretraining.pretrain(
        "digits", images(each=10), recipe=RECIPES["digits"].replace(epochs=1), into=tmp_path
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_tuning_chooses_on_validation_samples_and_passes_by_divergence(mine, tmp_path, monkeypatch):
    monkeypatch.setattr("fedasym.pretraining.STEPS", (1e-5, 0.5, 1e20))
    monkeypatch.setattr("fedasym.pretraining.DECAYS", (0.5,))
    plain = MY.replace(optimiser="sgd")
    result = fa.pretraining.pretrain("mine", vectors(), recipe=plain, tune=True, into=tmp_path)
    (low, lower), (middle, higher), (high, none) = result.tried
    assert (low.step, middle.step, high.step) == (1e-5, 0.5, 1e20)
    assert higher > lower
    assert np.isnan(none)
    assert result.recipe == middle
    assert chosen_network("mine", tmp_path) == result.path
    assert str(result).count("chosen") == 1


def test_divergence_is_an_error_that_says_what_to_do(mine, tmp_path):
    with pytest.raises(
        fa.InvalidInput,
        match=r"step is 1e\+20: the loss became infinite or not a number; give a smaller one",
    ):
        fa.pretraining.pretrain(
            "mine", vectors(), recipe=MY.replace(step=1e20, optimiser="sgd"), into=tmp_path
        )


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("nowhere:model", "the module 'nowhere' cannot be imported"),
        ("my_networks:modle", "the module 'my_networks' has nothing named 'modle'"),
        ("my_networks:number", "a int: give a torch Module"),
        ("my_networks:flat", "has no torch.nn.Linear"),
        ("my_networks:narrow", "it gives scores of shape (2, 2) where (2, 3) is expected"),
        ("cnn", "it does not take an input of shape (2, 8)"),
        ("cn", "unknown network 'cn'"),
    ],
)
def test_a_network_that_does_not_fit_is_told(mine, tmp_path, network, says):
    with pytest.raises(fa.InvalidInput) as error:
        fa.pretraining.pretrain(
            "mine", vectors(), recipe=MY.replace(network=network), into=tmp_path
        )
    assert says in str(error.value)


def test_other_bad_input_is_told(mine, tmp_path):
    with pytest.raises(fa.InvalidInput, match="unknown data set 'mine'"):
        fa.pretraining.pretrain("mine", recipe=MY)
    with pytest.raises(fa.InvalidInput, match="device is 'gpu': give cpu, or cuda"):
        fa.pretraining.pretrain("mine", vectors(), recipe=MY, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(fa.InvalidInput, match="PyTorch finds no GPU here"):
            fa.pretraining.pretrain("mine", vectors(), recipe=MY, device="cuda")
    with pytest.raises(fa.InvalidInput, match="unknown precision 'float61': did you mean float32"):
        fa.pretraining.pretrain("mine", vectors(), recipe=MY, precision="float61")
    (tmp_path / "file").write_text("")
    with pytest.raises(fa.InvalidInput, match="cannot be made"):
        fa.pretraining.pretrain("mine", vectors(), recipe=MY, into=tmp_path / "file")
    regression = fa.datasets.synthetic(clients=3, dimension=8, seed=1)
    with pytest.raises(fa.InvalidInput, match="the federation is a regression"):
        fa.pretraining.pretrain("mine", regression, recipe=MY, into=tmp_path)


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from small import images
import fedasym as fa
from fedasym.pretraining import networks
from fedasym.pretraining import RECIPES
# slow enough to be killed in the middle, with a checkpoint at every batch
networks.fit_network.__defaults__ = (0.0,)
learn = networks.TrainingRun.learn
networks.TrainingRun.learn = lambda self, *given: (learn(self, *given), time.sleep(0.05))[0]
fa.pretraining.pretrain("digits", images(), recipe=RECIPES["digits"].replace(epochs=2, batch=16), into=sys.argv[2])
"""


@pytest.fixture(scope="module")
def starter():
    """Starts what is killed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    made = Starter(environment, "torch", "fedasym.pretraining")
    yield made
    made.stop()


def run_whole(into):
    """The same to its end, in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as above: sums have one order
    try:
        made = fa.pretraining.pretrain(
            "digits", images(), recipe=RECIPES["digits"].replace(epochs=2, batch=16), into=into
        )
    finally:
        torch.set_num_threads(threads)
    return load_file(made.path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_whole(tmp_path_factory.mktemp("whole"))


def test_a_killed_run_goes_on_and_ends_with_the_same_weights(whole, starter, tmp_path):
    into = tmp_path / "killed"
    reached = []
    for how, batches in ((signal.SIGINT, 2), (signal.SIGKILL, 4)):
        words = ["python", "-c", KILLED, Path(__file__).parent, into]
        process = Process(starter, words, tmp_path / f"{how.name}.log")
        reached.append(wait_for_batches(into, process, batches))
        os.kill(process.number, how)
        assert process.wait(60, pause=0.01) != 0
    assert reached[1] > reached[0]  # the second run went on
    assert not list(into.rglob("*-*.safetensors"))
    ours = run_whole(into)
    assert all(torch.equal(ours[name], whole[name]) for name in whole)
    assert not list(into.rglob("*.checkpoint"))


def wait_for_batches(into, process, batches):
    """Until the checkpoint is so far; returns how far."""
    start = time.monotonic()
    while time.monotonic() - start < 60:
        assert process.poll() is None, process.text
        for path in into.rglob("*.checkpoint"):
            try:
                size = int.from_bytes(path.read_bytes()[:8], "little")
                held = json.loads(
                    json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["fedasym"]
                )
            except (OSError, ValueError):
                continue
            if held["epoch"] * 6 + held["batch"] >= batches:
                return held["epoch"] * 6 + held["batch"]
        time.sleep(0.01)
    raise AssertionError("no checkpoint in a minute")


def test_a_damaged_checkpoint_costs_its_work_only(mine, tmp_path):
    path = pretraining.learn_network("mine", vectors(), MY, 0, None, None, tmp_path, None).path
    good = path.read_bytes()
    path.unlink()
    path.with_suffix(".checkpoint").write_bytes(good[:100])
    assert (
        pretraining.learn_network(
            "mine", vectors(), MY, 0, None, None, tmp_path, None
        ).path.read_bytes()[-50:]
        == good[-50:]
    )


def test_without_pytorch_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(fa.InvalidInput, match=r"pip install 'fedasym\[pretrain\]'"):
        fa.pretraining.pretrain("mine", vectors(), recipe=MY, into=tmp_path)
