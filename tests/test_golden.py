"""Every reference case to 1e-12: through the public functions where they reach a quantity, and
through the internals.

One function per kind of case returns, for each output of the case, the values found by every route
to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

import fedasym as fa
from fedasym.theory import flatten
from fedasym.theory.finite import DifferentClients, merge_clients
from fedasym.theory.pooled import blup_groups, effective_kappa
from fedasym.theory.transforms import (
    kappa,
    kappa_edges,
    kappa_slope,
    lowest_ridge,
    marchenko_pastur,
    subordinate,
    sums_at,
)

from .cases import GOLDEN, Inputs, name_of, population

Found = dict[str, list[float]]
EXACT = 1e-12
ARGMIN = {
    "kappa_opt": 1e-6,
    "lambda_opt": 1e-6,
}  # of optimal_aligned, where they minimise a flat function


def ridge(given: Inputs) -> Found:
    """One ridge or interpolation limit, and the transforms behind it."""
    world = population(given)
    lam, gamma, s, h = (
        float(given["lam"]),
        float(given["gamma"]),
        world.spectrum.values,
        world.spectrum.weights,
    )
    own = population(given, norm=world.radius, optimum_power=float(given["align_power"]))
    table = fa.predict(own, ["rtfa", "pfedme", "local_ridge", "fedavg"], ridge=lam)
    risks = [table[name] for name in ("rtfa", "pfedme", "local_ridge")]
    if lam == 0:
        risks += fa.predict(own, ["ftfa", "maml", "local"]).values()
    k = float(kappa(np.array(lam), np.array(gamma), world.spectrum))
    growth = float(kappa_slope(np.array(k), np.array(lam), np.array(gamma), world.spectrum))
    at = sums_at(np.array(k), world.spectrum)
    found: Found = {
        "kappa": [k],
        "kappa_prime": [growth, 1 / (1 - gamma * float(at.df2))],
        "df1": [float(at.df1)],
        "df2": [float(at.df2), float(at.df1 - at.mixed)],
        "bias": [risk.bias for risk in risks],
        "variance": [risk.variance for risk in risks] + [float(given["sigma2"]) * (growth - 1)],
        "risk": [risk.loss for risk in risks],
        "fedavg_risk": [table["fedavg"].loss],
    }
    if world.isotropic:
        found["risk"].append(
            world.radius**2 / gamma * (k - lam * growth) + world.noise**2 * (growth - 1)
        )
    if lam > 0:
        found["m_minus_lam"] = [h @ (k / (s + k)) / lam]
        found["m_prime_minus_lam"] = [
            h @ (k / (s + k)) / lam**2 - growth * (h @ (s / (s + k) ** 2)) / lam
        ]
        found["v_minus_lam"] = [1 / k]
    return found


def optimal_isotropic(given: Inputs) -> Found:
    """The best ridge and loss without a preferred direction, equation (5)."""
    world = population(given)
    lam = fa.optimal_ridge(world)
    k = kappa(np.array(lam), np.array(world.aspect), world.spectrum)
    best = fa.predict(world, ["rtfa", "pfedme"])
    return {
        "lambda_opt": [lam, *(risk.ridge for risk in best.values())],
        "kappa": [float(k)],
        "risk_opt": [
            fa.optimal_loss(world),
            *(risk.loss for risk in best.values()),
            float(world.noise**2 * (k / lam - 1)),
            float(world.radius**2 * k * sums_at(k, world.spectrum).df1),
            float(world.radius**2 / world.aspect * (k - lam)),
        ],
    }


def optimal_aligned(given: Inputs) -> Found:
    """The best ridge, possibly negative, and loss under an alignment; the lowest admissible
    ridge.
    """
    world = population(given)
    lam, aspect = fa.optimal_ridge(world), np.array(world.aspect)
    return {
        "kappa_opt": [float(kappa(np.array(lam), aspect, world.spectrum))],
        "lambda_opt": [lam, fa.predict(world, "rtfa")["rtfa"].ridge],
        "risk_opt": [fa.optimal_loss(world), fa.predict(world, "rtfa")["rtfa"].loss],
        "kappa_minus": [float(kappa_edges(aspect, world.spectrum)[0])],
        "lambda_min": [float(lowest_ridge(aspect, world.spectrum))],
    }


def ftfa_threshold(given: Inputs) -> Found:
    """The noise variance at which FTFA and FedAvg tie."""
    world = population(given)
    edge = fa.noise_threshold(world)
    crossing = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2 * edge, 6)}).boundary
    return {"sigma2_crit": [edge**2, *(crossing.ravel() ** 2)]}


def finite_m_equal(given: Inputs) -> Found:
    """Finitely many equal clients, any covariance: FedAvg, and pFedMe at its best ridge."""
    world, m = population(given), float(given["m"])
    names = ["fedavg", "pfedme", "ftfa"]
    member, new = (fa.predict(world, names, clients=m, member=inside) for inside in (True, False))
    found = {
        "fedavg_member": [member["fedavg"].loss],
        "fedavg_new": [new["fedavg"].loss],
        "lambda_opt": [member["pfedme"].ridge, fa.optimal_ridge(world)],
        "kappa_m": [float(effective_kappa(flatten(world, ()), np.array([m]))[0][0])],
        "pfedme_opt_member": [member["pfedme"].loss],
    }
    if given["spectrum"] == "identity":
        found |= {"ftfa_member": [member["ftfa"].loss], "ftfa_new": [new["ftfa"].loss]}
    return found


def earlystop_gd_identity(given: Inputs) -> Found:
    """Some gradient steps, uncorrelated features."""
    steps, eta = int(given["steps"]), float(given["eta"])
    stage = fa.Algorithm("stopped", fa.algorithms.Average(), fa.algorithms.Descend(eta, steps))
    return stopped(
        fa.fine_tuning(population(given), step=eta, steps=[steps]), population(given), stage
    )


def earlystop_flow_identity(given: Inputs) -> Found:
    """Gradient flow for some time, uncorrelated features."""
    time = float(given["time"])
    stage = fa.Algorithm("stopped", fa.algorithms.Average(), fa.algorithms.Flow(time))
    return stopped(
        fa.fine_tuning(population(given), flow=True, times=[time]), population(given), stage
    )


def stopped(path: fa.FineTuning, world: fa.Population, stage: fa.Algorithm) -> Found:
    """Bias and variance of an early-stopped stage: as a path, and as an algorithm."""
    risk = fa.predict(world, stage)["stopped"]
    return {
        "bias": [float(path.bias[0]), risk.bias],
        "variance": [float(path.variance[0]), risk.variance],
    }


def earlystop_gd_general(given: Inputs) -> Found:
    """Some gradient steps, correlated features, with and without an alignment."""
    options = {"step": float(given["eta"]), "steps": [int(given["steps"])]}
    even = fa.fine_tuning(population(given, shift_power=0), **options)
    aligned = fa.fine_tuning(population(given), **options)
    return {
        "bias_isotropic": [float(even.bias[0])],
        "variance": [float(even.variance[0]), float(aligned.variance[0])],
        "bias_aligned": [float(aligned.bias[0])],
    }


def finite_m_identity(given: Inputs) -> Found:
    """Finitely many equal clients, uncorrelated features: RTFA at any ridge, and the subordination
    behind it.
    """
    world, m, lam = population(given), float(given["m"]), float(given["lam"])
    numbers = [np.array([x]) for x in (world.aspect, world.radius**2, world.noise**2, m)]

    def risks(member: bool) -> list[float]:
        table = fa.predict(world, given["alg"], ridge=lam, clients=m, member=member)
        other = subordinate(np.ones_like, lambda x: lam / (x + lam), *numbers, member)
        return [table[given["alg"]].loss, float(sum(other)[0])]

    law, u = marchenko_pastur(numbers[0], 400), (1 - 1 / m) * (1 - world.aspect / m)
    first, second = (float(law.mean(1 / (law.x / m + u) ** power)[0]) for power in (1, 2))
    return {
        "member": risks(True),
        "new": risks(False),
        "r_eff2": [fa.predict(world, "fedavg", clients=m, member=False)["fedavg"].loss],
        "u": [u, (1 - 1 / m) / first],
        "nu": [
            1 / (m - (m - 1) * second / first**2),
            (1 - world.aspect / m**2) / (1 - world.aspect / m),
        ],
    }


def different_clients(given: Inputs, **changes: list[float]) -> list[fa.Population]:
    """The clients of a heterogeneous case, on joint directions; `changes` replace lists of
    inputs.
    """
    S, h, gamma, s2, r2 = (
        changes.get(key, json.loads(given[key])) for key in ("S", "h", "gamma", "sigma2", "r2")
    )
    return [
        fa.Population(r2[j] ** 0.5, s2[j] ** 0.5, gamma[j], spectrum=fa.spectra.atoms(S[j], h))
        for j in range(len(S))
    ]


def fedavg_hetero(given: Inputs) -> Found:
    """FedAvg on clients that all differ: bias and variance split by where they come from, by
    switching radii off.
    """
    i, p, r2 = given["client"], json.loads(given["p"]), json.loads(given["r2"])
    clients = different_clients(given)

    def fedavg(populations: list[fa.Population]) -> fa.Risk:
        return fa.predict(populations, "fedavg", weights=p)["fedavg"]

    alone = different_clients(given, r2=[r2[j] if j == i else 0 for j in range(len(r2))])
    others = different_clients(given, r2=[0 if j == i else r2[j] for j in range(len(r2))])
    pooled = DifferentClients(merge_clients(clients, None, p), member=True).pooled
    return {f"c{j}": [c] for j, c in enumerate(pooled.c[0].tolist())} | {
        "noise": [fedavg(each).variance[i] for each in (clients, alone, others)],
        "drift_others": [fedavg(others).bias[i]],
        "own": [fedavg(alone).bias[i]],
        "risk": [fedavg(clients).loss[i]],
    }


def blup_hetero(given: Inputs) -> Found:
    """pFedMe at its best ridge on clients that all differ, equation (16)."""
    clients = different_clients(given)
    loss = fa.predict(clients, "pfedme")["pfedme"].loss
    bias, variance, centre, blur = blup_groups(
        DifferentClients(merge_clients(clients, None, None), member=True).groups
    )
    noise2 = np.array([each.noise**2 for each in clients])
    found: Found = {f"risk{j}": [loss[j], bias[0, j] + variance[0, j]] for j in range(len(clients))}
    found |= {f"alpha{j}": [1 / (1 + loss[j] / noise2[j])] for j in range(len(clients))}
    return found | {f"G00_{k}": [value] for k, value in enumerate((centre + blur)[0])}


KINDS: dict[str, Callable[[Inputs], Found]] = {
    kind.__name__: kind
    for kind in (
        ridge,
        optimal_isotropic,
        optimal_aligned,
        ftfa_threshold,
        finite_m_equal,
        earlystop_gd_identity,
        earlystop_flow_identity,
        earlystop_gd_general,
        finite_m_identity,
        fedavg_hetero,
        blup_hetero,
    )
}


@pytest.mark.parametrize("case", GOLDEN, ids=map(name_of, GOLDEN))
def test_reference_case(case: dict) -> None:
    """Every output of the case, by every route to it."""
    found = KINDS[case["kind"]](case["inputs"])
    assert found.keys() == case["outputs"].keys()
    for key, digits in case["outputs"].items():
        tolerance = ARGMIN.get(key, EXACT) if case["kind"] == "optimal_aligned" else EXACT
        for value in found[key]:
            assert value == pytest.approx(float(digits), rel=tolerance, abs=0), key


def test_all_45_reference_cases_are_here() -> None:
    """No case was lost, and each has its own name."""
    assert len({name_of(case) for case in GOLDEN}) == len(GOLDEN) == 45
