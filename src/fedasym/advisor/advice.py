"""The advisor's answer: estimates, predictions, recommendation, doubts, how to prove it wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.advisor.assumptions import Check, Doubt
from fedasym.advisor.class_estimates import ClassLook, ClassMoments, one_hot_regression
from fedasym.advisor.class_predictions import (
    CLOSE_ACCURACY,
    AccuracyTable,
    LogisticRidges,
    normal_points,
)
from fedasym.advisor.confirmation import Confirmation
from fedasym.advisor.crosscheck import ClientAdvice, RidgeCurves, best_ratios
from fedasym.advisor.doubts import ClassEvidence, model_ridge_ratio
from fedasym.advisor.estimates import UNKNOWN, Estimates, Quantity, length_variance
from fedasym.advisor.predictions import (
    LOG_LOSS,
    SAME_LIMITS,
    Prediction,
    Steps,
    best_local_algorithm,
)
from fedasym.algorithms import PAPER, Algorithm, Objective
from fedasym.algorithms.paper import SHARES, SIMPLEST
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array, json_value, number, three_digits
from fedasym.core.privacy import Privacy
from fedasym.core.runtime import write_file
from fedasym.models.what_if import WhatIf
from fedasym.results import ACCURACY, LOSS, Metric, Result
from fedasym.theory.classes.squared_labels import LabelModel, Link
from fedasym.theory.transforms import sample_support
from fedasym.training.decomposition import Decomposition, GainParts
from fedasym.verbs.privacy import Candidates, RoundSearch
from fedasym.worlds import Population
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.spectra import Spectrum

LEAST_GAIN = 0.05  # by which private sharing must be below learning alone to pay
PRIVATE = tuple(  # whose private training is predicted
    name for name in SIMPLEST if PAPER[name].server.linear_objective is Objective.POOLED
)
CLOSE_LOSS = 0.005  # losses within this share are one: the simpler algorithm is taken
# With few features fine-tuning to convergence forgets the shared model: a ridge comes before it.
SIMPLEST_MIXED = tuple(
    sorted(SIMPLEST, key=lambda name: (PAPER[name].shares_nothing, PAPER[name].fine_tunes))
)
CLASS_CANDIDATES = tuple(  # which have limits for classes
    name
    for name in SIMPLEST
    if PAPER[name].is_regularised and PAPER[name].server.objective is not Objective.JOINT
)


@dataclass(frozen=True)
class Estimated:
    """The population behind the clients, with 95% intervals; NaN where a quantity is not estimated.

    radius: r, the distance of a client's optimum from the shared one. noise, norm: sigma and rho,
        where labels are numbers.
    centre, signal: b, the length of the shared optimum, and the standard deviation of a client's
        logits, where they are classes. aspect: the median of d/n with its least and largest over
        clients.
    spectrum: the covariance's eigenvalues, as far as the clients' samples tell them; shift_power:
        the displacement's alignment with them. classes, shares: the classes and how frequent they
        are. names: of the features, where they are few.
    """

    clients: int
    dimension: int
    samples: int
    method: str
    aspect: Quantity
    radius: Quantity = UNKNOWN
    noise: Quantity = UNKNOWN
    norm: Quantity = UNKNOWN
    centre: Quantity = UNKNOWN
    signal: Quantity = UNKNOWN
    spectrum: Spectrum = field(
        default_factory=lambda: Spectrum(np.ones(1), np.ones(1), "not estimated")
    )
    shift_power: float = 0.0
    classes: tuple[Any, ...] = ()
    shares: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    class_world: ClassPopulation | None = None
    squares: Population | None = None

    @property
    def outputs(self) -> int:
        """How many outputs of a head are free: one for numbers, one less than there are classes."""
        return max(len(self.classes) - 1, 1)

    @property
    def world(self) -> Population | ClassPopulation:
        """The estimates as a `Population` or `ClassPopulation`, for `fa.predict` and its kin."""
        if self.class_world is not None:
            return self.class_world
        if self.classes:
            raise NoFormula(
                "with classes and few features the models were fitted and scored, and no population"
                " was estimated"
            )
        norm = max(self.norm.value, self.radius.value)
        return Population(
            self.radius.value,
            self.noise.value,
            self.aspect.value,
            norm,
            self.spectrum,
            self.shift_power,
        )


@dataclass(frozen=True)
class Weight:
    """One unknown: its shared weight, and how clients' own vary about it (None: shared only)."""

    name: str
    shared: Quantity
    deviation: Quantity | None


