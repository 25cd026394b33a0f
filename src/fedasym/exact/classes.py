"""The verb for classes: personalised logistic and softmax regression, solved exactly.

The shared part is that of a server stage: all samples together (fedavg, ftfa, rtfa), with the
personal parts (pfedme), or none (local). The personal part stays within variances D_k of it, one
per feature; they come from the samples (`fedasym.exact.spread`), up to a factor that is chosen by
log-loss on folds within clients.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from fedasym.algorithms import PAPER, Algorithm, Objective, ScoreStage, requested_algorithms
from fedasym.algorithms.paper import SHARED, SHARES, SIMPLEST
from fedasym.algorithms.registry import describe_algorithm, find, read_algorithm
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, floats, one_float, pool_shares
from fedasym.core.runtime import read_arrays, write_arrays
from fedasym.exact.clients import FOLDS, append_ones, labels_of, places_of, split_folds
from fedasym.exact.logistic import ClassSamples, Integers, LogisticProblem, minimise, softmax_rows
from fedasym.exact.spread import (
    MOST,
    Estimate,
    Factors,
    Penalties,
    estimate_penalties,
    has_variances,
    ridges_of,
)

# The plainest first, then the one that has all others as limits of its variances.
CANDIDATES = tuple(
    sorted(
        (name for name in SIMPLEST if PAPER[name].is_regularised),
        key=lambda name: (
            PAPER[name].personalise.objective is not Objective.SHARED,
            PAPER[name].server.objective is not Objective.JOINT,
        ),
    )
)
COVERED = {  # what server stages and client stages minimise, together
    Objective.NOTHING: (Objective.OWN, Objective.PENALISED),
    Objective.POOLED: (Objective.SHARED, Objective.OWN, Objective.PENALISED),
    Objective.JOINT: (Objective.PENALISED,),
}
FACTORS = {  # of the estimated variances, tried by cross-validation, the nearest first
    "slopes": (0.3, 3.0),
    "intercept": (0.3, 3.0),
    "shared": (0.3, 3.0, 0.1, 10.0),
}
# Standard errors by which a candidate has to be better. A dozen candidates are tried one after the
# other: with one standard error, equal clients got personal weights in three of ten splits.
CLEAR = 2.0
SMOOTHINGS = (np.log(0.01), np.log(1e4))  # of class shares, in samples
MANY = 30_000  # samples beyond which a part of the clients decides on variances and algorithm


@dataclass(frozen=True, eq=False)
class ClassFit:
    """Shared and personal weights of every class, and what they predict.

    shared: (p, K), features then the intercept, in logits that sum to zero over the classes;
    personal[client]: the client's own, shared part included. variances: of the personal weights of
    standardised features, the intercept's last; None for algorithms without personal weights.
    losses: held-out log-loss by algorithm, where it chose one.

    >>> X, y = [[0.0], [1.0], [2.0], [3.0]] * 2, [0, 0, 1, 1, 1, 1, 0, 0]
    >>> fit = fit_classes("local_ridge", X, y, ["a"] * 4 + ["b"] * 4, classes=("no", "yes"))
    >>> fit.predict([[3.0], [3.0]], client=["a", "b"]).tolist()
    ['yes', 'no']
    """

    algorithm: Algorithm
    classes: tuple[Any, ...]
    shared: Array
    personal: dict[Any, Array]
    samples: dict[Any, int]
    variances: Array | None
    shared_variance: float | None
    intercept: bool
    losses: dict[str, float] | None = None

    def predict_proba(self, X: ArrayLike, client: Any = None) -> Array:
        """Probabilities (rows, K) for one client, or one per row; others and None get the shared.

        >>> fit = fit_classes("fedavg", [[0.0], [0.0]], [0, 1], ["a", "b"], classes=("no", "yes"))
        >>> fit.predict_proba([[5.0]]).round(6).tolist()
        [[0.5, 0.5]]
        """
        rows = np.asarray(X, dtype=float)
        p = len(self.shared) - self.intercept
        if rows.ndim != 2 or rows.shape[1] != p:
            raise InvalidInput(f"X has shape {rows.shape}: give rows of the {p} features")
        if not np.isfinite(rows).all():
            raise InvalidInput("X holds NaN or infinity: drop or fill those samples first")
        rows = append_ones(rows, self.intercept)
        if client is None or np.ndim(client) == 0:
            return probabilities(rows @ self.personal.get(client, self.shared))
        labels = client.tolist() if hasattr(client, "tolist") else list(client)
        if len(labels) != len(rows):
            raise InvalidInput(f"client has {len(labels)} names for {len(rows)} rows: one each")
        logits = np.empty((len(rows), len(self.classes)))
        for label, here in places_of(labels).items():
            logits[here] = rows[here] @ self.personal.get(label, self.shared)
        return probabilities(logits)

    def predict(self, X: ArrayLike, client: Any = None) -> NDArray[Any]:
        """The most probable class of each row, by its name.

        >>> X, codes, ids = [[0.0], [1.0]] * 3, [0, 1] * 3, ["a"] * 6
        >>> fit = fit_classes("fedavg", X, codes, ids, classes=("no", "yes"))
        >>> fit.predict([[-1.0], [2.0]]).tolist()
        ['no', 'yes']
        """
        names = np.empty(len(self.classes), dtype=object)
        names[:] = self.classes
        return np.asarray(names[self.predict_proba(X, client).argmax(axis=1)])

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors file, whole or not at all; returns where it is."""
        return write_arrays(path, "fit of classes", *self.describe())

    @classmethod
    def load(cls, path: str | Path) -> ClassFit:
        """The fit that `save` wrote."""
        arrays, about = read_arrays(path, "fit of classes")
        return cls.read(arrays, about, path)

    def describe(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The numbers as arrays, and the rest as plain values."""
        names = list(self.personal)
        arrays = {"shared": self.shared, "personal": np.stack(list(self.personal.values()))}
        arrays |= {"samples": np.array([self.samples[name] for name in names], float)}
        if self.variances is not None:
            arrays["variances"] = self.variances
        about = {
            "algorithm": describe_algorithm(self.algorithm),
            "clients": names,
            "intercept": self.intercept,
        }
        return arrays, about | {
            "classes": list(self.classes),
            "shared_variance": self.shared_variance,
            "losses": self.losses,
        }

    @classmethod
    def read(cls, arrays: Mapping[str, Array], about: Mapping[str, Any], path: Any) -> ClassFit:
        """The fit that `describe` described."""
        try:
            names = about["clients"]
            shared = arrays["shared"]
            own = arrays["personal"]
            classes = tuple(about["classes"])
            if own.shape != (len(names), *shared.shape) or shared.shape[1:] != (len(classes),):
                raise ValueError
            return cls(
                read_algorithm(about["algorithm"]),
                classes,
                shared,
                dict(zip(names, own, strict=True)),
                dict(zip(names, arrays["samples"].astype(int).tolist(), strict=True)),
                arrays.get("variances"),
                about["shared_variance"],
                bool(about["intercept"]),
                about["losses"],
            )
        except (KeyError, ValueError, TypeError):
            raise InvalidInput(
                f"{path} is damaged: its parts do not fit together; save the fit again"
            ) from None


def probabilities(logits: Array) -> Array:
    """The softmax of each row."""
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(P / P.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Checked samples: standardised features (ones last), codes, and each row's client number."""

    X: Array
    codes: Integers
    places: Integers
    names: list[Any]
    classes: tuple[Any, ...]
    centre: Array
    scale: Array
    personal: NDArray[np.bool_]
    intercept: bool

    def groupings(self, personal: bool) -> list[Integers]:
        """Which features share a variance: all slopes, or none; the intercept has its own."""
        p = len(self.personal)
        one = np.where(self.personal, 0, -1)
        if self.intercept:
            one[-1] = 1
        each = np.where(self.personal, np.arange(p), -1)
        return [one, each] if personal and np.sum(one == 0) > 1 else [one]

    def samples(self, rows: Integers | None = None) -> ClassSamples:
        """In blocks of clients: all rows, or some."""
        K = len(self.classes)
        if rows is None:
            return ClassSamples.of(self.X, self.codes, self.places, K)
        places = np.unique(self.places[rows], return_inverse=True)[1]
        return ClassSamples.of(self.X[rows], self.codes[rows], places, K)

    def original_logits(self, weights: Array, C: Array) -> Array:
        """Weights in contrasts of standardised features (..., p, L) as logits of the originals."""
        logits = weights @ C.T / self.scale[:, None]
        if self.intercept:
            logits[..., -1, :] -= np.einsum("k,...kc->...c", self.centre[:-1], logits[..., :-1, :])
        return np.asarray(logits)


def check_table(
    X: Any, codes: Any, clients: Any, classes: Sequence[Any], personal: Any, intercept: bool
) -> ScoreTable:
    """The samples, or a sentence about what is wrong with them."""
    try:
        rows, labels = np.asarray(X, dtype=float), np.asarray(codes)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("X must be an array of numbers: (samples, features)") from None
    if rows.ndim != 2 or not rows.size:
        raise InvalidInput(f"X has shape {rows.shape}: give at least one sample and one feature")
    if not np.isfinite(rows).all():
        raise InvalidInput("X holds NaN or infinity: drop or fill those samples first")
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise InvalidInput(f"classes is {names!r}: give the names of two or more different classes")
    if labels.shape != (len(rows),) or labels.dtype.kind not in "iu":
        raise InvalidInput("codes must be whole numbers, one per row of X: places in `classes`")
    low = labels.min()
    high = labels.max()
    most = len(names) - 1
    if low < 0 or high > most:
        raise InvalidInput(f"codes lie in {low}..{high}: {most + 1} classes have 0..{most}")
    listed = labels_of(clients)
    if len(listed) != len(rows):
        raise InvalidInput(f"clients has {len(listed)} labels for {len(rows)} rows: give one each")
    numbers = {name: place for place, name in enumerate(dict.fromkeys(listed))}
    places = np.fromiter((numbers[name] for name in listed), dtype=np.int64, count=len(rows))
    centre = rows.mean(axis=0) if intercept else np.zeros(rows.shape[1])
    scale = np.sqrt(np.mean((rows - centre) ** 2, axis=0))
    constant = scale <= 1e-10 * np.abs(rows).max(axis=0)
    scale = np.where(constant, 1.0, scale)
    standardised = np.where(constant & intercept, 0.0, (rows - centre) / scale)
    mask = check_personal(personal, standardised, places, len(numbers))
    if intercept:
        standardised = np.column_stack([standardised, np.ones(len(rows))])
        centre, scale, mask = np.append(centre, 0.0), np.append(scale, 1.0), np.append(mask, True)
    return ScoreTable(
        standardised,
        labels.astype(np.int64),
        places,
        list(numbers),
        names,
        centre,
        scale,
        mask,
        bool(intercept),
    )


def check_personal(personal: Any, X: Array, places: Integers, clients: int) -> NDArray[np.bool_]:
    """Which features have personal weights: as given, or those that vary within a client."""
    if personal is not None:
        mask = np.asarray(personal)
        if mask.shape != (X.shape[1],) or mask.dtype != bool:
            raise InvalidInput(f"personal must say true or false for each of {X.shape[1]} features")
        return mask
    first = np.zeros(clients, dtype=np.int64)
    first[places[::-1]] = np.arange(len(places))[::-1]
    return np.asarray(np.any(np.abs(X - X[first[places]]) > 1e-9, axis=0))


def check_penalties(
    algorithm: Algorithm, table: ScoreTable, variances: Any, shared_variance: Any
) -> Penalties | None:
    """The given variances, all that the algorithm has; None: none were given."""
    if variances is None and shared_variance is None:
        return None
    personal = has_variances(algorithm)
    if personal and variances is None:
        raise InvalidInput(f"{algorithm.name} has personal weights: give their variances too")
    if not algorithm.shares_nothing and shared_variance is None:
        raise InvalidInput(f"{algorithm.name} has shared weights: give their shared_variance too")
    T = one_float(1.0 if shared_variance is None else shared_variance)
    if not 0 < T < np.inf:
        raise InvalidInput(f"shared_variance is {shared_variance!r}: it must be finite and above 0")
    if not personal:
        D = MOST if algorithm.personalise.objective is Objective.OWN else 0.0
        return Penalties(np.where(table.personal, D, 0.0), T)
    numbers = floats(variances)
    p = len(table.personal)
    if numbers is None or numbers.shape not in ((), (p,)):
        raise InvalidInput(f"variances must be a number or {p} numbers, an intercept's last")
    if not np.all((numbers >= 0) & np.isfinite(numbers)):
        raise InvalidInput(f"variances is {variances!r}: give finite numbers of at least 0")
    return Penalties(np.where(table.personal, numbers, 0.0), T)


def is_covered(algorithm: Algorithm) -> bool:
    """Whether its pair of stages has a form for classes here."""
    shared, own = (stage.objective for stage in algorithm.stages)
    return shared is not None and own in COVERED.get(shared, ())


def refuse_classes(algorithm: Algorithm, intercept: bool) -> str | None:
    """Why an algorithm cannot be fitted to classes here; None where it can."""
    name = algorithm.name
    if not is_covered(algorithm):
        names = ", ".join(name for name, each in PAPER.items() if is_covered(each))
        return f"{name} has no exact form for classes: take one of {names}"
    if has_variances(algorithm) and algorithm.personalise.get("ridge") is not None:
        return f"{name} has a ridge of its own: give `variances` for classes"
    if algorithm.correction is not None and not intercept:
        other = name.removesuffix(SHARED)
        return f"{name} moves intercepts, and intercept is False: leave that out, or take {other}"
    return None


def resolve_algorithm(algorithm: Any, intercept: bool = True) -> Algorithm:
    """The algorithm of this name, if its pair of stages has a form for classes here."""
    (entry,) = requested_algorithms(algorithm, PAPER)
    chosen = find(entry)
    refusal = refuse_classes(chosen, intercept)
    if refusal is not None:
        raise InvalidInput(refusal)
    return chosen


def solve(
    algorithm: Algorithm,
    samples: ClassSamples,
    penalties: Penalties,
    intercept: bool,
    start: tuple[Array, Array] | None = None,
    weights: Array | None = None,
    tolerance: float = 1e-9,
) -> tuple[Array, Array]:
    """The weights in contrasts: shared (p, L) and personal differences (clients, p, L)."""
    D = penalties.variances
    ridges = ridges_of(samples.features, penalties.shared_variance, intercept)
    B, U = start or (np.zeros((samples.features, samples.classes - 1)), None)
    joint = algorithm.server.objective is Objective.JOINT
    if algorithm.server.objective is Objective.POOLED:
        pooled = LogisticProblem(samples, np.zeros_like(D), ridges, weights)
        B = minimise(pooled, pooled.start(B), tolerance).shared
    problem = LogisticProblem(samples, D, ridges, weights, free=joint)
    point = problem.start(B) if U is None else problem.standardise(B, U)
    if joint or D.any():
        point = minimise(problem, point, tolerance)
    own = problem.personal_parts(point)
    if algorithm.correction is not None:  # a number for each class: the intercept takes it
        offsets = offset_scores(algorithm.correction, samples.count_classes(weights))
        own[:, -1] += offsets @ samples.contrasts
    return point.shared, own


def offset_scores(correction: ScoreStage, counts: Array) -> Array:
    """What clients with these (clients, classes) labels add to the scores of every class."""
    pooled = pool_shares(counts.sum(0))
    return np.array([correction.offset(each, pooled) for each in counts])


def held_out_losses(
    algorithm: Algorithm,
    samples: ClassSamples,
    estimates: Sequence[Estimate],
    factors: Factors,
    intercept: bool,
    folds: Integers,
) -> Array:
    """The log-loss of each row under models and variances that did not see it."""
    losses = np.zeros(samples.rows)
    for fold, estimate in enumerate(estimates):
        kept = (folds != fold).astype(float)
        penalties = estimate.penalties.scale(factors)
        B, U = solve(algorithm, samples, penalties, intercept, estimate.weights, kept, 1e-4)
        losses += score_rows(samples, B, U, folds == fold)[0]
    return losses


def score_rows(
    samples: ClassSamples, B: Array, U: Array, wanted: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_]]:
    """Log-losses of the wanted rows, and whether their class is the most probable; 0 elsewhere."""
    losses, hits = np.zeros(samples.rows), np.zeros(samples.rows, bool)
    for block in samples.blocks:
        logits = block.X @ (B + U[block.places]) @ samples.contrasts.T
        here = block.present & wanted[block.rows]
        losses[block.rows[here]] = -softmax_rows(logits, block.codes)[1][here]
        hits[block.rows[here]] = (logits.argmax(-1) == block.codes)[here]
    return losses, hits


