"""Many runs together: configurations and the seeds they were run with, how they are lined up and
chosen from, and what a fair reader should know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import Array, TextTable, json_value, ratio
from fedasym.core.runtime import write_file
from fedasym.data.federation import Federation
from fedasym.results import Result
from fedasym.training.comparisons import MARGIN, ClientValues, Comparisons, compare_finals
from fedasym.training.decomposition import (
    Decomposition,
    correct_shifts,
    count_labels,
    held_scores,
    join_parts,
)
from fedasym.training.history import TEST, VALIDATION, History
from fedasym.training.plans import describe_spending
from fedasym.training.settings import SETTINGS, Protocol, named_settings
from fedasym.training.wording import (
    COLUMNS,
    HEADS,
    client_notes,
    describe_count,
    describe_drift,
    describe_unconverged,
    deviation_text,
    divergence_remedy,
    fold_line,
    meanings,
    seed_range,
    setting_text,
    share_notes,
    statistic_text,
)

MOST = 40  # configurations that are printed
# settings whose best value may lie beyond the ones tried
EDGES = ("server_step", "local_step", "ridge")

# what comparisons can be made by: means over clients
COMPARED = {
    "classification": ("accuracy", "mean_accuracy", "loss", "mean_loss"),
    "regression": ("loss", "mean_loss"),
}

Ranked = dict[str, list["Configuration"]]
Chosen = dict[str, "Configuration | None"]


@dataclass(frozen=True, eq=False)
class Configuration:
    """An algorithm with one choice of its settings, and its runs, one per seed."""

    algorithm: Algorithm
    protocol: Protocol
    settings: dict[str, Any]  # those that the algorithm uses
    runs: tuple[History, ...]

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.algorithm.name

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [run.seed for run in self.runs]

    @property
    def diverged(self) -> int | None:
        """The first round in which a run diverged."""
        return min((run.diverged for run in self.runs if run.diverged is not None), default=None)

    @property
    def interrupted(self) -> bool:
        """Whether a run was stopped before its last round."""
        return any(run.interrupted for run in self.runs)

    @cached_property
    def rounds(self) -> list[int]:
        """The rounds that every run evaluated."""
        return sorted(set.intersection(*(set(run.rounds.tolist()) for run in self.runs)))

    def curves(self, name: str) -> Array:
        """A statistic of every run over `rounds`: (seeds, rounds)."""
        return np.stack([getattr(run, name)[np.isin(run.rounds, self.rounds)] for run in self.runs])

    def finals(self, name: str) -> Array:
        """A statistic of every run after the last round that all evaluated: (seeds,)."""
        return self.curves(name)[:, -1] if self.rounds else np.full(len(self.runs), np.nan)

    @cached_property
    def score(self) -> float:
        """What it is chosen by: mean final validation accuracy, or minus loss; -inf if none."""
        regression = self.runs[0].task == "regression"
        mean = (
            -self.finals("validation_loss").mean()
            if regression
            else self.finals("validation_accuracy").mean()
        )
        return float(mean) if self.diverged is None and np.isfinite(mean) else -np.inf

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts the best first; runs that were cut short do not compare with whole ones."""
        last = max(self.rounds, default=-1)
        return (
            self.diverged is not None,
            self.interrupted,
            -last if self.interrupted else 0,
            -self.score,
        )


def group_runs(runs: list[History]) -> Configuration:
    """The configuration that these runs share."""
    algorithm = runs[0].algorithm
    return Configuration(
        algorithm, runs[0].protocol, named_settings(runs[0].settings, algorithm), tuple(runs)
    )


def value_of(run: History, name: str) -> Any:
    """A run's algorithm, protocol, seed, split or setting by name; None if it does not use it."""
    if name in ("algorithm", "protocol"):
        return getattr(run, name).name
    return (
        getattr(run, name)
        if name in ("seed", "split")
        else named_settings(run.settings, run.algorithm).get(name)
    )


