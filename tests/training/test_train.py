"""Compiled training against its plain twin, against single runs and against closed forms."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import fedasym as fa
from fedasym.algorithms import TRAINED, Average, Descend, Interpolate, Keep, Meta, Moreau, Nothing, Ridge
from fedasym.training import engine, evaluate, layout
from fedasym.training.losses import difference, slope
from fedasym.training.personal import personalise
from fedasym.training.server import advance
from fedasym.training.settings import CODE, TEXT

from .clients import RAGGED, SMALL, as_twin, federation, optimised, same, scores

COMPOSED = {
    algorithm.name: algorithm
    for algorithm in (
        fa.Algorithm("meta, keep", Meta(0.15), Keep()),
        fa.Algorithm("meta, ridge", Meta(0.15), Ridge(0.7)),
        fa.Algorithm("free, one step", Meta(0.15, "free"), Descend(0.3)),
        fa.Algorithm("dropped, keep", Meta(0.15, "dropped"), Keep()),
        fa.Algorithm("moreau, interpolate", Moreau(), Interpolate()),
        fa.Algorithm("moreau, keep", Moreau(), Keep()),
        fa.Algorithm("average, no step", Average(), Descend(0.3, 0)),
        fa.Algorithm("average, one step", Average(), Descend(0.3, 1)),
        fa.Algorithm("average, seven steps", Average(), Descend(0.3, 7)),
        fa.Algorithm("nothing, keep", Nothing(), Keep()),
        fa.Algorithm("nothing, seven steps", Nothing(), Descend(0.3, 7)),
        fa.Algorithm("nothing, ridge", Nothing(), Ridge(0.7)),
    )
}
EVERY = TRAINED | COMPOSED
FEWER = [*TRAINED, "meta, ridge", "moreau, interpolate", "moreau, keep", "nothing, keep"]  # those that need no other program
FORMS = {"text": "gram", "code": "head"}  # each form is held against the twin under one of the protocols
DOUBLE = {**SMALL, "ridge": 1.5, "precision": "float64"}


@pytest.fixture(autouse=True)
def _light(monkeypatch):
    """Clients of all sizes in one program, and programs compiled quickly: compiling is what these tests take time for."""
    monkeypatch.setattr(layout, "GROUPS", 1)
    with optimised(False):
        yield


# The twin


@pytest.mark.parametrize(("protocol", "name"), [*(("text", name) for name in EVERY), *(("code", name) for name in FEWER)])
def test_every_algorithm_is_its_twin(name, protocol):
    clients = federation()
    with optimised(protocol == "text"):
        as_twin(fa.train(EVERY[name], clients, **DOUBLE, protocol=protocol, form=FORMS[protocol], seed=3), clients)


WARM = replace(TEXT, bias=True, continued_passes=True, warm_start=True, test_inner=False, count_padding=True)
COLD = replace(CODE, bias=False, continued_passes=False, warm_start=False, test_inner=True)
THREE = [TRAINED["rtfa"], TRAINED["pfedme"], fa.Algorithm("free, keep", Meta(0.15, "free"), Keep())]


KINDS = {
    "a number": ({"classes": None}, TEXT, "gram", {}, THREE),
    "two numbers, small batches": ({"d": 12, "classes": None, "outputs": 2}, COLD, "head", {"batch": 2}, THREE),
    "sequences": ({"positions": 3}, TEXT, "head", {}, [THREE[0], THREE[2]]),
    "sequences with padding": ({"positions": 3}, WARM, "head", {}, THREE[:2]),
    "classes": ({}, COLD, "gram", {}, THREE[:2]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_clients_and_protocols_are_their_twins(kind):
    data, protocol, form, sizes, algorithms = KINDS[kind]
    clients = federation(**data)
    for run in fa.train(algorithms, clients, **{**DOUBLE, "server_step": 0.1, **sizes}, protocol=protocol, form=form, seed=1):
        as_twin(run, clients)


def test_sequences_of_numbers_are_their_twins_in_any_form():
    clients = federation(positions=3, classes=None, outputs=2)
    for form in ("gram", "head"):  # sequences have too many rows for a Gram matrix, whatever is asked for
        as_twin(fa.train("fedavg", clients, **DOUBLE, form=form), clients)


@pytest.mark.parametrize("name", ["local", "fedavg", "rtfa", "maml_hf", "pfedme"])
def test_a_history_hands_out_the_heads_that_were_tested(name):
    clients = federation()
    run = fa.train(name, clients, **DOUBLE, form="gram", seed=3)
    lost = scores(clients, {client: run.personal(client) for client in clients.clients}, TEXT)[1]
    np.testing.assert_allclose(run.losses[-1], lost, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_features_come_in_any_precision(dtype):
    clients = federation(dtype=dtype)
    assert clients.features.dtype == dtype
    as_twin(fa.train("rtfa", clients, **DOUBLE, form="gram"), clients)


@pytest.mark.parametrize(("protocol", "algorithms"), [("text", THREE[2:]), ("code", THREE[1:2])])
def test_single_precision_is_its_twin_as_far_as_it_goes(protocol, algorithms):
    clients = federation()
    with optimised(True):
        runs = fa.train(algorithms, clients, **{**DOUBLE, "precision": "float32"}, protocol=protocol, form=FORMS[protocol])
    for run in runs:
        assert {array.dtype for array in (run.shared, run.losses, run.shared_losses)} == {np.dtype(np.float32)}
        as_twin(run, clients, 2e-5)


@pytest.mark.parametrize("batch", [17, 10**9])
def test_a_batch_may_be_larger_than_any_client(batch):
    clients = federation()
    run = fa.train("rtfa", clients, **{**DOUBLE, "batch": batch}, form="gram")
    assert run.settings.batch == batch
    as_twin(run, clients)


def test_a_bias_is_a_setting_of_its_own():
    clients = federation()
    run = fa.train("rtfa", clients, **DOUBLE, form="gram", bias=True)
    assert (run.protocol.name, len(run.shared)) == ("text with bias", clients.dimension + 1)
    as_twin(run, clients)
    assert fa.train("rtfa", clients, **DOUBLE, form="gram", bias=False).protocol == TEXT
    with pytest.raises(fa.InvalidInput, match="bias is 'yes': it must be True or False"):
        fa.train("rtfa", clients, bias="yes")


VERY_RAGGED = ((5, 2, 3), (0, 40, 2), (1, 0, 2), (9, 3, 0), (60, 0, 0), (3, 6, 2), (33, 1, 1), (2, 1, 1), (64, 9, 0))


def test_groups_of_like_size_and_blocks_of_samples_are_the_same_clients(monkeypatch):
    monkeypatch.setattr(layout, "GROUPS", 3)
    monkeypatch.setattr(evaluate, "BLOCK", 5 * 3 * 8)  # outputs of five samples at a time
    clients = federation(VERY_RAGGED)
    assert len(layout.groups(clients.counts("train"))) > 1
    as_twin(fa.train("rtfa", clients, **DOUBLE), clients)


@st.composite
def shares(draw, total, clients, least, largest):
    """Sizes of that many clients, one of them the largest, with that total: one compiled program serves all."""
    sizes = [largest]
    for left in range(clients - 1, 0, -1):
        rest = total - sum(sizes)
        low, high = max(least, rest - (left - 1) * largest), min(largest, rest - (left - 1) * least)
        sizes.append(draw(st.integers(low, high)))
    return draw(st.permutations(sizes))


@given(
    train=shares(sum(size[0] for size in RAGGED), len(RAGGED), 0, 17),
    tested=shares(sum(sum(size[1:]) for size in RAGGED), len(RAGGED), 1, 8),
    split=st.integers(0, 8),
    name=st.sampled_from(sorted(TRAINED)),
    protocol=st.sampled_from(sorted(FORMS)),
    rounds=st.integers(1, 9),
    every=st.integers(1, 12),
    steps=st.tuples(*[st.floats(0, 0.5)] * 5),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_clients_and_settings_are_their_twins(train, tested, split, name, protocol, rounds, every, steps, seed):
    assume(sum(size > 0 for size in train) >= SMALL["cohort"])
    rounds = SMALL["rounds"] if TRAINED[name].shares_nothing else rounds
    sizes = [(n, min(split, t), t - min(split, t)) for n, t in zip(train, tested, strict=True)]
    clients = federation(sizes, seed=seed % 1000)
    named = ("server_step", "local_step", "ridge", "mixing", "difference")
    told = {**DOUBLE, **dict(zip(named, steps, strict=True)), "rounds": rounds, "difference": steps[-1] + 1e-4}
    if not TRAINED[name].shares_nothing:
        told["evaluate_every"] = every
    as_twin(fa.train(TRAINED[name], clients, **told, protocol=protocol, form=FORMS[protocol], seed=seed), clients, 1e-9)


# Batching


GRID = {"server_step": [0.1, 0.3, 0.5], "local_step": [0.05, 0.4]}
SEEDS = [0, 7]
GRAM = {**DOUBLE, "form": "gram"}


def singles(clients, runs):
    """Each configuration and seed of a grid, run on its own."""
    told = [{**vars(run.settings), "precision": "float64", "form": "gram", "seed": run.seed} for run in runs]
    return [fa.train(run.algorithm, clients, **each) for run, each in zip(runs, told, strict=True)]


SHAPES = {
    "gram": ({}, {"form": "gram"}),
    "head": ({}, {"form": "head"}),
    "gram, clients side by side": ({}, {"form": "gram"}),
    "sequences": ({"positions": 4}, {"form": None}),
    "sequences, short": ({"positions": 4}, {"form": None, "precision": "bfloat16"}),
    "values": ({"classes": None}, {"form": "gram"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_splits_side_by_side_are_the_reshuffled_federations_one_by_one(monkeypatch, shape):
    kind, form = SHAPES[shape]
    if "side by side" in shape:
        monkeypatch.setattr(layout, "this_machine", lambda: layout.Machine(True, 1e9, 1e9))
    clients, told = federation(**kind), {**DOUBLE, **form}
    for name in ("local", "rtfa", "maml_hf", "pfedme"):
        runs = fa.train(name, clients, **told, seeds=SEEDS, splits=[3, 1])
        assert [(run.split, run.seed) for run in runs] == [(3, 0), (3, 7), (1, 0), (1, 7)]
        assert "2 seeds · 2 splits" in runs.title
        assert [run.seed for run in runs.select(split=1)] == SEEDS
        assert {row["split"] for row in runs.table()} == {1, 3}
        assert not np.array_equal(runs[0].correct, runs[2].correct) or not np.array_equal(runs[0].losses, runs[2].losses)
        for run in runs:
            alone = fa.train(name, clients.resplit(run.split, fractions=None), **told, seed=run.seed)
            same(run, alone, 0.02 if shape.endswith("short") else 1e-9)
            np.testing.assert_array_equal(run.federation.split, alone.federation.split)


LAYOUTS = {  # clients side by side or not, bytes of memory, bytes for runs side by side, bytes for planned batches
    "all at once": (False, 1e9, 1e9, 1e8),
    "one by one": (False, 1e9, 1, 1e8),
    "two by two": (False, 1e9, 10000, 600),
    "clients side by side": (True, 1.2e5, 1e9, 1e8),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_grid_is_its_single_runs_however_it_is_cut(monkeypatch, name):
    """To rounding, not to the bit: another shape is another order of summation."""
    together, memory, close, planned = LAYOUTS[name]
    asked = []

    def watched(program, data, shared, places, *rest):
        asked.append((shared.shape[:2], len(places), program.form == "gram" and data.grams is None))
        return personalise(program, data, shared, places, *rest)

    clients = federation()
    algorithms = ["ftfa", "pfedme"] if name in ("all at once", "one by one") else ["ftfa", "local"]
    with monkeypatch.context() as patch:
        patch.setattr(layout, "this_machine", lambda: layout.Machine(together, memory, close))
        patch.setattr(evaluate, "ROWS", planned)
        patch.setattr(evaluate, "personalise", watched)
        runs = fa.train(algorithms, clients, **GRAM, grid=GRID, seeds=SEEDS)
    assert [run.seed for run in runs] == SEEDS * (len(runs) // 2)
    assert len(runs) == 2 * sum({"ftfa": 6, "pfedme": 3, "local": 2}[each] for each in algorithms)
    shapes, pieces, bare = (set(each) for each in zip(*asked, strict=True))
    assert ((1, 2) in shapes) == (name == "two by two")  # three server steps, two at a time: the last pair is filled up
    assert ((2, 3) in shapes) == (name in ("all at once", "clients side by side"))
    assert (max(pieces) < 7 or min(pieces) < 7) == (name in ("two by two", "clients side by side"))
    assert (True in bare) == together  # little memory: Gram matrices are computed when they are needed
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)


def test_sequences_side_by_side_in_many_groups_are_those_one_by_one(monkeypatch):
    """Small clients' batches are cut to their own rows, and the groups are more: the numbers stay."""
    clients = federation(positions=3)
    told = {**DOUBLE, "batch": 20, "grid": {"local_step": [0.1, 0.2]}}
    plain = fa.train(["ftfa", "local"], clients, **told)
    widths = set()

    def watched(program, data, shared, places, rows, *rest):
        widths.add(rows.shape[-1])
        return personalise(program, data, shared, places, rows, *rest)

    monkeypatch.setattr(layout, "MANY", 6)
    monkeypatch.setattr(layout, "this_machine", lambda: layout.Machine(True, 1e9, 1e9))
    monkeypatch.setattr(evaluate, "personalise", watched)
    for run, alone in zip(fa.train(["ftfa", "local"], clients, **told), plain, strict=True):
        same(run, alone, 1e-12)
    assert len(widths - {1}) > 1  # the shared model, as it is, takes no batch


