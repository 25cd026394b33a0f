"""Several processes and threads that fetch at once, and some that die."""

import hashlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedasym.data import fetch

from .serving import BODY, FILES, HALF, TRAIN, check

pytestmark = pytest.mark.usefixtures("toy")


FETCH = """
from fedasym.data import archives, fetch
archives.ARCHIVES["toy"] = (archives.Archive("toy", "toy.tar.bz2", {sha!r}, None, {inside!r}),)
print(fetch("toy", source={url!r}))
"""


def started(server):
    code = FETCH.format(sha=hashlib.sha256(BODY).hexdigest(), inside=tuple(FILES), url=server.url)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_two_processes_download_once(server, home):
    both = threading.Event()

    def answer(self):
        both.wait(10)  # the other one is started and waits, or will find it there
        self.whole()

    server.answer = answer
    processes = [started(server) for _ in range(2)]
    time.sleep(0.5)
    both.set()
    for process in processes:
        assert Path(process.communicate(timeout=20)[0].strip()) == home
        assert process.returncode == 0
    assert len(server.asked) == 1
    assert server.sent == len(BODY)
    check(home)


def test_threads_wait_for_each_other_and_say_so(server, home):
    release, told = threading.Event(), []

    def answer(self):
        release.wait(10)
        self.whole()

    def waited(_, text):
        told.append(text)
        if text.startswith("waiting"):
            release.set()

    server.answer = answer
    threads = [
        threading.Thread(
            target=fetch, args=("toy",), kwargs={"source": server.url, "progress": waited}
        )
        for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert told[0] == "waiting for another process that is fetching toy"
    assert len(server.asked) == 1
    check(home)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_in_the_middle_then_resumed(server, home):
    killed = threading.Event()

    def answer(self):
        due = self.begin()
        if len(server.asked) == 1:
            self.send(due[:HALF])
            killed.wait(30)
        else:
            self.send(due)

    server.answer = answer
    process = started(server)
    part, deadline = home / "toy.tar.bz2.part", time.monotonic() + 30
    while not (part.exists() and part.stat().st_size == HALF) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    killed.set()
    (home / ".unpacking-left").mkdir()  # as one that is killed while it unpacks would leave
    (home / ".unpacking-left" / "toy_train.h5").write_bytes(TRAIN[:10])
    fetch("toy", source=server.url)
    check(home)
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert server.sent == len(BODY)
