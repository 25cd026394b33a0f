"""The noise multipliers that the page of `fedasym explore` interpolates, from dp-accounting's accountant.

    python benchmarks/noise_table.py > src/fedasym/show/explore/parts/noise.js

A browser has no accountant: the page has the least multipliers for shares of clients in a round, numbers of
rounds and epsilons, at delta 1e-6 and with Poisson sampling, and interpolates their logarithms.
"""

from __future__ import annotations

import json

import numpy as np

from fedasym.core.privacy import import_accounting

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ROUNDS = (1, 3, 10, 30, 100, 300, 1000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DELTA = 1e-6
MULTIPLIERS = np.geomspace(0.25, 2000, 110)


def spent(share: float) -> np.ndarray:
    """Epsilon by multiplier and number of rounds."""
    dp = import_accounting()
    found = np.empty((MULTIPLIERS.size, len(ROUNDS)))
    for i, z in enumerate(MULTIPLIERS):
        for j, rounds in enumerate(ROUNDS):
            if share == 1:
                found[i, j] = dp.get_epsilon_gaussian(z / np.sqrt(rounds), DELTA)
                continue
            if j == 0:
                ledger = dp.rdp.RdpAccountant()
                ledger.compose(dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(z)))
                orders, once = ledger._orders, ledger._rdp
            found[i, j] = dp.rdp.compute_epsilon(orders, np.asarray(once) * rounds, DELTA)[0]
    return found


def least_multipliers(share: float) -> list[list[float]]:
    """By number of rounds and epsilon, in four digits, on the safe side."""
    table = spent(share)
    rows = []
    for j in range(len(ROUNDS)):
        row = np.exp(
            np.interp(
                np.log(EPSILONS),
                np.log(np.maximum(table[::-1, j], 1e-12)),
                np.log(MULTIPLIERS[::-1]),
            )
        )
        rows.append([float(f"{1.001 * z:.4g}") for z in row])
    return rows


def main() -> None:
    """Print the page's file."""
    import logging

    logging.getLogger("absl").disabled = True
    print(
        "// The least noise multipliers of a budget, by share of clients, rounds and epsilon, at delta 1e-6:"
    )
    print("// of dp-accounting's accountant, written by benchmarks/noise_table.py.")
    held = {"shares": SHARES, "rounds": ROUNDS, "epsilons": EPSILONS}
    print(f"const NOISE = {json.dumps(held)};")
    tables = ",\n".join(f"  {json.dumps(least_multipliers(share))}" for share in SHARES)
    print(f"NOISE.multipliers = [\n{tables},\n];")


if __name__ == "__main__":
    main()
