"""Advice through a federation is the advice that one machine gives from the same summaries."""

import json
import logging
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from flwr.app import Array, Context, RecordDict

import fedasym as fa
from fedasym import cli
from fedasym.advisor import advise_summaries
from fedasym.advisor.data import read_classes, read_clients
from fedasym.advisor.federated import (
    add_statistics,
    measure_client,
    play_class_federation,
    play_federation,
    split_budget,
)
from fedasym.advisor.statistics import Summary
from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.deploy import flower
from fedasym.deploy.flower import advice, advise_nodes
from fedasym.deploy.flower.advice import Advisor, solve_least_squares
from fedasym.deploy.flower.messages import NodeFault
from fedasym.deploy.flower.policy import load_clients, select_clients

from ..training.clients import federation
from .flower_table import Table, table


def regression(clients: int, samples: int, d: int, seed: int = 0) -> fa.Federation:
    """Clients in the order of their hashes, which is the server's; features of very different
    lengths, one always 0.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((clients, samples, d)) * np.logspace(0, 3, d)
    X[:, :, -1] = 0
    shared, own = rng.standard_normal(d), rng.standard_normal((clients, d))
    theta = (shared + 0.5 * own) / np.logspace(0, 3, d)
    y = np.einsum("ijk,ik->ij", X, theta) + 0.3 * rng.standard_normal((clients, samples))
    names = np.repeat([f"c{each}" for each in range(clients)], samples)
    whole = fa.Federation.from_arrays(
        X.reshape(-1, d), y.ravel(), names, split=np.zeros(names.size, int)
    )
    return select_clients(whole, [whole.clients[place] for place in np.argsort(whole.identities)])


def seated(whole: fa.Federation, folder, nodes: int = 3, **config) -> Table:
    files = [
        select_clients(whole, whole.clients[k::nodes]).save(folder / f"part{k}.safetensors")
        for k in range(nodes)
    ]
    return table(folder, "advise", files, min_nodes=nodes, **config)


def asked(grid: Table) -> list[Summary]:
    """What the nodes' clients sent, which is all that advice rests on."""
    advisor = Advisor(grid, grid.config)
    advisor.meet()
    return advisor.summaries()


def same_summaries(ours: list[Summary], theirs: list[Summary], rel: float = 1e-6) -> None:
    """The same numbers of the same clients, which go by their hashes here and by their names
    there.
    """
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for each in fields(Summary):
            if each.name != "name":
                value = getattr(other, each.name)
                scale = np.abs(value).max() if np.size(value) else 1.0
                np.testing.assert_allclose(
                    getattr(one, each.name), value, rtol=rel, atol=rel * scale, err_msg=each.name
                )


@pytest.mark.parametrize(
    ("clients", "samples", "d"), [(12, 8, 6), (8, 3, 12)], ids=["models", "scarce"]
)
def test_the_summaries_are_those_of_one_machine(clients, samples, d, tmp_path):
    whole = regression(clients, samples, d)
    same_summaries(asked(seated(whole, tmp_path)), play_federation(read_clients(whole)))


def test_the_advice_is_that_of_one_machine(tmp_path):
    whole = regression(12, 8, 6)
    expected = advise_summaries(play_federation(read_clients(whole)))
    seated(whole, tmp_path, advice_path=str(tmp_path / "advice.json")).play()
    advice = json.loads((tmp_path / "advice.json").read_text())
    assert advice["recommended"] == expected.recommended
    same_numbers(advice, json.loads(expected.to_json()))


