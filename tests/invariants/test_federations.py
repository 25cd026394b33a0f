"""What must hold with finitely many equal clients: limits, closed forms, ends of paths, the order
of the methods.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import Flow
from fedasym.theory.transforms import sample_support, subordinate

from .strategies import (
    CLIENTS,
    DIGITS,
    EPS,
    RIDGES,
    SHARING,
    Exact,
    close,
    examples,
    growth_of,
    isotropic_risk,
    log_uniform,
    near_thresholds,
    risk_of,
    share,
    stopped,
    threshold_gap,
    worlds,
)

pytestmark = near_thresholds


@st.composite
def federations(draw: st.DrawFn, **options) -> tuple[fa.Population, int]:
    """A population and a number of clients with clearly more pooled samples than unknowns."""
    world = draw(worlds(**options))
    fewest = 1.05 * world.aspect * world.spectrum.rank
    return world, int(np.ceil(fewest * draw(log_uniform(1, 1e4))))


@examples(30)
@given(
    worlds(),
    st.sampled_from([None, 0.0, np.inf]) | RIDGES,
    st.none() | st.just(1) | CLIENTS,
    st.booleans(),
)
def test_every_risk_is_a_number(world, ridge, clients, member):
    """Never NaN nor negative, whatever the sizes; infinite only where samples just match the
    unknowns.
    """
    world = replace(world, norm=2 * world.radius, optimum_power=world.shift_power)
    assume(clients is None or abs(world.aspect * world.spectrum.rank / clients - 1) > 0.01)
    names = ["fedavg", "ftfa", "rtfa", "local", "local_ridge"]
    if world.isotropic and (clients is None or ridge is None):
        names.append("pfedme")
    for name, risk in fa.predict(world, names, ridge=ridge, clients=clients, member=member).items():
        assert risk.bias >= 0, name
        assert risk.variance >= 0, name
        assert np.isfinite(risk.loss) or threshold_gap(world) < 1e-9, name


@examples(30)
@given(worlds(), RIDGES, st.booleans())
def test_many_clients_approach_infinitely_many(world, ridge, member):
    """The difference is O(1/m), for members and new clients alike; infinitely many are the limit
    itself.
    """
    for name in (
        *SHARING,
        *(["pfedme"] if world.isotropic else []),
        *(["maml"] if world.spectrum.scale else []),
    ):
        given_ridge = None if name == "pfedme" else ridge
        limit = risk_of(world, name, ridge=given_ridge)
        close(risk_of(world, name, ridge=given_ridge, clients=np.inf, member=member), limit, rtol=0)
        close(
            risk_of(world, name, ridge=given_ridge, clients=1e13, member=member), limit,
            rtol=1e-12 * (1e3 + growth_of(world)), floor=share(world, 1e-9),
        )  # fmt: skip


@examples(50)
@given(federations())
def test_fedavg_of_equal_clients_in_closed_form(federation):
    """Equations (6) and (7), for isotropic displacements: exact in the covariance's mean and rank
    alone.
    """
    world, m = replace(federation[0], shift_power=0.0), federation[1]
    tau, rank, r2, s2 = world.spectrum.mean, world.spectrum.rank, world.radius**2, world.noise**2
    gN = world.aspect * rank / m
    member = fa.Risk(r2 * tau * (1 - 1 / m) / (1 - gN), s2 * gN / (1 - gN))
    new = fa.Risk(r2 * tau * (1 + 1 / m - 2 * gN / m) / (1 - gN), s2 * gN / (1 - gN))
    close(risk_of(world, "fedavg", clients=m), member, rtol=1e-11, floor=share(world, 1e-14))
    close(risk_of(world, "fedavg", clients=m, member=False), new, rtol=1e-11)


@examples(30)
@given(federations(atoms=1, singular=False), RIDGES, st.booleans())
def test_two_theories_agree_on_uncorrelated_features(federation, ridge, member):
    """The linear pencil (members) and the single-client formula (new clients) against
    free-probability subordination, whose quadrature needs the more nodes, the nearer the aspect is
    to 1.
    """
    world, m = federation
    assume(threshold_gap(world) > 5e-3)
    scale = world.spectrum.scale
    lam = ridge / scale
    filters = {
        "fedavg": np.ones_like,
        "ftfa": lambda x: np.where(x > 0, 0.0, 1.0),
        "rtfa": lambda x: lam / (x + lam),
    }
    for name, keep in filters.items():
        numbers = (
            np.array([x]) for x in (world.aspect, world.radius**2 * scale, world.noise**2, float(m))
        )
        bias, variance = subordinate(np.ones_like, keep, *numbers, member)
        found = risk_of(world, name, ridge=ridge, clients=m, member=member)
        close(
            found, fa.Risk(float(bias[0]), float(variance[0])), rtol=1e-9, floor=share(world, 1e-11)
        )


@examples(24)
@given(federations(atoms=1, singular=False), st.booleans())
def test_maml_without_a_step_is_ftfa(federation, member):
    world, m = federation
    ftfa = risk_of(world, "ftfa", clients=m, member=member)
    close(
        risk_of(world, "maml", clients=m, member=member, maml_step=0),
        ftfa,
        rtol=1e-9,
        floor=share(world, 1e-11),
    )


@examples(50)
@given(federations(aligned=False))
def test_pfedme_needs_kappa_alone(federation):
    """Equation (13): (4) again, with a kappa that knows the number of clients, at the ridge noise^2
    aspect / radius^2.
    """
    world, m = federation
    assume(world.radius > 0 and world.noise > 0)
    ridge = fa.optimal_ridge(world)
    with mpmath.workdps(DIGITS):
        exact = Exact(world.aspect, world.spectrum, m)
    start = (ridge + world.aspect * world.spectrum.values.max()) / (
        1 - world.aspect * world.spectrum.rank / m
    )
    expected, condition = isotropic_risk(exact, world, ridge, start)
    close(
        risk_of(world, "pfedme", clients=m),
        expected,
        rtol=1e3 * EPS * condition,
        floor=share(world, 4 * EPS),
    )


@examples(30)
@given(federations(aligned=False))
@example((fa.Population(1, 1e-4, 1), 2))
@example((fa.Population(1, 0, 1), 2))
def test_order_of_the_methods(federation):
    """Members, isotropic, best ridges: pFedMe, the best linear unbiased prediction, <= RTFA <= FTFA
    and FedAvg.
    """
    world, m = federation
    assume(world.radius > 0)
    table = fa.predict(world, ["pfedme", "rtfa", "ftfa", "fedavg"], clients=m)
    pfedme, rtfa, ftfa, fedavg = (risk.loss for risk in table.values())
    assert pfedme <= rtfa * (1 + 1e-9)
    assert rtfa <= min(ftfa, fedavg) * (1 + 1e-9)


@examples(24)
@given(federations(), st.lists(RIDGES, min_size=3, max_size=10), st.booleans())
def test_best_ridge_of_a_finite_federation(federation, ridges, member):
    """RTFA without a given ridge does at least as well as with any other."""
    world, m = federation
    assume(threshold_gap(world) > 1e-6)
    best = risk_of(world, "rtfa", clients=m, member=member)
    others = risk_of(
        world, "rtfa", clients=m, member=member, ridge=np.array([0.0, np.inf, *ridges])
    )
    assert np.all(best.loss <= others.loss * (1 + 1e-8))


@examples(24)
@given(federations(), st.booleans())
def test_ends_of_the_ridge_path_of_a_finite_federation(federation, member):
    world, m = federation
    fedavg, ftfa = (risk_of(world, name, clients=m, member=member) for name in ("fedavg", "ftfa"))
    close(risk_of(world, "rtfa", ridge=np.inf, clients=m, member=member), fedavg, rtol=1e-12)
    close(risk_of(world, "rtfa", ridge=0, clients=m, member=member), ftfa, rtol=1e-12)
    far = 1e9 * (1 + world.aspect) * world.spectrum.values.max()
    close(
        risk_of(world, "rtfa", ridge=far, clients=m, member=member),
        fedavg,
        rtol=1e-7,
        floor=share(world, 1e-7),
    )


@examples(20)
@given(federations(aspects=log_uniform(0.01, 1000)), st.booleans())
def test_ends_of_the_fine_tuning_path_of_a_finite_federation(federation, member):
    """For a member, who has a formula only with uncorrelated features, and for a new client."""
    world, m = federation
    if member:
        world = replace(world, spectrum=fa.spectra.identity(world.spectrum.mean))
        m = int(np.ceil(m / federation[0].spectrum.rank))
    assume(threshold_gap(world) > 0.05)
    low = sample_support(world.aspect, world.spectrum)[0]
    for time, name in ((0, "fedavg"), (36 / low, "ftfa")):
        expected = risk_of(world, name, clients=m, member=member)
        close(
            stopped(world, Flow(time), clients=m, member=member),
            expected,
            rtol=1e-9,
            floor=share(world, 1e-9),
        )


@examples(30)
@given(federations(), RIDGES, st.booleans())
@example((fa.Population(1, 1e-4, 10), 11), 1.0, True)
@example((fa.Population(1, 1e4, 10), 11), 1.0, True)
def test_equal_clients_as_a_list(federation, ridge, member):
    """The formulas for clients that differ give equal clients what the formulas for equal clients
    give.
    """
    world, m = federation
    blup = world.isotropic and world.radius > 0 and world.noise > 0  # equation (13) against (16)
    tolerance = 1e-9 * growth_of(world)
    for name in (*SHARING, *(["pfedme"] if blup else [])):
        given_ridge = None if name == "pfedme" else ridge
        one = risk_of(world, name, ridge=given_ridge, clients=m, member=member)
        listed = risk_of([world], name, ridge=given_ridge, clients=[m], member=member)
        close(
            fa.Risk(listed.bias[0], listed.variance[0]),
            one,
            rtol=tolerance,
            floor=share(world, 1e-10),
        )
