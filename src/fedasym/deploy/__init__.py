"""The same algorithms beyond one process: many machines, and clients whose samples stay with them.

`Ray` names a cluster and what a piece of work may use there. The package fills the roles that
clusters have for the layers below (`fedasym.core.runtime`).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import one_float
from fedasym.core.runtime import fill

__all__ = ["Ray"]

# bytes of a worker that has loaded JAX and compiled a program: benchmarks/ray_scale.py
LIBRARY = 500 * 2**20
ACCELERATOR = 0.9  # of a GPU's share, what JAX may take beforehand


@dataclass(frozen=True)
class Ray:
    """A Ray cluster to run on; give it as `on` to `fedasym.run`, `fedasym.sweep`,
    `fedasym.simulate` and, for clients on disk, `fedasym.advise`.

    address: host:port of the cluster's head, or "auto" for the one that runs on this machine. None:
        RAY_ADDRESS of the environment, or else a cluster of this machine alone, which is started
        and stopped.
    threads: CPUs that a piece is given, and threads that its libraries may start.
    gpus: GPUs that a piece is given, or the share of one; with 0 it is computed on the CPU, also
        where there are GPUs.
    memory: bytes that a piece is given; by default room for JAX and three copies of the data, or,
        of data in shards, for what a worker reads of them at a time.
    workers: at most this many pieces at a time, or workers that share out the shards; as many as
        there is room for by default.

    >>> Ray(gpus=0.5).variables({"JAX_ENABLE_X64": "1"})["XLA_PYTHON_CLIENT_MEM_FRACTION"]
    '0.45'
    >>> Ray(threads=0)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: threads is 0: it must be a whole number of at least 1
    """

    address: str | None = None
    threads: int = 1
    gpus: float = 0.0
    memory: float | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "workers"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise InvalidInput(f"{name} is {value!r}: it must be a whole number of at least 1")
        gpus = one_float(self.gpus)
        if not (0 <= gpus < math.inf and (gpus <= 1 or gpus.is_integer())):
            raise InvalidInput(
                f"gpus is {self.gpus!r}: give a whole number of GPUs, or a share of one between 0"
                " and 1"
            )
        if self.memory is not None and not 0 < one_float(self.memory) < math.inf:
            raise InvalidInput(f"memory is {self.memory!r}: it must be a number of bytes above 0")

    def memory_for(self, needed: int) -> int:
        """Bytes that a task is given which needs so many beside its libraries."""
        return int(LIBRARY + needed if self.memory is None else self.memory)

    def variables(self, mine: dict[str, str] | None = None) -> dict[str, str]:
        """Environment of workers: threads and device; what JAX is told here is told there too."""
        own = dict(os.environ) if mine is None else mine
        told = {name: value for name, value in own.items() if name.startswith(("JAX_", "XLA_"))}
        count = str(self.threads)
        told |= {f"{library}_NUM_THREADS": count for library in ("OMP", "OPENBLAS", "MKL")}
        told |= {"NPROC": count, "POLARS_MAX_THREADS": count}  # NPROC is what XLA asks for
        if not self.gpus:
            told["JAX_PLATFORMS"] = "cpu"
        elif self.gpus < 1:
            told.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{ACCELERATOR * self.gpus:.2f}")
        return told

    @property
    def needs(self) -> str:
        """What a piece is given, in words, but for its memory."""
        words = [f"{self.threads} CPU{'s' * (self.threads > 1)}"]
        return " and ".join(
            [*words, *([f"{self.gpus:g} GPU{'s' * (self.gpus > 1)}"] if self.gpus else [])]
        )


class Board:
    """What the tasks on a cluster have said last; it lives beside the driver, in a process of its
    own, which is why it is here: that process imports no more than this file does.
    """

    def __init__(self) -> None:
        self.said: dict[str, tuple[float, str]] = {}

    def tell(self, key: str, share: float, text: str) -> None:
        """A task speaks."""
        self.said[key] = share, text

    def read(self) -> dict[str, tuple[float, str]]:
        """All that is new since the last look."""
        said = self.said
        self.said = {}
        return said


def list_readable(folder: str, names: list[str]) -> list[int]:
    """Which of these files a node has, by their places; here for the same reason as `Board`."""
    return [at for at, name in enumerate(names) if os.path.exists(os.path.join(folder, name))]


def read_executor(on: Ray | str) -> Ray:
    """What `on` says.

    >>> read_executor("ray").threads
    1
    """
    if isinstance(on, Ray):
        return on
    one_of("runtime", on, ["ray"])
    return Ray()


ROLES = {
    "read executor": ("fedasym.deploy", "read_executor"),
    "open pool for pieces": ("fedasym.deploy.ray", "open_pool"),
    "make crew": ("fedasym.deploy.ray", "Crew"),
    "open shards": ("fedasym.deploy.shards", "open_shards"),
    "make shard worker": ("fedasym.deploy.shards", "ShardWorker"),
    "run trials": ("fedasym.deploy.ray", "run_trials"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
