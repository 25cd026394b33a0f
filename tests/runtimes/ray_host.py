"""A Ray cluster of several nodes on this machine, in a process of its own that is told what to do
line by line.

    python ray_host.py FOLDER

It answers each line with one: `add` (a node with one CPU: its number), `remove N` (killed, nothing
is tidied: `gone`). At the end of the input everything is stopped. All processes work in FOLDER, by
which they are known.
"""

from __future__ import annotations

import os
import sys

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # addresses on loopback stay there
    "RAY_AUTH_MODE": (
        "disabled"
    ),  # on loopback, for minutes; a token would be written to the home folder
    "RAY_health_check_initial_delay_ms": "500",  # a dead node is noticed in seconds
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
}
STORE = 80 * 2**20  # bytes; the least that Ray takes is 75 MiB


def main(folder: str, program: str) -> None:
    sys.executable = program  # what Ray starts Python with
    os.environ.update(
        QUIET | {"RAY_TMPDIR": folder, "XDG_CACHE_HOME": os.path.join(folder, "cache")}
    )  # it writes the cluster's address there, and expects the folder; workers keep copies there
    os.makedirs(os.path.join(folder, "ray"), exist_ok=True)
    os.chdir(folder)
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args=common | {"num_cpus": 0, "temp_dir": os.path.join(folder, "ray")},
    )
    nodes = []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["add"]:
                nodes.append(cluster.add_node(num_cpus=1, **common))
                print(len(nodes) - 1, flush=True)
            case ["remove", number]:
                cluster.remove_node(nodes[int(number)], allow_graceful=False)
                print("gone", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
