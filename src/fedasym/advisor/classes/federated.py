"""Advice about classes where samples stay with the clients: what they are told, and what they send.

As with numbers, clients are dealt into five groups, and the federation trains a least-squares model of the coded labels on each
of the ten pairs of groups. Residuals about two models without a client in common have independent errors: along a client's axes
their products have the mean s2 + r2 x/d. The client also tries the probes on itself, around the mean model of the other groups,
and sends how often they were right. Where directions of the optima lie needs samples at one place, and so do scarce samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.linalg

from fedasym.advisor.classes.intake import Classes, Coding
from fedasym.advisor.classes.looking import Look
from fedasym.advisor.classes.moments import Adjusted, Moments, agreed
from fedasym.advisor.classes.pooling import FIRM, Client, axes_of
from fedasym.advisor.classes.probes import Curve, Probes, Probing, ratios_of
from fedasym.advisor.covariance import spectrum_of
from fedasym.advisor.federated import GROUPS, PAIRS, ROOM, Models, group_of, halves_for
from fedasym.advisor.intake import LEAST_CLIENTS
from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import check_rows as checked_rows


@dataclass(frozen=True, eq=False)
class Told:
    """What the server tells every client: the classes in their order, the ten models (d, outputs), and the ratios to try."""

    classes: tuple[Any, ...]
    models: Models
    ratios: Array


@dataclass(frozen=True, eq=False)
class ClassSummary:
    """What a client sends: numbers per axis of its samples, d numbers, and how often it was right.

    squares: its summary, with products of two independent residuals. single, expected: how these vary over samples, along the
    axes, as they do and as r2 = 1 has it. signal: labels times what the others' models predict. total: the sum of its features.
    counts: samples of each class. right: shares of right answers along the ratios, around the others' model and around
    nothing, left out and held out. tested: how many samples these are of.
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


def summarise(
    name: Hashable, X: Any, labels: Any, told: Told, *, group: int, held: tuple[Any, Any] | None = None
) -> ClassSummary:
    """What a client sends, made from its own samples; `held`: features and labels that it does not train on."""
    coding = Coding(told.classes)
    rows, codes = checked_rows(name, X, codes_of(name, labels, told.classes))
    tests = (rows[:0], codes[:0]) if held is None else checked_rows(name, held[0], codes_of(name, held[1], told.classes))
    Y, K = coding.targets(codes), coding.free
    U, x = axes_of(rows)
    halves = halves_for(group)
    about = {pair: Y - rows @ told.models[pair] for both in halves for pair in both}
    along = {pair: U.T @ left for pair, left in about.items()}

    def products(left: Models) -> Array:
        mean: Array = np.array([(left[one] * left[two]).sum(1) for one, two in halves]).mean(0)
        return mean / K

    squares = Summary(
        name,
        len(rows),
        rows.shape[1],
        power=x,
        residual=products(along),
        raw=((U.T @ Y) ** 2).sum(1) / K,
        rest=max(float((Y**2).sum() - ((U.T @ Y) ** 2).sum()), 0.0) / K if len(rows) > x.size else 0.0,
    )
    single = products(about)
    length = (rows**2).sum(1) / rows.shape[1]
    others = np.mean([told.models[pair] for both in halves for pair in both], axis=0)
    guess = rows @ others
    probing = Probing(coding, told.ratios)
    nothing = np.zeros_like(x)
    probing.add(Client(rows, U, x, Y, Y - guess, nothing, nothing), codes, tests, others)
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


def codes_of(name: Hashable, labels: Any, classes: tuple[Any, ...]) -> Array:
    """Labels as places in the server's list of classes."""
    places = {each: place for place, each in enumerate(classes)}
    listed = np.asarray(labels).reshape(-1).tolist()
    missing = [each for each in listed if each not in places]
    if missing:
        raise InvalidInput(
            f"client {name!r} has the label {missing[0]!r}, which is not among the {len(classes)} classes of the federation: "
            "the server must list every class before the models are trained"
        )
    return np.array([places[each] for each in listed], dtype=float)


