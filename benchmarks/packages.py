"""The wheel and the sdist, built, installed into empty environments, and used far from the
checkout.

    python benchmarks/packages.py --python python3.11 --python python3.12 --python python3.13
    [--keep dist]

Each Python installs the wheel with what experiments need, predicts, trains, and runs a small
experiment; the sdist alone, without extras, predicts.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = ROOT / "examples" / "demo.toml"
PREDICT = [
    "-m",
    "fedasym",
    "predict",
    "--radius",
    "1",
    "--noise",
    "0.5",
    "--aspect",
    "2",
    "--norm",
    "2",
]
TRAIN = """
import fedasym as fa
clients = fa.datasets.synthetic(task="classification", classes=3, dimension=10, aspect=1, clients=10)
runs = fa.train(["fedavg", "ftfa"], clients, rounds=10, evaluate_every=5)
assert len(runs) == 2 and "site-packages" in fa.__file__, fa.__file__
assert fa.Experiment.paper("cifar100").quick().settings.rounds == 20
print(runs)
"""


def done(*words: object, folder: Path) -> str:
    """The output of a command that must succeed."""
    ended = subprocess.run(
        [*map(str, words)], cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(
            f"{' '.join(map(str, words))} ended with"
            f" {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    return ended.stdout


def installed(python: str, home: Path, package: str) -> Path:
    """The Python of an empty environment in which nothing but the package is installed."""
    place = Path(tempfile.mkdtemp(dir=home))
    done(python, "-m", "venv", place, folder=home)
    done(place / "bin/python", "-m", "pip", "install", "--quiet", package, folder=home)
    return place / "bin/python"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="may be given several times")
    parser.add_argument("--keep", type=Path, help="a folder for what passed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        builder = installed(sys.executable, home, "build")
        done(builder, "-m", "build", "--outdir", home, ROOT, folder=home)
        (wheel,), (sdist,) = home.glob("*.whl"), home.glob("*.tar.gz")
        print(
            f"{wheel.name} {wheel.stat().st_size / 1e3:.0f} kB, {sdist.name}"
            f" {sdist.stat().st_size / 1e3:.0f} kB"
        )
        for each in options.python or [sys.executable]:
            version = done(each, "--version", folder=home).strip()
            python = installed(each, home, f"{wheel}[experiments]")
            assert "rtfa" in done(python, *PREDICT, folder=home)
            done(python, "-c", TRAIN, folder=home)
            done(
                python,
                "-m",
                "fedasym",
                "run",
                EXPERIMENT,
                "--quick",
                "--into",
                home / version,
                folder=home,
            )
            alone = installed(each, home, str(sdist))
            assert "rtfa" in done(alone, *PREDICT, folder=home)
            print(
                f"{version}: the wheel predicts, trains and runs an experiment; the sdist alone"
                " predicts",
                flush=True,
            )
        if options.keep:
            options.keep.mkdir(exist_ok=True)
            for file in (wheel, sdist):
                shutil.copy(file, options.keep)
            print(f"Kept in {options.keep}.")


if __name__ == "__main__":
    main()
