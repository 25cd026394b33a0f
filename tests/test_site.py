"""The documentation as pages: built without a fault, current, complete, and asking for nothing from
the network.
"""

import doctest
import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
from builder import commands, docstrings, markdown, names, pages, reference  # noqa: E402
from builder.pages import Page  # noqa: E402
from builder.site import Site  # noqa: E402

import fedasym as fa  # noqa: E402

from .reporting.browser import browser, found  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    site, into = Site(), tmp_path_factory.mktemp("site")
    assert site.read() == []
    assert 40 < site.write(into) <= len(list(into.rglob("*.html")))
    return into


class Asked(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self):
        super().__init__()
        self.addresses, self.images, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.addresses += [given["src"]] if "src" in given else []
        if tag == "link":
            self.addresses.append(given["href"])
        if tag == "img":
            self.images.append(given)


def test_pages_ask_for_nothing_that_is_not_beside_them(built):
    for file in built.rglob("*.html"):
        page = Asked()
        page.feed(file.read_text(encoding="utf-8"))
        for address in page.addresses:
            assert address == "data:," or (file.parent / address).resolve().is_relative_to(built), (
                file.name,
                address,
            )
            assert address == "data:," or (file.parent / address).is_file(), (file.name, address)
        assert all(image["alt"].strip() for image in page.images)
        assert len(set(page.ids)) == len(page.ids), file.name
    style = (built / "style.css").read_text(encoding="utf-8")
    assert re.findall(r'url\("([^"]*)"\)', style) == ["math.woff2"]
    assert (built / "math.woff2").stat().st_size < 100_000
    assert "@import" not in style


def test_the_reference_is_what_the_code_says():
    for file, text in reference.pages().items():
        assert file.read_text(encoding="utf-8") == text, (
            f"{file.relative_to(ROOT)} is not current: run make docs"
        )


def test_the_reference_has_every_public_name():
    pages = (ROOT / "docs" / "reference").glob("*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name in set(fa.__all__) - {"__version__"}:
        assert re.search(rf"^##+ fa\.{name}$", text, flags=re.M), name
    for module in names.MODULES:
        for name in names.members(getattr(fa, module)):
            assert f"\n### fa.{module}.{name}\n" in text, (module, name)


def test_the_reference_has_every_flag_that_help_shows():
    text = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    for words, _ in commands.all_commands():
        shown = io.StringIO()
        commands.app.help_print(words.split(), console=Console(file=shown, width=200))
        section = text.split(f"\n## fedasym {words}\n")[1].split("\n## ")[0]
        flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", shown.getvalue())) - {
            "--help",
            "--version",
        }
        missing = {
            flag for flag in flags if flag not in section and not flag.startswith("--empty-")
        }
        assert not missing, (words, missing)


@pytest.mark.parametrize("name", ["commands", "experiment-file"])
def test_every_flag_and_field_says_what_it_means(name):
    text = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    heads = re.findall(r"^\| (?:argument|field) .*$", text, re.M)
    assert heads
    assert all(head.split("|")[2] == " meaning " for head in heads)
    assert [row for row in rows if re.match(r"\| [^|]+\|\s*\|", row)] == []  # the second cell


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# A\n[b](nowhere.md)", "links to nowhere.md, which does not exist"),
        ("# A\n[b](learn)", "links to learn, a folder"),
        ("# A\n[b](#nothing)", "no heading there has that anchor"),
        ("# A\n[b](choose.md#nothing)", "no heading there has that anchor"),
        ("# A\n![](figures/phase.svg)", "image without a text"),
        ("# A\n![a figure](https://example.org/figure.png)", "image that lies elsewhere"),
        ("# A\n[text][unknown]", r"does not define: \[text\]\[unknown\]"),
        ("# A\n`fa.predcit`", "speaks of fa.predcit"),
        ("no title", "has no title"),
        ("# A", "is not in the table of contents"),
    ],
)
def test_every_fault_is_noticed(text, fault):
    site = Site()
    page = Page(pages.DOCS / "invented.md", "invented.html", text)
    site.pages = {page.target: page, "choose.html": site.pages["choose.html"]}
    site.read()
    assert [each for each in page.faults if re.search(fault, each)], page.faults


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match="not of this site"):
        Site().write(tmp_path)
    assert (tmp_path / "precious.txt").exists()


