"""Results of a size that people have, invented: seven algorithms, 11 seeds, 11 splits, gains, 200
clients.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl

import fedasym as fa
from fedasym.experiments import ALL, tables
from fedasym.experiments.fields import FORMAT, Record
from fedasym.experiments.pieces import CLIENT_STATISTICS
from fedasym.training.wording import COLUMNS

FINAL = {
    "local": 0.764,
    "fedavg": 0.778,
    "ftfa": 0.8207,
    "rtfa": 0.8238,
    "maml_fo": 0.8161,
    "maml_hf": 0.816,
    "pfedme": 0.786,
}
HOSTILE = "<script>alert(1)</script>"
HOSTILE_NAMES = [  # of clients, some of which lose and are named
    name
    for n in range(20)
    for name in (
        f"{n}{HOSTILE}",
        f'{n}"><img src=x onerror=alert(2)>',
        f"{n}</script><script>alert(3)</script>",
    )
]
ROUNDS = range(0, 401, 50)


def experiment(**changes: Any) -> fa.Experiment:
    return fa.Experiment(
        **{
            "name": "invented",
            "about": "Images, 100 classes; numbers invented for tests.",
            "algorithms": list(ALL),
        }
        | {"trials": {"seeds": 11, "splits": 11}, "gains": {}}
        | changes
    )


def record(task: str, clients: list[str], rng: np.random.Generator) -> Record:
    sizes = np.sort(rng.integers(8, 200, len(clients)))
    rng.shuffle(sizes)
    counts = {"train": int(sizes.sum()), "validation": len(clients) * 10, "test": len(clients) * 20}
    return Record(
        FORMAT,
        "a" * 64,
        "b" * 64,
        {},
        task,
        clients,
        sizes.tolist(),
        counts,
        512,
        1 if task == "regression" else 100,
    )


def curve(rng: np.random.Generator, final: float, loss: bool) -> np.ndarray:
    """A number per round, from chance to about the final value."""
    rise = 1 - np.exp(-np.array(ROUNDS) / 35)
    values = 0.01 + (final - 0.01) * rise + rng.normal(0, 0.0015, len(rise))
    return 1.2 - values if loss else values


def statistics(task: str, values: np.ndarray, shared: float) -> list[dict[str, float]]:
    """All columns of a run, by round."""
    worst = {
        "worst_decile": 0.72,
        "hurt": 0.1,
        "shared_accuracy": shared,
        "shared_loss": shared + 0.1,
    }
    return [
        {
            name: float(value) * worst.get(name, 1.0) if name != "hurt" else 0.11
            for name in COLUMNS[task]
        }
        for value in values
    ]


def invented(
    task: str = "classification", clients: list[str] | None = None, **changes: Any
) -> fa.Results:
    """Results that no run made; the same each time."""
    rng = np.random.default_rng(0)
    about = experiment(**changes)
    loss = task == "regression"
    data = record(task, clients or [f"client {n:03}" for n in range(200)], rng)
    tuned = {
        name: {axis: values[len(values) // 2] for axis, values in axes.items()}
        for name, axes in about.grid.items()
    }
    tuning, trials, people = [], [], []
    effect = rng.normal(
        0.05, 0.05, len(data.clients)
    )  # what personalization does for a client, in every trial
    score = "validation_loss" if loss else "validation_accuracy"
    for name, axes in about.grid.items():
        for values in product(*axes.values()):
            settings = dict(zip(axes, values, strict=True))
            diverged = settings.get("server_step", 0) >= 10
            held = {"chosen": settings == tuned[name], "diverged": diverged}
            tuning.append(
                {
                    "algorithm": name,
                    **settings,
                    score: np.nan if diverged else rng.uniform(0.6, 0.8),
                }
                | held
            )
    for sweep in ("seeds", "splits"):
        for name, trial in product(about.algorithms, getattr(about.trials, sweep)):
            values = curve(rng, FINAL[name], loss)
            rows = statistics(task, values, 0.94 if name != "local" else np.nan)
            what = {"sweep": sweep, "algorithm": name, "trial": trial, "diverged": False}
            trials += [what | {"round": when} | row for when, row in zip(ROUNDS, rows, strict=True)]
            own = np.clip(rng.normal(FINAL[name], 0.1, len(data.clients)), 0, 1)
            gain = {"local": np.full(len(own), np.nan), "fedavg": np.zeros(len(own))}.get(
                name, np.round(effect * FINAL[name] + rng.normal(0, 0.03, len(own)), 2)
            )
            shared = own + gain if loss else own - gain
            columns = {
                "tested": np.full(len(own), 20.0),
                "accuracy": own,
                "shared_accuracy": shared,
                "loss": own,
            }
            columns |= {"shared_loss": shared, "gain": gain}
            for at, client in enumerate(data.clients):
                which = {
                    "sweep": sweep,
                    "algorithm": name,
                    "trial": trial,
                    "client": client,
                    "samples": data.training[at],
                }
                people.append(
                    which | {each: float(columns[each][at]) for each in CLIENT_STATISTICS[task]}
                )
    gains = (
        [
            {
                "algorithm": name,
                "epochs": str(epochs),
                "trial": seed,
                "round": when,
                "diverged": False,
            }
            | row
            for name, (at, epochs), seed in product(
                about.gains.algorithms, enumerate(about.gains.epochs), about.gains.seeds
            )
            for when, row in zip(
                ROUNDS, statistics(task, curve(rng, 0.76 + 0.012 * at, loss), 0.9), strict=True
            )
        ]
        if about.gains
        else []
    )

    def frame(rows: list[dict[str, Any]], columns: dict[str, Any]) -> pl.DataFrame:
        return pl.DataFrame(rows, schema=columns) if rows else tables.empty_table(columns)

    people_columns = tables.client_columns(task)
    return fa.Results(
        experiment=about,
        data=data,
        tuning=frame(tuning, tables.tuning_columns(about, task)),
        trials=frame(trials, tables.trial_columns(task)),
        gains=frame(gains, tables.gain_columns(task)),
        clients=frame(
            people,
            {
                name: pl.Float64 if name == "tested" else kind
                for name, kind in people_columns.items()
            },
        ).cast(pl.Schema(people_columns)),
        tuned=tuned,
        remarks=("Computed in part on cpu and in part on gpu: these may round differently.",),
    )


def published() -> dict[str, dict[str, tuple[list[int], np.ndarray]]]:
    """Curves as a paper gives them."""
    rng = np.random.default_rng(1)
    rounds = list(ROUNDS)
    sweep = {
        name: (rounds, np.array([curve(rng, final - 0.006, False) for _ in range(11)]))
        for name, final in FINAL.items()
    }
    gains = {
        f"ftfa {epochs}": (rounds, np.array([curve(rng, 0.77, False) for _ in range(5)]))
        for epochs in ("0", "10")
    }
    return {"seeds": sweep, "splits": {"ftfa": sweep["ftfa"]}, "gains": gains}
