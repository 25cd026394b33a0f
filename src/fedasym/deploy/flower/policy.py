"""What a node's owner allows: columns, words, classes and algorithms; and a node's clients, read
that way from a table or a saved federation.

A run config is a wish of whoever starts the run. The owner's policy says how far it goes: which
columns may be labels, features and clients, whose words may leave the node, how many classes a
label may have, which algorithms may run. It is a TOML file beside the data, or stands in the node
config. What it does not name has a safe default, and a run that asks for more hears a code.

Where the samples are is said on the node alone; they may be one client's or several clients'. Names
of classes are said by people, in the run config, in the node config or in a saved federation: a
node never takes them from the cells of a column, which a run config could name at will.

A policy is read by the app, so it binds apps that keep to it. Which apps these are is the owner's
decision, too: `fedasym node` runs those alone whose digest the policy lists
(`fedasym.deploy.flower.grid`).
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, one_of, path_of, read_list
from fedasym.core.numbers import whole
from fedasym.data.assembly import FieldNames
from fedasym.data.cells import CellKind, Cells, read_cells, read_names
from fedasym.data.federation import Federation
from fedasym.data.fields import (
    Labels,
    Names,
    check_cells,
    read_columns,
    read_label_column,
    read_split,
    select_rows,
    take_names,
)
from fedasym.data.frames import read_polars
from fedasym.data.recipe import Recipe
from fedasym.data.roles import ROLE_KINDS, Role, check_roles, find_reason
from fedasym.data.samples import TASKS, Owners, owners_of
from fedasym.data.splits import TRAIN
from fedasym.deploy.flower import parse_classes, read_rules
from fedasym.deploy.flower.messages import (
    ColumnLook,
    Fault,
    LevelCounts,
    NodeFault,
    NumberSums,
    TableLook,
    TableSums,
    report_as,
)
from fedasym.deploy.flower.preparation import (
    LOOK,
    PRODUCTS,
    SUMS,
    Asked,
    TableAnswer,
    count_levels,
    sum_numbers,
    vary_within,
)

WORDS = (CellKind.TEXT, CellKind.BOOLEAN)  # cells that are words, whatever they stand for
ENDING = ".policy.toml"  # of the file beside the data: north.csv has north.policy.toml
ANY = "*"  # every column, every app
# what the file says of the data, beside the rules
PLACES = ("data-path", "heads-path", "label", "client", "classes", "split", "task", "encoding")
PREFIX = "allow-"  # of a rule in a node config


@dataclass(frozen=True)
class Policy:
    """What runs may do with a node's data.

    apps: digests of apps that may run, where `fedasym node` starts the node; "*": any.
    labels, clients: columns that a run may name as such. features: columns of numbers that may be
        features; empty: those that the run names itself. categories: columns whose words (levels,
        classes) may be told to the server, where each has `least_rows` rows.
    most_classes: of a label. least_rows: training rows from which on sums of them may leave.
    algorithms: names that may run, `advise` too; empty: all of the package's own.

    >>> policy = Policy(labels=("score",), algorithms=("rtfa",))
    >>> policy.allows("labels", "score"), policy.allows("labels", "patient")
    (True, False)
    """

    apps: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("label",)
    clients: tuple[str, ...] = ("client",)
    features: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    most_classes: int = 100
    least_rows: int = 5

    def allows(self, rule: str, name: str) -> bool:
        """Whether a list of the policy has a name, or all."""
        listed = getattr(self, rule)
        return ANY in listed or name in listed

    def limit_classes(self, count: int) -> None:
        """Refuse a label with more values than the owner allows."""
        if count > self.most_classes:
            told = f"the label has {count} classes: most-classes is {self.most_classes}"
            raise NodeFault(Fault.NOT_ALLOWED, told)

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Policy:
        """The policy of a node: the file that its `policy` names or that is beside its data, and
        the rules in the node config itself, such as allow-labels="score", which go first.
        """
        path = policy_file(node_config)
        told = {} if path is None else read_policy(path)[0]
        rules = {
            name.removeprefix(PREFIX): value
            for name, value in node_config.items()
            if name.startswith(PREFIX) or name in ("most-classes", "least-rows")
        }
        policy = cls.read(told | rules)
        own = {"labels": "label", "clients": "client"}  # what the owner names there is allowed
        more = {
            rule: (*getattr(policy, rule), node_config[name])
            for rule, name in own.items()
            if isinstance(node_config.get(name), str) and node_config[name]
        }
        return policy if not more else cls(**vars(policy) | more)

    @classmethod
    def read(cls, rules: Mapping[str, Any]) -> Policy:
        """A policy from its rules as a file names them, or with commas as a node config does.

        >>> Policy.read({"most-classes": 10}).most_classes
        10
        """
        known = {each.name.replace("_", "-"): each for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in rules.items():
            one_of("rule of the policy", name, known)
            if isinstance(known[name].default, int):
                values[known[name].name] = whole(name, value, least=1)
                continue
            words = value.split(",") if isinstance(value, str) else value
            listed = read_list(name, words, "give names in a list")
            if not all(isinstance(each, str) for each in listed):
                raise InvalidInput(f"{name} is {value!r}: give names in a list")
            values[known[name].name] = tuple(each.strip() for each in listed if each.strip())
        return cls(**values)


def policy_file(node_config: Mapping[str, Any]) -> Path | None:
    """The file of a node's policy; None where there is none."""
    if named := node_config.get("policy"):
        return path_of("policy", named)
    place = node_config.get("data-path")
    if not isinstance(place, str) or not Path(place).name:
        return None
    beside = Path(place).with_suffix(ENDING)
    return beside if os.path.isfile(beside) else None  # False, and no error, for odd names


