"""Features of tables that lie on several nodes: one recipe for all, from sums that nodes send.

On one machine the training rows say by what features are centred and scaled, which levels a
category has, and which columns serve no model (`fedasym.data.fields`). Here every node says this of
its own rows, and the server adds it up, in up to three steps before the introduction:

look: what the cells of each column are, and whether they describe samples, clients or nothing.
sums: of each number its count, mean and sum of squares about it; of each category the counts of its
    levels, and of classes their names, where the owner's policy lets these words leave, each with
    at least `least-rows` rows; rarer ones are counted together.
products: of the standardised features, for those that others determine; not where a run names all.

The recipe is that of one machine to rounding, but for levels that are rare on a node.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.cells import CellKind, Cells, Target, cell_numbers, read_levels
from fedasym.data.fields import FLAT_SHARE, choose_levels, drop_combinations, name_apart
from fedasym.data.recipe import ABSENT, Feature, LeftOut, Recipe, TableColumn
from fedasym.data.roles import LEFT_ROLES, ROLE_KINDS, SHARING, Reason, Role
from fedasym.deploy.flower.messages import (
    MALFORMED,
    ColumnLook,
    Fault,
    LevelCounts,
    NumberSums,
    TableLook,
    TableSums,
    Trouble,
    array_in,
    arrays_in,
    config_in,
    log,
    parse_description,
    report_as,
)

NUMERIC = (CellKind.NUMBER, CellKind.WHOLE, CellKind.DATE)  # cells of numbers
WIDEST = 300  # features up to which products are asked for
OWN_LENGTH = 1e-6  # of a column that must be its own: products have half of the digits
RECIPE_KEY, CLASSES_KEY, ROLES_KEY = "recipe", "class-names", "roles"
LOOK, SUMS, PRODUCTS = "look", "sums", "products"


class Asked(NamedTuple):
    """What a message asks of a table; with a recipe, for work."""

    step: str = LOOK
    roles: Mapping[str, Role] | None = None
    recipe: Recipe | None = None
    classes: tuple[Any, ...] | None = None


class TableAnswer(NamedTuple):
    """What a node answers before there is a recipe."""

    config: dict[str, Any]
    arrays: dict[str, NDArray[np.float64]] | None = None


def read_asked(content: RecordDict) -> Asked:
    """What a message asks of a node's table."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        told = config_in(content) if content.config_records else {}
        roles = None
        if ROLES_KEY in told:
            held = json.loads(told[ROLES_KEY])
            roles = {str(name): Role(str(kind), None, True, bool(f)) for name, kind, f in held}
        recipe = Recipe.from_json(told[RECIPE_KEY]) if RECIPE_KEY in told else None
        classes = tuple(json.loads(told[CLASSES_KEY])) if CLASSES_KEY in told else None
        return Asked(str(told.get("step", LOOK)), roles, recipe, classes)


def vary_within(cells: Cells, owner: NDArray[np.intp]) -> tuple[bool, bool]:
    """Whether a column varies within some client, and whether any client has two rows of it."""
    there = ~cells.missing
    if cells.kind in (CellKind.EMPTY, CellKind.LISTS) or not there.any():
        return False, False
    clients = owner[there]
    values = np.unique(np.asarray(cells.values.drop_nulls().to_list()), return_inverse=True)[1]
    order = np.lexsort((values, clients))
    same = np.diff(clients[order]) == 0
    return bool((np.diff(values[order])[same] != 0).any()), bool(same.any())


def sum_numbers(cells: Cells, least: int) -> NumberSums:
    """Count, mean and squares of the cells that are there; fewer than `least` are not told."""
    values = cell_numbers(cells)
    x = values[~np.isnan(values)]
    x = x if x.size >= least else x[:0]
    mean = float(x.mean()) if x.size else 0.0
    first = None
    if cells.kind is CellKind.DATE and x.size:
        year = np.datetime64(int(np.floor(x.min())), "D").astype("datetime64[Y]")
        first = float(year.astype("datetime64[D]").astype(int))  # no row's own day
    squares = float(np.sum((x - mean) ** 2))
    return NumberSums(
        count=x.size, missing=values.size - x.size, mean=mean, squares=squares, first=first
    )


def count_levels(cells: Cells, least: int) -> LevelCounts:
    """Rows of the levels that have so many, and of all others together; missing ones are told."""
    counts = Counter(ABSENT if each is None else each for each in read_levels(cells))
    told = {level: n for level, n in counts.items() if n >= least or level == ABSENT}
    return LevelCounts(levels=told, rare=sum(counts.values()) - sum(told.values()))


