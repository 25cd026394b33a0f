"""The numbers that separate regimes: the best ridge, the best possible loss, the noise at which fine-tuning stops paying."""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.theory.limits import Worlds, best_ridge, flatten
from fedasym.theory.limits import interpolant_limit as interpolated
from fedasym.theory.limits import ridge_limit as shrunk
from fedasym.theory.limits import shared_limit as kept
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import Population, check_world


def optimal_ridge(world: Population | ClassPopulation) -> float | Array:
    """The ridge at which RTFA and pFedMe reach their lowest limiting loss; for a `ClassPopulation` RTFA's best accuracy.

    lambda* = noise^2 aspect / radius^2 for every covariance when the displacement is isotropic. Under an alignment it
    minimises the loss numerically and may be negative, where the displacement lies along strong features and even the
    interpolant shrinks too much; it is infinite when clients do not differ. With classes it is near aspect/(c radius^2),
    where c theta_0 is the shared model.

    >>> import fedasym as fa
    >>> fa.optimal_ridge(fa.Population(radius=1, noise=0.5, aspect=2))
    0.5
    >>> aligned = fa.Population(1, 0.02**0.5, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1)
    >>> round(fa.optimal_ridge(aligned), 4)
    -0.0563
    >>> round(fa.optimal_ridge(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)), 2)
    2.33
    """
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.regimes import optimal_ridge_classes

        return optimal_ridge_classes(world)
    check_world(world)
    return shaped(best_ridge(flatten(world, world.shape)), world)


def optimal_loss(world: Population) -> float | Array:
    """The best possible limiting loss, RTFA's at its best ridge lambda*.

    R* = (radius^2/aspect)(kappa(lambda*) - lambda*) when the displacement is isotropic.

    >>> import fedasym as fa
    >>> round(fa.optimal_loss(fa.Population(radius=1, noise=0.5**0.5, aspect=2)), 6)
    0.707107
    """
    squared(world, "the best accuracy is that of rtfa in predict")
    flat = flatten(world, world.shape)
    return shaped(np.asarray(sum(shrunk(flat, best_ridge(flat)))), world)


def noise_threshold(world: Population) -> float | Array:
    """The noise (standard deviation) below which fine-tuning (FTFA) beats averaging (FedAvg); 0: it never does.

    sigma_c^2 = (r^2 sum g s - B_0) / (kappa'(0) - 1), which is r^2 (aspect - 1)/aspect for uncorrelated features. The
    population's own noise plays no part.

    >>> import fedasym as fa
    >>> round(fa.noise_threshold(fa.Population(radius=1, noise=0, aspect=2)), 6)
    0.707107
    """
    squared(world, "with classes fine-tuning to convergence forgets the shared model; see separability")
    flat = flatten(world, world.shape)
    unit = Worlds(flat.r2, np.ones_like(flat.s2), flat.gamma, flat.g, flat.spectrum)
    bias, variance = interpolated(unit)
    gain = np.maximum(kept(flat)[0] - bias, 0)
    with np.errstate(invalid="ignore"):
        return shaped(np.sqrt(np.where(gain == 0, 0.0, gain / variance)), world)


def squared(world: object, instead: str) -> None:
    """Refuse a population of classes, which has no squared loss, and what is no population."""
    if isinstance(world, ClassPopulation):
        raise InvalidInput(f"world is a ClassPopulation, and this is about the squared loss of a Population: {instead}")
    check_world(world, "give a Population")


def shaped(values: Array, world: Population) -> float | Array:
    """A plain number for a single world, else an array of the population's shape."""
    return float(values[0]) if world.shape == () else values.reshape(world.shape)
