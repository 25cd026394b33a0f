"""A tiny server for the page: on this machine only unless told otherwise, for its own page only,
nothing kept.

Another site that is open in the same browser must not be able to use it: foreign Host headers (DNS
rebinding) are refused, and so are posts from other origins.

A file that a browser sends is received into a folder that is gone afterwards; its columns are
summarized, and there is advice on it. The page offers the columns for a choice: what becomes of one
is the recipe's task.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET6
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

import numpy as np

from fedasym.core import __version__
from fedasym.core.errors import InvalidInput
from fedasym.data.cells import CellKind, Cells, read_cells
from fedasym.data.frames import EXCEL, TEXTS, read_file
from fedasym.data.roles import is_called_identifier
from fedasym.show import explore_page

if TYPE_CHECKING:
    from fedasym.advisor.advice import Estimated


PIECE = 1 << 20
SETTINGS = ("label", "client", "task", "scale", "missing")
MOST_ATOMS = 12  # eigenvalues that the page is given of an estimated spectrum
TABLES = (*TEXTS, *EXCEL, ".parquet")
LONGEST = 40  # characters of an example
KINDS = {
    CellKind.NUMBER: "numbers",
    CellKind.WHOLE: "whole numbers",
    CellKind.TEXT: "words",
    CellKind.BOOLEAN: "booleans",
    CellKind.DATE: "dates",
    CellKind.EMPTY: "empty",
    CellKind.LISTS: "lists",
}
LABELS = ("label", "labels", "y", "target", "score", "outcome", "response")
CLIENTS = (
    *("client", "user", "subject", "participant", "patient", "person", "customer", "device"),
    *("hospital", "clinic", "school", "shop", "store", "site", "group"),
)
ROWS_PER_CLIENT = 2  # on average, at least: with fewer, a name says which row it is


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


@contextmanager
def receive_file(source: Readable, size: int, name: str) -> Iterator[Path]:
    """Receive a file of `size` bytes; what goes wrong is told in words, by the name sent."""
    from fedasym.data.formats import ENDINGS, READ

    ending = Path(name).suffix.lower()
    with tempfile.TemporaryDirectory(prefix="fedasym-explore-") as folder:
        # never the name that was sent
        file = Path(folder, f"data{ending if ending in ENDINGS else ''}")
        receive_bytes(source, size, file)
        if ending not in ENDINGS:
            raise InvalidInput(f"the file is {name!r}: its ending tells the format, and {READ}")
        try:
            yield file
        except InvalidInput as reason:
            raise InvalidInput(str(reason).replace(str(file), name)) from None
        except MemoryError:
            raise InvalidInput(
                f"{name} takes more memory than there is: give fewer samples or features"
            ) from None
        except (
            Exception
            # a broken file fails in the reader's own way; whoever sent it should read a sentence
        ) as reason:
            told = " ".join(str(reason).replace(str(file), name).split())[:300]
            raise InvalidInput(
                f"{name} cannot be read as {ENDINGS[ending]}: {told or type(reason).__name__}"
            ) from None


def receive_bytes(source: Readable, size: int, file: Path | None) -> None:
    """Write what comes to a file (None: to nowhere), piece by piece."""
    with open(os.devnull if file is None else file, "wb") as out:
        while size > 0:
            try:
                piece = source.read(min(PIECE, size))
            except OSError:  # the sender has gone, or fell silent
                piece = b""
            if not piece:
                raise InvalidInput("the file did not arrive whole: send it again")
            out.write(piece)
            size -= len(piece)


@dataclass(frozen=True)
class ColumnSummary:
    """One column: its name, what it holds, how many values and missing cells, the first value."""

    name: str
    kind: str
    distinct: int
    missing: int
    example: str


def summarize_upload(source: Readable, size: int, said: dict[str, str]) -> dict[str, Any]:
    """Receive a table of `size` bytes and say what its columns are; `said`: its name."""
    name = said.get("name", "")
    with receive_file(source, size, name) as file:
        if file.suffix not in TABLES:
            offered = ", ".join(TABLES)
            raise InvalidInput(f"{name} is not a table: columns are offered for {offered}")
        return summarize_table(file)


def summarize_table(file: Path) -> dict[str, Any]:
    r"""The columns of a table, with a guess at the label and the clients (None: no good one).

    columns: None where some hold lists, which are features already. split: the column that says who
    trains, if any.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "shops.csv")
    ...     size = file.write_text("shop,price,y\n01,1.5,2\n01,NA,3\n02,2.5,3\n02,3.5,1\n")
    ...     found = summarize_table(file)
    >>> found["client"], found["label"], found["rows"]
    ('shop', 'y', 4)
    >>> found["columns"][1]
    {'name': 'price', 'kind': 'numbers', 'distinct': 3, 'missing': 1, 'example': '1.5'}
    """
    frame = read_file(file)
    cells = [read_cells(frame[name], name) for name in frame.columns]
    if any(each.kind is CellKind.LISTS for each in cells):
        return {"rows": frame.height, "columns": None, "label": None, "client": None, "split": None}
    columns = [summarize_cells(each) for each in cells]
    client = guess_client(columns, frame.height)
    return {
        "rows": frame.height,
        "columns": [asdict(each) for each in columns],
        "label": guess_label(columns, client),
        "client": client,
        "split": "split" if "split" in frame.columns else None,
    }


def summarize_cells(cells: Cells) -> ColumnSummary:
    """What one column holds."""
    held = cells.values.drop_nulls()
    kind = KINDS[cells.kind] if cells.stray is None else "numbers and words"
    example = format_example(held[0]) if len(held) else ""
    return ColumnSummary(
        cells.name, kind, int(held.n_unique()), len(cells.values) - len(held), example
    )


def format_example(value: Any) -> str:
    """A cell in a few characters.

    >>> (
    ...     format_example(0.1 + 0.2),
    ...     format_example(datetime(2024, 5, 31)),
    ...     len(format_example("a" * 100)),
    ... )
    ('0.3', '2024-05-31', 40)
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def guess_client(columns: Sequence[ColumnSummary], rows: int) -> str | None:
    """The column named like clients, or else like an identifier, whose values come back."""
    repeated = [each for each in columns if each.name and is_repeated(each, rows)]
    for word in CLIENTS:
        for each in repeated:
            if word in split_words(each.name):
                return each.name
    return next((each.name for each in repeated if is_called_identifier(each.name)), None)


