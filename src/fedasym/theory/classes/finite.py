"""Section 12: finitely many clients share one pooled logistic fit, which members and newcomers
fine-tune.

A member's own data are part of the shared model that it starts from: a system of two stages, in
which the pooled fit (index
0) and the client's fit around it (index 2) meet the same samples.

Infinitely many clients that share another model than FedAvg's, pFedMe's or MAML's: by symmetry it
is c theta_0, and c is one number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.classes.metrics import (
    LEVEL,
    STRIP,
    State,
    accuracy,
    brier,
    half_normal_nodes,
    log_loss,
    logistic_prox,
    nodes_for,
    normal_nodes,
    phi,
    smooth_sigmoid,
    step_for,
)
from fedasym.theory.classes.optimum import ridge_by_rule
from fedasym.theory.classes.ridge import RidgeFit, shared_state, shrinkage, solve_ridge
from fedasym.theory.roots import ACCEPTED, find_fixed_points, newton_fixed_points, search_lowest
from fedasym.worlds.classes import Energies


class PooledFit(NamedTuple):
    """The pooled fit as a member (`member`) and as a new client (`new`) sees it."""

    member: RidgeFit
    new: State


def pooled_fit(
    energies: Energies, gamma: ArrayLike, m: ArrayLike, mu: ArrayLike = 0.0, eps: ArrayLike = 0.0
) -> PooledFit:
    """12.1: FedAvg of m equal clients with a global ridge mu: the system at gamma/m with ED/m in
    its linear part.

    Without mu the pooled data must not be separable: gamma/m below a threshold like gamma*; else
    `member.diverged`.

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> shared = pooled_fit(Energies.isotropic(2, 1, s=[0.5, 3], h=[0.6, 0.4]), gamma=1, m=20)
    >>> round(float(accuracy(shared.member)), 6), round(float(accuracy(shared.new)), 6)
    (0.760628, 0.756396)
    """
    m = np.asarray(m, dtype=float)
    fit = solve_ridge(energies, np.asarray(gamma) / m, mu, eps=eps, own=1 / m)
    overlap = (energies.s * fit.f0 * energies.e0).sum(-1)
    return PooledFit(fit, State.of(overlap, fit.Q, fit.rho))


def newcomer_fit(
    energies: Energies,
    gamma: ArrayLike,
    lam: ArrayLike,
    m: ArrayLike,
    mu: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
) -> RidgeFit:
    """12.2: RTFA(lam) of a new client around a model that m other clients shared:

    c = M s R per atom, Ev = R^2 {(M s)^2 ED/m + (gamma/m) G s h}, from the pooled fit.

    >>> round(float(newcomer_fit(Energies.isotropic(1.5, 1.5), gamma=2, lam=0.5, m=10).T), 9)
    2.577361144
    """
    e = energies
    fit = pooled_fit(e, gamma, m, mu, eps).member
    gamma, m, mu = (np.asarray(x, dtype=float) for x in (gamma, m, mu))
    M, G, H = fit.M[..., None], fit.G[..., None], fit.H[..., None]
    R = first_stage(e, H, mu[..., None])
    ev = R**2 * ((M * e.s) ** 2 * e.ed / m[..., None] + (gamma / m)[..., None] * G * e.s * e.h)
    return solve_ridge(e, gamma, lam, eps=eps, centre=fit.f0, ev=ev, own=np.ones_like(fit.T))


def first_stage(energies: Energies, H: Array, mu: Array) -> Array:
    """R = 1/(Hh s + mu), 0 in directions that samples do not see."""
    reach = H * energies.s + mu
    return np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)


NARROWER = 0.6  # the second prox sees V20 g0 as well, which eats into the strip
LARGEST_GRID = 2_000_000  # nodes of a product grid: very strong signals make do with fewer digits


class MemberFit(NamedTuple):
    """A member's state, its overlap Q02 with the shared model, and its fit's responses V22, V20."""

    state: State
    Q02: Array
    V22: Array
    V20: Array


class JointMeans(NamedTuple):
    """Means over the samples that both stages see."""

    H22: float
    H20: float
    M2: float
    S22: float
    S02: float


def member_fit(
    energies: Energies,
    gamma: ArrayLike,
    lam: ArrayLike,
    m: ArrayLike,
    mu: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
) -> MemberFit:
    """RTFA(lam) of one of the m equal clients that shared the pooled fit.

    >>> one = member_fit(Energies.isotropic(2, 1, s=[0.5, 3], h=[0.6, 0.4]), gamma=1, lam=0.5, m=20)
    >>> round(float(one.state.T), 9), round(float(one.Q02), 9)
    (5.762651624, 5.074322583)
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, m, mu, eps)))
    e = energies.broadcast(shape).flat()
    flat = [
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1)
        for x in (gamma, lam, m, mu, eps)
    ]
    count = int(np.prod(energies.batch))
    places = np.broadcast_to(np.arange(count).reshape(energies.batch), shape).reshape(-1)
    pooled: dict[tuple[float, ...], RidgeFit] = {}  # settings that differ in lam alone share it
    rows = []
    for i, (g, at, *others) in enumerate(zip(*(x.tolist() for x in flat), strict=True)):
        one = e.take(i)
        key = (places[i], g, *others)
        if key not in pooled:
            pooled[key] = pooled_fit(one, g, *others).member
        rows.append(fit_one_member(one, pooled[key], g, at, *others))
    T, Q22, Q02, V22, V20 = np.array(rows).reshape(-1, 5).T.reshape(5, *shape)
    return MemberFit(State.of(T, Q22, e.rho.reshape(shape)), Q02, V22, V20)


