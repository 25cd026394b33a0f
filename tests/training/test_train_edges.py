"""Training at its edges: divergence, empty and odd clients, bad input, Ctrl-C, and what it leaves behind."""

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Keep, Meta, Moreau, Ridge
from fedasym.training import layout, training, twin
from fedasym.training.settings import Settings

from .clients import SMALL, as_twin, federation, optimised, same, scores

GRAM = {**SMALL, "ridge": 1.5, "precision": "float64", "form": "gram"}


@pytest.fixture(autouse=True)
def _light(monkeypatch):
    """Clients of all sizes in one program, and programs compiled quickly: compiling is what these tests take time for."""
    monkeypatch.setattr(layout, "GROUPS", 1)
    with optimised(False):
        yield


# Divergence


def first_broken(run):
    """`History.diverged` by the twin: when the shared head broke, or when a test met a loss that is not finite."""
    with np.errstate(all="ignore"):
        every = twin.run(run.algorithm, run.federation, replace(run.settings, evaluate_every=1), run.protocol, run.seed)
        broken = None
        for snapshot in every:
            broken = snapshot.round if broken is None and not np.isfinite(snapshot.shared).all() else broken
            if snapshot.round in run.rounds:
                lost = scores(run.federation, snapshot.personal, run.protocol)[1]
                if broken is not None or not np.isfinite(lost).all():
                    return snapshot.round if broken is None else broken
    return None


def test_a_configuration_that_diverges_leaves_its_neighbours_alone():
    clients = federation(classes=None)
    told = {**GRAM, "rounds": 70, "evaluate_every": 40}
    runs = fa.train("rtfa", clients, **told, grid={"server_step": [0.1, 2000.0]}, seeds=[0, 1])
    for run in runs:
        expected = first_broken(run)
        assert run.diverged == expected
        if expected is None:
            same(run, fa.train("rtfa", clients, **{**told, "server_step": 0.1}, seed=run.seed), 1e-12)
            continue
        assert 25 < expected < 40  # in the second piece of rounds, between two tests
        finite = np.isfinite(run.losses[:, run.totals > 0]).all(1)
        np.testing.assert_array_equal(finite, run.rounds < expected)
        assert not np.isfinite(run.shared).any()
        assert f"not finite from round {expected} on" in str(run)
    assert [run.diverged is None for run in runs] == [True, True, False, False]
    assert runs.best()[0].settings.server_step == 0.1


def test_a_loss_that_overflows_is_divergence_at_the_test_that_meets_it():
    clients = federation(classes=None)
    run = fa.train("rtfa", clients, **{**GRAM, "rounds": 40, "evaluate_every": 20, "server_step": 60.0})
    assert np.isfinite(run.shared).all()
    assert run.diverged == first_broken(run) == 40


def test_a_client_stage_may_diverge_on_its_own():
    clients = federation(classes=None)
    good, bad = fa.train("rtfa", clients, **GRAM, grid={"local_step": [0.2, 1e70]})
    assert (good.diverged, bad.diverged) == (None, 0)
    assert np.isfinite(bad.shared_losses).all()
    np.testing.assert_array_equal(good.shared, bad.shared)
    alone = fa.train("rtfa", clients, **GRAM)
    same(good, alone, 1e-12)
    as_twin(alone, clients)


def test_alone_divergence_is_seen_at_the_first_test_after_it():
    clients = federation(classes=None)
    run = fa.train("local", clients, **{**GRAM, "local_step": 1e30})
    assert run.diverged == first_broken(run) > 0
    assert "local_step (now 1e+30)" in str(run)


# Odd clients and sizes


def test_one_client_with_one_sample_of_the_only_class():
    clients = fa.Federation.from_arrays([[1.0, 2.0], [0.5, 1.0]], ["yes", "yes"], clients=["a", "a"], split=[0, 2])
    for run in fa.train(["rtfa", "fedavg"], clients, rounds=3, evaluate_every=1, precision="float64", form="gram"):
        assert run.settings.cohort == 1
        as_twin(run, clients)
        np.testing.assert_array_equal(run.accuracy, 1)
        np.testing.assert_array_equal(run.loss, 0)


