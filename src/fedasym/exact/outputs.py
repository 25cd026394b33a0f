"""Several outputs of one linear model, such as one-hot classes (least-squares heads), and penalties
that are common to them.

Given the penalties, outputs do not know of each other: one factorisation of the features serves
all. The penalties are common, so that the factorisation is; they are estimated from a few
combinations of the outputs with random signs, each of which has the common ratio of noise to
differences.

A ridge head of all samples needs of a client no more than X'X and X'Y (AFL, He et al. 2025;
Fed3R, Fani et al. 2024): sums that one round adds up, however samples are dealt out to clients.

What clients choose by their losses is here too: groups with a shared model each, and the weight of
their own models in a mixture.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm
from fedasym.algorithms.stages import ServerStage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, amount
from fedasym.exact.clients import Client, about_means, append_ones, check_rows
from fedasym.exact.least_squares import LEVERAGE, fit_personal, fit_shared, residuals_about_others
from fedasym.exact.penalties import SharedPenalty
from fedasym.exact.spread import Spread
from fedasym.exact.storage import centre_clients, count_samples, map_clients, refuse_stored

PASSES = 20  # of assignments to groups
BEGINNINGS = 10  # of which the best counts
COMBINATIONS = 8  # of outputs that estimate what is common to all; so many are looked at themselves


def one_hot(labels: Sequence[Hashable], classes: Sequence[Hashable] | None = None) -> Array:
    """Classes as outputs of zeros and ones, (samples, classes), for least-squares heads.

    classes: their order; sorted by default.

    >>> one_hot(["b", "a", "b"]).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    given: Any = np.asarray(labels)
    values = given.tolist()
    known = sorted(set(values)) if classes is None else list(classes)
    places = {each: place for place, each in enumerate(known)}
    strange = next((each for each in values if each not in places), None)
    if strange is not None:
        raise InvalidInput(
            f"labels hold {strange!r}, which is not one of the classes: add it to them"
        )
    out = np.zeros((len(values), len(known)))
    out[np.arange(len(values)), [places[each] for each in values]] = 1.0
    return out


@dataclass(frozen=True, eq=False)
class GramSums:
    """What a client sends for the pooled ridge head, and what the server adds up: X'X and X'Y.

    >>> import numpy as np, fedasym as fa
    >>> X, Y = np.eye(3), np.array([[1.0], [2.0], [3.0]])
    >>> half = [fa.linear.GramSums.of(X[i], Y[i], intercept=False) for i in ([0], [1, 2])]
    >>> (half[0] + half[1]).solve(shared_ridge=1 / 3).ravel().round(12).tolist()
    [0.5, 1.0, 1.5]
    """

    samples: int
    gram: Array
    cross: Array
    intercept: bool

    @classmethod
    def of(cls, X: Any, Y: Any, *, intercept: bool = True) -> GramSums:
        """The sums of one client's samples; Y: (samples,) or (samples, outputs)."""
        rows, labels = check_rows(None, X, Y, several=True)
        rows = append_ones(rows, intercept)
        return cls(len(rows), rows.T @ rows, rows.T @ labels, intercept)

    def __add__(self, other: GramSums) -> GramSums:
        """Of both together: order and partition make no difference."""
        same = self.cross.shape == other.cross.shape and self.intercept == other.intercept
        if not same:
            raise InvalidInput(
                f"sums of models of shape {self.cross.shape} and {other.cross.shape} do not add up:"
                " give all clients the same features, outputs and intercept"
            )
        total = self.samples + other.samples
        return GramSums(total, self.gram + other.gram, self.cross + other.cross, self.intercept)

    def solve(self, shared_ridge: float) -> Array:
        """Argmin |X b - Y|^2/(2 N) + shared_ridge/2 |b|^2, the intercept free and last."""
        ridge = np.full(len(self.gram), self.samples * amount("shared_ridge", shared_ridge))
        if self.intercept:
            ridge[-1] = 0.0
        system = self.gram + np.diag(ridge)
        try:
            return np.asarray(scipy.linalg.solve(system, self.cross, assume_a="pos"))
        except np.linalg.LinAlgError:
            raise InvalidInput(
                f"shared_ridge is {shared_ridge:g}: {self.samples} samples do not determine"
                f" {len(self.gram)} weights without one; give more"
            ) from None


