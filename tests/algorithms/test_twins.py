"""A user's own stage with the formula of a built-in one has its numbers in every verb: verbs ask a
stage what it is, not of which class.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import ClientStage, Objective, ServerStage, setting

WORLD = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
COLOURED = fa.Population(
    radius=1, noise=0.5, aspect=2, norm=2, spectrum=fa.spectra.eigenvalues([0.5, 1, 3])
)


class Mean(ServerStage):
    """FedAvg's weight and step."""

    def weight(self, x):
        return 0 * x + 1

    def step(self, w, start, gradient, rate):
        return w - rate * gradient(w)


class Tie(ServerStage):
    """pFedMe's weight."""

    ridge: float | None = setting(None, least=0)

    def weight(self, x):
        return 1 - x / (x + self.ridge)


class Still(ClientStage):
    """What Keep keeps."""

    def keep(self, x):
        return 1 - 0 * x


class Converge(ClientStage):
    """What Interpolate keeps."""

    def keep(self, x):
        return (x == 0) + 0.0


class Pull(ClientStage):
    """What Ridge keeps, in a form of its own."""

    ridge: float | None = setting(None, least=0)

    def keep(self, x):
        return 1 / (1 + x / self.ridge)


TWINS = {
    "fedavg": (Mean(), Still()),
    "ftfa": (Mean(), Converge()),
    "rtfa": (Mean(), Pull()),
    "pfedme": (Tie(), Pull()),
    "local": (fa.algorithms.Nothing(), Converge()),
    "local_ridge": (fa.algorithms.Nothing(), Pull()),
}
OWN = {name: fa.Algorithm(f"own_{name}", *pair) for name, pair in TWINS.items()}


def assert_same_rows(table, parts):
    for name, own in OWN.items():
        for part in parts:
            found, known = getattr(table[own.name], part), getattr(table[name], part)
            assert (found is None) == (known is None), (name, part)
            if known is not None:
                np.testing.assert_array_equal(found, known, err_msg=f"{name} {part}")


def make_clients(samples, dimension, clients=10):
    rng = np.random.default_rng(dimension)
    common = rng.standard_normal(dimension)
    X = rng.standard_normal((clients, samples, dimension))
    theta = common + 0.7 * rng.standard_normal((clients, dimension))
    y = np.einsum("jnd,jd->jn", X, theta) + 0.5 * rng.standard_normal((clients, samples))
    ids = np.repeat(np.arange(clients), samples)
    return X.reshape(-1, dimension), y.ravel(), ids


def test_what_a_stage_minimises_is_read_off_its_formula():
    own = {name: tuple(stage.linear_objective for stage in pair) for name, pair in TWINS.items()}
    known = {
        name: tuple(stage.objective for stage in fa.algorithms.PAPER[name].stages) for name in TWINS
    }
    assert own == known
    others = (
        fa.algorithms.Meta(0.1),
        fa.algorithms.Meta(),
        fa.algorithms.Descend(0.1, 3),
        fa.algorithms.Flow(1e9),
    )
    assert [stage.linear_objective for stage in others] == [None] * 4
    assert fa.algorithms.Flow(np.inf).linear_objective is Objective.OWN


@pytest.mark.parametrize("world", [WORLD, COLOURED], ids=["identity", "coloured"])
@pytest.mark.parametrize("told", [{}, {"clients": 10}, {"clients": 10, "member": False}], ids=str)
def test_predictions_at_the_best_ridge_and_at_a_given_one(world, told):
    both = [*OWN, *OWN.values()]
    assert_same_rows(fa.predict(world, both, **told), ("loss", "bias", "variance", "ridge"))
    rest = [*OWN.values(), *OWN]
    if world is COLOURED and told:  # pFedMe has a formula at its best ridge alone
        rest = [each for each in rest if "pfedme" not in str(getattr(each, "name", each))]
    table = fa.predict(world, rest, ridge=0.4, **told)
    assert table["own_rtfa"] == table["rtfa"]
    assert table["own_local_ridge"] == table["local_ridge"]


def test_ridges_by_world_different_clients_diagrams_and_paths():
    grid = fa.predict(WORLD, ["rtfa", OWN["rtfa"]], ridge=[0.1, 0.5, 2])
    np.testing.assert_array_equal(grid["own_rtfa"].loss, grid["rtfa"].loss)
    kinds = [WORLD, fa.Population(radius=2, noise=0.4, aspect=3, norm=7**0.5)]
    table = fa.predict(kinds, [*OWN, *OWN.values()], clients=[20, 10])
    assert_same_rows(table, ("loss", "ridge"))
    diagrams = [
        fa.compare(pair[0], pair[1], WORLD, vary={"noise": (0.1, 3, 7)}, clients=10)
        for pair in (("rtfa", "fedavg"), (OWN["rtfa"], OWN["fedavg"]))
    ]
    np.testing.assert_array_equal(*(each.first_values for each in diagrams))
    np.testing.assert_array_equal(*(each.boundary for each in diagrams))
    paths = [
        fa.fine_tuning(COLOURED, each, step=0.1, steps=[0, 3], clients=10, member=False)
        for each in ("fedavg", OWN["fedavg"])
    ]
    np.testing.assert_array_equal(*(each.loss for each in paths))
    told = {"rounds": 5, "local_steps": 4, "server_step": 0.2, "cohort": 10, "clients": 100}
    rounds = [fa.rounds(WORLD, each, **told) for each in ("rtfa", OWN["rtfa"])]
    np.testing.assert_array_equal(*(each.loss for each in rounds))


