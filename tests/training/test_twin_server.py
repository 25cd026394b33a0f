"""Server stages of the plain twin: FedAvg, MAML and pFedMe against hand loops, cohorts and passes
against the plans.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Interpolate, Keep, Meta, Moreau
from fedasym.data.federation import Federation
from fedasym.data.splits import TRAINING, mix_hash
from fedasym.training import plans, twin
from fedasym.training.settings import CODE, TEXT, Settings, bind_stage
from fedasym.training.twin import TwinClient, batch_of, gradient, take_steps

from .plain import SMALL, WHOLE, drawn, last, local_batches, same


def by_hand(X, y, rows, w):
    """Gradient of the mean of (x w - y)^2/2 in scalars."""
    g = np.zeros(len(w))
    for row in rows:
        error = sum(X[row, i] * w[i] for i in range(len(w))) - y[row]
        g += [error * X[row, i] / len(rows) for i in range(len(w))]
    return g


def test_two_rounds_of_fedavg_by_hand():
    X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, -1.0]])
    y = np.array([1.0, -1.0, 0.5, 2.0])
    federation = Federation.from_arrays(X, y, ["big", "big", "big", "small"], split=[0, 0, 0, 0])
    settings = Settings(rounds=2, evaluate_every=1, local_steps=2, batch=2, server_step=0.1)
    W = np.zeros(2)
    for r, snapshot in enumerate(twin.run(TRAINED["fedavg"], federation, settings, TEXT, seed=3)):
        np.testing.assert_allclose(snapshot.shared[:, 0], W, rtol=1e-14)
        assert snapshot.round == r
        sent = []
        for place, own in enumerate(([0, 1, 2], [3])):
            stream = mix_hash(3, TRAINING, federation.identities[[place]], r + 1)
            w = W
            for rows in plans.batches(stream, np.array([len(own)]), 0, 2, batch=2)[0]:
                w = w - 0.1 * by_hand(X, y, [own[row] for row in rows if row >= 0], w)
            sent.append(w)
        W = 3 / 4 * sent[0] + 1 / 4 * sent[1]


def test_one_whole_batch_step_of_everyone_is_gradient_descent_on_all_samples():
    federation = drawn([3, 8, 5])
    settings = Settings(rounds=6, evaluate_every=6, local_steps=1, batch=WHOLE, server_step=0.3)
    everything = batch_of(federation, np.arange(16), False, False, float)
    W = np.zeros((4, 3))
    for _ in range(6):
        W = W - 0.3 * gradient(W, everything)
    np.testing.assert_allclose(last(TRAINED["fedavg"], federation, settings).shared, W, rtol=1e-12)


@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_cohorts_and_continued_passes_are_those_of_the_plans(protocol):
    federation = drawn([5, 9, 2, 7, 4])
    settings = replace(SMALL, rounds=5, cohort=2)
    sizes = federation.counts("train")
    chosen = plans.cohorts(8, federation.identities, 5, 2)
    turns = plans.turns(chosen, 5)
    W = twin.first_head(federation, protocol, 8, float)
    for r, members in enumerate(chosen):
        code = protocol.continued_passes
        streams = mix_hash(8, TRAINING, federation.identities[members], 0 if code else r + 1)
        work = plans.batches(streams, sizes[members], turns[r] * 3 if code else 0, 3, 4)
        sent = []
        for member, rounds_work in zip(members, work, strict=True):
            rows, w = federation.rows(federation.clients[member], "train"), W
            for step in rounds_work:
                w = w - 0.2 * gradient(
                    w, batch_of(federation, rows[step[step >= 0]], protocol.intercept, False, float)
                )
            sent.append(w)
        W = np.average(sent, axis=0, weights=sizes[members])
    np.testing.assert_allclose(
        last(TRAINED["fedavg"], federation, settings, protocol, 8).shared, W, rtol=1e-12
    )


def test_a_continued_pass_uses_every_sample_once():
    y = np.arange(1.0, 6.0)
    federation = Federation.from_arrays(np.eye(5), y, ["a"] * 5, split=[0] * 5)
    settings = Settings(rounds=5, evaluate_every=5, local_steps=1, batch=1, server_step=0.5)
    continued = replace(TEXT, continued_passes=True)
    np.testing.assert_array_equal(
        last(TRAINED["fedavg"], federation, settings, continued).shared[:, 0], y / 2
    )
    assert not np.array_equal(last(TRAINED["fedavg"], federation, settings).shared[:, 0], y / 2)


def test_a_round_draws_twenty_clients_or_all():
    many, few = drawn([2] * 25), drawn([2] * 3)
    twenty, default = replace(SMALL, cohort=20), replace(SMALL, cohort=None)
    same(last(TRAINED["fedavg"], many, default), last(TRAINED["fedavg"], many, twenty))
    assert not np.array_equal(
        last(TRAINED["fedavg"], many, replace(SMALL, cohort=25)).shared,
        last(TRAINED["fedavg"], many, twenty).shared,
    )
    same(last(TRAINED["fedavg"], few, default), last(TRAINED["fedavg"], few, twenty))


@pytest.mark.parametrize("hessian", ["exact", "free", "dropped"])
def test_rounds_of_maml_by_hand(hessian):
    federation = drawn([11])
    own = fa.Algorithm("own", Meta(0.7, hessian), Keep())
    settings = Settings(
        rounds=2,
        evaluate_every=2,
        local_steps=2,
        batch=4,
        server_step=0.3,
        local_step=0.05,
        difference=0.01,
    )
    each = 2 if hessian == "dropped" else 3
    work = local_batches(
        federation, "a", 4 * each, 4, mix_hash(5, TRAINING, federation.identities, 0)
    )
    w = np.zeros((4, 3))
    for k in range(4):
        D = work[k * each : (k + 1) * each]
        g = gradient(w - 0.7 * gradient(w, D[0]), D[1])
        if (
            hessian == "exact"
        ):  # the Hessian of softmax regression in full: X'(diag(p) - pp')X, sample by sample
            H = np.zeros((12, 12))
            for x, weight in zip(D[2].X, D[2].weights, strict=True):
                p = np.exp(x @ w) / np.exp(x @ w).sum()
                H += weight * np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p))
            g = g - 0.7 * (H @ g.ravel()).reshape(4, 3)
        elif hessian == "free":
            g = g - 0.7 * (gradient(w + 0.01 * g, D[2]) - gradient(w - 0.01 * g, D[2])) / 0.02
        w = w - 0.3 * g
    np.testing.assert_allclose(
        last(own, federation, settings, replace(TEXT, continued_passes=True), 5).shared,
        w,
        rtol=1e-12,
    )


def test_the_named_maml_takes_its_inner_step_from_the_settings():
    federation, settings = drawn([5, 9, 2]), replace(SMALL, local_step=0.3)
    own = fa.Algorithm("own", Meta(0.3), Interpolate())
    same(last(TRAINED["maml"], federation, settings), last(own, federation, settings))
    other = fa.Algorithm("own", Meta(0.1), Interpolate())
    assert not np.array_equal(
        last(other, federation, settings).shared, last(own, federation, settings).shared
    )


def test_finite_differences_find_the_hessian_at_second_order():
    federation = drawn([12], seed=4)
    w = np.random.default_rng(0).standard_normal((4, 3))
    D = [batch_of(federation, np.arange(12), False, False, float)] * 3

    def error(difference):
        steps = [
            take_steps(Meta(0.5, hessian, difference), w, [D], 1.0)[0]
            for hessian in ("free", "exact")
        ]
        return np.linalg.norm(steps[0] - steps[1])

    errors = np.array([error(10.0**-k) for k in range(5)])
    np.testing.assert_allclose(errors[1:4] / errors[2:5], 100, rtol=0.05)
    assert error(1e-12) > errors[4]  # rounding, in the end


@pytest.mark.parametrize("difference", [1e-3, 1.0, 50.0])
def test_on_squares_finite_differences_are_exact(difference):
    federation = drawn([7, 3, 6], classes=None, outputs=2)
    settings = replace(SMALL, difference=difference)
    same(
        last(TRAINED["maml_hf"], federation, settings), last(TRAINED["maml"], federation, settings),
        np.testing.assert_allclose, rtol=1e-9,
    )  # fmt: skip


def test_dropping_the_hessian_is_another_algorithm():
    federation = drawn([7, 3, 6])
    with_, without = (
        last(TRAINED[name], federation, SMALL).shared for name in ("maml_hf", "maml_fo")
    )
    assert not np.allclose(with_, without, rtol=1e-3)


def test_a_long_inner_loop_of_pfedme_finds_the_proximal_point():
    federation = drawn([9], classes=None, outputs=2)
    D = batch_of(federation, np.arange(9), False, False, float)
    w = np.random.default_rng(0).standard_normal((4, 2))
    S, b, ridge = D.X.T @ D.X / 9, D.X.T @ D.Y / 9, 1.5
    stage = Moreau(ridge, inner_step=0.2, inner_steps=300)
    moved, theta = take_steps(stage, w, [[D]], 0.1)
    exact = np.linalg.solve(S + ridge * np.eye(4), b + ridge * w)
    np.testing.assert_allclose(theta, exact, rtol=1e-12)
    np.testing.assert_allclose(moved, w - 0.1 * ridge * (w - exact), rtol=1e-12)
    decayed = take_steps(bind_stage(stage, Settings(), replace(TEXT, decay=0.3)), w, [[D]], 0.1)[1]
    np.testing.assert_allclose(
        decayed, np.linalg.solve(S + (ridge + 0.3) * np.eye(4), b + ridge * w), rtol=1e-12
    )


@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_training_everyone_in_every_round_is_training_the_cohort(protocol):
    """As in the released code: all clients work in every round and go on through their passes, the
    cohort is averaged.
    """
    federation = drawn([5, 9, 2, 7])
    settings = replace(SMALL, rounds=4, evaluate_every=1, cohort=2, ridge=2.0, mixing=0.8)
    sizes = federation.counts("train")
    chosen = plans.cohorts(6, federation.identities, 4, 2)
    streams = {name: iter(()) for name in federation.clients}
    W = twin.first_head(federation, protocol, 6, float)
    for r, snapshot in enumerate(twin.run(TRAINED["pfedme"], federation, settings, protocol, 6)):
        np.testing.assert_allclose(snapshot.shared, W, rtol=1e-12)
        local = {}
        for place, name in enumerate(federation.clients):
            if r == 0 or not protocol.continued_passes:
                stream = mix_hash(
                    6,
                    TRAINING,
                    federation.identities[place],
                    0 if protocol.continued_passes else r + 1,
                )
                streams[name] = TwinClient(federation, name, settings, protocol, 6, float).batches(
                    stream, 0, 100
                )
            w = theta = W
            for _ in range(settings.local_steps):
                D = next(streams[name])
                theta = theta if protocol.warm_start else w
                for _ in range(settings.inner_steps):
                    theta = theta - 0.05 * (
                        gradient(theta, D) + 2.0 * (theta - w) + protocol.decay * theta
                    )
                w = w - 0.2 * 2.0 * (w - theta)
            local[name] = w
            np.testing.assert_allclose(
                snapshot.personal[name], theta if protocol.test_inner else w, rtol=1e-12
            )
        if r < 4:
            heads = [local[federation.clients[place]] for place in chosen[r]]
            W = (1 - 0.8) * W + 0.8 * np.average(heads, axis=0, weights=sizes[chosen[r]])


def test_mixing_is_for_pfedme_alone():
    federation = drawn([5, 9, 2])
    for name, matters in (("fedavg", False), ("maml_fo", False), ("pfedme", True)):
        mixed, plain = (
            last(TRAINED[name], federation, replace(SMALL, mixing=mixing)).shared
            for mixing in (0.5, 1.0)
        )
        assert np.array_equal(mixed, plain) is not matters
