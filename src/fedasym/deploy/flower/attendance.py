"""Who is there: wait for enough nodes that can take part, and end a run that connected nodes cannot make complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping

from flwr.serverapp import Grid

from fedasym.core.errors import InvalidInput
from fedasym.deploy.flower.answers import log, log_troubles
from fedasym.deploy.flower.replies import Trouble

PAUSE = 2  # seconds between two looks for nodes


class Attendance:
    """The rules of waiting, and what is wrong with which node.

    least: the run goes on with so many nodes. timeout: seconds, from the last new node on, after which a run with fewer
        ends where a connected node is at fault. Where none is, it waits: others may still connect.
    """

    def __init__(self, least: int, timeout: float) -> None:
        self.least, self.timeout = least, timeout
        self.troubles: dict[int, Trouble] = {}

    def wait(self, grid: Grid, known: Container[int], introduce: Callable[[list[int]], Mapping[int, Trouble]]) -> list[int]:
        """The connected nodes that are known, once there are enough.

        known: nodes that have introduced themselves; `introduce` lets others do so, and returns what is wrong with which.
        A permanent fault is told once: such a node is not asked again in this run.
        """
        since, met, told = time.monotonic(), set[int](), -1
        while True:
            connected = sorted(grid.get_node_ids())
            self.meet([node for node in connected if node not in known and not self.is_given_up(node)], introduce)
            present = [node for node in connected if node in known]
            if len(present) >= self.least:
                return present
            if not met.issuperset(connected):
                met.update(connected)
                since = time.monotonic()
            at_fault = {node: self.troubles[node] for node in connected if node in self.troubles}
            if at_fault and time.monotonic() - since >= self.timeout:
                raise InvalidInput(self.describe(len(present), at_fault))
            if len(present) != told:
                log.info("Waiting for nodes: %d introduced (minimum required: %d)", len(present), self.least)
                told = len(present)
            time.sleep(min(PAUSE, self.timeout))

    def meet(self, new: list[int], introduce: Callable[[list[int]], Mapping[int, Trouble]]) -> None:
        """Let nodes introduce themselves, and log what is newly wrong."""
        found = introduce(new) if new else {}
        log_troubles({node: trouble for node, trouble in found.items() if trouble != self.troubles.get(node)})
        for node in new:
            self.troubles.pop(node, None)
        self.troubles |= found

    def is_given_up(self, node: int) -> bool:
        """Whether a node has a fault that asking again will not mend."""
        return node in self.troubles and self.troubles[node].permanent

    def describe(self, present: int, at_fault: Mapping[int, Trouble]) -> str:
        """Why a run cannot go on, with a line for every node at fault."""
        lines = [f"node {node}: {trouble.text}" for node, trouble in at_fault.items()]
        return "\n".join(
            [
                f"min-nodes is {self.least}, and {present} of the connected nodes can take part, {self.timeout:g} seconds "
                "after the last one connected:",
                *lines,
                "Mend these nodes or the run config, or lower min-nodes, and start the run again.",
            ]
        )
