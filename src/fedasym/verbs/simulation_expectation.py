"""One trial in expectation: every algorithm's bias and variance given the drawn features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fedasym.exact.draws import DrawnClient as Drawn
from fedasym.exact.traces import Forms, Pull
from fedasym.exact.traces import PullSums as Sums
from fedasym.exact.traces import SharedCovariance as Shared
from fedasym.exact.traces import alone_forms as alone
from fedasym.exact.traces import learned_share as learned
from fedasym.exact.traces import member_forms as member
from fedasym.exact.traces import newcomer_forms as newcomer
from fedasym.exact.traces import shared_interpolant as interpolant
from fedasym.verbs.simulation_plans import Losses, Plan, Tick

WORTH_A_THREAD = 200  # dimension from which drawing a client takes longer than handing it over


def expected(plan: Plan, trial: int, tick: Tick) -> Losses:
    """Bias and variance of every algorithm in one trial, the mean over the clients looked at, for each kind of client."""
    sharing = {id(each.pull): each.pull for each in plan.algorithms if each.pull is not None}
    models = dict(zip(sharing, shared_models(plan, trial, list(sharing.values()), tick), strict=True))
    found: Losses = {each.name: [] for each in plan.algorithms}
    for kind in plan.kinds:
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
        for j, client in plan.looked_at(trial, kind):
            seen: dict[int, Forms] = {}
            for each in plan.algorithms:
                key = id(each.pull)
                if key not in seen:
                    seen[key] = view(client, models.get(key), j if plan.member else None)
                q = learned(each.algorithm.personalise, client.x, each.ridge_of(kind))
                bias, variance = seen[key]
                rows[each.name].append((bias(q), variance(q)))
        for name, risks in rows.items():
            found[name].append(np.mean(risks, axis=0).tolist())
    return found


def shared_models(plan: Plan, trial: int, pulls: list[Pull], tick: Tick) -> list[Shared]:
    """The shared model of each server stage, from one pass over the clients."""
    if not pulls:
        return []
    clients = range(sum(plan.count))
    if plan.crowded:
        return [interpolant([plan.client(trial, j) for j in clients])] * len(pulls)
    sums = [Sums.empty(pull, plan.kinds) for pull in pulls]
    drawn: Iterator[Drawn] = (plan.client(trial, j) for j in clients)
    if plan.kinds[0].s.size >= WORTH_A_THREAD:
        drawn = ahead(lambda j: plan.client(trial, j), clients)
    for j, client in enumerate(drawn):
        for each in sums:
            each.add(client)
        tick((j + 1) / len(clients))
    return [each.shared() for each in sums]


def ahead(make: Callable[[int], Drawn], clients: range) -> Iterator[Drawn]:
    """Each client in turn, while a second thread draws the next one: where a core is free, drawing costs no time."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(make, 0)
        for j in clients:
            client = following.result()
            if j + 1 < len(clients):
                following = pool.submit(make, j + 1)
            yield client


def view(client: Drawn, shared: Shared | None, j: int | None) -> Forms:
    """What a client makes of a shared model (None: of no model): member j of the federation, or (None) a new client."""
    if shared is None:
        return alone(client)
    return newcomer(client, shared) if j is None else member(client, shared, j)
