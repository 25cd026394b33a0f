"""The tab that takes a file, in a real browser with the real server behind it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from .conftest import quiet, settle, until, visit
from .test_server import table

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def served(tab, explorer):
    tab.dark(False)
    tab.size(1000)
    visit(tab, explorer.address + "#tab=data", online=True)
    return tab


def drop(page, name, content):
    """A file, dropped as a mouse would."""
    page.run(f"""(() => {{
      const held = new DataTransfer();
      held.items.add(new File([new Uint8Array({list(content)})], {json.dumps(name)}));
      const dropped = new DragEvent("drop", {{ dataTransfer: held, bubbles: true, cancelable: true }});
      document.getElementById("drop").dispatchEvent(dropped);
    }})()""")
    until(page, '!document.querySelector("#data [type=submit]").disabled')


def advise(page):
    """The button, pressed."""
    page.run('document.querySelector("#data [type=submit]").click()')
    until(page, '!document.querySelector("#data [type=submit]").disabled')


def pupils(odd="town"):
    """A CSV with row numbers, pupils' numbers and a column of words beside the features."""
    rng = np.random.default_rng(0)
    lines = [f'"","pupil_id","school","hours","sex","{odd}","points"']
    for row in range(120):
        school, hours, sex = row // 12, rng.normal(), row % 2
        points = 2 * hours + sex + 0.5 * school + 0.3 * rng.normal()
        lines.append(
            f"{row + 1},{7000 + row},s{school},{hours:.4f},{'fm'[sex]},{'abc'[rng.integers(3)]},{points:.4f}"
        )
    return "\n".join(lines).encode()


def role_of(name):
    """The select of a column's role, as an expression."""
    return f"""[...document.querySelectorAll("#roles tbody tr:not([hidden])")].find((row) =>
      row.querySelector("th span").textContent === {json.dumps(name)}).querySelector("select")"""


def choose(page, select, words):
    """An option by its words, as the keyboard or a mouse would."""
    page.run(f"""((select) => {{
      select.value = [...select.options].find((each) => each.text === {json.dumps(words)}).value;
      select.dispatchEvent(new Event("change", {{ bubbles: true }}));
    }})({select})""")


def own_requests_only(page, explorer):
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert all(url.startswith((explorer.address, "data:")) for url in asked), asked


def test_a_dropped_file_is_advised_on_and_a_hostile_name_is_only_text(served, explorer):
    drop(served, f"{HOSTILE}.csv", table().replace(b"c3,", f"{HOSTILE},".encode()))
    advise(served)
    assert "use " in served.run('document.getElementById("progress").textContent')
    assert HOSTILE in served.run('document.getElementById("progress").textContent')
    until(
        served,
        'document.getElementById("advice").contentDocument?.querySelectorAll("h1").length === 1',
    )
    inside = 'document.getElementById("advice").contentDocument'
    assert served.run(f"{inside}.querySelector('h1').textContent").startswith("Use ")
    assert HOSTILE in served.run(f"{inside}.body.textContent")
    assert served.run(f"{inside}.querySelectorAll('script:not([type])').length") == 1
    until(served, f"Number(document.getElementById('advice').height) > {600}")
    quiet(served)
    own_requests_only(served, explorer)


def test_the_estimates_go_to_the_sliders(served):
    drop(served, "clients.csv", table())
    advise(served)
    served.run('document.querySelector("#carry button").click()')
    settle(served)
    assert served.run('document.getElementById("panel-theory").hidden') is False
    assert served.run('document.getElementById("field-clients").value') == "10"
    assert served.run('document.getElementById("kind").value') == "atoms"
    assert "spectrum=atoms:" in served.run("location.hash")
    quiet(served)


def test_a_chosen_file_that_is_broken_is_told_in_words(served, explorer, tmp_path):
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 but nothing more")
    place = served.call("Runtime.evaluate", expression='document.getElementById("file")')["result"][
        "objectId"
    ]
    served.call("DOM.setFileInputFiles", files=[str(file)], objectId=place)
    until(served, '!document.getElementById("refusal").hidden')
    words = served.run('document.getElementById("refusal").textContent')
    assert "broken.parquet" in words
    assert str(tmp_path) not in words
    assert served.run('document.getElementById("advice").hidden') is True
    own_requests_only(served, explorer)


