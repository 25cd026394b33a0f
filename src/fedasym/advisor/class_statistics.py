"""Class labels as outputs of least squares: the shared model, clients about it, directions.

theta = S^{-1} sum X_i'Y_i, S = sum X_i'X_i. A client's residuals about the model of the others are
(I - H)^{-1} (Y - X theta), H = X S^{-1} X'. Their covariance is known: noise and displacements of
the others come in through X S_{-i}^{-1} (sum_{j != i} s2 G_j + (r^2/d) G_j^2) S_{-i}^{-1} X', G_j =
X_j'X_j and X S_{-i}^{-1} = (I - H)^{-1} X S^{-1}.

Probes are least-squares classifiers in closed form, without a model of how clients differ: around
the others' model, a client's ridge fit with ratio c = ridge x n leaves of a sample that is itself
left out e_j/(1 - h_j), with e = (I - A) about and A = U diag(x/(x+c)) U': no fit is made twice.
Held-out samples are predicted as they stand. Accuracies are means over clients. Levels are those of
test samples, where there are enough: validation samples are often drawn from among training ones,
and where samples come in time, as text does, what a client learns of these serves later ones less.

Profiles say how the shared optimum and the displacements lie over the eigenvalues of the features,
where samples tell (N >= 8 d). Along the pooled covariance's axes V, in groups g of neighbouring
eigenvalues: the shared signal B_g is labels times what the others' model predicts along V_g;
displacements show in q_k = |v_k'X'e|^2, whose mean is s2 (V'GV)_kk + sum_j ED_j (V'GV)_kj^2, G =
X'X: linear in the energies ED, which non-negative least squares finds. Evenly spread energies are
kept unless the clients, as a sample, contradict them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from fedasym.advisor.data import Classes, ClientData, Coding, spread_places, sum_parts
from fedasym.core.numbers import Array
from fedasym.exact.clients import RANK
from fedasym.training.decomposition import GainParts, HeldScores, correct_shifts

# a ridge, as a share of the mean curvature: directions that a single client has seen stay finite
# without it
FIRM_RIDGE = 1e-6
# a ridge where samples are scarce, as a share of the mean curvature times unknowns per sample
SOFT_RIDGE = 5.0
SHARED_ROOM = 1.5  # samples per unknown from which a shared model is fitted without a ridge
PROBE_RATIOS = 15
MANY_HOLDING = 4  # clients with held-out samples, which are then measured on
LEAST_TESTED = 200  # test samples of all clients; with fewer, levels are of validation ones too
PROBE_ROWS = 400  # samples of a client that are predicted, evenly spread: more would say the same
# ratios from the samples' own scale over this to the scale times this; the last is infinite
RATIO_SPAN = 1e3
PROFILE_ROOM = 8.0  # samples per unknown from which pooled eigenvalues are near the true ones


@dataclass(frozen=True, eq=False)
class SharedSums:
    """S, its inverse, the sum of G_j^2, the model, and the mean of the features (over samples)."""

    S: Array
    inverse: Array
    squares: Array
    theta: Array
    cross: Array  # sum X_i'Y_i
    mean: Array
    samples: int
    scarce: bool  # all samples together are too few for it without a ridge

    @property
    def covariance(self) -> Array:
        """Second moments of the features."""
        return np.asarray(self.S / self.samples)

    def without(self, client: ClientView) -> Array:
        """The others' model: theta - S^{-1} X' (what the client's residuals gain when left out)."""
        return np.asarray(self.theta - self.inverse @ (client.X.T @ client.about))


@dataclass(frozen=True, eq=False)
class ClientView:
    """One client along its axes (U, x), X = U diag(sqrt x) V', at most min(n, d); its residuals.

    labels: Y, (n, outputs). about: what the others' model leaves of them, (n, outputs).
    noise, shift: how much of the others' noise^2 and radius^2 is in the squares of `about` along
        each axis.
    """

    X: Array
    U: Array
    x: Array
    labels: Array
    about: Array
    noise: Array
    shift: Array


@dataclass(frozen=True, eq=False)
class PooledSums:
    """Sums over some clients that the shared model follows from: S, the sum of G_j^2, X'Y, X'1."""

    S: Array
    squares: Array
    cross: Array
    total: Array

    def __add__(self, other: PooledSums) -> PooledSums:
        return PooledSums(
            self.S + other.S,
            self.squares + other.squares,
            self.cross + other.cross,
            self.total + other.total,
        )


def add_up_clients(data: ClientData, coding: Coding) -> PooledSums:
    """The sums over these clients."""
    d, outputs = data.dimension, 1 if coding.count == 2 else coding.count
    S, squares = np.zeros((d, d)), np.zeros((d, d))
    cross, total = np.zeros((d, outputs)), np.zeros(d)
    for X, codes in data:
        G = X.T @ X
        S += G
        squares += G @ G if len(X) >= d else X.T @ (X @ X.T) @ X
        cross += X.T @ coding.targets(codes)
        total += X.sum(0)
    return PooledSums(S, squares, cross, total)


def pool_classes(classes: Classes) -> tuple[Classes, SharedSums]:
    """One pass over the clients; dependent features come back as the directions they span."""
    data = classes.data
    d = data.dimension
    sums: PooledSums = sum_parts(data, add_up_clients, classes.coding)
    samples = int(data.sizes.sum())
    mean = sums.total / samples
    values, vectors = scipy.linalg.eigh(sums.S)
    kept = values > max(RANK, d * np.finfo(float).eps) * values[-1]
    scarce = bool(samples < SHARED_ROOM * kept.sum())
    ridge = SOFT_RIDGE * d / samples if scarce else FIRM_RIDGE
    if scarce or kept.all():
        told = sums.S, sums.squares, sums.cross, mean
        return classes, solve_shared(*told, samples, ridge, scarce)
    basis = vectors[:, kept]
    spanned = replace(classes, data=replace(data, basis=basis))
    S, squares = basis.T @ sums.S @ basis, basis.T @ sums.squares @ basis
    turned = S, squares, basis.T @ sums.cross, basis.T @ mean
    return spanned, solve_shared(*turned, samples, ridge, False)


def solve_shared(
    S: Array, squares: Array, cross: Array, mean: Array, samples: int, ridge: float, scarce: bool
) -> SharedSums:  # fmt: skip
    """The model from its sums, with a ridge as a share of the mean curvature."""
    inverse = scipy.linalg.inv(S + ridge * np.trace(S) / len(S) * np.eye(len(S)))
    inverse = (inverse + inverse.T) / 2
    return SharedSums(S, inverse, squares, inverse @ cross, cross, mean, samples, scarce)


def sample_axes(X: Array) -> tuple[Array, Array]:
    """Orthogonal axes of samples (n, k) and their powers, from the smaller Gram matrix."""
    n, d = X.shape
    if n <= d:
        x, U = scipy.linalg.eigh(X @ X.T)
        return U, np.maximum(x, 0.0)
    x, V = scipy.linalg.eigh(X.T @ X)
    kept = x > d * np.finfo(float).eps * x[-1]
    return (X @ V[:, kept]) / np.sqrt(x[kept]), x[kept]


def view_client(shared: SharedSums, X: Array, labels: Array) -> ClientView:
    """A client about the model of the others."""
    U, x = sample_axes(X)
    rows = U.T @ X if len(X) > x.size else None  # only along the axes do the others' errors show
    A = X if rows is None else rows
    left = labels - X @ shared.theta
    back = A @ shared.inverse
    slack = np.eye(len(A)) - back @ A.T
    solved = scipy.linalg.solve(
        slack, np.column_stack([back, left if rows is None else U.T @ left]), assume_a="sym"
    )
    back, e = solved[:, : X.shape[1]], solved[:, X.shape[1] :]
    about = e if rows is None else left + U @ (e - U.T @ left)
    turned = U.T @ back if rows is None else back
    along = U.T @ X if rows is None else A
    own = turned @ along.T  # X S_{-i}^{-1} X' along the axes
    # (X S^-1_{-i}) (sum_j G_j^2 - G_i^2) (..)'; the client's own G^2 is X'(XX')X, diag(x) along the
    # axes
    shift = np.einsum("kd,kd->k", turned @ shared.squares, turned) - (own**2) @ x
    return ClientView(X, U, x, labels, about, np.diag(own).copy(), np.maximum(shift, 0.0))


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """Right answers (clients, ratios) as shares of `count` samples; NaN where there are none."""

    right: Array
    count: Array

    @property
    def client_accuracies(self) -> Array:
        """Shares of right answers of the clients that have samples."""
        return np.asarray(self.right[self.count > 0])

    @property
    def mean(self) -> Array:
        """Over clients."""
        return (
            np.asarray(self.client_accuracies.mean(0))
            if len(self.client_accuracies)
            else np.full(self.right.shape[1], np.nan)
        )

    def at(self, place: int) -> tuple[float, float]:
        """Mean accuracy at a ratio and its standard error over clients."""
        values = self.client_accuracies[:, place]
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))

    def gain(self, place: int, over: int) -> tuple[float, float]:
        """How much more accurate one ratio is than another, and the standard error of that."""
        paired = self.client_accuracies[:, place] - self.client_accuracies[:, over]
        return float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired)))


