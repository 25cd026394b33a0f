"""FedAvg with class shares beside FTFA, RTFA and MAML, tuned, on real clients: 11 splits, paired.

    python benchmarks/shares.py --prepare out/shares      # small files from the folder FEDASYM_DATA
    python benchmarks/shares.py --files out/shares [--only cifar600;digits] [--splits 11] [--rounds 400]

cifar100, cifar600: features of a network that was trained on the clients' training samples. It has
    seen these, so that only samples that it has not seen validate and test: 20 of each client, ten and
    ten, dealt anew in every split; training samples stay.
cifar600 unseen: the same clients without the samples that the network has seen: 12 train, 4 validate
    and 4 test.
digits: 300 random ReLU features of the pixels, 300 writers. shakespeare: the next character from the
    five before it, one-hot, 200 roles. stackexchange: the next word, one of the 200 commonest or
    "other", from random vectors of the two before it, 300 users.

All settings are chosen by validation, in every split anew. "apart": accuracy below fedavg_share, the
mean over splits, with the standard error over clients (each client's mean over splits); the parts of
ftfa's gain are those of `.decompose()`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

import fedasym as fa
from fedasym.training.convergence import stable_steps
from fedasym.training.decomposition import difference

ALGORITHMS = ("fedavg", "fedavg_share", "ftfa", "ftfa_share", "rtfa", "maml_fo")
SHARES = {"share_power": [0.25, 0.5, 1, 1.5], "share_smoothing": [3, 10, 30, 100]}
FACTORS = {"server_step": (0.1, 0.3, 1, 3), "local_step": (0.03, 0.1, 0.3, 1)}
RIDGES = [0.01, 0.1, 1]
DATA = ("cifar100", "cifar600", "cifar600 unseen", "digits", "shakespeare", "stackexchange")
Samples = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, labels, clients


def grids(federation: fa.Federation) -> dict[str, dict[str, list[float]]]:
    """Steps in units of what is stable, ridges, and class shares, for those that have them."""
    steps = stable_steps(federation, federation.intercept, 32, 0.1)
    server, local = ([each * steps[name] for each in FACTORS[name]] for name in FACTORS)
    both = {"server_step": server, "local_step": local}
    return {
        "fedavg": {"server_step": server},
        "fedavg_share": {"server_step": server, **SHARES},
        "ftfa": both,
        "ftfa_share": both | SHARES,
        "rtfa": both | {"ridge": RIDGES},
        "maml_fo": both,
    }


def deals(name: str, folder: Path, splits: int):
    """The clients of a data set in each of its splits."""
    if name.startswith("cifar"):
        X, y, owner, split = cifar(folder, name)
        unseen = name.endswith("unseen")
        for number in range(splits):
            rng = np.random.default_rng(number)
            dealt = np.array(split)
            for client in np.unique(owner):
                fresh = rng.permutation(np.flatnonzero((owner == client) & (split > 0)))
                parts = np.repeat([0, 1, 2], [12, 4, 4] if unseen else [0, 10, 10])
                dealt[fresh] = parts[: len(fresh)]
            kept = split > 0 if unseen else np.ones(len(y), bool)
            told = {"split": dealt[kept], "classes": 100, "intercept": False}
            yield fa.Federation.from_arrays(X[kept], y[kept], owner[kept], **told)
        return
    X, y, owner = {"digits": digits, "shakespeare": letters, "stackexchange": words}[name](folder)
    whole = fa.Federation.from_arrays(X, y, owner, intercept=True, seed=0)
    for number in range(splits):
        yield whole.resplit(number, keep_test=False)


def cifar(folder: Path, name: str):
    """Features, labels, clients and the network's own split."""
    file = np.load(folder / f"features_{name[5:8]}_clients.npz")
    X = file["x"] if "x" in file else file["q"] * file["scale"]
    return X.astype(np.float32), file["y"].astype(int), file["client"], file["split"]


def digits(folder: Path) -> Samples:
    """300 random ReLU features of 300 writers' digits."""
    file = np.load(folder / "mnist_by_writer.npz")
    writers = np.unique(file["writer"])[:300]
    mine = np.isin(file["writer"], writers)
    rng = np.random.default_rng(0)
    pixels = file["x"][mine].reshape(mine.sum(), -1).astype(np.float32) / 255
    hidden = np.maximum(pixels @ rng.standard_normal((784, 300)).astype(np.float32) / 10, 0)
    return hidden, file["y"][mine].astype(int), file["writer"][mine]


def letters(folder: Path) -> Samples:
    """One-hot characters before each character."""
    file = np.load(folder / "letters.npz")
    before, count = file["before"], int(file["before"].max()) + 1
    X = np.zeros((len(before), before.shape[1] * count), np.float32)
    for place in range(before.shape[1]):
        X[np.arange(len(before)), place * count + before[:, place]] = 1
    return X, file["label"].astype(int), file["client"]


def words(folder: Path) -> Samples:
    """Random vectors of the two words before each word."""
    file = np.load(folder / "words.npz")
    vectors = np.random.default_rng(0).standard_normal((int(file["before"].max()) + 1, 128))
    X = vectors[file["before"]].reshape(len(file["before"]), -1) / 16
    return X.astype(np.float32), file["label"].astype(int), file["client"]


