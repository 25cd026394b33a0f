"""The example on real groups: its table, and pFedMe as the mixed model of statsmodels."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("FEDASYM_DATA", ROOT / ".." / "shared" / "data")) / "grouped_regression"
FILES = ("Exam", "Hsb82", "egsingle", "sleepstudy")

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the grouped tables are absent: set FEDASYM_DATA to their folder"
)


@pytest.fixture(scope="module")
def schools():
    spec = importlib.util.spec_from_file_location("schools", ROOT / "examples" / "schools.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["schools"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["schools"]


@pytest.fixture(scope="module")
def outcomes(schools):
    """Of every fourth or eighth school and every eighth child, since statsmodels takes a minute
    for all; and of all sleepers.
    """
    read, every = schools.read, {"Exam": 4, "Hsb82": 8, "egsingle": 8, "sleepstudy": 1}

    def some(table):
        features, labels, groups = read(table)
        kept = np.isin(groups, np.unique(groups)[:: every[table.file]])
        return features[kept], labels[kept], groups[kept]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schools, "read", some)
        return {table.file: schools.compare(table) for table in schools.TABLES}


@pytest.mark.parametrize("file", FILES)
def test_pfedme_predicts_what_the_mixed_model_predicts(outcomes, file):
    assert outcomes[file].apart < 1e-4


@pytest.mark.parametrize("file", FILES)
def test_sharing_and_shrinking_both_pay(outcomes, file):
    errors = outcomes[file].errors
    assert errors["pfedme"] < min(errors["local_ridge"], errors["fedavg"], errors["ftfa"])
    assert errors["rtfa"] < min(errors["local"], errors["fedavg"], errors["ftfa"])


def test_the_report_names_every_method_and_table(schools, outcomes):
    lines = schools.report(outcomes).splitlines()
    assert lines[2].split() == list(FILES)
    methods = [line.split("  ")[0] for line in lines[5:13]]
    assert methods == [*schools.ALGORITHMS, schools.MIXED]
    for name, line in zip(methods, lines[5:13], strict=True):
        assert line[14:].split() == [f"{outcome.errors[name]:.4f}" for outcome in outcomes.values()]


def test_rows_are_held_out_of_every_group_and_never_all(schools):
    groups = np.repeat([3, 1, 2, 9], [2, 10, 1, 40])
    held = schools.held_out(groups)
    assert [int(held[groups == label].sum()) for label in (3, 1, 2, 9)] == [1, 3, 0, 12]
    assert not np.array_equal(held, schools.held_out(groups, seed=1))
