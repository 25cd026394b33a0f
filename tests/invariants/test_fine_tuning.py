"""What must hold for early-stopped fine-tuning: ends of the path, small steps, one step, the best
stop.
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import Descend, Flow
from fedasym.theory.transforms import sample_support

from .strategies import (
    close,
    examples,
    log_uniform,
    near_thresholds,
    risk_of,
    share,
    stopped,
    threshold_gap,
    worlds,
)

pytestmark = near_thresholds


@examples(15)
@given(worlds(aspects=log_uniform(0.01, 1000)))
def test_ends_of_the_fine_tuning_path(world):
    """It starts at FedAvg and ends at FTFA; the closed form that the code switches to is where the
    path leads.
    """
    assume(threshold_gap(world) > 0.05)
    low, high = sample_support(world.aspect, world.spectrum)
    fedavg, ftfa = risk_of(world, "fedavg"), risk_of(world, "ftfa")
    last = int(np.ceil(36 * high / low))
    for start, end in ((Flow(0), Flow(36 / low)), (Descend(1 / high, 0), Descend(1 / high, last))):
        close(stopped(world, start), fedavg, rtol=1e-11, floor=share(world, 1e-12))
        close(stopped(world, end), ftfa, rtol=1e-9, floor=share(world, 1e-9))
    close(stopped(world, Flow(np.inf)), ftfa, rtol=0)


@examples(15)
@given(worlds(), st.floats(0.01, 3))
def test_flow_is_the_limit_of_small_steps(world, length):
    """(1 - t x/N)^N = exp(-t x) (1 + O((t x)^2/N))."""
    time, many = length / sample_support(world.aspect, world.spectrum)[1], 10**8
    close(stopped(world, Descend(time / many, many)), stopped(world, Flow(time)), rtol=1e-6)


@examples(30)
@given(worlds(), st.floats(0.001, 2.5))
def test_one_step_in_closed_form(world, length):
    """The contour integral of a single step, stable or not, against moments of the spectrum; the
    best step is the best.
    """
    step = length / sample_support(world.aspect, world.spectrum)[1]
    closed = fa.one_step(world, step)
    assert closed[0] == step
    close(stopped(world, Descend(step)), closed[1], rtol=1e-9, floor=share(world, 1e-12))
    best, risk = fa.one_step(world)
    assert np.isfinite(best)
    assert risk.loss <= closed[1].loss * (1 + 1e-12)
    for other in (0.0, 0.9 * best, 1.1 * best):
        assert risk.loss <= fa.one_step(world, other)[1].loss * (1 + 1e-12)


@examples(8)
@given(worlds(), st.booleans(), st.lists(log_uniform(0.01, 1e4), min_size=1, max_size=6))
def test_best_stopping_point(world, flow, lengths):
    """No stopping point does better, neither end included; `predict` agrees with the path."""
    high = sample_support(world.aspect, world.spectrum)[1]
    times = np.array([0, *lengths]) / high if flow else np.round([0, *lengths])
    path = fa.fine_tuning(world, **({"flow": True, "times": times} if flow else {"steps": times}))
    best = path.best.scores.loss
    losses = [*path.loss, risk_of(world, "fedavg").loss, risk_of(world, "ftfa").loss]
    assert best <= min(losses) * (1 + 1e-9)
    for time, bias, variance in zip(times, path.bias, path.variance, strict=True):
        stage = Flow(time) if flow else Descend(path.step, int(time))
        close(stopped(world, stage), fa.Risk(bias, variance), rtol=1e-9, floor=share(world, 1e-12))