@dataclass(frozen=True)
class PrivateSharing:
    """What a privacy budget makes of the advice.

    loss: of the best private training of `algorithm`, `plain` of its non-private one and `alone` of
        clients that share nothing, all above the noise; for classes the shares of labels that are
        wrong.
    pays: how many such clients it takes for sharing to pay, that is, to gain at least 5%.
    rounds, cohort, clip, noise_multiplier, local_steps, server_step: of that training.
    """

    epsilon: float
    delta: float
    algorithm: str
    loss: float
    plain: float
    alone: float
    pays: float
    rounds: int
    cohort: int
    clip: float
    noise_multiplier: float
    local_steps: int
    server_step: float

    @property
    def shares(self) -> bool:
        """Whether sharing pays under this budget."""
        return self.loss <= (1 - LEAST_GAIN) * self.alone

    def describe(self, show: Callable[[float], str], heads: str = "") -> str:
        """What a budget costs, whether sharing pays under it, and how many clients that takes.

        show: a loss in words. heads: which models these are, with a comma.
        """
        private, plain, alone = map(show, (self.loss, self.plain, self.alone))
        many = "however many there are" if np.isinf(self.pays) else f"with {self.pays:,.0f} or more"
        budget = f"With epsilon {number(self.epsilon)} at delta {self.delta:g}"
        if self.shares:
            return (
                f"{budget} {self.algorithm} has {private} instead of {plain}: {heads}{self.rounds}"
                f" rounds of all clients, {self.local_steps} local steps of"
                f" {three_digits(self.server_step)}, updates clipped at {three_digits(self.clip)},"
                f" noise multiplier {three_digits(self.noise_multiplier)}. Sharing pays, as it"
                f" would {many}."
            )
        verdict = "it does not pay" if np.isinf(self.pays) else f"it would pay {many}"
        return (
            f"{budget} sharing costs too much: {self.algorithm} would have {private} instead of"
            f" {plain}{', with ' * bool(heads)}{heads or ', '}and each client alone has {alone},"
            f" which costs no privacy. With clients like these {verdict}."
        )


@dataclass(frozen=True)
class NoisedStatistics:
    """What the statistics of the advice itself have spent of privacy.

    epsilon, delta: what all that was sent says of any one client at most. noises: how often noise
        was added: once, or by every node.
    """

    epsilon: float
    delta: float
    noises: int


