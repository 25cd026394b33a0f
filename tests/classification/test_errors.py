"""With classes too, bad input and missing formulas get one sentence that says what to do."""

import numpy as np
import pytest

import fedasym as fa

WORLD = fa.ClassPopulation(1.1, 1.4, 2.3)
FIVE = fa.ClassPopulation(1.1, 1.4, 2.3, classes=5)
UNEVEN = fa.ClassPopulation(1.5, 1.5, 2, spectrum=fa.spectra.ar1(0.5))
TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
STAGES = fa.algorithms


def pair(server, client):
    return fa.Algorithm("pair", server, client)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fa.ClassPopulation(1, 1, 0), "aspect is 0: .* above 0"),
        (lambda: fa.ClassPopulation(1, -1, 2), "centre is -1: .*at least 0"),
        (lambda: fa.ClassPopulation(np.nan, 1, 2), "radius is nan: .*finite"),
        (lambda: fa.ClassPopulation(1, 1, 2, flips=0.6), "flips is 0.6: .*between 0 and 0.5"),
        (lambda: fa.ClassPopulation([], 1, 2), "radius is empty"),
        (lambda: fa.ClassPopulation("a", 1, 2), "radius is 'a': it must be a number"),
        (lambda: fa.ClassPopulation(1, 1, 2, classes=1), "classes is 1: it must be a whole number of at least 2"),
        (lambda: fa.ClassPopulation(1, 1, 2, classes=2.5), "classes is 2.5"),
        (lambda: fa.ClassPopulation(1, 1, 2, classes=True), "classes is True"),
        (lambda: fa.ClassPopulation(1, 1, 2, classes="two"), "classes is 'two'"),
        (lambda: fa.ClassPopulation([1, 2], [1, 2, 3], 2), "do not broadcast"),
        (lambda: fa.ClassPopulation(1, 1, 2, spectrum=[1, 2]), "spectrum is .*fedasym.spectra"),
        (lambda: fa.ClassPopulation(1, 1, 2, spectrum=TWO, centre_weights=[0.5, 0.4]), "centre_weights sum to 0.9"),
        (lambda: fa.ClassPopulation(1, 1, 2, spectrum=TWO, shift_weights=[1.0]), "shift_weights has shape .* 2 entries"),
        (lambda: fa.ClassPopulation(1, 1, 2, spectrum=TWO, shift_power=1, shift_weights=[0.5, 0.5]), "both given"),
        (lambda: fa.ClassPopulation(1, 1, 2, spectrum=fa.spectra.atoms([0, 1], [0.5, 0.5]), centre_power=-1), "has zeros"),
        (lambda: fa.predict(WORLD, ["rtfq"]), "did you mean rtfa"),
        (lambda: fa.predict(WORLD, []), "algorithms is empty"),
        (lambda: fa.predict(WORLD, ["rtfa", "rtfa"]), "twice"),
        (lambda: fa.predict(WORLD, ridge=-1), "ridge is -1: .*at least 0"),
        (lambda: fa.predict(WORLD, ridge="much"), "ridge is 'much'"),
        (lambda: fa.predict(WORLD, ridge=np.nan), "ridge is nan"),
        (lambda: fa.predict(fa.ClassPopulation([1, 2], 1, 2), ridge=[1, 2, 3]), "do not broadcast"),
        (lambda: fa.predict(WORLD, clients=0.5), "clients is 0.5"),
        (lambda: fa.predict(WORLD, weights="uniform"), "weights are for a list"),
        (lambda: fa.predict(WORLD, ["rtfa"], clients=10, ridge=0), "ridge is 0: .*ask for ftfa"),
        (lambda: fa.fine_tuning(WORLD, step=2, steps=[1]), "step is 2: descent diverges with steps of 1.*give a smaller"),
        (lambda: fa.fine_tuning(WORLD, step=0, steps=[1]), "step is 0"),
        (lambda: fa.fine_tuning(WORLD, times=[-1]), r"times is \[-1\]"),
        (lambda: fa.fine_tuning(WORLD, times=[np.inf]), "to convergence, see ftfa"),
        (lambda: fa.fine_tuning(WORLD, steps=[0.5]), r"steps is \[0.5\]: .*whole"),
        (lambda: fa.fine_tuning(WORLD, steps=[1], times=[1]), "both given"),
        (lambda: fa.fine_tuning(WORLD, times=["soon"]), "times is"),
        (lambda: fa.fine_tuning(fa.ClassPopulation([1, 2], 1, 2), times=[1]).table(), "single world"),
        (lambda: fa.fine_tuning(FIVE, step=3, steps=[1]), "descent diverges"),
        (lambda: fa.predict(WORLD, [pair(STAGES.Average(), STAGES.Descend(2, 3))]), "descent diverges"),
        (lambda: fa.one_step(WORLD, -1), "step is -1"),
        (lambda: fa.one_step(WORLD, [1, 2]), "one finite number"),
        (lambda: fa.interpolation(WORLD, ridge=[1, 2]), "one number"),
        (lambda: fa.interpolation(WORLD, alpha=np.nan), "alpha is nan"),
        (lambda: fa.interpolation(fa.ClassPopulation(1, 1, [0.1, 2]), ridge=0), "both sides"),
        (lambda: fa.interpolation(fa.ClassPopulation([1, 2], 1, 2, classes=3)), "one world at a time"),
        (lambda: fa.interpolation(fa.Population(1, 1, 2)), "for a ClassPopulation"),
        (lambda: fa.separability(fa.Population(1, 1, 2)), "for a ClassPopulation"),
        (lambda: fa.optimal_loss(WORLD), "squared loss"),
        (lambda: fa.noise_threshold(WORLD), "squared loss"),
        (lambda: fa.compare("rtfa", "rtfa", WORLD, vary={"radius": (1, 2, 3)}), "two different ones"),
        (lambda: fa.compare("rtfa", "fedavg", WORLD, vary={"noise": (1, 2, 3)}), "unknown parameter in vary 'noise'"),
        (lambda: fa.compare("rtfa", "fedavg", WORLD, vary={"radius": (1, 2, 3)}, maml_step=1), "unknown option"),
        (lambda: fa.compare("rtfa", "fedavg", FIVE, vary={"radius": (1, 2, 30), "centre": (1, 2, 30)}), "at most 400"),
        (lambda: fa.simulate(fa.ClassPopulation([1, 2], 1, 2)), "plain numbers"),
        (lambda: fa.simulate(WORLD, dimension=1), "dimension is 1"),
        (lambda: fa.simulate(WORLD, dimension=3), "dimension is 3: with aspect 2.3"),
        (lambda: fa.simulate(WORLD, trials=0), "trials is 0"),
        (lambda: fa.simulate(WORLD, clients=[3, 4]), "clients is"),
        (lambda: fa.simulate(WORLD, ridge=[1, 2]), "one number"),
        (lambda: fa.simulate(WORLD, vary={"clients": [3, 4]}), "vary is .*for a Population"),
        (lambda: fa.simulate(WORLD, features="student"), "features is 'student'"),
        (lambda: fa.simulate(WORLD, algorithms=["bayes"]), "ceiling"),
        (lambda: fa.simulate(fa.ClassPopulation(1, 1, 2, spectrum=fa.spectra.power_law(1)), dimension=60), "fewer eigenvalues"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_in_one_sentence(call, says):
    with pytest.raises(fa.InvalidInput, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fa.ClassPopulation(1, 1, 2, flips=0.1, classes=5), "flips is 0.1 with 5 classes: .*give flips=0, classes=2"),
        (lambda: fa.ClassPopulation(1, 1, 2, classes=1000), "classes is 1000: .*up to 200; give fewer"),
        (lambda: fa.predict(FIVE, ["ftfa"]), "ftfa: .*convergence with 5 classes.*take rtfa, early stopping"),
        (lambda: fa.predict(FIVE, ["rtfa"], ridge=0), "convergence with 5 classes"),
        (lambda: fa.predict(FIVE, ["rtfa"], clients=10), "finitely many clients.*leave clients out"),
        (lambda: fa.predict(FIVE, ["bayes"]), "derived for two classes.*see the row truth"),
        (lambda: fa.separability(FIVE), "derived for two classes.*optimal_ridge"),
        (lambda: fa.interpolation(FIVE, ridge=0), "convergence"),
        (lambda: fa.interpolation(FIVE, ridge=1, alpha=0.5), "leave alpha out"),
        (lambda: fa.predict(WORLD, ["fedprox"]), "fedprox: no accuracy is derived.*fa.train"),
        (lambda: fa.predict(WORLD, ["one_step"], clients=10), "one_step: .*finitely many.*leave clients out"),
        (lambda: fa.predict(WORLD, ["rtfa"], clients=3), "rtfa: .*separable.*more clients"),
        (lambda: fa.predict(WORLD, [pair(STAGES.Moreau(), STAGES.Flow(1.0))]), "Moreau then Flow"),
        (lambda: fa.predict(UNEVEN, [pair(STAGES.Meta(), STAGES.Ridge())]), "MAML's shared model"),
        (lambda: fa.predict(FIVE, ["pfedme"]), "derived for two classes, not 5"),
        (lambda: fa.predict(WORLD, [pair(STAGES.Nothing(), STAGES.Flow(1.0))]), "Nothing then Flow; those covered are"),
        (lambda: fa.predict([WORLD, WORLD]), "not for a list: predict each"),
        (lambda: fa.fine_tuning(WORLD, clients=10), "early stopping with finitely many.*take rtfa"),
        (lambda: fa.simulate(FIVE, clients=10, algorithms=["rtfa"]), "finitely many clients"),
    ],
)  # fmt: skip
def test_what_is_not_derived_offers_what_works(call, says):
    with pytest.raises(fa.NoFormula, match=says):
        call()
