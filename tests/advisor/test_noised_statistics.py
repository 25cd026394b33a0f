"""The advisor's own statistics under a privacy budget: what one client can change, the noise, what
is spent, estimates and their intervals, and the advice.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.command import fedasym

import fedasym as fa
from fedasym.advisor import advise_sums
from fedasym.advisor.data import read_clients
from fedasym.advisor.federated import (
    GROUPS,
    POWERS,
    SUM_LENGTH,
    VOTE_LENGTH,
    add_statistics,
    add_votes,
    choose_bounds,
    estimate_from_sums,
    measure_client,
    play_noised_sums,
    split_budget,
    vote_for_bounds,
)
from fedasym.core.privacy import Privacy, Release, spend_together

ALMOST_NONE = Privacy(noise_multiplier=1e-9)


def drawn(clients=600, dimension=20, **more):
    told = {"radius": 1, "noise": 0.5, "aspect": 2, "norm": 2} | more
    return fa.datasets.synthetic(**told, clients=clients, dimension=dimension, seed=1)


@pytest.fixture(scope="module")
def many():
    return drawn()


@pytest.fixture(scope="module")
def measured(many):
    return [measure_client(X, y) for X, y in read_clients(many)]


def test_statistics_are_what_they_say():
    rng = np.random.default_rng(0)
    for n, d in ((4, 7), (9, 5)):
        X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
        S = X.T @ X / n
        level, U = np.linalg.eigh(X @ X.T)
        z, e = np.maximum(level, 0) / np.trace(S), (U.T @ y) ** 2
        w = (0.1 + z) ** -2
        pull = X.T @ y / n
        expected = [np.trace(S) / d, np.trace(S @ S) / d, d / n, w.mean(), (w * z).mean()]
        expected += [(w * e).mean(), (w * z * e).mean(), pull @ pull]
        found, vector = measure_client(X, y)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_allclose(vector, pull)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e9])
def test_one_clients_samples_change_what_is_sent_by_at_most_the_bound(measured, scale):
    """Whatever they are: another client more moves votes and sums by at most their lengths."""
    rng = np.random.default_rng(3)
    other = measure_client(scale * rng.standard_normal((7, 20)), scale * rng.standard_normal(7))
    some = measured[:40]
    moved = np.linalg.norm(add_votes([*some, other]) - add_votes(some))
    assert moved == pytest.approx(VOTE_LENGTH)
    bounds = choose_bounds(add_votes(some), 0.0)
    groups = [place % GROUPS for place in range(40)]
    before = add_statistics(some, groups, bounds)
    after = add_statistics([*some, other], [*groups, 2], bounds)
    assert np.linalg.norm(after - before) <= SUM_LENGTH * (1 + 1e-12)
    if scale == 1e9:  # the vector is cut, and most statistics are
        assert np.linalg.norm(after - before) > 0.85 * SUM_LENGTH


def test_the_noise_has_the_deviation_that_keeps_the_budget(many):
    budget = Privacy(epsilon=2.0, delta=1e-6)
    votes, sums = split_budget(budget)
    spent = [Release(votes / VOTE_LENGTH, "poisson", 1, 9, 9)]
    spent += [Release(sums / SUM_LENGTH, "poisson", 1, 9, 9)]
    assert spend_together(spent, 1e-6) == pytest.approx(2.0, rel=1e-3)
    assert spend_together(spent, 1e-6) <= 2.0
    data = read_clients(many)
    rng = np.random.default_rng(0)
    noised = play_noised_sums(data, budget, rng.standard_normal)
    measured = [measure_client(X, y) for X, y in data]
    groups = [place % GROUPS for place in range(len(measured))]
    off = noised.sums - add_statistics(measured, groups, noised.bounds)
    assert off.std() == pytest.approx(sums, rel=3.5 / np.sqrt(2 * off.size))
    assert abs(off.mean()) < 3.5 * sums / np.sqrt(off.size)


def test_votes_that_noise_hides_are_refused(measured):
    with pytest.raises(fa.InvalidInput, match="hides what the clients voted for"):
        choose_bounds(add_votes(measured[:5]), 10.0)
    assert (vote_for_bounds(np.full(8, np.inf)).sum(1) == 1).all()


def test_noise_alone_votes_for_no_bound_far_from_the_clients():
    """Two thousand statistics whose clients vote for 2: noise lifts one of 119 other places above
    four and a half deviations in one of 2,500.
    """
    rng, deviation = np.random.default_rng(2), 28.0
    votes = deviation * rng.standard_normal((2000, POWERS.size))
    votes[:, POWERS == 1] += 300
    bounds = choose_bounds(votes, deviation)
    assert set(bounds) <= {2.0, 4.0}
    assert np.mean(bounds == 2) > 0.99
    votes[:, POWERS == 20] += 300  # some clients are quite different
    assert set(choose_bounds(votes, deviation)) <= {2.0**20, 2.0**21}


def test_sums_that_noise_hides_are_refused(many):
    noised = play_noised_sums(read_clients(many), Privacy(epsilon=8), np.zeros)
    gone = noised.sums * np.where(np.arange(noised.sums.shape[1]) == 2, 1e-3, 1)
    estimate_from_sums(noised)
    with pytest.raises(fa.InvalidInput, match=r"hides the sums over 600 clients: give a larger ep"):
        estimate_from_sums(replace(noised, sums=gone))


@pytest.mark.parametrize(
    "world",
    [{}, {"spectrum": fa.spectra.atoms([0.5, 2.0], [0.5, 0.5])}, {"aspect": 0.5}],
    ids=["uncorrelated", "two eigenvalues", "many samples"],
)
def test_without_noise_the_population_is_found(world):
    data = read_clients(drawn(**world))
    found, aspect = estimate_from_sums(play_noised_sums(data, ALMOST_NONE, np.zeros))
    assert aspect == pytest.approx(world.get("aspect", 2))
    squares = np.array([found.noise2, found.radius2, found.norm2])
    np.testing.assert_allclose(np.sqrt(squares), [0.5, 1, 2], rtol=0.12)
    assert found.spectrum.mean == pytest.approx(1.25 if "spectrum" in world else 1, rel=0.05)


def test_intervals_have_the_noise_in_them(many, measured):
    """With more noise they are wider, and hold the truth about as often as they say."""
    data = read_clients(many)
    rng = np.random.default_rng(5)
    widths, inside = [], []
    for multiplier in (1e-9, 0.5):
        found, _ = estimate_from_sums(
            play_noised_sums(data, Privacy(noise_multiplier=multiplier), rng.standard_normal)
        )
        ends = found.quantity(1, found.radius2)
        widths.append(ends.high - ends.low)
    assert widths[1] > 2 * widths[0]
    budget = Privacy(noise_multiplier=0.5)
    noise = split_budget(budget)[1]
    clean = play_noised_sums(data, budget, np.zeros)
    for _ in range(60):
        sums = clean.sums + noise * rng.standard_normal(clean.sums.shape)
        found, _ = estimate_from_sums(replace(clean, sums=sums))
        for column, value, truth in ((1, found.radius2, 1.0), (2, found.norm2, 2.0)):
            ends = found.quantity(column, value)
            inside.append(ends.low <= truth <= ends.high)
    assert np.mean(inside) > 0.85


def test_advice_says_what_its_statistics_have_spent(many, monkeypatch):
    """With noise of a seed: an interval of 95% misses one time in twenty."""
    noise = np.random.default_rng(1).standard_normal
    told = {"privacy": Privacy(epsilon=4), "statistics_privacy": Privacy(epsilon=8)}
    with monkeypatch.context() as patched:
        patched.setattr("fedasym.advisor.draw_secret_noise", noise)
        advice = fa.advise(many, **told)
    text = " ".join(str(advice).split())
    assert advice.statistics.epsilon == 8
    assert "they have spent epsilon 8 at delta 1e-06" in text
    assert "With training that is epsilon 12 at delta 2e-06 in all" in text
    assert "statistics with noise" in [doubt.check for doubt in advice.doubts]
    assert advice.clients == ()
    assert advice.population.radius.low <= 1 <= advice.population.radius.high
    assert json.loads(advice.to_json())["statistics"] == {
        "epsilon": 8.0,
        "delta": 1e-6,
        "noises": 1,
    }
    one, other = (fa.advise(many, statistics_privacy=Privacy(epsilon=8)) for _ in range(2))
    assert one.population.radius.value != other.population.radius.value  # noise is secret
    assert not advice.confirm(many).refuted


def test_with_little_noise_the_advice_is_that_of_the_population(many):
    budget, rng = Privacy(noise_multiplier=0.05), np.random.default_rng(1)
    found = advise_sums(play_noised_sums(read_clients(many), budget, rng.standard_normal), False)
    limits = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2), clients=600)
    for name in ("fedavg", "rtfa", "local_ridge"):
        assert found.predictions[name].trusted == pytest.approx(limits[name].loss, rel=0.2)
    assert found.recommended == "rtfa"


def test_the_command_takes_the_budget_and_refusals_name_what_to_do(many, tmp_path):
    path = tmp_path / "clients.safetensors"
    many.save(path)
    told = json.loads(fedasym("advise", str(path), "--statistics-epsilon", "8", "--json").stdout)
    assert told["statistics"]["epsilon"] == 8
    budget = Privacy(epsilon=8)
    classes = fa.datasets.synthetic(task="classification", clients=20, dimension=30, seed=1)
    with pytest.raises(fa.InvalidInput, match="statistics_privacy is for labels that are numbers"):
        fa.advise(classes, statistics_privacy=budget)
    with pytest.raises(fa.InvalidInput, match="what_if is True with statistics_privacy"):
        fa.advise(many, statistics_privacy=budget, what_if=True)
    sent = fa.advisor.federated.play_federation(read_clients(drawn(clients=8)))
    with pytest.raises(fa.InvalidInput, match="summaries, which have been sent without noise"):
        fa.advise(sent, statistics_privacy=budget)
    with pytest.raises(fa.InvalidInput, match="there are 4 clients: sums over five groups"):
        fa.advise(drawn(clients=4), statistics_privacy=budget)
    few = drawn(clients=8)
    with pytest.raises(fa.InvalidInput, match="hides what the clients voted for"):
        fa.advise(few, statistics_privacy=Privacy(epsilon=0.1))