def same_numbers(ours: object, theirs: object) -> None:
    """The same JSON to rounding, names of clients apart."""
    if isinstance(theirs, dict):
        for name in theirs:
            same_numbers(ours[name], theirs[name])
    elif isinstance(theirs, list):
        for one, other in zip(ours, theirs, strict=True):
            same_numbers(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_no_sample_and_no_name_is_sent(tmp_path):
    whole = regression(12, 8, 6)
    grid = seated(whole, tmp_path)
    asked(grid)
    known = {value for row in [*whole.features, whole.labels.ravel()] for value in row.tolist()} - {
        0.0
    }
    for _, reply in grid.passed:
        for record in reply.content.array_records.values():
            for array in record.values():
                assert not known & set(array.numpy().ravel().tolist())
        assert not set(whole.clients) & set(str(reply.content).replace("'", " ").split())
    last = grid.passed[-1][1].content["arrays"]
    assert (
        sum(array.numpy().size for array in last.values()) <= 3 * 5 * 4
    )  # three numbers per axis, five axes, four clients


@pytest.fixture
def quick(monkeypatch):
    """In place of advice, which takes seconds, the summaries that it would rest on."""
    monkeypatch.setattr(advice, "advise", lambda summaries: summaries)


def test_a_node_that_is_lost_or_breaks_the_rules_is_left_out_and_all_is_asked_again(
    tmp_path, caplog, quick
):
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
        sent = Advisor(grid, grid.config).advise()
    assert (
        "Node 12 is left out: its gradients has NaN or infinity in 40 of 40 places" in caplog.text
    )
    rest = select_clients(
        whole, [name for name in whole.clients if name not in whole.clients[1::3]]
    )
    assert len(sent) == 10
    same_summaries(sent, play_federation(read_clients(rest)))


def test_too_few_clients_are_refused(tmp_path):
    grid = seated(regression(3, 8, 5), tmp_path)
    with pytest.raises(
        InvalidInput, match="there are 3 clients: how clients differ takes at least 4"
    ):
        Advisor(grid, grid.config).advise()


@pytest.mark.parametrize("classes", [2, 3])
def test_summaries_of_classes_are_those_of_one_machine(classes, tmp_path):
    whole = federation(sizes=((9, 2, 2),) * 7, classes=classes)
    order = [whole.clients[place] for place in np.argsort(whole.identities)]
    sent = asked(seated(whole, tmp_path))
    expected = play_class_federation(read_classes(select_clients(whole, order)))
    for one, other in zip(sent, expected, strict=True):
        same_summaries([one.squares], [other.squares])
        for each in ("single", "expected", "signal", "total", "counts", "right", "tested"):
            np.testing.assert_allclose(
                getattr(one, each), getattr(other, each), rtol=1e-6, atol=1e-7, err_msg=each
            )


def test_with_an_intercept_each_client_has_its_own_level(tmp_path):
    whole = regression(12, 8, 6)
    sent = asked(seated(whole, tmp_path, intercept=True))
    same_summaries(sent, play_federation(read_clients(whole).level()))


def test_advice_waits_for_healthy_nodes_and_says_what_it_is_about(tmp_path, caplog, quick):
    grid = seated(regression(8, 3, 12), tmp_path, timeout=30.0, data_name="wards")
    late = grid.nodes.pop(13)
    grid.nodes[14] = {"data-path": str(tmp_path / "nowhere.csv")}

    def spoil(node, reply):
        if node == 14:
            grid.nodes[13] = late
        return reply

    grid.spoil = spoil
    with caplog.at_level(logging.INFO, logger="flwr"):
        logging.getLogger("flwr").propagate = True
        assert len(Advisor(grid, grid.config).advise()) == 8
    assert (
        "Node 14 is left out: its data are not there, or cannot be read (code unreadable-file)"
        in caplog.text
    )
    assert "Advising on wards: 8 clients with 24 training samples on 3 nodes" in caplog.text


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

    found = solve_least_squares(gradient, (X**2).sum((0, 1)), problems=3)
    for each in range(3):
        np.testing.assert_allclose(
            found[each], np.linalg.lstsq(X[each], y[each], rcond=None)[0], rtol=1e-6
        )
    assert len(asked) < 30


def told(*args):
    """A command in this process: its exit code."""
    cli.import_commands(args)
    try:
        return cli.run(lambda: cli.app(args, exit_on_error=False, print_error=False))
    except SystemExit as ended:
        return ended.code


def test_the_command_hands_the_columns_to_the_federation(monkeypatch):
    asked = []
    monkeypatch.setattr(
        flower, "advise_nodes", lambda superlink, config: asked.append((superlink, config))
    )
    assert told("advise", "ours", "--federated", "--label", "score", "--task", "regression") == 0
    assert asked == [("ours", {"label": "score", "client": "client", "task": "regression"})]


@pytest.mark.parametrize("flag", [["--json"], ["--confirm"], ["--report", "page.html"]])
def test_what_a_log_cannot_give_is_refused(flag, capsys):
    assert told("advise", "ours", "--federated", *flag) != 0
    assert f"{flag[0]} is given with --federated" in capsys.readouterr().err


def sum_statistics(whole, bounds):
    """The sums of all clients, without noise; also of features that are always 0."""
    data = replace(read_clients(whole), live=np.ones(whole.dimension, bool))
    measured = [measure_client(X, y) for X, y in data]
    return add_statistics(measured, [place % 5 for place in range(len(measured))], bounds)


def test_statistics_with_noise_are_those_of_one_machine_and_are_told_once(tmp_path, monkeypatch):
    """Without their noise; counts and powers stay on the nodes, and so does everything else."""
    whole = regression(60, 8, 6)
    grid = seated(whole, tmp_path, statistics_epsilon=50.0, intercept=False)
    monkeypatch.setattr(advice, "draw_secret_noise", np.zeros)
    advisor = Advisor(grid, grid.config)
    advisor.meet()
    found = advisor.noised_sums(advisor.budget)
    clean = sum_statistics(whole, found.bounds)
    np.testing.assert_allclose(found.sums, clean, rtol=1e-6, atol=1e-9)
    assert found.clients.tolist() == [12.0] * 5
    assert found.noises == 3
    for message, reply in grid.passed:
        kind = message.metadata.message_type.rpartition(".")[2]
        assert kind in ("introduce", "tell")
        if kind == "introduce":
            told = next(iter(reply.content.config_records.values()))
            assert set(told["samples"]) == {1}
    context = Context(1, 11, dict(grid.nodes[11]), RecordDict(), dict(grid.config))
    again = grid.passed[-1][0]
    assert not grid.client(again, context).has_error()
    load = partial(load_clients, context.node_config, context.run_config)
    with pytest.raises(NodeFault, match="the sums of this run have been told"):
        advice.send_summaries(again, context, lambda _, asked: load(asked))


def test_every_node_adds_the_noise_that_keeps_the_budget(tmp_path):
    whole = regression(90, 8, 6)
    grid = seated(whole, tmp_path, statistics_epsilon=50.0, intercept=False)
    advisor = Advisor(grid, grid.config)
    advisor.meet()
    found = advisor.noised_sums(advisor.budget)
    off = found.sums - sum_statistics(whole, found.bounds)
    deviation = split_budget(advisor.budget)[1] * 3**0.5
    assert off.std() == pytest.approx(deviation, rel=3.5 / np.sqrt(2 * off.size))


def test_advice_with_noise_is_logged_with_what_it_spent_and_tables_are_refused(tmp_path, caplog):
    path = tmp_path / "advice.json"
    whole = regression(300, 8, 6)
    seated(whole, tmp_path, statistics_epsilon=20.0, advice_path=str(path)).play()
    told = json.loads(path.read_text())
    assert told["statistics"] == {"epsilon": 20.0, "delta": 1e-6, "noises": 3}
    assert "added by each of 3 nodes" in caplog.text
    with pytest.raises(InvalidInput, match=r"epsilon is 4\.0, which is for training"):
        flower.write_app("advise", tmp_path / "other", {"epsilon": 4.0})


def test_an_owner_s_list_of_algorithms_has_advice_too(tmp_path):
    grid = seated(regression(12, 8, 6), tmp_path, timeout=0.1)
    for node in grid.nodes.values():
        node["allow-algorithms"] = "rtfa"
    with pytest.raises(InvalidInput, match="code not-allowed"):
        Advisor(grid, grid.config).meet()
    for node in grid.nodes.values():
        node["allow-algorithms"] = "rtfa,advise"
    Advisor(grid, grid.config).meet()


def changed(reply, **told):
    """A reply with other words (functions of the ones that were sent), or other arrays."""
    words = next(iter(reply.content.config_records.values()), {})
    for name, change in told.items():
        arrays = reply.content.array_records["arrays"]
        if name in arrays:
            arrays[name] = Array(change(arrays[name].numpy()))
        elif name in words:
            words[name] = change(words[name])
        elif name == "numbers":  # of the first client
            key = next(iter(words))
            words[key] = change(words[key])
        else:
            key = next(key for key in arrays if key.endswith(f".{name}"))
            arrays[key] = Array(change(arrays[key].numpy()))
    return reply


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"clients": lambda known: known[:1] * len(known)}, "its clients must be hashes"),
        ({"clients": lambda known: ["ann", *known[1:]]}, "its clients must be hashes"),
        ({"samples": lambda sizes: [0, *sizes[1:]]}, "its samples are"),
        ({"samples": lambda sizes: sizes[1:]}, "its samples are"),
        ({"power": lambda power: -power}, "sums of squares must be one number of at least 0"),
        ({"power": lambda power: power[None]}, "sums of squares must be one number of at least 0"),
        ({"classes": lambda _: -1}, "its classes are -1"),
        ({"power": lambda power: power[1:]}, "it has 5 features and 0 classes, and the others 6"),
        (
            {"clients": lambda known: known[1:], "samples": lambda n: n[1:], "again": True},
            "another",
        ),
    ],
)
def test_a_node_that_introduces_itself_badly_is_left_out(lie, says, tmp_path):
    grid = seated(regression(9, 8, 6), tmp_path, timeout=0.1)
    lie = dict(lie)
    if lie.pop("again", False):  # as another node does
        lie, says = {}, "is on another node too"
        grid.nodes[12] = dict(grid.nodes[11])
    grid.spoil = lambda node, reply: changed(reply, **lie) if node == 12 else reply
    with pytest.raises(InvalidInput, match=f"node 12: .*{says}"):
        Advisor(grid, grid.config).meet()


