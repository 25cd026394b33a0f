"""An experiment as a value: which data, which algorithms, what is tuned over, how often it is repeated.

It is what a TOML file says, checked at the door; the rules for numbers are those of `fedasym.train` itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

# The parts come first: they say it in a sentence where pydantic is missing.
from fedasym.experiments.parts import Data, Gains, Names, Part, Settings, Trials  # isort: skip
from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema
from pydantic import field_validator as field
from pydantic import model_validator as model

from fedasym.algorithms.registry import REGISTRY, as_names
from fedasym.core.errors import InvalidInput, unknown
from fedasym.core.text import preformatted
from fedasym.experiments.grids import GRID_SCHEMA, Grid, completed
from fedasym.training.convergence import PAPER_STEPS, stable_steps
from fedasym.training.settings import TEXT, resolve_protocol
from fedasym.training.training import find_algorithms

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

PAPER = Path(__file__).parent / "paper"
ALL = ("local", "fedavg", "ftfa", "rtfa", "maml_fo", "maml_hf", "pfedme")  # what the paper compares


class Experiment(Part):
    """Data, algorithms, grids and trials: all that decides the numbers of a comparison; `fedasym.run` runs it.

    name: of its run folder. about: what it is, in words.
    data: one of features = "cifar100", file = "clients.parquet" (with label, client, columns, split) and synthetic = {...};
        left out, the federation is given to `run`.
    algorithms: names, the paper's seven by default. settings: as `fedasym.train` takes them; name the protocol to have the
        paper's head and steps, whatever the data.
    grid: "paper"; or settings and values, {"server_step": [0.01, 0.1]}, for all that use them; or such a grid by algorithm.
    trials: seeds and splits of the chosen settings; a number n stands for 1, ..., n. gains: see `Gains`; none by default.
    pieces: "fine" (one server step, seed or split is the least that a crash can cost) or "coarse" (fewer, larger calls).

    >>> import fedasym as fa
    >>> mine = fa.Experiment(name="mine", algorithms=["fedavg", "ftfa"], grid={"server_step": [0.01, 0.1]}, trials={"seeds": 3})
    >>> mine.grid["ftfa"], mine.trials.seeds
    ({'server_step': (0.01, 0.1)}, (1, 2, 3))
    >>> fa.Experiment(name="mine", settings={"round": 3})
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: settings.round is 3: there is no such field; did you mean rounds? known are rounds, evaluate_every, cohort, local_steps, batch, personal_epochs, server_step, local_step, ridge, difference, mixing, inner_step, inner_steps, protocol, intercept, precision
    """  # noqa: E501

    name: str
    about: str = ""
    data: Data | None = None
    algorithms: Names = ALL
    settings: Settings = Settings()
    grid: Annotated[Grid, WithJsonSchema(GRID_SCHEMA)] = Field("paper", validate_default=True)
    trials: Trials = Trials()
    gains: Gains | None = None
    pieces: Literal["fine", "coarse"] = "fine"

    def __init__(self, /, **given: Any) -> None:
        from fedasym.experiments.wording import rephrased

        if "algorithms" in given:
            given["algorithms"] = as_names(given["algorithms"])
        try:
            super().__init__(**given)
        except ValidationError as reason:
            raise InvalidInput(rephrased(reason, Experiment)) from None
        except OverflowError:
            raise InvalidInput("a number is too large: give ordinary numbers") from None

    @field("name")
    @classmethod
    def _folder_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError("it names a folder: use letters, digits, points, dashes and underscores")
        return name

    @field("algorithms")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if paths := [name for name in names if ":" in name]:
            raise ValueError(f"{paths[0]!r} would be imported: give names of registered algorithms")
        find_algorithms(names)
        return names

    @field("grid", mode="before")
    @classmethod
    def _by_algorithm(cls, grid: Any, info: ValidationInfo) -> Any:
        names = info.data.get("algorithms")
        return {} if names is None else completed(grid, names)  # wrong algorithms are a problem of their own

    @model(mode="after")
    def _gains_of_tuned(self) -> Self:
        for name in self.gains.algorithms if self.gains else ():
            if name not in self.algorithms:
                trained = ", ".join(self.algorithms)
                raise InvalidInput(f"gains.algorithms has {name}, which is not trained: trained are {trained}")
            if not REGISTRY[name].fine_tunes:
                raise InvalidInput(f"gains.algorithms has {name}, which does not fine-tune a shared model: leave it out")
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> Experiment:
        r"""The experiment of a file; a `data.file` is taken relative to where the file is.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "mine.toml")
        ...     size = file.write_text('name = "mine"\nalgorithms = ["fedavg"]\n[data.synthetic]\nalpha = 1\nbeta = 1\n')
        ...     Experiment.from_toml(file).data.synthetic.alpha
        1.0
        """
        from fedasym.experiments.reading import read

        given = read(Path(path))
        try:
            return cls(**given)
        except InvalidInput as reason:
            raise InvalidInput(f"{path}: {reason}") from None

    @classmethod
    def paper(cls, name: str) -> Experiment:
        """One of the paper's experiments, or its stand-in, that come with the package.

        >>> len(Experiment.paper("cifar100").grid["rtfa"]["ridge"])
        5
        """
        known = sorted(file.stem for file in PAPER.glob("*.toml"))
        if name not in known:
            raise unknown("experiment", name, known)
        return cls.from_toml(PAPER / f"{name}.toml")

    def to_toml(self) -> str:
        """The experiment as a file's text: what `from_toml` reads back as the same.

        >>> print(Experiment(name="mine", algorithms=["local"], trials={"seeds": 3, "splits": 0}).to_toml().splitlines()[0])
        name = "mine"
        """
        from fedasym.experiments.reading import written

        return written(self)

    def quick(self) -> Experiment:
        """A scaled copy for a first look: few clients, rounds, values and trials; its numbers mean little.

        >>> Experiment.paper("cifar100").quick().settings.rounds
        20
        """
        from fedasym.experiments.scaling import scaled

        return scaled(self)

    def with_data(self, file: str | Path) -> Experiment:
        """The same on the data of a file, whose columns have the usual names."""
        limit = self.data.clients if self.data else None
        return self.model_copy(update={"data": Data.model_validate({"file": str(Path(file).absolute()), "clients": limit})})

    def settled_on(self, federation: Federation) -> Experiment:
        """The same with all that is left to the data put in: the intercept, and the steps where no protocol is named.

        >>> import fedasym as fa
        >>> long = fa.Federation.from_arrays([[30.0], [10.0]] * 5, [1.0, 2.0] * 5, clients=list("aabbccddee"))
        >>> told = Experiment(name="mine").settled_on(long).settings
        >>> told.rules.name, told.server_step, Experiment(name="mine", settings={"protocol": "text"}).settings.rules.name
        ('text with intercept', 0.0011, 'text')
        """
        told = self.settings
        rules = resolve_protocol(told.protocol, told.intercept, federation.intercept)
        steps = PAPER_STEPS
        changed: dict[str, Any] = {}
        if told.protocol is None:
            steps = stable_steps(federation, rules.intercept, told.batch, told.ridge)
            changed |= {"protocol": TEXT.name, "intercept": rules.intercept}
        changed |= {name: step for name, step in steps.items() if getattr(told, name) is None}
        return self.model_copy(update={"settings": told.model_copy(update=changed)})

    def portable(self) -> Experiment:
        """The same without the folders of this machine: a data file by its name alone.

        >>> Experiment(name="mine", data={"file": "/home/ann/clients.parquet"}).portable().data.file
        'clients.parquet'
        """
        if self.data is None or self.data.file is None:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"file": Path(self.data.file).name})})

    @classmethod
    def schema_text(cls) -> str:
        """The JSON schema of experiment files, for editors that check and complete them."""
        return json.dumps(cls.model_json_schema(), indent=2)

    def __str__(self) -> str:
        from fedasym.experiments.wording import summary

        return summary(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(self)
