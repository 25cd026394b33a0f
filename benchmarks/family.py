"""The family of algorithms in training, tuned: on worlds whose order is predicted, and on real clients.

    python benchmarks/family.py [--draws 6] [--dimension 40] [--only "few clients"]
    python benchmarks/family.py --fresh 6 --first 1000 --draws 8     # worlds drawn by a seed
    python benchmarks/family.py --files out/shares [--data "digits;unseen"] [--seeds 11] [--rounds 400]
        [--into docs/family.json]
    python benchmarks/family.py --show docs/family.json     # its tables again

Worlds: algorithms whose limits differ are trained on drawn clients, to convergence and by whole
batches, their settings chosen by validation samples. "predicted" is the loss of `fa.predict` for
members, at the best of the same settings; "measured" the mean over draws of the test loss above the
noise. Kendall's tau compares the two orders. "told apart": pairs of algorithms whose measured losses
differ by more than two paired standard errors, and how many of those are in the predicted order.
Where clients come in clusters, prediction is given their radius about the centre that they have in
common, as the page of advice has it. Grids and the five worlds with names were chosen while
looking at these tables; `--fresh` draws others, which nobody has chosen. A second table has those
that end where another does: rounds until the test loss is within 5 % of that limit, and what they
end at.

Files: those that `benchmarks/shares.py --prepare` writes. What differs in training, every setting
chosen by validation in every split anew: accuracies over splits, each trained with a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

import fedasym as fa
from fedasym.training.convergence import curvature, stable_step, stable_steps

VALIDATED, TESTED = 60, 100  # samples of a client beside those that train
WHOLE = 10**6  # a batch that holds all samples of any client
AROUND = (0.3, 1.0, 3.0)  # times the best ridge of the limit: what is tried
SHARED_RIDGES = [0.01, 0.03, 0.1, 0.3]


@dataclass(frozen=True)
class World:
    """A population, how many clients are drawn from it, and the clusters they come in.

    between: the share of radius^2 that cluster centres have, which are drawn independently.
    """

    name: str
    population: fa.Population
    clients: int
    clusters: int = 1
    between: float = 0.0

    @property
    def common(self) -> float:
        """The part of radius^2 that two clients have in common on average.

        Their cluster's, where they are in one: the clients' own centre is nearer by it.
        """
        sizes = np.bincount(np.arange(self.clients) % self.clusters)
        pairs = float(sizes @ (sizes - 1)) / (self.clients * (self.clients - 1))
        return self.between * pairs

    @property
    def about_centre(self) -> fa.Population:
        """These clients about their own centre, which is what prediction calls their radius."""
        radius = float(self.population.radius) * np.sqrt(1 - self.common)
        return replace(self.population, radius=radius)

    @property
    def best_ridge(self) -> float:
        """noise^2 aspect/radius^2."""
        here = self.population
        return float(here.noise**2 * here.aspect / here.radius**2)


WORLDS = (  # away from aspect 1, where limits without a ridge are infinite and steps never converge
    World("few clients", fa.Population(1, 0.7, 2, norm=2), 6),
    World("many clients", fa.Population(0.7, 0.5, 0.5, norm=1.5), 20),
    World("far apart", fa.Population(2, 0.7, 2, norm=2.5), 10),
    World("close together", fa.Population(0.5, 0.7, 2, norm=1.5), 12),
    World("two clusters", fa.Population(1.2, 0.7, 2, norm=2), 16, 2, 0.8),
)


FRESH = 2026  # the seed of worlds that are drawn


def fresh_worlds(count: int) -> list[World]:
    """Worlds that nobody has chosen, the last of them in two clusters.

    Aspects are 1.5 to 3 and 0.35 to 0.65 in turn; radius, the shared optimum's length, noise and the
    number of clients span what the worlds with names do.
    """
    rng = np.random.default_rng(FRESH)
    worlds = []
    for number in range(count):
        aspect = rng.uniform(1.5, 3) if number % 2 == 0 else rng.uniform(0.35, 0.65)
        radius, centre = np.exp(rng.uniform(np.log([0.4, 0.7]), np.log([2, 2.5])))
        noise, clients = rng.uniform(0.3, 1), int(rng.integers(6, 25))
        size = {
            "radius": radius,
            "noise": noise,
            "aspect": aspect,
            "norm": np.hypot(radius, centre),
        }
        population = fa.Population(**{name: float(round(each, 2)) for name, each in size.items()})
        last = number == count - 1
        clusters = (2, float(round(rng.uniform(0.5, 0.9), 2))) if last else (1, 0.0)
        worlds.append(World(f"fresh world {number + 1}", population, clients, *clusters))
    return worlds


@dataclass(frozen=True)
class Plan:
    """An algorithm as it is trained, and as it is predicted: settings of `find`, each tried."""

    name: str
    told: dict[str, float] = field(default_factory=dict)
    grid: dict[str, list[float]] = field(default_factory=dict)
    tried: dict[str, list[float]] = field(default_factory=dict)  # what prediction chooses among

    def predict(self, world: World) -> float:
        """The limit at the best of its settings."""
        asked = []
        for values in product(*self.tried.values()):
            told = [f"{key}={value}" for key, value in zip(self.tried, values, strict=True)]
            asked.append(f"{self.name}({','.join(told)})" if told else self.name)
        table = fa.predict(world.about_centre, asked, clients=world.clients)
        return min(float(row.loss) for row in table.values())


def plans(world: World, L: float) -> list[Plan]:
    """What differs in the limit; L: the largest curvature of the clients' losses."""
    step = stable_step(L)
    best = world.best_ridge
    ridges = [factor * best for factor in AROUND]
    held = {"ridge": ridges}
    inner = {"inner_steps": 20, "inner_step": stable_step(L + max(ridges)), "local_steps": 1}
    outer = {"server_step": [0.1 / best, 0.3 / best], **held}
    local = {"server_step": [step / 4, step], "local_steps": [20]}
    found = [
        Plan("local"),
        Plan("local_ridge", grid=held),
        Plan("fedavg"),
        Plan("ftfa"),
        Plan("rtfa", grid=held),
        Plan("maml", {"local_step": 0.05}),
        Plan("pfedme", inner, outer),
        Plan("fedprox", {"local_steps": 60}, {"penalty": ridges}, {"penalty": ridges}),
        Plan("local_sgd", {"local_steps": 20}, {"server_step": local["server_step"]}, local),
        Plan("apfl", grid={"mixture": [0.2, 0.4, 0.6, 0.8]}),
        Plan("gram_ridge", grid={"shared_ridge": SHARED_RIDGES}),
        Plan("pfedme_ridge", inner, outer | {"shared_ridge": SHARED_RIDGES}),
    ]
    if world.clusters > 1:
        left = (1 - world.between) / (1 - world.common)
        seen = {"clusters": [world.clusters], "between": [1 - left]}
        found.append(Plan("ifca", {"clusters": world.clusters}, tried=seen))
    return found


