"""Variances from squares along axes and products across clients.

Two variances (section 8.2, weighted): E p_k = noise^2 + spread^2 x_k/d. The normal equations with
the weights 1/v_k^2, v_k the fitted mean, are those of maximum likelihood; they need nothing but
means to be right, so products of independent residuals serve as well as squares. Errors come from
how clients differ (the sandwich), not from a distribution that is assumed.

Where all samples together are too few for the shared model (section 8.3, made right for any
covariance), labels alone give noise and norm: v_k = noise^2 + norm^2 x_k/d along each client's
axes. What clients share shows in products across clients: with g_i = X_i'W_i y_i and T_i = X_i'W_i
X_i, E g_i'g_j = (b^2/d) tr T_i T_j, for a shared optimum of length b without preferred directions,
and radius^2 = norm^2 - b^2. W_i = (noise^2 + norm^2 X_i X_i'/d)^{-1} makes it sharp. A client sends
g_i and T_i times a few random vectors that all share: tr T_i T_j is the mean of w'T_i T_j w.

Of the clients at hand: a prediction is the mean over a population; what is compared with it are so
many clients with so many features. Their samples make the estimates as well, so that the two errors
go together. Clients drawn from the estimated population have both, the loss L_i and what they add
to the error of the predicted one, P_i = bias (radius^2)_i/radius^2 + variance (noise^2)_i/noise^2,
with influences J^{-1} s_i. The mean of m clients is off by P - L instead of P: (var(P - L) - var
P)/m is what the variance of an interval lacks, or has too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.data import spread_places
from fedasym.advisor.statistics import Axes, Summary, axes_of, field_owners, stack_field
from fedasym.core.numbers import Array
from fedasym.exact.profile_likelihood import in_threads

if TYPE_CHECKING:
    from fedasym.advisor.estimates import Estimates

DRAWN_CLIENTS = 200
DRAWING_WORK = 2e9  # multiplications that these clients may cost
FEWEST_DRAWN = 30
DRAWN_TOGETHER = 16
REWEIGHTINGS = 200
SETTLED = 1e-12
PROBE_VECTORS = 16
LEAST_SAMPLES = 8  # samples from which a client's fourth moment says something


@dataclass(frozen=True, eq=False)
class AxisVariances:
    """noise^2, spread^2 (radius^2 about a shared model, norm^2 about 0), clients' influences."""

    noise2: float
    spread2: float
    influence: Array  # (m, 2): the estimate moves by about -influence_i without client i
    gaussian: Array  # (2,) the variances that Gaussian residuals of equal clients would give

    @property
    def covariance(self) -> Array:
        """Of (noise2, spread2), over clients."""
        m = len(self.influence)
        return np.asarray(self.influence.T @ self.influence * m / (m - 1))

    @property
    def excess(self) -> Array:
        """How much clients' variances exceed the model's; never below 1, the model's own."""
        ratio = np.diag(self.covariance) / np.maximum(self.gaussian, 1e-300)
        return np.asarray(np.where(self.gaussian > 0, np.maximum(ratio, 1.0), 1.0))


@dataclass(frozen=True, eq=False)
class AxisSquares:
    """Products p_k with x_k/d by owner, and samples beyond the axes, with squared sum `rest`."""

    p: Array
    z: Array  # x_k/d
    owner: NDArray[np.intp]
    rest: Array  # (m,)
    extra: Array  # (m,) how many samples are beyond the axes

    @classmethod
    def of(cls, summaries: list[Summary], field: str) -> AxisSquares:
        """From a field of the summaries: "residual" or "raw"."""
        z = np.concatenate([each.power / each.dimension for each in summaries])
        extra = np.array([each.samples - each.power.size for each in summaries], dtype=float)
        rest = np.array([each.rest for each in summaries])
        return cls(stack_field(summaries, field), z, field_owners(summaries), rest, extra)


