"""`fa.rounds`: paths against simulated rounds, budgets, privacy, refusals, figures and the
command.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.command import fedasym

import fedasym as fa
from fedasym.verbs import rounds as verb
from fedasym.verbs.rounds import linear_map

WORLD = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)


def simulate_rounds(
    *,
    clients,
    cohort,
    local_steps,
    step,
    rounds,
    trials,
    d=120,
    spectrum=None,
    clip=np.inf,
    z=0.0,
    quantile=None,
):
    """Excess loss of the shared model after each round, and its standard error: plain federated
    averaging.
    """
    rng = np.random.default_rng(11)
    first, lengths = clip, []
    n, scale = (
        d // 2,
        (
            np.ones(d)
            if spectrum is None
            else np.sqrt(np.repeat(spectrum.values, d // spectrum.values.size))
        ),
    )
    paths = []
    for _ in range(trials):
        centre = rng.standard_normal(d)
        centre *= np.sqrt(3) / np.linalg.norm(centre)
        data = []
        for _ in range(clients):
            X = rng.standard_normal((n, d)) * scale
            own = rng.standard_normal(d)
            data.append(
                (X, X @ (centre + own / np.linalg.norm(own)) + 0.5 * rng.standard_normal(n))
            )
        shared, path = np.zeros(d), []
        for _ in range(rounds):
            change = np.zeros(d)
            for j in rng.choice(clients, cohort, replace=False):
                X, y = data[j]
                w = shared.copy()
                for _ in range(local_steps):
                    w -= step * X.T @ (X @ w - y) / n
                move = w - shared
                lengths.append(np.linalg.norm(move))
                change += move * min(1, clip / lengths[-1])
            shared = shared + change / cohort
            if z:
                shared = shared + rng.standard_normal(d) * z * clip / cohort
            if quantile is not None:
                short = np.mean(np.array(lengths[-cohort:]) <= clip)
                clip *= np.exp(-0.2 * (short + 0.05 * rng.standard_normal() - quantile))
            path.append((np.sum(scale**2 * (shared - centre) ** 2), clip))
        paths.append(path)
        clip = first
    found = np.array(paths)
    error = np.std(found[..., 0], axis=0, ddof=1) / np.sqrt(trials)
    if quantile is None:
        return found[..., 0].mean(0), error
    return found[..., 0].mean(0), error, found[..., 1].mean(0)


def test_simulated_rounds_with_many_clients_follow_the_recursion():
    at = [1, 2, 5, 15]
    drawn, error = simulate_rounds(
        clients=60, cohort=10, local_steps=5, step=0.1, rounds=15, trials=10
    )
    found = fa.rounds(
        WORLD, "fedavg", rounds=15, local_steps=5, clients=60, cohort=10, evaluated=at
    )
    for t, expected in zip(at, found.shared_error, strict=True):
        assert abs(drawn[t - 1] - expected) < 3.5 * error[t - 1] + 0.03 * expected
    endless = fa.rounds(WORLD, "fedavg", rounds=15, local_steps=5, cohort=10, evaluated=at)
    assert (
        found.shared_error[-1] > 1.2 * endless.shared_error[-1]
    )  # sixty clients leave more than endlessly many


def test_simulated_rounds_with_correlated_features_clipping_and_noise():
    spectrum = fa.spectra.atoms([0.5, 2.0], [0.5, 0.5])
    world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2, spectrum=spectrum)
    drawn, error = simulate_rounds(
        clients=80,
        cohort=8,
        local_steps=3,
        step=0.1,
        rounds=12,
        trials=10,
        spectrum=spectrum,
        clip=0.5,
        z=0.4,
    )
    privacy = fa.Privacy(noise_multiplier=0.4, clip=0.5, sampling="fixed")
    found = fa.rounds(
        world,
        "fedavg",
        rounds=12,
        local_steps=3,
        clients=80,
        cohort=8,
        dimension=120,
        privacy=privacy,
        evaluated=[1, 4, 12],
    )
    for t, expected in zip([1, 4, 12], found.shared_error, strict=True):
        assert abs(drawn[t - 1] - expected) < 3.5 * error[t - 1] + 0.03 * expected


def test_an_adaptive_clip_follows_the_lengths_as_it_does_in_training():
    """From far below and from far above; the count of short updates has a part of the noise."""
    settings = {"cohort": 20, "local_steps": 3, "clients": 200, "rounds": 25}
    z, share = 0.5, 0.5
    sums = (z**-2 - (2 * 0.05 * 20) ** -2) ** -0.5  # the count has deviation 0.05 cohort
    for clip in (0.1, 3.0):
        told = {"clip": clip, "quantile": share}
        drawn, error, clips = simulate_rounds(**settings, step=0.1, trials=4, z=sums, **told)
        privacy = fa.Privacy(noise_multiplier=z, sampling="fixed", **told)
        at = [2, 5, 12, 25]
        world = {"dimension": 120, "privacy": privacy, "evaluated": at}
        found = fa.rounds(WORLD, "fedavg", **settings, **world)
        for t, expected in zip(at, found.shared_error, strict=True):
            assert abs(drawn[t - 1] - expected) < 3.5 * error[t - 1] + 0.03 * expected
        assert float(found.privacy["clip"]) == pytest.approx(clips[-1], rel=0.05)
    assert "after the last round" in str(found)


def test_several_outputs_are_one_regression_of_added_squares_and_as_many_unknowns():
    """Least-squares heads on coded classes: updates are clipped as a whole, energies add up."""
    rng = np.random.default_rng(4)
    outputs, d, n, m, D, K, step, rounds, clip, z = 3, 80, 40, 60, 20, 3, 0.1, 6, 1.0, 1.5
    paths = []
    for _ in range(4):
        centre = rng.standard_normal((d, outputs)) / np.sqrt(d)
        data = []
        for _ in range(m):
            X = rng.standard_normal((n, d))
            own = centre + rng.standard_normal((d, outputs)) / np.sqrt(d)
            data.append((X, X @ own + 0.5 * rng.standard_normal((n, outputs))))
        W, path = np.zeros((d, outputs)), []
        for _ in range(rounds):
            change = z * clip * rng.standard_normal(W.shape)
            for i in rng.choice(m, D, replace=False):
                X, Y = data[i]
                w = W
                for _ in range(K):
                    w = w - step * X.T @ (X @ w - Y) / n
                change = change + (w - W) * min(1, clip / np.linalg.norm(w - W))
            W = W + change / D
            path.append(((W - centre) ** 2).sum() / (centre**2).sum())
        paths.append(path)
    radius, noise, norm = np.sqrt(outputs * np.array([1, 0.25, 2]))
    world = fa.Population(radius=radius, noise=noise, aspect=d / n, norm=norm)
    privacy = fa.Privacy(noise_multiplier=z, clip=clip, sampling="fixed")
    told = {"local_steps": K, "server_step": step, "cohort": D, "clients": m, "rounds": rounds}
    told |= {"dimension": outputs * d, "privacy": privacy, "evaluated": [1, 3, 6]}
    found = fa.rounds(world, "fedavg", **told).shared_error / outputs
    drawn, error = np.mean(paths, axis=0), np.std(paths, axis=0, ddof=1) / 2
    for t, expected in zip([1, 3, 6], found, strict=True):
        assert abs(drawn[t - 1] - expected) < 4 * error[t - 1] + 0.02 * expected


def test_in_high_dimension_an_adaptive_clip_stays_within_a_step_of_the_common_length():
    privacy = fa.Privacy(noise_multiplier=1e-3, quantile=0.5, clip=1.0)
    told = {"rounds": 200, "cohort": 1000, "clients": 10**6, "dimension": 10**12}
    path = fa.rounds(WORLD, "fedavg", local_steps=5, privacy=privacy, **told)
    assert abs(np.log(float(path.privacy["clip"]) / path.length[-1])) <= 0.1


def test_with_large_cohorts_and_many_rounds_it_is_predict():
    for name in ("fedavg", "ftfa", "rtfa"):
        path = fa.rounds(WORLD, name, rounds=2000, local_steps=1, cohort=10**9, evaluated=[2000])
        assert path.loss[-1] == pytest.approx(fa.predict(WORLD, name)[name].loss, rel=1e-6)


def test_the_last_round_alone_is_that_of_the_path():
    spectrum = fa.spectra.atoms([0.3, 1.0, 3.0], [0.3, 0.4, 0.3])
    world = fa.Population(radius=1, noise=0.5, aspect=1.5, norm=2, spectrum=spectrum, shift_power=1)
    settings = {
        "rounds": 77,
        "local_steps": [1, 7],
        "server_step": 0.05,
        "cohort": 6,
        "clients": 500,
    }
    path, last = (
        fa.rounds(world, "rtfa", **settings),
        fa.rounds(world, "rtfa", **settings, evaluated=[77]),
    )
    np.testing.assert_allclose(last.loss[:, -1], path.loss[:, -1], rtol=1e-10)
    np.testing.assert_allclose(last.shared_error[:, -1], path.shared_error[:, -1], rtol=1e-10)


def test_the_floor_is_where_many_rounds_end():
    path = fa.rounds(
        WORLD,
        "fedavg",
        rounds=3000,
        local_steps=5,
        cohort=5,
        clients=[100, np.inf],
        evaluated=[3000],
    )
    np.testing.assert_allclose(path.floor, path.shared_error[:, -1], rtol=1e-9)
    told = {"rounds": 5, "local_steps": 1, "server_step": 0.3, "cohort": 1}
    endless = fa.rounds(WORLD, "fedavg", mixing=6.0, **told)
    assert np.isinf(endless.floor)
    # one step: (1 - 0.3 a)^2 + 0.09 aspect a^2 = 1
    most = 0.6 / (0.09 * (1 + WORLD.aspect))
    assert f"it does not with a mixing below {most:.4f}. Or" in endless.notes[0]
    around = fa.rounds(WORLD, "fedavg", mixing=[0.99 * most, 1.01 * most], **told)
    np.testing.assert_array_equal(np.isinf(around.floor), [False, True])


def test_the_floor_is_endless_just_where_the_recursion_has_an_eigenvalue_of_one(monkeypatch):
    found = []

    def remember(start):
        found.append(linear_map(start)[0])
        return linear_map(start)

    monkeypatch.setattr(verb, "linear_map", remember)
    spectrum = fa.spectra.atoms([0.3, 1.7], [0.5, 0.5])
    world = fa.Population(1, 0.5, 2, norm=2, spectrum=spectrum)
    mixing = np.linspace(0.2, 8, 60)
    path = fa.rounds(
        world, "fedavg", rounds=3, local_steps=2, server_step=0.2, cohort=2, mixing=mixing
    )
    grows = np.abs(np.linalg.eigvals(found[-1])).max(-1) >= 1
    assert 0 < grows.sum() < grows.size
    np.testing.assert_array_equal(np.isinf(path.floor), grows)


def test_of_many_settings_the_last_round_is_reported():
    told = {"rounds": 30, "local_steps": np.arange(1, 50)[:, None], "cohort": np.arange(5, 50)}
    many = fa.rounds(WORLD, "rtfa", **told)
    assert many.loss.shape == (49, 45, 1)
    one = fa.rounds(WORLD, "rtfa", rounds=30, local_steps=20, cohort=25)
    assert many.loss[19, 20, 0] == pytest.approx(one.loss[-1], rel=1e-9)


def test_bytes_and_targets():
    path = fa.rounds(WORLD, "fedavg", rounds=100, local_steps=5, cohort=[5, 20], dimension=100)
    assert path.bytes_per_round.tolist() == [4000, 16000]
    reached = path.rounds_to(1.3)
    assert np.all(path.loss[0][path.rounds >= reached[0]] <= 1.3)
    np.testing.assert_array_equal(path.bytes_to(1.3), reached * path.bytes_per_round)
    assert np.all(np.isinf(path.rounds_to(0.5)))
    budget = fa.rounds(
        WORLD, "fedavg", rounds=100, local_steps=5, cohort=[5, 20], dimension=100, max_bytes=160_000
    )
    assert budget.last.tolist() == [40, 10]
    assert budget.final.tolist() == [
        budget.loss[0][budget.rounds == 40][0],
        budget.loss[1][budget.rounds == 10][0],
    ]


def test_privacy_costs_less_with_more_clients_and_looser_budgets():
    def last(clients, epsilon):
        privacy = fa.Privacy(epsilon=epsilon)
        path = fa.rounds(
            WORLD,
            "rtfa",
            rounds=20,
            cohort=clients // 4,
            clients=clients,
            dimension=400,
            privacy=privacy,
        )
        assert path.privacy["epsilon"] <= epsilon
        return path.final

    tight, loose, many = last(400, 1), last(400, 8), last(4000, 1)
    assert loose < tight
    assert many < tight


def test_the_best_clip_is_not_beaten_by_its_neighbours():
    settings = {"rounds": 10, "clients": 1000, "cohort": 100, "dimension": 300}
    best = fa.rounds(WORLD, "fedavg", **settings, privacy=fa.Privacy(noise_multiplier=1.0))
    for factor in (0.5, 2.0):
        privacy = fa.Privacy(noise_multiplier=1.0, clip=float(best.privacy["clip"]) * factor)
        assert fa.rounds(WORLD, "fedavg", **settings, privacy=privacy).final > best.final


def test_own_stages_bring_their_filter():
    class Prox(fa.algorithms.ServerStage):
        penalty: float = fa.algorithms.setting(0.5, above=0)

        def step(self, w, start, gradient, rate):
            return w - rate * (gradient(w) + self.penalty * (w - start))

    prox = fa.Algorithm("prox", Prox(), fa.algorithms.Keep())
    held = fa.rounds(WORLD, prox, rounds=1, local_steps=200, cohort=10**9).shared_error[-1]
    plain = fa.rounds(WORLD, "fedavg", rounds=1, local_steps=200, cohort=10**9).shared_error[-1]
    assert held > plain  # clients that are held near the shared model move it less
    for name in ("maml", "maml_fo"):
        assert np.all(np.diff(fa.rounds(WORLD, name, rounds=50, cohort=10**9).shared_error) < 0)


class Smaller(fa.algorithms.ServerStage):
    """A step in equal parts, which a penalty towards the shared model may shorten."""

    parts: int = fa.algorithms.setting(1, least=1)
    penalty: float = fa.algorithms.setting(0.0, least=0)

    def step(self, w, start, gradient, rate):
        def part(v):
            return v - rate / self.parts * (gradient(v) + self.penalty * (v - start))

        return gradient.repeat(self.parts, part, w) + gradient.common_part(w)


def own(**settings):
    return fa.Algorithm("own", Smaller(**settings), fa.algorithms.Keep())


def test_steps_in_parts_are_more_steps():
    told = {"rounds": 3, "cohort": 20, "clients": 100}
    parts = fa.rounds(WORLD, own(parts=4), **told, local_steps=5, server_step=0.4).final
    steps = fa.rounds(WORLD, "fedavg", **told, local_steps=20, server_step=0.1).final
    assert parts == pytest.approx(float(steps), rel=1e-9)
    clipped = {"dimension": 50, "privacy": fa.Privacy(noise_multiplier=1.0, quantile=0.5)}
    nearly = fa.rounds(WORLD, own(penalty=1e-9), **told, **clipped).final
    assert nearly == pytest.approx(float(fa.rounds(WORLD, "fedavg", **told, **clipped).final), 1e-6)


def test_steps_that_count_themselves_are_the_same_steps():
    class Counted(fa.algorithms.ServerStage):
        def init(self, w):
            return 0 * w

        def step(self, w, start, gradient, rate, state):
            return w - rate * gradient(w), state + 1

    counted = fa.Algorithm("own", Counted(), fa.algorithms.Keep())
    paths = [fa.rounds(WORLD, each, rounds=3, cohort=20).loss for each in (counted, "fedavg")]
    np.testing.assert_allclose(*paths, rtol=1e-9)


def test_steps_that_no_formula_covers_are_refused():
    class Cubed(fa.algorithms.ServerStage):
        def step(self, w, start, gradient, rate):
            return w - rate * gradient(w) ** 3

    class Weighed(fa.algorithms.ServerStage):
        def weight(self, x):
            return 1 / (1 + x)

    with pytest.raises(fa.NoFormula, match="Cubed is not linear in the model"):
        fa.rounds(WORLD, fa.Algorithm("own", Cubed(), fa.algorithms.Keep()))
    with pytest.raises(fa.NoFormula, match="its server stage has no step"):
        fa.rounds(WORLD, fa.Algorithm("own", Weighed(), fa.algorithms.Keep()))
    with pytest.raises(fa.InvalidInput, match=r"server_step is 3: local steps of Smaller diverge"):
        fa.rounds(WORLD, own(penalty=0.1), server_step=3, local_steps=20)


def test_the_servers_update_is_that_of_the_stage():
    class Halved(fa.algorithms.Average):
        def update(self, w, change):
            return w + 0.5 * change

    class Decayed(fa.algorithms.Average):
        def update(self, w, change):
            return 0.9 * w + change

    class Momentum(fa.algorithms.Average):
        def init_server(self, w):
            return 0 * w

        def update(self, w, change, kept, sent, portion):
            return w + kept + change, change

    def path(stage, **more):
        algorithm = fa.Algorithm("own", stage, fa.algorithms.Keep())
        return fa.rounds(WORLD, algorithm, rounds=20, **more).shared_error

    np.testing.assert_allclose(path(Halved()), path(fa.algorithms.Average(), mixing=0.5))
    with pytest.raises(fa.NoFormula, match="not a multiple of the average move"):
        path(Decayed())
    with pytest.raises(fa.NoFormula, match="keep state from round to round"):
        path(Momentum())


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"algorithm": "local"}, "shares nothing"),
        ({"algorithm": "pfedme"}, "inner_step"),
        ({"rounds": -1}, "rounds"),
        ({"local_steps": 0}, "local_steps"),
        ({"local_steps": 1.5}, "local_steps"),
        ({"server_step": 5.0}, "diverges here with steps of"),
        ({"server_step": "much"}, "server_step"),
        ({"cohort": 30, "clients": 20}, "cohort is 30"),
        ({"clients": 20, "privacy": fa.Privacy(epsilon=1)}, "dimension"),
        ({"privacy": 3}, "privacy"),
        ({"max_bytes": 10}, "dimension"),
        ({"max_bytes": 0, "dimension": 10}, "max_bytes is 0"),
        ({"evaluated": []}, "evaluated is"),
        ({"evaluated": [0.5]}, "evaluated is"),
        ({"evaluated": [500]}, "evaluated"),
        ({"clients": 2, "cohort": 1}, "fewer samples than unknowns"),
        ({"local_steps": [1, 2], "cohort": [1, 2, 3]}, "broadcast"),
    ],
)
def test_refusals_name_what_is_wrong(arguments, field):
    with pytest.raises(fa.InvalidInput, match=field):
        fa.rounds(WORLD, **arguments)


def test_worlds_without_a_start_or_with_classes_are_refused():
    with pytest.raises(fa.InvalidInput, match="give norm"):
        fa.rounds(fa.Population(radius=1, noise=0.5, aspect=2))
    with pytest.raises(fa.InvalidInput, match="norm is shorter than the radius"):
        fa.rounds(fa.Population(radius=3, noise=0.5, aspect=2, norm=2))
    with pytest.raises(fa.InvalidInput, match="squared loss alone"):
        fa.rounds(fa.ClassPopulation(radius=1, centre=1, aspect=2))


def test_results_print_table_and_draw_themselves(tmp_path):
    path = fa.rounds(WORLD, "rtfa", rounds=30)
    assert "however many rounds" in str(path)
    assert path.frame().height == path.rounds.size
    assert json.loads(path.to_json())["rounds"][-1] == 30
    with pytest.raises(fa.InvalidInput, match=r"give dimension to fa.rounds"):
        _ = path.bytes_per_round
    with pytest.raises(fa.InvalidInput, match="target is -1"):
        path.rounds_to(-1)
    ends = fa.rounds(WORLD, "rtfa", rounds=[2, 3])
    assert [row["round"] for row in ends.table()] == [0, 1, 2, 0, 1, 2, 3]
    grid = fa.rounds(
        WORLD, "rtfa", rounds=30, local_steps=np.array([1, 5, 20])[:, None], cohort=[5, 50]
    )
    assert "Best of 6 settings" in str(grid)
    for name, result in (
        ("one", path),
        ("several", fa.rounds(WORLD, cohort=[5, 50])),
        ("grid", grid),
    ):
        assert result.plot(tmp_path / f"{name}.png").stat().st_size > 5000


def test_the_command_says_what_the_verb_says():
    told = fedasym(
        "rounds",
        "fedavg",
        "--radius",
        "1",
        "--noise",
        "0.5",
        "--aspect",
        "2",
        "--norm",
        "2",
        "--rounds",
        "50",
        "--local-steps",
        "1,5",
        "--json",
    )
    found = fa.rounds(WORLD, "fedavg", rounds=50, local_steps=[1, 5])
    np.testing.assert_allclose(json.loads(told.stdout)["loss"], found.loss)


def test_predict_after_rounds_is_the_end_of_the_path():
    told = {"rounds": 7, "local_steps": 5, "cohort": 10, "server_step": 0.05}
    table = fa.predict(WORLD, ["rtfa", "fedavg", "local_ridge"], clients=200, **told)
    for name in ("rtfa", "fedavg"):
        assert table[name].loss == float(fa.rounds(WORLD, name, clients=200, **told).final)
    assert table["local_ridge"].loss == fa.predict(WORLD, ["local_ridge"])["local_ridge"].loss
    end = fa.predict(WORLD, "rtfa", rounds=3000, cohort=10**6)["rtfa"]
    assert end.loss == pytest.approx(fa.predict(WORLD, "rtfa")["rtfa"].loss, rel=1e-4)
    grid = fa.predict(WORLD, ["fedavg"], rounds=[1, 5], cohort=[[4], [40]])["fedavg"].loss
    single = fa.predict(WORLD, ["fedavg"], rounds=5, cohort=4)["fedavg"].loss
    assert grid.shape == (2, 2)
    assert grid[0, 1] == pytest.approx(single, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cohort": 5}, "cohort is given, which is for training in rounds"),
        ({"rounds": 5, "method": "simulate"}, "rounds is given with method"),
    ],
)
def test_predict_refuses_rounds_that_it_cannot_answer(settings, words):
    with pytest.raises(fa.InvalidInput, match=words):
        fa.predict(WORLD, ["fedavg"], **settings)


@pytest.fixture(scope="module")
def costs():
    told = {"dimension": 200, "epsilon": [1, 8], "clients": [50, 500], "rounds": [4, 16]}
    return fa.privacy_costs(WORLD, "fedavg", **told, margin=0.1)


def test_privacy_costs_are_the_best_of_the_rounds(costs):
    for i, epsilon in enumerate((1, 8)):
        for j, m in enumerate((50, 500)):
            budget = fa.Privacy(epsilon=epsilon)
            told = {"clients": m, "cohort": m, "dimension": 200, "privacy": budget}
            path = fa.rounds(WORLD, "fedavg", rounds=[4, 16], **told)
            assert costs.loss[i, j] == pytest.approx(path.final.min(), rel=1e-12)
            assert costs.rounds[i, j] == [4, 16][int(np.argmin(path.final))]
    assert np.all(np.diff(costs.loss, axis=0) < 0)
    assert np.all(np.diff(costs.loss, axis=1) < 0)
    assert np.all(costs.plain <= costs.loss)


def test_sharing_pays_from_the_number_of_clients_that_is_said(costs):
    for epsilon, count in zip((1, 8), costs.pays, strict=True):
        around = fa.privacy_costs(
            WORLD, "fedavg", dimension=200, epsilon=epsilon, clients=[count, 0.97 * count // 1],
            rounds=[4, 16], margin=0.1,
        )  # fmt: skip
        assert around.shares.tolist() == [[True, False]]
    assert f"{costs.pays[0]:,.0f} at epsilon 1" in str(costs)


def test_privacy_costs_what_a_larger_radius_would_cost(costs):
    """For fedavg the shared model's error and the squared radius add up to the loss."""
    free = costs.plain - 1
    np.testing.assert_allclose(costs.radius**2, 1 + costs.shared_error - free, rtol=1e-6)
    assert json.loads(costs.to_json())["cells"][0]["clients"] == 50
    assert costs.frame().height == 4


