"""Drawn clients: from populations, or as mixtures of classes; every client from its own seed.

A client is drawn again from its seed whenever it is needed, so that nobody's features are kept.
Covariances are diagonal, which loses nothing for Gaussian features; directions that no client sees
never count and are left out. Where images have classes, a Pachinko allocation deals them out to
clients whose mixtures follow a tree of coarse and fine classes: Reddi et al. (2021), "Adaptive
federated optimization", appendix F, after Li and McCallum (2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import Array, check_seed, whole
from fedasym.worlds import Population
from fedasym.worlds.spectra import Spectrum

FEATURES = ("gaussian", "rademacher", "student")
# degrees of freedom of Student's t: tails, but the fourth moment that universality asks for
FREEDOM = 8
MOST_SAMPLES = 2**40  # of a client
CONFLICT = (
    "norm^2 - radius^2, the squared length of the shared optimum, is negative along some direction:"
    " give norm of at least radius, and optimum_power or optimum_weights that leave room for the"
    " displacement"
)


@dataclass(frozen=True, eq=False)
class ClientKind:
    """Clients of one population in d dimensions, energies by direction; `population`: as drawn."""

    place: int  # among the kinds of a federation
    population: Population
    n: int
    s: Array  # eigenvalues of the covariance
    shift: Array  # of theta_i - theta_0
    optimum: Array | None  # of theta_i

    @property
    def noise2(self) -> float:
        """sigma^2."""
        return float(np.asarray(self.population.noise)) ** 2

    @cached_property
    def scale(self) -> float | None:
        """The common eigenvalue where the covariance is a multiple of the identity, else None."""
        return common_value(self.s)

    @cached_property
    def spread(self) -> float | None:
        """The common energy of the displacement where it has no preferred direction, else None."""
        return common_value(self.shift)

    @cached_property
    def centre(self) -> Array | None:
        """Energy of theta_0; None without a norm."""
        if self.optimum is None:
            return None
        energy = self.optimum - self.shift
        if np.any(energy < -1e-12 * self.optimum.max()):
            raise InvalidInput(CONFLICT)
        return np.maximum(energy, 0)


@dataclass(frozen=True, eq=False)
class DrawnClient:
    """One client's eigenvalues x and scaled eigenvectors Y: S = X'X/n = Y'Y, YY' = diag(x)."""

    kind: ClientKind
    x: Array
    Y: Array

    @cached_property
    def scaled_rows(self) -> Array:
        """Y Sigma."""
        return self.Y * self.kind.s

    @cached_property
    def shifted_rows(self) -> Array:
        """Y E, with the displacement's energy E."""
        return self.Y * self.kind.shift

    @cached_property
    def metric(self) -> Array:
        """Y Sigma Y'; its diagonal where it is diagonal."""
        return (
            self.x * self.kind.scale if self.kind.scale is not None else self.scaled_rows @ self.Y.T
        )

    @cached_property
    def spread(self) -> Array:
        """Y E Y'; its diagonal where it is diagonal."""
        return (
            self.x * self.kind.spread
            if self.kind.spread is not None
            else self.shifted_rows @ self.Y.T
        )


def kinds_of(populations: Sequence[Population], dimension: int) -> list[ClientKind]:
    """The populations laid out over the same directions."""
    exact, rooms = zip(*(lay_out_population(each, dimension) for each in populations), strict=True)
    values = [
        np.repeat(each.spectrum.values, room) for each, room in zip(exact, rooms, strict=True)
    ]
    seen = np.any(np.array(values) > 0, axis=0)

    def energy(share: Array, length: Any, room: NDArray[np.intp]) -> Array:
        return np.repeat(float(np.asarray(length)) ** 2 * share / room, room)[seen]

    return [
        ClientKind(
            place,
            each,
            samples_of_aspect(each, dimension),
            s[seen],
            energy(each.displacement, each.radius, room),
            None if each.norm is None else energy(each.optimum, each.norm, room),
        )
        for place, (each, room, s) in enumerate(zip(exact, rooms, values, strict=True))
    ]


