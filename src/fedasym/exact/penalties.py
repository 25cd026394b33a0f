"""The penalties of an exact fit: clients' ridges, given or estimated, and the ridge on the shared
model ("two ridges"), from the data.

With a prior for the shared model, theta_0 ~ (0, t sigma^2 I), and clients' differences of variance
v sigma^2, all labels together are y ~ (0, sigma^2 (I + t X X' + v blocks of X_j X_j')): nothing is
left to condition on, so that the restricted likelihood is the likelihood, and samples may be fewer
than unknowns. In rows that are white given v, the singular values of all of them serve every t.
The best ridge on the shared model is then 1/(N t), N samples in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm, Objective
from fedasym.algorithms.paper import AVERAGE
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, floats
from fedasym.exact.clients import Client, reflect_rows
from fedasym.exact.least_squares import cross_validate_ridge, fit_shared, stack_triangle
from fedasym.exact.reml import RatioLikelihood, best_ratio
from fedasym.exact.spread import MANY_UNKNOWNS, Spread, estimate_spread, intercept_variance
from fedasym.exact.storage import (
    centre_clients,
    count_samples,
    name_client,
    numbers_per_client,
    refuse_stored,
)

SPAN = np.log(1e7)  # how far from the samples' own scale a ratio of variances is looked for
COARSE = 29  # ratios v of a first look, and of the ratios t at each of them
FINE_RATIOS = 241
LEAST_POWER = 1e-9  # of the largest: eigenvalues below are as good as this
FURTHEST_POWER = 3.0  # of the covariance that is looked for
NONE = 1e-6  # of the samples' own scale: a ratio below is none


def covariance_powers(total: Array) -> Callable[[float], Array]:
    """Power -> S^(power/2), S a matrix of second moments up to a factor: its mean eigenvalue is 1,
    and those that are nearly 0 are as good as the least that counts.
    """
    x, axes = np.linalg.eigh(total)
    x = np.maximum(x, LEAST_POWER * x[-1])
    x = x / max(float(x.mean()), np.finfo(float).tiny)
    return lambda power: np.asarray((axes * x ** (power / 2)) @ axes.T)


def turn_features(
    algorithm: Algorithm, clients: Sequence[Client], intercept: bool
) -> tuple[Algorithm, Array]:
    """The algorithm with its power of the covariance, and T by which features are scaled so that
    its ridge by direction is a plain one; b = T b' are the weights of features as they are.
    """
    stage = algorithm.personalise
    d = clients[0].X.shape[1] - intercept
    refuse_stored(clients, "a ridge by direction", "fit an algorithm with a plain one")
    seen = centre_clients(clients) if intercept else clients
    if not seen:
        return algorithm, np.eye(d + intercept)
    turn = covariance_powers(np.sum([client.X.T @ client.X for client in seen], axis=0))
    power = stage.get("power")
    if power is None:

        def deviance(power: float) -> float:
            T = turn(power)
            return ratio_deviance([replace(client, X=client.X @ T) for client in seen])

        grid = np.linspace(-FURTHEST_POWER, FURTHEST_POWER, 13)
        values = [deviance(each) for each in grid]
        place = int(np.argmin(values))
        ends = grid[max(place - 1, 0)], grid[min(place + 1, grid.size - 1)]
        found = scipy.optimize.minimize_scalar(
            deviance, bounds=ends, method="bounded", options={"xatol": 1e-3}
        )
        power = float(found.x if found.fun < values[place] else grid[place])
    T = np.eye(d + intercept)
    T[:d, :d] = turn(power)
    return replace(algorithm, personalise=stage.at(power=power)), T


@dataclass(frozen=True, eq=False)
class SharedPenalty:
    """The ridge on the shared model's features; its intercept is free.

    variance: of a shared weight, where it was estimated.
    """

    ridge: float
    variance: float | None = None

    def rows(self, unknowns: int, intercept: bool) -> Array:
        """The ridge of each unknown."""
        return np.append(np.full(unknowns - intercept, self.ridge), [0.0] * intercept)

    def length(self, features: int) -> float | None:
        """The estimated length of theta_0."""
        return None if self.variance is None else float(np.sqrt(self.variance * features))


def choose_shared_ridge(
    algorithm: Algorithm,
    clients: Sequence[Client],
    weights: Array,
    intercept: bool,
    spread: Spread | None,
) -> SharedPenalty:
    """The ridge on the shared model: as given, or from the variances that all labels say.

    noise^2/(N t) where the shared model is weighed as the likelihood weighs it; where clients do
    not count as different (the average), their differences are noise beside what their mean has.
    """
    given = algorithm.server.get("shared_ridge")
    if given is not None:
        return SharedPenalty(float(given))
    if spread is None or spread.shared_variance is None:
        spread = estimate_prior(clients, intercept, None)
    N = int(count_samples(clients).sum())
    shared = float(spread.shared_variance or 0.0)
    noise, own = spread.noise2, 0.0
    if algorithm.server.weighs_alike:
        alike = float(weights @ weights)
        square = sum(float((client.X**2).sum(0) @ spread.variances) for client in clients) / N
        noise, own = noise + square * (1 - alike), alike * float(np.mean(spread.variances))
    size = algorithm.server.fill_missing(ridge=1.0).weight(np.full(1, 1e-9))
    scale = 1.0 if algorithm.server.objective is Objective.JOINT else float(np.ravel(size)[0])
    common = N * (shared + own)
    ridge = scale * noise / common if common > 0 else np.inf
    return SharedPenalty(min(ridge, 1e12), shared)


def estimate_prior(
    clients: Sequence[Client], intercept: bool, personal: NDArray[np.bool_] | None
) -> Spread:
    """Noise, the variances of clients' differences and that of the shared weights, from all labels.

    With few features, whose differences the restricted likelihood tells one by one, those stay, and
    the shared variance is the likeliest beside them.
    """
    refuse_stored(clients, "a ridge on the shared model", "give shared_ridge as a number")
    if len(clients) < 2:
        raise InvalidInput(
            "a ridge on the shared model needs two clients to see what they have in common, and"
            f" there is only {clients[0].name!r}: give shared_ridge as a number"
        )
    p = clients[0].X.shape[1]
    N = sum(client.n for client in clients)
    if p <= MANY_UNKNOWNS and 2 * p < N:
        spread = estimate_spread(clients, intercept, personal)
        white = white_rows(clients, spread.variances / max(spread.noise2, np.finfo(float).tiny))
        if intercept:
            white = reflect_rows(white[:, [*range(p - 1), p]], white[:, p - 1])
        t = likeliest_shared(WhiteRows.of(white, 0.0), spread.noise2)
        return replace(spread, shared_variance=t * spread.noise2)
    may = np.ones(p, bool) if personal is None else np.asarray(personal, bool)
    within = centre_clients(clients) if intercept else clients
    noise2, own, shared = likeliest_variances(within)
    variances = np.where(may, own, 0.0)
    if intercept:
        variances[-1] = 0.0
        if may[-1]:
            variances[-1] = intercept_variance(clients, noise2, variances, shared=True)
    return Spread(noise2, variances, shared_variance=shared)


def white_rows(clients: Sequence[Client], ratios: Array) -> Array:
    """Rows [X y] of all clients, each client's white given the variances of its differences."""
    rows = []
    for client in clients:
        reach = client.X * np.sqrt(ratios)
        V = np.eye(len(client.y)) + reach @ reach.T
        both = np.column_stack([client.X, client.y])
        rows.append(np.linalg.solve(np.linalg.cholesky(V), both))
    return np.vstack(rows)


