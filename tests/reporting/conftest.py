"""What is made once for all tests of reports: invented results, a small run, a browser."""

from __future__ import annotations

import pytest

import fedasym as fa

from ..experiments.small import small
from .browser import opened
from .invented import invented


@pytest.fixture(scope="session")
def results():
    return invented()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A run folder that an experiment really left."""
    folder = tmp_path_factory.mktemp("ran")
    fa.run(small(folder), into=folder / "run")
    return folder / "run"


chromium = pytest.fixture(scope="session")(opened)
