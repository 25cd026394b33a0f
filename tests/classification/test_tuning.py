"""Early stopping, one step, the best ridge, separability, weight interpolation and diagrams with
classes.
"""

import json

import numpy as np
import pytest
from scipy.stats import norm

import fedasym as fa
from fedasym.theory.classes.ridge import shrinkage

WORLD = fa.ClassPopulation(1.5, 1.5, 2)
TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])


def test_a_path_begins_with_fedavg_and_its_best_is_rtfa():
    path, table = fa.fine_tuning(WORLD), fa.predict(WORLD)
    assert path.times[0] == 0
    assert path.accuracy[0] == pytest.approx(table["fedavg"].accuracy, abs=1e-9)
    assert path.best.scores.accuracy == pytest.approx(table["rtfa"].accuracy, abs=1e-6)
    assert path.best.scores.accuracy >= path.accuracy.max() - 1e-9
    assert table["local"].accuracy < path.accuracy[-1] < table["fedavg"].accuracy
    assert np.all(np.diff(path.ridge[1:]) < 0)
    assert np.all(np.diff(path.slope[path.times > path.best.at]) < 0)  # ever more confident


def test_steps_are_times():
    steps = fa.fine_tuning(WORLD, step=0.25, steps=[0, 2, 40])
    times = fa.fine_tuning(WORLD, times=[0, 0.5, 10])
    np.testing.assert_allclose(steps.accuracy, times.accuracy, atol=1e-12)
    assert steps.best.at == round(times.best.at / 0.25)
    assert steps.unit == "steps"
    assert fa.fine_tuning(WORLD, steps=[1, 2]).step == pytest.approx(4 / (1 + 2**0.5) ** 2)
    flow = fa.fine_tuning(WORLD, flow=True, times=[0.5])
    assert flow.accuracy[0] == pytest.approx(times.accuracy[1], abs=1e-12)


def test_times_scale_with_the_features():
    scaled = fa.ClassPopulation(1.5 / 2, 1.5 / 2, 2, spectrum=fa.spectra.atoms([4], [1]))
    np.testing.assert_allclose(
        fa.fine_tuning(scaled, times=[0.1, 1, 10]).accuracy,
        fa.fine_tuning(WORLD, times=[0.4, 4, 40]).accuracy,
        atol=1e-7,
    )


def test_a_path_prints_exports_and_holds_grids():
    path = fa.fine_tuning(WORLD, times=[0, 1])
    data = json.loads(path.to_json())
    assert data["accuracy"] == path.accuracy.tolist()
    assert data["ridge"][0] == "inf"
    assert path.table()[1]["time"] == 1
    assert "Best stopping point: at time" in str(path)
    assert "good to about 0.3" in str(path)
    assert path._repr_html_().startswith("<p>")
    grid = fa.fine_tuning(fa.ClassPopulation([1, 1.5], 1.5, 2), times=[0, 1])
    assert grid.accuracy.shape == (2, 2)
    np.testing.assert_allclose(grid.accuracy[1], path.accuracy, atol=1e-12)
    assert grid.best.at[1] == pytest.approx(path.best.at)
    assert "each of 2 worlds" in str(grid)


def test_a_path_of_three_classes():
    world = fa.ClassPopulation(1.5, 1.5, 2, classes=3)
    path, table = fa.fine_tuning(world, times=[0, 0.5, 1]), fa.predict(world, ["fedavg", "rtfa"])
    assert path.accuracy[0] == pytest.approx(table["fedavg"].accuracy, abs=1e-6)
    assert path.best.scores.accuracy == pytest.approx(table["rtfa"].accuracy, abs=1e-5)
    assert path.accuracy[2] < path.accuracy[1]


def test_no_fine_tuning_for_equal_clients():
    path = fa.fine_tuning(fa.ClassPopulation(0, 1.5, 2), times=[0, 1])
    assert path.best.at == 0


