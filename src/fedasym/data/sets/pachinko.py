"""Pachinko allocation: labelled images to clients whose mixtures of classes follow a tree of coarse and fine classes.

Reddi et al. (2021), "Adaptive federated optimization", appendix F, after Li and McCallum (2006).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import check_seed, whole
from fedasym.exact.draws import seeded_generator

ORDER, MIXTURE, DRAWS = range(3)  # roles in a path of seeds


def allocate(
    fine: ArrayLike,
    coarse_of_fine: ArrayLike,
    *,
    clients: int = 600,
    samples: int = 100,
    root: float = 0.1,
    leaf: float = 10.0,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Which images each client gets, (clients, samples); no image twice.

    Client by client, a mixture of coarse classes is drawn from a symmetric Dirichlet law of parameter `root`, and for each of
    them a mixture of its fine classes from one of parameter `leaf`. A sample takes a coarse class, one of its fine classes,
    and one of that class's remaining images. A class that has none left is struck out, and the mixture is renormalised.

    fine: every image's fine class, 0, 1, ... coarse_of_fine: every fine class's coarse class, 0, 1, ...

    >>> chosen = allocate([0] * 6 + [1] * 6, [0, 1], clients=3, samples=4)
    >>> chosen.shape, sorted(chosen.ravel().tolist()) == list(range(12))
    ((3, 4), True)
    """
    y, parent = np.asarray(fine), np.asarray(coarse_of_fine)
    m, n, seed = whole("clients", clients, 1), whole("samples", samples, 1), check_seed(seed)
    for name, value in (("root", root), ("leaf", leaf)):
        if not (np.isfinite(value) and value > 0):
            raise InvalidInput(f"{name} is {value!r}: it is the parameter of a Dirichlet law and must be finite and above 0")
    for name, labels, top in (("fine", y, parent.size), ("coarse_of_fine", parent, parent.size)):
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size or labels.min() < 0 or labels.max() >= top:
            raise InvalidInput(f"{name} must be a list of whole numbers from 0 to {top - 1}, the classes of coarse_of_fine")
    if m * n > y.size:
        raise InvalidInput(
            f"{m} clients of {n} samples need {m * n} images and there are {y.size}: give fewer clients or samples"
        )
    shuffled = seeded_generator(seed, ORDER).permutation(y.size)
    stock = [shuffled[y[shuffled] == each].tolist() for each in range(parent.size)]
    return drawn(stock, parent, m, n, root, leaf, seed)


def drawn(
    stock: list[list[int]], parent: NDArray[np.integer], m: int, n: int, root: float, leaf: float, seed: int
) -> NDArray[np.intp]:
    """Images out of the stock of every fine class.

    A class is drawn as the largest log-weight after Gumbel noise, where an empty class has -inf: that renormalises by
    itself, and no weight underflows as Dirichlet draws of small parameters do.
    """
    children = [np.flatnonzero(parent == coarse) for coarse in range(int(parent.max()) + 1)]
    widest = max(len(each) for each in children)
    left = [sum(len(stock[each]) for each in kinds) for kinds in children]
    chosen = np.empty((m, n), np.intp)
    for client in range(m):
        rng = seeded_generator(seed, MIXTURE, client)
        upper, lower = log_gamma(root, len(children), rng), log_gamma(leaf, parent.size, rng)
        upper[[coarse for coarse, count in enumerate(left) if not count]] = -np.inf
        lower[[each for each, images in enumerate(stock) if not images]] = -np.inf
        rng = seeded_generator(seed, DRAWS, client)
        over_coarse, over_fine = rng.gumbel(size=(n, len(children))), rng.gumbel(size=(n, widest))
        for sample in range(n):
            coarse = int(np.argmax(upper + over_coarse[sample]))
            kinds = children[coarse]
            each = int(kinds[np.argmax(lower[kinds] + over_fine[sample, : len(kinds)])])
            chosen[client, sample] = stock[each].pop()
            left[coarse] -= 1
            if not stock[each]:
                lower[each] = -np.inf
            if not left[coarse]:
                upper[coarse] = -np.inf
    return chosen


def log_gamma(shape: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of Gamma draws, which normalised are Dirichlet draws: a draw of shape + 1 times U^(1/shape), U uniform."""
    return np.asarray(np.log(rng.standard_gamma(shape + 1, size)) - rng.standard_exponential(size) / shape)