def test_no_rounds_is_the_beginning():
    clients = federation()
    for name in ("ftfa", "local", "pfedme"):
        run = fa.train(name, clients, **{**GRAM, "rounds": 0})
        assert run.rounds.tolist() == [0]
        np.testing.assert_array_equal(run.shared, 0)
        as_twin(run, clients)


def test_no_passes_leave_the_shared_model():
    run = fa.train("rtfa", federation(), **{**GRAM, "personal_epochs": 0})
    np.testing.assert_allclose(run.losses, run.shared_losses, rtol=1e-13)
    np.testing.assert_array_equal(run.correct, run.shared_correct)
    assert (run.hurt == 0).all()


def test_rare_tests_are_of_the_first_and_the_last_round():
    run = fa.train("ftfa", federation(), **{**GRAM, "evaluate_every": 99})
    assert run.rounds.tolist() == [0, 4]
    assert fa.train("ftfa", federation(), **{**GRAM, "rounds": 5}).rounds.tolist() == [0, 2, 4, 5]


def test_a_cohort_is_twenty_clients_or_all_that_can_train():
    many, few = federation([(1, 0, 1)] * 25), federation()
    found = {}

    class Stop(Exception):
        pass

    def stopped(jobs, *_):
        found["cohorts"] = [settings.cohort for _, settings in jobs]
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "compute", stopped)
        for clients, told, cohort in ((many, None, 20), (few, None, 6), (many, 25, 25), (few, 6, 6)):
            with pytest.raises(Stop):
                fa.train(["fedavg", "local"], clients, cohort=told)
            assert found["cohorts"] == [cohort, cohort]


# Input


@pytest.fixture
def _no_work(monkeypatch):
    def compute(*_):
        raise AssertionError("began to work")

    monkeypatch.setattr(training, "compute", compute)


def named(server, client):
    return fa.Algorithm("own", server, client)