def fit_one_member(
    e: Energies, first: RidgeFit, gamma: float, lam: float, m: float, mu: float, eps: float
) -> Array:
    """(T2, Q22, Q02, V22, V20) of one setting; NaN where `first` or the client's fit diverges."""
    if bool(first.diverged):
        return np.full(5, np.nan)
    if np.isinf(lam):
        return np.array([first.T, first.Q, first.Q, 0.0, first.V])
    R0 = first_stage(e, first.H, np.asarray(mu))
    rho = float(e.rho)

    own = solve_ridge(e, gamma, lam, shrinkage(e, eps), eps)
    if bool(own.diverged):
        return np.full(5, np.nan)
    Q = max(float(own.Q), float(first.Q))
    scale = np.array(
        [
            rho * np.sqrt(Q) if rho > 0 else 1.0,
            1.0,
            np.sqrt(Q * float(first.Q)),
            1.0,
            float(first.V),
        ]
    )

    def unpack_unknowns(u: Array) -> Array:
        """(T2, Q22, Q02, V22, V20): Q22 and V22 iterate as logarithms, others relative."""
        return np.asarray(np.where([False, True, False, True, False], np.exp(u), scale * u))

    def image(u: Array, _: object = None) -> Array:
        x = member_sums(
            e, gamma, lam, m, first, R0, joint_means(unpack_unknowns(u[0]), first, rho, eps)
        )
        return np.asarray(np.array([[x[0], np.log(x[1]), x[2], np.log(x[3]), x[4]]]) / scale)

    cos = max(float(own.cos), float(first.cos))
    start = np.array([[cos, np.log(Q), 0.9, np.log(float(own.V)), 1.0]])
    found = find_fixed_points(image, start, rounds=60, damped=1)
    if not found.residual[0] <= ACCEPTED:
        found = newton_fixed_points(image, np.where(np.isfinite(found.u), found.u, start))
    return unpack_unknowns(found.u[0]) if found.residual[0] <= ACCEPTED else np.full(5, np.nan)


