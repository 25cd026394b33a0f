"""The verb `sweep`: tune algorithms on one's own data, with the machinery of experiments behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedasym.algorithms import GRIDS, TRAINED, Algorithm
from fedasym.algorithms.registry import as_names, asked, find
from fedasym.core.errors import listed
from fedasym.core.progress import Progress
from fedasym.data.federation.federation import check_federation
from fedasym.experiments.execution import run
from fedasym.experiments.results import Results
from fedasym.training.convergence import stable_grids
from fedasym.training.settings import Settings, is_size

if TYPE_CHECKING:
    from fedasym.core.executors import Executor
    from fedasym.data.federation.federation import Federation


def sweep(
    algorithms: str | Algorithm | Iterable[str | Algorithm],
    federation: Federation,
    *,
    grid: str | Mapping[str, Any] | None = None,
    seeds: int | Iterable[int] = 1,
    name: str = "sweep",
    into: str | Path | None = None,
    pieces: str = "fine",
    progress: Progress | None = None,
    on: Executor | str | None = None,
    **settings: Any,
) -> Results:
    """Tune algorithms over a grid by validation samples, then test what was chosen on some seeds.

    Like a `fedasym.train` with a grid, but for grids that take long: finished pieces are kept in `into` (`runs/<name>` unless
    given), and the same call goes on after any interruption.

    grid: "paper", or as in `fedasym.train`. By default, where no protocol is named, the paper's with steps for the scale of
        the features: in regression multiples of the stable step 1/L, L being the largest curvature of a client's loss.
    seeds: how many, or which, test what was chosen; 0: none. on: where, as in `fedasym.run`.
    settings: those of `fedasym.train`: rounds, evaluate_every, cohort, protocol, intercept, ...

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(task="classification", clients=9, dimension=5, classes=2, aspect=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = fa.sweep("fedavg", data, grid={"server_step": [1e-9, 1]}, rounds=9, seeds=0, into=folder)
    >>> found.tuned
    {'fedavg': {'server_step': 1.0}}
    """
    from fedasym.experiments.spec import Experiment

    check_federation(federation)
    chosen = as_names([find(each) for each in asked(algorithms, ())])
    tested = seeds if isinstance(seeds, int) else listed("seeds", seeds, "give how many, or a list of them")
    experiment = Experiment(
        name=name,
        algorithms=chosen,
        settings={key: value for key, value in settings.items() if value is not None},
        grid=default_grid(chosen, federation, settings) if grid is None else grid,
        trials={"seeds": tested, "splits": 0},
        pieces=pieces,
    )
    return run(experiment, federation, into=into, progress=progress, on=on)


def default_grid(names: list[Any], federation: Federation, settings: Mapping[str, Any]) -> str | dict[str, Any]:
    """The paper's grids, with steps for the scale of the features unless a protocol is named."""
    batch, given = settings.get("batch") or Settings.batch, settings.get("intercept")
    known = is_size(batch, 1) and not any(name in TRAINED and name not in GRIDS for name in names)
    if settings.get("protocol") is not None or not known:
        return "paper"  # which is refused, like a wrong batch, where all is checked
    return stable_grids(names, federation, federation.intercept if given is None else bool(given), batch)
