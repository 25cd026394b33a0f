"""The paper's text and its released code differ in nine choices. How much does each matter?

Left out are padding, since the data are no sequences, and the clock of local training, whose round
400 is its epoch 401 in the code. Every other choice of the code is made alone, on top of the text's
protocol, and then all together. Steps and penalties are those that the paper tuned for CIFAR-100.
Accuracies are of all clients' test samples after the last round, in percent: the mean over seeds
under the text, and the differences from it (paired by seed, with their standard errors).

    python examples/protocol.py [FEATURES.npz] [--rounds 400] [--seeds 5]

The file has arrays x (samples, features), y, client and split (0 train, 1 validation, 2 test).
Without one, a federation is drawn.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import fedasym as fa
from fedasym.training.settings import CODE, TEXT

TUNED = {  # table "CIFAR-100 Best Hyperparameters"
    "local": {"local_step": [0.1]},
    "fedavg": {"server_step": [0.01]},
    "ftfa": {"server_step": [0.001], "local_step": [0.1]},
    "rtfa": {"server_step": [0.001], "local_step": [0.1], "ridge": [0.1]},
    "maml_fo": {"server_step": [0.001], "local_step": [0.01]},
    "maml_hf": {"server_step": [0.001], "local_step": [0.01], "difference": [0.001]},
    "pfedme": {"server_step": [0.05], "mixing": [1]},
}
ALL = tuple(TUNED)
CHOICES = {  # what it is, and whom it can concern
    "intercept": ("the head has an intercept", ALL),
    "random_start": ("a random first head", ALL),
    "continued_passes": ("passes go on between visits", ALL[1:]),
    "penalty": ("rtfa's penalty is not halved", ("rtfa",)),
    "warm_start": ("pfedme's inner problem goes on", ("pfedme",)),
    "decay": ("pfedme's inner weight decay", ("pfedme",)),
    "test_inner": ("pfedme tests w, not theta", ("pfedme",)),
}


def read(path: str | None) -> fa.Federation:
    if path is None:
        return fa.datasets.synthetic(
            task="classification", clients=50, dimension=60, aspect=1, centre=4, radius=3, classes=5
        )
    with np.load(path, allow_pickle=False) as file:
        return fa.Federation.from_arrays(file["x"], file["y"], file["client"], split=file["split"])


def accuracies(
    federation: fa.Federation, names: tuple[str, ...], protocol: object, rounds: int, seeds: int
) -> dict[str, np.ndarray]:
    """Final accuracy in percent by algorithm, one per seed."""
    grid = {name: TUNED[name] for name in names}
    runs = fa.train(
        list(names),
        federation,
        grid=grid,
        seeds=range(seeds),
        rounds=rounds,
        evaluate_every=rounds,
        protocol=protocol,
    )
    return {
        name: np.array([100 * run.accuracy[-1] for run in runs.select(algorithm=name)])
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    told = parser.parse_args()
    federation = read(told.file)
    print(f"{federation}\n{told.rounds} rounds, {told.seeds} seeds\n")
    print(f"{'':<34}" + "".join(f"{name:>13}" for name in ALL))
    text = accuracies(federation, ALL, TEXT, told.rounds, told.seeds)
    print(
        f"{'protocol text':<34}" + "".join(f"{text[name].mean():>13.2f}" for name in ALL),
        flush=True,
    )
    rows = [
        (what, replace(TEXT, **{field: getattr(CODE, field)}), names)
        for field, (what, names) in CHOICES.items()
    ]
    for what, protocol, names in [*rows, ("all: protocol code", CODE, ALL)]:
        found = accuracies(federation, names, protocol, told.rounds, told.seeds)
        cells = []
        for name in ALL:
            change = found[name] - text[name] if name in found else None
            error = (
                change.std(ddof=1) / np.sqrt(len(change))
                if change is not None and len(change) > 1
                else 0
            )
            cells.append(
                f"{'-':>13}" if change is None else f"{f'{change.mean():+.2f} ±{error:.2f}':>13}"
            )
        print(f"{what:<34}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
