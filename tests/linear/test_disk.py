"""Clients on disk are fitted as clients in memory are, to rounding; and what is kept of them does not
grow with their number."""

import numpy as np
import pytest

import fedasym as fa
from fedasym import linear
from fedasym.algorithms.methods import MAML_STEP
from fedasym.data import shards
from fedasym.exact import storage
from fedasym.exact.storage import SpilledRows, StoredModels


def draw_clients(d: int, m: int = 30, outputs: int = 1, most: int = 9) -> fa.Federation:
    """Numbers with levels of their own, clients of unequal sizes; one of them does not train."""
    rng = np.random.default_rng(d)
    sizes = rng.integers(1, most, m)
    owner = np.repeat(np.arange(m), sizes)
    x = rng.standard_normal((len(owner), d))
    models = rng.standard_normal((d, outputs)) + 0.4 * rng.standard_normal((m, d, outputs))
    y = np.einsum("nd,ndk->nk", x, models[owner]) + rng.standard_normal((m, 1))[owner]
    y += 0.5 * rng.standard_normal(y.shape)
    split = rng.choice(3, len(owner), p=[0.8, 0.1, 0.1])
    split[owner == 0] = split[owner == 1] = 0
    split[owner == 4] = 2
    names = [f"client {place}" for place in owner]
    return fa.Federation.from_arrays(x, y, clients=names, split=split.tolist())


@pytest.fixture
def _small(monkeypatch):
    """A few clients in a block, and a few rows of a temporary file at a time."""
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 7)
    monkeypatch.setattr(storage, "TOGETHER", 500)


def on_disk(whole: fa.Federation, folder) -> fa.Federation:
    return fa.Federation.open(whole.save(folder / "clients", shards=3))


def check_alike(mine: linear.LinearFit, other: linear.LinearFit) -> None:
    """The one in memory, and the one of clients on disk."""
    tight = {"rtol": 1e-7, "atol": 1e-8}
    np.testing.assert_allclose(other.shared, mine.shared, **tight)
    assert isinstance(other.personal, StoredModels)
    assert list(other.personal) == list(mine.personal)
    names, models = zip(*other.personal.blocks(), strict=True)
    assert [name for each in names for name in each] == list(mine.personal)
    np.testing.assert_allclose(np.concatenate(models), list(mine.personal.values()), **tight)
    name = list(mine.personal)[5]
    np.testing.assert_allclose(other.personal[name], mine.personal[name], **tight)
    for what in ("weights", "samples", "ridge"):
        ours, theirs = getattr(mine, what), getattr(other, what)
        if ours is None:
            assert theirs is None
            continue
        np.testing.assert_allclose(list(theirs.values()), list(ours.values()), rtol=1e-6)
        np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-6)
    for what in ("noise", "radius", "variances"):
        ours, theirs = getattr(mine, what), getattr(other, what)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-9)
    assert str(other) == str(mine)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("d", [3, 70])
@pytest.mark.parametrize("intercept", [True, False])
def test_models_are_those_of_clients_in_memory(tmp_path, d, intercept):
    whole = draw_clients(d, most=9 if d < 60 else 16)
    opened = on_disk(whole, tmp_path)
    for name in ("fedavg", "ftfa", "rtfa", "local_ridge", "pfedme", "maml"):
        told = {"intercept": intercept, "maml_step": MAML_STEP / d}
        check_alike(linear.fit(name, whole, **told), linear.fit(name, opened, **told))