@dataclass(frozen=True)
class Advice(Result):
    """What `fa.advise` returns; prints itself as a page.

    metric: what algorithms are ranked by: the loss above the noise for numbers, predicted accuracy
        for classes, and for classes and few features the log-loss that was measured on folds.
    population: estimates with intervals. predictions: one `Prediction` per algorithm. recommended,
        ridge, steps: what to do; for classes the ridge is that of the logistic loss, for a client
        of middling size (times `samples` it is the same for all clients), and `training` has the
        settings of `fa.train`: with two classes its softmax has twice the ridge.
    doubts: what may be wrong; ranking_aid: whether levels are not to be trusted. confirm: the
        experiment that could prove it wrong, to be called with the data. clients: who gains. floor:
        the noise^2 that makes a loss a test error (from held-out samples where levels are
        optimistic). sent: bytes that a client sent (the most), where the advice came from
        summaries.
    weights: by feature, what is shared and how much clients differ, where features are few;
        intercept: whether models have one.
    columns: what became of a table's columns, in words.
    privacy: what a privacy budget costs, where `advise` was given one. statistics: what the
        advice's own statistics have spent, where they had noise in them.
    gain: for classes, the gain of own models (rtfa) over the shared one on
        held-out samples, by least squares, in parts: label shift, feature shift and the rest.
    what_if: the same algorithms with other numbers of samples and clients, where it was asked for.

    >>> import fedasym as fa
    >>> advice = fa.advise(
    ...     fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1)
    ... )
    >>> advice.recommended, advice.population.noise.low < 0.5 < advice.population.noise.high
    ('pfedme', True)
    >>> options = {"task": "classification", "classes": 2, "radius": 1.5, "centre": 1.5}
    >>> advice = fa.advise(fa.datasets.synthetic(**options, clients=30, dimension=40, seed=1))
    >>> (
    ...     advice.metric.name,
    ...     advice.recommended,
    ...     advice.population.radius.low < 1.5 < advice.population.radius.high,
    ... )
    ('accuracy', 'rtfa', True)
    """

    metric: Metric
    population: Estimated
    predictions: dict[str, Prediction]
    recommended: str
    doubts: tuple[Doubt, ...]
    confirm: Confirmation
    clients: tuple[ClientAdvice, ...] = ()
    ridge: float | None = None
    samples: float = float("nan")
    steps: Steps | None = None
    training: dict[str, dict[str, float]] = field(default_factory=dict)
    floor: float = 0.0
    ranking_aid: bool = False
    sent: int | None = None
    weights: tuple[Weight, ...] = ()
    intercept: bool = False
    columns: str = ""
    privacy: PrivateSharing | None = None
    statistics: NoisedStatistics | None = None
    gain: GainParts | None = None
    what_if: WhatIf | None = None

    def decompose(self) -> Decomposition:
        """The gain of own models in parts, as `train` has it of trained ones."""
        if self.gain is None:
            raise InvalidInput(
                "this advice has no gain in parts: it takes classes, and samples that did not stay"
                " with their clients; .decompose() of fa.train has it of models"
            )
        how = "By least squares, about the others' model."
        folds = "By exact fits of the logistic loss, on held-out folds."
        return Decomposition((self.gain,), (folds if self.metric is LOG_LOSS else how,))

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm: feed it to any data frame. None: there is no finite number."""
        make = {LOSS: loss_record, ACCURACY: accuracy_record, LOG_LOSS: score_record}[self.metric]
        return [
            keep_finite(make(self, row) | {"recommended": name == self.recommended})
            for name, row in self.predictions.items()
        ]

    def client(self, name: Hashable) -> ClientAdvice:
        """One client's advice."""
        return next(each for each in self.clients if each.client == name)

    def to_json(self) -> str:
        """Full precision, stable keys."""
        answer = {LOSS: loss_answer, ACCURACY: accuracy_answer, LOG_LOSS: score_answer}[
            self.metric
        ](self)
        if self.what_if is not None:
            answer["what_if"] = json.loads(self.what_if.to_json())
        return json.dumps(answer, indent=2)

    @property
    def best(self) -> str:
        """The recommended algorithm."""
        return self.recommended

    def plot(self, path: str | Path) -> Path:
        """Draw the expectations with intervals to a PNG, SVG or PDF file; returns its path."""
        return write_file("draw advice", self, path)

    def write(self, path: str | Path) -> Path:
        """Write a page of HTML that needs nothing else; returns where it is."""
        return write_file("write advice", self, path)

    def __str__(self) -> str:
        from fedasym.advisor.wording import advice_text

        return advice_text(self)


def loss_record(advice: Advice, row: Prediction) -> dict[str, Any]:
    """A row of the table where labels are numbers."""
    return {
        "algorithm": row.algorithm,
        "loss": row.trusted,
        "predicted": row.loss.value,
        **ends_of("", row.loss),
        "new": row.new.value,
        **ends_of("new_", row.new),
        "gcv": row.measured,
        "ridge": row.ridge,
        "test_error": row.trusted + advice.floor,
    }