def joint_means(x: Array, first: RidgeFit, rho: float, eps: float) -> JointMeans:
    """The means over (w0, w2) ~ N(0, [[Q00, Q02], [Q02, Q22]]) with s regressed on both, cov(s, .)
    = (T0, T2).

    In coordinates z1 along the regression and z2 across it the label depends on z1 alone.
    """
    T2, Q22, Q02, V22, V20 = x
    T0, Q00, V00 = float(first.T), float(first.Q), float(first.V)
    Q02 = np.clip(Q02, -0.999999 * np.sqrt(Q00 * Q22), 0.999999 * np.sqrt(Q00 * Q22))
    det = Q00 * Q22 - Q02**2
    known = min((T0**2 * Q22 - 2 * T0 * T2 * Q02 + T2**2 * Q00) / det, rho**2)
    along0, along2 = (T0 / np.sqrt(known), T2 / np.sqrt(known)) if known > 0 else (0.0, 0.0)
    across0, across2 = np.sqrt(max(Q00 - along0**2, 0.0)), np.sqrt(max(Q22 - along2**2, 0.0))
    across2 = np.copysign(across2, Q02 - along0 * along2)
    reach1 = max(abs(along0), abs(along2), np.sqrt(known), 1e-12)
    reach2 = max(across0, abs(across2), 1e-12)
    level, n1, n2 = grid_for(reach1, reach2)
    (z1, weight1) = half_normal_nodes(n1, level)
    (z2, weight2) = normal_nodes(n2, level)
    p, d = smooth_sigmoid(np.sqrt(known) * z1[None], np.array([np.sqrt(max(rho**2 - known, 0.0))]))
    p, d = eps + (1 - 2 * eps) * p[0], (1 - 2 * eps) * d[0]
    both = np.concatenate([z1, -z1])[:, None]
    # of the samples labelled +1
    share = np.concatenate([p, 1 - p]) * np.concatenate([weight1, weight1])
    slope = np.concatenate([d, d]) * np.concatenate([weight1, weight1])
    g0 = expit(-logistic_prox(along0 * both + across0 * z2, np.asarray(V00)))
    g2 = expit(-logistic_prox(along2 * both + across2 * z2 + V20 * g0, np.asarray(V22)))
    l0, l2 = g0 * (1 - g0), g2 * (1 - g2)
    stiff = l2 / (1 + V22 * l2)

    def mean(f: Array, over: Array) -> float:
        return 2 * float(over @ f @ weight2)

    return JointMeans(
        H22=mean(stiff, share),
        H20=-V20 * mean(stiff * l0 / (1 + V00 * l0), share),
        M2=mean(g2, slope),
        S22=mean(g2**2, share),
        S02=mean(g0 * g2, share),
    )


def grid_for(reach1: float, reach2: float) -> tuple[float, int, int]:
    """The level that the product grid can afford, and its nodes of one sign along either axis."""
    for level in (LEVEL, 25.0, 17.0, 12.0):
        n1, n2 = (
            int(nodes_for(step_for(np.asarray(NARROWER * STRIP / x), level=level), level))
            for x in (reach1, reach2)
        )
        if 4 * n1 * n2 <= LARGEST_GRID:
            break
    return level, n1, n2


def member_sums(
    e: Energies, gamma: float, lam: float, m: float, first: RidgeFit, R0: Array, at: JointMeans
) -> tuple[float, float, float, float, float]:
    """(T2, Q22, Q02, V22, V20) from the means; the pooled R0 = 1/(H0 s + mu), a0 = M0 s R0."""
    s = e.s
    h = e.h
    gN = gamma / m
    G00 = float(first.G)
    reach = at.H22 * s + lam
    Dn = np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)
    A = (lam - at.H20 * s) * Dn
    a0 = float(first.M) * s * R0
    own = at.M2 * s * Dn
    k0, ki, ko = A * a0 + own, A * a0 / m + own, A * a0
    others = e.ed * (m - 1) / m**2
    shared_noise, cross = gN * G00 * s * R0**2, gN * at.S02 * s * R0
    T2 = (s * (k0 * e.e0 + ki * e.ed)).sum()
    V22, V20 = gamma * (h * s * Dn).sum(), gN * (h * A * s * R0).sum()
    noise = h * (A**2 * shared_noise + Dn**2 * s * gamma * at.S22 + 2 * A * Dn * cross)
    Q22 = (s * (k0**2 * e.e0 + ki**2 * e.ed + ko**2 * others + noise)).sum()
    blur = h * (A * shared_noise + Dn * cross)
    Q02 = (s * (a0 * k0 * e.e0 + a0 / m * ki * e.ed + a0 * ko * others + blur)).sum()
    return float(T2), float(Q22), float(Q02), float(V22), float(V20)


MOST_TURNS = 200
SETTLED = 1e-12  # relative change of c at which it has settled


