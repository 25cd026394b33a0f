"""A real browser, driven by its own debugging protocol over a pipe: nothing to install but the
browser itself.

Messages are JSON, each ended by a zero byte; the browser reads them from its file descriptor 3 and
writes to 4.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # its own pages only; containers have no user namespaces
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
# A process that puts the pipes where the browser looks for them, then becomes the browser.
PLACED = """
import os, sys
from fcntl import F_DUPFD, fcntl
ends = [fcntl(int(end), F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
WAIT = 180.0  # seconds for one answer: machines that run tests are busy


def found() -> str | None:
    """The browser on PATH, if any."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab, and everything that happened in it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.write, self.read = to_browser, from_browser
        self.buffer = b""
        self.number = 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser, and wait for its answer."""
        self.number += 1
        number, message = self.number, {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            heard = self.next()
            if heard.get("id") == number:
                assert "error" not in heard, (method, heard["error"])
                return dict(heard["result"])

    def next(self) -> dict[str, Any]:
        """The next message; events are kept."""
        while b"\0" not in self.buffer:
            assert select([self.read], [], [], WAIT)[0], "the browser does not answer"
            part = os.read(self.read, 1 << 20)
            assert part, "the browser has gone"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def named(self, method: str) -> list[dict[str, Any]]:
        """What was heard of one kind of event."""
        return [event["params"] for event in self.events if event["method"] == method]

    def size(self, width: int, height: int = 900) -> None:
        """A screen of this size; small ones are phones."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def dark(self, on: bool) -> None:
        """What the system prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, file: Path) -> None:
        """Load a file and wait for it."""
        self.events.clear()
        self.call("Page.navigate", url=file.absolute().as_uri())
        while not self.named("Page.loadEventFired"):
            self.next()

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """The mouse to a place on the screen."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key, down and up."""
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **extra,
            )

    def picture(self, file: Path, whole: bool = True) -> None:
        """A screenshot as PNG."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(made["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        made = self.call(
            "Page.printToPDF",
            paperWidth=8.27,
            paperHeight=11.69,
            preferCSSPageSize=True,
            printBackground=False,
        )
        return base64.b64decode(made["data"])


@contextmanager
def browser(path: str) -> Iterator[Page]:
    """A browser with an empty profile; it and its children are gone afterwards."""
    browser_reads, we_write = os.pipe()
    we_read, browser_writes = os.pipe()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        ends = (str(browser_reads), str(browser_writes))
        command = [
            sys.executable,
            "-c",
            PLACED,
            *ends,
            path,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(
            command,
            pass_fds=(browser_reads, browser_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        os.close(browser_reads)
        os.close(browser_writes)
        try:
            page = Page(we_write, we_read)
            yield page
            page.session = None
            page.call("Browser.close")
            process.wait(WAIT)
        finally:
            os.close(we_write)
            os.close(we_read)
            if process.poll() is None:
                process.kill()
                process.wait()
            time.sleep(0.05)  # its children let go of the profile


def opened() -> Iterator[Page]:
    """A tab of a real browser, without network; to be made a fixture where one is wanted."""
    path = found()
    if path is None:
        pytest.skip(
            "there is no Chromium or Chrome on PATH: install one to test the page as readers see it"
        )
    with browser(path) as page:
        yield page
