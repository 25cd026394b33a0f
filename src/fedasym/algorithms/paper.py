"""An algorithm is a pair of stages under one name; the paper's, what tables have beside them, and
the same with class shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedasym.algorithms.methods import (
    Average,
    AverageSquares,
    BestStep,
    BestTime,
    Descend,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Posterior,
    Ridge,
    Share,
    Truth,
)
from fedasym.algorithms.stages import (
    ClientStage,
    Objective,
    ScoreStage,
    ServerStage,
    Setting,
    Stage,
)
from fedasym.core.errors import InvalidInput

CHENG = "Cheng, Chadha and Duchi 2021"
STEPS = (0.0001, 0.001, 0.01, 0.1, 1)  # the paper's


@dataclass(frozen=True)
class Algorithm:
    """A server and a client stage under one name; formulas predict it, and any pair is trained.

    correction: what clients add to the scores of classes, in training alone.
    words: what it does, in a few; reference: where it is from. colour, marker, dash: how it is
    drawn. grid: what tuning tries by default, settings and their values. simplicity: its place
    among algorithms that do equally well, of which the first is taken. alias_of: the algorithm
    that it is under another name, limit_of: the one that it ends at by other rounds, and note: the
    sentence that says so. variant_of: whose settings in parentheses it takes, as in
    "fedavg(local_steps=20)".

    >>> import fedasym as fa
    >>> one_step = fa.Algorithm(
    ...     "one-step MAML", fa.algorithms.Meta(0.1), fa.algorithms.Descend(0.3)
    ... )
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> round(fa.predict(world, [one_step])["one-step MAML"].loss, 6)
    0.715
    """

    name: str
    server: ServerStage
    personalise: ClientStage
    correction: ScoreStage | None = field(default=None, kw_only=True)
    words: str = field(default="", compare=False, kw_only=True)
    reference: str = field(default="", compare=False, kw_only=True)
    colour: str | None = field(default=None, compare=False, kw_only=True)
    marker: str | None = field(default=None, compare=False, kw_only=True)
    dash: tuple[float, ...] = field(default=(), compare=False, kw_only=True)
    grid: Mapping[str, Sequence[float]] | None = field(
        default=None, compare=False, kw_only=True, repr=False
    )
    simplicity: float = field(default=math.inf, compare=False, kw_only=True, repr=False)
    alias_of: str = field(default="", compare=False, kw_only=True, repr=False)
    limit_of: str = field(default="", compare=False, kw_only=True, repr=False)
    variant_of: str = field(default="", compare=False, kw_only=True, repr=False)
    note: str = field(default="", compare=False, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(f"name is {self.name!r}: it must be text, which tables show")
        for kind, stage, base in (
            ("server", self.server, ServerStage),
            ("client", self.personalise, ClientStage),
        ):
            if not isinstance(stage, base):
                wrong = (
                    f"the class {stage.__name__}"
                    if isinstance(stage, type)
                    else type(stage).__name__
                )
                raise InvalidInput(
                    f"the {kind} stage of {self.name} is {wrong}: give one of fa.algorithms, "
                    f"or an instance of a subclass of fa.algorithms.{base.__name__}"
                )
        if not isinstance(self.correction, ScoreStage | None):
            raise InvalidInput(
                f"correction of {self.name} is a {type(self.correction).__name__}: give"
                " fa.algorithms.Share(), or leave it out"
            )

    @property
    def shares_nothing(self) -> bool:
        """Whether clients are on their own: the optimum's length matters, not its displacement."""
        return not self.server.shares

    @property
    def stages(self) -> tuple[ServerStage, ClientStage]:
        """Both."""
        return self.server, self.personalise

    @property
    def parts(self) -> dict[str, Stage]:
        """All of its stages by their role, the correction too where there is one."""
        both: dict[str, Stage] = {"server": self.server, "personalise": self.personalise}
        return both if self.correction is None else {**both, "correction": self.correction}

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that its stages bring, by name."""
        return {
            name: each for stage in self.parts.values() for name, each in stage.settings().items()
        }

    @property
    def fine_tunes(self) -> bool:
        """Whether clients descend from a shared model until they are told to stop."""
        return self.personalise.objective is Objective.OWN and not self.shares_nothing

    @property
    def interpolates(self) -> bool:
        """Whether clients of a linear model end at the interpolant next to where they started."""
        return self.personalise.linear_objective is Objective.OWN

    @property
    def is_penalised(self) -> bool:
        """Whether clients of a linear model are held by a squared penalty, their ridge."""
        return self.personalise.linear_objective is Objective.PENALISED

    @property
    def is_regularised(self) -> bool:
        """Whether its fits are exact, and clients keep the shared model or are held near it."""
        held = self.personalise.objective in (Objective.SHARED, Objective.PENALISED)
        return held and self.server.objective is not None

    @property
    def personal_from_server(self) -> bool:
        """Whether clients' own models come out of their work for the server, as in pFedMe."""
        return self.server.gives_personal(self.personalise)

    @property
    def takes_own_steps(self) -> bool:
        """Whether clients take steps of their own, from the shared model."""
        return self.personalise.step_count != 0 and not self.personal_from_server

    def default_grid(self) -> dict[str, list[float]]:
        """What tuning tries: its own grid, or steps for stages that take some, and its settings."""
        if self.grid is not None:
            return {name: list(values) for name, values in self.grid.items()}
        steps = {} if self.shares_nothing else {"server_step": list(STEPS)}
        if self.personalise.step_count != 0 and "local_step" not in self.personalise.settings():
            steps["local_step"] = list(STEPS)
        own = {
            name: list(each.grid)
            for stage in self.parts.values()
            for name, each in stage.settings().items()
            if each.grid and name in stage.relevant_settings()
        }
        return steps | own

    def with_steps(self, name: str, step: float, steps: int = 1) -> Algorithm:
        """The same shared model under another name, then so many own steps of a size from it."""
        return Algorithm(name, self.server, Descend(step, steps))

    @property
    def has_ridge(self) -> bool:
        """Whether a client is held by a ridge, of which theory and data know the best."""
        return "ridge" in self.personalise.settings()


