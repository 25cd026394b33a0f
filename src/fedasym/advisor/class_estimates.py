"""Noise, radius and shared signal of class labels by least squares, and each client's influence.

Three estimates from residuals about the others' model: s2 and r2 from squares along the clients'
axes, where E p_k = s2 (1 + a_k) + r2 (x_k/d + w_k), and the shared signal B = zeta^2 theta_0'Sigma
theta_0 from labels times what the others' model predicts. Their best combination is taken that adds
up to the labels' mean square: s2 + r2 tau + B = total.

The square of a label is the same for all samples, however long their features: a single sample's
square e_j^2 does not grow with |x_j|^2 as the linear model has it, s2 + r2 |x_j|^2/d, and r2 would
come out too small by about 2/n. So only products of two samples tell r2: in ee' the variation of
e_j^2 within a client is replaced by the model's, until r2 agrees with itself.

Two passes over the clients: the shared model, then each client about the model of the others;
nothing else sees samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from fedasym.advisor.class_statistics import (
    MANY_HOLDING,
    PROBE_ROWS,
    PROFILE_ROOM,
    SHARED_ROOM,
    ClientView,
    ProbeRecord,
    ProbeRecorder,
    Probes,
    SharedSums,
    ShiftRecorder,
    ShiftRow,
    pool_classes,
    probe_ratios,
    view_client,
)
from fedasym.advisor.data import (
    LEAST_CLIENTS,
    Classes,
    ClientData,
    Coding,
    map_parts,
    spread_places,
)
from fedasym.advisor.estimates import Estimates, draw_about
from fedasym.advisor.moments import PROBE_VECTORS, fit_variances, probe_vectors, sum_across
from fedasym.advisor.statistics import SizeGroups, Summary, spectrum_of
from fedasym.advisor.structure import Profile, ProfileRecord, ProfileRecorder
from fedasym.core.numbers import Array
from fedasym.theory.classes.squared_labels import FAINT, LabelModel, Link
from fedasym.training.decomposition import GainParts
from fedasym.training.wording import describe_drift
from fedasym.worlds import Population
from fedasym.worlds.spectra import Spectrum

CENTRE_POWERS = -1.0, 3.0  # alignments of the shared optimum that are looked for
CLEAR_LIFT = 3.0  # standard errors from which an alignment is believed
CLEAR_SIGNAL = 3.0  # standard errors from which there is a shared signal
# of the most that features can explain: labels without noise are not assumed from few samples
MOST_BELIEVED = 0.8
SELF_ROUNDS = 3  # until r2 agrees with itself: each leaves 2/n of the difference
# multiplications of a probe per sample, axis and output: two curves of 15 ratios, left out and held
# out
PROBE_COST = 60
LOOK_WORK = 4e10  # multiplications that the second look at clients may cost
LOOKED_AT = 5000  # clients, at most, in the second look, spread evenly over all
# accuracy by which held-out samples must fall short for the features to be suspected
FRESH_GAP = 0.02


def estimate_world(found: ClassMoments, classes: int) -> LabelModel:
    """The population that the estimates stand for."""
    spectrum = found.spectrum
    profile = found.profile
    centre = None
    shift = None
    if profile is None:
        centre = power_shares(spectrum, centre_power(found))
    elif profile.centre is not None or profile.shift is not None:
        spectrum, centre, shift = profile.spectrum, profile.centre, profile.shift
    even = spectrum.weights
    shares = even if centre is None else centre, even if shift is None else shift
    return LabelModel(Link(classes), 0.0, 0.0, spectrum, *shares).with_estimates(
        float(found.point[1]), float(found.point[2])
    )


def one_hot_regression(found: ClassMoments, world: LabelModel, aspect: float) -> Population:
    """Least-squares heads on one-hot labels as one regression: squares add up over the outputs.

    The moments are those of one free output; all outputs together have a mean square of 1 -
    1/classes.
    """
    s2, r2, B = np.maximum(found.point, FAINT * world.link.total)
    outputs = (1 - 1 / world.link.classes) / world.link.total
    s = world.spectrum.values
    own = r2 * world.spectrum.mean / float(s @ world.shift_share) * world.shift_share
    whole = own + B / float(s @ world.centre_share) * world.centre_share
    return Population(
        radius=float(np.sqrt(outputs * own.sum())),
        noise=float(np.sqrt(outputs * s2)),
        aspect=aspect,
        norm=float(np.sqrt(outputs * whole.sum())),
        spectrum=world.spectrum,
        shift_weights=world.shift_share,
        optimum_weights=whole / whole.sum(),
    )


def regress_few_features(classes: Classes) -> Population:
    """Least-squares heads as one regression, where features are few: standardised over all clients,
    whose mean the intercept takes up.
    """
    data = classes.data
    rows = np.concatenate([X for X, _ in data])
    mean, scale = rows.mean(0), np.maximum(rows.std(0), 1e-300)
    tables = {id(part.features): part.features for part in data.parts}  # which clients may share
    scaled = {key: (np.asarray(X)[:, data.live] - mean) / scale for key, X in tables.items()}
    parts = tuple(replace(part, features=scaled[id(part.features)]) for part in data.parts)
    even = replace(data, parts=parts, live=np.ones(mean.size, bool))
    found = look_at_clients(replace(classes, data=even)).found
    world = estimate_world(found, classes.count)
    return one_hot_regression(found, world, float(np.median(mean.size / data.sizes)))


def centre_power(found: ClassMoments) -> float:
    """The p at which a shared optimum with energies s^p has the observed lift; 0 unless clear."""
    lift, error = found.lift
    s, h = found.spectrum.values, found.spectrum.weights

    def expected_lift(p: float) -> float:
        weights = h * (s / s.max()) ** p
        return float(weights @ s**2 / (weights @ s)) * float(h @ s) / float(h @ s**2)

    if not np.isfinite(error) or not np.isfinite(lift) or abs(lift - 1) < CLEAR_LIFT * error:
        return 0.0
    low, high = expected_lift(CENTRE_POWERS[0]), expected_lift(CENTRE_POWERS[1])
    if lift <= low or lift >= high:
        return CENTRE_POWERS[0] if lift <= low else CENTRE_POWERS[1]
    return float(scipy.optimize.brentq(lambda p: expected_lift(p) - lift, *CENTRE_POWERS))


def power_shares(spectrum: Spectrum, power: float) -> Array:
    """Shares that go like s^power."""
    s, h = spectrum.values, spectrum.weights
    weights = h * (s / s.max()) ** power
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class ClientSizes:
    """Clients by size: aspects and shares of kinds, the middling one, clients in all samples."""

    kinds: SizeGroups
    dimension: int

    @property
    def share(self) -> Array:
        """Of clients."""
        return np.asarray(self.kinds.count / self.kinds.count.sum())

    @property
    def median_kind(self) -> int:
        """The kind of the median client."""
        return self.kinds.median_kind

    @property
    def samples(self) -> float:
        """Of a middling client."""
        return float(self.kinds.samples[self.median_kind])

    @property
    def aspects(self) -> Array:
        """Unknowns per sample."""
        return np.asarray(self.dimension / self.kinds.samples)

    @property
    def equivalent_clients(self) -> Array:
        """Clients of each kind that all samples together would make: what the pooled fit sees."""
        return np.asarray(float(self.kinds.count @ self.kinds.samples) / self.kinds.samples)

    @property
    def pooled_aspect(self) -> float:
        """Unknowns per sample of all clients together."""
        return self.dimension / float(self.kinds.sizes.sum())

    @property
    def squared_weights(self) -> float:
        """The sum of squared weights of clients in the shared model: 1/m where sizes are equal."""
        return float(self.kinds.sizes @ self.kinds.sizes) / float(self.kinds.sizes.sum()) ** 2


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Point and draws (B, 3) of (s2, r2, B), as least squares sees the labels.

    lift: theta_0'Sigma^2 theta_0 over theta_0'Sigma theta_0, over the same for an optimum without
    preferred directions, with its standard error: above 1 where the shared optimum lies along
    strong features.
    excess: how much more squared error the shared model of these clients makes than that of
    infinitely many, the part from noise and the part from displacements.
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


def affordable_places(classes: Classes, work: float = LOOK_WORK) -> list[int]:
    """Clients to look at twice, evenly spread: all, or as many as the work allows."""
    data = classes.data
    d = data.dimension
    n = data.sizes.astype(float)
    k = np.minimum(n, d)
    outputs = classes.free_outputs
    each = float(
        np.mean(
            3 * k * d * d
            + n * d * d
            + 8 * k**3
            + 3 * n * d * outputs
            + PROBE_COST * np.minimum(n, PROBE_ROWS) * k * outputs
        )
    )
    most = min(len(n), LOOKED_AT)
    return [int(place) for place in spread_places(len(n), int(np.clip(work / each, 30, most)))]


def summarise_view(name: Hashable, client: ClientView, outputs: int) -> Summary:
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
class AdjustedClient:
    """A client without the others' errors, and how squares of samples vary: seen, and at r2 = 1."""

    summary: Summary
    lift: Array
    seen: Array
    model: Array

    @classmethod
    def of(cls, one: Summary, client: ClientView, outputs: int) -> AdjustedClient:
        """Squares along axes, as sums over pairs of samples; a sample with itself is told apart."""
        lift, weights = 1 + client.noise, client.U.T**2
        single, length = (client.about**2).sum(1) / outputs, (client.X**2).sum(1) / one.dimension
        whole = replace(one, power=(client.x + client.shift) / lift)
        return cls(
            whole, lift, weights @ (single - single.mean()), weights @ (length - length.mean())
        )

    def at(self, r2: float) -> Summary:
        """With the model's variation at this r2, not the seen one; what leaves axes joins rest."""
        one = self.summary
        change = r2 * self.model - self.seen
        rest = one.rest - float(change.sum()) if one.samples > one.power.size else 0.0
        return replace(one, residual=(one.residual + change) / self.lift, rest=rest)


