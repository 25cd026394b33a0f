"""Advice from few features: variance components, expected errors, a cross-check by folds.

Tables of people have a handful of columns and an intercept, for which limits of large dimensions
say little. Here nothing is a limit: variances come from the restricted likelihood
(`fedasym.exact.reml`), losses from exact expectations (`fedasym.exact.expectation`), and five folds
of the training samples, fitted by the same formulas, say whether to trust them. With classes the
models themselves are fitted, folds and all: what they score is measured, not predicted, and the
recommendation follows the log-loss.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.advice import SIMPLEST_MIXED, Advice, Estimated, Weight, choose_loss
from fedasym.advisor.assumptions import Check, Doubt
from fedasym.advisor.confirmation import FoldConfirmation, MixedConfirmation, stack_codes
from fedasym.advisor.crosscheck import CONTRADICTED, ClientAdvice
from fedasym.advisor.data import Classes, ClientData
from fedasym.advisor.doubts import doubt_mixed, doubt_scores
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.predictions import (
    LOG_LOSS,
    PREDICTED,
    SAME_LIMITS,
    Prediction,
    best_local_algorithm,
)
from fedasym.advisor.wording import RIVALS
from fedasym.algorithms import PAPER, Algorithm
from fedasym.algorithms.paper import SHARES
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.classes import (
    ScoreTable,
    check_table,
    choose_algorithm,
    list_candidates,
    resolve_algorithm,
    score_folds,
    solve,
    tune,
)
from fedasym.exact.clients import FOLDS, ClientSums, append_ones, split_folds
from fedasym.exact.expectation import (
    ErrorSetting,
    SharedError,
    client_filters,
    expected_errors,
    transpose_each,
    weigh_labels,
)
from fedasym.exact.reml import Components, Likelihood
from fedasym.exact.spread import Penalties, estimate_components
from fedasym.results import LOSS
from fedasym.training.decomposition import GainParts, HeldScores, correct_shifts
from fedasym.training.wording import describe_drift
from fedasym.worlds.spectra import Spectrum

MIXED_DRAWS = 40  # of the estimates, for intervals
MIXED_CLIENTS = 150  # clients whose losses are computed at every draw
NOTABLE_FOLD = 0.02  # share of the error from which folds decide
NORMAL_95 = 1.96
SMALLEST_DEVIATION = 1e-100  # standard deviation of labels, and the inverse of the largest


@dataclass(frozen=True, eq=False)
class SampleTable:
    """All training samples as one table, an intercept's column of ones last where there is one."""

    X: Array
    y: Array
    owner: NDArray[np.intp]
    clients: tuple[Hashable, ...]
    names: tuple[str, ...]  # of the unknowns
    personal: NDArray[np.bool_]
    intercept: bool
    held: tuple[Array, Array, NDArray[np.intp]]

    @classmethod
    def of(
        cls,
        data: ClientData,
        names: tuple[str, ...] | None,
        personal: NDArray[np.bool_] | None,
        intercept: bool,
    ) -> SampleTable:
        """Gather the clients' rows."""
        parts = [data.rows(place) for place in range(len(data.parts))]
        held = [data.held_out_rows(place) for place in range(len(data.parts))]
        d = parts[0][0].shape[1]
        live = np.flatnonzero(data.live)
        named = [names[k] for k in live] if names is not None else [f"feature {k}" for k in live]
        may = np.ones(d, bool) if personal is None else np.asarray(personal, bool)[live]
        both = [stack_clients(each, intercept) for each in (parts, held)]
        return cls(
            *both[0],
            tuple(part.name for part in data.parts),
            (*named, *(["intercept"] if intercept else [])),
            np.append(may, [True] * intercept).astype(bool),
            intercept,
            both[1],
        )

    @cached_property
    def pooled(self) -> Array:
        """Least squares over all samples."""
        return np.asarray(np.linalg.lstsq(self.X, self.y, rcond=None)[0])

    @cached_property
    def sums(self) -> ClientSums:
        """About the pooled fit, to which the restricted likelihood is blind: no digits cancel."""
        return ClientSums.of(self.X, self.y - self.X @ self.pooled, self.owner)

    @cached_property
    def moments(self) -> Array:
        """E[x x'] of a client's new sample, from the common spread within clients and its mean.

        A client's own mean is known from its samples and from how much clients' means vary: m = mu
        + B (mean - mu), B = Omega (Omega + W/n)^{-1}, with B W/n left unknown. Sample means as they
        are would hide how far new samples lie from those that a small client has learnt from.
        """
        n = self.sums.counts
        if not self.intercept:
            return np.broadcast_to(self.sums.total / n.sum(), self.sums.gram.shape)
        d = self.sums.unknowns - 1
        mean = self.sums.gram[:, -1, :d] / n[:, None]
        within = self.sums.gram[:, :d, :d] - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
        W = within.sum(0) / max(n.sum() - len(n), 1.0)
        mu = n @ mean / n.sum()
        apart = (mean - mu) * np.sqrt(n)[:, None]
        x, axes = np.linalg.eigh((apart.T @ apart - (len(n) - 1) * W) / n.sum())
        Omega = (axes * np.maximum(x, 0.0)) @ axes.T
        unsure = W / n[:, None, None]
        B = Omega @ np.linalg.pinv(Omega + unsure, hermitian=True)
        m = mu + np.einsum("jkl,jl->jk", B, mean - mu)
        out: Array = np.empty_like(self.sums.gram)
        out[:, :d, :d] = W + B @ unsure + m[:, :, None] * m[:, None, :]
        out[:, -1, :d] = out[:, :d, -1] = m
        out[:, -1, -1] = 1.0
        return out