REFUSED = {
    "unknown algorithm": ("fedavgg", {}, "unknown algorithm 'fedavgg': did you mean fedavg"),
    "unknown among several": (["ftfa", "rtf"], {}, "unknown algorithm 'rtf'"),
    "no algorithm": ([], {}, "algorithm is empty: name at least one of local"),
    "the same twice": (["ftfa", "ftfa"], {}, "algorithm has ftfa twice: give each its own name"),
    "gradient flow": (named(Average(), Flow(1.0)), {}, r"gradient flow, which has no stochastic form: use Descend"),
    "several ridges": (named(Average(), Ridge([0.1, 1.0])), {}, "training takes one number; vary it with grid"),
    "negative ridge": (named(Average(), Ridge(-1.0)), {}, "ridge is -1.0: it must be a finite number of at least 0"),
    "no algorithm's name": (3, {}, "algorithm is 3: it must be a list"),
    "lists in a list": ([["ftfa"]], {}, r"unknown algorithm \['ftfa'\]"),
    "cohort too large": ("ftfa", {"cohort": 7}, "cohort is 7, and 6 clients have training samples: give at most that many"),
    "unknown entry": ("ftfa", {"grid": {"server_stepp": [1]}}, "unknown grid entry 'server_stepp': did you mean server_step"),
    "seed in grid": ("ftfa", {"grid": {"seed": [1]}}, "unknown grid entry 'seed'"),
    "no values": ("ftfa", {"grid": {"server_step": []}}, "grid has no values for server_step: give at least one"),
    "a bare value": ("ftfa", {"grid": {"server_step": 0.1}}, "grid's server_step is 0.1: it must be a list"),
    "a word": ("ftfa", {"grid": {"server_step": "0.1"}}, "grid's server_step is '0.1': it must be a list"),
    "no mapping": ("ftfa", {"grid": [0.1]}, r"grid is \[0.1\]: it must name settings and list their values"),
    "bad value in grid": ("ftfa", {"grid": {"server_step": [0.1, -1]}}, "server_step is -1"),
    "unused entry": (["fedavg", "ftfa"], {"grid": {"ridge": [0.1]}}, "grid has ridge, which fedavg, ftfa does not use"),
    "own ridge": (named(Average(), Ridge(0.3)), {"grid": {"ridge": [0.1]}}, "grid has ridge, which own does not use"),
    "list in grid": ("ftfa", {"grid": {"server_step": [[0.1, 0.2]]}}, r"server_step is \[0.1, 0.2\]: it must be a finite"),
    "part without names": (["ftfa", "rtfa"], {"grid": {"ftfa": [1], "rtfa": {}}}, "grid's part for ftfa .* must name settings"),
    "own step": (named(Meta(0.1), Keep()), {"grid": {"local_step": [0.1]}}, "grid has local_step, which own does not use"),
    "part for nobody": ("ftfa", {"grid": {"rtfa": {"ridge": [1]}}}, "grid has a part for rtfa, which is not trained"),
    "no seeds": ("ftfa", {"seeds": []}, "seeds is empty: give at least one whole number"),
    "one seed as seeds": ("ftfa", {"seeds": 3}, "seeds is 3: it must be a list"),
    "negative seed": ("ftfa", {"seed": -1}, "seed is -1: it must be a whole number"),
    "half a seed": ("ftfa", {"seeds": [0, 0.5]}, "seed is 0.5: it must be a whole number"),
    "true seed": ("ftfa", {"seed": True}, "seed is True: it must be a whole number"),
    "endless seed": ("ftfa", {"seed": 2**64}, "it must be a whole number from 0 to"),
    "negative step": ("ftfa", {"server_step": -0.1}, "server_step is -0.1: it must be a finite number of at least 0"),
    "endless step": ("ftfa", {"local_step": np.inf}, "local_step is inf: it must be a finite number"),
    "nan ridge": ("rtfa", {"ridge": np.nan}, "ridge is nan: it must be a finite number"),
    "step as a word": ("ftfa", {"server_step": "0.1"}, "server_step is '0.1': it must be a finite number"),
    "no difference": ("maml_hf", {"difference": 0}, 'difference is 0.*for the exact Hessian train "maml"'),
    "negative rounds": ("ftfa", {"rounds": -1}, "rounds is -1: it must be a whole number of at least 0"),
    "half a round": ("ftfa", {"rounds": 1.5}, "rounds is 1.5: it must be a whole number"),
    "no batch": ("ftfa", {"batch": 0}, "batch is 0: it must be a whole number of at least 1"),
    "true batch": ("ftfa", {"batch": True}, "batch is True: it must be a whole number"),
    "never tested": ("ftfa", {"evaluate_every": -1}, "evaluate_every is -1: it must be a whole number of at least 0"),
    "no cohort": ("ftfa", {"cohort": 0}, "cohort is 0: it must be a whole number of at least 1"),
    "no local steps": ("ftfa", {"local_steps": 0}, "local_steps is 0"),
    "negative passes": ("ftfa", {"personal_epochs": -1}, "personal_epochs is -1: it must be a whole number of at least 0"),
    "unknown protocol": ("ftfa", {"protocol": "txt"}, "unknown protocol 'txt': did you mean text"),
    "unknown precision": ("ftfa", {"precision": "float16"}, "precision is 'float16': it must be .* or mixed or bfloat16"),
    "short samples": (
        "ftfa",
        {"precision": "bfloat16"},
        "precision is 'bfloat16': it serves sequences.*use 'mixed'",
    ),
    "unknown form": ("ftfa", {"form": "span"}, "form is 'span': it must be gram or head"),
}


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_before_any_work(case):
    algorithm, told, message = REFUSED[case]
    with pytest.raises(fa.InvalidInput, match=message):
        fa.train(algorithm, federation(), **told)


@pytest.mark.usefixtures("_no_work")
def test_data_come_as_a_federation():
    with pytest.raises(fa.InvalidInput, match=r"federation is a list: make one of your data with fa.Federation.from_arrays"):
        fa.train("ftfa", [np.eye(3)])


@pytest.mark.parametrize(
    ("features", "labels", "split", "message"),
    [
        ([[1.0], [np.nan]], [0, 1], [0, 2], "features"),
        ([[1.0], [np.inf]], [0, 1], [0, 2], "features"),
        ([[1.0], [2.0]], [0, 3], [0, 2], "label .* is 3, not among the 2 classes"),
        ([[1.0], [2.0]], [0, -1], [0, 2], "label .* is -1, not among the 2 classes"),
        ([[1.0], [2.0]], [0, 1], [1, 2], "no training sample at all"),
    ],
)
def test_bad_data_is_refused_when_a_federation_is_made(features, labels, split, message):
    with pytest.raises(fa.InvalidInput, match=message):
        fa.Federation.from_arrays(features, labels, clients=[1, 1], split=split, classes=2)