ScarceRecord = tuple[Hashable, ClientView]


class MomentRecord(NamedTuple):
    """What one client about the others' model says; the client itself where samples are scarce."""

    summary: Summary
    adjusted: AdjustedClient
    signal: float
    push: tuple[float, float]
    errors: Array  # of the shared model: what noise and what displacements leave in it
    profile: ProfileRecord | None


class MomentRecorder:
    """Clients about the others' model, one by one; they are kept only where samples are scarce."""

    def __init__(self, classes: Coding, shared: SharedSums) -> None:
        self.classes, self.shared = classes, shared
        roomy = shared.samples >= PROFILE_ROOM * len(shared.S)
        self.profile = ProfileRecorder(shared) if roomy and not shared.scarce else None

    def record(self, name: Hashable, client: ClientView) -> MomentRecord | ScarceRecord:
        """Of one client."""
        if self.shared.scarce:
            return name, client
        K = self.classes.free_outputs
        n = len(client.X)
        one = summarise_view(name, client, K)
        own = client.X.T @ client.labels
        push = float((own * (self.shared.cross - own)).sum()) / K, n * (self.shared.samples - n)
        return MomentRecord(
            one,
            AdjustedClient.of(one, client, K),
            float((client.labels * (client.labels - client.about)).sum()) / K,
            push,
            np.array([client.noise.sum(), client.shift.sum() / client.X.shape[1]]),
            None if self.profile is None else self.profile.record(client, K),
        )

    def finish(self, records: Sequence[Any], sizes: Array) -> ClassMoments:
        """What all of them say; sizes: of all clients, of which these may be some."""
        if self.shared.scarce:
            return scarce_moments(self.classes, records)
        summaries, adjusted, signals, push, errors, profiles = map(list, zip(*records, strict=True))
        signal = np.array(signals)
        point, draws = combine_moments(adjusted, summaries, signal, self.classes.total)
        n = np.array([each.samples for each in summaries], dtype=float)
        B = float(signal.sum() / n.sum())
        noise, shift = np.sum(errors, axis=0) / n.sum()
        profile = self.profile
        return ClassMoments(
            point=np.maximum(point, 0.0),
            draws=draws,
            spectrum=spectrum_of(summaries),
            summaries=summaries,
            lift=self.measure_lift(B, signal_influence(signal, n), np.array(push), sizes),
            excess=(float(point[0] * noise), float(point[1] * shift)),
            flat=bool(np.mean(draws[:, 1] <= 0) > 0.025),
            scarce=False,
            method="residuals about the others' model",
            profile=None if profile is None else profile.finish(profiles, float(point[0])),
        )

    def measure_lift(
        self, B: float, by_client: Array, push: Array, sizes: Array
    ) -> tuple[float, float]:
        """The lift across clients over that without preferred directions; its standard error."""
        above, below = push.T
        S, n = self.shared.S, sizes.astype(float)
        even = float((S**2).sum()) - float(np.trace(self.shared.squares))
        if CLEAR_SIGNAL * np.sqrt(by_client @ by_client) > B or even <= 1e-9 * float((S**2).sum()):
            # hardly any signal, or clients have no directions in common: nothing can be said
            return 1.0, float("inf")
        lift = float(above.sum() / below.sum()) / B
        parts = 2 * (above - lift * B * below) / below.sum() - lift * by_client
        even *= n.sum() / (n.sum() ** 2 - float(n @ n)) / float(np.trace(S))
        return lift / even, float(np.sqrt(parts @ parts)) / B / even


