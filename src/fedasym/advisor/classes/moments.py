"""Noise, radius and shared signal of the labels as least squares sees them, with what each client adds to their errors.

Three estimates from residuals about the others' model: s2 and r2 from squares along the clients' axes, where
E p_k = s2 (1 + a_k) + r2 (x_k/d + w_k), and the shared signal B = zeta^2 theta_0'Sigma theta_0 from labels times what the
others' model predicts. Their best combination is taken that adds up to the labels' mean square: s2 + r2 tau + B = total.

The square of a label is the same for all samples, however long their features: a single sample's square e_j^2 does not grow
with |x_j|^2 as the linear model has it, s2 + r2 |x_j|^2/d, and r2 would come out too small by about 2/n. So only products of
two samples tell r2: in ee' the variation of e_j^2 within a client is replaced by the model's, until r2 agrees with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.classes.intake import Classes
from fedasym.advisor.classes.links import Link
from fedasym.advisor.classes.pooling import Client, Shared
from fedasym.advisor.classes.probes import ROWS
from fedasym.advisor.classes.profiles import ENOUGH, Profile, Profiling
from fedasym.advisor.components import components
from fedasym.advisor.covariance import spectrum_of, spread
from fedasym.advisor.crowded import PROBES, across, probes
from fedasym.advisor.estimates import drawn
from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array
from fedasym.worlds.spectra import Spectrum

CLEAR = 3.0  # standard errors from which there is a shared signal
BELIEVED = 0.8  # of the most that features can explain: labels without noise are not assumed from few samples
ROUNDS = 3  # until r2 agrees with itself: each leaves 2/n of the difference
PROBED = 60  # multiplications of a probe per sample, axis and output: two curves of 15 ratios, left out and held out
WORK = 4e10  # multiplications that the second look at clients may cost


@dataclass(frozen=True, eq=False)
class Moments:
    """Point and draws (B, 3) of (s2, r2, B), as least squares sees the labels.

    lift: theta_0'Sigma^2 theta_0 over theta_0'Sigma theta_0, over the same for an optimum without preferred directions, with
    its standard error: above 1 where the shared optimum lies along strong features.
    excess: how much more squared error the shared model of these clients makes than that of infinitely many, the part from
    noise and the part from displacements.
    """

    point: Array
    draws: Array
    spectrum: Spectrum
    summaries: list[Summary]
    lift: tuple[float, float]
    excess: tuple[float, float]
    flat: bool
    scarce: bool
    method: str
    profile: Profile | None


def places_within(classes: Classes, work: float = WORK) -> list[int]:
    """Clients to look at twice, evenly spread: all, or as many as the work allows."""
    data = classes.data
    d, n = data.dimension, data.sizes.astype(float)
    k, outputs = np.minimum(n, d), classes.free
    each = float(
        np.mean(3 * k * d * d + n * d * d + 8 * k**3 + 3 * n * d * outputs + PROBED * np.minimum(n, ROWS) * k * outputs)
    )
    return [int(place) for place in spread(len(n), int(np.clip(work / each, 30, len(n))))]


def summarised(name: object, client: Client, outputs: int) -> Summary:
    """A client's squares along its axes, a mean over the free outputs."""
    along, raw = client.U.T @ client.about, client.U.T @ client.labels
    n = len(client.labels)
    beyond = float((client.about**2).sum() - (along**2).sum()) if n > client.x.size else 0.0
    return Summary(
        name,
        n,
        client.X.shape[1],
        power=client.x,
        residual=(along**2).sum(1) / outputs,
        raw=(raw**2).sum(1) / outputs,
        rest=max(beyond, 0.0) / outputs,
    )


