"""Advice on classes from few features: personalised logistic regressions, scored on held-out folds of the training samples.

With a handful of columns and an intercept the models themselves can be fitted, folds and all, in seconds: what they score is
measured, not predicted, and the recommendation follows the log-loss.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.classes.intake import classes_in
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.evidence import Doubt
from fedasym.advisor.intake import Data
from fedasym.advisor.wording import filled, short
from fedasym.algorithms import PAPER
from fedasym.core.arrays import Array
from fedasym.core.hooks import write_file
from fedasym.core.text import notebook_text as preformatted
from fedasym.core.text import plural
from fedasym.exact.classes import CANDIDATES, Table, check_table, choose_candidate, fit_classes, score_folds, tune
from fedasym.results.result import Result

EVEN = 1.96
SHARE = 0.2  # of a client's samples, held out to confirm where none are
SURE = 2.0  # standard errors
WORDS = {"fedavg": "with one model for all", "local_ridge": "with each client alone"}


@dataclass(frozen=True)
class Score:
    """One algorithm on held-out folds: log-loss and accuracy with their 95% intervals over clients."""

    algorithm: str
    log_loss: Quantity
    accuracy: Quantity


@dataclass(frozen=True)
class ScoredAdvice(Result):
    """What `fa.advise` returns for classes and few features; prints itself as a page.

    scores: by algorithm, measured on held-out folds. shares: of the classes. doubts: what may be wrong. confirm: the
    comparison on samples that no fold saw, to be called with the data. columns: what became of a table's columns, in words.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> X, owner = rng.standard_normal((400, 2)), np.repeat(np.arange(10), 40)
    >>> labels = np.where(X[:, 0] + 2 * (owner % 2) - 1 + rng.logistic(size=400) > 0, "yes", "no")
    >>> advice = fa.advise(fa.Federation.from_arrays(X, labels, owner))
    >>> advice.recommended in ("rtfa", "pfedme"), len(advice.scores)
    (True, 4)
    """

    recommended: str
    scores: dict[str, Score]
    classes: tuple[Any, ...]
    shares: tuple[float, ...]
    clients: int
    samples: int
    names: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    confirm: FoldConfirmation
    columns: str = ""

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm: feed it to any data frame."""
        return [
            {
                "algorithm": name,
                "accuracy": row.accuracy.value,
                "low": row.accuracy.low,
                "high": row.accuracy.high,
                "log_loss": row.log_loss.value,
                "log_loss_low": row.log_loss.low,
                "log_loss_high": row.log_loss.high,
                "recommended": name == self.recommended,
            }
            for name, row in self.scores.items()
        ]

    def to_json(self) -> str:
        """Full precision, stable keys."""
        answer = {
            "task": "classification",
            "recommended": self.recommended,
            "scores": self.table(),
            "classes": list(map(str, self.classes)),
            "shares": list(self.shares),
            "clients": self.clients,
            "samples": self.samples,
            "features": list(self.names),
            "doubts": [asdict(doubt) for doubt in self.doubts],
            "confirm": {"candidates": list(self.confirm.candidates), "what": str(self.confirm)},
        }
        return json.dumps(answer, indent=2)

    @property
    def best(self) -> str:
        """The recommended algorithm."""
        return self.recommended

    def plot(self, path: str | Path) -> Path:
        """Draw what is expected, with intervals, to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw advice", self, path)

    def write(self, path: str | Path) -> Path:
        """Write a page of HTML that needs nothing else; returns where it is."""
        return write_file("write advice", self, path)

    def __str__(self) -> str:
        lines = [
            filled(describe_choice(self), ""),
            "",
            f"Held-out folds of {plural(self.samples, 'sample')} of {plural(self.clients, 'client')}, "
            f"{plural(len(self.names), 'feature')}; the largest class is {max(self.shares):.1%} of the labels",
            f"  {'algorithm':<13}{'log-loss':>10}{'95% interval':>24}{'accuracy':>11}{'95% interval':>18}",
        ]
        for row in sorted(self.scores.values(), key=lambda row: row.log_loss.value):
            mark = "*" if row.algorithm == self.recommended else " "
            loss = f"[{short(row.log_loss.low)}, {short(row.log_loss.high)}]"
            right = f"[{100 * row.accuracy.low:.1f}, {100 * row.accuracy.high:.1f}]"
            lines.append(
                f"{mark} {row.algorithm:<13}{short(row.log_loss.value):>10}{loss:>24}{row.accuracy.value:>11.1%}{right:>18}"
            )
        if self.doubts:
            lines += ["", "Doubts", *(filled(f"- {doubt}.".replace("..", "."), "  ") for doubt in self.doubts)]
        return "\n".join([*lines, "", filled(f"To prove this wrong: {self.confirm}", "")])

    def _repr_html_(self) -> str:
        return preformatted(self)


def describe_choice(advice: ScoredAdvice) -> str:
    """The recommendation beside one model for all and each client alone."""
    best = advice.scores[advice.recommended]
    told = [
        f"{words} {row.accuracy.value:.1%} ({short(row.log_loss.value)})"
        for name, words in WORDS.items()
        if name != advice.recommended and (row := advice.scores[name])
    ]
    measured = f"accuracy {best.accuracy.value:.1%}, log-loss {short(best.log_loss.value)} on held-out folds"
    return f"Use {advice.recommended}: " + ", ".join([measured, *told]) + "."


def advise_scored(
    data: Any,
    y: Any,
    clients: Iterable[Hashable] | None,
    names: tuple[str, ...] | None,
    personal: NDArray[np.bool_] | None,
    intercept: bool,
    notes: tuple[Doubt, ...],
) -> ScoredAdvice:
    """Fit every candidate to folds and advise."""
    taken = classes_in(data, y, clients)
    rows, codes, owner = stack(taken.data)
    live = np.flatnonzero(taken.data.live)
    may = None if personal is None else np.asarray(personal, bool)[live]
    table = check_table(rows, codes, owner, taken.names, may, intercept)
    tuned = {name: tune(PAPER[name], table) for name in CANDIDATES}
    place = choose_candidate([each.losses for each in tuned.values()])
    recommended = CANDIDATES[place]
    scores = {}
    for name, each in tuned.items():
        losses, hits = score_folds(PAPER[name], table, each.penalties)
        scores[name] = Score(name, average(losses, owner), average(hits.astype(float), owner, most=1.0))
    counts = np.bincount(codes, minlength=len(taken.names))
    named = tuple(names[k] for k in live) if names is not None else tuple(f"feature {k}" for k in live)
    rivals = [name for name in WORDS if name != recommended]
    return ScoredAdvice(
        recommended,
        scores,
        taken.names,
        tuple((counts / counts.sum()).tolist()),
        len(taken.data.parts),
        len(codes),
        named,
        (*doubts_of(table, counts), *notes),
        FoldConfirmation((recommended, *rivals), None if may is None else tuple(may.tolist()), intercept),
    )


def stack(data: Data, held: bool = False) -> tuple[Array, NDArray[np.int64], NDArray[np.intp]]:
    """Clients' rows one below the other: features, codes and places."""
    parts = [data.held(place) if held else data.rows(place) for place in range(len(data.parts))]
    owner = np.repeat(np.arange(len(parts)), [len(codes) for _, codes in parts])
    X, codes = (np.concatenate(each) for each in zip(*parts, strict=True))
    return X, codes.astype(np.int64), owner