def fit_variances(summaries: list[Summary], field: str = "residual") -> AxisVariances:
    """Weighted least squares until the weights agree with the fit; neither variance is below 0."""
    data = AxisSquares.of(summaries, field)
    total = float(data.p.sum() + data.rest.sum())
    count = data.p.size + data.extra.sum()
    if total <= 0:
        return AxisVariances(0.0, 0.0, np.zeros((len(summaries), 2)), np.zeros(2))
    floor = 1e-12 * total / count
    fit = np.array([0.5 * total / count, 0.5 * total / max(data.z.sum(), 1e-300)])
    for _ in range(REWEIGHTINGS):
        new = reweigh(data, fit, floor)
        moved = np.abs(new - fit) / np.maximum(new, floor)
        fit = new
        if np.all(moved < SETTLED):
            break
    influence, gaussian = jackknife_errors(data, fit, floor, len(summaries))
    return AxisVariances(float(fit[0]), float(fit[1]), influence, gaussian)


def reweigh(data: AxisSquares, fit: Array, floor: float) -> Array:
    """One round of weights from the last fit; a variance that would be negative is 0."""
    v = np.maximum(fit[0] + fit[1] * data.z, floor)
    beyond = max(float(fit[0]), floor)
    w, w0 = v**-2, beyond**-2
    J = information_matrix(data, w, w0)
    b = np.array([w @ data.p + w0 * data.rest.sum(), (w * data.z) @ data.p])
    if is_invertible(J):
        both = np.linalg.solve(J, b)
        if both.min() >= 0:
            return np.asarray(both)
    # On an edge: no spread, or no noise; the one with the smaller weighted error.
    edges = [
        np.array([max(b[0] / J[0, 0], 0), 0.0]),
        np.array([0.0, max(b[1] / max(J[1, 1], 1e-300), 0)]),
    ]
    return min(edges, key=lambda e: float(e @ J @ e - 2 * e @ b))


def information_matrix(data: AxisSquares, w: Array, w0: float) -> Array:
    """The information: sums of w, w z and w z^2."""
    one, two = float(w @ data.z), float((w * data.z) @ data.z)
    return np.array([[w.sum() + w0 * data.extra.sum(), one], [one, two]])


def jackknife_errors(data: AxisSquares, fit: Array, floor: float, m: int) -> tuple[Array, Array]:
    """What the estimate moves by without each client, and the diagonal of 2 J^{-1}.

    Without client i it is one step (J - J_i)^{-1} s_i away, with the client's score s_i and
    information J_i: the jackknife. J^{-1} s_i would make the errors too small where a few clients
    hold much of the information. The factor (m - 1)/m makes squares sum to the variance, but for
    the m/(m - 1) of a sample.
    """
    v = np.maximum(fit[0] + fit[1] * data.z, floor)
    beyond = max(float(fit[0]), floor)
    w, w0 = v**-2, beyond**-2
    off = w * (data.p - v)

    def sum_by_client(values: Array) -> Array:
        return np.asarray(np.bincount(data.owner, values, m))

    beyond_axes = w0 * (data.rest - data.extra * beyond)
    scores = np.column_stack([sum_by_client(off) + beyond_axes, sum_by_client(off * data.z)])
    one, two = sum_by_client(w * data.z), sum_by_client(w * data.z**2)
    own = np.array([[sum_by_client(w) + w0 * data.extra, one], [one, two]]).transpose(2, 0, 1)
    J = own.sum(0)
    if not is_invertible(J):
        inverse = np.linalg.pinv(J)
        return np.asarray(scores @ inverse), np.asarray(2 * np.diag(inverse))
    others = J - own
    others[~is_invertible(others)] = J
    moved = np.linalg.solve(others, scores[:, :, None])[:, :, 0]
    return np.asarray(moved * (m - 1) / m), np.asarray(2 * np.diag(np.linalg.inv(J)))


def is_invertible(J: Array) -> Any:
    """Whether an information matrix, or each of a stack, can be inverted."""
    return np.linalg.det(J) > 1e-12 * J[..., 0, 0] * J[..., 1, 1]


