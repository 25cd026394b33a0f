"""Least squares over samples that stay where they are: conjugate gradients, of which only gradients are ever asked.

Several problems are solved side by side, one row each. With g(w) = sum X'(X w - y), the product of the normal matrix and a
direction p is g(p) - g(0); the features' sums of squares make all directions alike long (a diagonal preconditioner).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]  # (problems, d)
CLOSE = 1e-8  # of the first residual's length: far below the noise of any estimate


def least_squares(gradient: Callable[[Rows], Rows], power: NDArray[np.float64], problems: int, close: float = CLOSE) -> Rows:
    """The solutions, in at most a few more steps than features; `power` has each feature's sum of squares, all above 0.

    >>> X, y = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]]), np.array([1.0, 2.0, 0.5])
    >>> found = least_squares(lambda w: (w @ X.T - y) @ X, (X**2).sum(0), problems=1)[0]
    >>> bool(np.allclose(found, np.linalg.lstsq(X, y, rcond=None)[0]))
    True
    """
    start = gradient(np.zeros((problems, power.size)))
    w, r = np.zeros_like(start), -start
    z = r / power
    p, rho = z, (r * z).sum(1, keepdims=True)
    first = rho.copy()
    for _ in range(2 * power.size + 10):
        going = rho > close**2 * first
        if not going.any():
            break
        Ap = gradient(p) - start
        curved = (p * Ap).sum(1, keepdims=True)
        step = np.divide(rho, curved, out=np.zeros_like(rho), where=going & (curved > 0))
        w, r = w + step * p, r - step * Ap
        z, before = r / power, rho
        rho = (r * z).sum(1, keepdims=True)
        p = z + np.divide(rho, before, out=np.zeros_like(rho), where=before > 0) * p
    return w
