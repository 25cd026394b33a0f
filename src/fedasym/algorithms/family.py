"""The algorithms that people type beside the paper's: as pairs of stages, or as another name with a
sentence.

First, a ridge on the shared model too ("two ridges"): with few clients the shared model has a prior
as well as the differences from it, and pulling it towards zero pays. On a linear model
Q = sum_j p_j S_j b(S_j) has `shared_ridge` added, whatever the weight b: every lens asks a server
stage for that setting alone, so that a stage of yours may have it, too. With normal differences and
a normal shared optimum, pFedMe with both ridges at their best is the posterior mean: no method that
is linear in the labels is better for a member.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedasym.algorithms import servers
from fedasym.algorithms.methods import Average, Interpolate, Keep, Moreau, Ridge, descent_factors
from fedasym.algorithms.paper import STEPS, Algorithm, with_shares
from fedasym.algorithms.registry import REGISTRY
from fedasym.algorithms.stages import Array, ClientStage, Gradient, ServerStage, setting

SHARED_GRID = (0.001, 0.01, 0.1, 1)
SHARED_USUAL = 0.01  # what training takes where nobody says another
MEANING = "penalty on the shared model's length"


class AverageRidge(ServerStage):
    """Server stage: minimise clients' weighted losses and shared_ridge/2 |theta_0|^2, the pooled
    ridge regression.

    shared_ridge None: the best in limits, from the data in exact fits.
    """

    step_settings = ("server_step", "shared_ridge")

    shared_ridge: float | None = setting(
        default=None, least=0, meaning=MEANING, grid=SHARED_GRID, usual=SHARED_USUAL
    )

    @property
    def weighs_alike(self) -> bool:
        """Yes: b(x) = 1."""
        return True

    def weight(self, x: Array) -> Array:
        """b(x) = 1."""
        return np.ones_like(x)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Descent on the loss and the penalty, by weight decay."""
        decay: Any = self.shared_ridge
        return w - rate * (gradient(w) + decay * w)


class GramRidge(AverageRidge):
    """Server stage: the pooled ridge head in one round, from clients' sums of products (AFL and
    Fed3R): the fit and the limit of `AverageRidge`, whatever the partition.
    """

    reads_sums = True


class MoreauRidge(Moreau):
    """Server stage: pFedMe's objective and shared_ridge/2 |theta_0|^2.

    shared_ridge None: the best in limits, noise^2 dimension/(samples |theta_0|^2); from the data in
    exact fits.
    """

    step_settings = ("server_step", "ridge", "inner_step", "shared_ridge")

    shared_ridge: float | None = setting(
        default=None, least=0, meaning=MEANING, grid=SHARED_GRID, usual=SHARED_USUAL
    )

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, theta: Any
    ) -> Any:
        """PFedMe's step, from which w also decays."""
        moved, theta = super().step(w, start, gradient, rate, theta)
        decay: Any = self.shared_ridge
        return moved - rate * decay * w, theta


class Prox(ServerStage):
    """Server stage: clients solve their own problems, held near the shared model by `penalty`
    (FedProx), and the server averages what they find.
    """

    penalty: float = setting(
        default=0.1, above=0, meaning="pull towards the shared model", grid=(0.001, 0.01, 0.1, 1)
    )

    def weight(self, x: Array) -> Array:
        """b(x) = 1/(x + mu): how far an exact solution moves along x."""
        return np.asarray(1 / (x + self.penalty))

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Descent on the loss and mu/2 |w - start|^2."""
        return w - rate * (gradient(w) + self.penalty * (w - start))


class LocalSteps(ServerStage):
    """Server stage: FedAvg as it is really run, `local_steps` whole-batch steps of size
    `server_step` between two averages (local SGD; Reptile).

    None: those of a run, in training; 10 steps of 0.1 in limits and exact fits. Its fixed point
    weighs strong directions less, nearly as pFedMe does with ridge 1/(size x steps).
    """

    server_step: float = setting(default=0.1, above=0, meaning="size of a local step")
    local_steps: int = setting(default=10, least=1, meaning="local steps between two averages")

    def weight(self, x: Array) -> Array:
        """b(x) = (1 - (1 - eta x)^K)/x."""
        x = np.asarray(x, dtype=float)
        moved = descent_factors(self.server_step, self.local_steps, x)[1]
        size = np.asarray(self.server_step) * self.local_steps
        return np.where(x > 0, moved / np.where(x > 0, x, 1.0), size)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Plain descent."""
        return w - rate * gradient(w)


class ModelMixture(ClientStage):
    """Client stage: a mixture of the shared model and of one that the client makes on its own (APFL
    and MAPPER, converged).

    mixture: the weight of its own; None: the best, which limits have in closed form and exact fits
    find by generalised cross-validation. own_ridge: of its own model; 0: to convergence.
    """

    mixture: float | None = setting(
        default=None,
        least=0,
        most=1,
        meaning="weight of a client's own model",
        grid=(0.25, 0.5, 0.75),
        usual=0.5,
    )
    own_ridge: float = setting(default=0.0, least=0, meaning="ridge of a client's own model")

    @property
    def own_stage(self) -> ClientStage:
        """Descent to convergence, or a ridge towards zero."""
        return Ridge(self.own_ridge) if self.own_ridge else Interpolate()

    def init(self, w: Any) -> Any:
        """The client's own model, from nothing."""
        return 0 * w

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, own: Any
    ) -> Any:
        """The own model descends; the personal one is the mixture of it and the shared."""
        part: Any = self.mixture
        own = own - rate * (gradient(own) + self.own_ridge * own)
        return (1 - part) * start + part * own, own


