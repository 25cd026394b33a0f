"""All verbs alike: what a result can do, and that no argument is ignored, on both kinds of
worlds.
"""

import ast
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms.methods import AverageSquares
from fedasym.results import ACCURACY, LOSS, Result
from fedasym.verbs.accuracies import Classification

WORLDS = {
    "population": fa.Population(radius=1, noise=0.5, aspect=2, norm=2),
    "classes": fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2),
}


@pytest.fixture(scope="module")
def runs():
    clients = fa.datasets.synthetic(
        task="classification", clients=6, dimension=4, classes=2, aspect=0.2, seed=3
    )
    return fa.train(["fedavg", "ftfa"], clients, rounds=2, evaluate_every=1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    clients = fa.datasets.synthetic(
        task="classification", clients=6, dimension=4, classes=2, aspect=0.2, seed=3
    )
    folder = tmp_path_factory.mktemp("swept") / "run"
    return fa.sweep(
        ["fedavg", "ftfa"], clients, grid={}, rounds=2, evaluate_every=1, seeds=2, into=folder
    )


MADE = {
    "predict": lambda world: fa.predict(world, ["fedavg", "rtfa"]),
    "predict, a grid": lambda world: fa.predict(
        (
            fa.Population(1, [0.5, 1], 2)
            if isinstance(world, fa.Population)
            else fa.ClassPopulation([1, 2], 1, 2)
        ),
        ["fedavg", "rtfa"],
    ),
    "compare": lambda world: fa.compare("rtfa", "fedavg", world, vary={"radius": (0.5, 3, 4)}),
    "compare, two": lambda world: fa.compare(
        "rtfa", "fedavg", world, vary={"radius": (0.5, 3, 3), "aspect": (1.5, 3, 3)}
    ),
    "fine_tuning": lambda world: fa.fine_tuning(
        world, times=[0, 1, 5], **({"flow": True} if isinstance(world, fa.Population) else {})
    ),
    "simulate": lambda world: fa.simulate(
        world, algorithms=["fedavg", "rtfa"], dimension=30, clients=40, trials=2
    ),
}


def check(result, folder):
    assert isinstance(result, Result)
    assert result.best is not None
    rows = result.table()
    assert rows
    assert all(isinstance(row, dict) for row in rows)
    frame = result.frame()
    assert frame.height == len(rows)
    assert set(frame.columns) == {name for row in rows for name in row}
    assert json.loads(result.to_json())
    text = str(result)
    assert text.splitlines()[0] in result._repr_html_().replace("&#x27;", "'").replace("&gt;", ">")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("verb", MADE)
def test_every_result_of_theory_can_do_the_same(verb, world, tmp_path):
    result = MADE[verb](WORLDS[world])
    check(result, tmp_path)
    if "grid" not in verb:
        assert result.plot(tmp_path / "figure.svg").stat().st_size > 1000


def test_results_of_training_experiments_and_advice_can_do_the_same(runs, swept, tmp_path):
    drawn = fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1)
    rng = np.random.default_rng(0)
    X, ids = rng.standard_normal((120, 2)), np.repeat(list("abcdef"), 20)
    few = fa.Federation.from_arrays(X, (X[:, 0] + rng.standard_normal(120) > 0).astype(int), ids)
    for result in (runs, runs[0], swept, fa.advise(drawn), fa.advise(few)):
        check(result, tmp_path)
        assert result.plot(tmp_path / "figure.svg").stat().st_size > 1000
    assert runs.best in ("fedavg", "ftfa")
    assert swept.best in ("fedavg", "ftfa")
    assert runs[0].best in (0, 1, 2)


