"""Synthetic(alpha, beta), the data set of the federated literature, after the generator that was released with FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith (2020), "Federated optimization in heterogeneous networks", section 5.1, who
follow Shamir, Srebro, Zhang (2014). LEAF's data set of the same name is another one: its clients come in clusters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.data.sets.teachers import FEATURES, HEAD, MEANS, SIZES, World
from fedasym.exact.draws import seeded_generator

DECAY = 1.2  # Sigma = diag(j^-1.2)
LOCATION, SCALE, LEAST = 4.0, 2.0, 50  # a client has 50 samples and a log-normal number more


def alpha_beta(alpha: float, beta: float, classes: int, dimension: int, clients: int, seed: int) -> World:
    """Labels argmax(x'W_k + b_k) of features x ~ N(v_k, Sigma), where W_k, b_k and v_k are a client's own.

    u_k ~ N(0, alpha^2), entries of W_k and b_k ~ N(u_k, 1); B_k ~ N(0, beta^2), entries of v_k ~ N(B_k, 1). The released
    code passes alpha and beta to `numpy.random.normal`, so they are standard deviations; the article's N(0, alpha) reads
    like a variance. For 0 and 1 that is the same, for the 0.5 of Synthetic(0.5, 0.5) it is not.

    alpha moves all logits of a sample by the same u_k (1'x + 1), so that no label depends on it: Synthetic(0, beta) and
    Synthetic(1, beta) are the same data. Nor do the W_k have anything in common, for any alpha.

    >>> calm, wild = (alpha_beta(alpha, 1, 10, 60, 1, seed=0) for alpha in (0, 1))
    >>> bool(np.all(calm.draw(0, 100)[1] == wild.draw(0, 100)[1]))
    True
    """
    scale = np.arange(1, dimension + 1) ** (-DECAY / 2)
    heads, intercepts = np.empty((clients, dimension, classes)), np.empty((clients, classes))
    means = np.empty((clients, dimension))
    for client in range(clients):
        rng = seeded_generator(seed, HEAD, client)
        u = alpha * rng.standard_normal()
        heads[client] = u + rng.standard_normal((dimension, classes))
        intercepts[client] = u + rng.standard_normal(classes)
        rng = seeded_generator(seed, MEANS, client)
        means[client] = beta * rng.standard_normal() + rng.standard_normal(dimension)

    def draw(client: int, rows: int) -> tuple[Array, NDArray[np.int64]]:
        X = means[client] + scale * seeded_generator(seed, FEATURES, client).standard_normal((rows, dimension))
        return X, (X @ heads[client] + intercepts[client]).argmax(1)

    return World({"heads": heads, "intercepts": intercepts, "means": means, "covariance": scale**2}, draw, classes)


def lognormal_sizes(clients: int, seed: int) -> NDArray[np.intp]:
    """Samples of each client: 50 and a log-normal number, of median 55 and mean 403.

    >>> bool(lognormal_sizes(4, seed=0).min() >= 50)
    True
    """
    drawn = [seeded_generator(seed, SIZES, client).lognormal(LOCATION, SCALE) for client in range(clients)]
    return np.array(drawn).astype(np.intp) + LEAST