@pytest.mark.parametrize(
    "module", [docstrings, markdown, names, pages], ids=lambda module: module.__name__
)
def test_examples_of_the_builder(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.skipif(found() is None, reason="there is no Chromium or Chrome on PATH")
def test_in_a_browser_pages_are_quiet_fit_a_phone_and_can_be_searched(built):
    with browser(found()) as page:
        for name in (
            "index.html",
            "notation.html",
            "compare.html",
            "reference/train.html",
            "add-an-algorithm.html",
        ):
            page.size(360)
            page.open(built / name)
            assert page.run("document.documentElement.scrollWidth <= innerWidth"), name
            asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
            assert all(url.startswith(("file:", "data:")) for url in asked), asked
            for kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                assert page.named(kind) == [], (name, page.named(kind))
        page.size(720)  # A4 between margins
        page.open(built / "compare.html")
        page.call("Emulation.setEmulatedMedia", media="print")
        assert page.run(
            "[...document.querySelectorAll('.wide')].every(wide => wide.scrollWidth <="
            " wide.clientWidth)"
        )
        page.call("Emulation.setEmulatedMedia", media="")
        page.run("document.getElementById('search').focus()")
        page.run("document.getElementById('search').value = 'noise_threshold'")
        page.run("document.getElementById('search').dispatchEvent(new Event('input'))")
        page.run("new Promise(done => setTimeout(done, 500))")
        first = page.run("document.querySelector('#found a')?.getAttribute('href') ?? ''")
        assert first.endswith("reference/predict.html#fanoise_threshold")


def test_pages_show_no_directives_and_no_raw_commands(built):
    for file in built.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        body = re.sub(r"<script.*?</script>", "", text, flags=re.S)
        for shown in ("# doctest", "&lt;BLANKLINE&gt;", r"<mi>\\"):
            assert not re.search(shown, body), (file.name, shown)


def test_pages_with_examples_are_notebooks_too_and_their_cells_run(built):
    made = {file.relative_to(built).as_posix(): file for file in built.rglob("*.ipynb")}
    assert {"learn/1-learning-together.ipynb", "gallery.ipynb", "how-to/train.ipynb"} <= set(made)
    for name, file in made.items():
        held = json.loads(file.read_text(encoding="utf-8"))
        assert held["nbformat"] == 4
        assert file.with_suffix(".html").read_text(encoding="utf-8").count(file.name) == 1
        cells = ["".join(cell["source"]) for cell in held["cells"] if cell["cell_type"] == "code"]
        assert cells, name
        parsed = [compile(cell, name, "exec") for cell in cells]
        texts = ["".join(c["source"]) for c in held["cells"] if c["cell_type"] == "markdown"]
        for link in re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", "".join(texts)):
            assert link.startswith("http") or (file.parent / link).is_file(), (name, link)
        if name.startswith(("learn/1", "learn/3")):
            names: dict[str, object] = {}
            for cell in parsed:
                exec(cell, names)
            assert "fa" in names


def test_a_closing_bar_is_one_group_with_what_it_closes():
    assert "arg" in markdown.formula(r"\arg\min_x f", block=False)
    assert "\\arg" not in markdown.formula(r"\arg\min_x f", block=False)
    drawn = markdown.formula(r"\frac12\lVert \frac ab \rVert^2", block=True)
    assert "<msup><mrow><mo" in drawn  # the exponent is of the whole, not of the bar
    assert "<msup><mo" not in drawn
    with pytest.raises(ValueError, match="which is not known"):
        markdown.formula(r"\unheard x", block=False)