def test_a_grid_takes_any_values_and_each_algorithm_those_it_uses(monkeypatch):
    planned = []

    def compute(jobs, *_):
        planned.extend(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "compute", compute)

    def settings_of(algorithm, *names, **told):
        planned.clear()
        with pytest.raises(KeyboardInterrupt):
            fa.train(algorithm, federation(), **told)
        return [(job.name, *(getattr(settings, name) for name in names)) for job, settings in planned]

    grid = {
        "local_step": (step for step in (0.1, 0.2)),
        "ridge": np.array([1, 2], np.float32),
        "cohort": range(2, 4),
    }  # each read once
    assert settings_of(["fedavg", "ftfa", "rtfa", "local"], "cohort", "local_step", "ridge", grid=grid) == [
        *(("fedavg", cohort, 0.1, 0.1) for cohort in (2, 3)),
        *(("ftfa", cohort, step, 0.1) for step in (0.1, 0.2) for cohort in (2, 3)),
        *(("rtfa", cohort, step, ridge) for step in (0.1, 0.2) for ridge in (1, 2) for cohort in (2, 3)),
        *(("local", 6, step, 0.1) for step in (0.1, 0.2)),
    ]
    own = {"ftfa": {"local_step": [0.3]}, "rtfa": {"ridge": [1, 2]}}
    assert settings_of(["fedavg", "ftfa", "rtfa"], "local_step", "ridge", grid=own) == [
        ("fedavg", 0.1, 0.1), ("ftfa", 0.3, 0.1), ("rtfa", 0.1, 1.0), ("rtfa", 0.1, 2.0)
    ]  # fmt: skip
    assert settings_of(["rtfa", "pfedme", named(Moreau(), Ridge(0.3))], "ridge") == [
        ("rtfa", 0.1), ("pfedme", 15.0), ("own", 0.3)
    ]  # fmt: skip
    assert settings_of("ftfa", "rounds", "server_step", rounds=np.int64(3), server_step=np.float32(0.5)) == [("ftfa", 3, 0.5)]


def test_one_run_is_a_history_and_several_are_histories():
    clients = federation()
    assert isinstance(fa.train("fedavg", clients, **GRAM), fa.History)
    assert isinstance(fa.train("fedavg", clients, **GRAM, grid={}), fa.History)
    several = [
        fa.train(["fedavg"], clients, **GRAM),
        fa.train("fedavg", clients, **GRAM, seeds=[0]),
        fa.train("fedavg", clients, **GRAM, grid={"server_step": [0.3]}),
    ]
    for runs in several:
        assert isinstance(runs, fa.Histories)
        same(runs[0], fa.train("fedavg", clients, **GRAM))
    assert [run.seed for run in fa.train("fedavg", clients, **{**GRAM, "rounds": 0}, seeds=[3, np.int64(1), 3])] == [3, 1]


# Ctrl-C and progress


class Interrupt:
    """Ctrl-C after some reports, and again at every later one."""

    def __init__(self, after):
        self.left = after

    def __call__(self, done, text):
        self.left -= done < 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_ctrl_c_returns_what_is_finished():
    clients, names = federation(), ["ftfa", "maml", "local"]
    whole = {run.algorithm.name: run for run in fa.train(names, clients, **GRAM)}
    finished = []
    for after in range(100):
        stop = Interrupt(after)
        try:
            runs = fa.train(names, clients, **GRAM, progress=stop)
        except KeyboardInterrupt:
            assert not finished
            continue
        for run in runs:
            full, count = whole[run.algorithm.name], len(run.rounds)
            assert run.interrupted == (count < len(full.rounds))
            assert ("Interrupted: the last test" in str(run)) == run.interrupted
            np.testing.assert_array_equal(run.rounds, full.rounds[:count])
            np.testing.assert_array_equal(run.losses, full.losses[:count])
            np.testing.assert_array_equal(run.shared_correct, full.shared_correct[:count])
            if run.interrupted:
                then = fa.train(run.algorithm, clients, **{**GRAM, "rounds": int(run.rounds[-1])})
                np.testing.assert_array_equal(run.shared, then.shared)
        finished.append([len(run.rounds) for run in runs])
        if stop.left >= 0:
            break
    totals = [sum(each) for each in finished]
    assert totals == sorted(totals)
    assert finished[0][0] < 3  # some were cut short, from the first algorithm on
    assert finished[-1] == [3, 3, 3]
    assert {len(each) for each in finished} == {1, 2, 3}


