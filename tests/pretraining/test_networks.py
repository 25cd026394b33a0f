"""The networks, the recipes and how samples are read, each against an unrelated route."""

import numpy as np
import pytest
import torch
from torch import nn

import fedasym as fa
from fedasym.pretraining import FEATURES, RECIPES, NetworkRecipe
from fedasym.pretraining.networks import (
    ANGLE,
    PADDING,
    Reader,
    Source,
    augment,
    build,
    crop,
    last_layer,
    reader_for,
    rotate,
)

from .small import images, sentences

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "classes", "inputs", "features", "weights"),
    [
        # Weights counted by hand from the layers' sizes: convolutions, then linear layers, with
        # their biases.
        ("cnn", 62, (2, 1, 28, 28), 512, 832 + 51264 + (64 * 49 + 1) * 512 + 513 * 62),
        ("resnet18", 100, (2, 3, 32, 32), 512, 11_220_132),
        (
            "character_lstm",
            90,
            (2, 80),
            256,
            90 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 257 * 90,
        ),
        (
            "word_lstm",
            10_004,
            (2, 20),
            96,
            10_004 * 96 + 4 * 670 * (96 + 670 + 2) + 671 * 96 + 97 * 10_004,
        ),
    ],
)
def test_networks_have_the_papers_sizes(name, classes, inputs, features, weights):
    network = build(name, classes).eval()
    assert sum(each.numel() for each in network.parameters()) == weights
    given = torch.zeros(inputs) if len(inputs) == 4 else torch.zeros(inputs, dtype=torch.int64)
    scores = network(given)
    assert tuple(scores.shape) == ((2, classes) if len(inputs) == 4 else (*inputs, classes))
    assert last_layer(network).in_features == features == FEATURES[name]


def test_every_data_set_has_its_network():
    assert {name: recipe.network for name, recipe in RECIPES.items()} == {
        "emnist": "cnn",
        "digits": "cnn",
        "cifar100": "resnet18",
        "shakespeare": "character_lstm",
        "stackoverflow": "word_lstm",
        "stackexchange": "word_lstm",
    }


@pytest.mark.parametrize(
    ("recipe", "schedule"),
    [
        (
            NetworkRecipe("cnn", step=0.1, decay=0.3, decay_every=2),
            lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.3),
        ),
        (
            RECIPES["cifar100"].replace(warm_up=0),
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [60, 120, 160], 0.2),
        ),
    ],
)
def test_step_sizes_are_those_of_pytorchs_schedulers(recipe, schedule):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.step)
    scheduler = schedule(optimiser)
    for epoch in range(recipe.epochs):
        assert recipe.rate(epoch, 0.5) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-12)
        optimiser.step()
        scheduler.step()


def test_warm_up_grows_from_nothing_and_the_grid_is_the_papers():
    recipe = RECIPES["cifar100"]
    assert [recipe.rate(0, share) for share in (0, 0.5)] == [0, 0.05]
    assert recipe.rate(1, 0) == 0.1
    assert {(each.step, each.decay) for each in recipe.grid()} == {
        (step, decay) for step in (0.0001, 0.001, 0.01, 0.1, 1) for decay in (0.1, 0.3, 0.5)
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "epochs is 0: it must be a whole number of at least 1"),
        ({"decay": 0}, "decay is 0: it must be finite and above 0"),
        ({"momentum": -1}, "momentum is -1: it must be finite and at least 0"),
        ({"optimiser": "adm"}, "unknown optimiser 'adm': did you mean adam?"),
        ({"augmentation": ("flop",)}, "unknown augmentation 'flop': did you mean flip"),
        ({"epoch": 3}, "unknown option of a recipe 'epoch': did you mean epochs"),
    ],
)
def test_a_bad_recipe_is_told(options, says):
    with pytest.raises(fa.InvalidInput) as error:
        RECIPES["emnist"].replace(**options)
    assert says in str(error.value)