@pytest.mark.usefixtures("_small")
def test_given_penalties_weights_outputs_and_fixed_features(tmp_path):
    whole = draw_clients(4, outputs=2)
    opened = on_disk(whole, tmp_path)
    trains = [whole.clients[place] for place in np.flatnonzero(whole.counts("train"))]
    own = {name: 0.1 * (place + 1) for place, name in enumerate(trains)}
    for told in (
        {"ridge": own},
        {"ridge": 0.3, "weights": "uniform", "personal": [True, False, True, True]},
        {},
    ):
        check_alike(linear.fit("rtfa", whole, **told), linear.fit("rtfa", opened, **told))
    heads = fa.Federation.from_arrays(
        whole.features, (whole.labels[:, 0] > 0).astype(int), clients=whole.owner, classes=2
    )
    opened = fa.Federation.open(heads.save(tmp_path / "heads", shards=2))
    one_hot = linear.one_hot(heads.labels[heads.split == 0].tolist(), [0, 1])
    rows = heads.split == 0
    plain = linear.fit("rtfa", heads.features[rows], one_hot, clients=heads.owner[rows].tolist())
    check_alike(plain, linear.fit("rtfa", opened))


@pytest.mark.usefixtures("_small")
def test_it_predicts_saves_and_is_what_fit_makes(tmp_path):
    whole = draw_clients(5)
    opened = on_disk(whole, tmp_path)
    model = fa.fit(opened, "rtfa")
    again = fa.Model.load(model.save(tmp_path / "model.safetensors"))
    rows, who = whole.features[:4], ["client 3", "client 9", "a stranger", "client 4"]
    expected = fa.fit(whole, "rtfa").predict(rows, client=who)
    np.testing.assert_allclose(model.predict(rows, client=who), expected, rtol=1e-7)
    np.testing.assert_allclose(again.predict(rows, client=who), expected, rtol=1e-7)
    assert repr(model) == repr(again)
    with pytest.raises(KeyError):
        model.fit.personal["a stranger"]
    assert "client 4" not in model.fit.personal  # it has no training samples


def test_what_needs_all_clients_at_once_says_what_to_do(tmp_path):
    opened = on_disk(draw_clients(3), tmp_path)
    for name, told, says in (
        ("rtfa", {"ridge": "cv"}, "give ridge='optimal' or a number"),
        ("apfl", {}, "give mixture as a number"),
        ("ifca(clusters=2)", {}, r"train \(fa.train\)"),
        ("gram_ridge", {}, "give shared_ridge as a number"),
        ("rtfa_directed", {}, "fit an algorithm with a plain one"),
    ):
        with pytest.raises(fa.InvalidInput, match=says):
            linear.fit(name, opened, **told)
    with pytest.raises(fa.InvalidInput, match="its own labels and clients"):
        linear.fit("ftfa", opened, [1.0])
    with pytest.raises(fa.InvalidInput, match="weight of client 'client 1' is 0"):
        linear.fit("ftfa", opened, weights=[1.0, *[0.0] * 27])


def test_no_more_than_a_block_is_in_memory(tmp_path, monkeypatch):
    """Counted where clients are read, and where rows are kept."""
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 4)
    monkeypatch.setattr(storage, "TOGETHER", 64)
    most = {"clients": 0, "rows": 0}
    take, look = shards.ShardedFederation.take, SpilledRows.__getitem__

    def spy_clients(self, places):
        most["clients"] = max(most["clients"], len(places))
        return take(self, places)

    def spy_rows(self, part):
        found = look(self, part)
        most["rows"] = max(most["rows"], found.size)
        return found

    monkeypatch.setattr(shards.ShardedFederation, "take", spy_clients)
    monkeypatch.setattr(SpilledRows, "__getitem__", spy_rows)
    opened = on_disk(draw_clients(70, m=60), tmp_path)
    for _ in linear.fit("rtfa", opened).personal.blocks():
        pass
    assert most["clients"] == 4
    assert 0 < most["rows"] <= 73


def test_no_room_for_temporary_rows_is_said_in_a_sentence(monkeypatch):
    rows = SpilledRows()
    full = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    with full:
        monkeypatch.setattr(rows, "file", full)
        with pytest.raises(fa.InvalidInput, match=r"No space left.*TMPDIR"):
            rows.append(np.ones((2, 3)))
