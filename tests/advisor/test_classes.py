"""The verb with class labels: what it recommends, refuses, prints and proves wrong."""

import json

import numpy as np
import pandas as pd
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.confirmation import as_federation, sample_clients
from fedasym.cli import app, import_commands, run

import_commands(["advise"])


@pytest.fixture(scope="module")
def drawn(class_world):
    return class_world.draw(1)


@pytest.fixture(scope="module")
def advice(drawn):
    return advise(drawn[0], drawn[1], intercept=False)


@pytest.fixture(scope="module")
def many(class_world):
    return class_world.but(classes=4, centre=2.0, radius=2.0).draw(2)


@pytest.fixture(scope="module")
def many_advice(many):
    return advise(many[0], many[1], intercept=False)


def test_the_truth_is_in_the_intervals(class_world, advice, many_advice):
    for found, truth in (
        (advice, class_world),
        (many_advice, class_world.but(centre=2.0, radius=2.0)),
    ):
        assert found.population.radius.low < truth.radius < found.population.radius.high
        assert found.population.centre.low < truth.centre < found.population.centre.high


def test_predictions_are_those_of_predict_on_the_estimates(advice):
    world = advice.population.world
    for member, field in ((True, "accuracy"), (False, "new")):
        table = fa.predict(world, ["fedavg"], clients=40, member=member)
        assert getattr(advice.predictions["fedavg"], field).value == pytest.approx(
            table["fedavg"].accuracy, abs=1e-9
        )
        at_ridge = fa.predict(
            world, ["rtfa"], ridge=advice.predictions["rtfa"].ridge, clients=40, member=member
        )
        assert getattr(advice.predictions["rtfa"], field).value == pytest.approx(
            at_ridge["rtfa"].accuracy, abs=1e-9
        )
    best = fa.predict(world, ["rtfa"], clients=40)["rtfa"]
    assert advice.predictions["rtfa"].accuracy.value == pytest.approx(best.accuracy, abs=2e-4)
    assert advice.predictions["rtfa"].log_loss.value == pytest.approx(best.log_loss, rel=0.01)
    assert advice.predictions["local"].accuracy.value == pytest.approx(
        fa.predict(world, ["ftfa"])["ftfa"].accuracy, abs=1e-9
    )


def test_predictions_for_more_classes_are_near_those_of_infinitely_many_clients(many_advice):
    table = fa.predict(many_advice.population.world, ["fedavg", "rtfa", "local_ridge"])
    for name, row in table.items():
        found = many_advice.predictions[name].accuracy.value
        assert found <= row.accuracy + 2e-3  # 40 clients share a worse model than infinitely many
        assert found == pytest.approx(row.accuracy, abs=0.03)
    assert many_advice.predictions["local_ridge"].accuracy.value == pytest.approx(
        table["local_ridge"].accuracy, abs=2e-3
    )


def test_the_stopping_time_is_that_of_the_clock(advice):
    path = fa.fine_tuning(advice.population.world, times=[advice.steps.time])
    assert path.ridge[0] == pytest.approx(advice.ridge, rel=0.02)
    assert advice.steps.step * advice.steps.steps == pytest.approx(advice.steps.time, rel=0.5)
    steps = advice.steps  # fa.train's softmax moves two columns: twice as far in one weight vector
    assert 2 * steps.local_step * steps.epochs * 2 == pytest.approx(
        steps.time, rel=1e-6
    )  # 50 samples: 2 batches of 32


def test_samples_agree_with_the_model_where_it_holds(advice, many_advice):
    for found in (advice, many_advice):
        for name in ("fedavg", "rtfa", "local_ridge"):
            row = found.predictions[name]
            assert row.measured == pytest.approx(row.expected, abs=0.035)
        assert not found.ranking_aid


def test_measured_accuracies_are_as_predicted(class_world, drawn, advice):
    """Models fitted by another road, tested on fresh samples."""
    from sklearn.linear_model import LogisticRegression

    X, y, theta = drawn
    rng = np.random.default_rng(0)
    shared = (
        LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-6)
        .fit(np.concatenate(X), np.concatenate(y))
        .coef_[0]
    )
    alone, together = [], []
    for x, labels, truth in zip(X, y, theta, strict=True):
        fresh = rng.standard_normal((4000, 50)) * np.sqrt(class_world.eigenvalues)
        p = 1 / (1 + np.exp(-fresh @ truth[:, 0]))
        lam = advice.predictions["local_ridge"].ridge * len(x)
        own = LogisticRegression(C=1 / lam, fit_intercept=False).fit(x, labels).coef_[0]
        for model, kept in ((shared, together), (own, alone)):
            kept.append(np.mean(np.where(fresh @ model > 0, p, 1 - p)))
    for name, measured in (("fedavg", together), ("local_ridge", alone)):
        row = advice.predictions[name].accuracy
        assert row.low < np.mean(measured) < row.high
        assert row.value == pytest.approx(np.mean(measured), abs=0.02)


