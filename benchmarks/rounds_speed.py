"""Time of predicted rounds: a diagram of 200 x 200 settings with 10 atoms, and one setting's path.

The alternative in the same run is the recursion, followed round by round for each setting.

python benchmarks/rounds_speed.py [--side 200] [--atoms 10] [--rounds 400]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import fedasym as fa


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of a few runs."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


def main() -> None:
    """Print the two times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=200)
    parser.add_argument("--atoms", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    s = np.geomspace(0.2, 3, options.atoms)
    spectrum = fa.spectra.atoms(s, np.full(s.size, 1 / s.size))
    world = fa.Population(1, 0.5, 2, norm=2, spectrum=spectrum)
    steps = np.arange(1, options.side + 1)[:, None]
    cohort = np.arange(5, options.side + 5)[None, :]
    told = {"rounds": options.rounds, "server_step": 0.05}
    whole = seconds(lambda: fa.rounds(world, "rtfa", local_steps=steps, cohort=cohort, **told))
    print(f"a diagram of {options.side} x {options.side} settings, {s.size} atoms: {whole:.2f} s")
    few = 20
    every = np.arange(options.rounds + 1)
    alone = seconds(
        lambda: [
            fa.rounds(world, "rtfa", local_steps=5, cohort=5 + i, evaluated=every, **told)
            for i in range(few)
        ],
        1,
    )
    each = alone / few
    print(
        f"round by round, one setting after another: {each * 1e6 / options.rounds:.0f} microseconds"
        f" a round, {each * options.side**2 / whole:.0f} times as long as the diagram"
    )


if __name__ == "__main__":
    main()
