"""An app tried in one process: Flower's grid with the nodes' apps called here, in place of a
network.

What is computed and said is what real nodes compute and say; that needs neither ports nor Flower's
simulation engine, which pins a version of Ray.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from click import ClickException
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedasym.core.errors import InvalidInput, one_of, path_of
from fedasym.core.numbers import plural, whole
from fedasym.deploy.flower.messages import log
from fedasym.deploy.flower.nodes import DRAWN, SYNTHETIC, load_clients

RUN = SERVER = 1  # the numbers that Flower would give


PATIENCE = 1.0  # seconds for nodes that are at fault: no others can come


FIRST = 11  # the first node's number


class LocalGrid(Grid):
    """Nodes by number, each with its node config, whose app answers in this process."""

    def __init__(
        self, client: ClientApp, nodes: Mapping[int, Mapping[str, Any]], config: Mapping[str, Any]
    ) -> None:
        self.client = client
        self.nodes = dict(nodes)
        self.config = dict(config)
        self.replies: list[Message] = []
        self.sent = 0
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, RUN

    @property
    def run(self) -> Any:
        """No run of a link."""
        return None

    def set_run(self, run: Any) -> None:
        """Nothing to say: there is one run."""

    def create_message(self, *args: Any, **options: Any) -> Message:
        """A message as older apps make it."""
        return Message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes are connected."""
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let the nodes answer at once; returns the messages' names."""
        names = []
        for message in messages:
            self.sent += 1
            message.metadata.__dict__["_message_id"] = str(self.sent)
            names.append(str(self.sent))
            if (reply := self.deliver(message)) is not None:
                self.replies.append(reply)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies."""
        replies = self.replies
        self.replies = []
        return replies

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def deliver(self, message: Message) -> Message | None:
        """A node's reply; an exception becomes an error reply, as with Flower's own nodes."""
        node = message.metadata.dst_node_id
        context = Context(RUN, node, dict(self.nodes[node]), RecordDict(), dict(self.config))
        try:
            reply = self.client(message, context)
        except Exception as reason:
            log.error("The app of node %d raised an exception", node, exc_info=reason)
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        return reply


def try_app(
    app: str | Path,
    data: str | Path | None = None,
    nodes: int = 3,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Run an app that `write_app` wrote, with nodes in this process; its log goes where Flower's
    goes.

    data: a file or folder whose clients are dealt out to the nodes; without it 30 clients are
        drawn.
    nodes: how many; as many as there are clients where those are fewer.
    config: values of the run config other than the app's.
    """
    folder = path_of("app", app)
    settings = read_app(folder)
    for name in config or {}:
        one_of("name in the run config", name, settings["config"])
    values = settings["config"] | dict(config or {})
    count = whole("nodes", nodes, least=1)
    if data is None:
        place, clients = SYNTHETIC, DRAWN
        what = f"{clients} drawn clients (no data was given)"
    else:
        place = str(path_of("data", data).resolve())
        clients = len(load_clients({"data-path": place}, values))
        what = f"{Path(place).name}: {plural(clients, 'client')}"
        values["data-name"] = values.get("data-name") or Path(place).name
    count = min(count, clients)
    values["min-nodes"] = min(values.get("min-nodes", count), count)
    values["timeout"] = PATIENCE
    log.info(
        "Trying %s on %s, dealt out to %s of this process", folder.name, what, plural(count, "node")
    )
    each = [
        {"data-path": place, "partition-id": part, "num-partitions": count} for part in range(count)
    ]
    client, server = (
        import_app(folder, settings["components"][side]) for side in ("clientapp", "serverapp")
    )
    grid = LocalGrid(client, {FIRST + part: told for part, told in enumerate(each)}, values)
    server(grid, Context(RUN, SERVER, {}, RecordDict(), dict(values)))


def read_app(folder: Path) -> dict[str, Any]:
    """What an app's pyproject.toml says of its modules and its run config."""
    try:
        told = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
            "flwr"
        ]["app"]
        return {"components": dict(told["components"]), "config": dict(told.get("config", {}))}
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"app is {str(folder)!r}: it has no pyproject.toml of a Flower app; fedasym deploy rtfa"
            " --into my-app writes one"
        ) from None


def parse_overrides(text: str) -> dict[str, Any]:
    """Values of a run config as `flwr run` takes them.

    >>> parse_overrides("rounds=2 label='score'")
    {'rounds': 2, 'label': 'score'}
    """
    try:
        return parse_config_args([text])
    except (ClickException, OSError, ValueError):
        raise InvalidInput(
            f"run-config is {text!r}: write it like 'rounds=2 label=\"score\"'"
        ) from None


def import_app(folder: Path, reference: str) -> Any:
    """An app by the module and name that pyproject.toml gives it."""
    module, _, name = reference.partition(":")
    sys.path.insert(0, str(folder.resolve()))
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as reason:
        raise InvalidInput(
            f"app is {str(folder)!r}: {reference} cannot be imported: {reason}"
        ) from reason
    finally:
        sys.path.remove(str(folder.resolve()))