def combine_outputs(clients: Sequence[Client]) -> list[Sequence[Client]]:
    """Clients with one output each: their only one, each of a few, or combinations of many."""
    several = clients[0].y.shape[1:]
    if not several:
        return [clients]
    outputs = several[0]
    signs = np.eye(outputs)
    if outputs > COMBINATIONS:
        rng = np.random.default_rng(0)
        signs = rng.choice([-1.0, 1.0], (outputs, COMBINATIONS)) / np.sqrt(outputs)

    def combine(sign: Array, client: Client) -> Client:
        return replace(client, y=client.y @ sign, rest=float(np.sum(client.rest * sign**2)))

    return [map_clients(clients, partial(combine, sign)) for sign in signs.T]


def common_penalties(
    found: Sequence[tuple[Any, Spread | None]], clients: Sequence[Client], free_intercept: bool
) -> tuple[Any, Spread | None]:
    """Ridges for all outputs: of the mean variances, or the geometric mean of those found.

    free_intercept: whether ridges are for the features alone.
    """
    ridges, spreads = zip(*found, strict=True)
    if len(found) == 1 or ridges[0] is None:
        return found[0]
    known = [each for each in spreads if each is not None]
    if not known:
        with np.errstate(divide="ignore"):
            return np.exp(np.mean(np.log(np.stack(ridges)), axis=0)), None
    shared = [each.shared_variance for each in known if each.shared_variance is not None]
    spread = Spread(
        float(np.mean([each.noise2 for each in known])),
        np.mean([each.variances for each in known], axis=0),
        shared_variance=float(np.mean(shared)) if shared else None,
    )
    each = spread
    if free_intercept:
        each = replace(spread, variances=spread.variances[:-1])
    return each.ridges(clients, alike=np.ptp(each.variances) == 0), spread


def common_shared_ridge(found: Sequence[SharedPenalty]) -> SharedPenalty:
    """One ridge on the shared model for all outputs: the geometric mean."""
    if len(found) == 1:
        return found[0]
    known = [each.variance for each in found if each.variance is not None]
    ridge = float(np.exp(np.mean([np.log(max(each.ridge, 1e-300)) for each in found])))
    return SharedPenalty(ridge, float(np.mean(known)) if known else None)


def group_by_angle(vectors: Array, count: int) -> NDArray[np.intp]:
    """Groups of vectors that point the same way, as numbers from 0; there may be fewer.

    Leaders are one of the first vectors and, one after another, the one that is farthest in angle
    from all leaders; then groups and their mean directions follow each other (k-means on a sphere).
    Of several beginnings the one counts whose groups are closest.

    >>> group_by_angle(np.array([[1.0, 0], [0, 2], [3, 0.1], [0.1, 1]]), 2).tolist()
    [0, 1, 0, 1]
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    cosines = unit @ unit.T
    found = [follow_leaders(cosines, first, count) for first in range(min(BEGINNINGS, len(unit)))]
    best = max(found, key=lambda groups: float(closeness(cosines, groups, count)[1]))
    return np.asarray(np.unique(best, return_inverse=True)[1])


def follow_leaders(cosines: Array, first: int, count: int) -> NDArray[np.intp]:
    """Groups around leaders, of which this is the first."""
    leaders = [first]
    while len(leaders) < count:
        leaders.append(int(cosines[:, leaders].max(axis=1).argmin()))
    groups: NDArray[np.intp] = cosines[:, leaders].argmax(axis=1)
    for _ in range(PASSES):
        later = closeness(cosines, groups, count)[0].argmax(axis=1)
        if np.array_equal(later, groups):
            break
        groups = later
    return groups


def closeness(cosines: Array, groups: NDArray[np.intp], count: int) -> tuple[Array, float]:
    """The cosine of every vector to every group's mean direction, and the sum over its own."""
    members = (groups[:, None] == np.arange(count)).astype(float)
    sums = cosines @ members
    lengths = np.sqrt(np.maximum((members * sums).sum(0), 1e-300))
    each = sums / lengths
    return each, float(each[np.arange(len(groups)), groups].sum())