def test_one_step_is_closed_and_best():
    size, best = fa.one_step(WORLD)
    assert best.step == size
    for other in (0.8, 1.25):
        assert fa.one_step(WORLD, size * other)[1].accuracy < best.accuracy
    assert fa.one_step(WORLD, 0)[1].accuracy == pytest.approx(
        fa.predict(WORLD, ["fedavg"])["fedavg"].accuracy, abs=1e-12
    )
    assert fa.one_step(fa.ClassPopulation([1, 2], 1, 2))[0].shape == (2,)
    assert fa.one_step(fa.ClassPopulation(1.5, 1.5, 2, classes=4))[1].accuracy > 0.25


def test_the_ridge_is_near_its_rule():
    """Section 9.1: gamma/(c r^2) loses little; the optimum itself lies within a factor of two on
    this grid.
    """
    world = fa.ClassPopulation(
        np.array([0.5, 1, 2])[:, None, None], np.array([1, 2])[:, None], [0.3, 1, 5]
    )
    ridge = fa.optimal_ridge(world)
    assert ridge.shape == (3, 2, 3)
    rule = np.asarray(world.aspect) / (shrinkage(world.energies) * np.asarray(world.radius) ** 2)
    assert np.all((ridge / rule > 0.5) & (ridge / rule < 2))
    lost = (
        fa.predict(world, ["rtfa"])["rtfa"].accuracy
        - fa.predict(world, ["rtfa"], ridge=rule)["rtfa"].accuracy
    )
    assert lost.max() < 2e-4
    assert fa.optimal_ridge(fa.ClassPopulation(0, 1, 2)) == np.inf
    three = fa.optimal_ridge(fa.ClassPopulation(1.5, 1.5, 2, classes=3))
    assert three == pytest.approx(2 / (0.647836 * 2.25), rel=0.2)


def test_separability():
    half = fa.separability(fa.ClassPopulation(0, 0, 0.4))
    assert half.threshold == pytest.approx(0.5, abs=1e-9)
    assert half.separable is False
    assert "maximum-likelihood" in str(half)
    one = fa.separability(fa.ClassPopulation(0.6, 0.8, 2))
    assert one.threshold == pytest.approx(
        fa.separability(fa.ClassPopulation(1, 0, 2)).threshold, abs=1e-12
    )
    assert one.separable
    assert json.loads(one.to_json())["separable"] is True
    grid = fa.separability(fa.ClassPopulation(1, 1, [0.1, 2]))
    assert grid.separable.tolist() == [False, True]
    assert "50%" in str(grid)


@pytest.mark.parametrize("ridge", [None, 0.01, 0])
@pytest.mark.parametrize("aspect", [0.1, 2])
def test_mixing_weights_repairs(ridge, aspect):
    world = fa.ClassPopulation(1.5, 1.5, aspect, spectrum=TWO)
    mixed = fa.interpolation(world, ridge=ridge)
    assert mixed.mixed.accuracy >= max(mixed.personal.accuracy, mixed.shared.accuracy) - 1e-9
    assert mixed.mixed.accuracy <= fa.predict(world, ["bayes"])["bayes"].accuracy + 1e-9
    assert mixed.direction == (ridge == 0 and aspect == 2)
    if not mixed.direction:
        ends = [
            fa.interpolation(world, ridge=ridge, alpha=alpha).mixed.accuracy for alpha in (0, 1)
        ]
        assert ends == pytest.approx([mixed.shared.accuracy, mixed.personal.accuracy], abs=1e-9)
    assert "alpha" in str(mixed)
    assert json.loads(mixed.to_json())["alpha"] == mixed.alpha


def test_mixing_over_a_grid_and_with_more_classes():
    grid = fa.interpolation(fa.ClassPopulation([1, 2], 1.5, 2), ridge=0.05)
    assert grid.alpha.shape == (2,)
    assert "2 worlds" in str(grid)
    three = fa.interpolation(fa.ClassPopulation(1.5, 1.5, 2, classes=3), ridge=0.05)
    assert three.mixed.accuracy > max(three.personal.accuracy, three.shared.accuracy)


