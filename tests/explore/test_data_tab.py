"""The tab that takes a file, in a real browser with the real server behind it."""

from __future__ import annotations

import json

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
      held.items.add(new File([{json.dumps(content.decode("latin-1"))}], {json.dumps(name)}));
      const dropped = new DragEvent("drop", {{ dataTransfer: held, bubbles: true, cancelable: true }});
      document.getElementById("drop").dispatchEvent(dropped);
    }})()""")
    until(page, '!document.querySelector("#data [type=submit]").disabled')


def own_requests_only(page, explorer):
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert all(url.startswith((explorer.address, "data:")) for url in asked), asked


def test_a_dropped_file_is_advised_on_and_a_hostile_name_is_only_text(served, explorer):
    drop(served, f"{HOSTILE}.csv", table().replace(b"c3,", f"{HOSTILE},".encode()))
    assert "use " in served.run('document.getElementById("progress").textContent')
    assert HOSTILE in served.run('document.getElementById("progress").textContent')
    until(served, 'document.getElementById("advice").contentDocument?.querySelectorAll("h1").length === 1')
    inside = 'document.getElementById("advice").contentDocument'
    assert served.run(f"{inside}.querySelector('h1').textContent").startswith("Use ")
    assert HOSTILE in served.run(f"{inside}.body.textContent")
    assert served.run(f"{inside}.querySelectorAll('script:not([type])').length") == 1
    until(served, f"Number(document.getElementById('advice').height) > {600}")
    quiet(served)
    own_requests_only(served, explorer)


def test_the_estimates_go_to_the_sliders(served):
    drop(served, "clients.csv", table())
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
    place = served.call("Runtime.evaluate", expression='document.getElementById("file")')["result"]["objectId"]
    served.call("DOM.setFileInputFiles", files=[str(file)], objectId=place)
    until(served, '!document.getElementById("refusal").hidden')
    words = served.run('document.getElementById("refusal").textContent')
    assert "broken.parquet" in words
    assert str(tmp_path) not in words
    assert served.run('document.getElementById("advice").hidden') is True
    own_requests_only(served, explorer)


def test_columns_are_asked_for_and_a_missing_one_is_told(served):
    served.run('document.getElementById("label").value = "score"')
    drop(served, "clients.csv", table())
    assert "score" in served.run('document.getElementById("refusal").textContent')
    served.run('document.getElementById("label").value = "label"')
    served.run('document.getElementById("data").requestSubmit()')
    until(served, '!document.getElementById("advice").hidden')


def test_a_file_that_is_too_large_is_not_even_sent(served, explorer):
    served.run("document.body.dataset.most = 100")
    sent = len(served.named("Network.requestWillBeSent"))
    drop(served, "clients.csv", table())
    assert "fedasym advise FILE" in served.run('document.getElementById("refusal").textContent')
    assert len(served.named("Network.requestWillBeSent")) == sent
