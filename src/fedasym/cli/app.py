"""The command `fedasym` itself, and what its commands share: where answers go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from cyclopts import App, Group, Parameter

import fedasym as fa

THEORY = Group("Before you train: predict", sort_key=1)
LINEAR = Group("At real sizes: simulate", sort_key=2)
TRAINING = Group("On client data: train", sort_key=3)
app = App(
    name="fedasym",
    help="Which personalized federated-learning algorithm will win on a population of clients, by how much, and why.",
    version=fa.__version__,
    group_commands=THEORY,
    suppress_keyboard_interrupt=False,  # __main__ says a word
)
Names = Annotated[str | None, Parameter(help="Names separated by commas; all by default.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the answer goes."""

    json: bool = False
    """Print JSON with full precision instead of a table."""
    plot: str | None = None
    """Draw the answer to this file (.png, .svg or .pdf)."""


OUTPUT = Output()


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
