"""`simulate` against the predictions it stands beside, and against honest sampling."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedasym as fa

from .worlds import AR1, DIFFERENT, POWER, TWO, WORLD

# Predictions are limits of large dimension: a simulation in d dimensions differs from them by c/d.
# Twice the loss in 2d dimensions minus the loss in d has no such term, so that it must agree within
# 3 standard errors with no allowance at all; that c/d halves when d doubles is a test of its own.
# Each comparison must also tell the prediction from wrong ones.


def at_infinity(
    world, dimension, trials, **options
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Losses without their term of order 1/dimension, their standard errors, and the
    predictions.
    """
    half, whole = (
        fa.simulate(world, dimension=d, trials=trials, seed=1, **options)
        for d in (dimension, 2 * dimension)
    )
    rows = {}
    for name, row in whole.items():
        loss = 2 * np.asarray(row.loss) - half[name].loss
        rows[name] = (
            loss,
            np.hypot(2 * np.asarray(row.error), half[name].error),
            np.asarray(row.predicted.loss),
        )
    return rows


def check(rows, without_formula=()) -> None:
    for name, (loss, error, predicted) in rows.items():
        if name in without_formula:
            assert np.all(np.isnan(predicted)), name
        else:
            assert np.all(np.abs(loss - predicted) < 3 * error + 1e-12 * predicted), (
                name,
                loss,
                error,
                predicted,
            )
            assert np.all(error < 0.02 * predicted), (name, error / predicted)


AGREEMENT = [
    (fa.Population(1, 0.7, 2, norm=2), 5, ()),
    (fa.Population(1, 0.7, 0.5, norm=2), 3, ()),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=TWO), 4, ("maml",)),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=TWO, shift_power=1), 6, ("maml", "pfedme")),
    (fa.Population(1, 0.7, 0.5, norm=2, spectrum=TWO, shift_power=-1), 3, ("pfedme",)),
    (
        fa.Population(1, 0.7, 4, norm=2, spectrum=AR1, shift_power=-1, optimum_power=1),
        10,
        ("maml", "pfedme"),
    ),
    (fa.Population(1, 0.7, 0.5, norm=2, spectrum=POWER), 4, ()),
    (fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), 2, ()),  # fewer samples than unknowns
]


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize(("world", "clients", "without_formula"), AGREEMENT)
def test_predictions_agree(world, clients, member, without_formula):
    rows = at_infinity(world, 40, 14, clients=clients, member=member)
    check(rows, without_formula)
    loss, error, _ = rows["fedavg"]
    for wrong in (
        {"clients": clients + 1, "member": member},
        {"clients": clients, "member": not member},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.ThresholdWarning)
            other = fa.predict(world, ["fedavg"], **wrong)["fedavg"].loss
        assert abs(loss - other) > 3 * error, wrong


def test_the_deviation_halves_when_the_dimension_doubles():
    """The variance of an interpolant is noise^2 n/(d - n - 1) instead of noise^2 n/(d - n) exactly,
    more by 2/d at aspect 2.
    """
    world = fa.Population(1, 1, 2, norm=2)
    table = fa.simulate(
        world, vary={"dimension": [40, 80, 160]}, clients=8, trials=30, algorithms=["local", "ftfa"]
    )
    for row in table.values():
        off, error = row.loss - row.predicted.loss, row.error
        assert np.all(off > 0)
        for k in (0, 1):
            assert abs(off[k] / 2 - off[k + 1]) < 3 * np.hypot(error[k] / 2, error[k + 1])
    n = np.array([20, 40, 80])
    assert np.all(np.abs(table["local"].variance - n / (n - 1)) < 3 * table["local"].error)


@pytest.mark.parametrize("features_", ["rademacher", "student"])
def test_other_features_have_the_same_limit(features_):
    check(at_infinity(fa.Population(1, 0.7, 2, norm=2), 40, 14, clients=5, features=features_))


def test_clients_that_differ():
    rows = at_infinity(DIFFERENT, 40, 20, clients=[3, 3, 1])
    check(rows, ("maml",))
    assert all(loss.shape == (3,) for loss, _, _ in rows.values())
    check(at_infinity(DIFFERENT, 40, 20, clients=[3, 3, 1], member=False), ("maml",))


@pytest.mark.parametrize(
    ("world", "options"),
    [
        (WORLD, {"clients": 5}),
        (WORLD, {"clients": 5, "member": False}),
        (
            fa.Population(1, 0.7, 0.5, norm=2, spectrum=TWO, shift_power=1, optimum_power=1),
            {"clients": 3},
        ),
        (fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), {"clients": 2}),
        (DIFFERENT, {"clients": [2, 3, 1]}),
    ],
)
def test_expectation_agrees_with_honest_sampling(world, options):
    """The same features, but drawn labels, the estimators of `linear.fit` and held-out samples: no
    formula in common.
    """
    exact, drawn = (
        fa.simulate(world, dimension=40, trials=48, mode=mode, **options)
        for mode in ("expectation", "sampling")
    )
    for name, row in drawn.items():
        assert np.all(
            np.abs(np.subtract(row.loss, exact[name].loss)) < 3 * np.asarray(row.error)
        ), name
        assert np.all(np.asarray(row.error) < 0.08 * np.asarray(row.loss)), name
        assert row.bias is None


def test_with_fewer_samples_than_unknowns_all_that_share_agree_on_members():
    table = fa.simulate(
        fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), dimension=40, clients=3, trials=2
    )
    losses = [table[name].loss for name in ("fedavg", "ftfa", "rtfa", "maml", "pfedme")]
    assert np.ptp(losses) < 1e-10


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("start", [fa.algorithms.Moreau(0.6), fa.algorithms.Meta(0.1)])
def test_a_path_from_any_shared_model(start, member):
    world, step, steps = fa.Population(1, 0.7, 2, norm=2), 0.15, 5
    whole = fa.Algorithm("whole", start, fa.algorithms.Descend(step, steps))
    (loss, error, _) = at_infinity(world, 100, 8, clients=5, algorithms=[whole], member=member)[
        "whole"
    ]
    path = fa.fine_tuning(world, whole, step=step, steps=[steps], clients=5, member=member)
    averaged = fa.fine_tuning(world, step=step, steps=[steps], clients=5, member=member)
    assert abs(loss - path.loss[0]) < 3 * error
    assert abs(averaged.loss[0] - path.loss[0]) > 3 * error  # which the comparison can tell apart
