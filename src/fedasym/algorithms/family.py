"""The algorithms that people type beside the paper's: as pairs of stages, or as another name with a
sentence.

First, a ridge on the shared model too ("two ridges"): with few clients the shared model has a prior
as well as the differences from it, and pulling it towards zero pays. On a linear model
Q = sum_j p_j S_j b(S_j) has `shared_ridge` added, whatever the weight b: every lens asks a server
stage for that setting alone, so that a stage of yours may have it, too. With normal differences and
a normal shared optimum, pFedMe with both ridges at their best is the posterior mean: no method that
is linear in the labels is better for a member.

Then those whose clients or server keep something from round to round: control variates, penalties
that learn, server optimisers, personal models beside the shared one, and a model for each cluster.
All but the last end where FedAvg does: on a linear head they have its weight b(x) = 1, its limits
and its exact fits, and differ in how many rounds they take. They are written once, for the plain
twin and the compiled programs (`fedasym.training`): `step` is taken by clients, `finish` at the end
of a client's turn, `update` by the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedasym.algorithms.methods import Average, Interpolate, Keep, Moreau, Ridge, descent_factors
from fedasym.algorithms.paper import STEPS, Algorithm, with_shares
from fedasym.algorithms.registry import REGISTRY
from fedasym.algorithms.stages import (
    Array,
    ClientStage,
    Gradient,
    Objective,
    ServerStage,
    rule,
    setting,
)

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


RATES = (0.01, 0.1, 1)
LEAST = 1e-12  # of clients' weights: below, a cluster had none in this round


class AverageRounds(ServerStage):
    """What server stages have in common that minimise clients' weighted losses by other rounds."""

    objective = Objective.POOLED

    def weight(self, x: Array) -> Array:
        """b(x) = 1."""
        return np.ones_like(x)

    def step(self, w: Any, start: Any, gradient: Gradient, rate: Any) -> Any:
        """Plain descent."""
        return w - rate * gradient(w)


class ControlVariates(AverageRounds):
    """Server stage: clients correct their drift by what the server's gradient and their own were
    last (SCAFFOLD, option II).
    """

    def init_client(self, w: Any) -> Any:
        """The client's control variate c_i."""
        return 0 * w

    def init_server(self, w: Any) -> Any:
        """The mean c of the clients' control variates."""
        return 0 * w

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, state: Any
    ) -> Any:
        """W - eta (g(w) - c_i + c)."""
        own, common = state
        return w - rate * (gradient(w) - own + common), state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """c_i - c + (W - w)/(K eta), and by how much that is more than before."""
        own, common = state
        later = own - common + (start - w) / (steps * rate)
        return later, later - own

    def update(  # type: ignore[override]
        self, w: Any, change: Any, common: Any, sent: Any, portion: float
    ) -> Any:
        """The mean model; c moves by the drawn part of the clients."""
        return w + change, common + portion * sent


class DynamicPenalty(AverageRounds):
    """Server stage: clients are held near the shared model, less the pull that they have gathered
    against it, so that local optima agree with the common one (FedDyn).
    """

    step_settings = ("server_step", "penalty")

    penalty: float = setting(
        default=0.1, above=0, meaning="pull towards the shared model", grid=(0.01, 0.1, 1)
    )

    def init_client(self, w: Any) -> Any:
        """The vector h_i: the client's gradient where it stopped last."""
        return 0 * w

    def init_server(self, w: Any) -> Any:
        """The vector h: the mean of the clients'."""
        return 0 * w

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, state: Any
    ) -> Any:
        """Descent on loss(w) - <h_i, w> + penalty/2 |w - W|^2."""
        own, _ = state
        return w - rate * (gradient(w) - own + self.penalty * (w - start)), state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """The vector h_i - penalty (w - W)."""
        return state[0] - self.penalty * (w - start), None

    def update(  # type: ignore[override]
        self, w: Any, change: Any, common: Any, sent: Any, portion: float
    ) -> Any:
        """The vector h - penalty x the clients' mean change; the mean model less h/penalty."""
        common = common - self.penalty * portion * change
        return w + change - common / self.penalty, common


