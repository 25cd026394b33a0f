"""The command line: each command is one public verb plus printing, with the same words.

Commands are found here by name, and tell here how far their work is; what many of them take is read
here: worlds, columns, grids, where to run, what to print.
"""

from __future__ import annotations

import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from cyclopts import App, CycloptsError, Group, Parameter

import fedasym as fa
from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.runtime import STOPPED, Notice

if TYPE_CHECKING:
    from rich.progress import Progress

    from fedasym.cli.training import Columns
    from fedasym.data.federation import Federation
    from fedasym.deploy import Ray
    from fedasym.worlds.spectra import Spectrum

THEORY = Group("Before you train: predict", sort_key=1)
LINEAR = Group("At real sizes: simulate", sort_key=2)
TRAINING = Group("On client data: train", sort_key=3)
EXPERIMENTS = Group("Fairly and repeatedly: experiments", sort_key=4)
EXTRAS: tuple[str, ...] = (
    *("tables", "excel", "train", "experiments", "data", "privacy"),
    *("sklearn", "pretrain", "remote", "ray", "flower"),
)  # what users install, in the order of the documentation


def describe_version() -> str:
    """The version, what computes, and which extras are installed."""
    import platform
    from importlib.metadata import PackageNotFoundError, requires, version

    def is_here(package: str) -> bool:
        try:
            return bool(version(package))
        except PackageNotFoundError:
            return False

    needs: dict[str, list[str]] = {name: [] for name in EXTRAS}
    for line in requires("fedasym") or []:
        package, _, marker = line.partition(";")
        found = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if found and found[1] in needs:
            needs[found[1]].append(re.split(r"[<>=!~ \[]", package.strip(), maxsplit=1)[0])
    here = [name for name, packages in needs.items() if all(map(is_here, packages))]
    missing = [name for name in EXTRAS if name not in here]
    tools = [
        f"{name} {version(name)}" for name in ("numpy", "scipy", "jax", "flwr") if is_here(name)
    ]
    lines = [
        f"fedasym {fa.__version__} on Python {platform.python_version()} with {', '.join(tools)}",
        f"extras installed: {', '.join(here) or 'none'}",
    ]
    if missing:
        lines.append(
            f"not installed: {', '.join(missing)}; one is added by pip install"
            f" 'fedasym[{missing[0]}]'"
        )
    return "\n".join(lines)


app = App(
    name="fedasym",
    help=(
        "Which personalized federated-learning algorithm will win on a population of clients, by"
        " how much, and why."
    ),
    version=describe_version,
    version_format="plaintext",
    group_commands=THEORY,
    default_parameter=Parameter(negative=""),  # a flag has no --no-FLAG but where one is named
    suppress_keyboard_interrupt=False,  # __main__ says a word
)
if hasattr(app, "register_install_completion_command"):  # cyclopts has it from version 4 on
    app.register_install_completion_command(
        help="Let the shell complete commands and flags (bash, zsh, fish)."
    )
WELCOME = """\
fedasym says which personalized federated-learning algorithm will win on a population of clients,
by how much, and why. Three things to try first:

  fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2
      every algorithm's loss on a population of clients, before anything is trained

  fedasym advise shops --label sales --client shop
      which algorithm for the clients of a table: this one, of shops, comes with fedasym

  fedasym train synthetic --algorithms local,fedavg,ftfa --rounds 40 --seeds 0:3
      train and compare algorithms on clients that are drawn

fedasym --help lists all commands, fedasym COMMAND --help has an example of each, and
fedasym --install-completion lets your shell complete them.
"""
Names = Annotated[
    str | None, Parameter(help='Names separated by commas, or "all"; the paper\'s by default.')
]
AsJson = Annotated[
    bool, Parameter(name="--json", help="Print JSON with full precision instead of tables.")
]
AsLatex = Annotated[
    bool, Parameter(name="--latex", help="Print LaTeX tables (booktabs) instead of text.")
]
OUTSIDE = re.compile(r",(?![^(]*\))")  # commas that are not between parentheses


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the answer goes."""

    json: bool = False
    """Print JSON with full precision instead of a table."""
    latex: bool = False
    """Print a LaTeX table (booktabs) instead of text."""
    plot: str | None = None
    """Draw the answer to this file (.png, .svg or .pdf)."""


OUTPUT = Output()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """Client-level differential privacy: clipped updates and Gaussian noise."""

    epsilon: float | None = None
    """A privacy budget at delta, for all rounds together."""
    noise_multiplier: float | None = None
    """Instead of epsilon: the noise, in units of the clip."""
    delta: float = 1e-6
    """Failure probability of the privacy budget; well below 1/clients."""
    clip: float | None = None
    """Length to which updates are clipped."""
    quantile: float | None = None
    """An adaptive clip, such as 0.5: it follows this quantile of the updates' lengths."""
    sampling: str = "poisson"
    """poisson, or fixed for cohorts of a fixed size, which the same noise protects less."""

    def budget(self) -> fa.Privacy | None:
        """The budget; None where neither epsilon nor noise is given."""
        if self.epsilon is None and self.noise_multiplier is None:
            for name in ("clip", "quantile"):
                if (value := getattr(self, name)) is not None:
                    raise InvalidInput(
                        f"{name} is {value:g} without noise: give --epsilon or --noise-multiplier"
                        " as well"
                    )
            return None
        return fa.Privacy(**asdict(self))


