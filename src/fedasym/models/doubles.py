"""A double: a population of clients that resembles real ones, to draw from at any size.

`resemble` estimates the laws of `models.laws` and calibrates them: exact least-squares heads on the
real clients at their present size cost seconds, and three scales (of client effects, of the
coordinates, of the rest) are chosen so that drawn clients of that size reach the same accuracies.
What-ifs then start from the truth and only have to get the change right. The card says how clients
differ: in their classes (label shift), in a move that all of a client's samples share (feature
shift), and in how a class looks at a client (concept shift).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import (
    Array,
    check_seed,
    notebook_text,
    one_float,
    plural,
    three_digits,
    whole,
)
from fedasym.core.runtime import UNREADABLE, few_threads, read_arrays, write_arrays
from fedasym.data.federation import Federation, check_federation
from fedasym.data.shards import ShardedFederation
from fedasym.data.splits import SPLITS
from fedasym.exact.draws import seeded_generator
from fedasym.exact.estimators import fit as fit_linear
from fedasym.exact.held_out import HeldOut
from fedasym.models.laws import (
    SHARES,
    ClassLaws,
    CoordinateLaw,
    NumberLaws,
    Scales,
    ShareLaw,
    estimate_number_laws,
)
from fedasym.models.sums import ClassRows, powers_of

KIND = "double"
LEAST_CLIENTS = 4
MOST_POSITIONS = 400  # of a client's sequences that are looked at, evenly spread
LAW_CLIENTS = 5000  # with numbers, of whom laws are estimated
MOST_CALIBRATED = 100  # clients on which probes are compared
PROBED = np.array([0.01, 0.1, 1.0, 10.0, 100.0])  # ridges, about the samples' scale
PRIOR = 0.5  # standard deviation of a scale's logarithm before any probe is seen
LEAST_ERROR = 0.003  # of a probe: the laws are no better than that
FIRST_STEP, LONGEST_STEP, SHORTEST_STEP = -0.3, 0.6, 0.02
MOST_STEPS = 6
BOOTSTRAP = 1000
BLOCKS = 10  # of clients, left out in turn
HELD = 20  # validation samples of a drawn client, and as many for test, at least
TESTED = 4_000  # test samples of a draw of classes: half a point of accuracy, one standard error


class Interval(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"

    @property
    def is_clear(self) -> bool:
        """Whether it is above 0 for sure."""
        return self.low > 0


@dataclass(frozen=True)
class HeterogeneityCard:
    """How clients differ, each in a familiar unit with its 95 % interval.

    label: alpha of the Dirichlet law that makes such class shares; of numbers, the standard
        deviation of clients' levels over the noise. feature: by how many standard deviations, along
        an average direction, a client moves all its samples. concept: by how many it moves a class
        of its own; of numbers, the standard deviation of clients' weights over the mean weight.
    measured, drawn: accuracies (or mean squared errors) of least-squares heads on real and drawn
        clients of the present size, by algorithm, on samples that they have not seen. distinct:
        whether held-out samples have a law of their own.
    """

    task: str
    clients: int
    samples: int
    label: Interval
    feature: Interval
    concept: Interval
    measured: dict[str, float]
    drawn: dict[str, float]
    distinct: bool = False

    def __str__(self) -> str:
        classes = self.task == "classification"
        lines = [f"How {plural(self.clients, 'client')} differ · {self.samples} samples"]
        if classes:
            like = "the same for all" if self.label.low > 50 else "as Dirichlet"
            told = like if self.label.low > 50 else f"{like} {self.label} would make them"
            lines.append(f"  label shift     class shares {told}")
            moved = f"all samples of a client moved by {self.feature} standard deviations"
            lines.append(f"  feature shift   {moved if self.feature.is_clear else 'none is clear'}")
            moved = f"each class of a client moved by {self.concept} standard deviations"
            lines.append(f"  concept shift   {moved if self.concept.is_clear else 'none is clear'}")
        else:
            for name, shift, words in (
                ("level", self.label, f"levels vary by {self.label} of the noise"),
                ("feature", self.feature, f"means vary by {self.feature} of a deviation"),
                ("concept", self.concept, f"weights vary by {self.concept} of the mean one"),
            ):
                told = f"clients' {words}" if shift.is_clear else "none is clear"
                lines.append(f"  {f'{name} shift':<16}{told}")
        if self.distinct:
            lines.append("  held-out samples have a law of their own: features were trained")
        form = "{:.1%}".format if classes else three_digits
        pairs = [
            f"{name} {form(value)} (drawn {form(self.drawn[name])})"
            for name, value in self.measured.items()
        ]
        return "\n".join([*lines, f"  held-out check  {', '.join(pairs)}"])


@dataclass(frozen=True, eq=False, repr=False)
class Double:
    """A population that resembles real clients: prints its card, draws federations, keeps itself.

    sizes: training, validation and test samples of each real client, (clients, 3). counts: of their
    classes. goal, goal_covariance: the probes of the real clients, and how their means vary.

    >>> import fedasym as fa
    >>> real = fa.datasets.synthetic(
    ...     task="classification", classes=3, centre=3, radius=2, clients=12, dimension=8, seed=1
    ... )
    >>> double = fa.resemble(real)
    >>> double.draw(clients=5, samples=30, seed=2).counts("train").tolist()
    [30, 30, 30, 30, 30]
    """

    laws: ClassLaws | NumberLaws
    classes: tuple[Any, ...] | None
    sizes: NDArray[np.intp]
    counts: Array | None
    scales: Scales
    intercept: bool
    names: tuple[str, ...] | None
    goal: Array
    goal_covariance: Array
    card: HeterogeneityCard

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return "regression" if self.classes is None else "classification"

    @property
    def goal_error(self) -> Array:
        """The standard errors of the real probes."""
        return np.asarray(np.sqrt(np.diag(self.goal_covariance)))

    def difference_error(self, kind: str, other: str) -> float:
        """The standard error, over real clients, of how much better one kind of probe does than
        another on the same clients.
        """
        best = best_probes(self.goal, self.classes is None)
        pick = np.zeros(len(self.goal))
        pick[best[kind]] += 1
        pick[best[other]] -= 1
        return float(np.sqrt(max(float(pick @ self.goal_covariance @ pick), 0.0)))

    @property
    def resamples(self) -> bool:
        """Whether it holds coordinates of real samples."""
        return isinstance(self.laws, ClassLaws) and self.laws.train.residuals is not None

    def draw(
        self,
        clients: int | None = None,
        samples: int | None = None,
        alpha: float | None = None,
        seed: int = 0,
        *,
        held: int | None = None,
    ) -> Federation:
        """New clients as a federation; the same seed gives the same clients.

        clients: how many; as many as there are real ones by default. samples: for training, of each
        client; by default as many as real clients have. alpha: of a Dirichlet law of class shares;
        by default shares like those of the real clients. held: validation samples, and as many test
        samples, of each client; by default as real clients have.
        """
        m = len(self.sizes) if clients is None else whole("clients", clients, 1)
        rng = seeded_generator(check_seed(seed), SHARES)
        like = np.arange(m) if m == len(self.sizes) else rng.integers(len(self.sizes), size=m)
        sizes = self.sizes[like].copy()
        if samples is not None:
            sizes[:, 0] = whole("samples", samples, 1)
        if held is not None:
            sizes[:, 1:] = whole("held", held, 1)
        told: dict[str, Any] = {"intercept": self.intercept, "names": self.names}
        if isinstance(self.laws, NumberLaws):
            if alpha is not None:
                raise InvalidInput("alpha is given, but the labels are numbers: leave it out")
            rows: tuple[Any, ...] = self.laws.draw(m, sizes, seed, self.scales)
        else:
            shares = self._draw_shares(like, alpha, rng)
            rows = self.laws.draw(shares, sizes, seed, self.scales)
        x, y, owner, split = rows
        return Federation(
            x, y, tuple(range(m)), owner, split, mask=None, classes=self.classes, **told
        )

    def _draw_shares(
        self, like: NDArray[np.intp], alpha: float | None, rng: np.random.Generator
    ) -> Array:
        assert isinstance(self.laws, ClassLaws)
        assert self.counts is not None
        law = self.laws.shares
        if alpha is None:
            return law.draw_shares(len(like), rng, self.counts[like])
        size = one_float(alpha)
        if not 0 < size < np.inf:
            raise InvalidInput(
                f"alpha is {alpha!r}: it must be finite and above 0; small is uneven"
            )
        return replace(law, total=size * law.base.size).draw_shares(len(like), rng)

    def as_mixtures(self) -> Double:
        """The same without coordinates of real samples: mixtures, calibrated anew."""
        if not self.resamples:
            return self
        assert isinstance(self.laws, ClassLaws)
        train = replace(self.laws.train, residuals=None, codes=None)
        held = replace(self.laws.held, residuals=None, codes=None) if self.laws.distinct else train
        return calibrate(replace(self, laws=replace(self.laws, train=train, held=held)))

    def save(self, path: str | Path, *, coordinates: bool = False) -> Path:
        """Write to a .safetensors file, whole or not at all; returns where it is.

        It holds sums over clients, and the class counts of each; no samples. coordinates: keep the
        resampled coordinates too, which are samples in part, as data are kept; without them they
        are mixtures.
        """
        if coordinates and self.resamples:
            warnings.warn(
                "the file holds coordinates of real samples: keep it as you keep the data, or save"
                " it without coordinates",
                stacklevel=2,
            )
        kept = self if coordinates else self.as_mixtures()
        arrays, about = describe_laws(kept.laws)
        arrays |= {"sizes": kept.sizes, "goal": kept.goal}
        arrays["goal_covariance"] = kept.goal_covariance
        if kept.counts is not None:
            arrays["counts"] = kept.counts
        card = {each.name: getattr(kept.card, each.name) for each in fields(kept.card)}
        about |= {"scales": vars(kept.scales), "intercept": kept.intercept, "card": card}
        about |= {"classes": None if kept.classes is None else list(kept.classes)}
        about |= {"names": None if kept.names is None else list(kept.names)}
        return write_arrays(path, KIND, arrays, about)

    @classmethod
    def load(cls, path: str | Path) -> Double:
        """The double that `save` wrote."""
        arrays, about = read_arrays(path, KIND)
        try:
            classes, names = about["classes"], about["names"]
            card = dict(about["card"])
            for name in ("label", "feature", "concept"):
                card[name] = Interval(*map(float, card[name]))
            sizes = arrays["sizes"].astype(np.intp)
            laws = read_laws(arrays, about)
            if sizes.ndim != 2 or sizes.shape[1] != 3 or not len(sizes) or sizes.min() < 0:
                raise ValueError
            probes = 2 * len(PROBED) + 1
            if arrays["goal"].shape != (probes,):
                raise ValueError
            if arrays["goal_covariance"].shape != (probes, probes):
                raise ValueError
            if isinstance(laws, ClassLaws):
                shape = (len(sizes), len(laws.means))
                if arrays["counts"].shape != shape or len(classes) != shape[1]:
                    raise ValueError
            found = cls(
                laws,
                None if classes is None else tuple(classes),
                sizes,
                arrays.get("counts"),
                Scales(**{name: float(value) for name, value in about["scales"].items()}),
                bool(about["intercept"]),
                None if names is None else tuple(map(str, names)),
                arrays["goal"],
                arrays["goal_covariance"],
                HeterogeneityCard(**card),
            )
            with np.errstate(all="ignore"):  # parts that fit together give clients and words
                found.draw(clients=2, samples=2, held=1)
                str(found)
            return found
        except (*UNREADABLE, IndexError, ArithmeticError, np.linalg.LinAlgError):
            raise InvalidInput(
                f"{path} is damaged: its parts do not fit together; save the double again"
            ) from None

    def __repr__(self) -> str:
        return str(self.card)

    def _repr_html_(self) -> str:
        return notebook_text(self)


def describe_laws(laws: ClassLaws | NumberLaws) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers as arrays in single precision, and the rest as plain values."""
    arrays: dict[str, Any] = {}
    about: dict[str, Any] = {}

    def keep(value: Any, place: str) -> None:
        for each in fields(value):
            part = getattr(value, each.name)
            name = f"{place}{each.name}"
            if isinstance(part, np.ndarray):
                arrays[name] = part.astype(np.float32 if part.dtype.kind == "f" else np.int64)
            elif isinstance(part, CoordinateLaw | ShareLaw):
                keep(part, f"{name}.")
            elif part is not None:
                about[name] = part

    keep(laws, "")
    if isinstance(laws, ClassLaws) and not laws.distinct:
        arrays = {name: part for name, part in arrays.items() if not name.startswith("held.")}
    return arrays, {"laws": about}


