"""For the tests of fetching: a server, a data set of its own, and the empty folder that it is
fetched into.
"""

import threading

import pytest

from fedasym.data import archives
from fedasym.data.archives import ARCHIVES

from .serving import BODY, Server, described


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The data set of these tests, an empty data folder, and no long waits."""
    monkeypatch.setitem(ARCHIVES, "toy", (described(BODY),))
    monkeypatch.setenv("FEDASYM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(archives, "WAIT", 0.01)
    monkeypatch.setattr(archives, "TRIES", 2)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "data" / "toy"
