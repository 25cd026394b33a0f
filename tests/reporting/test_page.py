"""The page as text: whole, safe, the same each time, with the numbers of the results; whatever is
missing from them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import product

import numpy as np
import pytest

import fedasym as fa
from fedasym.cli import app, import_commands, run
from fedasym.show import DARK, LIGHT, asset
from fedasym.show.figures import EVERY, contrast, readable_shade
from fedasym.show.report import report, report_page

from .invented import FINAL, HOSTILE, HOSTILE_NAMES, invented, published


class Outline(HTMLParser):
    """Elements that are closed in order, and what they say."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.named: list[tuple[str, dict[str, str | None]]] = []  # what describes figures
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if self.open and self.open[-1] in ("title", "desc") and "id" in self.seen[-1][1]:
            self.named.append((data, self.seen[-1][1]))

    def all(self, tag):
        return [attributes for each, attributes in self.seen if each == tag]


@pytest.fixture(scope="module")
def text(results):
    return report_page(results, published())


def test_it_is_whole_and_fetches_nothing(text):
    outline = Outline(text)
    assert "http://" not in text
    assert "https://" not in text
    assert {attributes["href"][0] for attributes in outline.all("a")} == {"#"}
    assert [attributes["href"] for attributes in outline.all("link")] == ["data:,"]
    assert not any("src" in attributes or "style" in attributes for _, attributes in outline.seen)
    assert not any(key.startswith("on") for _, attributes in outline.seen for key in attributes)
    ids = [attributes["id"] for _, attributes in outline.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"][1:] for attributes in outline.all("a")} <= set(ids)


def test_it_is_small_and_the_same_each_time_and_from_saved_tables(results, text, tmp_path):
    assert len(text.encode()) < 300_000
    tables = results.save(tmp_path / "tables")
    assert report(tables, tmp_path / "again.html", published()).read_bytes() == text.encode()


def test_every_figure_has_words_and_a_table(text):
    outline = Outline(text)
    figures = [attributes for attributes in outline.all("svg") if attributes.get("role") == "img"]
    assert len(figures) == 2 * 5 + 5  # two drawings of each chart, five histograms
    assert len(figures) == len(outline.all("svg"))
    words = {attributes["id"]: text for text, attributes in outline.named}
    for attributes in figures:
        title, description = attributes["aria-labelledby"].split()
        assert len(words[title]) > 20
        assert len(words[description]) > 40
    charts = [attributes for attributes in outline.all("figure") if attributes["class"] == "chart"]
    assert (
        sum(data == "The numbers of this figure" for _, data in outline.texts) == len(charts) == 5
    )


def test_finals_are_those_of_the_results(results, text):
    section = text[text.index('id="seeds"') : text.index('id="splits"')]
    for name, values in results.finals("seeds").items():
        others = [
            results.finals("seeds", each)[name].mean() for each in ("mean_accuracy", "worst_decile")
        ]
        row = re.search(
            rf'<th scope="row" class="text">{name}</th>(.*?)</tr>',
            section[section.index("After round") :],
        )[1]
        for value in (values.mean(), *others):
            assert f">{100 * value:.2f}\N{NO-BREAK SPACE}%<" in row, name


def test_charts_hold_every_round_of_every_algorithm(results, text):
    chart = text[text.index('id="curves-seeds"') : text.index('id="curves-splits"')]
    (wide,) = re.findall(r'<svg [^>]*class="wide".*?</svg>', chart, re.S)
    for name in FINAL:
        rows = results.trials.filter(
            (results.trials["algorithm"] == name) & (results.trials["sweep"] == "seeds")
        )
        rounds = sorted(rows["round"].unique())
        means = [rows.filter(rows["round"] == when)["accuracy"].mean() for when in rounds]
        theirs = published()["seeds"][name][1].mean(0)
        for curve, values in ((name, means), (f"{name} (paper)", theirs)):
            group = wide[wide.index(f'data-name="{curve}"') :].split("</g></g>")[0]
            told = re.findall(r"<title>(.*?)</title>", group)
            held = [
                f"round {when}: {100 * value:.2f} %"
                for when, value in zip(rounds, values, strict=True)
            ]
            assert told == held[-len(told) :]
            assert len(told) >= 7  # the first rounds lie outside the frame
        numbers = chart[chart.index("The numbers of this figure") :]
        for mean in means:
            assert f"<td>{100 * mean:.2f}\N{NO-BREAK SPACE}%</td>" in numbers


def test_hostile_names_are_text():
    held = invented(clients=HOSTILE_NAMES, about=HOSTILE)
    curves = {"seeds": {"</script><script>alert(4)</script>": ([0, 50], [[0.1, 0.5]])}}
    text = report_page(replace(held, environment={"command": HOSTILE, "device": "<b>"}), curves)
    outline = Outline(text)
    assert "<img" not in text
    assert len(outline.all("script")) == 1
    assert (("p", HOSTILE)) in outline.texts
    assert (("pre", HOSTILE)) in outline.texts
    assert {
        kind
        for kind in range(3)
        for tag, name in outline.texts
        if tag == "th" and name in HOSTILE_NAMES[kind::3]
    } == {0, 1, 2}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    "changes",
    [
        {"gains": None},
        {"trials": {"seeds": 1, "splits": 0}},
        {"trials": {"seeds": 0, "splits": 2}},
        {"algorithms": ["fedavg"]},
    ],
    ids=str,
)
def test_what_is_missing_is_left_out(task, changes):
    held = (
        invented(task, gains=None)
        if changes == {"gains": None}
        else invented(task, gains=None, **changes)
    )
    text = report_page(held)
    Outline(text)
    assert ('id="gains"' in text) == bool(held.gains.height)
    assert ('id="splits"' in text) == bool(held.experiment.trials.splits)
    assert ('id="clients"' in text) == ("ftfa" in held.experiment.algorithms)
    assert (
        "nan"
        not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.S).lower()
    )


