"""Experiments on values: the intercept and the steps come from the data, and what did not converge
is said.
"""

import numpy as np
import pytest

import fedasym as fa
from fedasym.experiments.fields import fingerprint, record_data
from fedasym.show.foresight import read_foresights
from fedasym.training.convergence import curvature, stable_step

FEW = {"rounds": 6, "evaluate_every": 6, "local_steps": 4, "personal_epochs": 2}


def people(scale=1.0, **more):
    rng = np.random.default_rng(5)
    days = rng.uniform(0, 9, 120)
    level = np.repeat(rng.standard_normal(6), 20)
    reaction = 250 + 10 * days + 30 * level + 5 * rng.standard_normal(120)
    split = np.tile([0] * 12 + [1] * 4 + [2] * 4, 6)
    names = np.repeat(list("abcdef"), 20)
    features = np.column_stack([scale * days, rng.standard_normal(120)])
    return fa.Federation.from_arrays(
        features, reaction, names, split=split, names=["days", "dose"], **more
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "run"
    return fa.sweep(["local", "fedavg"], people(), seeds=1, into=folder, **FEW), folder


def test_the_header_says_intercept_and_the_folder_has_all_that_was_put_in(swept):
    results, folder = swept
    told = results.experiment.settings
    assert (told.protocol, told.intercept, told.rules.name) == ("text", True, "text with intercept")
    assert "protocol text with intercept" in str(results).replace("\n", " ")
    assert told.server_step == stable_step(curvature(people(), True, 32), 0.1)
    assert fa.Experiment.from_toml(folder / "experiment.toml") == results.experiment
    again = fa.run(folder / "experiment.toml", people(), into=folder)
    assert again.trials.equals(
        results.trials
    )  # nothing is computed anew, and nothing is chosen anew


def test_grids_are_relative_to_the_stable_step(swept):
    results, _ = swept
    L = curvature(people(), True, 32)
    assert max(results.experiment.grid["fedavg"]["server_step"]) == pytest.approx(1.5 / L, rel=0.1)
    assert not results.tuning["diverged"].any()
    named = (
        fa.Experiment(name="mine", algorithms=["fedavg"], settings={"protocol": "text"})
        .settle_choices(people())
        .settings
    )
    assert (named.server_step, named.local_step, named.inner_step, named.rules.name) == (
        0.1,
        0.1,
        0.05,
        "text",
    )


def test_what_was_chosen_and_did_not_converge_is_named(swept, tmp_path):
    results, _ = swept
    judged = results.convergence("local")
    assert judged["excess"] > 0.01
    assert any(
        note.startswith("Not converged: local, whose training loss is") for note in results.notes
    )
    assert {"training_loss", "exact_loss", "excess", "shared_excess"} <= set(
        results.trials.columns
    ) & set(results.tuning.columns)
    assert fa.Results.load(results.save(tmp_path / "saved")).notes == results.notes
    with pytest.raises(fa.InvalidInput, match="none of its folders has both"):
        read_foresights(tmp_path)  # which set accuracies side by side
    assert "Not converged" in fa.report(results, tmp_path / "page.html").read_text()


def test_columns_out_of_scale_are_the_cause_of_divergence(tmp_path):
    told = {**FEW, "protocol": "text", "intercept": True}
    results = fa.sweep(
        "fedavg", people(1e5), grid={"server_step": [0.1, 1]}, seeds=0, into=tmp_path, **told
    )
    assert (
        "every configuration diverged: column 'days' has values around 5e+05: scale it, or drop it"
        in str(results).replace("\n", " ")
    )


def test_weights_that_all_share_make_other_data():
    plain, same, partly = people(), people(personal=[True, True]), people(personal=[True, False])
    assert fingerprint(plain) != fingerprint(partly)
    assert record_data(plain, ()).samples == fingerprint(plain)
    assert fingerprint(same) == fingerprint(plain)