# On the server: what the nodes say, added up.

Reading = Callable[[int, RecordDict], Any]
Ask = Callable[
    [Mapping[int, Mapping[str, Any]], Reading], tuple[dict[int, Any], dict[int, Trouble]]
]


class Preparation:
    """The recipe of a run whose nodes have tables: none yet, or made of what they said.

    rules: how the run config wants tables read (`read_rules`). least: nodes that it takes.
    """

    def __init__(self, rules: Mapping[str, Any], least: int) -> None:
        self.rules, self.least = rules, least
        self.recipe: Recipe | None = None
        self.classes: tuple[Any, ...] | None = None
        self.looks: dict[int, TableLook] = {}

    @property
    def words(self) -> dict[str, Any]:
        """What every message says of it."""
        told = {} if self.recipe is None else {RECIPE_KEY: self.recipe.to_json()}
        return told | ({} if self.classes is None else {CLASSES_KEY: json.dumps(self.classes)})

    def introduce(
        self, new: Sequence[int], known: int, ask: Ask, read: Reading
    ) -> tuple[dict[int, Any], dict[int, Trouble]]:
        """What new nodes say of themselves, read by `read`, and what is wrong with which.

        Nodes with tables look at them first, and wait until there are enough for a recipe.
        """
        self.looks = {node: look for node, look in self.looks.items() if node in new}

        def listen(node: int, content: RecordDict) -> Any:
            if content.config_records and LOOK in config_in(content):
                return parse_description(TableLook, content, LOOK)
            return read(node, content)

        said, troubles = ask({n: self.words for n in new if n not in self.looks}, listen)
        self.looks |= {n: each for n, each in said.items() if isinstance(each, TableLook)}
        told = {node: each for node, each in said.items() if node not in self.looks}
        if self.recipe is None and self.looks and len(self.looks) + len(told) + known >= self.least:
            more, wrong = self.fit(ask, read)
            return told | more, troubles | wrong
        return told, troubles

    def fit(self, ask: Ask, read: Reading) -> tuple[dict[int, Any], dict[int, Trouble]]:
        """Make the recipe of what the nodes with tables say; then they introduce themselves."""
        looks, self.looks = self.looks, {}
        roles, left = combine_looks(list(looks.values()), self.rules)
        listed = [(name, role.kind, role.fixed) for name, role in roles.items()]
        message = {"step": SUMS, ROLES_KEY: json.dumps(listed)}
        sums, troubles = ask(
            dict.fromkeys(looks, message), lambda _, c: parse_description(TableSums, c, SUMS)
        )
        check_sums(sums, roles, troubles)
        if not sums:
            return {}, troubles
        self.classes = combine_classes(list(sums.values()), self.rules)
        recipe, fixed = combine_sums(list(sums.values()), list(looks.values()), roles, self.rules)
        recipe = replace(recipe, left=(*left, *recipe.left))
        if not fixed.all() and 1 < len(fixed) <= WIDEST:
            recipe, wrong = self.drop_determined(recipe, fixed, list(sums), ask)
            troubles |= wrong
        if not recipe.features:
            raise InvalidInput("no column is left to make features of: name them in features")
        if self.rules["scale"] == "none":
            plain = [replace(each, centre=0.0, spread=1.0) for each in recipe.features]
            recipe = replace(recipe, features=tuple(plain))
        self.recipe = recipe
        for line in recipe.describe(flags=False).splitlines():
            log.info("%s", line)
        there = [node for node in sums if node not in troubles]
        told, wrong = ask(dict.fromkeys(there, self.words), read)
        return told, troubles | wrong

    def drop_determined(
        self, recipe: Recipe, fixed: NDArray[np.bool_], nodes: Sequence[int], ask: Ask
    ) -> tuple[Recipe, dict[int, Trouble]]:
        """The recipe without features that others determine, by products of all nodes."""
        p = len(recipe.features)
        self.recipe = recipe
        message = {**self.words, "step": PRODUCTS}
        self.recipe = None

        def products(_: int, content: RecordDict) -> NDArray[np.float64]:
            return array_in(arrays_in(content)[PRODUCTS].data, (p, p)).astype(np.float64)

        sent, troubles = ask(dict.fromkeys(nodes, message), products)
        values, vectors = np.linalg.eigh(np.sum([np.zeros((p, p)), *sent.values()], axis=0))
        rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T  # with the same products
        alike = np.vstack([rows, np.zeros((2, p))])
        left: list[LeftOut] = list(recipe.left)
        features, columns = drop_combinations(
            list(recipe.features), list(recipe.columns), alike, fixed, left, OWN_LENGTH
        )
        found = replace(recipe, features=tuple(features), columns=tuple(columns), left=tuple(left))
        return (found if sent else recipe), troubles