def test_algorithms_that_share_some_trajectories_are_their_single_runs():
    clients = federation()
    tuned = fa.Algorithm("tuned", Average(), Interpolate())
    grid = {
        "ftfa": {"server_step": [0.1, 0.3], "local_step": [0.2, 0.1]},
        "tuned": {"server_step": [0.3], "local_step": [0.05, 0.4]},  # four client stages start from 0.3, and two from 0.1
        "fedavg": {"server_step": [0.3]},
    }
    runs = fa.train(["ftfa", tuned, "fedavg"], clients, **GRAM, grid=grid, seeds=SEEDS)
    assert len(runs) == 2 * 7
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)


def test_in_single_precision_a_grid_is_its_single_runs_to_rounding():
    clients = federation()
    told = {**GRAM, "precision": "float32"}
    for run in fa.train("fedavg", clients, **told, grid={"server_step": [0.1, 0.3]}, seeds=SEEDS):
        alone = fa.train("fedavg", clients, **{**told, "server_step": run.settings.server_step}, seed=run.seed)
        np.testing.assert_allclose(run.losses, alone.losses, rtol=1e-5)
        np.testing.assert_allclose(run.shared, alone.shared, rtol=1e-5, atol=1e-6)


def test_mixed_is_single_precision_where_nothing_is_shortened():
    """A processor's products are exact; what an accelerator shortens is measured in `benchmarks/train_grid.py`."""
    clients = federation()
    told = {**GRAM, "precision": "float32"}
    for name in ("rtfa", "maml_hf"):
        same(fa.train(name, clients, **{**told, "precision": "mixed"}), fa.train(name, clients, **told), 1e-5)


