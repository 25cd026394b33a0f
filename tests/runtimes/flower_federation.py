"""A real federation on loopback for tests: a SuperLink and SuperNodes as processes of their own,
TLS and node keys. One process imports Flower, and all others are forked from it (`flower_warm.py`).
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..warm import Process, Starter, wait_until

BIN = Path(sys.executable).parent
HOST = "127.0.0.1"
WARM = Path(__file__).with_name("flower_warm.py")


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind((HOST, 0))
        return opened.getsockname()[1]


def certificates(folder: Path) -> dict[str, Path]:
    """A certificate authority, and a server certificate for loopback signed by it."""
    now, files = datetime.datetime.now(datetime.UTC), {}
    keys = {name: ec.generate_private_key(ec.SECP384R1()) for name in ("ca", "server")}
    names = {
        name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")]) for name in keys
    }
    for name, key in keys.items():
        extensions = [
            (x509.BasicConstraints(ca=name == "ca", path_length=None), True),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(keys["ca"].public_key()), False),
        ]
        if name == "ca":
            usage = dict.fromkeys(("digital_signature", "key_cert_sign", "crl_sign"), True)
            others = (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            )
            extensions.append((x509.KeyUsage(**usage, **dict.fromkeys(others, False)), True))
        else:
            places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
            extensions.append((x509.SubjectAlternativeName(places), False))
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
        )
        made = made.serial_number(x509.random_serial_number()).not_valid_before(
            now - datetime.timedelta(hours=1)
        )
        made = made.not_valid_after(now + datetime.timedelta(days=1))
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        files[name] = folder / f"{name}.crt"
        files[name].write_bytes(
            made.sign(keys["ca"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
    files["key"] = folder / "server.key"
    files["key"].write_bytes(private(keys["server"], serialization.PrivateFormat.PKCS8))
    return files


def private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def node_keys(folder: Path, name: str) -> Path:
    """A node's pair of keys, as `ssh-keygen -t ecdsa -b 384` makes them: name and name.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    path = folder / name
    path.write_bytes(private(key, serialization.PrivateFormat.OpenSSH))
    path.chmod(0o600)
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    path.with_name(f"{name}.pub").write_bytes(key.public_key().public_bytes(*form))
    return path


class Federation:
    """A SuperLink with TLS that takes registered nodes only, and what it takes to talk to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.files, self.started = certificates(folder), []
        self.home = folder / "flwr-home"
        self.home.mkdir()
        place = f'address = "{HOST}:{self.port}"\nroot-certificates = "{self.files["ca"]}"\n'
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{place}'
        )
        environment = os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        environment.pop("PYTHONWARNINGS", None)
        self.starter = Starter(environment, script=str(WARM))

    def open(self) -> None:
        """Start the SuperLink, which knows its nodes again after it died; `stop` ends everything,
        also after a start that failed.
        """
        words = ["flower-superlink", "--host", HOST, "--port", self.port, "--enable-supernode-auth"]
        words += [
            "--disable-runtime-dependency-installation",
            "--ssl-ca-certfile",
            self.files["ca"],
        ]
        words += ["--ssl-certfile", self.files["server"], "--ssl-keyfile", self.files["key"]]
        words += ["--database", self.folder / "link.db"]
        self.link = self.start(words, "superlink")
        wait_until(self.answers, 60, "SuperLink", lambda: self.link.text[-3000:])

    def kill_server(self, run: Process) -> None:
        """End the SuperLink at once, and the command that shows the log; what the SuperLink has
        started misses it and ends itself.
        """
        self.link.kill()
        run.kill()
        wait_until(lambda: not self.answers(), 20, "end of the SuperLink")

    def answers(self) -> bool:
        with socket.socket() as opened:
            return opened.connect_ex((HOST, self.port)) == 0

    def start(self, words: list[object], name: str) -> Process:
        process = Process(self.starter, words, self.folder / f"{name}-{len(self.started)}.log")
        self.started.append(process)
        return process

    def told(self, *words: object) -> str:
        """What a command prints."""
        done = self.start(list(words), "command")
        assert done.wait(120) == 0, done.text
        return done.text

    def register(self, *keys: Path) -> list[int]:
        """The numbers that the SuperLink gives to nodes with these keys."""
        calls = [
            ["supernode", "register", f"{key}.pub", "here", "--format", "json"] for key in keys
        ]
        code = (
            f"from flwr.cli.app import app\nfor words in {calls!r}: app(words,"
            " standalone_mode=False)"
        )
        told = self.told("python", "-c", code)
        return [int(number) for number in re.findall(r'"node-id": "?(\d+)', told)]

    def node(
        self,
        name: str,
        key: Path,
        *,
        interval: int = 30,
        policy: Path | None = None,
        more: Sequence[object] = (),
        **config: object,
    ) -> Process:
        """Start a node: by `fedasym node` where there is a policy, or one that runs no app. The
        SuperLink gives up on one that has not shown itself for two intervals, in seconds: a busy
        machine needs long ones, and a node that is to be killed a short one.
        """
        words = ["--superlink", f"{HOST}:{self.port}", "--root-certificates", self.files["ca"]]
        words += ["--port", free_port()]
        if policy is not None:
            return self.start(["node", interval, policy, *words, "--key", key], name)
        told = " ".join(
            f"{each.replace('_', '-')}={json.dumps(value)}" for each, value in config.items()
        )
        words += ["--host", HOST, "--auth-supernode-private-key", key, "--node-config", told]
        return self.start(["flower-supernode", *words, *more], name)

    def run(self, app: Path, **config: object) -> Process:
        """Start a run, whose log is streamed into a file."""
        told = " ".join(
            f"{each.replace('_', '-')}={json.dumps(value)}" for each, value in config.items()
        )
        return self.start(
            ["flwr", "run", app, "here", "--stream", "--run-config", told], f"run-{app.name}"
        )

    def stop(self) -> None:
        for process in reversed(self.started):
            process.stop()
        self.starter.stop()
        for pid in self.left():  # the SuperLink starts its executor in a session of its own
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.left(), 10, "end of all processes", self.left)

    def left(self) -> list[int]:
        """Processes that still have this federation's home in their environment."""
        mark, found = f"FLWR_HOME={self.home}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # gone meanwhile, or not ours to read
                continue
        return found
