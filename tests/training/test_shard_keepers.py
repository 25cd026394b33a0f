"""Federations whose shards others keep: the same bits however many they are, whoever is lost; the
numbers of one process to rounding. Without a cluster: the crew is in this process.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.small import flipped, same_bits
from tests.training.clients import SMALL, federation
from tests.training.test_disk import COUNTED, alike

import fedasym as fa
from fedasym.advisor import class_estimates
from fedasym.core import __version__
from fedasym.core.runtime import replace_file
from fedasym.data import shards
from fedasym.data.shards import deal_out, share_out
from fedasym.deploy import list_readable
from fedasym.deploy.shards import ShardKeeper, ShardKeepers, ShardWorker
from fedasym.experiments.execution import complete_run
from fedasym.experiments.fields import record_data
from fedasym.experiments.folder import RESUMED, RunFolder
from fedasym.training import storage
from fedasym.training.convergence import column_sizes
from fedasym.training.settings import TEXT
from fedasym.training.twin import pooled_shares

pytest.importorskip("jax")


class HereKeeper(ShardKeeper):
    """A keeper in this process: what is shared is there."""

    def fetch(self, handle: list[Any]) -> Any:
        return pickle.loads(handle[0])


class HereCrew:
    """Keepers in this process; some die, one call after the other. What they are told and what
    they answer travels as it would between processes.
    """

    def __init__(self, opened: shards.ShardedFederation, count: int, deaths: int = 0) -> None:
        self.told = opened.files.address, opened.digest, __version__
        self.keepers = [HereKeeper(*self.told) for _ in range(count)]
        self.runs = share_out([shard.samples for shard in opened.shards], count)
        self.shards, self.deaths = len(opened.shards), deaths
        self.say: Callable[[str], None] = lambda text: None

    def settle(self) -> None:
        """They are here."""

    def share(self, value: Any) -> list[Any]:
        return [pickle.dumps(value)]

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        keepers = list(self.keepers)  # it is the planner's thread that asks
        for at, told in jobs.items():
            if at < len(keepers):
                getattr(keepers[at], method)(*told)

    def gather(
        self, method: str, jobs: Callable[[list[range]], Mapping[int, tuple[Any, ...]]], again: str
    ) -> dict[int, Any]:
        found = {
            at: getattr(self.keepers[at], method)(*told) for at, told in jobs(self.runs).items()
        }
        if self.deaths:  # one is lost with what it had, and fewer are left
            self.deaths -= 1
            fewer = max(len(self.keepers) - 1, 1)
            self.keepers = [HereKeeper(*self.told), *self.keepers[2:]][:fewer]
            self.runs = share_out([1] * self.shards, fewer)
            self.say(again)
            return self.gather(method, jobs, again)
        return found

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        left = {*range(self.shards)}
        for at, run in reversed([*enumerate(self.runs)]):
            for shard in run:
                if self.deaths and shard == run[0]:  # it is lost before it answers
                    self.deaths -= 1
                    self.say("its shards are looked at again")
                    self.keepers[at] = HereKeeper(*self.told)
                    continue
                left.remove(shard)
                yield shard, getattr(self.keepers[at], method)(*told, shard)
        for shard in left:
            yield shard, getattr(self.keepers[0], method)(*told, shard)


def kept_by(folder: Any, count: int, deaths: int = 0) -> fa.Federation:
    opened = fa.Federation.open(folder)
    return ShardKeepers(opened, HereCrew(opened, count, deaths)).federation


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Classes and numbers, in memory and in seven shards."""
    found = {}
    for classes in (3, None):
        whole = federation(classes=classes)
        folder = tmp_path_factory.mktemp("kept") / "clients"
        found[classes] = whole, whole.save(folder, shards=7)
    return found


def same(one: fa.History, other: fa.History) -> None:
    for name in COUNTED:
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize(
    ("algorithm", "classes"),
    [
        ("ftfa", 3),
        ("ftfa", None),
        ("local", 3),
        ("scaffold", 3),
        ("ditto", 3),
        ("ifca", 3),
        ("gram_ridge", 3),
    ],
)
def test_bits_do_not_depend_on_who_keeps_what_and_are_nearly_those_of_one_process(
    folders, algorithm, classes
):
    whole, folder = folders[classes]
    told = SMALL | {"server_step": None, "local_step": None}
    here = fa.train(algorithm, whole, **told)
    one, seven = (
        fa.train(algorithm, kept_by(folder, count, deaths), **told)
        for count, deaths in ((1, 0), (7, 2))
    )
    alike(here, one)
    same(one, seven)


