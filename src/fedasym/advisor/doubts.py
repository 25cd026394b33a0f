"""What could make the advice wrong, with what to do: numbers, few features, classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.assumptions import (
    FEW_CLIENTS,
    Check,
    Doubt,
    RegressionEvidence,
    SizeEvidence,
    assumption_1,
    assumption_2,
    assumption_3,
    duplicate_clients,
    few_clients,
    few_samples,
    near_threshold,
    no_radius,
    planned_features,
    scarce_samples,
    unlike_features,
)
from fedasym.advisor.class_estimates import ClientSizes
from fedasym.advisor.class_predictions import AccuracyTable
from fedasym.advisor.class_statistics import Probes
from fedasym.advisor.crosscheck import NOTABLE_ACCURACY
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.moments import kurtosis_of
from fedasym.advisor.predictions import Prediction
from fedasym.core.numbers import Array
from fedasym.exact.classes import ScoreTable
from fedasym.exact.reml import Components
from fedasym.theory.classes.ridge import separability_threshold as separable_from
from fedasym.theory.classes.squared_labels import LabelModel, best_label_ridge

if TYPE_CHECKING:
    from fedasym.advisor.mixed import FoldErrors, SampleTable

SURE_DEVIATIONS = 5.0  # standard deviations from which a check on the distribution speaks
CLEAR_ERRORS = 3.0  # standard errors
OPTIMISTIC = 1.25  # held-out error over predicted error
FEW_MIXED_SAMPLES = 3
UNEVEN_CLASSES = 0.7  # effective over actual number of classes, below which they are not alike
SHIFTED_COUNTS = 5.0  # standard deviations of class counts over clients, beyond chance
MEAN_SHARE = 0.05  # share of the features' energy in their mean
# doubts after which levels are not to be trusted
RANKING_CHECKS = (Check.LINK, Check.TRAINED_FEATURES, Check.CLASS_SHARES)
USELESS_GAIN = 0.005  # of accuracy: a ridge that gains less is no better


def noise_variation(seen: RegressionEvidence) -> str | None:
    """Noise that differs between clients."""
    found = seen.variation
    if found.noise_z < SURE_DEVIATIONS or found.noise_cv < 0.2:
        return None
    return (
        f"noise differs between clients (noise^2 by about {found.noise_cv:.0%}): a client with more"
        " noise needs a larger ridge, and weights by samples over noise^2 would do better."
    )


def radius_variation(seen: RegressionEvidence) -> str | None:
    """Radii that differ between clients."""
    found = seen.variation
    if found.radius_z < SURE_DEVIATIONS or found.radius_cv < 0.3:
        return None
    return (
        "some clients are much further from the shared model than others (radius^2 varies by about"
        f" {found.radius_cv:.0%}): one ridge cannot suit all; see advice.clients."
    )


def residual_tails(seen: RegressionEvidence) -> str | None:
    """Residuals with heavy tails."""
    excess, z = kurtosis_of(seen.summaries)
    if z < SURE_DEVIATIONS or excess < 0.5:
        return None
    return (
        f"residuals have heavy tails (excess kurtosis {excess:.2g}): least squares chases outliers;"
        " predictions hold for squared error, and a robust loss or clipped labels may do better."
    )


def client_clusters(seen: RegressionEvidence) -> str | None:
    """Groups of clients instead of one centre."""
    if not seen.structure.clustered:
        return None
    share = seen.structure.between
    told = f", which hold about {share:.0%} of radius^2" if share else ""
    return (
        f"clients fall into groups along a common direction{told}: one shared model for each group"
        " (ifca) would beat a single one; cluster the clients first and ask again for each group."
    )


def displacement_alignment(seen: RegressionEvidence) -> str | None:
    """A displacement along strong or weak features."""
    if not seen.structure.aligned:
        return None
    power = seen.estimates.power
    where = "strong" if seen.structure.alignment > 0 else "weak"
    return (
        f"clients differ mostly along {where} features (the displacement's covariance is about"
        f" Sigma^{power:g}): the numbers account for this, but the rule ridge = noise^2"
        " aspect/radius^2 does not hold."
    )


def ridge_disagreement(seen: RegressionEvidence) -> str | None:
    """GCV wants another ridge than the model."""
    row = seen.predictions["rtfa"]
    if row.ridge is None or not np.isfinite(row.ridge):
        return None
    samples = float(np.median(seen.sizes))
    gain, error = seen.shared.gain(seen.shared.best, row.ridge * samples)
    level = seen.shared.at(row.ridge * samples)[0]
    if gain < CLEAR_ERRORS * error or gain < 0.01 * level:
        return None
    return (
        f"cross-validation over clients wants the ridge {seen.shared.best / samples:.3g}, not the"
        f" model's {row.ridge:.3g}, and its error is lower by {gain / level:.1%}: the model of"
        " how clients differ does not fit, so the ridge of cross-validation is used."
    )


def loss_disagreement(seen: RegressionEvidence) -> str | None:
    """GCV gives other losses than the model."""
    off = [
        row for row in seen.predictions.values() if row.contradicted and row.measured is not None
    ]
    if not off:
        return None
    listed = ", ".join(
        f"{row.algorithm} {row.new.value:.3g} against {row.measured:.3g}" for row in off
    )
    return (
        "model and cross-validation disagree on the loss of a new client by more than their errors"
        f" ({listed}): the ranking follows cross-validation there."
    )


def optimistic_levels(seen: RegressionEvidence) -> str | None:
    """Training residuals far below held-out ones."""
    if seen.held.size < 2:
        return None
    expected = seen.estimates.noise2 + seen.predictions["fedavg"].loss.value
    measured, error = (
        float(seen.held.mean()),
        float(seen.held.std(ddof=1) / np.sqrt(seen.held.size)),
    )
    if measured < OPTIMISTIC * expected or measured - expected < CLEAR_ERRORS * error:
        return None
    return (
        f"the shared model's error on held-out samples is {measured:.3g} where {expected:.3g} was"
        " predicted: were the features trained on these very samples? Levels are optimistic (test"
        " errors below use the held-out level); ridge and ranking can still be right."
    )


REGRESSION_CHECKS: dict[str, Callable[[RegressionEvidence], str | None]] = {
    "few clients": few_clients,
    "few samples": few_samples,
    "no difference": no_radius,
    "too few samples in all": scarce_samples,
    "near a threshold": near_threshold,
    "small eigenvalues": assumption_2,
    "clients are not overparameterised": assumption_1,
    "client growth": assumption_3,
    "unlike features": unlike_features,
    "planned features": planned_features,
    "duplicate clients": duplicate_clients,
    "noise varies": noise_variation,
    "radius varies": radius_variation,
    "heavy tails": residual_tails,
    "clusters": client_clusters,
    "aligned displacement": displacement_alignment,
    Check.RIDGE: ridge_disagreement,
    "levels": loss_disagreement,
    Check.TRAINED_FEATURES: optimistic_levels,
}


def doubt_regression(seen: RegressionEvidence) -> tuple[Doubt, ...]:
    """All checks that speak, in their order."""
    return tuple(
        Doubt(name, text)
        for name, check in REGRESSION_CHECKS.items()
        if (text := check(seen)) is not None
    )


def doubt_noise(found: Estimates, intercept: bool) -> tuple[Doubt, ...]:
    """What statistics with noise leave open."""
    low, high = np.sqrt(np.quantile(found.draws[:, 1], [0.025, 0.975]))
    said = [
        Doubt(
            "statistics with noise",
            "the population comes from sums with privacy noise, which all intervals include: the"
            f" radius is between {low:.3g} and {high:.3g}. Only two moments of the covariance are"
            " known, optima are assumed to have no preferred direction, and no held-out samples"
            " check the levels.",
        )
    ]
    if found.flat:
        said.append(
            Doubt(
                "no difference",
                "with this noise clients may just as well be all alike: a larger epsilon for the"
                " statistics, or more clients, would show whether they are.",
            )
        )
    if intercept:
        said.append(
            Doubt(
                "intercepts",
                "what clients' own intercepts add to the errors is not counted: their means were"
                " not sent.",
            )
        )
    return tuple(said)


def doubt_mixed(
    table: SampleTable,
    found: Components,
    rows: dict[str, Prediction],
    fold: FoldErrors,
    notes: tuple[Doubt, ...],
) -> tuple[Doubt, ...]:
    """All checks that speak, and what the data brought along."""
    residuals = table.y - table.X @ (table.pooled + found.beta)
    said = {
        "few clients": few_mixed_clients(table),
        "few samples": few_mixed_samples(table),
        "no difference": no_difference(found),
        "noise varies": mixed_noise_variation(table, found),
        "heavy tails": mixed_residual_tails(residuals),
        "levels": fold_disagreement(rows),
        "held-out samples": held_out_error(table, found, rows),
    }
    return (*(Doubt(name, text) for name, text in said.items() if text), *notes)


def few_mixed_clients(table: SampleTable) -> str | None:
    """Variances between clients rest on how many there are."""
    m = len(table.clients)
    if m >= FEW_CLIENTS:
        return None
    return (
        f"there are {m} clients: how they differ is poorly known, as the wide intervals show; more"
        " clients would narrow them."
    )


def few_mixed_samples(table: SampleTable) -> str | None:
    """Clients with hardly any samples."""
    count = int((table.sums.counts < FEW_MIXED_SAMPLES).sum())
    if count * 2 < len(table.clients):
        return None
    return (
        f"{count} of {len(table.clients)} clients have fewer than {FEW_MIXED_SAMPLES} training"
        " samples: their own models are little more than the shared one."
    )


def no_difference(found: Components) -> str | None:
    """Data that are compatible with one model for all."""
    if np.any(found.ratios > 0):
        return None
    return (
        "most likely, clients do not differ at all: one model for all serves them just as well;"
        " more samples per client would show smaller differences."
    )


def mixed_noise_variation(table: SampleTable, found: Components) -> str | None:
    """Clients whose residual variances differ more than chance allows."""
    n, p = table.sums.counts, table.sums.unknowns
    S, b, q = table.sums.gram, table.sums.cross, table.sums.square
    x, axes = np.linalg.eigh(S)
    known = x > 1e-10 * np.maximum(x[:, -1:], 1e-300)
    turned = np.einsum("jkl,jk->jl", axes, b)
    left = q - np.divide(turned**2, x, out=np.zeros_like(x), where=known).sum(1)
    freedom = n - known.sum(1)
    big = freedom >= max(2, p // 2)
    if big.sum() < FEW_CLIENTS:
        return None
    ratio = left[big] / freedom[big] / found.noise2
    expected = 2 / freedom[big]
    excess = float(np.mean((ratio - ratio.mean()) ** 2 - expected))
    error = float(np.std((ratio - ratio.mean()) ** 2) / np.sqrt(big.sum()))
    if excess < SURE_DEVIATIONS * error or excess < 0.04:
        return None
    return (
        f"noise differs between clients (noise^2 by about {np.sqrt(excess):.0%}): a client with"
        " more noise needs a larger ridge, and expected errors are means over clients."
    )


def mixed_residual_tails(residuals: Array) -> str | None:
    """Residuals that least squares chases."""
    second = float(np.mean(residuals**2))
    excess = float(np.mean(residuals**4)) / second**2 - 3 if second > 0 else 0.0
    if excess < 1 or excess < SURE_DEVIATIONS * np.sqrt(24 / len(residuals)):
        return None
    return (
        f"residuals have heavy tails (excess kurtosis {excess:.2g}): least squares chases outliers;"
        " look at the extreme labels, or take their logarithm."
    )


def fold_disagreement(rows: dict[str, Prediction]) -> str | None:
    """Where folds of the training samples contradict the model."""
    off = [row for row in rows.values() if row.contradicted]
    if not off:
        return None
    return (
        "held-out folds contradict the model's expected error for"
        f" {', '.join(row.algorithm for row in off)} by more than their errors: the numbers and the"
        " ranking follow the folds there."
    )


def held_out_error(
    table: SampleTable, found: Components, rows: dict[str, Prediction]
) -> str | None:
    """Validation and test samples that the shared model serves far worse than foreseen."""
    X, y, owner = table.held
    if len(y) < 20 or np.unique(owner).size < 2:
        return None
    errors = (y - X @ (table.pooled + found.beta)) ** 2
    expected = rows["fedavg"].trusted + found.noise2
    measured, error = float(errors.mean()), float(errors.std() / np.sqrt(len(errors)))
    if measured < OPTIMISTIC * expected or measured - expected < CLEAR_ERRORS * error:
        return None
    return (
        f"the shared model's error on held-out samples is {measured:.3g} where {expected:.3g} was"
        " expected: are validation and test samples drawn from the same clients and times as the"
        " training samples?"
    )


@dataclass(frozen=True, eq=False)
class ClassEvidence(SizeEvidence):
    """Everything that the checks look at."""

    classes: tuple[Any, ...]
    counts: Array  # (clients, classes): training labels
    mean_share: float  # of the features' energy in their mean
    # the shared model's accuracy on training samples of clients left out, standard error
    left_out: tuple[float, float]
    probes: Probes
    predictions: AccuracyTable
    world: LabelModel
    shape: ClientSizes


def scarce_class_samples(seen: ClassEvidence) -> str | None:
    """Fewer samples than unknowns."""
    if not seen.estimates.scarce:
        return None
    return (
        f"all clients together have {seen.sizes.sum():g} samples for {seen.dimension} features:"
        " centre and radius can be separated only by products across clients, accuracies are rough,"
        " and the shared model needs a ridge too."
    )


def near_separability(seen: ClassEvidence) -> str | None:
    """Many clients near the point where their samples become separable."""
    if len(seen.classes) > 2:
        return None
    edge = float(separable_from(seen.world.rho).gamma)
    near = float(
        np.mean(np.abs(seen.dimension / seen.sizes / edge - 1) < 2 / np.sqrt(seen.dimension))
    )
    if near <= 0.2:
        return None
    return (
        f"{near:.0%} of the clients have about as many samples as make classes separable (d/n near"
        f" {edge:.2f}): what training to convergence (local, ftfa) comes to is hard to predict"
        " there; keep a ridge, or stop early."
    )


def class_imbalance(seen: ClassEvidence) -> str | None:
    """Classes of very different size."""
    share = seen.counts.sum(0) / seen.counts.sum()
    share = share[share > 0]
    effective = float(np.exp(-(share * np.log(share)).sum()))
    if effective >= UNEVEN_CLASSES * len(seen.classes):
        return None
    return (
        f"classes are of very different size (the largest has {share.max():.0%} of the samples,"
        f" and the {len(seen.classes)} count like {effective:.3g} equal ones): the theory takes"
        " classes to be alike; always naming the largest class is right"
        f" {share.max():.0%} of the time, so compare accuracies with that."
    )


def label_shift(seen: ClassEvidence) -> str | None:
    """Clients that have different classes."""
    n = seen.counts.sum(1)
    share = seen.counts.sum(0) / seen.counts.sum()
    kept = share > 0
    expected = n[:, None] * share[kept]
    statistic = ((seen.counts[:, kept] - expected) ** 2 / np.maximum(expected, 1e-300)).sum()
    freedom = (len(n) - 1) * (int(kept.sum()) - 1)
    z = (statistic - freedom) / np.sqrt(2 * max(freedom, 1) * count_spread(share[kept], n))
    if z < SHIFTED_COUNTS or statistic < 1.5 * freedom:
        return None
    return (
        f"clients have different classes (their counts vary {statistic / freedom:.1f} times as much"
        " as by chance): part of what a client gains is knowing which classes it has, an intercept"
        " that the theory does not have."
    )


def count_spread(share: Array, n: Array) -> float:
    """How much wider than chi-square the statistic of small counts is, in variance."""
    return 1 + float(np.mean(1 / n)) * float(np.sum(1 / share)) / (2 * max(share.size - 1, 1))


def feature_mean(seen: ClassEvidence) -> str | None:
    """Features whose mean is not 0."""
    if seen.mean_share < MEAN_SHARE:
        return None
    return (
        f"{seen.mean_share:.0%} of the features' energy is in their mean, which the theory takes to"
        " be 0: a head without bias uses that direction as its intercept; subtract the mean of each"
        " feature and train with a bias if levels matter."
    )


def link_disagreement(seen: ClassEvidence) -> str | None:
    """Model and samples disagree about accuracies."""
    off = [
        row for row in seen.predictions.values() if row.contradicted and row.measured is not None
    ]
    if not off:
        return None
    listed = ", ".join(
        f"{row.algorithm} {row.expected:.1%} against {row.measured:.1%}" for row in off
    )
    how = "on held-out samples" if seen.probes.holds else "by leaving out one sample at a time"
    return (
        f"model and samples disagree on the accuracy of least-squares classifiers ({listed} {how}):"
        " a logistic link on Gaussian features does not fit these data. Take the advice as a"
        " ranking aid; the ranking follows the samples."
    )


def trained_features(seen: ClassEvidence) -> str | None:
    """Features that have seen these very training samples."""
    if not seen.probes.holds:
        return None
    inside, inside_error = seen.left_out
    outside, outside_error = seen.probes.shared_held.at(-1)
    gap = inside - outside
    if gap < NOTABLE_ACCURACY or gap < CLEAR_ERRORS * np.hypot(inside_error, outside_error):
        return None
    return (
        f"the others' shared model gets {inside:.1%} of a client's training samples right and"
        f" {outside:.1%} of its held-out ones: were the features trained on these very samples?"
        " Estimates and levels are then taken from held-out samples; the ranking can be right, the"
        " levels of methods that train on these samples less so."
    )


def probe_disagreement(seen: ClassEvidence) -> str | None:
    """The samples want another ridge than the model."""
    curve = seen.probes.choose_curve(False)
    model = model_ridge_ratio(seen)
    best = int(np.argmax(curve.mean))
    place = seen.probes.nearest_place(model)
    gain, error = curve.gain(best, place)
    if gain < CLEAR_ERRORS * error or gain < USELESS_GAIN:
        return None
    n = seen.shape.samples
    wanted = (
        "an infinite ridge"
        if best == len(seen.probes.ratios) - 1
        else f"the ridge {seen.probes.ratios[best] / n:.3g}"
    )
    return (
        f"for least squares the samples want {wanted}, not the model's {model / n:.3g}, and"
        f" {gain:.1%} more of them are right with it: the model of how clients differ does not fit;"
        " the logistic loss's ridge is moved by the same factor."
    )


def model_ridge_ratio(seen: ClassEvidence) -> float:
    """Ridge x samples of least squares by the model, for a new client."""
    gamma = float(seen.shape.aspects[seen.shape.median_kind])
    return best_label_ridge(seen.world, gamma) * seen.shape.samples


CLASS_CHECKS: dict[str, Callable[[ClassEvidence], str | None]] = {
    "few clients": few_clients,
    "few samples": few_samples,
    "no difference": no_radius,
    "too few samples in all": scarce_class_samples,
    "near separability": near_separability,
    "small eigenvalues": assumption_2,
    "duplicate clients": duplicate_clients,
    "uneven classes": class_imbalance,
    Check.CLASS_SHARES: label_shift,
    "features have a mean": feature_mean,
    Check.LINK: link_disagreement,
    Check.TRAINED_FEATURES: trained_features,
    Check.RIDGE: probe_disagreement,
}


def doubt_classes(seen: ClassEvidence) -> tuple[Doubt, ...]:
    """All checks that speak, in their order."""
    return tuple(
        Doubt(name, text)
        for name, check in CLASS_CHECKS.items()
        if (text := check(seen)) is not None
    )


def doubt_scores(table: ScoreTable, counts: NDArray[np.intp]) -> list[Doubt]:
    """What could make the scores mislead."""
    said = []
    clients = int(table.places.max()) + 1
    if clients < 10:
        said.append(
            Doubt("few clients", f"there are {clients} clients: how they differ is poorly known")
        )
    if counts.min() < 10:
        rare = table.classes[int(np.argmin(counts))]
        said.append(
            Doubt(
                "rare classes",
                f"class {rare!r} has {int(counts.min())} training samples: merge rare classes",
            )
        )
    return said
