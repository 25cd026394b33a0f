"""Advice on real groups beside what held-out rows say: schools, children and sleepers (see
examples/schools.py).

Of every group 30% of the rows are held out. The advisor sees the rest, recommends, and predicts
each algorithm's test error; then every algorithm is fitted, with its estimated variances, and
measured on the rows held out.

    FEDASYM_DATA=folder python examples/advise_schools.py [--board docs/reproduction]

With --board, predictions and measurements are written as files of the foresight board
(docs/foresight.md).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import scipy.stats

from fedasym import linear
from fedasym.advisor import advise
from fedasym.advisor.advice import Advice

HERE = Path(__file__).resolve().parent
NAMES = ("local", "local_ridge", "fedavg", "ftfa", "rtfa", "pfedme")


def schools() -> ModuleType:
    """The other example, which knows the tables."""
    spec = importlib.util.spec_from_file_location("schools", HERE / "schools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["schools"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Outcome:
    """Predicted and measured mean squared errors, in units of the labels' variance, and the
    advice.
    """

    advice: Advice
    predicted: dict[str, float]
    measured: dict[str, float]

    @property
    def rank_correlation(self) -> float:
        """Of predicted and measured errors over the algorithms."""
        found = scipy.stats.spearmanr(
            [self.predicted[name] for name in NAMES], [self.measured[name] for name in NAMES]
        )
        return float(found.statistic)

    @property
    def lost(self) -> float:
        """How much more than the best algorithm's error the recommended one's is."""
        return self.measured[self.advice.recommended] / min(self.measured.values()) - 1


def compare(table: object, module: ModuleType, seed: int = 0) -> Outcome:
    """Advise on the rows that are not held out, then measure."""
    features, labels, groups = module.read(table)
    test = module.held_out(groups, seed=seed)
    mean, scale = features[~test].mean(0), features[~test].std(0)
    X = (features - mean) / scale
    y = (labels - labels[~test].mean()) / labels[~test].std()
    advice = advise(X[~test], y[~test], clients=groups[~test])
    predicted = {name: advice.predictions[name].trusted + advice.floor for name in NAMES}
    return Outcome(advice, predicted, {name: measure(name, X, y, groups, test) for name in NAMES})


def measure(name: str, X: np.ndarray, y: np.ndarray, groups: np.ndarray, test: np.ndarray) -> float:
    """Mean squared error on rows held out."""
    fit = linear.fit(name, X[~test], y[~test], clients=groups[~test])
    return float(np.mean((fit.predict(X[test], client=groups[test]) - y[test]) ** 2))


def report(outcomes: dict[str, Outcome]) -> str:
    """Predicted beside measured, one table after the other."""
    lines = [
        (
            "mean squared error on held-out rows, predicted / measured, in units of the labels'"
            " variance"
        ),
        "",
    ]
    lines.append(f"{'':<16}" + "".join(f"{name:>19}" for name in outcomes))
    for name in NAMES:
        cells = [
            f"{each.predicted[name]:.4f} / {each.measured[name]:.4f}" for each in outcomes.values()
        ]
        lines.append(f"{name:<16}" + "".join(f"{cell:>19}" for cell in cells))
    rows = {
        "recommended": [each.advice.recommended for each in outcomes.values()],
        "measured best": [
            min(each.measured, key=lambda name: each.measured[name]) for each in outcomes.values()
        ],
        "lost by advice": [f"{each.lost:.1%}" for each in outcomes.values()],
        "rank correlation": [f"{each.rank_correlation:.2f}" for each in outcomes.values()],
    }
    lines += [""] + [
        f"{name:<16}" + "".join(f"{cell:>19}" for cell in cells) for name, cells in rows.items()
    ]
    for name, each in outcomes.items():
        lines += ["", f"{name}: doubts"] + [f"  - {doubt}" for doubt in each.advice.doubts]
    return "\n".join(lines)


def write_files(outcomes: dict[str, Outcome], folder: Path) -> None:
    """What was predicted and measured, a folder for each table."""
    source = "python examples/advise_schools.py --board FOLDER"
    for name, each in outcomes.items():
        place = folder / name.lower()
        place.mkdir(parents=True, exist_ok=True)
        files = {
            "measured": {"format": "fedasym measured 1", "name": name, "metric": "squared error"}
            | {"values": each.measured},
            "foreseen-advised": {"format": "fedasym prediction 1", "predictor": "advised"}
            | {"values": each.predicted},
        }
        for file, held in files.items():
            values = {key: float(f"{value:.6g}") for key, value in held["values"].items()}
            text = json.dumps(held | {"values": values, "source": source}, indent=2)
            (place / f"{file}.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    module = schools()
    outcomes = {table.file: compare(table, module) for table in module.TABLES}
    print(report(outcomes))
    if "--board" in sys.argv:
        write_files(outcomes, Path(sys.argv[sys.argv.index("--board") + 1]))


if __name__ == "__main__":
    main()