def mixture_weight(
    server: ServerStage, own_ridge: float, clients: Sequence[Client], weights: Array
) -> float:
    """The weight a of clients' own models beside the shared one, between 0 and 1, by generalised
    cross-validation.

    With e a client's residuals about the others' shared model and l those about its own, as if each
    sample had been left out, sum |(1 - a) e + a l|^2 is least at one a.
    """
    left = residuals_about_others(server, clients, weights, np.inf)
    ee = el = ll = 0.0
    for client, e in zip(clients, left, strict=True):
        U, s, _ = client.axes
        x = s**2 / client.n
        if own_ridge == 0 and client.n <= x.size and np.all(x > 0):  # each sample is interpolated
            share, beside = np.mean(1 / x) ** -1 / x, 1.0
        else:
            kept = own_ridge / (own_ridge + x) if own_ridge else np.where(x > 0, 0.0, 1.0)
            beside = 1 / max((client.n - len(x) + float(kept.sum())) / client.n, LEVERAGE)
            share = kept * beside
        own = share * (U.T @ client.y)
        ee += float(e @ e) + client.rest
        el += float(e @ own) + client.rest * beside
        ll += float(own @ own) + client.rest * beside**2
    room = ee + ll - 2 * el
    return float(np.clip((ee - el) / room, 0.0, 1.0)) if room > 0 else 0.0


def choose_groups(
    stage: ServerStage, data: Sequence[Client], p: Array, count: int
) -> NDArray[np.intp]:
    """Each client's group: first by the angles of gradients at zero, then by the least loss among
    the groups' shared models.
    """
    refuse_stored(data, "dealing clients out to groups", "train (fa.train)")
    gradients = np.stack([(client.X.T @ client.y).ravel() / client.n for client in data])
    groups = group_by_angle(gradients - p @ gradients, min(count, len(data)))
    for _ in range(PASSES):
        models = []
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            part = [client for client, each in zip(data, groups, strict=True) if each == group]
            models.append(fit_shared(stage, part, p[mine] / p[mine].sum(), None, None).theta)
        losses = [
            [float(((client.X @ model - client.y) ** 2).sum()) for model in models]
            for client in data
        ]
        later = np.argmin(losses, axis=1)
        if np.array_equal(later, groups):
            break
        groups = later
    return groups


def own_ridge(algorithm: Algorithm) -> float:
    """The ridge of the model that clients of a mixture make on their own; 0: none."""
    stage = algorithm.personalise.own_stage
    return 0.0 if stage is None else float(stage.get("ridge") or 0.0)


def with_mixture(
    algorithm: Algorithm, lines: Sequence[Sequence[Client]], weights: Array, intercept: bool
) -> Algorithm:
    """The algorithm with the weight of clients' own models, where it mixes and has none."""
    stage = algorithm.personalise
    if stage.own_stage is None or stage.get("mixture") is not None:
        return algorithm
    found = [choose_mixture(algorithm, clients, weights, intercept) for clients in lines]
    return replace(algorithm, personalise=stage.at(mixture=float(np.mean(found))))


def choose_mixture(
    algorithm: Algorithm, clients: Sequence[Client], weights: Array, intercept: bool
) -> float:
    """The weight of clients' own models beside the shared one."""
    refuse_stored(clients, "the weight of clients' own models", "give mixture as a number")
    if len(clients) < 2:
        raise InvalidInput(
            f"mixture is found beside other clients' samples, and there is only"
            f" {clients[0].name!r}: give mixture as a number"
        )
    fair = weights[count_samples(clients) > intercept]
    clients = centre_clients(clients) if intercept else clients
    if len(clients) < 2:
        return 0.0
    return mixture_weight(algorithm.server, own_ridge(algorithm), clients, fair / fair.sum())


def fit_alone(algorithm: Algorithm, client: Client, ridge: Any) -> Array:
    """The model of a client alone: its intercept is free, so that no ridge pulls it to 0."""
    ones = client.X[:, -1]
    mean = ones @ client.X[:, :-1] / client.n
    level = ones @ client.y / client.n
    start = np.zeros((client.X.shape[1] - 1, *client.y.shape[1:]))
    # the loss is a mean over n samples, of which the intercept has taken one
    fair = client.n / max(client.n - 1, 1)
    slopes = start
    several = client.y.shape[1:]
    if client.n > 1:
        slopes = fit_personal(algorithm.personalise, about_means(client), start, ridge * fair)
    return np.concatenate([slopes, np.atleast_1d(level - mean @ slopes).reshape(1, *several)])
