"""The paper's experiments under both protocols, pFedMe's grid extended until its best step lies inside.

    python benchmarks/reproduce_wider.py [shakespeare cifar100 ...] [--protocol code] [--into runs]

Each data set of docs/reproduction is run with its own experiment file but for the protocol and for
pFedMe's steps, which reach two decades beyond the paper's on either side; the grid and the chosen
values of the others stay the paper's. Features are read where `fedasym features NAME` keeps them, so
that no network is trained twice. A run that is interrupted goes on where it was; finished tables go to
INTO/tables/NAME-PROTOCOL, for `fedasym runs show` and `fedasym reproduce --check --tables`.
`--quick` runs scaled copies on drawn clients, to try the command itself on two cores.

    python benchmarks/reproduce_wider.py --ready features_600_clients.npz [--protocol text]

trains five algorithms on features of CIFAR-100's clients that are there already, of another network,
with few values of each setting but pFedMe's and with three seeds: half an hour of a core. Under the protocol of the
released code pFedMe trains all 600 clients in every round, and is left out there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedasym as fa

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ("cifar100", "digits", "shakespeare", "stackexchange")
STEPS = [5e-6, 5e-5, 5e-4, 5e-3, 5e-2, 5e-1, 5.0]  # the paper's are the middle three
MIXING = [1.0, 2.0, 4.0]
FEW: dict[str, dict[str, list[float]]] = {  # these features are small, and want larger steps
    "local": {"local_step": [0.01, 0.1, 1.0]},
    "fedavg": {"server_step": [0.001, 0.01, 0.1, 1.0]},
    "ftfa": {"server_step": [0.01, 0.1, 1.0], "local_step": [1.0, 10.0, 100.0]},
    "rtfa": {
        "server_step": [0.01, 0.1],
        "local_step": [1.0, 10.0, 100.0],
        "ridge": [1e-4, 1e-3, 0.01],
    },
    "pfedme": {"server_step": STEPS, "mixing": MIXING},
}


def experiment_of(name: str, protocol: str) -> fa.Experiment:
    """A recorded experiment under one of the protocols, with pFedMe's wider grid."""
    held = fa.Experiment.from_toml(ROOT / "docs" / "reproduction" / name / "experiment.toml")
    told = held.model_dump(exclude_unset=True)
    told["name"] = f"{name}-{protocol}"
    told["settings"]["protocol"] = protocol
    told["grid"]["pfedme"] = {"server_step": STEPS, "mixing": MIXING}
    return fa.Experiment(**told)


def small_experiment(protocol: str) -> fa.Experiment:
    """The recorded experiment on CIFAR-100 with few values, three seeds and no other trials."""
    told = experiment_of("cifar100", protocol).model_dump(exclude_unset=True)
    grid = {name: each for name, each in FEW.items() if (name, protocol) != ("pfedme", "code")}
    told |= {"name": f"cifar100-ready-{protocol}", "algorithms": list(grid), "grid": grid}
    told |= {"trials": {"seeds": 3, "splits": 0}, "gains": {"algorithms": []}}
    return fa.Experiment(**told)


def read_ready(path: Path) -> fa.Federation:
    """Clients from features that are kept with 8 bits each, a scale for every feature."""
    with np.load(path) as file:
        features = file["q"] * file["scale"]
        return fa.Federation.from_arrays(
            features.astype(np.float32), file["y"], file["client"], split=file["split"]
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("names", nargs="*", default=RECORDED)
    asked.add_argument("--protocol", choices=["text", "code"], action="append")
    asked.add_argument("--into", type=Path, default=Path("runs"))
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--ready", type=Path)
    given = asked.parse_args()
    if given.ready:
        clients = read_ready(given.ready)
        for protocol in given.protocol or ["text", "code"]:
            experiment = small_experiment(protocol)
            print(f"\n{experiment.name}", flush=True)
            print(fa.run(experiment, clients, into=given.into / experiment.name))
        return
    for name in given.names:
        for protocol in given.protocol or ["text", "code"]:
            experiment, clients = experiment_of(name, protocol), None
            if given.quick:
                drawn = {"task": "classification", "clients": 12, "dimension": 10, "classes": 3}
                clients = fa.datasets.synthetic(**drawn, aspect=0.5, seed=1)
                experiment = experiment.quick()
                small = {"rounds": 4, "evaluate_every": 2, "cohort": 6, "precision": "float32"}
                settings = experiment.settings.model_copy(update=small)
                experiment = experiment.model_copy(update={"settings": settings})
            print(f"\n{experiment.name}", flush=True)
            results = fa.run(experiment, clients, into=given.into / experiment.name)
            results.save(given.into / "tables" / experiment.name)
            print(results)


if __name__ == "__main__":
    main()
