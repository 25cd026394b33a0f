"""`advise`: which algorithm for these clients, with which ridge, how sure, and how to prove it wrong."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.advice import Advice, Estimated, Steps
from fedasym.advisor.checks import doubts_of
from fedasym.advisor.classes.advice import ClassAdvice
from fedasym.advisor.classes.federated import ClassSummary
from fedasym.advisor.classes.intake import are_classes
from fedasym.advisor.comparing import compared
from fedasym.advisor.components import components
from fedasym.advisor.confirming import Confirmation
from fedasym.advisor.curves import Curves, curves
from fedasym.advisor.estimates import Estimates, Quantity
from fedasym.advisor.evidence import Check, Doubt, Evidence
from fedasym.advisor.federated import combine
from fedasym.advisor.gathering import Gathered, gathered
from fedasym.advisor.given import seen as observed
from fedasym.advisor.intake import LEAST_CLIENTS, Data, taken_in
from fedasym.advisor.kinds import Kinds
from fedasym.advisor.mixed_classes import ScoredAdvice
from fedasym.advisor.persons import persons
from fedasym.advisor.predictions import UNRIDGED, Prediction, endless, population_of, predictions
from fedasym.advisor.structure import Structure, structure, with_power
from fedasym.advisor.summaries import Summary
from fedasym.advisor.variation import kurtosis_of
from fedasym.algorithms import PAPER, Algorithm, Ridge, find
from fedasym.algorithms.registry import asked
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.machine import few_threads
from fedasym.core.numbers import flag
from fedasym.data.federation.federation import Federation
from fedasym.exact.reml import FEW
from fedasym.exact.spread import MANY
from fedasym.theory.contours import support
from fedasym.verbs.fine_tuning import fine_tuning

SIMPLEST = ("fedavg", "ftfa", "rtfa", "pfedme", "local_ridge", "local", "maml")
CLOSE = 0.005  # losses within this share are one: take the simpler
LEAST_OF_A_CLASS = 5  # samples
LEAST_ROOM = 1.25  # samples per unknown below which few features are still too many
BARE = 0.05  # an aspect this close to 1 is moved away from it before paths are predicted


@overload
def advise(data: Sequence[Summary]) -> Advice: ...
@overload
def advise(data: Sequence[ClassSummary]) -> ClassAdvice: ...
@overload
def advise(
    data: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    task: Literal["regression"],
    intercept: bool | None = None,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
) -> Advice: ...
@overload
def advise(
    data: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    task: Literal["classification"],
    intercept: bool | None = None,
) -> ClassAdvice | ScoredAdvice: ...
@overload
def advise(
    data: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    task: str | None = None,
    intercept: bool | None = None,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
) -> Advice | ClassAdvice | ScoredAdvice: ...
def advise(
    data: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    task: str | None = None,
    intercept: bool | None = None,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
) -> Advice | ClassAdvice | ScoredAdvice:
    """Estimate the population behind federated data, predict every algorithm, recommend and doubt.

    data: a `Federation` (training samples are learnt from, validation and test samples show how far levels can be
        trusted), or features with `y` and the client of each row in `clients`, as `fa.linear.fit` takes them; or the
        summaries that clients sent (`fedasym.advisor.federated.summarise`, for classes that of
        `fedasym.advisor.classes.federated`), where samples do not leave their clients.
    task: "regression" or "classification". Without it labels are what `fa.Federation` takes them for: whole numbers, booleans
        and strings are classes, floating-point numbers are numbers.
    intercept: whether models have one, shared and personal; by default as the Federation says, and yes for arrays.
    algorithms: some to look at beside the paper's, by name or as objects; for numbers and few features.

    Classes give a `ClassAdvice` (accuracies, the ridge of the logistic loss), numbers an `Advice`.
    Noise and radius come from the restricted likelihood of y_i ~ (X_i theta_0, sigma^2 I + (r^2/d) X_i X_i'), the covariance
    from the clients' own Gram eigenvalues, the losses from `fa.predict` with the number of clients at hand. With few features
    there is a variance for the intercept and one for the rest, or one for each feature where the data carry it, and the losses
    are exact expectations given the clients' own features; with few features and classes, personalised logistic regressions
    are fitted to folds and scored (`ScoredAdvice`).

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 20, 40))
    >>> theta = rng.standard_normal(40) / 5 + 0.5 * rng.standard_normal((30, 40)) / 40**0.5
    >>> y = np.einsum("ijk,ik->ij", X, theta) + 0.3 * rng.standard_normal((30, 20))
    >>> advice = advise(list(X), list(y), intercept=False)
    >>> advice.recommended, round(advice.population.noise.value, 1), round(advice.population.radius.value, 1)
    ('pfedme', 0.3, 0.5)
    """
    beside = [find(each) for each in asked(algorithms, ())]
    beside = [each for each in beside if each.name not in PAPER]
    if isinstance(data, Sequence) and len(data) and all(isinstance(each, Summary | ClassSummary) for each in data):
        if y is not None or clients is not None:
            raise InvalidInput("summaries have their labels and names in them: leave y and clients out")
        if intercept is not None and flag("intercept", intercept):
            raise InvalidInput("summaries are of models without an intercept: leave intercept out, or give the samples")
        check_beside(beside)
        return from_sent(data)
    advice = advise_samples(data, y, clients, task, intercept, beside)
    if isinstance(data, Federation) and data.recipe is not None:
        return replace(advice, columns=str(data.recipe))
    return advice


def advise_samples(
    data: Any,
    y: Any,
    clients: Iterable[Hashable] | None,
    task: str | None,
    intercept: bool | None,
    beside: Sequence[Algorithm],
) -> Advice | ClassAdvice | ScoredAdvice:
    """Advice from the samples themselves."""
    federation = data if isinstance(data, Federation) else None
    told = None if federation is None else federation.intercept
    free = flag("intercept", intercept) if intercept is not None else True if told is None else told
    named = (None, None) if federation is None else (federation.names, federation.personal)
    if are_classes(data, y, task):
        check_beside(beside)
        return advise_on_classes(data, y, clients, free, *named)
    taken = taken_in(data, y, clients)
    with few_threads(taken.dimension):
        if are_few(taken, free):
            from fedasym.advisor.mixed import advise_mixed

            return advise_mixed(taken, *named, free, nested_doubts(federation), beside)
        check_beside(beside)
        levels = Levels.of(taken) if free else None
        seen = gathered(taken.level() if free else taken)
        lying = structure(seen)
        found = with_power(seen) if lying.aligned else seen.estimates
        return advised(seen.summaries, found, lying, held_out(seen), seen.data.left_out, None, levels, in_features(seen))


def check_beside(beside: Sequence[Algorithm]) -> None:
    """Refuse algorithms beside the paper's where the advice is not made of their weight and filter."""
    if beside:
        raise NoFormula(
            f"{beside[0].name} is looked at where labels are numbers and features few: predict it on the estimated population "
            "(fa.predict), or train it"
        )


