"""Several devices, of the host, give the numbers of one; and what one process compiled, another
finds."""

import os
import subprocess
import sys
from collections.abc import Iterable

import numpy as np
from tests.training.clients import SMALL, federation

import fedasym as fa

RUNS = {  # algorithms, and what they are told beside SMALL
    "a grid, dealt out by configuration": (
        ["ftfa"],
        {"grid": {"server_step": [0.05, 0.1, 0.2, 0.4]}},
    ),
    "one configuration, dealt out by client": (["rtfa"], {"ridge": 0.5}),
    "what is kept between rounds": (["scaffold"], {"grid": {"server_step": [0.05, 0.1, 0.2]}}),
    "clipped and noised": (["ftfa"], {"privacy": [1.0, 0.5], "seeds": [1, 2]}),
}
ON_DISK = "one configuration, dealt out by client"
CHILD = """
import sys, jax
import numpy as np
import fedasym as fa
from fedasym.training.heads import device_mesh
from tests.training.clients import federation
from tests.training.test_devices import ON_DISK, RUNS, train_all
assert device_mesh().size == len(jax.devices()) == 4
folder = sys.argv[1]
found = train_all(federation(), RUNS)
opened = fa.Federation.open(folder + "/disk")
fa.keep_compilations(folder + "/compiled")
found |= {f"disk {name}": each for name, each in train_all(opened, [ON_DISK]).items()}
np.savez(folder + "/found.npz", **found)
"""


def train_all(clients: fa.Federation, names: Iterable[str]) -> dict[str, np.ndarray]:
    """What these runs measured."""
    found = {}
    for name in names:
        algorithms, told = RUNS[name]
        if "privacy" in told:
            noise, clip = told["privacy"]
            budget = fa.Privacy(noise_multiplier=noise, delta=0.1, clip=clip)
            told = told | {"privacy": budget}
        for place, each in enumerate(fa.train(algorithms, clients, **SMALL | told)):
            for what in ("correct", "losses", "shared", "shared_losses"):
                found[f"{name}, {place}, {what}"] = np.asarray(getattr(each, what))
    return found


def test_four_devices_give_the_numbers_of_one(tmp_path):
    here = federation()
    here.save(tmp_path / "disk", shards=2)
    told = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    flags = {"XLA_FLAGS": told, "FEDASYM_DEVICES": "all"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        env=os.environ | flags | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mine = train_all(here, RUNS)
    with np.load(tmp_path / "found.npz") as found:
        assert len(found) > len(mine)
        for name, theirs in found.items():
            expected = mine[name.removeprefix("disk ")]
            np.testing.assert_allclose(theirs, expected, rtol=2e-5, atol=2e-6, err_msg=name)
    assert list((tmp_path / "compiled").iterdir())  # found again by whoever comes next