def draw(world: World, dimension: int, seed: int) -> fa.Federation:
    """Clients of the world, in clusters of equal size where it has some."""
    rng = np.random.default_rng([seed, *world.name.encode()])
    d, m = dimension, world.clients
    n = round(d / float(world.population.aspect))
    radius, norm = float(world.population.radius), float(world.population.norm)

    def directions(count: int) -> np.ndarray:
        vectors = rng.standard_normal((count, d))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    centre = np.sqrt(norm**2 - radius**2) * directions(1)
    groups = radius * np.sqrt(world.between) * directions(world.clusters)
    own = radius * np.sqrt(1 - world.between) * directions(m)
    theta = centre + groups[np.arange(m) % world.clusters] + own
    rows = n + VALIDATED + TESTED
    X = rng.standard_normal((m, rows, d))
    y = np.einsum("mnd,md->mn", X, theta)
    y += float(world.population.noise) * rng.standard_normal((m, rows))
    split = np.tile(np.repeat([0, 1, 2], [n, VALIDATED, TESTED]), m)
    names = np.repeat(np.arange(m), rows)
    told = {"split": split, "intercept": False}
    return fa.Federation.from_arrays(X.reshape(-1, d), y.ravel(), names, **told)


def excess(run: fa.History, world: World, at: int = -1) -> float:
    """The test loss above the noise, in squares."""
    return 2 * float(run.loss[at]) - float(world.population.noise) ** 2


def train_world(world: World, dimension: int, seed: int, rounds: int) -> dict[str, float]:
    """The measured loss of every plan, tuned by validation."""
    clients = draw(world, dimension, seed)
    L = curvature(clients, False, WHOLE)
    step = stable_step(L)
    found = {}
    for plan in plans(world, L):
        told: dict[str, Any] = {
            "rounds": rounds,
            "personal_epochs": rounds,
            "evaluate_every": 0,
            "cohort": world.clients,
            "local_steps": 1,
            "batch": WHOLE,
            "server_step": step,
            "local_step": step,
        }
        told |= plan.told
        given = {name: value for name, value in told.items() if name not in plan.grid}
        runs = fa.train([plan.name], clients, seed=seed, grid=plan.grid or None, **given)
        found[plan.name] = excess(runs.choose()[0], world)
    return found