def test_images_are_normalised_by_the_training_samples():
    federation = images()
    reader = reader_for("digits", federation)
    pixels = federation.features[federation.split == 0]
    assert reader.mean[0] == pytest.approx(pixels.mean(dtype=np.float64), rel=1e-9)
    assert reader.std[0] == pytest.approx(pixels.std(dtype=np.float64), rel=1e-9)
    batch, labels = Source(federation, reader, np.arange(7, 9), CPU).batch(np.array([1]))
    expected = (federation.features[8].reshape(28, 28) - pixels.mean()) / pixels.std()
    np.testing.assert_allclose(batch[0, 0].numpy(), expected, atol=1e-4)
    assert labels.tolist() == [federation.labels[8]]


def test_colours_are_the_last_axis_of_the_raw_samples_and_the_second_of_the_input():
    rows = torch.arange(2 * 32 * 32 * 3, dtype=torch.float32).reshape(2, -1)
    batch = Reader("image", (32, 32, 3), (0.0,) * 3, (1.0,) * 3).prepare(rows)
    assert batch.shape == (2, 3, 32, 32)
    assert batch[1, 2, 5, 7] == rows[1, (5 * 32 + 7) * 3 + 2]


def test_padding_is_left_out_of_labels():
    federation = sentences()
    source = Source(
        federation, reader_for("shakespeare", federation), np.arange(len(federation.features)), CPU
    )
    tokens, labels = source.batch(np.arange(10))
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == federation.features[:10, :, 0].tolist()
    assert np.array_equal(labels.numpy() >= 0, federation.mask[:10])


def test_crops_are_windows_of_the_padded_image():
    pictures, shifts = torch.randn(5, 3, 32, 32), torch.randint(0, 2 * PADDING + 1, (2, 5))
    result = crop(pictures, shifts)
    for number, (down, right) in enumerate(shifts.T.tolist()):
        padded = torch.zeros(3, 40, 40)
        padded[:, PADDING:-PADDING, PADDING:-PADDING] = pictures[number]
        assert torch.equal(result[number], padded[:, down : down + 32, right : right + 32])


def test_rotations_turn():
    pictures = torch.randn(2, 3, 32, 32)
    turned = rotate(pictures, torch.tensor([0.0, torch.pi / 2]))
    assert torch.equal(turned[0], pictures[0])
    assert torch.equal(turned[1], torch.rot90(pictures[1], 1, (1, 2)))


def test_flips_mirror_about_half_of_the_images():
    pictures = torch.randn(400, 1, 4, 4)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        result = augment(pictures, ("flip",))
    same = (result == pictures).all((1, 2, 3))
    assert torch.equal(result[~same], pictures[~same].flip(-1))
    assert 150 < int(same.sum()) < 250


def test_variants_are_drawn_anew_for_every_image():
    pictures = torch.randn(6, 3, 32, 32)
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        result = augment(pictures, ("crop", "rotation"))
        torch.manual_seed(1)
        angles = (2 * torch.rand(6) - 1) * torch.pi * ANGLE / 180
        shifts = torch.randint(0, 2 * PADDING + 1, (2, 6))
    assert angles.unique().numel() == 6
    for number, picture in enumerate(pictures):
        turned = rotate(picture[None], angles[number : number + 1])
        down, right = shifts[:, number].tolist()
        padded = nn.functional.pad(turned[0], (PADDING,) * 4)
        assert torch.equal(result[number], padded[:, down : down + 32, right : right + 32])


@pytest.mark.parametrize(
    ("name", "federation"), [("digits", images()), ("shakespeare", sentences())]
)
def test_batches_of_rows_that_a_device_keeps_are_the_same(name, federation):
    rows = np.flatnonzero(federation.split == 0)[::-1].copy()
    read = Source(federation, reader_for(name, federation), rows, CPU)
    kept = Source(federation, read.reader, rows, CPU)
    kept.kept = kept.move()  # as on an accelerator
    for one, other in zip(read.batches(7), kept.batches(7), strict=True):
        assert np.array_equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
        assert torch.equal(one[2], other[2])
