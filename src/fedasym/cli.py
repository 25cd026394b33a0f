"""The command line: each command is one public verb plus printing, with the same words."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from cyclopts import App, CycloptsError, Group, Parameter

import fedasym as fa
from fedasym.arguments import names, numbers, parse_spectrum, parse_vary

THEORY = Group("Before you train: predict", sort_key=1)
LINEAR = Group("At real sizes: simulate", sort_key=2)
app = App(
    name="fedasym",
    help="Which personalized federated-learning algorithm will win on a population of clients, by how much, and why.",
    version=fa.__version__,
    group_commands=THEORY,
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World:
    """The population of clients."""

    radius: float | None = None
    """Distance of a client's optimum from the shared one (r)."""
    noise: float | None = None
    """Standard deviation of the label noise (sigma)."""
    aspect: float | None = None
    """Unknowns per sample of one client, d/n (gamma)."""
    norm: float | None = None
    """Length of a client's optimum (rho); only the local methods need it."""
    spectrum: str = "identity"
    """Covariance of the features: identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4, eigenvalues:3,1,0.5 or a file of
    eigenvalues (.txt, .csv, .npy)."""
    shift_power: float = 0.0
    """Alignment of the displacement: weights proportional to h s^p."""
    shift_weights: str | None = None
    """Instead: the share of the displacement's energy along each atom, separated by commas."""
    optimum_power: float = 0.0
    """Alignment of the optimum, for the local methods."""
    optimum_weights: str | None = None
    """Instead: the share of the optimum's energy along each atom, separated by commas."""

    def population(self, varied: Mapping[str, Any] | None = None) -> fa.Population:
        """The `Population` of these options; a number that varies anyway need not be given."""
        needed = {name: getattr(self, name) for name in ("radius", "noise", "aspect")}
        for name, value in needed.items():
            if value is None:
                if name not in (varied or {}):
                    raise fa.InvalidInput(f"{name} is missing: give --{name}")
                needed[name] = (varied or {})[name][0]
        return fa.Population(
            **needed,
            norm=self.norm,
            spectrum=parse_spectrum(self.spectrum),
            shift_power=self.shift_power,
            shift_weights=numbers("shift_weights", self.shift_weights),
            optimum_power=self.optimum_power,
            optimum_weights=numbers("optimum_weights", self.optimum_weights),
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the answer goes."""

    json: bool = False
    """Print JSON with full precision instead of a table."""
    plot: str | None = None
    """Draw the answer to this file (.png, .svg or .pdf)."""


WORLD, OUTPUT = World(), Output()


class Printable(Protocol):
    """What every verb returns."""

    def to_json(self) -> str:
        """Full precision."""

    def plot(self, path: str) -> Any:
        """Draw to a file."""


def show(result: Printable, output: Output) -> None:
    """Draw first, so that a bad path is told before anything is printed; then print."""
    where = result.plot(output.plot) if output.plot else None
    print(result.to_json() if output.json else result)
    if where and not output.json:
        print(f"\nDrawn to {where}")


Names = Annotated[str | None, Parameter(help="Names separated by commas; all by default.")]
Member = Annotated[
    bool, Parameter(negative=["--no-member", "--new-client"], help="Whether the client took part in training, or is new.")
]


@app.command
def predict(
    *,
    world: World = WORLD,
    algorithms: Names = None,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float = 0.1,
    output: Output = OUTPUT,
) -> None:
    """Test loss of every algorithm on a population, the winner marked.

    Parameters
    ----------
    ridge
        For the methods that have one; each gets its best by default.
    clients
        How many clients; infinitely many by default.
    maml_step
        Inner step of MAML; it matters with finitely many clients.
    """
    table = fa.predict(world.population(), names(algorithms), ridge=ridge, clients=clients, member=member, maml_step=maml_step)
    show(table, output)


@app.command
def compare(
    first: str,
    second: str,
    /,
    *,
    vary: list[str],
    world: World = WORLD,
    ridge: float | None = None,
    clients: float | None = None,
    member: Member = True,
    maml_step: float | None = None,
    output: Output = OUTPUT,
) -> None:
    """Who beats whom over one or two parameters, and the boundary between them.

    Parameters
    ----------
    first
        An algorithm.
    second
        Another algorithm.
    vary
        A parameter and its range, such as noise=0:2:200 (start:stop:count) or aspect=1.5,2,4; give it once or twice.
    ridge
        For the methods that have one; each gets its best by default.
    clients
        How many clients; infinitely many by default.
    maml_step
        Inner step of MAML; it matters with finitely many clients.
    """
    given = {"ridge": ridge, "clients": clients, "maml_step": maml_step, "member": member}
    options = {name: value for name, value in given.items() if value is not None}
    varied = parse_vary(vary)
    show(fa.compare(first, second, world.population(varied), vary=varied, **options), output)


@app.command
def path(
    *,
    world: World = WORLD,
    step: float | None = None,
    steps: Annotated[str | None, Parameter(help="Numbers of gradient steps, separated by commas.")] = None,
    flow: Annotated[bool, Parameter(negative="", help="Gradient flow instead of steps.")] = False,
    times: Annotated[str | None, Parameter(help="Times of gradient flow, separated by commas.")] = None,
    clients: float | None = None,
    member: Member = True,
    output: Output = OUTPUT,
) -> None:
    """The loss along early-stopped fine-tuning, and where to stop.

    Parameters
    ----------
    step
        Size of a gradient step; half of the largest stable one by default.
    clients
        How many clients; infinitely many by default.
    """
    result = fa.fine_tuning(
        world.population(),
        step=step,
        steps=numbers("steps", steps),
        flow=flow,
        times=numbers("times", times),
        clients=clients,
        member=member,
    )
    show(result, output)


@app.command(group=LINEAR)
def simulate(
    *,
    world: World = WORLD,
    dimension: int = 200,
    clients: int = 300,
    trials: int = 4,
    seed: int = 0,
    algorithms: Names = None,
    member: Member = True,
    ridge: float | None = None,
    maml_step: float = 0.1,
    features: str = "gaussian",
    mode: str = "expectation",
    vary: list[str] | None = None,
    save: str | None = None,
    output: Output = OUTPUT,
) -> None:
    """Draw clients and compute every algorithm on them, beside what predict says.

    Parameters
    ----------
    dimension
        Features (d); a client has d/aspect samples.
    clients
        How many clients are drawn.
    trials
        How many times everything is drawn anew.
    seed
        Same seed, same numbers.
    ridge
        For the methods that have one; each gets the best that predict finds by default.
    maml_step
        Inner step of MAML.
    features
        Law of the features: gaussian, rademacher or student.
    mode
        expectation (exact given the features) or sampling (draw labels, fit, test on held-out samples).
    vary
        One parameter and its values, such as clients=2,5,10,50 or noise=0:2:9.
    save
        Keep finished trials in this file; the same command goes on where it was interrupted.
    """
    varied = parse_vary(vary) if vary else None
    try:
        result = fa.simulate(
            world.population(varied),
            dimension=dimension,
            clients=clients,
            trials=trials,
            seed=seed,
            algorithms=names(algorithms),
            member=member,
            ridge=ridge,
            maml_step=maml_step,
            features=features,
            mode=mode,
            vary=varied,
            save=save,
            progress=show_progress if sys.stderr.isatty() else None,
        )
    except KeyboardInterrupt:
        kept = f"finished trials are in {save}; the same command goes on from there" if save else "give --save to keep trials"
        print(f"\nfedasym: stopped; {kept}", file=sys.stderr)
        raise SystemExit(130) from None
    show(result, output)


def show_progress(share: float, text: str) -> None:
    """One line on the terminal that is written over; gone when all is done."""
    line = "" if share >= 1 else f"{share:4.0%}  {text}"
    print(f"\r{line:<60}", end="\r" if share >= 1 else "", file=sys.stderr, flush=True)


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
    return 0


def main() -> None:
    """The entry point of the `fedasym` command."""
    sys.exit(run(lambda: app(exit_on_error=False, print_error=False)))