def is_repeated(column: ColumnSummary, rows: int) -> bool:
    """Whether a column could name clients: several words or whole numbers, several rows each."""
    named = column.kind in (KINDS[CellKind.WHOLE], KINDS[CellKind.TEXT])
    return named and 2 <= column.distinct <= (rows - column.missing) / ROWS_PER_CLIENT


def guess_label(columns: Sequence[ColumnSummary], client: str | None) -> str | None:
    """The column whose name is that of labels."""
    usual = {
        each.name.lower(): each.name
        for each in columns
        if each.name != client and each.kind != KINDS[CellKind.EMPTY]
    }
    return next((usual[word] for word in LABELS if word in usual), None)


def split_words(name: str) -> set[str]:
    """The words of a column's name, in lower case and without a plural's s.

    >>> sorted(split_words("schoolId")), sorted(split_words("USER_IDS"))
    (['id', 'school'], ['id', 'user'])
    """
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


class UploadAdvice(NamedTuple):
    """Advice as a page, as a sentence, and as what the page's sliders take (None for classes).

    recipe: what was made of a table's columns, and what was left out and why; None for arrays.
    """

    page: str
    words: str
    recipe: str | None
    estimates: dict[str, Any] | None


def advise_upload(source: Readable, size: int, said: dict[str, str]) -> UploadAdvice:
    """Receive a file of `size` bytes and advise on it; `said`: name, columns with roles, task."""
    with receive_file(source, size, said.get("name", "")) as file:
        return advise_file(file, said)