# Colours are safe for the colour-blind: methods that learn alone in greys, those that share in
# colours. Grids are what the paper tunes over (appendix "Hyperparameter Tuning Details"); what it
# does not tune has none.
AVERAGE = Average()
KEEP = Keep()
PAPER = {
    each.name: each
    for each in (
        Algorithm(
            "local",
            Nothing(),
            Interpolate(),
            words="each client on its own",
            simplicity=5,
            colour="#9a9a9a",
            marker="v",
            grid={"local_step": (*STEPS, 10)},
        ),
        Algorithm(
            "local_ridge",
            Nothing(),
            Ridge(),
            words="each client on its own, with a ridge",
            simplicity=4,
            colour="#5f5f5f",
            marker="^",
        ),
        Algorithm(
            "fedavg",
            AVERAGE,
            KEEP,
            words="one model for all",
            simplicity=0,
            reference="McMahan et al. 2017",
            colour="#e69f00",
            marker="s",
            grid={"server_step": (*STEPS, 10)},
        ),
        Algorithm(
            "ftfa",
            Average(),
            Interpolate(),
            words="FedAvg, then fine-tuning to convergence",
            simplicity=1,
            reference=CHENG,
            colour="#56b4e9",
            marker="o",
            grid={"server_step": STEPS, "local_step": STEPS},
        ),
        Algorithm(
            "rtfa",
            Average(),
            Ridge(),
            words="FedAvg, then a ridge towards it",
            simplicity=2,
            reference=CHENG,
            colour="#0072b2",
            marker="D",
            grid={
                "server_step": STEPS,
                "local_step": STEPS,
                "ridge": Ridge.settings()["ridge"].grid,
            },
        ),
        Algorithm(
            "maml",
            Meta(),
            Interpolate(),
            words="a shared model that is good after one step",
            simplicity=6,
            reference="Fallah et al. 2020",
            colour="#cc79a7",
            marker="P",
        ),
        Algorithm(
            "pfedme",
            Moreau(),
            Ridge(),
            words="shared and personal models together, tied by a ridge",
            simplicity=3,
            reference="Dinh et al. 2020",
            colour="#009e73",
            marker="*",
            grid={"server_step": (0.0005, 0.005, 0.05), "mixing": Moreau.settings()["mixing"].grid},
        ),
    )
}
# of an inner problem, where a run gives none
USUAL_PENALTY = Moreau.settings()["ridge"].usual or 0.0
SIMPLEST = tuple(sorted(PAPER, key=lambda name: PAPER[name].simplicity))  # the first first
TRAINED = PAPER | {
    each.name: each
    for each in (
        Algorithm(
            "maml_fo",
            Meta(hessian="dropped"),
            Interpolate(),
            words="MAML without its Hessian",
            reference="Fallah et al. 2020",
            colour="#882255",
            marker="X",
            grid={"server_step": STEPS, "local_step": STEPS},
        ),
        Algorithm(
            "maml_hf",
            Meta(hessian="free"),
            Interpolate(),
            words="MAML with its Hessian by differences",
            reference="Fallah et al. 2020",
            colour="#d55e00",
            marker="<",
            dash=(4.0, 2.0),
            grid={
                "server_step": STEPS,
                "local_step": STEPS,
                "difference": Meta.settings()["difference"].grid,
            },
        ),
    )
}
CEILINGS = {  # rows of a table that are no algorithms
    each.name: each
    for each in (
        Algorithm("bayes", Average(), Posterior(), words="best of all methods if theta_0 is known"),
        Algorithm("truth", Nothing(), Truth(), words="the client's own optimum, known"),
    )
}
CLASSES = CEILINGS | {  # what has a name with classes alone
    each.name: each
    for each in (
        Algorithm(
            "one_step", Average(), BestStep(), words="FedAvg, then one gradient step, as in MAML"
        ),
        Algorithm(
            "stopped",
            Average(),
            BestTime(),
            words="FedAvg, then gradient descent until the best time",
        ),
        Algorithm(
            "ftfa_squares",
            AverageSquares(),
            Interpolate(),
            words="ftfa with the squared loss on labels",
        ),
        Algorithm(
            "rtfa_squares", AverageSquares(), Ridge(), words="rtfa with the squared loss on labels"
        ),
    )
}


