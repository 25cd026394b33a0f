"""The same estimates where samples stay with clients, who send models (d numbers), summaries.

Clients are dealt into five groups, and a shared model is trained on each of the ten pairs of groups
(fedavg, by whatever means the federation has). A client looks at its samples about two models that
come from other groups and have none in
common: their errors are independent, so that products of the two residuals along the client's axes
have the mean noise^2 + radius^2 x/d exactly, as if the shared optimum were known. No client sends
more than a few numbers per sample. Where all samples together are too few for that, there are no
models, and clients answer twice (`answer_again`).

Classes: the models are of the coded labels. The client also tries the probes on itself, around the
mean model of the other groups, and sends how often they were right. Where directions of the optima
lie needs samples at one place, and so do scarce samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg

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
from fedasym.advisor.data import LEAST_CLIENTS, Classes, ClientData, Coding
from fedasym.advisor.estimates import Estimates, estimate_by_moments, estimate_by_products
from fedasym.advisor.moments import add_products, fit_variances
from fedasym.advisor.statistics import Summary, axes_of, spectrum_of, tails_of
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.clients import check_rows, triangular_factor
from fedasym.exact.least_squares import SharedSolution, stack_triangle

GROUPS = 5
PAIRS = tuple(combinations(range(GROUPS), 2))
PairModels = Mapping[tuple[int, int], Array]
# samples per unknown, over all clients, from which every pair of groups has a model
PAIR_ROOM = 1.5 * GROUPS / 2


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
    K = coding.free
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
    probing = ProbeRecorder(coding, told.ratios)
    nothing = np.zeros_like(x)
    probing.add(ClientView(rows, U, x, Y, Y - guess, nothing, nothing), codes, tests, others)
    return ClassSummary(
        squares=squares,
        classes=told.classes,
        ratios=told.ratios,
        single=U.T**2 @ (single - single.mean()),
        expected=U.T**2 @ (length - length.mean()),
        signal=float((Y * guess).sum()) / K,
        total=rows.sum(0),
        counts=np.bincount(codes.astype(int), minlength=coding.count).astype(float),
        right=np.concatenate([np.stack(curve) for curve in probing.kept]),
        tested=probing.counts[0],
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

    def named(codes: Array) -> list[Any]:
        return [classes.names[int(code)] for code in codes]

    out = []
    for place, part in enumerate(data.parts):
        (X, codes) = data.rows(place)
        (tests, answers) = data.held(place)
        held = (tests, named(answers)) if len(tests) else None
        out.append(
            summarise_classes(part.name, X, named(codes), told, group=group_of(place), held=held)
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
