"""Samples dealt out to clients: laws of class shares against plain loops and another library,
rules for what cannot be dealt, and every way in.
"""

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats

import fedasym as fa

from ..command import fedasym

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(5), 60)
FEATURES = RNG.standard_normal((300, 2)) + LABELS[:, None]
DRAWS = 40


def deal(**how):
    return fa.datasets.partition(FEATURES, LABELS, **how)


def sizes(federation):
    return np.diff(federation.starts)


def uneven(counts):
    """The sum of squared class shares, a mean over clients: 1 where each has one class."""
    shares = counts[counts.sum(1) > 0]
    return ((shares / shares.sum(1, keepdims=True)) ** 2).sum(1).mean()


def same_law(ours, theirs):
    """Whether independent draws have the same evenness, and the same largest client."""
    return all(
        stats.ks_2samp([*map(statistic, ours)], [*map(statistic, theirs)]).pvalue > 0.01
        for statistic in (uneven, lambda counts: counts.sum(1).max())
    )


def plain_dirichlet(seed, alpha, clients):
    """The published law, class by class, as a plain loop with NumPy's own Dirichlet."""
    rng = np.random.default_rng([seed, 77])
    counts = np.zeros((clients, 5), int)
    for kind in range(5):
        rows = rng.permutation(np.flatnonzero(kind == LABELS))
        ends = (np.cumsum(rng.dirichlet([alpha] * clients)) * len(rows)).astype(int)[:-1]
        for client, part in enumerate(np.split(rows, ends)):
            counts[client, kind] = len(part)
    return counts


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_dirichlet_shares_have_the_published_law(alpha):
    ours = [deal(alpha=alpha, clients=12, least=0, seed=s).class_counts() for s in range(DRAWS)]
    theirs = [plain_dirichlet(seed, alpha, 12) for seed in range(DRAWS)]
    assert same_law(ours, theirs)
    assert not same_law(ours, [plain_dirichlet(seed, 3 * alpha, 12) for seed in range(DRAWS)])


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_laws_are_those_of_flower_datasets():
    library = pytest.importorskip("flwr_datasets.partitioner")
    from datasets import Dataset

    table = Dataset.from_dict({"label": LABELS.tolist()})

    def counts(maker):
        maker.dataset = table
        parts = [maker.load_partition(at)["label"] for at in range(12)]
        return np.array([np.bincount(part, minlength=5) for part in parts])

    pairs = {
        "dirichlet": (
            lambda s: library.DirichletPartitioner(12, "label", 0.3, min_partition_size=0, seed=s),
            lambda s: deal(alpha=0.3, clients=12, least=0, seed=s),
        ),
        "shards": (
            lambda s: library.ShardPartitioner(12, "label", num_shards_per_partition=2, seed=s),
            lambda s: deal(how="shards", clients=12, seed=s),
        ),
        "classes": (
            lambda s: library.PathologicalPartitioner(
                12, "label", 2, class_assignment_mode="first-deterministic", seed=s
            ),
            lambda s: deal(how="classes", clients=12, seed=s),
        ),
    }
    for theirs, ours in pairs.values():
        assert same_law(
            [ours(seed).class_counts() for seed in range(100, 200)],
            [counts(theirs(seed)) for seed in range(100, 200)],
        )


def test_own_mixtures_have_the_moments_of_their_law():
    # each client of 5 samples out of plenty: E sum of squared shares is known in closed form
    labels = np.repeat(np.arange(5), 4000)
    found = fa.datasets.partition(labels[:, None] * 1.0, labels, alpha=0.4, clients=600, samples=20)
    counts = found.class_counts()
    pairs = (counts * (counts - 1)).sum(1) / (20 * 19)  # unbiased for sum p^2
    expected = (0.4 + 1) / (5 * 0.4 + 1)
    assert abs(pairs.mean() - expected) < 4 * pairs.std() / np.sqrt(600)


