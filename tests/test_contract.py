"""The public names: what other work builds on."""

import inspect
import json

import numpy as np
import pytest

import fedasym as fa

WORLD = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)


def test_every_public_name_has_a_docstring_with_an_example():
    for name in fa.__all__:
        thing = getattr(fa, name)
        if name == "__version__":
            continue
        assert thing.__doc__, name
        assert ">>>" in thing.__doc__ or inspect.ismodule(thing), f"{name} has no example"


def test_every_name_of_a_public_module_and_every_method_is_documented():
    modules = [getattr(fa, name) for name in fa.__all__ if inspect.ismodule(getattr(fa, name))]
    assert len(modules) == 6
    inner = [
        getattr(module, name)
        for module in modules
        for name in getattr(module, "__all__", dir(module))
        if name[0] != "_"
    ]
    things = [thing for thing in inner if getattr(thing, "__module__", "").startswith("fedasym")]
    for function in filter(inspect.isfunction, things):
        assert ">>>" in (function.__doc__ or "") or function.__name__.startswith("check"), (
            function.__name__
        )
    for kind in filter(inspect.isclass, [*things, *(getattr(fa, name) for name in fa.__all__)]):
        own = {name: thing for name, thing in vars(kind).items() if not name.startswith("_")}
        methods = {
            name: thing
            for name, thing in own.items()
            if hasattr(thing, "__get__") and not isinstance(thing, type)
        }
        assert kind.__doc__, kind.__name__
        assert [name for name, thing in methods.items() if not inspect.getdoc(thing)] == [], (
            kind.__name__
        )


def test_verbs_state_their_equation():
    for verb in (
        fa.predict,
        fa.compare,
        fa.fine_tuning,
        fa.one_step,
        fa.optimal_ridge,
        fa.optimal_loss,
        fa.noise_threshold,
        fa.separability,
        fa.interpolation,
    ):
        assert "=" in verb.__doc__.split(">>>")[0], verb.__name__


def test_predict_by_name():
    table = fa.predict(WORLD)
    assert list(table) == ["local", "local_ridge", "fedavg", "ftfa", "rtfa", "maml", "pfedme"]
    rtfa = table["rtfa"]
    assert rtfa.bias + rtfa.variance == rtfa.loss
    assert rtfa.ridge == 0.5
    assert table.best == "rtfa"
    assert table.ties == [["ftfa", "maml"], ["rtfa", "pfedme"]]
    assert isinstance(rtfa.loss, float)


def test_given_ridge_and_order_of_algorithms():
    table = fa.predict(WORLD, ["rtfa", "ftfa"], ridge=0.3)
    assert list(table) == ["rtfa", "ftfa"]
    assert table["rtfa"].ridge == 0.3
    assert table["ftfa"].ridge is None


def test_norm_is_needed_only_for_the_local_methods():
    table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2))
    assert "local" not in table
    assert any("local and local_ridge" in note and "norm" in note for note in table.notes)
    with pytest.raises(fa.InvalidInput, match="give norm"):
        fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), ["local"])


def test_different_clients_get_one_row_each_and_identical_ones_are_merged():
    a, b = fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 4)
    table = fa.predict([a, b, a])
    assert table["rtfa"].loss.shape == (3,)
    assert table["rtfa"].loss[0] == table["rtfa"].loss[2]
    assert table.best.shape == (3,)
    counted = fa.predict([a, b], clients=[2, 1])
    np.testing.assert_allclose(counted["rtfa"].loss, table["rtfa"].loss[:2], rtol=1e-12)


def test_ten_thousand_clients_are_their_groups():
    a, b = fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 4)
    many = fa.predict([a, b] * 5000)
    few = fa.predict([a, b], clients=[5000, 5000])
    np.testing.assert_allclose(many["ftfa"].loss[:2], few["ftfa"].loss, rtol=1e-12)
    assert "10000 clients of 2 kinds" in str(many)


