"""A Ray cluster and the tasks on it: joined or started, left again, and whatever a dead worker held
goes out once more.

The cluster runs somewhere, or is one of this machine that lives as long as it is needed. Tasks go
out with stated needs, and results come back.

A piece is a task that reads the data in its node's memory and sends back its rows. The driver alone
holds locks and writes to the run folder, through the same atomic files as a run in one process:
whatever dies, finished pieces are there, and a piece that comes back is written once. A trial is a
task that draws from its own seed, so that its numbers are those of one process.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from fedasym.core import __version__
from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.core.runtime import Notice, Progress
from fedasym.data.federation import Federation
from fedasym.data.shards import deal_out, share_out
from fedasym.deploy import Board, Ray, list_readable
from fedasym.experiments.execution import Worker
from fedasym.experiments.folder import LOST
from fedasym.experiments.pieces import Finished, command_line, compute_piece, describe_environment
from fedasym.experiments.plan import Piece
from fedasym.results.simulation import Losses
from fedasym.verbs.simulation import one_trial
from fedasym.verbs.trials import TrialPlan

LOOPBACK = (  # "0": clusters listen to their own machine alone, on every system
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
)
SHARED = "/dev/shm"  # where an object store's memory is on Linux
PATIENCE = 5.0  # seconds within which an address must answer
STATUS = 30.0  # seconds within which a cluster must tell its status; Ray goes on for longer
STORE = 100 * 2**20  # bytes of an object store beside the data: results on their way


def ray_package(local: bool = False) -> Any:
    """The package ray; local: to start a cluster of this machine that listens to no other."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # both are read when it is imported
    if local:
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError:
        raise MissingPackage(
            "on is 'ray', which is not installed: pip install 'fedasym[ray]'"
        ) from None
    return ray


@contextmanager
def join_cluster(settings: Ray, size: int) -> Iterator[None]:
    """Drive the cluster for a while, or use the connection that exists; size: bytes of data."""
    address = settings.address or os.environ.get("RAY_ADDRESS") or None
    ray = ray_package(local=address is None)
    if ray.is_initialized():
        yield
        return
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": True}
    if address is None:
        common |= local_cluster(settings, size)
    else:
        check_address(address)
        common |= {"address": address}
    try:
        ray.init(**common)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as reason:
        ray.shutdown()
        raise joining_error(address, reason) from None
    try:
        yield
    finally:
        ray.shutdown()


