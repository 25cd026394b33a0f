"""Several training runs side by side: every configuration tried, the ones that validation chose, and how they compare.

Configurations are chosen on validation samples only. There is no way to choose on test samples: the best of many test
accuracies is partly luck, and more of it the more configurations were tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from fedasym.core.errors import InvalidInput, unknown
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.results.result import Result
from fedasym.training.configurations import (
    Configuration,
    comparison_notes,
    configuration_lines,
    configured,
    setting_names,
    title_of,
    value_of,
    why_none,
)
from fedasym.training.history import COLUMNS, History
from fedasym.training.settings import named_settings
from fedasym.training.wording import client_notes, folded, shown


@dataclass(frozen=True, eq=False, repr=False)
class Histories(Sequence[History], Result):
    """The runs of a grid, of several seeds or of several algorithms, in the order in which they were asked for.

    Runs on the same clients can be joined: `Histories([*these, *those])`.

    >>> from fedasym.algorithms import PAPER
    >>> from fedasym.data.federation.federation import Federation
    >>> from fedasym.training.settings import Settings, TEXT
    >>> data = Federation.from_arrays(np.eye(6, 2), [0, 1, 0, 1, 0, 1], clients=list("aaabbb"), split=[0, 1, 2] * 2)
    >>> def run(step, right):
    ...     counted = np.full((1, 2, 2), float(right))
    ...     return History(PAPER["ftfa"], Settings(rounds=0, local_step=step), TEXT, 0, data, np.array([0]), counted,
    ...                    1 - counted, counted, 1 - counted, np.ones((2, 2), int), None)
    >>> runs = Histories([run(0.1, 0), run(0.01, 1)])
    >>> len(runs), runs.choose()[0].settings.local_step, runs.select(local_step=0.1)[0].accuracy.tolist()
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
                raise InvalidInput("the runs are on different clients or tasks: put only runs on the same clients side by side")

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
        return tuple(configured(runs) for runs in found.values())

    def ranked(self) -> dict[str, list[Configuration]]:
        """Each algorithm's configurations, the best by validation first, then those cut short, then those that diverged.

        Under several protocols each algorithm stands once for each, as "ftfa, code": validation does not choose a protocol.
        """
        protocols = list(dict.fromkeys(group.protocol for group in self._groups))
        ranked: dict[str, list[Configuration]] = {}
        for name in self.algorithms:
            for protocol in protocols:
                mine = [group for group in self._groups if group.name == name and group.protocol == protocol]
                if mine:
                    ranked[name if len(protocols) == 1 else f"{name}, {protocol.name}"] = sorted(
                        mine, key=lambda group: group.order
                    )
        return ranked

    def chosen(self) -> dict[str, Configuration | None]:
        """Each algorithm's configuration by validation; None where all diverged, or where several were tried without any."""
        winners: dict[str, Configuration | None] = {}
        for name, (best, *others) in self.ranked().items():
            winners[name] = best if best.diverged is None and (not others or best.score > -np.inf) else None
        return winners

    @property
    def best(self) -> str:
        """The algorithm whose chosen configuration validates best, the first of equal ones."""
        chosen = {group.name: group.score for group in self.chosen().values() if group is not None}
        if not chosen:
            self.choose()  # which says why there is none
        return max(chosen, key=lambda name: chosen[name])

    def choose(self, by: str = "validation") -> Histories:
        """All seeds of each algorithm's best configuration: the highest mean final validation accuracy (lowest loss).

        A configuration that diverged for any seed is never chosen. Only "validation" is offered: see the module's words.
        """
        if by != "validation":
            raise InvalidInput(f'by is {by!r}: configurations are chosen by "validation" only, never by test samples')
        chosen, ranked = self.chosen(), self.ranked()
        left = [name for name, group in chosen.items() if group is None]
        if len(left) == len(chosen):
            raise InvalidInput(f"nothing can be chosen: {why_none(ranked[left[0]])}")
        tried = {name: len(groups) for name, groups in ranked.items()}
        listed = ", ".join(f"{name} {count}" for name, count in tried.items())
        remarks = [f"Each is the best by validation of the configurations tried: {listed}."] if max(tried.values()) > 1 else []
        remarks += [f"Left out: {name}, {why_none(ranked[name])}." for name in left]
        return Histories(tuple(run for group in chosen.values() if group for run in group.runs), (*self.remarks, *remarks))

    def select(self, **wanted: Any) -> Histories:
        """The runs with these values: algorithm and protocol by name, seed, split, any setting; one value or a list of them.

        A run whose algorithm does not use a named setting has no value of it and is left out.
        """
        kept = self.runs
        for name, values in wanted.items():
            if name not in (known := ("algorithm", "protocol", "seed", "split", *setting_names(self._groups))):
                raise unknown("name to select by", name, known)
            asked = list(values) if isinstance(values, list | tuple | set | range | np.ndarray) else [values]
            held = kept
            kept = tuple(run for run in held if any(same(value_of(run, name), each) for each in asked))
            if not kept:
                there = dict.fromkeys(shown(value_of(run, name)) for run in held if value_of(run, name) is not None)
                listed = f"they have {', '.join(there)}" if there else "their algorithms do not use it"
                raise InvalidInput(f"no run has {name} {', '.join(shown(each) for each in asked)}: {listed}")
        return Histories(kept, self.remarks)

    def table(self) -> list[dict[str, Any]]:
        """One record per run and evaluated round, with every setting that an algorithm uses (None for those that do not)."""
        used = [name for name in setting_names(self._groups) if any(value_of(run, name) is not None for run in self.runs)]
        splits = ["split"] if any(run.split is not None for run in self.runs) else []
        records = []
        for run in self.runs:
            what = {name: value_of(run, name) for name in ("algorithm", "protocol", *used, "seed", *splits)}
            records += [what | record for record in run.table()]
        return records

    def to_json(self) -> str:
        """Full precision: runs[i].{algorithm,settings,protocol,seed,rounds,statistics,...}, chosen, notes; not by client."""
        runs = []
        for run in self.runs:
            columns = {name: plain(getattr(run, name)) for name in COLUMNS[self.task]}
            what = {"algorithm": run.algorithm.name, "settings": named_settings(run.settings, run.algorithm), "seed": run.seed}
            what |= {} if run.split is None else {"split": run.split}
            ends = {"diverged": run.diverged, "interrupted": run.interrupted}
            runs.append(what | {"protocol": asdict(run.protocol), "rounds": run.rounds.tolist(), "statistics": columns} | ends)
        chosen = {name: group and {"settings": group.settings, "seeds": group.seeds} for name, group in self.chosen().items()}
        return json.dumps({"runs": runs, "chosen": chosen, "notes": list(self.notes)}, indent=2)

    def plot(self, path: str | Path | None = None) -> Path:
        """Draw each algorithm's accuracy (regression: loss) over rounds, as chosen by validation, worst to best seed as a band.

        A file that ends in .png, .svg or .pdf; without one, training.png in the current folder. Returns where it is.
        """
        return write_file("draw histories", self, "training.png" if path is None else path)

    @property
    def title(self) -> str:
        """What was tried, and the settings that all share, in one line."""
        return title_of(self.groups())

    @property
    def notes(self) -> tuple[str, ...]:
        """How the chosen ones were chosen, and what a fair reader should know."""
        return (*self.remarks, *comparison_notes(self.ranked(), self.chosen()), *client_notes(self.runs[0]))

    def __str__(self) -> str:
        lines = configuration_lines(self.ranked(), self.chosen())
        return "\n".join([*folded(self.title), "", *lines, *self.notes])

    __repr__ = __str__


def same(held: Any, asked: Any) -> bool:
    """Whether a value is the one asked for, numbers up to rounding: grids come from powers and spacings."""
    if any(isinstance(each, str) or each is None for each in (held, asked)):
        return bool(held == asked)
    return bool(np.isclose(held, asked, rtol=1e-9, atol=0))