def test_weights_are_numbers_or_words():
    clients = [fa.Population(1, 0.5, 2), fa.Population(2, 1.0, 4), fa.Population(1, 0.5, 1.5)]
    samples = fa.predict(clients, ["fedavg"], weights="samples")
    numbers = np.array([1 / 2, 1 / 4, 1 / 1.5])
    given = fa.predict(clients, ["fedavg"], weights=numbers / numbers.sum())
    np.testing.assert_allclose(samples["fedavg"].loss, given["fedavg"].loss, rtol=1e-12)
    assert not np.allclose(
        samples["fedavg"].loss, fa.predict(clients, ["fedavg"], weights="uniform")["fedavg"].loss
    )
    precise = fa.predict(clients, ["pfedme"], weights="precision")
    np.testing.assert_allclose(
        precise["pfedme"].loss, fa.predict(clients, ["pfedme"])["pfedme"].loss, rtol=1e-12
    )
    many = fa.predict(clients, ["pfedme"], clients=[3, 4, 5], weights="precision")["pfedme"].loss
    np.testing.assert_allclose(
        many, fa.predict(clients, ["pfedme"], clients=[3, 4, 5])["pfedme"].loss, rtol=1e-12
    )
    assert any("samples over noise" in note for note in fa.predict(clients).notes)
    with pytest.raises(fa.NoFormula, match="samples over noise"):
        fa.predict(clients, ["pfedme"], weights="uniform")


def test_fine_tuning_contract():
    path = fa.fine_tuning(WORLD, step=0.3, steps=[0, 1, 5, 20, 100])
    assert path.loss.shape == (5,)
    assert path.loss[0] == pytest.approx(1, rel=1e-12)
    assert path.best.scores.loss <= path.loss.min()
    flow = fa.fine_tuning(WORLD, flow=True, times=[0, 0.5, 5])
    assert flow.loss.shape == (3,)
    assert flow.best.scores.loss <= flow.loss.min()


def test_compare_contract():
    diagram = fa.compare(
        "ftfa", "fedavg", WORLD, vary={"noise": (0, 2, 200), "aspect": (1.1, 10, 200)}
    )
    assert diagram.winner.shape == (200, 200)
    noise, aspect = diagram.boundary.T
    np.testing.assert_allclose(noise**2, (aspect - 1) / aspect, rtol=1e-9)


@pytest.mark.parametrize(
    ("first", "second", "vary", "options"),
    [
        ("rtfa", "local_ridge", {"norm": (1, 3, 5), "radius": (0.5, 2, 4)}, {}),
        ("ftfa", "fedavg", {"shift_power": (-1, 1, 5), "noise": (0.1, 2, 5)}, {}),
        ("rtfa", "ftfa", {"ridge": (0, 2, 5)}, {}),
        ("maml", "ftfa", {"clients": [3, 5, 10, 100]}, {"maml_step": 0.3}),
        ("pfedme", "rtfa", {"clients": [3, 10], "noise": (0.1, 1, 4)}, {"member": False}),
    ],
)
def test_compare_varies_anything(first, second, vary, options):
    world = fa.Population(1, 0.5, 2, norm=2, spectrum=fa.spectra.identity())
    diagram = fa.compare(first, second, world, vary=vary, **options)
    assert diagram.first_values.shape == tuple(len(values) for values in diagram.axes.values())
    assert np.all(np.isfinite(diagram.first_values))
    assert np.all(np.isfinite(diagram.second_values))


def test_the_boundary_in_clients_is_a_whole_number():
    world = fa.Population(1, 0.8, 2, norm=1.5)
    diagram = fa.compare("fedavg", "local_ridge", world, vary={"clients": [3, 500]})
    (first,) = diagram.boundary[:, 0]
    before, after = (
        fa.predict(world, ["fedavg", "local_ridge"], clients=m) for m in (first - 1, first)
    )
    assert before.best == "local_ridge"
    assert after.best == "fedavg"


def test_where_all_samples_match_the_unknowns_sharing_is_unbounded():
    with pytest.warns(fa.ThresholdWarning, match="pooled aspect"):
        equal = fa.predict(fa.Population(1, 0.5, 2), clients=2)
    with pytest.warns(fa.ThresholdWarning, match="pooled aspect"):
        different = fa.predict([fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 2)])
    for name in ("fedavg", "ftfa", "rtfa", "pfedme"):
        assert equal[name].loss == np.inf
        assert np.all(different[name].loss == np.inf)


