"""Where work may be done beside this process: what the layers below know of a cluster."""

from __future__ import annotations

from typing import Protocol


class Executor(Protocol):
    """What `on` may be, such as `fedasym.runtimes.Ray`."""

    @property
    def threads(self) -> int:
        """CPUs that a task is given."""

    @property
    def workers(self) -> int | None:
        """How many tasks at a time, at the most."""
