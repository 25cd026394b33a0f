"""The server without a browser: whom it answers, what it takes, and what it leaves behind."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

import fedasym as fa
from fedasym.show import explore_page, write_explore_page
from fedasym.show.explorer import TABLES, Explorer, merge_eigenvalues

from ..command import fedasym

ROOT = Path(__file__).parents[2]
TYPE = {"Content-Type": "application/octet-stream"}


def ask(server, method="GET", path="/", body=None, headers=None):
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers), answer.read()
    connection.close()
    return found


def error(found):
    return json.loads(found[2])["error"]


def table(clients=10, samples=12, features=4, seed=0):
    """A CSV of client data."""
    rng = np.random.default_rng(seed)
    lines = ["client,label," + ",".join(f"x{k}" for k in range(features))]
    for client in range(clients):
        theta = 1 + 0.5 * rng.standard_normal(features)
        for x in rng.standard_normal((samples, features)):
            values = [x @ theta + 0.3 * rng.standard_normal(), *x]
            lines.append(f"c{client}," + ",".join(f"{value:.6f}" for value in values))
    return "\n".join(lines).encode()


def test_the_page_is_served_with_headers_that_keep_others_out(explorer):
    status, headers, body = ask(explorer)
    assert status == 200
    assert body.decode() == explore_page(explorer.most_bytes)
    assert "connect-src 'self'" in unescape(body.decode())
    assert "connect-src 'none'" in unescape(explore_page())
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert headers["Cache-Control"] == "no-store"
    assert explorer.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/page.html",
        "/../pyproject.toml",
        "/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/advice/guess",
        "/parts/theory.js",
    ],
)
def test_there_is_nothing_else(explorer, path):
    status, _, body = ask(explorer, path=path)
    assert status == 404
    assert error((0, 0, body)) == "There is only one page here, at /."


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost:1",
        "127.0.0.1.evil.example:{port}",
        "192.168.0.9:{port}",
        "[::1",
        "a b",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_foreign_host_is_refused(explorer, host, method):
    headers = {"Host": host.format(port=explorer.server_port), **TYPE}
    assert (
        ask(
            explorer,
            method,
            "/advise" if method == "POST" else "/",
            b"x" if method == "POST" else None,
            headers,
        )[0]
        == 421
    )


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"]
)
def test_this_machine_is_welcome_by_each_of_its_names(explorer, host):
    assert ask(explorer, headers={"Host": host.format(port=explorer.server_port)})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example", **TYPE},
        {"Origin": "null", **TYPE},
        {"Origin": "https://127.0.0.1:{port}", **TYPE},
        {"Origin": "http://127.0.0.1:1", **TYPE},
        {"Sec-Fetch-Site": "cross-site", **TYPE},
        {"Sec-Fetch-Site": "same-site", **TYPE},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {},
    ],
)
def test_posts_from_other_pages_are_refused(explorer, headers):
    given = {key: value.format(port=explorer.server_port) for key, value in headers.items()}
    found = ask(explorer, "POST", "/advise?name=a.csv", b"x", given)
    assert found[0] == 403
    assert "another page" in error(found)


def test_other_methods_and_places_are_refused(explorer):
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(explorer, method)[0] == 501
    assert ask(explorer, "POST", "/", b"x", TYPE)[0] == 404


def test_a_file_must_say_its_size_and_not_be_too_large(monkeypatch):
    with Explorer(port=0, most_bytes=1000) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        found = ask(server, "POST", "/advise?name=a.csv", b"x" * 1001, TYPE)
        assert found[0] == 413
        assert "fedasym advise FILE" in error(found)
        for length in ("-1", "1e3", "", "²"):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            connection.putrequest("POST", "/advise?name=a.csv")
            for key, value in (*TYPE.items(), ("Content-Length", length.encode())):
                connection.putheader(key, value)
            connection.endheaders()
            assert connection.getresponse().status == 411
            connection.close()
        server.shutdown()
        thread.join()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A place for temporary files, to see that none stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_good_file_is_advised_on_and_deleted(explorer, temporary):
    status, _, body = ask(
        explorer,
        "POST",
        "/advise?name=../../clients.csv&label=label&client=client&task=",
        table(),
        TYPE,
    )
    told = json.loads(body)
    assert status == 200, told
    assert list(temporary.iterdir()) == []
    assert "use " in told["words"]
    shown = ask(explorer, path=told["page"])
    assert shown[0] == 200
    assert b"<h1>Use " in shown[2]
    estimates = told["estimates"]
    assert estimates["clients"] == 10
    assert 0.1 < estimates["noise"] < 0.6
    values, shares = zip(
        *([float(x) for x in pair.split("@")] for pair in estimates["atoms"].split(",")),
        strict=True,
    )
    assert sum(shares) == pytest.approx(1, abs=1e-9)
    assert min(values) >= 0
    again = json.loads(ask(explorer, "POST", "/advise?name=clients.csv", table(), TYPE)[2])
    assert ask(explorer, path=told["page"])[0] == 404  # only the last is kept
    assert ask(explorer, path=again["page"])[0] == 200


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("a.csv", b"", "a.csv"),
        ("a.csv", b"\xff\xfe\x00garbage\n\x00", "a.csv"),
        ("a.csv", b"one,two\n1,2\n", "client"),
        ("a.parquet", b"PAR1 but no more", "a.parquet"),
        ("a.npz", b"PK\x03\x04", "a.npz"),
        ("a.json", b"{", "a.json"),
        ("a.sqlite", b"SQLite format 3\x00", "a.sqlite"),
        ("a.safetensors", b"\x00" * 40, "a.safetensors"),
        ("a.exe", b"MZ", "'a.exe'"),
        ("", b"x", "ending"),
    ],
)
def test_a_broken_file_is_told_in_words(explorer, temporary, name, body, words):
    found = ask(explorer, "POST", f"/advise?name={name}", body, TYPE)
    assert found[0] == 422
    assert words in error(found)
    assert str(temporary) not in error(found)
    assert "Traceback" not in error(found)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("place", ["/advise", "/columns"])
def test_one_file_at_a_time(explorer, place):
    with explorer.thinking:
        found = ask(explorer, "POST", f"{place}?name=a.csv", table(), TYPE)
    assert found[0] == 503
    assert "wait" in error(found)


def columns_of(explorer, name, body):
    """What the server says of a table's columns."""
    status, _, answer = ask(explorer, "POST", f"/columns?name={name}", body, TYPE)
    assert status == 200, answer
    return json.loads(answer)