@pytest.mark.parametrize("mode", ["expectation", "sampling"])
def test_simulations(mode):
    told = {"dimension": 24, "clients": 4, "trials": 1, "mode": mode}
    table = fa.simulate(WORLD, algorithms=[*OWN, *OWN.values()], **told)
    for name, own in OWN.items():
        assert table[own.name].loss == pytest.approx(table[name].loss, rel=1e-9), name
        assert table[own.name].predicted == table[name].predicted
    varied = fa.simulate(
        WORLD, algorithms=["rtfa", OWN["rtfa"]], vary={"ridge": [0.1, 1.0]}, **told
    )
    np.testing.assert_allclose(varied["own_rtfa"].loss, varied["rtfa"].loss, rtol=1e-9)


@pytest.mark.parametrize("shape", [(14, 4), (20, 70)], ids=["few", "many"])
def test_fits_and_advice(shape):
    X, y, ids = make_clients(*shape)
    for name, own in OWN.items():
        fits = [fa.linear.fit(each, X, y, clients=ids) for each in (name, own)]
        np.testing.assert_allclose(*(fit.predict(X, client=ids) for fit in fits), rtol=1e-8)
    advice = fa.advise(X, y, clients=ids, algorithms=list(OWN.values()))
    plain = fa.advise(X, y, clients=ids)
    for name, own in OWN.items():
        row, known = advice.predictions[own.name], advice.predictions[name]
        assert known == plain.predictions[name]
        for part in ("value", "low", "high"):
            for kind in ("loss", "new"):
                found, aim = (getattr(getattr(each, kind), part) for each in (row, known))
                assert found == pytest.approx(aim, rel=1e-9, nan_ok=True), (name, kind, part)
        for part in ("trusted", "measured", "ridge", "contradicted"):
            found, aim = getattr(row, part), getattr(known, part)
            assert found == (aim and pytest.approx(aim, rel=1e-9)), (name, part)


class Fade(ClientStage):
    """A filter of its own with a ridge: gradient flow for the time 1/ridge."""

    ridge: float | None = setting(None, least=0)

    def keep(self, x):
        return np.exp(-x / self.ridge)


class FadingWeight(ServerStage):
    """A weight of its own with a ridge."""

    ridge: float | None = setting(None, least=0)

    def weight(self, x):
        return np.exp(-x / (4 * self.ridge))


@pytest.mark.parametrize("time", [0.1, 1, 10, 100])
def test_a_filter_of_ones_own_is_integrated_to_many_digits(time):
    flow = fa.Algorithm("flow", fa.algorithms.Average(), fa.algorithms.Flow(time))
    fade = fa.Algorithm("fade", fa.algorithms.Average(), Fade(1 / time))
    for world in (WORLD, COLOURED):
        table = fa.predict(world, [flow, fade])
        assert table["fade"].loss == pytest.approx(table["flow"].loss, rel=1e-9)


def test_stages_with_a_ridge_and_other_formulas_have_it_in_every_verb():
    both = fa.Algorithm("both", FadingWeight(), Fade())
    assert [stage.linear_objective for stage in both.stages] == [None, None]
    told = {"clients": 6, "dimension": 60, "trials": 4}
    drawn = fa.simulate(WORLD, algorithms=[both], **told)["both"]
    sampled = fa.simulate(WORLD, algorithms=[both], mode="sampling", **told)["both"]
    assert drawn.loss == pytest.approx(drawn.predicted.loss, rel=0.05)
    assert sampled.loss == pytest.approx(drawn.loss, abs=4 * sampled.error)
    grid = fa.predict(WORLD, both, ridge=[0.3, 2], clients=6)["both"]
    one = fa.predict(WORLD, both, ridge=2, clients=6)["both"]
    assert grid.loss[1] == pytest.approx(one.loss, rel=1e-12)
    assert grid.ridge.tolist() == [0.3, 2]
    X, y, ids = make_clients(14, 4)
    given = fa.linear.fit(fa.Algorithm("b", FadingWeight(9.0), Fade(9.0)), X, y, ids, ridge=0.4)
    np.testing.assert_array_equal(
        given.personal[0], fa.linear.fit(both, X, y, ids, ridge=0.4).personal[0]
    )
    row = fa.advise(X, y, clients=ids, algorithms=both).predictions["both"]
    assert row.loss.low <= row.loss.value <= row.loss.high < 1


def test_classes_ask_for_a_declared_objective():
    """A weight and a filter are those of the squared loss: for another one, the stage must say."""

    class SaidMean(Mean):
        objective = Objective.POOLED

    class SaidPull(Pull):
        objective = Objective.PENALISED

    classes = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    said = fa.Algorithm("said", SaidMean(), SaidPull())
    table = fa.predict(classes, ["rtfa", said], ridge=0.3)
    assert table["said"] == table["rtfa"]
    with pytest.raises(fa.NoFormula, match=r"pair Mean then Pull.*objective"):
        fa.predict(classes, [OWN["rtfa"]])


def test_a_penalty_has_its_size_in_the_setting_ridge():
    with pytest.raises(fa.InvalidInput, match="no setting of the name ridge"):

        class Wrong(ClientStage):
            objective = Objective.PENALISED