@pytest.mark.usefixtures("_unstopped")
def test_strings_booleans_and_whole_numbers_are_classes_and_floats_are_not(drawn, advice):
    X, y, _ = drawn
    words = advise(X, [np.where(v == 1, "yes", "no") for v in y], intercept=False)
    assert words.population.classes == ("no", "yes")
    assert words.recommended == advice.recommended
    assert words.ridge == pytest.approx(advice.ridge)
    rows, ids = np.concatenate(X), np.repeat(np.arange(40), 50)
    yes = np.concatenate(y).astype(bool)
    assert advise(rows, yes, clients=ids, intercept=False).ridge == pytest.approx(advice.ridge)
    numbers = np.concatenate(y).astype(float)
    assert (
        advise(rows, numbers, clients=ids, task="classification", intercept=False).metric.name
        == "accuracy"
    )
    few = rows[:, :5]  # the task alone is looked at
    assert advise(few, numbers, clients=ids, intercept=False).metric.name == "loss"
    assert (
        advise(few, np.concatenate(y), clients=ids, task="regression", intercept=False).metric.name
        == "loss"
    )


@pytest.mark.usefixtures("_unstopped")
def test_a_federation_learns_from_training_samples_and_probes_held_out_ones(drawn):
    X, y, _ = drawn
    split = np.tile(np.repeat([0, 1, 2], [40, 5, 5]), 40)
    federation = fa.Federation.from_arrays(
        np.concatenate(X), np.concatenate(y), np.repeat(np.arange(40), 50), split=split
    )
    found = advise(federation, intercept=False)
    assert found.population.samples == 40 * 40
    alone = advise([x[:40] for x in X], [v[:40] for v in y], intercept=False)
    assert found.population.radius == alone.population.radius
    # the others' model on test samples, fitted again without each client
    right = []
    for i in range(40):
        others = np.concatenate([x[:40] for j, x in enumerate(X) if j != i])
        labels = 2.0 * np.concatenate([v[:40] for j, v in enumerate(y) if j != i]) - 1
        model = np.linalg.lstsq(others, labels, rcond=None)[0]
        right.append(np.mean((X[i][45:] @ model > 0) == (y[i][45:] == 1)))
    assert found.predictions["fedavg"].measured == pytest.approx(np.mean(right), abs=0.003)


def test_sequences_count_positions():
    made = {
        "task": "classification",
        "classes": 2,
        "clients": 12,
        "dimension": 10,
        "positions": 6,
        "samples": 20,
    }
    federation = fa.datasets.synthetic(**made, seed=3)
    found = advise(federation, intercept=False)
    assert found.population.samples == int(federation.mask[federation.split == 0].sum())


@pytest.mark.usefixtures("_unstopped")
def test_clients_of_different_sizes(class_world):
    X, y, _ = class_world.draw(3)
    cut = [(x[: 20 + i % 31], v[: 20 + i % 31]) for i, (x, v) in enumerate(zip(X, y, strict=True))]
    found = advise([x for x, _ in cut], [v for _, v in cut], intercept=False)
    assert (
        np.ptp([each.ridge * each.samples for each in found.clients])
        < 1e-6 * found.ridge * found.samples
    )
    assert found.population.aspect.low < found.population.aspect.high


def test_nearly_equal_clients_share_and_distant_ones_do_not(class_world):
    alike = advise(*class_world.but(radius=0.05).draw(4)[:2], intercept=False)
    assert alike.recommended == "fedavg"
    assert alike.ridge is None
    assert alike.steps is None or alike.steps.time < 1
    apart = advise(
        *class_world.but(radius=3.0, centre=0.2, samples=100, dimension=25).draw(4)[:2],
        intercept=False,
    )
    assert apart.predictions["fedavg"].trusted < apart.predictions["local_ridge"].trusted - 0.1
    assert sum(each.verdict == "gains" for each in apart.clients) == 40