def signal_influence(signal: Array, n: Array) -> Array:
    """A client's part in the error of B, twice: it also trains the model that tests the others."""
    return np.asarray(2 * (signal - signal.sum() / n.sum() * n) / n.sum())


def combine_moments(
    adjusted: Sequence[AdjustedClient], summaries: Sequence[Summary], signal: Array, total: float
) -> tuple[Array, Array]:
    """Point and draws of (s2, r2, B) that add up to the labels' mean square."""
    n = np.array([each.samples for each in summaries], dtype=float)
    first = fit_variances([each.at(0.0) for each in adjusted])
    for _ in range(SELF_ROUNDS):
        first = fit_variances([each.at(first.spread2) for each in adjusted])
    tau = float(sum(each.power.sum() for each in summaries)) / (n.sum() * summaries[0].dimension)
    raw = np.array([first.noise2, first.spread2, float(signal.sum() / n.sum())])
    influence = np.column_stack([first.influence, signal_influence(signal, n)])
    point, influence = constrain_total(raw, influence, np.array([1.0, tau, 1.0]), total)
    return point, np.maximum(draw_about(point, influence, 0.0), 0.0)


def constrain_total(
    point: Array, influence: Array, weights: Array, total: float
) -> tuple[Array, Array]:
    """The nearest point with weights'point = total in the metric of its errors, and the influences.

    The metric is found from the same m clients: what is left of the errors looks smaller than it is
    by (m - 1)/(m - 2), and is larger by (m - 2)/(m - 3) than with the best metric (one control
    variate with an estimated coefficient).
    """
    along = influence.T @ (influence @ weights)
    variance = float(weights @ along)
    if variance <= 0:
        return point, influence
    step = along / variance
    m = len(influence)
    left = influence - np.outer(influence @ weights, step)
    return point + (total - float(weights @ point)) * step, left * np.sqrt((m - 1) / (m - 3))


