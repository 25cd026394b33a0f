"""A tiny server for the page: on this machine only unless told otherwise, for its own page only, nothing kept.

Another site that is open in the same browser must not be able to use it: foreign Host headers (DNS rebinding) are refused,
and so are posts from other origins.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedasym.core.errors import InvalidInput
from fedasym.core.version import __version__
from fedasym.show.pages import explore_page
from fedasym.show.uploads import advise_upload, receive_bytes, summarize_upload

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

    def __init__(self, host: str = "127.0.0.1", port: int = 8765, most_bytes: int = MOST_BYTES) -> None:
        self.host, self.most_bytes = host.strip("[]"), most_bytes
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
        self.server_name, self.server_port = self.host, int(self.server_address[1])

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
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "::1" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def knows(self, host: str | None) -> bool:
        """Whether a Host header names this server; a rebound name of another site does not.

        A server that is open to the network is reached by numbers, which nobody can rebind, or by the name it was given.
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
    server_version, sys_version = f"fedasym/{__version__}", ""
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
            self._say(HTTPStatus.FORBIDDEN, "This request comes from another page: open this server's own")
        elif size is None:
            self._say(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long the file is")
        elif size > self.server.most_bytes:
            most = f"{self.server.most_bytes / (1 << 20):.4g} MB"
            words = f"The file has {size / (1 << 20):.4g} MB, and at most {most} are taken here: use fedasym advise FILE"
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        elif not self.server.thinking.acquire(blocking=False):
            receive_bytes(self.rfile, size, None)  # a browser reads no answer before it has sent all
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "Another file is being read: wait for the answer, and try again")
        else:
            told: dict[str, Any] | str
            try:
                told = answer(size, {key: values[0] for key, values in parse_qs(asked.query).items()})
            except InvalidInput as reason:
                told = str(reason)
            finally:
                self.server.thinking.release()  # before the answer, after which the next file may come
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
        self._say(HTTPStatus.MISDIRECTED_REQUEST, f"This server is {self.server.address}: open that")
        return False

    def _from_here(self) -> bool:
        """Whether a post comes from our own page: browsers say so, and other sites cannot send this type unasked."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        ours = origin is None or origin == f"http://{self.headers.get('Host')}"
        return ours and site == "same-origin" and self.headers.get("Content-Type") == "application/octet-stream"

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
        for key, value in {**SAFE, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the user's."""