def read_policy(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rules in a policy's file, and what it says of the node's data: paths and columns."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise InvalidInput(
            f"policy is {str(path)!r}: it cannot be read: {reason.strerror or reason}"
        ) from None
    except ValueError as reason:
        raise InvalidInput(f"{path}: this is not TOML: {reason}") from None
    rules = {name: value for name, value in told.items() if name not in PLACES}
    try:
        Policy.read(rules)
    except InvalidInput as reason:
        raise reason.at(path) from None
    return rules, {name: told[name] for name in PLACES if name in told}


@dataclass(frozen=True)
class NodeTable:
    """The table of a node, with what the run and the owner say of it.

    held: `read_tables`' frame, columns and split. rules: task, classes, scale, missing, roles,
    dates, intercept. part: which clients of the file are the node's. renamed: the node's own names
    of columns, by the run's.
    """

    held: Mapping[str, Any]
    rules: Mapping[str, Any]
    policy: Policy
    part: tuple[int, int] = (0, 1)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def open(self, wanted: str | None = None) -> OpenTable:
        """Its cells; wanted: what clients' names are, as a recipe has it."""
        columns = ("frame", "label", "client", "features", "split")
        names = Names.read(*(self.held[name] for name in columns))
        frame = read_polars(self.held["frame"], strict=(names.client, *names.labels))
        split = self.held["split"]
        first, step = self.part
        who, kind = read_names(frame[names.client], names.client, wanted)
        if step > 1:
            mine = set(list(dict.fromkeys(name for name in who if name is not None))[first::step])
            rows = np.flatnonzero([name in mine for name in who])
            if not rows.size:
                fault = f"partition-id is {first}, and the file has fewer clients; start fewer"
                raise NodeFault(Fault.BAD_CONFIGURATION, fault)
            if not isinstance(split, str | None):
                split = np.asarray(split)[rows]
            frame, who = frame[rows], [who[row] for row in rows]
        if frame.height == 0:
            raise InvalidInput("there are no samples: the table has no rows")
        told = {name: "+".join(words) for name, words in self.rules["roles"].items()}
        words = check_roles(told, list(frame.columns), names.taken)
        cells = self.allowed_cells(read_columns(frame, names), names, words)
        outputs = [read_cells(frame[name], name) for name in names.labels]
        return OpenTable(self, names, frame, split, who, kind, cells, outputs, words)

    def allowed_cells(
        self, held: dict[str, Cells], names: Names, words: Mapping[str, Sequence[str]]
    ) -> dict[str, Cells]:
        """The columns that the owner lets be features; refused where the run names another."""
        policy = self.policy
        if names.chosen is None and not policy.features:
            raise NodeFault(Fault.NO_FEATURES, Fault.NO_FEATURES.meaning)
        found = {}
        for name, cells in held.items():
            own = self.renamed.get(name, name)
            plain = cells.kind not in WORDS or cells.stray is not None
            listed = policy.allows("features", own) or not policy.features
            if self.allows_words(name) or (
                listed and plain and "category" not in words.get(name, ())
            ):
                found[name] = cells
            elif names.chosen is not None:
                told = f"features name {name!r}, and the policy lists it neither among features of"
                raise NodeFault(Fault.NOT_ALLOWED, f"{told} numbers nor among categories")
        return found

    def allows_words(self, name: str) -> bool:
        """Whether the levels of a column, by the run's name, may leave the node."""
        return self.policy.allows("categories", self.renamed.get(name, name))