def test_one_step_maml_is_a_pair_of_stages():
    algorithm = fa.Algorithm("one step", fa.algorithms.Meta(0.2), fa.algorithms.Descend(0.25))
    predicted = fa.predict(WORLD, [algorithm])["one step"].loss
    assert predicted == pytest.approx(fa.one_step(WORLD, step=0.25)[1].loss, rel=1e-12)
    assert predicted == pytest.approx(
        fa.fine_tuning(WORLD, step=0.25, steps=[1]).loss[0], rel=1e-12
    )


@pytest.mark.parametrize(
    "pair", [("Meta", "Keep"), ("Meta", "Ridge"), ("Moreau", "Keep"), ("Moreau", "Interpolate")]
)
def test_a_pair_that_no_theorem_names_is_predicted_by_weight_and_filter(pair):
    server, client = (getattr(fa.algorithms, name)() for name in pair)
    algorithm = fa.Algorithm("pair", server, client)
    limit = fa.predict(WORLD, [algorithm])["pair"].loss
    same = {"Keep": "fedavg", "Ridge": "rtfa", "Interpolate": "ftfa"}[pair[1]]
    assert limit == pytest.approx(
        fa.predict(WORLD, [same])[same].loss, rel=1e-12
    )  # infinitely many clients forget the server
    few = fa.predict(WORLD, [algorithm], clients=10)["pair"].loss
    drawn = fa.simulate(WORLD, algorithms=[algorithm], clients=10, dimension=200, trials=4, seed=1)[
        "pair"
    ]
    assert few == pytest.approx(drawn.loss, abs=4 * drawn.error + 0.01)


def test_maml_without_its_hessian_weighs_once():
    few = fa.predict(WORLD, ["maml", "maml_fo", "maml_hf", "ftfa"], clients=10, maml_step=0.05)
    assert few["maml_hf"].loss == few["maml"].loss  # differences of a quadratic are exact
    assert few["maml"].loss < few["maml_fo"].loss < few["ftfa"].loss
    with pytest.raises(
        fa.NoFormula,
        match=r"maml_fo: Meta weighs the eigenvalue .* which clients here have, with -",
    ):
        fa.predict(WORLD, ["maml_fo"], clients=10, maml_step=5)


def test_json_has_stable_keys_and_full_precision():
    table = fa.predict(WORLD)
    data = json.loads(table.to_json())
    assert data["algorithms"]["rtfa"] == {
        "bias": table["rtfa"].bias,
        "variance": table["rtfa"].variance,
        "loss": table["rtfa"].loss,
        "ridge": 0.5,
    }
    assert data["algorithms"]["fedavg"]["ridge"] is None
    assert data["best"] == "rtfa"
    with pytest.warns(fa.ThresholdWarning):
        endless = fa.predict(fa.Population(radius=0, noise=1, aspect=1, norm=1), ["local", "rtfa"])
    assert json.loads(endless.to_json())["algorithms"]["local"]["loss"] == "inf"


def test_tables_for_data_frames():
    records = fa.predict(WORLD).table()
    assert records[0].keys() == {"algorithm", "loss", "bias", "variance", "ridge"}
    rows = fa.predict(
        [fa.Population(1, 0.5, 2), fa.Population(1, 0.5, 4)], ["rtfa"], clients=[5, 5]
    ).table()
    assert [row["entry"][:2] for row in rows] == ["0:", "1:"]


def test_results_print_themselves_and_show_in_notebooks():
    table = fa.predict(WORLD)
    assert "<- lowest" in str(table)
    assert "Fine-tuning pays" in str(table)
    assert "Sharing pays" in str(table)
    assert "same as ftfa" in str(table)
    for result in (
        table,
        fa.fine_tuning(WORLD),
        fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (0, 1, 3)}),
    ):
        assert "<table><thead>" in result._repr_html_()
    wide = fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (0, 1, 9), "aspect": (2, 4, 9)})
    assert wide._repr_html_().startswith("<pre>")  # its summary, not 81 rows