def explain_no_choice(groups: list[Configuration]) -> str:
    """Why none of an algorithm's configurations can be chosen, and what to do."""
    if all(group.diverged is not None for group in groups):
        return f"as every configuration diverged: {divergence_remedy(groups[0].runs[0])}"
    if not any(run.totals[:, VALIDATION].sum() for group in groups for run in group.runs):
        return "as there are no validation samples: resplit the federation so that some validate"
    return (
        f"as no configuration has a finite validation score: {divergence_remedy(groups[0].runs[0])}"
    )


def setting_names(groups: Iterable[Configuration]) -> list[str]:
    """The settings of every run, then those that algorithms bring."""
    return list(dict.fromkeys((*SETTINGS, *(name for group in groups for name in group.settings))))


def split_settings(groups: list[Configuration]) -> tuple[dict[str, Any], list[str]]:
    """The settings whose values all users of them share, and the names of those that vary."""
    used = {
        name: [group.settings[name] for group in groups if name in group.settings]
        for name in setting_names(groups)
    }
    held = {name: values for name, values in used.items() if values}
    alike = {
        name: values[0]
        for name, values in held.items()
        if all(value == values[0] for value in values)
    }
    return alike, [name for name in held if name not in alike]


def title_of(groups: list[Configuration]) -> str:
    """Algorithms, configurations, seeds, and the settings that all share."""
    alike, _ = split_settings(groups)
    names = list(dict.fromkeys(group.name for group in groups))
    parts = [", ".join(names), describe_count(len(groups), "configuration")]
    counts = sorted({len(set(group.seeds)) for group in groups})
    parts.append(
        describe_count(counts[0], "seed")
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} seeds"
    )
    splits = {run.split for group in groups for run in group.runs} - {None}
    parts += [describe_count(len(splits), "split")] if splits else []
    protocols = list(dict.fromkeys(group.protocol.name for group in groups))
    parts += [f"protocol {protocols[0]}"] if len(protocols) == 1 else []
    return " · ".join(
        [
            *parts,
            *(
                f"{name} {setting_text(value)}"
                for name, value in alike.items()
                if value is not None
            ),
        ]
    )