def tell(classes: Classes) -> Told:
    """What the server tells, where one machine plays the federation; a real one trains each model on its pair of groups."""
    data, d = classes.data, classes.data.dimension
    outputs = 1 if classes.count == 2 else classes.count
    S, cross = np.zeros((GROUPS, d, d)), np.zeros((GROUPS, d, outputs))
    for place, (X, codes) in enumerate(data):
        S[group_of(place)] += X.T @ X
        cross[group_of(place)] += X.T @ classes.targets(codes)
    energy = float(np.trace(S.sum(0)))
    ridge = FIRM * energy / d * np.eye(d)
    models = {(a, b): scipy.linalg.solve(S[a] + S[b] + ridge, cross[a] + cross[b], assume_a="pos") for a, b in PAIRS}
    return Told(classes.names, models, ratios_of(energy, data.sizes.astype(float), d))


def as_sent(classes: Classes) -> list[ClassSummary]:
    """All answers of a federation that one machine plays: for tests, and to see what a federated run would say."""
    told, data = tell(classes), classes.data

    def named(codes: Array) -> list[Any]:
        return [classes.names[int(code)] for code in codes]

    out = []
    for place, part in enumerate(data.parts):
        (X, codes), (tests, answers) = data.rows(place), data.held(place)
        held = (tests, named(answers)) if len(tests) else None
        out.append(summarise(part.name, X, named(codes), told, group=group_of(place), held=held))
    return out


def look_at(sent: Sequence[ClassSummary]) -> Look:
    """Everything that the answers say."""
    squares = [each.squares for each in sent]
    d, coding = checked(sent), Coding(sent[0].classes)
    sizes = np.array([each.samples for each in squares], dtype=float)
    energy = float(sum(each.power.sum() for each in squares)) / sizes.sum()
    mean = np.sum([each.total for each in sent], axis=0) / sizes.sum()
    own, out = np.array([each.tested for each in sent]).T
    right = np.stack([each.right for each in sent], axis=1)
    curves = [Curve(rows, count) for rows, count in zip(right, (own, own, out, out), strict=True)]
    return Look(
        classes=coding,
        clients=tuple(each.name for each in squares),
        sizes=sizes,
        dimension=d,
        dropped=0,
        energy=energy,
        mean_share=float(mean @ mean) / energy,
        places=list(range(len(sent))),
        found=moments_of(sent, squares, coding.total, energy / d),
        probes=Probes(sent[0].ratios, *curves),
        counts=np.array([each.counts for each in sent]),
    )


def checked(sent: Sequence[ClassSummary]) -> int:
    """The dimension, if answers fit together and are enough."""
    if len(sent) < max(LEAST_CLIENTS, GROUPS):
        raise InvalidInput(f"there are {len(sent)} summaries: five groups of clients take at least {GROUPS}")
    dimensions, names = {each.squares.dimension for each in sent}, {each.squares.name for each in sent}
    if len(dimensions) != 1 or len({each.classes for each in sent}) != 1:
        raise InvalidInput("the summaries have different dimensions or classes: every client must be told the same")
    if len(names) != len(sent):
        raise InvalidInput("two summaries have one name: give each client its own")
    (d,), samples = dimensions, sum(each.squares.samples for each in sent)
    if samples < ROOM * d:
        raise InvalidInput(
            f"all clients together have {samples} samples for {d} features, and models of pairs of groups take {ROOM:g} per "
            "feature: use fewer features, or give the samples themselves"
        )
    return d


def moments_of(sent: Sequence[ClassSummary], squares: list[Summary], total: float, tau: float) -> Moments:
    """Estimates from products; directions are taken as even."""
    plain = [Adjusted(each.squares, np.ones_like(each.single), each.single, each.expected) for each in sent]
    point, draws = agreed(plain, squares, np.array([each.signal for each in sent]), total)
    n, d = np.array([each.samples for each in squares], dtype=float), squares[0].dimension
    # What is left in the shared model by noise, s2 tr Sigma S^-1, and by displacements, (r2/d) tr Sigma S^-1 (sum G_j^2) S^-1,
    # with E G^2 = n (n + 1) Sigma^2 + n tr(Sigma) Sigma: for normal features.
    noise = d / max(n.sum() - d - 1, 1.0)
    shift = tau * float(n @ (n + 1 + d)) / n.sum() ** 2 * n.sum() / (n.sum() - d)
    return Moments(
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
