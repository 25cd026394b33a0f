"""`simulate` against a dense computation, against honest sampling, and against the predictions it stands beside.

Predictions are limits of large dimension: a simulation in d dimensions differs from them by c/d. Twice the loss in 2d
dimensions minus the loss in d has no such term, so that it must agree within 3 standard errors with no allowance at all;
that c/d halves when d doubles is a test of its own. Each comparison must also tell the prediction from wrong ones.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import PAPER, Average, Descend, Flow, Interpolate, Keep, Meta, Moreau, Ridge
from fedasym.linear.draw import apportioned, features, seeded
from fedasym.linear.expectation import expected
from fedasym.linear.plans import Plan, planned
from fedasym.linear.simulation import checked

TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
AR1, POWER = fa.spectra.ar1(0.5, points=20), fa.spectra.power_law(1, points=20)
SINGULAR = fa.spectra.atoms([0, 1, 3], [0.4, 0.35, 0.25])
WORLD = fa.Population(1, 0.5, 2, norm=2)


# Against a dense computation.


def plan_of(world, **options) -> Plan:
    defaults = {"dimension": 40, "clients": 5, "seed": 3, "algorithms": None, "member": True, "ridge": None, "maml_step": 0.1}
    more = {"weights": None, "features": "gaussian", "mode": "expectation", "vary": None}
    return planned(checked(world, **(defaults | more | options)))


def dense(plan: Plan) -> dict[str, np.ndarray]:
    """Bias and variance from the matrices themselves: every estimator as a linear map of theta_0, displacements and noise."""
    kinds, d = plan.kinds, plan.kinds[0].s.size

    def sample(kind, *path):
        X = features(kind, seeded(plan.seed, 0, *path), plan.features)
        return kind, X, X.T @ X / kind.n

    clients = [sample(plan.kind_of(j), 0, j) for j in range(sum(plan.count))]
    found = {}
    for each in plan.algorithms:
        rows = []
        for kind in kinds:
            risks = []
            for j in plan.places(kind):
                _, X, S = clients[j] if plan.member else sample(kind, 1, kind.place, j)
                P, own = personal(each.algorithm.personalise, S, each.ridge_of(kind))
                own = own @ X.T / kind.n
                loss = lambda M, energy, s=kind.s: float(s @ M**2 @ energy)  # noqa: E731
                if each.pull is None:
                    risks.append([loss(P, kind.optimum), kind.noise2 * loss(own, np.ones(kind.n))])
                    continue
                lost, moved, heard = shared(plan, each, clients)
                bias = 0.0 if kinds[0].centre is None else loss(P @ lost, kinds[0].centre)
                variance = 0.0
                for i, (other, _, _) in enumerate(clients):
                    mine = plan.member and i == j
                    bias += loss(P @ (moved[i] - mine * np.eye(d)), other.shift)
                    variance += other.noise2 * loss(P @ heard[i] + (own if mine else 0), np.ones(other.n))
                if not plan.member:
                    bias, variance = bias + loss(P, kind.shift), variance + kind.noise2 * loss(own, np.ones(kind.n))
                risks.append([bias, variance])
            rows.append(np.mean(risks, axis=0))
        found[each.name] = np.array(rows)
    return found


def personal(stage, S, ridge):
    """P(S) and F(S) of the table of client stages."""
    x, V = np.linalg.eigh(S)
    x = np.where(x < 1e-10 * x[-1], 0, x)
    match stage:
        case Keep():
            keep = np.ones_like(x)
        case Interpolate():
            keep = np.where(x > 0, 0.0, 1.0)
        case Ridge():
            keep = np.ones_like(x) if np.isinf(ridge) else ridge / (x + ridge)
        case Descend(step, steps):
            keep = (1 - step * x) ** steps
        case Flow(time):
            keep = np.exp(-time * x)
    fit = np.divide(1 - keep, x, out=np.zeros_like(x), where=x > 0)
    return (V * keep) @ V.T, (V * fit) @ V.T


def shared(plan, each, clients):
    """What theta_0_hat - theta_0 makes of theta_0, of each displacement and of each client's noise."""
    d = plan.kinds[0].s.size
    if plan.crowded:
        inverse = np.linalg.pinv(np.vstack([X for _, X, _ in clients]))
        parts = np.split(inverse, np.cumsum([len(X) for _, X, _ in clients])[:-1], axis=1)
        moved = [part @ X for part, (_, X, _) in zip(parts, clients, strict=True)]
        return sum(moved) - np.eye(d), moved, parts
    pulls = []
    for kind, _, S in clients:
        p, ridge = each.pull.p[kind.place], each.ridge_of(kind)
        match each.algorithm.server:
            case Meta(step):
                pulls.append(p * (np.eye(d) - step * S) @ (np.eye(d) - step * S))
            case Moreau() if np.isfinite(ridge):
                pulls.append(p * ridge * np.linalg.inv(S + ridge * np.eye(d)))
            case _:
                pulls.append(p * np.eye(d))
    inverse = np.linalg.inv(sum(b @ S for b, (_, _, S) in zip(pulls, clients, strict=True)))
    moved = [inverse @ b @ S for b, (_, _, S) in zip(pulls, clients, strict=True)]
    return np.zeros((d, d)), moved, [inverse @ b @ X.T / kind.n for b, (kind, X, _) in zip(pulls, clients, strict=True)]