def test_ctrl_c_gives_one_history_where_one_was_asked_for_and_none_before_the_first_test():
    clients = federation()
    calls = []
    fa.train("ftfa", clients, **GRAM, progress=lambda *report: calls.append(report))
    run = fa.train("ftfa", clients, **GRAM, progress=Interrupt(len(calls) - 3))
    assert isinstance(run, fa.History)
    assert run.interrupted
    with pytest.raises(KeyboardInterrupt):
        fa.train("ftfa", clients, **GRAM, progress=Interrupt(0))


@pytest.mark.parametrize("told", [{}, {"seeds": [0, 7], "grid": {"server_step": [0.1, 0.3, 0.5], "local_step": [0.05, 0.4]}}])
def test_progress_rises_and_ends_at_one(told):
    reports = []
    algorithms = ["ftfa", "pfedme"] if told else ["ftfa", "rtfa", "maml", "local", named(Average(), Descend(0.3, 7))]
    fa.train(algorithms, federation(), **GRAM, **told, progress=lambda done, text: reports.append((done, text)))
    done = [each for each, _ in reports]
    assert done == sorted(done)
    assert done[0] >= 0
    assert reports[-1] == (1.0, "done")
    assert done[-2] == 0.99
    assert np.mean(np.array(done) < 0.95) > 0.5  # it does not wait at the end
    assert {"round 4 of 4", "testing after round 2"} <= {text for _, text in reports}


def test_an_error_in_the_caller_comes_through():
    def broken(done, text):
        raise RuntimeError("no terminal")

    with pytest.raises(RuntimeError, match="no terminal"):
        fa.train("ftfa", federation(), **GRAM, progress=broken)


# What it leaves behind


def test_the_settings_of_jax_stay_as_they_were():
    clients, before = federation(), dict(jax.config.values)
    assert fa.train("fedavg", clients, **GRAM).shared.dtype == np.float64
    with pytest.raises(KeyboardInterrupt):
        fa.train("fedavg", clients, **GRAM, progress=Interrupt(0))
    assert dict(jax.config.values) == before
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32
    assert jnp.asarray(1).dtype == jnp.int32


def test_no_thread_goes_on_planning():
    for stop in (None, Interrupt(1)):
        with suppress(KeyboardInterrupt):
            fa.train("fedavg", federation(), **{**GRAM, "rounds": 90}, progress=stop)
        assert not [thread.name for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_double_precision_elsewhere_changes_nothing():
    clients, told = federation(), {**GRAM, "precision": "float32"}
    plain = fa.train("fedavg", clients, **told)
    with jax.enable_x64(True):
        inside = fa.train("fedavg", federation(), **told)
        assert jax.config.jax_enable_x64
        assert jnp.ones(1).dtype == jnp.float64
    assert inside.shared.dtype == inside.losses.dtype == np.float32
    same(plain, inside, 1e-6)


def test_importing_and_holding_data_needs_no_jax():
    code = (
        "import sys, numpy as np, fedasym as fa; fa.History; fa.Histories; fa.train; fa.algorithms;"
        "fa.Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list('aabb')); print('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_without_jax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(fa.InvalidInput, match=r"training needs JAX: pip install 'fedasym\[train\]'"):
        fa.train("fedavg", federation(), **GRAM)


def test_settings_say_when_clients_are_tested():
    assert Settings(rounds=7, evaluate_every=3).evaluated == [0, 3, 6, 7]
    assert Settings(rounds=6, evaluate_every=3).evaluated == [0, 3, 6]
    assert Settings(rounds=0).evaluated == [0]