def test_a_grid_prints_a_summary():
    table = fa.predict(fa.Population(1, np.linspace(0.1, 2, 60), 2))
    assert "wins" in str(table)


@pytest.mark.parametrize(("aspect", "clients"), [(1.02, None), (0.97, None), (9.8, 10)])
def test_near_a_threshold_there_is_a_plain_warning(aspect, clients):
    with pytest.warns(fa.ThresholdWarning, match="finite sizes deviate"):
        table = fa.predict(fa.Population(1, 0.5, aspect, norm=2), clients=clients)
    assert any(note.startswith("Near a threshold") for note in table.notes)


def test_a_negative_best_ridge_is_said():
    world = fa.Population(1, 0.1, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1)
    table = fa.predict(world)
    assert table["rtfa"].ridge < 0
    assert any("best ridge is negative" in note for note in table.notes)
    explicit = fa.predict(world, ["rtfa"], ridge=table["rtfa"].ridge)
    assert explicit["rtfa"].loss == pytest.approx(table["rtfa"].loss, rel=1e-12)


def test_a_maml_step_that_is_too_large_is_said():
    world = fa.Population(1, 0.5**0.5, 8)
    assert any("smaller maml_step" in note for note in fa.predict(world, clients=20).notes)
    assert not any(
        "maml_step" in note for note in fa.predict(world, clients=20, maml_step=0.01).notes
    )


def test_populations_compare_by_value():
    assert fa.Population(1, 0.5, 2) == fa.Population(
        1.0, 0.5, 2, spectrum=fa.spectra.atoms([1], [1])
    )
    assert fa.Population(1, 0.5, 2) != fa.Population(1, 0.5, 3)
    assert len({fa.Population(1, 0.5, 2), fa.Population(1, 0.5, 2)}) == 1


def test_spectra_from_data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6)) * np.sqrt([3, 2, 1, 1, 0.5, 0])
    expected = np.sort(np.linalg.svd(x, compute_uv=False) ** 2 / 40)[::-1]
    np.testing.assert_allclose(
        fa.spectra.from_data(x).values, np.where(expected < 1e-12, 0, expected), atol=1e-12
    )
    np.testing.assert_allclose(
        fa.spectra.from_data([x[:15], x[15:]]).values, fa.spectra.from_data(x).values, rtol=1e-12
    )
    wide = fa.spectra.from_data(x[:4])
    assert wide.rank == pytest.approx(4 / 6)


def test_ar1_is_the_limit_of_toeplitz_matrices():
    d = 600
    toeplitz = 0.6 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    exact = fa.predict(
        fa.Population(1, 0.5, 2, spectrum=fa.spectra.eigenvalues(np.linalg.eigvalsh(toeplitz)))
    )
    limit = fa.predict(fa.Population(1, 0.5, 2, spectrum=fa.spectra.ar1(0.6)))
    assert exact["rtfa"].loss == pytest.approx(limit["rtfa"].loss, rel=3e-3)


def test_power_law_quadrature_agrees_with_many_points():
    fine = fa.predict(fa.Population(1, 0.5, 2, spectrum=fa.spectra.power_law(1.5, points=20_000)))
    default = fa.predict(fa.Population(1, 0.5, 2, spectrum=fa.spectra.power_law(1.5)))
    assert default["rtfa"].loss == pytest.approx(fine["rtfa"].loss, rel=1e-6)


class Clipped(fa.algorithms.ClientStage):
    """A filter with a kink, which no contour takes."""

    reach: float = fa.algorithms.setting(1.0, above=0)

    def keep(self, x):
        return np.maximum(1 - x / self.reach, 0)


class Pole(fa.algorithms.ClientStage):
    """A ridge under another name: its pole is at minus `pull`, however near to the spectrum."""

    pull: float = fa.algorithms.setting(0.1, above=0)

    def keep(self, x):
        return self.pull / (x + self.pull)


