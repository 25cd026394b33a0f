"""Every way in from outside, with inputs made wrong: how many cases, how many were taken or
refused, and what went wrong.

    python benchmarks/fuzz.py --cases 2000                   # valid inputs, changed at random
    python benchmarks/fuzz.py --cases 2000 --door parquet    # the doors with that in their name
    python benchmarks/fuzz.py --cases 20000 --atheris        # the parsers in Python, led by
    coverage (pip install atheris)

A case may give a result or a refusal in words. Anything else counts: another exception, a crash,
more than 20 s, more than 700 MB, a file outside its folder. Each door has a process of its own with
bounded memory, so that a crash is seen.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

TESTS = str(Path(__file__).resolve().parents[1] / "tests")
ROOM = (
    6 * 2**30
)  # bytes of addresses that a door's process may ask for beyond what it has when it starts
PARSERS = (
    "tf.train.Example",
    "client data .json",
    "experiment .toml",
    "Flower array",
    "word counts",
    "dump .xml",
    "eigenvalues",
)


def doors() -> dict[str, Any]:
    """All ways in, by name."""
    sys.path.insert(0, TESTS)
    from hardening import doors, messages, states

    return {
        door.name: door for door in (*doors.FILES, *doors.WORDS, *messages.DOORS, *states.DOORS)
    }


def tried(name: str, cases: int, seed: int) -> None:
    """Try one door, and print its line."""
    door = doors()[name]
    for sample in door.samples():
        door.try_(sample)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, -1))
    found, wrong, begun = Counter[str](), {}, time.monotonic()
    for number in range(cases):
        try:
            found[
                "taken" if door.try_(door.case(Random(f"{seed} {number}"))) is None else "refused"
            ] += 1
        except AssertionError as finding:
            found["wrong"] += 1
            wrong.setdefault(str(finding)[:60], f"case {seed} {number}: {finding}"[:300])
    seconds = time.monotonic() - begun
    print(
        f"| {name} | {cases:,} | {found['taken']:,} | {found['refused']:,} | {found['wrong']:,} |"
        f" {seconds:.0f} s |",
        flush=True,
    )
    print("\n".join(wrong.values()), file=sys.stderr)
    sys.exit(bool(wrong))


def led_by_coverage(name: str, cases: int, seed: int) -> None:
    """Try one door with atheris, which keeps the inputs that reach new lines."""
    import atheris

    with atheris.instrument_imports(include=["fedasym"], enable_loader_override=False):
        door = doors()[name]
    with TemporaryDirectory() as corpus:
        for number, sample in enumerate(door.samples()):
            Path(corpus, str(number)).write_bytes(sample)
        words = [
            sys.argv[0],
            f"-runs={cases}",
            f"-seed={seed + 1}",
            "-max_len=8192",
            "-verbosity=0",
            corpus,
        ]
        atheris.Setup(words, lambda data: door.try_(data) and None, enable_python_coverage=True)
        atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000, help="of each door")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--door", default="", help="only doors with this in their name")
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        (led_by_coverage if options.atheris else tried)(options.door, options.cases, options.seed)
        return
    names = [
        name
        for name in doors()
        if options.door in name and (name in PARSERS or not options.atheris)
    ]
    failed = []
    print(
        "| way in | cases | taken | refused | wrong | time |\n| --- | --- | --- | --- | --- |"
        " --- |",
        flush=True,
    )
    for name in names:
        words = [
            sys.executable,
            __file__,
            "--alone",
            "--door",
            name,
            "--cases",
            str(options.cases),
            "--seed",
            str(options.seed),
        ]
        begun = time.monotonic()
        done = subprocess.run(
            [*words, *(["--atheris"] if options.atheris else [])],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        seconds = time.monotonic() - begun
        if options.atheris and not done.returncode:
            print(f"| {name} | {options.cases:,} | | | 0 | {seconds:.0f} s |", flush=True)
        print(done.stdout, end="", flush=True)
        if done.returncode:
            failed.append(name)
            print(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}", flush=True)
    total = options.cases * len(names)
    print(
        f"\n{total:,} cases, {len(names)} ways in:"
        f" {'wrong in ' + ', '.join(failed) if failed else 'nothing went wrong'}."
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
