"""Valid inputs made wrong: bytes cut, moved and overwritten, words swapped, trees of JSON with any
value anywhere.

All choices come from one `random.Random`: hypothesis gives one that it can shrink, a seed gives one
that can be repeated.
"""

from __future__ import annotations

import copy
import json
import struct
from random import Random
from typing import Any

EXTREMES = [0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1]
TOKENS = [
    b"",
    b"0",
    b"-1",
    b"1",
    b"1e999",
    b"-1e308",
    b"1e-320",
    b"NaN",
    b"nan",
    b"inf",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"'",
    b'"',
    b",",
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"9" * 400,
    b"1" * 5000,
    b"../../canary/out",
    b"/canary",
    b"<script>alert(1)</script>",
    b"%s%n",
    b"=1+1",
    b"__class__",
    "é\u202e\U0001f600".encode(),
    b"0x10",
    b"1_0",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**400,
    0.0,
    -0.0,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "a",
    "nan",
    "é",
    "\x00",
    "../../canary/out",
    "<script>alert(1)</script>",
    "x" * 3000,
    [],
    {},
    [[]],
    [None],
    {"": 0},
    [1, "a"],
    [1.5, [2]],
    {"a": {"b": []}},
    [[1, 2], [3]],
    "text",
    "paper",
    "auto",
    "1e3",
    "\ud800",
]


def changed_bytes(sample: bytes, random: Random) -> bytes:
    """A few random edits of valid bytes; now and then bytes without any sense."""
    if random.randrange(16) == 0:
        return bytes(random.randrange(256) for _ in range(random.randrange(120)))
    data = bytearray(sample)
    for _ in range(1 + random.randrange(4)):
        edit(data, random)
    return bytes(data)


def edit(data: bytearray, random: Random) -> None:
    """One edit, in place."""
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + 1 + random.randrange(16))
    match random.randrange(8):
        case 0 if data:
            data[start % len(data)] ^= 1 << random.randrange(8)
        case 1:
            del data[start:end]
        case 2:
            del data[start:]
        case 3:
            data[start:start] = data[start:end]
        case 4:
            data[start:end] = random.choice(TOKENS)
        case 5:
            data[start:start] = random.choice(TOKENS)
        case 6:
            form = random.choice(["<i", "<q", ">i", ">q"])
            number = random.choice(EXTREMES) % 2 ** (8 * struct.calcsize(form) - 1)
            data[start : start + struct.calcsize(form)] = struct.pack(form, number)
        case _:
            for place in range(start, end):
                data[place] = random.randrange(256)


def changed_words(words: list[str], random: Random) -> list[str]:
    """A command with words dropped, repeated, moved, or with a value of another kind."""
    found = list(words)
    for _ in range(1 + random.randrange(3)):
        at = random.randrange(len(found)) if found else 0
        match random.randrange(6):
            case 0:
                del found[at : at + 1]
            case 1:
                found[at:at] = found[at : at + 1]
            case 2 if found:
                found[at] = random.choice(TOKENS).decode(errors="replace")
            case 3 if found:
                found[at] = changed_bytes(found[at].encode(), random).decode(errors="replace")
            case 4 if found:
                found[at] = str(
                    random.choice(
                        [*EXTREMES, 1e300, -0.5, float("nan"), float("inf"), "0:1", "0:2:-1", "a=b"]
                    )
                )
            case _:
                found.insert(
                    at,
                    random.choice(
                        ["--", "--help", "-x", "--json", "--seed", "--vary", "--ridge=-1"]
                    ),
                )
    return found


def changed_tree(tree: Any, random: Random) -> Any:
    """JSON with one to three of its nodes replaced, dropped, renamed or moved."""
    found = copy.deepcopy(tree)
    for _ in range(1 + random.randrange(3)):
        node, key = chosen_node(found, random)
        if node is None:
            return random.choice(VALUES)
        match random.randrange(5):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[random.choice(["", "x", "<b>", str(key) + "s", "../a"])] = node.pop(key)
            case 1 | 2 if isinstance(node, list):
                node.insert(key, copy.deepcopy(node[key]))
            case 3:
                node[key] = {"a": node[key]} if random.randrange(2) else [node[key]] * 2
            case _:
                node[key] = copy.deepcopy(random.choice(VALUES))
    return found


def chosen_node(tree: Any, random: Random) -> tuple[Any, Any]:
    """A container in the tree and one of its keys; none where the tree is empty."""
    holder, key = None, None
    while isinstance(tree, dict | list) and tree:
        holder, key = (
            tree,
            random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree)),
        )
        tree = tree[key]
        if random.randrange(4) == 0:
            break
    return holder, key


def changed_json(sample: bytes, random: Random) -> bytes:
    """JSON text, changed as a tree or as bytes."""
    if random.randrange(3) == 0:
        return changed_bytes(sample, random)
    return json.dumps(changed_tree(json.loads(sample), random)).encode()
