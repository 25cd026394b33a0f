"""How well a double of real clients foretells what is not there yet.

    python benchmarks/double.py digits cifar100 [--clients 100] [--table parts dirichlet]

Data: FEDASYM_DATA (digits_by_writer/mnist_by_writer.npz, as 300 random ReLU features of its pixels;
cifar100_features/features_100_clients.npz), or a .safetensors or .npz file of features
(window_features.py makes them of text). The laws were developed on these two. Held back were
other_digits, other writers and other random features; other_cifar100, clients of
features_600_clients.npz, another network; and all text.
Tables: accuracies of every algorithm (exact least-squares heads on held-out samples, means over
clients) on real clients of the whole size, beside those on clients drawn from a double that was
fitted to half of each client's samples, or to a quarter of the clients; Dirichlet 0.1 and 1
re-partitions of the pool, each foretold from the other; estimated alpha over 20 draws; time and
memory of `resemble`; levels by least squares and by the logistic loss; training on real clients and
on drawn ones (train), and beside what the advisor foresees (foreseen); --few: small grids, for two
cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

import fedasym as fa
from fedasym.advisor.crosscheck import foresee_accuracies
from fedasym.algorithms import PAPER, find
from fedasym.exact.held_out import HeldOut, SoftmaxHeldOut
from fedasym.models.laws import ShareLaw
from fedasym.models.what_if import board_of

NAMES = [name for name in PAPER if name != "local"]
ALGORITHMS = [find(name) for name in NAMES]
DRAWS = 2
HELD = 20
FEATURES = 300
TRAINED = ["local", "fedavg", "ftfa", "rtfa", "maml_fo", "pfedme"]
TRAIN = {"rounds": 200, "cohort": 20, "local_steps": 20, "batch": 32, "personal_epochs": 10}
GRID = {"server_step": [0.01, 0.1, 1.0], "local_step": [0.01, 0.1, 1.0], "ridge": [0.01, 0.1, 1.0]}
FEW_ROUNDS = 60
FEW_GRID = {"server_step": [0.01, 0.1, 1.0], "local_step": [0.01, 0.1], "ridge": [0.1, 1.0]}
LIKE = {"local": "local_ridge", "maml_fo": "maml"}
GRIDS = {
    "local": ("local_step",),
    "fedavg": ("server_step",),
    "ftfa": ("server_step", "local_step"),
    "rtfa": ("server_step", "local_step", "ridge"),
    "maml_fo": ("server_step", "local_step"),
    "pfedme": ("server_step", "ridge"),
}


def folder() -> Path:
    return Path(os.environ.get("FEDASYM_DATA", "data"))


def load_digits(clients: int, seed: int = 0) -> fa.Federation:
    """Writers of at least 60 digits: random ReLU features of the pixels, which no network saw."""
    file = np.load(folder() / "digits_by_writer" / "mnist_by_writer.npz")
    rng = np.random.default_rng(seed)
    names, counts = np.unique(file["writer"], return_counts=True)
    kept = np.isin(file["writer"], rng.permutation(names[counts >= 60])[:clients])
    pixels = file["x"][kept].reshape(int(kept.sum()), -1).astype(np.float32) / 255
    weights = rng.standard_normal((pixels.shape[1], FEATURES)).astype(np.float32) / 10
    features = np.maximum(pixels @ weights + 0.3 * rng.standard_normal(FEATURES), 0)
    return fa.Federation.from_arrays(
        features.astype(np.float32),
        file["y"][kept].astype(int),
        file["writer"][kept].astype(int),
        split=(0.7, 0.1, 0.2),
        seed=seed,
        classes=10,
    )


def load_cifar(clients: int, other: bool = False) -> fa.Federation:
    """Features of a ResNet-18 that was trained on the training samples, or of another one."""
    few = clients <= 100 and not other
    file = np.load(folder() / "cifar100_features" / f"features_{100 if few else 600}_clients.npz")
    x = file["x"].astype(np.float32) if few else file["q"] * file["scale"]
    names = np.unique(file["client"])[:clients]
    kept = np.isin(file["client"], names)
    return fa.Federation.from_arrays(
        x[kept],
        file["y"][kept].astype(int),
        file["client"][kept].astype(int),
        split=file["split"][kept].astype(int),
        classes=100,
    )


def load_file(path: str, clients: int) -> fa.Federation:
    """Features of a .safetensors file, or of an .npz file with x, y, client and split."""
    if path.endswith(".safetensors"):
        return fa.Federation.from_safetensors(path)
    file = np.load(path)
    kept = np.isin(file["client"], np.unique(file["client"])[:clients])
    return fa.Federation.from_arrays(
        file["x"][kept].astype(np.float32),
        file["y"][kept].astype(int),
        file["client"][kept].astype(int),
        split=file["split"][kept].astype(int),
        classes=int(file["y"].max()) + 1,
    )


def levels_table(name: str, federation: fa.Federation) -> None:
    """Least-squares heads beside heads with the logistic loss, on the real clients."""
    rows = federation.features, federation.labels, federation.owner, federation.split
    for board in (HeldOut, SoftmaxHeldOut):
        start = time.process_time()
        here = board.of(*rows, len(federation.classes))
        told = [
            f"{each} {100 * np.nanmean(here.score(find(each))):.1f}"
            for each in ("fedavg", "fedavg_share", "local_ridge", "rtfa")
        ]
        spent = time.process_time() - start
        print(f"{name} {board.__name__}: {', '.join(told)}; {spent:.0f} s", flush=True)


def select_rows(federation: fa.Federation, kept: np.ndarray) -> fa.Federation:
    """Some of the samples."""
    return fa.Federation.from_arrays(
        federation.features[kept],
        federation.labels[kept],
        federation.owner[kept],
        split=federation.split[kept],
        classes=len(federation.classes),
    )


def halve_clients(federation: fa.Federation, part: int) -> fa.Federation:
    """Half of each client's samples of each split: one of two that are the whole together."""
    order = np.random.default_rng(part // 2).permutation(len(federation.owner))
    key = federation.owner[order] * 3 + federation.split[order]
    sorted_ = order[np.argsort(key, kind="stable")]
    return select_rows(federation, np.sort(sorted_[part % 2 :: 2]))


def quarter_clients(federation: fa.Federation, part: int) -> fa.Federation:
    """A quarter of the clients: one of four that are the whole together, so that who is in it is no
    luck of the mean over these.
    """
    order = np.random.default_rng(part // 4).permutation(len(federation))
    return select_rows(federation, np.isin(federation.owner, order[part % 4 :: 4]))


def score_clients(federation: fa.Federation) -> np.ndarray:
    """Accuracies (algorithms, clients) of real clients on all held-out samples, of which each half
    chooses the settings for the other: tens of test samples a client leave a point or two to luck.
    """
    board = board_of(federation)
    return np.array([board.score_halves(each) for each in ALGORITHMS])


def measure(federation: fa.Federation) -> np.ndarray:
    """Mean accuracies over real clients."""
    return np.nanmean(score_clients(federation), axis=1)


def print_pairs(scores: np.ndarray) -> None:
    """Pairs that differ by more than a point, but by less than three standard errors of the paired
    difference over clients.
    """
    for one, other in combinations(range(len(NAMES)), 2):
        gap = 100 * (scores[one] - scores[other])
        gap = gap[np.isfinite(gap)]
        mean, error = gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap))
        if 1 < abs(mean) < 3 * error:
            print(
                f"{NAMES[one]} less {NAMES[other]}: {mean:.2f} points, standard error {error:.2f}"
                f" over {len(gap)} clients"
            )