def local_cluster(settings: Ray, size: int) -> dict[str, Any]:
    """The arguments of a cluster of this machine alone: it listens to none and shows no page."""
    store = int(1.2 * size) + STORE
    cpus = os.cpu_count() or 1
    workers = max(cpus // settings.threads, 1) if settings.workers is None else settings.workers
    told = {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": workers * settings.threads,
        "object_store_memory": store,
    }
    if os.path.isdir(SHARED) and shutil.disk_usage(SHARED).free < store:
        # slower than memory, but it holds the data
        told["_plasma_directory"] = tempfile.gettempdir()
    return told


def check_address(address: str) -> None:
    """Refuse at once an address where no cluster answers: Ray itself would try for minutes, then
    end this process.

    Whether it is a cluster that answers is therefore asked in a process of its own.
    """
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not port.isdigit():
        known = "give host:port as ray start --head prints it, such as 10.0.0.1:6379, or auto"
        raise InvalidInput(f"address is {address!r}: {known}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as reason:
        why = getattr(reason, "strerror", None) or str(reason)
        hint = "is the head of the cluster running (ray start --head), and its port open?"
        raise InvalidInput(
            f"address is {address!r}: nobody answers there ({why}); {hint}"
        ) from None
    asked = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        subprocess.run(asked, capture_output=True, text=True, timeout=STATUS, check=True)
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"address is {address!r}: what answers there is not a Ray cluster; check the port"
        ) from None
    except subprocess.CalledProcessError as reason:
        raise joining_error(address, (reason.stderr.strip().splitlines() or [reason])[-1]) from None


def joining_error(address: str | None, reason: Exception | str) -> InvalidInput:
    """What Ray said when it was joined, in one sentence."""
    said = " ".join(str(reason).split())[:300].rstrip(".")
    if address is None:
        return InvalidInput(f"a Ray cluster of this machine could not be started: {said}")
    if address == "auto":
        return InvalidInput(
            "address is 'auto', and no Ray cluster runs on this machine: start one with ray start"
            " --head"
        )
    hint = (
        "this machine must be one of its nodes (ray start), with the same Python and ray and, where"
        " it asks for one, its token"
    )
    return InvalidInput(f"address is {address!r}: this cluster cannot be joined: {said}; {hint}")


TICK = 0.25  # seconds after which a driver looks around, though nothing came back
AHEAD = 2  # shards that an actor is asked about: one at work and one waiting
LOOK = 1.0  # seconds between two looks at the nodes, and between two words of a task
NODE_DIED = "its node died"  # why a task was lost
CRASHES = 4  # of its workers that a task may survive; nodes may die as often as they like

TaskProgress = Callable[[float, str], None]
# hears the key of a task that is handed out again, and why
LostListener = Callable[[str, str], None]


class Task(NamedTuple):
    """What is handed out: the function is called with the arguments and with a `TaskProgress`."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def check_version(version: str) -> None:
    """Refuse, on a worker, to work for a driver of another version."""
    if __version__ != version:
        told = f"a node of the cluster has fedasym {__version__}, and the driver {version}"
        raise InvalidInput(f"{told}: install the same version on all nodes")


def run_task(task: Task, board: Any, version: str) -> Any:
    """A task, on a worker."""
    check_version(version)
    last = 0.0

    def report_progress(share: float, text: str) -> None:
        nonlocal last
        if time.monotonic() - last > LOOK:
            last = time.monotonic()
            board.tell.remote(task.key, share, text)

    board.tell.remote(task.key, 0.0, "")
    return task.function(*task.arguments, report_progress)


def task_error(error: Any) -> Exception:
    """The error of a task, as the driver tells it."""
    if "No module named 'fedasym" in str(error):
        return InvalidInput(
            f"a node of the cluster has no fedasym: install fedasym {__version__} on all nodes, as"
            " here"
        )
    return error.cause if isinstance(error.cause, InvalidInput) else error


class Capacity:
    """What a cluster has room for, of workers with stated needs."""

    def __init__(self, settings: Ray, memory: int) -> None:
        ray = self.ray = ray_package()
        self.settings, self.memory = settings, memory
        self.wants = {"CPU": settings.threads, "GPU": settings.gpus, "memory": memory}
        self.looked = 0.0
        self.slots = self.count_slots()
        if not self.slots:
            told = (
                f"no node of the cluster has the {self.needs} that a task is given: there are"
                f" {self._describe_nodes()}"
            )
            raise InvalidInput(f"{told}; ask for less, or add a node")
        # Ray's own retries would hide from the driver, and from its log, what was lost.
        self.options: dict[str, Any] = {
            "num_cpus": settings.threads,
            "num_gpus": settings.gpus,
            "memory": memory,
            "runtime_env": {"env_vars": settings.variables()},
        }
        here = ray.get_runtime_context().get_node_id()
        self.beside = self.on_node(here)

    @property
    def needs(self) -> str:
        """What a task is given, in words."""
        return f"{self.settings.needs} and {self.memory / 2**30:.1f} GB"

    @property
    def hands(self) -> int:
        """Workers that can be there at a time."""
        return min(self.slots, self.settings.workers or self.slots)

    def _living_nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def rooms(self) -> dict[str, int]:
        """Workers that each node has room for, where it has any."""
        found = {
            node["NodeID"]: self.room_of(node["Resources"])
            for node in self.ray.nodes()
            if node["Alive"]
        }
        return {node: room for node, room in sorted(found.items()) if room}

    def room_of(self, has: Mapping[str, float]) -> int:
        """Workers that there is room for."""
        return int(min(has.get(name, 0) / want for name, want in self.wants.items() if want))

    def on_node(self, node: str) -> Any:
        """Ray's word for: there, and nowhere else."""
        strategies = self.ray.util.scheduling_strategies
        return strategies.NodeAffinitySchedulingStrategy(node, soft=False)

    def is_alive(self, node: str) -> bool:
        """Whether a node of that number is there."""
        return any(each["NodeID"] == node and each["Alive"] for each in self.ray.nodes())

    def _describe_nodes(self) -> str:
        """The nodes, in words."""
        words = ("CPU", "{:g} CPUs", 1), ("GPU", "{:g} GPUs", 1), ("memory", "{:.1f} GB", 2**30)
        return "; ".join(
            " and ".join(text.format(has.get(name, 0) / unit) for name, text, unit in words)
            for has in self._living_nodes()
        )

    def count_slots(self) -> int:
        """Workers that all nodes have room for."""
        self.looked = time.monotonic()
        return sum(map(self.room_of, self._living_nodes()))

    def reason_of(self, error: Exception) -> str:
        """Why a worker was lost; raises what no other worker mends."""
        kinds = self.ray.exceptions
        match error:
            case kinds.OutOfMemoryError():
                return "its node ran out of memory"
            case kinds.NodeDiedError() | kinds.ObjectLostError() | kinds.ActorUnschedulableError():
                return NODE_DIED
            case kinds.LocalRayletDiedError():
                told = "the Ray node of this process died"
                raise InvalidInput(
                    f"{told}: finished pieces are kept, and the same call goes on from there"
                ) from None
            case kinds.WorkerCrashedError() | kinds.RayActorError():
                return "its worker died"
            case _:
                raise error

    def count_crash(self, key: str, why: str, crashes: Counter[str]) -> None:
        """Give up what kills its workers, over and over; nodes may die as often as they like."""
        crashes[key] += why != NODE_DIED
        if crashes[key] > CRASHES:
            told = f"a task was lost {crashes[key]} times, at last because {why}"
            raise InvalidInput(
                f"{told}: it may need more than the {self.needs} that it is given; give it more"
            ) from None


class TaskPool(Capacity):
    """The tasks that are out, and the words that came back from them."""

    def __init__(self, settings: Ray, memory: int) -> None:
        super().__init__(settings, memory)
        ray = self.ray
        self.out: dict[Any, Task] = {}  # by the reference of the result
        self.begun: dict[str, tuple[float, str]] = {}  # what the tasks at work have said
        self.crashes: Counter[str] = Counter()
        self.hand = ray.remote(run_task).options(name="fedasym", max_retries=0, **self.options)
        self.board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=self.beside).remote()
        self.asked = self.board.read.remote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what is still out: nobody waits for it."""
        with suppress(self.ray.exceptions.RayError):  # the cluster may be gone
            for reference in self.out:
                self.ray.cancel(reference, force=True)
            self.ray.kill(self.board)

    def room(self) -> bool:
        """Whether one more task may go out: each hand has one at work and one waiting."""
        if time.monotonic() - self.looked > LOOK:
            self.slots = self.count_slots()
        return len(self.out) < (self.settings.workers or 2 * max(self.slots, 1))

    def hand_out(self, task: Task) -> None:
        """Send a task to the cluster."""
        self.out[self.hand.remote(task, self.board, __version__)] = task

    def collect_results(self, lost: LostListener) -> list[tuple[str, Any]]:
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
                raise task_error(error) from None
            except self.ray.exceptions.RayError as error:
                self._hand_out_again(task, error, lost)
        self._listen()
        return results

    def _hand_out_again(self, task: Task, error: Exception, lost: LostListener) -> None:
        """Hand out a task whose worker or node died; give up on one that kills its workers."""
        why = self.reason_of(error)
        self.count_crash(task.key, why, self.crashes)
        lost(task.key, why)
        self.hand_out(task)

    def _listen(self) -> None:
        """Hear what tasks say, without waiting for it."""
        if self.ray.wait([self.asked], timeout=0)[0]:
            out = {task.key for task in self.out.values()}
            self.begun |= {
                key: said for key, said in self.ray.get(self.asked).items() if key in out
            }
            self.asked = self.board.read.remote()


# what some are told, by their numbers, given the runs of shards as they are then
Jobs = Callable[[Sequence[Sequence[int]]], Mapping[int, tuple[Any, ...]]]


class Lost(Exception):
    """A keeper died, or there is no room for all of them any more; the message says why."""


def cover_shards(held: Mapping[str, Collection[int]], shards: int) -> list[str]:
    """Few nodes that have all shards between them, as far as there are any: each time the one that
    adds most.

    >>> cover_shards({"a": {0, 1}, "b": {1}, "c": {2}}, 3)
    ['a', 'c']
    """
    missing, chosen = set(range(shards)), []
    while missing:
        best = max(held, key=lambda node: len(missing & set(held[node])), default=None)
        if best is None or not missing & set(held[best]):
            break
        chosen.append(best)
        missing -= set(held[best])
    return chosen


class RayCrew:
    """Actors on a cluster, as many as there is room for; the dead are replaced."""

    def __init__(
        self,
        capacity: Capacity,
        kind: type,
        told: tuple[Any, ...],
        samples: Sequence[int],
        names: Sequence[str],
    ) -> None:
        """kind: their class, made of what it is told, a folder first; samples: of each shard;
        names: of their files in that folder, which nodes may have or not; none: all read all.
        """
        self.ray, self.capacity, self.told, self.samples = capacity.ray, capacity, told, samples
        self.names = list(names)
        self.options = capacity.options | {"scheduling_strategy": "SPREAD", "max_restarts": 0}
        self.kind = self.ray.remote(kind)
        self.actors: list[Any] = []
        self.runs: Sequence[Sequence[int]] = []
        self.found: dict[str, frozenset[int]] = {}  # by node, the shards that are there
        self.where: dict[Any, str] = {}  # by actor, the node that it is bound to
        self.greeted: dict[Any, Any] = {}  # by actor, its first answer
        self.crashes: Counter[str] = Counter()
        self.say: Callable[[str], None] = lambda text: None
        self.settle()

    def settle(self) -> None:
        """As many actors as there is room for, and each its run of shards."""
        if not (slots := self.capacity.count_slots()):
            self.say("no node of the cluster has room any more: waiting for one")
        while not slots:
            time.sleep(LOOK)
            slots = self.capacity.count_slots()
        most = min(slots, self.capacity.settings.workers or slots, len(self.samples))
        there = [actor for actor in self.actors if self.is_there(actor)]
        if self.differ():
            self.settle_by_node(there, most)
            return
        for actor in [*there[most:], *(each for each in self.actors if each not in there)]:
            self.dismiss(actor)
        self.actors = there[:most]
        while len(self.actors) < most:
            self.actors.append(self.begin())
        self.runs = share_out(self.samples, len(self.actors))

    def begin(self, **options: Any) -> Any:
        """One more actor."""
        actor = self.kind.options(**self.options | options).remote(*self.told)
        self.greeted[actor] = actor.greet.remote()
        return actor

    def differ(self) -> bool:
        """Whether nodes have different shards; nodes that are new are asked which they have. A node
        without any has no such folder, which its worker says itself.
        """
        rooms = self.capacity.rooms()
        look, options = self.ray.remote(list_readable), {"num_cpus": 0, "max_retries": 0}
        asked = {
            node: look.options(scheduling_strategy=self.capacity.on_node(node), **options).remote(
                self.told[0], self.names
            )
            for node in rooms
            if self.names and node not in self.found
        }
        for node, answer in asked.items():
            with suppress(self.ray.exceptions.RayError):  # it is gone
                self.found[node] = frozenset(self.ray.get(answer))
        held = {node: self.found[node] for node in rooms if node in self.found}
        return any(0 < len(each) < len(self.names) for each in held.values())

    def settle_by_node(self, there: Sequence[Any], most: int) -> None:
        """Actors where the shards are: first so many that every shard is in reach, then as many
        more as there is room for.
        """
        rooms = {node: room for node, room in self.capacity.rooms().items() if self.found.get(node)}
        nodes = cover_shards({node: self.found[node] for node in rooms}, len(self.samples))
        missing = set(range(len(self.samples))).difference(*(self.found[node] for node in nodes))
        if missing:
            name = self.names[min(missing)]
            raise InvalidInput(
                f"no node of the cluster with room for a worker has {name} in {self.told[0]}"
                f" ({len(missing)} of {len(self.names)} shards are missing): add a node that has"
                " it, or put the file on one; a run goes on from the last state"
            )
        if len(nodes) > most:
            raise InvalidInput(
                f"workers is {most}, and the shards lie on {len(nodes)} nodes, none of which has"
                " those of another: allow as many"
            )
        others = [node for node, room in rooms.items() for _ in range(room - (node in nodes))]
        wanted = Counter([*nodes, *others[: most - len(nodes)]])
        kept = []
        for actor in self.actors:
            node = self.where.get(actor, "")
            if actor in there and wanted[node] > 0:
                wanted[node] -= 1
                kept.append(actor)
            else:
                self.dismiss(actor)
        for node in wanted.elements():
            kept.append(self.begin(scheduling_strategy=self.capacity.on_node(node)))
            self.where[kept[-1]] = node
        self.actors = kept
        self.runs = deal_out(self.samples, [self.found[self.where[actor]] for actor in kept])

    def is_there(self, actor: Any) -> bool:
        """Whether an actor has answered once."""
        return bool(self.ray.wait([self.greeted[actor]], timeout=0)[0])

    def dismiss(self, actor: Any) -> None:
        """End an actor."""
        del self.greeted[actor]
        self.where.pop(actor, None)
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)

    def close(self) -> None:
        """End all of them: the cluster may be gone."""
        for actor in self.actors:
            self.dismiss(actor)

    def share(self, value: Any) -> list[Any]:
        """In the object store; in a list, since Ray reads bare references anew for each call."""
        return [self.ray.put(value)]

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        """Have some do something, without an answer."""
        actors = list(self.actors)  # it is the planner's thread that asks
        for at, told in jobs.items():
            if at < len(actors):
                getattr(actors[at], method).remote(*told)

    def gather(self, method: str, jobs: Jobs, again: str) -> dict[int, Any]:
        """The answers of some; whoever is lost, all are asked once more, which is said."""
        while True:
            out = {
                getattr(self.actors[at], method).remote(*told): (at, at)
                for at, told in jobs(self.runs).items()
            }
            try:
                return dict(self.collect(out))
            except Lost as lost:
                self.mend(f"{lost}: {again}")

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """The answers for all shards, as they come; what is lost is asked once more."""
        left = set(range(len(self.samples)))
        while left:
            queues = [deque(each for each in run if each in left) for run in self.runs]
            out: dict[Any, tuple[int, int]] = {}

            def hand_out(at: int, queues: Any = queues, out: Any = out) -> None:
                if queues[at]:
                    shard = queues[at].popleft()
                    out[getattr(self.actors[at], method).remote(*told, shard)] = at, shard

            for at in [*range(len(queues))] * AHEAD:
                hand_out(at)
            try:
                for shard, answer in self.collect(out, hand_out):
                    left.remove(shard)
                    yield shard, answer
            except Lost as lost:
                self.mend(f"{lost}: its shards are looked at again")

    def collect(
        self, out: dict[Any, tuple[int, int]], hand_out: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """What comes back, by its number; out: the actors that were asked, and the number of what
        they were asked; `hand_out` gives an actor its next.
        """
        while out:
            ready = self.ray.wait(list(out), num_returns=1, timeout=LOOK)[0]
            if not ready and self.capacity.count_slots() < len(self.actors):
                raise Lost(f"a worker was lost, {NODE_DIED}")
            for done in ready:
                at, number = out.pop(done)
                try:
                    answer = self.ray.get(done)
                except self.ray.exceptions.RayTaskError as error:
                    raise task_error(error) from None
                except self.ray.exceptions.RayError as error:
                    raise self.bury(self.actors.pop(at), error) from None
                self.crashes.clear()
                if hand_out is not None:
                    hand_out(at)
                yield number, answer

    def bury(self, actor: Any, error: Exception) -> Lost:
        """What is said of an actor that was lost; one that is lost over and over is given up."""
        why = self.capacity.reason_of(error)
        if self.is_there(actor):
            with suppress(self.ray.exceptions.RayError):
                if not self.capacity.is_alive(self.ray.get(self.greeted[actor])):
                    why = NODE_DIED
        elif actor in self.where and not self.capacity.is_alive(self.where[actor]):
            why = NODE_DIED
        self.capacity.count_crash("shards", why, self.crashes)
        self.dismiss(actor)
        return Lost(f"a worker was lost, {why}")

    def mend(self, why: str) -> None:
        """Replace who is lost, and say so."""
        self.say(why)
        self.settle()


COPIES = 3  # of the data in a piece at work, packed and on the way there: benchmarks/ray_scale.py
_HELD: dict[str, Federation] = {}  # in a worker: the data that it used last


@contextmanager
def open_pool(settings: Ray, federation: Federation) -> Iterator[TaskPool]:
    """Hands on a cluster, each with room for these data."""
    size = sum(
        array.nbytes
        for array in vars(portable_data(federation)).values()
        if isinstance(array, np.ndarray)
    )
    with (
        join_cluster(settings, size),
        TaskPool(settings, settings.memory_for(COPIES * size)) as pool,
    ):
        yield pool


def portable_data(federation: Federation) -> Federation:
    """The data as they travel: arrays in one stretch, read where they lie; generators stay here."""
    return replace(federation, features=np.ascontiguousarray(federation.features), truth=None)


def read_data(data: list[Any]) -> Federation:
    """In a worker: the data, read from the node's memory once, with what training keeps beside."""
    (reference,) = data
    if reference.hex() not in _HELD:
        _HELD.clear()
        _HELD[reference.hex()] = ray_package().get(reference)
    return _HELD[reference.hex()]