def test_privacy_costs_are_drawn_and_commanded(costs, tmp_path):
    assert costs.plot(tmp_path / "costs.png").stat().st_size > 5000
    words = ["privacy", "fedavg", "--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2"]
    words += ["--dimension", "200", "--epsilon", "8", "--clients", "500", "--rounds", "4,16"]
    told = fedasym(*words, "--margin", "0.1", "--json")
    assert json.loads(told.stdout)["cells"][0]["loss"] == pytest.approx(costs.loss[1, 1], rel=1e-12)


def test_privacy_costs_refuse_what_they_cannot_say():
    with pytest.raises(fa.InvalidInput, match="cohort is 60: it must be at most clients, 50"):
        fa.privacy_costs(WORLD, dimension=10, clients=50, cohort=60, rounds=2)
    told = {"dimension": 10, "clients": 50, "epsilon": 1, "rounds": 2}
    with pytest.raises(fa.InvalidInput, match="margin is 2"):
        fa.privacy_costs(WORLD, **told, margin=2)
    with pytest.raises(fa.InvalidInput, match="clients is infinite"):
        fa.privacy_costs(WORLD, **told | {"clients": np.inf})
    with pytest.raises(fa.InvalidInput, match="the population holds arrays"):
        fa.privacy_costs(replace(WORLD, radius=[1, 2]), **told)
    with pytest.raises(fa.InvalidInput, match="give norm"):
        fa.privacy_costs(replace(WORLD, norm=None), **told)