def test_the_quick_measurement_confirms_good_advice_and_refutes_bad(class_world):
    from dataclasses import replace

    made = class_world.but(clients=20, radius=3.0, centre=0.3, samples=100, dimension=25)
    X, y, _ = made.draw(5)
    found = advise(X, y, intercept=False)
    outcome = found.confirm(X, y)
    assert not outcome.refuted
    assert "not refuted" in str(outcome)
    wrong = replace(found.confirm, recommended="fedavg").__call__(X, y)
    assert wrong.refuted
    assert "REFUTED" in str(wrong)
    assert all(name in found.confirm.snippet for name in found.confirm.settings)


def test_the_snippet_runs(drawn, advice):
    X, y, _ = drawn
    federation = fa.Federation.from_arrays(
        np.concatenate(X), np.concatenate(y), np.repeat(np.arange(40), 50)
    )
    line = advice.confirm.snippet.splitlines()[0]
    history = eval(line.replace("rounds=100", "rounds=2"), {"fa": fa, "federation": federation})
    assert history.algorithm.name == advice.recommended


def test_the_page_says_what_to_do_and_what_may_be_wrong(advice, many_advice):
    for found in (advice, many_advice):
        page = str(found)
        for words in (
            "Use rtfa with ridge",
            "logistic loss",
            "The population",
            "Predicted accuracy",
            "stop early",
            "clients gain",
        ):
            assert words in page
        assert "To prove this wrong" in page
        assert "ranking aid" not in page


def test_json_and_table_hold_the_same_numbers(advice):
    told = json.loads(advice.to_json())
    assert told["recommended"] == advice.recommended
    assert told["population"]["centre"]["value"] == advice.population.centre.value
    assert [row["accuracy"] for row in told["predictions"]] == [
        row["accuracy"] for row in advice.table()
    ]
    assert len(told["clients"]) == 40


def test_same_data_same_advice(drawn, advice):
    assert advise(drawn[0], drawn[1], intercept=False).to_json() == advice.to_json()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda X, y: (X[:3], y[:3]), "3 clients"),
        (lambda X, y: ([x[:1] for x in X], [v[:1] for v in y]), "single training sample"),
        (lambda X, y: (X, [np.full(len(v), "cat") for v in y]), "'cat': with a single class"),
        (lambda X, y: ([0 * x for x in X], y), "all features are 0"),
        (lambda X, y: ([x * np.nan for x in X], y), "NaN"),
        (lambda X, y: (X, y[:-1]), "none in y"),
        (lambda X, y: (np.concatenate(X), np.concatenate(y)), "clients is missing"),
        (lambda X, y: (X, [np.arange(50) + 50 * i for i in range(40)]), "2000 different values"),
        (lambda X, y: (X, [[1, *("a" for _ in v[1:])] for v in y]), "labels mix numbers and words"),
        (lambda X, y: (X, [[None, *v[1:].tolist()] for v in y]), "a label is None"),
    ],
)
def test_what_is_missing_is_said(drawn, spoil, says):
    with pytest.raises(fa.InvalidInput, match=says):
        advise(*spoil(drawn[0], drawn[1]), task="classification", intercept=False)


def test_a_task_that_is_none_or_not_the_federations(drawn):
    federation = fa.Federation.from_arrays(np.eye(20), np.arange(20) % 2, clients=np.arange(20) % 5)
    with pytest.raises(fa.InvalidInput, match="make it with that task"):
        advise(federation, task="regression", intercept=False)
    with pytest.raises(fa.InvalidInput, match="guess"):
        advise(drawn[0], drawn[1], task="guess", intercept=False)
    with pytest.raises(fa.InvalidInput, match="leave y and clients out"):
        advise(federation, np.arange(20) % 2)
    with pytest.raises(fa.InvalidInput, match="y is missing"):
        advise(drawn[0], task="classification")
    with pytest.raises(fa.InvalidInput, match="ridge is given, but the labels are classes"):
        fa.fit(federation, ridge=1)
    many = fa.Federation.from_arrays(
        np.eye(20)[:, :2], np.arange(20) // 2, np.arange(20) % 5, split=["train"] * 20
    )
    with pytest.raises(fa.InvalidInput, match="10 classes and there are 20 training samples"):
        advise(many)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X, y, rng: (
            X,
            [(x @ np.ones(50) > 0).astype(int) for x in X],
        ),  # no noise, no differences
        lambda X, y, rng: (X, [rng.integers(0, 2, len(v)) for v in y]),  # nothing to learn
        lambda X, y, rng: (
            [x[: 1 + i % 5] for i, x in enumerate(X)],
            [v[: 1 + i % 5] for i, v in enumerate(y)],
        ),
        lambda X, y, rng: ([x[:, :1] for x in X], y),  # one feature
        lambda X, y, rng: ([X[0]] * 20, y),  # everyone has the same features
        lambda X, y, rng: (X, [np.full(len(v), i % 2) for i, v in enumerate(y)]),  # one class each
        lambda X, y, rng: (
            [np.column_stack([x, x[:, :3], 0 * x[:, :2]]) for x in X],
            y,
        ),  # features that follow from others
        lambda X, y, rng: ([x[:4] for x in X[:6]], [v[:4] for v in y[:6]]),  # too few of everything
        lambda X, y, rng: (
            list(np.eye(20)[:, None].repeat(2, 1)),
            [np.array([0, 1])] * 20,
        ),  # nobody shares a feature
    ],
)
def test_odd_data_give_finite_advice(drawn, spoil):
    X, y = drawn[0][:20], drawn[1][:20]
    found = advise(*spoil(X, y, np.random.default_rng(0)), intercept=False)
    best = found.recommended
    shown = found.predictions[best].level
    assert 0 <= shown.low <= shown.value <= shown.high <= 1
    json.loads(found.to_json())
    assert str(found)


