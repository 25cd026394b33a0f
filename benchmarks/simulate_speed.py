"""Speed and memory of `simulate`, against the matrix products that no exact computation avoids.

1. Time. With all seven algorithms there are three server stages (Average, Meta, Moreau). Each must
   add every client to a d x d matrix of its own, a product X'WX of n d^2 multiplications and
   additions (BLAS syrk), and W takes the Gram matrix XX'. Exact bias and variance need the second
   moments of the shared models as well, four more such products: those eight are what `simulate`
   cannot avoid. They are timed alone, client after client in the same run with the same BLAS,
   before and after, and the whole of `simulate` is divided by them: drawing, eigendecompositions,
   the clients looked at, predictions. The second ratio leaves the second moments out of the
   yardstick. Elapsed time, one BLAS thread; the next client is drawn in a second thread, which
   costs nothing where a core is free.
2. Memory. The peak of a fresh process with 200 and with 2000 clients, by `resource.getrusage`:
    clients are streamed.

It takes about five minutes; with `--quick` one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before NumPy starts its BLAS: one thread measures work, not the machine's load
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.linalg import blas

import fedasym as fa

NOISE, RADIUS, NORM = 0.5, 1.0, 2.0
SHAPES = ((800, 400), (800, 200), (1600, 400))  # d, n
MEMORY_SHAPE = (800, 400)
MODELS, MOMENTS = 3, 4  # sums X'WX: one per server stage; second moments of the shared models


def products(d: int, n: int, clients: int, sums: int) -> float:
    """Seconds for the Gram matrix and this many sums X'WX of this many clients."""
    X = np.random.default_rng(0).standard_normal((n, d))
    totals = [np.zeros((d, d), order="F") for _ in range(sums)]
    gram = np.zeros((n, n), order="F")
    start = time.perf_counter()
    for _ in range(clients):
        for total in totals:
            blas.dsyrk(1.0, X.T, beta=1.0, c=total, overwrite_c=1, lower=1)
        blas.dsyrk(1.0, X.T, c=gram, overwrite_c=1, trans=1, lower=1)
    return time.perf_counter() - start


def whole(d: int, n: int, clients: int) -> float:
    """Seconds for one trial of `simulate` with all algorithms."""
    world = fa.Population(RADIUS, NOISE, d / n, norm=NORM)
    start = time.perf_counter()
    table = fa.simulate(world, dimension=d, clients=clients, trials=1)
    took = time.perf_counter() - start
    assert len(table) == 7
    return took


def ratios(clients: int) -> None:
    """Print the ratios for each shape."""
    whole(40, 20, 4)  # imports
    print(f"one trial, {clients} clients, all seven algorithms")
    for d, n in SHAPES:
        part = max(clients // 4, 1)
        before = [products(d, n, part, sums) for sums in (MODELS + MOMENTS, MODELS)]
        took = whole(d, n, clients)
        after = [products(d, n, part, sums) for sums in (MODELS + MOMENTS, MODELS)]
        exact, bare = (
            (one + other) * clients / (2 * part) for one, other in zip(before, after, strict=True)
        )
        print(
            f"  d {d:4}, n {n:3}   products {exact:5.1f} s   simulate {took:5.1f} s   ratio"
            f" {took / exact:.2f} x   (without second moments {bare:.1f} s, {took / bare:.2f} x)",
            flush=True,
        )


def peak(clients: int) -> float:
    """Peak memory in MB of a fresh process that simulates this many clients."""
    d, n = MEMORY_SHAPE
    code = (
        f"import resource, fedasym as fa; fa.simulate(fa.Population({RADIUS}, {NOISE}, {d / n},"
        f" norm={NORM}), dimension={d}, clients={clients}, trials=1);"
        " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


def memory(few: int, many: int) -> None:
    """Print both peaks."""
    small, large = peak(few), peak(many)
    print(f"peak memory, d {MEMORY_SHAPE[0]}, n {MEMORY_SHAPE[1]}, all seven algorithms")
    print(
        f"  {few} clients {small:.0f} MB   {many} clients {large:.0f} MB   ratio"
        f" {large / small:.3f} x"
    )


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    ratios(60 if quick else 300)
    memory(200, 400 if quick else 2000)
