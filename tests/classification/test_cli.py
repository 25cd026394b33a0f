"""The command line with --task classification: same words, same numbers."""

import json

import pytest

import fedasym as fa

from ..command import fedasym

WORLD = ["--task", "classification", "--radius", "1.1", "--centre", "1.4", "--aspect", "2.3"]


def test_predict():
    done = fedasym("predict", *WORLD, "--flips", "0.1", "--clients", "30", "--new-client", "--json")
    expected = fa.predict(fa.ClassPopulation(1.1, 1.4, 2.3, flips=0.1), clients=30, member=False)
    assert json.loads(done.stdout) == json.loads(expected.to_json())


def test_alignment_and_spectrum():
    args = [
        "--spectrum",
        "atoms:0.5@0.6,3@0.4",
        "--shift-power",
        "1",
        "--optimum-weights",
        "0.3,0.7",
        "--algorithms",
        "rtfa",
    ]
    world = fa.ClassPopulation(
        1.1,
        1.4,
        2.3,
        spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]),
        shift_power=1,
        centre_weights=[0.3, 0.7],
    )
    done = fedasym("predict", *WORLD, *args, "--json")
    assert json.loads(done.stdout) == json.loads(fa.predict(world, ["rtfa"]).to_json())


def test_a_table_and_a_figure(tmp_path):
    figure = tmp_path / "accuracy.png"
    done = fedasym("predict", *WORLD, "--plot", str(figure))
    assert done.returncode == 0, done.stderr
    assert "* rtfa" in done.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_path_compare_and_simulate():
    path = fedasym("path", *WORLD, "--times", "0,1,10", "--json")
    assert json.loads(path.stdout) == json.loads(
        fa.fine_tuning(fa.ClassPopulation(1.1, 1.4, 2.3), times=[0, 1, 10]).to_json()
    )
    compared = fedasym(
        "compare", "rtfa", "fedavg", *WORLD[:4], "--aspect", "2", "--vary", "centre=0.5:2:3"
    )
    assert "rtfa is ahead" in compared.stdout
    drawn = fedasym(
        "simulate",
        *WORLD,
        "--dimension",
        "60",
        "--trials",
        "2",
        "--algorithms",
        "fedavg,rtfa",
        "--json",
    )
    expected = fa.simulate(
        fa.ClassPopulation(1.1, 1.4, 2.3), dimension=60, trials=2, algorithms=["fedavg", "rtfa"]
    )
    assert json.loads(drawn.stdout) == json.loads(expected.to_json())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["predict", "--task", "classify", "--radius", "1"], "did you mean classification"),
        (["predict", *WORLD, "--noise", "1"], "noise is given, but --task classification takes"),
        (
            ["predict", "--radius", "1", "--noise", "1", "--aspect", "2", "--flips", "0.1"],
            "flips is given, but --task regression",
        ),
        (["predict", *WORLD[:6]], "aspect is missing: give --aspect"),
        (["predict", *WORLD, "--classes", "1"], "classes is 1"),
        (["predict", *WORLD, "--algorithms", "fedprox"], "fedprox"),
        (["path", *WORLD, "--step", "9", "--steps", "2"], "diverges"),
        (["path", *WORLD, "--times", "1", "--clients", "5"], "finitely many"),
    ],
)
def test_a_bad_value_exits_with_2_and_one_sentence(args, says):
    done = fedasym(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