class OpenTable(NamedTuple):
    """A table whose cells are read."""

    table: NodeTable
    names: Names
    frame: Any
    split: Any
    who: list[Any]
    client_kind: str
    cells: dict[str, Cells]
    outputs: list[Cells]
    words: Mapping[str, Sequence[str]]

    @property
    def known_rows(self) -> NDArray[np.intp]:
        """The rows whose client is known."""
        return np.flatnonzero([name is not None for name in self.who])

    def look(self) -> TableLook:
        """What its columns are."""
        known = self.known_rows
        owner = owners_of(take_names(self.who, known)).owner
        rules = self.table.rules
        columns, used = {}, {}
        for name, cells in self.cells.items():
            mine = cells.take(known)
            varies, repeats = vary_within(mine, owner)
            reason = find_reason(mine, owner, rules["dates"])
            stray = cells.stray is not None and "category" not in self.words.get(name, ())
            kind = CellKind.NUMBER if stray else mine.kind  # refused as such once it is used
            columns[name] = ColumnLook(
                cells=kind.value, reason=reason and reason.value, varies=varies, repeats=repeats
            )
            told = [word for word in self.words.get(name, ()) if word in ROLE_KINDS]
            if reason is None or self.names.chosen is not None:
                used[name] = Role(told[0] if told else "category" if kind in WORDS else "number")
        self.check(self.choose_rows(list(used), used))
        return TableLook(rows=len(self.who), client_kind=self.client_kind, columns=columns)

    def check(self, chosen: ChosenRows) -> None:
        """Refuse now, not once other nodes have answered, labels that will not do."""
        self.classes(chosen)
        if (named := self.table.rules["classes"]) is not None:
            clients, one = take_names(self.who, chosen.rows), np.zeros((len(chosen.rows), 1))
            Federation.from_arrays(
                one, chosen.labels.values, clients, split=chosen.split, classes=named,
                task=chosen.labels.task,
            )  # fmt: skip

    def choose_rows(self, used: Sequence[str], kinds: Mapping[str, Role]) -> ChosenRows:
        """The rows that serve, their labels, clients and split."""
        rules, line = self.table.rules, self.table.held.get("line")
        for name in used:
            worded = kinds[name].kind == "category"
            if name not in self.cells or (worded and not self.table.allows_words(name)):
                raise NodeFault(Fault.NOT_ALLOWED, f"{name!r} is asked for: it is not allowed")
        check_cells(self.cells, kinds, rules["scale"], line)
        rows, dropped, filled = select_rows(
            len(self.who), self.known_rows, self.names, self.outputs, self.cells, used,
            rules["missing"], line,
        )  # fmt: skip
        labels = read_label_column(self.outputs, rules["task"], rules["classes"], rows, line)
        owners = owners_of(take_names(self.who, rows))
        codes = read_split(self.frame, self.split, rows, owners, 0)
        train = np.flatnonzero(codes == TRAIN)
        least = self.table.policy.least_rows
        if train.size < least:
            raise NodeFault(Fault.TOO_FEW_ROWS, f"{train.size} rows train: least-rows is {least}")
        return ChosenRows(rows, labels, owners, codes, train, dropped, filled)

    def sums(self, roles: Mapping[str, Role]) -> TableSums:
        """Sums over the training rows of columns with these roles."""
        chosen = self.choose_rows(list(roles), roles)
        trained = chosen.rows[chosen.train]
        least = self.table.policy.least_rows
        numbers: dict[str, NumberSums] = {}
        categories: dict[str, LevelCounts] = {}
        for name, role in roles.items():
            cells = self.cells[name].take(trained)
            if role.kind == "category":
                categories[name] = count_levels(cells, least)
            else:
                numbers[name] = sum_numbers(cells, least)
        target = chosen.labels.target
        return TableSums(
            rows=len(self.who), training=trained.size, dropped=chosen.dropped,
            filled=chosen.filled, numbers=numbers, categories=categories, label_kind=target.kind,
            label_values=target.values, task=chosen.labels.task, classes=self.classes(chosen),
        )  # fmt: skip

    def classes(self, chosen: ChosenRows) -> list[Any] | None:
        """The names of classes that may be told; None in regression, or where they are said."""
        policy, (label, *_) = self.table.policy, self.names.labels
        if chosen.labels.task == "regression" or self.table.rules["classes"] is not None:
            return None
        if not policy.allows("categories", label):
            raise NodeFault(
                Fault.NO_CLASSES,
                "the labels are classes, and classes is not set: give their number or names in the"
                " run config or in this node's --node-config, list the label among the categories"
                ' of the policy, or say task="regression" where whole numbers are meant as numbers',
            )
        counts = Counter(chosen.labels.values[chosen.train].tolist())
        policy.limit_classes(len(counts))
        return sorted(name for name, n in counts.items() if n >= policy.least_rows)

    def prepare(self, recipe: Recipe, classes: tuple[Any, ...] | None) -> Federation:
        """The node's clients with the features of a recipe."""
        kinds = {column.name: Role(column.kind) for column in recipe.columns}
        used = list(kinds)
        rules = dict(self.table.rules)
        named = rules["classes"] if rules["classes"] is not None else classes
        if recipe.target.task == "classification" and named is None:
            raise NodeFault(Fault.NO_CLASSES, "the classes are named nowhere")
        told = {"task": recipe.target.task, "classes": named, "missing": recipe.missing}
        opened = self._replace(table=replace(self.table, rules=rules | told))
        chosen = opened.choose_rows(used, kinds)
        cells = {name: self.cells[name].take(chosen.rows) for name in used}
        X, _ = recipe.encode(cells)
        ours = recipe.rename(self.names.client, tuple(self.names.labels), self.table.renamed)
        federation = Federation.from_arrays(
            X, chosen.labels.values, take_names(self.who, chosen.rows), split=chosen.split,
            task=recipe.target.task, classes=told["classes"], names=recipe.names,
            personal=recipe.personal, intercept=recipe.intercept, recipe=ours,
        )  # fmt: skip
        self.table.policy.limit_classes(len(federation.classes or ()))
        return federation


