"""A run of an experiment killed with SIGKILL again and again, at random moments: is anything lost,
repeated or changed?

    python benchmarks/kill_runs.py --times 100

Each run folder is killed until it is complete; then the next folder is begun. After every kill each
piece that was finished must be whole and untouched, at the end each folder must hold, to the last
bit, what an undisturbed run gives.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fedasym.experiments.folder import COMPUTED, RunFolder
from fedasym.experiments.pieces import Damaged, read_piece

STARTING = 0.1  # the share of processes that are killed while they start
WITHIN = 0.6  # seconds after its first piece, or its start, within which a process is killed
EXPERIMENT = """
name = "killed"
algorithms = ["local", "fedavg", "ftfa", "maml_fo"]
grid = { server_step = [0.01, 0.1, 1], local_step = [0.01, 0.3] }
trials = { seeds = 6, splits = 6 }
gains = { algorithms = ["ftfa", "maml_fo"], epochs = [0, "batch", 1, 2], seeds = 4 }

[data.synthetic]
task = "classification"
clients = 30
dimension = 40
classes = 5
aspect = 0.5

[settings]
rounds = 40
evaluate_every = 10
local_steps = 5
personal_epochs = 2
"""


def start(file: Path, into: Path, cache: Path) -> subprocess.Popen[bytes]:
    """Begin, or go on."""
    words = [sys.executable, "-m", "fedasym", "run", str(file), "--into", str(into)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )


def pieces(folder: Path) -> dict[str, tuple[int, int]]:
    """The pieces that are there; another inode or time means that one was written again."""
    files = (folder / "pieces").glob("*.parquet") if folder.exists() else ()
    return {file.stem: (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def torn(folder: Path) -> int:
    """Finished pieces that are not whole."""
    count = 0
    for file in (folder / "pieces").glob("*.parquet"):
        try:
            read_piece(file)
        except Damaged:
            count += 1
    return count


def differing(folder: Path, reference: Path) -> int:
    """Pieces that are missing, or not what an undisturbed run gives."""
    count = 0
    for file in (reference / "pieces").glob("*.parquet"):
        mine = folder / "pieces" / file.name
        count += not mine.exists() or not read_piece(mine).frame.equals(read_piece(file).frame)
    return count


def killed(times: int, seed: int, home: Path) -> dict[str, Any]:
    """Kill `times` processes; what came of it."""
    file, cache, whole = home / "killed.toml", home / "cache", home / "undisturbed"
    file.write_text(EXPERIMENT)
    for into in (home / "warm", whole):  # the first compiles for all
        begun = time.monotonic()
        if start(file, into, cache).wait() != 0:
            sys.exit("the undisturbed run failed")
    seconds, planned = time.monotonic() - begun, len(pieces(whole))
    chance, found, folders = random.Random(seed), Counter[str](), [home / "run 1"]
    moments = []
    while found["kills"] < times:
        into = folders[-1]
        before = pieces(into)
        process = start(file, into, cache)
        if chance.random() > STARTING:  # most of its time goes into starting: kill it at work
            while process.poll() is None and len(pieces(into)) == len(before):
                time.sleep(0.002)
        try:
            process.wait(timeout=chance.uniform(0, WITHIN))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            found["kills"] += 1
            found["half-written files left"] += len(list(into.glob("pieces/.*.part")))
        after = pieces(into)
        moments.append(len(after))
        found["pieces lost or written again"] += sum(
            after.get(key) != mark for key, mark in before.items()
        )
        found["pieces torn"] += torn(into) if into.exists() else 0
        if len(after) == planned:
            folders.append(home / f"run {len(folders) + 1}")
    for into in folders:
        if start(file, into, cache).wait() != 0:
            sys.exit("a resumed run failed")
        found["pieces that differ from the undisturbed run"] += differing(into, whole)
        computed = Counter(entry.key for entry in RunFolder(into).log() if entry.event == COMPUTED)
        found["pieces computed twice"] += sum(count > 1 for count in computed.values())
    sizes = {
        "folders": len(folders),
        "pieces in each": planned,
        "seconds undisturbed": round(seconds, 1),
    }
    asked = (
        "pieces lost or written again",
        "pieces torn",
        "pieces computed twice",
        "pieces that differ from the undisturbed run",
    )
    counts = {name: found[name] for name in ("kills", "half-written files left", *asked)}
    return (
        sizes | {"kills by pieces then finished": dict(sorted(Counter(moments).items()))} | counts
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(killed(options.times, options.seed, Path(home)), indent=2))


if __name__ == "__main__":
    main()