def in_features(seen: Gathered) -> Array:
    """The pooled weights by feature, those that are always 0 left out."""
    return seen.pool.theta if seen.data.basis is None else seen.data.basis @ seen.pool.theta


def advise_on_classes(
    data: Any,
    y: Any,
    clients: Iterable[Hashable] | None,
    intercept: bool,
    names: tuple[str, ...] | None,
    personal: NDArray[np.bool_] | None,
) -> ClassAdvice | ScoredAdvice:
    """With few features the models are fitted to folds and scored; with many, accuracies are predicted."""
    from fedasym.advisor.classes.intake import classes_in

    few = False
    if not (isinstance(data, Federation) and data.sequences):
        taken = classes_in(data, y, clients)
        samples = int(taken.data.sizes.sum())
        few = taken.data.dimension + intercept <= (MANY if intercept else FEW)
        if few and samples < LEAST_OF_A_CLASS * taken.count:
            raise InvalidInput(
                f"the labels are {taken.count} classes and there are {samples} training samples: fewer than {LEAST_OF_A_CLASS} "
                "of a class on average; check which column is the label, merge rare classes, or take numbers as such "
                "(task='regression')"
            )
    if few:
        from fedasym.advisor.mixed_classes import advise_scored

        with few_threads(taken.data.dimension):
            notes = nested_doubts(data if isinstance(data, Federation) else None)
            return advise_scored(data, y, clients, names, personal, intercept, notes)
    from fedasym.advisor.classes.advise import advise_classes

    return advise_classes(data, y, clients)


def nested_doubts(federation: Federation | None) -> tuple[Doubt, ...]:
    """Groups within the clients, which a recipe found and left out: what a second level would explain."""
    recipe = None if federation is None else federation.recipe
    said = []
    for each in () if recipe is None else recipe.nested:
        share = "" if each.explained is None else f"; they explain {each.explained:.0%} of what varies within clients"
        said.append(
            Doubt(
                "groups within clients",
                f"{each.column!r} has {each.groups} groups, each within one client{share}: a second level would use them, "
                f"and new rows of the same groups are not independent; --client {each.column} takes the groups as clients.",
            )
        )
    return tuple(said)


