"""`fedasym reproduce`: from a features file to figures, report and findings; what there is to do,
and what is missing.
"""

import json
import os
from pathlib import Path

import pytest

import fedasym as fa
from fedasym.data import find_dataset
from fedasym.experiments.reproduction import (
    TARGETS,
    agenda,
    compare_with_paper,
    curves_of,
    published_accuracies,
)

from ..command import fedasym


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Features by client, as `fedasym features` stores them."""
    clients = fa.datasets.synthetic(
        task="classification", clients=12, dimension=12, classes=4, aspect=0.5, seed=3
    )
    return clients.save(tmp_path_factory.mktemp("data") / "digits-features.safetensors")


def test_a_quick_copy_of_the_paper_ends_in_figures_report_and_findings(features, tmp_path):
    done = fedasym("run", "digits", "--quick", "--data", features, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "digits-quick"
    pieces = {path: path.stat().st_mtime_ns for path in (run / "pieces").iterdir()}
    told = fedasym("reproduce", "digits", "--quick", "--data", features, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert {
        path: path.stat().st_mtime_ns for path in (run / "pieces").iterdir()
    } == pieces  # nothing was computed again
    endings = {path.suffix for path in (run / "figures").iterdir()}
    assert endings == {".png", ".pdf", ".csv"}
    assert (run / "report.html").stat().st_size > 10_000
    assert "These are not the paper's data: digits stands in for emnist." in told.stdout
    assert "the gains of ftfa grow with its personalization epochs" in told.stdout
    results = fa.Results.read(run)
    assert told.stdout.startswith(str(results))
    saved = fedasym("runs", "show", run, "--save", tmp_path / "tables" / "digits")
    assert saved.returncode == 0, saved.stderr
    assert fedasym("runs", "show", tmp_path / "tables" / "digits").stdout.startswith(
        str(results).splitlines()[0]
    )
    idle = fedasym("report", run, "--data", features)
    assert (idle.returncode, "used only with --theory" in idle.stderr) == (2, True)
    checked = fedasym("reproduce", "digits", "--check", "--tables", tmp_path / "tables")
    assert "digits-quick: the paper's findings on these runs" in checked.stdout, checked.stderr
    assert compare_with_paper(results, "digits").count("\n") > 2 * len(
        results.experiment.algorithms
    )


def test_the_table_beside_the_paper_subtracts_like_from_like(features, tmp_path):
    """The paper's local curve over splits of emnist is a mean over clients, so ours beside it is,
    too.
    """
    experiment = fa.Experiment(
        name="mine",
        algorithms=["local", "fedavg"],
        settings={"rounds": 2, "evaluate_every": 2},
        grid={},
        trials={"splits": 2},
    )
    results = fa.run(experiment, fa.Federation.from_safetensors(features), into=tmp_path)
    rows = [line.split() for line in compare_with_paper(results, "emnist").splitlines()]
    (local,) = [row for row in rows if row[:2] == ["splits", "local"]]
    ours, theirs = (
        results.finals("splits", "mean_accuracy")["local"],
        published_accuracies("emnist").trials["splits"]["local"].final,
    )
    assert float(local[2]) == pytest.approx(100 * ours.mean(), abs=0.005)
    assert float(local[-1]) == pytest.approx(100 * (ours.mean() - theirs.mean()), abs=0.005)
    assert compare_with_paper(results, "mine") is None


def test_a_cohort_that_the_clients_do_not_fill_is_refused_before_any_work(features, tmp_path):
    told = fedasym("run", "digits", "--data", features, cwd=tmp_path)
    assert "settings.cohort is 20, and 12 clients have training samples" in told.stderr
    assert not (tmp_path / "runs").exists()


def test_the_agenda_says_what_is_there(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASYM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in TARGETS:
        title, items = agenda(name, tmp_path)
        assert title.startswith(name)
        assert {item.state for item in items} == {"not yet"}
    assert "no data here" in agenda("cifar100", tmp_path)[0]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "digits").symlink_to(finished[2])
    assert [item.state for item in agenda("digits", tmp_path / "runs")[1]] == ["done"] * 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reproduce",), "names is empty: name one of cifar100"),
        (("reproduce", "cifr100"), "unknown target 'cifr100': did you mean cifar100?"),
        (("reproduce", "cifar100", "--device", "tpu"), "device is 'tpu': give cpu or gpu"),
        (("reproduce", "cifar100", "--data", "none.safetensors"), "none.safetensors"),
        (("reproduce", "--check"), "there is nothing to check in 'runs'"),
        (("reproduce", "--check", "digits"), "digits"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(words, says, tmp_path):
    told = fedasym(*words, cwd=tmp_path)
    assert told.returncode == 2, told.stdout
    assert says in told.stderr
    assert "Traceback" not in told.stderr


def test_without_data_the_way_to_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASYM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    told = fedasym("reproduce", "emnist", "--device", "cpu", cwd=tmp_path)
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    assert told.returncode == 2
    assert "run fedasym data fetch emnist" in told.stderr


def test_theory_beside_simulation(tmp_path):
    told = fedasym("reproduce", "theory", "--quick", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert sorted(path.name for path in (tmp_path / "runs" / "theory").glob("*.png")) == [
        "aspect.png",
        "clients.png",
        "noise.png",
    ]
    assert "drawn" in fedasym("reproduce", "theory", "--list", cwd=tmp_path).stdout


RECORDED = Path(__file__).parents[2] / "docs"


def test_findings_on_saved_tables_and_across_them_in_words_and_as_json():
    words = ("reproduce", "cifar100", "stackexchange", "--check")
    told = fedasym(*words, "--tables", RECORDED / "reproduction")
    held = json.loads(fedasym(*words, "--tables", RECORDED / "reproduction", "--json").stdout)
    assert [each["name"] for each in held] == [
        "cifar100",
        "stackexchange",
        "cifar100 and stackexchange",
    ]
    for each in held:
        assert f"{each['name']}: the paper's findings on these runs" in told.stdout
        for claim in each["claims"]:
            assert f"{claim['verdict'].upper()}, over {claim['sweep']}: {claim['says']}" in (
                told.stdout
            )


def test_the_papers_text_is_set_beside_ours_over_the_same_positions():
    """Its accuracies count padding: over real positions where ours do not, as published else."""
    plain = fa.Results.load(RECORDED / "reproduction" / "shakespeare")
    counting = fa.Results.load(RECORDED / "reproduction-wider" / "shakespeare-code")
    held = published_accuracies("shakespeare").trials["seeds"]["ftfa"].final
    real = (423_040 * held - 98_437) / 324_603
    for results, theirs in ((plain, real), (counting, held)):
        table = compare_with_paper(results, "shakespeare")
        rows = [line.split() for line in table.splitlines()]
        (row,) = [row for row in rows if row[:2] == ["seeds", "ftfa"]]
        assert float(row[4]) == pytest.approx(100 * theirs.mean(), abs=0.006)
        rounds, drawn = curves_of(results, "shakespeare")["seeds"]["ftfa"]
        assert rounds[-1] == 400
        assert drawn[:, -1] == pytest.approx(theirs)
        assert ("98,437 of them padding" in table) == (results is plain)


def test_every_published_position_is_one_of_the_papers_test_samples():
    """Text has 80 characters a sample, 20 words; images have no positions."""
    for name, length in (("shakespeare", 80), ("stackoverflow", 20)):
        positions = published_accuracies(name).positions
        assert positions.counted == length * find_dataset(name).paper.test
    assert published_accuracies("cifar100").positions is None
    unknown = published_accuracies("stackoverflow")
    curve = unknown.trials["splits"]["ftfa"]
    assert unknown.positions.without_padding(curve) is curve


def test_a_report_says_what_the_papers_curves_of_text_count(tmp_path):
    results = fa.Results.load(RECORDED / "reproduction" / "shakespeare")
    page = fa.report(results, tmp_path / "page.html", curves_of(results)).read_text()
    assert "as the paper published it, over real positions" in page
    assert "98,437 of them padding" in page
