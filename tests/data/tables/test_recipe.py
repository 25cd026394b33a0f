"""Recipes: fitted on training rows, applied to any rows, kept in files."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data.federation import Federation
from fedasym.data.recipe import Recipe

RNG = np.random.default_rng(1)
N = 300
FRAME = pl.DataFrame(
    {
        "shop": RNG.choice(["north", "south", "east"], N),
        "price": RNG.normal(50, 10, N),
        "stock": RNG.integers(100, size=N),
        "day": RNG.choice(["mo", "tu", "we"], N, p=[0.5, 0.3, 0.2]),
        "member": RNG.random(N) < 0.4,
        "when": pl.date_range(
            pl.date(2024, 1, 1), pl.date(2024, 1, 1) + pl.duration(days=N - 1), eager=True
        ),
        "sold": RNG.normal(0, 1, N),
    }
)
NAMED = {"label": "sold", "client": "shop"}


def fit(frame=FRAME, **options):
    return Federation.from_frame(frame, **NAMED, **options)


def test_features_are_centred_and_scaled_by_the_training_rows():
    federation = fit()
    assert federation.names == ("price", "stock", "day=tu", "day=we", "member=true")
    train = federation.features[federation.split == 0]
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(train.std(0), 1, rtol=1e-12)
    raw = fit(scale="none")
    prices, of_training = raw.features[:, 0], raw.features[raw.split == 0, 0]
    np.testing.assert_allclose(
        federation.features[:, 0], (prices - of_training.mean()) / of_training.std(), rtol=1e-10
    )
    assert set(np.unique(raw.features[:, 2])) == {0.0, 1.0}
    assert federation.intercept
    assert federation.recipe.intercept


def test_test_rows_change_nothing_of_the_training_rows():
    split = RNG.choice(["train", "validation", "test"], N, p=[0.6, 0.2, 0.2])
    one = fit(split=split)
    tested = pl.Series(split) != "train"
    other = FRAME.with_columns(
        price=pl.when(tested).then(pl.col("price") * 7 + 3).otherwise(pl.col("price")),
        day=pl.when(tested).then(pl.lit("su")).otherwise(pl.col("day")),
    )
    two = fit(other, split=split)
    train = one.split == 0
    np.testing.assert_array_equal(one.features[train], two.features[train])
    assert not np.array_equal(one.features[~train], two.features[~train])
    assert one.recipe.features == two.recipe.features


@pytest.mark.parametrize(
    "options",
    [{}, {"scale": "none"}, {"dates": "number"}, {"intercept": False}, {"missing": "indicator"}],
)
def test_applied_to_its_own_rows_it_gives_the_federations_features(options):
    federation = fit(**options)
    X, counts = federation.recipe.apply(FRAME)
    order = np.argsort([federation.clients.index(name) for name in FRAME["shop"]], kind="stable")
    np.testing.assert_array_equal(X[order], federation.features)
    assert counts == ({}, {})
    names = federation.recipe.read_clients(FRAME)
    assert [names[row] for row in order] == [federation.clients[i] for i in federation.owner]


def test_pandas_and_text_give_the_same():
    expected = fit(dates="number")
    texts = FRAME.with_columns(
        pl.col(name).cast(pl.String) for name in ("price", "stock", "member", "when")
    )
    categories = FRAME.to_pandas().astype({"day": "category", "stock": "Int64", "price": object})
    for frame in (FRAME.to_pandas(), texts, FRAME.lazy(), FRAME.to_arrow(), categories):
        read = fit(frame, dates="number")
        assert read.names == expected.names
        np.testing.assert_allclose(read.features, expected.features, rtol=1e-9, atol=1e-12)
        X, _ = expected.recipe.apply(frame)
        np.testing.assert_allclose(X, expected.recipe.apply(FRAME)[0], rtol=1e-9, atol=1e-12)


def test_levels_that_were_not_seen_and_columns_that_are_not_there():
    rare = [f"rare {i}" for i in range(6)]
    frame = FRAME.with_columns(day=pl.Series([*rare, *FRAME["day"][6:]]))
    split = ["train"] * 250 + ["test"] * 50
    recipe = fit(frame, scale="none", split=split).recipe
    assert "day=other" in recipe.names
    row = FRAME.head(4).with_columns(day=pl.Series(["su", "rare 1", "tu", "mo"]))
    X, counts = recipe.apply(row)
    assert X[:, recipe.names.index("day=other")].tolist() == [1, 1, 0, 0]
    assert counts.unseen == {"day": 1}  # rare ones were seen
    plain = fit(scale="none").recipe
    X, counts = plain.apply(row)
    assert X[:2, [plain.names.index("day=tu"), plain.names.index("day=we")]].tolist() == [
        [0, 0],
        [0, 0],
    ]
    assert counts.unseen == {"day": 2}
    with pytest.raises(
        InvalidInput,
        match="lacks 'day', 'member', of which features are made: there is 'shop', 'price'",
    ):
        plain.apply(row.drop("day", "member"))
    with pytest.raises(InvalidInput, match="lacks the client column 'shop'"):
        plain.read_clients(row.drop("shop"))
    with pytest.raises(InvalidInput, match=r"missing values in 'price' \(row 0\): fill them first"):
        plain.apply(row.with_columns(price=pl.Series([None, 1.0, 2.0, 3.0])))
    with pytest.raises(
        InvalidInput, match="'price', row 0 holds 'cheap' where numbers are expected"
    ):
        plain.apply(row.with_columns(price=pl.Series(["cheap", "1", "2", "3"])))
    with pytest.raises(InvalidInput, match="the table has no rows"):
        plain.apply(row[:0])
    with pytest.raises(InvalidInput, match=r"'price', row 1 holds .* at most 1e\+100"):
        plain.apply(row.with_columns(price=pl.Series([1.0, -1e149, 2.0, 3.0])))
    with pytest.raises(InvalidInput, match="'when' holds no dates"):
        fit(dates="number").recipe.apply(row.with_columns(when=pl.lit("soon")))


def test_features_follow_the_recipe_whatever_the_order_of_its_columns():
    recipe = fit().recipe
    order = [3, 0, 4, 2, 1]
    turned = replace(recipe, features=tuple(recipe.features[at] for at in order))
    expected, _ = recipe.apply(FRAME)
    np.testing.assert_array_equal(turned.apply(FRAME)[0], expected[:, order])


def test_an_indicator_and_a_column_of_the_same_name_are_told_apart():
    frame = FRAME.with_columns((pl.col("stock") / 2).alias("day=tu"))
    read = fit(frame, features=["day", "day=tu"], scale="none")
    assert read.names == ("day=tu", "day=we", "day=tu (2)")
    rows = np.argsort([read.clients.index(name) for name in FRAME["shop"]], kind="stable")
    np.testing.assert_array_equal(read.features[:, 0], (FRAME["day"] == "tu").to_numpy()[rows])
    np.testing.assert_array_equal(read.features[:, 2], (FRAME["stock"] / 2).to_numpy()[rows])
    assert read.recipe.columns[1].name == "day=tu"


def test_dates_and_numbers_may_be_levels():
    days = FRAME.with_columns(when=pl.Series([date(2024, 5, 1 + at % 3) for at in range(N)]))
    read = fit(days, features=["when"], roles={"when": "category"}, scale="none")
    assert len(read.names) == 2
    assert read.features.sum(0).tolist() == [100, 100]
    half = FRAME.with_columns(price=pl.Series([0.5 + at % 3 for at in range(N)]))
    read = fit(half, features=["price"], roles={"price": "category"}, scale="none")
    assert set(read.names) < {"price=0.5", "price=1.5", "price=2.5"}
    assert read.features.sum(0).tolist() == [100, 100]


def test_dates_may_be_classes():
    days = FRAME.with_columns(sold=pl.Series([date(2024, 5, 1 + at % 2) for at in range(N)]))
    read = fit(days, task="classification")
    assert [name[:10] for name in read.classes] == ["2024-05-01", "2024-05-02"]
    assert read.class_counts().sum(0).tolist() == [150, 150]


def test_many_levels_are_pooled():
    levels = [f"l{i:03}" for i in RNG.integers(200, size=3000)]
    frame = pl.DataFrame(
        {"shop": RNG.integers(5, size=3000), "level": levels, "sold": RNG.normal(size=3000)}
    )
    recipe = fit(frame).recipe
    assert len(recipe.features) <= 30
    assert recipe.names[-1] == "level=other"


def test_the_reference_is_the_commonest_level_and_without_an_intercept_there_is_none():
    assert fit().recipe.columns[2].reference == "mo"
    without = fit(intercept=False)
    assert not without.intercept
    assert {"day=mo", "day=tu", "day=we"} <= set(without.names)
    train = without.features[without.split == 0]
    np.testing.assert_allclose((train**2).mean(0), 1, rtol=1e-12)  # not centred: the origin stays


def test_dates_are_left_out_or_days_since_the_first():
    assert "when" in {each.name for each in fit().recipe.left}
    raw = fit(dates="number", scale="none")
    days = raw.features[:, raw.names.index("when")]
    assert days[raw.split == 0].min() == 0
    assert fit(roles={"when": "number"}).names[-1] == "when"
    with pytest.raises(InvalidInput, match="written year first"):
        fit(
            FRAME.with_columns(when=pl.Series([f"{i % 28 + 1}/5/2024" for i in range(N)])),
            dates="number",
        )


@pytest.mark.parametrize("ending", [".parquet", ".safetensors"])
def test_recipes_are_saved_with_federations(tmp_path, ending):
    federation = fit(missing="mean", dates="number")
    path = federation.save(tmp_path / f"a{ending}")
    back = (
        Federation.from_parquet(path) if ending == ".parquet" else Federation.from_safetensors(path)
    )
    assert back.recipe == federation.recipe
    assert back.names == federation.names
    np.testing.assert_array_equal(back.recipe.apply(FRAME)[0], federation.recipe.apply(FRAME)[0])
    with pytest.raises(InvalidInput, match="recipe makes 5 features and there are 2"):
        replace(fit(), features=federation.features[:, :2], names=None, personal=None)


def test_json_is_checked_field_by_field():
    held = json.loads(fit().recipe.to_json())
    assert Recipe.from_json(json.dumps(held)) == fit().recipe
    wrong = [
        held | {"format": "fedasym recipe 2"},
        held | {"scale": "double"},
        held | {"rows": -1},
        held | {"extra": 1},
        {name: value for name, value in held.items() if name != "columns"},
        held | {"columns": "no"},
        held | {"nested": [{"column": "ward", "groups": 3, "explained": 1.5}]},
        held | {"left": {}},
        held | {"columns": held["columns"][:1]},
        held | {"features": []},
        held | {"features": [{**held["features"][0], "spread": 0}, *held["features"][1:]]},
        held
        | {"features": [{**held["features"][0], "centre": float("nan")}, *held["features"][1:]]},
        held | {"features": [held["features"][0]] * 2},
        held | {"features": [{**held["features"][2], "level": "su"}]},
        held | {"left": [{"name": "a", "reason": "boredom", "of": []}]},
        held | {"target": {**held["target"], "task": "guess"}},
        [],
        None,
    ]
    for each in wrong:
        with pytest.raises(InvalidInput, match="recipe"):
            Recipe.from_json(json.dumps(each))
    for text in ("", "{", "[" * 10**5, "\x00"):
        with pytest.raises(InvalidInput, match="recipe"):
            Recipe.from_json(text)


def test_clients_are_named_as_in_the_federation():
    whole = fit(FRAME.with_columns(shop=pl.Series(RNG.integers(3, size=N)))).recipe
    assert whole.read_clients(pl.DataFrame({"shop": ["1", " 2"]})) == [1, 2]
    assert whole.read_clients(pl.DataFrame({"shop": [1.0, 9.0]})) == [1, 9]
    assert whole.read_clients(pd.DataFrame({"shop": [1, 9]})) == [1, 9]
    assert fit().recipe.read_clients(pl.DataFrame({"shop": [7, 8]})) == ["7", "8"]
    for column, says in (
        (["a"], "'a': the federation's clients are whole"),
        ([None], "empty in 1 rows"),
        ([0.5], "is 0.5"),
    ):
        with pytest.raises(InvalidInput, match=says):
            whole.read_clients(pl.DataFrame({"shop": column}))


def test_reading_a_table_starts_neither_jax_nor_torch_nor_pandas(tmp_path):
    FRAME.write_csv(tmp_path / "a.csv")
    code = (
        "import sys, fedasym as fa; f = fa.datasets.read(sys.argv[1], label='sold', client='shop');"
        " f.recipe.describe();print([name for name in ('jax', 'torch', 'pandas') if name in"
        " sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.csv")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