def moreau_fit(
    energies: Energies, gamma: ArrayLike, lam: ArrayLike, eps: ArrayLike = 0.0
) -> tuple[RidgeFit, Array]:
    """PFedMe of infinitely many clients: their personal fits around c theta_0, and c.

    The shared model is the mean of the personal ones, so that along every direction
    c = R (lam c + M s), R = 1/(H s + lam): c = M/H, whatever the covariance. Iterated, with
    Aitken's step after every two.

    >>> fit, c = moreau_fit(Energies.isotropic(1, 1), gamma=0.2, lam=0.1)
    >>> bool(abs(c - fit.M / fit.H) < 1e-10)
    True
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, eps)))
    c = np.broadcast_to(shrinkage(energies, eps), shape).astype(float)
    seen = [c]
    for _ in range(MOST_TURNS):
        fit = solve_ridge(energies, gamma, lam, c, eps)
        with np.errstate(invalid="ignore"):
            new = np.where(np.isfinite(lam), fit.M / fit.H, c)
        if not np.any(np.abs(new - c) > SETTLED * np.abs(new)):
            return fit, new
        seen.append(new)
        if len(seen) == 3:
            first, second, third = seen
            bend = third - 2 * second + first
            with np.errstate(divide="ignore", invalid="ignore"):
                jump = third - (third - second) ** 2 / bend
            # while differences are more than rounding, and the step leads onwards
            firm = (np.abs(bend) > 1e-13 * np.abs(third)) & (jump > 0) & (jump < 4 * third)
            new = np.where(firm, jump, third)
            seen = [new]
        c = new
    return fit, c


def step_around(
    energies: Energies, gamma: ArrayLike, c: ArrayLike, step: ArrayLike, eps: ArrayLike = 0.0
) -> State:
    """One gradient step of size a from c theta_0, which need not be FedAvg's:

    T = c B0 + a sum s^2 (f (E0 + ED) - c phi(c sqrt B0) E0), Q = sum s (c + a s (f - c phi))^2 E0 +
    a^2 sum s^2 (f^2 s ED + gamma G h), f = (1 - 2 eps) phi(rho), G the Brier score of c theta_0.
    """
    e = energies
    c, a, gamma = (np.asarray(x, dtype=float) for x in (c, step, gamma))
    f = (1 - 2 * np.asarray(eps)) * phi(e.rho)
    pull = f - c * phi(c * np.sqrt(e.b0))
    G = brier(shared_state(e, c), eps)
    moved = c[..., None] + (a * pull)[..., None] * e.s
    T = (e.s * moved * e.e0).sum(-1) + a * f * (e.s**2 * e.ed).sum(-1)
    noise = gamma * G * (e.s**2 * e.h).sum(-1)
    Q = (e.s * moved**2 * e.e0).sum(-1) + a**2 * (f**2 * (e.s**3 * e.ed).sum(-1) + noise)
    return State.of(T, Q, e.rho)


def meta_scale(energies: Energies, gamma: Array, step: float, eps: Array) -> Array:
    """The c of MAML's shared model c theta_0, uncorrelated features: the log-loss on fresh samples
    after one step of this size is least there.
    """
    e = energies
    if np.any(np.ptp(e.s, axis=-1) > 0):
        raise NoFormula(
            "MAML's shared model is derived for uncorrelated features alone (spectra.identity())"
        )
    wide = Energies(*(x[:, None, :] for x in (e.s, e.h, e.e0, e.ed)))

    def loss(x: Array) -> Array:
        state = step_around(wide, gamma[:, None], np.exp(x), step, eps[:, None])
        return log_loss(state, eps[:, None])

    return np.exp(search_lowest(loss, np.log(np.maximum(shrinkage(e, eps), 1e-6))))


def moreau_scale(
    energies: Energies, gamma: Array, ridge: Array | None, eps: Array
) -> tuple[Array, Array]:
    """The c of pFedMe's shared model at a ridge, or (None) at the most accurate; and the ridge."""
    if ridge is None:

        def fit(e: Energies, gamma: Array, lam: Array, eps: Array) -> RidgeFit:
            return moreau_fit(e, gamma, lam, eps)[0]

        ridge = most_accurate_ridge(energies, gamma, eps, fit)
    return moreau_fit(energies, gamma, ridge, eps)[1], ridge


def fit_around(
    energies: Energies, gamma: Array, c: Array, ridge: Array | None, eps: Array
) -> tuple[RidgeFit, Array]:
    """A ridge towards c theta_0, as given or (None) the most accurate."""
    if ridge is None:

        def fit(e: Energies, gamma: Array, lam: Array, eps: Array) -> RidgeFit:
            return solve_ridge(e, gamma, lam, c[:, None], eps)

        ridge = most_accurate_ridge(energies, gamma, eps, fit)
    return solve_ridge(energies, gamma, ridge, c, eps), ridge


def most_accurate_ridge(
    e: Energies, gamma: Array, eps: Array, fit: Callable[..., RidgeFit]
) -> Array:
    """Where a fit(energies, gamma, ridge, eps) is the most accurate."""
    wide = Energies(*(x[:, None, :] for x in (e.s, e.h, e.e0, e.ed)))
    rule = ridge_by_rule(e, gamma, eps)
    start = np.log(np.where(np.isfinite(rule), rule, 1e3))

    def loss(x: Array) -> Array:
        return -accuracy(fit(wide, gamma[:, None], np.exp(x), eps[:, None]), eps[:, None])

    return np.exp(search_lowest(loss, start))
