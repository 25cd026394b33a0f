"""The examples run, say what is true, and each has its place in the documentation."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
LONGEST = 60  # lines: an example is read, not studied


@pytest.fixture
def run(monkeypatch, tmp_path):
    def play(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(EXAMPLES)  # as for a script
        return runpy.run_path(str(next(EXAMPLES.glob(f"{name}_*.py"))), run_name="__main__")

    return play


def test_there_are_eight_short_ones_and_the_page_names_every_file():
    numbered = sorted(file.name for file in EXAMPLES.glob("0*.py"))
    assert [name[:2] for name in numbered] == [f"0{n}" for n in range(1, 9)]
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for file in EXAMPLES.iterdir():
        if file.suffix in (".py", ".toml"):
            assert f"](../examples/{file.name})" in page, file.name
    for name in numbered:
        assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LONGEST, name


def test_predict(run, tmp_path, capsys):
    found = run("01", tmp_path)
    assert (found["table"].best, found["few"].best) == ("rtfa", "pfedme_ridge")
    assert found["threshold"] == pytest.approx(0.5**0.5)
    assert (tmp_path / "predict.png").exists()
    assert (tmp_path / "phase.png").exists()
    assert "pfedme" in capsys.readouterr().out


def test_simulate(run):
    found = run("02")
    assert found["apart"][20] > found["apart"][80] > found["apart"][320]
    assert found["drawn"].best == "pfedme"


def test_your_data(run, tmp_path):
    found = run("03")
    assert len(found["data"]) == 30
    assert found["errors"]["pfedme"] < min(found["errors"]["local"], found["errors"]["fedavg"])
    file = tmp_path / "mine.csv"
    rows = [f"{c},{x},{2 * x + c}" for c in range(3) for x in range(10)]
    file.write_text("\n".join(["client,x,label", *rows]), encoding="utf-8")
    assert len(run("03", file)["data"]) == 3


def test_train(run, tmp_path):
    found = run("04", tmp_path)
    accuracy = {
        name: np.mean([each.accuracy[-1] for each in found["best"].select(algorithm=name)])
        for name in ("local", "fedavg")
    }
    assert accuracy["fedavg"] > accuracy["local"]
    assert (tmp_path / "curves.png").exists()


def test_experiment(run, tmp_path):
    found = run("05", tmp_path)
    assert found["results"].trials.filter(algorithm="ftfa")["trial"].n_unique() == 3
    assert "ftfa" in (tmp_path / "small.html").read_text(encoding="utf-8")
    assert fa.Experiment.from_toml(tmp_path / "small" / "experiment.toml").algorithms == (
        "local",
        "fedavg",
        "ftfa",
    )


def test_advise(run):
    found = run("06")
    assert found["advice"].recommended in ("rtfa", "pfedme")
    assert found["advice"].population.radius.low < 1 < found["advice"].population.radius.high


def test_classification(run):
    found = run("07")
    for name in ("fedavg", "ftfa", "rtfa"):
        assert found["drawn"][name].accuracy == pytest.approx(
            found["table"][name].accuracy, abs=0.01
        )


def softmax(z):
    powers = np.exp(z - z.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def plain_proximal(parts, classes, rounds, steps, eta, mu):
    """FedProx as its article says it, with whole clients as batches and every client in every
    round.
    """
    W = np.zeros((parts[0][0].shape[1], classes))
    total = sum(len(y) for _, y in parts)
    for _ in range(rounds):
        sent = []
        for X, y in parts:
            w = W.copy()
            for _ in range(steps):
                loss_gradient = X.T @ (softmax(X @ w) - np.eye(classes)[y]) / len(y)
                w -= eta * (loss_gradient + mu * (w - W))
            sent.append(len(y) / total * w)
        W = sum(sent)
    return W


@pytest.mark.parametrize("mu", [1e-14, 0.7])
def test_the_new_algorithm_is_proximal(run, mu):
    rng = np.random.default_rng(0)
    sizes = (5, 9, 7)
    owner = np.repeat(np.arange(3), sizes)
    X, y = rng.standard_normal((21, 4)), rng.integers(3, size=21)
    clients = fa.Federation.from_arrays(
        X, y, owner, split=np.zeros(21, int), classes=3, intercept=False
    )
    proximal = run("08")["proximal"]
    told = {
        "rounds": 6,
        "local_steps": 4,
        "batch": 9,
        "cohort": 3,
        "server_step": 0.3,
        "evaluate_every": 0,
    }
    history = fa.train(proximal, clients, penalty=mu, precision="float64", **told)
    parts = [(X[owner == client], y[owner == client]) for client in range(3)]
    np.testing.assert_allclose(
        history.shared, plain_proximal(parts, 3, 6, 4, 0.3, mu), rtol=1e-10, atol=1e-12
    )
    if mu < 1e-9:
        average = fa.train("fedavg", clients, precision="float64", **told)
        np.testing.assert_allclose(history.shared, average.shared, rtol=1e-10, atol=1e-12)


def test_the_table_that_ships_is_the_one_that_its_script_draws():
    from fedasym.data.formats import EXAMPLE

    drawn = runpy.run_path(str(EXAMPLES / "draw_shops.py"))
    assert drawn["draw_table"]() == EXAMPLE.read_text(encoding="utf-8")
    advice = fa.advise(fa.datasets.read("shops", label="sales", client="shop"))
    assert advice.recommended == "pfedme"
    assert advice.to_json()
