"""The trials of a simulation: those that a file does not have yet, one after the other, or on a cluster side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fedasym.core.hooks import Executor, Progress, ask
from fedasym.core.machine import few_threads
from fedasym.verbs.simulation_files import Ledger
from fedasym.verbs.simulation_plans import Losses, Plan, Setting, Tick

MATRICES = 24  # d x d arrays alive at once, sums of two streams and the models made of them


def fill(
    ledger: Ledger, plans: Sequence[Plan], repeats: int, setting: Setting, progress: Progress | None, on: Executor | str | None
) -> None:
    """Have all trials in the ledger; each draws from its own seed, so that where and when does not matter."""
    missing = [(place, trial) for place in range(len(plans)) for trial in range(repeats) if ledger.get(place, trial) is None]
    if on is not None and missing:
        size = int(MATRICES * 8.0 * max(plan.kinds[0].s.size for plan in plans) ** 2)
        ask("run trials")(ask("read executor")(on), plans, setting.mode, missing, size, ledger.add, progress)
        return
    for place, trial in missing:
        tick = ticker(progress, setting, (place, trial), (len(plans), repeats))
        ledger.add(place, trial, one_trial(plans[place], setting.mode, trial, tick))


def one_trial(plan: Plan, mode: str, trial: int, tick: Tick) -> Losses:
    """Every algorithm's losses in one trial."""
    with few_threads(plan.kinds[0].s.size):
        if mode == "sampling":
            from fedasym.verbs.simulation_sampling import sampled

            return sampled(plan, trial, tick)
        from fedasym.verbs.simulation_expectation import expected

        return expected(plan, trial, tick)


def ticker(progress: Progress | None, setting: Setting, at: tuple[int, int], of: tuple[int, int]) -> Tick:
    """Tell the progress of one trial (a point and a repeat) as that of the whole."""
    if progress is None:
        return lambda share: None
    (place, trial), (points, repeats) = at, of
    where = "" if setting.vary is None else f"{setting.vary[0]} {setting.vary[1][place]:g}, "
    text = f"{where}trial {trial + 1} of {repeats}"
    return lambda share: progress((place * repeats + trial + share) / (points * repeats), text)
