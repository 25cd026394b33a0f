"""What the advisor says before training of the recorded runs, made again: their foreseen.json.

    python benchmarks/foresee_runs.py digits=FEATURES shakespeare=FEATURES cifar100-ready=FEATURES.npz

FEATURES: a file of `fedasym features`, from the network of the run; or the .npz that
reproduce_wider.py was given by --ready. Where a run's own features are no longer there, those that
the same network gives elsewhere differ by rounding, which `fedasym report --theory` refuses: here a
run is trusted to be of the clients and splits that are given, whose numbers must agree. Then

    fedasym foresight docs/reproduction --page docs/foresight.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from reproduce_wider import ROOT, read_ready

import fedasym as fa
from fedasym.experiments.fields import load_data
from fedasym.experiments.reproduction import FORESIGHT_FILE
from fedasym.show.reproduction import foresee


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("files", nargs="+", metavar="NAME=FEATURES")
    for each in asked.parse_args().files:
        name, _, file = each.partition("=")
        folder = ROOT / "docs" / "reproduction" / name
        results, start = fa.Results.load(folder), time.process_time()
        ready = file.endswith(".npz")
        clients = (
            read_ready(Path(file)) if ready else load_data(results.experiment.with_data(file).data)
        )
        counts = {split: int(clients.counts(split).sum()) for split in results.data.counts}
        if counts != dict(results.data.counts):
            raise SystemExit(f"{name}: the run has {results.data.counts}, these clients {counts}")
        (folder / FORESIGHT_FILE).unlink(missing_ok=True)
        found = foresee(folder, clients)
        print(f"\n{name}: {time.process_time() - start:.0f} processor seconds", flush=True)
        measured = {row["algorithm"]: row for row in results.table()}
        for algorithm, value in found.advised.items():
            theory = found.theory.get(algorithm)
            print(
                f"  {algorithm:<14}{100 * value:>8.2f}", "" if theory is None else f"{theory:.4f}"
            )
        print(*(f"  {name}: {row['accuracy']:.4f}" for name, row in measured.items()))


if __name__ == "__main__":
    main()