class Tuning(NamedTuple):
    """The penalties of an algorithm, and the held-out log-loss of every row under them."""

    penalties: Penalties
    losses: Array


def tune(algorithm: Algorithm, table: ScoreTable, folds: int = FOLDS, seed: int = 0) -> Tuning:
    """Variances by approximate likelihood; ties and factors among them by held-out log-loss."""
    rows = subset_rows(table.places, seed)
    samples = table.samples(rows)
    fold = split_folds(table.places if rows is None else table.places[rows], folds, seed)

    def losses(trial: Sequence[Estimate], factors: Factors) -> Array:
        return held_out_losses(algorithm, samples, trial, factors, table.intercept, fold)

    wholes, trials, held = [], [], []
    for groups in table.groupings(has_variances(algorithm)):
        whole = estimate_penalties(algorithm, samples, groups, table.intercept)
        trial = [
            estimate_penalties(
                algorithm,
                samples,
                groups,
                table.intercept,
                weights=(fold != k).astype(float),
                start=whole,
            )
            for k in range(folds)
        ]
        wholes.append(whole.penalties)
        trials.append(trial)
        held.append(losses(trial, Factors()))
    kind = choose_candidate(held)
    best = held[kind]
    factors = Factors()
    for field in tuned_factors(algorithm):
        tried = [factors, *(factors._replace(**{field: each}) for each in FACTORS[field])]
        held = [best, *(losses(trials[kind], each) for each in tried[1:])]
        place = choose_candidate(held)
        best = held[place]
        factors = tried[place]
    return Tuning(wholes[kind].scale(factors), best)


