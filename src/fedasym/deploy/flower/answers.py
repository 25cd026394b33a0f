"""Nodes' replies: those that count, and for each of the others why it does not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedasym.deploy.flower.faults import FAULT, VERSION, Fault
from fedasym.deploy.flower.records import CONFIG
from fedasym.deploy.flower.replies import Refused, Trouble, check_version

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


SILENT = Trouble("it did not reply in time")
UNLOADED = Trouble(
    "the app cannot be loaded there: install the server's version of fedasym; the node's own log says more", True
)


def sort_replies(
    replies: Iterable[Message], nodes: Iterable[int], read: Callable[[int, RecordDict], Taken]
) -> tuple[dict[int, Taken], dict[int, Trouble]]:
    """What `read` takes from each node's reply, and for every other node what is wrong with it."""
    expected, taken, wrong = set(nodes), {}, {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in expected or node in taken or node in wrong:
            continue  # the link itself speaks where a node is gone, which is silent then
        try:
            if (trouble := trouble_in(reply)) is not None:
                wrong[node] = trouble
            else:
                taken[node] = read(node, reply.content)
        except Refused as reason:
            wrong[node] = Trouble(str(reason), permanent=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            wrong[node] = Trouble("its reply has not the records that were asked for", permanent=True)
    troubles = {node: wrong.get(node, SILENT) for node in sorted(expected) if node not in taken}
    return dict(sorted(taken.items())), troubles


def trouble_in(reply: Message) -> Trouble | None:
    """The fault that a node reports; an error's own text may be anything, and is not repeated."""
    if reply.has_error():
        if reply.error.code == ErrorCode.LOAD_CLIENT_APP_EXCEPTION:
            return UNLOADED
        return Trouble(f"it failed (Flower's error {reply.error.code}); the node's own log says more")
    told = reply.content.config_records.get(CONFIG)
    if told is None or FAULT not in told:
        return None
    check_version(told.get(VERSION))
    fault = Fault.find(told[FAULT])
    if fault is None:
        raise Refused("it reports a fault by a code that is unknown here")
    return Trouble(fault.sentence, fault.permanent)


def log_troubles(troubles: Mapping[int, Trouble]) -> None:
    """Name the nodes that are left out, each with the reason."""
    for node, trouble in troubles.items():
        log.warning("Node %d is left out: %s", node, trouble.text)
