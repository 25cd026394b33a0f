"""What to tell `fa.train`: steps that are stable, ridges of its softmax, and when to stop without a ridge."""

from __future__ import annotations

import math

from fedasym.advisor.classes.advice import Epochs
from fedasym.advisor.classes.clocks import time_at
from fedasym.advisor.classes.confirming import EPOCHS, settings_of
from fedasym.advisor.classes.looking import Look
from fedasym.advisor.classes.predictions import Table
from fedasym.advisor.classes.scores import Ridges
from fedasym.advisor.classes.worlds import Sizes, World

CLOSE = 0.001  # accuracies within this are one
BATCH = 32  # of `fa.train`
SEVERAL = 5  # epochs that early stopping is spread over, where a large step would do it in fewer


def largest_curvature(seen: Look) -> float:
    """Of a client's loss, at most: half of the largest eigenvalue of its second moments, or of a batch's."""
    own = max(float(each.power.max()) / each.samples for each in seen.found.summaries)
    return 0.5 * max(own, 2 * seen.energy / BATCH)


def stopping(world: World, shape: Sizes, ridges: Ridges, table: Table, seen: Look) -> Epochs | None:
    """The time that matches the ridge, as steps of half the largest stable size and as epochs of `fa.train`."""
    if table["rtfa"].trusted <= table["fedavg"].trusted + CLOSE:
        return None  # no fine-tuning at all is as good
    if table["rtfa"].contradicted or table["fedavg"].contradicted:
        return None  # the path of a model that does not fit says nothing about time
    time = time_at(world, float(shape.aspects[shape.middle]), ridges.shared / shape.samples)
    two = seen.classes.count == 2  # of two softmax columns each moves as far as the one weight vector of the formulas
    own = max(float(each.power.max()) / each.samples for each in seen.found.summaries)
    step = min(1 / ((0.25 if two else 0.5) * own), time)
    batches = math.ceil(shape.samples / BATCH)
    spent = time / (2 if two else 1)
    local_step = min(1 / largest_curvature(seen), spent / (SEVERAL * batches))
    epochs = max(round(spent / (local_step * batches)), 1)
    return Epochs(time, step, max(round(time / step), 1), spent / (epochs * batches), epochs, table["ftfa"].trusted)


def settings(table: Table, ridges: Ridges, steps: Epochs | None, shape: Sizes, seen: Look) -> dict[str, dict[str, float]]:
    """What to tell `fa.train` for each method that it has."""
    twice = 2.0 if seen.classes.count == 2 else 1.0
    step = 1 / largest_curvature(seen)
    epochs, local_step = (steps.epochs, steps.local_step) if steps is not None else (EPOCHS, step)
    out = {}
    for name in ("fedavg", "rtfa", "ftfa", "local_ridge"):
        ridge = table[name].ridge
        told = None if ridge is None else twice * ridge
        careful = step if told is None else min(step, 1 / told)
        out[name] = settings_of(name, told, careful if name != "fedavg" else step, epochs, local_step)
    return out
