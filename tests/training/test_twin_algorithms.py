"""Every algorithm of the plain twin: whatever the order of clients, and what the text and the
released code do differently.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Average, Flow
from fedasym.data.federation import Federation
from fedasym.data.splits import START, mix_hash
from fedasym.training import twin
from fedasym.training.settings import CODE, TEXT

from .plain import SMALL, drawn, last, same

# Everyone


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_the_order_of_clients_changes_nothing(name, protocol):
    federation = drawn([5, 9, 2, 7], positions=3)
    order = np.concatenate([federation.rows(client) for client in "cadb"])
    moved = Federation.from_arrays(
        federation.features[order],
        federation.labels[order],
        np.array(federation.clients)[federation.owner[order]],
        split=federation.split[order],
        mask=federation.mask[order],
        classes=3,
    )
    assert moved.clients == ("c", "a", "d", "b")
    same(
        last(TRAINED[name], federation, SMALL, protocol, 4),
        last(TRAINED[name], moved, SMALL, protocol, 4),
    )


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_clients_without_training_samples_use_the_shared_head_and_disturb_nobody(name, protocol):
    federation = drawn([5, 0, 2, 7], test=2)
    seen = federation.owner != 1
    without = Federation.from_arrays(
        federation.features[seen],
        federation.labels[seen],
        np.array(federation.clients)[federation.owner[seen]],
        split=federation.split[seen],
        classes=3,
    )
    found, expected = (last(TRAINED[name], each, SMALL, protocol) for each in (federation, without))
    np.testing.assert_array_equal(found.personal.pop("b"), found.shared)
    same(found, expected)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_one_client_can_be_asked_for_alone_and_in_single_precision(name, protocol):
    federation = drawn([5, 9, 2])
    exact = list(twin.run(TRAINED[name], federation, SMALL, protocol, 4))
    assert [snapshot.round for snapshot in exact] == [0, 2, 4]
    for ours, rough in zip(
        exact, twin.run(TRAINED[name], federation, SMALL, protocol, 4, np.float32), strict=True
    ):
        assert {head.dtype for head in (rough.shared, *rough.personal.values())} == {
            np.dtype(np.float32)
        }
        same(ours, rough, np.testing.assert_allclose, atol=2e-4)
        for client, head in ours.personal.items():
            alone = twin.personal_head(
                TRAINED[name], federation, SMALL, protocol, 4, ours.round, ours.shared, client
            )
            np.testing.assert_array_equal(alone, head)


def test_what_cannot_be_trained_is_refused():
    flow = fa.Algorithm("flow", Average(), Flow(1.0))
    with pytest.raises(fa.NoFormula, match="gradient flow"):
        last(flow, drawn([3]), SMALL)
    with pytest.raises(fa.NoFormula, match="gradient flow"):
        twin.personal_head(flow, drawn([3]), SMALL, TEXT, 0, 0, np.zeros((4, 3)), "a")


# What the text and the released code do differently, one point at a time

AFFECTED = {
    "intercept": set(TRAINED),
    "random_start": set(TRAINED),
    "continued_passes": set(TRAINED) - {"local", "local_ridge"},
    "penalty": {"rtfa", "local_ridge"},
    "warm_start": {"pfedme"},
    "decay": {"pfedme"},
    "test_inner": {"pfedme"},
    "count_padding": set(TRAINED),
    "passes_ahead": {"local", "local_ridge"},
}


@pytest.mark.parametrize("point", AFFECTED)
def test_each_difference_of_the_code_is_visible_where_it_should_be(point):
    federation = drawn([5, 9, 2], positions=3)
    changed = replace(TEXT, **{point: getattr(CODE, point)})
    for name, algorithm in TRAINED.items():
        text, code = (last(algorithm, federation, SMALL, protocol) for protocol in (TEXT, changed))
        differs = text.shared.shape != code.shared.shape or not np.array_equal(
            text.personal["b"], code.personal["b"]
        )
        assert differs is (name in AFFECTED[point]), name


def test_every_point_of_a_protocol_is_tested():
    assert set(AFFECTED) == {field.name for field in fields(TEXT)} - {"name"}


def test_the_random_start_is_uniform_and_belongs_to_the_seed():
    federation = drawn([3], d=50, classes=40)
    W = twin.first_head(federation, CODE, 9, float)
    assert W.shape == (51, 40)
    expected = [(2 * int(mix_hash(9, START, i)) / 2**64 - 1) / np.sqrt(50) for i in range(51 * 40)]
    np.testing.assert_allclose(W.ravel(), expected, rtol=1e-12)
    assert abs(W.mean()) < 0.01
    np.testing.assert_allclose(W.std(), np.sqrt(1 / 150), rtol=0.05)
    assert not np.array_equal(W, twin.first_head(federation, CODE, 10, float))