def test_bfloat16_rounds_features_and_outputs_of_sequences_alone():
    """Against float32 on features that bfloat16 holds exactly: what is left are outputs and residuals of 8 bits."""
    clients = federation(positions=4)
    exact = np.asarray(jnp.asarray(clients.features, jnp.bfloat16), np.float32)
    clients = replace(clients, features=exact)
    told = {**GRAM, "precision": "float32"}
    for name, protocol in product(("ftfa", "rtfa", "maml_fo", "maml_hf", "pfedme"), ("text", "code")):
        told["protocol"] = protocol  # heads are filled up to eights, and come back without; with a bias, too
        short, long = fa.train(name, clients, **{**told, "precision": "bfloat16"}), fa.train(name, clients, **told)
        assert short.shared.dtype == np.float32
        assert short.shared.shape == long.shared.shape
        assert not np.array_equal(short.shared, long.shared)
        moved = np.abs(long.shared).max()
        np.testing.assert_allclose(short.shared, long.shared, atol=0.02 * moved)
        np.testing.assert_allclose(short.losses.sum(), long.losses.sum(), rtol=0.01)


def test_a_shortened_product_is_asked_for_only_when_mixed(monkeypatch):
    asked = []

    def watched(*arguments):
        asked.append(jax.config.jax_default_matmul_precision)
        return personalise(*arguments)

    monkeypatch.setattr(evaluate, "personalise", watched)
    before = jax.config.jax_default_matmul_precision
    for precision, expected in (("float32", "highest"), ("mixed", "default")):
        asked.clear()
        fa.train("fedavg", federation(), **{**GRAM, "precision": precision})
        assert set(asked) == {expected}
    assert jax.config.jax_default_matmul_precision == before