class NodesCrew(HereCrew):
    """Keepers each of which sees the shards of its node alone."""

    def __init__(self, opened: shards.ShardedFederation, nodes: Sequence[Path]) -> None:
        super().__init__(opened, len(nodes))
        self.keepers = [HereKeeper(str(node), *self.told[1:]) for node in nodes]
        names = [shard.path.name for shard in opened.shards]
        held = [{*list_readable(str(node), names)} for node in nodes]
        self.runs = deal_out([shard.samples for shard in opened.shards], held)


@pytest.mark.usefixtures("_light")
def test_each_node_reads_its_own_shards_and_the_driver_none(folders, tmp_path):
    """The driver sees the index alone; the numbers are those of whoever sees all shards."""
    _, folder = folders[3]
    spread = {"driver": [], "one": [0, 3, 4], "two": [1, 2, 4, 6], "three": [5, 6]}
    for name, mine in spread.items():
        (tmp_path / name).mkdir()
        for file in ("federation.json", "clients.parquet"):
            shutil.copy(folder / file, tmp_path / name)
        for number in mine:
            shutil.copy(folder / f"shard-{number:05d}.safetensors", tmp_path / name)
    opened = fa.Federation.open(tmp_path / "driver")
    crew = NodesCrew(opened, [tmp_path / name for name in spread if name != "driver"])
    assert sorted(shard for run in crew.runs for shard in run) == [*range(7)]
    told = SMALL | {"server_step": None, "local_step": None}
    kept = ShardKeepers(opened, crew).federation
    same(fa.train("ditto", kept, **told), fa.train("ditto", kept_by(folder, 1), **told))
    same_samples = fa.Federation.open(folder).take(range(7))
    assert np.array_equal(kept.take(range(7)).features, same_samples.features)
    with pytest.raises(fa.InvalidInput, match=r"\(7 of 7 shards are not on this machine\)"):
        fa.train("ditto", opened, **told)


@pytest.mark.usefixtures("_light")
def test_a_grid_with_seeds_corrections_privacy_and_double_precision(folders):
    whole, folder = folders[3]
    opened = fa.Federation.open(folder)
    told = SMALL | {"evaluate_every": 0, "seeds": [1, 2], "grid": {"local_step": [0.1, 0.2]}}
    runs = (fa.train("ftfa_share", each, **told) for each in (whole, kept_by(folder, 3, 1)))
    for one, other in zip(*runs, strict=True):
        alike(one, other)
    budget = fa.Privacy(noise_multiplier=1.0, delta=0.1, quantile=0.5)
    told = SMALL | {"evaluate_every": 0, "privacy": budget, "precision": "float64"}
    runs = [fa.train("ftfa", each, **told) for each in (whole, opened, kept_by(folder, 2))]
    alike(runs[0], runs[1], 1e-12)
    alike(runs[0], runs[2], 1e-12)
    assert runs[0].privacy == runs[2].privacy


@pytest.mark.usefixtures("_light")
def test_sums_over_all_clients_are_sums_over_shards(folders):
    whole, folder = folders[3]
    kept = kept_by(folder, 2)
    np.testing.assert_allclose(column_sizes(kept), column_sizes(whole), rtol=1e-12)
    assert np.array_equal(pooled_shares(kept, TEXT), pooled_shares(whole, TEXT))
    read = [keeper.opened for keeper in kept.keepers.crew.keepers]
    assert read == [None, None]  # and needed no model


@pytest.mark.usefixtures("_light")
def test_a_run_goes_on_from_the_state_that_was_kept(folders, tmp_path, monkeypatch):
    """Cut off in the last of its rounds, and with damaged states: the same numbers.

    First in a tuning run, which is tested after its last round alone, then in a trial.
    """
    monkeypatch.setattr(storage, "EVERY", 0.0)
    opened = fa.Federation.open(folders[3][1])
    tried = fa.Experiment(
        name="kept",
        algorithms=["scaffold"],
        settings={**SMALL, "rounds": 6},
        grid={"server_step": [0.1, 0.3]},
        trials={"seeds": [1, 2]},
    )
    record = record_data(opened, ())

    def run(name: str, crew: HereCrew) -> RunFolder:
        keepers = ShardKeepers(opened, crew)
        folder = RunFolder.prepare(tmp_path / name, tried, record)
        complete_run(tried, ShardWorker(keepers, keepers.federation, record, folder, None))
        return folder

    class Cut(HereCrew):
        asked = 0
        last = 6

        def gather(self, *told: Any) -> dict[int, Any]:
            self.asked += 1
            if self.asked == self.last:
                raise RuntimeError("the power is cut")
            return super().gather(*told)

    run("whole", HereCrew(opened, 2))
    for last, damaged in ((6, "*"), (24, ""), (24, "*.*.*")):
        name = f"cut at {last}, damaged {len(damaged)}"
        monkeypatch.setattr(Cut, "last", last)
        with pytest.raises(RuntimeError, match="the power is cut"):
            run(name, Cut(opened, 2))
        for file in (tmp_path / name / "states").glob(damaged) if damaged else ():
            file.write_bytes(flipped(file.read_bytes(), 200))
        folder = run(name, HereCrew(opened, 3))
        said = [each.text for each in folder.log() if each.event == RESUMED]
        assert len(said) == (not damaged)
        assert all("goes on after round 4" in each for each in said)
        same_bits(tmp_path / name, tmp_path / "whole")
        assert not [*folder.states.iterdir()]


