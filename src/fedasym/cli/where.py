"""Where long work is done, as commands are told it: in this process, or on a Ray cluster."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass

from cyclopts import Parameter

from fedasym.core.errors import InvalidInput
from fedasym.deploy.ray import Ray
from fedasym.deploy.ray import read_executor as runtime_of


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where pieces are computed."""

    on: str | None = None
    """ray: on a Ray cluster, side by side; here, one after the other, by default."""
    address: str | None = None
    """Of the cluster's head, host:port, or auto; by default RAY_ADDRESS, or a cluster of this machine that comes and goes."""
    threads: int | None = None
    """On Ray: CPUs and threads that a piece is given; 1 by default."""
    gpus: float | None = None
    """On Ray: GPUs that a piece is given, or the share of one; 0 by default."""
    memory: float | None = None
    """On Ray: gigabytes that a piece is given; by default room for JAX and three copies of the data."""
    workers: int | None = None
    """On Ray: at most so many pieces at a time; as many as there is room for by default."""

    def runtime(self) -> Ray | None:
        """What the verbs take."""
        given = {name: value for name, value in vars(self).items() if name != "on" and value is not None}
        if self.on is None:
            if given:
                first, value = next(iter(given.items()))
                raise InvalidInput(f"{first} is {value!r}, which is for a cluster: add --on ray, or leave it out")
            return None
        runtime_of(self.on)
        return Ray(**given | ({} if self.memory is None else {"memory": self.memory * 2**30}))


HERE = Where()


def answers_apart() -> AbstractContextManager[object]:
    """While a cluster works: what its workers and Ray itself print goes to stderr, so that stdout has the answer alone."""
    return redirect_stdout(sys.stderr)
