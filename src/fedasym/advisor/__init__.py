"""The advisor. `advise`: which algorithm and ridge for these clients, how sure, how to test; `fit`:
its choice.

The pipeline, for numbers and for classes: read the data, estimate the population, predict, compare
with held-out fits, doubt, recommend. In a federation whose samples may not move, each client calls
`federated.summarise` at home (for classes `federated.summarise_classes`) and the server calls
`advise` with what they sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedasym.advisor.advice import (
    CLASS_CANDIDATES,
    Advice,
    NoisedStatistics,
    add_shares,
    caution_sharing,
    charge_privacy,
    choose_accuracy,
    choose_loss,
    choose_ratio,
    choose_rivals,
    describe_classes,
    describe_regression,
    move_ridges,
)
from fedasym.advisor.assumptions import Check, Doubt, RegressionEvidence
from fedasym.advisor.class_estimates import (
    LOOKED_AT,
    ClassLook,
    ClassMoments,
    ClientSizes,
    estimate_from_held,
    estimate_world,
    look_at_clients,
    plain_estimates,
    regress_few_features,
)
from fedasym.advisor.class_predictions import (
    has_accuracy,
    predict_beside,
    predict_class_accuracies,
    predict_stopping,
)
from fedasym.advisor.confirmation import RidgeConfirmation, TrainedConfirmation, training_settings
from fedasym.advisor.crosscheck import (
    Level,
    class_client_gains,
    compare_accuracies,
    compare_losses,
    gcv_curves,
    measure_levels,
    regression_gains,
)
from fedasym.advisor.data import (
    LEAST_CLIENTS,
    Classes,
    ClientData,
    are_classes,
    read_classes,
    read_clients,
)
from fedasym.advisor.doubts import (
    RANKING_CHECKS,
    ClassEvidence,
    doubt_classes,
    doubt_noise,
    doubt_regression,
)
from fedasym.advisor.estimates import (
    Estimates,
    held_out_squares,
    pool_and_estimate,
    weights_by_feature,
)
from fedasym.advisor.federated import (
    GROUPS,
    SENT,
    ClassSummary,
    NoisedSums,
    combine_summaries,
    estimate_from_sums,
    look_at_summaries,
    play_noised_sums,
)
from fedasym.advisor.mixed import advise_mixed, advise_scored, has_filters
from fedasym.advisor.moments import fit_variances, kurtosis_of
from fedasym.advisor.predictions import (
    LOG_LOSS,
    ClientLevels,
    candidates_of,
    lacks_variance,
    predict_regression,
    predict_steps,
)
from fedasym.advisor.statistics import SizeGroups, Summary, have_common_covariance
from fedasym.advisor.structure import Structure, estimate_power, find_structure
from fedasym.advisor.wording import RIVALS, expected_error, name_rivals
from fedasym.algorithms import PAPER, Algorithm, asks_for_all, find, requested_algorithms, resolve
from fedasym.algorithms.methods import MAML_STEP
from fedasym.algorithms.paper import SHARES, SIMPLEST
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array, flag, plural, three_digits
from fedasym.core.privacy import Privacy, read_privacy
from fedasym.core.runtime import Executor, Progress, ask, few_threads, progress_shown
from fedasym.data.federation import Federation
from fedasym.data.shards import ShardedFederation, check_in_memory
from fedasym.data.splits import TRAIN
from fedasym.exact.classes import ClassFit, fit_classes, refuse_classes
from fedasym.exact.estimators import fit as fit_linear
from fedasym.exact.reml import FEW
from fedasym.exact.spread import MANY_UNKNOWNS
from fedasym.models import Model
from fedasym.models.what_if import WhatIf
from fedasym.models.what_if import what_if as foretell
from fedasym.results import ACCURACY, LOSS
from fedasym.training.plans import draw_secret_noise

LEAST_OF_A_CLASS = 5  # samples
MIXED_NUMBERS = 2**26  # of clients with few features, samples and sums, that are looked at
MIXED_ROOM = 1.25  # samples per unknown below which few features are still too many


def advise(
    data: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    task: str | None = None,
    intercept: bool | None = None,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    privacy: Privacy | None = None,
    statistics_privacy: Privacy | None = None,
    what_if: bool = False,
    on: Executor | str | None = None,
    progress: Progress | None = None,
) -> Advice:
    """Estimate the population behind federated data, predict every algorithm, recommend and doubt.

    data: a `Federation` (training samples are learnt from, validation and test samples show how far
        levels can be trusted), or features with `y` and the client of each row in `clients`, as
        `fa.linear.fit` takes them; or the summaries that clients sent (`summarise` of
        `fedasym.advisor.federated`, for classes its `summarise_classes`), where samples do not
        leave their clients.
    task: "regression" or "classification". Without it labels are what `fa.Federation` takes them
        for: whole numbers, booleans and strings are classes, floating-point numbers are numbers.
    intercept: whether models have one, shared and personal; by default as the Federation says, and
        yes for arrays.
    algorithms: some to look at beside the paper's, by name or as objects: any that can be predicted
        (few features: fitted); "all": every one that can be.
    privacy: an `fa.Privacy(epsilon=...)` that training has to keep: where it makes sharing too
        expensive, clients are advised to learn alone, and how many would make it pay is said.
        The statistics of the advice itself are not counted. For classes this is predicted for
        least-squares heads on one-hot labels.
    statistics_privacy: an `fa.Privacy(epsilon=...)` that these statistics have to keep: of every
        client a few bounded numbers and a vector go into sums, to which Gaussian noise is added.
        Intervals are wider, and nothing is said of single clients. Labels that are numbers.
    what_if: also draw clients that resemble these, with other numbers of samples and clients, and
        say what follows (`fa.what_if`); of a Federation.
    on: "ray", or a `fedasym.runtimes.Ray` that says where and with what: the shards of a Federation
        on disk are looked at by the workers of a cluster, each by one that can read it, which send
        sums; the few clients that are looked at more closely send what is known of each.
    progress: called with the share that is done and a few words, where workers look at shards.

    The metric is the loss above the noise for numbers, for classes the accuracy, with the ridge of
    the logistic loss. Noise and radius come from the restricted likelihood of y_i ~ (X_i theta_0,
    sigma^2 I + (r^2/d) X_i X_i'), the covariance from the clients' own Gram eigenvalues, the losses
    from `fa.predict` with the number of clients at hand. With few features there is a variance for
    the intercept and one for the rest, or one for each feature where the data support it, and the
    losses are exact expectations given the clients' own features; with few features and classes,
    personalised logistic regressions are fitted to folds and scored by log-loss.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 20, 40))
    >>> theta = rng.standard_normal(40) / 5 + 0.5 * rng.standard_normal((30, 40)) / 40**0.5
    >>> y = np.einsum("ijk,ik->ij", X, theta) + 0.3 * rng.standard_normal((30, 20))
    >>> advice = advise(list(X), list(y), intercept=False)
    >>> (
    ...     advice.recommended,
    ...     round(advice.population.noise.value, 1),
    ...     round(advice.population.radius.value, 1),
    ... )
    ('pfedme', 0.3, 0.5)
    """
    progress = progress_shown(progress)
    if on is not None:
        if flag("what_if", what_if):
            raise InvalidInput(
                "what_if is True with on: clients are drawn to resemble yours in this process;"
                " leave one of them out"
            )
        asked: dict[str, Any] = {"task": task, "intercept": intercept, "algorithms": algorithms}
        asked |= {"privacy": privacy, "statistics_privacy": statistics_privacy}
        with share_shards(data, on, progress) as shared:
            return advise(shared, y, clients, **asked)
    if drawn := flag("what_if", what_if):
        check_resembled(data)
    budget = read_privacy(privacy)
    if budget is not None:
        if budget.epsilon is None:
            raise InvalidInput(
                "privacy has no epsilon: give a budget, such as fa.Privacy(epsilon=4)"
            )
        told: dict[str, Any] = {"task": task, "intercept": intercept, "algorithms": algorithms}
        told |= {"statistics_privacy": statistics_privacy}
        plain = advise(data, y, clients, **told)
        if plain.metric is LOG_LOSS:  # from folds: the population that privacy needs is estimated
            taken = read_classes(data, y, clients)
            some = taken.data.thin(affordable_clients(taken.data))
            squares = regress_few_features(replace(taken, data=some))
            plain = replace(plain, population=replace(plain.population, squares=squares))
        return charge_privacy(plain, budget)
    beside = [
        each for each in map(find, requested_algorithms(algorithms, ())) if each.name not in PAPER
    ]
    every = asks_for_all(algorithms)
    if every or are_classes(data, y, task):  # of classes, their shares are measured in any case
        beside = [each for each in beside if each.correction is None]
    beside = resolve(beside, None, MAML_STEP) if beside else []
    if (kept := read_privacy(statistics_privacy)) is not None:
        return advise_with_noise(data, y, clients, task, intercept, beside, kept, what_if)
    if (
        isinstance(data, Sequence)
        and len(data)
        and all(isinstance(each, Summary | ClassSummary) for each in data)
    ):
        if y is not None or clients is not None:
            raise InvalidInput(
                "summaries have their labels and names in them: leave y and clients out"
            )
        if intercept is not None and flag("intercept", intercept):
            raise InvalidInput(
                "summaries are of models without an intercept: leave intercept out, or give the"
                " samples"
            )
        return advise_sent(data, beside)
    advice = advise_samples(data, y, clients, task, intercept, beside, every)
    if drawn:
        advice = replace(advice, what_if=foretell_clients(data, advice.recommended))
    if isinstance(data, Federation) and data.recipe is not None:
        return replace(advice, columns=str(data.recipe))
    return advice


@contextmanager
def share_shards(
    data: Any, on: Executor | str, progress: Progress | None
) -> Iterator[ShardedFederation]:
    """A federation in shards, read by the workers of a cluster."""
    executor = ask("read executor")(on)
    if not isinstance(data, ShardedFederation):
        raise InvalidInput(
            "on is given, and the clients are in memory: workers share out the shards of a"
            " federation on disk (federation.save(folder, shards=...), fa.Federation.open); leave"
            " on out"
        )
    with ask("open shards")(executor, data, progress) as keepers:
        yield keepers.federation


def check_resembled(data: Any) -> None:
    """Refuse data that no drawn clients can resemble."""
    if not isinstance(data, Federation):
        raise InvalidInput(
            "what_if is True: clients are drawn to resemble those of a Federation; make one of the"
            " arrays with fa.Federation.from_arrays"
        )


def foretell_clients(data: Federation, recommended: str) -> WhatIf:
    """What the recommended algorithm and its rivals would reach at other sizes."""
    names = [name for name in dict.fromkeys((recommended, "rtfa", *RIVALS)) if name in PAPER]
    return foretell(data, algorithms=names)


def advise_samples(
    data: Any,
    y: Any,
    clients: Iterable[Hashable] | None,
    task: str | None,
    intercept: bool | None,
    beside: Sequence[Algorithm],
    every: bool,
) -> Advice:
    """Advice from the samples themselves; every: `beside` are all, and those that can be stay."""
    federation = data if isinstance(data, Federation) else None
    told = None if federation is None else federation.intercept
    free = flag("intercept", intercept) if intercept is not None else True if told is None else told
    named = (None, None) if federation is None else (federation.names, federation.personal)
    notes = nested_doubts(federation)
    if are_classes(data, y, task):
        classes = read_classes(data, y, clients)
        sequences = federation is not None and federation.sequences
        with few_threads(classes.data.dimension):
            if not sequences and are_few_classes(classes, free):
                beside = [each for each in beside if not every or not refuse_classes(each, free)]
                some = classes.data.thin(affordable_clients(classes.data))
                looked = replace(classes, data=some)
                advice = advise_scored(looked, *named, free, notes, beside)
                return count_everyone(advice, classes.data, len(some.parts))
            beside = [each for each in beside if not every or has_accuracy(each, classes.count)]
            return advise_classes(classes, beside)
    numbers = read_clients(data, y, clients)
    with few_threads(numbers.dimension):
        if are_few(numbers, free):
            other = [each for each in beside if not has_filters(each)]
            if other and not every:
                raise NoFormula(
                    f"{other[0].name}: with so few features ({numbers.dimension}) advice takes"
                    " algorithms of one server weight and one client filter; fit this one with"
                    " fa.linear.fit, or measure it with fa.train"
                )
            beside = [each for each in beside if each not in other]
            some = numbers.thin(affordable_clients(numbers))
            advice = advise_mixed(some, *named, free, notes, beside)
            return count_everyone(advice, numbers, len(some.parts))
        return advise_regression(numbers, free, beside)


def advise_regression(data: ClientData, intercept: bool, beside: Sequence[Algorithm]) -> Advice:
    """Numbers and many features: statistics, estimates and structure, then the assembled advice."""
    everyone = data.level() if intercept else data
    looked = everyone.thin(LOOKED_AT)
    levels = ClientLevels.of(replace(looked, levelled=False)) if intercept else None
    seen = pool_and_estimate(looked)
    structure = find_structure(seen)
    if structure.between and not any(each.server.group_stage for each in beside):
        name = f"ifca(clusters=2,between={structure.between:.2f})"
        beside = [*beside, *resolve(name, None, MAML_STEP)]
    advice = assemble_regression(
        seen.summaries,
        estimate_power(seen) if structure.aligned else seen.estimates,
        structure,
        beside,
        held=held_out_squares(seen),
        dropped=seen.data.dropped_features,
        levels=levels,
        pooled=weights_by_feature(seen),
        sizes=everyone.sizes.astype(float),
    )
    return count_everyone(advice, everyone, len(looked.parts))


def affordable_clients(data: ClientData) -> int:
    """How many clients with few features are looked at: as many as have room with their sums."""
    p = data.dimension + 1
    each = p * (float(data.sizes.mean()) + 2 * p)
    return max(int(MIXED_NUMBERS // each), LOOKED_AT)


def count_everyone(advice: Advice, data: ClientData, looked: int) -> Advice:
    """The advice from so many clients, for all of them."""
    if looked == len(data.parts):
        return advice
    method = f"{advice.population.method}, from {looked:,} clients evenly spread"
    clients, samples = len(data.parts), int(data.sizes.sum())
    everyone = replace(advice.population, clients=clients, samples=samples, method=method)
    return replace(advice, population=everyone)


def advise_classes(classes: Classes, beside: Sequence[Algorithm]) -> Advice:
    """Classes and many features: statistics, estimates and probes, then the assembled advice."""
    seen = look_at_clients(classes)
    fresh = estimate_from_held(seen)
    levels = partial(measure_levels, classes)
    return assemble_classes(seen, seen.found if fresh is None else fresh, beside, levels)


def nested_doubts(federation: Federation | None) -> tuple[Doubt, ...]:
    """Groups within clients that a recipe left out: what a second level would explain."""
    recipe = None if federation is None else federation.recipe
    said = []
    for each in () if recipe is None else recipe.nested:
        share = (
            ""
            if each.explained is None
            else f"; they explain {each.explained:.0%} of what varies within clients"
        )
        said.append(
            Doubt(
                "groups within clients",
                f"{each.column!r} has {each.groups} groups, each within one client{share}: a second"
                " level would use them, and new rows of the same groups are not independent;"
                f" --client {each.column} takes the groups as clients.",
            )
        )
    return tuple(said)


def are_few(data: ClientData, intercept: bool) -> bool:
    """Whether exact expectations beat limits: few unknowns. Too few samples are refused."""
    unknowns = data.dimension + intercept
    samples = int(data.sizes.sum())
    if unknowns > (MANY_UNKNOWNS if intercept else FEW):
        return False
    enough = samples >= MIXED_ROOM * unknowns + len(SIMPLEST)
    if intercept and not enough:
        raise InvalidInput(
            f"there are {samples} training samples for {unknowns} unknowns (features and the"
            " intercept): how clients differ cannot be estimated from so few; name fewer features,"
            " or give more samples"
        )
    return enough


def are_few_classes(classes: Classes, intercept: bool) -> bool:
    """Whether models are fitted to folds: few unknowns. Too few samples are refused."""
    samples = int(classes.data.sizes.sum())
    if classes.data.dimension + intercept > (MANY_UNKNOWNS if intercept else FEW):
        return False
    if samples < LEAST_OF_A_CLASS * classes.count:
        raise InvalidInput(
            f"the labels are {classes.count} classes and there are {samples} training samples:"
            f" fewer than {LEAST_OF_A_CLASS} of a class on average; check which column is the"
            " label, merge rare classes, or take numbers as such (task='regression')"
        )
    return True


def advise_sent(sent: Sequence[Summary | ClassSummary], beside: Sequence[Algorithm] = ()) -> Advice:
    """Advice from summaries, all of labels that are numbers, or all of classes."""
    numbers = [each for each in sent if isinstance(each, Summary)]
    if len(numbers) == len(sent):
        return advise_summaries(numbers, beside)
    if numbers:
        raise InvalidInput(
            "some summaries are of classes and some of numbers: every client must answer the same"
            " question"
        )
    return advise_class_summaries([each for each in sent if isinstance(each, ClassSummary)], beside)


def advise_summaries(summaries: list[Summary], beside: Sequence[Algorithm] = ()) -> Advice:
    """Advice from what clients sent of labels that are numbers."""
    if len(summaries) < LEAST_CLIENTS:
        raise InvalidInput(
            f"there are {len(summaries)} summaries: how clients differ takes at least"
            f" {LEAST_CLIENTS} clients"
        )
    with few_threads(summaries[0].dimension):
        found = combine_summaries(summaries)
        return assemble_regression(
            summaries, found, Structure(), beside, sent=max(each.bytes for each in summaries)
        )


def advise_with_noise(
    data: Any,
    y: Any,
    clients: Iterable[Hashable] | None,
    task: str | None,
    intercept: bool | None,
    beside: Sequence[Algorithm],
    budget: Privacy,
    what_if: bool,
) -> Advice:
    """Advice from statistics that keep a privacy budget, of samples at one place."""
    if isinstance(data, Sequence) and any(isinstance(e, Summary | ClassSummary) for e in data):
        raise InvalidInput(
            "statistics_privacy is given with summaries, which have been sent without noise: give"
            " the samples, or ask a federation (fedasym advise NAME --federated)"
        )
    if are_classes(data, y, task):
        raise InvalidInput(
            "statistics_privacy is for labels that are numbers: with classes leave it out, or ask"
            " about least-squares heads, one class against the others (task='regression')"
        )
    if flag("what_if", what_if):
        raise InvalidInput(
            "what_if is True with statistics_privacy: clients that resemble yours would need"
            " statistics without noise; leave one of them out"
        )
    read = read_clients(data, y, clients)
    require_groups(len(read.parts))
    free = data.intercept if isinstance(data, Federation) and intercept is None else intercept
    levelled = True if free is None else flag("intercept", free)
    read = read.level() if levelled else read
    # which features are always 0, or follow from others, is not looked at
    read = replace(read, live=np.ones_like(read.live), basis=None)
    with few_threads(read.dimension):
        noised = play_noised_sums(read, budget, draw_secret_noise)
        advice = advise_sums(noised, levelled, beside)
    recipe = data.recipe if isinstance(data, Federation) else None
    if recipe is None:
        return advice
    scaled = Doubt("columns", "how the table's columns were scaled and coded is not counted.")
    return replace(advice, columns=str(recipe), doubts=(*advice.doubts, scaled))


def require_groups(clients: int) -> None:
    """Refuse fewer clients than sums over groups take, if possible before any budget is spent."""
    if clients < max(LEAST_CLIENTS, GROUPS):
        raise InvalidInput(
            f"there are {clients} clients: sums over five groups of clients take at least {GROUPS}"
        )


def advise_sums(noised: NoisedSums, intercept: bool, beside: Sequence[Algorithm] = ()) -> Advice:
    """Advice from sums with noise: predictions, doubts, the advice; nothing of single clients."""
    m = int(noised.clients.sum())
    require_groups(m)
    found, aspect = estimate_from_sums(noised)
    d = noised.sums.shape[1] - SENT
    samples = max(round(d / aspect), 1)
    kinds = SizeGroups.of(np.full(m, float(samples)))
    table = predict_regression(found, d, kinds, (), beside)
    recommended = choose_loss(table, SIMPLEST)
    rivals = choose_rivals(table, recommended)
    ridges = {name: table[name].ridge for name in (recommended, *rivals)}
    spent = NoisedStatistics(
        noised.budget.spend(rounds=1, cohort=1, clients=1), noised.budget.delta, noised.noises
    )
    return Advice(
        metric=LOSS,
        population=describe_regression(found, d, kinds.sizes),
        predictions=table,
        recommended=recommended,
        ridge=table[recommended].ridge,
        steps=predict_steps(found, d, samples, m),
        doubts=doubt_noise(found, intercept),
        confirm=RidgeConfirmation(
            recommended,
            {name: table[name].trusted - table[recommended].trusted for name in rivals},
            {name: None if ridge is None else ridge * samples for name, ridge in ridges.items()},
            level=0.0 if intercept else None,
            beside=tuple(beside),
        ),
        floor=found.noise2,
        sent=noised.bytes,
        intercept=intercept,
        statistics=spent,
    )


def assemble_regression(
    summaries: list[Summary],
    found: Estimates,
    structure: Structure,
    beside: Sequence[Algorithm],
    *,
    held: Array | None = None,
    dropped: int = 0,
    sent: int | None = None,
    levels: ClientLevels | None = None,
    pooled: Array | None = None,
    sizes: Array | None = None,
) -> Advice:
    """All that follows from summaries and estimates: predictions, cross-check, doubts, the advice.

    held: mean squares of held-out residuals about the pooled model. dropped: features that say
    nothing. levels, pooled: clients' means and the pooled weights, where models have an intercept.
    sizes: of all clients, where summaries are of some of them.
    """
    held = np.empty(0) if held is None else held
    algorithms = candidates_of(beside)
    d = summaries[0].dimension
    if sizes is None:
        sizes = np.array([each.samples for each in summaries], dtype=float)
    kinds = SizeGroups.of(sizes)
    middle = float(kinds.samples[kinds.median_kind])
    shared, alone = gcv_curves(summaries)
    unridged = [name for name, each in algorithms.items() if each.interpolates]
    blind = unridged if lacks_variance(d, sizes) and have_common_covariance(summaries) else ()
    table = predict_regression(found, d, kinds, summaries, beside)
    table = compare_losses(table, shared, alone, found, middle, blind, algorithms)
    about = fit_variances(summaries)
    evidence = RegressionEvidence(summaries, found, dropped, about, table, shared, structure, held)
    doubts = doubt_regression(evidence)
    level2 = 0.0
    if levels is not None:
        assert pooled is not None
        level2 = levels.variance(found, pooled)
        table = levels.add_to(table, level2, found.noise2, algorithms)
    recommended = choose_loss(
        caution_sharing(table, algorithms) if found.scarce else table, SIMPLEST
    )
    ratios = {
        name: choose_ratio(row, algorithms[name], shared, alone, middle, doubts)
        for name, row in table.items()
    }
    floor = found.noise2
    if any(doubt.check == Check.TRAINED_FEATURES for doubt in doubts):
        floor = max(float(held.mean()) - table["fedavg"].trusted, 0.0)
    rivals = choose_rivals(table, recommended)
    ratio = float(ratios["rtfa"] or 0.0)
    return Advice(
        metric=LOSS,
        population=describe_regression(found, d, sizes),
        predictions=table,
        recommended=recommended,
        ridge=None if ratios[recommended] is None else float(ratios[recommended] or 0.0) / middle,
        steps=predict_steps(found, d, middle, sizes.size, summaries),
        doubts=doubts,
        confirm=RidgeConfirmation(
            recommended,
            {name: table[name].trusted - table[recommended].trusted for name in rivals},
            {name: ratios[name] for name in (recommended, *rivals)},
            level=None if levels is None else found.noise2 / level2 if level2 > 0 else np.inf,
            beside=tuple(beside),
        ),
        clients=regression_gains(
            summaries, about, ratio, kurtosis_of(summaries)[0], shared.gain(ratio, np.inf)[1]
        ),
        floor=floor,
        sent=sent,
        intercept=levels is not None,
    )


def advise_class_summaries(sent: Sequence[ClassSummary], beside: Sequence[Algorithm]) -> Advice:
    """Advice from what clients sent."""
    seen = look_at_summaries(sent)
    with few_threads(seen.dimension):
        return replace(
            assemble_classes(seen, seen.found, beside), sent=max(each.bytes for each in sent)
        )


def assemble_classes(
    seen: ClassLook,
    found: ClassMoments,
    beside: Sequence[Algorithm],
    levels: Callable[[], Mapping[str, Level]] | None = None,
) -> Advice:
    """Everything that follows from estimates and probes."""
    shape = ClientSizes(SizeGroups.of(seen.sizes), seen.dimension)
    world = estimate_world(found, seen.classes.count)
    table, ridges = predict_class_accuracies(found, world, shape)
    table = compare_accuracies(table, seen.probes, world, shape, found, levels)
    evidence = ClassEvidence(
        seen.found.summaries,
        plain_estimates(found),
        seen.dropped,
        seen.classes.names,
        seen.counts,
        seen.mean_share,
        seen.probes.shared.at(-1),
        seen.probes,
        table,
        world,
        shape,
    )
    doubts = doubt_classes(evidence)
    if seen.drift is not None:
        doubts = (*doubts, Doubt(Check.SHARES_DRIFT, seen.drift))
    ridges, table = move_ridges(ridges, table, evidence, doubts)
    recommended = choose_accuracy(table)
    steps = predict_stopping(world, shape, ridges, table, seen)
    training = training_settings(table, ridges, steps, shape, seen)
    if seen.gain is not None:
        table, training = add_shares(table, training, seen.gain)
        if seen.gain.shares_win and seen.drift is None:
            recommended = max((recommended, SHARES), key=lambda name: table[name].trusted)
    candidates = (*CLASS_CANDIDATES, *([SHARES] if SHARES in table else []))
    rivals = [
        name
        for name in sorted(candidates, key=lambda name: -table[name].trusted)
        if name != recommended
    ]
    held_only = any(doubt.check == Check.TRAINED_FEATURES for doubt in doubts)
    return Advice(
        metric=ACCURACY,
        population=describe_classes(found, world, seen),
        predictions=table | predict_beside(beside, table, world, shape),
        recommended=recommended,
        ridge=table[recommended].ridge,
        samples=shape.samples,
        steps=steps,
        training=training,
        doubts=doubts,
        ranking_aid=any(doubt.check in RANKING_CHECKS for doubt in doubts),
        confirm=TrainedConfirmation(
            recommended,
            {name: table[recommended].trusted - table[name].trusted for name in rivals},
            {name: training[name] for name in (recommended, *rivals)},
        ),
        clients=class_client_gains(seen, world, shape, table, ridges, held_only),
        gain=seen.gain,
    )


def fit(
    federation: Federation,
    algorithm: str | Algorithm | None = None,
    *,
    intercept: bool | None = None,
    ridge: Any = None,
) -> Model:
    """Fit the recommended algorithm, or the one named, exactly to the clients' training samples.

    intercept: whether models have one; by default as the federation says. ridge: as `fa.linear.fit`
        takes it; by default from the estimated variances.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(
    ...     radius=1, noise=0.5, aspect=0.2, clients=30, dimension=8, seed=1
    ... )
    >>> model = fit(clients)
    >>> model.algorithm in ("rtfa", "pfedme"), model.predict(clients.features[:3], client=0).shape
    (True, (3,))
    """
    if not isinstance(federation, Federation):
        raise InvalidInput(
            f"federation is a {type(federation).__name__}: make one with fa.Federation or"
            " fa.datasets.read"
        )
    if federation.sequences or (federation.classes is None and federation.outputs != 1):
        raise NoFormula(
            "a sample has several positions or outputs: exact fits are for one output per sample;"
            " train instead"
        )
    free = federation.intercept if intercept is None else flag("intercept", intercept)
    named, recipe = federation.names, federation.recipe
    if federation.classes is not None:
        if ridge is not None:
            raise InvalidInput(
                "ridge is given, but the labels are classes: their variances are estimated; leave"
                " it out"
            )
        check_in_memory(federation, "models of classes are fitted")
        rows = np.flatnonzero(federation.split == TRAIN)
        names = np.empty(len(federation.clients), dtype=object)
        names[:] = federation.clients
        owners = names[federation.owner[rows]].tolist()
        X, labels = np.asarray(federation.features[rows], float), federation.labels[rows]
        options: dict[str, Any] = {"personal": federation.personal, "intercept": free}
        found = fit_classes(algorithm, X, labels, owners, classes=federation.classes, **options)
        return Model(found, named, recipe, explain_class_choice(found))
    why = ""
    chosen = algorithm
    if chosen is None:
        chosen, expected = recommend_for_fit(federation, free)
        why = expected if ridge is None else ""  # what is expected is so with the estimated ridges
    if ridge is not None:
        check_has_ridge(chosen)
    model = fit_linear(chosen, federation, ridge=ridge, intercept=free)
    return Model(model, named, recipe, why)


def check_has_ridge(algorithm: str | Algorithm) -> None:
    """Refuse a ridge for an algorithm that has none."""
    named = find(algorithm)
    if not named.has_ridge:
        raise InvalidInput(
            f"ridge is given, but {named.name} has none: leave it out, or take local_ridge, rtfa or"
            " pfedme"
        )


def recommend_for_fit(federation: Federation, intercept: bool) -> tuple[str, str]:
    """The recommendation and its sentence; with few clients to estimate from, nearly one model."""
    trained = int(np.count_nonzero(federation.counts("train")))
    if trained < LEAST_CLIENTS:
        name = "fedavg" if trained < 2 else "rtfa"
        return (
            name,
            f"With {plural(trained, 'client')} there is no advice: {name} is the usual choice.",
        )
    advice = advise(federation, task="regression", intercept=intercept)
    others = [
        f"{words} {three_digits(expected_error(advice, name))}"
        for name, words in name_rivals(advice).items()
    ]
    expected = f"Expected squared error {three_digits(expected_error(advice, advice.recommended))}"
    return advice.recommended, ", ".join([expected, *others]) + "."


def explain_class_choice(found: ClassFit) -> str:
    """Why an algorithm for classes was chosen: held-out log-losses."""
    if found.losses is None:
        return ""
    others = [
        f"{words} {three_digits(found.losses[name])}"
        for name, words in RIVALS.items()
        if name != found.algorithm.name
    ]
    return (
        ", ".join(
            [f"Held-out log-loss {three_digits(found.losses[found.algorithm.name])}", *others]
        )
        + "."
    )