FEW = {"algorithms": ["fedavg", "rtfa"]}
BASE = {  # arguments with which every other one can make a difference
    "predict": {"clients": 7, "algorithms": ["maml", "rtfa"]},
    "fine_tuning": {"steps": [1, 4], "step": 0.1, "clients": 7, "algorithm": "maml"},
    "one_step": {},
    "simulate": {"dimension": 20, "clients": 5, "trials": 2, "algorithms": ["maml", "rtfa"]},
}
OTHER = {
    "algorithm": "pfedme",
    "algorithms": ["local_ridge"],
    "ridge": 3.0,
    "clients": 9,
    "member": False,
    "maml_step": 0.01,
    "weights": "uniform",
    "method": "simulate",
    "step": 0.05,
    "steps": [2, 8],
    "flow": True,
    "times": [0.3, 3.0],
    "dimension": 24,
    "trials": 1,
    "seed": 5,
    "features": "rademacher",
    "mode": "sampling",
    "vary": {"radius": [1.0, 2.0]},
    "save": "kept.json",
    "rounds": 5,
    "local_steps": 3,  # of rounds, as what follows: refused without them
    "server_step": 0.01,
    "cohort": 5,
    "mixing": 0.5,
    "privacy": fa.Privacy(clip=0.1, noise_multiplier=1.0),
    "progress": lambda share, text: HEARD.append(share),
    "on": "nothing",
}
HEARD: list[float] = []


@pytest.mark.parametrize("verb", MADE)
def test_a_verb_has_one_kind_of_result_with_the_metric_of_the_world(verb):
    losses, accuracies = (MADE[verb](world) for world in WORLDS.values())
    assert type(losses) is type(accuracies)
    assert (losses.metric, accuracies.metric) == (LOSS, ACCURACY)