def stack_clients(
    parts: list[tuple[Array, Array]], intercept: bool
) -> tuple[Array, Array, NDArray[np.intp]]:  # fmt: skip
    """Clients' rows one below the other."""
    X = np.concatenate([rows for rows, _ in parts])
    owner = np.repeat(np.arange(len(parts)), [len(values) for _, values in parts])
    return append_ones(X, intercept), np.concatenate([values for _, values in parts]), owner


@dataclass(frozen=True, eq=False)
class MixedModel:
    """What was estimated: components, and the shared weights."""

    table: SampleTable
    found: Components

    @cached_property
    def beta(self) -> Array:
        """The shared weights, in the labels' units."""
        return self.found.beta + self.table.pooled

    def setting(
        self, noise2: float, ratios: Array, places: NDArray[np.intp] | slice = slice(None)
    ) -> ErrorSetting:
        """These clients, or some of them, at given variances."""
        sums = self.table.sums if isinstance(places, slice) else self.table.sums.take(places)
        scale = np.sqrt(max(noise2, np.finfo(float).tiny))
        return ErrorSetting(
            sums,
            ratios,
            self.beta / scale,
            self.table.moments[places],
            self.table.personal,
            self.table.intercept,
        )


def has_filters(algorithm: Algorithm) -> bool:
    """Whether both stages are one weight and one filter, whose expected errors are exact."""
    client = algorithm.personalise
    alone = client.own_stage is None and client.plain_stage is None
    return alone and algorithm.server.group_stage is None


def advise_mixed(
    data: ClientData,
    names: tuple[str, ...] | None,
    personal: NDArray[np.bool_] | None,
    intercept: bool,
    notes: tuple[Doubt, ...],
    beside: Sequence[Algorithm] = (),
) -> Advice:
    """The whole advice; `notes`: doubts that come with the data; `beside`: more algorithms."""
    table = SampleTable.of(data, names, personal, intercept)
    check_labels(table.y)
    found = estimate_components(table.sums, intercept, table.personal)
    floor = 1e-12 * float(np.var(table.y))
    found = replace(found, noise2=max(found.noise2, floor))
    world = MixedModel(table, found)
    asked = {name: PAPER[name] for name in PREDICTED} | {each.name: each for each in beside}
    folds = cross_validate(world, asked)
    rows = expect_mixed_losses(world, folds, asked)
    recommended = choose_loss(rows, SIMPLEST_MIXED)
    middle = float(np.median(table.sums.counts))
    rivals = [name for name in ("fedavg", best_local_algorithm(rows)) if name != recommended]
    return Advice(
        metric=LOSS,
        population=describe_population(world),
        predictions=rows,
        recommended=recommended,
        ridge=rows[recommended].ridge,
        doubts=doubt_mixed(world.table, found, rows, folds[recommended], notes),
        confirm=MixedConfirmation(
            recommended,
            {name: rows[name].trusted - rows[recommended].trusted for name in rivals},
            intercept,
            None if table.personal.all() else table.personal,
            beside=tuple(beside),
        ),
        clients=describe_clients(world, middle),
        floor=found.noise2,
        weights=describe_weights(world),
        intercept=intercept,
    )