PRIVACY = PrivacyOptions()


class Printable(Protocol):
    """What every verb returns."""

    def to_json(self) -> str:
        """Full precision."""

    def to_latex(self) -> str:
        """A table for a paper."""

    def plot(self, path: str) -> Any:
        """Draw to a file."""


def show(result: Printable, output: Output) -> None:
    """Draw first, so that a bad path is told before anything is printed; then print."""
    if output.json and output.latex:
        raise InvalidInput("json and latex are both given: choose one of them")
    where = result.plot(output.plot) if output.plot else None
    print(result.to_json() if output.json else result.to_latex() if output.latex else result)
    if where and not (output.json or output.latex):
        print(f"\nDrawn to {where}")


def names(text: str | None) -> list[str] | None:
    """Algorithm names separated by commas."""
    return None if text is None else [name.strip() for name in OUTSIDE.split(text) if name.strip()]


def numbers(field: str, text: str | None) -> list[float] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidInput(f"{field} is {text!r}: give numbers separated by commas") from None


def whole_numbers(field: str, text: str) -> list[int]:
    """Whole numbers separated by commas, or a range like 0:11."""
    start, colon, stop = text.partition(":")
    try:
        return (
            list(range(int(start), int(stop)))
            if colon
            else [int(part) for part in text.split(",") if part.strip()]
        )
    except ValueError:
        raise InvalidInput(
            f"{field} is {text!r}: give whole numbers like 0,1,2, or 0:11 for 0 to 10"
        ) from None


def parse_vary(texts: list[str]) -> dict[str, Any]:
    """Parameters and their ranges: name=start:stop:count or name=a,b,c."""
    vary: dict[str, Any] = {}
    for text in texts:
        name, _, span = text.partition("=")
        name = name.strip().replace("-", "_")
        if not span:
            raise InvalidInput(f"vary is {text!r}: write it like noise=0:2:200 or aspect=1.5,2,4")
        if name in vary:
            raise InvalidInput(f"vary names {name} twice: give each parameter once")
        parts = numbers(f"vary {name}", span.replace(":", ","))
        vary[name] = tuple(parts or ()) if ":" in span else parts
    return vary


def parse_grid(texts: list[str] | None) -> dict[str, list[float]] | None:
    """Settings and their values: name=a,b,c; whole numbers stay whole."""
    grid: dict[str, list[float]] = {}
    for text in texts or ():
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name in grid:
            raise InvalidInput(f"grid names {name} twice: give each setting once")
        found = numbers(f"grid {name}", values)
        if not found:
            raise InvalidInput(f"grid is {text!r}: write it like server_step=0.01,0.1,1")
        grid[name] = [int(value) if value.is_integer() else value for value in found]
    return grid or None


def parse_spectrum(text: str) -> Spectrum:
    """A spectrum by its name and numbers, or from a file of eigenvalues."""
    from fedasym.worlds import spectra  # not before it is needed: --help should be quick

    kind, _, rest = text.partition(":")
    match kind:
        case "identity" if not rest:
            return spectra.identity()
        case "ar1" | "power_law":
            values = numbers("spectrum", rest)
            if not values or len(values) != 1:
                raise InvalidInput(f"spectrum is {text!r}: write it like ar1:0.5 or power_law:1")
            return getattr(spectra, kind)(values[0])  # type: ignore[no-any-return]
        case "atoms":
            pairs = [numbers("spectrum", part.replace("@", ",")) or [] for part in rest.split(",")]
            if any(len(pair) != 2 for pair in pairs):
                raise InvalidInput(
                    f"spectrum is {text!r}: write atoms as value@weight, like atoms:0.5@0.6,3@0.4"
                )
            return spectra.atoms(*zip(*pairs, strict=True))
        case "eigenvalues" if rest:
            return spectra.eigenvalues(read_numbers(rest))
    raise InvalidInput(
        f"spectrum is {text!r}: choose from identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4 and"
        " eigenvalues:3,1,0.5 or eigenvalues:FILE"
    )


