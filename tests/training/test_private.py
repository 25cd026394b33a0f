"""Private training: the compiled programs beside the twin, the noise's deviation, the clip, what one
client can change, and what is told of the budget.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Keep
from fedasym.core.privacy import Release, spend_together
from fedasym.data.splits import mix_hash
from fedasym.training import plans, twin
from fedasym.training.plans import PrivateRounds, draw_noise, plan_private_rounds
from fedasym.training.settings import TEXT, Settings

from .clients import DOUBLE, RAGGED, SMALL, as_twin, federation
from .test_memory import Momentum

POISSON = fa.Privacy(noise_multiplier=0.3, clip=0.2)
FIXED = replace(POISSON, sampling="fixed")
ADAPTIVE = replace(POISSON, quantile=0.5)
ALMOST_NONE = 1e-9  # a noise multiplier, where only the clip is looked at


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize(
    ("name", "form", "privacy"),
    [
        ("rtfa", "head", ADAPTIVE),
        ("rtfa", "gram", ADAPTIVE),
        ("rtfa", "gram", FIXED),
        ("pfedme", "gram", POISSON),
        ("fedavg_ridge", "gram", ADAPTIVE),  # its models are scaled: not in the span alone
    ],
)
def test_compiled_programs_do_what_the_twin_does(name, form, privacy):
    run = fa.train(name, federation(), **DOUBLE, form=form, privacy=privacy)
    as_twin(run, federation())
    assert run.privacy.epsilon == privacy.spend(4, 3, 6)
    assert 0 < run.privacy.clipped <= 1
    assert (run.privacy.clip == 0.2) == (privacy.quantile is None)


@pytest.mark.usefixtures("_light")
def test_a_server_may_keep_what_it_likes_and_clients_may_not():
    momentum = fa.Algorithm("momentum", Momentum(), Keep())
    told = {**SMALL, "precision": "float64", "privacy": POISSON}
    as_twin(fa.train(momentum, federation(), **told), federation())
    for name in ("scaffold", "gram_ridge"):
        with pytest.raises(fa.InvalidInput, match=f"{name}: its clients send more than their"):
            fa.train(name, federation(), **told)


@pytest.mark.usefixtures("_light")
def test_the_noise_has_the_deviation_that_is_promised():
    """Clients that do not move send nothing but noise: after R rounds of deviation z C/D each."""
    wide = federation(d=60)
    told = {**SMALL, "server_step": 0.0, "evaluate_every": 0}
    runs = fa.train("fedavg", wide, **told, privacy=POISSON, seeds=range(12))
    noise = np.stack([run.shared for run in runs])
    promised = np.sqrt(4) * 0.3 * 0.2 / 3
    error = promised / np.sqrt(2 * noise.size)
    assert noise.std() == pytest.approx(promised, abs=4 * error)
    assert abs(noise.mean()) < 4 * promised / np.sqrt(noise.size)
    assert np.abs(np.corrcoef(noise.reshape(12, -1))[np.triu_indices(12, 1)]).max() < 0.35
    first, later = (draw_noise(0, r, (40, 40))[0].ravel() for r in (0, 1))
    assert abs(np.corrcoef(first, later)[0, 1]) < 4 / 40


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize("form", ["head", "gram"])
def test_the_clip_binds(form):
    """One client a round, that is longer than the clip: the model moves by exactly the clip."""
    told = {**DOUBLE, "cohort": 1, "rounds": 1, "evaluate_every": 0, "form": form}
    tight = replace(FIXED, noise_multiplier=ALMOST_NONE, clip=0.05)
    moved = fa.train("fedavg", federation(), **told, privacy=tight).shared
    assert np.linalg.norm(moved) == pytest.approx(0.05, rel=1e-7)
    loose = replace(tight, clip=1e3)
    whole = fa.train("fedavg", federation(), **told, privacy=loose)
    plain = fa.train("fedavg", federation(), **told)
    np.testing.assert_allclose(whole.shared, plain.shared, atol=1e-5)
    assert whole.privacy.clipped == 0


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize("form", ["head", "gram"])
def test_one_clients_samples_change_what_is_sent_by_at_most_the_bound(form):
    """All clients take part; one has other samples, up to extremes: the average moves by at most
    twice the clip over the cohort, and by nearly that where it turns round.
    """
    before = federation(RAGGED, classes=None)
    mine = before.rows("g", "train")
    told = {**DOUBLE, "cohort": 6, "rounds": 1, "evaluate_every": 0, "form": form}
    privacy = fa.Privacy(noise_multiplier=1, clip=0.1)
    sent = fa.train("fedavg", before, **told, privacy=privacy).shared
    farthest = 0.0
    for scale, sign in ((1.0, -1.0), (1e3, 1.0), (0.0, 1.0), (1.0, 1e6)):
        x, y = np.array(before.features), np.array(before.labels)
        x[mine] *= scale
        y[mine] *= sign
        other = fa.Federation.from_arrays(
            x, y, np.array(before.clients)[before.owner], split=before.split, intercept=False
        )
        change = np.linalg.norm(fa.train("fedavg", other, **told, privacy=privacy).shared - sent)
        bound = (0.1 if scale == 0 else 0.2) / 6  # one without features sends nothing
        assert change <= bound * (1 + 1e-9)
        farthest = max(farthest, change)
    assert farthest > 0.9 * 0.2 / 6
    free = fa.train("fedavg", other, **told).shared - fa.train("fedavg", before, **told).shared
    assert np.linalg.norm(free) > 1e3


def test_clients_weigh_alike():
    clients = federation(RAGGED, classes=None)
    told = Settings(**{**SMALL, "rounds": 1, "cohort": 6, "evaluate_every": 0})
    private = replace(told, privacy=replace(POISSON, noise_multiplier=ALMOST_NONE, clip=1e3))
    algorithm = fa.algorithms.find("fedavg")
    (last,) = twin.run(algorithm, clients, private, TEXT, seed=0)
    heads = []
    for name in clients.clients:
        if len(clients.rows(name, "train")):
            client = twin.TwinClient(clients, name, told, TEXT, 0, np.float64)
            heads.append(twin.local_work(algorithm, client, np.zeros((4, 1)), 0, 0).head)
    np.testing.assert_allclose(last.shared, np.mean(heads, axis=0), atol=1e-5)


def test_poisson_cohorts_draw_each_client_by_itself():
    identities = mix_hash(9, np.arange(30, dtype=np.uint64))
    plan = PrivateRounds(True, 6, 1.0, 1.0, 0.0, 0.0, 0.0)
    drawn = plans.draw_private_cohorts(plan, 3, identities, 4000)
    present = np.zeros((4000, 30))
    for r, row in enumerate(drawn):
        present[r, row[row >= 0]] = 1
    assert np.array_equal(present.sum(1), (drawn >= 0).sum(1))  # nobody twice
    error = np.sqrt(0.2 * 0.8 / 4000)
    assert np.abs(present.mean(0) - 0.2).max() < 4.5 * error
    assert present.sum(1).var() == pytest.approx(30 * 0.2 * 0.8, rel=0.1)  # of sums: independent
    everyone = plans.draw_private_cohorts(plan._replace(cohort=30), 3, identities, 5)
    assert np.array_equal(np.sort(everyone, axis=1), np.tile(np.arange(30), (5, 1)))
    turns = plans.turns(drawn[:50], 30)
    assert turns[drawn[:50] >= 0].max() == present[:50].sum(0).max() - 1


def test_an_adaptive_clip_ends_at_the_quantile_and_costs_what_it_says():
    privacy = fa.Privacy(noise_multiplier=1, clip=5.0, quantile=0.3)
    plan = plan_private_rounds(Settings(rounds=300, cohort=400, privacy=privacy), 3000)
    # two Gaussian sums, of a client's parts C and 1/2, are one of multiplier 1
    assert plan.multiplier**-2 + (2 * plan.count_noise) ** -2 == pytest.approx(1)
    rng = np.random.default_rng(0)
    clip = plan.clip
    for _ in range(300):
        lengths = rng.lognormal(0, 1, 400)
        clip = plan.adapt(clip, (lengths <= clip).sum(), 400, rng.standard_normal())
    assert clip == pytest.approx(np.exp(-0.5244), rel=0.1)  # the 0.3 quantile of a log-normal law


@pytest.mark.usefixtures("_light")
def test_results_tell_what_was_spent(tmp_path):
    told = {**SMALL, "evaluate_every": 0}
    budget = fa.Privacy(epsilon=8, clip=0.2)
    runs = fa.train(
        ["local", "fedavg", "ftfa"], federation(), **told, grid={"server_step": [0.1, 0.3]},
        privacy=budget,
    )  # fmt: skip
    alone, *sharing = runs
    assert alone.privacy is None
    assert all(7.9 < run.privacy.epsilon <= 8 for run in sharing)
    one = Release(sharing[0].privacy.noise_multiplier, "poisson", 4, 3, 6)
    both = spend_together([one, one], 1e-6)  # ftfa's shared models are those of fedavg
    (words,) = (note for note in runs.notes if note.startswith("Privacy"))
    assert f"all 2 together {both:.5g}" in words
    held = json.loads(runs.to_json())["runs"]
    assert held[1]["privacy"]["epsilon"] == sharing[0].privacy.epsilon
    again = fa.History.load(sharing[0].save(tmp_path / "run.safetensors"))
    assert again.privacy == sharing[0].privacy
    assert again.settings == sharing[0].settings
    assert "Privacy: epsilon 7.9" in str(again) or "Privacy: epsilon 8" in str(again)
    assert runs.select(epsilon=8.0).runs == tuple(sharing)


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (fa.Privacy(epsilon=4), "privacy has no clip"),
        (4, "privacy is 4: give an fa.Privacy"),
        ({"epsilon": 4, "clp": 1}, "clp"),
    ],
)
def test_refusals(privacy, words):
    with pytest.raises(fa.InvalidInput, match=words):
        fa.train("fedavg", federation(), **SMALL, privacy=privacy)
