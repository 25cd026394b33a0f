"""The page in a real browser, without network: its address, its tabs, its words and colours, on a
phone and on paper.
"""

from __future__ import annotations

import re

import pytest

from fedasym.show.figures import contrast

from .conftest import agree, losses, quiet, settle, slide, visit


def test_the_address_carries_the_state_and_back_goes_back(page, static):
    slide(page, "noise", "ArrowRight", 39)
    first, one = page.run("location.hash"), losses(page)
    slide(page, "clients", "ArrowLeft", 37)
    two = losses(page)
    slide(page, "ridge", "End", 35)
    for way, address, shown in (
        ("back", "clients=10000", two),
        ("back", first, one),
        ("forward", "clients=10000", two),
    ):
        page.run(
            "new Promise((done) => { addEventListener('popstate', done, { once: true });"
            f" history.{way}(); }})"
        )
        assert address in page.run("location.hash")
        assert losses(page) == shown
    changes = (
        "kind: 'two', contrast: 9, share: 0.3, shift_power: -1, clients: 30, member: false, ridge:"
        " 0.4, steps: 12, among: 'all'"
    )
    page.run(f"set({{ {changes} }}, 'test')")
    second, two = page.run("location.hash"), losses(page)
    visit(page, static + second)
    settled = losses(page)
    assert {name: row for name, row in settled.items() if name != "stopped"} == {
        n: row for n, row in two.items() if n != "stopped"
    }
    assert page.run('document.getElementById("among").value') == "all"
    settle(page)
    agree(page)


def test_an_address_that_makes_no_sense_is_told_and_harmless(page, static):
    visit(
        page,
        static + "#noise=<img src=x"
        " onerror=alert(1)>&spectrum=nonsense&aspect=3&__proto__=1&tab=x&clients=-4",
    )
    words = page.run('document.getElementById("notes").textContent')
    assert "Noise is" in words
    assert "Spectrum is" in words
    assert "Clients is" in words
    assert page.run('document.getElementById("field-aspect").value') == "3"
    assert page.run("document.images.length") == 0
    agree(page)
    quiet(page)


def test_it_opens_without_network_and_asks_for_nothing(page, static):
    visit(page, static)
    settle(page)
    quiet(page)
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert len([url for url in asked if not url.startswith("data:")]) == 1
    assert all(url.startswith(("file:", "data:")) for url in asked)
    page.run('document.getElementById("tab-data").click()')
    assert "fedasym advise" in page.run('document.getElementById("panel-data").innerText')
    assert page.run('getComputedStyle(document.getElementById("data")).display') == "none"


def test_tabs_by_keyboard(page):
    page.run('document.getElementById("tab-theory").focus()')
    page.press("ArrowRight", 39)
    assert page.run("document.activeElement.id") == "tab-rounds"
    page.press("ArrowRight", 39)
    assert (
        page.run('document.activeElement.id + document.getElementById("panel-data").hidden')
        == "tab-datafalse"
    )
    assert "tab=data" in page.run("location.hash")
    page.press("Home", 36)
    assert page.run('document.getElementById("panel-theory").hidden') is False


def test_everything_has_a_name_and_words(page):
    settle(page)
    unnamed = page.run(
        """[...document.querySelectorAll("input, select, button, iframe")].filter((each) => {
        const named = each.labels?.length || each.getAttribute("aria-labelledby") || each.textContent.trim() || each.title;
        return !named && !each.closest("[hidden]");
      }).map((each) => each.id)"""
    )
    assert unnamed == []
    figures = page.run(
        '[...document.querySelectorAll("#panel-theory .drawing > svg")].map((each) =>'
        ' each.getAttribute("aria-label"))'
    )
    assert len(figures) == 4
    assert all(len(words) > 40 for words in figures)
    assert page.run('document.querySelector("[aria-live=polite]").textContent') == page.run(
        'document.getElementById("words").textContent'
    )
    assert (
        page.run('document.getElementById("command").textContent')
        == "fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2"
    )


COLOURS = """[...document.querySelectorAll("body *")].filter((each) => {
  const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  return own && each.checkVisibility() && !each.matches(".unseen, script, style, option, noscript");
}).map((each) => {
  const style = getComputedStyle(each), drawn = each.namespaceURI.endsWith("svg");
  let behind = each;
  while (behind && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
  const back = getComputedStyle(behind ?? document.body).backgroundColor;
  return [drawn ? style.fill : style.color, back, large, each.textContent.slice(0, 40)];
})"""


def hexed(colour):
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_what_is_behind_them(page, dark):
    page.dark(dark)
    page.run("set({ shift_power: 0.5, kind: 'two', clients: 10 }, 'test')")
    page.run('document.querySelectorAll("details").forEach((each) => { each.open = true; })')
    settle(page)
    found = page.run(COLOURS)
    assert len(found) > 150
    for front, back, large, words in found:
        assert contrast(hexed(front), hexed(back)) >= (3 if large else 4.5), (words, front, back)
    tints = page.run(
        """[...document.querySelectorAll("#bars g")].map((each) => getComputedStyle(each.querySelector(".bias")).fill)"""
    )
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    assert all(contrast(hexed(tint), hexed(paper)) >= 3 for tint in tints)


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(page, static, dark):
    page.dark(dark)
    page.size(360, 740)
    visit(page, static + "#spectrum=two:6,0.4&shift_power=1&clients=10&among=all")
    settle(page)
    page.run('document.querySelectorAll("details").forEach((each) => { each.open = true; })')
    outside = """[...document.querySelectorAll("body *")].filter((each) => {
        const box = each.getBoundingClientRect();
        return box.right > 361 && !each.closest(".scroll, pre, svg");
    }).map((each) => each.id + each.className)"""
    for tab_ in ("data", "theory"):
        page.run(f"document.getElementById('tab-{tab_}').click()")
        assert page.run("document.documentElement.scrollWidth") == 360
        assert page.run(outside) == []
    assert page.run('document.querySelector("#diagram svg").getBoundingClientRect().width') <= 360
    small = page.run(
        """[...document.querySelectorAll("#controls input, #controls select")]
        .filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().height)"""
    )
    assert min(small) >= 16


def test_it_prints(page):
    settle(page)
    assert page.pdf().startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run('getComputedStyle(document.getElementById("controls")).display') == "none"
    assert page.run('getComputedStyle(document.querySelector("#bars svg")).display') == "block"
    page.dark(False)
