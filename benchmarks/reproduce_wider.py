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

    python benchmarks/reproduce_wider.py cifar100 --ready features_600_clients.npz [--small]
    python benchmarks/window_features.py digits FOLDER
    python benchmarks/reproduce_wider.py digits --ready FOLDER/digits.npz --protocol text

trains on features that are there already, over seeds alone, without splits and gains: those of
CIFAR-100's clients with 8 bits each, or what window_features.py makes on two cores. `--scale`
multiplies them by a number, so that the paper's steps suit them; `--small` takes few values of
each setting and three seeds, `--seeds` as many as it says. `--chosen` is the other way round: splits
and gains alone, with the values that validation chose in the recorded run of that protocol. Tables
go to NAME-ready and NAME-ready-code; those of cifar100-code were made so, too.

    python benchmarks/reproduce_wider.py --recorded

prints the recorded runs of docs/reproduction and docs/reproduction-wider: both protocols over seeds,
and what the paper published, its accuracies of text counted as each protocol counts; with
stackexchange-ready, say, those on ready features.
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
ROUGH = {"server_step": [0.01, 0.1, 1.0], "local_step": [0.001, 0.01, 0.1]}
FEW: dict[str, dict[str, list[float]]] = {
    "local": {"local_step": [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]},
    "fedavg": {"server_step": [0.001, 0.01, 0.1, 1.0]},
    "ftfa": ROUGH,
    "rtfa": ROUGH | {"ridge": [0.01, 0.1, 1.0, 10.0]},
    "maml_fo": ROUGH,
    "maml_hf": ROUGH,
    "pfedme": {"server_step": [0.0005, 0.005, 0.05], "mixing": [2.0, 4.0, 8.0]},
}
LENGTH = {"rounds": 400, "evaluate_every": 50}  # Stack Exchange's own run has 30
BEYOND: dict[
    str, dict[str, dict[str, list[float]]]
] = {  # of ready features, where an edge was best
    "digits": {
        "fedavg": {"server_step": [100.0]},
        "rtfa": {"ridge": [100.0]},
        "pfedme": {"mixing": [8.0]},
    }
}
READY = "Features of a network that saw none of these clients, or that are there already."
PFEDME = {"server_step": [5e-4, 5e-3, 5e-2, 5e-1], "mixing": [1.0, 2.0]}  # where all clients train


def experiment_of(
    name: str,
    protocol: str,
    *,
    pfedme: bool,
    small: bool,
    ready: bool = False,
    seeds: int | None = None,
) -> fa.Experiment:
    """A recorded experiment under one of the protocols, with pFedMe's wider grid or pFedMe alone.

    ready: over seeds alone, in as many rounds for every data set, and in float32, since processor
    cores gain nothing by shorter numbers.
    """
    held = fa.Experiment.from_toml(ROOT / "docs" / "reproduction" / name / "experiment.toml")
    told = held.model_dump(exclude_unset=True)
    told["settings"]["protocol"] = protocol
    grid = dict(FEW if small else told["grid"])
    label = f"{name}-{protocol}"
    if ready:
        label = f"{name}-ready" if protocol == "text" else f"{name}-ready-{protocol}"
        told["settings"] |= LENGTH | {"precision": "float32"}
        told |= {"about": READY, "trials": told["trials"] | {"splits": 0}}
        told |= {"gains": {"algorithms": []}}
    if pfedme:
        grid = {"pfedme": PFEDME}
    elif protocol == "code":
        grid.pop("pfedme")
    elif not small:
        grid["pfedme"] = {"server_step": STEPS, "mixing": MIXING}
    if ready and protocol == "text":
        for algorithm, more in BEYOND.get(name, {}).items():
            axes = grid[algorithm]
            grid[algorithm] = axes | {key: [*axes[key], *values] for key, values in more.items()}
    if small or pfedme:
        told |= {"trials": {"seeds": 3, "splits": 0}, "gains": {"algorithms": []}}
        label += "-pfedme" if pfedme else "" if ready else "-small"
    if seeds:
        told["trials"]["seeds"] = seeds
    told |= {"name": label, "algorithms": list(grid), "grid": grid}
    return fa.Experiment(**told)


def experiment_chosen(name: str, protocol: str, splits: int) -> fa.Experiment:
    """Splits and gains alone, with the values that validation chose in a recorded run."""
    wider = ROOT / "docs" / "reproduction-wider" / f"{name}-{protocol}"
    folder = wider if wider.is_dir() else ROOT / "docs" / "reproduction" / name
    grid = {
        algorithm: {key: [value] for key, value in values.items()}
        for algorithm, values in fa.Results.load(folder).tuned.items()
    }
    told = fa.Experiment.from_toml(folder / "experiment.toml").model_dump(exclude_unset=True)
    trials = {"seeds": [1], "splits": splits}
    told |= {"name": f"{name}-{protocol}-chosen", "grid": grid, "trials": trials}
    return fa.Experiment(**told)


def read_ready(path: Path, scale: float = 1.0) -> fa.Federation:
    """Clients from features as they are, or with 8 bits each and a scale for every feature."""
    with np.load(path) as file:
        features = (
            scale * file["x"].astype(np.float32)
            if "x" in file
            else file["q"] * (scale * file["scale"])
        )
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
    asked.add_argument("--ready", type=Path, help="a file of features (.npz) of the data set")
    asked.add_argument("--scale", type=float, default=1.0, help="what to multiply them by")
    asked.add_argument("--small", action="store_true", help="few values, three seeds")
    asked.add_argument("--seeds", type=int, help="of the trials")
    asked.add_argument("--chosen", type=int, metavar="SPLITS", help="splits and gains alone")
    asked.add_argument("--recorded", action="store_true", help="print the recorded runs")
    given = asked.parse_args()
    if given.recorded:
        for name in given.names:
            print_recorded(name)
        return
    if given.ready and len(given.names) != 1:
        asked.error("--ready is about one data set: name it")
    ready = read_ready(given.ready, given.scale) if given.ready else None
    for name in given.names:
        for protocol in given.protocol or ["text", "code"]:
            experiment = experiment_of(
                name,
                protocol,
                pfedme=given.pfedme,
                small=given.small,
                ready=ready is not None,
                seeds=given.seeds,
            )
            if given.chosen:
                experiment = experiment_chosen(name, protocol, given.chosen)
            clients = ready
            if given.quick:
                experiment, clients = scale_down(experiment)
            print(f"\n{experiment.name}", flush=True)
            results = fa.run(experiment, clients, into=given.into / experiment.name)
            results.save(given.into / "tables" / experiment.name)
            print(results, flush=True)


if __name__ == "__main__":
    main()
