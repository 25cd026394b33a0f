"""What shortened products do to accuracy: every algorithm with its tuned settings, in float32 and
in a shorter precision.

    python benchmarks/precision.py FEATURES TABLES [--precision mixed] [--rounds 400] [--seeds 3]

FEATURES is a file of `fedasym features`; TABLES a run folder, or a folder of saved tables, that has
the tuned settings. Accuracies after the last round in percent, their difference over the seeds, and
seconds of the second run (one compiles).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedasym as fa
from fedasym.experiments.fields import first_clients
from fedasym.experiments.results import Results
from fedasym.experiments.tables import is_saved


def measured(
    name: str, federation: fa.Federation, settings: dict[str, Any], repeats: int
) -> tuple[np.ndarray, float]:
    """Final accuracy by seed, and seconds."""
    for _ in range(repeats):
        start = time.perf_counter()
        runs = fa.train(name, federation, **settings)
        seconds = time.perf_counter() - start
    return np.array([run.accuracy[-1] for run in runs]), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--precision", choices=("mixed", "bfloat16"), default="mixed")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--once", action="store_true", help="seconds of the first time, compiling included"
    )
    parser.add_argument("--algorithms", nargs="*")
    told = parser.parse_args()
    results = Results.load(told.tables) if is_saved(told.tables) else Results.read(told.tables)
    experiment = results.experiment
    federation = first_clients(
        fa.Federation.from_safetensors(told.features), experiment.data and experiment.data.clients
    )
    common = experiment.settings.model_dump() | {
        "seeds": range(1, told.seeds + 1),
        "evaluate_every": 0,
    }
    if told.rounds:
        common["rounds"] = told.rounds
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}\n{federation}\n")
    after = f"after {common['rounds']} rounds"
    print(f"{after:<12}{'float32':>9}{told.precision:>9}{'difference':>20}{'seconds':>18}")
    for name, tuned in results.tuned.items():
        if told.algorithms and name not in told.algorithms:
            continue
        accuracy, seconds = {}, {}
        for precision in ("float32", told.precision):
            settings = common | tuned | {"precision": precision}
            accuracy[precision], seconds[precision] = measured(
                name, federation, settings, 1 if told.once else 2
            )
        apart = 100 * (accuracy[told.precision] - accuracy["float32"])
        print(
            f"{name:<12}{100 * accuracy['float32'].mean():>9.2f}{100 * accuracy[told.precision].mean():>9.2f}"
            f"{f'{apart.min():+.3f} to {apart.max():+.3f}':>20}{seconds['float32']:>9.1f}{seconds[told.precision]:>9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
