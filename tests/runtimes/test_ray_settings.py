"""What is said before anything runs on Ray: needs, addresses, options of the commands; no cluster
is started here.
"""

from __future__ import annotations

import http.server
import socket
import sys
import threading

import pytest

import fedasym as fa
from fedasym import cli
from fedasym.cli import Where
from fedasym.deploy import LIBRARY, Ray, ray, read_executor
from fedasym.deploy.ray import (
    SHARED,
    STORE,
    check_address,
    joining_error,
    local_cluster,
    ray_package,
)

from ..experiments.small import written


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"threads": 0}, "threads is 0: it must be a whole number of at least 1"),
        ({"threads": True}, "threads is True"),
        ({"workers": 1.5}, "workers is 1.5: it must be a whole number"),
        ({"gpus": 1.5}, "gpus is 1.5: give a whole number of GPUs, or a share of one"),
        ({"gpus": -1}, "gpus is -1"),
        ({"memory": 0}, "memory is 0: it must be a number of bytes above 0"),
    ],
)
def test_needs_are_checked_at_the_door(given, says):
    with pytest.raises(fa.InvalidInput) as caught:
        Ray(**given)
    assert str(caught.value).startswith(says)


def test_workers_have_as_many_threads_as_cpus_and_no_gpu_unless_told():
    one, three = Ray().variables({}), Ray(threads=3).variables({})
    assert one.keys() == three.keys()
    assert {name for name in one if one[name] != three[name]} == set(one) - {"JAX_PLATFORMS"}
    assert one["OMP_NUM_THREADS"] == one["NPROC"] == "1"
    assert three["OPENBLAS_NUM_THREADS"] == "3"
    assert one["JAX_PLATFORMS"] == "cpu"
    mine = {"JAX_PLATFORMS": "cuda", "JAX_ENABLE_X64": "1", "XLA_FLAGS": "--a", "HOME": "/home/ann"}
    told = Ray(gpus=1).variables(mine)
    assert {name: told.get(name) for name in mine} == mine | {"HOME": None}
    assert Ray().variables(mine)["JAX_PLATFORMS"] == "cpu"
    assert Ray(gpus=0.25).variables({})["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.23"


def test_memory_is_room_for_libraries_and_data_unless_given():
    assert Ray().memory_for(1000) == LIBRARY + 1000
    assert Ray(memory=5e9).memory_for(1000) == 5_000_000_000


def test_a_cluster_of_this_machine_is_as_large_as_it_must_be(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.path.isdir", lambda path: path == SHARED)
    free = STORE + 1000
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free}))
    assert local_cluster(Ray(threads=3), 100) == {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": 6,
        "object_store_memory": STORE + 120,
    }
    assert local_cluster(Ray(workers=5), 0)["num_cpus"] == 5
    assert "_plasma_directory" in local_cluster(
        Ray(), 10_000
    )  # shared memory is too small for the data


@pytest.mark.parametrize("address", ["head", "ray://head:10001", ":6379", "head:ray"])
def test_an_address_is_a_host_and_a_port(address):
    with pytest.raises(fa.InvalidInput, match=r"give host:port as ray start --head prints it"):
        check_address(address)


def test_an_address_where_nobody_answers_is_told_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with pytest.raises(
            fa.InvalidInput,
            match=r"nobody answers there \(Connection refused\); is the head of the cluster",
        ):
            check_address(f"127.0.0.1:{taken.getsockname()[1]}")


def test_an_address_where_something_else_answers_is_told(monkeypatch):
    monkeypatch.setattr(ray, "STATUS", 2.0)

    class Silent(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Silent) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(
                fa.InvalidInput, match="what answers there is not a Ray cluster; check the port"
            ):
                check_address(f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_what_ray_says_is_one_sentence():
    said = str(joining_error("head:6379", RuntimeError("Version\n   mismatch.")))
    assert (
        "this cluster cannot be joined: Version mismatch; this machine must be one of its nodes"
        in said
    )
    assert "ray start --head" in str(
        joining_error("auto", ConnectionError("Could not find any running Ray instance."))
    )


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fa.InvalidInput, match=r"pip install 'fedasym\[ray\]'"):
        ray_package()


def test_a_runtime_is_known_by_name():
    assert read_executor("ray") == Ray()
    assert read_executor(Ray(threads=2)).threads == 2
    with pytest.raises(fa.InvalidInput, match="did you mean ray"):
        fa.run(fa.Experiment(name="mine"), on="rai")


def test_options_become_a_runtime():
    assert Where().runtime() is None
    assert Where(on="ray").runtime() == Ray()
    told = Where(on="ray", address="head:1", threads=2, gpus=0.5, memory=1.5, workers=3).runtime()
    assert told == Ray("head:1", threads=2, gpus=0.5, memory=1.5 * 2**30, workers=3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["run", "FILE", "--address", "head:1"],
            "address is 'head:1', which is for a cluster: add --on ray",
        ),
        (
            ["sweep", "synthetic", "--gpus", "1"],
            "gpus is 1.0, which is for a cluster: add --on ray",
        ),
        (
            ["simulate", "--radius", "1", "--noise", "1", "--aspect", "2", "--workers", "2"],
            "workers is 2, which is for a cluster",
        ),
        (["run", "FILE", "--on", "rai"], "unknown runtime 'rai': did you mean ray?"),
        (["run", "FILE", "--on", "ray", "--threads", "0"], "threads is 0"),
        (["run", "FILE", "--on", "ray", "--address", "head"], "address is 'head': give host:port"),
    ],
)
def test_a_mistake_gives_one_sentence_and_leaves_nothing(
    capsys, monkeypatch, tmp_path, words, says
):
    file = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = [str(file) if word == "FILE" else word for word in words]
    cli.import_commands(given)
    code = cli.run(
        lambda: cli.app(given, exit_on_error=False, print_error=False, result_action="return_value")
    )
    out, said = capsys.readouterr()
    assert (code, out) == (2, "")
    assert says in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]
