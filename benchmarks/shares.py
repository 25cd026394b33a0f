"""FedAvg with class shares beside FTFA, RTFA and MAML, tuned, on real clients: 11 splits, paired.

    python benchmarks/shares.py --prepare out/shares     # small files from the folder FEDASYM_DATA
    python benchmarks/window_features.py stackexchange out/shares    # a network of words: two minutes
    python benchmarks/shares.py --files out/shares [--only "cifar600;digits"] [--splits 11]

cifar100, cifar600: features of a network that was trained on the clients' training samples. It has
    seen these, so that only samples that it has not seen validate and test: 20 of each client, ten
    and ten, dealt anew in every split. The training samples stay, so models are trained once. With
    all 600, the server's step and the ridge are those that 100 clients chose.
unseen: the 600 clients without the samples that the network has seen: of 20 samples 12 train, 4
    validate and 4 test, dealt anew in every split.
digits: 300 random ReLU features of the pixels, 300 writers. shakespeare: the next character from
    the five before it, one-hot, 100 roles. stackexchange: the next word, one of the 199 commonest or
    "other", by 96 features of the four before it, of a network that other users trained, 100 users.
    80 % train, 10 % validate, 10 % test, dealt anew in every split.

All settings are chosen by validation, in every split anew. "apart": accuracy above fedavg_share's,
the mean over splits, with the standard error over clients (each client's mean over splits). Last,
the gain of ftfa over its shared model in the parts of `.decompose()`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedasym as fa
from fedasym.training.convergence import stable_steps
from fedasym.training.decomposition import (
    GainParts,
    HeldScores,
    correct_shifts,
    held_scores,
    pooled_difference,
)

ALGORITHMS = ("fedavg", "fedavg_share", "ftfa", "ftfa_share", "rtfa", "maml_fo")
SHARES = {  # wide enough that no choice lies at an end
    "share_power": [0, 0.25, 0.5, 1, 1.5, 2, 3, 4],
    "share_smoothing": [0.1, 0.3, 1, 3, 10, 30, 100, 300],
}
FACTORS = {"server_step": (0.1, 0.5), "local_step": (1, 3, 10)}
RIDGES = [0.1, 1]
DATA = ("cifar100", "cifar600", "unseen", "digits", "shakespeare", "stackexchange")
Samples = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, labels, clients


def grids(federation: fa.Federation, settled: bool = False) -> dict[str, dict[str, list[float]]]:
    """Steps in units of what is stable, ridges, and class shares, for those that have them.

    settled: the smaller of the server's steps and ridges alone.
    """
    steps = stable_steps(federation, federation.intercept, 32, 0.1)
    server, local = ([each * steps[name] for each in FACTORS[name]] for name in FACTORS)
    server, ridges = (server[:1], RIDGES[:1]) if settled else (server, RIDGES)
    both = {"server_step": server, "local_step": local}
    return {
        "fedavg": {"server_step": server},
        "fedavg_share": {"server_step": server, **SHARES},
        "ftfa": both,
        "ftfa_share": both | SHARES,
        "rtfa": both | {"ridge": ridges},
        "maml_fo": both,
    }


def deals(name: str, folder: Path, splits: int) -> Iterator[fa.Federation]:
    """The clients of a data set in each of its splits, dealt anew."""
    if name == "unseen":
        X, y, owner, split = cifar(folder, "cifar600")
        fresh = split > 0
        whole = fa.Federation.from_arrays(
            X[fresh], y[fresh], owner[fresh], classes=100, intercept=False, split=(0.6, 0.2, 0.2)
        )
        shares: Any = (0.6, 0.2, 0.2)
    else:
        X, y, owner = {"digits": digits, "shakespeare": letters, "stackexchange": words}[name](
            folder
        )
        whole = fa.Federation.from_arrays(X, y, owner, intercept=True, seed=0)
        shares = (0.8, 0.1, 0.1)
    for number in range(splits):
        yield whole.resplit(number, keep_test=False, fractions=shares)


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
    """What the last layer of a small network sees of the words before each word."""
    file = np.load(folder / "stackexchange.npz")
    return file["x"].astype(np.float32), file["y"].astype(int), file["client"]


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
    chosen = [roles[place] for place in np.linspace(0, len(roles) - 1, 100).astype(int)]
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


class Scores(NamedTuple):
    """Right answers by client on test samples, of each algorithm's choice; ftfa's gain in parts."""

    right: dict[str, np.ndarray]
    tested: np.ndarray
    parts: GainParts
    shares: dict[str, float]
    ftfa: fa.History


def train_deals(name: str, folder: Path, splits: int, rounds: int) -> Iterator[Scores]:
    """Every split trained and tuned anew."""
    for number, federation in enumerate(deals(name, folder, splits)):
        told = {"seed": number, "rounds": rounds, "evaluate_every": 0}
        best = fa.train(list(ALGORITHMS), federation, grid=grids(federation), **told).choose()
        right = {run.algorithm.name: run.correct[-1, :, 1] for run in best}
        (shares,) = [dict(run.settings.own) for run in best.select(algorithm="fedavg_share")]
        (tuned,) = best.select(algorithm="ftfa")
        parts = tuned.decompose()["ftfa"]
        yield Scores(right, best[0].totals[:, 1], parts, shares, tuned)


def deal_trained(name: str, folder: Path, splits: int, rounds: int) -> Iterator[Scores]:
    """Models trained once; the samples that they have not seen choose and test in turn."""
    X, y, owner, split = cifar(folder, name)
    federation = fa.Federation.from_arrays(X, y, owner, split=split, classes=100, intercept=False)
    tried = grids(federation, settled=name == "cifar600")
    plain = {name: axes for name, axes in tried.items() if "share_power" not in axes}
    runs = fa.train(list(plain), federation, grid=plain, seed=0, rounds=rounds, evaluate_every=0)
    held = [held_of(run) for run in runs]
    stages = [fa.algorithms.Share(*each) for each in product(*SHARES.values())]
    shared = {
        "fedavg_share": [
            each for each, run in zip(held, runs, strict=True) if is_of(run, "fedavg")
        ],
        "ftfa_share": [each for each, run in zip(held, runs, strict=True) if is_of(run, "ftfa")],
    }
    right = {
        each: [
            one.are_right(None, None)
            for one, run in zip(held, runs, strict=True)
            if is_of(run, each)
        ]
        for each in plain
    }
    right |= {
        each: [one.are_right(stage, None) for one in found for stage in stages]
        for each, found in shared.items()
    }
    first, m = held[0], len(federation)
    for number in range(splits):
        rng = np.random.default_rng(number)
        chooses = np.zeros(len(first.labels), bool)
        for client in range(m):
            mine = np.flatnonzero(first.owner == client)
            chooses[rng.permutation(mine)[: len(mine) // 2]] = True

        def by_client(values: np.ndarray, measured: np.ndarray = ~chooses) -> np.ndarray:
            return np.bincount(first.owner[measured], values[measured], minlength=m)

        best = {
            each: int(np.argmax([one[chooses].mean() for one in tried]))
            for each, tried in right.items()
        }
        found = {each: by_client(tried[best[each]]) for each, tried in right.items()}
        own = [run for run in runs if is_of(run, "ftfa")][best["ftfa"]]
        base = held_scores(federation, own.shared)
        corrected = correct_shifts(replace(base, chooses=chooses))
        power, smoothing = list(product(*SHARES.values()))[best["fedavg_share"] % len(stages)]
        yield Scores(
            found,
            by_client(np.ones(len(chooses))),
            GainParts.of("ftfa", corrected, found["ftfa"]),
            {"share_power": power, "share_smoothing": smoothing},
            own,
        )


def is_of(run: fa.History, name: str) -> bool:
    """Whether it is a run of this algorithm."""
    return run.algorithm.name == name


def held_of(run: fa.History) -> HeldScores:
    """A run's scores of the held-out samples: those of the clients' own heads."""
    shared = held_scores(run.federation, run.shared)
    if not run.algorithm.takes_own_steps:
        return shared
    scores = np.array(shared.scores)
    for place, client in enumerate(run.federation.clients):
        head = run.personal(client)
        rows = [run.federation.rows(client, split) for split in ("validation", "test")]
        scores[shared.owner == place] = run.federation.features[np.concatenate(rows)] @ head
    return replace(shared, scores=scores)


def measure(name: str, folder: Path, splits: int, rounds: int) -> None:
    """Print the table of a data set."""
    start = time.process_time()
    made = deal_trained if name.startswith("cifar") else train_deals
    found = list(made(name, folder, splits, rounds))
    total = np.mean([each.tested for each in found], axis=0)
    used = f"{(total > 0).sum()} clients, {total.sum():.0f} test samples"
    print(f"\n{name}: {used}, {splits} splits, {rounds} rounds")
    print(f"{'':<14}{'accuracy':>9}{'worst':>8}{'best':>8}{'apart':>15}")
    own = np.mean([each.right["fedavg_share"] for each in found], axis=0)
    for algorithm in ALGORITHMS:
        levels = [100 * each.right[algorithm].sum() / each.tested.sum() for each in found]
        mean = np.mean([each.right[algorithm] for each in found], axis=0)
        apart = "" if algorithm == "fedavg_share" else str(pooled_difference(mean - own, total))
        ends = f"{min(levels):>8.1f}{max(levels):>8.1f}"
        print(f"{algorithm:<14}{np.mean(levels):>9.2f}{ends}{apart:>15}")
    for part in ("gain", "label", "feature", "rest"):
        amounts = [getattr(each.parts, part) for each in found]
        value, error = (100 * np.mean([each[at] for each in amounts]) for at in range(2))
        print(f"  {part} {value:+.1f} ± {error:.1f}", end="")
    chosen = Counter(f"{k} {v:g}" for each in found for k, v in each.shares.items())
    steps = Counter(
        f"{name} {getattr(each.ftfa.settings, name):.2g}" for each in found for name in FACTORS
    )
    print(f"\n  ftfa: {dict(steps.most_common())}", end="")
    seconds = time.process_time() - start
    print(f"\n  shares: {dict(chosen.most_common())}; {seconds:.0f} processor seconds", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--files", type=Path, default=Path("out/shares"))
    parser.add_argument("--only", default=";".join(DATA))
    parser.add_argument("--splits", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=200)
    told = parser.parse_args()
    if told.prepare:
        prepare(told.prepare)
        return
    for name in told.only.split(";"):
        measure(name, told.files, told.splits, told.rounds)


if __name__ == "__main__":
    main()
