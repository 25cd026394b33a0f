"""Estimates from class labels, each piece against the long way round."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.advice import describe_classes
from fedasym.advisor.class_estimates import constrain_total, estimate_world, look_at_clients
from fedasym.advisor.class_statistics import (
    FIRM_RIDGE,
    ProbeRecorder,
    pool_classes,
    probe_ratios,
    view_client,
)
from fedasym.advisor.crosscheck import foresee_accuracies
from fedasym.advisor.data import read_classes
from fedasym.theory.classes.squared_labels import (
    LabelModel,
    Link,
    best_label_ridge,
    fit_squares,
    least_squares_state,
    probe_accuracy,
    shared_error,
)
from fedasym.worlds.classes import Energies


@pytest.fixture(scope="module", params=[(2, 8), (2, 30), (3, 8), (3, 30)], ids=str)
def small(request, class_world):
    """Two or three classes, fewer or more samples than the 12 features."""
    classes, samples = request.param
    X, y, _ = class_world.but(clients=15, dimension=12, samples=samples, classes=classes).draw(3)
    taken, shared = pool_classes(read_classes(X, y))
    return X, y, taken, shared


def ridged(X, Y, ridge):
    return np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ Y)


def others(X, Y, i, shared):
    """The model of all clients but one, fitted again."""
    rest = [j for j in range(len(X)) if j != i]
    ridge = FIRM_RIDGE * np.trace(shared.S) / len(shared.S)
    return ridged(np.concatenate([X[j] for j in rest]), np.concatenate([Y[j] for j in rest]), ridge)


def test_residuals_about_the_others_are_those_of_a_refit(small):
    X, y, taken, shared = small
    Y = [taken.targets(np.asarray(v, float)) for v in y]
    for i in (0, 7):
        client = view_client(shared, X[i], Y[i])
        theta = others(X, Y, i, shared)
        assert client.about == pytest.approx(Y[i] - X[i] @ theta, abs=1e-8)
        assert shared.without(client) == pytest.approx(theta, abs=1e-8)


def test_what_the_others_leave_in_a_residual_is_the_covariance_of_their_model(small):
    X, y, taken, shared = small
    i, rest = 4, [j for j in range(15) if j != 4]
    client = view_client(shared, X[i], taken.targets(np.asarray(y[i], float)))
    ridge = FIRM_RIDGE * np.trace(shared.S) / 12
    inverse = np.linalg.inv(sum(X[j].T @ X[j] for j in rest) + ridge * np.eye(12))
    squared = sum((X[j].T @ X[j]) @ (X[j].T @ X[j]) for j in rest)
    along = client.U.T @ X[i]
    assert client.noise == pytest.approx(np.diag(along @ inverse @ along.T), rel=1e-4, abs=1e-9)
    assert client.shift == pytest.approx(
        np.diag(along @ inverse @ squared @ inverse @ along.T), rel=1e-4, abs=1e-9
    )


def test_probes_leave_out_each_sample_as_a_refit_does(small):
    X, y, taken, shared = small
    i = 2
    Y = taken.targets(np.asarray(y[i], float))
    ratios = probe_ratios(float(np.trace(shared.S)), taken.data.sizes, 12)
    client, probing = view_client(shared, X[i], Y), ProbeRecorder(taken, ratios)
    theta = shared.without(client)
    for about, start in ((client.about, theta), (Y, 0 * theta)):
        found = probing.leave_one_out_accuracies(client, about, np.asarray(y[i]))
        for place in (2, 7, 12):
            right = []
            for k in range(len(Y)):
                kept = np.arange(len(Y)) != k
                move = ridged(X[i][kept], about[kept], probing.ratios[place])
                right.append(taken.guess((X[i][k] @ (start + move))[None])[0] == y[i][k])
            assert found[place] == pytest.approx(np.mean(right))
    held = probing.held_out_hits(client, client.about, X[3], X[3] @ theta, np.asarray(y[3]))
    move = ridged(X[i], client.about, probing.ratios[7])
    assert held[7].tolist() == (taken.guess(X[3] @ (theta + move)) == y[3]).tolist()


def test_links_are_those_of_the_theory():
    energies = Energies.isotropic(1.5, 1.5)
    found = fa.predict(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), ["rtfa_squares"])[
        "rtfa_squares"
    ]
    world = world_of(2)
    assert float(Link(2).slope(world.rho)) == pytest.approx(
        0.292117193, rel=1e-6
    )  # the theory's own reference number
    assert probe_accuracy(world, 2.0, best_label_ridge(world, 2.0)) == pytest.approx(
        found.accuracy, abs=1e-6
    )
    assert float(energies.rho) == pytest.approx(world.rho, rel=1e-6)


def world_of(classes, centre=1.5, radius=1.5):
    """A world with these lengths and uncorrelated features."""
    link, spectrum = Link(classes), fa.spectra.identity()
    rho = np.hypot(centre, radius)
    scale = float(link.slope(rho)) ** 2
    return LabelModel(
        link, scale * radius**2, scale * centre**2, spectrum, spectrum.weights, spectrum.weights
    )


def test_worlds_have_the_lengths_that_they_are_made_of():
    for classes in (2, 5):
        world = world_of(classes, 2.0, 1.0)
        assert (world.centre, world.radius) == pytest.approx((2.0, 1.0), rel=1e-5)
        assert not world.strange


@pytest.mark.parametrize("ridge", [0.3, 5.0, np.inf])
def test_least_squares_around_the_model_of_infinitely_many_clients(ridge):
    world = world_of(2)
    state = fit_squares(Energies.isotropic(1.5, 1.5), 2.0, ridge).state
    assert least_squares_state(world, 2.0, ridge) == pytest.approx(
        (float(state.T), float(state.Q)), rel=1e-5
    )


def test_an_error_of_the_shared_model_costs_accuracy_and_a_larger_step_makes_good_for_it():
    world = world_of(2)
    error = shared_error(world, (0.02, 0.01))
    assert probe_accuracy(world, 2.0, np.inf, error) < probe_accuracy(world, 2.0, np.inf) - 0.01
    assert best_label_ridge(world, 2.0, error) < best_label_ridge(world, 2.0)


def test_the_constraint_is_met_in_the_metric_of_the_errors():
    rng = np.random.default_rng(0)
    influence = rng.standard_normal((30, 3)) * [1.0, 0.1, 2.0]
    weights, point = np.array([1.0, 2.0, 1.0]), np.array([0.3, 0.2, 0.5])
    moved, left = constrain_total(point, influence, weights, 1.0)
    assert weights @ moved == pytest.approx(1.0)
    assert left @ weights == pytest.approx(0.0, abs=1e-12)
    metric = np.linalg.inv(influence.T @ influence)
    other = (
        moved + np.array([1.0, 0.0, -1.0]) * 0.01
    )  # another point with the same sum is further away
    assert (moved - point) @ metric @ (moved - point) < (other - point) @ metric @ (other - point)


def test_estimates_are_right_on_average(class_world):
    seen = [
        look_at_clients(read_classes(*class_world.but(correlation=0.5).draw(seed)[:2]))
        for seed in range(30, 38)
    ]
    found = [
        describe_classes(each.found, estimate_world(each.found, 2), each) for each in seen
    ]  # of advice, what comes first
    assert np.mean([each.radius.value for each in found]) == pytest.approx(1.5, rel=0.12)
    assert np.mean([each.centre.value for each in found]) == pytest.approx(1.5, rel=0.08)


def test_a_shared_optimum_along_strong_features_is_seen(class_world):
    rng = np.random.default_rng(0)
    s = 3.0 / (1 + np.arange(50)) ** 0.8
    centre = rng.standard_normal(50) * s
    centre *= 2.0 / np.linalg.norm(centre)
    X = [rng.standard_normal((60, 50)) * np.sqrt(s) for _ in range(40)]
    theta = centre + 0.8 * rng.standard_normal((40, 50)) / np.sqrt(50)
    y = [(x @ t + rng.logistic(size=60) > 0).astype(int) for x, t in zip(X, theta, strict=True)]
    seen = look_at_clients(read_classes(X, y))
    world = estimate_world(seen.found, 2)
    values = world.spectrum.values
    lifted = float(values**2 @ world.energies.e0) / float(values @ world.energies.e0)
    truth = float(s**2 @ centre**2) / float(s @ centre**2)
    assert lifted == pytest.approx(truth, rel=0.25)
    assert float(world.energies.b0) == pytest.approx(float(s @ centre**2), rel=0.35)


def test_the_quick_form_says_the_same(class_world):
    X, y, _ = class_world.draw(9)
    federation = fa.Federation.from_arrays(
        np.concatenate(X), np.concatenate(y), np.repeat(np.arange(40), 50), split=(1, 0, 0)
    )
    quick, full = foresee_accuracies(federation), advise(X, y, intercept=False).predictions
    for name, row in full.items():
        assert quick[name].theory == pytest.approx(row.accuracy.value, abs=1e-9)
        assert quick[name].samples == row.measured
    fewer = foresee_accuracies(federation, clients=20, features=30)
    for name in ("fedavg", "rtfa"):
        assert fewer[name].theory == pytest.approx(full[name].accuracy.value, abs=0.06)