def configuration_table(ranked: Ranked, chosen: Chosen) -> tuple[TextTable, list[str]]:
    """A row per configuration, each algorithm's best by validation first, choices marked; words."""
    groups = [group for each in ranked.values() for group in each]
    share = max(MOST // len(ranked), 1)
    listed = (
        groups
        if len(groups) <= MOST
        else [group for each in ranked.values() for group in each[:share]]
    )
    task = groups[0].runs[0].task
    first, *others = [
        name for name in HEADS[task] if name not in ("shared_accuracy", "shared_loss")
    ]
    others = [name for name in others if name != "loss"]
    vary = split_settings(groups)[1]
    protocols = len({group.protocol for group in groups}) > 1
    uneven = len({len(group.runs) for group in groups}) > 1
    several = any(len(group.runs) > 1 for group in groups)
    failed = any(group.diverged is not None for group in groups)
    tried = len(groups) > len(ranked)
    head = [
        "",
        "algorithm",
        *(["protocol"] if protocols else []),
        *vary,
        *(["seeds"] if uneven else []),
        HEADS[task][first],
    ]
    head += [
        *(["± sd", "worst–best"] if several else []),
        *(HEADS[task][name] for name in others),
        *(["diverged"] if failed else []),
    ]
    rows = []
    for group in listed:
        row = ["*" if tried and any(group is each for each in chosen.values()) else "", group.name]
        row += [group.protocol.name] if protocols else []
        row += [setting_text(group.settings.get(name)) for name in vary]
        row += [str(len(group.runs))] if uneven else []
        row.append(statistic_text(first, float(group.finals(first).mean())))
        if several:
            finals = group.finals(first)
            row += [deviation_text(first, finals), seed_range(first, finals)]
        row += [statistic_text(name, float(group.finals(name).mean())) for name in others]
        row += [f"round {group.diverged}" if group.diverged is not None else ""] if failed else []
        rows.append(row)
    hidden = len(groups) - len(listed)
    more = [f"   and {hidden} more: .table()"] if hidden else []
    table = TextTable(head, rows, left=3 if protocols else 2)
    return table, [*more, "", *meanings([first, *others])]


def comparison_notes(ranked: Ranked, chosen: Chosen) -> list[str]:
    """How choices were made, from how many; divergence, interruption, narrow grids, no baseline."""
    notes = []
    groups = [group for each in ranked.values() for group in each]
    counts = {name: len(each) for name, each in ranked.items()}
    if len(groups) > len(ranked):
        what = "loss" if groups[0].runs[0].task == "regression" else "accuracy"
        if any(chosen.values()):
            notes.append(
                f"* chosen by validation {what} after the last round, mean over seeds; test samples"
                " choose nothing."
            )
        tried = ", ".join(f"{name} {count}" for name, count in counts.items())
        alike = len(set(counts.values())) == 1
        fair = (
            ""
            if len(counts) == 1 or alike
            else ". Tuning budgets differ: the comparison favours those that tried more"
        )
        notes.append(f"Configurations tried: {tried}{fair}.")
    notes += [
        f"Nothing is chosen for {name}, {explain_no_choice(ranked[name])}."
        for name, group in chosen.items()
        if group is None
    ]
    if failed := sum(group.diverged is not None for group in groups):
        cause = (
            f" Most did: {divergence_remedy(groups[0].runs[0])}."
            if 2 * failed > len(groups) > 1
            else ""
        )
        notes.append(
            f"Diverged, and never chosen: {describe_count(failed, 'configuration')} of"
            f" {len(groups)}.{cause}"
        )
    notes += describe_unconverged([group.runs[0] for group in chosen.values() if group is not None])
    if cut := sum(group.interrupted for group in groups):
        notes.append(
            f"Interrupted: {describe_count(cut, 'configuration')} of {len(groups)}, shown at the"
            " last round that was evaluated."
        )
    for name, group in chosen.items():
        notes += grid_edge_notes(group, ranked[name]) if group is not None else []
    if len({group.name for group in groups}) > 1 and not any(
        group.algorithm.shares_nothing for group in groups
    ):
        notes.append('No baseline without sharing: add "local" to see whether sharing pays at all.')
    return notes


def grid_edge_notes(best: Configuration, groups: list[Configuration]) -> list[str]:
    """A sentence for each step or ridge chosen at the end of three or more values tried."""
    notes = []
    for name in EDGES:
        values = sorted({group.settings[name] for group in groups if name in group.settings})
        rest = max(
            (
                group.score
                for group in groups
                if group.settings.get(name) != best.settings.get(name)
            ),
            default=-np.inf,
        )
        if (
            len(values) >= 3
            and best.settings[name] in (values[0], values[-1])
            and best.score > rest
        ):
            side = "smallest" if best.settings[name] == values[0] else "largest"
            notes.append(
                f"{best.name}: {name} {setting_text(best.settings[name])} is the {side} tried;"
                " the best may lie beyond."
            )
    return notes


@dataclass(frozen=True, eq=False, repr=False)
class Histories(Sequence[History], Result):
    """The runs of a grid, of several seeds or several algorithms, in the order asked for.

    Runs on the same clients can be joined: `Histories([*these, *those])`.

    >>> from fedasym.algorithms import PAPER
    >>> from fedasym.data.federation import Federation
    >>> from fedasym.training.settings import Settings, TEXT
    >>> data = Federation.from_arrays(
    ...     np.eye(6, 2), [0, 1, 0, 1, 0, 1], clients=list("aaabbb"), split=[0, 1, 2] * 2
    ... )
    >>> def run(step, right):
    ...     counted = np.full((1, 2, 2), float(right))
    ...     return History(
    ...         PAPER["ftfa"],
    ...         Settings(rounds=0, local_step=step),
    ...         TEXT,
    ...         0,
    ...         data,
    ...         np.array([0]),
    ...         counted,
    ...         1 - counted,
    ...         counted,
    ...         1 - counted,
    ...         np.ones((2, 2), int),
    ...         None,
    ...     )
    >>> runs = Histories([run(0.1, 0), run(0.01, 1)])
    >>> (
    ...     len(runs),
    ...     runs.choose()[0].settings.local_step,
    ...     runs.select(local_step=0.1)[0].accuracy.tolist(),
    ... )
    (2, 0.01, [0.0])
    """

    runs: tuple[History, ...]
    remarks: tuple[str, ...] = ()  # how these runs were chosen from others

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", tuple(self.runs))
        if not self.runs:
            raise InvalidInput("there are no runs: give at least one History")
        first = self.runs[0].federation
        for run in self.runs:
            other = run.federation
            if other is not first and (other.task, other.clients) != (first.task, first.clients):
                raise InvalidInput(
                    "the runs are on different clients or tasks: put only runs on the same clients"
                    " side by side"
                )

    @overload
    def __getitem__(self, index: int) -> History: ...
    @overload
    def __getitem__(self, index: slice) -> Histories: ...
    def __getitem__(self, index: int | slice) -> History | Histories:
        return Histories(self.runs[index]) if isinstance(index, slice) else self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[History]:
        return iter(self.runs)

    @property
    def task(self) -> str:
        """Classification or regression."""
        return self.runs[0].task

    @property
    def algorithms(self) -> list[str]:
        """The names of the algorithms, in order."""
        return list(dict.fromkeys(run.algorithm.name for run in self.runs))

    def groups(self) -> list[Configuration]:
        """The configurations, each with the runs of its seeds."""
        return list(self._groups)

    @cached_property
    def _groups(self) -> tuple[Configuration, ...]:
        found: dict[tuple[Any, ...], list[History]] = {}
        for run in self.runs:
            used = named_settings(run.settings, run.algorithm)
            found.setdefault((run.algorithm.name, run.protocol, *used.items()), []).append(run)
        return tuple(group_runs(runs) for runs in found.values())

    def rank_configurations(self) -> dict[str, list[Configuration]]:
        """Each algorithm's configurations, best by validation first, then cut short, then diverged.

        Under several protocols each algorithm stands once for each, as "ftfa, code": validation
        does not choose a protocol.
        """
        protocols = list(dict.fromkeys(group.protocol for group in self._groups))
        ranked: dict[str, list[Configuration]] = {}
        for name in self.algorithms:
            for protocol in protocols:
                mine = [
                    group
                    for group in self._groups
                    if group.name == name and group.protocol == protocol
                ]
                if mine:
                    ranked[name if len(protocols) == 1 else f"{name}, {protocol.name}"] = sorted(
                        mine, key=lambda group: group.order
                    )
        return ranked

    def choose_configurations(self) -> dict[str, Configuration | None]:
        """Each algorithm's configuration by validation; None if all diverged or none validates."""
        winners: dict[str, Configuration | None] = {}
        for name, (best, *others) in self.rank_configurations().items():
            winners[name] = (
                best if best.diverged is None and (not others or best.score > -np.inf) else None
            )
        return winners

    @property
    def best(self) -> str:
        """The algorithm whose chosen configuration validates best, the first of equal ones."""
        chosen = {
            group.name: group.score
            for group in self.choose_configurations().values()
            if group is not None
        }
        if not chosen:
            self.choose()  # which says why there is none
        return max(chosen, key=lambda name: chosen[name])

    def choose(self, by: str = "validation") -> Histories:
        """All seeds of each algorithm's best configuration, by mean final validation score.

        A configuration that diverged for any seed is never chosen. Only "validation" is offered:
        see the module's words.
        """
        if by != "validation":
            raise InvalidInput(
                f'by is {by!r}: configurations are chosen by "validation" only, never by test'
                " samples"
            )
        chosen = self.choose_configurations()
        ranked = self.rank_configurations()
        left = [name for name, group in chosen.items() if group is None]
        if len(left) == len(chosen):
            raise InvalidInput(f"nothing can be chosen: {explain_no_choice(ranked[left[0]])}")
        tried = {name: len(groups) for name, groups in ranked.items()}
        listed = ", ".join(f"{name} {count}" for name, count in tried.items())
        remarks = (
            [f"Each is the best by validation of the configurations tried: {listed}."]
            if max(tried.values()) > 1
            else []
        )
        remarks += [f"Left out: {name}, {explain_no_choice(ranked[name])}." for name in left]
        return Histories(
            tuple(run for group in chosen.values() if group for run in group.runs),
            (*self.remarks, *remarks),
        )

    def decompose(self) -> Decomposition:
        """Each algorithm's gain over its shared model, split into label shift, feature shift and
        the rest: of the configuration chosen by validation, after its last round, the mean over its
        runs.

        Algorithms that share nothing, or keep the shared model, have no such gain and are left out.

        >>> import fedasym as fa
        >>> clients = fa.datasets.synthetic(alpha=1, beta=1, clients=8, seed=1)
        >>> runs = fa.train(["ftfa", "rtfa"], clients, rounds=20, evaluate_every=0)
        >>> [row["algorithm"] for row in runs.decompose().table()]
        ['ftfa', 'rtfa']
        """
        chosen = [group for group in self.choose_configurations().values() if group is not None]
        able = [
            group
            for group in chosen
            if group.algorithm.takes_own_steps
            or group.algorithm.personal_from_server
            or group.algorithm.correction is not None
        ]
        parts, notes = [], []
        for group in able:
            if group.algorithm.shares_nothing:
                continue
            found = []
            for run in group.runs:
                if not isinstance(run.federation, Federation) or run.shared is None:
                    raise InvalidInput(
                        "a saved history has no samples, on which a gain is decomposed: train it"
                        " again"
                    )
                held = held_scores(run.federation, run.shared, run.protocol.count_padding)
                found.append((correct_shifts(held), np.asarray(run.correct[-1, :, TEST], float)))
                drift = describe_drift(*count_labels(run.federation, run.protocol.count_padding))
                notes += [f"Doubt: {drift}"] if drift else []
            parts.append(join_parts(group.name, found))
        if not parts:
            raise InvalidInput(
                "no run has personal models beside a shared one: decompose ftfa, rtfa or their like"
            )
        return Decomposition(tuple(parts), tuple(dict.fromkeys(notes)))

    def select(self, **wanted: Any) -> Histories:
        """The runs with these values of algorithm, protocol, seed, split or setting, one or a list.

        A run whose algorithm does not use a named setting has no value of it and is left out.
        """
        kept = self.runs
        for name, values in wanted.items():
            if name not in (
                known := ("algorithm", "protocol", "seed", "split", *setting_names(self._groups))
            ):
                raise unknown_name("name to select by", name, known)
            asked = (
                list(values)
                if isinstance(values, list | tuple | set | range | np.ndarray)
                else [values]
            )
            held = kept
            kept = tuple(
                run
                for run in held
                if any(is_same_value(value_of(run, name), each) for each in asked)
            )
            if not kept:
                there = dict.fromkeys(
                    setting_text(value_of(run, name))
                    for run in held
                    if value_of(run, name) is not None
                )
                listed = (
                    f"they have {', '.join(there)}" if there else "their algorithms do not use it"
                )
                raise InvalidInput(
                    f"no run has {name} {', '.join(setting_text(each) for each in asked)}: {listed}"
                )
        return Histories(kept, self.remarks)

    def table(self) -> list[dict[str, Any]]:
        """A record per run and evaluated round, with each setting in use (None where it is not)."""
        used = [
            name
            for name in setting_names(self._groups)
            if any(value_of(run, name) is not None for run in self.runs)
        ]
        splits = ["split"] if any(run.split is not None for run in self.runs) else []
        records = []
        for run in self.runs:
            what = {
                name: value_of(run, name)
                for name in ("algorithm", "protocol", *used, "seed", *splits)
            }
            records += [what | record for record in run.table()]
        return records

    def to_json(self) -> str:
        """Full precision: runs[i].{algorithm,settings,seed,statistics,...}, chosen, notes."""
        runs = []
        for run in self.runs:
            columns = {name: json_value(getattr(run, name)) for name in COLUMNS[self.task]}
            what = {
                "algorithm": run.algorithm.name,
                "settings": named_settings(run.settings, run.algorithm),
                "seed": run.seed,
            }
            what |= {} if run.split is None else {"split": run.split}
            ends: dict[str, Any] = {"diverged": run.diverged, "interrupted": run.interrupted}
            ends |= {} if run.privacy is None else {"privacy": asdict(run.privacy)}
            runs.append(
                what
                | {
                    "protocol": asdict(run.protocol),
                    "rounds": run.rounds.tolist(),
                    "statistics": columns,
                }
                | ends
            )
        chosen = {
            name: group and {"settings": group.settings, "seeds": group.seeds}
            for name, group in self.choose_configurations().items()
        }
        return json.dumps({"runs": runs, "chosen": chosen, "notes": list(self.notes)}, indent=2)

    def plot(self, path: str | Path | None = None) -> Path:
        """Draw each algorithm's accuracy (loss) over rounds, by validation, with a band of seeds.

        A file that ends in .png, .svg or .pdf; without one, training.png in the current folder.
        Returns where it is.
        """
        return write_file("draw histories", self, "training.png" if path is None else path)

    @property
    def title(self) -> str:
        """What was tried, and the settings that all share, in one line."""
        return title_of(self.groups())

    @property
    def notes(self) -> tuple[str, ...]:
        """How the chosen ones were chosen, and what a fair reader should know."""
        return (
            *self.remarks,
            *comparison_notes(self.rank_configurations(), self.choose_configurations()),
            *describe_spending(self.runs),
            *client_notes(self.runs[0]),
            *share_notes(
                next((run for run in self.runs if run.algorithm.correction), self.runs[0])
            ),
        )

    def __str__(self) -> str:
        table, words = configuration_table(self.rank_configurations(), self.choose_configurations())
        return "\n".join([*fold_line(self.title), "", *table.lines(), *words, *self.notes])

    __repr__ = __str__

    def printed_tables(self) -> list[TextTable]:
        """The configurations, as they are printed."""
        return [configuration_table(self.rank_configurations(), self.choose_configurations())[0]]

    def comparisons(
        self,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        margin: float | None = None,
        statistic: str | None = None,
    ) -> Comparisons:
        """Paired tests of the algorithms' chosen configurations, over seeds and clients.

        Intervals count the test samples; with one seed they count nothing else, and the verdict
        says so. margin: what counts as the same, 0.005 (half a point) for accuracies; in
        regression no equivalence without one. statistic: accuracy, mean_accuracy, loss or
        mean_loss.
        """
        name = statistic or ("loss" if self.task == "regression" else "accuracy")
        known = COMPARED[self.task]
        if name not in known:
            raise unknown_name("statistic", name, known)
        chosen = {
            key: group for key, group in self.choose_configurations().items() if group is not None
        }
        trials = {
            key: [(run.seed, run.split) for run in group.runs] for key, group in chosen.items()
        }
        if len({tuple(each) for each in trials.values()}) > 1:
            raise InvalidInput(
                "the algorithms were run with different seeds or splits: select those that all have"
            )
        loss = name.endswith("loss")
        return compare_finals(
            {"runs": {key: measure_clients(group, name) for key, group in chosen.items()}},
            pairs,
            (None if loss else MARGIN) if margin is None else margin,
            "loss" if loss else name,
        )


def measure_clients(group: Configuration, statistic: str) -> ClientValues:
    """A statistic of every run and client after the last round that all runs evaluated."""
    loss = statistic.endswith("loss")
    tested = group.runs[0].totals[:, TEST].astype(float)
    when = max(group.rounds, default=None)
    if when is None:
        values = np.full((len(group.runs), len(tested)), np.nan)
    else:
        sums = [run.losses if loss else run.correct for run in group.runs]
        at = [run.rounds.tolist().index(when) for run in group.runs]
        values = np.stack(
            [ratio(each[i, :, TEST], tested) for each, i in zip(sums, at, strict=True)]
        )
    weights = (tested > 0).astype(float) if statistic.startswith("mean") else tested
    held = tested > 0
    return ClientValues(values[:, held], weights[held] / weights.sum())


def is_same_value(held: Any, asked: Any) -> bool:
    """Whether a value is the one asked for, numbers up to rounding, as in grids of powers."""
    if any(isinstance(each, str) or each is None for each in (held, asked)):
        return bool(held == asked)
    return bool(np.isclose(held, asked, rtol=1e-9, atol=0))
