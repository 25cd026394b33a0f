"""The reference of experiment files, from their JSON schema; settings mean what the flags of
`fedasym train` say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from builder.commands import all_commands
from builder.docstrings import escaped
from fedasym.experiments import Experiment

INTRO = """An experiment file is TOML. `fedasym run FILE` runs it, and `fedasym run --schema` prints the JSON schema from which
this page is written, for editors. [How to run experiments](../how-to/experiments.md) begins with one."""
TOP = ""
TABLES = {
    "Data": "data",
    "Synthetic": "data.synthetic",
    "SettingsTable": "settings",
    "Budget": "settings.privacy",
    "Trials": "trials",
    "Gains": "gains",
}


WORLD = (
    "task",
    "radius",
    "noise",
    "norm",
    "centre",
    "classes",
    "flips",
    "aspect",
    "dimension",
    "seed",
)
WORDS = {
    TOP: {
        "name": "Of its run folder.",
        "about": "What it is, in words; it stands in reports.",
        "data": "Left out, the federation is given to fa.run.",
        "algorithms": "Which are compared.",
        "settings": "What every run is told.",
        "trials": "How often what was chosen is repeated.",
        "gains": "What personalization gains, epoch by epoch; left out, nothing is run for it.",
        "pieces": (
            "fine: the least that a crash can cost is one server step, seed or split; coarse: fewer"
            " and larger calls."
        ),
    },
    "data": {
        "synthetic": "Drawn clients.",
        "task": "Of `file`: whether its labels are classes or numbers.",
    },
    "data.synthetic": {
        "clients": "How many; 100, in Synthetic(alpha, beta) 30.",
        "samples": "Of each client: all of its training, validation and test samples.",
        "alpha": "Synthetic(alpha, beta) of the FedProx article: spread of the clients' weights.",
        "beta": "And of the means of their features.",
        "positions": "Makes every sample a sequence of 1 to so many positions.",
        "split": "Shares of training, validation and test.",
    },
    "trials": {
        "seeds": "Of training; n stands for 1 to n.",
        "splits": "Reshuffles of training and validation samples.",
    },
    "gains": {
        "algorithms": "Those that fine-tune a shared model.",
        "epochs": 'How long a client fine-tunes; "batch" is a single batch.',
        "seeds": "Of training; n stands for 1 to n.",
    },
}


def page(note: str) -> str:
    """The whole page."""
    whole, flags = (
        Experiment.model_json_schema(),
        {words: said(words) for words in ("train", "simulate")},
    )
    words = WORDS | {
        "settings": flags["train"] | {"privacy": "Clip updates and add noise to every training."},
        "settings.privacy": flags["train"]
        | {"accountant": "Of the library dp-accounting: Renyi divergences, or loss distributions."},
    }
    words["data.synthetic"] = {name: flags["simulate"][name] for name in WORLD} | words[
        "data.synthetic"
    ]
    parts = ["# Experiment files", note, INTRO, "## At the top", *table(whole, words[TOP])]
    for name, where in TABLES.items():
        part = whole["$defs"][name]
        parts += [f"## [{where}]", escaped(part.get("description", "")), *table(part, words[where])]
    return "\n\n".join(parts) + "\n"


def table(part: dict[str, Any], words: dict[str, str]) -> Iterator[str]:
    """The fields of a table: type, default and meaning."""
    required = part.get("required", [])
    rows = []
    for name, field in part["properties"].items():
        default = "required" if name in required else shown(field.get("default"))
        meaning = escaped(words.get(name) or field.get("description", ""))
        rows.append(f"| `{name}` | {meaning} | {kind(field)} | {default} |")
    yield "\n".join(
        ["| field | meaning | takes | by default |", "| --- | --- | --- | --- |", *rows]
    )


def shown(default: Any) -> str:
    """A default as a file would write it; none is a word."""
    return "" if default in (None, "") or isinstance(default, dict) else f"`{json.dumps(default)}`"


def kind(field: dict[str, Any]) -> str:
    """A field's type in words."""
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "a table",
    }
    if "$ref" in field:
        name = TABLES.get(field["$ref"].rsplit("/", 1)[-1], "")
        return f"the table [{name}](#{name.replace('.', '')})"
    if "enum" in field or "const" in field:
        return " or ".join(
            f"`{json.dumps(each)}`" for each in field.get("enum", [field.get("const")])
        )
    if "anyOf" in field:
        return " or ".join(
            dict.fromkeys(kind(each) for each in field["anyOf"] if each.get("type") != "null")
        )
    if field.get("type") == "array":
        return f"a list, each {kind(field['items'])}" if "items" in field else "a list"
    return words.get(str(field.get("type")), "a table")


def said(words: str) -> dict[str, str]:
    """What the flags of a command mean, by the names of settings."""
    taken = dict(all_commands())[words].assemble_argument_collection(parse_docstring=True)
    return {
        each.names[0].lstrip("-").replace("-", "_"): " ".join((each.parameter.help or "").split())
        for each in taken
    }
