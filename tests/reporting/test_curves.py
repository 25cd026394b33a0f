"""Curves, axes and clients' gains: the numbers behind figures and page, against plain counting."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.show.figures.marks import ALGORITHMS, EVERY, SPARE, STEPS, marks_of
from fedasym.show.report.clients import gains_of, histograms, most_hurt
from fedasym.show.report.curves import Curve, gain_curves, gains_named, published_curves, trial_curves
from fedasym.show.report.scales import Span, axis_ticks, span
from fedasym.show.report.shapes import POLYGONS, marker
from fedasym.show.report.ticks import ticks

from .invented import FINAL, invented, published


def test_curves_are_the_tables(results):
    for sweep in ("seeds", "splits"):
        curves = trial_curves(results, sweep)
        assert list(curves) == list(FINAL)
        for name, curve in curves.items():
            assert curve.trials == 11
            np.testing.assert_array_equal(curve.values[:, -1], results.finals(sweep)[name])
    gains = gain_curves(results)
    assert list(gains) == ["ftfa", "maml_fo", "maml_hf"]
    assert list(gains["ftfa"]) == ["0", "batch", "1", "2", "5", "10"]
    assert gains["ftfa"]["batch"].values.shape == (5, 9)


def test_published_curves_are_checked_at_the_door():
    assert published_curves(None, "seeds") == {}
    assert list(gains_named(published_curves(published(), "gains"), "ftfa")) == ["0", "10"]
    with pytest.raises(fa.InvalidInput, match=r"unknown sweep of published curves 'seed'.*did you mean seeds"):
        published_curves({"seed": {}}, "seeds")
    with pytest.raises(fa.InvalidInput, match=r"published has seeds of 'ftfa' with values of shape \(2,\)"):
        published_curves({"seeds": {"ftfa": ([0, 50], [0.1, 0.2])}}, "seeds")
    with pytest.raises(fa.InvalidInput, match="in increasing order"):
        published_curves({"seeds": {"ftfa": ([50, 0], [[0.1, 0.2]])}}, "seeds")


@given(st.floats(-1e3, 1e3), st.floats(1e-2, 1e6), st.integers(2, 12))
def test_ticks_lie_between_the_ends_and_are_even(low, width, most):
    found = ticks(low, low + width, most)
    assert len(found) <= most + 1
    assert all(low - 1e-6 * width <= each <= low + 1.000001 * width for each in found)
    if len(found) > 2:
        np.testing.assert_allclose(np.diff(found, 2), 0, atol=1e-6 * width + 1e-9 * abs(low))


@given(st.lists(st.lists(st.floats(0.001, 100), min_size=3, max_size=3), min_size=1, max_size=4), st.booleans())
def test_the_second_half_is_always_in_the_frame(rows, loss):
    curve = Curve((0, 50, 100), np.array(rows))
    shown = span([curve], loss=loss)
    late = curve.values[:, 1:]
    assert shown.low <= late.min() + 1e-9
    assert late.max() <= shown.high + 1e-9
    outside = (curve.values < shown.low - 1e-9) | (curve.values > shown.high + 1e-9)
    assert outside.any() == shown.cut
    slack = 1e-6 * (shown.high - shown.low)
    assert all(shown.low - slack <= tick <= shown.high + slack for tick in axis_ticks(shown))


def test_a_frame_without_numbers_is_still_one():
    assert span([Curve((0, 50), np.full((2, 2), np.nan))], loss=False) == Span(0, 1)


def test_every_algorithm_looks_different_without_colour():
    assert len({mark.marker for mark in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len({mark.marker for mark in STEPS}) == len(STEPS)
    assert len({mark.marker for mark in SPARE}) == len(SPARE)
    assert len({mark.key for mark in EVERY}) == len(EVERY)
    assert {mark.marker for mark in EVERY} - {"o"} <= set(POLYGONS)
    assert len({marker(mark.marker, 0, 0, 4) for mark in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len(set(marks_of(["one", "ftfa", "two"]).values())) == 3


def test_gains_are_means_over_trials(results):
    sweep, gains = gains_of(results)
    assert sweep == "seeds"
    assert [each.algorithm for each in gains] == ["ftfa", "rtfa", "maml_fo", "maml_hf", "pfedme"]  # who shares and changes
    rows = results.clients
    mine = rows.filter((rows["sweep"] == "seeds") & (rows["algorithm"] == "ftfa") & (rows["client"] == "client 007"))
    (row,) = gains[0].table.filter(gains[0].table["client"] == "client 007").iter_rows(named=True)
    assert row["gain"] == pytest.approx(100 * np.mean(mine["gain"].to_list()))
    assert sum(gains[0].shares) == pytest.approx(1)


def test_who_loses_is_drawn_left_of_the_line_however_few():
    held = invented(gains=None, trials={"seeds": 2, "splits": 0})
    clients = held.clients
    gain = np.where(clients["client"].to_numpy() == "client 000", -0.004, 0.2 + 0.001 * np.arange(clients.height) % 0.1)
    _, gains = gains_of(held.__class__(**{**vars(held), "clients": clients.with_columns(gain=gain)}))
    first = histograms(gains, loss=False).split("</figure>")[0]
    drawn = [
        (text[0], int(text[1])) for text in re.findall(r'<rect[^>]*class="(\w+)"[^>]*><title>.*?: (\d+) clients</title>', first)
    ]
    assert sum(count for kind, count in drawn if kind == "lose") == 1
    assert sum(count for _, count in drawn) == 200
    assert "client 000" in most_hurt(gains, loss=False)