@dataclass(frozen=True, eq=False)
class WhiteRows:
    """White rows along their singular directions: squares e of the values, squares of the labels
    there, and what labels have beside them.
    """

    e: Array
    along: Array
    rest: float

    @classmethod
    def of(cls, rows: Array, rest: float) -> WhiteRows:
        """From rows [A z] and squares that no row has."""
        U, s, _ = np.linalg.svd(rows[:, :-1], full_matrices=False)
        along = (U.T @ rows[:, -1]) ** 2
        beside = float(rows[:, -1] @ rows[:, -1]) - float(along.sum())
        return cls(s**2, along, rest + max(beside, 0.0))

    def squares(self, t: Array) -> tuple[Array, Array]:
        """The residual sum of squares and the log-determinant at each ratio t."""
        V = 1 + np.multiply.outer(t, self.e)
        return (self.along / V).sum(-1) + self.rest, np.log(V).sum(-1)


def likeliest_shared(rows: WhiteRows, noise2: float) -> float:
    """T with the noise known; 0 where the likelihood is highest without any shared weights."""
    scale = max(float(rows.e.mean()), np.finfo(float).tiny)
    t = np.concatenate([[0.0], np.exp(np.linspace(-2 * SPAN, 2 * SPAN, FINE_RATIOS)) / scale])
    squares, logs = rows.squares(t)
    deviance = squares / max(noise2, np.finfo(float).tiny) + logs
    return refine_ratio(lambda at: float(np.sum(deviance_known(rows, at, noise2))), t, deviance)


