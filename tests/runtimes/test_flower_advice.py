"""Advice through a federation is the advice that one machine gives from the same summaries."""

import json
import logging

import numpy as np
import pytest
from flwr.app import Array

import fedasym as fa
from fedasym import cli
from fedasym.advisor.advise import from_summaries
from fedasym.advisor.federated import as_sent
from fedasym.advisor.intake import taken_in
from fedasym.errors import InvalidInput, MissingPackage
from fedasym.runtimes.flower import running
from fedasym.runtimes.flower.advising import Advisor
from fedasym.runtimes.flower.holdings import of_clients
from fedasym.runtimes.flower.running import advise_nodes
from fedasym.runtimes.flower.solving import least_squares

from ..training.clients import federation
from .flower_table import Table, table


def regression(clients: int, samples: int, d: int, seed: int = 0) -> fa.Federation:
    """Clients in the order of their hashes, which is the server's; features of very different lengths, one always 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((clients, samples, d)) * np.logspace(0, 3, d)
    X[:, :, -1] = 0
    shared, own = rng.standard_normal(d), rng.standard_normal((clients, d))
    theta = (shared + 0.5 * own) / np.logspace(0, 3, d)
    y = np.einsum("ijk,ik->ij", X, theta) + 0.3 * rng.standard_normal((clients, samples))
    names = np.repeat([f"c{each}" for each in range(clients)], samples)
    whole = fa.Federation.from_arrays(X.reshape(-1, d), y.ravel(), names, split=np.zeros(names.size, int))
    return of_clients(whole, [whole.clients[place] for place in np.argsort(whole.identities)])


def seated(whole: fa.Federation, folder, nodes: int = 3, **config) -> Table:
    files = [of_clients(whole, whole.clients[k::nodes]).save(folder / f"part{k}.safetensors") for k in range(nodes)]
    return table(folder, "advise", files, min_nodes=nodes, **config)


@pytest.mark.parametrize(("clients", "samples", "d"), [(12, 8, 6), (8, 3, 12)], ids=["models", "scarce"])
def test_the_advice_is_that_of_one_machine(clients, samples, d, tmp_path):
    whole = regression(clients, samples, d)
    expected = from_summaries(as_sent(taken_in(whole)))
    grid = seated(whole, tmp_path, advice_path=str(tmp_path / "advice.json"))
    advice = Advisor(grid, grid.config).advise()
    assert advice.recommended == expected.recommended
    for name in ("noise", "radius", "norm"):
        ours, theirs = (getattr(each.population, name).value for each in (advice, expected))
        assert ours == pytest.approx(theirs, rel=1e-6)
    for name, row in expected.predictions.items():
        assert advice.predictions[name].trusted == pytest.approx(row.trusted, rel=1e-5)
    grid.play()
    assert json.loads((tmp_path / "advice.json").read_text())["recommended"] == expected.recommended


def test_no_sample_and_no_name_is_sent(tmp_path):
    whole = regression(12, 8, 6)
    grid = seated(whole, tmp_path)
    Advisor(grid, grid.config).advise()
    known = {value for row in [*whole.features, whole.labels.ravel()] for value in row.tolist()} - {0.0}
    for _, reply in grid.sent:
        for record in reply.content.array_records.values():
            for array in record.values():
                assert not known & set(array.numpy().ravel().tolist())
        assert not set(whole.clients) & set(str(reply.content).replace("'", " ").split())
    last = grid.sent[-1][1].content["arrays"]
    assert sum(array.numpy().size for array in last.values()) <= 3 * 5 * 4  # three numbers per axis, five axes, four clients


def test_a_node_that_is_lost_or_breaks_the_rules_is_left_out_and_all_is_asked_again(tmp_path, caplog):
    whole = regression(15, 8, 5)
    grid = seated(whole, tmp_path)

    def spoil(node, reply):
        told = reply.content.array_records.get("arrays", {})
        if node == 12 and "gradients" in told:
            told["gradients"] = Array(np.full((10, 4), np.nan))
        return reply

    grid.spoil = spoil
    with caplog.at_level(logging.INFO, logger="flwr"):
        logging.getLogger("flwr").propagate = True
        advice = Advisor(grid, grid.config).advise()
    assert "Node 12 is left out: its gradients has NaN or infinity in 40 of 40 places" in caplog.text
    rest = of_clients(whole, [name for name in whole.clients if name not in whole.clients[1::3]])
    expected = from_summaries(as_sent(taken_in(rest)))
    assert advice.population.clients == 10
    assert advice.population.noise.value == pytest.approx(expected.population.noise.value, rel=1e-6)


def test_too_few_clients_are_refused(tmp_path):
    grid = seated(regression(3, 8, 5), tmp_path)
    with pytest.raises(InvalidInput, match="there are 3 clients: how clients differ takes at least 4"):
        Advisor(grid, grid.config).advise()


def test_classes_are_refused_where_they_are(tmp_path, caplog):
    grid = seated(federation(sizes=((6, 2, 2),) * 6), tmp_path)
    logging.getLogger("flwr").propagate = True
    with pytest.raises(InvalidInput, match="there are 0 clients"), caplog.at_level(logging.INFO, logger="flwr"):
        Advisor(grid, grid.config).advise()
    assert "Node 11 is left out: it failed" in caplog.text
    assert "the labels are classes, and advice through a federation is for numbers" in caplog.text


def test_without_flower_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingPackage, match=r"pip install 'fedasym\[flower\]'"):
        advise_nodes()


def test_least_squares_from_gradients_alone():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((3, 40, 9)) * np.logspace(-3, 3, 9), rng.standard_normal((3, 40))
    asked = []

    def gradient(w):
        asked.append(w)
        return np.einsum("pik,pi->pk", X, np.einsum("pik,pk->pi", X, w) - y)

    found = least_squares(gradient, (X**2).sum((0, 1)), problems=3)
    for each in range(3):
        np.testing.assert_allclose(found[each], np.linalg.lstsq(X[each], y[each], rcond=None)[0], rtol=1e-6)
    assert len(asked) < 30


def told(*args):
    """A command in this process: its exit code."""
    cli.load(args)
    try:
        return cli.run(lambda: cli.app(args, exit_on_error=False, print_error=False))
    except SystemExit as ended:
        return ended.code


def test_the_command_hands_the_columns_to_the_federation(monkeypatch):
    asked = []
    monkeypatch.setattr(running, "advise_nodes", lambda superlink, config: asked.append((superlink, config)))
    assert told("advise", "ours", "--federated", "--label", "score", "--task", "regression") == 0
    assert asked == [("ours", {"label": "score", "client": "client", "task": "regression"})]


@pytest.mark.parametrize("flag", [["--json"], ["--confirm"], ["--report", "page.html"]])
def test_what_a_log_cannot_give_is_refused(flag, capsys):
    assert told("advise", "ours", "--federated", *flag) != 0
    assert f"{flag[0]} is given with --federated" in capsys.readouterr().err
