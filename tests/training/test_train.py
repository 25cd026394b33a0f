"""Compiled training against its plain twin and against closed forms, whatever the order of
clients.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import (
    TRAINED,
    Average,
    Descend,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Ridge,
)
from fedasym.training import evaluation, plans
from fedasym.training.settings import CODE, TEXT

from .clients import DOUBLE, GRAM, RAGGED, SMALL, as_twin, federation, optimised, same, scores

pytestmark = pytest.mark.usefixtures("_light")

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
FEWER = [
    *TRAINED,
    "meta, ridge",
    "moreau, interpolate",
    "moreau, keep",
    "nothing, keep",
]  # those that need no other program
FORMS = {
    "text": "gram",
    "code": "head",
}  # each form is held against the twin under one of the protocols
# compiled as users have them: each kind of stage
OPTIMISED = ("local", "fedavg", "rtfa", "maml_hf", "pfedme", "meta, ridge")


# The twin


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        *(("text", name) for name in sorted(EVERY, key=lambda name: name not in OPTIMISED)),
        *(("code", name) for name in FEWER),
    ],
)
def test_every_algorithm_is_its_twin(name, protocol):
    """Optimised programs come first, so that they are compiled together."""
    clients = federation()
    with optimised(protocol == "text" and name in OPTIMISED):
        as_twin(
            fa.train(
                EVERY[name], clients, **DOUBLE, protocol=protocol, form=FORMS[protocol], seed=3
            ),
            clients,
        )


WARM = replace(
    TEXT,
    intercept=True,
    continued_passes=True,
    warm_start=True,
    test_inner=False,
    count_padding=True,
)
COLD = replace(CODE, intercept=False, continued_passes=False, warm_start=False, test_inner=True)
THREE = [TRAINED["rtfa"], TRAINED["pfedme"], fa.Algorithm("free, keep", Meta(0.15, "free"), Keep())]


KINDS = {
    "a number": ({"classes": None}, TEXT, "gram", {}, THREE),
    "two numbers, small batches": (
        {"d": 12, "classes": None, "outputs": 2},
        COLD,
        "head",
        {"batch": 2},
        THREE,
    ),
    "sequences": ({"positions": 3}, TEXT, "head", {}, [THREE[0], THREE[2]]),
    "sequences with padding": ({"positions": 3}, WARM, "head", {}, THREE[:2]),
    "classes": ({}, COLD, "gram", {}, THREE[:2]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_clients_and_protocols_are_their_twins(kind):
    data, protocol, form, sizes, algorithms = KINDS[kind]
    clients = federation(**data)
    for run in fa.train(
        algorithms,
        clients,
        **{**DOUBLE, "server_step": 0.1, **sizes},
        protocol=protocol,
        form=form,
        seed=1,
    ):
        as_twin(run, clients)


def test_sequences_of_numbers_are_their_twins_in_any_form():
    clients = federation(positions=3, classes=None, outputs=2)
    for form in (
        "gram",
        "head",
    ):  # sequences have too many rows for a Gram matrix, whatever is asked for
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
        runs = fa.train(
            algorithms,
            clients,
            **{**DOUBLE, "precision": "float32"},
            protocol=protocol,
            form=FORMS[protocol],
        )
    for run in runs:
        assert {array.dtype for array in (run.shared, run.losses, run.shared_losses)} == {
            np.dtype(np.float32)
        }
        as_twin(run, clients, 2e-5)


@pytest.mark.parametrize("batch", [17, 10**9])
def test_a_batch_may_be_larger_than_any_client(batch):
    clients = federation()
    run = fa.train("rtfa", clients, **{**DOUBLE, "batch": batch}, form="gram")
    assert run.settings.batch == batch
    as_twin(run, clients)


def test_a_bias_is_a_setting_of_its_own():
    clients = federation()
    run = fa.train("rtfa", clients, **DOUBLE, form="gram", intercept=True)
    assert (run.protocol.name, len(run.shared)) == ("text with intercept", clients.dimension + 1)
    as_twin(run, clients)
    assert fa.train("rtfa", clients, **DOUBLE, form="gram", intercept=False).protocol == TEXT
    with pytest.raises(fa.InvalidInput, match="intercept is 'yes': it must be True or False"):
        fa.train("rtfa", clients, intercept="yes")


VERY_RAGGED = (
    (5, 2, 3),
    (0, 40, 2),
    (1, 0, 2),
    (9, 3, 0),
    (60, 0, 0),
    (3, 6, 2),
    (33, 1, 1),
    (2, 1, 1),
    (64, 9, 0),
)


def test_groups_of_like_size_and_blocks_of_samples_are_the_same_clients(monkeypatch):
    monkeypatch.setattr(plans, "GROUPS", 3)
    monkeypatch.setattr(plans, "FEW", 0)
    monkeypatch.setattr(evaluation, "BLOCK", 5 * 3 * 8)  # outputs of five samples at a time
    clients = federation(VERY_RAGGED)
    assert len(plans.groups(clients.counts("train"))) > 1
    as_twin(fa.train("rtfa", clients, **DOUBLE), clients)


@st.composite
def shares(draw, total, clients, least, largest):
    """Sizes of that many clients, one of them the largest, with that total: one compiled program
    serves all.
    """
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
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_clients_and_settings_are_their_twins(
    train, tested, split, name, protocol, rounds, every, steps, seed
):
    assume(sum(size > 0 for size in train) >= SMALL["cohort"])
    rounds = SMALL["rounds"] if TRAINED[name].shares_nothing else rounds
    sizes = [(n, min(split, t), t - min(split, t)) for n, t in zip(train, tested, strict=True)]
    clients = federation(sizes, seed=seed % 1000)
    named = ("server_step", "local_step", "ridge", "mixing", "difference")
    told = {
        **DOUBLE,
        **dict(zip(named, steps, strict=True)),
        "rounds": rounds,
        "difference": steps[-1] + 1e-4,
    }
    if not TRAINED[name].shares_nothing:
        told["evaluate_every"] = every
    as_twin(
        fa.train(
            TRAINED[name], clients, **told, protocol=protocol, form=FORMS[protocol], seed=seed
        ),
        clients,
        1e-9,
    )


# The same call again


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
    assert not np.array_equal(
        *(fa.train("rtfa", clients, **GRAM, seed=seed).shared for seed in (5, 6))
    )


# Clients


@pytest.mark.parametrize("name", ["rtfa", "maml_hf", "pfedme", "local"])
@pytest.mark.parametrize("protocol", FORMS)
def test_results_follow_the_clients(name, protocol):
    order = [3, 5, 1, 0, 6, 2, 4]
    told = {**DOUBLE, "protocol": protocol, "form": FORMS[protocol], "seed": 2}
    here, there = (
        fa.train(name, clients, **told) for clients in (federation(), federation(order=order))
    )
    assert there.federation.clients == tuple("dfbagce")
    np.testing.assert_allclose(there.shared, here.shared, rtol=1e-12, atol=1e-13)
    for field in ("correct", "losses", "shared_correct", "shared_losses"):
        np.testing.assert_allclose(
            getattr(there, field), getattr(here, field)[:, order], rtol=1e-12
        )
    np.testing.assert_array_equal(there.totals, here.totals[order])


def test_a_client_without_training_samples_disturbs_nobody_and_uses_the_shared_model():
    with_, without = federation(), federation(order=[0, 2, 3, 4, 5, 6])
    more, less = (fa.train("rtfa", clients, **GRAM) for clients in (with_, without))
    np.testing.assert_allclose(more.shared, less.shared, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.delete(more.losses, 1, axis=1), less.losses, rtol=1e-12)
    np.testing.assert_allclose(more.losses[:, 1], more.shared_losses[:, 1], rtol=1e-12)
    assert more.clients()[1]["samples"] == 0


# Long training is what the closed forms say


def test_long_training_on_squares_is_the_linear_lens():
    """Means of squares over a client's samples, and ridge/2 |theta - theta_0|^2: the paper's
    conventions in both lenses.
    """
    clients = fa.datasets.synthetic(
        clients=4, dimension=3, samples=[60, 40, 50, 4], radius=1, noise=0.5, seed=6
    )
    assert clients.counts("train").tolist() == [48, 32, 40, 2]
    rows = clients.split == 0
    whole = {
        "rounds": 400,
        "evaluate_every": 400,
        "batch": 10**6,
        "local_steps": 1,
        "personal_epochs": 400,
        "ridge": 0.6,
    }
    long = {**whole, "local_step": 0.2, "precision": "float64"}
    runs = [
        *fa.train(
            ["fedavg", "ftfa", "rtfa", "local", "local_ridge", "maml"],
            clients,
            **long,
            server_step=0.4,
        ),
        fa.train("pfedme", clients, **long, server_step=1.5, inner_step=0.2, inner_steps=150),
    ]
    for run in runs:
        exact = fa.linear.fit(
            run.algorithm.name,
            clients.features[rows],
            clients.labels[rows, 0],
            clients.owner[rows],
            ridge=0.6,
            maml_step=0.2,
            intercept=False,
        )
        heads = {client: exact.personal[client][:, None] for client in clients.clients}
        np.testing.assert_allclose(
            run.losses[-1], scores(clients, heads, TEXT)[1], rtol=1e-6, err_msg=run.algorithm.name
        )
        if not run.algorithm.shares_nothing:
            np.testing.assert_allclose(run.shared[:, 0], exact.shared, atol=1e-7)
