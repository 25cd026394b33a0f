"""The paper's findings as a check: each verdict where it must come, and on the paper's own
numbers.
"""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.experiments.comparisons import REFUTED, SUPPORTED, UNDECIDED, check_claims
from fedasym.experiments.reproduction import published_accuracies


def results(levels, spread=0.001, trials=11, gains=None, task="classification"):
    """Results whose algorithms have these accuracies, give or take."""
    rng = np.random.default_rng(0)
    finals = {name: level + spread * rng.standard_normal(trials) for name, level in levels.items()}
    rows = [
        {
            "algorithm": "ftfa",
            "epochs": epochs,
            "trial": trial,
            "round": 400,
            "accuracy": level + spread * rng.standard_normal(),
        }
        for epochs, level in (gains or {}).items()
        for trial in range(5)
    ]
    schema = {
        "algorithm": pl.String,
        "epochs": pl.String,
        "trial": pl.Int64,
        "round": pl.Int64,
        "accuracy": pl.Float64,
    }
    return SimpleNamespace(
        task=task,
        finals=lambda sweep: finals if sweep == "seeds" else {},
        gains=pl.DataFrame(rows, schema=schema),
        experiment=SimpleNamespace(name="mine", settings=SimpleNamespace(rounds=400)),
    )


def verdicts(*given, **options):
    return [claim.verdict for claim in check_claims(results(*given, **options)).found]


AS_PAPER = {
    "local": 0.76,
    "fedavg": 0.78,
    "ftfa": 0.81,
    "rtfa": 0.812,
    "maml_fo": 0.811,
    "maml_hf": 0.811,
    "pfedme": 0.79,
}


def test_what_the_paper_found_is_found():
    told = check_claims(results(AS_PAPER, gains={"0": 0.78, "batch": 0.785, "1": 0.79, "10": 0.81}))
    assert [claim.verdict for claim in told.found] == [SUPPORTED] * 4
    assert (
        "SUPPORTED, over seeds: ftfa, rtfa, maml_fo and maml_hf come to the same, within 1 point"
        in str(told)
    )
    assert "one batch - 0 epochs: +0." in str(told)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"rtfa": 0.85}, [REFUTED, SUPPORTED, SUPPORTED]),
        ({"maml_hf": 0.8195}, [UNDECIDED, SUPPORTED, SUPPORTED]),
        ({"local": 0.83}, [SUPPORTED, REFUTED, SUPPORTED]),
        ({"pfedme": 0.77}, [SUPPORTED, SUPPORTED, REFUTED]),
        ({"pfedme": 0.83}, [SUPPORTED, SUPPORTED, REFUTED]),
    ],
)
def test_what_does_not_hold_is_said(changed, expected):
    spread = 0.004 if UNDECIDED in expected else 0.001
    assert verdicts(AS_PAPER | changed, spread=spread) == expected


def test_gains_that_fall_are_not_called_growing():
    falling = results(AS_PAPER, gains={"0": 0.78, "5": 0.82, "10": 0.80})
    flat = results(AS_PAPER, gains={"0": 0.8, "5": 0.8, "10": 0.8}, spread=0.01)
    assert check_claims(falling).found[-1].verdict == REFUTED
    assert check_claims(flat).found[-1].verdict == UNDECIDED


def test_missing_algorithms_are_passed_over_and_nothing_is_an_error():
    assert verdicts({"fedavg": 0.7, "ftfa": 0.8}) == [SUPPORTED]
    with pytest.raises(fa.InvalidInput, match="there is nothing to check"):
        check_claims(results({"fedavg": 0.7}))
    with pytest.raises(fa.InvalidInput, match="these results are of a regression"):
        check_claims(results(AS_PAPER, task="regression"))


def test_the_papers_own_cifar_curves_support_the_paper():
    """Its published trials, put through the same check: the findings are those that its text
    states.
    """
    curves = published_accuracies("cifar100")
    paper = results({})
    paper.finals = lambda sweep: {name: curve.final for name, curve in curves.trials[sweep].items()}
    by = {(claim.sweep, claim.says[:20]): claim.verdict for claim in check_claims(paper).found}
    assert set(by.values()) == {SUPPORTED}


def test_published_numbers_are_those_of_the_papers_table():
    """Accuracy at round 400 in percent, mean over trials, as the paper's data have it."""
    for name, sweep, expected in (
        (
            "cifar100",
            "splits",
            {"local": 75.80, "fedavg": 78.00, "ftfa": 81.04, "rtfa": 81.85, "pfedme": 78.95},
        ),
        ("emnist", "seeds", {"fedavg": 87.02, "ftfa": 90.40, "maml_hf": 90.42}),
        ("shakespeare", "seeds", {"local": 54.77, "fedavg": 57.57, "pfedme": 57.06}),
        ("stackoverflow", "splits", {"fedavg": 41.43, "rtfa": 42.10}),
    ):
        curves = published_accuracies(name).trials[sweep]
        for algorithm, percent in expected.items():
            assert 100 * curves[algorithm].final.mean() == pytest.approx(percent, abs=0.006)
    assert (
        published_accuracies("cifar100").gains["ftfa"]["5"].final.mean()
        > published_accuracies("cifar100").gains["ftfa"]["10"].final.mean()
    )
    assert published_accuracies("stackexchange").trials["splits"]["local"].over_clients
