"""The quick measurement that could prove the advice wrong: the leading candidates, trained for seconds, on test samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedasym.advisor.classes.intake import classes_in
from fedasym.advisor.covariance import spread
from fedasym.core.errors import InvalidInput
from fedasym.core.text import notebook_text as preformatted
from fedasym.data.federation.federation import Federation

AT_MOST = 100  # clients in the measurement: as many as seconds allow
TESTED = (0.7, 0.1, 0.2)  # shares of samples that train, validate and test, where none are held out
SURE = 2.0  # standard errors over clients
ROUNDS, EPOCHS = 100, 20
# Validation chooses steps from these, in units of what is stable at the largest curvature that there may be.
FACTORS = {"server_step": (0.2, 1.0, 10.0), "local_step": (1.0, 10.0)}


@dataclass(frozen=True)
class Measured:
    """Test accuracies, how much each candidate is behind the recommended one with its standard error, the verdict."""

    recommended: str
    accuracies: dict[str, float]
    behind: dict[str, tuple[float, float]]
    clients: int

    @property
    def refuted(self) -> bool:
        """Whether some candidate beats the recommended one by more than two standard errors."""
        return any(mean < -SURE * error for mean, error in self.behind.values())

    def __str__(self) -> str:
        lines = [f"test accuracy over {self.clients} clients"]
        for name, right in self.accuracies.items():
            apart = ""
            if name != self.recommended:
                mean, error = self.behind[name]
                apart = f"  {-100 * mean:+.2f} points (standard error {100 * error:.2f})"
            lines.append(f"  {name:<14}{right:>9.2%}{apart}")
        verdict = "REFUTED: another candidate is better" if self.refuted else "not refuted"
        return "\n".join([*lines, f"The advice is {verdict}."])

    def _repr_html_(self) -> str:
        return preformatted(self)


@dataclass(frozen=True)
class Measurement:
    """What to train, with which settings of `fa.train`, and which result would refute the advice.

    Call it with the data: `advice.confirm(federation)`, or with X, y and clients.
    settings: of each candidate; expected: by how much each is predicted to be behind the recommended one.
    """

    recommended: str
    settings: dict[str, dict[str, float]]
    expected: dict[str, float]

    def __call__(self, data: Any, y: Any = None, clients: Iterable[Hashable] | None = None, *, seed: int = 0) -> Measured:
        """Train the candidates on some of the clients and compare them, client by client, on test samples."""
        from fedasym.training.histories import Histories
        from fedasym.training.training import train

        federation = sampled(federated(data, y, clients, seed), seed)
        tested = federation.counts("test")
        accuracies, right = {}, {}
        for name, told in self.settings.items():
            plain = {key: value for key, value in told.items() if key not in FACTORS}
            grid = {key: [each * told[key] for each in factors] for key, factors in FACTORS.items() if key in told}
            runs = train([name], federation, evaluate_every=0, seed=seed, grid=grid, **plain)  # type: ignore[arg-type]
            assert isinstance(runs, Histories)
            run = runs.choose()[0]
            hits = run.correct[-1, :, 1]
            right[name] = np.divide(hits, tested, out=np.full(len(tested), np.nan), where=tested > 0)
            accuracies[name] = float(np.nanmean(right[name]))
        behind = {}
        for name in self.settings:
            if name != self.recommended:
                apart = (right[self.recommended] - right[name])[tested > 0]
                behind[name] = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(apart.size))
        return Measured(self.recommended, accuracies, behind, int((tested > 0).sum()))

    @property
    def snippet(self) -> str:
        """The runs as code."""
        lines = []
        for name, told in self.settings.items():
            listed = ", ".join(f"{key}={value:.4g}" for key, value in told.items())
            lines.append(f'fa.train("{name}", federation, evaluate_every=0, {listed})')
        return "\n".join(lines)

    def __str__(self) -> str:
        worse = ", ".join(f"{name} to be {100 * apart:.1f} points behind" for name, apart in self.expected.items())
        return (
            f"Train {', '.join(self.settings)} on up to {AT_MOST} clients (seconds) and compare them on test samples, client "
            f"by client: advice.confirm(data), or the lines below. Expected: {worse}. Refuted if any of them is better than "
            f"{self.recommended} by more than two standard errors over clients."
        )


def federated(data: Any, y: Any, clients: Iterable[Hashable] | None, seed: int) -> Federation:
    """The data as a federation with test samples."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput("a Federation has its own labels and clients: leave y and clients out")
        if (data.counts("test") > 0).sum() >= 2 and (data.counts("validation") > 0).any():
            return data
        return data.resplit(seed, keep_test=False, fractions=TESTED)
    taken = classes_in(data, y, clients)
    rows = [taken.data.rows(place) for place in range(len(taken.data.parts))]
    names = [place for place, (_, codes) in enumerate(rows) for _ in codes]
    X, codes = (np.concatenate(part) for part in zip(*rows, strict=True))
    return Federation.from_arrays(X, codes.astype(int), names, split=TESTED, seed=seed, classes=taken.count, intercept=False)


def sampled(federation: Federation, seed: int) -> Federation:
    """Some of the clients, evenly spread, where there are many."""
    if len(federation) <= AT_MOST:
        return federation
    places = spread(len(federation), AT_MOST)
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


def settings_of(
    name: str, ridge: float | None, step: float, epochs: int, local_step: float
) -> dict[str, float]:  # fmt: skip
    """What `fa.train` is told for a candidate; `ridge` is that of a middling client."""
    told: dict[str, float] = {"rounds": ROUNDS}
    if name != "local_ridge":
        told["server_step"] = step
    if name != "fedavg":
        told["local_step"] = local_step if name == "ftfa" else step
    if name in ("rtfa", "ftfa"):
        told["personal_epochs"] = epochs if name == "ftfa" else EPOCHS
    if ridge is not None:
        told["ridge"] = ridge
    return told