def test_an_unfinished_run_says_so():
    full = invented(gains=None)
    empty = {name: getattr(full, name).clear() for name in ("tuning", "trials", "clients")}
    text = report_page(
        replace(full, **empty, tuned={}, remarks=("Unfinished: 3 of the 9 pieces are missing.",))
    )
    Outline(text)
    assert "There are no finished trials yet." in text
    assert "Unfinished: 3 of the 9" in text


def test_a_trial_that_diverged_has_no_number():
    held = invented(gains=None, trials={"seeds": 3, "splits": 0})
    gone = (
        (held.trials["algorithm"] == "ftfa")
        & (held.trials["trial"] == 2)
        & (held.trials["round"] > 200)
    )
    trials = held.trials.with_columns(
        accuracy=held.trials["accuracy"].zip_with(~gone, held.trials["accuracy"] * np.nan)
    )
    text = report_page(replace(held, trials=trials))
    Outline(text)
    assert "ftfa cannot be compared with rtfa: a trial is missing or diverged." in text
    assert "ftfa does not end in a number" in text
    assert (
        "nan"
        not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.S).lower()
    )
    assert '<th scope="row" class="text">ftfa</th><td>–</td><td>–</td><td>–</td>' in text


def test_regression_is_told_in_losses():
    text = report_page(invented("regression", gains=None))
    assert "rtfa has the best test loss" in text
    assert "points" not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.S)


def test_colours_stand_out():
    for mark, background in product(EVERY, (LIGHT, DARK)):
        assert contrast(readable_shade(mark.colour, background), background) >= 3
    blocks = re.findall(r":root \{(.*?)\}", asset("style.css"), re.S)
    assert len(blocks) == 2
    for block in blocks:
        colours = dict(re.findall(r"--(\w+): (#\w+)", block))
        for behind, front in product(("paper", "raised"), ("ink", "soft", "link")):
            assert contrast(colours[behind], colours[front]) >= 4.5, (front, behind)
        assert (
            min(contrast(colours["paper"], colours[each]) for each in ("edge", "lose", "gain")) >= 3
        )
    assert [dict(re.findall(r"--(\w+): (#\w+)", block))["paper"] for block in blocks] == [
        LIGHT,
        DARK,
    ]


def test_folders_of_the_machine_stay_there():
    held = invented(
        gains=None,
        trials={"seeds": 2, "splits": 0},
        data={"file": "/home/somebody/clients.parquet"},
    )
    text = report_page(held)
    assert "somebody" not in text
    assert 'file = "clients.parquet"' in unescape(text)


@pytest.fixture(scope="module")
def page(run_folder, tmp_path_factory):
    """Of a run folder."""
    return report(run_folder, tmp_path_factory.mktemp("page") / "run.html").read_text()


def test_a_run_folder_gives_its_command_and_environment(run_folder, page, tmp_path):
    made = json.loads((run_folder / "environment.json").read_text())
    assert f"<dd>{made['jax']}</dd>" in page
    assert "The command that computed it last:" in page
    assert f"fedasym run small.toml --into {run_folder.name}" in page
    assert f"fedasym report {run_folder.name}" in page
    tables = fa.Results.read(run_folder).save(tmp_path / "tables")
    assert report(tables, tmp_path / "tables.html").read_text() == page  # they keep it too


def test_the_command(run_folder, page, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["report", str(run_folder), "--into", "page.html", "--figures", "drawn"]
    assert called(args) == 0
    out = capsys.readouterr().out
    assert "Written to page.html" in out
    assert "seeds.pdf" in out
    assert (tmp_path / "page.html").read_text() == page
    assert (tmp_path / "drawn" / "gains-ftfa.csv").is_file()
    assert called(["report", "nothing"]) == 2
    assert "neither a run folder" in capsys.readouterr().err


def called(args):
    """The exit code of a command."""
    import_commands(args)
    try:
        return run(lambda: app(args, exit_on_error=False, print_error=False))
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("path", "words"),
    [("page.txt", "end in .html"), ("nowhere/page.html", "does not exist; make it first")],
)
def test_a_bad_path_is_told(results, tmp_path, path, words):
    with pytest.raises(fa.InvalidInput, match=words):
        report(results, tmp_path / path)


def test_a_single_client_is_not_grouped():
    text = report_page(invented(gains=None, clients=["one"]))
    Outline(text)
    assert "too few to be grouped" in text