@pytest.mark.parametrize(
    ("classes", "lie", "says"),
    [
        (0, {"power": np.negative}, "has squares below 0"),
        (0, {"numbers": lambda numbers: [*numbers[1:], float("nan")]}, "has the numbers"),
        (3, {"power": lambda power: np.ones((50, 2))}, "has axes of shape"),
        (3, {"raw": lambda raw: raw - 1e9}, "has squares below 0"),
        (3, {"numbers": lambda numbers: numbers[1:]}, "has the numbers"),
        (3, {"counts": lambda counts: counts + 1}, "has counts or shares that cannot be"),
    ],
)
def test_summaries_that_cannot_be_are_left_out(classes, lie, says, tmp_path, caplog, quick):
    whole = (
        regression(12, 8, 5)
        if classes == 0
        else federation(sizes=((9, 2, 2),) * 15, classes=classes)
    )
    grid = seated(whole, tmp_path)

    def spoil(node, reply):
        told = reply.metadata.message_type.endswith("tell")
        return changed(reply, **lie) if told and node == 12 else reply

    grid.spoil = spoil
    with caplog.at_level(logging.INFO, logger="flwr"):
        logging.getLogger("flwr").propagate = True
        left = len(Advisor(grid, grid.config).advise())
    assert "Node 12 is left out: client " in caplog.text
    assert says in caplog.text
    assert left == len(whole.clients) - len(whole.clients[1::3])


def test_advice_needs_features_and_statistics_with_noise_numbers(tmp_path):
    whole = regression(9, 8, 6)
    grid = seated(replace(whole, features=0 * whole.features), tmp_path)
    advisor = Advisor(grid, grid.config)
    advisor.meet()
    with pytest.raises(InvalidInput, match="all features are 0 on every node"):
        advisor.summaries()
    classes = federation(sizes=((9, 2, 2),) * 7, classes=3)
    (tmp_path / "classes").mkdir()
    grid = seated(classes, tmp_path / "classes", statistics_epsilon=50.0)
    advisor = Advisor(grid, grid.config)
    advisor.meet()
    with pytest.raises(InvalidInput, match="statistics-epsilon is for labels that are numbers"):
        advisor.noised_sums(advisor.budget)