def test_privacy_costs_where_sharing_always_pays_and_where_it_never_does():
    many = {"dimension": 200, "epsilon": 8, "clients": 2500, "cohort": 2500, "rounds": 4}
    always = fa.privacy_costs(WORLD, "fedavg", **many)
    assert always.pays.tolist() == [2500]  # the least of which such cohorts are drawn
    assert "!" not in str(always)
    # fewer unknowns than samples: fine-tuning ends at each client's own least squares anyway
    few = fa.Population(radius=1, noise=0.5, aspect=0.5, norm=2)
    never = fa.privacy_costs(few, "ftfa", dimension=200, epsilon=1, clients=100, rounds=4)
    assert never.pays.tolist() == [np.inf]
    assert never.radius.ravel() == pytest.approx(1, rel=1e-6)


def test_a_far_optimum_that_privacy_hides_costs_many_radii():
    """With hardly any budget the shared model stays at zero, and the loss is its distance."""
    far = fa.Population(radius=0.1, noise=0.5, aspect=2, norm=10)
    costs = fa.privacy_costs(far, "fedavg", dimension=1000, epsilon=0.01, clients=100, rounds=4)
    assert costs.loss.ravel() == pytest.approx(100, rel=1e-2)
    assert costs.radius.ravel() == pytest.approx(10, rel=1e-2)