@dataclass(frozen=True, eq=False)
class Adjusted:
    """A client with the others' errors divided out, and how squares of single samples vary, as they do and as r2 = 1 has it."""

    summary: Summary
    lift: Array
    seen: Array
    model: Array

    @classmethod
    def of(cls, one: Summary, client: Client, outputs: int) -> Adjusted:
        """Squares along axes are sums over pairs of samples, of which those of a sample with itself are told apart."""
        lift, weights = 1 + client.noise, client.U.T**2
        single, length = (client.about**2).sum(1) / outputs, (client.X**2).sum(1) / one.dimension
        whole = replace(one, power=(client.x + client.shift) / lift)
        return cls(whole, lift, weights @ (single - single.mean()), weights @ (length - length.mean()))

    def at(self, r2: float) -> Summary:
        """With the model's variation at this r2 in place of the seen one; what leaves the axes goes to the rest."""
        one, change = self.summary, r2 * self.model - self.seen
        rest = one.rest - float(change.sum()) if one.samples > one.power.size else 0.0
        return replace(one, residual=(one.residual + change) / self.lift, rest=rest)


class Gathering:
    """Clients about the others' model, one after the other; where samples are scarce, and only there, they are kept."""

    def __init__(self, classes: Classes, shared: Shared) -> None:
        self.classes, self.shared = classes, shared
        roomy = shared.samples >= ENOUGH * len(shared.S)
        self.profile = Profiling(shared) if roomy and not shared.scarce else None
        self.kept: list[tuple[object, Client]] = []
        self.summaries: list[Summary] = []
        self.adjusted: list[Adjusted] = []
        self.signal: list[float] = []
        self.push: list[tuple[float, float]] = []
        self.errors = np.zeros(2)  # of the shared model: what noise and what displacements leave in it

    def add(self, name: object, client: Client) -> None:
        """One client more."""
        if self.shared.scarce:
            self.kept.append((name, client))
            return
        K, n = self.classes.free, len(client.X)
        one = summarised(name, client, K)
        self.summaries.append(one)
        self.adjusted.append(Adjusted.of(one, client, K))
        self.signal.append(float((client.labels * (client.labels - client.about)).sum()) / K)
        own = client.X.T @ client.labels
        self.push.append((float((own * (self.shared.cross - own)).sum()) / K, n * (self.shared.samples - n)))
        self.errors += [client.noise.sum(), client.shift.sum() / client.X.shape[1]]
        if self.profile is not None:
            self.profile.add(client, K)

    def done(self) -> Moments:
        """What all of them say."""
        if self.shared.scarce:
            return scarce(self.classes, self.kept)
        point, draws = agreed(self.adjusted, self.summaries, np.array(self.signal), self.classes.total)
        n = np.array([each.samples for each in self.summaries], dtype=float)
        B = float(np.sum(self.signal) / n.sum())
        noise, shift = self.errors / n.sum()
        return Moments(
            point=np.maximum(point, 0.0),
            draws=draws,
            spectrum=spectrum_of(self.summaries),
            summaries=self.summaries,
            lift=self.lifted(B, trained_and_tested(np.array(self.signal), n)),
            excess=(float(point[0] * noise), float(point[1] * shift)),
            flat=bool(np.mean(draws[:, 1] <= 0) > 0.025),
            scarce=False,
            method="residuals about the others' model",
            profile=None if self.profile is None else self.profile.done(float(point[0])),
        )

    def lifted(self, B: float, by_client: Array) -> tuple[float, float]:
        """The lift from products across clients, over that of an optimum without preferred directions; its standard error."""
        above, below = np.array(self.push).T
        S, n = self.shared.S, self.classes.data.sizes.astype(float)
        even = float((S**2).sum()) - float(np.trace(self.shared.squares))
        if CLEAR * np.sqrt(by_client @ by_client) > B or even <= 1e-9 * float((S**2).sum()):
            return 1.0, float("inf")  # hardly any signal, or clients have no directions in common: nothing can be said
        lift = float(above.sum() / below.sum()) / B
        parts = 2 * (above - lift * B * below) / below.sum() - lift * by_client
        even *= n.sum() / (n.sum() ** 2 - float(n @ n)) / float(np.trace(S))
        return lift / even, float(np.sqrt(parts @ parts)) / B / even


def trained_and_tested(signal: Array, n: Array) -> Array:
    """What each client adds to the error of B: it counts twice, since it also trains the model that others are tested with."""
    return np.asarray(2 * (signal - signal.sum() / n.sum() * n) / n.sum())


