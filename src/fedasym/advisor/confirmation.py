"""Experiments that could refute the advice: leading candidates, fitted or trained, held out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.class_estimates import ClassLook, ClientSizes
from fedasym.advisor.class_predictions import AccuracyTable, LogisticRidges, largest_curvature
from fedasym.advisor.data import ClientData, read_classes, read_clients, spread_places
from fedasym.advisor.predictions import LOG_LOSS, Steps
from fedasym.algorithms import PAPER, Algorithm, find
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, notebook_text, three_digits
from fedasym.core.runtime import few_threads
from fedasym.data.federation import Federation
from fedasym.exact.classes import fit_classes
from fedasym.exact.estimators import fit as fit_linear
from fedasym.results import ACCURACY, LOSS, Metric

MOST_FITTED = 300  # clients in the experiment: as many as seconds allow
HELD_SHARE = 0.2  # of a client's samples, held out where none are
SURE_ERRORS = 2.0  # standard errors over clients
MIXED_MODEL = "mixed model"
MOST_MIXED_SAMPLES = 20_000  # samples up to which statsmodels answers in seconds
ClientSamples = list[tuple[Array, Array]]
MOST_TRAINED = 100  # clients in the measurement: as many as seconds allow
# shares of samples that train, validate and test, where none are held out
TEST_SHARES = (0.7, 0.1, 0.2)
TRAIN_ROUNDS, PERSONAL_EPOCHS = 100, 20
# Validation chooses steps from these, in units of what is stable at the largest curvature that
# there may be.
STEP_FACTORS = {
    "server_step": (0.2, 1.0, 10.0),
    "local_step": (1.0, 10.0),
    "share_power": (0.25, 0.5, 1.0),
}


def training_settings(
    table: AccuracyTable,
    ridges: LogisticRidges,
    steps: Steps | None,
    shape: ClientSizes,
    seen: ClassLook,
) -> dict[str, dict[str, float]]:
    """What to tell `fa.train` for each method that it has."""
    twice = 2.0 if seen.classes.count == 2 else 1.0
    step = 1 / largest_curvature(seen)
    epochs, local_step = (
        (steps.epochs, steps.local_step) if steps is not None else (PERSONAL_EPOCHS, step)
    )
    out = {}
    for name in ("fedavg", "rtfa", "ftfa", "local_ridge"):
        ridge = table[name].ridge
        told = None if ridge is None else twice * ridge
        careful = step if told is None else min(step, 1 / told)
        out[name] = candidate_settings(
            name, told, careful if PAPER[name].takes_own_steps else step, epochs, local_step
        )
    return out


@dataclass(frozen=True)
class Outcome:
    """Held-out scores of every candidate, how far each is behind the recommended one, the verdict.

    values: mean squared errors, accuracies or log-losses, as the metric says. behind: by how much
    each is worse than the recommended one, with its standard error. accuracies: beside log-losses.
    """

    recommended: str
    metric: Metric
    values: dict[str, float]
    behind: dict[str, tuple[float, float]]
    clients: int
    accuracies: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recommended: str,
        metric: Metric,
        scores: dict[str, Array],
        *,
        share: Array | None = None,
        ddof: int = 1,
    ) -> Outcome:
        """From every client's scores (NaN: none), each counting alike unless shares are given."""
        used = np.isfinite(scores[recommended])
        behind = {}
        for name, each in scores.items():
            if name == recommended:
                continue
            apart = (each - scores[recommended])[used] * (1 if metric.lower else -1)
            if share is None:
                behind[name] = (
                    float(apart.mean()),
                    float(apart.std(ddof=ddof) / np.sqrt(apart.size)),
                )
            else:
                mean = float(share @ apart)
                behind[name] = mean, float(np.sqrt((share**2 * (apart - mean) ** 2).sum()))
        values = {
            name: float(each[used].mean() if share is None else share @ each[used])
            for name, each in scores.items()
        }
        return cls(recommended, metric, values, behind, int(used.sum()))

    @property
    def refuted(self) -> bool:
        """Whether some candidate beats the recommended one by more than two standard errors."""
        return any(mean < -SURE_ERRORS * error for mean, error in self.behind.values())

    def __str__(self) -> str:
        write = {LOSS: self._error_line, ACCURACY: self._accuracy_line, LOG_LOSS: self._score_line}[
            self.metric
        ]
        first = {
            LOSS: f"held-out error over {self.clients} clients",
            ACCURACY: f"test accuracy over {self.clients} clients",
            LOG_LOSS: "held-out log-loss and accuracy",
        }[self.metric]
        verdict = "REFUTED: another candidate is better" if self.refuted else "not refuted"
        return "\n".join(
            [
                first,
                *(write(name, value) for name, value in self.values.items()),
                f"The advice is {verdict}.",
            ]
        )

    def _error_line(self, name: str, value: float) -> str:
        apart = (
            ""
            if name == self.recommended
            else "  {:+.4g} (standard error {:.2g})".format(*self.behind[name])
        )
        return f"  {name:<14}{value:>11.5g}{apart}"

    def _accuracy_line(self, name: str, value: float) -> str:
        apart = ""
        if name != self.recommended:
            mean, error = self.behind[name]
            apart = f"  {-100 * mean:+.2f} points (standard error {100 * error:.2f})"
        return f"  {name:<14}{value:>9.2%}{apart}"

    def _score_line(self, name: str, value: float) -> str:
        apart = (
            ""
            if name == self.recommended
            else "  {:+.3g} (standard error {:.2g})".format(*self.behind[name])
        )
        return f"  {name:<14}{three_digits(value):>9}{self.accuracies[name]:>9.1%}{apart}"

    def _repr_html_(self) -> str:
        return notebook_text(self)