class NormalisedSteps(AverageRounds):
    """Server stage: clients take at most `local_epochs` passes over their samples, small ones fewer
    steps than large ones, and the server averages changes per step (FedNova).

    Where all take as many, it is FedAvg.
    """

    local_epochs: int = setting(
        default=1, least=1, meaning="passes over a client's samples in a round, at most"
    )

    def client_steps(self, samples: int, batch: int, steps: int) -> int:
        """The batches of its passes, at most those of the round."""
        return min(steps, self.local_epochs * -(-samples // batch))

    def init_client(self, w: Any) -> Any:
        """Nothing: but what it sends counts its steps."""
        return ()

    def init_server(self, w: Any) -> Any:
        """Nothing."""
        return ()

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, state: Any
    ) -> Any:
        """Plain descent."""
        return w - rate * gradient(w), state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """The change per step, and the number of steps."""
        return (), ((w - start) / steps, steps)

    def update(  # type: ignore[override]
        self, w: Any, change: Any, common: Any, sent: Any, portion: float
    ) -> Any:
        """As many mean steps as clients take on average."""
        per_step, steps = sent
        return w + steps * per_step, common


class ServerMomentum(AverageRounds):
    """Server stage: the server's model goes on along the clients' earlier changes (FedAvgM)."""

    step_settings = ("server_step", "server_rate")

    momentum: float = setting(
        default=0.9,
        least=0,
        most=1,
        meaning="momentum: part of the last update that is kept",
        grid=(0.5, 0.9),
    )
    server_rate: float = setting(
        default=1.0, above=0, meaning="how far the server goes along the clients' change"
    )

    def init_server(self, w: Any) -> Any:
        """The speed."""
        return 0 * w

    def update(  # type: ignore[override]
        self, w: Any, change: Any, speed: Any, sent: Any, portion: float
    ) -> Any:
        """The speed v = momentum v + change; the model w + rate v."""
        speed = self.momentum * speed + change
        return w + self.server_rate * speed, speed


class ServerAdam(AverageRounds):
    """Server stage: Adam on the clients' mean change, as if it were minus a gradient (FedAdam)."""

    step_settings = ("server_step", "server_rate")

    server_rate: float = setting(
        default=0.1,
        above=0,
        meaning="how far the server goes along the clients' change",
        grid=RATES,
    )
    momentum: float = setting(
        default=0.9, least=0, most=1, meaning="momentum: part of the last update that is kept"
    )
    second_momentum: float = setting(
        default=0.99, least=0, most=1, meaning="part of the running mean square that is kept"
    )
    floor: float = setting(
        default=1e-3, above=0, meaning="added to roots of mean squares (adaptivity)"
    )

    def init_server(self, w: Any) -> Any:
        """Mean and mean square of changes, and the weight of nothing in each."""
        return 0 * w, 0 * w, 1.0, 1.0

    def update(  # type: ignore[override]
        self, w: Any, change: Any, moments: Any, sent: Any, portion: float
    ) -> Any:
        """Moments m and v without the weight of their start; w + rate m/(sqrt(v) + floor)."""
        m, v, unseen, unseen2 = moments
        m = self.momentum * m + (1 - self.momentum) * change
        v = self.second_momentum * v + (1 - self.second_momentum) * change**2
        unseen, unseen2 = self.momentum * unseen, self.second_momentum * unseen2
        move = m / (1 - unseen) / ((v / (1 - unseen2)) ** 0.5 + self.floor)
        return w + self.server_rate * move, (m, v, unseen, unseen2)


class PersonalRounds(AverageRounds):
    """Server stage: beside its work for the shared model, a drawn client takes steps on a model of
    its own, pulled to the shared one by `ridge`, and keeps it until it is drawn again (Ditto).

    ridge, local_step None: those of the client stage and of the run.
    """

    step_settings: ClassVar[tuple[str, ...]] = ("server_step", "local_step", "ridge")

    ridge: float | None = setting(
        default=None, least=0, meaning="pull of a client's own model towards the shared one"
    )
    local_step: float | None = setting(
        default=None, least=0, meaning="size of the steps of a client's own model"
    )
    # the gradient of the penalty is this times ridge (v - W)
    penalty: float = rule(default=1.0)

    @property
    def gradients(self) -> int:
        """One for each model."""
        return 2

    def init_client(self, w: Any) -> Any:
        """The client's own model v."""
        return w

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, state: Any
    ) -> Any:
        """W - eta g(w), and v - alpha (g(v) + ridge (v - W))."""
        parts: Any = gradient  # which has more than a call
        ridge: Any = self.ridge
        own, common = state
        own = parts.own_part(own) + parts.common_part(start)
        pulled = parts(own) + self.penalty * ridge * (own - start)
        later = own - self.local_step * parts.own_part(pulled)
        return w - rate * parts(w), (later, common)

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """The own model v is kept."""
        return state[0], None

    def gives_personal(self, client: ClientStage) -> bool:
        """With a ridge, the models that clients keep are their own."""
        return client.linear_objective is Objective.PENALISED

    def personal_model(self, w: Any, state: Any) -> Any:
        """The own model v."""
        return state