def accuracy_record(_: Advice, row: Prediction) -> dict[str, Any]:
    """A row of the table of predicted accuracies."""
    return {
        "algorithm": row.algorithm,
        "accuracy": row.trusted,
        "predicted": row.accuracy.value,
        **ends_of("", row.accuracy),
        "new": row.new.value,
        **ends_of("new_", row.new),
        "log_loss": row.log_loss.value,
        **ends_of("log_loss_", row.log_loss),
        "probe": row.measured,
        "ridge": row.ridge,
    }


def score_record(_: Advice, row: Prediction) -> dict[str, Any]:
    """A row of the table of scores on folds."""
    return {
        "algorithm": row.algorithm,
        "accuracy": row.accuracy.value,
        **ends_of("", row.accuracy),
        "log_loss": row.log_loss.value,
        **ends_of("log_loss_", row.log_loss),
    }


def ends_of(prefix: str, quantity: Quantity) -> dict[str, float]:
    """The ends of an interval as entries of a record."""
    return {f"{prefix}low": quantity.low, f"{prefix}high": quantity.high}


def loss_answer(advice: Advice) -> dict[str, Any]:
    """What JSON has of advice on numbers."""
    return {
        "recommended": advice.recommended,
        "ridge": json_value(advice.ridge),
        "steps": steps_answer(advice.steps, ("step", "steps", "loss")),
        "population": population_answer(
            advice.population,
            ("radius", "noise", "norm", "aspect"),
            ("shift_power", "clients", "dimension", "samples", "method"),
        ),
        "predictions": advice.table(),
        "doubts": [asdict(doubt) for doubt in advice.doubts],
        "confirm": {"candidates": list(advice.confirm.candidates), "what": str(advice.confirm)},
        "weights": [asdict(each) for each in advice.weights],
        "intercept": advice.intercept,
        "clients": client_answers(advice),
        "floor": advice.floor,
        "sent": advice.sent,
        **privacy_answers(advice),
        **({} if advice.statistics is None else {"statistics": asdict(advice.statistics)}),
    }


def privacy_answers(advice: Advice) -> dict[str, Any]:
    """What a budget costs, for JSON, where there is one."""
    about = advice.privacy
    if about is None:
        return {}
    held = {name: json_number(value) for name, value in asdict(about).items()}
    return {"privacy": held | {"shares": about.shares}}


def accuracy_answer(advice: Advice) -> dict[str, Any]:
    """What JSON has of advice on classes."""
    about = advice.population
    kept = ("clients", "dimension", "samples", "method")
    population = population_answer(about, ("radius", "centre", "signal", "aspect"), kept)
    spectrum = population.pop("spectrum")
    population |= {
        "classes": list(map(str, about.classes)),
        "shares": list(about.shares),
        "spectrum": spectrum,
    }
    keys = ("time", "step", "steps", "local_step", "epochs", "accuracy")
    return {
        "task": "classification",
        "recommended": advice.recommended,
        "ridge": json_value(advice.ridge),
        "steps": steps_answer(advice.steps, keys),
        "training": advice.training,
        "population": population,
        "predictions": advice.table(),
        "doubts": [asdict(doubt) for doubt in advice.doubts],
        "ranking_aid": advice.ranking_aid,
        "sent": advice.sent,
        "confirm": {"settings": advice.confirm.settings, "what": str(advice.confirm)},
        "clients": client_answers(advice),
        "gain": None if advice.gain is None else keep_finite(advice.gain.record()),
        **privacy_answers(advice),
    }


def score_answer(advice: Advice) -> dict[str, Any]:
    """What JSON has of scores on folds."""
    about = advice.population
    return {
        "task": "classification",
        "recommended": advice.recommended,
        "scores": advice.table(),
        "classes": list(map(str, about.classes)),
        "shares": list(about.shares),
        "clients": about.clients,
        "samples": about.samples,
        "features": list(about.names),
        "doubts": [asdict(doubt) for doubt in advice.doubts],
        "confirm": {"candidates": list(advice.confirm.candidates), "what": str(advice.confirm)},
        "gain": None if advice.gain is None else keep_finite(advice.gain.record()),
        **privacy_answers(advice),
    }