def check_labels(y: Array) -> None:
    """Refuse labels whose squares no float holds."""
    apart = float(np.std(y))
    if not SMALLEST_DEVIATION < apart < 1 / SMALLEST_DEVIATION:
        raise InvalidInput(
            f"the labels vary by {apart:.3g}: their squares are beyond what numbers here can hold;"
            " rescale them"
        )


def expect_mixed_losses(
    world: MixedModel, folds: dict[str, FoldErrors], asked: Mapping[str, Algorithm]
) -> dict[str, Prediction]:
    """Each algorithm's expected loss above the noise, with its interval and what folds say."""
    found, sums = world.found, world.table.sums
    share = sums.counts / sums.counts.sum()
    here = world.setting(found.noise2, found.ratios)
    losses = {name: expected_errors(each, here) for name, each in asked.items()}
    some = np.unique(np.linspace(0, len(share) - 1, MIXED_CLIENTS).round().astype(int))
    part = share[some] / share[some].sum()
    drawn = draw_estimates(world)
    at_point = world.setting(found.noise2, found.ratios, some)
    rows: dict[str, Prediction] = {}
    for name, algorithm in asked.items():
        value, new = (
            found.noise2 * float(share @ each) for each in (losses[name].member, losses[name].new)
        )
        base = expected_errors(algorithm, at_point)
        factors = []
        for noise2, ratios in drawn:
            each = expected_errors(algorithm, world.setting(noise2, ratios, some))
            factors.append([noise2 * float(part @ each.member), noise2 * float(part @ each.new)])
        scale = found.noise2 * np.array([float(part @ base.member), float(part @ base.new)])
        spread = np.array(factors) / np.where(scale > 0, scale, 1.0)
        bias = found.noise2 * float(share @ bias_of(algorithm, here))
        rows[name] = compare_with_folds(
            Prediction(
                name,
                enclose(value, value * spread[:, 0]),
                new=enclose(new, new * spread[:, 1]),
                bias=bias,
                variance=max(value - bias, 0.0),
                ridge=typical_ridge(world, algorithm),
                trusted=value,
            ),
            folds[name],
            found.noise2,
        )
    for name, like in SAME_LIMITS.items():
        rows[name] = replace(rows[like], algorithm=name, note=f"as {like}")
    return rows


def bias_of(algorithm: Algorithm, setting: ErrorSetting) -> Array:
    """Each client's expected loss from its displacement: T D T' about the shared model."""
    F = client_filters(algorithm, setting, setting.sums.gram, setting.sums.counts)
    T = np.eye(F.shape[1]) - F @ setting.sums.gram
    spread = np.diag(setting.ratios)
    if algorithm.shares_nothing:
        spread = spread + np.outer(setting.beta, setting.beta)
    moments = np.broadcast_to(setting.moments, setting.sums.gram.shape)
    return np.asarray(np.einsum("jkl,jlk->j", moments, T @ spread @ transpose_each(T)))


def enclose(value: float, draws: Array) -> Quantity:
    """A value with the middle 95% of its draws, and with itself in it."""
    if not np.isfinite(value):
        return Quantity(value, float("nan"), float("nan"))
    low, high = (
        np.quantile(draws[np.isfinite(draws)], [0.025, 0.975])
        if np.isfinite(draws).any()
        else (value, value)
    )
    return Quantity(value, float(min(low, value)), float(max(high, value)))


def compare_with_folds(row: Prediction, fold: FoldErrors, noise2: float) -> Prediction:
    """The prediction beside held-out folds, whose loss and interval count where they contradict."""
    loss = fold.error - noise2
    row = replace(row, measured=loss, measured_error=fold.spread)
    wide = np.hypot(fold.spread, (row.loss.high - row.loss.low) / 4)
    apart = abs(loss - row.loss.value)
    if not np.isfinite(loss) or apart <= CONTRADICTED * wide or apart <= NOTABLE_FOLD * fold.error:
        return row
    level = max(loss, 0.0)
    ends = (level - NORMAL_95 * fold.spread, level + NORMAL_95 * fold.spread)
    moved = Quantity(level, max(min(ends[0], level), 0.0), max(ends[1], level))
    return replace(row, trusted=level, loss=moved, contradicted=True)


def typical_ridge(world: MixedModel, algorithm: Algorithm) -> float | None:
    """sigma^2/(n tau^2) of a middling client, tau^2 the mean variance; None if none differs."""
    if not algorithm.has_ridge:
        return None
    v = world.found.ratios + (
        world.beta**2 / world.found.noise2 if algorithm.shares_nothing else 0.0
    )
    features = v[: v.size - world.table.intercept][
        world.table.personal[: v.size - world.table.intercept]
    ]
    live = features if features.size else v[-1:]
    mean = float(live.mean()) if live.size else 0.0
    return None if mean == 0 else float(1 / (np.median(world.table.sums.counts) * mean))


