"""Exact models of classes beside pooled and per-client logistic regression, on real tables cut into
classes.

    python benchmarks/tables_classes.py --data FOLDER --seeds 10

FOLDER holds Exam.csv, Hsb82.csv, egsingle.csv and sleepstudy.csv (R's mlmRev, mlmRev, mlmRev and
lme4); their labels are cut at the median and at terciles. Iris, wine, breast cancer and digits come
with scikit-learn; their clients are drawn at random, or are clusters (k-means). Of every client a
fifth of the samples is held out. Pooled and alone are scikit-learn's LogisticRegressionCV by
log-loss, with standardised features; a client whose samples cannot be split gets C = 1, and one
with a single class its frequencies with one sample added to every class.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from fedasym.exact.classes import fit_classes

REAL = {
    "Exam": ("normexam", "school", ("rownames", "student")),
    "Hsb82": ("mAch", "school", ("rownames", "ses")),
    "egsingle": ("math", "schoolid", ("rownames", "childid")),
    "sleepstudy": ("Reaction", "Subject", ("rownames",)),
}
MADE = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}
KINDS = ("random", "clusters")
LEAST = 1e-12


def read_real(folder: Path, name: str, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    label, client, dropped = REAL[name]
    frame = pd.read_csv(folder / f"{name}.csv")
    y = frame[label].to_numpy(float)
    codes = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y, side="left")
    columns = []
    for column in frame.columns.difference([label, client, *dropped], sort=False):
        values = frame[column]
        if values.dtype.kind in "if":
            columns.append((values - values.mean()).to_numpy(float) / values.std())
        else:
            levels = sorted(values.astype(str).unique())[1:]
            columns += [(values.astype(str) == level).to_numpy(float) for level in levels]
    return np.column_stack(columns), codes.astype(int), frame[client].to_numpy()


def make_clients(name: str, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = MADE[name](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    count = 20 if name == "digits" else 6
    if kind == "random":
        return X, y, np.random.default_rng(0).integers(count, size=len(y))
    return X, y, KMeans(count, n_init=4, random_state=0).fit_predict(X)


def split(ids: np.ndarray, seed: int) -> np.ndarray:
    """Which rows train: four fifths of every client's, at least one."""
    rng, train = np.random.default_rng(seed), np.ones(len(ids), dtype=bool)
    for client in np.unique(ids):
        rows = rng.permutation(np.flatnonzero(ids == client))
        train[rows[: min(round(0.2 * len(rows)), len(rows) - 1)]] = False
    return train


def tuned(X: np.ndarray, y: np.ndarray, classes: int, folds: int) -> tuple[object, np.ndarray]:
    """Logistic regression with its penalty by cross-validated log-loss, as a function to
    probabilities.
    """
    seen, counts = np.unique(y, return_counts=True)
    if len(seen) == 1:
        flat = np.ones(classes)
        flat[seen[0]] += len(y)
        return lambda Z: np.tile(flat / flat.sum(), (len(Z), 1))
    scaler = StandardScaler().fit(X)
    if counts.min() < 2:
        model = LogisticRegression(C=1.0, max_iter=300)
    else:
        model = LogisticRegressionCV(
            Cs=np.logspace(-4, 3, 8),
            cv=StratifiedKFold(min(folds, counts.min()), shuffle=True, random_state=0),
            scoring="neg_log_loss",
            max_iter=300,
            use_legacy_attributes=False,
            l1_ratios=(0,),
        )
    model.fit(scaler.transform(X), y)

    def probabilities(Z: np.ndarray) -> np.ndarray:
        P = np.full((len(Z), classes), LEAST)
        P[:, seen] = model.predict_proba(scaler.transform(Z))
        return P

    return probabilities


def score(P: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    own = np.maximum(P[np.arange(len(y)), y], LEAST)
    return float(-np.log(own).mean()), float((P.argmax(1) == y).mean())


def run(X: np.ndarray, y: np.ndarray, ids: np.ndarray, seed: int, named: list[str]) -> dict:
    K, train = int(y.max()) + 1, split(ids, seed)
    test, scores = ~train, {}
    scores["pooled"] = score(tuned(X[train], y[train], K, 5)(X[test]), y[test])
    P = np.empty((test.sum(), K))
    for client in np.unique(ids[test]):
        here = train & (ids == client)
        P[ids[test] == client] = tuned(X[here], y[here], K, 3)(X[test & (ids == client)])
    scores["alone"] = score(P, y[test])
    for name in ("chosen", *named):
        algorithm = None if name == "chosen" else name
        fit = fit_classes(algorithm, X[train], y[train], ids[train], classes=range(K))
        scores[name] = score(fit.predict_proba(X[test], client=ids[test]), y[test])
        if name == "chosen":
            scores["which"] = fit.algorithm.name
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="*", default=None, help="tables by name")
    parser.add_argument("--also", nargs="*", default=[], help="algorithms to show too")
    arguments = parser.parse_args()
    folder = arguments.data
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    cases = [(n, f"{K} classes", partial(read_real, folder, n, K)) for n in REAL for K in (2, 3)]
    cases += [(n, kind, partial(make_clients, n, kind)) for n in MADE for kind in KINDS]
    head = "".join(f"{name:>9}" for name in ("pooled", "alone", "chosen", "ratio", "accuracy"))
    print(f"{'table':<22}{head}{'seconds':>10}", end="")
    print("".join(f"{name:>12}" for name in arguments.also), "  chosen")
    for name, kind, read in cases:
        if arguments.only and name not in arguments.only:
            continue
        X, y, ids = read()
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = [run(X, y, ids, seed, arguments.also) for seed in seeds]
        seconds = (time.perf_counter() - begun) / arguments.seeds
        keys = [key for key in runs[0] if key != "which"]
        loss = {key: float(np.mean([each[key][0] for each in runs])) for key in keys}
        accuracy = {key: float(np.mean([each[key][1] for each in runs])) for key in keys}
        better = min(loss["pooled"], loss["alone"])
        gap = accuracy["chosen"] - max(accuracy["pooled"], accuracy["alone"])
        which = pd.Series([each["which"] for each in runs]).value_counts().to_dict()
        cells = "".join(f"{loss[key]:>9.4f}" for key in ("pooled", "alone", "chosen"))
        cells += f"{loss['chosen'] / better:>9.3f}{100 * gap:>+8.2f}%{seconds:>10.1f}"
        cells += "".join(f"{loss[key]:>12.4f}" for key in arguments.also)
        print(f"{name + ', ' + kind:<22}{cells}  {which}", flush=True)


if __name__ == "__main__":
    main()