def deviance_known(rows: WhiteRows, t: float, noise2: float) -> tuple[float, float]:
    """Residuals over the noise, and the log-determinant."""
    squares, logs = rows.squares(np.array([t]))
    return float(squares[0]) / max(noise2, np.finfo(float).tiny), float(logs[0])


def refine_ratio(deviance: Any, t: Array, seen: Array) -> float:
    """The likeliest ratio between the neighbours of the best of a grid that begins with 0."""
    place = int(np.argmin(seen))
    if place == 0:
        return 0.0
    low, high = np.log(t[max(place - 1, 1)]), np.log(t[min(place + 1, t.size - 1)])
    found = scipy.optimize.minimize_scalar(
        lambda u: deviance(float(np.exp(u))), bounds=(low, high), method="bounded"
    )
    return float(np.exp(found.x))


def likeliest_variances(clients: Sequence[Client]) -> tuple[float, float, float]:
    """sigma^2, the variance of a client's difference by weight, and that of a shared weight."""
    N = sum(client.n for client in clients)
    x = np.concatenate([client.axes[1] ** 2 for client in clients])
    rest = sum(client.rest for client in clients)
    scale = max(float(x.mean()), np.finfo(float).tiny)
    lengths = sum(float(client.y @ client.y) for client in clients) + rest
    if lengths == 0:
        return 0.0, 0.0, 0.0
    known: dict[float, tuple[float, float, float]] = {}

    def look(v: float) -> tuple[float, float, float]:
        """Deviance, t and sigma^2 at the ratio v."""
        if v not in known:

            def whiten_rows(client: Client) -> tuple[Array, Array]:
                U, s, Vt = client.axes
                half = 1 / np.sqrt(1 + v * s**2)
                return (half * s)[:, None] * Vt, half * (U.T @ client.y)

            rows = WhiteRows.of(stack_triangle(whiten_rows(client) for client in clients), rest)

            def deviance(t: Array) -> Array:
                squares, logs = rows.squares(t)
                floor = np.finfo(float).eps ** 2 * lengths
                return np.asarray(N * np.log(np.maximum(squares, floor) / N) + logs)

            middle = max(float(rows.e.mean()), np.finfo(float).tiny)
            t = np.concatenate(
                [[0.0], np.exp(np.linspace(-2 * SPAN, 2 * SPAN, FINE_RATIOS)) / middle]
            )
            best = refine_ratio(lambda at: float(deviance(np.array([at]))[0]), t, deviance(t))
            squares = float(rows.squares(np.array([best]))[0][0])
            logs = float(np.log1p(v * x).sum())
            known[v] = float(deviance(np.array([best]))[0]) + logs, best, squares / N
        return known[v]

    grid = np.concatenate([[0.0], np.exp(np.linspace(-SPAN, SPAN, COARSE)) / scale])
    seen = np.array([look(v)[0] for v in grid])
    v = refine_ratio(lambda at: look(at)[0], grid, seen)
    v = 0.0 if v * scale < NONE else v
    _, t, noise2 = look(v)
    return noise2, v * noise2, t * noise2


