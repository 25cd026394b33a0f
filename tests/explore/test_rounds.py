"""The tab "Rounds and privacy": its own recursion against the package, its noise against the
accountant, and what it shows.
"""

from __future__ import annotations

import json

import pytest

import fedasym as fa

from .conftest import quiet, settle, slide, visit

BASE = {"radius": 1, "noise": 0.5, "aspect": 2, "norm": 2, "local_steps": 5, "server_step": 0.1}
BASE |= {"cohort": 100, "enrolled": 1000, "dimension": 1000, "rounds": 50}
CASES = [
    BASE | changes
    for changes in (
        {},
        {"cohort": 1000},
        {"aspect": 0.5, "local_steps": 1, "rounds": 7},
        {"cohort": 20, "enrolled": 20, "rounds": 10},
        {"aspect": 1, "server_step": 0.2, "local_steps": 50, "radius": 0.5},
    )
]
INSIDE = """JSON.stringify(CASES.map((view) => {
  const end = (start, clip) => {
    const last = followRounds(start, clip).at(-1);
    return [last.bias + last.noise, personalLoss(start, last), last.length];
  };
  const { rounds } = view, plain = roundsOf(view, null, rounds), found = bestRounds(view, 4, rounds);
  return {
    plain: end(plain, Infinity), fixed: end({ ...roundsOf(view, 4, rounds), z: 0.7 }, 0.3),
    z: found.start.z, clip: found.clip, loss: found.loss,
  };
}))"""


EXTREMES = """(() => {
  const odd = [], draw = (values) => values[Math.floor(random() * values.length)];
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < 30; round++) {
    const change = { tab: "rounds" };
    for (const key of [...ROUNDED, "radius", "noise", "aspect", "norm"]) {
      const { slider, least, most } = CONTROL[key];
      change[key] = random() < 0.1 ? draw([least, most]) : slider.at(Math.floor(random() * (slider.count + 1)));
    }
    set(change, "test", { settle: false });
    const shown = document.getElementById("panel-rounds").textContent + document.getElementById("rounds-path").outerHTML;
    const wrong = shown.match(/NaN|undefined|Infinity|null/);
    if (wrong) odd.push([wrong[0], addressOf(state), shown.slice(Math.max(0, wrong.index - 120), wrong.index + 40)]);
  }
  return odd;
})()"""


def test_no_setting_breaks_the_tab(page):
    odd = page.run(EXTREMES)
    assert odd == [], odd[0][1]
    settle(page)
    quiet(page)


def told_to_rounds(case):
    world = fa.Population(case["radius"], case["noise"], case["aspect"], case["norm"])
    names = ("rounds", "local_steps", "server_step", "cohort", "dimension")
    return world, {name: case[name] for name in names} | {"clients": case["enrolled"]}


def test_the_recursion_is_the_packages(page):
    for case, found in zip(
        CASES, json.loads(page.run(INSIDE.replace("CASES", json.dumps(CASES)))), strict=True
    ):
        world, told = told_to_rounds(case)
        plain = fa.rounds(world, "rtfa", **told)
        noisy = fa.Privacy(noise_multiplier=0.7, clip=0.3)
        private = fa.rounds(world, "rtfa", **told, privacy=noisy)
        for ours, path in ((found["plain"], plain), (found["fixed"], private)):
            theirs = [path.shared_error[-1], path.loss[-1], path.length[-1]]
            assert ours == pytest.approx([float(each) for each in theirs], rel=1e-9)


def test_noise_and_clip_are_near_the_accountants(page):
    """The noise is interpolated, on the side of too much by at most three percent; the clip is then
    the best of the same grid.
    """
    found = json.loads(page.run(INSIDE.replace("CASES", json.dumps(CASES[:2]))))
    for case, ours in zip(CASES[:2], found, strict=True):
        world, told = told_to_rounds(case)
        least = fa.Privacy(epsilon=4).find_multiplier(
            case["rounds"], case["cohort"], case["enrolled"]
        )
        assert 1 <= ours["z"] / least < 1.03
        same = fa.Privacy(noise_multiplier=ours["z"])
        path = fa.rounds(world, "rtfa", **told, privacy=same)
        assert ours["clip"] == pytest.approx(float(path.privacy["clip"]), rel=1e-9)
        assert ours["loss"] == pytest.approx(float(path.final), rel=1e-9)


def test_the_table_of_noise_is_the_accountants(page):
    held = json.loads(page.run("JSON.stringify(NOISE)"))
    for i, j, k in ((6, 2, 4), (6, 6, 0), (4, 4, 5)):
        share, rounds, epsilon = (
            held[name][at] for name, at in (("shares", i), ("rounds", j), ("epsilons", k))
        )
        least = fa.Privacy(epsilon=epsilon).find_multiplier(rounds, round(1000 * share), 1000)
        assert held["multipliers"][i][j][k] == pytest.approx(least, rel=3e-3)


def test_the_tab_answers_its_sliders_and_its_address(page, static):
    page.run("set({ tab: 'rounds' }, 'test'), showTab('rounds')")
    settle(page)
    words = page.run('document.getElementById("rounds-words").textContent')
    assert words.startswith("After 50 rounds with cohorts of 100 the shared model is ")
    assert "Epsilon 4 takes a noise multiplier of" in words
    assert page.run('document.querySelectorAll("#rounds-path tbody tr").length') == 8
    slide(page, "epsilon", "ArrowLeft", 37)
    assert page.run("state.epsilon") < 4
    page.run("set({ epsilon: 0.25, enrolled: 100, cohort: 100 }, 'test')")
    assert "costs too much" in page.run('document.getElementById("rounds-words").textContent')
    command = page.run('document.getElementById("rounds-command").textContent')
    assert command.endswith("--dimension 1000 --clients 100 --epsilon 0.25")
    page.run("set({ server_step: 5 }, 'test')")
    assert "diverge" in page.run('document.getElementById("rounds-words").textContent')
    visit(page, static + "#tab=rounds&epsilon=none&cohort=20&enrolled=300&rounds=30")
    settle(page)
    assert page.run("[state.epsilon, state.cohort, state.enrolled].join()") == ",20,300"
    assert "noise multiplier" not in page.run('document.getElementById("rounds-words").textContent')
    visit(page, static)
    settle(page)
    quiet(page)