def average(values: Array, owner: NDArray[np.intp], most: float = np.inf) -> Quantity:
    """The mean over samples with an interval from how clients' means vary."""
    counts = np.bincount(owner)
    share = counts / counts.sum()
    means = np.bincount(owner, values) / np.maximum(counts, 1)
    mean = float(share @ means)
    error = float(np.sqrt((share**2 * (means - mean) ** 2).sum()))
    return Quantity(mean, max(mean - EVEN * error, 0.0), min(mean + EVEN * error, most))


def doubts_of(table: Table, counts: NDArray[np.intp]) -> list[Doubt]:
    """What could make the scores mislead."""
    said = []
    clients = int(table.places.max()) + 1
    if clients < 10:
        said.append(Doubt("few clients", f"there are {clients} clients: how they differ is hardly known"))
    if counts.min() < 10:
        rare = table.classes[int(np.argmin(counts))]
        said.append(Doubt("rare classes", f"class {rare!r} has {int(counts.min())} training samples: merge rare classes"))
    return said


@dataclass(frozen=True)
class FoldConfirmation:
    """The comparison on validation and test samples, or on a fifth of each client's. Call it with the data."""

    candidates: tuple[str, ...]
    personal: tuple[bool, ...] | None = None
    intercept: bool = True

    def __call__(self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0) -> ScoredOutcome:
        """Fit the candidates to the training samples and score them on the others."""
        taken = classes_in(data, y, clients)
        rows, codes, owner = stack(taken.data)
        test = stack(taken.data, held=True)
        if not len(test[1]):
            out = np.random.default_rng(seed).random(len(codes)) < SHARE
            test, (rows, codes, owner) = (rows[out], codes[out], owner[out]), (rows[~out], codes[~out], owner[~out])
        names = taken.names
        may = None if self.personal is None else np.array(self.personal)
        losses, right = {}, {}
        for name in self.candidates:
            fit = fit_classes(name, rows, codes, owner, classes=names, personal=may, intercept=self.intercept)
            chance = fit.predict_proba(test[0], client=test[2])
            losses[name] = -np.log(np.maximum(chance[np.arange(len(test[1])), test[1]], 1e-300))
            right[name] = float(np.mean(chance.argmax(1) == test[1]))
        behind = {}
        for name in self.candidates[1:]:
            apart = losses[name] - losses[self.candidates[0]]
            behind[name] = float(apart.mean()), float(apart.std() / np.sqrt(len(apart)))
        return ScoredOutcome(self.candidates[0], {k: float(v.mean()) for k, v in losses.items()}, right, behind)

    def __str__(self) -> str:
        return (
            f"fit {', '.join(self.candidates)} exactly (seconds) and compare them on samples that no fold saw: "
            f"advice.confirm(data), or --confirm. Refuted if any of them has a lower log-loss than {self.candidates[0]} by "
            "more than two standard errors."
        )


@dataclass(frozen=True)
class ScoredOutcome:
    """Held-out log-losses and accuracies, and how far each candidate is behind the recommended one, with its error."""

    recommended: str
    losses: dict[str, float]
    accuracies: dict[str, float]
    behind: dict[str, tuple[float, float]]

    @property
    def refuted(self) -> bool:
        """Whether some candidate beats the recommended one by more than two standard errors."""
        return any(mean < -SURE * error for mean, error in self.behind.values())

    def __str__(self) -> str:
        lines = ["held-out log-loss and accuracy"]
        for name, loss in self.losses.items():
            apart = "" if name == self.recommended else "  {:+.3g} (standard error {:.2g})".format(*self.behind[name])
            lines.append(f"  {name:<14}{short(loss):>9}{self.accuracies[name]:>9.1%}{apart}")
        verdict = "REFUTED: another candidate is better" if self.refuted else "not refuted"
        return "\n".join([*lines, f"The advice is {verdict}."])

    def _repr_html_(self) -> str:
        return preformatted(self)