def test_columns_are_offered_with_their_roles(served, explorer):
    drop(served, "pupils.csv", pupils())
    assert "120 rows and 7 columns" in served.run('document.getElementById("progress").textContent')
    shown = served.run(
        '[...document.querySelectorAll("#roles tbody tr:not([hidden])")].map((row) =>'
        " row.innerText)"
    )
    assert [words.split("\n")[0].strip() for words in shown] == [
        "(no name)",
        "pupil_id",
        "hours",
        "sex",
        "town",
        "points",
    ]
    assert "all different" in shown[0]
    assert (
        served.run('document.getElementById("client-column").selectedOptions[0].text') == "school"
    )

    advise(served)
    assert (
        served.run('document.getElementById("refusal").textContent')
        == "Choose the column of the labels first."
    )
    assert served.run("document.activeElement.id") == "label-column"
    choose(served, 'document.getElementById("label-column")', "points")
    assert served.run('document.querySelectorAll("#roles tbody tr:not([hidden])").length') == 5
    choose(served, role_of("town"), "leave out")
    choose(served, role_of("sex"), "shared only")
    advise(served)
    assert served.run('document.getElementById("recipe").innerText').split("\n\n")[1:] == [
        "Label 'points' has numbers.",
        (
            "2 features, centred and scaled by 100 training rows: hours, sex=f. For the shared"
            " model only (constant within clients, or as requested): sex=f. Left out: '', pupil_id"
            " (identifiers); town (as requested). With an intercept."
        ),
    ]
    until(
        served,
        'document.getElementById("advice").contentDocument?.querySelectorAll("h1").length === 1',
    )
    inside = served.run('document.getElementById("advice").contentDocument.body.textContent')
    assert "hours" in inside
    assert "sex=f" in inside
    quiet(served)
    own_requests_only(served, explorer)


def test_a_hostile_column_is_only_text(served):
    drop(served, "pupils.csv", pupils(HOSTILE))
    choose(served, 'document.getElementById("label-column")', "points")
    assert (
        served.run(f"{role_of(HOSTILE)}.getAttribute('aria-labelledby')") == "role-heading column-5"
    )
    assert (
        served.run('[...document.getElementById("label-column").options].map((each) => each.text)')[
            5
        ]
        == HOSTILE
    )
    choose(served, role_of(HOSTILE), "category")
    advise(served)
    assert f"{HOSTILE}=" in served.run('document.getElementById("recipe").textContent')
    assert served.run("document.querySelectorAll('script:not([type])').length") == 1
    quiet(served)


def test_roles_by_keyboard_and_on_a_phone(served):
    served.size(360, 740)
    drop(served, "pupils.csv", pupils("a_name_that_is_far_longer_than_any_telephone_is_wide"))
    assert served.run("document.documentElement.scrollWidth") <= 360
    assert served.run('document.querySelector("#of-table .scroll").scrollWidth') <= 360
    unnamed = served.run("""[...document.querySelectorAll("#fields select")].filter((each) => {
      const ids = (each.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean);
      return !each.labels.length && !(ids.length && ids.every((id) => document.getElementById(id)?.textContent));
    }).length""")
    assert unnamed == 0
    served.run('document.getElementById("client-column").focus()')
    served.press("Tab", 9)
    served.press("Tab", 9)
    assert (
        served.run("document.activeElement.getAttribute('aria-labelledby')")
        == "role-heading column-0"
    )


def test_missing_values_are_refused_until_it_is_said_what_to_do(served):
    drop(
        served, "pupils.csv", re.sub(rb"^(5,7004,s0,)[^,]+", rb"\1NA", pupils(), flags=re.MULTILINE)
    )
    assert ", 1 missing" in served.run('document.getElementById("roles").innerText')
    choose(served, 'document.getElementById("label-column")', "points")
    advise(served)
    assert "missing values in 'hours' (row 4 (line 6))" in served.run(
        'document.getElementById("refusal").textContent'
    )
    choose(served, 'document.getElementById("absent")', "drop: leave those rows out")
    advise(served)
    assert "1 of 120 rows with a missing value was dropped" in served.run(
        'document.getElementById("recipe").textContent'
    )


def test_arrays_keep_their_fields(served, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    held = {
        "features": X,
        "score": X.sum(1) + rng.normal(size=120),
        "client": np.repeat(np.arange(10), 12),
    }
    np.savez(tmp_path / "clients.npz", **held)
    drop(served, "clients.npz", (tmp_path / "clients.npz").read_bytes())
    assert "label" in served.run('document.getElementById("refusal").textContent')
    assert served.run('document.getElementById("label").checkVisibility()') is True
    assert served.run('document.getElementById("scale").checkVisibility()') is False
    served.run('document.getElementById("label").value = "score"')
    advise(served)
    until(served, '!document.getElementById("advice").hidden')
    assert served.run('document.getElementById("recipe").hidden') is True


def test_a_file_that_is_too_large_is_not_even_sent(served, explorer):
    served.run("document.body.dataset.most = 100")
    sent = len(served.named("Network.requestWillBeSent"))
    drop(served, "clients.csv", table())
    assert "fedasym advise FILE" in served.run('document.getElementById("refusal").textContent')
    assert len(served.named("Network.requestWillBeSent")) == sent


def test_the_button_comes_back_when_another_file_takes_over(served):
    served.run("document.body.dataset.most = 50000")
    served.run(f"""(() => {{
      const give = (size, name) => {{
        const held = new DataTransfer();
        held.items.add(new File([{json.dumps(table().decode())}.slice(0, size).padEnd(size)], name));
        document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: held }}));
      }};
      give(1000, "small.csv"), give(60000, "large.csv");
    }})()""")
    until(served, '!document.querySelector("#data [type=submit]").disabled')
    assert "large.csv has" in served.run('document.getElementById("refusal").textContent')
    assert served.run('document.getElementById("fields").hidden') is True
