"""What the tests of the paper share: populations, clients, comparisons, the printed Stieltjes
transform.

Every theorem, corollary and claim of the paper is a test, and every misprint is shown to be one.
Line numbers refer to the paper's source. The corrected mathematics is in docs/notation.md; (4) or
(13) are its equations. A misprint is shown by evaluating the printed formula: it disagrees with
exact linear algebra, the corrected one does not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedasym as fa

from ..cases import IDENTITY, THREE_ATOM, TWO_ATOM, Array, draw_clients, spectrum

SPECTRA = {
    "identity": IDENTITY,
    "two_atom": TWO_ATOM,
    "three_atom": THREE_ATOM,
    "ar1": spectrum("ar1_0.5_64"),
    "power": spectrum("power_1_64"),
}
over_spectra = pytest.mark.parametrize("covariance", SPECTRA.values(), ids=SPECTRA)
# Radius, noise and aspect of a grid of worlds; norm is the length of a client's optimum.
GRID = {
    "radius": np.array([0.5, 1, 2])[:, None, None],
    "noise": np.array([0.1, 0.7, 1.5])[:, None],
    "aspect": np.array([1.2, 2, 7]),
}
HALF = (
    0.5**0.5
)  # the noise of the worked example: variance 1/2, at aspect 2 exactly on FTFA's threshold
EXAMPLE = fa.Population(radius=1, noise=HALF, aspect=2)
FINITE_SIZE = 0.02  # relative deviation of one draw in 500 dimensions from its limit


def close(found: object, wanted: object, rel: float = 1e-12) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rel, atol=0)


def apart(found: float | Array, wrong: float | Array, rel: float = 0.05) -> None:
    """Differ by more than a share of the larger, in length for vectors."""
    size, other, gap = (np.linalg.norm(x) for x in (found, wrong, np.subtract(found, wrong)))
    assert gap > rel * max(size, other)


def shows(found: float, digits: str) -> None:
    """Rounded to as many decimals as `digits` has, it reads the same."""
    assert f"{found:.{len(digits.partition('.')[2])}f}" == digits


def stieltjes_identity(z: complex, gamma: float) -> complex:
    """m(z) as printed in theorem 2 for uncorrelated features."""
    b = 1 - gamma - z
    return (b - np.sqrt(b * b - 4 * gamma * z)) / (2 * gamma * z)


def derivative(f: Callable[[complex], complex], x: float) -> float:
    """f'(x) of an analytic function that is real on the real line, by a complex step."""
    return np.imag(f(x + 1e-30j)) / 1e-30


def stieltjes_and_slope(lam: Array, gamma: Array) -> tuple[Array, Array]:
    """m(-lam) and m'(-lam) from the closed form."""
    return stieltjes_identity(-lam, gamma), derivative(lambda z: stieltjes_identity(z, gamma), -lam)


FEW = draw_clients(
    31, [4, 4, 4], [0.3, 0.5, 1, 1.5, 2, 4], p=[0.5, 0.3, 0.2], noise2=[0.5, 1.0, 0.3]
)  # aspect 3/2
MANY = draw_clients(
    32, [10, 20, 40], [0.5, 1, 2]
)  # more samples than unknowns: every minimiser is unique
LABELS = [
    X @ np.random.default_rng(33 + j).standard_normal((3, 1)) + 0.1 * (-1) ** j
    for j, X in enumerate(MANY.X)
]
