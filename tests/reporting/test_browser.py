"""The page in a real browser, without network: it opens, reads, sorts, fits a phone, prints, and
runs no one's names.
"""

from __future__ import annotations

import re

import pytest

from fedasym.show import DARK, LIGHT
from fedasym.show.figures import ALGORITHMS, readable_shade
from fedasym.show.report import report

from .invented import FINAL, HOSTILE, HOSTILE_NAMES, invented, published


@pytest.fixture(scope="module")
def file(results, tmp_path_factory):
    return report(results, tmp_path_factory.mktemp("page") / "page.html", published())


@pytest.fixture
def opened(chromium, file):
    chromium.dark(False)
    chromium.size(1100)
    chromium.open(file)
    return chromium


def rgb(colour):
    """A colour as browsers tell it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def quiet(page):
    """Nothing was complained about, and nothing was asked for but the file."""
    for kind in (
        "Runtime.exceptionThrown",
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    ):
        assert page.named(kind) == []
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert len([url for url in asked if not url.startswith("data:")]) == 1
    assert all(url.startswith(("file:", "data:")) for url in asked)


def test_it_opens_without_network_and_draws(opened):
    quiet(opened)
    box = "getBoundingClientRect()"
    for name in FINAL:
        line = f'document.querySelector("#curves-seeds .wide [data-name={name}] > path")'
        assert opened.run(f"{line}.{box}.width") > 300
    line = 'document.querySelector("#curves-seeds .wide [data-name=ftfa] > path")'
    assert opened.run(f"getComputedStyle({line}).stroke") == rgb(
        readable_shade(ALGORITHMS["ftfa"].colour, LIGHT)
    )
    assert (
        opened.run('getComputedStyle(document.querySelector("#curves-seeds .narrow")).display')
        == "none"
    )
    opened.dark(True)
    assert opened.run(f"getComputedStyle({line}).stroke") == rgb(
        readable_shade(ALGORITHMS["ftfa"].colour, DARK)
    )


def test_the_mouse_reads_values(opened, results):
    words = 'document.querySelector("#curves-seeds output").textContent'
    assert opened.run(words).startswith("Point at the figure")
    opened.run(
        'document.querySelector("#curves-seeds svg").scrollIntoView({behavior: "instant", block:'
        ' "center"})'
    )
    box = opened.run(
        "(() => { const points = document.querySelectorAll('#curves-seeds .wide [data-name=ftfa]"
        " use'); const b = [...points].at(-1).getBoundingClientRect(); return [b.x + b.width / 2,"
        " b.y + b.height / 2] })()"
    )
    opened.move(box[0] + 2, box[1])
    assert (
        opened.run(words)
        == f"ftfa, round 400: {100 * results.finals('seeds')['ftfa'].mean():.2f} %"
    )
    assert opened.run('document.querySelectorAll("#curves-seeds .read").length') == 1
    quiet(opened)


def test_figures_say_what_they_are(opened):
    """To those who do not see them: a name and a description, as the browser tells assistive
    technology.
    """
    label = 'document.querySelector("#curves-seeds .wide").getAttribute("aria-labelledby")'
    first, second = (
        opened.run(f'document.getElementById("{each}").textContent')
        for each in opened.run(label).split()
    )
    assert first == "Test accuracy of personal models against rounds, over 11 trials"
    assert "ftfa goes from 1.0 to 82.1" in second


def column(page, table, at):
    script = (
        f"[...document.querySelector({table!r}).tBodies[0].rows].map(row =>"
        f" row.cells[{at}].textContent)"
    )
    return page.run(script)


def test_tables_sort_by_mouse_and_keyboard(opened):
    table = "#seeds > .scroll table"
    head = f"document.querySelector({table!r}).tHead.rows[0].cells"
    opened.run(f"{head}[1].firstChild.click()")
    values = [float(text.split()[0]) for text in column(opened, table, 1)]
    assert values == sorted(values, reverse=True)
    assert opened.run(f'{head}[1].getAttribute("aria-sort")') == "descending"
    opened.run(f"{head}[0].firstChild.focus()")
    opened.press("Enter", 13, "\r")
    assert column(opened, table, 0) == sorted(FINAL)
    assert opened.run(f'{head}[1].getAttribute("aria-sort")') is None
    opened.run(f"{head}[6].firstChild.click()")
    opened.run(f"{head}[6].firstChild.click()")
    assert column(opened, table, 0)[-1] == "local"  # which has no shared model: last, either way
    quiet(opened)


def test_small_p_values_sort_below_larger_ones(opened):
    table = "#seeds details.print table"
    opened.run(f"document.querySelector({table!r}).tHead.rows[0].cells[4].firstChild.click()")
    values = [0.0 if text == "<0.001" else float(text) for text in column(opened, table, 4)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.001


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(opened, dark):
    opened.dark(dark)
    opened.size(360, 740)
    opened.run('document.querySelectorAll("details").forEach(each => { each.open = true; })')
    assert opened.run("document.documentElement.scrollWidth") == 360
    outside = """[...document.querySelectorAll("body *")].filter(each => {
        const box = each.getBoundingClientRect();
        return box.right > 361 && !each.closest(".scroll, pre, svg");
    }).length"""
    assert opened.run(outside) == 0
    assert (
        opened.run('getComputedStyle(document.querySelector("#curves-seeds .narrow")).display')
        == "block"
    )
    smallest = 'parseFloat(getComputedStyle(document.querySelector(".narrow text")).fontSize)'
    scale = (
        "(svg => svg.getBoundingClientRect().width /"
        ' svg.viewBox.baseVal.width)(document.querySelector(".narrow"))'
    )
    assert opened.run(f"{smallest} * {scale}") >= 11
    background = opened.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)")


def test_it_prints(opened):
    printed = opened.pdf()
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 4 <= pages <= 16
    assert opened.run('document.querySelectorAll("details[open]").length') == 0  # as it was before
    opened.call("Emulation.setEmulatedMedia", media="print")
    opened.size(718)  # A4 without its margins
    opened.run('document.querySelectorAll("details.print").forEach(each => { each.open = true; })')
    wide = (
        '[...document.querySelectorAll("table")].filter(each => each.getBoundingClientRect().right'
        " > 719).length"
    )
    assert opened.run(wide) == 0
    assert opened.run('getComputedStyle(document.querySelector(".reading")).display') == "none"


def test_a_hostile_name_does_nothing(chromium, tmp_path):
    held = invented(clients=HOSTILE_NAMES, about=HOSTILE)
    curves = {"seeds": {"</script><script>alert(4)</script>": ([0, 50], [[0.1, 0.5]])}}
    chromium.size(1100)
    chromium.open(report(held, tmp_path / "hostile.html", curves))
    chromium.run('document.querySelectorAll("th button").forEach(each => each.click())')
    quiet(chromium)
    assert chromium.run('document.querySelector(".about").textContent') == HOSTILE
    assert chromium.run("document.images.length") == 0
    assert chromium.run('document.querySelectorAll("script:not([type])").length') == 1


def test_nothing_can_be_fetched_or_run_even_by_the_page_itself(opened):
    opened.run(
        'document.body.append(Object.assign(document.createElement("img"), {src:'
        ' "http://127.0.0.1:9/x.png"}))'
    )
    opened.run(
        'document.body.append(Object.assign(document.createElement("script"), {textContent:'
        ' "window.ran = 1"}))'
    )
    assert opened.run("window.ran") is None
    opened.run("new Promise(done => setTimeout(done, 100))")
    blocked = [event["entry"]["text"] for event in opened.named("Log.entryAdded")]
    assert any("Content Security Policy" in text for text in blocked)
