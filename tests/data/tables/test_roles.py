"""What each column is: on four real tables, and on made ones."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data.federation import Federation
from fedasym.data.formats import read
from fedasym.data.recipe import Recipe
from fedasym.data.roles import explain_variance, find_combinations

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("FEDASYM_DATA", ROOT / ".." / "shared" / "data")) / "grouped_regression"
real = pytest.mark.skipif(
    not DATA.is_dir(), reason="the grouped tables are absent: set FEDASYM_DATA to their folder"
)
RNG = np.random.default_rng(0)
CLIENTS, N = 30, 600
WHO = np.repeat(np.arange(CLIENTS), N // CLIENTS)
NUMBER = RNG.standard_normal(N)
LABEL = NUMBER + RNG.standard_normal(N)


def made(column, name="column", **options):
    frame = pl.DataFrame({"who": WHO, "x": NUMBER, name: column, "y": LABEL})
    return Federation.from_frame(frame, label="y", client="who", **options).recipe


def reasons(recipe):
    return {each.name: each.reason.value for each in recipe.left}


@real
def test_pupils_in_schools():
    recipe = read(DATA / "Exam.csv", label="normexam", client="school").recipe
    assert reasons(recipe) == {
        "rownames": "identifier",
        "student": "identifier",
        "type": "combination",
    }
    assert "sex=M" in recipe.names
    shared = {feature.column for feature in recipe.features if not feature.personal}
    assert shared == {"schgend", "schavg", "vr"}


@real
def test_a_column_that_others_add_up_to():
    recipe = read(DATA / "Hsb82.csv", label="mAch", client="school").recipe
    assert recipe.names == ("minrty=Yes", "sx=Male", "ses", "meanses", "sector=Catholic")
    assert recipe.personal.tolist() == [True, True, True, False, False]
    (combination,) = [each for each in recipe.left if each.name == "cses"]
    assert combination.of == ("ses", "meanses")


@real
def test_children_in_schools_are_groups():
    recipe = read(DATA / "egsingle.csv", label="math", client="schoolid").recipe
    assert reasons(recipe) == {"rownames": "identifier", "childid": "nested"}
    (nested,) = recipe.nested
    assert (nested.column, nested.groups) == ("childid", 1721)
    assert 0.2 < nested.explained < 0.3
    assert not recipe.personal[
        [recipe.names.index(name) for name in ("size", "lowinc", "mobility")]
    ].any()


@real
def test_days_are_no_identifier():
    recipe = read(DATA / "sleepstudy.csv", label="Reaction", client="Subject").recipe
    assert recipe.names == ("Days",)
    assert reasons(recipe) == {"rownames": "identifier"}


WITHIN = np.tile(np.arange(N // CLIENTS), CLIENTS)
PUPILS = np.concatenate([RNG.permutation(400)[: N // CLIENTS] for _ in range(CLIENTS)])
ROSTER = np.concatenate([np.arange(1, size + 1) for size in (*[10] * 29, 310)])
AMOUNTS = np.round(np.exp(RNG.normal(10, 1, N))).astype(int)


@pytest.mark.parametrize(
    ("column", "name", "reason"),
    [
        (np.arange(N), "n", "identifier"),
        (np.arange(N)[::-1] * 3, "n", "identifier"),
        (RNG.permutation(N) + 500, "n", "identifier"),
        (RNG.choice(9 * 10**7, N, replace=False) + 10**7, "n", "identifier"),
        (RNG.choice(10**6, N, replace=False), "customer_id", "identifier"),
        ([f"user {i}" for i in RNG.permutation(N)], "n", "identifier"),
        (PUPILS, "pupil", "identifier"),
        (WITHIN, "day", None),  # the same days in every client
        (WITHIN, "n", None),
        (np.arange(N) / 1.0, "n", None),  # floats are measured
        (AMOUNTS, "price", None),  # amounts rarely repeat, as chance has it
        (RNG.integers(5, size=N), "n", None),
        (WHO * 5 + RNG.integers(5, size=N), "ward", "nested"),
        ([f"{who}/{RNG.integers(5)}" for who in WHO], "ward", "nested"),
        (RNG.choice(["a", "b"], N), "sex", None),
        ([3] * N, "n", "constant"),
        (["a"] * N, "n", "constant"),
        (2 * NUMBER + 1, "n", "combination"),
        (["2024-05-31"] * 10 + ["2024-06-01"] * (N - 10), "n", "date"),
        ([None] * N, "n", "empty"),
        ([[1.0]] * N, "n", "lists"),
    ],
)
def test_made_columns(column, name, reason):
    recipe = made(column, name)
    assert reasons(recipe).get(name) == reason
    assert (reason is None) == any(feature.column == name for feature in recipe.features)


def test_numbers_that_restart_in_clients_of_all_sizes_number_persons():
    who = np.repeat(np.arange(30), (*[10] * 29, 310))
    frame = pl.DataFrame({"who": who, "x": NUMBER, "pupil": ROSTER, "y": LABEL})
    assert reasons(Federation.from_frame(frame, label="y", client="who").recipe) == {
        "pupil": "identifier"
    }


def test_whole_numbers_with_missing_cells_are_whole_and_floats_are_not():
    numbers = [None if i == 7 else float(i) for i in range(N)]
    assert reasons(made(numbers, "n", missing="drop")) == {"n": "identifier"}
    assert reasons(made(np.arange(N).astype(float), "n")) == {}


@pytest.mark.parametrize(
    "column", [[3] * N, 2 * NUMBER, np.arange(N), ["2024-05-31"] * N, [f"{i}" for i in range(N)]]
)
def test_named_features_stay_whatever_they_are(column):
    recipe = made(column, "n", features=["x", "n"])
    assert {feature.column for feature in recipe.features} == {"x", "n"}


def test_roles_go_first():
    recipe = made(np.arange(N), "n", roles={"n": "number", "x": "shared"})
    assert recipe.names == ("x", "n")
    assert recipe.personal.tolist() == [False, True]
    assert repr(recipe) == "Recipe(2 features of 2 columns, label 'y')"
    assert reasons(made(NUMBER, "n", roles={"n": "ignore"})) == {"n": "ignored"}
    assert reasons(made(RNG.integers(3, size=N), "zip", roles={"zip": "identifier"})) == {
        "zip": "identifier"
    }
    grades = made(RNG.integers(3, size=N), "grade", roles={"grade": "category+shared"})
    assert sum(name.startswith("grade=") for name in grades.names) == 2
    assert grades.personal.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        ({"nn": "number"}, "unknown column in roles 'nn'"),
        ({"n": "nmber"}, "unknown role of column 'n' 'nmber': did you mean number"),
        ({"y": "number"}, "roles gives 'y' .* this column is the label"),
        ({"n": "number+category"}, "contradicts itself"),
        ({"n": "ignore+shared"}, "contradicts itself"),
        ("n", "roles is 'n': give a column and its role"),
    ],
)
def test_wrong_roles_are_refused(roles, says):
    with pytest.raises(InvalidInput, match=says):
        made(NUMBER, "n", roles=roles)


def test_a_rare_level_keeps_its_name_where_it_would_be_alone():
    assert made(["a"] * (N - 1) + ["b"], "n", split=["train"] * N).names == ("x", "n=b")
    two = made(["a"] * (N - 2) + ["b", "c"], "n", split=["train"] * N)
    assert two.names == ("x", "n=other")


def test_columns_of_clients_serve_the_shared_model():
    recipe = made(RNG.standard_normal(CLIENTS)[WHO], "size")
    assert recipe.personal.tolist() == [True, False]
    single = pl.DataFrame({"who": np.arange(40), "x": np.arange(40) / 7, "y": np.arange(40) / 3})
    assert Federation.from_frame(single, label="y", client="who").recipe.personal.all()
    assert made(
        RNG.standard_normal(CLIENTS)[WHO], "size", roles={"size": "personal"}
    ).personal.all()


def test_the_share_that_nested_groups_explain_is_estimated():
    clients, groups, rows = 200, 6, 4
    g = np.repeat(np.arange(clients * groups), rows)
    c = g // groups
    y = (
        3 * RNG.standard_normal(clients)[c]
        + 1.0 * RNG.standard_normal(clients * groups)[g]
        + 1.0 * RNG.standard_normal(g.size)
    )
    assert explain_variance(g, c, y) == pytest.approx(0.5, abs=0.05)
    assert explain_variance(g, c, RNG.standard_normal(g.size)) == pytest.approx(0, abs=0.05)
    assert explain_variance(np.arange(10), np.zeros(10, int), RNG.standard_normal(10)) is None


def test_a_recipe_says_which_groups_it_left_out_and_what_they_explain():
    ward = WHO * 5 + np.tile(np.arange(5), N // 5)
    label = LABEL + 2.0 * (ward % 5)
    frame = pl.DataFrame({"who": WHO, "x": NUMBER, "ward": ward, "y": label})
    recipe = Federation.from_frame(frame, label="y", client="who").recipe
    (nested,) = recipe.nested
    assert nested.groups == 150
    assert nested.explained > 0.5
    told = " ".join(str(recipe).split())
    assert f"ward: 150 groups within the clients, left out; {nested.explained:.0%} of" in told
    assert Recipe.from_json(recipe.to_json()) == recipe
    classes = frame.with_columns(y=pl.Series(label > 4))
    recipe = Federation.from_frame(classes, label="y", client="who").recipe
    assert recipe.nested[0].explained is None
    assert "ward: 150 groups within the clients, left out." in " ".join(str(recipe).split())
    both = Federation.from_frame(frame, label=["y", "x"], client="who", features=["ward"])
    assert str(both.recipe).startswith("labels 'y', 'x' have numbers")


def test_nested_shares_agree_with_a_mixed_model_by_moments():
    """Balanced groups: the share is 1 - MSW / (total within clients), computed by pairs of rows of
    a group.
    """
    clients, groups, rows = 40, 5, 3
    g = np.repeat(np.arange(clients * groups), rows)
    y = RNG.standard_normal(clients * groups)[g] + RNG.standard_normal(g.size)
    table = y.reshape(clients, groups, rows)
    within = table.var(axis=2, ddof=1).mean()
    between = table.mean(axis=2).var(axis=1, ddof=1).mean() - within / rows
    assert explain_variance(g, g // groups, y) == pytest.approx(
        between / (between + within), rel=1e-12
    )


def test_combinations_are_found_in_order_and_nowhere_by_chance():
    X = RNG.standard_normal((500, 6))
    X = np.column_stack(
        [X, X[:, 0] - 3 * X[:, 4], X[:, 5] + 1e-5 * RNG.standard_normal(500), X @ np.ones(6)]
    )
    assert find_combinations(X - X.mean(0)) == {6: [0, 4], 8: [0, 1, 2, 3, 4, 5]}
    fixed = np.zeros(9, bool)
    fixed[6] = True
    assert find_combinations(X - X.mean(0), fixed) == {4: [0, 6], 8: [0, 1, 2, 3, 5, 6]}
    many = RNG.standard_normal((20000, 3))
    assert find_combinations(np.column_stack([many, many.sum(1)])) == {3: [0, 1, 2]}
    assert (
        find_combinations(RNG.standard_normal((10, 30))) == {}
    )  # more features than rows: nothing is said
