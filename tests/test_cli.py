"""The command line: same words, same numbers, one sentence and exit code 2 for a bad value."""

import json
import re
import subprocess
import sys

import pytest

import fedasym as fa
from fedasym import cli
from fedasym.cli import COMMANDS

from .command import fedasym

WORLD = ["--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2"]


def test_predict_prints_the_table_with_the_winner_marked():
    done = fedasym("predict", *WORLD)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "* rtfa" in done.stdout
    assert "same as ftfa" in done.stdout
    assert "Fine-tuning pays" in done.stdout
    assert "Sharing pays" in done.stdout


def test_json_equals_the_library():
    done = fedasym("predict", *WORLD, "--clients", "10", "--no-member", "--json")
    expected = fa.predict(fa.Population(1, 0.5, 2, norm=2), clients=10, member=False)
    assert json.loads(done.stdout) == json.loads(expected.to_json())


@pytest.mark.parametrize(
    ("text", "spectrum"),
    [
        ("identity", fa.spectra.identity()),
        ("ar1:0.5", fa.spectra.ar1(0.5)),
        ("power_law:1", fa.spectra.power_law(1)),
        ("atoms:0.5@0.6,3@0.4", fa.spectra.atoms([0.5, 3], [0.6, 0.4])),
        ("eigenvalues:3,1,0.5", fa.spectra.eigenvalues([3, 1, 0.5])),
    ],
)
def test_spectra_by_name(text, spectrum):
    done = fedasym("predict", *WORLD, "--spectrum", text, "--json")
    assert json.loads(done.stdout) == json.loads(
        fa.predict(fa.Population(1, 0.5, 2, 2, spectrum)).to_json()
    )


def test_spectrum_from_a_file(tmp_path):
    (tmp_path / "eigenvalues.csv").write_text("3\n1\n0.5\n")
    done = fedasym(
        "predict", *WORLD, "--spectrum", f"eigenvalues:{tmp_path / 'eigenvalues.csv'}", "--json"
    )
    inline = fedasym("predict", *WORLD, "--spectrum", "eigenvalues:3,1,0.5", "--json")
    assert done.stdout == inline.stdout


def test_alignment_by_weights():
    args = ["--spectrum", "atoms:0.5@0.6,3@0.4", "--shift-weights", "0.1,0.9"]
    done = fedasym("predict", *WORLD, *args, "--json")
    world = fa.Population(
        1, 0.5, 2, 2, fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_weights=[0.1, 0.9]
    )
    assert json.loads(done.stdout) == json.loads(fa.predict(world).to_json())


def test_compare_needs_no_number_that_varies(tmp_path):
    figure = tmp_path / "phase.png"
    args = [
        "--radius",
        "1",
        "--vary",
        "noise=0:2:20",
        "--vary",
        "aspect=1.5,2,4",
        "--plot",
        str(figure),
    ]
    done = fedasym("compare", "ftfa", "fedavg", *args)
    assert done.returncode == 0, done.stderr
    assert "boundary" in done.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_path_prints_the_best_stopping_point():
    done = fedasym("path", *WORLD, "--step", "0.3", "--steps", "0,1,5,20,100", "--json")
    path = fa.fine_tuning(fa.Population(1, 0.5, 2), step=0.3, steps=[0, 1, 5, 20, 100])
    assert json.loads(done.stdout) == json.loads(path.to_json())
    assert "Best stopping point" in fedasym("path", *WORLD, "--flow", "--times", "0,1").stdout