@dataclass(frozen=True, eq=False)
class Probes:
    """Accuracies along `ratios` about the others' model and about 0: left out, held out, and on the
    test samples among these (None: which these are is not known).
    """

    ratios: Array
    shared: AccuracyCurve
    alone: AccuracyCurve
    shared_held: AccuracyCurve
    alone_held: AccuracyCurve
    shared_test: AccuracyCurve | None = None
    alone_test: AccuracyCurve | None = None

    @property
    def holds(self) -> bool:
        """Whether enough clients hold samples out to speak of an accuracy."""
        return int((self.shared_held.count > 0).sum()) >= MANY_HOLDING

    def choose_curve(self, alone: bool) -> AccuracyCurve:
        """Held-out samples where there are any, otherwise each sample left out."""
        if self.holds:
            return self.alone_held if alone else self.shared_held
        return self.alone if alone else self.shared

    def levels(self, alone: bool) -> AccuracyCurve:
        """What levels are read from: test samples, where there are enough; else as measured."""
        curve = self.alone_test if alone else self.shared_test
        if (
            curve is None
            or curve.count.sum() < LEAST_TESTED
            or len(curve.client_accuracies) < MANY_HOLDING
        ):
            return self.choose_curve(alone)
        return curve

    def nearest_place(self, ratio: float) -> int:
        """The place of a ratio on the grid."""
        return (
            int(np.argmin(np.abs(np.log(self.ratios[:-1] / ratio))))
            if np.isfinite(ratio)
            else len(self.ratios) - 1
        )