@pytest.mark.parametrize("name", ["local", "fedavg", "rtfa", "pfedme"])
def test_testing_after_the_last_round_alone_changes_nothing_else(name):
    clients = federation()
    often, once = (fa.train(name, clients, **{**GRAM, "evaluate_every": every}) for every in (2, 0))
    assert once.rounds.tolist() == [often.rounds[-1]]
    np.testing.assert_array_equal(once.correct[-1], often.correct[-1])
    np.testing.assert_allclose(once.losses[-1], often.losses[-1], rtol=1e-12)


def test_the_same_call_gives_the_same_bits():
    clients, again = federation(), federation()
    for name in ("rtfa", "pfedme"):
        same(fa.train(name, clients, **GRAM, seed=5), fa.train(name, again, **GRAM, seed=5))
    assert not np.array_equal(*(fa.train("rtfa", clients, **GRAM, seed=seed).shared for seed in (5, 6)))


@pytest.fixture
def dry(monkeypatch):
    """Training without arithmetic: the arguments that the compiled programs are given."""
    asked = {"advance": [], "personalise": []}

    def advancing(*arguments):
        asked["advance"].append(arguments)
        return arguments[2:4]

    def personalising(*arguments):
        asked["personalise"].append(arguments)
        _, _, shared, members, _, rates, stops = arguments
        configurations = next(iter(rates.values())).shape[1]
        return np.zeros((len(shared), len(members), shared.shape[1], configurations, len(stops), 2, 2), shared.dtype)

    monkeypatch.setattr(engine, "advance", advancing)
    monkeypatch.setattr(evaluate, "personalise", personalising)
    return asked


