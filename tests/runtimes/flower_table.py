"""A federation at one table: the product's grid of one process, with replies that can be changed on
their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flwr.app import Context, Message, RecordDict

from fedasym.deploy.flower import write_app
from fedasym.deploy.flower.grid import LocalGrid, import_app, read_app
from fedasym.training.settings import find_protocol


class Table(LocalGrid):
    """Nodes by number, each with its node config; `spoil` may change a reply on its way, and return
    None to lose it.
    """

    def __init__(
        self, app: Path, config: Mapping[str, object], nodes: Mapping[int, Mapping[str, object]]
    ) -> None:
        parts = read_app(app)["components"]
        client, self.server = (import_app(app, parts[side]) for side in ("clientapp", "serverapp"))
        super().__init__(client, nodes, config)
        self.spoil: Callable[[int, Message], Message | None] = lambda _, reply: reply
        self.passed: list[tuple[Message, Message | None]] = []

    def play(self) -> None:
        """The server's whole run."""
        self.server(self, Context(1, 0, {}, RecordDict(), dict(self.config)))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return list(super().pull_messages(message_ids))[
            ::-1
        ]  # in no order that anything may rest on

    def deliver(self, message: Message) -> Message | None:
        self.asked = message
        reply = super().deliver(message)
        changed = self.spoil(reply.metadata.src_node_id, reply)
        self.passed.append((message, changed))
        return changed


def table(folder: Path, what: str, parts: list[Path], **config: object) -> Table:
    """The app of an algorithm with a node for each of these files, numbered from 11; as its
    protocol says about intercepts.
    """
    app = write_app(what, folder / f"{what}_{folder.name}")
    protocol = find_protocol(str(config.get("protocol", "text")))
    values = (
        read_app(app)["config"]
        | {"server-step": 0.1, "local-step": 0.1, "inner-step": 0.05}  # as the twin has them
        | {"intercept": protocol.intercept, "shared-path": str(folder / "shared.safetensors")}
        | {name.replace("_", "-"): value for name, value in config.items()}
    )
    return Table(app, values, {11 + at: {"data-path": str(path)} for at, path in enumerate(parts)})
