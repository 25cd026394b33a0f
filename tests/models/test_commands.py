"""`fedasym fit` and `apply`: from one CSV to another, as typed."""

import csv

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.cli import app, import_commands, run


@pytest.fixture
def shops(tmp_path):
    rng = np.random.default_rng(3)
    shop, price = rng.integers(0, 6, 240), rng.normal(10, 2, 240).round(2)
    sold = (50 + 4 * shop - 2 * price + rng.normal(0, 1, 240)).round(2)
    frame = pl.DataFrame(
        {"row": range(240), "shop": [f"s{k}" for k in shop], "price": price, "sold": sold}
    )
    frame.head(200).write_csv(tmp_path / "old.csv")
    frame.tail(40).write_csv(tmp_path / "new.csv")
    return tmp_path


def command(*words):
    words = [str(word) for word in words]
    import_commands(words)
    try:
        return run(lambda: app(words, exit_on_error=False, print_error=False))
    except SystemExit as ended:
        return ended.code


def test_from_a_csv_to_predictions(shops, capsys):
    kept = shops / "shops.safetensors"
    assert (
        command("fit", shops / "old.csv", "--label", "sold", "--client", "shop", "--save", kept)
        == 0
    )
    told = capsys.readouterr().out
    assert "Left out: row (identifier)" in told
    assert "200 training rows" in told
    assert "Expected squared error" in told
    into = shops / "out.csv"
    assert command("apply", kept, shops / "new.csv", "--into", into) == 0
    with into.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    errors = [(float(row["prediction"]) - float(row["sold"])) ** 2 for row in rows]
    assert np.mean(errors) < 2
    assert {row["model"] for row in rows} == {"own"}
    assert "40 rows" in capsys.readouterr().err


def test_predictions_go_to_standard_output_where_nothing_else_is_said(shops, capsys):
    kept = shops / "shops.safetensors"
    words = (
        "fit",
        shops / "old.csv",
        "--label",
        "sold",
        "--client",
        "shop",
        "--algorithm",
        "fedavg",
        "--save",
        kept,
    )
    assert command(*words) == 0
    capsys.readouterr()
    stranger = shops / "stranger.csv"
    stranger.write_text("shop,price\ns1,9.5\nnobody,9.5\n")
    assert command("apply", kept, stranger) == 0
    out = capsys.readouterr()
    assert out.out.splitlines()[0] == "shop,price,prediction,model"
    assert out.out.splitlines()[2].endswith(",shared")
    assert "1 of clients that the model does not know" in out.err
    assert command("apply", kept, stranger, "--into", shops / "out.xlsx") == 2
    assert "its name must end in .csv or .parquet" in capsys.readouterr().err
    assert command("apply", kept, stranger, "--into", shops / "out.parquet") == 0
    written = pl.read_parquet(shops / "out.parquet").with_columns(pl.col("prediction").round(9))
    read = pl.read_csv(out.out.encode()).with_columns(pl.col("prediction").round(9))
    assert written.equals(read)


def test_levels_that_the_model_has_not_seen_are_counted(shops, capsys):
    sizes = pl.Series(["small", "large"] * 100)
    pl.read_csv(shops / "old.csv").with_columns(size=sizes).write_csv(shops / "sizes.csv")
    kept = shops / "m.safetensors"
    words = ("--label", "sold", "--client", "shop", "--algorithm", "fedavg", "--save", kept)
    assert command("fit", shops / "sizes.csv", *words) == 0
    (shops / "odd.csv").write_text("shop,price,size\ns1,9.5,huge\ns2,9.5,small\ns2,9.5,tiny\n")
    assert command("apply", kept, shops / "odd.csv") == 0
    assert "unseen levels in size (2)" in capsys.readouterr().err


def test_a_ridge_pulls_personal_models_to_the_shared_one(shops):
    words = ("fit", shops / "old.csv", "--label", "sold", "--client", "shop", "--algorithm", "rtfa")
    apart = []
    for ridge in (1e-9, 1e9):
        kept = shops / "m.safetensors"
        assert command(*words, "--ridge", ridge, "--save", kept) == 0
        fit = fa.Model.load(kept).fit
        apart.append(max(float(np.abs(own - fit.shared).max()) for own in fit.personal.values()))
    assert apart[0] > 1
    assert apart[1] < 1e-6


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (
            (
                "fit",
                "{}/old.csv",
                "--label",
                "sold",
                "--client",
                "shop",
                "--algorithm",
                "fedavg",
                "--ridge",
                "1",
                "--save",
                "{}/m.safetensors",
            ),
            "fedavg has none",
        ),
        (
            ("fit", "{}/old.csv", "--label", "sold", "--client", "shop", "--save", "model.pkl"),
            "save",
        ),
        (
            (
                "fit",
                "{}/old.csv",
                "--label",
                "sold",
                "--client",
                "shop",
                "--algorithm",
                "x",
                "--save",
                "{}/m.safetensors",
            ),
            "x",
        ),
        (("apply", "{}/old.csv", "{}/new.csv"), "old.csv"),
    ],
)
def test_mistakes_get_a_sentence(words, field, shops, capsys):
    assert command(*(word.format(shops) for word in words)) == 2
    told = capsys.readouterr().err
    assert told.startswith("fedasym: ")
    assert field in told
    assert "\n" not in told.strip()
