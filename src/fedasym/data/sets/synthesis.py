"""`synthetic`: federations whose parameters are known, so that what training finds can be set beside the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.machine import physical_memory
from fedasym.core.numbers import check_seed, whole
from fedasym.data.federation.splits import FRACTIONS, TEST, TRAIN, VALIDATION, Fractions, check_fractions
from fedasym.data.sets.literature import alpha_beta, lognormal_sizes
from fedasym.data.sets.options import LITERATURE, Counts, by_fractions, by_training, chosen, counted
from fedasym.data.sets.teachers import LENGTHS, World, classification, regression
from fedasym.exact.draws import count_samples as training_samples
from fedasym.exact.draws import seeded_generator
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation


def synthetic(
    population: Population | None = None,
    *,
    task: str | None = None,
    clients: int | None = None,
    samples: int | ArrayLike | None = None,
    dimension: int | None = None,
    radius: float | None = None,
    noise: float | None = None,
    norm: float | None = None,
    centre: float | None = None,
    classes: int | None = None,
    flips: float | None = None,
    aspect: float | None = None,
    spectrum: Spectrum | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    positions: int | None = None,
    split: Fractions = FRACTIONS,
    seed: int = 0,
) -> Federation:
    """A federation drawn from a world with known parameters, which its `truth` holds.

    Regression: y = x'theta_i + noise, x ~ N(0, Sigma), for the clients of a `Population`, or of one with these radius,
    noise, norm, aspect and spectrum. theta_i - theta_0 has length radius; theta_i has length norm on average.
    Classification (`task="classification"`): labels from the softmax of x'W_i, where W_0'W_0 = centre^2 P,
    W_i - W_0 = D_i with D_i'D_i = radius^2 P, and P = I - 11'/classes. With two classes P(y=1) is the sigmoid of x'theta_i,
    and `centre` and `radius` are the lengths of theta_0 and theta_i - theta_0.
    Synthetic(alpha, beta) of the FedProx article (`alpha=1, beta=1`): see `fedasym.data.sets.literature` for its recipe.

    clients: how many, named 0, 1, ...; 100, in Synthetic(alpha, beta) 30. Each depends on the seed and its own number alone.
    samples: of each client, all of its training, validation and test samples: one number, or one per client. By default
        dimension/aspect train, and as many more validate and test as `split` says; in Synthetic(alpha, beta) log-normal.
    dimension: features of a sample; 100, in Synthetic(alpha, beta) 60.
    radius, noise, norm, aspect, spectrum: as in `Population`; radius 1, noise 0.5, aspect 2 and a shared optimum of length 2
        unless given. centre: the length of the shared teacher in classification, by default 4 with radius 2.
    classes: 10 unless given; flips: the probability that a label is replaced by another one, each of them as likely.
    alpha, beta: standard deviations, as in the released code, of the means of a client's weights and of its features.
    positions: make every sample a sequence of 1 to this many positions, each with a label, padded and masked.
        `samples` and dimension/aspect then count sequences.
    split: shares of training, validation and test. seed: same seed, same numbers.

    truth: "heads", one per client, and "covariance", the variances of the features, which are independent; "shared" is what
        heads lie around, "noise" and "flips" are numbers; Synthetic(alpha, beta) has "intercepts" and "means" of features.

    >>> import numpy as np, fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> federation = fa.datasets.synthetic(world, clients=20, dimension=40)
    >>> truth = federation.truth
    >>> np.linalg.norm(truth["heads"] - truth["shared"], axis=1)[:3].round(9)
    array([1., 1., 1.])
    >>> error = truth["shared"] - truth["heads"]  # what the best shared model loses, exactly
    >>> round(float((truth["covariance"] * error**2).sum(1).mean()), 9)
    1.0
    >>> fa.datasets.synthetic(alpha=1, beta=1, samples=50).features.shape
    (1500, 60)
    """
    given = {
        "population": population, "radius": radius, "noise": noise, "norm": norm, "centre": centre, "classes": classes,
        "flips": flips, "aspect": aspect, "spectrum": spectrum, "alpha": alpha, "beta": beta,
    }  # fmt: skip
    name, options = chosen(task, {key: value for key, value in given.items() if value is not None}, samples is not None)
    m = whole("clients", options["clients"] if clients is None else clients, 1)
    d = whole("dimension", options["dimension"] if dimension is None else dimension, 1)
    length = None if positions is None else whole("positions", positions, 1)
    fractions, seed = check_fractions(split), check_seed(seed)
    check_room(m * options.get("classes", 1), f"the heads of {m} clients", d)  # before anything is listed client by client
    if samples is not None:
        counts = by_fractions(counted(samples, m), fractions)
    elif name == LITERATURE:
        counts = by_fractions(lognormal_sizes(m, seed), fractions)
    else:
        counts = by_training(training_samples(options["population"], d), m, fractions)
    rows = sum(each.sum(dtype=float) for each in counts)
    check_room(2 * rows * (length or 1), f"{rows:.0f} samples", d)  # client by client, then together
    match name:
        case "regression":
            world = regression(options["population"], d, m, seed)
        case "classification":
            world = classification(options["population"], options["classes"], options["centre"], options["flips"], d, m, seed)
        case _:
            world = alpha_beta(options["alpha"], options["beta"], options["classes"], d, m, seed)
    return gathered(world, counts, length, seed)


def check_room(rows: float, what: str, dimension: int) -> None:
    """Refuse tables that would not fit this machine's memory."""
    needed, there = 8.0 * rows * dimension, physical_memory()
    if needed > 0.8 * there:
        raise InvalidInput(
            f"{what} of {dimension} features need {needed / 1e9:.0f} GB and this machine has {there / 1e9:.0f}: "
            "give fewer clients, classes, samples, positions or features"
        )


def gathered(world: World, counts: tuple[Counts, Counts, Counts], positions: int | None, seed: int) -> Federation:
    """Every client's samples, those that train first, and the truth behind them."""
    from fedasym.data.federation.federation import Federation

    parts = [sequences(world, client, int(total), positions, seed) for client, total in enumerate(np.sum(counts, axis=0))]
    features, labels, masks = (np.concatenate(each) for each in zip(*parts, strict=True))
    kinds = np.tile([TRAIN, VALIDATION, TEST], len(parts))
    federation = Federation.from_arrays(
        features,
        labels,
        np.repeat(np.arange(len(parts)), np.sum(counts, axis=0)),
        split=np.repeat(kinds, np.column_stack(counts).ravel()),
        mask=None if positions is None else masks,
        classes=world.classes,
        task="regression" if world.classes is None else "classification",
        intercept="intercepts" in world.truth,
    )
    for array in world.truth.values():
        array.setflags(write=False)
    return replace(federation, truth=world.truth)


def sequences(world: World, client: int, rows: int, positions: int | None, seed: int) -> tuple[NDArray[Any], ...]:
    """One client's features, labels and mask; with positions, each sample is a sequence of a length of its own."""
    features, labels = world.draw(client, rows * (positions or 1))
    if positions is None:
        return features, labels, np.ones(rows, bool)
    real = np.arange(positions) < seeded_generator(seed, LENGTHS, client).integers(1, positions + 1, rows)[:, None]
    shaped = features.reshape(rows, positions, -1) * real[..., None]
    return shaped, np.where(real, labels.reshape(rows, positions), 0), real