class DirectedRidge(ClientStage):
    """Client stage: a ridge by direction, the penalty lambda Sigma^-power on a client's difference:
    clients that differ along strong features are held there less.

    power None: the best, one over the displacement's energy along each direction, in limits; the
    likeliest in exact fits; 1 in training, which is rtfa's on features that are scaled so. ridge
    None: the best.
    """

    ridge: float | None = setting(
        default=None, least=0, meaning="penalty on a client's distance from the shared model"
    )
    power: float | None = setting(
        default=None,
        meaning="of the covariance by which clients' differences are allowed",
        grid=[-1, 0.5, 1, 2],
        usual=1,
    )

    @property
    def plain_stage(self) -> ClientStage:
        """A ridge, in features scaled by Sigma^(power/2)."""
        return Ridge(self.ridge)

    def keep(self, x: Array) -> Array:
        """P(x) = lambda/(x + lambda), of the scaled features' eigenvalues."""
        return self.plain_stage.keep(x)


FAMILY = {
    each.name: each
    for each in (
        Algorithm(
            "local_sgd",
            LocalSteps(),
            Keep(),
            words="FedAvg with a few local steps between averages",
            reference="Stich 2019; McMahan et al. 2017",
            colour="#b35806",
            marker="d",
            variant_of="fedavg",
            grid={"server_step": STEPS},
        ),
        Algorithm(
            "fedprox",
            Prox(),
            Keep(),
            words="FedAvg, clients held near the shared model",
            reference="Li et al. 2020",
            colour="#e08214",
            marker="p",
        ),
        Algorithm(
            "apfl",
            Average(),
            ModelMixture(),
            words="a mixture of FedAvg's and the client's own model",
            reference="Deng et al. 2020; Mansour et al. 2020",
            colour="#762a83",
            marker="8",
        ),
        Algorithm(
            "rtfa_directed",
            Average(),
            DirectedRidge(),
            words="FedAvg, then a ridge by direction towards it",
            reference="Wu and Xu 2020",
            colour="#2166ac",
            marker=">",
        ),
        Algorithm(
            "fedavg_ridge",
            AverageRidge(),
            Keep(),
            words="one model for all, pulled towards zero",
            reference="Hoerl and Kennard 1970",
            colour="#8c510a",
            marker="h",
        ),
        Algorithm(
            "gram_ridge",
            GramRidge(),
            Keep(),
            words="fedavg_ridge in one round, from sums of products: same limit",
            note="gram_ridge is fedavg_ridge, solved in one round: same limit and fit.",
            reference="He et al. 2025; Fani et al. 2024",
            colour="#bf812d",
            marker="1",
            grid={"shared_ridge": SHARED_GRID},
        ),
        Algorithm(
            "pfedme_ridge",
            MoreauRidge(),
            Ridge(),
            words="pFedMe, its shared model pulled towards zero (two ridges)",
            reference="Lindley and Smith 1972; Dinh et al. 2020",
            colour="#01665e",
            marker="H",
            grid={
                "server_step": (0.0005, 0.005, 0.05),
                "mixing": Moreau.settings()["mixing"].grid,
                "shared_ridge": SHARED_GRID,
            },
        ),
    )
}


def alias(name: str, target: str, note: str, reference: str) -> Algorithm:
    """An algorithm that is another one under a new name, with the sentence that says so."""
    same = FAMILY.get(target) or servers.ROUNDS.get(target) or REGISTRY[target]
    told = f"{name} is {note}."
    grid = {key: list(values) for key, values in same.default_grid().items()}
    return replace(
        same, name=name, alias_of=target, note=told, reference=reference, grid=grid, words=note
    )


ALIASES = {
    each.name: each
    for each in (
        alias("ditto_limit", "rtfa", "rtfa: where ditto ends", "Li et al. 2021"),
        alias("hypcluster", "ifca", "ifca by its authors' name", "Mansour et al. 2020"),
        alias("per_fedavg", "maml", "maml, by its authors' name", "Fallah et al. 2020"),
        alias("per_fedavg_fo", "maml_fo", "maml_fo: first order", "Fallah et al. 2020"),
        alias("per_fedavg_hf", "maml_hf", "maml_hf: Hessian by differences", "Fallah et al. 2020"),
        alias("reptile", "local_sgd", "local_sgd with a mean for a server", "Nichol et al. 2018"),
        alias("afl", "gram_ridge", "gram_ridge by its authors' name", "He et al. 2025"),
        alias("fed3r", "gram_ridge", "gram_ridge by its authors' name", "Fani et al. 2024"),
        alias("mapper", "apfl", "apfl: a mixture of two models", "Mansour et al. 2020"),
        alias("mr_mtl", "pfedme", "pfedme's objective: the mean minimises it", "Liu et al. 2022"),
        alias("l2gd", "pfedme", "pfedme's objective, in random steps", "Hanzely, Richtarik 2020"),
        alias(
            "fedper",
            "local",
            "local on fixed features: heads are personal",
            "Arivazhagan et al. 2019",
        ),
        alias(
            "fedrep", "local", "local on fixed features: heads are personal", "Collins et al. 2021"
        ),
    )
}
# any other by `<name>_share`, or share(name)
LABEL_SHIFT = [with_shares(REGISTRY[name]) for name in ("fedavg", "ftfa", "rtfa")]
REGISTRY.include(
    [*servers.ROUNDS.values(), *FAMILY.values(), *LABEL_SHIFT, *ALIASES.values()],
    [
        *servers.STAGES,
        *(AverageRidge, GramRidge, MoreauRidge, Prox, LocalSteps, ModelMixture, DirectedRidge),
    ],
)