def read_numbers(text: str) -> list[float]:
    """Numbers given inline, or in a text or .npy file."""
    import numpy as np

    from fedasym.data.files import BROKEN

    file = Path(text)
    if not file.exists():
        if file.suffix in (".txt", ".csv", ".npy"):
            raise InvalidInput(f"eigenvalues file {text!r} does not exist: check the path")
        return numbers("eigenvalues", text) or []
    try:
        loaded = (
            np.load(file, allow_pickle=False)
            if file.suffix == ".npy"
            else np.loadtxt(file, delimiter=",", ndmin=1)
        )
    except BROKEN as reason:
        raise InvalidInput(f"eigenvalues file {text!r} cannot be read: {reason}") from None
    return [float(value) for value in np.ravel(loaded)]


def parse_roles(texts: list[str] | None) -> dict[str, str]:
    """Columns and their roles, name=role; the last = counts, as names of columns may have one."""
    roles: dict[str, str] = {}
    for text in texts or ():
        name, equals, role = text.rpartition("=")
        if not equals or not name.strip() or not role.strip():
            raise InvalidInput(f"role is {text!r}: write it like grade=category or zip=ignore")
        if name.strip() in roles:
            raise InvalidInput(f"role names column {name.strip()!r} twice: give each column once")
        roles[name.strip()] = role.strip()
    return roles


def read_federation(
    data: str, columns: Columns, show: bool = False, whole: bool = False
) -> Federation:
    """Client data from a file or folder, as all commands read it; `synthetic` is drawn.

    show: print what was made of a table's columns. whole: all samples train, whatever the file
    says; of a folder of shards, which is as it was written, those that train there.
    """
    import fedasym as fa
    from fedasym.data.shard_files import is_sharded

    if data == "synthetic":
        return fa.datasets.synthetic(
            task="classification", clients=30, dimension=60, aspect=1, centre=4, radius=3, classes=5
        )
    features = names(columns.features)
    federation = fa.datasets.read(
        data,
        label=columns.label,
        client=columns.client,
        features=features[0] if features is not None and len(features) == 1 else features,
        split=(1.0, 0.0, 0.0) if whole and not is_sharded(data) else columns.split,
        task=columns.task,
        intercept=columns.intercept,
        scale=columns.scale,
        missing=columns.missing,
        roles=parse_roles(columns.role),
        dates=columns.dates,
        encoding=columns.encoding,
    )
    if show and federation.recipe is not None:
        print(f"{federation.recipe}\n")
    return federation


TASKS = {
    "regression": ("radius", "noise", "aspect", "norm"),
    "classification": ("radius", "centre", "aspect", "classes", "flips"),
}
NEEDED = ("radius", "noise", "centre", "aspect")  # have no default

