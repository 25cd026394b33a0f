"""Speed and memory of `simulate`, against the matrix products that no exact computation avoids.

1. Time. With all seven algorithms there are three server stages (Average, Meta, Moreau). Each must add every client to a
   d x d matrix of its own, a product X'WX of n d^2 multiplications and additions (BLAS syrk), and W takes the Gram matrix
   XX'. These four products are timed alone, client after client in the same run with the same BLAS, before and after; the
   whole of `simulate` is divided by them: drawing, eigendecompositions, the second moments that bias and variance need (four
   more products X'WX), the clients looked at, predictions. Elapsed time, and time of the processor: the next client is drawn
   in a second thread, which costs no elapsed time where a core is free.
2. Memory. The peak of a fresh process with 200 and with 2000 clients, by `resource.getrusage`: clients are streamed.

It takes about five minutes; with `--quick` one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its BLAS: one thread measures work, not the machine's load
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.linalg import blas

import fedasym as fa

NOISE, RADIUS, NORM = 0.5, 1.0, 2.0
SHAPES = ((800, 400), (800, 200), (1600, 400))  # d, n
MEMORY_SHAPE = (800, 400)


def clocks() -> np.ndarray:
    """Elapsed time, and time of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def products(d: int, n: int, clients: int) -> np.ndarray:
    """Seconds for the unavoidable products of this many clients."""
    X = np.random.default_rng(0).standard_normal((n, d))
    totals = [np.zeros((d, d), order="F") for _ in range(3)]
    gram = np.zeros((n, n), order="F")
    start = clocks()
    for _ in range(clients):
        for total in totals:
            blas.dsyrk(1.0, X.T, beta=1.0, c=total, overwrite_c=1, lower=1)
        blas.dsyrk(1.0, X.T, c=gram, overwrite_c=1, trans=1, lower=1)
    return clocks() - start


def whole(d: int, n: int, clients: int) -> np.ndarray:
    """Seconds for one trial of `simulate` with all algorithms."""
    world = fa.Population(RADIUS, NOISE, d / n, norm=NORM)
    start = clocks()
    table = fa.simulate(world, dimension=d, clients=clients, trials=1)
    took = clocks() - start
    assert len(table) == 7
    return took


def ratios(clients: int) -> None:
    """Print the ratios for each shape."""
    whole(40, 20, 4)  # imports
    print(f"one trial, {clients} clients, all seven algorithms: elapsed (processor)")
    for d, n in SHAPES:
        part = max(clients // 4, 1)
        before = products(d, n, part)
        took = whole(d, n, clients)
        alone = (before + products(d, n, part)) * clients / (2 * part)
        print(
            f"  d {d:4}, n {n:3}   products {alone[0]:5.1f} s ({alone[1]:5.1f} s)   simulate {took[0]:5.1f} s ({took[1]:5.1f} s)"
            f"   ratio {took[0] / alone[0]:.2f} x ({took[1] / alone[1]:.2f} x)",
            flush=True,
        )


def peak(clients: int) -> float:
    """Peak memory in MB of a fresh process that simulates this many clients."""
    d, n = MEMORY_SHAPE
    code = (
        "import resource, fedasym as fa; "
        f"fa.simulate(fa.Population({RADIUS}, {NOISE}, {d / n}, norm={NORM}), dimension={d}, clients={clients}, trials=1); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def memory(few: int, many: int) -> None:
    """Print both peaks."""
    small, large = peak(few), peak(many)
    print(f"peak memory, d {MEMORY_SHAPE[0]}, n {MEMORY_SHAPE[1]}, all seven algorithms")
    print(f"  {few} clients {small:.0f} MB   {many} clients {large:.0f} MB   ratio {large / small:.3f} x")


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    ratios(60 if quick else 300)
    memory(200, 400 if quick else 2000)
