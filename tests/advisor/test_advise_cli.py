"""The command, through the same application that `fedasym` runs."""

import json

import numpy as np
import pandas as pd
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.cli import app, import_commands, run

import_commands(["advise"])


@pytest.fixture(scope="module")
def table(world, tmp_path_factory):
    X, y, _ = world.but(clients=20, dimension=12, samples=10).draw()
    frame = pd.DataFrame(np.concatenate(X), columns=[f"x{i}" for i in range(12)])
    frame["score"], frame["user"] = np.concatenate(y), np.repeat([f"u{i}" for i in range(20)], 10)
    file = tmp_path_factory.mktemp("advise") / "data.csv"
    frame.to_csv(file, index=False)
    return file


def told(*arguments):
    return run(
        lambda: app(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value"
        )
    )


def test_the_page_and_the_experiment(table, capsys):
    assert told("advise", str(table), "--label", "score", "--client", "user", "--confirm") == 0
    page = capsys.readouterr().out
    assert page.startswith(
        "label 'score' has numbers\n12 features, centred and scaled by 160 training rows: x0, x1"
    )
    assert "\n\nUse " in page
    assert "held-out error" in page


def test_json_equals_the_library(table, capsys):
    assert told("advise", str(table), "--label", "score", "--client", "user", "--json") == 0
    expected = advise(fa.datasets.read(table, label="score", client="user"))
    assert json.loads(capsys.readouterr().out) == json.loads(expected.to_json())


def test_the_report_is_written(table, tmp_path, capsys):
    file = tmp_path / "advice.html"
    assert (
        told("advise", str(table), "--label", "score", "--client", "user", "--report", str(file))
        == 0
    )
    assert "Written to" in capsys.readouterr().out
    page = file.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "12 features, centred and scaled by 160 training rows" in page


def test_a_bad_column_is_one_sentence(table, capsys):
    assert told("advise", str(table), "--label", "nothing", "--client", "user") == 2
    assert capsys.readouterr().err.startswith("fedasym: ")
