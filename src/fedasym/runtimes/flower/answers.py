"""Nodes' replies: those that count, and the rest named in the log with the reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedasym.runtimes.flower.replies import Refused

log = logging.getLogger("flwr")  # Flower's own, so that all lines of a run stand together
PAUSE = 0.5  # seconds between two looks for replies
Taken = TypeVar("Taken")


class Attentive(Grid):
    """A grid that looks for replies twice a second; Flower's own sleeps for three seconds between two looks."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    @property
    def run(self) -> Any:
        """The run that the grid is of."""
        return self.grid.run

    def set_run(self, run: Any) -> None:
        """Say which run it is of."""
        self.grid.set_run(run)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """A message as older apps make it."""
        return self.grid.create_message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """The connected nodes."""
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; returns the messages' names."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, and return the replies that come in time."""
        waiting = {name for name in self.push_messages(messages) if name}
        replies: list[Message] = []
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while waiting and time.monotonic() < end:
            arrived = list(self.pull_messages(waiting))
            replies += arrived
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            if waiting:
                time.sleep(PAUSE)
        return replies


def sorted_out(
    replies: Iterable[Message],
    nodes: Iterable[int],
    read: Callable[[int, RecordDict], Taken],
    forget: dict[int, Any] | None = None,
) -> dict[int, Taken]:
    """What `read` takes from each node's reply; errors, silence and refusals are logged by node.

    forget: nodes whose reply was refused are taken out of here, so that they introduce themselves anew before they count again.
    """
    expected, taken, wrong = set(nodes), {}, {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in expected or node in taken or node in wrong:
            continue  # the link itself speaks where a node is gone; who did not reply is told below
        if reply.has_error():
            wrong[node] = f"it failed: {(reply.error.reason or '').strip()}"
            continue
        try:
            taken[node] = read(node, reply.content)
        except Refused as reason:
            wrong[node] = str(reason)
        except (KeyError, TypeError, ValueError, AttributeError):
            wrong[node] = "its reply has not the records that were asked for"
    for node in sorted(expected):
        if node in wrong:
            log.warning("Node %d is left out: %s", node, wrong[node])
            if forget is not None:
                forget.pop(node, None)
        elif node not in taken:
            log.warning("Node %d is left out: it did not reply in time", node)
    return dict(sorted(taken.items()))