def foretell(double, quantity: str, value: float, seed: int) -> np.ndarray:
    """Accuracies that `fa.what_if` says."""
    found = fa.what_if(double, {quantity: [value]}, NAMES, draws=DRAWS, seed=seed)
    return np.array([found.at(quantity, value, name).value for name in NAMES])


def print_table(
    title: str, rows: dict[str, np.ndarray], truth: np.ndarray, names: list[str] = NAMES
) -> None:
    print(f"\n{title}\n{'':<24}" + "".join(f"{name:>13}" for name in names))
    print(f"{'real, whole':<24}" + "".join(f"{100 * value:>13.1f}" for value in truth))
    for name, values in rows.items():
        known = np.isfinite(values)
        off = np.abs(values - truth)[known]
        apart = known[:, None] & known & (np.abs(truth[:, None] - truth) > 0.01)
        right = np.sign(values[:, None] - values) == np.sign(truth[:, None] - truth)
        order = f"{int(right[apart].sum() // 2)}/{int(apart.sum() // 2)}"
        print(
            f"{name:<24}"
            + "".join(f"{100 * value:>13.1f}" for value in values)
            + f"   off by {100 * off.mean():.2f}, at most {100 * off.max():.2f}; order {order}",
            flush=True,
        )


def parts_table(name: str, federation: fa.Federation, count: int, forms: list[str]) -> None:
    """Half of each client's samples, and a quarter of the clients, foretell the whole; beside them
    what the part measures itself, by the same heads. Means over so many parts.
    """
    scores = score_clients(federation)
    truth = np.nanmean(scores, axis=1)
    size = int(np.median(federation.counts("train")))
    rows: dict[str, list[np.ndarray]] = {}
    spent = {"resemble": 0.0, "measure": 0.0, "foretell": 0.0}
    parts = (
        ("half of each", halve_clients, "samples", size),
        ("a quarter", quarter_clients, "clients", len(federation)),
    )
    for part, take, quantity, value in parts:
        for each in range(count):
            fitted = take(federation, each)
            start = time.process_time()
            rows.setdefault(f"{part}, itself", []).append(measure(fitted))
            spent["measure"] += time.process_time() - start
            for form in forms:
                start = time.process_time()
                double = fa.resemble(fitted, coordinates=form)
                spent["resemble"] += time.process_time() - start
                start = time.process_time()
                found = foretell(double, quantity, value, each)
                spent["foretell"] += time.process_time() - start
                rows.setdefault(f"{part}, {form}", []).append(found)
    means = {key: np.mean(values, axis=0) for key, values in rows.items()}
    title = f"{name}: {len(federation)} clients of about {size}; means over {count} parts"
    print_table(title, means, truth)
    print_pairs(scores)
    for key, values in rows.items():
        off = np.abs(np.array(values) - truth)
        print(
            f"{key}: single parts are off by {100 * off.mean():.2f}, at most {100 * off.max():.2f}"
        )
    for key in spent:
        spent[key] /= 2 * count * (1 if key == "measure" else max(len(forms), 1))
    print(
        f"seconds of a processor: {spent['measure']:.1f} to measure a part,"
        f" {spent['resemble']:.1f} for a double of it, {spent['foretell']:.1f} to foretell the"
        " whole",
        flush=True,
    )


