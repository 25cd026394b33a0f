"""Random tables: a federation with finite features, advice and a fit, or a sentence."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from .random_tables import answer, tables


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tables())
def test_any_table_gives_advice_and_a_fit_or_a_sentence(table):
    with tempfile.TemporaryDirectory() as folder:
        assert answer(table, Path(folder))
