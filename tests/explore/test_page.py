"""The page in a real browser, without network: every control moves the numbers, which are those of the package."""

from __future__ import annotations

import json
import math
import re

import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend
from fedasym.cli.arguments import parse_spectrum
from fedasym.figures.marks import contrast
from fedasym.theory.contours import support

from .conftest import quiet, settle, visit

NAMES = ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "maml", "pfedme"]
CLOSE = {"rel": 1e-9, "abs": 1e-12}


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


def losses(page):
    """The table of losses: loss, bias, variance and ridge by row."""
    script = """JSON.stringify([...document.querySelectorAll("#losses tbody tr")].map((row) =>
      [row.dataset.name, ...[1, 2, 3, 4].map((at) => row.cells[at].dataset.value ?? row.cells[at].textContent)]))"""
    read = {"∞": math.inf, "–": None}
    return {name: [read[each] if each in read else float(each) for each in row] for name, *row in json.loads(page.run(script))}


def set_on(page):
    """What the page's fields say, as `fa.predict` takes it, and the number of steps."""
    said = page.run("Object.fromEntries(CONTROLS.map(({ key }) => [key, document.getElementById(`field-${key}`).value]))")
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
        assert [bias, variance] == pytest.approx([risk.bias, risk.variance], rel=1e-6, abs=1e-6 * risk.loss), name
        assert (ridge is None) == (risk.ridge is None)
        assert ridge is None or ridge == pytest.approx(risk.ridge, rel=1e-4)
    best = page.run('[...document.querySelectorAll("#losses tr.best")].map((row) => row.dataset.name)')
    assert best[0] == table.best
    assert all(name in page.run('document.getElementById("words").textContent') for name in best)
    if stopped is not None:
        early = fa.Algorithm("early", Average(), Descend(1 / support(float(world.aspect), world.spectrum)[1], int(steps)))
        risk = fa.predict(world, [early], clients=options["clients"], member=options["member"])["early"]
        assert stopped[:3] == pytest.approx([risk.loss, risk.bias, risk.variance], rel=1e-6)
    return table


SLIDERS = [
    "radius",
    "noise",
    "aspect",
    "norm",
    "clients",
    "correlation",
    "exponent",
    "contrast",
    "share",
    "shift_power",
    "ridge",
    "steps",
]
KIND = {"correlation": "ar1", "exponent": "power_law", "contrast": "two", "share": "two", "shift_power": "ar1"}


@pytest.mark.parametrize("key", SLIDERS)
def test_each_slider_moves_the_numbers_by_keyboard(page, key):
    page.run(f"set({{ kind: {KIND.get(key, 'identity')!r} }}, 'test')")
    before, address = losses(page), page.run("location.hash")
    for _ in range(3):
        slide(page, key, *(("ArrowLeft", 37) if key in ("clients", "norm") else ("ArrowRight", 39)))
    if key in KIND:
        settle(page)  # the early stop's last digits come with the path
    assert losses(page) != before
    assert page.run("location.hash") != address
    heard = page.run(f'document.getElementById("slider-{key}").getAttribute("aria-valuetext")')
    assert page.run(f'document.getElementById("field-{key}").value') == heard
    agree(page)
    quiet(page)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [("radius", "0", "0"), ("noise", "1,25", "1.25"), ("clients", "7", "7"), ("ridge", "0.3", "0.3"), ("steps", "inf", "inf")],
)
def test_numbers_can_be_typed(page, key, text, value):
    page.run(f'document.getElementById("field-{key}").focus()')
    page.run(f'document.getElementById("field-{key}").select()')
    page.call("Input.insertText", text=text)
    page.press("Tab", 9)
    assert page.run(f'document.getElementById("field-{key}").value') == value
    assert f"{key}={value}" in page.run("location.hash")
    agree(page)


@pytest.mark.parametrize(
    ("key", "text"), [("aspect", "0"), ("clients", "2.5"), ("noise", "much"), ("ridge", "-1"), ("share", "")]
)
def test_a_bad_number_is_told_in_words_and_changes_nothing(page, key, text):
    before = losses(page)
    page.run(f"""(() => {{ const field = document.getElementById("field-{key}"); field.value = {text!r};
        field.dispatchEvent(new Event("input")); field.dispatchEvent(new Event("change")); }})()""")
    assert page.run(f'document.getElementById("field-{key}").getAttribute("aria-invalid")') == "true"
    words = page.run(f'document.getElementById("wrong-{key}").textContent')
    assert f'"{text}"' in words
    assert "from" in words
    assert losses(page) == before