EVERY = [
    *PAPER,
    fa.Algorithm("steps", Average(), Descend(0.05, 3)),
    fa.Algorithm("flow", Average(), Flow(0.4)),
    fa.Algorithm("one step", Meta(0.05), Descend(0.1, 1)),
]
DIFFERENT = [
    fa.Population(1, 0.7, 2, norm=2, spectrum=TWO),
    fa.Population(1.5, 0.4, 4, norm=5.25**0.5, spectrum=fa.spectra.atoms([2, 0.3], [0.6, 0.4])),
    fa.Population(0.6, 1, 0.5, norm=3.36**0.5),
]
DENSE = [
    (WORLD, {}),
    (WORLD, {"features": "rademacher", "member": False}),
    (WORLD, {"features": "student", "ridge": np.inf}),
    (fa.Population(1.3, 0.7, 0.5, norm=2, spectrum=TWO), {"clients": 3}),
    (fa.Population(1.3, 0.7, 2, norm=3, spectrum=AR1, shift_power=1), {"ridge": 0.3}),
    (fa.Population(1, 0.7, 2, norm=3, spectrum=TWO, shift_weights=[1, 0], optimum_weights=[0.8, 0.2]), {"ridge": 0.3}),
    (fa.Population(1, 0.7, 2, norm=3, spectrum=POWER, shift_power=-1), {"ridge": 0.3, "member": False}),
    (fa.Population(1.3, 0.7, 3, norm=3, spectrum=SINGULAR), {"clients": 4}),
    (fa.Population(1.3, 0.7, 4, norm=2.5, spectrum=TWO), {"clients": 2, "ridge": 0.4}),
    (fa.Population(1, 0.7, 4, norm=2.5, spectrum=TWO, shift_power=1, optimum_power=1), {"clients": 2, "member": False}),
    (DIFFERENT, {"clients": [3, 3, 1]}),
    (DIFFERENT[:2], {"clients": [3, 2], "member": False, "weights": "uniform"}),
    (fa.Population(0, 0.7, 2, norm=2, spectrum=TWO), {}),
    (fa.Population(1, 0, 2, norm=2), {"ridge": 0.2}),
]


@pytest.mark.parametrize(("world", "options"), DENSE)
def test_expectations_equal_a_dense_computation(world, options):
    plan = plan_of(world, algorithms=EVERY, **options)
    truth = dense(plan)
    for name, found in expected(plan, 0, lambda _: None).items():
        assert np.max(np.abs(np.array(found) - truth[name]) / truth[name].sum(-1, keepdims=True)) < 1e-10, name