def averaging_twin(algorithm: Algorithm) -> Algorithm:
    """The paper's algorithm with the same client stage whose shared model is FedAvg's.

    >>> averaging_twin(PAPER["maml"]).name, averaging_twin(PAPER["pfedme"]).name
    ('ftfa', 'rtfa')
    """
    return next(
        each
        for each in PAPER.values()
        if each.server.objective is Objective.POOLED and each.personalise == algorithm.personalise
    )


SHARES = "fedavg_share"  # one model for all, with clients' class shares
SHARED = "_share"  # behind the name of an algorithm: clients add their class shares


def with_shares(algorithm: Algorithm, correction: ScoreStage | None = None) -> Algorithm:
    """The algorithm whose clients also add their class shares to the scores, as `<name>_share`.

    >>> with_shares(PAPER["rtfa"]).name, with_shares(PAPER["rtfa"]).default_grid()["share_power"]
    ('rtfa_share', [0.25, 0.5, 1.0, 1.5])
    """
    if algorithm.correction is not None:
        return algorithm
    added = Share() if correction is None else correction
    tuned = {name: list(each.grid) for name, each in added.settings().items() if each.grid}
    return replace(
        algorithm,
        name=f"{algorithm.name}{SHARED}",
        correction=added,
        words=f"{algorithm.words}; scores with the client's class shares",
        grid=algorithm.default_grid() | tuned,
        dash=(2.0, 1.0),
        simplicity=math.inf,
        alias_of="",
        variant_of="",
        note="",
    )