def check_sums(
    sums: dict[int, TableSums], roles: Mapping[str, Role], troubles: dict[int, Trouble]
) -> None:
    """Leave out nodes whose sums are not of the columns that were asked for."""
    numbers = {name for name, role in roles.items() if role.kind != "category"}
    for node, each in list(sums.items()):
        counted = {one.count + one.missing for one in each.numbers.values()}
        counted |= {sum(one.levels.values()) + one.rare for one in each.categories.values()}
        known = (set(each.numbers), set(each.categories)) == (numbers, set(roles) - numbers)
        if not known or not counted <= {each.training} or not each.training:
            troubles[node] = Trouble("its sums are not of the columns asked for", permanent=True)
            del sums[node]


def combine_looks(
    looks: Sequence[TableLook], rules: Mapping[str, Any]
) -> tuple[dict[str, Role], list[LeftOut]]:
    """Roles of the columns that all nodes have, and what is left out; as most rows have it."""
    names = [name for name in looks[0].columns if all(name in look.columns for look in looks)]
    named = rules["features"] is not None
    roles: dict[str, Role] = {}
    left: list[LeftOut] = []
    for name in names:
        seen = [(look.rows, look.columns[name]) for look in looks]
        words = rules["roles"].get(name, ())
        reasons = [LEFT_ROLES[word] for word in words if word in LEFT_ROLES]
        fixed = named or bool(words)
        kind = next((word for word in words if word in ROLE_KINDS), None)
        if not reasons and kind is None:
            kind, reasons = decide_role(name, seen, fixed)
        if reasons or kind is None:
            left.append(LeftOut(name, reasons[0] if reasons else Reason.EMPTY))
            continue
        constant = not any(c.varies for _, c in seen) and any(c.repeats for _, c in seen)
        personal = next((SHARING[word] for word in words if word in SHARING), not constant)
        roles[name] = Role(kind, None, personal, fixed)
    return roles, left


def decide_role(
    name: str, seen: Sequence[tuple[int, ColumnLook]], fixed: bool
) -> tuple[str | None, list[Reason]]:
    """Whether a column is of numbers or categories, or why it serves no model."""
    told = {look.cells for _, look in seen} - {CellKind.EMPTY.value}
    kinds = {"number" if each in NUMERIC else "category" for each in told}
    if not told:
        return None, [Reason.EMPTY]
    if CellKind.LISTS.value in told:
        return None, [Reason.LISTS]
    if len(kinds) > 1 or (CellKind.DATE.value in told and len(told) > 1):
        raise InvalidInput(
            f"column {name!r} has {' and '.join(sorted(told))} cells on different nodes: name its"
            f" role in the run config, such as roles='{name}=category', or leave it out"
        )
    rows = sum(count for count, _ in seen)
    for reason in (Reason.IDENTIFIER, Reason.NESTED, Reason.DATE):
        if 2 * sum(count for count, look in seen if look.reason == reason.value) > rows:
            return (kinds.pop(), []) if fixed else (None, [reason])
    return kinds.pop(), []