def dirichlet_table(name: str, federation: fa.Federation, count: int, forms: list[str]) -> None:
    """A pool dealt out by Dirichlet 0.1 and by 1, each foretold from the other. Means over so many
    deals: a single one has few test samples, and who gets which is its luck.
    """
    size = int(np.median(np.diff(federation.starts)))
    clients = min(len(federation), 60)
    for alpha, other in ((0.1, 1.0), (1.0, 0.1)):
        truth = []
        rows: dict[str, list[np.ndarray]] = {f"from {other:g}, {form}": [] for form in forms}
        for seed in range(count):
            real, fitted = (
                fa.datasets.partition(
                    federation, alpha=each, clients=clients, samples=size, seed=seed
                )
                for each in (alpha, other)
            )
            truth.append(measure(real))
            for form in forms:
                double = fa.resemble(fitted, coordinates=form)
                rows[f"from {other:g}, {form}"].append(foretell(double, "alpha", alpha, seed))
            print(f"{name}: alpha {other:g} estimated as {double.card.label}", flush=True)
        title = f"{name}: Dirichlet {alpha:g}, {clients} clients; means over {count} deals"
        means = {key: np.mean(values, axis=0) for key, values in rows.items()}
        print_table(title, means, np.mean(truth, axis=0))
        apart = np.std(truth, axis=0, ddof=1).mean() if count > 1 else np.nan
        for key, values in rows.items():
            off = np.abs(np.array(values) - truth)
            print(
                f"{key}: single deals are off by {100 * off.mean():.2f}, at most"
                f" {100 * off.max():.2f}; real ones differ by {100 * apart:.2f} among themselves"
            )


def alpha_table(draws: int = 20) -> None:
    """Estimated alpha over draws of a pool of ten classes."""
    labels = np.arange(60_000) % 10
    for alpha in (0.1, 0.5, 1.0):
        found = []
        for seed in range(draws):
            dealt = fa.datasets.partition(
                np.eye(10)[labels], labels, alpha=alpha, clients=100, samples=150, seed=seed
            )
            law = ShareLaw.of(dealt.class_counts())
            found.append((law.alpha, law.low <= alpha <= law.high))
        values, covers = np.array(found).T
        print(
            f"alpha {alpha:g}: estimated {values.mean():.3g}, from {values.min():.3g} to"
            f" {values.max():.3g} over {draws} draws; the interval covers it in"
            f" {int(covers.sum())}",
            flush=True,
        )


