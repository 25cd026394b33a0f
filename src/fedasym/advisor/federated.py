"""The same estimates where samples stay with the clients: what is sent is models (d numbers) and summaries.

Clients are dealt into five groups, and a shared model is trained on each of the ten pairs of groups (fedavg, by whatever
means the federation has). A client looks at its samples about two models that come from other groups and have none in
common: their errors are independent, so that products of the two residuals along the client's axes have the mean
noise^2 + radius^2 x/d exactly, as if the shared optimum were known. No client sends more than a few numbers per sample.
Where all samples together are too few for that, there are no models, and clients answer twice (see `crowded`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedasym.advisor.components import components
from fedasym.advisor.crowded import pulled
from fedasym.advisor.estimates import Estimates, from_products, from_scarce
from fedasym.advisor.intake import Data
from fedasym.advisor.summaries import Summary, axes_of, tails_of
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import check_rows as checked_rows
from fedasym.exact.clients import triangular_factor as triangular
from fedasym.exact.least_squares import SharedSolution as Pool
from fedasym.exact.least_squares import stack_triangle as triangle

GROUPS = 5
PAIRS = tuple(combinations(range(GROUPS), 2))
Models = Mapping[tuple[int, int], Array]
ROOM = 1.5 * GROUPS / 2  # samples per unknown, over all clients, from which every pair of groups has a model


def group_of(place: int) -> int:
    """The group of the client at this place in the server's list."""
    return place % GROUPS


def pair_models(data: Data) -> dict[tuple[int, int], Array]:
    """The ten shared models, where one machine plays the whole federation; a real one trains each on its pair of groups."""
    d = data.dimension
    factors = []
    for group in range(GROUPS):
        places = [place for place in range(len(data.parts)) if group_of(place) == group]
        factors.append(triangle(data.rows(place) for place in places) if places else np.zeros((0, d + 1)))
    return {(a, b): Pool.of(triangular(np.vstack([factors[a], factors[b]]))).theta for a, b in PAIRS}


def summarise(name: Hashable, X: Any, y: Any, *, group: int = 0, models: Models | None = None) -> Summary:
    """What a client sends, made from its own samples; `models` are those of all pairs, of which it uses the six of others.

    >>> import numpy as np
    >>> X, y = np.eye(3, 4), np.array([1.0, 2.0, 3.0])
    >>> sent = summarise("ann", X, y)
    >>> sent.raw.tolist(), sent.bytes
    ([1.0, 4.0, 9.0], 112)
    """
    rows, labels = checked_rows(name, X, y)
    axes = axes_of(rows, labels)
    model = np.zeros(rows.shape[1]) if models is None else np.mean([models[pair] for pair in PAIRS], axis=0)
    left = labels - rows @ model
    if models is None:
        residual = axes.labels**2
    else:
        halves = halves_for(group)
        about = {pair: axes.labels - axes.rows @ models[pair] for both in halves for pair in both}
        residual = np.mean([about[one] * about[two] for one, two in halves], axis=0)
    return Summary(
        name,
        axes.samples,
        rows.shape[1],
        power=axes.power,
        residual=residual,
        raw=axes.labels**2,
        rest=axes.rest,
        tails=tails_of(left),
        pooled=float(np.mean(left**2)),
    )


def halves_for(group: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The three ways to deal the four other groups into two pairs, whose models have no client in common.

    >>> halves_for(4)
    [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    """
    first, *others = (each for each in range(GROUPS) if each != group)
    return [(pair_of(first, mate), pair_of(*(each for each in others if each != mate))) for mate in others]


def pair_of(a: int, b: int) -> tuple[int, int]:
    """A pair in its order."""
    return (a, b) if a < b else (b, a)


def again(summary: Summary, X: Any, y: Any, told: tuple[float, float]) -> Summary:
    """A client's second answer where samples are scarce: `told` is what `first_look` gave the server."""
    return pulled(summary, axes_of(*checked_rows(summary.name, X, y)), *told)


def first_look(summaries: Sequence[Summary]) -> tuple[float, float]:
    """noise^2 and norm^2 from first answers: the two numbers that the server tells everyone before `again`."""
    first = components(list(summaries), "raw")
    return first.noise2, first.spread2


def combine(summaries: Sequence[Summary]) -> Estimates:
    """Estimates from what the clients sent, by products, or by moments where they answered twice."""
    listed = list(summaries)
    if len({each.dimension for each in listed}) != 1:
        raise InvalidInput("the summaries have different dimensions: every client must use the same features")
    if len({each.name for each in listed}) != len(listed):
        raise InvalidInput("two summaries have one name: give each client its own")
    return from_scarce(listed) if all(each.pull.size for each in listed) else from_products(listed)


def as_sent(data: Data) -> list[Summary]:
    """All answers of a federation that one machine plays: for tests, and to see what a federated run would say."""
    if data.sizes.sum() >= ROOM * data.dimension and len(data.parts) >= GROUPS:
        models = pair_models(data)
        return [
            summarise(part.name, *data.rows(place), group=group_of(place), models=models)
            for place, part in enumerate(data.parts)
        ]
    first = [summarise(part.name, *data.rows(place)) for place, part in enumerate(data.parts)]
    told = first_look(first)
    return [again(summary, *data.rows(place), told) for place, summary in enumerate(first)]