def combine_classes(sums: Sequence[TableSums], rules: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """All classes that nodes may name, in order; None where they are said, or there are none."""
    if rules["classes"] is not None or decide_task(sums, rules) == "regression":
        return None
    names = {name for each in sums for name in each.classes or ()}
    if len({isinstance(name, str) for name in names}) > 1:
        raise InvalidInput("the label has words on some nodes and numbers on others: say classes")
    return tuple(sorted(names)) or None


def decide_task(sums: Sequence[TableSums], rules: Mapping[str, Any]) -> str:
    """As the run says, or as on one machine: two whole numbers are classes, more are numbers."""
    if rules["task"] or rules["classes"] is not None:
        return str(rules["task"] or "classification")
    names = {name for each in sums for name in each.classes or ()}
    plain = all(each.label_kind in NUMERIC for each in sums)
    if any(each.task == "regression" for each in sums) or (plain and len(names) > 2):
        return "regression"
    return "classification"


def combine_sums(
    sums: Sequence[TableSums],
    looks: Sequence[TableLook],
    roles: Mapping[str, Role],
    rules: Mapping[str, Any],
) -> tuple[Recipe, NDArray[np.bool_]]:
    """The recipe of all nodes' training rows, standardised, and which features stay anyway."""
    columns: list[TableColumn] = []
    features: list[Feature] = []
    fixed: list[bool] = []
    left: list[LeftOut] = []
    for name, role in roles.items():
        fit = fit_levels_of if role.kind == "category" else fit_numbers_of
        column, parts = fit(name, sums, role, rules)
        used = [each for each in parts if role.fixed or each.spread > 0]
        if not any(each.part != "missing" or role.fixed for each in used):
            left.append(LeftOut(name, Reason.CONSTANT))
            continue
        columns.append(column)
        features += [replace(each, spread=each.spread or 1.0) for each in used]
        fixed += [role.fixed] * len(used)
    filled: dict[str, int] = {}
    for each in sums:
        for name, count in each.filled.items():
            filled[name] = filled.get(name, 0) + count
    kinds = {each.label_kind for each in sums}
    values = max(each.label_values for each in sums)
    asked = bool(rules["task"]) or rules["classes"] is not None
    kind = kinds.pop() if len(kinds) == 1 else CellKind.NUMBER.value
    target = Target((rules["label"],), kind, values, decide_task(sums, rules), asked)
    whole = all(look.client_kind == "whole" for look in looks)
    totals = {
        name: sum(getattr(each, name) for each in sums) for name in ("rows", "training", "dropped")
    }
    recipe = Recipe(
        rules["client"], "whole" if whole else "text", target, tuple(columns),
        tuple(name_apart(features)), tuple(left), scale=rules["scale"], missing=rules["missing"],
        intercept=rules["intercept"], **totals, filled=filled,
    )  # fmt: skip
    return recipe, np.array(fixed, bool)


def fit_numbers_of(
    name: str, sums: Sequence[TableSums], role: Role, rules: Mapping[str, Any]
) -> tuple[TableColumn, list[Feature]]:
    """A column of numbers, and its features by the means and squares of all nodes."""
    parts = [each.numbers[name] for each in sums]
    there, absent = sum(each.count for each in parts), sum(each.missing for each in parts)
    n = there + absent
    mean = sum(each.count * each.mean for each in parts) / max(there, 1)
    squares = sum(each.squares + each.count * (each.mean - mean) ** 2 for each in parts)
    days = [each.first for each in parts if each.first is not None]
    origin = min(days, default=0.0)
    mean -= origin
    power = squares / n + (0.0 if rules["intercept"] else mean**2)
    flat = squares / n <= FLAT_SHARE**2 * (squares / n + mean**2)
    spread = 0.0 if flat else float(np.sqrt(power))
    column = TableColumn(name, "date" if days else "number", fill=mean, origin=origin)
    centre = mean if rules["intercept"] else 0.0
    value = Feature(name, name, centre=centre, spread=spread, personal=role.personal)
    features = [value if spread else replace(value, personal=True)]
    if rules["missing"] == "indicator" and absent:
        features.append(indicator(f"{name} missing", name, "missing", absent / n, role, rules))
    return column, features


def indicator(
    called: str, name: str, part: str, share: float, role: Role, rules: Mapping[str, Any],
    level: str | None = None,
) -> Feature:  # fmt: skip
    """A feature of zeros and ones with this share of ones."""
    centre = share if rules["intercept"] else 0.0
    spread = float(np.sqrt(share * (1 - share))) if rules["intercept"] else float(np.sqrt(share))
    varies = 0 < share < 1
    return Feature(called, name, part, level, centre, spread if varies else 0.0, role.personal)


def fit_levels_of(
    name: str, sums: Sequence[TableSums], role: Role, rules: Mapping[str, Any]
) -> tuple[TableColumn, list[Feature]]:
    """A category, and the indicators of its levels by the counts of all nodes."""
    counts: dict[str, int] = {}
    unlisted = sum(each.categories[name].rare for each in sums)
    for each in sums:
        for level, count in each.categories[name].levels.items():
            counts[level] = counts.get(level, 0) + count
    n = sum(counts.values()) + unlisted
    absent = any(each.filled.get(name, 0) for each in sums)
    column, parts = choose_levels(name, counts, unlisted, absent, role, rules["intercept"])
    listed = sum(counts[level] for level in column.levels)
    rows = [n - listed if each.part == "other" else counts[each.level or ""] for each in parts]
    return column, [
        indicator(each.name, name, each.part, count / n, role, rules, each.level)
        for each, count in zip(parts, rows, strict=True)
    ]
