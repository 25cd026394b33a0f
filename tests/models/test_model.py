"""Models that are kept: raw rows in, predictions out, the same after a file."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedasym as fa
from fedasym.exact import LinearFit
from fedasym.exact.classes import ClassFit

SHOPS = ["north", "south", "east", "west", "old town"]


def table(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    shop = rng.integers(0, 5, rows)
    price, member = rng.normal(10, 3, rows), rng.choice(["yes", "no"], rows)
    sold = 40 + 5 * shop - (2 + 0.3 * shop) * price + 4 * (member == "yes") + rng.normal(0, 1, rows)
    frame = {
        "id": np.arange(rows),
        "shop": np.array(SHOPS)[shop],
        "price": price,
        "member": member,
        "sold": sold,
    }
    return pl.DataFrame(frame)


def federation(frame, label="sold", **options):
    return fa.Federation.from_frame(frame, label=label, client="shop", **options)


def test_a_model_predicts_raw_rows_as_its_fit_predicts_their_features():
    frame = table()
    data = federation(frame)
    model = fa.fit(data)
    features, _ = data.recipe.apply(frame)
    assert model.algorithm in ("rtfa", "pfedme", "ftfa")
    np.testing.assert_allclose(
        model.predict(frame), model.fit.predict(features, client=frame["shop"].to_list())
    )
    np.testing.assert_allclose(model.predict(frame.to_pandas()), model.predict(frame))
    error = np.mean((model.predict(frame) - frame["sold"].to_numpy()) ** 2)
    assert error < 1.2
    assert "Expected squared error" in str(model)


@pytest.mark.parametrize("label", ["sold", "busy"])
def test_a_kept_model_is_the_same(label, tmp_path):
    frame = table().with_columns(
        busy=pl.when(pl.col("sold") > 25).then(pl.lit("busy")).otherwise(pl.lit("quiet"))
    )
    frame = frame.drop("sold" if label == "busy" else "busy")
    model = fa.fit(federation(frame, label))
    again = fa.Model.load(model.save(tmp_path / "model.safetensors"))
    assert (again.algorithm, again.names, again.task) == (model.algorithm, model.names, model.task)
    assert str(again) == str(model)
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    if label == "busy":
        np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
        assert np.mean(model.predict(frame) == frame["busy"].to_numpy()) > 0.9
    else:
        with pytest.raises(fa.InvalidInput, match="no probabilities"):
            model.predict_proba(frame)


def test_unknown_clients_get_the_shared_model_and_are_told_so():
    frame = table()
    model = fa.fit(federation(frame))
    new = frame.head(2).with_columns(shop=pl.Series(["north", "moon"]))
    told, counts = model.apply(new)
    assert told["model"].to_list() == ["own", "shared"]
    features, _ = model.recipe.apply(new)
    np.testing.assert_allclose(
        told["prediction"][1], features[1] @ model.fit.shared[:-1] + model.fit.shared[-1]
    )
    assert counts.unseen == {}
    assert told.columns == [*frame.columns, "prediction", "model"]


def test_unseen_levels_are_counted():
    frame = table()
    model = fa.fit(federation(frame))
    odd = frame.head(3).with_columns(member=pl.lit("perhaps"))
    assert model.apply(odd)[1].unseen == {"member": 3}


def test_what_cannot_be_applied_is_refused_in_words(tmp_path):
    frame = table()
    model = fa.fit(federation(frame))
    with pytest.raises(fa.InvalidInput, match="'price'"):
        model.predict(frame.drop("price"))
    with pytest.raises(fa.InvalidInput, match="column 'prediction' already"):
        model.apply(frame.with_columns(prediction=pl.lit(1.0)))
    arrays = fa.fit(
        fa.Federation.from_arrays(np.eye(8, 2), np.arange(8.0), list("aabbccdd")), "fedavg"
    )
    with pytest.raises(fa.InvalidInput, match="fitted to arrays"):
        arrays.apply(frame)
    with pytest.raises(fa.InvalidInput, match="safetensors"):
        model.save(tmp_path / "model.pickle")
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(b"nothing")
    with pytest.raises(fa.InvalidInput, match="is not a model that fedasym saved"):
        fa.Model.load(damaged)
    with pytest.raises(fa.InvalidInput, match="federation is a DataFrame"):
        fa.fit(pd.DataFrame())


@pytest.mark.parametrize(
    "name", ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "maml", "pfedme"]
)
def test_exact_fits_are_kept_with_all_their_numbers(name, tmp_path):
    rng = np.random.default_rng(0)
    X, owner = rng.standard_normal((60, 3)), np.repeat(list("abc"), 20)
    y = X.sum(1) + rng.standard_normal(60)
    fit = fa.linear.fit(name, X, y, clients=owner)
    again = LinearFit.load(fit.save(tmp_path / "fit.safetensors"))
    assert type(again.algorithm.server) is type(fit.algorithm.server)
    assert again.algorithm.name == name
    np.testing.assert_array_equal(again.predict(X, client=owner), fit.predict(X, client=owner))
    assert (again.noise, again.radius, again.samples, again.weights) == (
        fit.noise,
        fit.radius,
        fit.samples,
        fit.weights,
    )
    if fit.ridge is not None:
        np.testing.assert_array_equal(list(again.ridge.values()), list(fit.ridge.values()))
    with pytest.raises(fa.InvalidInput, match="is not a fit of classes"):
        ClassFit.load(tmp_path / "fit.safetensors")
    with pytest.raises(fa.InvalidInput, match="is not a model"):
        fa.Model.load(tmp_path / "fit.safetensors")


def test_few_clients_have_a_model_all_the_same():
    frame = table().filter(pl.col("shop").is_in(["north", "south"]))
    model = fa.fit(federation(frame, split=(1.0, 0.0, 0.0)))
    assert model.algorithm == "rtfa"
    assert "no advice" in str(model)