SPECTRA = {"identity": fa.spectra.identity(), "two atoms": fa.spectra.atoms([1, 9], [0.7, 0.3])}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(("pull", "aspect"), [(1e-3, 0.4), (0.1, 0.99), (30, 1.5), (1e-3, 1.5)])
def test_a_filter_of_ones_own_has_the_limits_of_the_theorem_that_it_repeats(spectrum, pull, aspect):
    world = fa.Population(1.3, 0.5, aspect, norm=2, spectrum=SPECTRA[spectrum])
    for server in (fa.algorithms.Average(), fa.algorithms.Nothing()):
        own, known = (
            fa.Algorithm(f"{n}", server, each)
            for n, each in enumerate((Pole(pull), fa.algorithms.Ridge(pull)))
        )
        table = fa.predict(world, [own, known])
        for part in ("bias", "variance"):
            assert getattr(table["0"], part) == pytest.approx(getattr(table["1"], part), rel=1e-9)
    for member in (True, False):
        if member and spectrum != "identity":
            continue
        own, known = (
            fa.Algorithm(f"{n}", fa.algorithms.Average(), each)
            for n, each in enumerate((Pole(pull), fa.algorithms.Ridge(pull)))
        )
        table = fa.predict(world, [own, known], clients=7, member=member)
        assert table["0"].loss == pytest.approx(table["1"].loss, rel=1e-9)


def test_a_filter_with_a_kink_is_integrated_on_the_real_axis_or_drawn(monkeypatch):
    monkeypatch.setattr("fedasym.verbs.losses.DRAWN_DIMENSION", 120)
    clipped = fa.Algorithm("clipped", fa.algorithms.Average(), Clipped())
    world = fa.Population(1, 0.5, 0.5)
    limit, drawn = (
        fa.predict(world, [clipped], method=method)["clipped"] for method in ("formula", "simulate")
    )
    assert limit.error is None
    assert drawn.loss == pytest.approx(limit.loss, abs=4 * drawn.error + 0.01)
    few, drawn = (
        fa.predict(world, [clipped], clients=9, method=method)["clipped"]
        for method in ("formula", "simulate")
    )
    assert drawn.loss == pytest.approx(few.loss, abs=4 * drawn.error + 0.01)
    correlated = fa.Population(1, 0.5, 0.5, spectrum=fa.spectra.atoms([1, 9], [0.7, 0.3]))
    with pytest.raises(
        fa.NoFormula, match=r'does not extend to complex numbers.*method="simulate"'
    ):
        fa.predict(correlated, [clipped])
    found = fa.predict(correlated, [clipped, "ftfa"], method="simulate")
    assert "std. err." in str(found)
    assert found["ftfa"].loss == pytest.approx(
        fa.predict(correlated, "ftfa")["ftfa"].loss, abs=4 * found["ftfa"].error + 0.01
    )
    assert 0 < found["clipped"].error < 0.1 * found["clipped"].loss


def test_filters_and_weights_that_make_no_sense_are_refused():
    def client(keep):
        return fa.Algorithm(
            "odd",
            fa.algorithms.Average(),
            type("Odd", (fa.algorithms.ClientStage,), {"keep": keep})(),
        )

    world = fa.Population(1, 0.5, 2)
    with pytest.raises(fa.InvalidInput, match=r"keep\(0\) of Odd is 0.9: it must be 1"):
        fa.predict(world, [client(lambda self, x: 0.9 / (1 + x))])
    with pytest.raises(fa.InvalidInput, match=r"keep\(x\) of Odd is not finite"):
        fa.predict(world, [client(lambda self, x: np.where(x > 1, np.inf, 1))])
    with pytest.raises(fa.InvalidInput, match=r"keep\(x\) of Odd has shape \(2,\)"):
        fa.predict(world, [client(lambda self, x: np.ones(2))])
    negative = type("Odd", (fa.algorithms.ServerStage,), {"weight": lambda self, x: 1 - x})()
    with pytest.raises(fa.NoFormula, match="Odd weighs the eigenvalue"):
        fa.predict(world, [fa.Algorithm("odd", negative, fa.algorithms.Keep())], clients=9)


@pytest.mark.parametrize("verb", [fa.predict, fa.simulate])
def test_what_a_world_cannot_use_is_refused(verb):
    classes = fa.ClassPopulation(radius=1, centre=1, aspect=2)
    with pytest.raises(fa.InvalidInput, match="maml_step is 7, which is for a Population"):
        verb(classes, maml_step=7)
