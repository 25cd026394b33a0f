"""What is in a message: arrays, words and numbers, each under one name, and heads among the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedasym.data.federation.files import BROKEN

HEAD, ARRAYS, CONFIG, METRICS = "head", "arrays", "config", "metrics"
MALFORMED = (*BROKEN, KeyError, TypeError, AttributeError, IndexError)  # what reading a record of another form raises


def content_of(
    arrays: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> RecordDict:
    """A message's content of those that are given.

    >>> content = content_of({HEAD: np.eye(2)}, {"server-round": 3})
    >>> told_in(content), arrays_in(content)[HEAD].numpy().shape
    ({'server-round': 3}, (2, 2))
    """
    content = RecordDict()
    if arrays is not None:
        content[ARRAYS] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    if config is not None:
        content[CONFIG] = ConfigRecord(dict(config))
    if metrics is not None:
        content[METRICS] = MetricRecord(dict(metrics))
    return content


def arrays_in(content: RecordDict) -> ArrayRecord:
    """The arrays of a message, not yet read."""
    return content.array_records[ARRAYS]


def told_in(content: RecordDict) -> dict[str, Any]:
    """The words and numbers of a message."""
    return dict(content.config_records[CONFIG])


def metrics_in(content: RecordDict) -> dict[str, Any]:
    """The metrics of a message."""
    return dict(content.metric_records[METRICS])


def array_of(content: RecordDict, name: str = HEAD) -> NDArray[np.float64]:
    """An array that the server sent, as the node computes with it."""
    return np.asarray(arrays_in(content)[name].numpy(), np.float64)