def slide(page, key, press, code):
    """As people do it: entries of the history without a user's gesture are skipped on the way back."""
    page.run(f'document.getElementById("slider-{key}").focus()')
    page.press(press, code)


def choose(page, key, value):
    page.run(f"""(() => {{ const list = document.getElementById("{key}"); list.value = "{value}";
        list.dispatchEvent(new Event("change")); }})()""")


@pytest.mark.parametrize("kind", ["ar1", "power_law", "two", "atoms"])
@pytest.mark.parametrize("clients", ["10", "inf"])
def test_each_spectrum_with_many_and_few_clients(page, kind, clients):
    choose(page, "kind", kind)
    page.run(f"set({{ clients: {'Infinity' if clients == 'inf' else clients}, shift_power: 0 }}, 'test')")
    settle(page)
    agree(page)
    shown = page.run('[...document.querySelectorAll(".control")].filter((each) => !each.hidden).map((each) => each.id)')
    assert ("control-correlation" in shown) == (kind == "ar1")
    assert ("control-atoms" in shown) == (kind == "atoms")
    page.run("set({ shift_power: 1 }, 'test')")
    settle(page)
    agree(page)
    quiet(page)


def test_a_newcomer_and_a_crowded_federation(page):
    page.run("set({ clients: 10 }, 'test')")
    page.run('document.querySelector("[name=member][value=no]").click()')
    agree(page)
    page.run("set({ aspect: 15 }, 'test')")
    agree(page)
    page.run('document.querySelector("[name=member][value=yes]").click()')
    agree(page)
    assert "interpolates" in page.run('document.getElementById("words").textContent')
    page.run("set({ aspect: 10 }, 'test')")
    assert losses(page)["fedavg"][0] == math.inf
    settle(page)
    quiet(page)


def test_the_path_and_the_number_of_clients_are_those_of_the_package(page):
    page.run("set({ clients: 10, noise: 0.7, steps: 7 }, 'test')")
    settle(page)
    world, _, _ = set_on(page)
    read = """((id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) =>
      [...row.cells].map((each) => each.dataset.value ?? each.textContent)))"""
    path = fa.fine_tuning(world, steps=[0, 1, 2, 3, 7, 10, 100], clients=10)
    rows = page.run(f"{read}('path')")
    told = {row[0].split(" ")[0]: [float(each) for each in row[1:]] for row in rows}
    for at, steps in enumerate(path.times):
        assert told[f"{steps:g}"] == pytest.approx([path.loss[at], path.bias[at], path.variance[at]], rel=1e-8)
    best = next(row for row in rows if "the best" in row[0])
    assert float(best[0].split(" ")[0]) == path.best.at
    assert f"Stop after {path.best.at:g} steps" in page.run('document.querySelector("#path figcaption").textContent')
    for row in page.run(f"{read}('federation')"):
        if row[0] not in ("1", "2"):  # crowded and critical
            table = fa.predict(world, clients=None if row[0] == "∞" else int(row[0]))
            assert [float(each) for each in row[1:]] == pytest.approx([table[name].loss for name in NAMES], rel=1e-8)


def test_regions_of_the_diagram_are_where_the_package_says(page):
    choose(page, "among", "plain")
    settle(page)
    columns, rows = 64, 48
    world = fa.Population(1, 0.5, 2, 2)
    table = page.run(
        'Object.fromEntries([...document.querySelectorAll("[data-region]")].map((each) => [each.dataset.region, 1]))'
    )
    assert set(table) == {"local", "ftfa", "fedavg"}
    box = page.run('(() => { const b = document.querySelector("#diagram svg").viewBox.baseVal; return [b.width, b.height] })()')
    left, right, top, bottom = 48, box[0] - 12, 26, box[1] - 44
    for noise, aspect in ((0.3, 3.0), (1.2, 3.0), (0.3, 0.5), (1.9, 0.12), (0.9, 8), (0.6, 1.2)):
        i, j = int(noise / 2 * columns), int(math.log(aspect / 0.1) / math.log(200) * rows)
        x = left + (i + 0.5) * (right - left) / columns
        y = bottom - (j + 0.5) * (bottom - top) / rows
        inside = f"""[...document.querySelectorAll("[data-region]")].filter((each) =>
            each.isPointInFill(new DOMPoint({x}, {y}))).map((each) => each.dataset.region)"""
        cell = {"noise": 2 * (i + 0.5) / columns, "aspect": 0.1 * 200 ** ((j + 0.5) / rows)}
        world = fa.Population(radius=1, norm=2, **cell)
        best = fa.predict(world, ["local", "fedavg", "ftfa", "maml"]).best
        assert page.run(inside) == [best], cell