def test_configurations_that_differ_in_the_client_stage_train_the_shared_model_once(dry):
    clients = federation()
    steps, ridges = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0], [0.1, 0.5, 1.0, 5.0, 10.0]
    grid = {"server_step": steps, "local_step": steps[:5], "ridge": ridges}
    told = {**SMALL, "rounds": 60, "evaluate_every": 20, "form": "gram"}
    runs = fa.train(["fedavg", "ftfa", "rtfa"], clients, **told, grid=grid, seeds=range(3))
    assert len(runs) == 3 * (6 + 6 * 5 + 6 * 5 * 5)
    trained = sum(shared.shape[0] * shared.shape[1] * count for _, _, shared, *_, count in dry["advance"])
    assert trained == 60 * 6 * 3  # rounds, server steps and seeds: as for FedAvg alone
    tuned = {"keep": 0, "descend": 0, "ridge": 0}
    for program, _, shared, _, _, rates, _ in dry["personalise"]:
        tuned[program.kind] += len(shared) * rates["local_step"].size
    assert tuned == {"keep": 4 * 3 * 6, "descend": 4 * 3 * 6 * 5, "ridge": 4 * 3 * 6 * 25}  # 4 evaluated rounds
    dry["advance"].clear()
    fa.train(["maml", "maml_fo", "pfedme", "fedavg"], clients, **told)
    assert sorted({program.kind for program, *_ in dry["advance"]}) == ["average", "dropped", "exact", "moreau"]


