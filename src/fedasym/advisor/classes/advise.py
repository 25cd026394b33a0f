"""`advise` for class labels: which algorithm for these clients, with which ridge of the logistic loss, how sure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedasym.advisor.classes import squares
from fedasym.advisor.classes.advice import ClassAdvice, EstimatedClasses
from fedasym.advisor.classes.checks import RANKING, ClassEvidence, doubts_of, model_ratio
from fedasym.advisor.classes.comparing import chosen_ratios, compared
from fedasym.advisor.classes.confirming import Measurement
from fedasym.advisor.classes.federated import ClassSummary, look_at
from fedasym.advisor.classes.intake import classes_in
from fedasym.advisor.classes.links import Link
from fedasym.advisor.classes.looking import Look, look, refreshed
from fedasym.advisor.classes.moments import Moments
from fedasym.advisor.classes.persons import persons
from fedasym.advisor.classes.predictions import Table, even_normal, predictions
from fedasym.advisor.classes.scores import Ridges
from fedasym.advisor.classes.settings import CLOSE, settings, stopping
from fedasym.advisor.classes.worlds import Sizes, World
from fedasym.advisor.estimates import Estimates, Quantity, unseen
from fedasym.advisor.evidence import Check, Doubt
from fedasym.advisor.kinds import Kinds
from fedasym.core.arrays import Array
from fedasym.core.machine import few_threads

CANDIDATES = ("fedavg", "rtfa", "local_ridge")  # the simpler first


def advise_classes(data: Any, y: Any = None, clients: Iterable[Hashable] | None = None) -> ClassAdvice:
    """What `fa.advise` does with class labels."""
    taken = classes_in(data, y, clients)
    with few_threads(taken.data.dimension):
        seen = look(taken)
        fresh = refreshed(seen)
        return advised(seen, seen.found if fresh is None else fresh)


def from_summaries(sent: Sequence[ClassSummary]) -> ClassAdvice:
    """Advice from what clients sent."""
    seen = look_at(sent)
    with few_threads(seen.dimension):
        return replace(advised(seen, seen.found), sent=max(each.bytes for each in sent))


def advised(seen: Look, found: Moments) -> ClassAdvice:
    """Everything that follows from estimates and probes."""
    shape = Sizes(Kinds.of(seen.sizes), seen.dimension)
    world = World.of(found, seen.classes.count)
    table, ridges = predictions(found, world, shape)
    table = compared(table, seen.probes, world, shape, found)
    evidence = ClassEvidence(
        seen.found.summaries, plain_estimates(found), seen.dropped, seen.classes.names, seen.counts, seen.mean_share,
        seen.probes.shared.at(-1), seen.probes, table, world, shape,
    )  # fmt: skip
    doubts = doubts_of(evidence)
    ridges, table = moved(ridges, table, evidence, doubts)
    recommended = chosen(table)
    steps = stopping(world, shape, ridges, table, seen)
    training = settings(table, ridges, steps, shape, seen)
    rivals = [name for name in sorted(CANDIDATES, key=lambda name: -table[name].trusted) if name != recommended]
    held_only = any(doubt.check == Check.TRAINED_FEATURES for doubt in doubts)
    return ClassAdvice(
        population=estimated(found, world, seen),
        predictions=table,
        recommended=recommended,
        ridge=table[recommended].ridge,
        samples=shape.samples,
        steps=steps,
        training=training,
        doubts=doubts,
        ranking_aid=any(doubt.check in RANKING for doubt in doubts),
        confirm=Measurement(
            recommended,
            {name: training[name] for name in (recommended, *rivals)},
            {name: table[recommended].trusted - table[name].trusted for name in rivals},
        ),
        clients=clients_of(seen, world, shape, table, ridges, held_only),
    )


def plain_estimates(found: Moments) -> Estimates:
    """What the checks on sizes look at."""
    s2, r2, B = found.point
    return Estimates(
        float(s2), float(r2), float(r2 + B), found.draws, found.spectrum, found.method, found.flat, scarce=found.scarce
    )


def chosen(table: Table) -> str:
    """The highest accuracy; of those within a tenth of a point the simplest."""
    most = max(table[name].trusted for name in CANDIDATES)
    return next(name for name in CANDIDATES if table[name].trusted >= most - CLOSE)


def moved(ridges: Ridges, table: Table, seen: ClassEvidence, doubts: tuple[Doubt, ...]) -> tuple[Ridges, Table]:
    """The logistic ridge where samples contradict the model, from the ridge c that they want of least squares.

    Where only the ridge is contradicted it changes by the same factor (section 9.3). Where the link is, what counts is that
    both losses shrink the same directions: ridge = c times the mean curvature of the logistic loss at the shared model, which
    its accuracy tells.
    """
    said = {doubt.check for doubt in doubts}
    if not said & {Check.RIDGE, Check.LINK}:
        return ridges, table
    C, out = len(seen.classes), {}
    for name, alone in (("rtfa", False), ("local_ridge", True)):
        best = min(float(seen.probes.ratios[chosen_ratios(seen.probes)[name]]), float(seen.probes.ratios[-2]))
        right = table["fedavg" if name == "rtfa" else name].trusted
        level = right * (1 - right) if C == 2 else (1 - right**2 - (1 - right) ** 2 / (C - 1)) / (C - 1)
        factor = ridges.shared / model_ratio(seen)
        out[name] = best * (max(level, 1e-6) if Check.LINK in said else factor)
        if alone and Check.LINK not in said:
            out[name] = ridges.alone
    changed = {name: replace(table[name], ridge=ratio / seen.shape.samples) for name, ratio in out.items()}
    return replace(ridges, shared=out["rtfa"], alone=out["local_ridge"]), table | changed


def estimated(found: Moments, world: World, seen: Look) -> EstimatedClasses:
    """The estimates in the population's own words."""
    link, tau = Link(seen.classes.count), world.spectrum.mean
    s = world.spectrum.values
    B, BD = found.draws[:, 2], found.draws[:, 1] * tau
    whole = np.maximum(B + BD, 1e-9 * link.total)
    rho = link.signal(np.minimum(whole, 0.999 * link.most))
    radius = rho * np.sqrt(BD / whole / float(s @ world.shift_share))
    d, sizes = seen.dimension, seen.sizes
    # B tells theta_0'Sigma theta_0; the length |theta_0| varies about it, unless its shares along eigenvalues were measured.
    even = np.allclose(world.centre_share, world.spectrum.weights)
    blind = unseen(1.0, world.spectrum, s, d) / seen.classes.free if even else 0.0
    length2 = np.maximum(1 + np.sqrt(blind) * even_normal(len(B)), 0.0)
    centre = rho * np.sqrt(length2 * B / whole / float(s @ world.centre_share))
    counts = seen.counts.sum(0)
    return EstimatedClasses(
        radius=with_ends(world.radius, radius, zero=found.flat),
        centre=with_ends(world.centre, centre),
        signal=with_ends(world.rho, rho),
        aspect=Quantity(float(np.median(d / sizes)), float(d / sizes.max()), float(d / sizes.min())),
        spectrum=world.spectrum,
        world=world.population(float(np.median(d / sizes))),
        classes=seen.classes.names,
        shares=tuple((counts / counts.sum()).tolist()),
        clients=len(sizes),
        dimension=d,
        samples=int(sizes.sum()),
        method=found.method,
    )


def with_ends(value: float, draws: Array, *, zero: bool = False) -> Quantity:
    """A value with its interval, which always holds it."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Quantity(value, 0.0 if zero else float(min(low, value)), float(max(high, value)))


def clients_of(seen: Look, world: World, shape: Sizes, table: Table, ridges: Ridges, held_only: bool) -> tuple[Any, ...]:
    """Who gains, from the model for clients of each size and from their own samples."""
    error = squares.error_of(world, seen.found.excess)
    kept = squares.probe(world, 1.0, np.inf, error)
    by_kind = np.array(
        [squares.probe(world, float(g), squares.best_ridge(world, float(g), error), error) - kept for g in shape.aspects]
    )
    gains = by_kind[shape.kinds.place]
    rows = table["rtfa"], table["fedavg"]
    if any(row.contradicted for row in rows):  # then the samples say how much is gained on average
        gains = gains + (rows[0].trusted - rows[1].trusted) - float(shape.share @ by_kind)
    wide = seen.probes.measured(False).gain(chosen_ratios(seen.probes)["rtfa"], -1)[1]
    return persons(seen.clients, seen.sizes, seen.dimension, ridges.shared, gains, wide, seen.probes, seen.places, held_only)