def test_a_diagram_s_boundary_is_where_accuracies_cross():
    world = fa.ClassPopulation(1, 1.5, 1)
    diagram = fa.compare(
        "local_ridge", "fedavg", world, vary={"radius": (0.5, 3, 7), "aspect": [0.2, 0.5, 1.0]}
    )
    assert diagram.winner.shape == (7, 3)
    radius, aspect = diagram.boundary.T
    table = fa.predict(fa.ClassPopulation(radius, 1.5, aspect), ["local_ridge", "fedavg"])
    np.testing.assert_allclose(table["local_ridge"].accuracy, table["fedavg"].accuracy, atol=2e-6)
    assert np.all((diagram.gain > 0) == (diagram.winner == "local_ridge"))
    assert "percentage points" in str(diagram)
    assert json.loads(diagram.to_json())["accuracies"]["first"] == diagram.first_values.tolist()


def test_diagrams_vary_anything():
    line = fa.compare("rtfa", "fedavg", WORLD, vary={"ridge": np.geomspace(0.01, 10, 12)})
    (edge,) = line.boundary[:, 0]
    table = fa.predict(WORLD, ["rtfa", "fedavg"], ridge=edge)
    assert table["rtfa"].accuracy == pytest.approx(table["fedavg"].accuracy, abs=1e-9)
    few = fa.compare(
        "rtfa", "local_ridge", WORLD, vary={"clients": [10, 30]}, member=False, ridge=1.0
    )
    assert np.all(np.diff(few.first_values) > 0)
    flips = fa.compare("rtfa", "fedavg", WORLD, vary={"flips": (0, 0.4, 3)})
    assert np.all(np.diff(flips.first_values) < 0)
    assert not flips.boundary.size
    assert "no boundary" in str(flips)
    three = fa.compare(
        "rtfa", "fedavg", fa.ClassPopulation(1.5, 1.5, 2, classes=3), vary={"ridge": [1.0, 2.0]}
    )
    assert three.winner.tolist() == ["rtfa", "rtfa"]


def test_a_path_from_nothing_is_local_training():
    world, times = fa.ClassPopulation(1.5, 1.5, 2), [0, 0.5, 2, 8]
    path = fa.fine_tuning(world, "local", times=times)
    best = fa.predict(world, ["local_ridge"])["local_ridge"].accuracy
    assert path.best.scores.accuracy == pytest.approx(best, abs=1e-6)
    rng, d, step = np.random.default_rng(0), 200, 0.25
    n, drawn = d // 2, []
    for _ in range(60):
        theta = (1.5 * unit(rng, d)) + (1.5 * unit(rng, d))
        X = rng.standard_normal((n, d))
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)
        w, at = np.zeros(d), []
        for k in range(int(times[-1] / step) + 1):
            if k * step in times[1:]:
                at.append((w @ theta) / np.sqrt((w @ w) * (theta @ theta)))
            w = w + step * X.T @ (y / (1 + np.exp(y * (X @ w)))) / n
        drawn.append(at)
    measured = [accuracy_at(np.array(cosines)) for cosines in np.array(drawn).T]
    assert path.accuracy[0] == 0.5
    np.testing.assert_allclose(path.accuracy[1:], measured, atol=0.006)


def unit(rng, d):
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)


def accuracy_at(cosines):
    """P(sign(w'x) = y) for labels of the logistic model of length sqrt(4.5), by a plain sum."""
    rho = 1.5 * 2**0.5
    z, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    u = z[:, None]
    agree = 1 / (1 + np.exp(-rho * np.abs(u)))  # along theta, the more likely label
    c = np.clip(cosines, -0.999999, 0.999999)
    right = norm.cdf(c * np.abs(u) / np.sqrt(1 - c**2))
    return float((weights[:, None] * (right * agree + (1 - right) * (1 - agree))).sum(0).mean())


def test_which_shared_models_a_path_may_start_from():
    with pytest.raises(fa.NoFormula, match="maml: no accuracy is derived for the pair Meta"):
        fa.fine_tuning(WORLD, "maml")
    with pytest.raises(fa.InvalidInput, match="algorithm is 3: give one name"):
        fa.fine_tuning(WORLD, 3)
    three = fa.ClassPopulation(1.5, 1.5, 2, classes=3)
    path = fa.fine_tuning(three, "local", times=[0, 1])
    assert path.accuracy[0] == pytest.approx(1 / 3)
    assert "from nothing" in path.title