class ClusterModels(ServerStage):
    """Server stage: a model for each of `clusters` groups of clients; a client works on the one
    that has the least loss on its samples, and the server averages within groups (IFCA,
    HypCluster).

    In large dimension clients find their cluster without fail, as losses differ by more than their
    noise: a cluster is a population of its own, of fewer clients and a smaller radius. Where
    clients come in no clusters (between 0) groups only make clients fewer.
    """

    clusters: int = setting(
        default=3, least=1, meaning="models, one for each group of clients", grid=(2, 3, 5)
    )
    between: float = setting(
        default=0.0, least=0, most=1, meaning="share of radius^2 between clusters, in limits"
    )

    @property
    def group_stage(self) -> ServerStage:
        """FedAvg."""
        return Average()

    def relevant_settings(self) -> set[str]:
        """In training, data say how far clusters are apart."""
        return {"clusters"}

    @property
    def start_models(self) -> int:
        """One for each group."""
        return self.clusters

    def init_client(self, w: Any) -> Any:
        """Nothing: a client chooses anew in every round."""
        return ()

    def init_server(self, w: Any, starts: Sequence[Any] = ()) -> Any:
        """The groups' models."""
        return tuple(starts)

    def begin(self, start: Any, state: Any, choose: Callable[..., Any]) -> tuple[Any, Any]:
        """At the model with the least loss; the state says which."""
        models = state[1]
        chosen = tuple(choose(models))
        return sum((c * each for c, each in zip(chosen, models, strict=True)), 0 * start), chosen

    def step(  # type: ignore[override]
        self, w: Any, start: Any, gradient: Gradient, rate: Any, state: Any
    ) -> Any:
        """Plain descent."""
        return w - rate * gradient(w), state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
        """For each group its model, if it is the client's, and whether it is."""
        return (), tuple((c * w, c) for c in state)

    def update(  # type: ignore[override]
        self, w: Any, change: Any, models: Any, sent: Any, portion: float
    ) -> Any:
        """Means within groups; a group that nobody chose keeps its model. The shared model, for
        clients without samples, is the mean of all.
        """
        later = tuple(
            model + (total - part * model) / (part + LEAST * (part < LEAST))
            for model, (total, part) in zip(models, sent, strict=True)
        )
        return w + change, later


def with_limit_of(target: str, name: str, server: ServerStage, **words: Any) -> Algorithm:
    """An algorithm that ends where another does, with that one's client stage and the sentence."""
    told = {"note": f"{name} ends where {target} does, by other rounds: same limit."} | words
    return Algorithm(name, server, REGISTRY[target].personalise, limit_of=target, **told)


# by other rounds to FedAvg's limit: what they are, who proposed them, colour and marker
OTHER_ROUNDS: dict[str, tuple[ServerStage, str]] = {
    "scaffold": (ControlVariates(), "FedAvg, clients' drift corrected by control variates"),
    "feddyn": (DynamicPenalty(), "FedAvg, clients held near it by a penalty that learns"),
    "fednova": (NormalisedSteps(), "FedAvg of changes per step, where clients take more or fewer"),
    "fedavgm": (ServerMomentum(), "FedAvg with momentum on the server"),
    "fedadam": (ServerAdam(), "FedAvg with Adam on the server"),
}
LABELS = ("reference", "colour", "marker")
MARKS = {
    "scaffold": ("Karimireddy et al. 2020", "#a6761d", "2"),
    "feddyn": ("Acar et al. 2021", "#e6ab02", "3"),
    "fednova": ("Wang et al. 2020", "#d8b365", "4"),
    "fedavgm": ("Hsu et al. 2019", "#f1a340", "+"),
    "fedadam": ("Reddi et al. 2021", "#fdb863", "x"),
}
DITTO = with_limit_of(
    "rtfa",
    "ditto",
    PersonalRounds(),
    words="personal models beside FedAvg's, held near it and kept between rounds",
    note="ditto is rtfa at its optimum: same limit.",
    reference="Li et al. 2021",
    colour="#4393c3",
    marker="d",
    grid={"server_step": STEPS, "local_step": STEPS, "ridge": Ridge.settings()["ridge"].grid},
)
IFCA = Algorithm(
    "ifca",
    ClusterModels(),
    Keep(),
    words="a model for each cluster of clients, which choose by their loss",
    reference="Ghosh et al. 2020",
    colour="#e7298a",
    marker="s",
)
ROUNDS = {
    name: with_limit_of(
        "fedavg", name, stage, words=words, **dict(zip(LABELS, MARKS[name], strict=True))
    )
    for name, (stage, words) in OTHER_ROUNDS.items()
} | {each.name: each for each in (DITTO, IFCA)}
STAGES = tuple(type(each.server) for each in ROUNDS.values())


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
    same = FAMILY.get(target) or ROUNDS.get(target) or REGISTRY[target]
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
    [*ROUNDS.values(), *FAMILY.values(), *LABEL_SHIFT, *ALIASES.values()],
    [
        *STAGES,
        *(AverageRidge, GramRidge, MoreauRidge, Prox, LocalSteps, ModelMixture, DirectedRidge),
    ],
)
