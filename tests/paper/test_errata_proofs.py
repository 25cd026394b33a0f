"""Misprints of the paper: the proofs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import fedasym as fa

from ..cases import Array, Clients
from .settings import FEW, HALF, LABELS, MANY, apart, close, stieltjes_and_slope

EYE = np.eye(6)


def interpolant_variance(
    clients: Clients, i: int, Q: Array, weigh: list[Array], cross: Array
) -> float:
    """Lines 1200 and 1201, or 1447 and 1448: the terms (i) + (ii) + (iii) of the variance after
    interpolation.

    The shared model is Q sum_j p_j weigh_j X_j'y_j/n_j; `cross` is what (ii) has for p_i weigh_i.
    """
    Sigma, S, n = np.diag(clients.s), clients.S(i), clients.sizes
    inverse = np.linalg.pinv(S)
    Pi = EYE - inverse @ S
    target = Pi @ Sigma @ Pi
    one = sum(
        p**2 * s2 / n[j] * np.trace(target @ Q @ weigh[j] @ clients.S(j) @ weigh[j] @ Q)
        for j, (p, s2) in enumerate(zip(clients.p, clients.noise2, strict=True))
    )
    two = 2 * clients.noise2[i] / n[i] * np.trace(Sigma @ inverse @ S @ cross @ Q @ Pi)
    three = clients.noise2[i] / n[i] * np.trace(inverse @ Sigma)
    return one + two + three


@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1201_cross_term_of_ftfa_lacks_the_weight(i: int) -> None:
    """The cross term (ii) must have the factor p_i."""
    Q = np.linalg.inv(sum(p * FEW.S(j) for j, p in enumerate(FEW.p)))
    right, printed = (
        interpolant_variance(FEW, i, Q, [EYE] * 3, factor * EYE) for factor in (FEW.p[i], 1)
    )
    exact = FEW.variance(FEW.model("ftfa", i))
    close(right, exact, rel=1e-10)
    apart(printed, exact, rel=1e-3)


@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1448_1482_1483_cross_term_of_maml(i: int) -> None:
    """(ii) needs the factor p_i, W_i for W_j (line 1448), and (I - alpha S_i)^2 for (I - S_i)^2
    (lines 1482 and 1483).
    """
    alpha, other = 0.15, (i + 1) % 3
    weigh = [np.linalg.matrix_power(EYE - alpha * FEW.S(j), 2) for j in range(3)]
    Q = np.linalg.inv(sum(p * FEW.S(j) @ weigh[j] for j, p in enumerate(FEW.p)))
    exact = FEW.variance(FEW.model("maml", i, alpha=alpha))
    X, W = FEW.X[i], np.eye(4) - alpha / 4 * FEW.X[other] @ FEW.X[other].T
    swapped = np.linalg.pinv(FEW.S(i)) @ X.T @ W @ W @ X / 4  # S_i^+ X_i' W_j^2 X_i/n_i
    plain = np.linalg.matrix_power(EYE - FEW.S(i), 2)
    close(interpolant_variance(FEW, i, Q, weigh, FEW.p[i] * weigh[i]), exact, rel=1e-10)
    for cross in (swapped, weigh[i], FEW.p[i] * swapped, FEW.p[i] * plain):
        apart(interpolant_variance(FEW, i, Q, weigh, cross), exact, rel=1e-3)


def test_erratum_1256_squares_of_the_shared_objective() -> None:
    """Without the squares the minimiser is another one: the closed form is not stationary for sum_j
    p_j/(2 n_j) ||.||.
    """
    theta = MANY.fedavg(LABELS)
    squared = sum(p * MANY.gradient(LABELS, j, theta) for j, p in enumerate(MANY.p))
    assert np.abs(squared).max() < 1e-12
    lengths = [np.linalg.norm(X @ theta - y) for X, y in zip(MANY.X, LABELS, strict=True)]
    printed = sum(
        p * MANY.gradient(LABELS, j, theta) / (2 * lengths[j]) for j, p in enumerate(MANY.p)
    )
    assert np.abs(printed).max() > 1e-3


def test_erratum_1264_ridge_is_towards_the_shared_model() -> None:
    """theta_FA must be theta_0^FA: the client's own theta_i^FA interpolates, and ridge towards it
    never moves.
    """
    y = [np.random.default_rng(51 + j).standard_normal((4, 1)) for j in range(3)]
    shared = FEW.fedavg(y)
    own = FEW.interpolate(y, 0, shared)
    for lam in (0.1, 10):
        closed = np.linalg.solve(FEW.S(0) + lam * EYE, lam * shared + FEW.X[0].T @ y[0] / 4)
        close(closed, FEW.model("rtfa", 0, lam=lam)(y), rel=1e-10)
        stuck = np.linalg.solve(FEW.S(0) + lam * EYE, lam * own + FEW.X[0].T @ y[0] / 4)
        close(stuck, own, rel=1e-10)
        apart(closed, stuck)


OPTIMA = np.random.default_rng(61).standard_normal((3, 6)) + 1


def test_erratum_1383_bias_of_maml_is_in_the_norm_of_sigma() -> None:
    """The first norm of the bias must be that of Sigma_i, as in the next line."""
    alpha = 0.15
    A = [FEW.S(j) @ np.linalg.matrix_power(EYE - alpha * FEW.S(j), 2) for j in range(3)]
    Q = np.linalg.inv(sum(p * a for p, a in zip(FEW.p, A, strict=True)))
    for i in range(3):
        off = Q @ sum(
            p * a @ (theta - OPTIMA[i]) for p, a, theta in zip(FEW.p, A, OPTIMA, strict=True)
        )
        left = (EYE - np.linalg.pinv(FEW.S(i)) @ FEW.S(i)) @ off
        exact = FEW.bias(FEW.model("maml", i, alpha=alpha), i, OPTIMA)
        close(FEW.s @ left**2, exact, rel=1e-9)
        apart(left @ left, exact, rel=0.01)


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_erratum_1416_expansion_of_maml_weights(alpha: float) -> None:
    """S (I - alpha S)^2 = S - 2 alpha S^2 + alpha^2 S^3; 2 alpha^2 agrees at alpha = 1 only."""
    S = FEW.S(0)
    exact = S @ np.linalg.matrix_power(EYE - alpha * S, 2)
    right, printed = (S - 2 * a * S @ S + alpha**2 * S @ S @ S for a in (alpha, alpha**2))
    np.testing.assert_allclose(right, exact, atol=1e-12)
    assert np.allclose(printed, exact, atol=1e-12) == (alpha == 1)


@pytest.mark.parametrize("q", [3, 4])
def test_erratum_1435_exponent_of_the_step_in_the_moments_of_the_bias(q: int) -> None:
    """||S (I - alpha S)^2||^q <= (4^q/2) (||S||^q + alpha^(2q) ||S||^(3q)); with alpha^2 the bound
    fails for large steps.
    """
    for s, alpha in product((0.5, 1.0, 3.0), (0.1, 1.0, 10.0, 100.0)):
        moment = abs(s * (1 - alpha * s) ** 2) ** q
        assert moment <= 4**q / 2 * (s**q + alpha ** (2 * q) * s ** (3 * q))
    assert moment > 4**q / 2 * (s**q + alpha**2 * s ** (3 * q))


@pytest.mark.parametrize("q", [3, 4])
def test_erratum_1468_exponents_in_the_moments_of_the_variance(q: int) -> None:
    """||S (I - alpha S)^4||^q <= 2^(4q-1) (||S||^q + alpha^(4q) ||S||^(5q)).

    With alpha^4 the bound fails for large steps; with ||S|| for ||S||^q (from line 1466 on) for
    large S and small steps.
    """
    for s, alpha in product((0.5, 1.0, 3.0, 1e4), (1e-9, 0.1, 1.0, 10.0, 100.0)):
        moment = abs(s * (1 - alpha * s) ** 4) ** q
        assert moment <= 2 ** (4 * q - 1) * (s**q + alpha ** (4 * q) * s ** (5 * q))
    assert abs(1 * (1 - 100.0) ** 4) ** q > 2 ** (4 * q - 1) * (1 + 100.0**4)
    s, alpha = 1e4, 1e-9
    assert abs(s * (1 - alpha * s) ** 4) ** q > 2 ** (4 * q - 1) * (
        s + alpha ** (4 * q) * s ** (5 * q)
    )


def test_erratum_1463_step_in_the_event() -> None:
    """The event is about S (I - alpha S)^4: with (I - S)^4 Markov's inequality of that line fails,
    here for S = 3 I.
    """
    S, alpha, p, t = 3 * np.eye(2), 0.3, 0.5, 1.0

    def size(step: float) -> float:
        return 2 * p**2 * np.linalg.norm(S @ np.linalg.matrix_power(np.eye(2) - step * S, 4), 2)

    assert float(size(1.0) > t) > size(alpha) / t
    assert float(size(alpha) > t) <= size(alpha) / t


def prox_variance(clients: Clients, i: int, lam: float, power: int, twos: float) -> float:
    """Lines 1664 to 1666: T_j^power S_j T_j^power in (i), `twos` in front of (ii); printed with 1
    and 4.
    """
    T = [clients.S(j) + lam * EYE for j in range(3)]
    inverse = [np.linalg.inv(t) for t in T]
    Q = np.linalg.inv(EYE - lam * sum(p * t for p, t in zip(clients.p, inverse, strict=True)))
    Sigma, n, s2 = np.diag(clients.s), clients.sizes, clients.noise2
    target = inverse[i] @ Sigma @ inverse[i]
    around = [np.linalg.matrix_power(t, power) for t in T]
    one = sum(
        lam**2
        * p**2
        * s2[j]
        / n[j]
        * np.trace(target @ Q @ around[j] @ clients.S(j) @ around[j] @ Q)
        for j, p in enumerate(clients.p)
    )
    cross = np.trace(Sigma @ inverse[i] @ Q @ inverse[i] @ clients.S(i) @ inverse[i])
    return (
        one
        + twos * lam * s2[i] * clients.p[i] / n[i] * cross
        + s2[i] / n[i] * np.trace(target @ clients.S(i))
    )


@pytest.mark.parametrize("lam", [0.3, 1.0])
@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1664_1680_1665_1690_variance_of_pfedme(i: int, lam: float) -> None:
    """(i) has T_j^-1 S_j T_j^-1, not T_j S_j T_j (lines 1664, 1680); (ii) has one factor 2, not two
    (1665, 1690).
    """
    exact = FEW.variance(FEW.model("pfedme", i, lam=lam))
    close(prox_variance(FEW, i, lam, power=-1, twos=2), exact, rel=1e-10)
    for power, twos in ((1, 2), (-1, 4), (1, 4)):
        apart(prox_variance(FEW, i, lam, power, twos), exact, rel=0.01)


@pytest.mark.parametrize("lam", [0.3, 2.0])
def test_erratum_1652_bias_of_pfedme_has_the_squared_ridge(lam: float) -> None:
    """B -> lam^2 ||T^-1 (theta_0 - theta_i)||^2_Sigma as E = lam Q^-1 sum p_j T_j^-1 S_j Delta_j
    vanishes; lam^2 is missing.
    """
    shared, i = np.linspace(-1, 1, 6), 0
    inverse = [np.linalg.inv(FEW.S(j) + lam * EYE) for j in range(3)]
    Q = np.linalg.inv(EYE - lam * sum(p * t for p, t in zip(FEW.p, inverse, strict=True)))
    error = Q @ sum(FEW.p[j] * inverse[j] @ FEW.S(j) @ (OPTIMA[j] - shared) for j in range(3))
    exact = FEW.bias(FEW.model("pfedme", i, lam=lam), i, OPTIMA)

    def size(vector: Array) -> float:
        return FEW.s @ (inverse[i] @ vector) ** 2

    close(size(lam * (shared - OPTIMA[i]) + lam * error), exact, rel=1e-9)
    apart(size(lam * (shared - OPTIMA[i]) + error), exact)
    # A client of negligible weight among others that sit at theta_0: E vanishes.
    tiny = Clients(FEW.X, FEW.s, np.array([1e-9, 0.5, 0.5]), FEW.noise2)
    limit = tiny.bias(tiny.model("pfedme", i, lam=lam), i, np.stack([OPTIMA[i], shared, shared]))
    close(lam**2 * size(shared - OPTIMA[i]), limit, rel=1e-7)
    apart(size(shared - OPTIMA[i]), limit, rel=0.5)


@pytest.mark.parametrize("p", [3, 4])
def test_erratum_952_953_khintchine_lacks_a_root(p: int) -> None:
    """Line 953 must have the exponent 1/2 of the lines around it: without, it equals neither, and
    bounds nothing.
    """
    x = np.random.default_rng(71).standard_normal((5, 3))
    signs = np.array(list(product((-1, 1), repeat=5)))
    for scale in (1.0, 0.01):
        lengths = np.linalg.norm(signs @ (scale * x), axis=1)
        left = np.mean(lengths**p) ** (1 / p)
        line_952 = np.sqrt(p - 1) * np.mean(lengths**2) ** 0.5
        inner = np.mean([(scale * sign @ x) @ (scale * sign @ x) for sign in signs])
        line_954 = np.sqrt(p - 1) * scale * np.linalg.norm(x)
        printed, right = np.sqrt(p - 1) * inner, np.sqrt(p - 1) * inner**0.5
        close([line_952, line_954], right)
        apart(printed, right)
        assert left <= right
    assert left > printed  # at the smaller scale


def test_erratum_corollary_1_expansion_is_right_with_a_negative_constant() -> None:
    """C (rho^2 - r^2) is fine, but C < 0: uncorrelated, C = -lam*^2 m'(-lam*), so sharing helps,
    the more the larger rho.
    """
    C = -(stieltjes_and_slope(1.0, 2.0)[1])
    norms = np.sqrt(1 + np.array([1e-6, 2e-6, 4e-6]))
    table = fa.predict(fa.Population(1, HALF, 2, norm=norms), ["rtfa", "local_ridge"])
    change = table["rtfa"].loss - table["local_ridge"].loss
    assert np.all(np.diff(change) < 0)
    close(change / (norms**2 - 1), C, rel=1e-5)
