"""An algorithm in one short file, in an empty folder outside the package: every verb and every
command takes it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms.registry import REGISTRY

from ..command import fedasym

SOURCE = Path(__file__).parents[2] / "examples" / "proximal.py"
WORLD = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)


def run_command(*words):
    done = fedasym(*words)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the file, under a name that nothing else has."""
    shutil.copy(SOURCE, tmp_path / "outside.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(REGISTRY._known)
    yield tmp_path
    sys.modules.pop("outside", None)
    REGISTRY._known.clear()
    REGISTRY._known.update(before)


@pytest.fixture
def proximal(folder):
    return fa.algorithms.find("outside:proximal")


@pytest.fixture(scope="module")
def clients():
    return fa.datasets.synthetic(
        task="classification", clients=6, dimension=4, classes=2, aspect=0.2, seed=3
    )


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X, ids = rng.standard_normal((60, 3)), np.repeat(list("abcdef"), 10)
    return X, X.sum(1) + rng.standard_normal(60), ids


def test_the_file_is_short():
    assert len(SOURCE.read_text().splitlines()) <= 40


def test_theory_and_exact_fits(proximal, table):
    few = fa.predict(WORLD, ["fedavg", proximal], clients=10)
    drawn = fa.simulate(WORLD, algorithms=[proximal], clients=10, dimension=120, trials=4)[
        "proximal"
    ]
    assert drawn.loss == pytest.approx(few["proximal"].loss, abs=4 * drawn.error + 0.02)
    assert drawn.loss == pytest.approx(drawn.predicted.loss, abs=4 * drawn.error + 0.02)
    endless = fa.predict(WORLD, [proximal, "fedavg"])
    assert (
        endless["proximal"].loss == endless["fedavg"].loss
    )  # infinitely many clients forget the server stage
    diagram = fa.compare(proximal, "fedavg", WORLD, vary={"noise": (0.1, 2, 9)}, clients=10)
    assert "proximal against fedavg" in str(diagram)
    path = fa.fine_tuning(WORLD, proximal, step=0.1, steps=[0, 3], clients=10)
    assert path.loss[0] == pytest.approx(few["proximal"].loss, rel=1e-9)
    stopped = fa.Algorithm("stopped", proximal.server, fa.algorithms.Descend(0.1, 3))
    again = fa.predict(WORLD, [stopped], clients=10)["stopped"].loss
    assert path.loss[1] == pytest.approx(again, rel=1e-9)
    X, y, ids = table
    fit = fa.linear.fit(proximal, X, y, clients=ids, intercept=False)
    by_hand = np.zeros((3, 3)), np.zeros(3)
    for name in "abcdef":
        A, b = X[ids == name], y[ids == name]
        S, n = A.T @ A / len(b), len(b)
        weight = np.linalg.inv(S + 0.1 * np.eye(3))
        by_hand = by_hand[0] + weight @ S / 6, by_hand[1] + weight @ A.T @ b / n / 6
    np.testing.assert_allclose(fit.shared, np.linalg.solve(*by_hand), rtol=1e-9)
    regressor = fa.linear.PersonalizedRegressor(proximal, fit_intercept=False).fit(X, y, groups=ids)
    np.testing.assert_allclose(regressor.predict(X, groups=ids), X @ fit.shared, rtol=1e-9)
    again = fa.linear.LinearFit.load(fit.save("fit.safetensors"))
    assert again.algorithm.name == "proximal"
    with pytest.raises(
        fa.NoFormula, match="the code of the stage Prox is in no file: register its algorithm"
    ):
        again.algorithm.server.step(None, None, None, 1)
    fa.algorithms.register(proximal)
    assert fa.linear.LinearFit.load("fit.safetensors").algorithm is proximal


def test_rounds_follow_from_its_step(proximal):
    told = {"rounds": 3, "local_steps": 5, "server_step": 0.2}
    endless = fa.rounds(WORLD, proximal, **told, cohort=10**9)
    # The same by hand: the eigenvalues of one large client, and where five steps from 0 to 1 lead.
    d, n, error = 1200, 600, np.sqrt(3)
    X = np.random.default_rng(1).standard_normal((n, d))
    x, w = np.linalg.svd(X, compute_uv=False) ** 2 / n, np.zeros(n)
    for _ in range(5):
        w = w - 0.2 * (x * (w - 1) + 0.1 * w)  # the step of the file, along each eigenvalue
    p = w.sum() / d  # directions without samples do not move
    for t in range(4):
        assert endless.shared_error[t] == pytest.approx(error**2, rel=0.01)
        error *= 1 - p
    few = fa.rounds(WORLD, proximal, **told, cohort=10, clients=100)
    assert np.all(few.loss[1:] > endless.loss[1:])
    tuned = fa.rounds(WORLD, "outside:tuned", **told, cohort=10, clients=100)
    assert tuned.loss[-1] < few.loss[-1]


def test_advice(proximal, table):
    X, y, ids = table
    advice = fa.advise(X, y, clients=ids, algorithms=[proximal])
    plain = fa.advise(X, y, clients=ids)
    assert advice.predictions["fedavg"] == plain.predictions["fedavg"]
    row = advice.predictions["proximal"]
    assert row.loss.low <= row.loss.value <= row.loss.high
    fit = fa.linear.fit(proximal, X, y, clients=ids)
    assert row.loss.value == pytest.approx(
        advice.predictions["fedavg"].loss.value, rel=0.2
    )  # a weak pull is nearly FedAvg
    assert "proximal" in str(advice)
    assert fit.algorithm == proximal
    labels = (y > 0).astype(int)
    with pytest.raises(fa.InvalidInput, match="proximal has no exact form for classes"):
        fa.advise(X, labels, clients=ids, algorithms="outside:proximal")


def test_experiments(proximal, clients, folder):
    told = {"rounds": 3, "evaluate_every": 3, "personal_epochs": 1}
    swept = fa.sweep([proximal, "fedavg"], clients, **told, seeds=2, into="swept")
    assert set(swept.tuned["proximal"]) == {"server_step", "penalty"}
    experiment = fa.Experiment(
        name="mine",
        algorithms=[proximal],
        settings=told,
        grid={"penalty": [0.1, 1]},
        trials={"seeds": 1},
    )
    results = fa.run(experiment, clients, into="run")
    assert [row["penalty"] for row in results.tuning.to_dicts()] == [0.1, 1]
    assert json.loads(Path("run", "algorithms.json").read_text())[0]["server"]["stage"] == "Prox"
    assert fa.report("swept", "page.html").read_text().count("proximal") > 5
    results.save("tables")
    code = (
        "import sys, fedasym as fa; fa.report('run', 'a.html'); fa.report('tables', 'b.html');"
        " print(fa.Results.read('run')); assert 'outside' not in sys.modules"
    )
    Path("outside.py").rename("elsewhere.txt")  # reading imports nothing
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "proximal" in done.stdout


def test_a_changed_step_is_computed_again(proximal, clients, folder):
    told = {"rounds": 2, "evaluate_every": 2}
    first = fa.sweep(proximal, clients, **told, grid={}, seeds=1, into="run")
    text = Path("outside.py").read_text()
    Path("changed.py").write_text(
        text.replace("+ self.penalty * (w - start)", "+ 5 * self.penalty * (w - start)")
    )
    changed = fa.algorithms.find("changed:proximal")
    second = fa.sweep(changed, clients, **told, grid={}, seeds=1, into="run")
    assert len(list(Path("run", "pieces").glob("*.parquet"))) == 2
    assert first.trials["loss"].to_list() != second.trials["loss"].to_list()
    sys.modules.pop("changed", None)


def test_commands(folder, table):
    options = ["--radius", "1", "--noise", "0.5", "--aspect", "2", "--clients", "10"]
    assert (
        "proximal"
        in run_command("predict", *options, "--algorithms", "outside:proximal,fedavg").stdout
    )
    assert (
        "proximal"
        in run_command(
            "simulate",
            *options,
            "--dimension",
            "30",
            "--trials",
            "2",
            "--algorithms",
            "outside:proximal",
        ).stdout
    )
    world = ["--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2"]
    assert "proximal" in run_command("rounds", "outside:proximal", *world, "--rounds", "5").stdout
    X, y, ids = table
    rows = [
        f"{name},{value:.6f},{','.join(f'{each:.6f}' for each in row)}"
        for name, value, row in zip(ids, y, X, strict=True)
    ]
    Path("clients.csv").write_text("\n".join(["client,label,a,b,c", *rows]))
    trained = run_command(
        "train",
        "clients.csv",
        "--algorithms",
        "outside:proximal,fedavg",
        "--rounds",
        "3",
        "--grid",
        "penalty=0.1,1",
    )
    assert "penalty" in trained.stdout
    run_command(
        "sweep",
        "clients.csv",
        "--algorithms",
        "outside:proximal",
        "--rounds",
        "2",
        "--seeds",
        "1",
        "--into",
        "swept",
    )
    assert (
        "proximal"
        in run_command("report", "swept", "--into", "page.html").stdout
        + Path("page.html").read_text()
    )
    advised = run_command(
        "advise", "clients.csv", "--algorithms", "outside:proximal", "--plot", "advice.svg"
    ).stdout
    assert "proximal" in advised
    assert "Written to advice.svg" in advised
    run_command("deploy", "outside:proximal", "--into", "my-app")
    assert Path("my-app", "my_app", "outside.py").read_bytes() == Path("outside.py").read_bytes()
    assert "penalty = 0.1" in Path("my-app", "pyproject.toml").read_text()
    pytest.importorskip("flwr")
    run_command("try", "my-app", "--run-config", "rounds=2 evaluate-every=2 local-steps=2")
    assert Path("shared.safetensors").exists()


def test_a_registered_name_is_known_everywhere(proximal, clients):
    fa.algorithms.register(proximal)
    assert fa.predict(WORLD, "proximal", clients=5).best == "proximal"
    assert fa.train("proximal", clients, rounds=1).algorithm is proximal
    Path("mine.toml").write_text(
        'name = "mine"\nalgorithms = ["proximal"]\n[settings]\nrounds = 2\n[data.synthetic]\nalpha ='
        " 1\nbeta = 1\n"
    )
    assert fa.Experiment.from_toml("mine.toml").grid["proximal"]["penalty"] == (0.01, 0.1, 1.0)
    with pytest.raises(fa.InvalidInput, match="name is 'rtfa', which the package has"):
        fa.algorithms.register(fa.Algorithm("rtfa", proximal.server, proximal.personalise))
    Path("path.toml").write_text('name = "mine"\nalgorithms = ["outside:proximal"]\n')
    with pytest.raises(fa.InvalidInput, match="names of registered algorithms"):
        fa.Experiment.from_toml("path.toml")


def test_an_installed_package_brings_its_own(folder):
    info = folder / "brings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brings\nVersion: 1.0\n")
    broken = "gone = nowhere:gone\nodd = outside:Prox\n"  # other packages' own: told, and left out
    (info / "entry_points.txt").write_text(
        f"[fedasym.algorithms]\n{broken}proximal = outside:proximal\n"
    )
    code = (
        "import fedasym as fa; print(fa.algorithms.find('proximal').words);"
        "print(fa.predict(fa.Population(1, 0.5, 2), 'proximal', clients=9).best)"
    )
    paths = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | paths,
        check=False,
    )
    assert done.stdout.split("\n")[:2] == ["FedAvg, clients held near", "proximal"], done.stderr
    assert "'nowhere:gone' of an installed package is left out: ModuleNotFoundError" in done.stderr
    assert (
        "'outside:Prox' of an installed package is left out: it is not an fa.Algorithm"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere:proximal", "No module named 'nowhere'; is its folder on PYTHONPATH"),
        ("outside:fedpox", "outside has no fedpox; check the spelling"),
        ("outside:Prox", "it is a type, not an fa.Algorithm"),
        ("fedpox", "unknown algorithm 'fedpox'"),
    ],
)
def test_what_is_not_there_is_said(folder, path, says):
    with pytest.raises(fa.InvalidInput, match=says):
        fa.predict(WORLD, path)