@dataclass(frozen=True, eq=False)
class Confirmation(ABC):
    """What to compare, and which result would refute the advice. Call it with the data.

    `advice.confirm(federation)`, or with X, y and clients. expected: by how much each rival is
    predicted to be behind the recommended algorithm. beside: the user's own algorithms. The kinds
    of it differ in what they do with the candidates.
    """

    recommended: str
    expected: dict[str, float]
    beside: tuple[Algorithm, ...] = field(default=(), kw_only=True)

    def algorithm(self, name: str) -> Algorithm:
        """A candidate by its name: one of the user's own, or a registered one."""
        return next((each for each in self.beside if each.name == name), None) or find(name)

    @property
    def candidates(self) -> tuple[str, ...]:
        """What is compared, the recommended algorithm first."""
        return (self.recommended, *self.expected)

    @property
    def snippet(self) -> str:
        """The runs as code, where they are runs."""
        return ""

    @property
    def settings(self) -> dict[str, dict[str, float]]:
        """What `fa.train` is told for each candidate, where they are trained."""
        return {}

    @abstractmethod
    def __call__(
        self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0
    ) -> Outcome:
        """Fit or train the candidates on training samples and compare them on held-out ones."""


@dataclass(frozen=True, eq=False)
class RidgeConfirmation(Confirmation):
    """Exact fits with the advised ridges, ratio/n for a client of n samples, client by client.

    ratios: of each candidate. level: the intercept's own ridge times samples; None: models have
    none.
    """

    ratios: dict[str, float | None]
    level: float | None = None

    def __call__(
        self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0
    ) -> Outcome:
        """Fit the candidates to training samples; compare them by client on held-out ones."""
        source = read_clients(data, y, clients)
        places = spread_places(len(source.parts), MOST_FITTED)
        names = [source.parts[place].name for place in places]
        train, test = zip(
            *(divide_client(source, int(place), seed) for place in places), strict=True
        )
        X, labels = [rows for rows, _ in train], [values for _, values in train]
        scores: dict[str, Array] = {}
        with few_threads(source.dimension):
            for name in self.candidates:
                ridge = self._ridges(name, self.ratios[name], labels, source.dimension)
                model = fit_linear(
                    self.algorithm(name),
                    X,
                    labels,
                    names,
                    ridge=ridge,
                    intercept=self.level is not None,
                )
                scores[name] = client_errors(
                    lambda place, rows, m=model: m.predict(rows, client=names[place]), list(test)
                )
        return Outcome.of(self.recommended, LOSS, scores)

    def _ridges(
        self, name: str, ratio: float | None, labels: Sequence[Array], dimension: int
    ) -> Array | None:
        if ratio is None or not self.algorithm(name).is_penalised:
            return None
        each = np.array([ratio / len(values) for values in labels])
        if self.level is None or self.algorithm(name).shares_nothing:
            return each
        own = np.array([self.level / len(values) for values in labels])
        return np.column_stack([np.repeat(each[:, None], dimension, axis=1), own])

    def __str__(self) -> str:
        from fedasym.core.numbers import three_digits

        others = list(self.expected)
        worse = ", ".join(
            f"{name} to be worse by {three_digits(self.expected[name])}" for name in others
        )
        return (
            f"Fit {', '.join(self.candidates)} exactly (seconds) and compare them on held-out"
            f" samples, client by client: advice.confirm(data). Expected: {worse}. Refuted if any"
            f" of them is better than {self.recommended} by more than two standard errors over"
            " clients."
        )