def are_few(data: Data, intercept: bool) -> bool:
    """Whether exact expectations serve better than limits: few unknowns. Too few samples for them are refused."""
    unknowns, samples = data.dimension + intercept, int(data.sizes.sum())
    if unknowns > (MANY if intercept else FEW):
        return False
    enough = samples >= LEAST_ROOM * unknowns + len(SIMPLEST)
    if intercept and not enough:
        raise InvalidInput(
            f"there are {samples} training samples for {unknowns} unknowns (features and the intercept): how clients differ "
            "cannot be told from so few; name fewer features, or give more samples"
        )
    return enough


@dataclass(frozen=True, eq=False)
class Levels:
    """Clients' own means of features and labels, for what an intercept adds to every loss."""

    means: Array  # (clients, d + 1), the label last
    sizes: Array

    @classmethod
    def of(cls, data: Data) -> Levels:
        """Of the training samples of each client that has two or more."""
        places = [place for place, part in enumerate(data.parts) if part.train.size > 1]
        return cls(np.array([data.means(place) for place in places]), data.sizes[places].astype(float))

    def variance(self, found: Estimates, pooled: Array) -> float:
        """Of clients' intercepts: what their mean residuals vary beyond the noise and the features' part in it."""
        x = self.means[:, :-1]
        x = x if pooled.size == x.shape[1] else np.zeros((len(x), 0))
        left = self.means[:, -1] - (x @ pooled if x.size else 0.0)
        share = self.sizes / self.sizes.sum()
        left = left - float(share @ left)
        expected = found.noise2 / self.sizes + found.radius2 * (x**2).mean(1) if x.size else found.noise2 / self.sizes
        return max(float(np.mean(left**2 - expected)), 0.0)

    def add_to(self, rows: dict[str, Prediction], variance: float, noise2: float) -> dict[str, Prediction]:
        """The losses with the intercept's own: all of its variance where it is shared, its error where clients have theirs."""
        own = noise2 / self.sizes
        extra = {name: float(np.mean(variance * own / np.maximum(variance + own, np.finfo(float).tiny))) for name in rows}
        extra |= {"fedavg": variance, "local": float(own.mean()), "local_ridge": float(own.mean())}
        return {name: raise_loss(row, extra[name]) for name, row in rows.items()}


def raise_loss(row: Prediction, extra: float) -> Prediction:
    """A prediction with so much more loss."""
    loss, new = (Quantity(q.value + extra, q.low + extra, q.high + extra) for q in (row.loss, row.new))
    gcv = None if row.gcv is None else row.gcv + extra
    return replace(row, loss=loss, new=new, gcv=gcv, trusted=row.trusted + extra, variance=row.variance + extra)


def from_sent(sent: Sequence[Summary | ClassSummary]) -> Advice | ClassAdvice:
    """Advice from summaries, all of labels that are numbers, or all of classes."""
    numbers = [each for each in sent if isinstance(each, Summary)]
    if len(numbers) == len(sent):
        return from_summaries(numbers)
    if numbers:
        raise InvalidInput("some summaries are of classes and some of numbers: every client must answer the same question")
    from fedasym.advisor.classes import advise as about_classes

    return about_classes.from_summaries([each for each in sent if isinstance(each, ClassSummary)])


def from_summaries(summaries: list[Summary]) -> Advice:
    """Advice from what clients sent of labels that are numbers."""
    if len(summaries) < LEAST_CLIENTS:
        raise InvalidInput(f"there are {len(summaries)} summaries: how clients differ takes at least {LEAST_CLIENTS} clients")
    with few_threads(summaries[0].dimension):
        found = combine(summaries)
        return advised(summaries, found, Structure(), np.empty(0), 0, max(each.bytes for each in summaries))


def held_out(seen: Gathered) -> Array:
    """Mean squares of held-out residuals about the pooled model, for clients that hold any out."""
    data, out = seen.data, []
    for place, part in enumerate(data.parts):
        if part.held.size:
            X, y = data.held(place)
            out.append(float(np.mean((y - X @ seen.pool.theta) ** 2)))
    return np.array(out)