def prepare(folder: Path) -> None:
    """Copy features, and write characters and words as small codes."""
    import h5py

    data = Path(os.environ["FEDASYM_DATA"])
    folder.mkdir(parents=True, exist_ok=True)
    for file in (
        "cifar100_features/features_100_clients.npz",
        "cifar100_features/features_600_clients.npz",
        "digits_by_writer/mnist_by_writer.npz",
    ):
        (folder / Path(file).name).write_bytes((data / file).read_bytes())
    texts: dict[str, str] = {}
    with h5py.File(data / "shakespeare/shakespeare_train.h5") as file:
        for role, held in file["examples"].items():
            texts[role] = "\n".join(each.decode() for each in held["snippets"])
    roles = [role for role, text in texts.items() if len(text) > 600]
    chosen = [roles[place] for place in np.linspace(0, len(roles) - 1, 200).astype(int)]
    codes = {
        letter: at
        for at, (letter, _) in enumerate(
            Counter("".join(texts[role] for role in chosen)).most_common(60)
        )
    }
    save_codes(
        folder / "letters.npz",
        {role: [codes.get(letter, 60) for letter in texts[role]] for role in chosen},
        5,
        61,
    )
    users: dict[str, list[str]] = defaultdict(list)
    with lzma.open(data / "stackexchange/stackexchange.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            post = json.loads(line)
            users[f"{post['site']}/{post['user']}"] += re.findall(
                r"[a-z']+|[.,?!]", post["text"].lower()
            )
    long = sorted(name for name, said in users.items() if len(said) > 1000)
    chosen = [long[place] for place in np.linspace(0, len(long) - 1, 300).astype(int)]
    common = Counter(word for name in chosen for word in users[name]).most_common(2000)
    codes = {word: at for at, (word, _) in enumerate(common)}
    save_codes(
        folder / "words.npz",
        {name: [codes.get(word, 2000) for word in users[name]] for name in chosen},
        2,
        200,
    )


def save_codes(file: Path, texts: dict[str, list[int]], back: int, labels: int) -> None:
    """Some places of each text: the codes before, and the code there; 300 a client."""
    rng = np.random.default_rng(0)
    before, label, client = [], [], []
    for number, codes in enumerate(texts.values()):
        places = rng.choice(np.arange(back, len(codes)), min(300, len(codes) - back), replace=False)
        array = np.array(codes)
        before.append(np.stack([array[places - each] for each in range(1, back + 1)], axis=1))
        label.append(np.minimum(array[places], labels))
        client.append(np.full(len(places), number))
    held = {"before": before, "label": label, "client": client}
    np.savez_compressed(
        file, **{name: np.concatenate(each).astype(np.int16) for name, each in held.items()}
    )


def measure(name: str, folder: Path, splits: int, rounds: int, seconds: float) -> None:
    """Train everything in every split, and print the table."""
    start = time.perf_counter()
    levels: dict[str, list[float]] = defaultdict(list)
    hits: dict[str, list[np.ndarray]] = defaultdict(list)
    tested, parts, chosen = [], [], defaultdict(Counter)
    for number, federation in enumerate(deals(name, folder, splits)):
        grid = grids(federation)
        runs = fa.train(
            list(ALGORITHMS), federation, grid=grid, seed=number, rounds=rounds, evaluate_every=0
        )
        best = runs.choose()
        for run in best:
            levels[run.algorithm.name].append(float(run.accuracy[-1]))
            hits[run.algorithm.name].append(run.correct[-1, :, 1])
            for setting, value in run.settings.own:
                chosen[run.algorithm.name][setting, value] += 1
        tested.append(best[0].totals[:, 1])
        parts.append(best.select(algorithm=["ftfa"]).decompose()["ftfa"])
        if time.perf_counter() - start > seconds:
            break
    m, samples = len(federation), int(np.mean([each.sum() for each in tested]))
    print(f"\n{name}: {m} clients, {samples} test samples, {len(parts)} splits, {rounds} rounds")
    print(f"{'':<14}{'accuracy':>9}{'worst':>8}{'best':>8}{'apart':>15}")
    total = np.mean(tested, axis=0)
    for algorithm in ALGORITHMS:
        found = 100 * np.array(levels[algorithm])
        apart = np.mean(hits[algorithm], axis=0) - np.mean(hits["fedavg_share"], axis=0)
        told = difference(apart, total)
        shown = "" if algorithm == "fedavg_share" else str(told)
        print(
            f"{algorithm:<14}{found.mean():>9.2f}{found.min():>8.1f}{found.max():>8.1f}{shown:>15}"
        )
    for part in ("gain", "label", "feature", "rest"):
        values = [100 * getattr(each, part).value for each in parts]
        error = np.mean([100 * getattr(each, part).error for each in parts])
        print(f"  ftfa's {part:<8}{np.mean(values):>+6.1f} ± {error:.1f}", end="")
    counted = {f"{key[0]} {key[1]:g}": count for key, count in chosen["fedavg_share"].most_common()}
    print(f"\n  fedavg_share chose {counted}; {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--files", type=Path, default=Path("out/shares"))
    parser.add_argument("--only", default=";".join(DATA))
    parser.add_argument("--splits", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=np.inf, help="of a data set, then no more")
    told = parser.parse_args()
    if told.prepare:
        prepare(told.prepare)
        return
    for name in told.only.split(";"):
        measure(name, told.files, told.splits, told.rounds, told.seconds)


if __name__ == "__main__":
    main()
