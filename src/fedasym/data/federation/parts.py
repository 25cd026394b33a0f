"""Client data that comes part by part, as from data loaders: a client's samples at once, in batches or one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.federation.samples import read_features
from fedasym.data.federation.targets import is_text, read_labels


def collected(parts: Iterable[Any]) -> tuple[NDArray[Any], NDArray[Any], list[Any]]:
    """Features, labels and names, one per row, from (client, features, labels) of one sample or of a batch each.

    >>> features, labels, names = collected([("ann", [[1.0, 2.0], [3.0, 4.0]], [0, 1]), ("bob", [5.0, 6.0], 1)])
    >>> features.shape, labels.tolist(), names
    ((3, 2), [0, 1, 1], ['ann', 'ann', 'bob'])
    """
    if not isinstance(parts, Iterable):
        raise InvalidInput(f"the clients are {parts!r}: give an iterable of (client, features, labels)")
    features: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    names: list[Any] = []
    for number, part in enumerate(parts):
        try:
            name, x, y = part
        except (TypeError, ValueError):
            raise InvalidInput(f"part {number} is not (client, features, labels): give these three for each client") from None
        who = f"client {name!r} (part {number})"
        rows, values = batch_of(who, x, y)
        if features and rows.shape[1:] != features[0].shape[1:]:
            raise InvalidInput(
                f"{who} has samples of shape {rows.shape[1:]} while those of the first part have {features[0].shape[1:]}: give "
                "every client the same features; pad sequences to one length and mark the padding with mask"
            )
        if labels and (values.shape[1:] != labels[0].shape[1:] or is_text(values) != is_text(labels[0])):
            raise InvalidInput(
                f"{who} has labels of shape {values.shape[1:]} and type {values.dtype.name} while those of the first part have "
                f"{labels[0].shape[1:]} and {labels[0].dtype.name}: give every client the same kind of labels"
            )
        features.append(rows)
        labels.append(values)
        names += [name] * len(rows)
    if not names:
        raise InvalidInput("there are no samples: give at least one (client, features, labels)")
    return np.concatenate(features), np.concatenate(labels), names


def batch_of(who: str, x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """One part's features and labels with the samples along the first axis; features of one axis are one sample's."""
    try:
        rows, values = read_features(x), read_labels(y)
    except InvalidInput as reason:
        raise reason.at(who) from None
    if values.ndim == 0 and rows.ndim > 1 and len(rows) == 1:
        values = values[None]
    if rows.ndim == 1:
        if values.size != 1:
            raise InvalidInput(
                f"{who}: features have shape {rows.shape}, one sample, and labels {values.shape}: give one label; or features "
                "of shape (samples, features), also where there is one feature or one sample"
            )
        rows, values = rows[None], values.reshape(1)
    if rows.ndim == 0 or values.ndim == 0 or len(rows) != len(values):
        raise InvalidInput(f"{who}: features have shape {rows.shape} and labels {values.shape}: give one label per sample")
    if rows.size == 0:
        raise InvalidInput(f"{who}: features have shape {rows.shape}: leave out clients without samples or features")
    return rows, values
