"""Ctrl-C and progress: what is finished comes back, and nothing goes on working."""

import threading
from contextlib import suppress

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend

from .clients import GRAM, Interrupt, federation, named

pytestmark = pytest.mark.usefixtures("_light")


def test_ctrl_c_returns_what_is_finished():
    clients, names = federation(), ["ftfa", "maml", "local"]
    whole = {run.algorithm.name: run for run in fa.train(names, clients, **GRAM)}
    finished = []
    for after in range(100):
        stop = Interrupt(after)
        try:
            runs = fa.train(names, clients, **GRAM, progress=stop)
        except KeyboardInterrupt:
            assert not finished
            continue
        for run in runs:
            full, count = whole[run.algorithm.name], len(run.rounds)
            assert run.interrupted == (count < len(full.rounds))
            assert ("Interrupted: the last test" in str(run)) == run.interrupted
            np.testing.assert_array_equal(run.rounds, full.rounds[:count])
            np.testing.assert_array_equal(run.losses, full.losses[:count])
            np.testing.assert_array_equal(run.shared_correct, full.shared_correct[:count])
            if run.interrupted:
                then = fa.train(run.algorithm, clients, **{**GRAM, "rounds": int(run.rounds[-1])})
                np.testing.assert_array_equal(run.shared, then.shared)
        finished.append([len(run.rounds) for run in runs])
        if stop.left >= 0:
            break
    totals = [sum(each) for each in finished]
    assert totals == sorted(totals)
    assert finished[0][0] < 3  # some were cut short, from the first algorithm on
    assert finished[-1] == [3, 3, 3]
    assert {len(each) for each in finished} == {1, 2, 3}


def test_ctrl_c_gives_one_history_where_one_was_asked_for_and_none_before_the_first_test():
    clients = federation()
    calls = []
    fa.train("ftfa", clients, **GRAM, progress=lambda *report: calls.append(report))
    run = fa.train("ftfa", clients, **GRAM, progress=Interrupt(len(calls) - 3))
    assert isinstance(run, fa.History)
    assert run.interrupted
    with pytest.raises(KeyboardInterrupt):
        fa.train("ftfa", clients, **GRAM, progress=Interrupt(0))


@pytest.mark.parametrize(
    "told",
    [{}, {"seeds": [0, 7], "grid": {"server_step": [0.1, 0.3, 0.5], "local_step": [0.05, 0.4]}}],
)
def test_progress_rises_and_ends_at_one(told):
    reports = []
    algorithms = (
        ["ftfa", "pfedme"]
        if told
        else ["ftfa", "rtfa", "maml", "local", named(Average(), Descend(0.3, 7))]
    )
    fa.train(
        algorithms,
        federation(),
        **GRAM,
        **told,
        progress=lambda done, text: reports.append((done, text)),
    )
    done = [each for each, _ in reports]
    assert done == sorted(done)
    assert done[0] >= 0
    assert reports[-1] == (1.0, "done")
    assert done[-2] == 0.99
    assert np.mean(np.array(done) < 0.95) > 0.5  # it does not wait at the end
    assert {"round 4 of 4", "testing after round 2"} <= {text for _, text in reports}


def test_an_error_in_the_caller_comes_through():
    def broken(done, text):
        raise RuntimeError("no terminal")

    with pytest.raises(RuntimeError, match="no terminal"):
        fa.train("ftfa", federation(), **GRAM, progress=broken)


def test_no_thread_goes_on_planning():
    for stop in (None, Interrupt(1)):
        before = set(threading.enumerate())
        with suppress(KeyboardInterrupt):
            fa.train("fedavg", federation(), **{**GRAM, "rounds": 90}, progress=stop)
        for thread in set(threading.enumerate()) - before:  # one that waits for work never ends
            thread.join(10)
            assert not thread.is_alive(), thread.name