def test_one_walk_is_tested_after_every_number_of_passes(dry):
    told = {**SMALL, "form": "gram"}
    passes = {"personal_epochs": [5, 0, 1, 2], "local_step": [0.1, 0.3]}
    runs = fa.train(["ftfa", "maml_fo"], federation(), **told, grid={"ftfa": passes, "maml_fo": {"personal_epochs": [1, 3]}})
    walks = [(program.kind, rates["local_step"].size, stops.tolist()) for program, *_, rates, stops in dry["personalise"]]
    per_pass = -(-17 // 8)
    ftfa, maml = [each * per_pass for each in (0, 1, 2, 5)], [per_pass, 3 * per_pass]
    assert [walk for walk in walks if walk[0] == "descend"] == [("descend", 2, ftfa)] * 3 + [("descend", 1, maml)] * 3
    assert len(runs) == 8 + 2


def test_fewer_passes_are_the_beginning_of_more():
    clients = federation()
    grid = {"ftfa": {"personal_epochs": [3, 0, 1]}, "rtfa": {"personal_epochs": [2, 1], "ridge": [0.5, 2]}}
    runs = fa.train(["ftfa", "rtfa"], clients, **GRAM, grid=grid, seeds=SEEDS)
    assert len(runs) == 2 * 7
    for run, alone in zip(runs, singles(clients, runs), strict=True):
        same(run, alone, 1e-12)


def test_alone_no_round_is_trained_together(dry):
    fa.train(["local", "local_ridge"], federation(), **SMALL)
    assert dry["advance"] == []


# Compiled programs


def equations(function, arguments):
    program, *arrays = arguments
    return str(jax.make_jaxpr(partial(function.__wrapped__, program))(*arrays)).count(" = ")


def shapes(arguments):
    return jax.tree.leaves(jax.tree.map(np.shape, arguments[1:]))


@pytest.mark.parametrize(("name", "form"), [("rtfa", "gram"), ("maml_hf", "head"), ("pfedme", "gram"), ("local", "head")])
def test_programs_do_not_grow(dry, name, form):
    """With rounds, clients, samples, rates, seeds, local steps or passes."""
    fa.train(name, federation(), **SMALL, form=form)
    more = {**SMALL, "rounds": 90, "cohort": 9, "local_steps": 8, "personal_epochs": 7, "form": form}
    grid = {"local_step" if name == "local" else "server_step": [0.1, 0.2]}
    fa.train(name, federation(RAGGED * 3), **more, grid=grid, seeds=range(3))
    for called, function in (("advance", advance), ("personalise", personalise)):
        first, last = ({arguments[0].kind: arguments for arguments in asked} for asked in (dry[called][::-1], dry[called]))
        for kind, arguments in first.items():
            assert shapes(arguments) != shapes(last[kind])
            assert equations(function, arguments) == equations(function, last[kind]), kind


def test_other_rounds_rates_and_seeds_need_no_new_program():
    clients = federation()
    names = ["ftfa", "maml_hf", "pfedme"]
    fa.train(names, clients, **GRAM)
    before = advance._cache_size(), personalise._cache_size()
    other = {**GRAM, "rounds": 33, "evaluate_every": 7, "server_step": 0.11, "local_step": 0.03, "ridge": 2.0}
    fa.train(names, clients, **other, difference=0.02, mixing=0.7, inner_step=0.01, seed=9)
    fa.train(names, federation(order=[3, 5, 1, 0, 6, 2, 4], seed=4), **other)
    assert (advance._cache_size(), personalise._cache_size()) == before


# Clients


@pytest.mark.parametrize("name", ["rtfa", "maml_hf", "pfedme", "local"])
@pytest.mark.parametrize("protocol", FORMS)
def test_results_follow_the_clients(name, protocol):
    order = [3, 5, 1, 0, 6, 2, 4]
    told = {**DOUBLE, "protocol": protocol, "form": FORMS[protocol], "seed": 2}
    here, there = (fa.train(name, clients, **told) for clients in (federation(), federation(order=order)))
    assert there.federation.clients == tuple("dfbagce")
    np.testing.assert_allclose(there.shared, here.shared, rtol=1e-12, atol=1e-13)
    for field in ("correct", "losses", "shared_correct", "shared_losses"):
        np.testing.assert_allclose(getattr(there, field), getattr(here, field)[:, order], rtol=1e-12)
    np.testing.assert_array_equal(there.totals, here.totals[order])


def test_a_client_without_training_samples_disturbs_nobody_and_uses_the_shared_model():
    with_, without = federation(), federation(order=[0, 2, 3, 4, 5, 6])
    more, less = (fa.train("rtfa", clients, **GRAM) for clients in (with_, without))
    np.testing.assert_allclose(more.shared, less.shared, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.delete(more.losses, 1, axis=1), less.losses, rtol=1e-12)
    np.testing.assert_allclose(more.losses[:, 1], more.shared_losses[:, 1], rtol=1e-12)
    assert more.clients()[1]["samples"] == 0


# Hessians


def test_finite_differences_find_the_hessian_at_second_order():
    clients = federation()
    exact = fa.train("maml", clients, **GRAM).shared
    errors = [
        np.linalg.norm(fa.train("maml_hf", clients, **GRAM, difference=difference).shared - exact)
        for difference in (0.1, 0.01, 0.001, 1e-7)
    ]
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 100, rtol=0.02)
    assert errors[3] < 1e-13  # where differences of softmaxes have lost half of their digits