def draw_estimates(world: MixedModel) -> list[tuple[float, Array]]:
    """Noise^2 and ratios by their likelihood: log-normal, exponential where a ratio is 0."""
    found = world.found
    rng = np.random.default_rng(11)
    size = found.covariance.shape[0]
    known = np.isfinite(np.diag(found.covariance))
    root = np.linalg.cholesky(
        found.covariance[np.ix_(known, known)] + 1e-12 * np.eye(int(known.sum()))
    )
    slope = Likelihood(world.table.sums).at(found.ratios).slope
    drawn = []
    for _ in range(MIXED_DRAWS):
        moved = np.zeros(size)
        moved[known] = np.clip(root @ rng.standard_normal(int(known.sum())), -4, 4)
        ratios = found.ratios.copy()
        for group in range(size - 1):
            mine = found.groups == group
            if known[group]:
                ratios[mine] *= np.exp(moved[group])
            elif slope[mine].sum() > 0:
                ratios[mine] = rng.exponential(2 / slope[mine].sum())
        drawn.append((found.noise2 * float(np.exp(moved[-1])), ratios))
    return drawn


@dataclass(frozen=True, eq=False)
class FoldErrors:
    """Squared errors of held-out training samples: mean, and its standard error over clients."""

    error: float
    spread: float
    excess: Array  # by client, for paired comparisons


def cross_validate(world: MixedModel, asked: Mapping[str, Algorithm]) -> dict[str, FoldErrors]:
    """Five folds within clients; every algorithm is fitted to the rest at the estimates."""
    table, found = world.table, world.found
    fold = split_folds(table.owner)
    errors = {name: np.zeros(len(table.y)) for name in asked}
    about = table.y - table.X @ table.pooled
    for k in range(FOLDS):
        rest, out = fold != k, fold == k
        there = np.unique(table.owner[rest])
        place = np.searchsorted(there, table.owner)
        sums = ClientSums.of(table.X[rest], about[rest], place[rest])
        known = np.isin(table.owner, there)
        where = np.minimum(place, len(there) - 1)
        scale = np.sqrt(found.noise2)
        setting = ErrorSetting(
            sums,
            found.ratios,
            world.beta / scale,
            np.eye(sums.unknowns),
            table.personal,
            table.intercept,
        )
        for name, algorithm in asked.items():
            shared, own = solve_models(algorithm, setting, table.pooled)
            chosen = np.where(known[out, None], own[where[out]], shared)
            errors[name][out] = (about[out] - (table.X[out] * chosen).sum(1)) ** 2
    counts = np.bincount(table.owner)
    folds = {}
    for name, each in errors.items():
        mean = np.bincount(table.owner, each) / counts
        share = counts / counts.sum()
        spread = float(np.sqrt((share**2 * (mean - float(share @ mean)) ** 2).sum()))
        folds[name] = FoldErrors(float(each.mean()), spread, mean)
    return folds


def solve_models(algorithm: Algorithm, setting: ErrorSetting, pooled: Array) -> tuple[Array, Array]:
    """The shared model and every client's, less the pooled fit that the labels are about.

    A client that shares nothing learns its labels themselves: they are put back, and taken off its
    model again.
    """
    sums = setting.sums
    F = client_filters(algorithm, setting, sums.gram, sums.counts)
    if algorithm.shares_nothing:
        whole = sums.cross + sums.gram @ pooled
        return np.zeros(sums.unknowns), np.einsum("jkl,jl->jk", F, whole) - pooled
    shared = SharedError(algorithm.server, setting).inverse @ weigh_labels(
        algorithm.server, setting
    ).sum(0)
    left = sums.cross - sums.gram @ shared
    return shared, shared + np.einsum("jkl,jl->jk", F, left)