MIXED = b"""row;Subject;dose;when;smokes;<script>;y
1;a;0,5;2024-05-31;true;x;1
2;a;NA;2024-06-01;false;y;2
3;b;1,5;2024-06-02;true;x;
4;b;2,5;2024-06-03;true;7;4
"""


def test_columns_are_told_with_their_kinds_and_a_guess(explorer, temporary):
    told = columns_of(explorer, "../../trial.csv", MIXED)
    assert list(temporary.iterdir()) == []
    assert [tuple(each.values()) for each in told.pop("columns")] == [
        ("row", "whole numbers", 4, 0, "1"),
        ("Subject", "words", 2, 0, "a"),
        ("dose", "numbers", 3, 1, "0.5"),
        ("when", "dates", 4, 0, "2024-05-31"),
        ("smokes", "booleans", 2, 0, "True"),
        ("<script>", "words", 3, 0, "x"),
        ("y", "whole numbers", 3, 1, "1"),
    ]
    assert told == {"rows": 4, "label": "y", "client": "Subject", "split": None}


@pytest.mark.parametrize(
    ("header", "label", "client"),
    [
        ("client,label,x", "label", "client"),
        ("schoolId,Score,x", "Score", "schoolId"),
        ("group,USER_ID,target", "target", "USER_ID"),
        ("pid,x,z", None, None),
        ("zone_id,x,z", None, "zone_id"),
        ("a,b,y", "y", None),
        ("y,target,school", "y", "school"),
    ],
)
def test_label_and_client_are_guessed_by_name(explorer, header, label, client):
    rows = "\n".join(",".join(f"{at // 3 + place}" for place in range(3)) for at in range(12))
    told = columns_of(explorer, "a.csv", f"{header}\n{rows}\n".encode())
    assert (told["label"], told["client"]) == (label, client)