def test_the_command(drawn, advice, tmp_path, capsys):
    X, y, _ = drawn
    frame = pd.DataFrame(np.concatenate(X), columns=[f"x{i}" for i in range(50)])
    frame["kind"] = np.where(np.concatenate(y) == 1, "spam", "ham")
    frame["user"] = np.repeat([f"u{i}" for i in range(40)], 50)
    frame["split"] = "train"
    file, page = tmp_path / "mail.csv", tmp_path / "advice.html"
    frame.to_csv(file, index=False)

    def told(*arguments):
        command = [
            "advise",
            str(file),
            "--label",
            "kind",
            "--client",
            "user",
            "--scale",
            "none",
            "--no-intercept",
            *arguments,
        ]
        return run(
            lambda: app(
                command, exit_on_error=False, print_error=False, result_action="return_value"
            )
        )

    assert told("--report", str(page)) == 0
    out = capsys.readouterr().out
    assert out.startswith("label 'kind' has 2 words, taken as classes\n")
    assert "\n\nUse rtfa with ridge" in out
    assert "Predicted accuracy" in page.read_text()
    assert told("--json") == 0
    assert json.loads(capsys.readouterr().out)["ridge"] == pytest.approx(advice.ridge, rel=1e-6)
    assert told("--report", str(tmp_path / "nowhere" / "page.html")) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("_unstopped")
def test_algorithms_beside_the_papers():
    stages = fa.algorithms
    twin = fa.Algorithm("twin", stages.Average(), stages.Ridge())
    drawn = fa.datasets.synthetic(
        task="classification", classes=2, radius=1.5, centre=1.5, clients=30, dimension=40, seed=1
    )
    found = advise(drawn, algorithms=[twin])
    assert found.predictions["twin"].trusted == pytest.approx(
        found.predictions["rtfa"].accuracy.value, abs=0.005
    )
    assert np.isnan(found.predictions["twin"].level.low)
    with pytest.raises(
        fa.NoFormula, match="other: with finitely many clients only fedavg and rtfa"
    ):
        advise(drawn, algorithms=[fa.Algorithm("other", stages.Moreau(), stages.Keep())])


def test_a_measurement_takes_test_samples_and_at_most_a_hundred_clients():
    rng = np.random.default_rng(0)
    X, y, owner = rng.standard_normal((600, 2)), rng.integers(0, 2, 600), np.arange(600) % 150
    dealt = fa.Federation.from_arrays(X, y, owner)
    assert as_federation(dealt, None, None, 0) is dealt
    train = fa.Federation.from_arrays(X, y, owner, split=["train"] * 600)
    fresh = as_federation(train, None, None, 0)
    assert fresh.counts("test").sum() > 0
    assert fresh.counts("validation").sum() > 0
    np.testing.assert_array_equal(fresh.features, train.features)
    with pytest.raises(fa.InvalidInput, match="leave y and clients out"):
        as_federation(dealt, y, None, 0)
    some = sample_clients(dealt, 0)
    assert len(some) == 100
    assert sample_clients(some, 0) is some
    for client in (some.clients[0], some.clients[99]):
        for split in ("train", "test"):
            np.testing.assert_array_equal(
                some.features[some.rows(client, split)], dealt.features[dealt.rows(client, split)]
            )
