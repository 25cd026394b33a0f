"""What the tests of the page share: a browser, the page as a file, and the page with its server."""

from __future__ import annotations

import threading
import time

import pytest

from fedasym.explore import Explorer, write

from ..reporting.browser import opened

tab = pytest.fixture(scope="session")(opened)


@pytest.fixture(scope="session")
def static(tmp_path_factory):
    """The address of the page that needs no server."""
    return write(tmp_path_factory.mktemp("explore") / "explore.html").as_uri()


@pytest.fixture(scope="session")
def explorer():
    """A server on a free port of this machine."""
    with Explorer(port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def visit(page, address, online=False):
    """Load an address afresh; its numbers are there at once, its figures after `settle`."""
    page.call("Network.emulateNetworkConditions", offline=not online, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    for each in ("about:blank", address):  # an address that differs in its fragment alone would not be loaded
        page.events.clear()
        page.call("Page.navigate", url=each)
        while not page.named("Page.loadEventFired"):
            page.next()


def settle(page):
    """Wait until every figure has its last digit."""
    until(page, 'document.documentElement.dataset.busy === "false"')


def until(page, condition):
    """Wait until a condition holds in the page."""
    for _ in range(1200):
        if page.run(condition):
            return
        time.sleep(0.05)
    raise AssertionError(f"never came true: {condition}")


def quiet(page):
    """Nothing was complained about."""
    for kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening"):
        assert page.named(kind) == []