def population_answer(
    about: Estimated, quantities: tuple[str, ...], facts: tuple[str, ...]
) -> dict[str, Any]:
    """The estimates and their spectrum."""
    answer: dict[str, Any] = {name: asdict(getattr(about, name)) for name in quantities}
    answer |= {name: getattr(about, name) for name in facts}
    return answer | {
        "spectrum": {
            "eigenvalues": about.spectrum.values.tolist(),
            "shares": about.spectrum.weights.tolist(),
        }
    }


def steps_answer(steps: Steps | None, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """When to stop."""
    return None if steps is None else {key: json_number(getattr(steps, key)) for key in keys}


def client_answers(advice: Advice) -> list[dict[str, Any]]:
    """Every client's gain and verdict."""
    return [
        {
            **{key: json_number(value) for key, value in asdict(each).items()},
            "verdict": each.verdict,
        }
        for each in advice.clients
    ]


def keep_finite(record: dict[str, Any]) -> dict[str, Any]:
    """The record with None for numbers that are infinite or missing.

    >>> keep_finite({"algorithm": "local", "loss": float("inf"), "new": 2.5})
    {'algorithm': 'local', 'loss': None, 'new': 2.5}
    """
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }


def json_number(value: Any) -> Any:
    """What JSON can hold."""
    return json_value(value) if isinstance(value, float) else value


def charge_privacy(advice: Advice, budget: Privacy) -> Advice:
    """The advice under a privacy budget: alone, where private sharing would gain too little.

    The best rounds of everyone, with the best clip, are predicted for the estimated population, of
    classes for least-squares heads on one-hot labels. What privacy adds to the loss there is added
    to the loss that is expected here. For classes privacy takes the same part of what sharing gains
    in accuracy as of what it gains in the squared error.
    """
    about = advice.population
    classes = advice.metric is not LOSS
    world: Any = about.squares if classes else about.world
    if not classes:
        # the shared optimum lies in the covariance as the displacements do, lest it be shorter
        # anywhere
        world = replace(world, optimum_power=world.shift_power)
    lost = {
        name: 1 - row.trusted if classes else row.trusted
        for name, row in advice.predictions.items()
    }
    alone = "local_ridge" if classes else best_local_algorithm(advice.predictions)
    best = "rtfa" if classes else min((n for n in lost if n in PRIVATE), key=lost.__getitem__)
    step = 1 / sample_support(float(np.asarray(world.aspect)), world.spectrum)[1]
    # the largest curvature that was seen may be above that of the estimated spectrum
    if advice.steps is not None and not classes:
        step = min(step, advice.steps.step)
    if "fedavg" in advice.training:  # squares curve twice as much as the softmax
        step = min(step, advice.training["fedavg"]["server_step"] / 2)
    tried = Candidates.of_all([4, 16, 64], None, [5, 50], step)
    size = about.dimension * about.outputs
    search = RoundSearch(world, PAPER[best], tried, size, budget.delta, budget.sampling)
    cell, free = (search.find(each, about.clients) for each in (budget.epsilon, None))
    loss, target = lost[best] + cell.loss - free.loss, (1 - LEAST_GAIN) * search.local_loss
    if classes:
        gain, squares = max(lost[alone] - lost[best], 0.0), search.local_loss - free.loss
        # where squares gain nothing privacy takes everything
        part = (cell.loss - free.loss) / squares if squares > 0 else 1.0
        loss = lost[best] + part * gain
        wanted = LEAST_GAIN * lost[alone] / gain if gain > 0 else np.inf
        target = search.local_loss - wanted * squares if squares > 0 else 0.0
    epsilon = float(budget.epsilon or 0.0)
    found = PrivateSharing(
        epsilon=epsilon,
        delta=budget.delta,
        algorithm=best,
        loss=loss,
        plain=lost[best],
        alone=lost[alone],
        pays=search.count_clients(epsilon, target) if target > 0 else np.inf,
        rounds=cell.rounds,
        cohort=int(cell.cohort),
        clip=cell.clip,
        noise_multiplier=cell.multiplier,
        local_steps=int(cell.local_steps),
        server_step=cell.server_step,
    )
    chosen = best if found.shares else alone
    if advice.recommended in PAPER and PAPER[advice.recommended].shares_nothing:
        chosen = advice.recommended
    ridge = advice.ridge if chosen == advice.recommended else advice.predictions[chosen].ridge
    if chosen == best and ridge is not None and cell.ridge is not None and free.ridge:
        # about a shared model with noise the best is smaller; those of squares are no logistic ones
        ridge = None if classes else ridge * cell.ridge / free.ridge
    return replace(advice, recommended=chosen, ridge=ridge, privacy=found)