def divide_client(
    source: ClientData, place: int, seed: int
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """A client's training and held-out samples; by default a fifth, and one stays to train on."""
    X, y = source.rows(place)
    held = source.held_out_rows(place)
    if len(held[1]) or any(part.held.size for part in source.parts):
        return (X, y), held
    order = np.random.default_rng([seed, place]).permutation(len(y))
    out = min(max(round(HELD_SHARE * len(y)), 1), len(y) - 1)
    return (X[order[out:]], y[order[out:]]), (X[order[:out]], y[order[:out]])


@dataclass(frozen=True, eq=False)
class MixedConfirmation(Confirmation):
    """Exact fits at estimated ridges on few features, and a mixed model; personal: by unknown."""

    intercept: bool
    personal: NDArray[np.bool_] | None

    def __call__(
        self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0
    ) -> Outcome:
        """Fit the candidates to training samples; compare them by client on held-out ones."""
        source = read_clients(data, y, clients)
        pairs = [divide_client(source, place, seed) for place in range(len(source.parts))]
        train, test = [each for each, _ in pairs], [each for _, each in pairs]
        d = source.dimension
        may = None if self.personal is None else self.personal[:d]
        X, labels = [rows for rows, _ in train], [values for _, values in train]
        scores: dict[str, Array] = {}
        with few_threads(d):
            for name in self.candidates:
                own = None if self.algorithm(name).shares_nothing else may
                model = fit_linear(
                    self.algorithm(name), X, labels, intercept=self.intercept, personal=own
                )
                scores[name] = client_errors(
                    lambda place, rows, m=model: m.predict(rows, client=place), test
                )
            mixed = predict_random_intercepts(train, test, self.intercept)
            if mixed is not None:
                scores[MIXED_MODEL] = client_errors(lambda place, _: mixed[place], test)
        weight = np.array([len(values) for _, values in test], float)[
            np.isfinite(scores[self.recommended])
        ]
        return Outcome.of(self.recommended, LOSS, scores, share=weight / weight.sum())

    def __str__(self) -> str:
        from fedasym.core.numbers import three_digits

        worse = ", ".join(
            f"{name} worse by {three_digits(excess)}" for name, excess in self.expected.items()
        )
        return (
            f"fit {', '.join(self.candidates)} exactly (seconds), beside a mixed model where"
            " statsmodels is installed, and compare them on held-out samples:"
            f" advice.confirm(data), or --confirm. Expected: {worse}. Refuted if any of them is"
            f" better than {self.recommended} by more than two standard errors."
        )


def client_errors(predict: Any, test: ClientSamples) -> Array:
    """Each client's mean squared error; NaN where it has no held-out samples."""
    return np.array(
        [
            np.mean((values - predict(place, rows)) ** 2) if len(values) else np.nan
            for place, (rows, values) in enumerate(test)
        ]
    )


def predict_random_intercepts(
    train: ClientSamples, test: ClientSamples, intercept: bool
) -> list[Array] | None:
    """A random-intercept model by REML of statsmodels; None where that is missing or does not end.

    Its random intercepts, the usual first model of grouped data, are added to its fixed effects.
    """
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError:
        return None
    X, y = (
        np.concatenate([rows for rows, _ in train]),
        np.concatenate([values for _, values in train]),
    )
    if not intercept or len(y) > MOST_MIXED_SAMPLES:
        return None
    owner = np.repeat(np.arange(len(train)), [len(values) for _, values in train])
    design = np.column_stack([np.ones(len(X)), X])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = MixedLM(y, design, owner).fit(reml=True)
        except (ValueError, np.linalg.LinAlgError):
            return None
    fixed = np.asarray(found.fe_params)
    level = {group: float(np.asarray(effect)[0]) for group, effect in found.random_effects.items()}
    return [
        fixed[0] + rows @ fixed[1:] + level.get(place, 0.0) for place, (rows, _) in enumerate(test)
    ]


@dataclass(frozen=True, eq=False)
class TrainedConfirmation(Confirmation):
    """Training for seconds, with given settings of `fa.train`, on test samples."""

    runs: dict[str, dict[str, float]]

    @property
    def settings(self) -> dict[str, dict[str, float]]:
        """What `fa.train` is told for each candidate."""
        return self.runs

    def __call__(
        self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0
    ) -> Outcome:
        """Train the candidates on some of the clients; compare them by client on test samples."""
        from fedasym.training import train
        from fedasym.training.histories import Histories

        federation = sample_clients(as_federation(data, y, clients, seed), seed)
        tested = federation.counts("test")
        right: dict[str, Array] = {}
        for name, told in self.runs.items():
            plain = {key: value for key, value in told.items() if key not in STEP_FACTORS}
            grid = {
                key: [each * told[key] for each in factors]
                for key, factors in STEP_FACTORS.items()
                if key in told
            }
            words: dict[str, Any] = {"seed": seed, "grid": grid, **plain}
            runs = train([name], federation, evaluate_every=0, **words)
            assert isinstance(runs, Histories)
            hits = runs.choose()[0].correct[-1, :, 1]
            right[name] = np.divide(
                hits, tested, out=np.full(len(tested), np.nan), where=tested > 0
            )
        return Outcome.of(self.recommended, ACCURACY, right)

    @property
    def snippet(self) -> str:
        """The runs as code."""
        lines = []
        for name, told in self.runs.items():
            listed = ", ".join(f"{key}={value:.4g}" for key, value in told.items())
            lines.append(f'fa.train("{name}", federation, evaluate_every=0, {listed})')
        return "\n".join(lines)

    def __str__(self) -> str:
        worse = ", ".join(
            f"{name} to be {100 * apart:.1f} points behind" for name, apart in self.expected.items()
        )
        return (
            f"Train {', '.join(self.runs)} on up to {MOST_TRAINED} clients (seconds) and compare"
            " them on test samples, client by client: advice.confirm(data), or the lines below."
            f" Expected: {worse}. Refuted if any of them is better than {self.recommended} by more"
            " than two standard errors over clients."
        )


def as_federation(data: Any, y: Any, clients: Iterable[Hashable] | None, seed: int) -> Federation:
    """The data as a federation with test samples."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput(
                "a Federation has its own labels and clients: leave y and clients out"
            )
        if (data.counts("test") > 0).sum() >= 2 and (data.counts("validation") > 0).any():
            return data
        return data.resplit(seed, keep_test=False, fractions=TEST_SHARES)
    taken = read_classes(data, y, clients)
    rows = [taken.data.rows(place) for place in range(len(taken.data.parts))]
    names = [place for place, (_, codes) in enumerate(rows) for _ in codes]
    X, codes = (np.concatenate(part) for part in zip(*rows, strict=True))
    return Federation.from_arrays(
        X,
        codes.astype(int),
        names,
        split=TEST_SHARES,
        seed=seed,
        classes=taken.count,
        intercept=False,
    )


def sample_clients(federation: Federation, seed: int) -> Federation:
    """Some of the clients, evenly spread, where there are many."""
    if len(federation) <= MOST_TRAINED:
        return federation
    places = spread_places(len(federation), MOST_TRAINED)
    rows = np.flatnonzero(np.isin(federation.owner, places))
    assert federation.classes is not None
    return Federation.from_arrays(
        federation.features[rows],
        federation.labels[rows],
        [federation.clients[place] for place in federation.owner[rows]],
        split=federation.split[rows],
        mask=None if federation.mask is None else federation.mask[rows],
        classes=len(federation.classes),
        seed=seed,
        intercept=federation.intercept,
        personal=federation.personal,
    )


def candidate_settings(
    name: str, ridge: float | None, step: float, epochs: int, local_step: float
) -> dict[str, float]:  # fmt: skip
    """What `fa.train` is told for a candidate; `ridge` is that of a middling client."""
    told: dict[str, float] = {"rounds": TRAIN_ROUNDS}
    algorithm = PAPER[name]
    keeps = algorithm.personalise.step_count == 0
    if not algorithm.shares_nothing:
        told["server_step"] = step
    if not keeps:
        told["local_step"] = local_step if algorithm.fine_tunes else step
    if not keeps and not algorithm.shares_nothing:
        told["personal_epochs"] = epochs if algorithm.fine_tunes else PERSONAL_EPOCHS
    if ridge is not None:
        told["ridge"] = ridge
    return told


def stack_codes(
    data: ClientData, held: bool = False
) -> tuple[Array, NDArray[np.int64], NDArray[np.intp]]:
    """Clients' rows one below the other: features, codes and places."""
    parts = [
        data.held_out_rows(place) if held else data.rows(place) for place in range(len(data.parts))
    ]
    owner = np.repeat(np.arange(len(parts)), [len(codes) for _, codes in parts])
    X, codes = (np.concatenate(each) for each in zip(*parts, strict=True))
    return X, codes.astype(np.int64), owner


@dataclass(frozen=True, eq=False)
class FoldConfirmation(Confirmation):
    """Logistic fits tested on held-out samples, or on a fifth of them; personal: by feature."""

    personal: tuple[bool, ...] | None = None
    intercept: bool = True

    def __call__(
        self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0
    ) -> Outcome:
        """Fit the candidates to the training samples and score them on the others."""
        taken = read_classes(data, y, clients)
        rows, codes, owner = stack_codes(taken.data)
        test = stack_codes(taken.data, held=True)
        if not len(test[1]):
            out = np.random.default_rng(seed).random(len(codes)) < HELD_SHARE
            test, (rows, codes, owner) = (
                (rows[out], codes[out], owner[out]),
                (rows[~out], codes[~out], owner[~out]),
            )
        may = None if self.personal is None else np.array(self.personal)
        losses, right = {}, {}
        for name in self.candidates:
            fit = fit_classes(
                self.algorithm(name),
                rows,
                codes,
                owner,
                classes=taken.names,
                personal=may,
                intercept=self.intercept,
            )
            chance = fit.predict_proba(test[0], client=test[2])
            losses[name] = -np.log(np.maximum(chance[np.arange(len(test[1])), test[1]], 1e-300))
            right[name] = float(np.mean(chance.argmax(1) == test[1]))
        found = Outcome.of(self.recommended, LOG_LOSS, losses, ddof=0)
        return replace(found, clients=int(np.unique(test[2]).size), accuracies=right)

    def __str__(self) -> str:
        return (
            f"fit {', '.join(self.candidates)} exactly (seconds) and compare them on samples that"
            " no fold saw: advice.confirm(data), or --confirm. Refuted if any of them has a lower"
            f" log-loss than {self.recommended} by more than two standard errors."
        )
