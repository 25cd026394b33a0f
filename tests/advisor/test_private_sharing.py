"""Advice under a privacy budget: whether sharing pays, and how many clients that takes."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.command import fedasym

import fedasym as fa
from fedasym.advisor.advice import charge_privacy
from fedasym.advisor.data import read_clients
from fedasym.advisor.estimates import pool_and_estimate


def drawn(clients):
    return fa.datasets.synthetic(
        radius=1, noise=0.5, aspect=2, norm=2, clients=clients, dimension=40, seed=1
    )


@pytest.fixture(scope="module")
def few():
    return drawn(20)


@pytest.fixture(scope="module")
def tight(few):
    return fa.advise(few, privacy=fa.Privacy(epsilon=0.5))


def test_a_tight_budget_among_few_clients_makes_sharing_too_dear(few, tight):
    plain = fa.advise(few)
    assert not fa.algorithms.find(plain.recommended).shares_nothing
    assert tight.recommended == "local_ridge"
    assert not tight.privacy.shares
    assert tight.privacy.plain == plain.predictions["rtfa"].trusted
    assert 20 < tight.privacy.pays < 60
    assert f"it would pay with {tight.privacy.pays:.0f} or more" in str(tight).replace("\n", " ")
    loose = charge_privacy(plain, fa.Privacy(epsilon=8))
    assert loose.recommended == "rtfa"
    assert loose.privacy.plain < loose.privacy.loss < tight.privacy.loss
    # noise in the shared model is more displacement: its best ridge is smaller, as after rounds
    about, world = loose.privacy, loose.population.world
    world = replace(world, optimum_power=world.shift_power)
    told = {
        name: getattr(about, name) for name in ("rounds", "cohort", "local_steps", "server_step")
    }
    told |= {"clients": 20, "dimension": 40}
    noise = fa.Privacy(noise_multiplier=about.noise_multiplier, clip=about.clip)
    private = fa.rounds(world, "rtfa", privacy=noise, **told)
    tried = product((4, 16, 64), (5, 50))
    paths = (fa.rounds(world, "rtfa", **told | {"rounds": R, "local_steps": K}) for R, K in tried)
    part = float(private.ridge[-1] / min(paths, key=lambda path: path.final).ridge[-1])
    assert 0 < part < 1
    assert loose.ridge == pytest.approx(part * plain.predictions["rtfa"].ridge, rel=1e-6)


def test_from_the_number_that_is_said_on_sharing_pays(tight):
    """A federation of twice that many of the same clients: the same budget changes nothing."""
    many = fa.advise(drawn(round(2 * tight.privacy.pays)), privacy=fa.Privacy(epsilon=0.5))
    assert many.recommended == "rtfa"
    assert many.privacy.shares
    told = json.loads(many.to_json())["privacy"]
    assert told["shares"] is True
    assert told["rounds"] == many.privacy.rounds
    # the settings that are advised keep the budget
    budget = fa.Privacy(noise_multiplier=told["noise_multiplier"])
    cohort = told["cohort"]
    assert budget.spend(told["rounds"], cohort, cohort) == pytest.approx(0.5, rel=1e-3)


def test_the_command_takes_the_budget(few, tmp_path):
    path = tmp_path / "clients.safetensors"
    few.save(path)
    told = fedasym("advise", str(path), "--epsilon", "0.5", "--json")
    assert json.loads(told.stdout)["recommended"] == "local_ridge"
    with pytest.raises(fa.InvalidInput, match="privacy has no epsilon"):
        fa.advise(few, privacy=fa.Privacy(noise_multiplier=1))


CLASSES = {"classes": 3, "radius": 2.5, "centre": 3, "aspect": 1.5, "dimension": 66, "seed": 1}


@pytest.fixture(scope="module")
def labelled():
    return fa.datasets.synthetic(task="classification", clients=50, **CLASSES)


@pytest.fixture(scope="module")
def loose(labelled):
    return fa.advise(labelled, privacy=fa.Privacy(epsilon=4))


def one_hot(labelled):
    """Least-squares heads: centred one-hot labels as numbers."""
    labels = np.eye(3)[labelled.labels] - 1 / 3
    told = {"clients": labelled.owner, "split": labelled.split, "intercept": False}
    return fa.Federation.from_arrays(labelled.features, labels, **told)


def personal_accuracy(labelled, features, shared):
    """Of heads that clients fit about the shared one, with the best of a few ridges."""
    hits, d = np.zeros(8), features.shape[1]
    for client in labelled.clients:
        rows = labelled.rows(client, "train")
        fresh = np.concatenate([labelled.rows(client, split) for split in ("validation", "test")])
        X = features[rows]
        left = np.eye(3)[labelled.labels[rows]] - 1 / 3 - X @ shared
        for place, ridge in enumerate(np.geomspace(0.1, 100, 8)):
            own = np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(d), X.T @ left / len(X))
            scores = features[fresh] @ (shared + own)
            hits[place] += np.sum(scores.argmax(1) == labelled.labels[fresh])
    return hits.max() / np.sum(labelled.split > 0)


def test_heads_on_one_hot_labels_are_one_regression(labelled, loose):
    """Squares of radius, noise and norm: of each class by itself, as numbers, and added up."""
    trains = labelled.split == 0
    alike, owner = one_hot(labelled).labels[trains], labelled.owner[trains]
    X = labelled.features[trains]
    found = [pool_and_estimate(read_clients(X, alike[:, c], owner)).estimates for c in range(3)]
    whole = loose.population.squares
    for name, rel in (("noise", 0.02), ("radius", 0.15), ("norm", 0.1)):
        added = sum(getattr(each, f"{name}2") for each in found)
        assert getattr(whole, name) ** 2 == pytest.approx(added, rel=rel), name
    assert loose.population.outputs == 2


def test_private_heads_are_as_good_as_advice_on_classes_says(labelled, loose):
    """Trained with the advised settings: about their shared head every client takes a ridge."""
    about = loose.privacy
    assert loose.recommended == about.algorithm == "rtfa"
    noise = fa.Privacy(noise_multiplier=about.noise_multiplier, clip=about.clip)
    settings = {"rounds": about.rounds, "local_steps": about.local_steps, "cohort": 50}
    settings |= {"server_step": about.server_step, "batch": 1000, "evaluate_every": 0}
    run = fa.train("fedavg", one_hot(labelled), privacy=noise, **settings)
    assert run.privacy.epsilon == pytest.approx(4, rel=1e-3)

    error = (0.25 / np.sum(labelled.split > 0)) ** 0.5
    private, alone = (
        personal_accuracy(labelled, labelled.features, shared)
        for shared in (run.shared, np.zeros((66, 3)))
    )
    assert abs(private - (1 - about.loss)) < 2.5 * error
    assert abs(alone - (1 - about.alone)) < 2.5 * error
    assert private > alone + error


def test_a_budget_changes_advice_on_classes(labelled, loose):
    tight = charge_privacy(loose, fa.Privacy(epsilon=0.3))
    assert tight.recommended == "local_ridge"
    assert loose.privacy.pays < 50 < tight.privacy.pays
    assert loose.privacy.plain < loose.privacy.loss < tight.privacy.loss
    text = str(tight).replace("\n", " ")
    assert f"it would pay with {tight.privacy.pays:,.0f} or more" in text
    assert "with least-squares heads on one-hot labels, and each client alone" in text
    assert "least-squares heads on one-hot labels, " in str(loose).replace("\n", " ")
    told = json.loads(loose.to_json())["privacy"]
    assert (told["shares"], told["rounds"]) == (True, loose.privacy.rounds)
    # so many clients of the same kind: sharing pays just there
    world, size = tight.population.squares, {"dimension": 66 * 2}
    steps = {"local_steps": [5, 50], "server_step": tight.privacy.server_step}
    told = {"epsilon": [0.3], "rounds": [4, 16, 64], **size, **steps}
    costs = fa.privacy_costs(world, "rtfa", clients=[50, tight.privacy.pays], **told)
    part = (costs.alone - costs.loss[0]) / (costs.alone - costs.plain[0])
    gained = part * (tight.privacy.alone - tight.privacy.plain)
    assert gained[0] < 0.05 * tight.privacy.alone <= gained[1] * 1.001


def test_few_features_of_classes_take_a_budget_too():
    """Levels are those of folds; private heads with the advised settings are as good as is said."""
    told = {"classes": 3, "radius": 1.5, "centre": 2, "aspect": 0.5, "dimension": 12, "seed": 1}
    table = fa.datasets.synthetic(task="classification", clients=60, **told)
    loose = fa.advise(table, privacy=fa.Privacy(epsilon=3))
    tight = charge_privacy(loose, fa.Privacy(epsilon=0.1))
    assert (tight.recommended, loose.recommended) == ("local_ridge", "rtfa")
    assert loose.privacy.pays < 60 < tight.privacy.pays
    assert tight.privacy.plain == 1 - tight.predictions["rtfa"].accuracy.value
    page = str(loose).replace("\n", " ")
    assert "Use rtfa: without privacy accuracy" in page
    assert "least-squares heads on one-hot labels, " in page
    assert json.loads(loose.to_json())["privacy"]["shares"] is True
    trains, about = table.split == 0, loose.privacy
    X = (table.features - table.features[trains].mean(0)) / table.features[trains].std(0)
    labels = np.eye(3)[table.labels] - 1 / 3
    kept = {"clients": table.owner, "split": table.split, "intercept": False}
    heads = fa.Federation.from_arrays(X, labels, **kept)
    noise = fa.Privacy(noise_multiplier=about.noise_multiplier, clip=about.clip)
    settings = {"rounds": about.rounds, "local_steps": about.local_steps, "cohort": 60}
    settings |= {"server_step": about.server_step, "batch": 1000, "evaluate_every": 0}
    run = fa.train("fedavg", heads, privacy=noise, **settings)
    private, alone = (
        personal_accuracy(table, X, shared) for shared in (run.shared, np.zeros((12, 3)))
    )
    error = (0.25 / np.sum(table.split > 0)) ** 0.5
    assert abs(private - (1 - about.loss)) < 3 * error
    assert private > alone