def choose_candidate(losses: Sequence[Array]) -> int:
    """The last candidate, from the plainest on, that is clearly better than the one before it.

    Clearly: by CLEAR standard errors of the difference of their losses, sample by sample.
    Held-out losses have heavy tails: without this rule a few samples decide, and choosing costs
    more than it brings.

    >>> plain, noisy, better = [1.0, 1.0, 1.0], [0.0, 0.9, 1.9], [0.8, 0.9, 0.8]
    >>> choose_candidate([np.array(each) for each in (plain, noisy, better)])
    2
    """
    best = 0
    for place, each in enumerate(losses):
        gain = losses[best] - each
        if float(gain.mean()) > CLEAR * float(gain.std()) / np.sqrt(len(gain)):
            best = place
    return best


def list_candidates(table: ScoreTable, beside: Iterable[Algorithm] = ()) -> dict[str, Algorithm]:
    """What is tried, others beside it, and class shares where an intercept can take them."""
    tried = {name: PAPER[name] for name in CANDIDATES}
    if table.intercept:
        plain = find(SHARES)
        assert plain.correction is not None
        smoothing = likeliest_smoothing(table.samples().count_classes())
        tried[SHARES] = replace(plain, correction=plain.correction.at(share_smoothing=smoothing))
    return tried | {each.name: each for each in beside}