Member = Annotated[
    bool,
    Parameter(
        negative=["--no-member", "--new-client"],
        help="Whether the client took part in training, or is new.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """The population of clients."""

    task: str = "regression"
    """regression (squared loss), or classification (accuracy)."""
    radius: float | None = None
    """Distance of a client's optimum from the shared one (r)."""
    noise: float | None = None
    """Standard deviation of the label noise (sigma); regression."""
    aspect: float | None = None
    """Unknowns per sample of one client, d/n (gamma)."""
    norm: float | None = None
    """Length of a client's optimum (rho); only the local methods of regression need it."""
    centre: float | None = None
    """Length of the shared optimum (b); classification."""
    classes: int = 2
    """How many classes there are; classification."""
    flips: float = 0.0
    """Probability that a label is flipped; classification with two classes."""
    spectrum: str = "identity"
    """Covariance of the features: identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4,
    eigenvalues:3,1,0.5 or a file of eigenvalues (.txt, .csv, .npy).
    """
    shift_power: float = 0.0
    """Alignment of the displacement: weights proportional to h s^p."""
    shift_weights: str | None = None
    """Instead: the share of the displacement's energy along each atom, separated by commas."""
    optimum_power: float = 0.0
    """Alignment of the optimum, for the local methods of regression; of the shared optimum in
    classification.
    """
    optimum_weights: str | None = None
    """Instead: the share of the optimum's energy along each atom, separated by commas."""

    def population(self, varied: Mapping[str, Any] | None = None) -> Any:
        """The `Population` or `ClassPopulation` of these options; what varies need not be given."""
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        theirs = TASKS[self.task]
        others = {name for names in TASKS.values() for name in names} - set(TASKS[self.task])
        for name in others:
            if getattr(self, name) != getattr(WORLD, name):
                raise fa.InvalidInput(
                    f"{name} is given, but --task {self.task} takes {', '.join(theirs)}: leave"
                    f" --{name} out"
                )
        needed = {name: getattr(self, name) for name in theirs if name in NEEDED}
        for name, value in needed.items():
            if value is None:
                if name not in (varied or {}):
                    raise fa.InvalidInput(f"{name} is missing: give --{name}")
                needed[name] = (varied or {})[name][0]
        shape: dict[str, Any] = {
            "spectrum": parse_spectrum(self.spectrum),
            "shift_power": self.shift_power,
        }
        shape["shift_weights"] = numbers("shift_weights", self.shift_weights)
        whose = "optimum" if self.task == "regression" else "centre"
        shape |= {
            f"{whose}_power": self.optimum_power,
            f"{whose}_weights": numbers("optimum_weights", self.optimum_weights),
        }
        if self.task == "regression":
            return fa.Population(**needed, norm=self.norm, **shape)
        return fa.ClassPopulation(**needed, classes=self.classes, flips=self.flips, **shape)


WORLD = WorldOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where pieces are computed, and shards looked at."""

    on: str | None = None
    """ray: on a Ray cluster, side by side; here, one after the other, by default."""
    address: str | None = None
    """Address of the cluster's head, host:port, or auto; by default RAY_ADDRESS, or a temporary
    cluster on this machine.
    """
    threads: int | None = None
    """On Ray: CPUs and threads that a piece is given; 1 by default."""
    gpus: float | None = None
    """On Ray: GPUs that a piece is given, or the share of one; 0 by default."""
    memory: float | None = None
    """On Ray: gigabytes that a piece is given; by default room for JAX and three copies of the
    data.
    """
    workers: int | None = None
    """On Ray: at most this many pieces at a time; as many as there is room for by default."""

    def runtime(self) -> Ray | None:
        """What the verbs take."""
        from fedasym.deploy import Ray, read_executor

        given = {
            name: value for name, value in vars(self).items() if name != "on" and value is not None
        }
        if self.on is None:
            if given:
                first, value = next(iter(given.items()))
                raise InvalidInput(
                    f"{first} is {value!r}, which is for a cluster: add --on ray, or leave it out"
                )
            return None
        read_executor(self.on)
        return Ray(**given | ({} if self.memory is None else {"memory": self.memory * 2**30}))


HERE = Where()


# The module of each command: only that of the one asked for is imported, which keeps starting
# quick.
COMMANDS = {
    "advise": "training",
    "algorithms": "experiments",
    "apply": "training",
    "compare": "theory",
    "data": "data",
    "deploy": "training",
    "digest": "training",
    "explore": "experiments",
    "features": "data",
    "fit": "training",
    "foresight": "experiments",
    "node": "training",
    "path": "theory",
    "predict": "theory",
    "pretrain": "data",
    "report": "experiments",
    "reproduce": "experiments",
    "privacy": "theory",
    "rounds": "theory",
    "run": "experiments",
    "runs": "experiments",
    "simulate": "theory",
    "sweep": "experiments",
    "train": "training",
    "try": "training",
    "what-if": "training",
}


def import_commands(words: Sequence[str]) -> None:
    """Add the command that the words begin with to the application, or else all commands."""
    asked = COMMANDS.get(words[0]) if words else None
    for module in [asked] if asked else sorted(set(COMMANDS.values())):
        import_module(f"fedasym.cli.{module}")


def run(call: Callable[[], object]) -> int:
    """Run a command; a bad value gives one sentence and exit code 2, never a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.ThresholdWarning)  # the table says it in its notes
            call()
    except fa.InvalidInput as reason:
        print(f"fedasym: {reason}", file=sys.stderr)
        return 2
    except CycloptsError as reason:
        print(f"fedasym: {' '.join(str(reason).split())} See fedasym --help.", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as reason:  # of the disk: a name too long, no permission, no room
        print(f"fedasym: {reason.filename or ''}: {reason.strerror or reason}", file=sys.stderr)
        return 2
    return 0


def main() -> None:
    """The entry point of the `fedasym` command."""
    sys.exit(answer(sys.argv[1:]))


def answer(words: list[str]) -> int:
    """Run the command of these words; without any, show what to try first."""
    if not words:
        print(WELCOME, end="")
        return 0
    import_commands(words)
    return run(lambda: app(words, exit_on_error=False, print_error=False))


def redirect_answers() -> AbstractContextManager[object]:
    """While a cluster works, what workers and Ray print goes to stderr: stdout has the answer."""
    return redirect_stdout(sys.stderr)


KEPT = "finished pieces are kept, and the same command goes on from there"
GOES_ON = "the same command goes on where it was"
LOGGED = 5.0  # seconds between two lines of a log, at least
SHARE = 0.1  # and this share of the time so far, so that long work has no long log
DRAWN = 0.1  # seconds between two drawings of the bar


class Display:
    """Hears how far work is, as a verb's `progress` does; the bar is gone when all is done.

    Without a thread of its own, so that Ctrl-C finds nothing else at work.
    """

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.start = self.last = time.monotonic()
        self.terminal = is_terminal()
        self.told = False  # whether a log has lines, so that it gets a last one

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *reason: object) -> None:
        self.clear()

    def __call__(self, share: float, text: str) -> None:
        """Tell how far it is; what is damaged or lost stays to be read."""
        now = time.monotonic()
        if isinstance(text, Notice):
            self.clear()
            print(f"fedasym: {text}", file=sys.stderr, flush=True)
        elif self.terminal and share >= 1:
            self.clear()
        elif self.terminal and (self.bar is None or now - self.last >= DRAWN):
            self.draw(share, text)
            self.last = now
        elif not self.terminal and (
            now - self.last >= max(LOGGED, SHARE * (now - self.start)) or (self.told and share >= 1)
        ):
            print(f"{share:4.0%}  {text}", file=sys.stderr, flush=True)
            self.last = now
            self.told = share < 1

    def draw(self, share: float, text: str) -> None:
        """The bar, its share and a few words, in one line of the terminal."""
        if self.bar is None:
            self.bar = start_bar()
        self.bar.update(self.bar.task_ids[0], completed=share, description=text, refresh=True)

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def is_terminal() -> bool:
    """Whether someone watches stderr on a terminal that can draw a line again."""
    from rich.console import Console

    return sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal


def start_bar() -> Progress:
    """One task, drawn when it is told to."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    words = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    bar = Progress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False, table_column=words),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        expand=True,
    )
    bar.add_task("", total=1.0)
    bar.start()
    return bar


@contextmanager
def show_progress(left: str) -> Iterator[Display]:
    """A display of long work; after Ctrl-C, `left` says what there is of it."""
    with announce_stop(left), Display() as display:
        yield display


@contextmanager
def announce_stop(left: str) -> Iterator[None]:
    """After Ctrl-C, say what is left, and end.

    Also where compiled code has made an error of its own of the interruption.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, press)
    try:
        yield
    except BaseException as reason:
        if not pressed and not isinstance(reason, KeyboardInterrupt):
            raise
        print(f"\nfedasym: stopped; {left}", file=sys.stderr, flush=True)
        raise SystemExit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)


def find_data(data: str, columns: Columns) -> tuple[str, fa.Federation | None]:
    """A data set by its name, or a file's own name and what it holds."""
    from fedasym.data import CATALOGUE, find_dataset

    if data in CATALOGUE:
        return data, None
    if not Path(data).exists():
        find_dataset(data)  # says which names there are
    return Path(data).stem, read_federation(data, columns)


def spread_over_axes(lists: dict[str, list[float]]) -> dict[str, Any]:
    """Lists of several numbers along axes of their own; a single number as it is."""
    import numpy as np

    several = [name for name, values in lists.items() if len(values) > 1]
    shapes = {name: [-1 if other == name else 1 for other in several] for name in several}
    return {
        name: np.reshape(values, shapes[name]) if name in several else values[0]
        for name, values in lists.items()
    }