def lay_out_population(world: Population, dimension: int) -> tuple[Population, NDArray[np.intp]]:
    """The population that `dimension` directions and whole samples hold; directions by atom."""
    spectrum = world.spectrum
    room = apportion(spectrum.weights, dimension)
    kept = room > 0
    if not np.any(spectrum.values[kept] > 0):
        raise InvalidInput(
            f"dimension is {dimension}: all directions would have eigenvalue 0; give a larger"
            " dimension"
        )
    changes: dict[str, Any] = {}
    for owner in ("shift", "optimum"):
        given = getattr(world, f"{owner}_weights")
        if given is None:
            continue
        if (
            np.array_equal(given, spectrum.weights) or spectrum.scale is not None
        ):  # no preferred direction, now as then
            changes[f"{owner}_weights"] = None
        elif np.any(given[~kept] > 0):
            raise InvalidInput(
                f"dimension is {dimension}: an atom with {owner}_weights above 0 gets no direction;"
                " give a larger dimension"
            )
        else:
            changes[f"{owner}_weights"] = given[kept] / given[kept].sum()
    exact = Spectrum(spectrum.values[kept], room[kept] / dimension, spectrum.name)
    return (
        replace(
            world, aspect=dimension / samples_of_aspect(world, dimension), spectrum=exact, **changes
        ),
        room[kept],
    )


def samples_of_aspect(world: Population, dimension: int) -> int:
    """n, the nearest whole number to dimension/aspect."""
    gamma = float(np.asarray(world.aspect))
    if dimension / gamma > MOST_SAMPLES:
        raise InvalidInput(
            f"aspect is {gamma:g}: with dimension {dimension} a client would have"
            f" {dimension / gamma:.3g} samples; give at least {dimension / MOST_SAMPLES:.3g}"
        )
    n = round(dimension / gamma)
    if n < 1:
        least = int(np.floor(gamma / 2)) + 1
        raise InvalidInput(
            f"dimension is {dimension}: with aspect {gamma:g} a client would have no sample; give"
            f" dimension of at least {least}"
        )
    return n


def apportion(weights: Array, total: int) -> NDArray[np.intp]:
    """Whole numbers that sum to `total`, each within one of weights * total, and so for all atoms
    up to any one.

    Largest remainders would give what is left over to the first of many equal atoms, and so move
    the mean eigenvalue.

    >>> apportion(np.array([0.5, 0.3, 0.2]), 7).tolist()
    [4, 2, 1]
    """
    ends = np.floor(np.cumsum(weights) * (total / weights.sum()) + 0.5 + 1e-9).astype(int)
    ends[-1] = total
    return np.asarray(np.diff(ends, prepend=0))


def seeded_generator(seed: int, *path: int) -> np.random.Generator:
    """The random stream at the end of a path of spawned seeds, such as (trial, role, client)."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=path))


def draw_features(
    kind: ClientKind, rng: np.random.Generator, law: str, rows: int | None = None
) -> Array:
    """X, one row per sample: independent entries of variance one, scaled by the eigenvalues."""
    shape = (kind.n if rows is None else rows, kind.s.size)
    match law:
        case "gaussian":
            Z: Array = rng.standard_normal(shape)
        case "rademacher":
            Z = np.asarray(2 * rng.integers(0, 2, shape, dtype=np.int8) - 1, dtype=float)
        case "student":
            Z = rng.standard_t(FREEDOM, shape)
            Z *= np.sqrt(1 - 2 / FREEDOM)
        case _:
            raise unknown_name("features", law, FEATURES)
    Z *= np.sqrt(kind.s)
    return Z


def draw_client(kind: ClientKind, rng: np.random.Generator, law: str) -> DrawnClient:
    """One client, decomposed on the smaller side of its features."""
    X = draw_features(kind, rng, law)
    n, d = X.shape
    if n < d:
        x, U = np.linalg.eigh(X @ X.T)
        Y = (U / np.sqrt(n)).T @ X
    else:
        x, V = np.linalg.eigh(X.T @ X)
        Y = np.sqrt(np.maximum(x, 0) / n)[:, None] * V.T
    x /= n
    first = int(np.searchsorted(x, max(n, d) * np.finfo(float).eps * x[-1], side="right"))
    return DrawnClient(kind, x[first:], Y[first:])


def common_value(values: Array) -> float | None:
    """The value that all entries have, if they have one."""
    first = float(values[0])
    return first if np.all(values == first) else None


def random_signs(energy: Array, rng: np.random.Generator) -> Array:
    """A vector with exactly this energy along each direction, of random signs."""
    return np.asarray(np.sqrt(energy) * (2 * rng.integers(0, 2, energy.size) - 1))


def draw_ahead(make: Callable[[int], DrawnClient], clients: range) -> Iterator[DrawnClient]:
    """Each client in turn, while a second thread draws the next: free where a core is idle."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(make, 0)
        for j in clients:
            client = following.result()
            if j + 1 < len(clients):
                following = pool.submit(make, j + 1)
            yield client


