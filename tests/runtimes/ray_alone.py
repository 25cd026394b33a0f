"""What a driver finds on a Ray cluster of this machine alone: where data lie, what workers are
told, what goes wrong.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

import fedasym as fa
from fedasym.deploy import Ray
from fedasym.deploy.ray import (
    CRASHES,
    Task,
    TaskPool,
    join_cluster,
    open_pool,
    portable_data,
    read_data,
    run_task,
)
from fedasym.verbs.simulation import simulate


def lying(data: list[Any], heard: Any) -> dict[str, Any]:
    """In a worker: where in which file of shared memory the features are."""
    features = read_data(data).features
    address = features.__array_interface__["data"][0]
    time.sleep(1)  # so that the other worker gets one too
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, inode, *name = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            place = (inode, address - low + int(offset, 16))
            return {
                "process": os.getpid(),
                "file": name[0],
                "place": place,
                "writable": bool(features.flags.writeable),
            }
    raise AssertionError


def told(heard: Any) -> dict[str, Any]:
    """In a worker: its environment, and the threads that libraries have when they have multiplied
    large matrices.
    """
    import jax
    from threadpoolctl import threadpool_info

    np.ones((600, 600)) @ np.ones((600, 600))
    one = jax.numpy.ones((1000, 1000))
    (one @ one).block_until_ready()
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return {
        "blas": [each["num_threads"] for each in threadpool_info()],
        "xla": sum(name.startswith("tf_XLAEigen") for name in names),
        "platforms": os.environ.get("JAX_PLATFORMS"),
        "mine": os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"),
    }


def dying(heard: Any) -> None:
    os.kill(os.getpid(), 9)


def refusing(heard: Any) -> None:
    raise fa.InvalidInput("it is wrong: mend it")


def failing(heard: Any) -> None:
    raise ZeroDivisionError("a mistake of ours")


def results(pool: TaskPool, *tasks: Task) -> tuple[dict[str, Any], list[str]]:
    """What came back, and why what was lost was lost."""
    found: dict[str, Any] = {}
    lost: list[str] = []
    for task in tasks:
        pool.hand_out(task)
    while len(found) < len(tasks):
        found |= dict(pool.collect_results(lambda key, why: lost.append(why)))
    return found, lost


def sentence(call: Any) -> str:
    try:
        call()
    except Exception as reason:
        return f"{type(reason).__name__}: {reason}"
    return ""


def looked() -> dict[str, Any]:
    from .ray_processes import inside, listening

    settings = Ray(workers=2)
    world = fa.Population(1, 0.5, 2, norm=2)
    sizes = {"dimension": 40, "clients": 8, "trials": 3, "vary": {"noise": [0.3, 1.0]}}
    federation = fa.datasets.synthetic(clients=20, dimension=200, aspect=0.5)
    heard: list[tuple[float, str]] = []
    with join_cluster(settings, 0), open_pool(settings, federation) as pool:
        stored = [pool.ray.put(portable_data(federation))]
        out = {
            "data": list(
                results(pool, *(Task(str(n), lying, (stored,)) for n in range(4)))[0].values()
            )
        }
        out["told"] = results(pool, Task("told", told, ()))[0]["told"]
        out["listening"] = sorted(listening(inside(Path.cwd())))
        out["refused"] = sentence(lambda: results(pool, Task("refusing", refusing, ())))
        out["failed"] = sentence(lambda: results(pool, Task("failing", failing, ())))
        # each takes a new worker: what is lost once and comes back, a cluster of several nodes sees
        pool.crashes["dying"] = CRASHES
        out["crashed"] = sentence(lambda: results(pool, Task("dying", dying, ())))
        out["crashes"] = pool.crashes["dying"]
        (Path.cwd() / "shadow").mkdir()
        (Path.cwd() / "shadow" / "fedasym.py").write_text("")
        shadowed = {"env_vars": {"PYTHONPATH": str(Path.cwd() / "shadow")}}
        pool.hand = pool.ray.remote(run_task).options(max_retries=0, runtime_env=shadowed)
        out["missing"] = sentence(lambda: results(pool, Task("missing", refusing, ())))
        out["too much"] = sentence(lambda: TaskPool(Ray(threads=99), 0))
        there = simulate(
            world, on=settings, progress=lambda share, text: heard.append((share, text)), **sizes
        )
        out["simulated"] = there.to_json() == simulate(world, **sizes).to_json()
        out["heard"] = heard[-1]
    return out


def main() -> None:
    with redirect_stdout(sys.stderr):  # where Ray's own words go
        found = looked()
    sys.stdout.write(json.dumps(found))
