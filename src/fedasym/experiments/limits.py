"""Theory against simulation: the limits as curves, drawn clients as points, one figure per parameter that varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedasym.core.progress import Progress
from fedasym.results.simulation import Simulated, Simulation
from fedasym.verbs.simulation import simulate
from fedasym.worlds.population import Population

WORLD = Population(radius=1.0, noise=0.5, aspect=2.0, norm=2.0)
VARIED: dict[str, list[float]] = {
    "clients": [3, 5, 10, 20, 50, 100],
    "noise": [0.1, 0.3, 0.5, 0.7, 1.0, 1.5],
    "aspect": [0.5, 0.7, 1.5, 2.0, 4.0, 8.0],
}
SIZES = {False: {"dimension": 200, "trials": 8}, True: {"dimension": 60, "trials": 2}}


def against_simulation(
    folder: str | Path, *, quick: bool = False, progress: Progress | None = None
) -> dict[str, Simulation[Simulated]]:
    """Simulate along clients, noise and aspect, and draw each beside the predictions; finished trials are kept in the folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = against_simulation(folder, quick=True)
    ...     sorted(path.name for path in Path(folder).glob("*.png"))
    ['aspect.png', 'clients.png', 'noise.png']
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found = {}
    for number, (name, values) in enumerate(VARIED.items()):

        def told(share: float, text: str, number: int = number, name: str = name) -> None:
            if progress:
                progress((number + share) / len(VARIED), f"{name}: {text}")

        sizes: dict[str, Any] = SIZES[quick] | ({} if name == "clients" else {"clients": 50})
        kept = place / f"{name}{'-quick' if quick else ''}.jsonl"
        found[name] = simulate(WORLD, vary={name: values}, save=kept, progress=told, **sizes)
        for ending in (".png", ".pdf"):
            found[name].plot(place / f"{name}{ending}")
    return found
