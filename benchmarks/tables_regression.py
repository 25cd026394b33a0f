"""What `fedasym fit` fits to a raw CSV with its usual flags, beside mixed models, least squares and
each client alone.

    python benchmarks/tables_regression.py [--data ../shared/data/grouped_regression] [--seeds 10]

Of every client a fifth of the rows is held out, ten times; the rest is written to a CSV, fitted and
kept as the command does, and applied to the held-out rows. The rivals get the same features. Mixed
models have the same grouping and are fitted by restricted likelihood with a plain program of their
own (dense loops, numerical slopes): a random intercept; random slopes with one variance for all;
one for each feature. The last column is our error over the best rival's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
from scipy.optimize import minimize

import fedasym as fa

TABLES = {
    "Exam": ("normexam", "school"),
    "Hsb82": ("mAch", "school"),
    "egsingle": ("math", "schoolid"),
    "sleepstudy": ("Reaction", "Subject"),
}
RIVALS = (
    "one mean",
    "least squares",
    "each alone",
    "random intercept",
    "one slope variance",
    "slopes of their own",
)


def hold_out(frame: pl.DataFrame, client: str, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A fifth of every client's rows, at least one, and the rest."""
    rng = np.random.default_rng(seed)
    owner = frame[client].rank("dense").to_numpy()
    held = np.zeros(len(owner), bool)
    for each in np.unique(owner):
        mine = np.flatnonzero(owner == each)
        held[rng.permutation(mine)[: max(1, round(0.2 * len(mine)))]] = True
    return frame.filter(~held), frame.filter(held)


def restricted_fit(
    X: np.ndarray, y: np.ndarray, owner: np.ndarray, groups: np.ndarray
) -> dict[int, np.ndarray]:
    """Every client's coefficients by a mixed model whose unknowns of one group have one variance;
    -1: none.
    """
    d, many = X.shape[1], groups.max() + 1
    parts = [
        (X[owner == k].T @ X[owner == k], X[owner == k].T @ y[owner == k]) for k in np.unique(owner)
    ]

    def solve(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        v = np.where(groups >= 0, np.exp(z)[groups], 0.0)
        live = v > 0
        A, b, c, log_det = np.zeros((d, d)), np.zeros(d), y @ y, 0.0
        for S, u in parts:
            C = np.diag(1 / v[live]) + S[np.ix_(live, live)]
            log_det += np.linalg.slogdet(C)[1] + np.log(v[live]).sum()
            half = np.linalg.solve(C, np.column_stack([S[live], u[live]]))
            A, b, c = (
                A + S - S[:, live] @ half[:, :d],
                b + u - S[:, live] @ half[:, d],
                c - u[live] @ half[:, d],
            )
        theta = np.linalg.solve(A, b)
        return v, theta, A, (len(y) - d) * np.log(c - b @ theta) + log_det + np.linalg.slogdet(A)[1]

    tries = [  # from several places: a first step too long ends at a bound, where all is flat
        minimize(
            lambda z: solve(z)[3] / 100,
            np.full(many, start),
            method="L-BFGS-B",
            bounds=[(-14, 6)] * many,
        )
        for start in (-1.0, -3.0, -5.0)
    ]
    v, theta = solve(min(tries, key=lambda each: each.fun).x)[:2]
    out = {}
    for k, (S, u) in zip(np.unique(owner), parts, strict=True):
        own = theta.copy()
        live = v > 0
        own[live] += np.linalg.solve(
            np.diag(1 / v[live]) + S[np.ix_(live, live)], (u - S @ theta)[live]
        )
        out[k] = own
    return out


def errors(
    frame: pl.DataFrame, label: str, client: str, seed: int, folder: Path
) -> dict[str, float]:
    """Held-out squared errors of ours and of the rivals."""
    train, test = hold_out(frame, client, seed)
    train.write_csv(folder / "train.csv")
    data = fa.datasets.read(folder / "train.csv", label=label, client=client, split=(1.0, 0.0, 0.0))
    kept = fa.fit(data).save(folder / "model.safetensors")
    model = fa.Model.load(kept)
    truth = test[label].to_numpy().astype(float)
    told, _ = model.apply(test.drop(label))
    out = {"fedasym": float(np.mean((told["prediction"].to_numpy() - truth) ** 2))}
    X, new = (
        np.column_stack([model.recipe.apply(part)[0], np.ones(part.height)])
        for part in (train, test)
    )
    y = train[label].to_numpy().astype(float)
    names = {
        name: place for place, name in enumerate(dict.fromkeys(model.recipe.read_clients(train)))
    }
    owner, theirs = (
        np.array([names[c] for c in model.recipe.read_clients(part)]) for part in (train, test)
    )
    centre = y.mean()
    varies = np.append(
        data.personal if data.personal is not None else np.ones(X.shape[1] - 1, bool), True
    )
    level, slopes, apart = (np.full(X.shape[1], -1) for _ in range(3))
    level[-1] = 0
    slopes[varies], slopes[-1] = 1, 0
    apart[varies] = np.arange(varies.sum())

    def score(models: dict[int, np.ndarray]) -> float:
        return float(
            np.mean((truth - centre - (new * np.array([models[k] for k in theirs])).sum(1)) ** 2)
        )

    pooled = np.linalg.lstsq(X, y - centre, rcond=None)[0]
    alone = {
        k: np.linalg.lstsq(X[owner == k], y[owner == k] - centre, rcond=None)[0]
        for k in np.unique(owner)
    }
    out |= {
        "one mean": float(np.mean((truth - centre) ** 2)),
        "least squares": score(dict.fromkeys(names.values(), pooled)),
    }
    out |= {"each alone": score(alone)}
    for name, groups in (
        ("random intercept", level),
        ("one slope variance", slopes),
        ("slopes of their own", apart),
    ):
        out[name] = score(restricted_fit(X, y - centre, owner, groups))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", default=os.environ.get("FEDASYM_DATA", "../shared/data") + "/grouped_regression"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(TABLES))
    told = parser.parse_args()
    print("held-out squared error, mean over", told.seeds, "splits")
    print(f"{'':<12}" + "".join(f"{name:>21}" for name in (*RIVALS, "fedasym", "ratio")))
    for name in told.only:
        label, client = TABLES[name]
        frame = pl.read_csv(Path(told.data, f"{name}.csv"), infer_schema_length=None)
        with tempfile.TemporaryDirectory() as folder:
            runs = [errors(frame, label, client, seed, Path(folder)) for seed in range(told.seeds)]
        means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        best = min(means[rival] for rival in RIVALS)
        cells = [*(means[rival] for rival in RIVALS), means["fedasym"], means["fedasym"] / best]
        print(f"{name:<12}" + "".join(f"{cell:>21.4g}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
