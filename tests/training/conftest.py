"""What the tests of training are given: a grid of invented runs, and few programs to compile."""

import pytest

from fedasym.training import plans
from fedasym.training.histories import Histories

from .invented import data, history


@pytest.fixture
def grid():
    """Two algorithms, three server steps, two seeds; the middle step validates best and the largest
    diverges for ftfa.
    """
    federation = data([10] * 4, [10] * 4, [2] * 4)
    runs = []
    for name, base in (("ftfa", 0.5), ("rtfa", 0.6)):
        for step, plus in ((0.01, 0.0), (0.1, 0.2), (1.0, 0.1)):
            for seed in (1, 2):
                diverged = 10 if name == "ftfa" and step == 1 and seed == 2 else None
                runs.append(
                    history(
                        name,
                        federation,
                        seed=seed,
                        share=base + plus + 0.01 * seed,
                        server_step=step,
                        diverged=diverged,
                    )
                )
    return Histories(runs)


@pytest.fixture
def _light(monkeypatch):
    """Clients of all sizes in one program: compiling is what these tests take time for."""
    monkeypatch.setattr(plans, "GROUPS", 1)