def advised(
    summaries: list[Summary],
    found: Estimates,
    lying: Structure,
    held: Array,
    dropped: int,
    sent: int | None,
    levels: Levels | None = None,
    pooled: Array | None = None,
) -> Advice:
    """Everything that follows from summaries and estimates."""
    d = summaries[0].dimension
    sizes = np.array([each.samples for each in summaries], dtype=float)
    kinds = Kinds.of(sizes)
    middle = float(kinds.samples[kinds.middle])
    shared, alone = curves(summaries, "residual"), curves(summaries, "raw")
    blind = UNRIDGED if endless(d, sizes) and observed(summaries) else ()
    table = compared(predictions(found, d, kinds, summaries), shared, alone, found, middle, blind)
    about = components(summaries)
    evidence = Evidence(summaries, found, dropped, about, table, shared, lying, held)
    doubts = doubts_of(evidence)
    level2 = 0.0
    if levels is not None:
        assert pooled is not None
        level2 = levels.variance(found, pooled)
        table = levels.add_to(table, level2, found.noise2)
    recommended = chosen(cautious(table) if found.scarce else table)
    ratios = {name: ratio_of(row, shared, alone, middle, doubts) for name, row in table.items()}
    floor = found.noise2
    if any(doubt.check == Check.TRAINED_FEATURES for doubt in doubts):
        floor = max(float(held.mean()) - table["fedavg"].trusted, 0.0)
    rivals = rivals_of(table, recommended)
    ratio = float(ratios["rtfa"] or 0.0)
    return Advice(
        population=estimated(found, summaries, sizes),
        predictions=table,
        recommended=recommended,
        ridge=None if ratios[recommended] is None else float(ratios[recommended] or 0.0) / middle,
        steps=stopping(found, d, middle, summaries),
        doubts=doubts,
        confirm=Confirmation(
            recommended,
            {name: ratios[name] for name in (recommended, *rivals)},
            {name: table[name].trusted - table[recommended].trusted for name in rivals},
            level=None if levels is None else found.noise2 / level2 if level2 > 0 else np.inf,
        ),
        clients=persons(summaries, about, ratio, kurtosis_of(summaries)[0], shared.gain(ratio, np.inf)[1]),
        floor=floor,
        sent=sent,
        intercept=levels is not None,
    )


def chosen(table: dict[str, Prediction]) -> str:
    """The lowest loss; of those within half a percent the simplest."""
    least = min(row.trusted for row in table.values() if np.isfinite(row.trusted))
    return next(name for name in SIMPLEST if table[name].trusted <= least * (1 + CLOSE) + np.finfo(float).tiny)


def cautious(table: dict[str, Prediction]) -> dict[str, Prediction]:
    """Where samples are scarce, sharing counts for what the model or what clients left out say of it, the worse of the two.

    The model's level then rests on a shared length that hardly anything tells, and sharing without cause costs far more than
    not sharing.
    """
    left_out = {name: table[name].gcv or table["rtfa"].gcv or 0.0 for name in table if not PAPER[name].shares_nothing}
    return table | {name: replace(table[name], trusted=max(table[name].trusted, loss)) for name, loss in left_out.items()}


def rivals_of(table: dict[str, Prediction], recommended: str) -> list[str]:
    """Two others for the experiment: the next best, and what stands for not personalising or not sharing."""
    others = sorted((row.trusted, name) for name, row in table.items() if name not in (recommended, "maml"))
    first = others[0][1]
    plain = [name for name in ("fedavg", "local_ridge") if name not in (recommended, first)]
    return [first, min(plain, key=lambda name: table[name].trusted)] if plain else [first]


def ratio_of(row: Prediction, shared: Curves, alone: Curves, samples: float, doubts: tuple[Doubt, ...]) -> float | None:
    """Ridge times samples: the model's, or GCV's where it is clearly better."""
    if not isinstance(PAPER[row.algorithm].personalise, Ridge):
        return None
    model = float(row.ridge or 0.0) * samples
    if row.algorithm == "local_ridge":
        gain, error = alone.gain(alone.best, model)
        return alone.best if gain > 3 * error and gain > 0.01 * alone.at(model)[0] else model
    return shared.best if any(doubt.check == Check.RIDGE for doubt in doubts) else model


def estimated(found: Estimates, summaries: list[Summary], sizes: Array) -> Estimated:
    """The estimates in the population's own words."""
    d = summaries[0].dimension
    return Estimated(
        radius=found.quantity(1, found.radius2),
        noise=found.quantity(0, found.noise2),
        norm=found.quantity(2, max(found.norm2, found.radius2)),
        aspect=Quantity(float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())),
        spectrum=found.spectrum,
        shift_power=found.power,
        clients=len(summaries),
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def stopping(found: Estimates, dimension: int, samples: float, summaries: list[Summary]) -> Steps | None:
    """Where fine-tuning should stop, for a new client of middling size; None where there is no path to predict."""
    gamma = dimension / samples
    if abs(gamma - 1) < BARE:
        gamma = 1 + BARE if gamma >= 1 else 1 - BARE
    world = population_of(found, dimension, dimension / gamma)
    largest = max(float(each.power.max()) / each.samples for each in summaries)
    step = 1 / max(largest, support(gamma, world.spectrum)[1])
    try:
        path = fine_tuning(world, step=step, steps=[0], clients=len(summaries), member=False)
    except InvalidInput:
        return None
    return Steps(step, float(path.best.at), float(np.asarray(path.best.scores.loss)))
