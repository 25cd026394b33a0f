"""Joining a Ray cluster and leaving it: one that runs somewhere, or one of this machine that lives as long as it is needed."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.deploy.ray.settings import Ray

PATIENCE = 5.0  # seconds within which an address must answer
SETTINGS = b"\x04"  # the type of the frame that opens HTTP/2, which Ray's services speak
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
SHARED = "/dev/shm"  # where an object store's memory is on Linux
STORE = 100 * 2**20  # bytes of an object store beside the data: results on their way


def ray_package() -> Any:
    """The package ray."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when it is imported
    try:
        import ray
    except ImportError:
        raise MissingPackage("on is 'ray', which is not installed: pip install 'fedasym[ray]'") from None
    return ray


@contextmanager
def joined(settings: Ray, size: int) -> Iterator[None]:
    """Be a driver of the cluster for a while; a connection that was there before is used and left. size: bytes of the data."""
    ray = ray_package()
    if ray.is_initialized():
        yield
        return
    address = settings.address or os.environ.get("RAY_ADDRESS") or None
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": True}
    if address is None:
        common |= alone(settings, size)
    else:
        check(address)
        common |= {"address": address}
    try:
        with nullcontext() if address else loopback(ray):
            ray.init(**common)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as reason:
        ray.shutdown()
        raise refused(address, reason) from None
    try:
        yield
    finally:
        ray.shutdown()


def alone(settings: Ray, size: int) -> dict[str, Any]:
    """The arguments of a cluster of this machine alone, which listens to no other and shows no page."""
    store = int(1.2 * size) + STORE
    cpus = os.cpu_count() or 1
    workers = max(cpus // settings.threads, 1) if settings.workers is None else settings.workers
    told = {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": workers * settings.threads,
        "object_store_memory": store,
    }
    if os.path.isdir(SHARED) and shutil.disk_usage(SHARED).free < store:
        told["_plasma_directory"] = tempfile.gettempdir()  # slower than memory, but it holds the data
    return told


@contextmanager
def loopback(ray: Any) -> Iterator[None]:
    """While a cluster starts: let it listen to this machine alone, as Ray does by itself on macOS and Windows."""
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def check(address: str) -> None:
    """Refuse at once an address where no cluster answers: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not port.isdigit():
        known = "give host:port as ray start --head prints it, such as 10.0.0.1:6379, or auto"
        raise InvalidInput(f"address is {address!r}: {known}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as line:
            line.settimeout(PATIENCE)
            line.sendall(GREETING)
            answer = line.recv(len(GREETING))
    except (OSError, OverflowError) as reason:
        why = getattr(reason, "strerror", None) or str(reason)
        hint = "is the head of the cluster running (ray start --head), and its port open?"
        raise InvalidInput(f"address is {address!r}: nobody answers there ({why}); {hint}") from None
    if answer[3:4] != SETTINGS and os.environ.get("RAY_USE_TLS", "0") != "1":
        raise InvalidInput(f"address is {address!r}: what answers there is not a Ray cluster; check the port")


def refused(address: str | None, reason: Exception) -> InvalidInput:
    """What Ray said when it was joined, in one sentence."""
    said = " ".join(str(reason).split())[:300].rstrip(".")
    if address is None:
        return InvalidInput(f"a Ray cluster of this machine could not be started: {said}")
    if address == "auto":
        return InvalidInput("address is 'auto', and no Ray cluster runs on this machine: start one with ray start --head")
    hint = (
        "this machine must be one of its nodes (ray start), with the same Python and ray and, where it asks for one, its token"
    )
    return InvalidInput(f"address is {address!r}: this cluster cannot be joined: {said}; {hint}")
