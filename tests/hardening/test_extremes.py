"""Numbers from 1e-12 to 1e12, and thresholds from both sides: finite or a named refusal, nothing
negative, parts that add up.

`tests/invariants` holds the identities in ranges that people have; this is about the ends of
floating point.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedasym as fa

EXTREME = st.floats(-12, 12).map(lambda u: float(10.0**u))
NEAR_ONE = st.builds(
    lambda gap, sign: 1 + sign * 10.0**gap, st.floats(-15, -1), st.sampled_from([-1, 1])
)
OR_ZERO = EXTREME | st.just(0.0)
ASPECTS = EXTREME | NEAR_ONE | st.just(1.0)


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def answered(call):
    """The answer, or None where it is refused by name; warnings are ours alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fa.ThresholdWarning)
        try:
            return call()
        except fa.InvalidInput:
            return None


def population(radius: float, noise: float, aspect: float, norm: float) -> fa.Population | None:
    return answered(lambda: fa.Population(radius=radius, noise=noise, aspect=aspect, norm=norm))


def check(name: str, risk: fa.Risk) -> None:
    """No wrong sign, no NaN; infinity is a limit that the notes explain (interpolation at its
    threshold).
    """
    parts = (risk.loss, risk.bias, risk.variance)
    assert not any(math.isnan(part) for part in parts), (name, parts)
    assert min(parts) >= 0, (name, parts)
    if math.isfinite(risk.loss):
        assert math.isclose(risk.bias + risk.variance, risk.loss, rel_tol=1e-12), (name, parts)


@examples(60)
@given(OR_ZERO, OR_ZERO, ASPECTS, EXTREME, st.none() | st.integers(1, 10**9), st.booleans())
@example(1.0, 0.5, 1.0, 2.0, None, True)
@example(1e-12, 1e12, 1.0, 1e12, None, True)
@example(1e12, 0.0, 1e12, 1e12, 2, False)
def test_predict(radius, noise, aspect, norm, clients, member):
    world = population(radius, noise, aspect, norm)
    table = (
        None
        if world is None
        else answered(lambda: fa.predict(world, clients=clients, member=member))
    )
    if table is not None:
        for name, risk in table.items():
            check(name, risk)
            assert risk.ridge is None or not math.isnan(risk.ridge), (name, risk.ridge)
        assert table.best in table
        assert str(table)


@examples(30)
@given(EXTREME, EXTREME, ASPECTS, st.none() | st.integers(2, 10**6))
def test_the_best_ridge_is_no_worse_than_none_or_much(radius, noise, aspect, clients):
    """Monotone invariants: tuning helps, keeping everything or nothing are ends of the same
    path.
    """
    world = population(radius, noise, aspect, math.hypot(radius, 1.0))
    table = (
        None
        if world is None
        else answered(lambda: fa.predict(world, ["fedavg", "ftfa", "rtfa"], clients=clients))
    )
    if table is not None:
        slack = 1 + 1e-6
        assert table["rtfa"].loss <= slack * table["ftfa"].loss
        assert table["rtfa"].loss <= slack * table["fedavg"].loss


@examples(30)
@given(EXTREME, EXTREME, ASPECTS, st.floats(1.0, 1e6), st.sampled_from(["radius", "noise"]))
def test_more_heterogeneity_or_noise_never_helps(radius, noise, aspect, factor, which):
    names = ["fedavg", "ftfa", "rtfa"]
    more = {
        "radius": radius * (factor if which == "radius" else 1),
        "noise": noise * (factor if which == "noise" else 1),
    }
    worlds = [population(radius, noise, aspect, 1e13), population(**more, aspect=aspect, norm=1e13)]
    tables = [
        None if world is None else answered(lambda world=world: fa.predict(world, names))
        for world in worlds
    ]
    if None not in tables:
        for name in names:
            assert tables[0][name].loss <= (1 + 1e-6) * tables[1][name].loss, name


@examples(25)
@given(EXTREME, EXTREME, ASPECTS)
def test_thresholds_and_ridges(radius, noise, aspect):
    world = population(radius, noise, aspect, math.hypot(radius, 1.0))
    if world is None:
        return
    threshold = answered(lambda: fa.noise_threshold(world))
    assert threshold is None or (threshold >= 0 and not math.isnan(threshold))
    ridge = answered(lambda: fa.optimal_ridge(world))
    assert ridge is None or not math.isnan(float(np.asarray(ridge)))


@examples(8)
@given(EXTREME, EXTREME, ASPECTS, EXTREME, st.booleans())
def test_fine_tuning(radius, noise, aspect, step, flow):
    world = population(radius, noise, aspect, math.hypot(radius, 1.0))
    how = {"flow": True} if flow else {"step": step}
    path = (
        None if world is None else answered(lambda: fa.fine_tuning(world, steps=[0, 1, 10], **how))
    )
    if path is not None:
        assert str(path)
        check("stopped", path.best.scores)


@examples(10)
@given(EXTREME, EXTREME, ASPECTS)
def test_compare_over_decades(radius, noise, aspect):
    world = population(radius, noise, aspect, 1e13)
    vary = {"noise": np.logspace(-12, 12, 7), "aspect": np.logspace(-6, 6, 5)}
    diagram = (
        None if world is None else answered(lambda: fa.compare("ftfa", "fedavg", world, vary=vary))
    )
    if diagram is not None:
        assert set(np.unique(diagram.winner)) <= {"ftfa", "fedavg", "tie"}
        assert str(diagram)


@examples(4)
@given(EXTREME, EXTREME, st.floats(-3, 3).map(lambda u: float(10.0**u)) | NEAR_ONE)
def test_two_classes(radius, centre, aspect):
    """Accuracies from chance to always right, and none above the Bayes rule's."""
    clients = answered(lambda: fa.ClassPopulation(radius=radius, centre=centre, aspect=aspect))
    table = None if clients is None else answered(lambda: fa.predict(clients, ["fedavg", "bayes"]))
    if table is not None:
        assert all(0.5 - 1e-9 <= row.accuracy <= 1 for row in table.values())
        assert table["bayes"].accuracy >= table["fedavg"].accuracy - 1e-6


@examples(4)
@given(st.floats(-12, 12), st.floats(-12, 0), st.floats(-3, 3))
def test_more_classes(radius, centre, aspect):
    """Beyond a length that time and memory allow, it is refused by name: the quadrature grows with
    its square.
    """
    clients = fa.ClassPopulation(
        radius=10.0**radius, centre=10.0**centre, aspect=10.0**aspect, classes=3
    )
    table = answered(lambda: fa.predict(clients, ["fedavg"]))
    assert (table is None) == (10.0**radius > 50)
    if table is not None:
        assert 1 / 3 - 1e-9 <= table["fedavg"].accuracy <= 1


def test_gradient_descent_beyond_floating_point():
    with pytest.raises(
        fa.InvalidInput, match=r"aspect is 1e\+300: gradient descent is computed up to 1e\+100"
    ):
        fa.fine_tuning(fa.Population(radius=1, noise=1, aspect=1e300), flow=True)


def test_more_classes_far_apart():
    with pytest.raises(
        fa.NoFormula, match="has length 1e\\+12: with 5 classes this is computed up to 50"
    ):
        fa.predict(fa.ClassPopulation(radius=1e12, centre=1, aspect=2, classes=5), ["fedavg"])
