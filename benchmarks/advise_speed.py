"""Time and memory of the advice on many clients: 1,000 clients x 100 samples x 500 features by
default.

The last line has the time as a multiple of what plain matrix products of the same data take in the
same run: X'X and XX' of every client, with one BLAS thread as the advice has it. That multiple
hardly depends on the machine or on what else runs there.

python benchmarks/advise_speed.py [--clients 1000] [--samples 100] [--features 500]
[--from-summaries]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.data import read_clients
from fedasym.advisor.federated import play_federation
from fedasym.core.runtime import few_threads


def time_products(features: np.ndarray, samples: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time, that X'X and XX' of every client take in double
    precision.
    """
    with few_threads(features.shape[1]):
        start, began = time.perf_counter(), time.process_time()
        for first in range(0, len(features), samples):
            X = np.asarray(features[first : first + samples], dtype=float)
            X.T @ X
            X @ X.T
        return time.perf_counter() - start, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--from-summaries", action="store_true", help="the federated form instead")
    options = parser.parse_args()
    m, n, d = options.clients, options.samples, options.features
    rng = np.random.default_rng(0)
    scale = np.sqrt(fa.spectra.ar1(0.5, d).values).astype(np.float32)
    X = np.empty((m * n, d), dtype=np.float32)
    y = np.empty(m * n)
    centre = rng.standard_normal(d) / np.sqrt(d)
    for i in range(m):
        rows = slice(i * n, (i + 1) * n)
        X[rows] = rng.standard_normal((n, d), dtype=np.float32) * scale
        y[rows] = X[rows] @ (
            centre + rng.standard_normal(d) / np.sqrt(d)
        ) + 0.7 * rng.standard_normal(n)
    split = np.zeros(m * n, dtype=int)
    federation = fa.Federation.from_arrays(
        X, y, np.repeat(np.arange(m), n), split=split, task="regression"
    )
    products, products_cpu = time_products(federation.features, n)
    del X
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, began = time.perf_counter(), time.process_time()
    if options.from_summaries:
        sent = play_federation(read_clients(federation))
        print(
            f"summaries: {time.perf_counter() - start:.1f} s; a client sends {sent[0].bytes:,}"
            " bytes and gets 10 models"
        )
        start, began = time.perf_counter(), time.process_time()
        advice = advise(sent)
    else:
        advice = advise(federation)
    took, cpu = time.perf_counter() - start, time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = f"peak memory {peak / 2**20:.2f} GiB ({before / 2**20:.2f} before)"
    print(
        f"{m} clients x {n} samples x {d} features: {took:.1f} s ({cpu:.1f} s of processor time),"
        f" {memory}"
    )
    print(
        f"{took / products:.1f} times as long as the products X'X and XX' of all clients"
        f" ({products:.1f} s), {cpu / products_cpu:.1f} times by processor time"
    )
    print(
        f"radius {advice.population.radius}, noise {advice.population.noise}: {advice.recommended},"
        f" ridge {advice.ridge:.4g}"
    )


if __name__ == "__main__":
    main()