def test_sizes_of_every_law():
    assert sizes(deal(how="iid", clients=7)).tolist() == [43] * 6 + [42]
    assert sizes(deal(how="iid", clients=7, samples=10)).tolist() == [10] * 7
    shards = deal(how="shards", clients=20, shards=3)
    assert sizes(shards).tolist() == [15] * 20
    assert (shards.class_counts() > 0).sum(1).max() <= 6
    pathological = deal(how="classes", clients=10, classes_per_client=2).class_counts()
    assert (pathological > 0).sum(1).tolist() == [2] * 10
    assert pathological.sum(0).tolist() == [60] * 5
    quantity = deal(how="quantity", clients=10, alpha=0.5)
    assert sizes(quantity).sum() == 300
    assert sizes(quantity).max() > 2 * sizes(quantity).min()
    column = deal(how="column", by=np.array(["b", "a"])[np.arange(300) % 2])
    assert column.class_counts().tolist() == [[30] * 5] * 2
    tree = deal(how="pachinko", clients=6, samples=50, coarse=[0, 0, 1, 1, 2])
    assert sizes(tree).tolist() == [50] * 6
    # every sample once, and with its own label
    found = deal(alpha=0.1, clients=20)
    order = np.lexsort(found.features.T)
    np.testing.assert_array_equal(found.features[order], FEATURES[np.lexsort(FEATURES.T)])
    np.testing.assert_array_equal(found.labels[order], LABELS[np.lexsort(FEATURES.T)])
    np.testing.assert_array_equal(deal(alpha=0.1, clients=20).features, found.features)


def test_deals_that_leave_clients_short_follow_the_rule():
    found = deal(alpha=0.05, clients=60, least=5)
    assert sizes(found).min() == 5
    assert sizes(found).sum() == 300
    assert found.counts("test").min() >= 1
    assert len(deal(alpha=0.05, clients=60, least=0)) < 60
    exhausted = deal(alpha=0.05, clients=30, samples=10)  # all 300: every class runs out
    assert exhausted.class_counts().sum(0).tolist() == [60] * 5
    assert sizes(deal(how="shards", clients=33, shards=8, least=9)).tolist() == [9] * 33


def test_a_federation_is_dealt_out_anew_and_samples_stay_what_they_are():
    first = deal(how="iid", clients=4)
    again = fa.datasets.partition(first, alpha=0.2, clients=8)
    for more in ({"y": LABELS}, {"task": "classification"}):
        with pytest.raises(fa.InvalidInput, match=f"{next(iter(more))} is given, but a federation"):
            fa.datasets.partition(first, alpha=0.2, clients=8, **more)
    assert [again.counts(each).sum() for each in ("train", "test")] == [
        first.counts(each).sum() for each in ("train", "test")
    ]
    fresh = fa.datasets.partition(first, alpha=0.2, clients=8, split=(0.5, 0.0, 0.5))
    assert fresh.counts("validation").sum() == 0
    told = fa.datasets.partition(FEATURES, LABELS, how="iid", split=["train", "test"] * 150)
    assert told.counts("test").sum() == 150


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"how": "dirichlets"}, "did you mean dirichlet"),
        ({"alpha": 0}, "alpha is 0"),
        (
            {"how": "iid", "alpha": 1},
            "iid takes samples: leave it out, or use dirichlet or quantity",
        ),
        ({"clients": 500}, "500 clients of at least 3 samples need 1500, and there are 300"),
        ({"clients": 50, "samples": 10}, "samples ask for 500 in all, and there are 300"),
        ({"how": "shards", "clients": 100, "shards": 4}, "need 400 samples"),
        ({"how": "classes", "classes_per_client": 6}, "there are 5 classes"),
        ({"how": "column"}, "give by"),
        ({"how": "column", "by": [1, 2]}, "one value for each of 300 samples"),
        ({"how": "pachinko"}, "give coarse"),
    ],
)
def test_refusals(how, words):
    with pytest.raises(fa.InvalidInput, match=words):
        deal(**how)


def test_numbers_have_no_classes_to_deal():
    with pytest.raises(fa.InvalidInput, match="labels are numbers"):
        fa.datasets.partition(FEATURES, FEATURES[:, 0])
    assert len(fa.datasets.partition(FEATURES, FEATURES[:, 0], "iid")) == 10
    with pytest.raises(fa.InvalidInput, match="y is missing"):
        fa.datasets.partition(FEATURES)


