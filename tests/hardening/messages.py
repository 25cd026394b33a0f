"""What nodes and servers of a federation send each other, as ways in."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from random import Random

import numpy as np

import fedasym
from fedasym.core.errors import InvalidInput
from fedasym.deploy.flower import RunConfiguration, digest_archive, read_rules
from fedasym.deploy.flower.messages import (
    RefusedReply,
    TableLook,
    TableSums,
    Trouble,
    array_in,
    content_of,
    count_in,
    parse_description,
    scores_in,
)
from fedasym.deploy.flower.policy import Policy, read_policy
from fedasym.deploy.flower.preparation import check_sums, combine_looks, combine_sums
from fedasym.deploy.flower.roster import Node, NodeRoster

from .doors import Door
from .mutation import changed_bytes, changed_json
from .samples import array_bytes

INTRODUCTION = {
    "version": fedasym.__version__,
    "synthetic": False,
    "dimension": 3,
    "outputs": 2,
    "task": "classification",
    "clients": ["0" * 16, "1" * 16],
    "samples": [4, 7],
    "tested": 2,
    "validation": 3,
    "test": 5,
}
SCORES = {"num-examples": 5, "accuracy": 0.5, "loss": 1.25}
CONFIG = {
    "rounds": 3,
    "server-step": 0.5,
    "cohort": 0,
    "batch": 8,
    "min-nodes": 2,
    "timeout": 60.0,
    "outlier-bound": 10.0,
    "precision": "float32",
    "protocol": "text",
    "seed": 1,
    "ridge": 0.1,
}
TYPES = ["<f8", "<f4", "<f2", "<i8", "|b1", "<c16", "|O", "<U3", "|V8", "<f16", "[('a', '<f8')]"]
SHAPES = [
    "(3, 2)",
    "(2, 3)",
    "(6,)",
    "()",
    "(3, 2, 1)",
    "(10**12,)",
    "(99999999999999,)",
    "(0, 2)",
    "(-3, 2)",
    "(3, 2",
    "(3.0, 2)",
]


def changed_array(sample: bytes, random: Random) -> bytes:
    """Another type, shape or length in the header, numbers that are none; or any bytes changed."""
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    kind, shape = random.choice(TYPES), random.choice(SHAPES)
    kind = kind if kind[0] == "[" else repr(kind)
    text = (
        f"{{'descr': {kind}, 'fortran_order': {random.choice(['True', 'False'])}, 'shape':"
        f" {shape}}}"
    )
    values = np.array(
        [
            random.choice([0.0, 1.0, np.nan, np.inf, 1e300, -1e-300])
            for _ in range(random.choice([6, 6, 5, 12]))
        ]
    )
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + values.tobytes()


def introduced(_: Path, data: bytes) -> object:
    roster = NodeRoster()
    roster.add(7, Node.of(json.loads(data)))
    return roster.draw([7], seed=0, round_=0, cohort=None)


def scored(_: Path, data: bytes) -> object:
    told = {name: value for name, value in json.loads(data).items() if is_scalar(value)}
    return count_in(told, "num-examples", 5), scores_in(
        told, ("accuracy", "loss"), {"accuracy": 1.0}
    )


def configured(_: Path, data: bytes) -> object:
    told = {name: value for name, value in json.loads(data).items() if is_scalar(value)}
    return RunConfiguration.of("rtfa", told)


LOOK = {
    "rows": 20,
    "client_kind": "text",
    "columns": {
        "age": {"cells": "whole", "reason": None, "varies": True, "repeats": True},
        "sex": {"cells": "text", "reason": None, "varies": True, "repeats": True},
    },
}
SUMS = {
    "rows": 20,
    "training": 16,
    "dropped": 0,
    "filled": {"age": 1},
    "numbers": {"age": {"count": 15, "missing": 1, "mean": 40.5, "squares": 900.0, "first": None}},
    "categories": {"sex": {"levels": {"F": 9, "M": 6}, "rare": 1}},
    "label_kind": "number",
    "label_values": 18,
    "task": "regression",
    "classes": None,
}
RULES = {"label": "score", "missing": "indicator"}


def described(_: Path, data: bytes) -> object:
    """What two nodes say of their tables, the second one anything, made into a recipe."""
    told = json.loads(data)
    looks, sums = (
        [parse_description(kind, content_of(config={name: json.dumps(each)}), name) for each in two]
        for kind, name, two in (
            (TableLook, "look", (LOOK, told.get("look"))),
            (TableSums, "sums", (SUMS, told.get("sums"))),
        )
    )
    rules = read_rules(RULES) | {"classes": None}
    roles, _ = combine_looks(looks, rules)
    troubles: dict[int, Trouble] = {}
    kept = dict(enumerate(sums))
    check_sums(kept, roles, troubles)
    if not kept:
        return troubles
    recipe, _ = combine_sums(list(kept.values()), looks, roles, rules)
    return recipe.to_json()


def allowed(folder: Path, data: bytes) -> object:
    """An owner's policy."""
    path = folder / "north.toml"
    path.write_bytes(data)
    return Policy.read(read_policy(path)[0])


POLICY = b"""data-path = "north.csv"
labels = ["score"]
features = ["age"]
least-rows = 9
"""


def packed() -> bytes:
    """An app as Flower packs it."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", "[project]\nname = 'app'\n")
        archive.writestr("app/task.py", "import fedasym")
        archive.writestr(".info/CONTENT", "app/task.py,0,8")
    return held.getvalue()


def is_scalar(value: object) -> bool:
    """What a run config of Flower can hold."""
    return isinstance(value, bool | str | float) or (isinstance(value, int) and abs(value) < 2**63)


def changed_told(sample: bytes, random: Random) -> bytes:
    """A message as Flower delivers it: always well-formed, with any values."""
    while True:
        changed = changed_json(sample, random)
        try:
            if isinstance(json.loads(changed), dict):
                return changed
        except (ValueError, RecursionError):
            continue


DOORS = [
    Door(
        "Flower array",
        lambda: [array_bytes(np.ones((3, 2))), array_bytes(np.ones((3, 2), "f4"))],
        lambda _, data: array_in(data, (3, 2)),
        changed_array,
        (RefusedReply,),
    ),
    Door(
        "Flower introduction",
        lambda: [json.dumps(INTRODUCTION).encode()],
        introduced,
        changed_told,
        (RefusedReply,),
    ),
    Door(
        "Flower scores",
        lambda: [json.dumps(SCORES).encode()],
        scored,
        changed_told,
        (RefusedReply,),
    ),
    Door(
        "Flower run config",
        lambda: [json.dumps(CONFIG).encode()],
        configured,
        changed_told,
        (InvalidInput,),
    ),
    Door(
        "Flower table",
        lambda: [json.dumps({"look": LOOK, "sums": SUMS}).encode()],
        described,
        changed_told,
        (RefusedReply, InvalidInput),
    ),
    Door("Flower policy", lambda: [POLICY], allowed, changed_bytes, (InvalidInput,)),
    Door(
        "Flower app",
        lambda: [packed()],
        lambda _, data: digest_archive(data),
        changed_bytes,
        (InvalidInput,),
    ),
]