def choose_loss(table: dict[str, Prediction], simplest: tuple[str, ...]) -> str:
    """The lowest loss; of those within half a percent the simplest, the user's own last."""
    least = min(row.trusted for row in table.values() if np.isfinite(row.trusted))
    order = dict.fromkeys((*simplest, *table))
    return next(
        name
        for name in order
        if table[name].trusted <= least * (1 + CLOSE_LOSS) + np.finfo(float).tiny
    )


def caution_sharing(
    table: dict[str, Prediction], algorithms: Mapping[str, Algorithm]
) -> dict[str, Prediction]:
    """With scarce samples, sharing counts as the model or left-out clients say, whichever is worse.

    The model's level then rests on a shared length that hardly anything tells, and sharing without
    cause costs far more than not sharing.
    """
    left_out = {
        name: table[name].measured or table["rtfa"].measured or 0.0
        for name in table
        if not algorithms[name].shares_nothing
    }
    return table | {
        name: replace(table[name], trusted=max(table[name].trusted, loss))
        for name, loss in left_out.items()
    }


def choose_rivals(table: dict[str, Prediction], recommended: str) -> list[str]:
    """Two rivals for the experiment: the next best, and one without personalising or sharing."""
    others = sorted(
        (row.trusted, name)
        for name, row in table.items()
        if name != recommended and name not in SAME_LIMITS
    )
    first = others[0][1]
    plain = [name for name in ("fedavg", "local_ridge") if name not in (recommended, first)]
    return [first, min(plain, key=lambda name: table[name].trusted)] if plain else [first]


def choose_ratio(
    row: Prediction,
    algorithm: Algorithm,
    shared: RidgeCurves,
    alone: RidgeCurves,
    samples: float,
    doubts: tuple[Doubt, ...],
) -> float | None:
    """Ridge times samples: the model's, or GCV's where it is clearly better."""
    if not algorithm.is_penalised:
        return None
    model = float(row.ridge or 0.0) * samples
    if algorithm.shares_nothing:
        gain, error = alone.gain(alone.best, model)
        return alone.best if gain > 3 * error and gain > 0.01 * alone.at(model)[0] else model
    return shared.best if any(doubt.check == Check.RIDGE for doubt in doubts) else model


def describe_regression(found: Estimates, d: int, sizes: Array) -> Estimated:
    """The estimates in the population's own words."""
    return Estimated(
        radius=found.quantity(1, found.radius2),
        noise=found.quantity(0, found.noise2),
        norm=found.quantity(2, max(found.norm2, found.radius2)),
        aspect=Quantity(
            float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())
        ),
        spectrum=found.spectrum,
        shift_power=found.power,
        clients=sizes.size,
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def add_shares(
    table: dict[str, Prediction], training: dict[str, dict[str, float]], gain: GainParts
) -> tuple[dict[str, Prediction], dict[str, dict[str, float]]]:
    """The row and the settings of FedAvg with class shares, as far above rtfa as it was measured;
    no row where it is not sure that they help.
    """
    if not gain.settings or gain.label.value < 2 * gain.label.error:
        return table, training
    value = float(np.clip(table["rtfa"].trusted - gain.beyond.value, 0.0, 1.0))
    wide = 1.96 * float(np.hypot(gain.beyond.error, table["rtfa"].measured_error or 0.0))
    row = Prediction(
        SHARES,
        accuracy=Quantity(value, max(value - wide, 0.0), min(value + wide, 1.0)),
        new=table["fedavg"].new,
        measured=gain.shares,
        measured_error=gain.beyond.error,
        trusted=value,
        note="measured against rtfa on held-out samples, not predicted",
    )
    return table | {SHARES: row}, training | {SHARES: training["fedavg"] | gain.settings}