def read_laws(arrays: dict[str, Any], about: dict[str, Any]) -> ClassLaws | NumberLaws:
    """What `describe_laws` described."""
    held = {
        name: part.astype(float) if part.dtype.kind == "f" else part
        for name, part in arrays.items()
    } | dict(about["laws"])

    def make(kind: Any, place: str) -> Any:
        told = {each.name: held.get(f"{place}{each.name}") for each in fields(kind)}
        return kind(**{name: value for name, value in told.items() if value is not None})

    if about["classes"] is None:
        return make(NumberLaws, "")  # type: ignore[no-any-return]
    train = make(CoordinateLaw, "train.")
    held["train"] = train
    held["held"] = make(CoordinateLaw, "held.") if "held.confusion" in held else train
    held["shares"] = make(ShareLaw, "shares.")
    laws: ClassLaws = make(ClassLaws, "")
    K, d = laws.means.shape
    if laws.turn.shape != (d, d) or laws.mean.shape != (d,) or not 0 < laws.rank <= d:
        raise ValueError
    if laws.by_kind.shape not in {(0, laws.rank, laws.rank), (K, laws.rank, laws.rank)}:
        raise ValueError
    if not all(
        type(each) is int and 0 <= each <= d for each in (laws.class_shape, laws.cell_shape)
    ):
        raise ValueError
    for law in (laws.train, laws.held):
        if law.confusion.shape != (K, K) or law.slope.shape != (laws.rank, d - laws.rank):
            raise ValueError
        if law.leans.shape != (2, 2, 2):
            raise ValueError
        own = law.class_slopes
        if own is not None and own.shape != (K, *law.slope.shape):
            raise ValueError
    return laws