def told_apart(held: dict[str, list[float]], names: list[str]) -> tuple[int, int]:
    """Pairs whose measured losses differ by two paired standard errors; those in this order."""
    pairs = right = 0
    for better, worse in combinations(names, 2):
        apart = np.subtract(held[worse], held[better])
        if abs(apart.mean()) > 2 * apart.std(ddof=1) / np.sqrt(len(apart)):
            pairs, right = pairs + 1, right + int(apart.mean() > 0)
    return pairs, right


def compare_worlds(chosen: list[World], seeds: range, dimension: int, rounds: int) -> list[float]:
    """Print predicted and measured losses by world; Kendall's tau of each."""
    taus = []
    for world in chosen:
        start = time.process_time()
        held: dict[str, list[float]] = defaultdict(list)
        for seed in seeds:
            for name, loss in train_world(world, dimension, seed, rounds).items():
                held[name].append(loss)
        predicted = {plan.name: plan.predict(world) for plan in plans(world, 4.0)}
        measured = {name: float(np.mean(losses)) for name, losses in held.items()}
        names = sorted(predicted, key=predicted.__getitem__)
        tau = kendalltau(*([table[name] for name in names] for table in (predicted, measured)))
        taus.append(float(tau.statistic))
        grouped = f" in {world.clusters} clusters, {world.between:g} between" * (world.clusters > 1)
        size = f"{world.clients} clients{grouped}, {len(seeds)} draws"
        print(f"\n{world.name}: {world.population}, {size}")
        print(f"{'':<14}{'predicted':>10}{'measured':>10}{'std. err.':>10}")
        for name in names:
            error = np.std(held[name], ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
            print(f"{name:<14}{predicted[name]:>10.4f}{measured[name]:>10.4f}{error:>10.4f}")
        spent = time.process_time() - start
        least = names[0] if measured[names[0]] == min(measured.values()) else "another"
        print(f"Kendall's tau {taus[-1]:.3f}; best is {names[0]}, measured {least}", end="; ")
        if len(seeds) > 1:
            pairs, right = told_apart(held, names)
            print(f"told apart {pairs} pairs, {right} in the predicted order", end="; ")
        print(f"{spent:.0f} processor seconds", flush=True)
    return taus


SAME = {  # those that end where another does, and what is tuned beside the steps
    "fedavg": {},
    "scaffold": {},
    "feddyn": {"penalty": [0.1, 0.3, 1.0]},
    "fednova": {},
    "fedavgm": {"momentum": [0.5, 0.9]},
    "fedadam": {"server_rate": [0.03, 0.1, 0.3]},
    "rtfa": {"ridge": [0.3]},
    "ditto": {"ridge": [0.3]},
}


def compare_rounds(world: World, dimension: int, rounds: int, every: int = 5) -> None:
    """Print how soon each comes near the limit that it has, and where it ends."""
    clients = draw(world, dimension, 0)
    step = stable_step(curvature(clients, False, WHOLE))
    sizes = {"cohort": world.clients, "local_steps": 10, "batch": WHOLE, "local_step": step}
    table = fa.predict(world.population, ["fedavg", "rtfa"], clients=world.clients, ridge=0.3)
    exact = fa.train("gram_ridge", clients, rounds=1, shared_ridge=1e-9, evaluate_every=0)
    print(f"\n{world.name}: rounds of 10 local steps until within 5 % of the limit, and the end")
    print(f"limits: fedavg {table['fedavg'].loss:.4f}, rtfa {table['rtfa'].loss:.4f};", end=" ")
    print(f"fedavg's on these clients, solved exactly: {excess(exact, world):.4f}")
    for name, more in SAME.items():
        grid = {"server_step": [step / 8, step / 2, step], **more}
        told = sizes | {"rounds": rounds, "evaluate_every": every, "personal_epochs": 100}
        runs = fa.train([name], clients, grid=grid, **told)
        run = runs.choose()[0]
        limit = table["rtfa" if name in ("rtfa", "ditto") else "fedavg"].loss
        near = [r for at, r in enumerate(run.rounds) if excess(run, world, at) <= 1.05 * limit]
        first = f"{near[0]}" if near else "never"
        print(f"{name:<14}{first:>8}{excess(run, world):>10.4f}", flush=True)


def real_grids(federation: fa.Federation) -> dict[str, dict[str, list[float]]]:
    """Steps in units of what is stable, and what each has of its own."""
    steps = stable_steps(federation, federation.intercept, 32, 0.1)
    server = {"server_step": [each * steps["server_step"] for each in (0.3, 1, 3)]}
    local = {"local_step": [each * steps["local_step"] for each in (0.1, 0.3, 1)]}
    return {
        "local": {"local_step": [each * steps["local_step"] for each in (0.1, 0.3, 1, 3)]},
        "fedavg": server,
        "scaffold": server,
        "feddyn": server | {"penalty": [0.03, 0.3]},
        "fednova": server,
        "fedavgm": server | {"momentum": [0.5, 0.9]},
        "fedadam": server | {"server_rate": [0.003, 0.03]},
        "fedprox": server | {"penalty": [0.01, 0.1]},
        "ftfa": server | local,
        "rtfa": server | local | {"ridge": [0.01, 0.1, 1]},
        "ditto": server | local | {"ridge": [0.01, 0.1, 1]},
        "apfl": server | local | {"mixture": [0.25, 0.5]},
        "maml_fo": server | local,
        "pfedme": {"server_step": [0.0005, 0.005, 0.05], "ridge": [1, 15]},
        "ifca": server | {"clusters": [2, 4]},
        "gram_ridge": {"shared_ridge": [0.0001, 0.001, 0.01, 0.1, 1]},
    }


def real_clients(name: str, folder: Path, seeds: int) -> Iterator[tuple[int, fa.Federation]]:
    """The clients of a data set in each of its splits, numbered."""
    from shares import deals

    yield from enumerate(deals(name, folder, seeds))


def measure_real(name: str, told: argparse.Namespace) -> dict[str, Any]:
    """Train everything on every split, and print the table."""
    start = time.perf_counter()
    accuracies: dict[str, list[float]] = defaultdict(list)
    seconds: dict[str, float] = defaultdict(float)
    for number, federation in real_clients(name, told.files, told.seeds):
        grids = real_grids(federation)
        for algorithm in told.algorithms.split(";") if told.algorithms else grids:
            before = time.perf_counter()
            runs = fa.train(
                [algorithm],
                federation,
                grid={algorithm: grids[algorithm]},
                seed=number,
                rounds=told.rounds,
                evaluate_every=0,
            )
            accuracies[algorithm].append(float(runs.choose()[0].accuracy[-1]))
            seconds[algorithm] += time.perf_counter() - before
        if time.perf_counter() - start > told.seconds:
            break
    found = {"accuracies": accuracies, "seconds": seconds, "rounds": told.rounds}
    show_accuracies(f"{name}: {len(federation)} clients", found)
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    return found


def show_accuracies(title: str, found: dict[str, Any]) -> None:
    """Print accuracies over splits, and points above FedAvg with the standard error over splits."""
    accuracies = found["accuracies"]
    count = len(next(iter(accuracies.values())))
    print(f"\n{title}, {count} splits, {found['rounds']} rounds")
    print(f"{'':<14}{'accuracy':>9}{'worst':>8}{'best':>8}{'above fedavg':>16}{'seconds':>9}")
    plain = np.array(accuracies.get("fedavg", [np.nan] * count))
    for algorithm, values in sorted(accuracies.items(), key=lambda item: -np.mean(item[1])):
        levels = 100 * np.array(values)
        apart = levels - 100 * plain
        error = apart.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
        print(
            f"{algorithm:<14}{levels.mean():>9.2f}{levels.min():>8.1f}{levels.max():>8.1f}"
            f"{apart.mean():>+9.2f} ± {error:.2f}{found['seconds'][algorithm]:>9.0f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--dimension", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first draw")
    parser.add_argument("--only", default="", help="worlds, separated by ;")
    parser.add_argument("--fresh", type=int, default=0, help="so many worlds that a seed draws")
    parser.add_argument("--files", type=Path, help="train on real clients from this folder")
    parser.add_argument("--data", default="cifar100;digits")
    parser.add_argument("--algorithms", default="", help="of real clients, separated by ;")
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=np.inf, help="of a data set, then no more")
    parser.add_argument("--into", type=Path, help="a JSON file for the accuracies of all splits")
    parser.add_argument("--show", type=Path, help="print the tables of such a file again")
    told = parser.parse_args()
    if told.show:
        for name, found in json.loads(told.show.read_text(encoding="utf-8")).items():
            show_accuracies(name, found)
        return 0
    if told.files:
        found = {name: measure_real(name, told) for name in told.data.split(";")}
        if told.into:
            told.into.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    known = [*WORLDS, *fresh_worlds(told.fresh)]
    wanted = told.only.split(";") if told.only else [each.name for each in known]
    chosen = [each for each in known if each.name in wanted]
    seeds = range(told.first, told.first + told.draws)
    taus = compare_worlds(chosen, seeds, told.dimension, told.rounds)
    if not told.fresh:
        compare_rounds(WORLDS[1], told.dimension, 200)
    print(f"\nKendall's tau: mean {np.mean(taus):.3f}, least {min(taus):.3f} (at least 0.8)")
    return 0 if min(taus) >= 0.8 else 1


if __name__ == "__main__":
    raise SystemExit(main())
