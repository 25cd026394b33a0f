"""Where apps run: all nodes in this process, to try one, or a node that runs listed apps alone.

Tried, Flower's grid calls the nodes' apps here, in place of a network. What is computed and said is
what real nodes compute and say; that needs neither ports nor Flower's simulation engine, which pins
a version of Ray.

On a real node the code of an app comes from whoever starts the run. `start_node` starts Flower's
SuperNode so that an app whose digest the owner's policy does not list is refused before it is
unpacked, and nothing of it runs.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click import ClickException
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedasym.core.errors import InvalidInput, MissingPackage, one_of, path_of
from fedasym.core.numbers import join_names, plural, whole
from fedasym.deploy.flower import BROKEN_ARCHIVE, digest_archive
from fedasym.deploy.flower.messages import log
from fedasym.deploy.flower.policy import (
    ANY,
    DRAWN,
    PREFIX,
    SYNTHETIC,
    Policy,
    find_table,
    load_clients,
    read_options,
    read_policy,
)
from fedasym.deploy.flower.preparation import TableAnswer

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
        clients = clients_in_file(place, values)
        what = f"{Path(place).name}: {plural(clients, 'client')}"
        values["data-name"] = values.get("data-name") or Path(place).name
    count = min(count, clients)
    values["min-nodes"] = min(values.get("min-nodes", count), count)
    values["timeout"] = PATIENCE
    log.info(
        "Trying %s on %s, dealt out to %s of this process", folder.name, what, plural(count, "node")
    )
    each = [
        {"data-path": place, "partition-id": part, "num-partitions": count, **EVERYTHING}
        for part in range(count)
    ]
    client, server = (
        import_app(folder, settings["components"][side]) for side in ("clientapp", "serverapp")
    )
    grid = LocalGrid(client, {FIRST + part: told for part, told in enumerate(each)}, values)
    server(grid, Context(RUN, SERVER, {}, RecordDict(), dict(values)))


# the user is the owner of all nodes here
EVERYTHING: dict[str, Any] = dict.fromkeys(
    [f"{PREFIX}{rule}" for rule in ("labels", "clients", "features", "categories", "algorithms")],
    ANY,
)
EVERYTHING |= {"least-rows": 1, "most-classes": 10**6}


def clients_in_file(place: str, values: Mapping[str, Any]) -> int:
    """How many clients a file has, read as the run config says."""
    found = load_clients({"data-path": place, **EVERYTHING}, values)
    if not isinstance(found, TableAnswer):
        return len(found)
    path, options = Path(place), read_options({}, values)
    table = find_table(path, options, EVERYTHING, values, Policy.of(EVERYTHING))
    assert table is not None
    return len(set(table.open().who) - {None})


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


class AppGuard:
    """Decides which runs' apps may be unpacked, by digest; what is allowed is remembered."""

    def __init__(self, apps: Sequence[str], say: Callable[[str], None] = log.warning) -> None:
        self.apps, self.say = frozenset(apps), say
        self.archives: set[str] = set()  # SHA-256 of archives that may run, as packed
        self.runs: set[tuple[str, str, str]] = set()
        self.numbers: set[int] = set()  # of runs whose apps may run

    def admits(self, run: Any, fab: Any) -> bool:
        """Whether a run's app may run: its digest is listed, and the run calls it by its name."""
        packed = hashlib.sha256(fab.content).hexdigest()
        called = (run.fab_id, run.fab_version, run.fab_hash)
        try:
            digest = digest_archive(fab.content)
            named = read_name(fab.content)
        except InvalidInput as reason:
            self.say(f"An app is refused: {reason}")
            return False
        if digest not in self.apps and ANY not in self.apps:
            self.say(f"The app {named[0]} with the digest {digest} is refused: no policy lists it")
            return False
        if called != (*named, packed):
            self.say(f"The app {named[0]} is refused: the link calls it by another name or hash")
            return False
        self.archives.add(packed)
        self.runs.add(called)
        self.numbers.add(run.run_id)
        return True


