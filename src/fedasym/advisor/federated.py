"""The same estimates where samples stay with clients, who send models (d numbers), summaries.

Clients are dealt into five groups, and a shared model is trained on each of the ten pairs of groups
(fedavg, by whatever means the federation has). A client looks at its samples about two models that
come from other groups and have none in
common: their errors are independent, so that products of the two residuals along the client's axes
have the mean noise^2 + radius^2 x/d exactly, as if the shared optimum were known. No client sends
more than a few numbers per sample. Where all samples together are too few for that, there are no
models, and clients answer twice (`answer_again`).

With a privacy budget for the statistics themselves clients send less (`NoisedSums`): a few numbers
and the vector X'y/n, each cut to a bound, in sums over groups of clients to which Gaussian noise is
added.

Classes: the models are of the coded labels. The client also tries the probes on itself, around the
mean model of the other groups, and sends how often they were right. Where directions of the optima
lie needs samples at one place, and so do scarce samples.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg
import scipy.stats
from numpy.typing import NDArray

from fedasym.advisor.class_estimates import AdjustedClient, ClassLook, ClassMoments, combine_moments
from fedasym.advisor.class_statistics import (
    FIRM_RIDGE,
    AccuracyCurve,
    ClientView,
    ProbeRecorder,
    Probes,
    probe_ratios,
    sample_axes,
)
from fedasym.advisor.data import LEAST_CLIENTS, Classes, ClientData, Coding, map_parts
from fedasym.advisor.estimates import (
    LEAST_SHARE,
    Estimates,
    estimate_by_moments,
    estimate_by_products,
)
from fedasym.advisor.moments import add_products, fit_variances
from fedasym.advisor.statistics import Summary, axes_of, spectrum_of, tails_of
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.core.privacy import Privacy
from fedasym.exact.clients import check_rows, triangular_factor
from fedasym.exact.least_squares import SharedSolution, stack_triangle
from fedasym.exact.profile_likelihood import DRAWS, even_points
from fedasym.worlds.spectra import Spectrum, atoms, identity

GROUPS = 5
PAIRS = tuple(combinations(range(GROUPS), 2))
PairModels = Mapping[tuple[int, int], Array]
# samples per unknown, over all clients, from which every pair of groups has a model
PAIR_ROOM = 1.5 * GROUPS / 2
NARROW_SPECTRUM = 0.05  # width of the logarithm of eigenvalues that are taken as one
ATOMS_OF_SUMS = 9  # of a spectrum from two moments


def group_of(place: int) -> int:
    """The group of the client at this place in the server's list."""
    return place % GROUPS


def pair_models(data: ClientData) -> dict[tuple[int, int], Array]:
    """The ten shared models, on one machine; a real federation trains each on a pair of groups."""
    d = data.dimension
    factors = []
    for group in range(GROUPS):
        places = [place for place in range(len(data.parts)) if group_of(place) == group]
        factors.append(
            stack_triangle(data.rows(place) for place in places) if places else np.zeros((0, d + 1))
        )
    return {
        (a, b): SharedSolution.of(triangular_factor(np.vstack([factors[a], factors[b]]))).theta
        for a, b in PAIRS
    }


def summarise_clients(
    name: Hashable, X: Any, y: Any, *, group: int = 0, models: PairModels | None = None
) -> Summary:
    """What a client sends of its own samples; of the `models` of all pairs it uses others' six.

    >>> import numpy as np
    >>> X, y = np.eye(3, 4), np.array([1.0, 2.0, 3.0])
    >>> sent = summarise_clients("ann", X, y)
    >>> sent.raw.tolist(), sent.bytes
    ([1.0, 4.0, 9.0], 112)
    """
    rows, labels = check_rows(name, X, y)
    axes = axes_of(rows, labels)
    model = (
        np.zeros(rows.shape[1])
        if models is None
        else np.mean([models[pair] for pair in PAIRS], axis=0)
    )
    left = labels - rows @ model
    if models is None:
        residual = axes.labels**2
    else:
        halves = halves_for(group)
        about = {pair: axes.labels - axes.rows @ models[pair] for both in halves for pair in both}
        residual = np.mean([about[one] * about[two] for one, two in halves], axis=0)
    return Summary(
        name,
        axes.samples,
        rows.shape[1],
        power=axes.power,
        residual=residual,
        raw=axes.labels**2,
        rest=axes.rest,
        tails=tails_of(left),
        pooled=float(np.mean(left**2)),
    )