def describe_population(world: MixedModel) -> Estimated:
    """The estimates in the words of a population."""
    found, table = world.found, world.table
    d = len(table.names) - table.intercept
    sizes = table.sums.counts
    drawn = draw_estimates(world)
    radius2 = [noise2 * float(ratios[:d].sum()) for noise2, ratios in drawn]
    own, shared = float(found.variances[:d].sum()), float((world.beta[:d] ** 2).sum())
    common = table.moments.mean(0)[:d, :d]
    values = np.maximum(np.linalg.eigvalsh(common), 0.0)
    values = np.maximum(values, 1e-12 * max(values.max(), 1e-300))
    return Estimated(
        radius=enclose(float(np.sqrt(own)), np.sqrt(radius2)),
        noise=enclose(float(np.sqrt(found.noise2)), np.sqrt([noise2 for noise2, _ in drawn])),
        norm=enclose(float(np.sqrt(own + shared)), np.sqrt(np.array(radius2) + shared)),
        aspect=Quantity(
            float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())
        ),
        spectrum=Spectrum(values, np.full(d, 1 / d), "features"),
        shift_power=0.0,
        clients=len(table.clients),
        dimension=d,
        samples=int(sizes.sum()),
        method=method_of(found, table),
    )


def method_of(found: Components, table: SampleTable) -> str:
    """Which variances were estimated, in words."""
    d = len(table.names) - table.intercept
    features = found.groups[:d][found.groups[:d] >= 0]
    several = np.unique(features).size > 1
    each = "one variance for each feature" if several else "one variance for all features"
    return (
        f"restricted likelihood with {each}{', one for the intercept' if table.intercept else ''}"
    )


def describe_weights(world: MixedModel) -> tuple[Weight, ...]:
    """By unknown: the shared weight and how clients' own vary about it, with intervals."""
    found, table = world.found, world.table
    error = np.sqrt(
        np.maximum(np.diag(np.linalg.pinv(found.information, hermitian=True)) * found.noise2, 0.0)
    )
    drawn = np.array([np.sqrt(noise2 * ratios) for noise2, ratios in draw_estimates(world)])
    deviation = np.sqrt(found.variances)
    return tuple(
        Weight(
            name,
            Quantity(
                float(world.beta[k]),
                float(world.beta[k] - NORMAL_95 * error[k]),
                float(world.beta[k] + NORMAL_95 * error[k]),
            ),
            enclose(float(deviation[k]), drawn[:, k]) if table.personal[k] else None,
        )
        for k, name in enumerate(table.names)
    )


def describe_clients(world: MixedModel, middle: float) -> tuple[ClientAdvice, ...]:
    """Each client's gain from a model of its own: given its samples, u ~ N(u_hat, P) about the
    shared model, and the gain

    u'Su - (u - u_hat)'S(u - u_hat) = 2 u'S u_hat - u_hat'S u_hat has the mean u_hat'S u_hat and a
    variance in closed form.
    """
    table, found = world.table, world.found
    setting = world.setting(found.noise2, found.ratios)
    F = client_filters(PAPER["rtfa"], setting, table.sums.gram, table.sums.counts)
    left = table.sums.cross - table.sums.gram @ found.beta
    own = np.einsum("jkl,jl->jk", F, left)
    turned = np.einsum("jkl,jl->jk", table.moments, own)
    gain = (own * turned).sum(1)
    spread = 2 * np.sqrt(
        np.maximum(found.noise2 * np.einsum("jk,jkl,jl->j", turned, F, turned), 0.0)
    )
    ridge = typical_ridge(world, PAPER["rtfa"]) or 0.0
    d = len(table.names) - table.intercept
    return tuple(
        ClientAdvice(
            name,
            int(table.sums.counts[j]),
            d / float(table.sums.counts[j]),
            ridge * middle / float(table.sums.counts[j]),
            float(gain[j]),
            float(gain[j] - NORMAL_95 * spread[j]),
            float(gain[j] + NORMAL_95 * spread[j]),
        )
        for j, name in enumerate(table.clients)
    )


def held_label_counts(classes: Classes) -> Array:
    """(clients, classes) labels of held-out samples."""
    counts = np.zeros((len(classes.data.parts), classes.count))
    for place, part in enumerate(classes.data.parts):
        labels = np.asarray(part.labels[part.held], dtype=int)
        counts[place] = np.bincount(labels, minlength=classes.count)
    return counts


