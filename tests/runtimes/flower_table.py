"""A federation at one table: Flower's grid with the nodes' apps called in this process, in place of a network."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedasym.runtimes.flower.writing import package_of, write_app


class Table(Grid):
    """Nodes by number, each with its node config; `spoil` may change a reply on its way, and return None to lose it."""

    def __init__(self, app: Path, config: Mapping[str, object], nodes: Mapping[int, Mapping[str, object]]) -> None:
        self.client, self.server = (imported(app, f"{side}_app").app for side in ("client", "server"))
        self.config, self.nodes = dict(config), dict(nodes)
        self.spoil: Callable[[int, Message], Message | None] = lambda _, reply: reply
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a server's process would have
        self.sent: list[tuple[Message, Message | None]] = []

    def play(self) -> None:
        """The server's whole run."""
        self.server(self, Context(1, 0, {}, RecordDict(), dict(self.config)))

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        first = len(self.sent)
        self.replies = [reply for message in messages if (reply := self.reply_to(message)) is not None]
        return [str(number) for number in range(first, len(self.sent))]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies, self.replies = self.replies[::-1], []  # in no order that anything may rest on
        return replies

    def reply_to(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = str(len(self.sent))
        context = Context(1, node, dict(self.nodes[node]), RecordDict(), dict(self.config))
        try:
            reply = self.client(message, context)
        except Exception as reason:
            reply = Message(Error(0, f"{type(reason)}:<{reason}>"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        changed = self.spoil(node, reply)
        self.sent.append((message, changed))
        return changed

    run = property(lambda self: None)
    set_run = create_message = send_and_receive = lambda self, *_, **__: None


def imported(app: Path, module: str):
    """A module of a written app."""
    sys.path.insert(0, str(app))
    try:
        return importlib.import_module(f"{package_of(app)}.{module}")
    finally:
        sys.path.remove(str(app))


def table(folder: Path, what: str, parts: list[Path], **config: object) -> Table:
    """The app of an algorithm with a node for each of these files, numbered from 11."""
    app = write_app(what, folder / f"{what}_{folder.name}")
    values = imported_config(app) | {name.replace("_", "-"): value for name, value in config.items()}
    return Table(app, values, {11 + at: {"data-path": str(path)} for at, path in enumerate(parts)})


def imported_config(app: Path) -> dict[str, object]:
    import tomllib

    return tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