def likeliest_smoothing(counts: Array) -> float:
    """The samples' worth a of everybody's class shares pi in a client's: its counts are drawn with
    shares that are Dirichlet(a pi), and their likelihood is highest.

    >>> apart, alike = np.array([[9, 1], [1, 9]] * 20), np.array([[5, 5], [4, 6]] * 20)
    >>> likeliest_smoothing(apart) < 10 < likeliest_smoothing(alike)
    True
    """
    pooled, sizes = pool_shares(counts.sum(0)), counts.sum(1)

    def deviance(log_a: float) -> float:
        a = np.exp(log_a)
        own = gammaln(counts + a * pooled) - gammaln(a * pooled)
        return -float(np.sum(gammaln(a) - gammaln(a + sizes)) + own.sum())

    found = minimize_scalar(deviance, bounds=SMOOTHINGS, method="bounded")
    return float(np.exp(found.x))


def choose_algorithm(tuned: Mapping[str, Tuning]) -> str:
    """The candidate by held-out log-loss; class shares, last, only where they win clearly."""
    names = sorted(tuned, key=lambda name: name == SHARES)
    return names[choose_candidate([tuned[name].losses for name in names])]


def tuned_factors(algorithm: Algorithm) -> tuple[str, ...]:
    """Which variances an algorithm has."""
    personal = ("slopes", "intercept") if has_variances(algorithm) else ()
    return personal if algorithm.shares_nothing else (*personal, "shared")


