"""Advice about classes from what clients send: it agrees with advice from their samples, and no
sample is sent.
"""

import json

import numpy as np
import pytest

from fedasym.advisor import advise
from fedasym.advisor.class_estimates import look_at_clients
from fedasym.advisor.data import read_classes, read_clients
from fedasym.advisor.federated import (
    group_of,
    halves_for,
    look_at_summaries,
    pair_models,
    play_class_federation,
    play_federation,
    prepare_message,
    summarise_classes,
)
from fedasym.core.errors import InvalidInput


@pytest.fixture(scope="module", params=[2, 4])
def both(request, class_world):
    X, y, _ = class_world.but(classes=request.param, clients=60, dimension=30).draw(3)
    return advise(X, y, intercept=False), advise(
        play_class_federation(read_classes(X, y)), intercept=False
    )


def test_the_estimates_are_those_of_all_samples_at_one_place(both):
    here, sent = both
    for name, apart in (
        ("radius", 0.1),
        ("signal", 0.1),
        ("centre", 0.5),
    ):  # the centre's directions take samples at one place
        ours, theirs = getattr(here.population, name), getattr(sent.population, name)
        assert abs(ours.value - theirs.value) < apart * (ours.high - ours.low)
        assert theirs.low < ours.value < theirs.high


def test_so_is_the_advice(both):
    here, sent = both
    assert sent.recommended == here.recommended
    assert sent.ridge == pytest.approx(here.ridge, rel=0.15)
    for name, row in here.predictions.items():
        assert sent.predictions[name].trusted == pytest.approx(row.trusted, abs=0.01)
    assert {doubt.check for doubt in sent.doubts} == {doubt.check for doubt in here.doubts}


def test_it_says_what_was_sent(both):
    here, sent = both
    assert here.sent is None
    assert sent.sent < 4000
    assert f"no client sent more than {sent.sent:,} bytes" in str(sent)
    assert json.loads(sent.to_json())["sent"] == sent.sent


def test_products_of_residuals_have_the_mean_that_estimates_rest_on(class_world):
    """With labels that are linear in the features plus noise, products along axes average to s2 +
    r2 x/d.
    """
    rng = np.random.default_rng(2)
    m, n, d, s2, r2 = 400, 12, 20, 0.6, 0.5
    X, y, _ = class_world.but(clients=m, samples=n, dimension=d).draw(1)
    told = prepare_message(read_classes(X, y))
    centre = np.linalg.norm(told.models[(0, 1)]) * rng.standard_normal(d) / np.sqrt(d)
    theta = centre + np.sqrt(r2 / d) * rng.standard_normal((m, d))
    Y = [x @ t + np.sqrt(s2) * rng.standard_normal(n) for x, t in zip(X, theta, strict=True)]
    models = pair_models(read_clients(X, Y))
    products, expected = 0.0, 0.0
    for i, (x, v) in enumerate(zip(X, Y, strict=True)):
        power, U = np.linalg.eigh(x @ x.T)
        for one, two in halves_for(group_of(i)):
            products += (
                float(((U.T @ (v - x @ models[one])) * (U.T @ (v - x @ models[two]))).sum()) / 3
            )
        expected += float((s2 + r2 * power / d).sum())
    assert products == pytest.approx(expected, rel=0.06)


def test_what_others_leave_in_the_shared_model_is_close_to_the_exact_sum(class_world):
    taken = read_classes(*class_world.but(clients=80, samples=30, dimension=25).draw(5)[:2])
    assert look_at_summaries(play_class_federation(taken)).found.excess == pytest.approx(
        look_at_clients(taken).found.excess, rel=0.12
    )


def test_held_out_samples_are_tried_at_home(class_world):
    X, y, _ = class_world.but(clients=30, samples=60, dimension=10).draw(2)
    told = prepare_message(read_classes([x[:40] for x in X], [v[:40] for v in y]))
    sent = [
        summarise_classes(i, x[:40], v[:40], told, group=group_of(i), held=(x[40:], v[40:]))
        for i, (x, v) in enumerate(zip(X, y, strict=True))
    ]
    probes = look_at_summaries(sent).probes
    assert probes.holds
    assert probes.shared_held.count.tolist() == [20] * 30
    assert probes.shared_held.mean == pytest.approx(probes.shared.mean, abs=0.05)


def test_answers_that_cannot_be_used_are_refused_in_words(class_world):
    X, y, _ = class_world.but(clients=12, samples=30, dimension=10).draw(2)
    sent = play_class_federation(read_classes(X, y))
    told = prepare_message(read_classes(X, y))
    with pytest.raises(
        InvalidInput, match="client 'ann' has the label 7, which is not among the 2 classes"
    ):
        summarise_classes("ann", X[0], [7] * 30, told, group=0)
    with pytest.raises(InvalidInput, match="two summaries have one name"):
        advise([*sent, sent[0]], intercept=False)
    with pytest.raises(
        InvalidInput, match="there are 4 summaries: five groups of clients take at least 5"
    ):
        advise(sent[:4], intercept=False)
    with pytest.raises(InvalidInput, match="different dimensions or classes"):
        advise(
            [*sent[:6], *play_class_federation(read_classes([x[:, :9] for x in X], y))[6:]],
            intercept=False,
        )
    with pytest.raises(InvalidInput, match="some summaries are of classes and some of numbers"):
        advise(
            [*sent, *play_federation(read_clients(X, [np.asarray(v, float) for v in y]))],
            intercept=False,
        )
    scarce = play_class_federation(read_classes([x[:2] for x in X], [[0, 1]] * 12))
    with pytest.raises(
        InvalidInput,
        match=r"24 samples for 10 features, and models of pairs of groups take 3.75 per feature",
    ):
        advise(scarce, intercept=False)
