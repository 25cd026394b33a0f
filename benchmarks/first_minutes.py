"""A new user's first ten minutes: every step from an empty environment, timed, with what it says
at its end; then every command and every Python example that the README and the documentation show.

    python benchmarks/first_minutes.py [--python python3.12 ...] [--pages README.md learn ...]

The wheel is built and installed into an empty environment of each Python; then each command runs for
the first time, far from the checkout: imports are not cached, programs not compiled. Files that a new
user would bring are drawn first. Every command of a page runs in a folder of that page, in its order,
then its Python examples; any that fails ends it all. What needs a data set, a GPU or other machines
is listed as left out, with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from packages import ROOT, done, installed

CLIENTS = """
import csv, fedasym as fa
clients = fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=40, dimension=20)
with open("clients.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["user", *(f"x{i}" for i in range(20)), "y"])
    for owner, x, y in zip(clients.owner, clients.features, clients.labels, strict=True):
        rows.writerow([f"user {owner}", *x, *y])
"""
EXPERIMENT = """
name = "mine"
algorithms = ["local", "fedavg", "ftfa", "rtfa"]
[data.synthetic]
task = "classification"
clients = 20
dimension = 20
classes = 5
aspect = 0.5
[settings]
rounds = 20
evaluate_every = 10
[trials]
seeds = 3
"""
FILES = (
    CLIENTS.replace('"user"', '"client"').replace('"y"', '"label"')
    + """
import numpy as np, polars as pl
rng = np.random.default_rng(0)
school = np.repeat(np.arange(20), 30)
hours = rng.gamma(4, 1, 600)
pupils = pl.DataFrame({
    "school": [f"school {i}" for i in school],
    "hours": hours,
    "score": 40 + 3 * hours + rng.standard_normal(20)[school] + rng.standard_normal(600),
})
pupils.write_csv("pupils.csv")
pupils.drop("score").head(9).write_csv("new.csv")
"""
)
DOCTEST = """
import doctest, sys
failed, tried = doctest.testfile(sys.argv[1], False, optionflags=doctest.NORMALIZE_WHITESPACE)
print(tried)
sys.exit(failed)
"""
EXTRAS = "data,excel,experiments,flower,privacy,sklearn"
BESIDE = ("pandas", "pyarrow")  # of which pages show frames
SKIPPED = {
    r"^fedasym (pretrain|features|data (fetch|show))": "needs a data set's files and PyTorch",
    r"^fedasym (run|reproduce) (cifar100|docs)": "needs the features of a data set",
    r"safetensors-|….safetensors|north|out/": "needs what another machine or command made",
    r"--on ray": "needs Ray",
    r"^fedasym explore( --port.*)?$": "timed above",
}
STEPS = {
    "fedasym alone": "",
    "version": "--version",
    "advise on the table that ships": "advise shops --label sales --client shop",
    "predict": "predict --radius 1 --noise 0.5 --aspect 2 --norm 2",
    "compare, with a figure": (
        "compare ftfa fedavg --radius 1 --vary noise=0:2:200 --vary aspect=1.1:10:200 --plot"
        " phase.png"
    ),
    "simulate": (
        "simulate --radius 1 --noise 0.5 --aspect 2 --dimension 100 --clients 10 --trials 3"
    ),
    "train": (
        "train synthetic --algorithms local,fedavg,ftfa,rtfa --rounds 40 --evaluate-every 20 --plot"
        " curves.png"
    ),
    "advise on a CSV": "advise clients.csv --label y --client user --report advice.html",
    "run an experiment": "run mine.toml --into mine",
    "report": "report mine",
}


def explored(command: Path, folder: Path) -> float:
    """Seconds until the page of `explore` answers."""
    start = time.perf_counter()
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(
        [command, "explore", "--no-open", "--port", "0"], cwd=folder, **quiet
    ) as server:
        for line in server.stdout:
            if found := re.search(r"http://\S+", line):
                with urllib.request.urlopen(found[0].rstrip(".,:")) as page:
                    assert "<html" in page.read().decode().lower()
                break
        seconds = time.perf_counter() - start
        server.terminate()
    return seconds


def shown_commands(wanted: list[str]) -> dict[Path, list[str]]:
    """The fedasym commands in blocks of code, by page, each once: the README and all of docs."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found: dict[Path, list[str]] = {}
    seen: set[str] = set()
    for page in pages:
        name = str(page.relative_to(ROOT))
        if page.parent.name == "reference" or not any(each in name for each in wanted or [""]):
            continue
        found[page] = []
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.S | re.M)
        for block in [each for language, each in blocks if language in ("console", "bash", "")]:
            for line in re.findall(r"^(?:\$ )?(fedasym .*)$", block, flags=re.M):
                command = line.split(" #")[0].strip()
                if command not in seen:
                    seen.add(command)
                    found[page].append(command)
    return found


