"""Curves, axes and clients' gains: the numbers behind figures and page, against plain counting."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.show.figures import ALGORITHMS, EVERY, SPARE, STEPS, marker_shape, marks_of
from fedasym.show.figures.rounds import bin_edges
from fedasym.show.findings import gains_of, histograms, most_hurt
from fedasym.show.reproduction import (
    AxisSpan,
    Curve,
    gain_curves,
    published_curves,
    select_gains,
    span,
    trial_curves,
)

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
    assert list(select_gains(published_curves(published(), "gains"), "ftfa")) == ["0", "10"]
    with pytest.raises(
        fa.InvalidInput, match=r"unknown sweep of published curves 'seed'.*did you mean seeds"
    ):
        published_curves({"seed": {}}, "seeds")
    with pytest.raises(
        fa.InvalidInput, match=r"published has seeds of 'ftfa' with values of shape \(2,\)"
    ):
        published_curves({"seeds": {"ftfa": ([0, 50], [0.1, 0.2])}}, "seeds")
    with pytest.raises(fa.InvalidInput, match="in increasing order"):
        published_curves({"seeds": {"ftfa": ([50, 0], [[0.1, 0.2]])}}, "seeds")


@given(
    st.lists(st.lists(st.floats(0.001, 100), min_size=3, max_size=3), min_size=1, max_size=4),
    st.booleans(),
)
def test_the_second_half_is_always_in_the_frame(rows, loss):
    curve = Curve((0, 50, 100), np.array(rows))
    shown = span([curve], loss=loss)
    late = curve.values[:, 1:]
    assert shown.low <= late.min() + 1e-9
    assert late.max() <= shown.high + 1e-9
    outside = (curve.values < shown.low - 1e-9) | (curve.values > shown.high + 1e-9)
    assert outside.any() == shown.cut


def test_a_frame_without_numbers_is_still_one():
    assert span([Curve((0, 50), np.full((2, 2), np.nan))], loss=False) == AxisSpan(0, 1)


def test_every_algorithm_looks_different_without_colour():
    assert len({mark.marker for mark in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len({mark.marker for mark in STEPS}) == len(STEPS)
    assert len({mark.marker for mark in SPARE}) == len(SPARE)
    assert len({mark.key for mark in EVERY}) == len(EVERY)
    assert len({marker_shape(mark.marker, 4) for mark in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len(set(marks_of(["one", "ftfa", "two"]).values())) == 3


def test_gains_are_means_over_trials(results):
    sweep, gains = gains_of(results)
    assert sweep == "seeds"
    assert [each.algorithm for each in gains] == [
        "ftfa",
        "rtfa",
        "maml_fo",
        "maml_hf",
        "pfedme",
    ]  # who shares and changes
    rows = results.clients
    mine = rows.filter(
        (rows["sweep"] == "seeds")
        & (rows["algorithm"] == "ftfa")
        & (rows["client"] == "client 007")
    )
    (row,) = gains[0].table.filter(gains[0].table["client"] == "client 007").iter_rows(named=True)
    assert row["gain"] == pytest.approx(100 * np.mean(mine["gain"].to_list()))
    assert sum(gains[0].shares) == pytest.approx(1)


def test_who_loses_is_drawn_left_of_the_line_however_few():
    held = invented(gains=None, trials={"seeds": 2, "splits": 0})
    clients = held.clients
    gain = np.where(
        clients["client"].to_numpy() == "client 000",
        -0.004,
        0.2 + 0.001 * np.arange(clients.height) % 0.1,
    )
    _, gains = gains_of(
        held.__class__(**{**vars(held), "clients": clients.with_columns(gain=gain)})
    )
    first = histograms(gains, loss=False)[0].picture
    bars = re.findall(
        r'<path [^>]*fill="var\(--(\w+)\)"[^>]*><title>[^<]*: (\d+) clients</title></path>', first
    )
    assert sum(int(count) for kind, count in bars if kind == "lose") == 1
    assert sum(int(count) for _, count in bars) == 200
    assert "client 000" in [row[0].text for row in most_hurt(gains, loss=False).names.rows]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_the_ends_of_bars_are_even_and_nobody_who_loses_is_among_those_who_gain(values):
    edges = bin_edges(np.array(values))
    np.testing.assert_allclose(np.diff(edges, 2), 0, atol=1e-6 * abs(edges).max())
    assert edges[0] < edges[-1]
    assert (edges[0] < 0) or min(values) >= 0
    assert len(edges) <= 60
