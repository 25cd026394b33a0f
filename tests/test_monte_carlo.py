"""Every formula against exact conditional expectations on drawn features: bias and variance, each by itself.

Finite sizes differ from the limits by O(1/d). Where the difference is known exactly it is kappa'/d, relatively: with
uncorrelated features and no ridge the mean of an inverse Wishart matrix makes the variance n/(d-n-1) instead of n/(d-n),
more by 1/(d-n) = kappa'/d; a pooled fit is off likewise by 1/(N-d) = gN/(1-gN)/d. Twice the sum of the two is allowed on
top of the Monte-Carlo error, as squares of inverses are off by more. Predictions that differ from the right one by a slip
(a member taken for a new client, one client more, infinitely many, another alignment) must be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Meta
from fedasym.theory.transforms import lowest_ridge

from .montecarlo import Array, Function, Plan, check, descend, draw, even, flow, interpolate, limit, shrink, simulate

D = 480  # dimensions of the limits
FEW = 300  # dimensions of the federations
DRAWS = 6
RADIUS, NOISE = 1.3, 0.7


def spectrum(name: str, d: int) -> fa.Spectrum:
    match name:
        case "ar1":
            return fa.spectra.ar1(0.5, points=d)
        case "power law":
            return fa.spectra.power_law(1, points=d)
    atoms = {
        "identity": ([1], [1]),
        "scaled": ([2.5], [1]),
        "two atoms": ([0.5, 3], [0.6, 0.4]),
        "singular": ([0, 1, 3], [0.4, 0.35, 0.25]),
    }
    return fa.spectra.atoms(*atoms[name])


def below_zero(world: fa.Population) -> float:
    """A negative ridge, well above the lowest admissible one: finite samples reach a little beyond the limit's edge."""
    return float(lowest_ridge(np.array([world.aspect]), world.spectrum)[0]) / 5


def growth(world: fa.Population, ridge: float) -> float:
    """kappa' at a ridge, as V = noise^2 (kappa' - 1)."""
    return 1 + float(fa.predict(world, ["rtfa"], ridge=ridge)["rtfa"].variance) / float(world.noise) ** 2


def samples(world: fa.Population, keeps: Sequence[Function], *, alone: bool = False) -> list[Array]:
    """Bias and variance (draws, 2) after each filter, with infinitely many clients."""
    rng = np.random.default_rng(20)
    clients = [draw(rng, world, D, alone) for _ in range(DRAWS)]
    return [np.array([limit(client, keep) for client in clients]) for keep in keeps]


SHAPES = [
    ("identity", 0), ("scaled", 0), ("two atoms", 0), ("two atoms", 1), ("two atoms", -1), ("ar1", 0), ("ar1", 2),
    ("power law", 0), ("power law", -1), ("singular", 0), ("singular", 1),
]  # fmt: skip


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize(("name", "power"), SHAPES)
def test_ridge_limit(name, power, aspect):
    """Theorems 2 and 4, and 1 and 3 as their case of no ridge; negative ridges too."""
    world = fa.Population(RADIUS, NOISE, aspect, spectrum=spectrum(name, D), shift_power=power)
    other = replace(world, shift_power=power + 1)
    ridges = [below_zero(world), 0, 0.1, 1, 5]
    for ridge, found in zip(ridges, samples(world, [shrink(x) for x in ridges]), strict=True):
        table = fa.predict(world, ["rtfa", "pfedme"] + (["ftfa", "maml"] if ridge == 0 else []), ridge=ridge)
        wrong = [fa.predict(world, ["rtfa"], ridge=1.2 * ridge + 0.05)["rtfa"]]
        if table["rtfa"].bias > 0 and world.spectrum.scale is None:
            wrong.append(fa.predict(other, ["rtfa"], ridge=ridge)["rtfa"])
        for risk in table.values():
            check(found, risk, 2 * growth(world, ridge) / D, wrong)


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize("power", [0, 1])
def test_methods_that_share_nothing(power, aspect):
    """The local methods see the optimum itself, with its own alignment."""
    world = fa.Population(RADIUS, NOISE, aspect, norm=2, spectrum=spectrum("two atoms", D), optimum_power=power)
    ridges = [0, 0.4]
    for ridge, found in zip(ridges, samples(world, [shrink(x) for x in ridges], alone=True), strict=True):
        table = fa.predict(world, ["local", "local_ridge", "rtfa"], ridge=ridge)
        wrong = [table["rtfa"]] if table["rtfa"].bias > 0 else []
        for name in ("local", "local_ridge") if ridge == 0 else ("local_ridge",):
            check(found, table[name], 2 * growth(world, ridge) / D, wrong)


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize(("name", "power"), SHAPES)
def test_early_stopping(name, power, aspect):
    """Gradient steps, gradient flow and the closed form of one step. Nothing is inverted: 4/d covers the size effect."""
    world = fa.Population(RADIUS, NOISE, aspect, spectrum=spectrum(name, D), shift_power=power)
    step, steps, times = 0.08, [1, 4, 30], [0.05, 0.5, 4.0]
    found = samples(world, [descend(step, t) for t in steps] + [flow(t) for t in times])
    paths = fa.fine_tuning(world, step=step, steps=steps), fa.fine_tuning(world, flow=True, times=times)
    risks = [fa.Risk(*parts) for path in paths for parts in zip(path.bias, path.variance, strict=True)]
    stages = [Descend(step, t) for t in steps] + [Flow(t) for t in times]
    named = fa.predict(world, [fa.Algorithm(str(stage), Average(), stage) for stage in stages])
    shifted = fa.fine_tuning(world, step=1.1 * step, steps=steps), fa.fine_tuning(
        world, flow=True, times=np.multiply(1.1, times)
    )
    late = [fa.Risk(*parts) for path in shifted for parts in zip(path.bias, path.variance, strict=True)]
    for simulated, risk, same, other in zip(found, risks, named.values(), late, strict=True):
        check(simulated, risk, 4 / D, [other])
        check(simulated, same, 4 / D)
    check(found[0], fa.one_step(world, step)[1], 4 / D, [late[0]])


