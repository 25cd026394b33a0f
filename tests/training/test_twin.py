"""The plain twin: losses against finite differences, algorithms against hand loops, limits against closed forms."""

from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedasym as fa
from fedasym.algorithms import TRAINED, Average, Descend, Flow, Interpolate, Keep, Meta, Moreau, Nothing, Ridge
from fedasym.federations.federation import Federation
from fedasym.federations.shuffles import PERSONAL, START, TRAINING, mix
from fedasym.training import plans, twin
from fedasym.training.settings import CODE, TEXT, Settings
from fedasym.training.twin_batches import Batch, Client, batch_of, gradient, hessian_times, mean_loss

SMALL = Settings(
    rounds=4, evaluate_every=2, cohort=3, local_steps=3, batch=4, personal_epochs=2, server_step=0.2, local_step=0.1
)
WHOLE = 64  # a batch that holds all samples of any client here


def drawn(sizes, d=4, classes=3, seed=0, positions=None, outputs=1, test=0):
    """Clients "a", "b", ... with these numbers of training samples, and `test` test samples each; classes=None: regression."""
    rng = np.random.default_rng(seed)
    names = np.repeat([chr(97 + i) for i in range(len(sizes))], [n + test for n in sizes])
    split = np.concatenate([[0] * n + [2] * test for n in sizes])
    shape = (len(names),) if positions is None else (len(names), positions)
    X = rng.standard_normal((*shape, d))
    own = {name: rng.standard_normal((d, classes or outputs)) for name in dict.fromkeys(names)}
    scores = np.stack([x @ own[name] for x, name in zip(X, names, strict=True)])
    scores += 0.5 * rng.standard_normal(scores.shape)
    mask = None if positions is None else np.arange(positions) < rng.integers(1, positions + 1, len(names))[:, None]
    labels = scores.argmax(-1) if classes else scores
    return Federation.from_arrays(X, labels, names, split=split, mask=mask, classes=classes)


def last(algorithm, federation, settings, protocol=TEXT, seed=0, dtype=np.float64):
    return list(twin.run(algorithm, federation, settings, protocol, seed, dtype))[-1]


def same(ours, theirs, compare=np.testing.assert_array_equal, **tolerance):
    compare(ours.shared, theirs.shared, **tolerance)
    assert set(ours.personal) == set(theirs.personal)
    for client, head in ours.personal.items():
        compare(head, theirs.personal[client], **tolerance)


def of_client(federation, name):
    rows = federation.rows(name, "train")
    return federation.features[rows], federation.labels[rows]


# Losses