def advise_file(file: Path, said: dict[str, str]) -> UploadAdvice:
    """Read, advise, and put it into words."""
    from fedasym.advisor import advise
    from fedasym.core.errors import ThresholdWarning
    from fedasym.data.formats import read
    from fedasym.results import LOSS
    from fedasym.show.advice import advice_page

    told: dict[str, Any] = {key: said[key] for key in SETTINGS if said.get(key)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # the advice says it among its doubts
        federation = read(file, roles=read_roles(said.get("roles")), **told)
        advice = advise(federation)
    words = f"{said['name']}: use {advice.recommended}. The whole advice is below."
    estimates = slider_values(advice.population) if advice.metric is LOSS else None
    recipe = None if federation.recipe is None else federation.recipe.describe(flags=False)
    return UploadAdvice(advice_page(advice), words, recipe, estimates)


def read_roles(text: str | None) -> dict[str, str]:
    """Columns and their roles, from JSON.

    >>> read_roles('{"zip": "ignore"}'), read_roles(None)
    ({'zip': 'ignore'}, {})
    """
    if not text:
        return {}
    try:
        roles = json.loads(text)
    except (ValueError, RecursionError):
        roles = None
    if not isinstance(roles, dict) or not all(isinstance(role, str) for role in roles.values()):
        raise InvalidInput(f"roles is {text[:60]!r}: give a JSON object of columns and their roles")
    return roles


def slider_values(found: Estimated) -> dict[str, Any]:
    """The estimates as the page's controls; the spectrum by a few eigenvalues, means of shares."""
    s, h = merge_eigenvalues(found.spectrum.values, found.spectrum.weights)
    pairs = ",".join(f"{value:.6g}@{share:.6g}" for value, share in zip(s, h, strict=True))
    world = found.world
    numbers = {
        name: float(f"{getattr(world, name):.6g}") for name in ("radius", "noise", "aspect", "norm")
    }
    return {
        **numbers,
        "clients": found.clients,
        "shift_power": found.shift_power,
        "kind": "atoms",
        "atoms": pairs,
    }


def merge_eigenvalues(values: Any, weights: Any) -> tuple[list[float], list[float]]:
    """Eigenvalues merged into at most `MOST_ATOMS` of about equal shares, in rising order.

    >>> merge_eigenvalues([2.0, 1.0], [0.5, 0.5])
    ([1.0, 2.0], [0.5, 0.5])
    """
    order = np.argsort(values)
    s = np.asarray(values, dtype=float)[order]
    h = np.asarray(weights, dtype=float)[order]
    place = np.minimum((np.cumsum(h) - h / 2) * MOST_ATOMS // 1, MOST_ATOMS - 1).astype(int)
    kept = [place == at for at in np.unique(place)]
    shares = [round(float(h[some].sum()), 6) for some in kept]
    shares[-1] = round(1 - sum(shares[:-1]), 6)
    return [float(s[some] @ h[some] / h[some].sum()) for some in kept], shares


MOST_BYTES = 256 << 20
LOCAL = {"localhost", "127.0.0.1", "::1"}
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Explorer(ThreadingHTTPServer):
    """The server; `serve_forever` until interrupted, `address` to be opened.

    >>> with Explorer(port=0) as explorer:
    ...     explorer.address.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, host: str = "127.0.0.1", port: int = 8765, most_bytes: int = MOST_BYTES
    ) -> None:
        self.host = host.strip("[]")
        self.most_bytes = most_bytes
        self.text = explore_page(most_bytes).encode()
        self.thinking = threading.Lock()  # one file at a time
        self.pages: dict[str, bytes] = {}  # the last advice, by a name that nobody can guess
        if not 0 <= port <= 65535:
            raise InvalidInput(f"port is {port}: it must lie between 0 (any free one) and 65535")
        if ":" in self.host:
            self.address_family = AF_INET6
        try:
            super().__init__((self.host, port), Answer)
        except OSError as reason:
            raise InvalidInput(
                f"host and port are {host}:{port}: nothing can listen there ({reason.strerror}); "
                "give --port 0 for any free one, or a --host of this machine"
            ) from None

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name = self.host
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up in the middle is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @property
    def local(self) -> bool:
        """Whether only this machine can come."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    @property
    def address(self) -> str:
        """Where the page is."""
        host = (
            "127.0.0.1"
            if self.host in ("", "0.0.0.0")
            else "::1"
            if self.host == "::"
            else self.host
        )
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def knows(self, host: str | None) -> bool:
        """Whether a Host header names this server; a rebound name of another site does not.

        A server that is open to the network is reached by numbers, which nobody can rebind, or by
        the name it was given.
        """
        try:
            named = urlsplit(f"//{host}")
            name, port = named.hostname or "", named.port or 80
        except ValueError:
            return False
        if port != self.server_port:
            return False
        if name in LOCAL or name == self.host.lower():
            return True
        try:
            return not ipaddress.ip_address(name).is_unspecified and not self.local
        except ValueError:
            return False


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Explorer
    server_version = f"fedasym/{__version__}"
    sys_version = ""
    timeout = 60  # seconds that a silent client holds a thread

    def do_GET(self) -> None:
        """The page, or the last advice; nothing else is here."""
        if not self._welcome():
            return
        path = urlsplit(self.path).path
        if path == "/":
            self._send(HTTPStatus.OK, self.server.text, "text/html")
        elif (kept := self.server.pages.get(path)) is not None:
            self._send(HTTPStatus.OK, kept, "text/html")
        else:
            self._say(HTTPStatus.NOT_FOUND, "There is only one page here, at /")

    def do_POST(self) -> None:
        """A file to be advised on, or a table whose columns are asked for."""
        if not self._welcome():
            return
        asked = urlsplit(self.path)
        size = self._size()
        answer = {"/advise": self._advise, "/columns": self._columns}.get(asked.path)
        if answer is None:
            self._say(HTTPStatus.NOT_FOUND, "Files go to /columns or /advise")
        elif not self._from_here():
            self._say(
                HTTPStatus.FORBIDDEN, "This request comes from another page: open this server's own"
            )
        elif size is None:
            self._say(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long the file is")
        elif size > self.server.most_bytes:
            most = f"{self.server.most_bytes / (1 << 20):.4g} MB"
            words = (
                f"The file has {size / (1 << 20):.4g} MB, and at most {most} are taken here: use"
                " fedasym advise FILE"
            )
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        elif not self.server.thinking.acquire(blocking=False):
            # a browser reads no answer before it has sent all
            receive_bytes(self.rfile, size, None)
            self._say(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Another file is being read: wait for the answer, and try again",
            )
        else:
            told: dict[str, Any] | str
            try:
                told = answer(
                    size, {key: values[0] for key, values in parse_qs(asked.query).items()}
                )
            except InvalidInput as reason:
                told = str(reason)
            finally:
                # before the answer, after which the next file may come
                self.server.thinking.release()
            if isinstance(told, str):
                self._say(HTTPStatus.UNPROCESSABLE_ENTITY, told)
            else:
                self._json(HTTPStatus.OK, told)

    def _advise(self, size: int, said: dict[str, str]) -> dict[str, Any]:
        found = advise_upload(self.rfile, size, said)
        name = f"/advice/{secrets.token_urlsafe(16)}"
        self.server.pages = {name: found.page.encode()}
        return {**found._asdict(), "page": name}

    def _columns(self, size: int, said: dict[str, str]) -> dict[str, Any]:
        return summarize_upload(self.rfile, size, said)

    def _welcome(self) -> bool:
        if self.server.knows(self.headers.get("Host")):
            return True
        self._say(
            HTTPStatus.MISDIRECTED_REQUEST, f"This server is {self.server.address}: open that"
        )
        return False

    def _from_here(self) -> bool:
        """Whether a post comes from our page: browsers say so, and other sites cannot fake it."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        ours = origin is None or origin == f"http://{self.headers.get('Host')}"
        return (
            ours
            and site == "same-origin"
            and self.headers.get("Content-Type") == "application/octet-stream"
        )

    def _size(self) -> int | None:
        length = self.headers.get("Content-Length", "")
        return int(length) if length.isascii() and length.isdigit() else None

    def _say(self, status: HTTPStatus, words: str) -> None:
        self.close_connection = True  # what else was sent is not read
        self._json(status, {"error": f"{words.removesuffix('.')}."})

    def _json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for key, value in {
            **SAFE,
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the user's."""