def scarce_moments(classes: Coding, clients: Sequence[ScarceRecord]) -> ClassMoments:
    """Too few samples for a shared model: labels within clients, products across (`moments`)."""
    K, d = classes.free_outputs, clients[0][1].X.shape[1]
    summaries = [summarise_view(name, client, K) for name, client in clients]
    n = np.array([each.samples for each in summaries], dtype=float)
    tau = float(sum(each.power.sum() for each in summaries)) / (n.sum() * d)
    first = fit_variances(summaries, "raw")
    start, influence = constrain_total(
        np.array([first.noise2, first.spread2]),
        first.influence,
        np.array([1.0, tau]),
        classes.total,
    )
    pulls, tests = [], []
    for _, client in clients:
        v = np.maximum(start[0] + start[1] * client.x / d, np.finfo(float).tiny)
        rows = client.U.T @ client.X
        weighed = rows / v[:, None]
        pulls.append(weighed.T @ (client.U.T @ client.labels) / np.sqrt(K))
        tests.append(weighed.T @ (rows @ probe_vectors(d)))
    above, below = sum_across(np.stack(pulls)), sum_across(np.stack(tests))
    seen = max(below[0], 1e-300)
    rest = np.maximum(below[0] - below[1], 1e-300)
    # clients with hardly a direction in common say nothing
    limit = 10 * max(float(start[1]), classes.total / tau)
    centre2 = float(np.clip(d * PROBE_VECTORS * above[0] / seen, -limit, limit))
    without = np.clip(d * PROBE_VECTORS * (above[0] - above[1]) / rest, -limit, limit)
    m = len(summaries)
    shift = (m - 1) / m * (without.mean() - without)
    # bounds are for `possible_moments`: errors must not be cut
    point = np.array([start[0], start[1] - centre2, centre2 * tau])
    joint = np.column_stack([influence[:, 0], influence[:, 1] - shift, shift * tau])
    draws = possible_moments(draw_about(point, joint, 0.0), classes)
    return ClassMoments(
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


def possible_moments(draws: Array, classes: Coding) -> Array:
    """The possible draws: no part below 0, no more explained than labels leave; some come twice.

    With so few samples the best fit alone may be far out of bounds; the mean of what is possible is
    not.
    """
    explained, most = classes.total - draws[:, 0], MOST_BELIEVED * Link(classes.count).most
    good = draws[(draws.min(1) >= 0) & (explained > 0) & (explained < most)]
    if not len(good):
        return np.clip(draws, 0.0, [classes.total, np.inf, most])
    return np.asarray(good[np.arange(len(draws)) % len(good)])


@dataclass(frozen=True, eq=False)
class ClassLook:
    """Everything that the samples said.

    dropped: features that are always 0 or follow from others. energy: the mean squared length of a
        sample's features;
    mean_share: the part of it in their mean. places: the clients that were looked at twice, and in
        `probes`.
    """

    classes: Coding
    clients: tuple[Hashable, ...]
    sizes: Array
    dimension: int
    dropped: int
    energy: float
    mean_share: float
    places: list[int]
    found: ClassMoments
    probes: Probes
    counts: Array  # (clients, classes)
    data: ClientData | None = None  # None where samples stayed with their clients
    # where the gain of own models comes from; None where samples stayed with their clients
    gain: GainParts | None = None
    drift: str | None = None  # a sentence, where held-out class shares are not those of training
    # the places of `clients`: all; of clients on disk those that were looked at twice; None: all
    listed: list[int] | None = None


def look_at_clients(classes: Classes, work: float = LOOK_WORK) -> ClassLook:
    """Two passes over the clients: the shared model, then each about the model of the others."""
    classes, shared = pool_classes(classes)
    places = affordable_places(classes, work)
    data, coding = classes.data, classes.coding
    sizes = data.sizes.astype(float)
    counts = data.count_labels(classes.count)
    holds = int((data.held_sizes[places] > 0).sum()) >= MANY_HOLDING
    ratios = probe_ratios(float(np.trace(shared.S)), sizes, data.dimension)
    moments, probing = MomentRecorder(coding, shared), ProbeRecorder(coding, ratios)
    shifting = ShiftRecorder(coding, shared, counts.sum(0), holds)
    told = moments, probing, shifting
    parts = map_parts(data, look_again, *told, places=places)
    own, probed, shifts, held = zip(*(record for part in parts for record in part), strict=True)
    probes = probing.finish(probed)
    energy = float(np.trace(shared.covariance))
    listed = places if data.on_disk else list(range(len(data.parts)))
    return ClassLook(
        classes=classes,
        clients=data.names(listed),
        sizes=sizes,
        dimension=data.dimension,
        dropped=data.dropped_features,
        energy=energy,
        mean_share=float(shared.mean @ shared.mean) / energy,
        places=places,
        found=moments.finish(own, sizes),
        probes=probes,
        counts=counts,
        data=data,
        gain=shifting.finish(shifts, probes),
        drift=describe_drift(counts[places], np.array(held, float)),
        listed=listed,
    )


def look_again(
    data: ClientData, moments: MomentRecorder, probing: ProbeRecorder, shifting: ShiftRecorder
) -> list[tuple[Any, ProbeRecord, list[ShiftRow], NDArray[np.intp]]]:
    """The records of each of these clients, and how many of each class it holds out."""
    coding, shared, found = moments.classes, moments.shared, []
    for place, part in enumerate(data.parts):
        X, codes = data.rows(place)
        client = view_client(shared, X, coding.targets(codes))
        others, held = shared.without(client), data.held_out_rows(place)
        found.append(
            (
                moments.record(part.name, client),
                probing.record(client, codes, held, others, data.test_mask(place)),
                shifting.record(client, codes, held, others),
                np.bincount(held[1].astype(int), minlength=coding.count),
            )
        )
    return found


def look_at_moments(data: ClientData, moments: MomentRecorder) -> list[Any]:
    """The same of moments alone."""
    found = []
    for place, part in enumerate(data.parts):
        X, codes = data.rows(place)
        view = view_client(moments.shared, X, moments.classes.targets(codes))
        found.append(moments.record(part.name, view))
    return found


def estimate_from_held(seen: ClassLook, work: float = LOOK_WORK) -> ClassMoments | None:
    """Estimates from held-out samples alone, where training samples flatter; None: impossible."""
    data = seen.data
    if data is None or not seen.probes.holds:
        return None
    if seen.probes.shared.at(-1)[0] - seen.probes.shared_held.at(-1)[0] < FRESH_GAP:
        return None
    held = data.learn_from_held()
    sizes = held.sizes
    if len(sizes) < LEAST_CLIENTS or sizes.sum() < SHARED_ROOM * data.dimension or sizes.max() < 2:
        return None
    fresh, shared = pool_classes(Classes(seen.classes.names, held))
    if fresh.data.dimension != data.dimension:
        return None
    moments = MomentRecorder(fresh.coding, shared)
    parts = map_parts(fresh.data, look_at_moments, moments, places=affordable_places(fresh, work))
    found = moments.finish([record for part in parts for record in part], sizes.astype(float))
    return replace(
        found,
        summaries=seen.found.summaries,
        excess=seen.found.excess,
        method=f"{found.method}, held-out samples",
    )


def plain_estimates(found: ClassMoments) -> Estimates:
    """What the checks on sizes look at."""
    s2, r2, B = found.point
    return Estimates(
        float(s2),
        float(r2),
        float(r2 + B),
        found.draws,
        found.spectrum,
        found.method,
        found.flat,
        scarce=found.scarce,
    )