ORDER, MIXTURE, DRAWS = range(3)  # roles in a path of seeds


def allocate_images(
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

    Client by client, a mixture of coarse classes is drawn from a symmetric Dirichlet law of
    parameter `root`, and for each of them a mixture of its fine classes from one of parameter
    `leaf`. A sample takes a coarse class, one of its fine classes, and one of that class's
    remaining images. A class that has none left is struck out, and the mixture is renormalised.

    fine: every image's fine class, 0, 1, ... coarse_of_fine: every fine class's coarse class, 0, 1,
    ...

    >>> chosen = allocate_images([0] * 6 + [1] * 6, [0, 1], clients=3, samples=4)
    >>> chosen.shape, sorted(chosen.ravel().tolist()) == list(range(12))
    ((3, 4), True)
    """
    y, parent = np.asarray(fine), np.asarray(coarse_of_fine)
    m = whole("clients", clients, 1)
    n = whole("samples", samples, 1)
    seed = check_seed(seed)
    for name, value in (("root", root), ("leaf", leaf)):
        if not (np.isfinite(value) and value > 0):
            raise InvalidInput(
                f"{name} is {value!r}: it is the parameter of a Dirichlet law and must be finite"
                " and above 0"
            )
    for name, labels, top in (("fine", y, parent.size), ("coarse_of_fine", parent, parent.size)):
        if (
            labels.ndim != 1
            or labels.dtype.kind not in "iu"
            or not labels.size
            or labels.min() < 0
            or labels.max() >= top
        ):
            raise InvalidInput(
                f"{name} must be a list of whole numbers from 0 to {top - 1}, the classes of"
                " coarse_of_fine"
            )
    if m * n > y.size:
        raise InvalidInput(
            f"{m} clients of {n} samples need {m * n} images and there are {y.size}: give fewer"
            " clients or samples"
        )
    shuffled = seeded_generator(seed, ORDER).permutation(y.size)
    stock = [shuffled[y[shuffled] == each].tolist() for each in range(parent.size)]
    return draw_images(stock, parent, m, n, root, leaf, seed)


def draw_images(
    stock: list[list[int]],
    parent: NDArray[np.integer],
    m: int,
    n: int,
    root: float,
    leaf: float,
    seed: int,
) -> NDArray[np.intp]:
    """Images out of the stock of every fine class.

    A class is drawn as the largest log-weight after Gumbel noise, where an empty class has -inf:
    that renormalises by itself, and no weight underflows as Dirichlet draws of small parameters do.
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
            coarse = int((upper + over_coarse[sample]).argmax())
            kinds = children[coarse]
            each = int(kinds[(lower[kinds] + over_fine[sample, : len(kinds)]).argmax()])
            chosen[client, sample] = stock[each].pop()
            left[coarse] -= 1
            if not stock[each]:
                lower[each] = -np.inf
            if not left[coarse]:
                upper[coarse] = -np.inf
    return chosen


def log_gamma(shape: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Log Gamma draws, for Dirichlet draws: of shape + 1, times U^(1/shape), U uniform."""
    return np.asarray(
        np.log(rng.standard_gamma(shape + 1, size)) - rng.standard_exponential(size) / shape
    )
