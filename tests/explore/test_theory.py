"""The page's own theory against the package, value by value, over random populations."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest

import fedasym as fa
from fedasym.cli import parse_spectrum

from .conftest import visit

GROUPS, EACH, SINGLE, PATHS = (
    24,
    10,
    40,
    14,
)  # populations: 24 grids of 10, which Python answers at once, and 40 odd ones
STEPS = [0, 1, 3, 10, 100, 1000, 100_000]
CLOSE = (
    1e-9  # of the loss; bias and variance at a best ridge are flat in it, and get the root of that
)
INSIDE = """JSON.stringify(CASES.map((view) => {
  const [kind, rest] = view.spectrum.split(":");
  const made = kind === "atoms" ? { kind, atoms: rest } : { kind, correlation: Number(rest), exponent: Number(rest) };
  const asked = { ...view, clients: view.clients ?? Infinity, spectrum: spectrumFor(made) };
  const table = predict(asked);
  let path = null;
  if (view.path) {
    try {
      const { step, longest, at } = finish(fineTuning(asked)), best = finish(bestStop(at, longest));
      path = { step, best, at: [...STEPS, best].map(at) };
    } catch (reason) {
      if (!(reason instanceof NoFormula)) throw reason;
    }
  }
  return { table, path };
}), (key, value) => (value === Infinity ? "inf" : value))"""


def shaped(rng: np.random.Generator) -> dict:
    """What the populations of a grid have in common."""
    kind = rng.integers(0, 6)
    spectrum = (
        "identity",
        "atoms:2.5@1",
        f"ar1:{rng.uniform(-0.8, 0.8):.2f}",
        f"power_law:{rng.uniform(0, 3):.2f}",
        f"atoms:{rng.uniform(0.1, 1):.2f}@0.6,{rng.uniform(1, 9):.2f}@0.4",
        "atoms:0@0.25,1@0.5,4@0.25",
    )[kind]
    power = 0.0 if rng.random() < 0.6 else round(rng.uniform(0 if kind == 5 else -2, 2), 1)
    return {"spectrum": spectrum, "shift_power": power, "member": bool(rng.random() < 0.6)}


def drawn(rng: np.random.Generator) -> dict:
    """A population on either side of every threshold, with zeros and limits among its numbers, and
    some without a formula.
    """
    return shaped(rng) | {
        "radius": float(rng.choice([0, 0.5, 1, rng.uniform(0, 3)])),
        "noise": float(rng.choice([0, 0.5, rng.uniform(0, 3)])),
        "aspect": float(np.exp(rng.uniform(np.log(0.1), np.log(20)))),
        "norm": float(rng.uniform(0, 5)),
        "clients": None if rng.random() < 0.3 else int(np.exp(rng.uniform(0, np.log(1000)))),
        "ridge": None if rng.random() < 0.6 else float(np.exp(rng.normal())),
    }


def grid(rng: np.random.Generator) -> dict:
    """Many populations of one shape, as arrays; optima long enough for crowded federations to have
    a formula.
    """
    return shaped(rng) | {
        "radius": rng.uniform(0.1, 3, EACH),
        "noise": rng.uniform(0, 3, EACH),
        "aspect": np.exp(rng.uniform(np.log(0.1), np.log(20), EACH)),
        "norm": rng.uniform(30, 50, EACH),
        "clients": (
            None if rng.random() < 0.3 else np.floor(np.exp(rng.uniform(0, np.log(1000), EACH)))
        ),
        "ridge": None if rng.random() < 0.6 else np.exp(rng.normal(size=EACH)),
    }


def single(view: dict, place: int) -> dict:
    """One population of a grid."""
    return {
        key: float(value[place]) if isinstance(value, np.ndarray) else value
        for key, value in view.items()
    }


@pytest.fixture(scope="module")
def grids():
    rng = np.random.default_rng(1)
    return [grid(rng) for _ in range(GROUPS)]


@pytest.fixture(scope="module")
def odd():
    rng = np.random.default_rng(0)
    return [drawn(rng) | {"path": place < PATHS} for place in range(SINGLE)]


@pytest.fixture(scope="module")
def answers(grids, odd, tab, static):
    """What the page says of the odd populations and then of those of the grids, in one load."""
    cases = odd + [single(view, place) for view in grids for place in range(EACH)]
    visit(tab, static)
    text = tab.run(f"((CASES, STEPS) => {INSIDE})({json.dumps(cases)}, {STEPS})")
    return json.loads(
        text,
        object_hook=lambda held: {
            key: math.inf if value == "inf" else value for key, value in held.items()
        },
    )


def population(view):
    spectrum = parse_spectrum(view["spectrum"])
    return fa.Population(
        view["radius"], view["noise"], view["aspect"], view["norm"], spectrum, view["shift_power"]
    )


def expected(view, algorithms=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.ThresholdWarning)
        return fa.predict(
            population(view),
            algorithms,
            ridge=view["ridge"],
            clients=view["clients"],
            member=view["member"],
        )


def same(view, answer, table):
    """An answer of the page is that of `fa.predict`."""
    told = {name: row for name, row in answer["table"].items() if "missing" not in row}
    assert set(table) <= set(told), view
    for name, (loss, bias, variance, ridge) in table.items():
        row = told[name]
        assert row["loss"] == pytest.approx(loss, rel=CLOSE, abs=1e-15), (name, view)
        if math.isfinite(loss):
            assert row["bias"] == pytest.approx(bias, abs=1e-7 * loss + 1e-15), (name, view)
            assert row["variance"] == pytest.approx(variance, abs=1e-7 * loss + 1e-15), (name, view)
        if ridge is not None and row["ridge"] != pytest.approx(ridge, rel=1e-4):  # a flat minimum
            again = expected(view | {"ridge": row["ridge"]}, name)[name]
            assert again.loss == pytest.approx(loss, rel=CLOSE, abs=1e-15), (name, view)


def rows(table, place=None):
    """Loss, bias, variance and ridge by algorithm, of one world of a grid."""
    values = {
        name: (risk.loss, risk.bias, risk.variance, risk.ridge) for name, risk in table.items()
    }
    if place is None:
        return values
    return {
        name: [each if each is None else float(each[place]) for each in row]
        for name, row in values.items()
    }


def test_every_loss_is_that_of_predict(odd, answers):
    for view, answer in zip(odd, answers, strict=False):
        table = expected(view)
        assert {name for name, row in answer["table"].items() if "missing" not in row} == set(
            table
        ), view
        same(view, answer, rows(table))


def test_every_loss_of_a_grid_is_that_of_predict(grids, answers):
    """Python leaves an algorithm out where one world of a grid has no formula; the page asks for
    each world alone.
    """
    for at, view in enumerate(grids):
        table = expected(view)
        for place in range(EACH):
            same(single(view, place), answers[SINGLE + at * EACH + place], rows(table, place))


def test_every_path_is_that_of_fine_tuning(odd, answers):
    compared = 0
    for view, answer in zip(odd[:PATHS], answers, strict=False):
        try:
            path = fa.fine_tuning(
                population(view), steps=STEPS, clients=view["clients"], member=view["member"]
            )
        except fa.InvalidInput:
            assert answer["path"] is None, view
            continue
        told = answer["path"]
        assert told["step"] == pytest.approx(path.step, rel=1e-12)
        *along, stop = (each["bias"] + each["variance"] for each in told["at"])
        least = (
            1e-4 * path.loss[0] if math.isfinite(path.loss[0]) else 0
        )  # a loss that has all but vanished
        assert along == pytest.approx(path.loss.tolist(), rel=1e-8, abs=1e-8 * least + 1e-15), view
        assert stop == pytest.approx(path.best.scores.loss, rel=1e-8, abs=1e-8 * least + 1e-15), (
            view
        )
        compared += 1
    assert compared > PATHS / 2


def test_the_noise_threshold_is_ours(odd, tab, static):
    views = [view | {"clients": None, "member": True} for view in odd if view["radius"] > 0]
    script = """((views) => views.map((view) => {
      const [kind, rest] = view.spectrum.split(":");
      const made = kind === "atoms" ? { kind, atoms: rest } : { kind, correlation: Number(rest), exponent: Number(rest) };
      const found = predict({ ...view, noise: 1, clients: Infinity, spectrum: spectrumFor(made) }, ["fedavg", "ftfa"]);
      return noiseThreshold(found.ftfa, found.fedavg);
    }))"""
    visit(tab, static)
    for view, told in zip(views, tab.run(f"{script}({json.dumps(views)})"), strict=True):
        assert told == pytest.approx(fa.noise_threshold(population(view)), rel=1e-9), view
