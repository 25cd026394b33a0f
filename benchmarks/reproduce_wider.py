"""The paper's experiments under both protocols, pFedMe's grid extended until its best step lies inside.

    python benchmarks/reproduce_wider.py [shakespeare cifar100 ...] [--protocol code] [--into runs]

Each data set of docs/reproduction is run with its own experiment file but for the protocol and for
pFedMe's steps, which reach two decades beyond the paper's on either side; the grid and the chosen
values of the others stay the paper's. Under the protocol of the released code pFedMe trains all
clients in every round, at 30 times the price: it is left out there, and `--pfedme` runs it alone,
with few values and three seeds. Features are read where `fedasym features NAME` keeps them, so
that no network is trained twice. A run that is interrupted goes on where it was, several processes
may share one; finished tables go to INTO/tables/NAME-PROTOCOL, for `fedasym runs show` and
`fedasym reproduce --check --tables`. `--quick` runs scaled copies on drawn clients, to try the
command itself on two cores.

    python benchmarks/reproduce_wider.py cifar100 --ready features_600_clients.npz [--scale 5] [--small]

trains on features of CIFAR-100's clients that are there already, multiplied by a number, so that the
paper's steps suit them; `--small` takes five algorithms, few values of each setting but pFedMe's and
three seeds: half an hour of a core.

    python benchmarks/reproduce_wider.py --recorded

prints the recorded runs of docs/reproduction and docs/reproduction-wider: both protocols over seeds,
and what the paper published, its accuracies of text counted as each protocol counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedasym as fa
from fedasym.experiments.reproduction import curves_of, published_accuracies, show_spread

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ("cifar100", "digits", "shakespeare", "stackexchange")
STEPS = [5e-6, 5e-5, 5e-4, 5e-3, 5e-2, 5e-1, 5.0]  # the paper's are the middle three
MIXING = [1.0, 2.0, 4.0]
FEW: dict[str, dict[str, list[float]]] = {
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
PFEDME = {"server_step": [5e-4, 5e-3, 5e-2, 5e-1], "mixing": [1.0, 2.0]}  # where all clients train


def experiment_of(name: str, protocol: str, *, pfedme: bool, small: bool) -> fa.Experiment:
    """A recorded experiment under one of the protocols, with pFedMe's wider grid or pFedMe alone."""
    held = fa.Experiment.from_toml(ROOT / "docs" / "reproduction" / name / "experiment.toml")
    told = held.model_dump(exclude_unset=True)
    told["settings"]["protocol"] = protocol
    grid = dict(FEW if small else told["grid"])
    label = f"{name}-{protocol}"
    if pfedme:
        grid = {"pfedme": PFEDME}
    elif protocol == "code":
        grid.pop("pfedme")
    else:
        grid["pfedme"] = {"server_step": STEPS, "mixing": MIXING}
    if small or pfedme:
        told |= {"trials": {"seeds": 3, "splits": 0}, "gains": {"algorithms": []}}
        label += "-pfedme" if pfedme else "-small"
    told |= {"name": label, "algorithms": list(grid), "grid": grid}
    return fa.Experiment(**told)


def read_ready(path: Path, scale: float) -> fa.Federation:
    """Clients from features that are kept with 8 bits each, a scale for every feature."""
    with np.load(path) as file:
        features = file["q"] * (scale * file["scale"])
        return fa.Federation.from_arrays(
            features.astype(np.float32), file["y"], file["client"], split=file["split"]
        )


def scale_down(experiment: fa.Experiment) -> tuple[fa.Experiment, fa.Federation]:
    """A copy for two cores, and drawn clients for it."""
    drawn = {"task": "classification", "clients": 12, "dimension": 10, "classes": 3}
    clients = fa.datasets.synthetic(**drawn, aspect=0.5, seed=1)
    experiment = experiment.quick()
    small = {"rounds": 4, "evaluate_every": 2, "cohort": 6, "precision": "float32"}
    settings = experiment.settings.model_copy(update=small)
    return experiment.model_copy(update={"settings": settings}), clients


def print_recorded(name: str) -> None:
    """Both protocols and the paper, over seeds in percent: mean (worst to best)."""
    held = {"cifar100": "cifar100-ready"}.get(name, name)  # the runs on the same features
    folders = {
        "text": [ROOT / "docs" / "reproduction" / held],
        "code": [
            ROOT / "docs" / "reproduction-wider" / f"{name}-code{end}" for end in ("", "-pfedme")
        ],
    }
    columns: dict[str, dict[str, np.ndarray]] = {}
    for protocol, places in folders.items():
        runs = [fa.Results.load(each) for each in places if each.is_dir()]
        if not runs:
            continue
        columns[protocol] = {key: each for run in runs for key, each in run.finals("seeds").items()}
        curves = (curves_of(runs[0], name) or {}).get("seeds", {})
        paper = published_accuracies(name)
        text = paper is not None and paper.positions is not None
        columns[f"paper, as {protocol} counts" if text else "paper"] = {
            key: values[:, -1] for key, (_, values) in curves.items()
        }
    columns = {key: held for key, held in columns.items() if held}
    print(f"\n{name}: after the last round, mean of seeds (worst to best)\n")
    print("| |", " | ".join(columns), "|")
    print("|", " | ".join(["---"] * (len(columns) + 1)), "|")
    for algorithm in columns["text"]:
        cells = []
        for each in columns.values():
            mean, spread = show_spread(each[algorithm]) if algorithm in each else ("–", "")
            cells.append(f"{mean} ({spread})" if spread else mean)
        print("|", " | ".join([algorithm, *cells]), "|")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("names", nargs="*", default=RECORDED)
    asked.add_argument("--protocol", choices=["text", "code"], action="append")
    asked.add_argument("--into", type=Path, default=Path("runs"))
    asked.add_argument("--pfedme", action="store_true", help="pFedMe alone, three seeds")
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--ready", type=Path, help="features of CIFAR-100's clients, 8 bits each")
    asked.add_argument("--scale", type=float, default=1.0, help="what to multiply them by")
    asked.add_argument("--small", action="store_true", help="few values, three seeds")
    asked.add_argument("--recorded", action="store_true", help="print the recorded runs")
    given = asked.parse_args()
    if given.recorded:
        for name in given.names:
            print_recorded(name)
        return
    ready = read_ready(given.ready, given.scale) if given.ready else None
    for name in given.names:
        for protocol in given.protocol or ["text", "code"]:
            experiment = experiment_of(name, protocol, pfedme=given.pfedme, small=given.small)
            clients = ready if name == "cifar100" else None
            if given.quick:
                experiment, clients = scale_down(experiment)
            print(f"\n{experiment.name}", flush=True)
            results = fa.run(experiment, clients, into=given.into / experiment.name)
            results.save(given.into / "tables" / experiment.name)
            print(results, flush=True)


if __name__ == "__main__":
    main()
