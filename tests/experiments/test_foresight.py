"""What the advisor said of a run's data: asked once, kept whole, set beside what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa
from fedasym.experiments import reproduction
from fedasym.show import reproduction as asking
from fedasym.show.foresight import read_foresights, write_board
from fedasym.show.report import report_page

from ..command import fedasym

FEW = {
    "rounds": 20,
    "evaluate_every": 20,
    "local_steps": 5,
    "personal_epochs": 3,
    "server_step": 0.1,
    "local_step": 0.1,
}


@pytest.fixture(scope="module")
def clients():
    return fa.datasets.synthetic(
        task="classification", classes=2, radius=1.5, centre=1.5, clients=30, dimension=30, seed=1
    )


@pytest.fixture
def run(clients, tmp_path):
    tiny = fa.Experiment(
        name="tiny",
        algorithms=["local", "fedavg", "rtfa"],
        settings=FEW,
        grid={},
        trials={"seeds": 2},
    )
    fa.run(tiny, clients, into=tmp_path / "run")
    return tmp_path / "run"


def test_the_advisor_is_asked_once_and_its_answer_travels_with_the_tables(
    run, clients, tmp_path, monkeypatch
):
    assert fa.Results.read(run).foreseen is None
    with pytest.raises(fa.InvalidInput, match="none of its folders has both"):
        read_foresights(run.parent)
    found = asking.foresee(run, clients)
    assert set(found.theory) == set(found.advised) >= {"fedavg", "rtfa", "local_ridge"}
    monkeypatch.setattr(asking, "ask_advisor", None)
    assert asking.foresee(run, clients) == found
    results = fa.Results.read(run)
    assert results.foreseen == found
    assert fa.Results.load(results.save(tmp_path / "tables")).foreseen == found


def test_an_algorithm_without_a_theory_has_a_dash_for_it(run):
    advised = {"fedavg": 0.7, "rtfa": 0.8, "local_ridge": 0.6}
    reproduction.keep_foresight(run, reproduction.Foreseen({"fedavg": 0.75}, advised))
    results = fa.Results.read(run)
    rows = {row.algorithm: row.theory for row in reproduction.foresight_rows(results)}
    assert rows == {"local": None, "fedavg": 0.75, "rtfa": None}
    line = next(
        line
        for line in reproduction.compare_with_theory(results).splitlines()
        if line.strip().startswith("rtfa")
    )
    assert line.split()[1:3] == ["-", "80.00"]


def test_predicted_stands_beside_measured(run, clients):
    found = asking.foresee(run, clients)
    results = fa.Results.read(run)
    rows = {row.algorithm: row for row in reproduction.foresight_rows(results)}
    assert set(rows) == {"local", "fedavg", "rtfa"}
    assert (
        rows["local"].theory == found.theory["local_ridge"]
    )  # local training that is stopped is nearest to it
    measured = results.trials.filter(
        (results.trials["algorithm"] == "rtfa") & (results.trials["round"] == 20)
    )
    assert rows["rtfa"].measured == pytest.approx(measured["mean_accuracy"].mean())
    text = reproduction.compare_with_theory(results)
    assert f"{100 * rows['fedavg'].advised:.2f}" in text
    best = max(rows.values(), key=lambda row: row.advised)
    assert f"The advisor puts {best.algorithm} first" in text
    assert "What theory says before training" in report_page(results)


@pytest.mark.parametrize(
    ("advised", "said"),
    [
        (
            (0.9, 0.8, 0.7),
            "puts a first, which is the best measured. Of 3 pairs 3 are in the measured order",
        ),
        (
            (0.7, 0.8, 0.9),
            (
                "puts c first, 20.00 points below a, the best measured. Of 3 pairs 0 are in the"
                " measured order"
            ),
        ),
    ],
)
def test_agreement_in_words(advised, said):
    rows = [
        reproduction.Row(*each)
        for each in zip("abc", advised, advised, (0.9, 0.8, 0.7), strict=True)
    ]
    assert said in reproduction.describe_agreement(rows)


def test_what_cannot_be_foreseen_says_why(tmp_path):
    numbers = fa.datasets.synthetic(clients=5, dimension=5)
    assert "labels are numbers" in asking.foresee(tmp_path, numbers).reason
    rng = np.random.default_rng(0)
    lonely = fa.Federation.from_arrays(
        rng.standard_normal((40, 3)), rng.integers(0, 2, 40), ["a", "b"] * 20
    )
    assert "clients" in asking.ask_advisor(lonely).reason


def test_too_many_classes_are_merged_and_only_their_order_is_compared(monkeypatch, tmp_path):
    clients = fa.datasets.synthetic(
        task="classification", classes=4, radius=1.5, centre=1.5, clients=30, dimension=10, seed=1
    )
    merged = asking.ask_advisor(clients.merge_rare(3))
    monkeypatch.setattr(asking, "MOST_CLASSES", 3)
    monkeypatch.setattr(reproduction, "MOST_CLASSES", 3)
    found = asking.ask_advisor(clients)
    assert found == merged._replace(merged=4)  # the same as merging by hand, and says so
    reproduction.keep_foresight(tmp_path, found)
    assert reproduction.read_foresight(tmp_path) == found
    tiny = fa.Experiment(
        name="tiny", algorithms=["local", "fedavg"], settings=FEW, grid={}, trials={"seeds": 2}
    )
    fa.run(tiny, clients, into=tmp_path / "run")
    reproduction.keep_foresight(tmp_path / "run", found)
    results = fa.Results.read(tmp_path / "run")
    text = reproduction.compare_with_theory(results)
    assert "the 2 commonest of 4 classes and one of all others" in text
    assert "off by at most" not in text
    assert {line.split()[-1] for line in text.splitlines()[1:3]} == {
        "-"
    }  # no difference between two tasks
    assert "so that only their order can be compared" in report_page(results)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "fedasym foreseen 1", "theory": {"rtfa": "<b>"}, "advised": {"rtfa": 0.5}}',
        '{"format": 2}',
    ],
)
def test_a_damaged_answer_is_none(tmp_path, text):
    (tmp_path / reproduction.FORESIGHT_FILE).write_text(text)
    assert reproduction.read_foresight(tmp_path) is None


def test_a_reason_is_text_on_the_page(run):
    told = {
        "format": reproduction.FORMAT,
        "theory": {},
        "advised": {},
        "reason": "<script>alert(1)</script>",
    }
    (run / reproduction.FORESIGHT_FILE).write_text(json.dumps(told))
    assert "&lt;script&gt;alert(1)" in report_page(fa.Results.read(run))


def test_other_samples_are_refused(run, tmp_path):
    other = fa.datasets.synthetic(task="classification", classes=2, clients=8, dimension=30, seed=2)
    file = other.save(tmp_path / "other.safetensors")
    with pytest.raises(fa.InvalidInput, match="these are not the samples of this run"):
        asking.foresee_run(run, fa.Results.read(run), str(file))


BOARD = Path(__file__).parents[2] / "docs" / "reproduction"


def write(place, **held):
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(held))


def test_the_page_of_the_board_is_what_the_command_writes(tmp_path):
    page = BOARD.parent / "foresight.md"
    again = tmp_path / "page.md"
    again.write_text(page.read_text())
    done = fedasym("foresight", BOARD, "--page", again)
    assert done.returncode == 0, done.stderr
    assert again.read_text() == page.read_text()
    held = json.loads(fedasym("foresight", BOARD, "--json").stdout)
    assert {row["dataset"] for row in held["rows"]} >= {"cifar100", "digits", "Exam"}
    results = fa.Results.load(BOARD / "cifar100")
    rows = {row.algorithm: row for row in reproduction.foresight_rows(results)}
    mine = [row for row in held["rows"] if row["dataset"] == "cifar100" and row["advised"]]
    assert {row["algorithm"] for row in mine} == set(rows)
    for row in mine:
        assert row["advised"] == rows[row["algorithm"]].advised
        assert row["measured"] == pytest.approx(rows[row["algorithm"]].measured)


def test_a_data_set_and_a_predictor_are_added_by_a_file(tmp_path):
    measured = {"local": 2.0, "fedavg": 1.5, "rtfa": 1.0}
    form = {"format": "fedasym measured 1", "name": "mine", "metric": "squared error"}
    write(tmp_path / "mine" / "measured.json", **form, values=measured)
    told = {"format": "fedasym prediction 1", "predictor": "guess"}
    values = {"local": 2.2, "fedavg": 1.0, "rtfa": 1.1}
    write(tmp_path / "mine" / "foreseen-guess.json", **told, values=values)
    board = read_foresights(tmp_path)
    [score] = board.scores
    assert (score.right, score.pairs, score.first, score.best) == (2, 3, "fedavg", "rtfa")
    assert score.regret == pytest.approx(50)
    assert score.off == pytest.approx(100 * np.mean([0.1, 1 / 3, 0.1]))
    assert "mine: squared error" in str(board)
    assert board._repr_html_().count("<table>") == 3
    assert board.to_latex().count("tabular") == 6
    rows = [{"dataset": "mine", "algorithm": name, "metric": "squared error"} for name in measured]
    for row in rows:
        row |= {"measured": measured[row["algorithm"]], "guess": values[row["algorithm"]]}
    held = json.loads(board.to_json())
    assert held["rows"] == rows
    assert [(each["predictor"], each["right"]) for each in held["scores"]] == [("guess", 2)]
    write(tmp_path / "mine" / "foreseen-late.json", **told | {"predictor": "late"}, values={"x": 1})
    late = read_foresights(tmp_path)
    assert late.predictors == ["guess", "late"]
    assert [each.predictor for each in late.scores] == ["guess"]  # nothing to score "late" by
    assert "late" not in str(late).split("mine: squared error")[0]
    with pytest.raises(fa.InvalidInput, match=r"page is .*nowhere.md': it cannot be read"):
        write_board(board, tmp_path / "nowhere.md")
    both = fedasym("foresight", tmp_path, "--json", "--latex")
    assert (both.returncode, "json and latex" in both.stderr) == (2, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": {"local": -1}}, "values must be finite numbers above 0"),
        ({"format": "other"}, "its format is not"),
        ({"predictor": 3}, "must be texts"),
        ({"source": "x" * 1_000_001}, "larger than a megabyte"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path, change, words):
    told = {"format": "fedasym prediction 1", "predictor": "guess", "values": {"local": 1}}
    write(tmp_path / "mine" / "foreseen-guess.json", **told | change)
    with pytest.raises(fa.InvalidInput, match=words):
        read_foresights(tmp_path)


def test_a_metric_that_nobody_knows_is_refused(tmp_path):
    told = {"format": "fedasym measured 1", "name": "mine", "metric": "F1", "values": {"local": 1}}
    write(tmp_path / "mine" / "measured.json", **told)
    with pytest.raises(fa.InvalidInput, match=r"measured.json: metric is 'F1': give accuracy"):
        read_foresights(tmp_path)


def test_nothing_to_show_is_said(tmp_path):
    with pytest.raises(fa.InvalidInput, match="none of its folders has both"):
        read_foresights(tmp_path)
    with pytest.raises(fa.InvalidInput, match="there is no such folder"):
        read_foresights(tmp_path / "nowhere")
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(fa.InvalidInput, match="between two lines"):
        write_board(read_foresights(BOARD), page)