def test_a_click_in_the_diagram_moves_the_point(page):
    settle(page)
    page.run('document.querySelector("#diagram svg").scrollIntoView({ behavior: "instant", block: "center" })')
    x, y, width, height = page.run(
        '(() => { const b = document.querySelector("#diagram svg").getBoundingClientRect();'
        " return [b.left, b.top, b.width, b.height] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x + 0.75 * width, y=y + 0.3 * height, button="left", clickCount=1)
    world, _, _ = set_on(page)
    assert 1.3 < world.noise < 1.6
    assert 3 < world.aspect < 8
    agree(page)


def test_the_address_carries_the_state_and_back_goes_back(page, static):
    slide(page, "noise", "ArrowRight", 39)
    first, one = page.run("location.hash"), losses(page)
    slide(page, "clients", "ArrowLeft", 37)
    two = losses(page)
    slide(page, "ridge", "End", 35)
    for way, address, shown in (("back", "clients=10000", two), ("back", first, one), ("forward", "clients=10000", two)):
        page.run(f"new Promise((done) => {{ addEventListener('popstate', done, {{ once: true }}); history.{way}(); }})")
        assert address in page.run("location.hash")
        assert losses(page) == shown
    changes = (
        "kind: 'two', contrast: 9, share: 0.3, shift_power: -1, clients: 30, member: false, ridge: 0.4, steps: 12, among: 'all'"
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
    visit(page, static + "#noise=<img src=x onerror=alert(1)>&spectrum=nonsense&aspect=3&__proto__=1&tab=x&clients=-4")
    words = page.run('document.getElementById("notes").textContent')
    assert "Noise is" in words
    assert "Spectrum is" in words
    assert "Clients is" in words
    assert page.run('document.getElementById("field-aspect").value') == "3"
    assert page.run("document.images.length") == 0
    agree(page)
    quiet(page)


EXTREMES = """(() => {
  const odd = [], draw = (values) => values[Math.floor(random() * values.length)];
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 60; round++) {
    const atoms = draw(["1@1", "0@0.5,2@0.5", "1e-6@0.5,1e6@0.5", "3@1"]), kind = draw(Object.keys(KINDS));
    const change = { kind, atoms, member: random() < 0.5, among: draw(Object.keys(AMONG)) };
    for (const { key, slider, least, most } of CONTROLS) {
      change[key] = random() < 0.2 ? draw([least, most]) : slider.at(Math.floor(random() * (slider.count + 1)));
    }
    set(change, "test", { settle: false });
    finish(figures(COARSE, COARSE_POINTS));
    const drawings = [...document.querySelectorAll("svg")].map((each) => each.outerHTML);
    const shown = document.querySelector("main").textContent + drawings.join("");
    const wrong = shown.match(/NaN|undefined|Infinity|null/);
    if (wrong) odd.push([wrong[0], addressOf(state), shown.slice(Math.max(0, wrong.index - 120), wrong.index + 40)]);
  }
  return odd;
})()"""


def test_no_setting_breaks_the_page(page):
    assert page.run(EXTREMES) == []
    settle(page)
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
    assert page.run('document.activeElement.id + document.getElementById("panel-data").hidden') == "tab-datafalse"
    assert "tab=data" in page.run("location.hash")
    page.press("Home", 36)
    assert page.run('document.getElementById("panel-theory").hidden') is False


def test_everything_has_a_name_and_words(page):
    settle(page)
    unnamed = page.run("""[...document.querySelectorAll("input, select, button, iframe")].filter((each) => {
        const named = each.labels?.length || each.getAttribute("aria-labelledby") || each.textContent.trim() || each.title;
        return !named && !each.closest("[hidden]");
      }).map((each) => each.id)""")
    assert unnamed == []
    figures = page.run('[...document.querySelectorAll(".drawing > svg")].map((each) => each.getAttribute("aria-label"))')
    assert len(figures) == 4
    assert all(len(words) > 40 for words in figures)
    assert page.run('document.querySelector("[aria-live=polite]").textContent') == page.run(
        'document.getElementById("words").textContent'
    )
    assert page.run('document.getElementById("command").textContent') == (
        "fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2"
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
    small = page.run("""[...document.querySelectorAll("#controls input, #controls select")]
        .filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect().height)""")
    assert min(small) >= 16


def test_it_prints(page):
    settle(page)
    assert page.pdf().startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run('getComputedStyle(document.getElementById("controls")).display') == "none"
    assert page.run('getComputedStyle(document.querySelector("#bars svg")).display') == "block"
    page.dark(False)
