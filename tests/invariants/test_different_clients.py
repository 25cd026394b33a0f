"""What must hold when clients differ: their order, their merging, their weights, too few samples
for all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fedasym as fa

from .strategies import RIDGES, SHARING, close, examples, log_uniform, near_thresholds, risk_of

pytestmark = near_thresholds


@st.composite
def kinds(
    draw: st.DrawFn, *, isotropic: bool = False, crowded: bool = False, most: float = 3
) -> tuple[list[fa.Population], list[int]]:
    """Two or three kinds of clients over common directions, and how many there are of each: up to
    `most` times the fewest.
    """
    directions = draw(st.integers(1, 4))
    weights = np.array(draw(st.lists(st.floats(0.1, 1), min_size=directions, max_size=directions)))
    centre = np.array(draw(st.lists(st.floats(0.1, 3), min_size=directions, max_size=directions)))
    found = []
    for _ in range(draw(st.integers(2, 3))):
        values = 10 ** np.array(
            draw(st.lists(st.floats(-2, 1), min_size=directions, max_size=directions))
        )
        spectrum = fa.spectra.atoms(values, weights / weights.sum())
        aspect = draw(log_uniform(20, 100) if crowded else log_uniform(0.1, 4))
        power = 0.0 if isotropic else draw(st.floats(-1, 1))
        radius, noise = draw(log_uniform(0.1, 10)), draw(log_uniform(0.1, 10))
        kind = fa.Population(radius, noise, aspect, spectrum=spectrum, shift_power=power)
        energy = radius**2 * kind.displacement + centre
        found.append(replace(kind, norm=energy.sum() ** 0.5, optimum_weights=energy / energy.sum()))
    few = 1 if crowded else 4
    return found, [draw(st.integers(few, int(most * few))) for _ in found]


def entries(risk: fa.Risk, rows: list[int]) -> fa.Risk:
    return fa.Risk(risk.bias[rows], risk.variance[rows])


@examples(8)
@given(kinds(isotropic=True, most=1.5), RIDGES, st.booleans(), st.randoms(use_true_random=False))
def test_order_and_merging_of_clients(federation, ridge, member, random):
    """Permuting the clients permutes the rows; counts stand for repeated clients, whether or not
    they can be merged.
    """
    worlds_, count = federation
    spelled = [i for i, times in enumerate(count) for _ in range(times)]
    random.shuffle(spelled)
    almost = [
        replace(worlds_[i], noise=worlds_[i].noise * (1 + 1e-13 * row))
        for row, i in enumerate(spelled)
    ]
    for name in (*SHARING, "pfedme"):
        given_ridge = None if name == "pfedme" else ridge
        counted = risk_of(worlds_, name, ridge=given_ridge, clients=count, member=member)
        listed = risk_of([worlds_[i] for i in spelled], name, ridge=given_ridge, member=member)
        close(listed, entries(counted, spelled), rtol=1e-11)
        separate = risk_of(almost, name, ridge=given_ridge, member=member)
        close(separate, entries(counted, spelled), rtol=1e-8)


@examples(16)
@given(kinds(), RIDGES, st.booleans(), log_uniform(0.01, 100))
def test_weights_of_clients(federation, ridge, member, factor):
    """Names stand for numbers, and scaling all noise leaves the weights by precision alone."""
    worlds_, count = federation
    samples = np.array([1 / world.aspect for world in worlds_])
    precision = samples / np.array([world.noise for world in worlds_]) ** 2
    for name in SHARING:
        options = {"ridge": ridge, "clients": count, "member": member}
        for weights, numbers in (
            ("samples", samples),
            ("uniform", np.ones(len(count))),
            ("precision", precision),
        ):
            found = risk_of(worlds_, name, weights=weights, **options)
            close(
                found,
                risk_of(worlds_, name, weights=numbers / (numbers @ count), **options),
                rtol=1e-10,
            )
            if weights == "samples":
                close(risk_of(worlds_, name, **options), found, rtol=0)
        louder = [replace(world, noise=factor * world.noise) for world in worlds_]
        loud = risk_of(louder, name, weights="precision", **options)
        close(loud, fa.Risk(found.bias, factor**2 * found.variance), rtol=1e-10)


@examples(14)
@given(kinds(isotropic=True), st.booleans())
def test_precision_weights_are_those_of_pfedme(federation, member):
    """And with them it is the best linear unbiased prediction for every member, so no worse than
    RTFA.
    """
    worlds_, count = federation
    found = risk_of(worlds_, "pfedme", clients=count, member=member)
    close(
        risk_of(worlds_, "pfedme", clients=count, member=member, weights="precision"), found, rtol=0
    )
    if member:
        assert np.all(
            found.loss
            <= risk_of(worlds_, "rtfa", clients=count, weights="precision").loss * (1 + 1e-9)
        )


@examples(20)
@given(kinds(crowded=True), RIDGES)
def test_crowded_federations_interpolate(federation, ridge):
    """With fewer pooled samples than unknowns all methods that share agree on members, whatever
    their weights.
    """
    worlds_, count = federation
    base = risk_of(worlds_, "fedavg", clients=count)
    for name in ("ftfa", "rtfa", "pfedme"):
        close(
            risk_of(worlds_, name, clients=count, ridge=ridge, weights="uniform"), base, rtol=1e-10
        )
    one, m = worlds_[0], count[0]
    equal = risk_of(one, "fedavg", clients=m)
    for name in ("ftfa", "rtfa", "pfedme", "maml"):
        close(risk_of(one, name, clients=m, ridge=ridge), equal, rtol=1e-12)
    listed = risk_of([one], "fedavg", clients=[m])
    close(fa.Risk(listed.bias[0], listed.variance[0]), equal, rtol=1e-10)
