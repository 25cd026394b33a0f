"""tf.train.Example messages without TensorFlow: a strict decoder of the few protobuf fields that they consist of.

Example {features = 1}, Features {map<string, Feature> feature = 1} with entries {key = 1, value = 2}, Feature {one of
bytes_list = 1, float_list = 2, int64_list = 3}, each list {repeated value = 1}, numbers packed or one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5  # wire types
LISTS = {1: "bytes", 2: "floats", 3: "whole numbers"}

Value = list[bytes] | NDArray[Any]


class Malformed(ValueError):
    """Bytes that are no tf.train.Example."""


def decoded(message: bytes) -> dict[str, Value]:
    r"""The features of an Example by name: byte strings as a list, numbers as float32 or int64.

    >>> decoded(b"\n\x0e\n\x0c\n\x01y\x12\x07\x1a\x05\n\x03\x01\xac\x02")
    {'y': array([  1, 300])}
    """
    held: dict[str, Value] = {}
    for features in bodies(message, "the Example", most=1):
        for entry in bodies(features, "its features"):
            name, value = None, None
            for field, wire, body in fields_of(entry):
                if wire != DELIMITED or field not in (1, 2) or (name if field == 1 else value) is not None:
                    raise Malformed("an entry of its features is not one key and one value")
                name, value = (body, value) if field == 1 else (name, body)
            try:
                key = (name or b"").decode()
            except UnicodeDecodeError:
                raise Malformed(f"the feature name {name!r} is not UTF-8") from None
            if key in held:
                raise Malformed(f"feature {key!r} stands twice")
            held[key] = feature(value or b"", key)
    return held


def feature(message: bytes, name: str) -> Value:
    """One list of values; a feature without a list is empty."""
    lists = list(fields_of(message))
    if not lists:
        return np.zeros(0, np.float32)
    field, wire, body = lists[0]
    if len(lists) > 1 or wire != DELIMITED or field not in LISTS:
        raise Malformed(f"feature {name!r} is not one list of {', '.join(LISTS.values())}")
    entries = list(fields_of(body))
    scalar = {1: DELIMITED, 2: FOUR, 3: VARINT}[field]
    for number, kind, _ in entries:
        if number != 1 or kind not in (scalar, DELIMITED):
            raise Malformed(f"feature {name!r}: its list of {LISTS[field]} holds something else")
    if field == 1:
        return [each for _, _, each in entries]
    if field == 2:
        joined = b"".join(each for _, _, each in entries)
        if any(len(each) % 4 for _, _, each in entries):
            raise Malformed(f"feature {name!r}: its floats are cut short")
        return np.frombuffer(joined, "<f4").astype(np.float32)
    return varints(b"".join(each for _, _, each in entries))


def bodies(message: bytes, what: str, most: int | None = None) -> Iterator[bytes]:
    """The messages in field 1, the only field."""
    for number, (field, wire, body) in enumerate(fields_of(message)):
        if field != 1 or wire != DELIMITED or (most is not None and number >= most):
            raise Malformed(f"{what} has an unexpected field {field} of wire type {wire}")
        yield body


def fields_of(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of every field; a varint's bytes are as they stand."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        field, wire = key >> 3, key & 7
        start = at
        if wire == VARINT:
            _, end = varint(message, at)
        elif wire == DELIMITED:
            length, start = varint(message, at)
            end = start + length
        elif wire in (FOUR, EIGHT):
            end = start + (4 if wire == FOUR else 8)
        else:
            raise Malformed(f"there is no wire type {wire}")
        if end > len(message):
            raise Malformed("it is cut short")
        yield field, wire, message[start:end]
        at = end


def varint(message: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of 7 bits per byte, and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            raise Malformed("it is cut short")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at + place + 1
    raise Malformed("it holds a number of more than 64 bits")


def varints(packed: bytes) -> NDArray[np.int64]:
    r"""Signed 64-bit numbers one after the other, without a loop over them.

    >>> varints(b"\x05\xac\x02" + b"\xff" * 9 + b"\x01").tolist()
    [5, 300, -1]
    """
    data = np.frombuffer(packed, np.uint8)
    last = data < 0x80
    if last.all():
        return data.astype(np.int64)
    if not last[-1]:
        raise Malformed("it is cut short")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10 or np.any(data[ends[lengths == 10]] > 1):
        raise Malformed("it holds a number of more than 64 bits")
    places = (np.arange(data.size) - np.repeat(starts, lengths)).astype(np.uint64)
    return np.add.reduceat((data & 0x7F).astype(np.uint64) << (places * np.uint64(7)), starts).view(np.int64)
