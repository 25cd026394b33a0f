"""A recipe in words: one short paragraph, which commands print before their answer."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from fedasym.data.tables.roles import Reason

if TYPE_CHECKING:
    from fedasym.data.tables.recipe import LeftOut, Recipe, Target

MOST = 12  # names that are listed in full
WIDTH = 100
WHY = {
    Reason.IDENTIFIER: ("identifier", "identifiers"),
    Reason.CONSTANT: ("constant", "constant"),
    Reason.DATE: ("dates", "dates"),
    Reason.EMPTY: ("empty", "empty"),
    Reason.LISTS: ("lists", "lists"),
    Reason.IGNORED: ("as you say", "as you say"),
}
FLAGS = {Reason.DATE: "--dates number takes them"}


def describe_recipe(recipe: Recipe, flags: bool = True) -> str:
    """The label's line, then the features, what is left out, and what was missing.

    flags: whether to name the flags of the command line that change it.
    """
    parts = [
        describe_features(recipe),
        describe_sharing(recipe),
        describe_left(recipe, flags),
        *(describe_nested(recipe)),
        describe_missing(recipe),
        "With an intercept." if recipe.intercept else "Without an intercept.",
    ]
    text = " ".join(part for part in parts if part)
    return describe_target(recipe.target, flags) + "\n" + fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def describe_target(target: Target, flags: bool = True) -> str:
    """What the label was taken for, and how to say otherwise.

    >>> from fedasym.data.tables.recipe import Target
    >>> describe_target(Target(("score",), "whole", 6, "regression"))
    "label 'score' has 6 whole numbers, taken as numbers: --task classification takes them as classes"
    """
    if len(target.columns) > 1:
        return f"labels {join_names(list(target.columns), quoted=True)} have numbers"
    name, classes = target.columns[0], target.task == "classification"
    kind = {"whole": "whole number", "number": "number", "boolean": "boolean value"}.get(target.kind, "word")
    held = f"{target.values} {kind}{'' if target.values == 1 else 's'}"
    if target.kind == "number" and not classes:
        return f"label {name!r} has numbers"
    text = f"label {name!r} has {held}, taken as {'classes' if classes else 'numbers'}"
    if target.asked:
        return text + ", as you say"
    if target.kind == "whole" and flags:
        other = ("regression", "numbers") if classes else ("classification", "classes")
        return text + f": --task {other[0]} takes them as {other[1]}"
    return text


def describe_features(recipe: Recipe) -> str:
    """How many features, and which."""
    count = len(recipe.features)
    how = "as they are" if recipe.scale == "none" else f"centred and scaled by {recipe.training} training rows"
    if recipe.scale != "none" and not recipe.intercept:
        how = f"scaled by {recipe.training} training rows"
    return f"{count} feature{'' if count == 1 else 's'}, {how}: {join_names(list(recipe.names))}."


def describe_sharing(recipe: Recipe) -> str:
    """Which features serve the shared model only."""
    shared = [feature.name for feature in recipe.features if not feature.personal]
    if not shared:
        return ""
    return f"For the shared model only (constant within clients, or as you say): {join_names(shared)}."


def describe_left(recipe: Recipe, flags: bool = True) -> str:
    """What was left out, by reason."""
    by_reason: dict[Reason, list[LeftOut]] = {}
    for each in recipe.left:
        by_reason.setdefault(each.reason, []).append(each)
    parts = []
    for reason, entries in by_reason.items():
        if reason is Reason.NESTED:
            continue
        if reason is Reason.COMBINATION:
            parts += [f"{each.name} (determined by {join_names(list(each.of), 4)})" for each in entries[:MOST]]
            continue
        names = join_names([each.name or "''" for each in entries])
        remedy = f"; {FLAGS[reason]}" if flags and reason in FLAGS else ""
        parts.append(f"{names} ({WHY[reason][len(entries) > 1]}{remedy})")
    return f"Left out: {'; '.join(parts)}." if parts else ""


def describe_nested(recipe: Recipe) -> list[str]:
    """Groups within clients, and what they would explain."""
    texts = []
    for each in recipe.nested:
        text = f"{each.column}: {each.groups} groups within the clients, left out"
        if each.explained is not None:
            text += f"; {each.explained:.0%} of the label's variance within clients is between them"
        texts.append(text + ".")
    return texts


def describe_missing(recipe: Recipe) -> str:
    """Rows that were dropped, and cells that were filled."""
    parts = []
    if recipe.dropped:
        rows = f"{recipe.dropped} of {recipe.rows} rows"
        parts.append(f"{rows} with a missing value {'was' if recipe.dropped == 1 else 'were'} dropped.")
    if recipe.filled:
        parts.append(f"Missing cells filled: {join_names([f'{name} {count}' for name, count in recipe.filled.items()])}.")
    return " ".join(parts)


def join_names(names: list[str], most: int = MOST, quoted: bool = False) -> str:
    """Names with commas, the first few of many.

    >>> join_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = [repr(name) if quoted else name for name in names[:most]]
    rest = len(names) - most
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
