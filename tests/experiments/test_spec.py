"""Experiment files: what they may say, how they come back, and the one sentence that a mistake
gives.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import GRIDS
from fedasym.experiments import PAPER
from fedasym.experiments.fields import lines_of

from .small import TOML, small


def test_a_file_is_read_and_comes_back(tmp_path):
    experiment = small(tmp_path)
    assert experiment.grid == {
        "local": {"local_step": (0.01, 0.3)},
        "fedavg": {"server_step": (0.1, 1.0)},
        "ftfa": {"server_step": (0.1, 1.0), "local_step": (0.01, 0.3)},
    }
    assert experiment.trials.seeds == experiment.trials.splits == (1, 2)
    assert experiment.gains.epochs == (0, "batch", 2)
    again = tmp_path / "again.toml"
    again.write_text(experiment.to_toml())
    assert fa.Experiment.from_toml(again) == experiment


def test_python_says_the_same_as_a_file(tmp_path):
    assert fa.Experiment(**tomllib.loads(TOML)) == small(tmp_path)


def test_a_data_file_is_found_from_where_the_experiment_is(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[data]\nfile = "clients.csv"\nlabel = "y"\n'
    )
    experiment = fa.Experiment.from_toml(tmp_path / "mine.toml")
    assert experiment.data.file == str(tmp_path / "clients.csv")
    assert fa.Experiment(name="mine").with_data("here.csv").data.file == str(
        Path.cwd() / "here.csv"
    )


@pytest.mark.parametrize(
    "name", ["emnist", "cifar100", "shakespeare", "stackoverflow", "digits", "stackexchange"]
)
def test_the_papers_experiments_are_the_papers(name, tmp_path):
    experiment = fa.Experiment.paper(name)
    told = experiment.settings
    assert (experiment.name, experiment.data.features) == (name, name)
    assert (told.rounds, told.evaluate_every, told.cohort, told.local_steps, told.batch) == (
        400,
        50,
        20,
        20,
        32,
    )
    assert (told.personal_epochs, told.inner_step, told.inner_steps, told.protocol) == (
        10,
        0.05,
        5,
        "text",
    )
    assert experiment.grid == {
        algorithm: {axis: tuple(map(float, values)) for axis, values in GRIDS[algorithm].items()}
        for algorithm in experiment.algorithms
    }
    assert len(experiment.trials.seeds) == len(experiment.trials.splits) == 11
    assert experiment.gains.epochs == (0, "batch", 1, 2, 5, 10)
    assert len(experiment.gains.seeds) == 5
    assert ("Stand-in" in experiment.about) == (name in ("digits", "stackexchange"))
    file = tmp_path / "again.toml"
    file.write_text(experiment.to_toml())
    assert fa.Experiment.from_toml(file) == experiment


def test_the_papers_experiments_are_found_by_name():
    assert len(list(PAPER.glob("*.toml"))) == 6
    with pytest.raises(fa.InvalidInput, match="did you mean cifar100"):
        fa.Experiment.paper("cifar10")


def test_a_quick_copy_is_small_and_valid(tmp_path):
    quick = fa.Experiment.paper("cifar100").quick()
    assert quick.name == "cifar100-quick"
    assert quick.data.clients == 30
    assert (quick.settings.rounds, quick.settings.evaluate_every, quick.settings.cohort) == (
        20,
        10,
        None,
    )
    assert all(len(values) <= 2 for axes in quick.grid.values() for values in axes.values())
    assert quick.trials.seeds == quick.trials.splits == quick.gains.seeds == (1, 2, 3)
    file = tmp_path / "quick.toml"
    file.write_text(quick.to_toml())
    assert fa.Experiment.from_toml(file) == quick
    short = small(tmp_path).quick()
    assert short.settings.rounds == 4
    assert short.grid == small(tmp_path).grid


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nam": "a"}, "nam is 'a': there is no such field; did you mean name?"),
        ({}, "name is missing"),
        ({"name": "a/b"}, "name is 'a/b': it names a folder"),
        ({"name": "a", "algorithms": ["ftfo"]}, "did you mean ftfa"),
        ({"name": "a", "algorithms": "ftfa"}, "algorithms is 'ftfa': it must be a list"),
        ({"name": "a", "algorithms": ["ftfa", "ftfa"]}, "ftfa twice"),
        (
            {"name": "a", "settings": {"rounds": "400"}},
            "settings.rounds is '400': it must be a whole number",
        ),
        (
            {"name": "a", "settings": {"rounds": True}},
            "settings.rounds is True: it must be a whole number",
        ),
        (
            {"name": "a", "settings": {"rounds": -1}},
            "settings: rounds is -1: it must be a whole number of at least 0",
        ),
        (
            {"name": "a", "settings": {"local_step": float("inf")}},
            "settings.local_step is inf: it must be a finite number",
        ),
        (
            {"name": "a", "settings": {"protocol": "txt"}},
            "settings.protocol is 'txt': it must be 'text' or 'code'",
        ),
        (
            {"name": "a", "settings": {"bias": True}},
            "settings.bias is True: it is called intercept now; rename it",
        ),
        (
            {"name": "a", "settings": {"intercept": 1}},
            "settings.intercept is 1: it must be true or false",
        ),
        ({"name": "a", "settings": []}, "settings is []: it must be a table of settings"),
        ({"name": "a", "settings": {"evalute_every": 1}}, "did you mean evaluate_every"),
        ({"name": "a", "grid": "papr"}, "did you mean paper"),
        ({"name": "a", "grid": 3}, "grid is 3: it must name settings"),
        ({"name": "a", "grid": {"server_step": []}}, "no values for server_step"),
        ({"name": "a", "grid": {"server_step": [-1]}}, "server_step is -1"),
        ({"name": "a", "grid": {"server_steps": [1]}}, "did you mean server_step"),
        (
            {"name": "a", "grid": {"rounds": [1]}},
            "rounds, which is the same for all: set it under settings",
        ),
        ({"name": "a", "grid": {"ftfa": {"ridge": [1]}}}, "ridge, which ftfa does not use"),
        (
            {"name": "a", "algorithms": ["fedavg"], "grid": {"ftfa": {}}},
            "ftfa, which is not trained",
        ),
        ({"name": "a", "algorithms": ["maml"]}, "the paper has no grid for maml"),
        ({"name": "a", "trials": {"seeds": -1}}, "trials.seeds is -1: it must be how many"),
        (
            {"name": "a", "trials": {"seeds": [1, 1]}},
            "trials.seeds is [1, 1]: a number occurs in it twice",
        ),
        ({"name": "a", "trials": {"splits": 2.5}}, "trials.splits is 2.5"),
        ({"name": "a", "gains": {"algorithms": ["rtfa"]}}, "rtfa, which does not fine-tune"),
        ({"name": "a", "gains": {"algorithms": ["local"]}}, "local, which does not fine-tune"),
        ({"name": "a", "algorithms": ["fedavg"], "gains": {}}, "ftfa, which is not trained"),
        ({"name": "a", "gains": {"epochs": ["bach", 1]}}, "gains.epochs is ['bach', 1]"),
        ({"name": "a", "gains": {"epochs": ["batch"]}}, "gains.epochs is ['batch']"),
        (
            {"name": "a", "data": {}},
            "data: nothing says which data: give one of features, file and synthetic",
        ),
        (
            {"name": "a", "data": {"file": "x", "features": "emnist"}},
            "features and file are both given",
        ),
        (
            {"name": "a", "data": {"features": "emnist", "label": "y"}},
            "label is given, which is for a file",
        ),
        ({"name": "a", "data": {"file": "x", "clients": 0}}, "data.clients is 0"),
        (
            {"name": "a", "data": {"synthetic": {"alfa": 1.0}}},
            "data.synthetic.alfa is 1.0: there is no such field; did you mean",
        ),
        ({"name": "a", "pieces": "small"}, "pieces is 'small': it must be 'fine' or 'coarse'"),
        ({"name": 3, "pieces": "small"}, "(and 1 more problem)"),
    ],
)
def test_a_mistake_gives_one_sentence_in_python_and_in_a_file(tmp_path, given, says):
    with pytest.raises(fa.InvalidInput) as told:
        fa.Experiment(**given)
    assert says in str(told.value)
    assert "\n" not in str(told.value)
    assert "pydantic" not in str(told.value)
    file = tmp_path / "wrong.toml"
    file.write_text("\n".join(lines_of(given, ())))
    with pytest.raises(fa.InvalidInput) as told:
        fa.Experiment.from_toml(file)
    assert str(told.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name = ", "this is not TOML"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"[" * 3000, "this is not TOML"),
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path, content, says):
    file = tmp_path / "wrong.toml"
    file.write_bytes(content)
    with pytest.raises(fa.InvalidInput, match=says) as told:
        fa.Experiment.from_toml(file)
    assert str(file) in str(told.value)
    with pytest.raises(fa.InvalidInput, match="no such file"):
        fa.Experiment.from_toml(tmp_path / "missing.toml")
    with pytest.raises(fa.InvalidInput, match="cannot be read"):
        fa.Experiment.from_toml(tmp_path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 500)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["paper", "ftfa"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["seeds", "ftfa", "server_step", "rounds", "file", "synthetic", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    field=st.sampled_from(
        [
            "name",
            "about",
            "data",
            "algorithms",
            "settings",
            "grid",
            "trials",
            "gains",
            "pieces",
            "other",
        ]
    ),
    value=VALUES,
)
def test_nothing_but_a_sentence_comes_of_nonsense(field, value):
    try:
        fa.Experiment(**{"name": "a", field: value})
    except fa.InvalidInput as reason:
        assert "\n" not in str(reason)  # noqa: PT017


STEPS = st.lists(st.floats(0, 1e6), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(
    about=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    rounds=st.integers(0, 10**6),
    grid=st.fixed_dictionaries({"server_step": STEPS}, optional={"local_step": STEPS}),
    seeds=st.integers(0, 30) | st.lists(st.integers(0, 2**63 - 1), max_size=4, unique=True),
    pieces=st.sampled_from(["fine", "coarse"]),
)
def test_every_experiment_comes_back_from_its_file(
    tmp_path_factory, about, rounds, grid, seeds, pieces
):
    experiment = fa.Experiment(
        name="a",
        about=about,
        settings={"rounds": rounds},
        grid=grid,
        trials={"seeds": seeds},
        pieces=pieces,
    )
    file = tmp_path_factory.mktemp("files") / "a.toml"
    file.write_text(experiment.to_toml(), encoding="utf-8", newline="")
    assert fa.Experiment.from_toml(file) == experiment


def test_the_schema_knows_every_field():
    schema = json.loads(fa.Experiment.schema_text())
    assert set(schema["properties"]) == set(fa.Experiment.model_fields)
    assert schema["required"] == ["name"]
    assert {"const": "paper"} in schema["properties"]["grid"]["anyOf"]
    assert schema["$defs"]["Trials"]["properties"]["seeds"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 0,
    }


def test_an_experiment_says_what_it_is_about_to_do(tmp_path):
    text = str(small(tmp_path))
    assert "local 2, fedavg 2, ftfa 4" in text
    assert "seeds 1, 2; splits 1, 2" in text
    assert "epochs 0, batch, 2" in text
    assert small(tmp_path)._repr_html_().startswith("<pre>small")


@pytest.mark.parametrize("package", ["pydantic", "polars"])
def test_a_missing_package_is_named_in_a_sentence(package, monkeypatch):
    import fedasym.experiments as whole

    monkeypatch.setattr(fa, "experiments", whole)  # back again after it: importing sets it anew
    ours = [name for name in sys.modules if name.startswith("fedasym.experiments")]
    with patch.dict(sys.modules, {package: None}):
        for name in ours:
            del sys.modules[name]
        with pytest.raises(fa.InvalidInput, match=f"need {package}: pip install 'fedasym"):
            fa.run("experiment.toml")


def test_headers_say_what_is_not_as_usual():
    from fedasym.experiments.results import describe_rules

    usual = {"protocol": "text"}
    assert describe_rules(fa.Experiment(name="mine", settings=usual)) == ["protocol text"]
    unusual = {"precision": "float64", "intercept": True, "privacy": {"epsilon": 4, "clip": 1}}
    told = fa.Experiment(name="mine", settings=usual | unusual)
    assert describe_rules(told) == [
        "protocol text with intercept",
        "precision float64",
        "private: epsilon 4, clip 1",
    ]