KINDS = {
    "classes": drawn([9]),
    "numbers": drawn([9], classes=None, outputs=2),
    "sequences of classes": drawn([9], positions=5),
    "sequences of numbers": drawn([9], classes=None, outputs=2, positions=5),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_the_loss_is_the_mean_over_real_positions(kind, bias, count_padding):
    federation = KINDS[kind]
    rows = np.array([0, 2, 3, 7])
    W = np.random.default_rng(1).standard_normal((federation.dimension + bias, federation.outputs))
    total, count = 0.0, 0
    for row in rows:
        for place, x in enumerate(np.atleast_2d(federation.features[row])):
            y = federation.labels[row] if not federation.sequences else federation.labels[row][place]
            if federation.mask is not None and not federation.mask[row, place] and not count_padding:
                continue
            z = x @ W[: federation.dimension] + (W[-1] if bias else 0)
            total += np.log(np.exp(z).sum()) - z[y] if federation.classes else 0.5 * np.sum((z - y) ** 2)
            count += 1
    D = batch_of(federation, rows, bias, count_padding, float)
    np.testing.assert_allclose(mean_loss(W, D), total / count, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_derivatives_are_those_of_finite_differences(kind, bias, count_padding):
    rng = np.random.default_rng(2)
    D = batch_of(KINDS[kind], np.array([1, 2, 5]), bias, count_padding, float)
    W, V = rng.standard_normal((2, D.X.shape[1], D.Y.shape[1]))
    h = 1e-5
    for place in np.ndindex(W.shape):
        E = np.zeros_like(W)
        E[place] = h
        np.testing.assert_allclose(gradient(W, D)[place], (mean_loss(W + E, D) - mean_loss(W - E, D)) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(hessian_times(W, D, V), (gradient(W + h * V, D) - gradient(W - h * V, D)) / (2 * h), atol=1e-8)


def test_large_scores_overflow_nowhere():
    D = Batch(np.array([[1.0]]), np.array([[1.0, 0.0]]), np.ones(1), True)
    W = np.array([[-1e4, 1e4]])
    assert mean_loss(W, D) == 2e4
    np.testing.assert_array_equal(gradient(W, D), [[-1.0, 1.0]])


# Server stages


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
            stream = mix(3, TRAINING, federation.identities[[place]], r + 1)
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
        streams = mix(8, TRAINING, federation.identities[members], 0 if code else r + 1)
        work = plans.batches(streams, sizes[members], turns[r] * 3 if code else 0, 3, 4)
        sent = []
        for member, rounds_work in zip(members, work, strict=True):
            rows, w = federation.rows(federation.clients[member], "train"), W
            for step in rounds_work:
                w = w - 0.2 * gradient(w, batch_of(federation, rows[step[step >= 0]], protocol.bias, False, float))
            sent.append(w)
        W = np.average(sent, axis=0, weights=sizes[members])
    np.testing.assert_allclose(last(TRAINED["fedavg"], federation, settings, protocol, 8).shared, W, rtol=1e-12)


def test_a_continued_pass_uses_every_sample_once():
    y = np.arange(1.0, 6.0)
    federation = Federation.from_arrays(np.eye(5), y, ["a"] * 5, split=[0] * 5)
    settings = Settings(rounds=5, evaluate_every=5, local_steps=1, batch=1, server_step=0.5)
    continued = replace(TEXT, continued_passes=True)
    np.testing.assert_array_equal(last(TRAINED["fedavg"], federation, settings, continued).shared[:, 0], y / 2)
    assert not np.array_equal(last(TRAINED["fedavg"], federation, settings).shared[:, 0], y / 2)


def test_a_round_draws_twenty_clients_or_all():
    many, few = drawn([2] * 25), drawn([2] * 3)
    twenty, default = replace(SMALL, cohort=20), replace(SMALL, cohort=None)
    same(last(TRAINED["fedavg"], many, default), last(TRAINED["fedavg"], many, twenty))
    assert not np.array_equal(
        last(TRAINED["fedavg"], many, replace(SMALL, cohort=25)).shared, last(TRAINED["fedavg"], many, twenty).shared
    )
    same(last(TRAINED["fedavg"], few, default), last(TRAINED["fedavg"], few, twenty))


def local_batches(federation, name, count, batch, stream):
    """The client's batches 0, 1, ... of a stream."""
    rows = federation.rows(name, "train")
    picked = plans.batches(np.reshape(stream, 1), np.array([len(rows)]), 0, count, batch)[0]
    return [batch_of(federation, rows[each[each >= 0]], False, False, float) for each in picked]


@pytest.mark.parametrize("hessian", ["exact", "free", "dropped"])
def test_rounds_of_maml_by_hand(hessian):
    federation = drawn([11])
    own = fa.Algorithm("own", Meta(0.7, hessian), Keep())
    settings = Settings(rounds=2, evaluate_every=2, local_steps=2, batch=4, server_step=0.3, local_step=0.05, difference=0.01)
    each = 2 if hessian == "dropped" else 3
    work = local_batches(federation, "a", 4 * each, 4, mix(5, TRAINING, federation.identities, 0))
    w = np.zeros((4, 3))
    for k in range(4):
        D = work[k * each : (k + 1) * each]
        g = gradient(w - 0.7 * gradient(w, D[0]), D[1])
        if hessian == "exact":  # the Hessian of softmax regression in full: X'(diag(p) - pp')X, sample by sample
            H = np.zeros((12, 12))
            for x, weight in zip(D[2].X, D[2].weights, strict=True):
                p = np.exp(x @ w) / np.exp(x @ w).sum()
                H += weight * np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p))
            g = g - 0.7 * (H @ g.ravel()).reshape(4, 3)
        elif hessian == "free":
            g = g - 0.7 * (gradient(w + 0.01 * g, D[2]) - gradient(w - 0.01 * g, D[2])) / 0.02
        w = w - 0.3 * g
    np.testing.assert_allclose(last(own, federation, settings, replace(TEXT, continued_passes=True), 5).shared, w, rtol=1e-12)


def test_the_named_maml_takes_its_inner_step_from_the_settings():
    federation, settings = drawn([5, 9, 2]), replace(SMALL, local_step=0.3)
    own = fa.Algorithm("own", Meta(0.3), Interpolate())
    same(last(TRAINED["maml"], federation, settings), last(own, federation, settings))
    other = fa.Algorithm("own", Meta(0.1), Interpolate())
    assert not np.array_equal(last(other, federation, settings).shared, last(own, federation, settings).shared)


def test_finite_differences_find_the_hessian_at_second_order():
    federation = drawn([12], seed=4)
    w = np.random.default_rng(0).standard_normal((4, 3))
    D = [batch_of(federation, np.arange(12), False, False, float)] * 3

    def error(difference):
        settings = replace(SMALL, difference=difference, server_step=1.0)
        steps = [twin.meta(w, [D], 0.5, hessian, settings) for hessian in ("free", "exact")]
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
    with_, without = (last(TRAINED[name], federation, SMALL).shared for name in ("maml_hf", "maml_fo"))
    assert not np.allclose(with_, without, rtol=1e-3)


def test_a_long_inner_loop_of_pfedme_finds_the_proximal_point():
    federation = drawn([9], classes=None, outputs=2)
    D = batch_of(federation, np.arange(9), False, False, float)
    w = np.random.default_rng(0).standard_normal((4, 2))
    S, b, ridge = D.X.T @ D.X / 9, D.X.T @ D.Y / 9, 1.5
    settings = Settings(ridge=ridge, inner_step=0.2, inner_steps=300, server_step=0.1)
    moved, theta = twin.moreau(w, [[D]], settings, TEXT)
    exact = np.linalg.solve(S + ridge * np.eye(4), b + ridge * w)
    np.testing.assert_allclose(theta, exact, rtol=1e-12)
    np.testing.assert_allclose(moved, w - 0.1 * ridge * (w - exact), rtol=1e-12)
    decayed = twin.moreau(w, [[D]], settings, replace(TEXT, decay=0.3))[1]
    np.testing.assert_allclose(decayed, np.linalg.solve(S + (ridge + 0.3) * np.eye(4), b + ridge * w), rtol=1e-12)


@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_training_everyone_in_every_round_is_training_the_cohort(protocol):
    """As in the released code: all clients work in every round and go on through their passes, the cohort is averaged."""
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
                stream = mix(6, TRAINING, federation.identities[place], 0 if protocol.continued_passes else r + 1)
                streams[name] = Client(federation, name, settings, protocol, 6, float).batches(stream, 0, 100)
            w = theta = W
            for _ in range(settings.local_steps):
                D = next(streams[name])
                theta = theta if protocol.warm_start else w
                for _ in range(settings.inner_steps):
                    theta = theta - 0.05 * (gradient(theta, D) + 2.0 * (theta - w) + protocol.decay * theta)
                w = w - 0.2 * 2.0 * (w - theta)
            local[name] = w
            np.testing.assert_allclose(snapshot.personal[name], theta if protocol.test_inner else w, rtol=1e-12)
        if r < 4:
            heads = [local[federation.clients[place]] for place in chosen[r]]
            W = (1 - 0.8) * W + 0.8 * np.average(heads, axis=0, weights=sizes[chosen[r]])


def test_mixing_is_for_pfedme_alone():
    federation = drawn([5, 9, 2])
    for name, matters in (("fedavg", False), ("maml_fo", False), ("pfedme", True)):
        mixed, plain = (last(TRAINED[name], federation, replace(SMALL, mixing=mixing)).shared for mixing in (0.5, 1.0))
        assert np.array_equal(mixed, plain) is not matters


# Client stages


def test_fine_tuning_by_hand():
    federation = drawn([10, 5], seed=1)
    settings = replace(SMALL, personal_epochs=3)
    for snapshot in twin.run(TRAINED["ftfa"], federation, settings, TEXT, 2):
        streams = mix(2, PERSONAL, federation.identities, snapshot.round)
        work = plans.epochs(streams, federation.counts("train"), 0, 3, batch=4, width=10)
        for name, steps in zip(federation.clients, work, strict=True):
            theta, rows = snapshot.shared, federation.rows(name, "train")
            for step in steps:
                if (step >= 0).any():
                    theta = theta - 0.1 * gradient(theta, batch_of(federation, rows[step[step >= 0]], False, False, float))
            np.testing.assert_allclose(snapshot.personal[name], theta, rtol=1e-12)


@pytest.mark.parametrize("penalty", [1.0, 2.0])
def test_ridge_pulls_towards_the_shared_head(penalty):
    federation = drawn([8, 5], classes=None, outputs=2)
    protocol = replace(TEXT, penalty=penalty)
    settings = Settings(rounds=1, evaluate_every=1, batch=WHOLE, personal_epochs=400, ridge=0.7)
    found = last(TRAINED["rtfa"], federation, settings, protocol)
    short = last(TRAINED["rtfa"], federation, replace(settings, personal_epochs=2), protocol)
    for name in "ab":
        X, y = of_client(federation, name)
        S, b, W = X.T @ X / len(X), X.T @ y / len(X), found.shared
        np.testing.assert_allclose(
            found.personal[name], np.linalg.solve(S + penalty * 0.7 * np.eye(4), b + penalty * 0.7 * W), rtol=1e-10
        )
        one = W - 0.1 * (S @ W - b)
        np.testing.assert_allclose(short.personal[name], one - 0.1 * (S @ one - b + penalty * 0.7 * (one - W)), rtol=1e-12)


def test_more_ridge_stays_closer_and_none_is_fine_tuning():
    federation = drawn([8, 5])
    tuned = {ridge: last(TRAINED["rtfa"], federation, replace(SMALL, ridge=ridge)) for ridge in (0.0, 0.5, 5.0)}
    same(tuned[0.0], last(TRAINED["ftfa"], federation, SMALL))
    away = [np.linalg.norm(each.personal["a"] - each.shared) for each in tuned.values()]
    assert away == sorted(away, reverse=True)


def test_the_ridge_is_the_stage_own_then_that_of_the_settings_then_the_papers():
    federation = drawn([8, 5])
    for server, paper in ((Average(), 0.1), (Nothing(), 0.1), (Moreau(), 15.0)):
        plain, own = fa.Algorithm("plain", server, Ridge()), fa.Algorithm("own", server, Ridge(0.4))
        given = {ridge: last(plain, federation, replace(SMALL, ridge=ridge)) for ridge in (0.4, paper)}
        same(last(own, federation, replace(SMALL, ridge=3.0)), given[0.4])
        same(last(plain, federation, SMALL), given[paper])


def test_a_few_steps_are_the_first_batches():
    federation = drawn([10])
    few = fa.Algorithm("few", Average(), Descend(step=0.4, steps=4))
    for snapshot in twin.run(few, federation, SMALL, TEXT, 3):
        theta = snapshot.shared
        for D in local_batches(federation, "a", 4, 4, mix(3, PERSONAL, federation.identities, snapshot.round)):
            theta = theta - 0.4 * gradient(theta, D)
        np.testing.assert_allclose(snapshot.personal["a"], theta, rtol=1e-12)


def test_alone_a_round_is_a_pass_over_the_own_samples():
    federation = drawn([10, 3])
    (start, two, four) = twin.run(TRAINED["local"], federation, SMALL, CODE, 7)
    for snapshot in (start, two, four):
        np.testing.assert_array_equal(snapshot.shared, start.shared)
    np.testing.assert_array_equal(start.personal["a"], start.shared)
    client = Client(federation, "a", SMALL, CODE, 7, float)
    passes = list(client.passes(mix(7, PERSONAL, client.identity, 0), 4))
    np.testing.assert_array_equal(two.personal["a"], twin.descended(start.shared, passes[:6], 0.1))
    np.testing.assert_array_equal(four.personal["a"], twin.descended(start.shared, passes, 0.1))
    ridged = last(TRAINED["local_ridge"], federation, replace(SMALL, ridge=0.5), CODE, 7).personal["a"]
    np.testing.assert_array_equal(ridged, twin.descended(start.shared, passes, 0.1, pull=2 * 0.5))
    same(last(fa.Algorithm("idle", Nothing(), Keep()), federation, SMALL, CODE, 7), start)
    step = last(fa.Algorithm("step", Nothing(), Descend(0.1)), federation, SMALL, CODE, 7)
    (first,) = client.batches(mix(7, PERSONAL, client.identity, 4), 0, 1)
    np.testing.assert_array_equal(step.personal["a"], start.shared - 0.1 * gradient(start.shared, first))


def test_no_passes_leave_the_shared_head():
    federation = drawn([6, 3])
    found = last(TRAINED["ftfa"], federation, replace(SMALL, personal_epochs=0))
    same(found, last(TRAINED["fedavg"], federation, SMALL))
    (only,) = twin.run(TRAINED["rtfa"], federation, replace(SMALL, rounds=0), TEXT, 0)
    assert only.round == 0


# Everyone


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_the_order_of_clients_changes_nothing(name, protocol):
    federation = drawn([5, 9, 2, 7], positions=3)
    order = np.concatenate([federation.rows(client) for client in "cadb"])
    moved = Federation.from_arrays(
        federation.features[order], federation.labels[order], np.array(federation.clients)[federation.owner[order]],
        split=federation.split[order], mask=federation.mask[order], classes=3,
    )  # fmt: skip
    assert moved.clients == ("c", "a", "d", "b")
    same(last(TRAINED[name], federation, SMALL, protocol, 4), last(TRAINED[name], moved, SMALL, protocol, 4))


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_clients_without_training_samples_use_the_shared_head_and_disturb_nobody(name, protocol):
    federation = drawn([5, 0, 2, 7], test=2)
    seen = federation.owner != 1
    without = Federation.from_arrays(
        federation.features[seen], federation.labels[seen], np.array(federation.clients)[federation.owner[seen]],
        split=federation.split[seen], classes=3,
    )  # fmt: skip
    found, expected = (last(TRAINED[name], each, SMALL, protocol) for each in (federation, without))
    np.testing.assert_array_equal(found.personal.pop("b"), found.shared)
    same(found, expected)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("protocol", [TEXT, CODE], ids=["text", "code"])
def test_one_client_can_be_asked_for_alone_and_in_single_precision(name, protocol):
    federation = drawn([5, 9, 2])
    exact = list(twin.run(TRAINED[name], federation, SMALL, protocol, 4))
    assert [snapshot.round for snapshot in exact] == [0, 2, 4]
    for ours, rough in zip(exact, twin.run(TRAINED[name], federation, SMALL, protocol, 4, np.float32), strict=True):
        assert {head.dtype for head in (rough.shared, *rough.personal.values())} == {np.dtype(np.float32)}
        same(ours, rough, np.testing.assert_allclose, atol=2e-4)
        for client, head in ours.personal.items():
            alone = twin.personal_head(TRAINED[name], federation, SMALL, protocol, 4, ours.round, ours.shared, client)
            np.testing.assert_array_equal(alone, head)


def test_what_cannot_be_trained_is_refused():
    flow = fa.Algorithm("flow", Average(), Flow(1.0))
    with pytest.raises(fa.NoFormula, match="gradient flow"):
        last(flow, drawn([3]), SMALL)
    with pytest.raises(fa.NoFormula, match="gradient flow"):
        twin.personal_head(flow, drawn([3]), SMALL, TEXT, 0, 0, np.zeros((4, 3)), "a")
    with pytest.raises(fa.InvalidInput, match="ridge is None"):
        twin.moreau(np.zeros((4, 3)), [], SMALL, TEXT)


# What the text and the released code do differently, one point at a time

AFFECTED = {
    "bias": set(TRAINED),
    "random_start": set(TRAINED),
    "continued_passes": set(TRAINED) - {"local", "local_ridge"},
    "penalty": {"rtfa", "local_ridge"},
    "warm_start": {"pfedme"},
    "decay": {"pfedme"},
    "test_inner": {"pfedme"},
    "count_padding": set(TRAINED),
}


@pytest.mark.parametrize("point", AFFECTED)
def test_each_difference_of_the_code_is_visible_where_it_should_be(point):
    federation = drawn([5, 9, 2], positions=3)
    changed = replace(TEXT, **{point: getattr(CODE, point)})
    for name, algorithm in TRAINED.items():
        text, code = (last(algorithm, federation, SMALL, protocol) for protocol in (TEXT, changed))
        differs = text.shared.shape != code.shared.shape or not np.array_equal(text.personal["b"], code.personal["b"])
        assert differs is (name in AFFECTED[point]), name


def test_every_point_of_a_protocol_is_tested():
    assert set(AFFECTED) == {field.name for field in fields(TEXT)} - {"name"}


def test_the_random_start_is_uniform_and_belongs_to_the_seed():
    federation = drawn([3], d=50, classes=40)
    W = twin.first_head(federation, CODE, 9, float)
    assert W.shape == (51, 40)
    expected = [(2 * int(mix(9, START, i)) / 2**64 - 1) / np.sqrt(50) for i in range(51 * 40)]
    np.testing.assert_allclose(W.ravel(), expected, rtol=1e-12)
    assert abs(W.mean()) < 0.01
    np.testing.assert_allclose(W.std(), np.sqrt(1 / 150), rtol=0.05)
    assert not np.array_equal(W, twin.first_head(federation, CODE, 10, float))


# Testing heads


def test_accuracy_and_loss_pool_the_samples_of_all_clients():
    federation = drawn([3, 5], positions=4, test=6)
    heads = last(TRAINED["ftfa"], federation, SMALL, CODE).personal
    for count_padding in (False, True):
        right, lost, count = 0, 0.0, 0
        for client in federation.clients:
            for row in federation.rows(client, "test"):
                for place in range(4):
                    if federation.mask[row, place] or count_padding:
                        z = federation.features[row, place] @ heads[client][:-1] + heads[client][-1]
                        y = federation.labels[row, place]
                        right, lost, count = right + (z.argmax() == y), lost + np.log(np.exp(z).sum()) - z[y], count + 1
        assert twin.accuracy(federation, heads, "test", count_padding) == right / count
        np.testing.assert_allclose(twin.loss(federation, heads, "test", count_padding), lost / count, rtol=1e-12)
    everyone = dict.fromkeys(federation.clients, heads["a"])
    assert twin.accuracy(federation, heads["a"]) == twin.accuracy(federation, everyone)
    assert np.isnan(twin.loss(federation, heads, "validation"))


def test_numbers_have_a_loss_and_no_accuracy():
    federation = drawn([3, 5], classes=None)
    assert twin.loss(federation, np.zeros((4, 1)), "train") == pytest.approx(np.mean(federation.labels**2) / 2)
    with pytest.raises(fa.InvalidInput, match="use loss"):
        twin.accuracy(federation, np.zeros((4, 1)), "train")


# Limits: long training with whole batches is what the closed forms say

LONG = Settings(
    rounds=400, evaluate_every=400, batch=WHOLE, local_steps=1, personal_epochs=400, server_step=0.4, local_step=0.2
)
CLOSED = {
    "fedavg": LONG,
    "ftfa": LONG,
    "rtfa": replace(LONG, ridge=0.6),
    "local": LONG,
    "local_ridge": replace(LONG, ridge=0.6),
    "maml": LONG,
    "pfedme": replace(LONG, ridge=0.6, server_step=1.5, inner_step=0.22, inner_steps=150),
}


@pytest.mark.parametrize("sizes", [[40, 60, 50], [3, 60, 50]], ids=["many samples", "one with few"])
@pytest.mark.parametrize("name", CLOSED)
def test_long_training_on_squares_is_the_linear_lens(name, sizes):
    federation = drawn(sizes, classes=None, seed=3)
    found = last(TRAINED[name], federation, CLOSED[name])
    exact = fa.linear.fit(
        name, federation.features, federation.labels[:, 0], np.array(federation.clients)[federation.owner],
        ridge=CLOSED[name].ridge, maml_step=0.2,
    )  # fmt: skip
    np.testing.assert_allclose(found.shared[:, 0], exact.shared, atol=1e-7)
    for client, head in found.personal.items():
        np.testing.assert_allclose(head[:, 0], exact.personal[client], atol=1e-7)


def test_the_own_step_of_a_meta_stage_is_that_of_the_linear_lens():
    federation = drawn([40, 60, 50], classes=None, seed=3)
    own = fa.Algorithm("own", Meta(0.1), Descend(step=0.2, steps=3))
    found = last(own, federation, LONG)
    exact = fa.linear.fit(own, federation.features, federation.labels[:, 0], np.array(federation.clients)[federation.owner])
    np.testing.assert_allclose(found.shared[:, 0], exact.shared, atol=1e-9)
    np.testing.assert_allclose(found.personal["b"][:, 0], exact.personal["b"], atol=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_long_training_on_classes_is_logistic_regression(bias):
    federation = drawn([60], seed=5)
    protocol = replace(TEXT, bias=bias)
    settings = replace(LONG, rounds=600, evaluate_every=600, local_step=1.0, ridge=0.05)
    found = last(TRAINED["local_ridge"], federation, settings, protocol)
    X = np.column_stack([federation.features, np.ones(60)]) if bias else federation.features
    theirs = LogisticRegression(C=1 / (0.05 * 60), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, federation.labels)
    np.testing.assert_allclose(found.personal["a"], theirs.coef_.T, atol=1e-6)


def test_more_passes_of_small_batches_come_close_as_well():
    federation = drawn([200, 150], classes=None, seed=6)
    exact = fa.linear.fit("fedavg", federation.features, federation.labels[:, 0], federation.owner)
    settings = Settings(rounds=60, evaluate_every=60, batch=16, local_steps=1)
    errors = [
        np.linalg.norm(
            last(TRAINED["fedavg"], federation, replace(settings, server_step=step, rounds=rounds)).shared[:, 0] - exact.shared
        )
        for step, rounds in ((0.2, 60), (0.02, 600))
    ]
    assert errors[1] < errors[0] < 0.5
