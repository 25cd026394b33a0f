"""What is made once for all tests of experiments: a finished run, and the programs that their
processes compile.
"""

from __future__ import annotations

import pytest

import fedasym as fa

from .small import small


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where processes keep compiled programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The small experiment, run once without disturbance: it, its results, its folder."""
    folder = tmp_path_factory.mktemp("finished")
    experiment = small(folder)
    results = fa.run(experiment, into=folder / "run")
    return experiment, results, folder / "run"