class ChosenRows(NamedTuple):
    """Rows that serve, which of them train, how many do not serve, how many cells are filled."""

    rows: NDArray[np.intp]
    labels: Labels
    owners: Owners
    split: NDArray[np.int8]
    train: NDArray[np.intp]
    dropped: int
    filled: dict[str, int]


def answer_table(table: NodeTable, asked: Asked) -> Federation | TableAnswer:
    """A node's part of the preparation, or its clients once there is a recipe."""
    if asked.recipe is None:
        opened = table.open()
        if asked.step == SUMS and asked.roles is not None:
            return TableAnswer({SUMS: opened.sums(asked.roles).model_dump_json()})
        return TableAnswer({LOOK: opened.look().model_dump_json()})
    federation = table.open(asked.recipe.client_kind).prepare(asked.recipe, asked.classes)
    if asked.step != PRODUCTS:
        return federation
    X = federation.features[federation.split == TRAIN].astype(np.float64)
    return TableAnswer({PRODUCTS: len(X)}, {PRODUCTS: X.T @ X})


# said for all nodes, or for one
MEANING = ("label", "client", "features", "split", "task", "classes")
SAVED = ".safetensors"  # a federation that its owner saved, with its columns and classes
SYNTHETIC = "synthetic"
DRAWN = 30  # clients of a node without data, or of a simulation
Load = Callable[[Context, Asked], Federation | TableAnswer]