def subset_rows(places: Integers, seed: int) -> Integers | None:
    """All rows of as many clients as hold about MANY of them; None: there are no more."""
    if len(places) <= MANY:
        return None
    order = np.random.default_rng(seed).permutation(int(places.max()) + 1)
    held = np.cumsum(np.bincount(places)[order])
    chosen = order[: max(int(np.searchsorted(held, MANY)), 1)]
    return np.flatnonzero(np.isin(places, chosen))


def fit_classes(
    algorithm: str | Algorithm | None,
    X: Any,
    codes: Any,
    clients: Iterable[Hashable],
    *,
    classes: Sequence[Any],
    personal: Any = None,
    intercept: bool = True,
    variances: Any = None,
    shared_variance: float | None = None,
    seed: int = 0,
) -> ClassFit:
    """Fit an algorithm to clients' samples with classes; None chooses by held-out log-loss.

    X: rows of features; codes: each row's place in `classes`; clients: each row's client. personal:
    which features have personal weights; by default those that vary within clients. variances,
    shared_variance: of the weights of standardised features (the intercept last), instead of those
    that the samples say.

    >>> rng = np.random.default_rng(0)
    >>> ids, X = np.repeat(["a", "b", "c"], 40), rng.standard_normal((120, 2))
    >>> y = (X[:, 0] + np.repeat([-2, 0, 2], 40) * X[:, 1] + rng.logistic(size=120) > 0).astype(int)
    >>> fit = fit_classes("pfedme", X, y, ids, classes=("no", "yes"))
    >>> bool(fit.personal["a"][1, 1] < 0 < fit.personal["c"][1, 1])
    True
    """
    table = check_table(X, codes, clients, classes, personal, intercept)
    losses = None
    if algorithm is None:
        if variances is not None or shared_variance is not None:
            raise InvalidInput("variances are given and no algorithm: name the one they are for")
        tried = list_candidates(table)
        tuned = {name: tune(each, table, seed=seed) for name, each in tried.items()}
        losses = {name: float(each.losses.mean()) for name, each in tuned.items()}
        chosen = tried[choose_algorithm(tuned)]
        penalties = tuned[chosen.name].penalties
    else:
        chosen = resolve_algorithm(algorithm, table.intercept)
        given = check_penalties(chosen, table, variances, shared_variance)
        penalties = tune(chosen, table, seed=seed).penalties if given is None else given
    samples = table.samples()
    B, U = solve(chosen, samples, penalties, table.intercept)
    C = samples.contrasts
    shared, own = table.original_logits(B, C), table.original_logits(B + U, C)
    for weights in (shared, own):
        weights.setflags(write=False)
    counts = np.bincount(table.places, minlength=len(table.names)).tolist()
    alone = chosen.personalise.objective is Objective.SHARED
    return ClassFit(
        chosen,
        table.classes,
        shared,
        dict(zip(table.names, own, strict=True)),
        dict(zip(table.names, counts, strict=True)),
        None if alone else penalties.variances,
        None if chosen.shares_nothing else penalties.shared_variance,
        table.intercept,
        losses,
    )


def score_folds(
    algorithm: Algorithm, table: ScoreTable, penalties: Penalties, folds: int = FOLDS, seed: int = 0
) -> tuple[Array, NDArray[np.bool_]]:
    """Every row's held-out log-loss and whether its class was most probable, at given penalties."""
    samples = table.samples()
    fold = split_folds(table.places, folds, seed)
    losses, hits = np.zeros(samples.rows), np.zeros(samples.rows, bool)
    for k in range(folds):
        kept = (fold != k).astype(float)
        B, U = solve(algorithm, samples, penalties, table.intercept, None, kept, 1e-4)
        lost, right = score_rows(samples, B, U, fold == k)
        losses, hits = losses + lost, hits | right
    return losses, hits