def squared_length(summaries: list[Summary], noise2: float) -> tuple[float, Array, float]:
    """norm^2 from the labels at a given noise, clients' influences, and its slope in noise^2.

    The length of an optimum without preferred directions that explains as much of the labels.
    """
    data = AxisSquares.of(summaries, "raw")
    floor = 1e-12 * float(data.p.sum()) / data.p.size
    fit = max(float((data.p - noise2).sum() / max(data.z.sum(), 1e-300)), 0.0)
    for _ in range(REWEIGHTINGS):
        w = np.maximum(noise2 + fit * data.z, floor) ** -2 * data.z
        new = max(float(w @ (data.p - noise2)) / max(float(w @ data.z), 1e-300), 0.0)
        done = abs(new - fit) <= SETTLED * max(new, floor)
        fit = new
        if done:
            break
    m = len(summaries)
    scale = max(float(w @ data.z), 1e-300)
    scores = np.bincount(data.owner, w * (data.p - noise2 - fit * data.z), m)
    others = np.maximum(scale - np.bincount(data.owner, w * data.z, m), scale / m**2)
    return fit, np.asarray(scores / others * (m - 1) / m), -float(w.sum()) / scale


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """noise^2, norm^2, centre^2 = b^2 (perhaps below 0), and each client's influence (m, 3)."""

    noise2: float
    norm2: float
    centre2: float
    influence: Array


def probe_vectors(dimension: int) -> Array:
    """The random vectors that all clients share: signs from a fixed seed, (d, PROBES)."""
    return np.asarray(np.random.default_rng(8).integers(0, 2, (dimension, PROBE_VECTORS)) * 2.0 - 1)


def add_products(summary: Summary, axes: Axes, noise2: float, norm2: float) -> Summary:
    """The client's second answer, once the server has told noise^2 and norm^2."""
    v = np.maximum(noise2 + norm2 * axes.power / summary.dimension, np.finfo(float).tiny)
    weighed = axes.rows / v[:, None]
    probes = weighed.T @ (axes.rows @ probe_vectors(summary.dimension))
    return replace(summary, pull=weighed.T @ axes.labels, probes=probes)


def combine_products(summaries: list[Summary]) -> CrossProducts:
    """Combine second answers; errors of b^2 by leaving out one client after the other."""
    first: AxisVariances = fit_variances(summaries, "raw")
    d = summaries[0].dimension
    m = len(summaries)
    above = sum_across(np.stack([each.pull for each in summaries])[..., None])
    below = sum_across(np.stack([each.probes for each in summaries]))
    whole = d * PROBE_VECTORS * above[0] / below[0]
    without = d * PROBE_VECTORS * (above[0] - above[1]) / (below[0] - below[1])
    # jackknife, scaled so that squares sum to the variance
    shift = (m - 1) / m * (without.mean() - without)
    influence = np.column_stack([first.influence, shift])
    return CrossProducts(first.noise2, first.spread2, float(whole), influence)


def sum_across(vectors: Array) -> tuple[float, Array]:
    """Sum over i != j of v_i'v_j, and the part of it that each client has a hand in."""
    total = vectors.sum(0)
    own = (vectors**2).sum((1, 2))
    mine = 2 * ((vectors * total).sum((1, 2)) - own)
    return float((total**2).sum() - own.sum()), np.asarray(mine)


def kurtosis_of(summaries: Sequence[Summary]) -> tuple[float, float]:
    """Excess kurtosis of residuals within clients, and its distance from 0 in standard errors."""
    enough = [each for each in summaries if each.samples >= LEAST_SAMPLES]
    if not enough:
        return 0.0, 0.0
    n = np.array([each.samples for each in enough], dtype=float)
    excess = float(np.average([each.tails - 3 for each in enough], weights=n))
    return excess, excess / float(np.sqrt(24 / n.sum()))


class PartedLoss(NamedTuple):
    """A predicted loss: bias, variance, ridge times samples (infinite: shared), sharing or not.

    Clients alone have labels and norm, the others residuals and radius.
    """

    bias: float
    variance: float
    ratio: float
    alone: bool


Drawn = tuple[Array, Array, Array, Array]  # rows, shift, optimum and noise of a client