def train_all(name: str, clients: fa.Federation, seed: int, few: bool) -> tuple[np.ndarray, float]:
    """Mean test accuracies over clients by algorithm, steps and ridge tuned on validation samples,
    and the processor seconds. few: fewer rounds and settings, for two cores.
    """
    start = time.process_time()
    found = []
    tested = clients.counts("test")
    for algorithm in TRAINED:
        grid = {key: values for key, values in GRID.items() if key in GRIDS[algorithm]}
        settings = TRAIN
        if few:
            grid = {key: FEW_GRID[key] for key in grid}
            settings = TRAIN | {"rounds": FEW_ROUNDS}
        runs = fa.train([algorithm], clients, evaluate_every=0, seed=seed, grid=grid, **settings)
        right = runs.choose()[0].correct[-1, :, 1]
        found.append(float(np.mean(right[tested > 0] / tested[tested > 0])))
        print(f"{name} {algorithm} {100 * found[-1]:.1f}", flush=True)
    return np.array(found), time.process_time() - start


def train_table(name: str, federation: fa.Federation, seed: int, few: bool) -> None:
    """Training on the real whole, beside training on clients drawn from a double of half of each
    client's samples.
    """
    size = int(np.median(federation.counts("train")))
    start = time.process_time()
    double = fa.resemble(halve_clients(federation, seed))
    spent = {"double": time.process_time() - start}
    drawn = double.draw(clients=len(federation), samples=size, held=HELD, seed=seed)
    rows = {}
    for which, clients in {"real": federation, "drawn": drawn}.items():
        rows[which], spent[which] = train_all(f"{name} {which}", clients, seed, few)
    print_table(
        f"{name}, trained", {"drawn from half of each": rows["drawn"]}, rows["real"], TRAINED
    )
    told = ", ".join(f"{key} {value:.0f}" for key, value in spent.items())
    print(f"seconds of a processor: {told}", flush=True)


def foreseen_table(name: str, federation: fa.Federation, seed: int, few: bool) -> None:
    """What the advisor says before any training, beside training."""
    start = time.process_time()
    told = foresee_accuracies(federation)
    spent = time.process_time() - start
    advised = np.array([told[LIKE.get(each, each)].trusted for each in TRAINED])
    squared = np.array([told[LIKE.get(each, each)].samples or np.nan for each in TRAINED])
    measured, trained = train_all(name, federation, seed, few)
    rows = {"advised": advised, "least-squares probe": squared}
    print_table(f"{name}: trained, and foreseen", rows, measured, TRAINED)
    print(f"seconds of a processor: advised {spent:.0f}, trained {trained:.0f}", flush=True)


def speed_table(clients: int = 600, samples: int = 100, dimension: int = 512) -> None:
    """Processor time and memory of `resemble`, beyond what the data take."""
    rng = np.random.default_rng(0)
    y = rng.integers(100, size=clients * samples)
    centre = rng.standard_normal((100, dimension)).astype(np.float32)
    x = centre[y] + rng.standard_normal((len(y), dimension), dtype=np.float32)
    federation = fa.Federation.from_arrays(
        x, y, np.repeat(np.arange(clients), samples), classes=100
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    fa.resemble(federation)
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"resemble, {clients} x {samples} x {dimension}: {time.perf_counter() - start:.0f} s on the"
        f" clock, {spent:.0f} s of processors, peak {after.ru_maxrss / 2**20:.2f} GiB (data"
        f" {x.nbytes / 2**30:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", type=int, default=4, help="and deals")
    parser.add_argument("--forms", nargs="*", default=["resampled", "mixtures"])
    parser.add_argument("--table", nargs="*", default=["parts", "dirichlet", "alpha", "speed"])
    parser.add_argument("--few", action="store_true", help="train less, for two cores")
    options = parser.parse_args()
    loaders = {
        "digits": load_digits,
        "cifar100": load_cifar,
        "other_digits": partial(load_digits, seed=1),
        "other_cifar100": partial(load_cifar, other=True),
    }
    for name in options.data:
        federation = (
            loaders[name](options.clients) if name in loaders else load_file(name, options.clients)
        )
        if "parts" in options.table:
            parts_table(name, federation, options.parts, options.forms)
        if "dirichlet" in options.table:
            dirichlet_table(name, federation, options.parts, options.forms)
        if "levels" in options.table:
            levels_table(name, federation)
        if "train" in options.table:
            train_table(name, federation, options.seed, options.few)
        if "foreseen" in options.table:
            foreseen_table(name, federation, options.seed, options.few)
    if "alpha" in options.table:
        alpha_table()
    if "speed" in options.table:
        speed_table()


if __name__ == "__main__":
    main()
