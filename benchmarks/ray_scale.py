"""What Ray costs and what it gives where pieces go to workers: pieces per second with 1, 2 and 4
workers, the overhead of a piece, and the memory of a worker.

    python benchmarks/ray_scale.py             # about four minutes on two cores

Pieces that wait take a core from nobody, so that they show what Ray and the driver add; pieces that
train show what is left of it where cores are few. Every worker has one thread.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

import fedasym as fa
from fedasym.deploy import Ray
from fedasym.deploy.ray import Task, compute_rows, join_cluster, open_pool, portable_data
from fedasym.experiments import plan
from fedasym.experiments.execution import Worker
from fedasym.experiments.fields import record_data
from fedasym.experiments.folder import RunFolder

WAIT = 0.05  # seconds of a piece that waits
SEEDS = 40
TRAINED = {"rounds": 150, "evaluate_every": 150, "local_steps": 5, "personal_epochs": 2}
SHAPE: dict[str, Any] = {"samples": 100, "dimension": 100, "classes": 10}  # of each large client


class Row(NamedTuple):
    """One number of workers."""

    workers: int
    empty: float  # tasks a second that do nothing
    added: float  # seconds that a waiting piece costs beyond its wait
    trained: float  # pieces a second, kept in a run folder
    alone: float  # seconds that training one of them took


def waited(seconds: float, heard: Any) -> None:
    time.sleep(seconds)


def tasks(pool: Any, count: int, seconds: float) -> float:
    """Seconds for so many tasks that wait."""
    left, back = [Task(str(n), waited, (seconds,)) for n in range(count)], 0
    begun = time.monotonic()
    while back < count:
        while left and pool.room():
            pool.hand_out(left.pop())
        back += len(pool.collect_results(lambda key, why: None))
    return time.monotonic() - begun


def experiment(first: int, count: int) -> fa.Experiment:
    """So many pieces, one for each seed."""
    trials = {"seeds": list(range(first, first + count))}
    return fa.Experiment(
        name="scale", algorithms=["ftfa"], grid={}, settings=TRAINED, trials=trials
    )


def timed(into: Path, first: int, data: fa.Federation, on: Ray | None) -> tuple[float, float]:
    """Pieces a second of a run of fresh seeds, and the seconds that training one took."""
    tried, record = experiment(first, SEEDS), record_data(data, ())
    begun = time.monotonic()
    fa.run(tried, data, into=into, on=on)
    wall = time.monotonic() - begun
    held = [RunFolder(into).piece(piece.key(record)) for piece in plan.trials(tried, {"ftfa": {}})]
    return SEEDS / wall, mean(each.made["seconds"] for each in held if each is not None)


def row(workers: int, data: fa.Federation, home: Path) -> Row:
    """Measure one number of workers, all of them started and their programs compiled before."""
    settings = Ray(workers=workers)
    ahead = Ray()  # one task waits for each worker, as in use
    with join_cluster(settings, data.features.nbytes):
        with open_pool(ahead, data) as pool:
            tasks(pool, 4 * workers, 0.5)
            empty = 300 / tasks(pool, 300, 0.0)
            count = 40 * workers
            added = tasks(pool, count, WAIT) * workers / count - WAIT
        place = home / f"run {workers}"
        timed(place, 1, data, ahead)  # compiles
        return Row(workers, empty, added, *timed(place, 1001, data, ahead))


def keeping(data: fa.Federation, home: Path) -> float:
    """Seconds that the driver takes to write a finished piece and its line in the log."""
    record = record_data(data, ())
    tried = experiment(1, SEEDS)
    source = RunFolder(home / "run 1")
    worker = Worker(data, record, RunFolder.prepare(home / "kept", tried, record), None)
    pieces = plan.trials(tried, {"ftfa": {}})
    held = [source.piece(piece.key(record)) for piece in pieces]
    begun = time.monotonic()
    for piece, each in zip(pieces, held, strict=True):
        assert each is not None
        worker.keep(piece.key(record), piece, each.frame, {}, 1.0)
    return (time.monotonic() - begun) / len(pieces)


def measured(home: Path) -> None:
    """Print the table."""
    data = fa.datasets.synthetic(
        task="classification", clients=60, dimension=50, classes=5, aspect=0.5, seed=1
    )
    busy = os.getloadavg()[0]
    rows = [row(workers, data, home) for workers in (1, 2, 4)]
    timed(home / "here", 1, data, None)  # compiles
    here, _ = timed(home / "here", 1001, data, None)
    cores = f"{os.cpu_count()} cores, on which {busy:.1f} other processes ran when it began"
    print(f"{cores}; in this process, one piece after the other: {here:.1f} pieces a second\n")
    titles = (
        "workers",
        "empty tasks a second",
        "added to a piece that waits",
        "trained pieces a second",
        "training one takes",
    )
    print(f"| {' | '.join(titles)} | of the workers' time, spent on training |")
    print("| --- | --- | --- | --- | --- | --- |")
    for each in rows:
        added, alone = f"{1000 * each.added:.1f} ms", f"{1000 * each.alone:.0f} ms"
        used = f"{each.trained * each.alone / each.workers:.0%}"
        print(
            f"| {each.workers} | {each.empty:.0f} | {added} | {each.trained:.1f} | {alone} |"
            f" {used} |"
        )
    seconds = keeping(data, home)
    most = f"at most {1 / seconds:.0f} pieces a second, however many workers"
    print(f"\nThe driver writes a piece in {1000 * seconds:.1f} ms: {most}.")


class Speed(NamedTuple):
    """One worker on a few large clients."""

    joining: float  # seconds until the cluster is there
    starting: float  # until its first worker begins to train
    compiling: float  # what the first piece takes longer than the second


def speed(home: Path) -> Speed:
    """Measure one worker, from nothing."""
    data = fa.datasets.synthetic(task="classification", clients=500, seed=1, **SHAPE)
    record, walls, took = record_data(data, ()), list[float](), list[float]()
    begun = time.monotonic()
    with join_cluster(Ray(workers=1), data.features.nbytes):
        joining = time.monotonic() - begun
        for seed in (1, 2):
            piece, tried = one_piece(seed)
            begun = time.monotonic()
            fa.run(tried, data, into=home / "rate", on="ray")
            walls.append(time.monotonic() - begun)
            held = RunFolder(home / "rate").piece(piece.key(record))
            assert held is not None
            took.append(held.made["seconds"])
    return Speed(joining, walls[0] - took[0], took[0] - took[1])


def one_piece(seed: int) -> tuple[plan.Piece, fa.Experiment]:
    """FTFA with the paper's settings, tested at the end."""
    told = {"rounds": 400, "evaluate_every": 0}
    tried = fa.Experiment(
        name="rate", algorithms=["ftfa"], grid={}, settings=told, trials={"seeds": [seed]}
    )
    return plan.trials(tried, {"ftfa": {}})[0], tried


