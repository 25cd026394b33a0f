"""Hands on a Ray cluster: tasks go out with stated needs, results come back, and what a dead worker held goes out again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

from fedasym.core.errors import InvalidInput
from fedasym.core.version import __version__
from fedasym.deploy.ray.cluster import ray_package
from fedasym.deploy.ray.settings import Ray

TICK = 0.25  # seconds after which a driver looks around, though nothing came back
LOOK = 1.0  # seconds between two looks at the nodes, and between two words of a task
CRASHES = 4  # of its workers that a task may survive; nodes may die as often as they like

Heard = Callable[[float, str], None]
Lost = Callable[[str, str], None]  # hears the key of a task that is handed out again, and why


class Task(NamedTuple):
    """What is handed out: the function is called with the arguments and with a `Heard`."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Board:
    """What the tasks at work have said last; it lives beside the driver."""

    def __init__(self) -> None:
        self.said: dict[str, tuple[float, str]] = {}

    def tell(self, key: str, share: float, text: str) -> None:
        """A task speaks."""
        self.said[key] = share, text

    def read(self) -> dict[str, tuple[float, str]]:
        """All that is new since the last look."""
        said, self.said = self.said, {}
        return said


def worked(task: Task, board: Any, version: str) -> Any:
    """A task, on a worker."""
    if __version__ != version:
        told = f"a node of the cluster has fedasym {__version__}, and this process {version}"
        raise InvalidInput(f"{told}: install the same version on all nodes")
    last = 0.0

    def heard(share: float, text: str) -> None:
        nonlocal last
        if time.monotonic() - last > LOOK:
            last = time.monotonic()
            board.tell.remote(task.key, share, text)

    board.tell.remote(task.key, 0.0, "")
    return task.function(*task.arguments, heard)


def told_here(error: Any) -> Exception:
    """The error of a task, as the driver tells it."""
    if "No module named 'fedasym" in str(error):
        return InvalidInput(f"a node of the cluster has no fedasym: install fedasym {__version__} on all nodes, as here")
    return error.cause if isinstance(error.cause, InvalidInput) else error


class Pool:
    """The tasks that are out, and the words that came back from them."""

    def __init__(self, settings: Ray, memory: int) -> None:
        ray = self.ray = ray_package()
        self.settings, self.memory = settings, memory
        self.wants = {"CPU": settings.threads, "GPU": settings.gpus, "memory": memory}
        self.out: dict[Any, Task] = {}  # by the reference of the result
        self.begun: dict[str, tuple[float, str]] = {}  # what the tasks at work have said
        self.crashes: Counter[str] = Counter()
        self.looked, self.slots = 0.0, self._slots()
        if not self.slots:
            told = f"no node of the cluster has the {self.needs} that a task is given: there are {self._described()}"
            raise InvalidInput(f"{told}; ask for less, or add a node")
        needs = {"num_cpus": settings.threads, "num_gpus": settings.gpus, "memory": memory}
        told_there = {"env_vars": settings.variables()}
        # Ray's own retries would hide from the driver, and from its log, what was lost.
        self.hand = ray.remote(worked).options(name="fedasym", max_retries=0, runtime_env=told_there, **needs)
        here = ray.get_runtime_context().get_node_id()
        beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        self.board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=beside).remote()
        self.asked = self.board.read.remote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what is still out: nobody waits for it."""
        with suppress(self.ray.exceptions.RayError):  # the cluster may be gone
            for reference in self.out:
                self.ray.cancel(reference, force=True)
            self.ray.kill(self.board)

    @property
    def needs(self) -> str:
        """What a task is given, in words."""
        return f"{self.settings.needs} and {self.memory / 2**30:.1f} GB"

    @property
    def hands(self) -> int:
        """Tasks that can be at work at a time."""
        return min(self.slots, self.settings.workers or self.slots)

    def _alive(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def _described(self) -> str:
        """The nodes, in words."""
        words = ("CPU", "{:g} CPUs", 1), ("GPU", "{:g} GPUs", 1), ("memory", "{:.1f} GB", 2**30)
        return "; ".join(
            " and ".join(text.format(has.get(name, 0) / unit) for name, text, unit in words) for has in self._alive()
        )

    def _slots(self) -> int:
        """Tasks that all nodes have room for."""
        self.looked = time.monotonic()
        return sum(int(min(has.get(name, 0) / want for name, want in self.wants.items() if want)) for has in self._alive())

    def room(self) -> bool:
        """Whether one more task may go out: beside the one at work, each hand has one waiting, lest it wait for the driver."""
        if time.monotonic() - self.looked > LOOK:
            self.slots = self._slots()
        return len(self.out) < (self.settings.workers or 2 * max(self.slots, 1))

    def hand_out(self, task: Task) -> None:
        """Send a task to the cluster."""
        self.out[self.hand.remote(task, self.board, __version__)] = task

    def returned(self, lost: Lost) -> list[tuple[str, Any]]:
        """Keys and results of what has come back within a tick; what was lost goes out again."""
        if not self.out:
            time.sleep(TICK)
            return []
        ready = self.ray.wait(list(self.out), num_returns=len(self.out), timeout=0)[0]
        ready = ready or self.ray.wait(list(self.out), num_returns=1, timeout=TICK)[0]
        results = []
        for reference in ready:
            task = self.out.pop(reference)
            self.begun.pop(task.key, None)
            try:
                results.append((task.key, self.ray.get(reference)))
            except self.ray.exceptions.RayTaskError as error:
                raise told_here(error) from None
            except self.ray.exceptions.RayError as error:
                self._again(task, error, lost)
        self._listen()
        return results

    def _again(self, task: Task, error: Exception, lost: Lost) -> None:
        """Hand out a task whose worker or node died; give up on one that kills its workers."""
        kinds = self.ray.exceptions
        match error:
            case kinds.WorkerCrashedError():
                why = "its worker died"
            case kinds.OutOfMemoryError():
                why = "its node ran out of memory"
            case kinds.NodeDiedError() | kinds.ObjectLostError():
                why = "its node died"
            case kinds.LocalRayletDiedError():
                told = "the Ray node of this process died"
                raise InvalidInput(f"{told}: finished pieces are kept, and the same call goes on from there") from None
            case _:
                raise error
        self.crashes[task.key] += why != "its node died"
        if self.crashes[task.key] > CRASHES:
            told = f"a task was lost {self.crashes[task.key]} times, at last because {why}"
            raise InvalidInput(f"{told}: it may need more than the {self.needs} that it is given; give it more") from None
        lost(task.key, why)
        self.hand_out(task)

    def _listen(self) -> None:
        """Hear what tasks say, without waiting for it."""
        if self.ray.wait([self.asked], timeout=0)[0]:
            out = {task.key for task in self.out.values()}
            self.begun |= {key: said for key, said in self.ray.get(self.asked).items() if key in out}
            self.asked = self.board.read.remote()