def resemble(federation: Federation, *, coordinates: str = "resampled") -> Double:
    """Estimate a population that resembles a federation's clients, and calibrate it.

    coordinates: of samples along the class means, "resampled" from real ones (the closest) or
        "mixtures" over classes, which are all that a file keeps unless asked.

    >>> import fedasym as fa
    >>> pool = fa.datasets.synthetic(
    ...     task="classification", classes=4, centre=3, radius=0.1, clients=20, dimension=6, seed=3
    ... )
    >>> dealt = fa.datasets.partition(pool, how="iid", clients=20)
    >>> fa.resemble(dealt).card.label.high > 50
    True
    """
    check_federation(federation)
    if coordinates not in ("resampled", "mixtures"):
        raise InvalidInput(f"coordinates is {coordinates!r}: it must be 'resampled' or 'mixtures'")
    sizes = count_rows(federation)
    clients = int(np.sum(sizes[:, 0] > 0))
    if clients < LEAST_CLIENTS:
        raise InvalidInput(
            f"{plural(clients, 'client')} with training samples: how clients differ takes at least"
            f" {LEAST_CLIENTS}"
        )
    m = len(federation)
    somewhere = np.flatnonzero(sizes.any(1))
    with few_threads(federation.dimension):
        probed = read_rows(federation.take(somewhere[spread_clients(len(somewhere))]))
        goal, covariance = probe(probed, federation.outputs if federation.classes else None)
        counts = None
        laws: ClassLaws | NumberLaws
        if federation.classes is None:
            some = federation.take(spread_clients(m, LAW_CLIENTS))
            laws, shifts = resemble_numbers(read_rows(some), federation.intercept)
        else:
            shape = (int(sizes.sum()), federation.dimension)
            looks = partial(class_blocks, federation)
            laws, counts = ClassLaws.of(looks, shape, coordinates == "resampled")
            shifts = class_shifts(laws)
        card = HeterogeneityCard(
            federation.task, m, int(sizes.sum()), *shifts, {}, {}, getattr(laws, "distinct", False)
        )
        return calibrate(
            Double(
                laws,
                federation.classes,
                sizes,
                None if counts is None else counts.astype(float),
                Scales(),
                federation.intercept,
                federation.names,
                goal,
                covariance,
                card,
            )
        )


