"""Loaders on the true files, where they are: the paper's counts, and every image once; Pachinko
allocation; duplicates.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa
from fedasym.core.errors import InvalidInput
from fedasym.data import images, splits, texts
from fedasym.data.splits import duplicates, feature_hashes
from fedasym.exact.draws import allocate_images, log_gamma

DATA = Path(os.environ.get("FEDASYM_DATA", Path(__file__).parents[3] / "shared" / "data"))


def real(name):
    """The folder of a true data set; skips where it is not there."""
    if not (DATA / name).is_dir():
        pytest.skip(f"{DATA / name} is not there: set FEDASYM_DATA to the folder that holds {name}")
    return DATA / name


def totals(federation):
    return [int(federation.counts(split).sum()) for split in ("train", "validation", "test")]


def test_shakespeare_has_the_papers_counts():
    federation = texts.load_shakespeare(real("shakespeare"))
    assert len(federation) == 669
    assert totals(federation) == [33_244, 4_494, 5_288]
    assert federation.features.shape == (43_026, 80, 1)
    assert federation.outputs == 90
    assert federation.mask.any(1).all()
    assert (
        np.count_nonzero(federation.labels[federation.mask] == 1) < 10
    )  # nearly every character is in the vocabulary
    inside = federation.mask[:, 1:]
    assert np.array_equal(federation.features[:, 1:, 0][inside], federation.labels[:, :-1][inside])
    other = texts.load_shakespeare(DATA / "shakespeare", seed=4)
    assert totals(other) == totals(federation)
    assert np.array_equal(other.split == 2, federation.split == 2)
    assert not np.array_equal(other.split, federation.split)


def test_digits_by_writer_are_all_there():
    federation = images.load_digits(real("digits_by_writer"))
    assert len(federation) == 836
    assert sum(totals(federation)) == 70_000
    assert federation.counts("train").min() >= 6
    with np.load(DATA / "digits_by_writer" / "mnist_by_writer.npz") as file:
        x, y, writer = file["x"], file["y"], file["writer"]
    for name in federation.clients[::300]:
        assert np.array_equal(federation.client(name).features, x[writer == name].reshape(-1, 784))
        assert np.array_equal(federation.client(name).labels, y[writer == name])
    assert [pair.samples for pair in duplicates(federation).pairs] == [0, 0, 0]


def test_cifar100_has_every_image_once_and_its_known_duplicates(monkeypatch):
    federation = images.load_cifar100(
        real("cifar100")
    )  # all images are read and their digest is checked
    assert len(federation) == 600
    assert np.array_equal(federation.counts("train"), np.full(600, 80))
    assert totals(federation) == [48_000, 6_000, 6_000]
    assert np.array_equal(np.bincount(federation.labels), np.full(100, 600))
    tree = images.read_class_tree(DATA / "cifar100")
    assert np.array_equal(np.bincount(tree), np.full(20, 5))
    mosaic = images.read_mosaic(DATA / "cifar100" / "class_42.webp")
    mine = federation.features[federation.labels == 42]
    assert {row.astype(np.uint8).tobytes() for row in mine} == {row.tobytes() for row in mosaic}
    hashes = list(feature_hashes(federation))
    assert len(set(hashes)) == 60_000 - 26  # the image set has 26 copies
    monkeypatch.setattr(splits, "feature_hashes", lambda _: iter(hashes))  # not once more
    found = duplicates(federation)
    assert 0 < sum(pair.contents for pair in found.pairs) <= 26
    for twins in found["train", "test"].examples:
        assert np.array_equal(*federation.features[list(twins.rows)])
        assert federation.split[list(twins.rows)].tolist() == [0, 2]


def test_stack_exchange_users_with_a_thousand_words():
    federation = texts.load_stackexchange(real("stackexchange"))
    assert len(federation) == 508
    assert federation.outputs == 10_004
    assert federation.features.shape[1:] == (20, 1)
    unknown = np.mean(federation.labels[federation.mask] == 1)
    assert 0.01 < unknown < 0.06


# Pachinko allocation

FINE, TREE = np.repeat(np.arange(100), 60), np.arange(100) % 20


def agreement(classes):
    """How often two different samples of a client have the same class."""
    n = classes.shape[1]
    held = np.array([np.bincount(row, minlength=100) for row in classes])
    return (held * (held - 1)).sum(1) / (n * (n - 1))


def test_every_client_is_full_and_every_image_is_given_once():
    chosen = allocate_images(FINE, TREE, clients=60, samples=100)
    assert chosen.shape == (60, 100)
    assert np.array_equal(np.sort(chosen.ravel()), np.arange(6000))
    assert np.array_equal(chosen, allocate_images(FINE, TREE, clients=60, samples=100))
    assert not np.array_equal(chosen, allocate_images(FINE, TREE, clients=60, samples=100, seed=1))
    fewer = allocate_images(FINE, TREE, clients=20, samples=100)
    assert np.array_equal(fewer, chosen[:20])  # a client does not depend on those after it


def test_mixtures_have_the_moments_of_their_dirichlet_laws():
    # Without shortage, two samples agree with probability sum p^2, whose mean is (a + 1)/(C a + 1)
    # for C classes.
    fine = np.repeat(np.arange(100), 6000)
    chosen = allocate_images(fine, TREE, clients=400, samples=60)
    coarse, each = TREE[fine[chosen]], fine[chosen]
    for classes, expected in ((coarse, 1.1 / 3), (each, 1.1 / 3 * 11 / 51)):
        found = agreement(classes)
        assert abs(found.mean() - expected) < 4.5 * found.std() / np.sqrt(400)


def plain(fine, tree, clients, samples, root, leaf, rng):
    """The recipe of Reddi et al. word for word: mixtures that are renormalised when a class is
    empty.
    """
    stock = {each: list(np.flatnonzero(fine == each)) for each in range(len(tree))}
    chosen = []
    for _ in range(clients):
        upper = dict(enumerate(rng.dirichlet(np.full(tree.max() + 1, root))))
        lower = {
            c: dict(
                zip(
                    np.flatnonzero(tree == c),
                    rng.dirichlet(np.full((tree == c).sum(), leaf)),
                    strict=True,
                )
            )
            for c in upper
        }
        for _ in range(samples):
            open_ = [c for c in upper if any(stock[y] for y in lower[c])]
            weights = np.array([upper[c] for c in open_])
            c = open_[rng.choice(len(open_), p=weights / weights.sum())]
            kinds = [y for y in lower[c] if stock[y]]
            weights = np.array([lower[c][y] for y in kinds])
            y = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
            chosen.append(stock[y].pop(rng.integers(len(stock[y]))))
    return np.array(chosen).reshape(clients, samples)


def test_shortage_is_as_in_the_plain_recipe():
    # Until nothing is left: the early clients concentrate, the last one takes the rest. Agreement
    # by client, over repeats.
    fine, tree = np.repeat(np.arange(6), 8), np.array([0, 0, 1, 1, 2, 2])
    ours = np.array(
        [
            agreement(
                fine[allocate_images(fine, tree, clients=4, samples=12, root=0.5, leaf=2.0, seed=s)]
            )
            for s in range(300)
        ]
    )
    rng = np.random.default_rng(1)
    theirs = np.array(
        [agreement(fine[plain(fine, tree, 4, 12, 0.5, 2.0, rng)]) for _ in range(300)]
    )
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 300)
    assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4.5 * error)


def test_concentration_falls_as_the_root_parameter_grows():
    spread = [
        agreement(FINE[allocate_images(FINE, TREE, clients=30, samples=50, root=root)]).mean()
        for root in (0.01, 0.1, 1, 100)
    ]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 0.02


def test_tiny_parameters_do_not_underflow():
    assert np.isfinite(log_gamma(1e-4, 1000, np.random.default_rng(0))).all()
    chosen = allocate_images(FINE, TREE, clients=60, samples=100, root=1e-4, leaf=1e-4)
    assert np.unique(chosen).size == 6000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 61}, "61 clients of 100 samples need 6100 images and there are 6000"),
        ({"root": 0.0}, "root is 0.0: it is the parameter of a Dirichlet law"),
        ({"leaf": np.nan}, "leaf is nan"),
        ({"samples": 0}, "samples is 0"),
        ({"coarse_of_fine": np.arange(99)}, "fine must be a list of whole numbers from 0 to 98"),
    ],
)
def test_what_cannot_be_allocated(options, message):
    with pytest.raises(InvalidInput, match=message):
        allocate_images(**{"fine": FINE, "coarse_of_fine": TREE, "clients": 60} | options)


# Duplicates


def test_duplicates_are_counted_per_pair_of_splits():
    features = np.array([[1.0], [2.0], [1.0], [3.0], [1.0], [3.0], [4.0]])
    split = ["train", "train", "train", "validation", "test", "test", "test"]
    federation = fa.Federation.from_arrays(
        features, [0, 1, 0, 1, 1, 1, 0], list("aabbbbb"), split=split
    )
    found = duplicates(federation)
    assert [(pair.splits, pair.samples, pair.contents, pair.own) for pair in found.pairs] == [
        (("train", "validation"), 0, 0, 0),
        (("train", "test"), 1, 1, 1),
        (("validation", "test"), 1, 1, 1),
    ]
    twins = found["test", "train"].examples[0]
    assert (twins.rows, twins.clients, twins.same_label) == ((0, 4), ("a", "b"), False)
    assert len(found.table()) == 2
    assert "train and test: 1 sample of test in train, 1 of the same client" in repr(found)


def test_padding_is_no_part_of_a_sample():
    features = np.array([[[1.0], [9.0]], [[1.0], [8.0]], [[1.0], [8.0]]])
    mask = [[True, False], [True, False], [True, True]]
    federation = fa.Federation.from_arrays(
        features,
        np.zeros((3, 2), int),
        ["a"] * 3,
        split=["train", "test", "test"],
        mask=mask,
        classes=2,
    )
    assert duplicates(federation)["train", "test"].samples == 1