def read_name(content: bytes) -> tuple[str, str]:
    """An app's name and version, as its pyproject.toml says."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            told = tomllib.loads(archive.read("pyproject.toml").decode("utf-8"))
        publisher = told["tool"]["flwr"]["app"]["publisher"]
        return f"{publisher}/{told['project']['name']}", str(told["project"]["version"])
    except (TypeError, *BROKEN_ARCHIVE):
        raise InvalidInput("its pyproject.toml is not that of an app") from None


def guard_apps(guard: AppGuard) -> None:
    """Have the SuperNode of this process ask the guard.

    Two places: where messages come in, so that the server hears that the app is refused, and where
    apps are stored before they run, which nothing passes. Where this version of Flower has other
    places, nothing starts.
    """
    try:
        from flwr.supercore.object_store import ObjectStoreFactory
        from flwr.supercore.run import RunNotRunningException
        from flwr.supernode import start_client_internal as loop
        from flwr.supernode.nodestate import NodeStateFactory, nodestate_factory

        plain, connect = nodestate_factory.InMemoryNodeState, loop.http_request_response
    except (ImportError, AttributeError) as reason:
        raise unknown_flower(str(reason)) from None

    class GuardedState(plain):  # type: ignore[misc, valid-type]
        """A node's memory, which takes no app that was not admitted."""

        def store_run(self, run: Any) -> Any:
            if (run.fab_id, run.fab_version, run.fab_hash) not in guard.runs:
                raise RunNotRunningException
            return super().store_run(run)

        def store_fab(self, fab: Any) -> Any:
            if hashlib.sha256(fab.content).hexdigest() not in guard.archives:
                raise RunNotRunningException
            return super().store_fab(fab)

        def get_fab(self, fab_hash: str) -> Any:
            return super().get_fab(fab_hash) if fab_hash in guard.archives else None

    nodestate_factory.InMemoryNodeState = GuardedState
    loop.http_request_response = guarded_connection(connect, guard)
    state = NodeStateFactory(ObjectStoreFactory()).state()
    if not isinstance(state, GuardedState) or not hasattr(plain, "store_run"):
        raise unknown_flower("apps are stored elsewhere")


def unknown_flower(reason: str) -> MissingPackage:
    """The refusal of a version of Flower that cannot be guarded."""
    return MissingPackage(
        f"this version of flwr cannot be guarded ({reason}): install one that fedasym knows,"
        " pip install 'flwr>=1.41,<1.42'"
    )


def guarded_connection(connect: Callable[..., Any], guard: AppGuard) -> Callable[..., Any]:
    """Flower's connection to the link, which answers messages of apps that are not admitted."""
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )

    @contextmanager
    def open_connection(*words: Any, **options: Any) -> Iterator[Any]:
        with connect(*words, **options) as connection:
            number, receive, send, get_run, get_fab, pull, push, confirm = connection

            def ask() -> Any:
                received = receive()
                if received is None or received[0].metadata.run_id in guard.numbers:
                    return received
                run = get_run(received[0].metadata.run_id)
                if guard.admits(run, get_fab(run.fab_hash, run.run_id)):
                    return received
                reply = Message(
                    Error(ErrorCode.INVALID_FAB, "The node's owner does not allow this app."),
                    reply_to=received[0],
                )
                with no_object_id_recompute():
                    reply.metadata.__dict__["_message_id"] = reply.object_id
                    wanted, session = send(reply, get_object_tree(reply), 0.0)
                    for name, held in get_all_nested_objects(reply).items():
                        if name in wanted:
                            push(run.run_id, session, name, held.deflate())
                return None

            yield number, ask, send, get_run, get_fab, pull, push, confirm

    return open_connection


def start_node(policy: str | Path, words: Sequence[str] = ()) -> None:
    """Start a SuperNode for the data of a policy's file, which runs the apps that it lists alone.

    words: what `flower-supernode` takes besides: --superlink, --root-certificates, and so on. Apps
    are unpacked into a folder of this process alone. What they depend on is never installed.
    """
    path = path_of("policy", policy).resolve()
    rules, places = read_policy(path)
    apps = Policy.read(rules).apps
    if not apps:
        raise InvalidInput(
            f"{path}: apps lists no digest, so nothing could run: fedasym digest my-app prints the"
            " one of an app that you have read"
        )
    if "data-path" not in places:
        raise InvalidInput(f"{path}: data-path is missing: say where this node's data are")
    if refused := [each for each in words if each.startswith("--allow-runtime")]:
        raise InvalidInput(f"{refused[0]} would install what apps ask for: leave it out")
    told = {name: str(value) for name, value in places.items()} | {"policy": str(path)}
    for name in ("data-path", "heads-path"):
        if name in told and told[name] != "synthetic":
            told[name] = str((path.parent / told[name]).resolve())
    guard_apps(AppGuard(apps))
    from flwr.supernode.cli import flower_supernode

    config = " ".join(f"{name}={json.dumps(value)}" for name, value in told.items())
    with tempfile.TemporaryDirectory(prefix="fedasym-node-") as home:
        os.environ["FLWR_HOME"] = home
        sys.argv = ["flower-supernode", *words, "--node-config", config]
        log.info("This node runs %s and nothing else", join_names(sorted(apps)))
        flower_supernode()