def test_help_shows_the_commands_by_purpose():
    done = fedasym("--help")
    assert done.returncode == 0
    assert "Before you train" in done.stdout
    assert "At real sizes" in done.stdout
    for command in ("predict", "compare", "path", "simulate"):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["predict", "--radius", "1", "--noise", "0.5", "--aspect", "0"], "aspect is 0"),
        (["predict", "--radius", "1", "--noise", "-0.5", "--aspect", "2"], "noise is -0.5"),
        (["predict", "--radius", "nan", "--noise", "0.5", "--aspect", "2"], "radius is nan"),
        (["predict", "--radius", "one", "--noise", "0.5", "--aspect", "2"], "--radius"),
        (["predict", "--radius", "1", "--noise", "0.5"], "aspect is missing: give --aspect"),
        (["predict", *WORLD, "--algorithms", "ftfq"], "did you mean ftfa"),
        (["predict", *WORLD, "--spectrum", "atoms:1@0.5,2@0.4"], "weights sum to 0.9"),
        (["predict", *WORLD, "--spectrum", "atoms:1,2"], "value@weight"),
        (["predict", *WORLD, "--spectrum", "ar1"], "ar1:0.5"),
        (["predict", *WORLD, "--spectrum", "arl:0.5"], "choose from identity"),
        (["predict", *WORLD, "--spectrum", "eigenvalues:none.npy"], "does not exist"),
        (["predict", *WORLD, "--clients", "1.5"], "clients is 1.5"),
        (["predict", *WORLD, "--plot", "figure.gif"], "must end in .png"),
        (["predict", *WORLD, "--plot", "no/such/folder/figure.png"], "does not exist"),
        (["predict", *WORLD, "--bogus", "1"], "--bogus"),
        (["predikt"], "predict"),
        (["compare", "ftfa", "fedavg", *WORLD, "--vary", "noise"], "noise=0:2:200"),
        (
            ["compare", "ftfa", "fedavg", *WORLD, "--vary", "noise=0:1:3", "--vary", "noise=0:1:3"],
            "twice",
        ),
        (["compare", "ftfa", "fedavg", *WORLD], "--vary"),
        (["path", *WORLD, "--step", "9", "--steps", "2"], "diverges"),
        (["path", *WORLD, "--steps", "1,two"], "steps is '1,two'"),
    ],
)
def test_a_bad_value_exits_with_2_and_one_sentence(args, says):
    done = fedasym(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_process_says_and_ends_the_same():
    for args in ((), ("predict", *WORLD), ("predict", *WORLD, "--clients", "1.5")):
        words = [sys.executable, "-m", "fedasym", *args]
        alone, here = (
            subprocess.run(words, capture_output=True, text=True, check=False),
            fedasym(*args),
        )
        assert (alone.returncode, alone.stdout, alone.stderr) == (
            here.returncode,
            here.stdout,
            here.stderr,
        )


# What is loaded for no command and for each of some: in a process of its own, forked where nothing
# has been loaded.
LOADED = """
import os, sys
from fedasym.cli import app, import_commands
for words in ([], *([each] for each in sys.argv[1:])):
    if os.fork() == 0:
        import_commands(words)
        print(*sorted(name for name in app if name[0] != "-"), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_each_command_is_found_in_its_module():
    """Starting imports the module of one command alone: the list of them must be true."""
    modules = {module: command for command, module in COMMANDS.items()}  # the last one of each
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *modules.values()],
        capture_output=True,
        text=True,
        check=True,
    )
    every, *there = (line.split() for line in done.stdout.splitlines())
    assert every == sorted(COMMANDS)
    found = dict(zip(modules, there, strict=True))
    for command, module in COMMANDS.items():
        assert command in found[module], command
    assert "run" not in found["theory"]


def every_command(app, words=("fedasym",)):
    """All commands below an app, with their words."""
    for name in app:
        if not name.startswith("-"):
            inner = app[name]
            if inner.default_command is None:
                yield from every_command(inner, (*words, name))
            else:
                yield (*words, name), inner


def test_every_command_has_an_example_that_it_understands():
    cli.import_commands([])
    found = dict(every_command(cli.app))
    assert len(found) > 25
    for words, app in found.items():
        text = " ".join(app.help.split())
        example = re.search(r"Example: (fedasym .*?)(?= Parameters -|$)", text)
        assert example, f"{' '.join(words)} --help has no example"
        given = example[1].split()
        assert tuple(given[: len(words)]) == words
        command, _, _ = cli.app.parse_args(given[1:], exit_on_error=False, print_error=False)
        assert command is app.default_command


def test_without_words_three_things_to_try_are_shown_and_all_run(tmp_path):
    shown = fedasym().stdout
    commands = re.findall(r"^  (fedasym .*)$", shown, flags=re.M)
    assert len(commands) == 3
    for command in commands:
        done = fedasym(*command.split()[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_version_says_what_is_installed_and_which_extras():
    said = " ".join(fedasym("--version").stdout.split())
    assert said.startswith(f"fedasym {fa.__version__} on Python ")
    assert "numpy " in said
    assert "extras installed: tables, " in said


def test_extras_that_are_missing_are_named_with_the_way_to_get_them(monkeypatch):
    from importlib import metadata

    real = metadata.version

    def version(name):
        if name in ("ray", "flwr"):
            raise metadata.PackageNotFoundError
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    said = cli.describe_version()
    assert "not installed: ray, flower; one is added by pip install 'fedasym[ray]'" in said


def test_shells_can_complete_commands():
    cli.import_commands([])
    assert "predict" in cli.app.generate_completion(shell="bash")
    assert "--install-completion" in fedasym("--help").stdout


def test_json_and_latex_are_one_or_the_other():
    world = ("--radius", "1", "--noise", "0.5", "--aspect", "2")
    done = fedasym("predict", *world, "--json", "--latex")
    assert done.returncode == 2
    assert "choose one of them" in done.stderr
    assert r"\begin{tabular}{lrrrr}" in fedasym("predict", *world, "--latex").stdout


def test_a_log_has_fewer_lines_the_longer_the_work_is(monkeypatch, capsys):
    clock = iter(range(0, 4000))
    monkeypatch.setattr(cli.time, "monotonic", lambda: float(next(clock)))
    display = cli.Display()
    display.terminal = False
    for second in range(600):
        display(second / 600, "at work")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("at work")
    assert 20 < len(lines) < 45