def test_a_killed_drivers_states_are_cleaned_away_with_its_pieces(tmp_path):
    folder = RunFolder(tmp_path)
    for each in (folder.pieces, folder.locks):
        each.mkdir()
    folder.keep_state("wanted.0", {"round": np.array(3)})
    folder.keep_state("other.0", {"round": np.array(3)})
    assert folder.clean({"wanted"})[0] == 1
    assert folder.state("wanted.0") == {"round": 3}
    assert folder.state("other.0") is None


def test_a_node_that_sees_another_folder_or_none_says_so(folders, tmp_path):
    opened = fa.Federation.open(folders[3][1])
    other = federation(classes=3).take(range(5)).save(tmp_path / "other", shards=2)
    asked = pickle.dumps((len, (), None))
    told = [(tmp_path / "none", "is not there on a node"), (other, "is another federation on a")]
    for folder, words in told:
        keeper = HereKeeper(str(folder), opened.digest, __version__)
        with pytest.raises(fa.InvalidInput, match=words):
            keeper.map([asked], 0)
    with pytest.raises(fa.InvalidInput, match="a node of the cluster has fedasym"):
        HereKeeper(opened.files.address, opened.digest, "0.0.1").map([asked], 0)


def test_sums_are_of_some_clients_and_their_samples_come_in_any_order(folders, monkeypatch):
    whole, folder = folders[3]
    kept = kept_by(folder, 3, 1)
    places = np.array([0, 1, 5])
    assert list(shards.map_blocks(kept, len, places=places)) == [1, 1, 1]
    assert shards.sum_blocks(kept, len, places=places) == 3
    assert shards.sum_blocks(kept, len) == len(whole)
    kept.keepers.crew.deaths = 1
    wanted = [6, 0, 3, 2]
    for together in (2**26, 100, 1):  # bytes
        monkeypatch.setattr("fedasym.deploy.shards.DELIVERED", together)
        some, same_ones = kept.take(wanted), whole.take(wanted)
        for name in ("features", "labels", "split", "owner"):
            assert np.array_equal(getattr(some, name), getattr(same_ones, name)), name
        assert some.clients == same_ones.clients


def draw_advised(kind: str) -> fa.Federation:
    """Classes or numbers of many features or few; one client is never trained on."""
    rng = np.random.default_rng(3)
    m, d = 24, 26 if kind == "many classes" else 70 if kind == "many numbers" else 4
    owner = np.repeat(np.arange(m), rng.integers(8, 30, m))
    x = rng.standard_normal((len(owner), d)).astype(np.float32)
    x[:, 2] = 0  # says nothing
    models = rng.standard_normal((d, 2)) + 0.5 * rng.standard_normal((m, d, 2))
    outputs = np.einsum("nd,ndc->nc", x, models[owner])
    split = rng.choice(3, len(owner), p=[0.7, 0.1, 0.2])
    split[owner == 5] = 2
    told = {"clients": owner, "split": split.tolist(), "intercept": False}
    if "numbers" in kind:
        labels = outputs[:, 0] / np.sqrt(d) + 0.3 * rng.standard_normal(len(owner))
        return fa.Federation.from_arrays(x, labels, **told)
    return fa.Federation.from_arrays(x, outputs.argmax(1), classes=2, **told)


KINDS = ["many classes", "few classes", "many numbers", "few numbers"]


