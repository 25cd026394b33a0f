"""The paper's findings as a check: each verdict where it must come, and on the paper's own
numbers.
"""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.data import find_dataset
from fedasym.experiments.fields import SettingsTable
from fedasym.experiments.reproduction import (
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    check_claims,
    claim_identical,
    published_accuracies,
)


def results(
    levels, spread=0.001, trials=11, gains=None, task="classification", size=4800, protocol="text"
):
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
        comparison_values=lambda sweep: finals if sweep == "seeds" else {},
        sweep="seeds",
        data=SimpleNamespace(counts={"train": size}, training=[size // 100] * 100),
        tuned={},
        gains=pl.DataFrame(rows, schema=schema),
        experiment=SimpleNamespace(
            name="mine",
            algorithms=list(levels),
            settings=SettingsTable(rounds=400, cohort=20, protocol=protocol),
        ),
    )


def verdicts(*given, **options):
    """Of the findings about accuracies."""
    found = check_claims(results(*given, **options)).found
    return [claim.verdict for claim in found if claim.sweep == "seeds"]


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
    assert [claim.verdict for claim in told.found] == [SUPPORTED] * 4 + [REFUTED]
    assert "SUPPORTED, over seeds: ftfa, rtfa, maml_fo and maml_hf agree to within 1 point" in str(
        told
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
    assert [claim.verdict for claim in check_claims(falling).found][3] == REFUTED
    assert [claim.verdict for claim in check_claims(flat).found][3] == UNDECIDED


def test_missing_algorithms_are_passed_over_and_nothing_is_an_error():
    assert verdicts({"fedavg": 0.7, "ftfa": 0.8}) == [SUPPORTED]
    with pytest.raises(fa.InvalidInput, match="there is nothing to check"):
        check_claims(results({"fedavg": 0.7}))
    with pytest.raises(fa.InvalidInput, match="these results are of a regression"):
        check_claims(results(AS_PAPER, task="regression"))


def test_the_compute_of_pfedme_is_counted():
    """100 clients of 48 samples, 2 batches an epoch: FTFA takes 400 x 20 x 20 gradients and 10
    epochs, pFedMe 5 gradients for each of them, or five times as many where everyone trains.
    """
    for protocol, verdict in (("text", REFUTED), ("code", SUPPORTED)):
        [claim] = (
            claim
            for claim in check_claims(results(AS_PAPER, protocol=protocol)).found
            if claim.sweep == "counted gradients"
        )
        assert claim.verdict == verdict
        shared, own = 400 * 20 * 20, 10 * 100 * 2
        assert f"ftfa {shared + own:,}" in claim.evidence[0]
        assert f"{5 * shared:,}, {5 * shared / (shared + own):.3g} times" in claim.evidence[1]
        assert f"{25 * shared:,}, {25 * shared / (shared + own):.3g} times" in claim.evidence[2]


def test_nearly_identical_is_asked_of_data_sets_that_are_much_larger():
    near = {"ftfa": 0.9, "rtfa": 0.9003, "maml_fo": 0.9001}
    far = {"ftfa": 0.9, "rtfa": 0.91, "maml_fo": 0.9001}
    small, large = (results(far, spread=0.0002, size=size) for size in (4800, 48_000))
    assert claim_identical({"small": small}) is None
    alike = results(near, spread=0.0002, size=48_000)
    assert claim_identical({"small": small, "large": alike}).verdict == SUPPORTED
    assert claim_identical({"small": small, "large": large}).verdict == REFUTED
    vague = results(near, spread=0.01, size=48_000)
    assert claim_identical({"small": small, "large": vague}).verdict == UNDECIDED
    same = claim_identical({"small": small, "other": small})
    assert same.verdict == UNDECIDED
    assert "none has 4 times the samples" in same.evidence[-1]


def test_the_papers_own_curves_are_nearly_identical_where_data_are_many():
    """Its EMNIST and Stack Overflow have 18 and 4.7 times the samples of Shakespeare."""
    held = {}
    for name in ("cifar100", "shakespeare", "emnist", "stackoverflow"):
        curves = published_accuracies(name).trials["splits"]
        held[name] = results({}, size=find_dataset(name).paper.train)
        held[name].comparison_values = lambda sweep, curves=curves: {
            name: curve.final for name, curve in curves.items()
        }
    claim = claim_identical(held)
    assert claim.verdict == SUPPORTED
    assert len(claim.evidence) == 4


def test_the_papers_own_cifar_curves_support_the_paper():
    """Its published trials, put through the same check: the findings are those that its text
    states.
    """
    curves = published_accuracies("cifar100")
    paper = results({})
    paper.comparison_values = lambda sweep: {
        name: curve.final for name, curve in curves.trials[sweep].items()
    }
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