def halves_for(group: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The three ways to deal the other four groups into two pairs, whose models share no client.

    >>> halves_for(4)
    [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    """
    first, *others = (each for each in range(GROUPS) if each != group)
    return [
        (pair_of(first, mate), pair_of(*(each for each in others if each != mate)))
        for mate in others
    ]


def pair_of(a: int, b: int) -> tuple[int, int]:
    """A pair in its order."""
    return (a, b) if a < b else (b, a)


def answer_again(summary: Summary, X: Any, y: Any, told: tuple[float, float]) -> Summary:
    """A client's second answer where samples are scarce, given the `first_variances` as `told`."""
    return add_products(summary, axes_of(*check_rows(summary.name, X, y)), *told)


def first_variances(summaries: Sequence[Summary]) -> tuple[float, float]:
    """noise^2 and norm^2 from first answers, which the server tells all before `answer_again`."""
    first = fit_variances(list(summaries), "raw")
    return first.noise2, first.spread2


def combine_summaries(summaries: Sequence[Summary]) -> Estimates:
    """Estimates from the clients' answers, by products, or by moments after second answers."""
    listed = list(summaries)
    if len({each.dimension for each in listed}) != 1:
        raise InvalidInput(
            "the summaries have different dimensions: every client must use the same features"
        )
    if len({each.name for each in listed}) != len(listed):
        raise InvalidInput("two summaries have one name: give each client its own")
    whole = all(each.pull.size for each in listed)
    return estimate_by_moments(listed) if whole else estimate_by_products(listed)


STATISTICS = ("scale", "squares", "aspect", "weight", "power", "energy", "slope", "pull")
SENT = len(STATISTICS) - 1  # of the last the bound is asked for, and then the vector itself sent
POWERS = np.arange(-60, 61)  # of two: bounds that clients vote for
VOTE_LENGTH = len(STATISTICS) ** 0.5  # what one client changes the votes by, at most
SUM_LENGTH = (SENT + 1) ** 0.5  # and the sums
# deviations of the noise from which a bound has been voted for, and one far from the commonest
SURE_VOTES, FAR_VOTES = 4.5, 6.0
SURE_SUMS = 2.0  # deviations from which a sum, which is positive, can be told from nothing
VOTE_SHARE = 0.2  # of the budget; sums have the rest
NOISE_RATIO = 0.1  # of noise^2 to norm^2 tr S/d, at which the weights of axes are the best ones


def split_budget(budget: Privacy) -> tuple[float, float]:
    """Deviations of the noise in votes and in sums: a client changes each of them once, and two
    Gaussian mechanisms are one whose precision is the sum of theirs.

    >>> votes, sums = split_budget(Privacy(noise_multiplier=2))
    >>> precision = (VOTE_LENGTH / votes) ** 2 + (SUM_LENGTH / sums) ** 2
    >>> round(precision**-0.5, 12)
    2.0
    """
    z = budget.find_multiplier(rounds=1, cohort=1, clients=1)  # everyone takes part, once
    return z * VOTE_LENGTH / VOTE_SHARE**0.5, z * SUM_LENGTH / (1 - VOTE_SHARE) ** 0.5


def measure_client(X: Array, y: Array) -> tuple[Array, Array]:
    """A client's statistics, and X'y/n: all that is ever sent of it under a budget.

    With S = X'X/n: a = tr S/d, tr S^2/d, d/n; then means over the client's n axes, of power z in
    units of a, with weights w = (c + z)^-2: of w, w z, w e and w z e, where e is the squared label
    along the axis; |X'y/n|^2.
    """
    axes = axes_of(X, y)
    n, d = X.shape
    scale = float(axes.power.sum()) / (n * d)
    z = axes.power / (d * scale) if scale > 0 else axes.power
    w = (NOISE_RATIO + z) ** -2.0
    beyond, free = NOISE_RATIO**-2.0, n - z.size  # axes without power
    squares = axes.labels**2
    pull = X.T @ y / n
    values = [
        scale,
        float(axes.power @ axes.power) / (n**2 * d),
        d / n,
        (float(w.sum()) + free * beyond) / n,
        float(w @ z) / n,
        (float(w @ squares) + axes.rest * beyond) / n,
        float((w * z) @ squares) / n,
        float(pull @ pull),
    ]
    return np.array(values), pull


def measure_each(data: ClientData) -> list[tuple[Array, Array]]:
    """The same of some clients."""
    return [measure_client(X, y) for X, y in data]


def vote_for_bounds(statistics: Array) -> Array:
    """Each statistic's vote for the least power of two that bounds it, (statistics, powers).

    >>> votes = vote_for_bounds(np.array([3.0, 1.0, 0.3, 0.0, 1e99]))
    >>> POWERS[votes.argmax(1)].tolist(), votes.sum(1).tolist()
    ([2, 0, -1, -60, 60], [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    with np.errstate(divide="ignore"):
        least = np.ceil(np.log2(statistics))
    return np.asarray(np.clip(least, POWERS[0], POWERS[-1])[:, None] == POWERS, dtype=float)


def choose_bounds(votes: Array, deviation: float) -> Array:
    """The largest bound that has surely been voted for, of each statistic, from noised votes.

    There are a thousand places for a vote, and noise alone lifts one of them far up now and then,
    at random: votes count beside the commonest bound, or where they are even more.

    >>> POWERS[choose_bounds(np.isin(POWERS, [2, 3, 40])[None] * [9.0], 1.8)[0] == 2.0**POWERS]
    array([3])
    """
    sure, far = (max(each * deviation, 0.5) for each in (SURE_VOTES, FAR_VOTES))
    last = votes.argmax(1)
    if not (votes.max(1) > sure).all():
        raise InvalidInput(
            f"noise of deviation {deviation:.3g} hides what the clients voted for, which takes more"
            f" than {sure:.0f} clients that are alike: give a larger epsilon for the statistics, or"
            " more clients"
        )
    for row, each in enumerate(votes):
        while last[row] + 1 < POWERS.size and each[last[row] + 1] > sure:
            last[row] += 1
        last[row] = max(last[row], *np.flatnonzero(each > far), 0)
    return np.asarray(2.0 ** POWERS[last])


def bound_client(statistics: Array, pull: Array, bounds: Array) -> Array:
    """What a client adds to the sum of its group: every statistic and the vector over its bound,
    cut to length 1, so that the whole is never longer than `SUM_LENGTH`.
    """
    vector = pull / np.sqrt(bounds[-1])
    length = float(np.sqrt(vector @ vector))
    cut = np.minimum(statistics / bounds, 1.0)[:SENT]
    return np.concatenate([cut, vector / max(length, 1.0)])


@dataclass(frozen=True, eq=False)
class NoisedSums:
    """Sums over five groups of clients, (GROUPS, 7 + d), with noise in them; whose they are.

    clients: how many each group has. bounds: of the statistics. noises: how often noise was added:
    once, or by every node. budget: that was kept.
    """

    sums: Array
    clients: Array
    bounds: Array
    budget: Privacy
    noises: int = 1

    @property
    def bytes(self) -> int:
        """What a client's statistics take: 8 bytes per number of votes and sums."""
        return 8 * (len(STATISTICS) * len(POWERS) + int(self.sums.shape[1]))

    def without(self, group: int) -> NoisedSums:
        """All groups but one."""
        keep = np.arange(len(self.clients)) != group
        return replace(self, sums=self.sums[keep], clients=self.clients[keep])

    def solve(self) -> tuple[Array, Array]:
        """noise^2, radius^2, norm^2; and a = tr Sigma/d, tr Sigma^2/d, d/n.

        With optima without preferred directions, E e = noise^2 + norm^2 a z along an axis: the
        weighted means are two equations for both. The vectors of different groups have the mean
        Sigma theta_0 and independent noise: their products tell (norm^2 - radius^2) tr Sigma^2/d,
        however much noise there is.
        """
        m = float(self.clients.sum())
        mean = self.sums[:, :SENT].sum(0) / m * self.bounds[:SENT]
        scale, squares, aspect, one, two, energy, slope = map(float, mean)
        scale = max(scale, 1e-12 * self.bounds[0])
        d = self.sums.shape[1] - SENT
        spread = max((squares - scale**2 * aspect) / (1 + aspect / d), scale**2)
        three = 1 - 2 * NOISE_RATIO * two - NOISE_RATIO**2 * one  # of w z^2
        room = one * three - two**2
        # noise^2, if nothing else were there
        top = max(energy, 1e-12 * self.bounds[5]) / max(one, 1e-12)
        noise2, norm2 = top, 0.0
        if room > 0:
            noise2 = float(np.clip((three * energy - two * slope) / room, 1e-6 * top, top))
            norm2 = max((one * slope - two * energy) / room, 0.0) / scale
        vectors = self.sums[:, SENT:] * np.sqrt(self.bounds[-1])
        total = vectors.sum(0)
        pairs = m**2 - float(self.clients @ self.clients)
        apart = (float(total @ total) - float((vectors**2).sum())) / pairs
        norm2 = max(norm2, LEAST_SHARE * noise2 / scale)
        radius2 = float(np.clip(norm2 - apart / spread, LEAST_SHARE * norm2, norm2))
        return np.array([noise2, radius2, norm2]), np.array([scale, spread, aspect])


def estimate_from_sums(noised: NoisedSums) -> tuple[Estimates, float]:
    """The estimates, and d/n. Intervals come from leaving out one group after another: the groups'
    sums vary by their clients and by their noise, so that both are in them.
    """
    count = len(noised.clients)
    deviation = split_budget(noised.budget)[1] * float(np.sqrt(noised.noises * count))
    if noised.sums[:, STATISTICS.index("aspect")].sum() < SURE_SUMS * deviation:
        raise InvalidInput(
            f"noise of deviation {deviation:.3g} hides the sums over {noised.clients.sum():.0f}"
            " clients: give a larger epsilon for the statistics, or more clients"
        )
    point, about = noised.solve()
    left = np.array([noised.without(group).solve()[0] for group in range(count)])
    apart = left - left.mean(0)
    level, axes = np.linalg.eigh((count - 1) / count * apart.T @ apart)
    grid = even_points(DRAWS, 4)
    heavy = np.sqrt((count - 1) / scipy.stats.chi2.ppf(grid[:, 3:], count - 1))  # Student's t
    moves = scipy.stats.norm.ppf(grid[:, :3]) * heavy * np.sqrt(np.maximum(level, 0))
    draws = np.maximum(point + moves @ axes.T, 0)
    square, spread, aspect = map(float, about)
    flat = bool(np.quantile(point[1] + (moves @ axes.T)[:, 1], 0.025) <= 0)
    draws[:, 2] = np.maximum(draws[:, 2], draws[:, 1])
    noise2, radius2, norm2 = map(float, point)
    spectrum = log_normal(square, spread)
    found = Estimates(noise2, radius2, norm2, draws, spectrum, "sums with noise", flat)
    return found, aspect


def log_normal(mean: float, mean_square: float) -> Spectrum:
    """Eigenvalues that are log-normal, of this mean and mean square: two moments tell no more."""
    width = np.sqrt(np.log(max(mean_square / mean**2, 1.0)))
    if width < NARROW_SPECTRUM:
        return identity(mean)
    nodes, weights = np.polynomial.hermite_e.hermegauss(ATOMS_OF_SUMS)
    values = np.exp(width * nodes)
    weights = weights / weights.sum()
    return atoms(values * mean / float(values @ weights), weights)


def add_votes(measured: Sequence[tuple[Array, Array]]) -> Array:
    """The votes of clients, (statistics, powers)."""
    total = np.zeros((len(STATISTICS), POWERS.size))
    for statistics, _ in measured:
        total += vote_for_bounds(statistics)
    return total


def add_statistics(
    measured: Sequence[tuple[Array, Array]], groups: Sequence[int], bounds: Array
) -> Array:
    """The sums of clients' bounded statistics by group, (GROUPS, 7 + d)."""
    sums = np.zeros((GROUPS, SENT + measured[0][1].size))
    for (statistics, pull), group in zip(measured, groups, strict=True):
        sums[group] += bound_client(statistics, pull, bounds)
    return sums


def play_noised_sums(
    data: ClientData, budget: Privacy, draw: Callable[[tuple[int, ...]], NDArray[Any]]
) -> NoisedSums:
    """Votes and sums of a federation on one machine; draw: standard normal noise of a shape."""
    vote_noise, sum_noise = split_budget(budget)
    measured = [each for part in map_parts(data, measure_each) for each in part]
    groups = [group_of(place) for place in range(len(measured))]
    votes = add_votes(measured)
    bounds = choose_bounds(votes + vote_noise * draw(votes.shape), vote_noise)
    sums = add_statistics(measured, groups, bounds)
    clients = np.bincount(groups, minlength=GROUPS).astype(float)
    return NoisedSums(sums + sum_noise * draw(sums.shape), clients, bounds, budget)


def play_federation(data: ClientData) -> list[Summary]:
    """All answers of a federation on one machine: for tests, and to preview a federated run."""
    if data.sizes.sum() >= PAIR_ROOM * data.dimension and len(data.parts) >= GROUPS:
        models = pair_models(data)
        return [
            summarise_clients(part.name, *data.rows(place), group=group_of(place), models=models)
            for place, part in enumerate(data.parts)
        ]
    first = [
        summarise_clients(part.name, *data.rows(place)) for place, part in enumerate(data.parts)
    ]
    told = first_variances(first)
    return [answer_again(summary, *data.rows(place), told) for place, summary in enumerate(first)]


@dataclass(frozen=True, eq=False)
class ServerMessage:
    """What the server tells each client: the classes, ten models (d, outputs), ratios to try."""

    classes: tuple[Any, ...]
    models: PairModels
    ratios: Array


@dataclass(frozen=True, eq=False)
class ClassSummary:
    """What a client sends: numbers per axis of its samples, d numbers, and how often it was right.

    squares: its summary, with products of two independent residuals. single, expected: how these
    vary over samples, along the axes, as they do and as r2 = 1 has it. signal: labels times what
    the others' models predict. total: the sum of its features.
    counts: samples of each class. right: shares of right answers along the ratios, around the
    others' model and around nothing, left out and held out. tested: how many samples these are of.
    """

    squares: Summary
    classes: tuple[Any, ...]
    ratios: Array
    single: Array
    expected: Array
    signal: float
    total: Array
    counts: Array
    right: Array
    tested: tuple[int, int]

    @property
    def bytes(self) -> int:
        """What is sent: 8 bytes per number; what the server told is not sent back."""
        apart = ("squares", "classes", "ratios")
        return self.squares.bytes + 8 * sum(
            np.size(getattr(self, each.name)) for each in fields(self) if each.name not in apart
        )


def summarise_classes(
    name: Hashable,
    X: Any,
    labels: Any,
    told: ServerMessage,
    *,
    group: int,
    held: tuple[Any, Any] | None = None,
) -> ClassSummary:
    """What a client sends of its own samples; `held`: features and labels it does not train on."""
    coding = Coding(told.classes)
    rows, codes = check_rows(name, X, label_codes(name, labels, told.classes))
    tests = (
        (rows[:0], codes[:0])
        if held is None
        else check_rows(name, held[0], label_codes(name, held[1], told.classes))
    )
    Y = coding.targets(codes)
    K = coding.free_outputs
    U, x = sample_axes(rows)
    halves = halves_for(group)
    about = {pair: Y - rows @ told.models[pair] for both in halves for pair in both}
    along = {pair: U.T @ left for pair, left in about.items()}

    def products(left: PairModels) -> Array:
        mean: Array = np.array([(left[one] * left[two]).sum(1) for one, two in halves]).mean(0)
        return mean / K

    squares = Summary(
        name,
        len(rows),
        rows.shape[1],
        power=x,
        residual=products(along),
        raw=((U.T @ Y) ** 2).sum(1) / K,
        rest=(
            max(float((Y**2).sum() - ((U.T @ Y) ** 2).sum()), 0.0) / K
            if len(rows) > x.size
            else 0.0
        ),
    )
    single = products(about)
    length = (rows**2).sum(1) / rows.shape[1]
    others = np.mean([told.models[pair] for both in halves for pair in both], axis=0)
    guess = rows @ others
    nothing = np.zeros_like(x)
    view = ClientView(rows, U, x, Y, Y - guess, nothing, nothing)
    probes = ProbeRecorder(coding, told.ratios).record(view, codes, tests, others)
    return ClassSummary(
        squares=squares,
        classes=told.classes,
        ratios=told.ratios,
        single=U.T**2 @ (single - single.mean()),
        expected=U.T**2 @ (length - length.mean()),
        signal=float((Y * guess).sum()) / K,
        total=rows.sum(0),
        counts=np.bincount(codes.astype(int), minlength=coding.count).astype(float),
        right=np.stack(probes.right),
        tested=probes.counts,
    )


def label_codes(name: Hashable, labels: Any, classes: tuple[Any, ...]) -> Array:
    """Labels as places in the server's list of classes."""
    places = {each: place for place, each in enumerate(classes)}
    listed = np.asarray(labels).reshape(-1).tolist()
    missing = [each for each in listed if each not in places]
    if missing:
        raise InvalidInput(
            f"client {name!r} has the label {missing[0]!r}, which is not among the {len(classes)}"
            " classes of the federation: the server must list every class before the models are"
            " trained"
        )
    return np.array([places[each] for each in listed], dtype=float)


def prepare_message(classes: Classes) -> ServerMessage:
    """What the server tells, on one machine; a real one trains each model on a pair of groups."""
    data, d = classes.data, classes.data.dimension
    outputs = 1 if classes.count == 2 else classes.count
    S, cross = np.zeros((GROUPS, d, d)), np.zeros((GROUPS, d, outputs))
    for place, (X, codes) in enumerate(data):
        S[group_of(place)] += X.T @ X
        cross[group_of(place)] += X.T @ classes.targets(codes)
    energy = float(np.trace(S.sum(0)))
    ridge = FIRM_RIDGE * energy / d * np.eye(d)
    models = {
        (a, b): scipy.linalg.solve(S[a] + S[b] + ridge, cross[a] + cross[b], assume_a="pos")
        for a, b in PAIRS
    }
    return ServerMessage(classes.names, models, probe_ratios(energy, data.sizes.astype(float), d))


def play_class_federation(classes: Classes) -> list[ClassSummary]:
    """All answers of a federation on one machine: for tests, and to preview a federated run."""
    told = prepare_message(classes)
    data = classes.data

    def label_names(codes: Array) -> list[Any]:
        return [classes.names[int(code)] for code in codes]

    out = []
    for place, part in enumerate(data.parts):
        (X, codes) = data.rows(place)
        (tests, answers) = data.held_out_rows(place)
        held = (tests, label_names(answers)) if len(tests) else None
        out.append(
            summarise_classes(
                part.name, X, label_names(codes), told, group=group_of(place), held=held
            )
        )
    return out


def look_at_summaries(sent: Sequence[ClassSummary]) -> ClassLook:
    """Everything that the answers say."""
    squares = [each.squares for each in sent]
    d = check_summaries(sent)
    coding = Coding(sent[0].classes)
    sizes = np.array([each.samples for each in squares], dtype=float)
    energy = float(sum(each.power.sum() for each in squares)) / sizes.sum()
    mean = np.sum([each.total for each in sent], axis=0) / sizes.sum()
    own, out = np.array([each.tested for each in sent]).T
    right = np.stack([each.right for each in sent], axis=1)
    curves = [
        AccuracyCurve(rows, count) for rows, count in zip(right, (own, own, out, out), strict=True)
    ]
    return ClassLook(
        classes=coding,
        clients=tuple(each.name for each in squares),
        sizes=sizes,
        dimension=d,
        dropped=0,
        energy=energy,
        mean_share=float(mean @ mean) / energy,
        places=list(range(len(sent))),
        found=summary_moments(sent, squares, coding.total, energy / d),
        probes=Probes(sent[0].ratios, *curves),
        counts=np.array([each.counts for each in sent]),
    )


def check_summaries(sent: Sequence[ClassSummary]) -> int:
    """The dimension, if answers fit together and are enough."""
    if len(sent) < max(LEAST_CLIENTS, GROUPS):
        raise InvalidInput(
            f"there are {len(sent)} summaries: five groups of clients take at least {GROUPS}"
        )
    dimensions = {each.squares.dimension for each in sent}
    names = {each.squares.name for each in sent}
    if len(dimensions) != 1 or len({each.classes for each in sent}) != 1:
        raise InvalidInput(
            "the summaries have different dimensions or classes: every client must be told the same"
        )
    if len(names) != len(sent):
        raise InvalidInput("two summaries have one name: give each client its own")
    (d,) = dimensions
    samples = sum(each.squares.samples for each in sent)
    if samples < PAIR_ROOM * d:
        raise InvalidInput(
            f"all clients together have {samples} samples for {d} features, and models of pairs of"
            f" groups take {PAIR_ROOM:g} per feature: use fewer features, or give the samples"
            " themselves"
        )
    return d


def summary_moments(
    sent: Sequence[ClassSummary], squares: list[Summary], total: float, tau: float
) -> ClassMoments:
    """Estimates from products; directions are taken as even."""
    plain = [
        AdjustedClient(each.squares, np.ones_like(each.single), each.single, each.expected)
        for each in sent
    ]
    point, draws = combine_moments(plain, squares, np.array([each.signal for each in sent]), total)
    n = np.array([each.samples for each in squares], dtype=float)
    d = squares[0].dimension
    # What is left in the shared model by noise, s2 tr Sigma S^-1, and by displacements, (r2/d) tr
    # Sigma S^-1 (sum G_j^2) S^-1, with E G^2 = n (n + 1) Sigma^2 + n tr(Sigma) Sigma: for normal
    # features.
    noise = d / max(n.sum() - d - 1, 1.0)
    shift = tau * float(n @ (n + 1 + d)) / n.sum() ** 2 * n.sum() / (n.sum() - d)
    return ClassMoments(
        point=np.maximum(point, 0.0),
        draws=draws,
        spectrum=spectrum_of(squares),
        summaries=squares,
        lift=(1.0, float("inf")),
        excess=(float(point[0]) * noise, float(point[1]) * shift),
        flat=bool(np.mean(draws[:, 1] <= 0) > 0.025),
        scarce=False,
        method="products of residuals about two groups' models",
        profile=None,
    )
