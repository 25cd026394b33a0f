"""How time and memory of `fedasym advise` grow with a table: 180 rows, 31,022 rows in 2,410
clients, a million in 50,000.

    python benchmarks/tables_scale.py [--large]

The tables are drawn: six columns of pupils in schools, two of them words, one constant within a
school, a row number, a label. Each is advised on by the command itself, in a process of its own;
the time is its wall clock, the memory its peak.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

SIZES = [(180, 18), (31_022, 2_410)]
LARGE = (1_000_000, 50_000)
CHILD = """
import resource, sys
from fedasym.cli import app, import_commands, run
import_commands(["advise"])
words = ["advise", sys.argv[1], "--label", "score", "--client", "school"]
code = run(lambda: app(words, exit_on_error=False, print_error=False, result_action="return_value"))
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
sys.exit(code)
"""


def draw_pupils(rows: int, schools: int, seed: int = 0) -> pl.DataFrame:
    """Pupils in schools of unequal sizes; scores depend on hours, sex and the school."""
    rng = np.random.default_rng(seed)
    school = np.sort(np.concatenate([np.arange(schools), rng.integers(0, schools, rows - schools)]))
    hours, age = rng.gamma(4, 1, rows), rng.normal(14, 1, rows).round(1)
    sex, track = rng.choice(["girl", "boy"], rows), rng.choice(["a", "b", "c", "d"], rows)
    size, level, slope = (
        rng.normal(300, 80, schools).round(),
        2 * rng.standard_normal(schools),
        rng.standard_normal(schools),
    )
    score = (
        40
        + level[school]
        + (2 + 0.5 * slope[school]) * hours
        + 3 * (sex == "girl")
        + 5 * rng.standard_normal(rows)
    )
    columns = {
        "row": np.arange(rows),
        "school": school,
        "hours": hours.round(2),
        "age": age,
        "sex": sex,
        "track": track,
    }
    return pl.DataFrame(columns | {"size": size[school], "score": score.round(2)})


def measure(file: Path) -> tuple[float, float]:
    """Seconds and megabytes of one advice."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - start, float(done.stderr.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="the million rows too")
    sizes = [*SIZES, LARGE] if parser.parse_args().large else SIZES
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    first = (0.0, 0.0)
    print(
        f"{'rows':>10}{'clients':>10}{'CSV, MB':>10}{'seconds':>10}{'MB':>8}{'more than the first':>24}"
    )
    for rows, clients in sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "pupils.csv")
            draw_pupils(rows, clients).write_csv(file)
            seconds, megabytes = min(measure(file) for _ in range(2 if rows < 10**6 else 1))
            first = (seconds, megabytes) if first == (0.0, 0.0) else first
            more = f"{seconds - first[0]:+.1f} s, {megabytes - first[1]:+.0f} MB"
            print(
                f"{rows:>10}{clients:>10}{file.stat().st_size / 1e6:>10.1f}{seconds:>10.1f}{megabytes:>8.0f}{more:>24}",
                flush=True,
            )


if __name__ == "__main__":
    main()
