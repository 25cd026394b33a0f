"""The page's controls in a real browser: each moves the numbers, which are those of the package."""

from __future__ import annotations

import math

import pytest

import fedasym as fa

from .conftest import agree, losses, quiet, set_on, settle, slide

NAMES = ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "maml", "pfedme", "pfedme_ridge"]
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
KIND = {
    "correlation": "ar1",
    "exponent": "power_law",
    "contrast": "two",
    "share": "two",
    "shift_power": "ar1",
}


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
    [
        ("radius", "0", "0"),
        ("noise", "1,25", "1.25"),
        ("clients", "7", "7"),
        ("ridge", "0.3", "0.3"),
        ("steps", "inf", "inf"),
    ],
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
    ("key", "text"),
    [("aspect", "0"), ("clients", "2.5"), ("noise", "much"), ("ridge", "-1"), ("share", "")],
)
def test_a_bad_number_is_told_in_words_and_changes_nothing(page, key, text):
    before = losses(page)
    page.run(
        f"""(() => {{ const field = document.getElementById("field-{key}"); field.value = {text!r};
        field.dispatchEvent(new Event("input")); field.dispatchEvent(new Event("change")); }})()"""
    )
    assert (
        page.run(f'document.getElementById("field-{key}").getAttribute("aria-invalid")') == "true"
    )
    words = page.run(f'document.getElementById("wrong-{key}").textContent')
    assert f'"{text}"' in words
    assert "from" in words
    assert losses(page) == before


def choose(page, key, value):
    page.run(f"""(() => {{ const list = document.getElementById("{key}"); list.value = "{value}";
        list.dispatchEvent(new Event("change")); }})()""")


@pytest.mark.parametrize(
    ("kind", "clients"),
    [("ar1", "10"), ("ar1", "inf"), ("power_law", "10"), ("two", "inf"), ("atoms", "10")],
)
def test_each_spectrum_with_many_and_few_clients(page, kind, clients):
    choose(page, "kind", kind)
    page.run(
        f"set({{ clients: {'Infinity' if clients == 'inf' else clients}, shift_power: 0 }}, 'test')"
    )
    settle(page)
    agree(page)
    shown = page.run(
        '[...document.querySelectorAll(".control")].filter((each) => !each.hidden).map((each) =>'
        " each.id)"
    )
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
        assert told[f"{steps:g}"] == pytest.approx(
            [path.loss[at], path.bias[at], path.variance[at]], rel=1e-8
        )
    best = next(row for row in rows if "the best" in row[0])
    assert float(best[0].split(" ")[0]) == path.best.at
    assert f"Stop after {path.best.at:g} steps" in page.run(
        'document.querySelector("#path figcaption").textContent'
    )
    for row in page.run(f"{read}('federation')"):
        if row[0] not in ("1", "2"):  # crowded and critical
            table = fa.predict(world, NAMES, clients=None if row[0] == "∞" else int(row[0]))
            assert [float(each) for each in row[1:]] == pytest.approx(
                [table[name].loss for name in NAMES], rel=1e-8
            )


def test_regions_of_the_diagram_are_where_the_package_says(page):
    choose(page, "among", "plain")
    settle(page)
    columns, rows = 64, 48
    world = fa.Population(1, 0.5, 2, 2)
    table = page.run(
        'Object.fromEntries([...document.querySelectorAll("[data-region]")].map((each) =>'
        " [each.dataset.region, 1]))"
    )
    assert set(table) == {"local", "ftfa", "fedavg"}
    box = page.run(
        '(() => { const b = document.querySelector("#diagram svg").viewBox.baseVal; return'
        " [b.width, b.height] })()"
    )
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
    page.run(
        'document.querySelector("#diagram svg").scrollIntoView({ behavior: "instant", block:'
        ' "center" })'
    )
    x, y, width, height = page.run(
        '(() => { const b = document.querySelector("#diagram svg").getBoundingClientRect();'
        " return [b.left, b.top, b.width, b.height] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x + 0.75 * width,
            y=y + 0.3 * height,
            button="left",
            clickCount=1,
        )
    world, _, _ = set_on(page)
    assert 1.3 < world.noise < 1.6
    assert 3 < world.aspect < 8
    agree(page)


EXTREMES = """(() => {
  const odd = [], draw = (values) => values[Math.floor(random() * values.length)];
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 40; round++) {
    const atoms = draw(["1@1", "0@0.5,2@0.5", "1e-6@0.5,1e6@0.5", "3@1"]), kind = draw(Object.keys(KINDS));
    const change = { kind, atoms, member: random() < 0.5, among: draw(Object.keys(AMONG)) };
    for (const { key, slider, least, most } of CONTROLS) {
      if (ROUNDED.includes(key)) continue; // of a tab of their own
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
