"""Run folders from outside: how far each is, which files no longer belong to it, and removing those."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from fedasym.core.errors import InvalidInput
from fedasym.experiments import plan
from fedasym.experiments.folder import EXPERIMENT, RunFolder, is_run
from fedasym.experiments.pieces import Damaged
from fedasym.experiments.remote import is_url, mirrored
from fedasym.experiments.reproduction import RUNS
from fedasym.experiments.selection import chosen
from fedasym.experiments.tables import joined
from fedasym.training.wording import columns


class Status(NamedTuple):
    """How far a run is."""

    name: str
    finished: int
    planned: int
    orphans: int  # finished pieces that the experiment, as it is now, does not ask for
    size: int  # bytes
    running: bool
    changed: float  # seconds since the epoch

    @property
    def state(self) -> str:
        """In a word."""
        return "running" if self.running else "complete" if self.finished == self.planned else "unfinished"


def wanted(folder: RunFolder) -> tuple[set[str], set[str] | None]:
    """The keys of the pieces that the experiment asks for: of tuning, and of trials, which are not known before it is done."""
    experiment, data = folder.experiment(), folder.data()
    pieces = plan.tuning(experiment)
    tuning = {piece.key(data) for piece in pieces}
    try:
        held = [folder.piece(piece.key(data)) for piece in pieces]
    except Damaged:
        return tuning, None
    finished = [each for each in held if each is not None]
    if len(finished) < len(pieces):
        return tuning, None
    choice = chosen(experiment, joined(finished, plan.TUNING, data.task), data.task)
    return tuning, {piece.key(data) for piece in plan.trials(experiment, choice)}


def status(path: str | Path) -> Status:
    """How far the run in a folder is."""
    folder = RunFolder.existing(path)
    tuning, trials = wanted(folder)
    experiment = folder.experiment()
    about = plan.trials(experiment, plan.placeholder(experiment)) if trials is None else trials
    files = list(folder.pieces.glob("*.parquet"))
    mine = sum(file.stem in tuning | (trials or set()) for file in files)
    return Status(
        name=experiment.name,
        finished=mine,
        planned=len(tuning) + len(about),
        orphans=0 if trials is None else len(files) - mine,
        size=sum(file.stat().st_size for file in files),
        running=folder.running(),
        changed=max([file.stat().st_mtime for file in (*files, folder.path / EXPERIMENT)]),
    )


def run_folders(folder: str | Path = RUNS) -> list[Path]:
    """The run folders in a folder, or the folder itself where it is one."""
    place = Path(folder)
    if not place.is_dir():
        raise InvalidInput(f"there is no folder {str(folder)!r}: run an experiment first, or name the folder of your runs")
    return [place] if is_run(place) else sorted(filter(is_run, place.iterdir()))


def found(run: str) -> Path:
    """The folder of a run: a path, a name in the folder of runs, or the mirror of a URL, to be read."""
    if is_url(run):
        return mirrored(run)
    place = Path(run)
    return place if is_run(place) or not is_run(Path(RUNS, run)) else Path(RUNS, run)


def listed(folder: str | Path = RUNS) -> str:
    """The runs in a folder as a table."""
    rows = [["run", "state", "pieces", "orphans", "MB", "last change (UTC)"]]
    for each in run_folders(folder):
        try:
            now = status(each)
        except InvalidInput as reason:
            rows.append([str(each), f"unreadable: {reason}", "", "", "", ""])
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now.changed))
        rows.append([str(each), now.state, f"{now.finished}/{now.planned}", str(now.orphans), f"{now.size / 1e6:.1f}", when])
    return "\n".join(columns(rows, left=2)) if len(rows) > 1 else f"There are no runs in {folder}."


def cleaned(path: str | Path) -> tuple[int, int]:
    """Remove what a run's experiment does not ask for, and what killed processes left; returns files and bytes."""
    folder = RunFolder.existing(path)
    tuning, trials = wanted(folder)
    if trials is None:
        raise InvalidInput(f"{path} has not finished tuning, so that what its trials need is not known: finish the run first")
    return folder.clean(tuning | trials)
