"""Bad input gets one sentence that names the field, the value, what is allowed and what to do."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Keep, Meta, Ridge
from fedasym.deploy import Ray
from fedasym.training.settings import Settings, find_protocol, is_rate

WORLD = fa.Population(1, 0.5, 2, norm=2)
AR1 = fa.Population(1, 0.5, 2, spectrum=fa.spectra.ar1(0.5))
TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fa.Population(1, 0.5, 0), "aspect is 0: .* above 0"),
        (lambda: fa.Population(1, 0.5, np.inf), "aspect is inf: .*finite"),
        (lambda: fa.Population(1, -0.5, 2), "noise is -0.5: .*at least 0"),
        (lambda: fa.Population(np.nan, 0.5, 2), "radius is nan: .*finite"),
        (lambda: fa.Population([], 0.5, 2), "radius is empty"),
        (lambda: fa.Population("a", 0.5, 2), "radius is 'a': it must be a number"),
        (lambda: fa.Population(1, 0.5, 2, norm=-1), "norm is -1: .*at least 0"),
        (lambda: fa.Population([1, 2], [1, 2, 3], 2), "do not broadcast"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=[1, 2]), "spectrum is .*fedasym.spectra"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=TWO, shift_weights=[0.5, 0.4]), "shift_weights sum to 0.9"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=TWO, shift_weights=[1.0]), "shift_weights has shape .* 2 entries"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=TWO, shift_weights=[-1, 2]), "shift_weights holds -1"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1, shift_weights=[0.5, 0.5]), "both given"),
        (lambda: fa.Population(1, 0.5, 2, spectrum=fa.spectra.atoms([0, 1], [0.5, 0.5]), shift_power=-1), "has zeros"),
        (lambda: fa.spectra.atoms([1, 2], [0.5, 0.4]), "weights sum to 0.9: they must sum to 1"),
        (lambda: fa.spectra.atoms([1, 2], [1]), "weights has 1 entries for 2"),
        (lambda: fa.spectra.atoms([1, -2], [0.5, 0.5]), "an eigenvalue is -2"),
        (lambda: fa.spectra.eigenvalues([]), "at least one number"),
        (lambda: fa.spectra.eigenvalues([0, 0]), "all eigenvalues are 0"),
        (lambda: fa.spectra.eigenvalues([1, np.nan]), "an eigenvalue is nan"),
        (lambda: fa.spectra.ar1(1), "correlation is 1: .*between -1 and 1"),
        (lambda: fa.spectra.ar1(0.5, points=0), "points is 0"),
        (lambda: fa.spectra.power_law(1, offset=0), "offset is 0"),
        (lambda: fa.spectra.power_law(np.nan), "exponent is nan"),
        (lambda: fa.spectra.from_data([1, 2, 3]), "features have shape"),
        (lambda: fa.spectra.from_data([[np.nan, 1]]), "NaN"),
        (lambda: fa.spectra.from_data([np.ones((2, 2)), np.ones((2, 3))]), "same columns"),
        (lambda: fa.predict(WORLD, ["ftfq"]), "unknown algorithm 'ftfq': did you mean ftfa"),
        (lambda: fa.predict(WORLD, []), "algorithms is empty"),
        (lambda: fa.predict(WORLD, ridge=np.nan), "ridge is not a number"),
        (lambda: fa.predict(WORLD, ["rtfa"], ridge="big"), "ridge is 'big'"),
        (lambda: fa.predict(WORLD, ["rtfa"], ridge=-1), "ridge is -1: below -0.17"),
        (lambda: fa.predict(AR1, ["rtfa"], ridge=-1), "ridge is -1: below -0.115"),
        (lambda: fa.predict(WORLD, maml_step=-1), "maml_step is -1"),
        (lambda: fa.predict(WORLD, clients=0), "clients is 0: it must be a whole number"),
        (lambda: fa.predict(WORLD, clients=2.5), "clients is 2.5"),
        (lambda: fa.predict(WORLD, clients="many"), "clients is many"),
        (lambda: fa.predict(WORLD, weights=[1]), "weights are for a list"),
        (lambda: fa.predict([]), "list of populations is empty"),
        (lambda: fa.predict([WORLD, 3]), "client 1 is 3"),
        (lambda: fa.predict([WORLD, fa.Population([1, 2], 1, 1)]), "client 1 holds arrays"),
        (lambda: fa.predict([WORLD, WORLD], weights=[0.5, 0.4]), "weights sum to 0.9"),
        (lambda: fa.predict([WORLD, WORLD], weights=[1, 0]), r"weights\[1\] is 0"),
        (lambda: fa.predict([WORLD, WORLD], weights=[1]), "weights has 1 entries for 2 clients"),
        (lambda: fa.predict([WORLD, WORLD], weights="most"), "weights is 'most'"),
        (lambda: fa.predict([WORLD, WORLD], clients=[1]), "one count .* for each of the 2"),
        (lambda: fa.predict([WORLD, WORLD], ["rtfa"], ridge=[1, 2, 3]), "ridge has shape"),
        (lambda: fa.predict(WORLD, ["rtfa"], clients=[2, 3], ridge=[1, 2, 3]), "do not broadcast"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={}), "one or two parameters"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"nois": (0, 1, 3)}), "vary 'nois': did you mean noise"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (0, 1)}), "start, stop, count"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"noise": [1]}), "at least two different"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (-1, 1, 3)}), "noise is -1"),
        (lambda: fa.compare("ftfa", "ftfa", WORLD, vary={"noise": (0, 1, 3)}), "both algorithms are ftfa"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"clients": [2, 3]}, clients=4), "both varied and fixed"),
        (lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (0, 1, 3)}, member_=1), "unknown option 'member_'"),
        (lambda: fa.compare("ftfa", "fedavg", fa.Population([1, 2], 1, 2), vary={"noise": (0, 1, 3)}), "holds arrays"),
        (lambda: fa.fine_tuning(WORLD, step=2, steps=[5]), "step is 2: gradient descent diverges here with steps of 0.343146"),
        (lambda: fa.fine_tuning(WORLD, step=0), "step is 0"),
        (lambda: fa.fine_tuning(WORLD, steps=[0.5]), "whole numbers"),
        (lambda: fa.fine_tuning(WORLD, flow=True, times=[-1]), "times of at least 0"),
        (lambda: fa.fine_tuning(WORLD, flow=True, step=1), "flow=True takes times"),
        (lambda: fa.fine_tuning(WORLD, times=[1]), "pass flow=True"),
        (lambda: fa.fine_tuning(fa.Population(1, 1, 2), "local"), "norm"),
        (lambda: fa.one_step(WORLD, step=-1), "step is -1"),
    ],
)  # fmt: skip
def test_bad_values(call, says):
    with pytest.raises(fa.InvalidInput, match=says):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: fa.predict(AR1, ["maml"], clients=10),
            "maml: .* only for uncorrelated features .*leave",
        ),
        (
            lambda: fa.predict(AR1, ["pfedme"], clients=10, ridge=0.3),
            "pfedme: .* only at the best ridge .*rtfa",
        ),
        (
            lambda: fa.predict(
                fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1), ["pfedme"], clients=10
            ),
            "pfedme: .*without a preferred direction: use rtfa",
        ),
        (
            lambda: fa.predict(fa.Population(1, 0.5, 20), ["fedavg"], clients=10),
            "fedavg: .*fewer than the unknowns.* give norm",
        ),
        (
            lambda: fa.predict([WORLD, AR1, fa.Population(1, 1, 2, spectrum=TWO)], ["fedavg"]),
            "same directions",
        ),
        (lambda: fa.predict([WORLD] * 3, ["maml"]), "maml: .*clients that differ: use"),
        (lambda: fa.fine_tuning(AR1, clients=10), "only for uncorrelated features"),
        (
            lambda: fa.fine_tuning(AR1, "pfedme", clients=10, member=False),
            "this shared model has a formula only for uncorrelated features",
        ),
        (
            lambda: fa.predict(
                [
                    fa.Population(1, 1, 0.2, spectrum=fa.spectra.atoms([0, 1], [0.5, 0.5])),
                    fa.Population(1, 1, 0.2, spectrum=fa.spectra.atoms([1, 0], [0.5, 0.5])),
                ],
                ["fedavg"],
            ),
            "singular along different directions",
        ),
        (
            lambda: fa.predict(
                [
                    fa.Population(1, 1, 0.2, spectrum=fa.spectra.atoms([0, 1], [0.5, 0.5])),
                    fa.Population(1, 1, 0.2, spectrum=fa.spectra.atoms([1, 0], [0.5, 0.5])),
                ],
                ["pfedme"],
            ),
            "singular along different directions",
        ),
        (
            lambda: fa.predict(
                [fa.Population(1, 1, 2), fa.Population(1, 0, 2), fa.Population(1, 0, 2)], ["pfedme"]
            ),
            "noise and radius above 0",
        ),
    ],
)
def test_what_no_formula_covers_is_refused_with_an_offer(call, says):
    with pytest.raises(fa.NoFormula, match=says):
        call()


def test_by_default_what_has_no_formula_is_left_out_with_a_word():
    table = fa.predict(AR1, clients=10)
    assert "maml" not in table
    assert any(note.startswith("Left out maml") for note in table.notes)


def test_clients_must_agree_on_the_shared_optimum():
    far, near = fa.Population(1, 0.5, 20, norm=2), fa.Population(1, 0.5, 20, norm=3)
    with pytest.raises(fa.InvalidInput, match="differs between clients"):
        fa.predict([far, near], ["fedavg"])


def test_unknown_attribute_lists_what_there_is():
    with pytest.raises(AttributeError, match=r"it has .*predict"):
        fa.predickt  # noqa: B018


def test_unknown_algorithm_in_a_table_names_the_nearest():
    with pytest.raises(KeyError, match="did you mean rtfa"):
        fa.predict(WORLD)["rtfo"]


HUGE = 10**400  # a whole number that no float holds


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Meta(0.1, "exat"), "unknown hessian 'exat': did you mean exact"),
        (lambda: Meta(0.1, ["exact"]), r"unknown hessian \['exact'\]"),
        (lambda: Meta(np.nan), "local_step is nan: it must be a finite number of at least 0"),
        (lambda: Meta([0.1]), r"step is \[0.1\]: it must be a finite"),
        (lambda: Meta("0.1"), "step is '0.1': it must be a finite"),
        (lambda: Descend(-1.0), "step is -1.0: it must be a finite number of at least 0"),
        (lambda: Descend(HUGE), "step is 1000"),
        (lambda: Descend({}), "step is {}"),
        (lambda: Descend(0.1, 0.5), "steps is 0.5: it must be a whole number of at least 0"),
        (lambda: Descend(0.1, -1), "steps is -1"),
        (lambda: Descend(0.1, HUGE), r"steps is 1000.*at most 9007199254740992"),
        (lambda: Flow(-1), "time is -1: it must be a number of at least 0"),
        (lambda: Flow(HUGE), "time is 1000"),
        (lambda: Flow(None), "time is None"),
        (lambda: Ridge("much"), "ridge is 'much': it must be a number or an array of numbers"),
        (lambda: Ridge([]), r"ridge is \[\]: it must be a number"),
        (lambda: Ridge([[1], [1, 2]]), r"ridge is \[\[1\], \[1, 2\]\]"),
        (lambda: Ridge(np.nan), "ridge is not a number"),
        (lambda: fa.Algorithm(["a"], Average(), Keep()), r"name is \['a'\]: it must be text"),
    ],
)
def test_a_stage_refuses_numbers_that_make_no_sense(make, says):
    with pytest.raises(fa.InvalidInput, match=says):
        make()


def test_a_stage_holds_plain_numbers():
    assert Descend(np.float32(0.5), 3.0) == Descend(0.5, 3)
    assert Meta(1).local_step == 1.0
    assert Ridge([1, 2]).ridge.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("field", "call"),
    {
        "radius": lambda: fa.Population(HUGE, 1, 2),
        "flips": lambda: fa.ClassPopulation(1, 1, 2, flips=HUGE),
        "shift_weights": lambda: fa.Population(1, 1, 2, shift_weights=[HUGE]),
        "ridge": lambda: fa.predict(fa.Population(1, 1, 2), ridge=HUGE),
        "clients": lambda: fa.predict(fa.Population(1, 1, 2), clients=HUGE),
        "maml_step": lambda: fa.predict(fa.Population(1, 1, 2), maml_step=HUGE),
        "weights": lambda: fa.predict([fa.Population(1, 1, 2)], weights=[HUGE]),
        "vary": lambda: fa.compare(
            "ftfa", "fedavg", fa.Population(1, 1, 2), vary={"noise": [0, HUGE]}
        ),
        "steps": lambda: fa.fine_tuning(fa.Population(1, 1, 2), step=0.1, steps=[HUGE]),
        "step": lambda: fa.one_step(fa.Population(1, 1, 2), HUGE),
        "times": lambda: fa.fine_tuning(fa.ClassPopulation(1, 1, 2), flow=True, times=[HUGE]),
        "alpha": lambda: fa.interpolation(fa.ClassPopulation(1, 1, 2), alpha=HUGE),
        "values": lambda: fa.spectra.eigenvalues([1, HUGE]),
        "correlation": lambda: fa.spectra.ar1(HUGE),
        "noise": lambda: fa.datasets.synthetic(clients=2, dimension=2, aspect=1, noise=HUGE),
        "split": lambda: fa.datasets.synthetic(
            clients=2, dimension=2, aspect=1, split=(HUGE, 0, 0)
        ),
        "gpus": lambda: Ray(gpus=HUGE),
    }.items(),
)
def test_a_number_too_large_for_a_float_is_named(field, call):
    with pytest.raises(fa.InvalidInput, match=rf"^{field}\b"):
        call()


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("algorithm", lambda: fa.predict(fa.Population(1, 1, 2), [["ftfa"]])),
        ("algorithm", lambda: fa.predict(fa.ClassPopulation(1, 1, 2), [["ftfa"]])),
        ("data set", lambda: fa.datasets.load(["digits"])),
        ("target", lambda: fa.reproduce(["figures"])),
        ("protocol", lambda: find_protocol(["text"])),
        ("client", lambda: fa.datasets.synthetic(clients=2, dimension=2, aspect=1).rows(["0"])),
    ],
)
def test_a_list_in_the_place_of_a_name_is_unknown(kind, call):
    with pytest.raises(fa.InvalidInput, match=rf"^unknown {kind} \["):
        call()


def test_a_rate_too_large_for_a_float_is_no_rate():
    assert not is_rate(HUGE)
    with pytest.raises(fa.InvalidInput, match=r"^server_step is 1000"):
        Settings(server_step=HUGE)
