"""`synthetic`: federations of known parameters, to set what training finds beside the truth.

Worlds with a shared teacher: clients label Gaussian features by heads that lie at a known distance
around one centre. Regression is the model of section 2 of the paper, as the linear lens draws it;
classification its logistic and softmax form.

Synthetic(alpha, beta) is the data set of the federated literature, after the generator that was
released with FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith (2020), "Federated optimization
in heterogeneous networks", section 5.1, who follow Shamir, Srebro, Zhang (2014). LEAF's data set of
the same name is another one: its clients come in clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import Array, check_seed, one_float, whole
from fedasym.core.runtime import physical_memory
from fedasym.data.splits import (
    FRACTIONS,
    TEST,
    TRAIN,
    VALIDATION,
    Fractions,
    check_fractions,
    split_sizes,
)
from fedasym.exact.draws import (
    ClientKind,
    draw_features,
    lay_out_population,
    samples_of_aspect,
    seeded_generator,
)
from fedasym.worlds import LONGEST, Population
from fedasym.worlds.spectra import Spectrum, identity

if TYPE_CHECKING:
    from fedasym.data.federation import Federation

# Roles in a path of seeds (role, client). Each has its own stream: more noise, say, leaves all
# features as they were.
CENTRE, HEAD, FEATURES, LABELS, FLIPS, MEANS, SIZES, LENGTHS = range(8)


@dataclass(frozen=True, eq=False)
class TeacherWorld:
    """Clients whose parameters are drawn, before their samples are.

    truth: the parameters, by name; one row per client where clients differ.
    draw: (client, rows) -> features and labels of that many samples, always the same ones.
    classes: how many there are; None in regression.
    """

    truth: dict[str, NDArray[Any]]
    draw: Callable[[int, int], tuple[Array, NDArray[Any]]]
    classes: int | None = None


def regression_world(
    population: Population, dimension: int, clients: int, seed: int
) -> TeacherWorld:
    """Outputs y = x'theta_i + noise with theta_i = theta_0 + displacement, of the population's
    energy along every eigenvector.

    >>> world = regression_world(Population(radius=3, noise=0, aspect=1, norm=5), 4, 2, seed=0)
    >>> shift = world.truth["heads"] - world.truth["shared"]
    >>> np.linalg.norm(shift, axis=1), float(np.linalg.norm(world.truth["shared"]))
    (array([3., 3.]), 4.0)
    """
    from fedasym.exact.draws import random_signs  # local: it comes with SciPy

    kind = client_kind(population, dimension)
    if kind.centre is None:
        raise InvalidInput(
            "population has no norm, the length of a client's optimum, which its data depends on:"
            " give it one"
        )
    shared = random_signs(kind.centre, seeded_generator(seed, CENTRE))
    heads = np.array(
        [
            shared + random_signs(kind.shift, seeded_generator(seed, HEAD, client))
            for client in range(clients)
        ]
    )
    sigma = np.sqrt(kind.noise2)

    def draw(client: int, rows: int) -> tuple[Array, Array]:
        X = draw_features(kind, seeded_generator(seed, FEATURES, client), "gaussian", rows)
        return X, X @ heads[client] + sigma * seeded_generator(
            seed, LABELS, client
        ).standard_normal(rows)

    return TeacherWorld(
        {"shared": shared, "heads": heads, "covariance": kind.s, "noise": np.array(sigma)}, draw
    )


def classification_world(
    population: Population,
    classes: int,
    centre: float,
    flips: float,
    dimension: int,
    clients: int,
    seed: int,
) -> TeacherWorld:
    """Labels by the softmax of x'W_i (two: sigmoid of x'theta_i), flipped with chance `flips`.

    W_i = W_0 + D_i with W_0'W_0 = centre^2 P, D_i'D_i = radius^2 P and P = I - 11'/classes; for two
    classes, vectors of length `centre` and `radius`. A flipped label is one of the others, each as
    likely. The population gives radius and spectrum; displacements have no preferred direction.

    >>> world = classification_world(
    ...     Population(radius=2, noise=0, aspect=1), 3, 4.0, 0.0, 8, 1, seed=0
    ... )
    >>> W = world.truth["shared"]
    >>> (W.T @ W).round(2).tolist()
    [[10.67, -5.33, -5.33], [-5.33, 10.67, -5.33], [-5.33, -5.33, 10.67]]
    """
    if dimension < classes - 1:
        raise InvalidInput(
            f"dimension is {dimension}: {classes} classes need at least {classes - 1}; give a"
            " larger dimension"
        )
    kind = client_kind(population, dimension)
    radius = float(np.asarray(population.radius))
    shared = draw_teacher(centre, classes, dimension, seeded_generator(seed, CENTRE))
    heads = np.array(
        [
            shared + draw_teacher(radius, classes, dimension, seeded_generator(seed, HEAD, client))
            for client in range(clients)
        ]
    )

    def draw(client: int, rows: int) -> tuple[Array, NDArray[np.int64]]:
        X = draw_features(kind, seeded_generator(seed, FEATURES, client), "gaussian", rows)
        # The largest logit after Gumbel noise is a draw from their softmax; two classes have the
        # logits 0 and x'theta.
        logits = (
            np.column_stack([np.zeros(rows), X @ heads[client]])
            if classes == 2
            else X @ heads[client]
        )
        labels = (
            logits + seeded_generator(seed, LABELS, client).gumbel(size=(rows, classes))
        ).argmax(1)
        flipped, step = seeded_generator(seed, FLIPS, client).random((rows, 2)).T
        others = (labels + 1 + np.floor(step * (classes - 1)).astype(int)) % classes
        return X, np.where(flipped < flips, others, labels)

    return TeacherWorld(
        {"shared": shared, "heads": heads, "covariance": kind.s, "flips": np.array(flips)},
        draw,
        classes,
    )


def draw_teacher(length: float, classes: int, dimension: int, rng: np.random.Generator) -> Array:
    """W, uniform among those with W'W = length^2 (I - 11'/classes).

    For two classes a vector with the same energy along all eigenvectors, as in regression: x'theta
    then has exactly the variance length^2 times the mean eigenvalue, which a uniform direction has
    only on average.
    """
    if classes == 2:
        from fedasym.exact.draws import random_signs

        return random_signs(np.full(dimension, length**2 / dimension), rng)
    G = rng.standard_normal((dimension, classes))
    U, _, Vt = np.linalg.svd(G - G.mean(1, keepdims=True), full_matrices=False)
    # the last direction, 11', carries nothing
    return np.asarray(length * U[:, : classes - 1] @ Vt[: classes - 1])


def client_kind(population: Population, dimension: int) -> ClientKind:
    """The population over `dimension` directions, as in the linear lens, with the unseen ones."""
    # how many samples there are is said elsewhere
    exact, room = lay_out_population(replace(population, aspect=1.0), dimension)

    def energy(share: Array, length: Any) -> Array:
        return np.repeat(float(np.asarray(length)) ** 2 * share / room, room)

    return ClientKind(
        0,
        exact,
        dimension,
        np.repeat(exact.spectrum.values, room),
        energy(exact.displacement, exact.radius),
        None if exact.norm is None else energy(exact.optimum, exact.norm),
    )


DECAY = 1.2  # Sigma = diag(j^-1.2)
LOCATION, SCALE, FEWEST = 4.0, 2.0, 50  # a client has 50 samples and a log-normal number more


def alpha_beta(
    alpha: float, beta: float, classes: int, dimension: int, clients: int, seed: int
) -> TeacherWorld:
    """Labels argmax(x'W_k + b_k) of x ~ N(v_k, Sigma), where W_k, b_k and v_k are a client's own.

    u_k ~ N(0, alpha^2), entries of W_k and b_k ~ N(u_k, 1); B_k ~ N(0, beta^2), entries of v_k ~
    N(B_k, 1). The released code passes alpha and beta to `numpy.random.normal`, so they are
    standard deviations; the article's N(0, alpha) reads like a variance. For 0 and 1 that is the
    same, for the 0.5 of Synthetic(0.5, 0.5) it is not.

    alpha moves all logits of a sample by the same u_k (1'x + 1), so that no label depends on it:
    Synthetic(0, beta) and Synthetic(1, beta) are the same data. Nor do the W_k have anything in
    common, for any alpha.

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
        X = means[client] + scale * seeded_generator(seed, FEATURES, client).standard_normal(
            (rows, dimension)
        )
        return X, (X @ heads[client] + intercepts[client]).argmax(1)

    return TeacherWorld(
        {"heads": heads, "intercepts": intercepts, "means": means, "covariance": scale**2},
        draw,
        classes,
    )


def lognormal_sizes(clients: int, seed: int) -> NDArray[np.intp]:
    """Samples of each client: 50 and a log-normal number, of median 55 and mean 403.

    >>> bool(lognormal_sizes(4, seed=0).min() >= 50)
    True
    """
    drawn = [
        seeded_generator(seed, SIZES, client).lognormal(LOCATION, SCALE)
        for client in range(clients)
    ]
    return np.array(drawn).astype(np.intp) + FEWEST


WORLD_TASKS = ("regression", "classification")
LITERATURE = "Synthetic(alpha, beta)"
LENGTH = 2.0  # of the shared optimum of a regression, unless norm is given
DEFAULT_SIZES = {"clients": 100, "dimension": 100}
# What each world takes and is made of unless told otherwise: worlds in which sharing and
# personalising both pay.
WORLD_OPTIONS: dict[str, dict[str, Any]] = {
    "regression": {
        **DEFAULT_SIZES,
        "population": None,
        "radius": 1.0,
        "noise": 0.5,
        "aspect": 2.0,
        "norm": None,
        "spectrum": None,
    },
    "classification": {
        **DEFAULT_SIZES,
        "classes": 10,
        "centre": 4.0,
        "radius": 2.0,
        "aspect": 2.0,
        "flips": 0.0,
        "spectrum": None,
    },
    LITERATURE: {"clients": 30, "dimension": 60, "alpha": None, "beta": None, "classes": 10},
}

ClientCounts = NDArray[np.intp]


def choose_world(
    task: str | None, given: dict[str, Any], sized: bool
) -> tuple[str, dict[str, Any]]:
    """The world that is asked for, and its parameters, checked; refuses what it does not take."""
    task = None if task is None else one_of("task", task, WORLD_TASKS)
    name = LITERATURE if "alpha" in given or "beta" in given else task or "regression"
    if name == LITERATURE and task == "regression":
        raise InvalidInput(
            'task is "regression", and alpha and beta make a classification: leave out either'
        )
    for key, value in given.items():
        if key not in WORLD_OPTIONS[name]:
            takers = " and ".join(
                world for world, options in WORLD_OPTIONS.items() if key in options
            )
            takes = ", ".join(each for each in WORLD_OPTIONS[name] if each not in DEFAULT_SIZES)
            hint = (
                ', or give task="classification"'
                if task is None and "classification" in takers
                else ""
            )
            shown = value if isinstance(value, int | float) else "given"
            raise InvalidInput(
                f"{key} is {shown}, which is for {takers}: {name} takes {takes}; leave {key}"
                f" out{hint}"
            )
    if sized and "aspect" in given:
        raise InvalidInput(
            "samples and aspect are both given, and aspect is dimension over training samples: give"
            " one of them"
        )
    options = {**WORLD_OPTIONS[name], **given}
    if name == LITERATURE:
        for key, other in (("alpha", "beta"), ("beta", "alpha")):
            if key not in given:
                raise InvalidInput(
                    f"{other} is given without {key}: {LITERATURE} needs both; give {key}, 0 if you"
                    " like"
                )
            options[key] = check_number(key, options[key], "a standard deviation")
    else:
        options["population"] = synthetic_population(given, options)
    if "classes" in options:
        options["classes"] = whole("classes", options["classes"], 2)
    if "centre" in options:
        options["centre"] = check_number(
            "centre", options["centre"], "the length of the shared teacher"
        )
        most = 1 - 1 / options["classes"]
        options["flips"] = check_number(
            "flips", options["flips"], "the probability of a replaced label", most
        )
    return name, options


def synthetic_population(given: Mapping[str, Any], options: Mapping[str, Any]) -> Population:
    """The population that is given, or the one of the given numbers."""
    population = options.get("population")
    if population is None:
        numbers = {
            key: options[key]
            for key in ("radius", "aspect", "norm", "noise")
            if options.get(key) is not None
        }
        spectrum = identity() if options["spectrum"] is None else options["spectrum"]
        population = Population(**{"noise": 0.0} | numbers, spectrum=spectrum)
        if (
            population.norm is None
        ):  # not a number among the defaults: any radius leaves room for the shared optimum
            population = replace(population, norm=np.hypot(population.radius, LENGTH))
    elif not isinstance(population, Population):
        raise InvalidInput(
            f"population is {population!r}: give a Population, or radius, noise, aspect and norm as"
            " keywords"
        )
    elif len(given) > 1:
        others = ", ".join(key for key in given if key != "population")
        raise InvalidInput(
            f"population and {others} are both given: put {others} into the Population"
        )
    if population.shape != ():
        raise InvalidInput(
            f"population holds arrays of shape {population.shape}: give plain numbers, one world at"
            " a time"
        )
    return population


def check_number(name: str, value: Any, meaning: str, most: float = LONGEST) -> float:
    """A number from 0 to `most`."""
    found = one_float(value)
    if not 0 <= found <= most:
        span = (
            f"from 0 to {most:g}"
            if most < LONGEST or most < found < np.inf
            else "finite and at least 0"
        )
        raise InvalidInput(f"{name} is {value!r}: it is {meaning} and must be {span}")
    return found


def sample_counts(samples: Any, clients: int) -> ClientCounts:
    """Each client's number of samples."""
    given = np.asarray(samples, dtype=object)  # each number as it is: they are checked one by one
    if given.ndim == 0:
        return np.full(clients, whole("samples", samples, 1))
    if len(given) != clients:
        raise InvalidInput(
            f"samples has {len(given)} numbers for {clients} clients: give one number, or one per"
            " client"
        )
    return np.array([whole("samples", each, 1) for each in given.tolist()], dtype=np.intp)


def counts_by_fractions(
    totals: ClientCounts, fractions: Fractions
) -> tuple[ClientCounts, ClientCounts, ClientCounts]:
    """How many samples of each client train, validate and test, out of these."""
    validation, test = split_sizes(totals, fractions)
    return totals - validation - test, validation, test


def counts_by_training(
    n: int, clients: int, fractions: Fractions
) -> tuple[ClientCounts, ClientCounts, ClientCounts]:
    """Counts beside n training samples, which the aspect fixes; at least one if asked for any."""
    train, *others = fractions
    counts = [n, *(0 if share == 0 else max(1, round(n * share / train)) for share in others)]
    train_, validation, test = (np.full(clients, count, dtype=np.intp) for count in counts)
    return train_, validation, test


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

    Regression: y = x'theta_i + noise, x ~ N(0, Sigma), for the clients of a `Population`, or of one
    with these radius, noise, norm, aspect and spectrum. theta_i - theta_0 has length radius;
    theta_i has length norm on average.
    Classification (`task="classification"`): labels from the softmax of x'W_i, where W_0'W_0 =
    centre^2 P, W_i - W_0 = D_i with D_i'D_i = radius^2 P, and P = I - 11'/classes. With two classes
    P(y=1) is the sigmoid of x'theta_i, and `centre` and `radius` are the lengths of theta_0 and
    theta_i - theta_0. Synthetic(alpha, beta) of the FedProx article (`alpha=1, beta=1`): see
    `fedasym.data.synthesis` for its recipe.

    clients: how many, named 0, 1, ...; 100, in Synthetic(alpha, beta) 30. Each depends on the seed
        and its own number alone.
    samples: of each client, all of its training, validation and test samples: one number, or one
        per client. By default dimension/aspect train, and as many more validate and test as `split`
        says; in Synthetic(alpha, beta) log-normal.
    dimension: features of a sample; 100, in Synthetic(alpha, beta) 60.
    radius, noise, norm, aspect, spectrum: as in `Population`; radius 1, noise 0.5, aspect 2 and a
        shared optimum of length 2 unless given. centre: the length of the shared teacher in
        classification, by default 4 with radius 2.
    classes: 10 unless given; flips: the probability that a label is replaced by another one, each
        of them as likely.
    alpha, beta: standard deviations, as in the released code, of the means of a client's weights
        and of its features.
    positions: make every sample a sequence of 1 to this many positions, each with a label, padded
        and masked. `samples` and dimension/aspect then count sequences.
    split: shares of training, validation and test. seed: same seed, same numbers.

    truth: "heads", one per client, and "covariance", the variances of the features, which are
        independent; "shared" is what heads lie around, "noise" and "flips" are numbers;
        Synthetic(alpha, beta) has "intercepts" and "means" of features.

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
        "population": population,
        "radius": radius,
        "noise": noise,
        "norm": norm,
        "centre": centre,
        "classes": classes,
        "flips": flips,
        "aspect": aspect,
        "spectrum": spectrum,
        "alpha": alpha,
        "beta": beta,
    }
    name, options = choose_world(
        task, {key: value for key, value in given.items() if value is not None}, samples is not None
    )
    m = whole("clients", options["clients"] if clients is None else clients, 1)
    d = whole("dimension", options["dimension"] if dimension is None else dimension, 1)
    length = None if positions is None else whole("positions", positions, 1)
    fractions = check_fractions(split)
    seed = check_seed(seed)
    # before anything is listed client by client
    check_memory(m * options.get("classes", 1), f"the heads of {m} clients", d)
    if samples is not None:
        counts = counts_by_fractions(sample_counts(samples, m), fractions)
    elif name == LITERATURE:
        counts = counts_by_fractions(lognormal_sizes(m, seed), fractions)
    else:
        counts = counts_by_training(samples_of_aspect(options["population"], d), m, fractions)
    rows = sum(each.sum(dtype=float) for each in counts)
    # client by client, then together
    check_memory(2 * rows * (length or 1), f"{rows:.0f} samples", d)
    match name:
        case "regression":
            world = regression_world(options["population"], d, m, seed)
        case "classification":
            world = classification_world(
                options["population"],
                options["classes"],
                options["centre"],
                options["flips"],
                d,
                m,
                seed,
            )
        case _:
            world = alpha_beta(options["alpha"], options["beta"], options["classes"], d, m, seed)
    return draw_samples(world, counts, length, seed)


def check_memory(rows: float, what: str, dimension: int) -> None:
    """Refuse tables that would not fit this machine's memory."""
    needed = 8.0 * rows * dimension
    there = physical_memory()
    if needed > 0.8 * there:
        raise InvalidInput(
            f"{what} of {dimension} features need {needed / 1e9:.0f} GB and this machine has"
            f" {there / 1e9:.0f}: give fewer clients, classes, samples, positions or features"
        )


def draw_samples(
    world: TeacherWorld,
    counts: tuple[ClientCounts, ClientCounts, ClientCounts],
    positions: int | None,
    seed: int,
) -> Federation:
    """Every client's samples, those that train first, and the truth behind them."""
    from fedasym.data.federation import Federation

    parts = [
        draw_sequences(world, client, int(total), positions, seed)
        for client, total in enumerate(np.sum(counts, axis=0))
    ]
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


def draw_sequences(
    world: TeacherWorld, client: int, rows: int, positions: int | None, seed: int
) -> tuple[NDArray[Any], ...]:
    """One client's features, labels and mask; with positions, sequences of their own lengths."""
    features, labels = world.draw(client, rows * (positions or 1))
    if positions is None:
        return features, labels, np.ones(rows, bool)
    real = (
        np.arange(positions)
        < seeded_generator(seed, LENGTHS, client).integers(1, positions + 1, rows)[:, None]
    )
    shaped = features.reshape(rows, positions, -1) * real[..., None]
    return shaped, np.where(real, labels.reshape(rows, positions), 0), real