# Against the predictions.


def at_infinity(world, dimension, trials, **options) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Losses without their term of order 1/dimension, their standard errors, and the predictions."""
    half, whole = (fa.simulate(world, dimension=d, trials=trials, seed=1, **options) for d in (dimension, 2 * dimension))
    rows = {}
    for name, row in whole.items():
        loss = 2 * np.asarray(row.loss) - half[name].loss
        rows[name] = loss, np.hypot(2 * np.asarray(row.error), half[name].error), np.asarray(row.predicted.loss)
    return rows


def check(rows, without_formula=()) -> None:
    for name, (loss, error, predicted) in rows.items():
        if name in without_formula:
            assert np.all(np.isnan(predicted)), name
        else:
            assert np.all(np.abs(loss - predicted) < 3 * error + 1e-12 * predicted), (name, loss, error, predicted)
            assert np.all(error < 0.02 * predicted), (name, error / predicted)


AGREEMENT = [
    (fa.Population(1, 0.7, 2, norm=2), 5, ()),
    (fa.Population(1.3, 0.5, 4, norm=2), 12, ()),
    (fa.Population(1, 0.7, 0.5, norm=2), 3, ()),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=TWO), 4, ("maml",)),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=TWO, shift_power=1), 6, ("maml", "pfedme")),
    (fa.Population(1, 0.7, 0.5, norm=2, spectrum=TWO, shift_power=-1), 3, ("pfedme",)),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=AR1), 5, ("maml",)),
    (fa.Population(1, 0.7, 4, norm=2, spectrum=AR1, shift_power=-1, optimum_power=1), 10, ("maml", "pfedme")),
    (fa.Population(1, 0.7, 2, norm=2, spectrum=POWER), 5, ("maml",)),
    (fa.Population(1, 0.7, 0.5, norm=2, spectrum=POWER), 4, ()),
    (fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), 2, ()),  # fewer samples than unknowns
]


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize(("world", "clients", "without_formula"), AGREEMENT)
def test_predictions_agree(world, clients, member, without_formula):
    rows = at_infinity(world, 40, 20, clients=clients, member=member)
    check(rows, without_formula)
    loss, error, _ = rows["fedavg"]
    for wrong in ({"clients": clients + 1, "member": member}, {"clients": clients, "member": not member}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.ThresholdWarning)
            other = fa.predict(world, ["fedavg"], **wrong)["fedavg"].loss
        assert abs(loss - other) > 3 * error, wrong


def test_the_deviation_halves_when_the_dimension_doubles():
    """The variance of an interpolant is noise^2 n/(d - n - 1) instead of noise^2 n/(d - n) exactly, more by 2/d at aspect 2."""
    world = fa.Population(1, 1, 2, norm=2)
    table = fa.simulate(world, vary={"dimension": [40, 80, 160]}, clients=8, trials=60, algorithms=["local", "ftfa"])
    for row in table.values():
        off, error = row.loss - row.predicted.loss, row.error
        assert np.all(off > 0)
        for k in (0, 1):
            assert abs(off[k] / 2 - off[k + 1]) < 3 * np.hypot(error[k] / 2, error[k + 1])
    n = np.array([20, 40, 80])
    assert np.all(np.abs(table["local"].variance - n / (n - 1)) < 3 * table["local"].error)


@pytest.mark.parametrize("features_", ["rademacher", "student"])
def test_other_features_have_the_same_limit(features_):
    check(at_infinity(fa.Population(1, 0.7, 2, norm=2), 40, 20, clients=5, features=features_))


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
        (fa.Population(1, 0.7, 0.5, norm=2, spectrum=TWO, shift_power=1, optimum_power=1), {"clients": 3}),
        (fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), {"clients": 2}),
        (DIFFERENT, {"clients": [2, 3, 1]}),
    ],
)
def test_expectation_agrees_with_honest_sampling(world, options):
    """The same features, but drawn labels, the estimators of `linear.fit` and held-out samples: no formula in common."""
    exact, drawn = (fa.simulate(world, dimension=40, trials=100, mode=mode, **options) for mode in ("expectation", "sampling"))
    for name, row in drawn.items():
        assert np.all(np.abs(np.subtract(row.loss, exact[name].loss)) < 3 * np.asarray(row.error)), name
        assert np.all(np.asarray(row.error) < 0.08 * np.asarray(row.loss)), name
        assert row.bias is None


def test_with_fewer_samples_than_unknowns_all_that_share_agree_on_members():
    table = fa.simulate(fa.Population(1, 0.7, 4, norm=2, spectrum=TWO), dimension=40, clients=3, trials=2)
    losses = [table[name].loss for name in ("fedavg", "ftfa", "rtfa", "maml", "pfedme")]
    assert np.ptp(losses) < 1e-10


# What it returns.


def test_same_seed_same_numbers_and_streams_that_do_not_depend_on_one_another():
    first, again = (fa.simulate(WORLD, dimension=30, clients=4, trials=2, seed=7) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert first.to_json() != fa.simulate(WORLD, dimension=30, clients=4, trials=2, seed=8).to_json()
    several = fa.simulate(WORLD, dimension=30, vary={"clients": [4, 9]}, trials=2, seed=7)
    assert several["rtfa"].loss[0] == first["rtfa"].loss


def test_the_ridge_is_the_predictions_best():
    table = fa.simulate(WORLD, dimension=40, clients=6, trials=2)
    best = fa.predict(WORLD, clients=6)
    assert all(table[name].ridge == best[name].ridge for name in ("local_ridge", "rtfa", "pfedme"))
    assert fa.simulate(WORLD, dimension=40, clients=6, trials=2, ridge=0.3)["rtfa"].ridge == 0.3


def test_the_prediction_is_for_what_is_drawn():
    """200 directions, 3 samples: the aspect is 200/3, and the eigenvalues are a whole number of each atom."""
    plan = plan_of(fa.Population(1, 0.5, 60, spectrum=TWO), dimension=201, clients=80, algorithms=["fedavg"])
    assert plan.kinds[0].n == 3
    assert plan.kinds[0].population.aspect == 67
    assert np.unique(plan.kinds[0].s, return_counts=True)[1].tolist() == [121, 80]
    assert np.isclose(plan.kinds[0].shift.sum(), 1)


def test_directions_are_shared_out_evenly():
    assert apportioned(np.array([0.25, 0.25, 0.5]), 7).tolist() == [2, 2, 3]
    for spectrum in (fa.spectra.ar1(0.5), fa.spectra.power_law(1)):
        room = apportioned(spectrum.weights, 200)
        assert room.sum() == 200
        assert np.all(np.abs(room - 200 * spectrum.weights) <= 1)
        assert abs(spectrum.values @ room / 200 - spectrum.mean) < 0.01


def test_trials_become_an_interval():
    table = fa.simulate(WORLD, dimension=30, clients=4, trials=5)
    single = [fa.simulate(WORLD, dimension=30, clients=4, trials=t) for t in (1, 2)]
    row = table["ftfa"]
    assert row.low <= row.loss <= row.high
    assert np.isclose(row.loss, row.bias + row.variance)
    assert np.isnan(single[0]["ftfa"].error)
    assert "-" in str(single[0])
    second = 2 * single[1]["ftfa"].loss - single[0]["ftfa"].loss
    assert row.low <= min(second, single[0]["ftfa"].loss)
    records = table.table()
    assert [record["algorithm"] for record in records] == list(table)
    assert records[3]["loss"] == row.loss
    assert json.loads(table.to_json())["algorithms"]["ftfa"]["deviation"] == row.deviation


def test_methods_without_a_formula_are_simulated_all_the_same():
    table = fa.simulate(fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1), dimension=40, clients=6, trials=2)
    assert np.isnan(table["maml"].predicted.loss)
    assert table["maml"].loss > 0
    assert table["pfedme"].ridge == fa.optimal_ridge(fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1))
    assert any("No prediction for maml" in note for note in table.notes)
    assert any("Left out local and local_ridge" in note for note in table.notes)


def test_figures(tmp_path):
    varied = fa.simulate(WORLD, dimension=20, trials=2, vary={"clients": [3, 10, 40]})
    single = fa.simulate(DIFFERENT, dimension=20, trials=2, clients=[2, 2, 1])
    for k, result in enumerate((varied, single)):
        assert result.plot(tmp_path / f"{k}.png").read_bytes().startswith(b"\x89PNG")
    predicted, limit = varied.curve("rtfa", np.array([3.0, 10.0]))
    assert predicted.tolist() == varied["rtfa"].predicted.loss[:2].tolist()
    assert limit[0] == varied["rtfa"].limit.loss[0]
    with pytest.raises(fa.InvalidInput, match="must end in"):
        single.plot(tmp_path / "figure.gif")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dimension": 1, "clients": 3}, "dimension is 1: with aspect 2.5 a client would have no sample"),
        ({"dimension": 0}, "dimension is 0"),
        ({"clients": 0}, "clients is 0: it must be a whole number of at least 1"),
        ({"clients": 2.5}, "clients is 2.5"),
        ({"clients": [3, 4]}, "a list is for a list of populations"),
        ({"trials": 0}, "trials is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"features": "gausian"}, "did you mean gaussian"),
        ({"mode": "exact"}, "unknown mode 'exact'"),
        ({"algorithms": ["ftfq"]}, "did you mean ftfa"),
        ({"algorithms": ["local"]}, "local: a method that shares nothing"),
        ({"ridge": [1, 2]}, "ridge has shape"),
        ({"ridge": -5.0, "algorithms": ["rtfa"]}, "ridge is -5"),
        ({"ridge": -0.01, "algorithms": ["pfedme"]}, "pfedme: ridge is -0.01"),
        ({"vary": {"color": [1, 2]}}, "unknown parameter in vary 'color'"),
        ({"vary": {"noise": [1, 2], "radius": [1, 2]}}, "vary must name one parameter"),
        ({"vary": {"noise": (0, 1)}}, "give \\(start, stop, count\\)"),
        ({"vary": {"noise": [1, -2]}}, "noise is -2"),
        ({"vary": {"ridge": [1, 2]}, "algorithms": ["fedavg"]}, "no algorithm asked for has one"),
        ({"weights": "samples"}, "weights are for a list"),
        ({"clients": 2, "dimension": 40, "world": fa.Population(1, 0.5, 4)}, "give norm"),
        ({"clients": 2, "mode": "sampling", "world": fa.Population(1, 0.5, 4)}, "give norm"),
        ({"world": fa.Population([1, 2], 0.5, 4)}, "the population holds arrays"),
        ({"world": []}, "the list of populations is empty"),
        ({"world": "identity"}, "give a Population"),
        ({"world": DIFFERENT, "clients": [1, 2]}, "one for each"),
        ({"world": DIFFERENT, "vary": {"clients": [1, 2]}}, "vary is for one population"),
        ({"save": "no/such/folder/file.json"}, "does not exist"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(options, says):
    world = options.pop("world", fa.Population(1, 0.5, 2.5))
    with pytest.raises(fa.InvalidInput, match=says) as caught:
        fa.simulate(world, **({"trials": 1, "dimension": 20} | options))
    assert "\n" not in str(caught.value)


def test_a_dimension_beyond_memory_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("fedasym.linear.simulation.physical_memory", lambda: 1e9)
    with pytest.raises(fa.InvalidInput, match=r"dimension is 5000: its matrices need 5 GB .*give at most 2041"):
        fa.simulate(fa.Population(1, 1, 2), dimension=5000, clients=3)