def probe_ratios(energy: float, sizes: Array, dimension: int) -> Array:
    """The ratios to try, about the power of a client's axes; energy: summed squared lengths."""
    scale = energy / sizes.size / min(dimension, float(sizes.mean()))
    return np.append(scale * np.geomspace(1 / RATIO_SPAN, RATIO_SPAN, PROBE_RATIOS), np.inf)


class ProbeRecord(NamedTuple):
    """What the probes of one client said: right answers along the ratios, left out about the
    others' model and about 0, held out about both, and on the test samples about both.
    """

    right: list[Array]
    test: list[Array]
    counts: tuple[int, int]  # of own samples and of held-out ones
    tested: int  # of test samples


class ProbeRecorder:
    """Clients one by one; what they say is kept, they are not."""

    def __init__(self, classes: Coding, ratios: Array) -> None:
        self.classes, self.ratios = classes, ratios

    def record(
        self,
        client: ClientView,
        codes: Array,
        held: tuple[Array, Array],
        others: Array,
        tested: NDArray[np.bool_] | None = None,
    ) -> ProbeRecord:
        """Of one client, given the model of the others. tested: which held-out samples are for
        test.
        """
        right = [
            self.leave_one_out_accuracies(client, client.about, codes),
            self.leave_one_out_accuracies(client, client.labels, codes),
        ]
        rows = spread_places(len(held[1]), PROBE_ROWS)
        X, answers = (part[rows] for part in held)
        test = np.zeros(len(rows), bool) if tested is None else tested[rows]
        nothing = np.zeros((len(X), client.labels.shape[1]))
        on_test: list[Array] = []
        for about, start in ((client.about, X @ others), (client.labels, nothing)):
            hits = self.held_out_hits(client, about, X, start, answers)
            for kept, chosen in ((right, hits), (on_test, hits[:, test])):
                none = np.full(self.ratios.size, np.nan)
                kept.append(chosen.mean(1) if chosen.size else none)
        counts = min(len(codes), PROBE_ROWS), len(answers)
        return ProbeRecord(right, on_test, counts, int(test.sum()))

    def leave_one_out_accuracies(self, client: ClientView, about: Array, codes: Array) -> Array:
        """Right answers on the client's own samples, each predicted without itself."""
        along = client.U.T @ about
        rows = spread_places(len(codes), PROBE_ROWS)
        U = client.U[rows]
        e = about[rows]
        labels = client.labels[rows]
        answers = codes[rows]
        right = []
        for c in self.ratios:
            pull = client.x / (client.x + c) if np.isfinite(c) else np.zeros_like(client.x)
            left = (e - U @ (pull[:, None] * along)) / np.maximum(1 - U**2 @ pull, 1e-12)[:, None]
            right.append(np.mean(self.classes.guess(labels - left) == answers))
        return np.array(right)

    def held_out_hits(
        self, client: ClientView, about: Array, X: Array, start: Array, codes: Array
    ) -> Array:
        """Whether answers on held-out samples are right, (ratios, samples)."""
        along, across = client.U.T @ about, (X @ client.X.T) @ client.U
        right = np.empty((self.ratios.size, len(codes)))
        for place, c in enumerate(self.ratios):
            weight = 1 / (client.x + c) if np.isfinite(c) else np.zeros_like(client.x)
            right[place] = self.classes.guess(start + across @ (weight[:, None] * along)) == codes
        return right

    def finish(self, records: Sequence[ProbeRecord]) -> Probes:
        """What all of them said."""
        own, out = np.array([each.counts for each in records]).T
        test = np.array([each.tested for each in records])
        right = np.array([[*each.right, *each.test] for each in records]).swapaxes(0, 1)
        counts = (own, own, out, out, test, test)
        curves = [AccuracyCurve(*pair) for pair in zip(right, counts, strict=True)]
        return Probes(self.ratios, *curves)