def test_a_column_that_never_repeats_itself_is_no_client(explorer):
    rows = "\n".join(f"{at},{at % 4}" for at in range(12))
    assert columns_of(explorer, "a.csv", f"client,site\n{rows}\n".encode())["client"] == "site"
    assert columns_of(explorer, "a.csv", b"client,site\n")["client"] is None


def test_a_saved_federation_has_lists_and_no_columns_to_choose(explorer, tmp_path):
    federation = fa.Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"))
    assert (
        columns_of(explorer, "a.parquet", federation.save(tmp_path / "a.parquet").read_bytes())[
            "columns"
        ]
        is None
    )


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("a.csv", b"", "a.csv"),
        ("a.csv", b"x,x\n1,2\n", "several columns 'x'"),
        ("a.csv", b"\x1f\x8b packed", "compressed"),
        ("a.xlsx", b"PK\x03\x04", "a.xlsx"),
        ("a.parquet", b"PAR1 but no more", "a.parquet"),
        ("a.npz", b"PK\x03\x04", "not a table"),
        ("a.exe", b"MZ", "'a.exe'"),
        ("", b"x", "ending"),
    ],
)
def test_columns_of_a_broken_table_are_refused_in_words(explorer, temporary, name, body, words):
    found = ask(explorer, "POST", f"/columns?name={name}", body, TYPE)
    assert found[0] == 422
    assert words in error(found)
    assert str(temporary) not in error(found)
    assert "Traceback" not in error(found)
    assert list(temporary.iterdir()) == []


def test_columns_are_told_to_our_own_page_alone(explorer):
    assert (
        ask(explorer, "POST", "/columns?name=a.csv", MIXED, {**TYPE, "Host": "evil.example"})[0]
        == 421
    )
    assert (
        ask(
            explorer,
            "POST",
            "/columns?name=a.csv",
            MIXED,
            {**TYPE, "Origin": "http://evil.example"},
        )[0]
        == 403
    )
    assert ask(explorer, "POST", "/columns?name=a.csv", MIXED)[0] == 403
    assert ask(explorer, path="/columns?name=a.csv")[0] == 404


def test_the_page_knows_which_endings_are_tables():
    listed = re.search(r"const TABLES = (\[.*?\]);", explore_page())[1]
    assert tuple(json.loads(listed)) == TABLES


def advise_on(explorer, **said):
    return ask(
        explorer, "POST", "/advise?" + urlencode({"name": "clients.csv", **said}), table(), TYPE
    )


def test_roles_and_scale_reach_the_recipe(explorer):
    roles = json.dumps({"x0": "ignore", "x1": "shared"})
    told = json.loads(advise_on(explorer, roles=roles, scale="none", task="regression")[2])
    recipe = " ".join(told["recipe"].split())
    assert "3 features, as they are: x1, x2, x3." in recipe
    assert "or as requested): x1. Left out: x0 (as requested)." in recipe
    assert "--" not in recipe


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"roles": "{"}, "roles is '{'"),
        ({"roles": "[" * 20000}, "JSON object"),
        ({"roles": '{"x0": 1}'}, "JSON object"),
        ({"roles": '{"x0": "wrong"}'}, "wrong"),
        ({"roles": '{"x9": "ignore"}'}, "x9"),
        ({"roles": '{"label": "ignore"}'}, "this column is the label"),
        ({"scale": "wrong"}, "scale"),
        ({"missing": "wrong"}, "missing"),
        ({"label": "client"}, "name it once"),
    ],
)
def test_choices_that_make_no_sense_are_told(explorer, said, words):
    found = advise_on(explorer, **said)
    assert found[0] == 422
    assert words in error(found)