def load_clients(
    node_config: Mapping[str, Any], run_config: Mapping[str, Any], asked: Asked | None = None
) -> Federation | TableAnswer:
    """The clients of a node, read from the file or folder that its `data-path` names, in any format
    of `fedasym.datasets.read`; of a table without a recipe, what it says to make one.

    label, client, features, split, task, classes: as `read` takes them, from the run config for all
        nodes alike; what the node config says goes first. Empty words count as not said; several
        features or classes are separated by commas. What the owner's policy does not allow is
        refused.
    partition-id, num-partitions: take every so many-th client of the file only. data-path
    "synthetic" draws 30 clients, to try things out; so does a simulation, whose nodes have no path.
    Such clients alone have a `truth`. asked: what a message asks of a table.

    >>> first, second = (
    ...     load_clients({"partition-id": k, "num-partitions": 2}, {}) for k in range(2)
    ... )
    >>> len(first), len(second), first.dimension, set(first.clients) & set(second.clients)
    (15, 15, 60, set())
    """
    from fedasym.data import read

    place = node_config.get("data-path", SYNTHETIC if "partition-id" in node_config else None)
    if place is None:
        raise NodeFault(
            Fault.NO_DATA_PATH,
            "data-path is missing: start this node with --node-config 'data-path=\"...\"'",
        )
    with report_as(Fault.BAD_CONFIGURATION):
        options = read_options(node_config, run_config)
        path = path_of("data-path", place)
        policy = Policy.of(node_config)
    if place == SYNTHETIC:
        drawn = draw_trial_clients(options.get("task"))
        return replace(
            partition_of(drawn, node_config),
            truth={"shared": drawn.truth["shared"]} if drawn.truth else None,
        )
    if path.suffix == SAVED:
        federation = read(path)
        check_classes(federation, options.get("classes"))
    else:
        check_columns(policy, node_config, options)
        if (table := find_table(path, options, node_config, run_config, policy)) is not None:
            try:
                return answer_table(table, asked or Asked())
            except InvalidInput as reason:
                raise reason if isinstance(reason, NodeFault) else reason.at(path) from reason
        federation = read(path, **options)
        if federation.task == "classification" and "classes" not in options:
            raise NodeFault(
                Fault.NO_CLASSES,
                "the labels are classes, and classes is not set: give their number or names in the"
                ' run config or in this node\'s --node-config, or task="regression" where whole'
                " numbers are meant as numbers",
            )
    policy.limit_classes(len(federation.classes or ()))
    return replace(partition_of(federation, node_config), truth=None)


