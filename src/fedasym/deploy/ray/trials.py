"""The trials of a simulation on Ray: each a task that draws from its own seed, so that its numbers are those of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedasym.core.progress import Notice, Progress
from fedasym.deploy.ray.cluster import joined, ray_package
from fedasym.deploy.ray.pool import Heard, Pool, Task
from fedasym.deploy.ray.settings import Ray
from fedasym.results.simulation import Losses
from fedasym.verbs.trials import Plan, one_trial

Place = tuple[int, int]  # a point of what varies, and a trial


def trial_losses(stored: list[Any], mode: str, place: Place, heard: Heard) -> Losses:
    """In a worker: every algorithm's losses in one trial."""
    point, trial = place
    plan = ray_package().get(stored[0])[point]
    return one_trial(plan, mode, trial, lambda share: heard(share, ""))


def trials_on(
    settings: Ray,
    plans: Sequence[Plan],
    mode: str,
    places: Sequence[Place],
    size: int,
    add: Callable[[int, int, Losses], None],
    progress: Progress | None,
) -> None:
    """Have these trials computed, and added as they come back; `size`: bytes of one's matrices."""
    named = {f"{point}.{trial}": (point, trial) for point, trial in places}
    waiting = list(reversed(named))
    told = progress or (lambda share, text: None)

    def lost(key: str, why: str) -> None:
        told(done / len(named), Notice(f"a trial was lost, {why}: it is computed again"))

    with joined(settings, size), Pool(settings, settings.memory_for(size)) as pool:
        stored = [pool.ray.put(list(plans))]
        done = 0
        while done < len(named):
            while waiting and pool.room():
                key = waiting.pop()
                pool.hand_out(Task(key, trial_losses, (stored, mode, named[key])))
            for key, losses in pool.returned(lost):
                add(*named[key], losses)
                done += 1
            begun = sum(share for share, _ in pool.begun.values())
            told((done + begun) / len(named), f"{done} of {len(named)} trials, {len(pool.begun)} at work")
