"""An algorithm is a pair of stages under one name, with what people want to know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedasym.algorithms.average import Interpolate, Keep
from fedasym.algorithms.local import Nothing
from fedasym.algorithms.settings import Setting
from fedasym.algorithms.stages import ClientStage, ServerStage
from fedasym.core.errors import InvalidInput

STEPS = (0.0001, 0.001, 0.01, 0.1, 1)  # the paper's


@dataclass(frozen=True)
class Algorithm:
    """A server stage and a client stage under one name; what the stages have formulas for is predicted, any pair trained.

    words: what it does, in a few; reference: where it is from. colour, marker, dash: how it is drawn. grid: what tuning
    tries by default, settings and their values.

    >>> import fedasym as fa
    >>> one_step = fa.Algorithm("one-step MAML", fa.algorithms.Meta(0.1), fa.algorithms.Descend(0.3))
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> round(fa.predict(world, [one_step])["one-step MAML"].loss, 6)
    0.715
    """

    name: str
    server: ServerStage
    personalise: ClientStage
    words: str = field(default="", compare=False, kw_only=True)
    reference: str = field(default="", compare=False, kw_only=True)
    colour: str | None = field(default=None, compare=False, kw_only=True)
    marker: str | None = field(default=None, compare=False, kw_only=True)
    dash: tuple[float, ...] = field(default=(), compare=False, kw_only=True)
    grid: Mapping[str, Sequence[float]] | None = field(default=None, compare=False, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(f"name is {self.name!r}: it must be text, which tables show")
        for kind, stage, base in (("server", self.server, ServerStage), ("client", self.personalise, ClientStage)):
            if not isinstance(stage, base):
                wrong = f"the class {stage.__name__}" if isinstance(stage, type) else type(stage).__name__
                raise InvalidInput(
                    f"the {kind} stage of {self.name} is {wrong}: give one of fa.algorithms, "
                    f"or an instance of a subclass of fa.algorithms.{base.__name__}"
                )

    @property
    def shares_nothing(self) -> bool:
        """Whether each client is on its own, so that the length of its optimum matters instead of its displacement."""
        return isinstance(self.server, Nothing)

    @property
    def stages(self) -> tuple[ServerStage, ClientStage]:
        """Both."""
        return self.server, self.personalise

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that its stages bring, by name."""
        return {**self.server.settings(), **self.personalise.settings()}

    @property
    def fine_tunes(self) -> bool:
        """Whether clients descend from a shared model until they are told to stop."""
        return isinstance(self.personalise, Interpolate) and not self.shares_nothing

    def default_grid(self) -> dict[str, list[float]]:
        """What tuning tries: its own grid, or steps for every stage that takes some and what its settings say."""
        if self.grid is not None:
            return {name: list(values) for name, values in self.grid.items()}
        steps = {} if self.shares_nothing else {"server_step": list(STEPS)}
        if not isinstance(self.personalise, Keep) and "local_step" not in self.personalise.settings():
            steps["local_step"] = list(STEPS)
        return steps | {name: list(each.grid) for name, each in self.settings.items() if each.grid}

    @property
    def has_ridge(self) -> bool:
        """Whether a client is held by a ridge, of which theory and data know the best."""
        return "ridge" in self.personalise.settings()