def choose_accuracy(table: dict[str, Prediction]) -> str:
    """The highest accuracy; of those within a tenth of a point the simplest."""
    most = max(table[name].trusted for name in CLASS_CANDIDATES)
    return next(name for name in CLASS_CANDIDATES if table[name].trusted >= most - CLOSE_ACCURACY)


def describe_classes(found: ClassMoments, world: LabelModel, seen: ClassLook) -> Estimated:
    """The estimates in the population's own words."""
    link = Link(seen.classes.count)
    tau = world.spectrum.mean
    s = world.spectrum.values
    B = found.draws[:, 2]
    BD = found.draws[:, 1] * tau
    whole = np.maximum(B + BD, 1e-9 * link.total)
    rho = link.signal(np.minimum(whole, 0.999 * link.most))
    radius = rho * np.sqrt(BD / whole / float(s @ world.shift_share))
    d, sizes = seen.dimension, seen.sizes
    # B tells theta_0'Sigma theta_0; the length |theta_0| varies about it, unless its shares along
    # eigenvalues were measured.
    even = np.allclose(world.centre_share, world.spectrum.weights)
    blind = length_variance(1.0, world.spectrum, s, d) / seen.classes.free_outputs if even else 0.0
    length2 = np.maximum(1 + np.sqrt(blind) * normal_points(len(B)), 0.0)
    centre = rho * np.sqrt(length2 * B / whole / float(s @ world.centre_share))
    counts = seen.counts.sum(0)
    return Estimated(
        radius=enclose_value(world.radius, radius, zero=found.flat),
        centre=enclose_value(world.centre, centre),
        signal=enclose_value(world.rho, rho),
        aspect=Quantity(
            float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())
        ),
        spectrum=world.spectrum,
        class_world=world.population(float(np.median(d / sizes))),
        squares=one_hot_regression(found, world, float(np.median(d / sizes))),
        classes=seen.classes.names,
        shares=tuple((counts / counts.sum()).tolist()),
        clients=len(sizes),
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def enclose_value(value: float, draws: Array, *, zero: bool = False) -> Quantity:
    """A value with its interval, which always holds it."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Quantity(value, 0.0 if zero else float(min(low, value)), float(max(high, value)))


def move_ridges(
    ridges: LogisticRidges, table: AccuracyTable, seen: ClassEvidence, doubts: tuple[Doubt, ...]
) -> tuple[LogisticRidges, AccuracyTable]:
    """The logistic ridge where samples contradict the model, from the ridge c of least squares.

    Where only the ridge is contradicted it changes by the same factor (section 9.3). Where the link
    is, what counts is that both losses shrink the same directions: ridge = c times the mean
    curvature of the logistic loss at the shared model, which its accuracy tells.
    """
    said = {doubt.check for doubt in doubts}
    if not said & {Check.RIDGE, Check.LINK}:
        return ridges, table
    C = len(seen.classes)
    out = {}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        best = min(
            float(seen.probes.ratios[best_ratios(seen.probes)[name]]), float(seen.probes.ratios[-2])
        )
        right = table["fedavg" if name == "rtfa" else name].trusted
        level = (
            right * (1 - right) if C == 2 else (1 - right**2 - (1 - right) ** 2 / (C - 1)) / (C - 1)
        )
        factor = ridges.shared / model_ridge_ratio(seen)
        out[name] = best * (max(level, 1e-6) if Check.LINK in said else factor)
        if alone and Check.LINK not in said:
            out[name] = ridges.alone
    changed = {
        name: replace(table[name], ridge=ratio / seen.shape.samples) for name, ratio in out.items()
    }
    return replace(ridges, shared=out["rtfa"], alone=out["local_ridge"]), table | changed
