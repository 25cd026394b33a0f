"""Advice under a privacy budget: whether sharing pays, and from how many clients on."""

import json

import pytest
from tests.command import fedasym

import fedasym as fa


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
    assert f"it would pay from {tight.privacy.pays:.0f} on" in str(tight).replace("\n", " ")
    loose = fa.advise(few, privacy=fa.Privacy(epsilon=8))
    assert loose.recommended == "rtfa"
    assert loose.privacy.plain < loose.privacy.loss < tight.privacy.loss


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


def test_the_command_takes_the_budget_and_classes_are_refused(few, tmp_path):
    path = tmp_path / "clients.safetensors"
    few.save(path)
    told = fedasym("advise", str(path), "--epsilon", "0.5", "--json")
    assert json.loads(told.stdout)["recommended"] == "local_ridge"
    classes = fa.datasets.synthetic(task="classification", clients=20, dimension=30, seed=1)
    with pytest.raises(fa.InvalidInput, match="epsilon is 4: what privacy costs is predicted for"):
        fa.advise(classes, privacy=fa.Privacy(epsilon=4))
    with pytest.raises(fa.InvalidInput, match="privacy has no epsilon"):
        fa.advise(few, privacy=fa.Privacy(noise_multiplier=1))