@pytest.mark.parametrize("kind", KINDS)
def test_advice_is_that_of_one_process_whoever_keeps_what(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 5)
    folder = draw_advised(kind).save(tmp_path / "clients", shards=7)
    here = fa.advise(fa.Federation.open(folder))
    one, seven = (fa.advise(kept_by(folder, count, deaths)) for count, deaths in ((1, 0), (7, 3)))
    assert str(one) == str(seven) == str(here)
    for name in one.predictions:  # the same bits, and those of one process to rounding
        assert repr(one.predictions[name]) == repr(seven.predictions[name])
        near = one.predictions[name].trusted, here.predictions[name].trusted
        assert near[0] == pytest.approx(near[1], rel=1e-6), name
    assert [each.client for each in one.clients] == [each.client for each in here.clients]
    gains = np.array([[each.gain for each in advice.clients] for advice in (one, here)])
    np.testing.assert_allclose(gains[0], gains[1], rtol=1e-6, atol=1e-9)


def test_sums_of_advice_stay_where_shards_are_and_progress_hears_of_them(tmp_path, monkeypatch):
    """Only the clients that are looked at closely are known singly, and none are read here."""
    monkeypatch.setattr(class_estimates, "LOOKED_AT", 6)
    opened = fa.Federation.open(draw_advised("many classes").save(tmp_path / "clients", shards=7))
    asked, heard = [], []
    gather = HereCrew.gather
    monkeypatch.setattr(
        HereCrew, "gather", lambda self, *told: asked.append(told[0]) or gather(self, *told)
    )
    monkeypatch.setattr(shards.ShardedFederation, "check_here", lambda self: pytest.fail("read"))
    crew = HereCrew(opened, 2, deaths=1)
    keepers = ShardKeepers(opened, crew, lambda share, text: heard.append((share, text)))
    advice = fa.advise(keepers.federation)
    assert len(advice.clients) == 6
    assert advice.population.clients == 23
    assert asked in ([], ["deliver"])  # of a few, for the logistic loss
    assert "its shards are looked at again" in [text for _, text in heard]
    assert heard.count((0.0, "looked at 1 of 6 shards")) >= 3  # passes
    assert all(0 <= share < 1 for share, _ in heard)


def test_statistics_with_noise_and_refusals_on_a_cluster(tmp_path, monkeypatch):
    numbers = draw_advised("few numbers")
    folder = numbers.save(tmp_path / "numbers", shards=7)
    monkeypatch.setattr("fedasym.advisor.draw_secret_noise", np.zeros)
    budget = fa.Privacy(epsilon=50)
    told = (
        fa.advise(each, statistics_privacy=budget)
        for each in (fa.Federation.open(folder), kept_by(folder, 2))
    )
    assert len({str(each) for each in told}) == 1
    features = numbers.features.copy()
    features[numbers.rows(9, "train")[0], 0] = np.nan
    wrong = replace(numbers, features=features).save(tmp_path / "wrong", shards=7)
    with pytest.raises(fa.InvalidInput, match="client 9 has NaN or infinity"):
        fa.advise(kept_by(wrong, 2))
    with pytest.raises(fa.InvalidInput, match="the clients are in memory: workers share out"):
        fa.advise(numbers, on="ray")
    with pytest.raises(fa.InvalidInput, match="what_if is True with on"):
        fa.advise(fa.Federation.open(folder), on="ray", what_if=True)
    with pytest.raises(fa.InvalidInput, match="runtime"):
        fa.advise(fa.Federation.open(folder), on="here")


@pytest.mark.usefixtures("_light")
def test_a_full_disk_of_the_driver_is_told_and_the_run_goes_on(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "EVERY", 0.0)
    opened = fa.Federation.open(folders[3][1])
    tried = fa.Experiment(
        name="full",
        algorithms=["ftfa"],
        settings={**SMALL, "rounds": 6},
        grid={"server_step": [0.1]},
        trials={"seeds": 1},
    )
    record = record_data(opened, ())

    def run(name: str) -> RunFolder:
        keepers = ShardKeepers(opened, HereCrew(opened, 2))
        place = RunFolder.prepare(tmp_path / name, tried, record)
        complete_run(tried, ShardWorker(keepers, keepers.federation, record, place, None))
        return place

    run("whole")
    kept = count()

    @contextmanager
    def full(path: Path) -> Iterator[Path]:
        if path.parent.name == "states" and next(kept) == 4:
            yield Path("/dev/full")
        with replace_file(path) as fresh:
            yield fresh

    with monkeypatch.context() as patched:
        patched.setattr("fedasym.experiments.folder.replace_file", full)
        with pytest.raises(fa.InvalidInput, match=r"states.*cannot be written: No space left"):
            run("full")
    place = run("full")
    assert [each.event for each in place.log()].count(RESUMED) == 1
    same_bits(tmp_path / "full", tmp_path / "whole")