class FlatRows(NamedTuple):
    """Samples, or real positions of sequences: features, labels or codes, owner and split."""

    x: Any
    y: Any
    owner: NDArray[np.intp]
    split: NDArray[np.int8]


def read_rows(federation: Federation) -> FlatRows:
    """A federation's samples; of long sequences some positions, evenly spread."""
    if not federation.sequences:
        return FlatRows(federation.features, federation.labels, federation.owner, federation.split)
    positions = federation.features.shape[1]
    real = np.ones(federation.features.shape[:2], bool)
    real = real if federation.mask is None else federation.mask
    places = np.flatnonzero(real)
    owner = federation.owner[places // positions]
    kept = []
    for client in range(len(federation)):
        mine = places[owner == client]
        kept.append(mine[np.unique(np.linspace(0, len(mine) - 1, MOST_POSITIONS).astype(int))])
    chosen = np.concatenate(kept) if kept else places
    sample = chosen // positions
    x = federation.features.reshape(-1, federation.dimension)[chosen]
    y = federation.labels.reshape(-1, *federation.labels.shape[2:])[chosen]
    return FlatRows(x, y, federation.owner[sample], federation.split[sample])


def memory_blocks(federation: Federation) -> Iterator[Federation]:
    """A federation in memory whole, one on disk a block of clients after the other."""
    return federation.blocks() if isinstance(federation, ShardedFederation) else iter([federation])


def count_rows(federation: Federation) -> NDArray[np.intp]:
    """(clients, 3) training, validation and test samples that are looked at."""
    if not federation.sequences:
        return np.stack([federation.counts(split) for split in SPLITS], 1)
    found = []
    for block in memory_blocks(federation):
        rows = read_rows(block)
        each = [np.bincount(rows.owner[rows.split == at], minlength=len(block)) for at in range(3)]
        found.append(np.stack(each, 1))
    return np.concatenate(found)


def class_blocks(federation: Federation) -> Iterator[ClassRows]:
    """All samples of classes, a block of clients after the other."""
    for block in memory_blocks(federation):
        rows = read_rows(block)
        yield ClassRows(
            rows.x, rows.y, rows.owner, rows.split == 0, len(block), len(federation.classes or ())
        )


def spread_clients(count: int, most: int = MOST_CALIBRATED) -> NDArray[np.intp]:
    """The places of up to so many clients, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.intp)


def probe(rows: FlatRows, classes: int | None) -> tuple[Array, Array]:
    """Least-squares heads on held-out samples of up to MOST_CALIBRATED clients: the shared one,
    then local and personalised ones along ridges. Means over clients, and their covariance.
    """
    clients = np.unique(rows.owner)
    chosen = clients[spread_clients(len(clients))]
    kept = np.isin(rows.owner, chosen)
    owner = np.searchsorted(chosen, rows.owner[kept])
    some = FlatRows(rows.x[kept], rows.y[kept], owner, rows.split[kept])
    return summarise_probes(probe_heads(some, classes))


def summarise_probes(scores: Array) -> tuple[Array, Array]:
    """Means over clients with held-out samples, and the covariance of these means."""
    known = scores[:, np.isfinite(scores[0])]
    count = known.shape[1]
    if not count:
        raise InvalidInput("no client has held-out samples: give some a validation or test sample")
    return known.mean(1), np.cov(known, ddof=0) / count


def probe_heads(rows: FlatRows, classes: int | None) -> Array:
    """Held-out scores (probes, clients); of numbers, which no network was trained on, those of
    training samples, each left out, since these are more.
    """
    board = HeldOut.of(*rows, classes, left_out=True if classes is None else None)
    sizes = np.array([each.n for each in board.clients])
    return score_probes(board, board.pooled, probe_unit(board.gram, sizes))


def probe_unit(gram: Array, sizes: NDArray[np.integer]) -> float:
    """The mean eigenvalue along clients' axes, of which a client has as many as it has samples or
    unknowns; from the sum of X'X and the clients' sizes.
    """
    axes = float(np.mean(np.minimum(sizes, len(gram))))
    return float(np.trace(gram)) / float(sizes.sum()) / axes


def score_probes(board: HeldOut, theta: Array, unit: float) -> Array:
    """Held-out scores (probes, clients) about a shared model."""
    filters = [lambda x, ridge=ridge * unit: np.asarray(x / (x + ridge)) for ridge in PROBED]
    curves = [
        board.curve(theta, [np.zeros_like]),
        board.curve(None, filters),
        board.curve(theta, filters),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a client without held-out samples
        return np.asarray(np.nanmean(np.concatenate(curves), axis=2))


def best_probes(values: Array, lower: bool) -> dict[str, int]:
    """The place of the best of each kind, by the name of its algorithm."""
    best = np.argmin if lower else np.argmax
    k = len(PROBED)
    return {
        "fedavg": 0,
        "local_ridge": 1 + int(best(values[1 : k + 1])),
        "rtfa": 1 + k + int(best(values[k + 1 :])),
    }


def name_probes(values: Array, lower: bool) -> dict[str, float]:
    """The best of each kind by the name of its algorithm."""
    return {name: float(values[place]) for name, place in best_probes(values, lower).items()}


def calibrate(double: Double) -> Double:
    """The double with the scales at which drawn clients of the present size give the real probes.

    Gauss-Newton steps in the logarithms of the scales with one secant update each, from the laws as
    they were estimated; what a probe's standard error does not decide stays near 1.
    """
    lower = double.classes is None
    goal = double.goal
    chosen = spread_clients(len(double.sizes))
    few = len(chosen)
    unit = float(np.abs(goal).max()) if lower else 1.0
    error = np.maximum(double.goal_error, LEAST_ERROR * unit) * np.sqrt(len(goal) / 3)
    small = replace(
        double,
        sizes=double.sizes[chosen],
        counts=None if double.counts is None else double.counts[chosen],
    )
    outputs = None if double.classes is None else len(double.classes)
    # numbers are scored by leaving training samples out; of classes both halves are looked at
    held = 1 if lower else hold_out(few, TESTED // 2)

    def probe_drawn(logs: Array) -> Array:
        drawn = replace(small, scales=Scales(*np.exp(logs))).draw(held=held, seed=few)
        return probe(FlatRows(drawn.features, drawn.labels, drawn.owner, drawn.split), outputs)[0]

    def cost(values: Array, logs: Array) -> float:
        return float(np.sum(((values - goal) / error) ** 2) + np.sum((logs / PRIOR) ** 2))

    logs = np.zeros(3)
    values = probe_drawn(logs)
    jacobian = np.zeros((len(values), 3))
    for at in range(3):
        moved = logs.copy()
        moved[at] = FIRST_STEP
        jacobian[:, at] = (probe_drawn(moved) - values) / FIRST_STEP
    reach = LONGEST_STEP
    for _ in range(MOST_STEPS):
        system = np.vstack([jacobian / error[:, None], np.eye(3) / PRIOR])
        aim = np.concatenate([(goal - values) / error, -logs / PRIOR])
        step = np.linalg.lstsq(system, aim, rcond=None)[0]
        longest = float(np.abs(step).max())
        if longest < SHORTEST_STEP:
            break
        step = step * min(1.0, reach / longest)
        new = probe_drawn(logs + step)
        jacobian += np.outer(new - values - jacobian @ step, step) / float(step @ step)
        if cost(new, logs + step) < cost(values, logs):
            logs, values = logs + step, new
        else:
            reach = min(reach, longest) / 2
    card = replace(double.card, measured=name_probes(goal, lower), drawn=name_probes(values, lower))
    return replace(double, scales=Scales(*map(float, np.exp(logs))), card=card)


def hold_out(clients: int, most: int = TESTED) -> int:
    """Validation samples of each of so many drawn clients, and as many for test: at least HELD, and
    more where clients are few, so that luck does not pass for how they differ.

    >>> hold_out(25), hold_out(1000)
    (160, 20)
    """
    return max(HELD, -(-most // clients))


def class_shifts(laws: ClassLaws) -> tuple[Interval, Interval, Interval]:
    """Label, feature and concept shift; the latter two with intervals by resampled clients."""
    sums = laws.sums
    rng = np.random.default_rng(0)
    drawn = [sums[rng.integers(len(sums), size=len(sums))].sum(0) for _ in range(BOOTSTRAP)]
    found = powers_of(np.stack([sums.sum(0), *drawn]))
    shifts = []
    for power in found.T:
        low, high = np.percentile(power[1:], [2.5, 97.5])
        shifts.append(Interval(*(float(np.sqrt(max(each, 0.0))) for each in (power[0], low, high))))
    label = Interval(laws.shares.alpha, laws.shares.low, laws.shares.high)
    return label, shifts[0], shifts[1]


def resemble_numbers(
    rows: FlatRows, intercept: bool
) -> tuple[NumberLaws, tuple[Interval, Interval, Interval]]:
    """Laws of numbers, and their shifts with intervals by blocks of clients left out in turn."""
    train = rows.split == 0
    x, y = np.asarray(rows.x[train], float), np.asarray(rows.y[train], float)
    owner = np.unique(rows.owner[train], return_inverse=True)[1]

    def shifts_of(kept: NDArray[np.bool_]) -> tuple[NumberLaws, Array]:
        who = np.unique(owner[kept], return_inverse=True)[1]
        found = fit_linear("pfedme", x[kept], y[kept], who.tolist(), intercept=intercept)
        laws = estimate_number_laws(x[kept], y[kept], who, intercept, found)
        d = x.shape[1]
        noise = max(float(laws.noise.mean()), 1e-300)
        level = float(np.sqrt(laws.variances[-1])) / noise if intercept else 0.0
        moved = np.sqrt(np.sum(laws.between**2) / max(np.sum(laws.within**2), 1e-300))
        length = max(float(np.linalg.norm(laws.theta[:d]) / np.sqrt(laws.theta.shape[1])), 1e-300)
        return laws, np.array([level, moved, np.sqrt(laws.variances[:d].sum()) / length])

    laws, values = shifts_of(np.ones(len(owner), bool))
    clients = int(owner.max()) + 1
    blocks = np.arange(clients) % min(BLOCKS, clients)
    left = np.stack(
        [shifts_of(blocks[owner] != block)[1] for block in range(int(blocks.max()) + 1)]
    )
    count = len(left)
    error = np.sqrt((count - 1) / count * np.sum((left - left.mean(0)) ** 2, axis=0))
    found = [
        Interval(float(value), max(float(value - 2 * wide), 0.0), float(value + 2 * wide))
        for value, wide in zip(values, error, strict=True)
    ]
    return laws, (found[0], found[1], found[2])
