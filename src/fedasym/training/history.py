"""What one training run returns: how models tested by round; prints, tabulates, draws itself.

Every statistic is said in full, since "accuracy" alone is not: pooled over samples, over clients
alike, or of the worst.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import (
    Array,
    Counts,
    Sums,
    TextTable,
    lowest_tenth,
    mean_client_ratio,
    pooled_ratio,
    ratio,
    share_worse,
)
from fedasym.data.federation import Federation
from fedasym.results import Result
from fedasym.training.convergence import NEAR, Exact
from fedasym.training.plans import PrivacySpent
from fedasym.training.settings import Protocol, Settings, named_settings
from fedasym.training.storage import (
    Roster,
    read_history,
    tabulate_history,
    write_client_columns,
    write_history,
)
from fedasym.training.wording import (
    COLUMNS,
    client_notes,
    fold_line,
    remedy,
    round_table,
    run_notes,
    setting_text,
    share_notes,
)

if TYPE_CHECKING:
    from fedasym.training.decomposition import Decomposition

VALIDATION, TEST = 0, 1  # the last axis of what was counted


@dataclass(frozen=True, eq=False, repr=False)
class History(Result):
    """One configuration from one seed: an entry per evaluated round, NaN where a model diverged.

    Made by `fedasym.train`. Statistics are of the test samples unless named otherwise, and of the
    clients that have some.
    correct, losses: (rounds, clients, 2) correct predictions and summed losses of the personal
        models on validation and test.
    shared_correct, shared_losses: the same of the shared model.
    totals: (clients, 2) predictions counted: samples, or positions of sequences.
    shared: the last shared head, (features, outputs), with a last row for an intercept.
    diverged: the first round with a model that is not finite.
    training_losses, shared_training_losses: (rounds, clients) summed, in regression.
    exact: what the exact solutions reach on training samples, where there are any.
    heads: (clients, features, outputs) personal heads, where the history was loaded from a file.
    split: the number of the reshuffle that it trained on, where `train` was given `splits`.
    privacy: the epsilon that its rounds have spent, with which noise and clip; None: not private.

    >>> from fedasym.algorithms import PAPER
    >>> from fedasym.training.settings import TEXT
    >>> federation = Federation.from_arrays(
    ...     np.eye(6, 2), [0, 1, 0, 1, 0, 1], clients=list("aaabbb"), split=[0, 1, 2] * 2
    ... )
    >>> run = (PAPER["ftfa"], Settings(rounds=50), TEXT, 0, federation, np.array([0, 50]))
    >>> right = np.array([[[1, 0], [0, 0]], [[1, 1], [1, 0]]], float)
    >>> counted = (right, 1 - right, 0 * right, 1 - right, np.ones((2, 2), int))
    >>> History(*run, *counted, shared=None).accuracy.tolist()
    [0.0, 0.5]
    """

    algorithm: Algorithm
    settings: Settings
    protocol: Protocol
    seed: int
    federation: Federation | Roster
    rounds: Counts
    correct: Sums
    losses: Sums
    shared_correct: Sums
    shared_losses: Sums
    totals: Counts
    shared: NDArray[np.floating[Any]] | None
    diverged: int | None = None
    interrupted: bool = False
    split: int | None = None
    training_losses: Sums | None = None
    shared_training_losses: Sums | None = None
    exact: Exact | None = None
    heads: NDArray[np.floating[Any]] | None = None
    privacy: PrivacySpent | None = None

    @property
    def accuracy(self) -> Array:
        """Correct predictions of the personal models over all test samples of all clients."""
        return self._split_mean(self._hits(self.correct), TEST)

    @property
    def validation_accuracy(self) -> Array:
        """The same over all validation samples: what configurations are chosen by."""
        return self._split_mean(self._hits(self.correct), VALIDATION)

    @property
    def shared_accuracy(self) -> Array:
        """The shared model's accuracy over all test samples; NaN where nothing is shared."""
        return self._if_shared(self._split_mean(self._hits(self.shared_correct), TEST))

    @property
    def mean_accuracy(self) -> Array:
        """The mean over clients of their personal models' accuracies: each client counts alike."""
        return mean_client_ratio(self._hits(self.correct)[..., TEST], self.totals[:, TEST])

    @property
    def worst_decile(self) -> Array:
        """The mean accuracy of the worst tenth of the clients (rounded up) in that round."""
        return lowest_tenth(self._hits(self.correct)[..., TEST], self.totals[:, TEST])

    @property
    def hurt(self) -> Array:
        """The share of clients whose personal model is strictly worse than the shared one."""
        own, theirs = self.correct, self.shared_correct
        if regression := self.task == "regression":
            own, theirs = self.losses, self.shared_losses
        tested = (own[..., TEST], theirs[..., TEST], self.totals[:, TEST])
        return self._if_shared(share_worse(*tested, losses=regression))

    @property
    def loss(self) -> Array:
        """Personal models' mean test loss: negative log-likelihood, or half the squared error."""
        return self._split_mean(self.losses, TEST)

    @property
    def validation_loss(self) -> Array:
        """The same over all validation samples."""
        return self._split_mean(self.losses, VALIDATION)

    @property
    def shared_loss(self) -> Array:
        """The shared model's mean loss over all test samples; NaN where nothing is shared."""
        return self._if_shared(self._split_mean(self.shared_losses, TEST))

    @property
    def mean_loss(self) -> Array:
        """The mean over clients of their personal models' mean losses: each client counts alike."""
        return mean_client_ratio(self.losses[..., TEST], self.totals[:, TEST])

    @property
    def training_loss(self) -> Array:
        """Personal models' mean training loss, in regression: what training makes small."""
        return self._training_mean(self.training_losses)

    @property
    def exact_loss(self) -> Array:
        """The same of the exact solution, known after the last round; NaN where there is none."""
        return self._at_last_round(self.exact.loss if self.exact else np.nan)

    @property
    def shared_training_loss(self) -> Array:
        """The shared model's mean training loss, in regression; NaN where nothing is shared."""
        return self._if_shared(self._training_mean(self.shared_training_losses))

    @property
    def exact_shared_loss(self) -> Array:
        """The least loss of a shared model, known at the end; NaN if that is not minimised."""
        return self._at_last_round(self.exact.shared_loss if self.exact else np.nan)

    @property
    def excess(self) -> Array:
        """How far training loss is above the exact one, in units of half the labels' variance."""
        return self._relative_excess(self.training_loss, self.exact_loss)

    @property
    def shared_excess(self) -> Array:
        """The same of the shared model, against least squares on all training samples together."""
        return self._relative_excess(self.shared_training_loss, self.exact_shared_loss)

    @property
    def converged(self) -> bool | None:
        """Whether models are as good as exact on training samples; None where that is not known."""
        last = np.array([self.excess[-1], self.shared_excess[-1]])
        known = last[~np.isnan(last)].tolist()
        return max(known) <= NEAR if known and self.diverged is None else None

    @property
    def task(self) -> str:
        """Classification or regression."""
        return self.federation.task

    @property
    def final(self) -> dict[str, Any]:
        """The statistics after the last evaluated round, by name."""
        return {name: self.table()[-1][name] for name in ("round", *COLUMNS[self.task])}

    @property
    def best(self) -> int:
        """The evaluated round where personal models validate best; the last without validation."""
        regression = self.task == "regression"
        values = np.asarray(
            -self.validation_loss if regression else self.validation_accuracy, float
        )
        at = int(np.nanargmax(values)) if np.isfinite(values).any() else -1
        return int(self.rounds[at])

    def table(self) -> list[dict[str, Any]]:
        """One record per evaluated round: feed it to any data frame."""
        columns = {name: getattr(self, name) for name in COLUMNS[self.task]}
        run = {"algorithm": self.algorithm.name, "seed": self.seed}
        return [
            run | {"round": int(when)} | {name: float(each[at]) for name, each in columns.items()}
            for at, when in enumerate(self.rounds)
        ]

    def clients(self, round: int | None = None) -> list[dict[str, Any]]:
        """One record per client after an evaluated round, the last by default.

        samples: training samples. tested: test predictions; without any, numbers are NaN. gain: the
        personal model's accuracy above the shared one's; in regression the loss below.
        `client_columns` has the same as arrays, for many clients.
        """
        held = {name: values.tolist() for name, values in self.client_columns(round).items()}
        return [
            {"client": client} | {name: values[i] for name, values in held.items()}
            for i, client in enumerate(self.federation.clients)
        ]

    def client_columns(self, round: int | None = None) -> dict[str, NDArray[Any]]:
        """What `clients` says, an array with an entry per client for each of its numbers."""
        evaluated = [int(each) for each in self.rounds]
        if round is not None and round not in evaluated:
            known = ", ".join(map(str, evaluated))
            raise InvalidInput(f"round is {round!r}: the clients were tested after rounds {known}")
        at = -1 if round is None else evaluated.index(round)
        tested = self.totals[:, TEST]

        def means(*both: Sums) -> list[Array]:
            return [ratio(sums[at, :, TEST], tested) for sums in both]

        own, theirs = means(self.losses, self.shared_losses)
        columns = {"loss": own, "shared_loss": self._if_shared(theirs)}
        if self.task == "classification":
            theirs, own = means(self.correct, self.shared_correct)  # a gain is more accuracy
            columns = {"accuracy": theirs, "shared_accuracy": self._if_shared(own)} | columns
        with np.errstate(invalid="ignore"):  # two infinite losses
            columns["gain"] = self._if_shared(theirs - own)
        return {"samples": self.federation.counts("train"), "tested": tested, **columns}

    def write_clients(self, path: str | Path, round: int | None = None) -> Path:
        """Write what `clients` says to a Parquet file, a row per client; returns where it is.

        >>> import tempfile, polars, fedasym as fa
        >>> rows, labels = [[0.0], [1.0]] * 4, [1.0, 3.0] * 4
        >>> clients = fa.Federation.from_arrays(rows, labels, clients=list("aaaabbbb"))
        >>> run = fa.train("ftfa", clients, rounds=20, evaluate_every=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     polars.read_parquet(run.write_clients(folder + "/clients.parquet")).columns[:3]
        ['client', 'samples', 'tested']
        """
        return write_client_columns(path, self.federation.clients, self.client_columns(round))

    def decompose(self) -> Decomposition:
        """The personal models' gain at the end, in label shift, feature shift and the rest.

        >>> import fedasym as fa
        >>> clients = fa.datasets.synthetic(alpha=1, beta=1, seed=1)
        >>> run = fa.train("ftfa", clients, rounds=20, evaluate_every=0)
        >>> [row["algorithm"] for row in run.decompose().table()]
        ['ftfa']
        """
        from fedasym.training.histories import Histories

        return Histories((self,)).decompose()

    def personal(self, client: Any) -> NDArray[np.floating[Any]]:
        """A client's personal head (features, outputs) after the last evaluated round."""
        from fedasym.training.twin import first_head, personal_head

        place = self.federation.place(client)  # refuses a client that is not there
        if isinstance(self.federation, Roster):
            assert self.heads is not None
            return np.asarray(self.heads[place])
        of = (self.algorithm, self.federation, self.settings, self.protocol, self.seed)
        start = self.shared
        if start is None:
            start = first_head(self.federation, self.protocol, self.seed, np.float32)
        return personal_head(*of, int(self.rounds[-1]), start, client, dtype=np.float32)

    def predict(self, features: ArrayLike, client: Any = None) -> NDArray[Any]:
        """Class names or values from a client's personal model, or the shared one for client None.

        features: (samples, d) or (samples, positions, d), as in the federation.
        """
        if client is None and (self.shared is None or self.algorithm.shares_nothing):
            told = f"client is None, but {self.algorithm.name} has no shared model"
            raise InvalidInput(f"{told}: name one of the clients")
        x = np.asarray(features)
        d = self.federation.dimension
        if x.ndim == 0 or x.shape[-1] != d:
            told = f"features have shape {x.shape}"
            raise InvalidInput(f"{told}: the last axis holds the federation's {d} features")
        if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
            raise InvalidInput("features must be finite numbers: fill or drop the missing ones")
        head = self.shared if client is None else self.personal(client)
        if head is None or not np.isfinite(head).all():
            raise InvalidInput(f"the model diverged and predicts nothing. {remedy(self)}")
        outputs = x @ head[:d] + head[d] if len(head) > d else x @ head
        if self.federation.classes is not None:
            return np.asarray(np.asarray(self.federation.classes)[outputs.argmax(-1)])
        return np.asarray(outputs[..., 0] if outputs.shape[-1] == 1 else outputs)

    def save(self, path: str | Path) -> Path:
        """Save heads and counts, no samples, to a .safetensors file, whole or not at all.

        >>> import tempfile, fedasym as fa
        >>> rows, labels = [[0.0], [1.0]] * 4, [1.0, 3.0] * 4
        >>> clients = fa.Federation.from_arrays(rows, labels, clients=list("aaaabbbb"))
        >>> run = fa.train("ftfa", clients, rounds=20, evaluate_every=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = History.load(run.save(folder + "/run.safetensors"))
        >>> again.predict([[0.5]], client="a").round(1).tolist(), again.predict([[0.5]]).shape
        ([2.0], (1,))
        """
        return write_history(self, path)

    @classmethod
    def load(cls, path: str | Path) -> History:
        """The history that `save` wrote: predicts for its clients, and for others with None."""
        return cls(**read_history(path))

    def plot(self, path: str | Path | None = None) -> Path:
        """Draw accuracy (loss) over rounds to a PNG, SVG or PDF file, by default training.png."""
        from fedasym.training.histories import Histories

        return Histories((self,)).plot(path)

    def to_json(self) -> str:
        """Configuration, statistics by round and counts; totals alone for clients on disk."""
        return json.dumps(tabulate_history(self), indent=2)

    @property
    def title(self) -> str:
        """The algorithm, the settings that it uses, the protocol and the seed, in one line."""
        used = named_settings(self.settings, self.algorithm)
        told = [f"{name} {setting_text(each)}" for name, each in used.items() if each is not None]
        ends = (f"protocol {self.protocol.name}", f"seed {self.seed}")
        return " · ".join([self.algorithm.name, *told, *ends])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: divergence and its cure, interruption, clients not counted."""
        return (*run_notes(self), *client_notes(self), *share_notes(self))

    def __str__(self) -> str:
        table, meanings = round_table(self)
        lines = [*table.lines(), "", *meanings, *self.notes]
        return "\n".join([*fold_line(self.title), "", *lines])

    def printed_tables(self) -> list[TextTable]:
        """The evaluated rounds, as they are printed."""
        return [round_table(self)[0]]

    __repr__ = __str__

    def _hits(self, correct: Sums) -> Sums:
        if self.task == "regression":
            raise InvalidInput("a regression has no accuracy: use .loss, .shared_loss and others")
        return correct

    def _if_shared(self, values: Array) -> Array:
        return np.full(values.shape, np.nan) if self.algorithm.shares_nothing else values

    def _relative_excess(self, loss: Array, exact: Array) -> Array:
        with np.errstate(invalid="ignore"):  # two infinite losses
            return np.asarray((loss - exact) / (self.exact.spread if self.exact else np.nan))

    def _at_last_round(self, value: float) -> Array:
        return np.concatenate([np.full(len(self.rounds) - 1, np.nan), [value]])

    def _training_mean(self, sums: Sums | None) -> Array:
        counts = np.asarray(self.federation.counts("train"))
        return np.full(len(self.rounds), np.nan) if sums is None else pooled_ratio(sums, counts)

    def _split_mean(self, sums: Sums, split: int) -> Array:
        return pooled_ratio(sums[..., split], self.totals[:, split])
