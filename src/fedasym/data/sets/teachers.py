"""Worlds with a shared teacher: clients label Gaussian features by heads that lie at a known distance around one centre.

Regression is the model of section 2 of the paper, as the linear lens draws it; classification its logistic and softmax form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.draw import Kind, features, laid_out, random_signs, seeded
from fedasym.worlds.population import Population

# Roles in a path of seeds (role, client). Each has its own stream: more noise, say, leaves all features as they were.
CENTRE, HEAD, FEATURES, LABELS, FLIPS, MEANS, SIZES, LENGTHS = range(8)


@dataclass(frozen=True, eq=False)
class World:
    """Clients whose parameters are drawn, before their samples are.

    truth: the parameters, by name; one row per client where clients differ.
    draw: (client, rows) -> features and labels of that many samples, always the same ones.
    classes: how many there are; None in regression.
    """

    truth: dict[str, NDArray[Any]]
    draw: Callable[[int, int], tuple[Array, NDArray[Any]]]
    classes: int | None = None


def regression(population: Population, dimension: int, clients: int, seed: int) -> World:
    """Outputs y = x'theta_i + noise with theta_i = theta_0 + displacement, of the population's energy along every eigenvector.

    >>> world = regression(Population(radius=3, noise=0, aspect=1, norm=5), 4, 2, seed=0)
    >>> shift = world.truth["heads"] - world.truth["shared"]
    >>> np.linalg.norm(shift, axis=1), float(np.linalg.norm(world.truth["shared"]))
    (array([3., 3.]), 4.0)
    """
    kind = kind_of(population, dimension)
    if kind.centre is None:
        raise InvalidInput("population has no norm, the length of a client's optimum, which its data depends on: give it one")
    shared = random_signs(kind.centre, seeded(seed, CENTRE))
    heads = np.array([shared + random_signs(kind.shift, seeded(seed, HEAD, client)) for client in range(clients)])
    sigma = np.sqrt(kind.noise2)

    def draw(client: int, rows: int) -> tuple[Array, Array]:
        X = features(kind, seeded(seed, FEATURES, client), "gaussian", rows)
        return X, X @ heads[client] + sigma * seeded(seed, LABELS, client).standard_normal(rows)

    return World({"shared": shared, "heads": heads, "covariance": kind.s, "noise": np.array(sigma)}, draw)


def classification(
    population: Population, classes: int, centre: float, flips: float, dimension: int, clients: int, seed: int
) -> World:
    """Labels from the softmax of x'W_i (two classes: the sigmoid of x'theta_i), then flipped with probability `flips`.

    W_i = W_0 + D_i with W_0'W_0 = centre^2 P, D_i'D_i = radius^2 P and P = I - 11'/classes; for two classes, vectors of
    length `centre` and `radius`. A flipped label is one of the others, each as likely. The population gives radius and
    spectrum; displacements have no preferred direction.

    >>> world = classification(Population(radius=2, noise=0, aspect=1), 3, 4.0, 0.0, 8, 1, seed=0)
    >>> W = world.truth["shared"]
    >>> (W.T @ W).round(2).tolist()
    [[10.67, -5.33, -5.33], [-5.33, 10.67, -5.33], [-5.33, -5.33, 10.67]]
    """
    if dimension < classes - 1:
        raise InvalidInput(f"dimension is {dimension}: {classes} classes need at least {classes - 1}; give a larger dimension")
    kind, radius = kind_of(population, dimension), float(np.asarray(population.radius))
    shared = teacher(centre, classes, dimension, seeded(seed, CENTRE))
    heads = np.array([shared + teacher(radius, classes, dimension, seeded(seed, HEAD, client)) for client in range(clients)])

    def draw(client: int, rows: int) -> tuple[Array, NDArray[np.int64]]:
        X = features(kind, seeded(seed, FEATURES, client), "gaussian", rows)
        # The largest logit after Gumbel noise is a draw from their softmax; two classes have the logits 0 and x'theta.
        logits = np.column_stack([np.zeros(rows), X @ heads[client]]) if classes == 2 else X @ heads[client]
        labels = (logits + seeded(seed, LABELS, client).gumbel(size=(rows, classes))).argmax(1)
        flipped, step = seeded(seed, FLIPS, client).random((rows, 2)).T
        others = (labels + 1 + np.floor(step * (classes - 1)).astype(int)) % classes
        return X, np.where(flipped < flips, others, labels)

    return World({"shared": shared, "heads": heads, "covariance": kind.s, "flips": np.array(flips)}, draw, classes)


def teacher(length: float, classes: int, dimension: int, rng: np.random.Generator) -> Array:
    """W, uniform among those with W'W = length^2 (I - 11'/classes).

    For two classes a vector with the same energy along all eigenvectors, as in regression: x'theta then has exactly the
    variance length^2 times the mean eigenvalue, which a uniform direction has only on average.
    """
    if classes == 2:
        return random_signs(np.full(dimension, length**2 / dimension), rng)
    G = rng.standard_normal((dimension, classes))
    U, _, Vt = np.linalg.svd(G - G.mean(1, keepdims=True), full_matrices=False)
    return np.asarray(length * U[:, : classes - 1] @ Vt[: classes - 1])  # the last direction, 11', carries nothing


def kind_of(population: Population, dimension: int) -> Kind:
    """The population over `dimension` directions: as in the linear lens, but keeping those that no sample sees."""
    exact, room = laid_out(replace(population, aspect=1.0), dimension)  # how many samples there are is said elsewhere

    def energy(share: Array, length: Any) -> Array:
        return np.repeat(float(np.asarray(length)) ** 2 * share / room, room)

    return Kind(
        0,
        exact,
        dimension,
        np.repeat(exact.spectrum.values, room),
        energy(exact.displacement, exact.radius),
        None if exact.norm is None else energy(exact.optimum, exact.norm),
    )