ShiftRow = tuple[Array, Array, Array, Array]  # scores, answers, class counts and shift of scores


class ShiftRecorder:
    """What the others' model says of a client's samples, and how its class shares and its mean
    features would correct that; clients one by one.

    Held-out samples where clients have some (`holds`); otherwise each half of the training samples
    is predicted, with the class shares of the other half. counts: of each class.
    """

    def __init__(self, classes: Coding, shared: SharedSums, counts: Array, holds: bool) -> None:
        self.classes, self.holds = classes, holds
        total = shared.mean * shared.samples
        sums = shared.cross.T + total / classes.count
        if classes.count == 2:
            sums = np.stack([total - shared.cross[:, 0], total + shared.cross[:, 0]]) / 2
        self.means = sums / np.maximum(counts, 1)[:, None]

    def record(
        self, client: ClientView, codes: Array, held: tuple[Array, Array], others: Array
    ) -> list[ShiftRow]:
        """A row of one client, or one of each half of it, given the model of the others."""
        if self.holds:
            rows = spread_places(len(held[1]), PROBE_ROWS)
            parts = [(held[0][rows], held[1][rows], np.arange(len(codes)))]
        else:
            halves = [np.arange(len(codes)) % 2 == half for half in range(2)]
            parts = [(client.X[half], codes[half], np.flatnonzero(~half)) for half in halves]
        found = []
        for X, answers, known in parts:
            labels = codes[known].astype(int)
            counts = np.bincount(labels, minlength=self.classes.count).astype(float)
            apart = client.X[known].sum(0) - counts @ self.means
            shift = self.widen(apart[None] @ others)[0]
            found.append((self.widen(X @ others), answers, counts, shift))
        return found

    def widen(self, outputs: Array) -> Array:
        """Outputs of all classes: two have one of both signs."""
        return np.hstack([-outputs, outputs]) if self.classes.count == 2 else outputs

    def finish(self, records: Sequence[list[ShiftRow]], probes: Probes) -> GainParts | None:
        """The gain of a ridge towards the others' model, in parts; None: too few samples.

        Least-squares outputs become logarithms of probabilities by the temperature that fits best.
        Half of the samples choose the corrections' numbers for the other half, and the reverse.
        """
        owner = np.repeat(np.arange(len(records)), [len(rows) for rows in records])
        every = [row for rows in records for row in rows]
        scores, answers, counts, shifts = zip(*every, strict=True)
        sizes = [len(each) for each in answers]
        if not sum(sizes):
            return None
        labels = np.concatenate(answers).astype(np.intp)
        stacked = np.concatenate(scores)
        scale = find_temperature(stacked, labels)
        held = HeldScores(
            scale * stacked,
            labels,
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([np.arange(size) % 2 == 1 for size in sizes]),
            np.array(counts, dtype=float),
            scale * np.array(shifts),
        )
        found = correct_shifts(held).plus(correct_shifts(held.swap_roles()))
        joined = found.of_clients(owner)
        curve = probes.choose_curve(alone=False)
        best = int(np.argmax(curve.mean))
        personal = np.nan_to_num(curve.right[:, best]) * joined.tested
        return GainParts.of("rtfa", joined, personal)


def find_temperature(scores: Array, labels: NDArray[np.intp]) -> float:
    """The factor that makes scores logarithms of probabilities, by the log-loss of the labels."""

    def log_loss(log_scale: float) -> float:
        Z = np.exp(log_scale) * scores
        return float((np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(Z)), labels]).mean())

    found = scipy.optimize.minimize_scalar(log_loss, bounds=(-3, 7), method="bounded")
    return float(np.exp(found.x))