def test_a_file_that_breaks_off_is_forgotten(explorer, temporary):
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=60)
    connection.putrequest("POST", "/advise?name=a.csv")
    for key, value in (*TYPE.items(), ("Content-Length", "100")):
        connection.putheader(key, value)
    connection.endheaders()
    connection.send(b"only this")
    connection.sock.shutdown(1)
    assert connection.getresponse().status == 422
    connection.close()
    assert list(temporary.iterdir()) == []


def test_a_browser_that_hangs_up_leaves_no_traceback(explorer, capfd):
    with socket.create_connection(("127.0.0.1", explorer.server_port)) as line:
        line.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )  # gone without a word
        line.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{explorer.server_port}\r\n\r\n".encode())
    assert ask(explorer)[0] == 200
    assert capfd.readouterr().err == ""


def test_an_open_server_is_reached_by_numbers_and_not_by_foreign_names():
    with Explorer("0.0.0.0", 0) as server:
        port = server.server_port
        assert server.address == f"http://127.0.0.1:{port}/"
        assert not server.local
        assert server.knows(f"192.168.0.9:{port}")
        assert server.knows(f"localhost:{port}")
        assert not server.knows(f"evil.example:{port}")
        assert not server.knows(None)


def test_a_taken_port_and_a_foreign_host_are_told(explorer):
    with pytest.raises(fa.InvalidInput, match="--port 0"):
        Explorer(port=explorer.server_port)
    with pytest.raises(fa.InvalidInput, match="nothing can listen there"):
        Explorer("203.0.113.7", 0)
    with pytest.raises(fa.InvalidInput, match="65535"):
        Explorer(port=70000)


def test_the_command_prints_its_address_and_ends_on_an_interrupt(tmp_path):
    command = [sys.executable, "-m", "fedasym", "explore", "--port", "0", "--no-open"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    line = process.stdout.readline()
    address = line.split()[2]
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.status == 200
    sending = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=60)
    sending.putrequest("POST", "/advise?name=a.csv")
    for key, value in (*TYPE.items(), ("Content-Length", "100")):
        sending.putheader(key, value)
    sending.endheaders()
    while not list(tmp_path.iterdir()):  # half a file has come
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    sending.close()
    assert (process.returncode, out.strip(), err) == (0, "Ended.", "")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=60)


def test_the_committed_page_is_what_the_command_writes(tmp_path):
    done = fedasym("explore", "--static", "page.html", cwd=tmp_path)
    assert done.stdout.startswith("Written to page.html")
    written = (tmp_path / "page.html").read_text()
    assert written == explore_page()
    assert (ROOT / "docs" / "explore.html").read_text() == written, (
        "run: fedasym explore --static docs/explore.html"
    )


def test_a_page_needs_a_name_and_a_folder(tmp_path):
    with pytest.raises(fa.InvalidInput, match=r"end in \.html"):
        write_explore_page(tmp_path / "page.txt")
    with pytest.raises(fa.InvalidInput, match="does not exist"):
        write_explore_page(tmp_path / "nowhere" / "page.html")


def test_an_estimated_spectrum_is_merged_without_changing_its_mean():
    rng = np.random.default_rng(0)
    values, weights = rng.exponential(size=300), np.full(300, 1 / 300)
    s, h = merge_eigenvalues(values, weights)
    assert len(s) == 12
    assert sum(h) == pytest.approx(1, abs=1e-12)
    assert s == sorted(s)
    assert np.dot(s, h) == pytest.approx(values.mean(), rel=1e-4)
