"""What the tests of the page share: a browser, the page as a file, the page with its server, and
the numbers that it shows.
"""

from __future__ import annotations

import json
import math
import threading
import time

import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend
from fedasym.cli import parse_spectrum
from fedasym.show import write_explore_page
from fedasym.show.explorer import Explorer
from fedasym.theory.transforms import sample_support

from ..reporting.browser import opened

CLOSE = {"rel": 1e-9, "abs": 1e-12}

tab = pytest.fixture(scope="session")(opened)


@pytest.fixture(scope="session")
def static(tmp_path_factory):
    """The address of the page that needs no server."""
    return write_explore_page(tmp_path_factory.mktemp("explore") / "explore.html").as_uri()


@pytest.fixture(scope="module")
def loaded(tab, static):
    visit(tab, static)
    return tab


@pytest.fixture
def page(loaded):
    """The page as it is when it opens."""
    loaded.dark(False)
    loaded.size(1280)
    loaded.run("set({ ...START }, 'test'), showTab('theory')")
    loaded.events.clear()
    return loaded


@pytest.fixture(scope="session")
def explorer():
    """A server on a free port of this machine."""
    with Explorer(port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def visit(page, address, online=False):
    """Load an address afresh; its numbers are there at once, its figures after `settle`."""
    page.call(
        "Network.emulateNetworkConditions",
        offline=not online,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    for each in (
        "about:blank",
        address,
    ):  # an address that differs in its fragment alone would not be loaded
        page.events.clear()
        page.call("Page.navigate", url=each)
        while not page.named("Page.loadEventFired"):
            page.next()


def settle(page):
    """Wait until every figure has its last digit."""
    until(page, 'document.documentElement.dataset.busy === "false"')


def until(page, condition):
    """Wait until a condition holds in the page."""
    for _ in range(1200):
        if page.run(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"never came true: {condition}")


def quiet(page):
    """Nothing was complained about."""
    for kind in (
        "Runtime.exceptionThrown",
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    ):
        assert page.named(kind) == []


def slide(page, key, press, code):
    """As people do it: entries of the history without a user's gesture are skipped on the way
    back.
    """
    page.run(f'document.getElementById("slider-{key}").focus()')
    page.press(press, code)


def losses(page):
    """The table of losses: loss, bias, variance and ridge by row."""
    script = """JSON.stringify([...document.querySelectorAll("#losses tbody tr")].map((row) =>
      [row.dataset.name, ...[1, 2, 3, 4].map((at) => row.cells[at].dataset.value ?? row.cells[at].textContent)]))"""
    read = {"∞": math.inf, "–": None}
    return {
        name: [read[each] if each in read else float(each) for each in row]
        for name, *row in json.loads(page.run(script))
    }


def set_on(page):
    """What the page's fields say, as `fa.predict` takes it, and the number of steps."""
    said = page.run(
        "Object.fromEntries(CONTROLS.map(({ key }) => [key,"
        " document.getElementById(`field-${key}`).value]))"
    )
    kind = page.run('document.getElementById("kind").value')
    spectrum = {
        "identity": "identity",
        "ar1": f"ar1:{said['correlation']}",
        "power_law": f"power_law:{said['exponent']}",
        "atoms": f"atoms:{page.run('''document.getElementById('field-atoms').value''')}",
    }.get(kind)
    if kind == "two":
        share, contrast_ = float(said["share"]), float(said["contrast"])
        weak = 1 / (1 - share + share * contrast_)
        made = fa.spectra.atoms([weak, weak * contrast_], [1 - share, share])
    else:
        made = parse_spectrum(spectrum)
    numbers = [float(said[key]) for key in ("radius", "noise", "aspect", "norm")]
    world = fa.Population(*numbers, made, float(said["shift_power"]))
    clients = None if said["clients"] == "inf" else int(said["clients"])
    member = page.run('document.querySelector("[name=member][value=yes]").checked')
    ridge = None if said["ridge"] == "best" else float(said["ridge"])
    return world, {"ridge": ridge, "clients": clients, "member": member}, float(said["steps"])


def agree(page):
    """The table is that of `fa.predict`, and its last row that of an early stop."""
    world, options, steps = set_on(page)
    table, shown = fa.predict(world, **options), losses(page)
    stopped = shown.pop("stopped", None)
    assert list(shown) == list(table)
    for name, (loss, bias, variance, ridge) in shown.items():
        risk = table[name]
        assert loss == pytest.approx(risk.loss, **CLOSE), name
        assert [bias, variance] == pytest.approx(
            [risk.bias, risk.variance], rel=1e-6, abs=1e-6 * risk.loss
        ), name
        assert (ridge is None) == (risk.ridge is None)
        assert ridge is None or ridge == pytest.approx(risk.ridge, rel=1e-4)
    best = page.run(
        '[...document.querySelectorAll("#losses tr.best")].map((row) => row.dataset.name)'
    )
    assert best[0] == table.best
    assert all(name in page.run('document.getElementById("words").textContent') for name in best)
    if stopped is not None:
        early = fa.Algorithm(
            "early",
            Average(),
            Descend(1 / sample_support(float(world.aspect), world.spectrum)[1], int(steps)),
        )
        risk = fa.predict(world, [early], clients=options["clients"], member=options["member"])[
            "early"
        ]
        assert stopped[:3] == pytest.approx([risk.loss, risk.bias, risk.variance], rel=1e-6)
    return table