def test_no_verb_asks_which_world_it_has():
    asks = [
        f"{file.name}:{node.lineno}"
        for file in Path(fa.__file__).parent.glob("verbs/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and "Population" in ast.unparse(node)
    ]
    assert asks == []


@pytest.mark.parametrize("name", Classification.foreign)
def test_what_classes_have_no_use_for_is_refused_in_a_sentence(name):
    verb = fa.predict if name in inspect.signature(fa.predict).parameters else fa.simulate
    usual = inspect.signature(verb).parameters[name].default
    assert usual == Classification.foreign[name]
    if verb is fa.predict:
        fa.predict(WORLDS["classes"], ["fedavg"], **{name: usual})
    for each in {fa.predict, fa.simulate}:
        if name in inspect.signature(each).parameters:
            with pytest.raises(
                fa.InvalidInput, match=f"^{name} is|^weights are for a list"
            ) as caught:
                each(WORLDS["classes"], **{name: OTHER[name]})
            assert "leave it out with a ClassPopulation" in str(caught.value) or name == "weights"


def test_what_is_no_world_is_refused_by_every_verb():
    calls = [
        fa.predict,
        fa.fine_tuning,
        fa.one_step,
        fa.simulate,
        fa.optimal_ridge,
        fa.optimal_loss,
        fa.noise_threshold,
    ]
    for verb in calls:
        with pytest.raises(fa.InvalidInput, match="world is 3"):
            verb(3)
    with pytest.raises(fa.InvalidInput, match="world is 3"):
        fa.compare("rtfa", "ftfa", 3, vary={"radius": [1, 2]})


def test_references_are_rows_and_never_the_best():
    table = fa.predict(WORLDS["classes"], ["fedavg", "truth", "bayes"])
    assert set(table.references) == {"truth", "bayes"}
    assert table.algorithms == ["fedavg"]
    assert table.best == "fedavg"
    assert fa.predict(WORLDS["population"], ["fedavg"]).references == {}


def test_names_of_classes_are_algorithms_and_reserved():
    pair = fa.Algorithm("probe", AverageSquares(), fa.algorithms.Ridge(6.0))
    table = fa.predict(WORLDS["classes"], ["rtfa_squares", pair, "maml_fo", "local"], ridge=0.1)
    assert (
        table["probe"].ridge == 6.0
    )  # a ridge of least squares is of another scale than the one given
    assert table["probe"].accuracy < table["rtfa_squares"].accuracy
    assert (
        table["maml_fo"].accuracy == table["local"].accuracy
    )  # to convergence whatever was shared is forgotten
    with pytest.raises(fa.InvalidInput, match="which the package has"):
        fa.algorithms.register(
            fa.Algorithm("stopped", fa.algorithms.Average(), fa.algorithms.Keep())
        )
    with pytest.raises(fa.InvalidInput, match="unknown algorithm 'stopped'"):
        fa.predict(WORLDS["population"], ["stopped"])


def answer(verb, world, arguments):
    """What a verb says, or that it refuses."""
    try:
        return (
            getattr(fa, verb)(world, **arguments).to_json()
            if verb != "one_step"
            else repr(fa.one_step(world, **arguments))
        )
    except fa.InvalidInput as reason:
        return type(reason)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("verb", BASE)
def test_an_argument_makes_a_difference_or_is_refused(verb, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = dict(BASE[verb])
    if world == "classes" and verb == "predict":
        base |= {
            "algorithms": ["fedavg", "rtfa"],
            "ridge": 1.0,
        }  # the best one would be looked for at every call
    if world == "classes" and verb == "fine_tuning":
        base = {"steps": [1, 4]}
    if world == "classes" and verb == "simulate":
        base |= {"clients": 40, "algorithms": ["fedavg", "rtfa"], "ridge": 1.0}
    here = WORLDS[world]
    plain = answer(verb, here, base)
    assert isinstance(plain, str), plain
    for name in list(inspect.signature(getattr(fa, verb)).parameters)[1:]:
        if verb == "one_step" and name == "algorithms":
            continue
        if name == "member" and "clients" not in base:
            continue  # of infinitely many clients members and new ones are the same
        told = {**base, name: OTHER[name]}
        if name == "times":
            told = {key: value for key, value in told.items() if key not in ("step", "steps")}
        if name == "flow":
            told |= {"step": 0.1, "steps": [1, 4]}  # one or the other
        if verb == "one_step" and name == "member":
            told["clients"] = 7
        found = answer(verb, here, told)
        if name == "progress":
            assert HEARD
            HEARD.clear()
            continue
        if name == "save" and isinstance(found, str):
            assert (tmp_path / "kept.json").exists()
            continue
        other = (
            answer(verb, here, base | {"clients": 7})
            if verb == "one_step" and name == "member"
            else plain
        )
        assert found != other, f"{verb} ignores {name}"


def test_an_argument_of_rounds_makes_a_difference_or_is_refused():
    base = {"clients": 40, "algorithms": ["fedavg", "rtfa"], "rounds": 5}
    plain = answer("predict", WORLDS["population"], base)
    assert isinstance(plain, str)
    for name in ("local_steps", "server_step", "cohort", "mixing", "dimension"):
        found = answer("predict", WORLDS["population"], base | {name: OTHER[name]})
        assert found != plain, f"predict ignores {name}"
    private = base | {"privacy": OTHER["privacy"], "dimension": 24}
    assert plain != answer("predict", WORLDS["population"], private) != fa.InvalidInput


@pytest.mark.parametrize("world", WORLDS)
def test_an_option_of_a_diagram_makes_a_difference_or_is_refused(world):
    base = {"clients": 40}
    first = "maml" if world == "population" else "fedavg"

    def answer(**more):
        try:
            return fa.compare(
                first, "rtfa", WORLDS[world], vary={"radius": [1.0, 2.0]}, **base | more
            ).to_json()
        except fa.InvalidInput as reason:
            return type(reason)

    plain = answer()
    assert isinstance(plain, str)
    for name in ("ridge", "clients", "member", "maml_step", "weights", "method"):
        assert answer(**{name: OTHER[name]}) != plain, f"compare ignores {name}"


def test_a_notebook_shows_a_bar_by_itself(monkeypatch):
    """Only there, and where no progress is given; it is gone at the end."""
    from types import SimpleNamespace

    from fedasym.core.runtime import NotebookBar, progress_shown

    drawn = []
    cell = SimpleNamespace(update=drawn.append)
    tool = SimpleNamespace(
        HTML=str, display=lambda html, display_id=False: drawn.append(html) or cell
    )
    assert progress_shown(None) is None
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=tool)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", tool)
    monkeypatch.setattr(NotebookBar, "EVERY", 0.0)
    assert progress_shown(print) is print
    fa.simulate(fa.Population(1, 0.5, 2), dimension=20, clients=4, trials=2, algorithms=["fedavg"])
    assert '<progress max="1" value="0.' in drawn[0]
    assert drawn[-1] == ""