def reason_to_skip(command: str) -> str | None:
    """Why a command cannot run in an empty environment on one machine, if it cannot."""
    return next((why for form, why in SKIPPED.items() if re.search(form, command)), None)


def lay_out(folder: Path, python: Path) -> None:
    """What the pages' commands read: tables of the names that they use, an experiment, a stage."""
    done(python, "-c", FILES, folder=folder)
    (folder / "mine.toml").write_text(EXPERIMENT)
    shutil.copyfile(ROOT / "examples" / "proximal.py", folder / "proximal.py")
    shutil.copytree(ROOT / "docs" / "reproduction", folder / "docs" / "reproduction")
    shutil.copyfile(ROOT / "docs" / "foresight.md", folder / "docs" / "foresight.md")


def try_pages(python: Path, home: Path, wanted: list[str]) -> None:
    """Run what the pages show: commands, then examples."""
    command = python.parent / "fedasym"
    left_out = []
    print("\n| page | command | seconds | what it says last |\n| --- | --- | --- | --- |")
    for page, lines in shown_commands(wanted).items():
        name, folder = page.relative_to(ROOT), Path(tempfile.mkdtemp(dir=home))
        lay_out(folder, python)
        if not any("run mine.toml" in line for line in lines):  # the run that others go on from
            shutil.copytree(home / "mine", folder / "runs" / "mine")
        for line in lines:
            if why := reason_to_skip(line):
                left_out.append(f"| {name} | `{line}` | {why} |")
                continue
            start = time.perf_counter()
            said = done(command, *shlex.split(line)[1:], folder=folder).strip().splitlines()
            last = said[-1].strip()[:80].replace("|", "/") if said else ""
            print(f"| {name} | `{line}` | {time.perf_counter() - start:.1f} | {last} |", flush=True)
        if ">>>" in page.read_text():
            start = time.perf_counter()
            count = done(python, "-c", DOCTEST, page, folder=folder).strip().splitlines()[-1]
            seconds = time.perf_counter() - start
            print(f"| {name} | {count} Python examples | {seconds:.1f} | |", flush=True)
    print("\n| page | left out | why |\n| --- | --- | --- |", *left_out, sep="\n")


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--python", action="append", help="a Python to try; repeat it")
    asked.add_argument(
        "--pages", nargs="*", default=[], help="parts of pages' names; all by default"
    )
    given = asked.parse_args()
    for python in given.python or [sys.executable]:
        try_python(python, given.pages)


def try_python(base: str, wanted: list[str]) -> None:
    """The first minutes with one Python."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(home / "cache")  # nothing compiled, nothing kept
        builder = installed(sys.executable, home, "build")
        done(builder, "-m", "build", "--wheel", "--outdir", home, ROOT, folder=home)
        (wheel,) = home.glob("*.whl")
        start = time.perf_counter()
        python = installed(base, home, f"{wheel}[{EXTRAS}]")
        done(python, "-m", "pip", "install", "--quiet", *BESIDE, folder=home)
        said = done(python, "--version", folder=home).strip()
        print(
            f"{said}, {os.cpu_count()} cores, on which {os.getloadavg()[0]:.1f} other processes ran"
            " when it began\n"
        )
        print("| step | seconds | what it says last |\n| --- | --- | --- |")
        print(f"| install | {time.perf_counter() - start:.0f} | |", flush=True)
        done(python, "-c", CLIENTS, folder=home)
        (home / "mine.toml").write_text(EXPERIMENT)
        command = python.parent / "fedasym"
        for step, words in STEPS.items():
            start = time.perf_counter()
            said = done(command, *words.split(), folder=home).strip().splitlines()
            print(
                f"| {step} | {time.perf_counter() - start:.1f} | {said[-1].strip()} |", flush=True
            )
        print(f"| explore, until the page is there | {explored(command, home):.1f} | |")
        try_pages(python, home, wanted)


if __name__ == "__main__":
    main()