def peak_of(data: list[Any], piece: plan.Piece, heard: Any) -> int:
    """In a worker: the most bytes that it has had, the shared memory that it has read among
    them.
    """
    compute_rows(data, piece, "", heard)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak(clients: int) -> tuple[int, int]:
    """Bytes of the data of so many clients, and the peak of a fresh worker that trains on them."""
    rng, (n, d, k) = np.random.default_rng(0), SHAPE.values()
    features, labels = (
        rng.standard_normal((clients * n, d), dtype=np.float32),
        rng.integers(0, k, clients * n),
    )
    data = fa.Federation.from_arrays(features, labels, np.repeat(np.arange(clients), n))
    with join_cluster(Ray(workers=1), data.features.nbytes), open_pool(Ray(), data) as pool:
        pool.hand_out(Task("peak", peak_of, ([pool.ray.put(portable_data(data))], one_piece(1)[0])))
        while not (back := pool.collect_results(lambda key, why: None)):
            pass
    return clients * n * (4 * d + 17), back[0][1]


def on_memory(few: tuple[int, int], many: tuple[int, int]) -> None:
    """Print where the memory that a piece is given comes from."""
    (little, least), (much, most) = few, many
    small, large = (
        f"{least / 1e9:.2f} GB on {little / 1e9:.3f} GB",
        f"{most / 1e9:.2f} GB on {much / 1e9:.2f} GB",
    )
    copies = (
        f"{(most - least) / (much - little):.1f} copies, one of them that of the node, which all"
        " its workers share"
    )
    print(f"A worker peaks at {small} of data, and at {large}: {copies}.")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        # clusters first, since JAX's threads, once they are here, do not like forks
        found = speed(Path(home))
        peaks = peak(50), peak(5000)
        measured(Path(home))
    times = f"{found.joining:.0f} s for a cluster of this machine, {found.starting:.0f} s for a"
    print(f"Starting took {times} worker, {found.compiling:.0f} s for compiling a first piece.\n")
    on_memory(*peaks)


if __name__ == "__main__":
    main()