def choose_penalties(
    algorithm: Algorithm,
    ridge: Any,
    clients: Sequence[Client],
    weights: Array,
    intercept: bool,
    may: NDArray[np.bool_] | None,
) -> tuple[Array | None, Spread | None]:
    """Each client's ridge, one or by unknown, where there is any, and the estimated variances.

    An algorithm that shares nothing has ridges for its features only: its intercept is free.
    """
    stages = [stage for stage in algorithm.stages if "ridge" in stage.settings()]
    if not stages:
        return None, None
    fixed = [value for stage in stages if (value := stage.get("ridge")) is not None]
    wanted = ridge if ridge is not None else fixed[-1] if fixed else None
    wanted = "optimal" if wanted is None else wanted
    apart = algorithm.shares_nothing and intercept
    if isinstance(wanted, str):
        within = centre_clients(clients) if apart else clients
        if not within:
            # one sample each: nothing is left once it is the intercept
            return np.zeros(len(clients)), None
        if wanted == "optimal":
            shared = not algorithm.shares_nothing
            if algorithm.server.shrinks and shared:
                spread = estimate_prior(within, intercept, may)
            else:
                spread = estimate_spread(within, intercept and not apart, may, shared=shared)
            variances = np.append(spread.variances, [0.0] * apart)
            alike = may is None and np.ptp(spread.variances) == 0
            found = replace(spread, variances=variances)
            return spread.ridges(clients, alike), found
        if wanted != "cv":
            raise InvalidInput(
                f"ridge is {wanted!r}: give 'optimal', 'cv', a number or one number per client"
            )
        refuse_stored(clients, "ridge='cv'", "give ridge='optimal' or a number")
        # weights of clients on their own do not matter
        fair = np.full(len(within), 1 / len(within)) if apart else weights
        zero = None
        if algorithm.server.shrinks:
            first = choose_shared_ridge(algorithm, clients, weights, intercept, None)
            zero = first.rows(clients[0].X.shape[1], intercept)
        best = cross_validate_ridge(algorithm.server, within, fair, zero)
        common = np.full(len(clients), best)
        return mask_ridges(common, may), None
    return mask_ridges(check_ridges(algorithm, wanted, clients), may), None


def mask_ridges(ridges: Array, may: NDArray[np.bool_] | None) -> Array:
    """Ridges with infinite ones where clients may not differ."""
    if may is None:
        return ridges
    wide = ridges if ridges.ndim == 2 else np.repeat(ridges[:, None], may.size, axis=1)
    return np.where(may, wide, np.inf)


def check_ridges(algorithm: Algorithm, wanted: Any, clients: Sequence[Client]) -> Array:
    """Ridges that were given: one for all, one per client, one per unknown, or both."""
    m, p = len(clients), clients[0].X.shape[1]
    shape = () if isinstance(wanted, Mapping) else np.shape(np.asarray(wanted, dtype=object))
    if len(shape) == 2:
        numbers = floats(wanted)
        if numbers is None or shape[0] not in (1, m) or shape[1] not in (1, p):
            raise InvalidInput(
                f"ridge has shape {shape}: give numbers of shape (1 or {m}, 1 or {p} unknowns)"
            )
        ridges = np.broadcast_to(numbers, (m, p)).copy()
        if not (ridges >= 0).all():
            raise InvalidInput(f"ridge holds {ridges.min():g}: every ridge must be at least 0")
        if np.any(ridges == 0) and "ridge" in algorithm.server.settings():
            raise InvalidInput(
                f"ridge holds 0: {algorithm.name} needs ridges above 0 to tie clients to the rest"
            )
        return ridges
    if not isinstance(wanted, Mapping) and shape == ():
        wanted = np.full(m, wanted, dtype=object)  # its numbers are checked below
    ridges = numbers_per_client("ridge", wanted, clients)
    for place, each in enumerate(ridges):
        if not each >= 0:
            raise InvalidInput(
                f"the ridge of client {name_client(clients, place)!r} is {each:g}: it must be at"
                " least 0"
            )
        if each == 0 and "ridge" in algorithm.server.settings():
            raise InvalidInput(
                f"the ridge of client {name_client(clients, place)!r} is 0: {algorithm.name} needs"
                " one above 0 to tie it to the rest"
            )
    return ridges


def check_personal_unknowns(
    personal: ArrayLike | None, unknowns: int, intercept: bool
) -> NDArray[np.bool_] | None:
    """By unknown, whether it may differ between clients; None where all may."""
    if personal is None:
        return None
    mask = floats(personal)
    if mask is None or mask.shape != (unknowns - intercept,) or not np.isin(mask, (0, 1)).all():
        raise InvalidInput(
            f"personal is {personal!r}: give one True or False for each of {unknowns - intercept}"
        )
    may = np.append(mask, [1.0] * intercept).astype(bool)
    return None if may.all() else may


def ratio_deviance(clients: Sequence[Client]) -> float:
    """-2 log restricted likelihood of these clients at their likeliest ratio, up to a constant that
    is the same for features that span the same space.
    """
    N = sum(client.n for client in clients)
    pool = fit_shared(AVERAGE, clients, np.array([client.n / N for client in clients]))
    if pool.rank >= N:
        raise InvalidInput(
            f"power needs more samples than unknowns to be estimated, and all clients together have"
            f" {N} for {clients[0].X.shape[1]}: give power as a number"
        )
    likelihood = RatioLikelihood.of(clients, pool)
    return likelihood.at(best_ratio(likelihood))[0]
