"""`predict` with classes: its rows, its manners, and what must hold for every population."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms.paper import CLASSES
from fedasym.algorithms.registry import find
from fedasym.theory.classes import canonical_pair, softmax_limit
from fedasym.verbs.accuracies import DEFAULT, score_rule, softmax_world

WORLD = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
METRICS = ("accuracy", "log_loss", "brier", "slope")
pytestmark = pytest.mark.filterwarnings(
    "ignore::fedasym.ThresholdWarning"
)  # a drawn world may lie near a threshold
LENGTHS = st.floats(0.1, 4)
ASPECTS = st.floats(0.05, 20)
FLIPS = st.floats(0, 0.45)


def close(
    one: fa.Accuracy, two: fa.Accuracy, tolerance: float, metrics: tuple[str, ...] = METRICS
) -> None:
    for name in metrics:
        np.testing.assert_allclose(
            getattr(one, name), getattr(two, name), rtol=0, atol=tolerance, err_msg=name
        )


def test_every_method_has_a_row_in_order():
    table = fa.predict(WORLD)
    assert list(table) == list(DEFAULT)
    assert table.best == "rtfa"
    assert ["local", "ftfa"] in table.ties
    assert isinstance(table["rtfa"].accuracy, float)
    assert table["rtfa"].error == 1 - table["rtfa"].accuracy


def test_the_specification_s_example():
    """Section 16: gamma=5, b=2, r=1: FedAvg .752, converged .567."""
    table = fa.predict(fa.ClassPopulation(radius=1, centre=2, aspect=5))
    assert round(table["fedavg"].accuracy, 3) == 0.752
    assert round(table["ftfa"].accuracy, 3) == 0.567


@settings(max_examples=15, deadline=None)
@given(LENGTHS, LENGTHS, ASPECTS, FLIPS, st.booleans())
def test_no_method_beats_bayes_and_bayes_not_the_truth(radius, centre, aspect, flips, flat):
    world = fa.ClassPopulation(
        radius, centre, aspect, flips=flips, spectrum=fa.spectra.identity() if flat else TWO
    )
    table = fa.predict(world)
    best = table["bayes"].accuracy
    assert table["truth"].accuracy >= best - 1e-12
    for name in table.algorithms:
        assert 0.5 - 1e-12 <= table[name].accuracy <= best + 1e-9, name
        if table[name].log_loss is not None:
            assert table[name].log_loss >= table["bayes"].log_loss - 1e-9, name
            assert table[name].brier >= table["bayes"].brier - 1e-9, name


@settings(max_examples=10, deadline=None)
@given(LENGTHS, LENGTHS, ASPECTS, FLIPS, st.floats(0.01, 30))
def test_the_scale_of_the_features_does_not_matter(radius, centre, aspect, flips, scale):
    """Sigma -> a Sigma, theta -> theta/sqrt a, ridge -> a ridge."""
    small = fa.ClassPopulation(radius, centre, aspect, flips=flips, spectrum=TWO)
    root = scale**0.5
    large = fa.ClassPopulation(
        radius / root,
        centre / root,
        aspect,
        flips=flips,
        spectrum=fa.spectra.atoms([0.5 * scale, 3 * scale], [0.6, 0.4]),
    )
    names = ["fedavg", "rtfa", "local_ridge", "one_step", "bayes"]
    for one, two in zip(
        fa.predict(small, names, ridge=0.3).values(),
        fa.predict(large, names, ridge=0.3 * scale).values(),
        strict=True,
    ):
        close(one, two, 1e-8)


@settings(max_examples=15, deadline=None)
@given(LENGTHS, LENGTHS, ASPECTS, FLIPS)
def test_an_endless_ridge_is_fedavg(radius, centre, aspect, flips):
    world = fa.ClassPopulation(radius, centre, aspect, flips=flips)
    table = fa.predict(world, ["fedavg", "rtfa"], ridge=np.inf)
    close(table["rtfa"], table["fedavg"], 1e-12)
    large = fa.predict(world, ["rtfa"], ridge=1e7 * aspect)["rtfa"]
    assert large.accuracy == pytest.approx(table["fedavg"].accuracy, abs=1e-5)


@settings(max_examples=5, deadline=None)
@given(LENGTHS, LENGTHS, ASPECTS)
def test_coin_tosses_are_guessed(radius, centre, aspect):
    table = fa.predict(fa.ClassPopulation(radius, centre, aspect, flips=0.5))
    for name, row in table.items():
        assert row.accuracy == pytest.approx(0.5, abs=1e-12), name
    assert table["bayes"].log_loss == pytest.approx(np.log(2), abs=1e-12)


@pytest.mark.parametrize(
    "aspect", [0.5 - 1e-6, 0.5, 0.5 + 1e-12, 0.501]
)  # coin tosses: separable from 1/2 on
@pytest.mark.filterwarnings("ignore::fedasym.ThresholdWarning")
def test_at_the_threshold_of_separability_logits_are_endless(aspect):
    row = fa.predict(fa.ClassPopulation(1, 1, aspect, flips=0.5), ["local"])["local"]
    assert row.accuracy == pytest.approx(0.5, abs=1e-12)
    assert row.log_loss > 1e4
    assert row.brier == pytest.approx(0.5, abs=1e-4)


@settings(max_examples=5, deadline=None)
@given(LENGTHS, LENGTHS, ASPECTS, FLIPS)
def test_the_best_ridge_is_best(radius, centre, aspect, flips):
    world = fa.ClassPopulation(radius, centre, aspect, flips=flips)
    for name in ("rtfa", "local_ridge"):
        best = fa.predict(world, [name])[name]
        others = fa.predict(world, [name], ridge=best.ridge * np.geomspace(0.1, 10, 9))[
            name
        ].accuracy
        assert best.accuracy >= others.max() - 1e-9


@pytest.mark.parametrize(
    ("radius", "centre", "aspect", "ridge", "spectrum"),
    [(1.5, 1.5, 2, 1.0, fa.spectra.identity()), (1, 2, 0.4, 0.2, TWO), (3, 1, 5, 0.05, TWO)],
    ids=["even", "samples", "strong"],
)
def test_softmax_with_two_classes_is_the_binary_system(radius, centre, aspect, ridge, spectrum):
    """C = 2 with (b, r, 2 lam) is the binary system with (sqrt2 b, sqrt2 r, lam); here from the
    other side.
    """
    binary = fa.ClassPopulation(radius, centre, aspect, spectrum=spectrum)
    softmax = fa.ClassPopulation(radius / 2**0.5, centre / 2**0.5, aspect, spectrum=spectrum)
    table = fa.predict(
        binary,
        ["local_ridge", "fedavg", "rtfa", "one_step", "ftfa_squares", "rtfa_squares", "truth"],
        ridge=ridge,
    )
    for name, row in table.items():
        given = None if name == "rtfa_squares" else 2 * ridge  # least squares keeps its own
        other = score_rule(
            softmax_limit(canonical_pair(find(name, CLASSES)), softmax_world(softmax), given)
        )
        tolerance = (
            2e-4 if name in ("rtfa", "local_ridge") else 1e-7
        )  # the softmax system is sampled
        close(row, other, tolerance, METRICS if row.log_loss is not None else ("accuracy",))


@pytest.mark.parametrize("classes", [3, 10])
def test_more_classes(classes):
    table = fa.predict(fa.ClassPopulation(1.5, 1.5, 2, classes=classes))
    assert list(table) == [
        "local_ridge",
        "fedavg",
        "rtfa",
        "one_step",
        "ftfa_squares",
        "rtfa_squares",
        "truth",
    ]
    assert table.best == "rtfa"
    assert all(
        1 / classes < table[name].accuracy < table["truth"].accuracy for name in table.algorithms
    )
    assert all(0 < row.brier < 1 for row in table.values() if row.brier is not None)
    told = " ".join(table.notes)
    for words in ("Left out local and ftfa", "derived for two", "Left out bayes", "pfedme"):
        assert words in told


def test_few_clients_tend_to_many():
    many = fa.predict(WORLD, ["fedavg", "rtfa"], ridge=1.0)
    for member in (True, False):
        few = fa.predict(WORLD, ["fedavg", "rtfa"], ridge=1.0, clients=1e9, member=member)
        for name in many:
            close(few[name], many[name], 1e-6)


def test_few_clients():
    limit, table, new = (
        fa.predict(WORLD, clients=m, member=member)
        for m, member in ((None, True), (20, True), (20, False))
    )
    assert list(table) == ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "bayes", "truth"]
    for name in ("local", "local_ridge", "ftfa", "bayes"):
        close(table[name], limit[name], 1e-12)
    assert new["fedavg"].accuracy < table["fedavg"].accuracy < limit["fedavg"].accuracy
    assert new["rtfa"].ridge < table["rtfa"].ridge < limit["rtfa"].ridge
    for one in (table, new):
        ridges = one["rtfa"].ridge * np.array([0.5, 0.8, 1.25, 2])
        around = fa.predict(WORLD, ["rtfa"], ridge=ridges, clients=20, member=one.member)[
            "rtfa"
        ].accuracy
        assert one["rtfa"].accuracy > around.max()
    assert "20 clients, seen by a member" in str(table)


def test_part_of_a_grid_may_have_no_pooled_fit():
    table = fa.predict(WORLD, ["fedavg", "rtfa"], clients=[3, 30], ridge=1.0)
    assert np.isnan(table["fedavg"].accuracy).tolist() == [True, False]
    assert table.best[1] == "rtfa"
    assert any("fedavg and rtfa are NaN" in note for note in table.notes)
    assert json.loads(table.to_json())["algorithms"]["rtfa"]["accuracy"][0] is None


def test_a_grid_is_its_points():
    radius, aspect = np.array([0.5, 3])[:, None], np.array([0.1, 2.0])
    grid = fa.predict(fa.ClassPopulation(radius, 1.5, aspect, spectrum=TWO))
    assert grid["rtfa"].accuracy.shape == (2, 2)
    assert grid.best.shape == (2, 2)
    for i, j in np.ndindex(2, 2):
        point = fa.predict(fa.ClassPopulation(radius[i, 0], 1.5, aspect[j], spectrum=TWO))
        for name, row in point.items():
            assert grid[name].accuracy[i, j] == pytest.approx(row.accuracy, abs=1e-9), name
    assert "wins" in str(grid)


def test_a_large_grid_searches_quickly_and_well():
    rng = np.random.default_rng(0)
    radius, centre, flips = rng.uniform(0.1, 4, 28), rng.uniform(0, 4, 28), rng.uniform(0, 0.3, 28)
    aspect = 10 ** rng.uniform(-1.3, 1.3, 28)
    quick = fa.predict(
        fa.ClassPopulation(radius, centre, aspect, flips=flips, spectrum=TWO), ["rtfa"]
    )["rtfa"].accuracy
    exact = [
        fa.predict(
            fa.ClassPopulation(radius[i], centre[i], aspect[i], flips=flips[i], spectrum=TWO),
            ["rtfa"],
        )["rtfa"].accuracy
        for i in range(28)
    ]
    np.testing.assert_allclose(quick, exact, rtol=0, atol=2e-6)


def test_more_classes_in_an_array():
    table = fa.predict(fa.ClassPopulation([1, 2], 1.5, 2, classes=3), ["fedavg", "rtfa"], ridge=1.0)
    one = fa.predict(fa.ClassPopulation(2, 1.5, 2, classes=3), ["fedavg", "rtfa"], ridge=1.0)
    for name in table:
        assert table[name].accuracy[1] == pytest.approx(one[name].accuracy, abs=1e-9)


def test_pairs_of_stages_are_methods():
    stages = fa.algorithms
    pairs = {
        "fedavg": fa.Algorithm("a", stages.Average(), stages.Keep()),
        "rtfa": fa.Algorithm("a", stages.Average(), stages.Ridge(0.4)),
        "local_ridge": fa.Algorithm("a", stages.Nothing(), stages.Ridge(0.4)),
        "local": fa.Algorithm("a", stages.Meta(), stages.Interpolate()),
        "one_step": fa.Algorithm("a", stages.Average(), stages.Descend(local_step=0.3)),
        "ftfa": fa.Algorithm(
            "a", stages.Average(), stages.Flow(np.inf)
        ),  # without an end it is at convergence
    }
    for name, pair in pairs.items():
        expected = (
            fa.predict(WORLD, [name], ridge=0.4)[name]
            if name != "one_step"
            else fa.one_step(WORLD, 0.3)[1]
        )
        assert fa.predict(WORLD, [pair])["a"].accuracy == expected.accuracy
    path = fa.fine_tuning(WORLD, step=0.2, steps=[7])
    for stage in (stages.Descend(0.2, 7), stages.Flow(1.4)):
        pair = fa.Algorithm("a", stages.Average(), stage)
        assert fa.predict(WORLD, [pair])["a"].accuracy == pytest.approx(path.accuracy[0], abs=1e-9)
    assert (
        fa.predict(WORLD, ["maml"])["maml"].accuracy
        == fa.predict(WORLD, ["local"])["local"].accuracy
    )


def test_least_squares_keeps_its_own_ridge():
    free, given_one = (
        fa.predict(WORLD, ["rtfa_squares"]),
        fa.predict(WORLD, ["rtfa_squares"], ridge=0.1),
    )
    assert free["rtfa_squares"].ridge == given_one["rtfa_squares"].ridge
    assert free["rtfa_squares"].log_loss is None


def test_trained_without_end():
    """On separable data the length grows: certainty in everything, right or wrong."""
    local = fa.predict(WORLD, ["local"])["local"]
    assert local.log_loss == np.inf
    assert local.slope == 0
    assert local.brier == local.error
    inside = fa.predict(fa.ClassPopulation(1, 1, 0.1), ["local"])["local"]
    assert 0 < inside.slope < 1
    assert np.isfinite(inside.log_loss)
    zero = fa.predict(WORLD, ["rtfa"], ridge=0)["rtfa"]
    assert zero.accuracy == local.accuracy


def test_json_tables_and_notebooks():
    table = fa.predict(WORLD)
    data = json.loads(table.to_json())
    rtfa = table["rtfa"]
    assert data["algorithms"]["rtfa"] == {name: getattr(rtfa, name) for name in (*METRICS, "ridge")}
    assert data["algorithms"]["local"]["log_loss"] == "inf"
    assert data["best"] == "rtfa"
    assert table.table()[0].keys() == {"algorithm", *METRICS, "ridge"}
    assert table._repr_html_().startswith("<p>")
    with pytest.raises(KeyError, match="did you mean"):
        table["rtfq"]


def test_the_table_says_what_it_means():
    text = str(fa.predict(WORLD))
    for words in (
        "* rtfa",
        "<- highest",
        "same as local",
        "Sharing pays",
        "forgets the shared model",
        "separable",
        "never converges",
        "fine_tuning gives",
        "below bayes",
        "never carry",
        "Left out maml",
        "ceiling",
    ):
        assert words in text, words
    assert "maximum-likelihood" in str(fa.predict(fa.ClassPopulation(1, 1, 0.1)))


def test_near_separability_there_is_a_plain_warning():
    edge = fa.separability(WORLD).threshold
    for aspect in (edge * 0.98, edge * 1.02):
        with pytest.warns(fa.ThresholdWarning, match=r"separability threshold.*early stop"):
            table = fa.predict(fa.ClassPopulation(1.1, 1.4, aspect))
        assert any(note.startswith("Near a threshold") for note in table.notes)
    fa.predict(
        fa.ClassPopulation(1.1, 1.4, edge), ["rtfa", "fedavg"]
    )  # no method that ends there: no warning
    with pytest.warns(fa.ThresholdWarning, match="ftfa_squares breaks down"):
        fa.predict(fa.ClassPopulation(1.1, 1.4, 1.02, classes=3), ["ftfa_squares"])


def test_populations_compare_by_value_and_pick_worlds():
    assert fa.ClassPopulation(1, 2, 3) == fa.ClassPopulation(
        1.0, 2.0, 3.0, spectrum=fa.spectra.atoms([1], [1])
    )
    assert fa.ClassPopulation(1, 2, 3) != fa.ClassPopulation(1, 2, 3, classes=3)
    assert len({fa.ClassPopulation(1, 2, 3), fa.ClassPopulation(1, 2, 3)}) == 1
    grid = fa.ClassPopulation(
        [[1], [2]], [1, 2, 3], 2, spectrum=TWO, shift_power=1, centre_weights=[0.3, 0.7]
    )
    assert grid.shape == (2, 3)
    one = grid.at((1, 2))
    np.testing.assert_allclose(one.energies.ed, grid.energies.ed[1, 2])
    np.testing.assert_allclose(one.energies.e0, grid.energies.e0[1, 2])
    assert "aligned" in str(grid)
    assert "flips 0.1" in str(fa.ClassPopulation(1, 2, 3, flips=0.1))
    assert fa.ClassPopulation(1, 2, 3, spectrum=None) == fa.ClassPopulation(1, 2, 3)


def test_zero_spectrum_directions_carry_no_signal():
    seen = fa.spectra.atoms([0, 1], [0.5, 0.5])
    half = fa.predict(
        fa.ClassPopulation(2**0.5, 2**0.5, 2, spectrum=seen),
        ["rtfa", "fedavg", "local", "one_step"],
    )
    whole = fa.predict(fa.ClassPopulation(1, 1, 1), ["rtfa", "fedavg", "local", "one_step"])
    for name in whole:
        assert half[name].accuracy == pytest.approx(whole[name].accuracy, abs=1e-9), name
