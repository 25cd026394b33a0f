"""Private Flower apps: clipping by client on nodes that have several, noise on the server or the
node, and what is spent, in metrics, log and file.
"""

import logging

import numpy as np
import pytest
from tests.command import fedasym

import fedasym as fa
from fedasym.core.privacy import Release, spend_together
from fedasym.deploy.flower.grid import read_app
from fedasym.deploy.flower.nodes import SavedHead
from fedasym.deploy.flower.policy import select_clients
from fedasym.deploy.flower.strategy import Personalized
from fedasym.training import twin
from fedasym.training.plans import clip_move, draw_secret_noise
from fedasym.training.settings import TEXT, Settings

from ..training.clients import federation
from .flower_table import table

SIZES = ((6, 1, 2),) * 6
RULES = {"rounds": 1, "evaluate_every": 0, "local_steps": 3, "batch": 8, "precision": "float64"}
RULES |= {"min_nodes": 2, "timeout": 2.0, "server_step": 0.3, "cohort": 6, "clip": 0.05}
ALMOST_NONE = 1e-9


@pytest.fixture(scope="module")
def whole():
    return federation(SIZES, d=30)


def seated(whole, folder, **rules):
    """Two nodes of three clients each."""
    files = [
        select_clients(whole, whole.clients[k::2]).save(folder / f"part{k}.safetensors")
        for k in range(2)
    ]
    return table(folder, "fedavg", files, **RULES | rules)


def clipped_mean(whole, clip):
    """By the plain loops: every client's first move, cut to the clip, alike."""
    told = Settings(local_steps=3, batch=8, server_step=0.3)
    moves = []
    for name in whole.clients:
        client = twin.TwinClient(whole, name, told, TEXT, 0, np.float64)
        start = np.zeros((whole.dimension, whole.outputs))
        head = twin.local_work(fa.algorithms.find("fedavg"), client, start, 0, 0).head
        moves.append(clip_move(head, clip)[0])
    return np.mean(moves, axis=0), np.array([np.linalg.norm(move) for move in moves])


@pytest.mark.parametrize("where", ["central", "local"])
def test_every_client_is_clipped_also_on_a_node_with_several(whole, tmp_path, where):
    grid = seated(whole, tmp_path, privacy=where, noise_multiplier=ALMOST_NONE)
    sent = Personalized("fedavg", grid.config).train(grid).arrays["head"].numpy()
    mean, lengths = clipped_mean(whole, 0.05)
    np.testing.assert_allclose(lengths, 0.05)  # each of them binds
    np.testing.assert_allclose(sent, mean, atol=1e-9)


@pytest.mark.parametrize(("where", "sums"), [("central", 1), ("local", 2)])
def test_the_noise_is_that_of_the_server_or_of_every_node(whole, tmp_path, where, sums):
    grid = seated(whole, tmp_path, privacy=where, noise_multiplier=20.0)
    heads = [Personalized("fedavg", grid.config).train(grid).arrays["head"].numpy() for _ in "ab"]
    noise = np.array([head - clipped_mean(whole, 0.05)[0] for head in heads])
    promised = 20.0 * 0.05 * np.sqrt(sums) / 6
    assert noise.std() == pytest.approx(promised, rel=4 / np.sqrt(2 * noise.size))
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.4  # nobody draws it again


def test_what_is_spent_is_in_metrics_log_and_file_and_goes_on_when_resumed(whole, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    rules = {"privacy": "central", "epsilon": 6.0, "rounds": 3, "cohort": 3, "save_every": 1}
    grid = seated(whole, tmp_path, **rules)
    told = Personalized("fedavg", grid.config).train(grid).train_metrics_clientapp
    z = fa.Privacy(epsilon=6).find_multiplier(3, 3, 6)
    every = [Release(z, "poisson", 1, 3, 6)] * 3
    assert told[3]["epsilon"] == pytest.approx(spend_together(every, 1e-6))
    assert 5.9 < told[3]["epsilon"] <= 6
    # two more rounds than the noise was planned for: the budget is spent, and the head stays
    later = Personalized("fedavg", grid.config | {"resume": True, "rounds": 5})
    before = SavedHead.load(grid.config["shared-path"]).head
    later.train(grid)
    assert "The privacy budget is spent" in caplog.text
    later.save()
    assert np.array_equal(SavedHead.load(grid.config["shared-path"]).head, before)
    about = SavedHead.load(grid.config["shared-path"]).about
    assert about["privacy"]["epsilon"] == told[3]["epsilon"]
    assert "at delta 1e-06 is spent" in caplog.text


def test_local_noise_counts_the_rounds_of_the_client_that_was_drawn_most(whole, tmp_path):
    rules = {"privacy": "local", "noise_multiplier": 4.0, "rounds": 3, "cohort": 2}
    grid = seated(whole, tmp_path, **rules, sampling="fixed")
    strategy = Personalized("fedavg", grid.config)
    told = strategy.train(grid).train_metrics_clientapp
    most = max(strategy.roster.turns.values())
    spent = fa.Privacy(noise_multiplier=4).spend(most, 1, 1)  # drawing hides nobody here
    assert told[3]["epsilon"] == pytest.approx(spent)


def test_a_node_that_sends_too_much_is_cut_to_its_clients_share(whole, tmp_path):
    from .test_flower import is_trained, replaced, whole_head

    grid = seated(whole, tmp_path, privacy="central", noise_multiplier=ALMOST_NONE)
    grid.spoil = lambda node, reply: (
        replaced(reply, fa_array(whole_head(reply) * 1e6))
        if node == 12 and is_trained(reply)
        else reply
    )
    sent = Personalized("fedavg", grid.config).train(grid).arrays["head"].numpy()
    change = np.linalg.norm(sent - clipped_mean(whole, 0.05)[0])
    assert 0 < change <= 2 * 3 * 0.05 / 6 + 1e-9


def fa_array(values):
    from flwr.app import Array

    return Array(values)


def test_secret_noise_is_normal():
    noise = draw_secret_noise((200, 200))
    assert noise.std() == pytest.approx(1, abs=4 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 4 / 200
    assert (np.abs(noise) > 1.96).mean() == pytest.approx(0.05, abs=0.005)


def test_the_command_writes_the_budget_into_the_app(tmp_path):
    words = ["--privacy", "central", "--epsilon", "4", "--clip", "0.3"]
    fedasym("deploy", "ftfa", "--into", str(tmp_path / "app"), *words)
    config = read_app(tmp_path / "app")["config"]
    assert (config["privacy"], config["epsilon"], config["clip"]) == ("central", 4.0, 0.3)
    told = fedasym("deploy", "ftfa", "--into", str(tmp_path / "other"), "--privacy", "central")
    assert told.returncode != 0
    assert "give one of the two" in told.stderr