# Finitely many equal clients.


def equal_plans(world: fa.Population) -> Iterator[tuple[str | fa.Algorithm, dict[str, float], Function, Function]]:
    """Algorithm, options, server weights and client filter of everything that has a formula on this population."""
    yield "fedavg", {}, even, even
    yield "ftfa", {}, even, interpolate
    for ridge in (below_zero(world), 0.3, 2.0):
        yield "rtfa", {"ridge": ridge}, even, shrink(ridge)
    if world.isotropic:
        best = float(world.noise) ** 2 * float(world.aspect) / float(world.radius) ** 2
        yield "pfedme", {}, shrink(best), shrink(best)
    if world.spectrum.scale is None:
        return
    yield "pfedme", {"ridge": 0.25}, shrink(0.25), shrink(0.25)
    for step in (0.1, 0.3):
        yield "maml", {"maml_step": step}, meta(step), interpolate
    yield fa.Algorithm("steps", Average(), Descend(0.1, 4)), {}, even, descend(0.1, 4)
    yield fa.Algorithm("flow", Average(), Flow(0.7)), {}, even, flow(0.7)
    yield fa.Algorithm("one-step MAML", Meta(0.2), Descend(0.2)), {}, meta(0.2), descend(0.2, 1)


def meta(step: float) -> Function:
    """MAML's server weights."""
    return lambda x: (1 - step * x) ** 2


def risk_of(worlds, algorithm: str | fa.Algorithm, **options) -> fa.Risk:
    """The one risk of a prediction for one algorithm."""
    return next(iter(fa.predict(worlds, [algorithm], **options).values()))


FEDERATIONS = [
    ("identity", 0, 2, 5), ("scaled", 0, 2, 4), ("identity", 0, 0.5, 3), ("two atoms", 0, 2, 4), ("two atoms", 1, 3, 6),
    ("two atoms", 0, 0.5, 3), ("ar1", 0, 2, 5), ("ar1", -1, 3, 6), ("ar1", 1, 0.5, 3), ("singular", 0, 3, 4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "power", "aspect", "clients"), FEDERATIONS)
def test_equal_clients(name, power, aspect, clients):
    """FedAvg, FTFA, RTFA, MAML and pFedMe for a member and for a new client; nearby federations are told apart."""
    world = fa.Population(RADIUS, NOISE, aspect, spectrum=spectrum(name, FEW), shift_power=power)
    rows = list(equal_plans(world))
    plans: list[Plan] = [([b], {str(i): [keep]}) for i, (_, _, b, keep) in enumerate(rows)]
    found = simulate([world], [clients], [1 / clients], plans, d=FEW, draws=DRAWS, seed=21)
    pooled = aspect * world.spectrum.rank / clients
    for i, (algorithm, options, _, keep) in enumerate(rows):
        ridge = options.get("ridge", 0 if keep is interpolate else np.inf)
        allowance = 2 * (growth(world, ridge) + pooled / (1 - pooled)) / FEW
        risks = [risk_of(world, algorithm, clients=clients, member=member, **options) for member in (True, False)]
        more = [risk_of(world, algorithm, clients=clients + 1, member=member, **options) for member in (True, False)]
        forgets = keep is interpolate and aspect * world.spectrum.rank < 1  # the shared model leaves no trace
        limits = [] if forgets else [risk_of(world, algorithm, **options)]
        for who, (risk, other) in enumerate(zip(risks, more, strict=True)):
            wrong = [] if forgets else [risks[1 - who], other, *limits]
            check(found[str(i)][:, 0, who], risk, allowance, wrong)
