"""The shared model's error over rounds: golden numbers, closed forms, other quadratures, simulated
rounds.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from fedasym.theory.filters import DescentFilter
from fedasym.theory.rounds import (
    ErrorEnergies,
    Moments,
    MoveLengths,
    Round,
    StepFilter,
    advance_energies,
    fourth_moments,
    integrate_moments,
    mean_filter,
    moments_of_ridge,
    moments_of_steps,
)
from fedasym.theory.transforms import marchenko_pastur
from fedasym.worlds import spectra

CASES = json.loads((Path(__file__).parent / "golden_rounds.json").read_text())["cases"]
IDENTITY = spectra.identity()
TWO = spectra.atoms([0.5, 3.0], [0.6, 0.4])


def steps(count, size, gamma, spectrum):
    found = moments_of_steps(DescentFilter(np.array([float(count)]), size), gamma, spectrum)
    return Moments(found.p[0], found.T[0], found.nu[0])


def rule(cohort, step=1.0, clip=np.inf, noise=0.0, dimension=0):
    return Round(*(np.asarray(float(x)) for x in (cohort, 1, step, clip, noise, dimension)))


def following(M, moments, own, server, shares):
    """One round of all energies together."""
    M = M[..., None]  # endlessly many clients: their mean move is p
    law = mean_filter(moments, np.asarray(np.inf))
    own = ErrorEnergies(own, 0 * own)
    after, moves = advance_energies(ErrorEnergies(M, 0 * M), moments, own, server, shares, law)
    length = moves.length
    return after.total[..., 0], length


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_rounds(case):
    w = case["world"]
    spectrum = spectra.atoms(w["s"], w["h"])
    found = steps(w["K"], w["eta"], w["gamma"], spectrum)
    for name in ("p", "T", "nu"):
        np.testing.assert_allclose(getattr(found, name), case[name], rtol=1e-12)
    shares, M, energies, lengths = np.array(w["h"]), w["b2"] * np.array(w["h"]), [], []
    server = rule(w["D"], w.get("server", 1), w.get("clip", np.inf), w.get("z", 0), w.get("d", 0))
    own = found.kept_energy(w["r2"] * np.array(w["g"])) + w["s2"] * found.nu
    for _ in range(w["rounds"] + 1):
        energies.append(M)
        M, length = following(M, found, own, server, shares)
        lengths.append(length)
    np.testing.assert_allclose([energies[t] for t in case["rounds"]], case["energy"], rtol=1e-10)
    np.testing.assert_allclose(
        [lengths[t] for t in (0, 1, 4, 19, 99)], case["update_norm"], rtol=1e-10
    )


@pytest.mark.parametrize("gamma", [0.01, 0.3, 1.0, 4.0, 100.0])
@pytest.mark.parametrize("count", [1, 30, 1000])
def test_uncorrelated_features_by_the_marchenko_pastur_law(gamma, count):
    size = 0.9 / (1 + np.sqrt(gamma)) ** 2
    law = marchenko_pastur(np.array([gamma]), 300)
    x = law.x
    f = -np.expm1(count * np.log1p(-size * x))
    found = steps(count, size, gamma, IDENTITY)
    np.testing.assert_allclose(found.p, law.mean(f), rtol=1e-10)
    np.testing.assert_allclose(found.p**2 + found.T[0], law.mean(f**2), rtol=1e-10)
    noise = np.where(x > 0, f**2 / np.where(x > 0, x, 1), 0)
    np.testing.assert_allclose(found.nu, gamma * law.mean(noise), rtol=1e-10)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
def test_one_step_is_a_polynomial_whatever_the_condition_number(gamma):
    """With one step P = eta S, whose moments are exact: E[S M S]_k = s_k^2 M_k + gamma h_k s_k sum
    s_l M_l.
    """
    s, h = np.geomspace(1e-6, 1, 50), np.full(50, 0.02)
    size = 0.5 / (1 + np.sqrt(gamma)) ** 2
    found = steps(1, size, gamma, spectra.atoms(s, h))
    np.testing.assert_allclose(found.p, size * s, rtol=1e-9)
    np.testing.assert_allclose(found.T, size**2 * gamma * np.outer(h * s, s), rtol=1e-9)
    np.testing.assert_allclose(found.nu, size**2 * gamma * h * s, rtol=1e-9)


@pytest.mark.parametrize("gamma", [0.3, 3.0])
def test_long_flow_converges_to_the_proximal_step_without_penalty(gamma):
    ends = moments_of_ridge(0.0, gamma, TWO)
    near = moments_of_steps(DescentFilter(np.array([1e3]), None), gamma, TWO)
    np.testing.assert_allclose(near.p[0], ends.p, rtol=1e-6)
    np.testing.assert_allclose(near.T[0], ends.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(near.nu[0], ends.nu, rtol=1e-5)


def test_a_thousand_steps_at_a_condition_number_of_a_million():
    """Fifty atoms of four features each: P and P M P summed over rows and columns, and the noise,
    of drawn covariances.
    """
    per, clients, s = 4, 10, np.geomspace(1e-6, 1, 50)
    d, h = 50 * per, np.full(50, 0.02)
    count, size = 1000, 0.2
    found, rng, rows = steps(count, size, 1.0, spectra.atoms(s, h)), np.random.default_rng(0), []
    for _ in range(clients):
        X = rng.standard_normal((d, d)) * np.sqrt(np.repeat(s, per))
        x, V = np.linalg.eigh(X.T @ X / d)
        f = -np.expm1(count * np.log1p(-size * np.maximum(x, 0)))
        P = (V * f) @ V.T
        squares = (P**2).reshape(50, per, 50, per).sum((1, 3)) / per
        noise = np.where(x > 1e-14, f**2 / np.maximum(x, 1e-14), 0)
        fitted = np.diagonal((V * noise) @ V.T).reshape(50, per).sum(1) / d
        shares = np.diagonal(P).reshape(50, per).mean(1)
        rows.append([*shares, *squares.sum(0), *squares.sum(1), *fitted])
    drawn, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(clients)
    full = np.diag(found.p**2) + found.T
    expected = np.concatenate([found.p, full.sum(0), full.sum(1), found.nu])
    assert np.all(np.abs(drawn - expected) < 5 * error + 0.02 * expected)
    assert np.mean(np.abs(drawn - expected) / (error + 1e-12)) < 1.5


def test_many_steps_are_those_of_one_at_a_time():
    counts = np.unique(np.geomspace(1, 1000, 60).round())  # so many share a basis of filters
    together = moments_of_steps(DescentFilter(counts, 0.05), 1.5, TWO)
    for i, count in enumerate(counts):
        alone = steps(count, 0.05, 1.5, TWO)
        np.testing.assert_allclose(together.T[i], alone.T, rtol=1e-9)
        np.testing.assert_allclose(together.nu[i], alone.nu, rtol=1e-9)


def test_directions_without_variation_do_not_move():
    wide = steps(5, 0.1, 0.7, spectra.atoms([0.0, 1.0, 2.0], [0.2, 0.4, 0.4]))
    assert wide.p[0] == wide.nu[0] == 0
    assert np.all(wide.T[0] == 0)
    assert np.all(wide.T[:, 0] == 0)


def drawn_moments(f, gamma, d, clients, rng):
    """p, E[PMP] per unit energy on each atom, nu: from drawn sample covariances of two atoms."""
    n, half = round(d / gamma), round(0.6 * d)
    scale = np.sqrt(np.where(np.arange(d) < half, 0.5, 3.0))
    rows = []
    for _ in range(clients):
        X = rng.standard_normal((n, d)) * scale
        x, V = np.linalg.eigh(X.T @ X / n)
        x = np.maximum(x, 0)
        P = (V * f(x)) @ V.T
        noise = np.diagonal((V * np.where(x > 1e-9, f(x) ** 2 / np.maximum(x, 1e-9), 0)) @ V.T) / n
        parts = slice(0, half), slice(half, d)
        row = [np.mean(np.diagonal(P)[part]) for part in parts]
        row += [
            np.sum(P[one, other] ** 2) / (other.stop - other.start)
            for one in parts
            for other in parts
        ]
        rows.append([*row, *(noise[part].sum() for part in parts)])
    rows = np.array(rows)
    return rows.mean(0), rows.std(0, ddof=1) / np.sqrt(clients)


@pytest.mark.parametrize("kind", ["steps", "prox", "converged"])
def test_drawn_covariances(kind):
    gamma = 1.5
    forms = {
        "steps": (lambda x: 1 - (1 - 0.08 * x) ** 10, lambda: steps(10, 0.08, gamma, TWO)),
        "prox": (lambda x: x / (x + 0.4), lambda: moments_of_ridge(0.4, gamma, TWO)),
        "converged": (
            lambda x: np.where(x > 1e-9, 1.0, 0.0),
            lambda: moments_of_ridge(0.0, gamma, TWO),
        ),
    }
    f, theory = forms[kind]
    found = theory()
    drawn, error = drawn_moments(f, gamma, 300, 24, np.random.default_rng(5))
    full = np.diag(found.p**2) + found.T
    expected = np.concatenate([found.p, full.ravel(), found.nu])
    assert np.all(np.abs(drawn - expected) < 4 * error + 3 / 300 * np.abs(expected))


def test_clipping_shortens_and_noise_adds():
    found = steps(5, 0.1, 2.0, IDENTITY)
    own = found.kept_energy(np.ones(1)) + 0.25 * found.nu
    M = np.array([3.0])
    free, length = following(M, found, own, rule(50), np.ones(1))
    loose, _ = following(M, found, own, rule(50, clip=length * 1.01), np.ones(1))
    tight, _ = following(M, found, own, rule(50, clip=length / 2), np.ones(1))
    half, _ = following(M, found, own, rule(50, step=0.5), np.ones(1))
    np.testing.assert_allclose(loose, free)
    np.testing.assert_allclose(tight, half)
    noisy, _ = following(
        M, found, own, rule(50, clip=length / 2, noise=2.0, dimension=100), np.ones(1)
    )
    np.testing.assert_allclose(noisy - tight, 100 * (2 * (length / 2) / 50) ** 2)


def test_the_filter_of_a_stage_comes_from_its_own_step():
    """Average's step is plain descent; FedProx's converges to the proximal step; MAML's is the
    polynomial of its code.
    """
    from fedasym.algorithms import Average, Meta, ServerStage, setting

    class Prox(ServerStage):
        penalty: float = setting(0.4, above=0)

        def step(self, w, start, gradient, rate):
            return w - rate * (gradient(w) + self.penalty * (w - start))

    def of(stage, count):
        found = integrate_moments(StepFilter(stage, np.array([float(count)]), 0.08), 1.5, TWO)
        return Moments(found.p[0], found.T[0], found.nu[0])

    pairs = [
        (of(Average(), 10), steps(10, 0.08, 1.5, TWO)),
        (of(Prox(), np.inf), moments_of_ridge(0.4, 1.5, TWO)),
    ]
    pairs.append((of(Prox(), 20_000), moments_of_ridge(0.4, 1.5, TWO)))
    for found, expected in pairs:
        for name in ("p", "T", "nu"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8)
    x = np.array([0.3, 1.0, 4.0])
    f = StepFilter(Meta(local_step=0.1), np.array([1.0]), 0.08).learn(x)[0]
    np.testing.assert_allclose(f, 0.08 * x * (1 - 0.1 * x) ** 2)


def test_the_mean_move_of_few_clients_has_weak_directions():
    """Eigenvalues of (1/m) sum P_i for 20 drawn clients: the error that is left after 6 rounds in
    which all take part, beside the law's, and beside fresh clients in every round.
    """
    gamma, m, d, t = 2.0, 20, 300, 6
    rng = np.random.default_rng(3)
    mean = np.zeros((d, d))
    for _ in range(m):
        X = rng.standard_normal((round(d / gamma), d))
        x, V = np.linalg.eigh(X.T @ X / len(X))
        mean += (V * (1 - (1 - 0.1 * x) ** 5)) @ V.T / m
    left = np.mean((1 - np.linalg.eigvalsh(mean)) ** (2 * t))
    found = steps(5, 0.1, gamma, IDENTITY)
    law = mean_filter(found, np.asarray(float(m)))
    assert law.mean((1 - law.x) ** (2 * t))[0] == pytest.approx(left, rel=0.03)
    fresh = ((1 - found.p[0]) ** 2 + found.T[0, 0] / m) ** t
    assert fresh < 0.85 * left
    assert law.weights.sum() == pytest.approx(1)
    assert law.mean(law.x)[0] == pytest.approx(found.p[0])
    assert law.mean(law.x**2)[0] - found.p[0] ** 2 == pytest.approx(found.T[0, 0] / m)


def test_lengths_vary_as_those_of_drawn_clients():
    """A shared error that all clients have in common, displacements and label noise of their own;
    one step, some, and local training to convergence.
    """
    d, n, r2, s2, M, step = 90, 60, 0.5, 0.4, 1.5, 0.1
    spectrum = spectra.atoms([0.6, 1.4], [0.5, 0.5])
    work = DescentFilter(np.array([1.0, 6.0, np.inf]), step)
    moments = moments_of_steps(work, d / n, spectrum)
    second = moments.kept_energy(np.tile(spectrum.weights, (3, 1))).sum(-1)
    fitted = s2 * moments.nu.sum(-1)
    square = (M + r2) * second + fitted
    fourth = fourth_moments(work, d / n, spectrum)
    law = MoveLengths(second, fourth, np.full(3, s2 * d / n), np.full(3, float(d)))
    rng = np.random.default_rng(2)
    scale = np.sqrt(np.repeat(spectrum.values, d // 2))
    error = rng.standard_normal(d)
    error *= np.sqrt(M) / np.linalg.norm(error)
    lengths = []
    for _ in range(400):
        u, s, v = np.linalg.svd(
            rng.standard_normal((n, d)) * scale / np.sqrt(n), full_matrices=False
        )
        f = np.stack([step * s**2, 1 - (1 - step * s**2) ** 6, np.ones(n)])
        own = error + rng.standard_normal(d) * np.sqrt(r2 / d)
        noise = rng.standard_normal(n) * np.sqrt(s2 / n)
        lengths.append(np.linalg.norm(f * (v @ own) + f / s * (u.T @ noise), axis=1))
    mean, deviation = np.mean(lengths, axis=0), np.std(lengths, axis=0)
    np.testing.assert_allclose(mean, np.sqrt(square), rtol=0.02)
    spread = law.spread(square, M * second, fitted)
    np.testing.assert_allclose(deviation / mean, spread, rtol=0.15)