def compute_rows(
    data: list[Any], piece: Piece, by: str, heard: TaskProgress
) -> tuple[Any, dict[str, str], float]:
    """In a worker: the rows of a piece, what computed them, and in how many seconds."""
    federation = read_data(data)
    start = time.monotonic()
    frame = compute_piece(piece, federation, heard)
    return frame, describe_environment() | {"command": by}, time.monotonic() - start


class Crew(Worker):
    """A driver at work on a run folder: it hands pieces to a cluster, and keeps what comes back."""

    def __init__(self, pool: TaskPool, federation: Federation, *told: Any) -> None:
        super().__init__(federation, *told)
        self.pool = pool
        # in a list: a bare reference would be read anew for every piece
        self.stored = [pool.ray.put(portable_data(federation))]
        self.locks: dict[str, ExitStack] = {}  # of the pieces that are out

    def complete(self, pieces: Sequence[Piece]) -> list[Finished]:
        """Have all these pieces: from the cluster, or from processes that share the folder."""
        keyed = {piece.key(self.data): piece for piece in pieces}
        finished: dict[str, Finished] = {}
        try:
            while len(finished) < len(keyed):
                fresh = self.hand_out_pieces(
                    {key: piece for key, piece in keyed.items() if key not in finished}
                )
                fresh |= self.collect_pieces(keyed)
                for key, piece in fresh.items():
                    self.pace.finish_piece(key, piece.made["seconds"])
                finished |= fresh
                self.tell({key: piece for key, piece in keyed.items() if key not in finished})
        finally:
            while self.locks:
                self.locks.popitem()[1].close()
        return [finished[key] for key in keyed]

    def hand_out_pieces(self, wanted: dict[str, Piece]) -> dict[str, Finished]:
        """Hand out as many pieces as there is room for; those that are there already."""
        there = {}
        for key, piece in wanted.items():
            if not self.pool.room():
                break
            if key not in self.locks and (held := self.piece(key, piece)) is not None:
                there[key] = held
        return there

    def piece(self, key: str, piece: Piece) -> Finished | None:
        """A piece that is there; otherwise it is handed out, unless another process has it."""
        if (there := self.find_finished(key)) is not None:
            return there
        with ExitStack() as stack:
            if not stack.enter_context(self.folder.lock(key)):
                return None
            if (there := self.find_finished(key, piece)) is not None:
                return there
            self.locks[key] = stack.pop_all()  # held until the piece is written
        self.pool.hand_out(Task(key, compute_rows, (self.stored, piece, command_line())))
        return None

    def collect_pieces(self, keyed: dict[str, Piece]) -> dict[str, Finished]:
        """Keep what came back from the cluster; of what was lost on the way, say so."""

        def report_lost_task(key: str, why: str) -> None:
            self.say(
                LOST,
                key,
                f"piece {key[:12]} was lost, {why}: it is computed again ({keyed[key].title})",
            )

        kept = {}
        for key, (frame, by, seconds) in self.pool.collect_results(report_lost_task):
            kept[key] = self.keep(key, keyed[key], frame, by, seconds)
            self.locks.pop(key).close()
        return kept

    def tell(self, wanted: dict[str, Piece]) -> None:
        """Say how far all are, and in words how far one is."""
        begun = self.pool.begun
        self.pace.hands = max(min(self.pool.hands, len(wanted)), 1)
        if begun:
            key, (_, text) = max(begun.items(), key=lambda item: item[1][0])
            words = f"{wanted[key].title}, {text}".removesuffix(", ")
            self.pace.say(
                f"{len(begun)} at work · {words}",
                {each: share for each, (share, _) in begun.items()},
            )
        elif wanted:
            self.pace.say(
                "waiting for workers"
                if self.pool.out
                else f"waiting for {len(wanted)} of another process"
            )


Place = tuple[int, int]  # a point of what varies, and a trial


def trial_losses(stored: list[Any], mode: str, place: Place, heard: TaskProgress) -> Losses:
    """In a worker: every algorithm's losses in one trial."""
    point, trial = place
    plan = ray_package().get(stored[0])[point]
    return one_trial(plan, mode, trial, lambda share: heard(share, ""))


def run_trials(
    settings: Ray,
    plans: Sequence[TrialPlan],
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

    def report_lost_task(key: str, why: str) -> None:
        told(done / len(named), Notice(f"a trial was lost, {why}: it is computed again"))

    with join_cluster(settings, size), TaskPool(settings, settings.memory_for(size)) as pool:
        stored = [pool.ray.put(list(plans))]
        done = 0
        while done < len(named):
            while waiting and pool.room():
                key = waiting.pop()
                pool.hand_out(Task(key, trial_losses, (stored, mode, named[key])))
            for key, losses in pool.collect_results(report_lost_task):
                add(*named[key], losses)
                done += 1
            begun = sum(share for share, _ in pool.begun.values())
            told(
                (done + begun) / len(named),
                f"{done} of {len(named)} trials, {len(pool.begun)} at work",
            )
