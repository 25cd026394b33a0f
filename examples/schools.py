"""Schools, children and sleepers: personalised regressions on real groups, beside the mixed model
of statsmodels.

A group is a client, and its regression has an intercept and slopes of its own. Of every group 30%
of the rows are held out. Two things to see: what sharing is worth when a group has few rows, and
that pFedMe with the estimated ridges IS a mixed model without covariances: a variance for the
intercept and one for all slopes, or one for each where the data carry it (statsmodels: as many
variance components), fitted there by its own REML.

    FEDASYM_DATA=folder python examples/schools.py

The folder holds grouped_regression/{Exam,Hsb82,egsingle,sleepstudy}.csv; statsmodels and pandas
come with fedasym[dev].
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams, VCSpec
from statsmodels.tools.sm_exceptions import ModelWarning

from fedasym import linear

ROOT = Path(__file__).resolve().parent.parent
ALGORITHMS = ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "maml", "pfedme"]
MIXED = "mixed model"


@dataclass(frozen=True)
class Table:
    """Which columns of a file to use: whose rows, what to predict, and from what ("column=value" is
    one or zero).
    """

    file: str
    group: str
    label: str
    features: tuple[str, ...]


TABLES = (
    Table("Exam", "school", "normexam", ("standLRT", "sex=F")),
    Table("Hsb82", "school", "mAch", ("cses", "minrty=Yes")),
    Table("egsingle", "childid", "math", ("year",)),
    Table("sleepstudy", "Subject", "Reaction", ("Days",)),
)


@dataclass(frozen=True)
class Outcome:
    """Held-out errors in units of the labels' standard deviation; how far pFedMe and the mixed
    model are apart, in labels.
    """

    clients: int
    rows: int
    errors: dict[str, float]
    apart: float


def folder() -> Path:
    """Where the tables are."""
    return (
        Path(os.environ.get("FEDASYM_DATA", ROOT / ".." / "shared" / "data")) / "grouped_regression"
    )


def read(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and groups."""
    data = pd.read_csv(folder() / f"{table.file}.csv")
    columns = [data[name.split("=")[0]] for name in table.features]
    values = [
        c == name.split("=")[1] if "=" in name else c
        for c, name in zip(columns, table.features, strict=True)
    ]
    return (
        np.column_stack(values).astype(float),
        data[table.label].to_numpy(dtype=float),
        data[table.group].to_numpy(),
    )


def held_out(groups: np.ndarray, share: float = 0.3, seed: int = 0) -> np.ndarray:
    """A random share of the rows of each group, never all of them."""
    order = np.random.default_rng(seed).permutation(len(groups))
    rank = pd.Series(order).groupby(groups).rank(method="first").to_numpy()
    size = pd.Series(order).groupby(groups).transform("size").to_numpy()
    return rank <= np.floor(share * size + 0.5)


def mixed_model(
    X: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    new: np.ndarray,
    new_groups: np.ndarray,
    ours: linear.LinearFit,
) -> np.ndarray:
    """statsmodels' predictions: REML and the best linear unbiased prediction, with as many
    variances as our fit has.
    """
    parts = parts_of(ours.variances)
    labels = np.unique(groups)
    names = [[[f"b{i}" for i in part]] * len(labels) for part in parts]
    designs = [[X[groups == label][:, part] for label in labels] for part in parts]
    model = MixedLM(
        y, X, groups, exog_vc=VCSpec([f"part {i}" for i in range(len(parts))], names, designs)
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ModelWarning
        )  # what it found is compared below, by its likelihood
        near = model.fit(
            method="powell"
        )  # from its own start, statsmodels' descent may leave the valley
        fit = model.fit(start_params=near.params_object, method="bfgs", gtol=1e-8)
        if (
            not fit.converged
        ):  # or stop on the way: then it is shown ours, and keeps whichever it finds likelier
            ratios = [
                max(ours.variances[part[0]] / ours.noise**2, 1e-6) for part in parts
            ]  # it takes logarithms
            start = MixedLMParams.from_components(ours.shared, vcomp=np.array(ratios))
            fit = max(
                fit,
                model.fit(start_params=start, method="bfgs", gtol=1e-8),
                key=lambda each: each.llf,
            )
        effects = fit.random_effects
    places = [column for part in parts for column in part]
    away = {label: np.asarray(each)[np.argsort(places)] for label, each in effects.items()}
    return np.array(
        [row @ (fit.fe_params + away[label]) for row, label in zip(new, new_groups, strict=True)]
    )


def parts_of(variances: np.ndarray) -> list[list[int]]:
    """Columns that the fit gave one variance, the intercept (last) on its own."""
    slopes = list(range(len(variances) - 1))
    alike = np.ptp(variances[:-1]) == 0
    return [*([slopes] if alike else [[column] for column in slopes]), [len(variances) - 1]]


def compare(table: Table) -> Outcome:
    """Fit all algorithms and the mixed model, and score them on the rows held out."""
    features, labels, groups = read(table)
    test = held_out(groups)
    # One variance for all coefficients makes sense once all features have one scale.
    mean, scale = features[~test].mean(0), features[~test].std(0)
    centre, unit = labels[~test].mean(), labels[~test].std()
    X, y = (features - mean) / scale, (labels - centre) / unit

    predictions = {}
    for name in ALGORITHMS:
        fit = linear.fit(
            name, X[~test], y[~test], clients=groups[~test], ridge="optimal", weights="samples"
        )
        predictions[name] = fit.predict(X[test], client=groups[test])
    ones = np.column_stack([X, np.ones(len(X))])
    predictions[MIXED] = mixed_model(
        ones[~test], y[~test], groups[~test], ones[test], groups[test], fit
    )  # fmt: skip
    errors = {
        name: float(np.sqrt(np.mean((guess - y[test]) ** 2))) for name, guess in predictions.items()
    }
    apart = unit * float(np.abs(predictions["pfedme"] - predictions[MIXED]).max())
    return Outcome(len(np.unique(groups)), len(labels), errors, apart)


def report(outcomes: dict[str, Outcome]) -> str:
    """The errors of every algorithm on every table."""
    each = list(outcomes.values())
    rows = [
        ("", "", list(outcomes)),
        ("clients", "", [outcome.clients for outcome in each]),
        ("rows", "", [outcome.rows for outcome in each]),
        *(
            (name, ".4f", [outcome.errors[name] for outcome in each])
            for name in (*ALGORITHMS, MIXED)
        ),
    ]
    table = [
        f"{name:<14}" + "".join(f"{format(cell, how):>12}" for cell in cells)
        for name, how, cells in rows
    ]
    title = "held-out error, in standard deviations of the label (1 = predicting the mean)"
    twins = (
        "largest difference between predictions of pfedme and of the mixed model, in units of the"
        " label:"
    )
    apart = f"{'':<14}" + "".join(f"{outcome.apart:>12.1e}" for outcome in each)
    return "\n".join([title, "", *table, "", twins, apart])


def main() -> None:
    print(report({table.file: compare(table) for table in TABLES}))


if __name__ == "__main__":
    main()