by_difference = jax.jit(difference, static_argnums=0)


def naive(z, u, delta):
    up, down = (softmax(z + step * u, axis=-1) for step in (delta, -delta))
    return (up - down) / (2 * delta)


def test_the_difference_of_softmaxes_is_accurate_for_any_step():
    rng = np.random.default_rng(0)
    z, u = rng.standard_normal((2, 40, 5)) * np.array([3, 2])[:, None, None]
    for delta in (2.0, 0.3, 1e-2, 1e-3):
        with jax.enable_x64(True):
            np.testing.assert_allclose(by_difference("classification", z, u, delta), naive(z, u, delta), rtol=1e-9, atol=1e-13)
        single = np.asarray(by_difference("classification", *np.float32([z, u]), np.float32(delta)))
        np.testing.assert_allclose(single, naive(z, u, delta), rtol=2e-5, atol=1e-6)
    exact = np.asarray(slope("classification", *np.float32([z, u])))
    ours = np.asarray(by_difference("classification", *np.float32([z, u]), np.float32(1e-6)))
    theirs = naive(*np.float32([z, u]), np.float32(1e-6))
    assert np.abs(ours - exact).max() < 1e-6
    assert np.abs(theirs - exact).max() > 1e-2  # plain differences in single precision are noise
    numbers = np.float32([z, u])
    np.testing.assert_array_equal(by_difference("regression", *numbers, np.float32(1e-6)), numbers[1])
    np.testing.assert_array_equal(slope("regression", *numbers), numbers[1])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_saturated_softmaxes_stay_finite_and_right(precision):
    z = np.array([[0.0, -69.0, -70.0], [800.0, 0.0, -800.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    u = np.array([[0.0, 1.0, 0.0], [-0.01, 0.01, 0.0], [1e6, -1e6, 0.0], [0.0, 0.0, 0.0]])
    for delta in (1e-3, 1.0, 100.0, 1e4):
        with jax.enable_x64(precision == "float64"):
            found = np.asarray(by_difference("classification", *np.array([z, u], precision), np.asarray(delta, precision)))
        assert found.dtype == precision
        np.testing.assert_allclose(found, naive(z, u, delta), rtol=1e-4, atol=1e-6 / delta)


# Long training is what the closed forms say


def test_long_training_on_squares_is_the_linear_lens():
    """Means of squares over a client's samples, and ridge/2 |theta - theta_0|^2: the paper's conventions in both lenses."""
    clients = fa.datasets.synthetic(clients=4, dimension=3, samples=[60, 40, 50, 4], radius=1, noise=0.5, seed=6)
    assert clients.counts("train").tolist() == [48, 32, 40, 2]
    rows = clients.split == 0
    whole = {"rounds": 400, "evaluate_every": 400, "batch": 10**6, "local_steps": 1, "personal_epochs": 400, "ridge": 0.6}
    long = {**whole, "local_step": 0.2, "precision": "float64"}
    runs = [
        *fa.train(["fedavg", "ftfa", "rtfa", "local", "local_ridge", "maml"], clients, **long, server_step=0.4),
        fa.train("pfedme", clients, **long, server_step=1.5, inner_step=0.2, inner_steps=150),
    ]
    for run in runs:
        exact = fa.linear.fit(
            run.algorithm.name, clients.features[rows], clients.labels[rows, 0], clients.owner[rows], ridge=0.6, maml_step=0.2
        )
        heads = {client: exact.personal[client][:, None] for client in clients.clients}
        np.testing.assert_allclose(run.losses[-1], scores(clients, heads, TEXT)[1], rtol=1e-6, err_msg=run.algorithm.name)
        if not run.algorithm.shares_nothing:
            np.testing.assert_allclose(run.shared[:, 0], exact.shared, atol=1e-7)