def check_columns(
    policy: Policy, node_config: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Refuse columns that the owner does not let be label, client or split."""
    label, client = options.get("label", "label"), options.get("client", "client")
    for rule, name in (("labels", label), ("clients", client)):
        if not policy.allows(rule, name):
            raise NodeFault(
                Fault.NOT_ALLOWED,
                f"the run names the column {name!r}, and the policy does not list it in {rule}",
            )
    if options.get("split", "split") not in ("split", node_config.get("split")):
        raise NodeFault(Fault.NOT_ALLOWED, "split is named by the run: the node config may name it")


def find_table(
    path: Path,
    options: Mapping[str, Any],
    node_config: Mapping[str, Any],
    run_config: Mapping[str, Any],
    policy: Policy,
) -> NodeTable | None:
    """A table of columns with one value a row, whose features are still to be prepared, or None."""
    from fedasym.data.formats import TABLES, find_files, read_tables
    from fedasym.data.frames import has_lists

    sources, kind = find_files(path)
    if kind not in TABLES:
        return None
    named = options.get("features")
    listed = [named] if isinstance(named, str) else named
    label, client = options.get("label", "label"), options.get("client", "client")
    held = read_tables(
        sources, FieldNames(label, client, listed), options.get("split"), 0, options.get("encoding")
    )
    if has_lists(held["frame"], label, client, listed, held["split"], held.get("mask")):
        return None
    with report_as(Fault.BAD_CONFIGURATION):
        rules = read_rules(run_config) | {name: options.get(name) for name in ("task", "classes")}
    theirs = rules["features"]  # the run's names of the columns, where the node has other ones
    renamed = {}
    if listed and theirs and len(listed) == len(theirs):
        renamed = {name: own for name, own in zip(theirs, listed, strict=True) if name != own}
        held |= {"frame": rename_columns(held["frame"], renamed), "features": theirs}
    return NodeTable(held, rules, policy, read_part(node_config), renamed)


def rename_columns(frame: Any, names: Mapping[str, str]) -> Any:
    """A frame whose columns have the run's names in place of its own."""
    check_all = [own for own in names.values() if own not in frame.columns]
    if check_all:
        raise MissingColumn(f"unknown features column {check_all[0]!r}")
    return frame.drop(name for name in names if name in frame.columns).rename(
        {own: name for name, own in names.items()}
    )


def read_part(node_config: Mapping[str, Any]) -> tuple[int, int]:
    """Which clients of the file are this node's: the first, and every so many-th from there."""
    if "partition-id" not in node_config:
        return 0, 1
    first = node_config["partition-id"]
    step = node_config.get("num-partitions", 1)
    if not (isinstance(first, int) and isinstance(step, int) and 0 <= first < step):
        raise NodeFault(
            Fault.BAD_CONFIGURATION,
            f"partition-id is {first!r} of num-partitions {step!r}: it must be a whole number from"
            f" 0 to {step!r} - 1",
        )
    return first, step


def draw_trial_clients(task: str | None) -> Federation:
    """Clients to try things out: classes, or numbers where the task is regression."""
    from fedasym.data import synthetic

    if task == "regression":
        return synthetic(
            task="regression", clients=DRAWN, dimension=20, aspect=0.5, radius=1, noise=0.5
        )
    return synthetic(
        task="classification", clients=DRAWN, dimension=60, aspect=1, centre=4, radius=3, classes=5
    )


def read_options(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> dict[str, Any]:
    """How to read a file: what is said, the node's word first.

    >>> read_options(
    ...     {"label": "score"}, {"label": "y", "features": "age, hours", "classes": "3", "task": ""}
    ... )
    {'label': 'score', 'features': ['age', 'hours'], 'classes': (0, 1, 2)}
    """
    told = {name: node_config.get(name, run_config.get(name)) for name in MEANING}
    told["encoding"] = node_config.get("encoding")  # how a node's own file was saved
    options = {name: value for name, value in told.items() if value not in (None, "", 0)}
    for name in ("label", "client", "features", "split", "task", "encoding"):
        if not isinstance(options.get(name, ""), str):
            raise InvalidInput(f"{name} is {options[name]!r}: give text")
    if "task" in options:
        one_of("task", options["task"], TASKS)
    if "features" in options:
        columns = [each.strip() for each in options["features"].split(",")]
        # formats without columns have one field
        options["features"] = columns if len(columns) > 1 else columns[0]
    if "classes" in options:
        options["classes"] = parse_classes(options["classes"])
    return options


def check_classes(federation: Federation, named: tuple[Any, ...] | None) -> None:
    """Refuse a saved federation with other classes than named; a number stands for 0, 1, ..."""
    if named is None:
        return
    own = federation.classes or ()
    if own != named and (len(own) != len(named) or named != tuple(range(len(named)))):
        raise NodeFault(
            Fault.OTHER_CLASSES,
            f"the saved federation has the classes {own!r}, and the run or node {named!r}",
        )


def partition_of(federation: Federation, node_config: Mapping[str, Any]) -> Federation:
    """Every `num-partitions`-th client from `partition-id` on; by default all of them."""
    first, step = read_part(node_config)
    if step == 1:
        return federation
    if first >= len(federation):
        raise NodeFault(
            Fault.BAD_CONFIGURATION,
            f"partition-id is {first}, and the file has {len(federation)} clients: start fewer"
            " nodes",
        )
    return select_clients(federation, federation.clients[first::step])


def select_clients(federation: Federation, names: Sequence[Any]) -> Federation:
    """The federation of some of its clients."""
    rows = [federation.rows(name) for name in names]
    chosen = np.concatenate(rows)
    return replace(
        federation,
        features=federation.features[chosen],
        labels=federation.labels[chosen],
        clients=tuple(names),
        owner=np.repeat(np.arange(len(names)), [len(each) for each in rows]),
        split=federation.split[chosen],
        mask=None if federation.mask is None else federation.mask[chosen],
        truth=None,
    )