def test_the_command_writes_clients_and_draws_them(tmp_path):
    np.savez(tmp_path / "pool.npz", x=FEATURES, y=LABELS)
    told = ("--clients", 20, "--into", tmp_path / "dealt")
    done = fedasym("data", "partition", tmp_path / "pool.npz", "--dirichlet", 0.1, *told,
                   "--plot", tmp_path / "who.svg")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = fa.datasets.read(tmp_path / "dealt" / "clients.safetensors")
    np.testing.assert_array_equal(found.features, deal(alpha=0.1, clients=20).features)
    assert "20 clients: half have" in (tmp_path / "who.svg").read_text().replace("<!--", "")
    pl.DataFrame({"a": FEATURES[:, 0], "kind": LABELS}).write_csv(tmp_path / "pool.csv")
    for law in (["--iid"], ["--shards", 1], ["--classes-per-client", 2], ["--quantity", 1.0]):
        table = fedasym(
            "data",
            "partition",
            tmp_path / "pool.csv",
            "--label",
            "kind",
            "--task",
            "classification",
            *law,
            *told,
        )
        assert "20 clients" in table.stdout, table.stderr
    users = pl.DataFrame({"a": FEATURES[:, 0], "kind": LABELS, "user": LABELS % 7})
    users.with_columns(pl.col("user").cast(str)).write_csv(tmp_path / "users.csv")
    asked = (tmp_path / "users.csv", "--label", "kind", "--task", "classification", *told)
    pooled = fedasym("data", "partition", *asked, "--client", "user")
    assert "1 feature " in pooled.stdout, pooled.stderr
    missing = fedasym("data", "partition", *asked, "--client", "person")
    assert missing.returncode == 2
    assert "no column 'person' of clients" in missing.stderr
    users.rename({"user": "client"}).write_parquet(tmp_path / "users.parquet")
    for pool in ("dealt/clients.safetensors", "users.parquet"):
        label = ["--label", "kind", "--task", "classification"] if pool[0] == "u" else []
        again = fedasym("data", "partition", tmp_path / pool, "--iid", *label, *told)
        assert "20 clients" in again.stdout, again.stderr
        dealt = fa.datasets.read(tmp_path / "dealt" / "clients.safetensors")
        assert dealt.class_counts().sum(0).tolist() == [60] * 5
    both = fedasym("data", "partition", tmp_path / "pool.npz", "--iid", "--shards", 2, *told)
    assert both.returncode == 2
    assert "name one law" in both.stderr


def save_to_disk(folder, frame, names):
    """A folder as Hugging Face's `Dataset.save_to_disk` writes it."""
    folder.mkdir(parents=True)
    frame.write_ipc_stream(folder / "data-00000-of-00001.arrow")
    files = [{"filename": "data-00000-of-00001.arrow"}]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None}))
    about = {"label": {"names": names, "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": about}))


def test_folders_that_hugging_face_saved(tmp_path):
    rows = {"x": FEATURES.tolist(), "label": LABELS, "user": np.arange(300) % 6}
    frame = pl.DataFrame(rows)
    save_to_disk(tmp_path / "one", frame, list("abcde"))
    found = fa.datasets.read(tmp_path / "one", client="user")
    assert found.classes == tuple("abcde")
    np.testing.assert_allclose(found.client(0).features, FEATURES[::6])
    save_to_disk(tmp_path / "two" / "train", frame[:240], list("abcde"))
    save_to_disk(tmp_path / "two" / "test", frame[240:], list("abcde"))
    (tmp_path / "two" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    both = fa.datasets.read(tmp_path / "two", client="user")
    assert both.counts("test").sum() == 60
    (tmp_path / "one" / "data-00000-of-00001.arrow").write_bytes(b"not arrow")
    with pytest.raises(fa.InvalidInput, match="Arrow stream"):
        fa.datasets.read(tmp_path / "one", client="user")
    save_to_disk(tmp_path / "image", frame, list("abcde"))
    (tmp_path / "image" / "dataset_info.json").write_text('{"features": {"x": {"_type": "Image"}}}')
    with pytest.raises(fa.InvalidInput, match="encoded files"):
        fa.datasets.read(tmp_path / "image", client="user")


def test_hugging_face_datasets_are_frames():
    datasets = pytest.importorskip("datasets")
    rows = {"x": FEATURES.tolist(), "label": LABELS.tolist(), "user": (np.arange(300) % 6).tolist()}
    whole = datasets.Dataset.from_dict(rows).cast_column(
        "label", datasets.ClassLabel(5, list("abcde"))
    )
    found = fa.Federation.from_frame(whole, label="label", client="user", features="x")
    assert found.classes == tuple("abcde")
    both = datasets.DatasetDict(
        {"train": whole.select(range(240)), "test": whole.select(range(240, 300))}
    )
    split = fa.Federation.from_frame(
        both, label="label", client="user", features="x", split="split"
    )
    assert split.counts("test").sum() == 60
