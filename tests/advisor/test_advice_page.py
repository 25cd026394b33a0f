"""The page of advice: whole, readable by everyone, and harmless whatever clients are called."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.show.figures import SCREENS
from fedasym.show.figures.classes import Bar, draw_bars

NASTY = "<script>alert('x')</script>\" onload=\"y"


class Elements(HTMLParser):
    """Elements with their attributes, and whether all of them were closed."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "line", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pages(world, class_world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    X, y, _ = world.but(clients=20).draw(1)
    numbers = advise(X, y, [NASTY, *range(1, 20)], intercept=False)
    X, y, _ = class_world.but(clients=20).draw(1)
    classes = advise(
        X,
        [np.where(v == 1, NASTY, "<b>no</b>") for v in y],
        [NASTY, *range(1, 20)],
        intercept=False,
    )
    return {
        "numbers": (numbers, numbers.write(folder / "numbers.html").read_text()),
        "classes": (classes, classes.write(folder / "classes.html").read_text()),
    }


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_nothing_that_people_named_becomes_markup(pages, task):
    _, text = pages[task]
    parsed = Elements(text)
    assert parsed.open == []
    assert NASTY not in text
    scripts = [attrs for tag, attrs in parsed.seen if tag == "script"]
    assert len(scripts) == 1  # the page's own
    assert not any(name.startswith("on") for _, attrs in parsed.seen for name in attrs)
    assert not any(tag in ("b", "iframe", "img", "object") for tag, _ in parsed.seen)


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_nothing_is_fetched_and_only_its_own_script_runs(pages, task):
    _, text = pages[task]
    policy = next(attrs["content"] for tag, attrs in Elements(text).seen if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "sha256-" in policy
    assert not re.search(r"(src|href)=\"(?!#|data:)", text)


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_the_page_holds_everything(pages, task):
    advice, text = pages[task]
    titles = (
        ("Predicted accuracy", "The population")
        if task == "classes"
        else ("Expected squared error", "Why")
    )
    for title in (*titles, "Doubts", "Who gains", "To prove this wrong"):
        assert f"{title}" in text
    assert text.startswith("<!DOCTYPE html>")
    assert f"<h1>Use {advice.recommended}</h1>" in text
    for name in advice.predictions:
        assert f'<th scope="row" class="text">{name}</th>' in text
    assert text.count("<tr") >= 20 + len(advice.predictions)
    assert 'name="viewport"' in text
    assert advice.write.__self__ is advice
    for doubt in advice.doubts:
        assert doubt.check in text


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_figures_have_words_for_those_who_do_not_see_them(pages, task):
    advice, text = pages[task]
    drawings = [attrs for tag, attrs in Elements(text).seen if tag == "svg"]
    assert {attrs["class"] for attrs in drawings} == {"wide", "narrow"}
    for attrs in drawings:
        assert attrs["role"] == "img"
        title, description = attrs["aria-labelledby"].split()
        assert f'id="{title}"' in text
        assert advice.recommended in re.search(f'id="{description}">(.*?)</desc>', text)[1]


def test_the_same_advice_gives_the_same_page(pages, tmp_path):
    advice, text = pages["classes"]
    assert advice.write(tmp_path / "again.html").read_text() == text


def test_a_page_needs_a_name_and_a_folder(pages, tmp_path):
    advice, _ = pages["numbers"]
    with pytest.raises(fa.InvalidInput, match=r"end in \.html"):
        advice.write(tmp_path / "page.txt")
    with pytest.raises(fa.InvalidInput, match="does not exist"):
        advice.write(tmp_path / "nowhere" / "page.html")


@pytest.mark.parametrize("screen", [*SCREENS, None])
def test_values_and_their_ends_are_drawn(screen):
    bars = [
        Bar("rtfa", 0.5, 0.4, 0.6, best=True),
        Bar("fedavg", 1.0, 0.9, 1.1, beside=0.95),
        Bar("local", np.inf, 1, 2),
    ]
    axes = draw_bars(bars, "loss", percent=False, screen=screen).axes[0]
    drawn = [(list(line.get_xdata()), line.get_ydata()[0]) for line in axes.get_lines()]
    assert drawn == [([0.4, 0.6], 0), ([0.5], 0), ([0.9, 1.1], 1), ([1.0], 1), ([0.95], 1)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rtfa", "fedavg"]


def test_the_page_needs_no_optional_package():
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, fedasym as fa\nfor name in ('polars', 'pydantic', 'jax'):"
        " sys.modules[name] = None\nrng = np.random.default_rng(0); X = rng.standard_normal((8, 10,"
        " 4)); y = rng.standard_normal((8, 10))\nfrom fedasym.show.advice import"
        " advice_page\nprint(advice_page(fa.advise(list(X), list(y)))[:15])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "<!DOCTYPE html>"