def agreed(adjusted: Sequence[Adjusted], summaries: Sequence[Summary], signal: Array, total: float) -> tuple[Array, Array]:
    """Point and draws of (s2, r2, B) that add up to the labels' mean square."""
    n = np.array([each.samples for each in summaries], dtype=float)
    first = components([each.at(0.0) for each in adjusted])
    for _ in range(ROUNDS):
        first = components([each.at(first.spread2) for each in adjusted])
    tau = float(sum(each.power.sum() for each in summaries)) / (n.sum() * summaries[0].dimension)
    raw = np.array([first.noise2, first.spread2, float(signal.sum() / n.sum())])
    influence = np.column_stack([first.influence, trained_and_tested(signal, n)])
    point, influence = constrained(raw, influence, np.array([1.0, tau, 1.0]), total)
    return point, np.maximum(drawn(point, influence, 0.0), 0.0)


def constrained(point: Array, influence: Array, weights: Array, total: float) -> tuple[Array, Array]:
    """The nearest point with weights'point = total, in the metric of its errors, and what clients add to its errors.

    The metric is found from the same m clients: what is left of the errors looks smaller than it is by (m - 1)/(m - 2), and
    is larger by (m - 2)/(m - 3) than with the best metric (one control variate with an estimated coefficient).
    """
    along = influence.T @ (influence @ weights)
    variance = float(weights @ along)
    if variance <= 0:
        return point, influence
    step = along / variance
    m = len(influence)
    left = influence - np.outer(influence @ weights, step)
    return point + (total - float(weights @ point)) * step, left * np.sqrt((m - 1) / (m - 3))


def scarce(classes: Classes, clients: Sequence[tuple[object, Client]]) -> Moments:
    """All samples together are too few for a shared model: labels within clients, and products across them (`crowded`)."""
    K, d = classes.free, classes.data.dimension
    summaries = [summarised(name, client, K) for name, client in clients]
    n = np.array([each.samples for each in summaries], dtype=float)
    tau = float(sum(each.power.sum() for each in summaries)) / (n.sum() * d)
    first = components(summaries, "raw")
    start, influence = constrained(
        np.array([first.noise2, first.spread2]), first.influence, np.array([1.0, tau]), classes.total
    )
    pulls, tests = [], []
    for _, client in clients:
        v = np.maximum(start[0] + start[1] * client.x / d, np.finfo(float).tiny)
        rows = client.U.T @ client.X
        weighed = rows / v[:, None]
        pulls.append(weighed.T @ (client.U.T @ client.labels) / np.sqrt(K))
        tests.append(weighed.T @ (rows @ probes(d)))
    above, below = across(np.stack(pulls)), across(np.stack(tests))
    seen, rest = max(below[0], 1e-300), np.maximum(below[0] - below[1], 1e-300)
    limit = 10 * max(float(start[1]), classes.total / tau)  # clients with hardly a direction in common say nothing
    centre2 = float(np.clip(d * PROBES * above[0] / seen, -limit, limit))
    without = np.clip(d * PROBES * (above[0] - above[1]) / rest, -limit, limit)
    m = len(summaries)
    shift = (m - 1) / m * (without.mean() - without)
    point = np.array([start[0], start[1] - centre2, centre2 * tau])  # bounds are for `possible`: errors must not be cut
    joint = np.column_stack([influence[:, 0], influence[:, 1] - shift, shift * tau])
    draws = possible(drawn(point, joint, 0.0), classes)
    return Moments(
        point=draws.mean(0),
        draws=draws,
        spectrum=spectrum_of(summaries),
        summaries=summaries,
        lift=(float("nan"), float("inf")),
        excess=(0.0, 0.0),
        flat=bool(np.mean(draws[:, 1] <= 0) > 0.025),
        scarce=True,
        method="moments within and across clients",
        profile=None,
    )


def possible(draws: Array, classes: Classes) -> Array:
    """Draws that can be: no part below 0, and no more explained than labels leave; as many as before, some of them twice.

    With so few samples the best fit alone may be far out of bounds; the mean of what is possible is not.
    """
    explained, most = classes.total - draws[:, 0], BELIEVED * Link(classes.count).most
    good = draws[(draws.min(1) >= 0) & (explained > 0) & (explained < most)]
    if not len(good):
        return np.clip(draws, 0.0, [classes.total, np.inf, most])
    return np.asarray(good[np.arange(len(draws)) % len(good)])