def advise_scored(
    taken: Classes,
    names: tuple[str, ...] | None,
    personal: NDArray[np.bool_] | None,
    intercept: bool,
    notes: tuple[Doubt, ...],
    beside: Sequence[Algorithm] = (),
) -> Advice:
    """Fit every candidate to folds and advise."""
    rows, codes, owner = stack_codes(taken.data)
    live = np.flatnonzero(taken.data.live)
    may = None if personal is None else np.asarray(personal, bool)[live]
    table = check_table(rows, codes, owner, taken.names, may, intercept)
    tried = list_candidates(table, [resolve_algorithm(each, intercept) for each in beside])
    tuned = {name: tune(each, table) for name, each in tried.items()}
    drift = describe_drift(table.samples().count_classes(), held_label_counts(taken))
    stable = {name: each for name, each in tuned.items() if drift is None or name != SHARES}
    recommended = choose_algorithm(stable)
    scores, right_rows = {}, {}
    for name, each in tuned.items():
        losses, hits = score_folds(tried[name], table, each.penalties)
        right_rows[name] = hits.astype(float)
        right = average_over_clients(right_rows[name], owner, most=1.0)
        scores[name] = Prediction(
            name, accuracy=right, log_loss=average_over_clients(losses, owner), trusted=right.value
        )
    counts = np.bincount(codes, minlength=len(taken.names))
    named = (
        tuple(names[k] for k in live) if names is not None else tuple(f"feature {k}" for k in live)
    )
    moved = () if drift is None else (Doubt(Check.SHARES_DRIFT, drift),)
    rivals = [name for name in RIVALS if name != recommended]
    aspects = len(named) / taken.data.sizes
    population = Estimated(
        clients=len(taken.data.parts),
        dimension=len(named),
        samples=len(codes),
        method="personalised logistic regressions, fitted to folds",
        aspect=Quantity(float(np.median(aspects)), float(aspects.min()), float(aspects.max())),
        classes=taken.names,
        shares=tuple((counts / counts.sum()).tolist()),
        names=named,
    )
    behind = {
        name: scores[name].log_loss.value - scores[recommended].log_loss.value for name in rivals
    }
    return Advice(
        LOG_LOSS,
        population,
        scores,
        recommended,
        (*doubt_scores(table, counts), *moved, *notes),
        FoldConfirmation(
            recommended,
            behind,
            None if may is None else tuple(may.tolist()),
            intercept,
            beside=tuple(tried.values()),
        ),
        intercept=intercept,
        gain=decompose_folds(table, tuned["fedavg"].penalties, right_rows["rtfa"]),
    )


def decompose_folds(table: ScoreTable, penalties: Penalties, personal: Array) -> GainParts:
    """The gain of `rtfa` over its shared model in parts, on folds that models have not seen.

    personal: whether rtfa is right on each row. In a fold, half of a client's held-out samples
    choose the corrections' numbers for the other half, and the reverse.
    """
    samples, fold = table.samples(), split_folds(table.places)
    K, m, d = len(table.classes), len(table.names), table.X.shape[1] - table.intercept
    scores = np.empty((len(fold), K))
    counts, shifts = np.zeros((FOLDS, m, K)), np.zeros((FOLDS, m, K))
    for k in range(FOLDS):
        kept = fold != k
        told = (samples, penalties, table.intercept, None, kept.astype(float), 1e-4)
        W = solve(PAPER["fedavg"], *told)[0] @ samples.contrasts.T
        scores[~kept] = table.X[~kept] @ W
        counts[k] = samples.count_classes(kept.astype(float))
        classes, rows = np.eye(K)[table.codes[kept]], table.X[kept, :d]
        means = classes.T @ rows / np.maximum(counts[k].sum(0), 1)[:, None]
        apart = np.zeros((m, d))
        np.add.at(apart, table.places[kept], rows - classes @ means)
        shifts[k] = apart @ W[:d]
    place = table.places + m * fold
    order = np.argsort(place, kind="stable")
    chooses = np.empty(len(fold), bool)
    chooses[order] = np.arange(len(fold)) % 2 == 1
    flat = (counts.reshape(-1, K), shifts.reshape(-1, K))
    held = HeldScores(scores, table.codes, place, chooses, *flat)
    found = correct_shifts(held).plus(correct_shifts(held.swap_roles()))
    joined = found.of_clients(np.tile(np.arange(m), FOLDS))
    right = np.bincount(table.places, personal, minlength=m)
    return GainParts.of("rtfa", joined, np.asarray(right, float))


def average_over_clients(values: Array, owner: NDArray[np.intp], most: float = np.inf) -> Quantity:
    """The mean over samples with an interval from how clients' means vary."""
    counts = np.bincount(owner)
    share = counts / counts.sum()
    means = np.bincount(owner, values) / np.maximum(counts, 1)
    mean = float(share @ means)
    error = float(np.sqrt((share**2 * (means - mean) ** 2).sum()))
    return Quantity(mean, max(mean - NORMAL_95 * error, 0.0), min(mean + NORMAL_95 * error, most))
