"""The example on real groups: what was advised beside what held-out rows say."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("FEDASYM_DATA", ROOT / ".." / "shared" / "data")) / "grouped_regression"
FILES = ("Exam", "Hsb82", "egsingle", "sleepstudy")

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the grouped tables are absent: set FEDASYM_DATA to their folder"
)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(
        "advise_schools", ROOT / "examples" / "advise_schools.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["advise_schools"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    for name in ("advise_schools", "schools"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def outcomes(example):
    schools = example.schools()
    return {table.file: example.compare(table, schools) for table in schools.TABLES}


@pytest.mark.parametrize("file", FILES)
def test_following_the_advice_costs_next_to_nothing(outcomes, file):
    assert outcomes[file].lost < 0.01


@pytest.mark.parametrize("file", FILES)
def test_the_predicted_ranking_is_nearly_the_measured_one(outcomes, file):
    assert outcomes[file].rank_correlation > 0.8


def test_levels_of_the_best_methods_are_near_on_the_larger_tables(outcomes):
    for file in ("Exam", "Hsb82"):
        each = outcomes[file]
        assert each.predicted["pfedme"] == pytest.approx(each.measured["pfedme"], rel=0.1)


def test_the_report_names_every_method_and_table(example, outcomes):
    text = example.report(outcomes)
    for word in (*FILES, *example.NAMES, "recommended", "rank correlation", "doubts"):
        assert word in text