def lacking_variance(
    found: Estimates, dimension: int, sizes: Array, losses: Mapping[str, PartedLoss]
) -> dict[str, float]:
    """Variance to add to that of each predicted mean loss."""
    rng = np.random.default_rng(5)
    s = spectrum_eigenvalues(found, dimension)
    energy = s**found.power / (s**found.power).sum()
    centre = np.sqrt(max(found.norm2 - found.radius2, 0.0) / dimension)
    count = affordable_draws(sizes, dimension)
    samples = np.resize(sizes[spread_places(sizes.size, count)].astype(int), count)

    def draw_client(n: int) -> Drawn:
        X = rng.standard_normal((n, dimension)) * np.sqrt(s)
        shift = np.sqrt(found.radius2 * energy) * rng.standard_normal(dimension)
        whole = centre * rng.standard_normal(dimension) + shift
        return X, shift, whole, np.sqrt(found.noise2) * rng.standard_normal(n)

    def judge(X: Array, shift: Array, whole: Array, noise: Array) -> tuple[Any, list[float]]:
        about = axes_of(X, X @ shift + noise)
        alone = replace(about, labels=about.labels + about.rows @ (whole - shift))
        shared = score_variances(about, found.noise2, found.radius2)
        scores = (*shared, *score_variances(alone, found.noise2, found.norm2))
        drawn = {True: (alone, whole), False: (about, shift)}  # by whether clients are alone
        return scores, [fit_loss(*drawn[each.alone], s, each.ratio) for each in losses.values()]

    seen: list[tuple[Any, list[float]]] = []
    while len(seen) < count:  # a few at a time: so many are kept
        some = [draw_client(n) for n in samples[len(seen) : len(seen) + DRAWN_TOGETHER]]

        def judge_place(k: int, some: list[Drawn] = some) -> tuple[Any, list[float]]:
            return judge(*some[k])

        seen += in_threads(judge_place, len(some), dimension)
    scores, lost = zip(*seen, strict=True)
    moved = client_influences(list(scores))
    out = {}
    for (name, each), L in zip(losses.items(), np.array(lost).T, strict=True):
        at, spread2 = (2, found.norm2) if each.alone else (1, found.radius2)
        P = each.bias * moved[:, at] / spread2 + each.variance * moved[:, 0] / found.noise2
        out[name] = float(np.var(P - L, ddof=1) - np.var(P, ddof=1)) / sizes.size
    return out


def affordable_draws(sizes: Array, dimension: int) -> int:
    """So many clients can be drawn."""
    each = float(np.mean(sizes * dimension * np.minimum(sizes, dimension)))
    return int(np.clip(DRAWING_WORK / each, FEWEST_DRAWN, DRAWN_CLIENTS))


def spectrum_eigenvalues(found: Estimates, dimension: int) -> Array:
    """As many as there are features, in the spectrum's shares."""
    order = np.argsort(found.spectrum.values)
    edges = np.cumsum(found.spectrum.weights[order])
    places = np.searchsorted(edges / edges[-1], (np.arange(dimension) + 0.5) / dimension)
    s = found.spectrum.values[order][np.minimum(places, order.size - 1)]
    return np.asarray(s * found.spectrum.mean / s.mean())


def score_variances(axes: Axes, noise2: float, spread2: float) -> tuple[Array, Array]:
    """Score and information of (noise^2, spread^2) at the truth."""
    z = axes.power / axes.rows.shape[1]
    v = noise2 + spread2 * z
    extra = axes.samples - z.size
    design = np.column_stack([np.ones(z.size), z]) / v[:, None]
    score = design.T @ (axes.labels**2 / v - 1)
    score[0] += (axes.rest - extra * noise2) / noise2**2
    information = design.T @ design
    information[0, 0] += extra / noise2**2
    return score, information


def client_influences(scores: list[tuple[Array, Array, Array, Array]]) -> Array:
    """Each client's influence on noise^2 and radius^2, and on norm^2 at that noise."""
    score, J, raw, K = (np.array(each) for each in zip(*scores, strict=True))
    J, K = J.mean(0), K.mean(0)
    both = np.linalg.solve(J, score.T).T
    norm = (raw[:, 1] - K[1, 0] * both[:, 0]) / K[1, 1]
    return np.column_stack([both, norm])


def fit_loss(axes: Axes, truth: Array, s: Array, ratio: float) -> float:
    """(theta_hat - truth)' Sigma (theta_hat - truth) of the ridge fit."""
    if np.isinf(ratio):
        return float(s @ truth**2)
    fit = axes.rows.T @ (axes.labels / np.maximum(axes.power + ratio, np.finfo(float).tiny))
    return float(s @ (fit - truth) ** 2)
