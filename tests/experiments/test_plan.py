"""The plan of an experiment: pieces of fixed composition, known by all that they depend on, and
files that cannot lie.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import polars as pl
import pytest

import fedasym as fa
from fedasym.algorithms import Descend, Meta
from fedasym.core.runtime import SEAL
from fedasym.experiments import plan
from fedasym.experiments.fields import (
    combinations,
    fingerprint,
    first_clients,
    lines_of,
    load_data,
    record_data,
)
from fedasym.experiments.pieces import Damaged, read_piece, write_piece
from fedasym.experiments.plan import key_of

from .small import PIECES, TOML, flipped, small

PARTS = ("train", "train", "validation", "test")


@pytest.fixture(scope="module")
def data():
    federation = fa.datasets.synthetic(
        task="classification", clients=4, dimension=3, classes=2, aspect=0.3
    )
    return record_data(federation, tuple(range(1, 12)))


def all_pieces(experiment):
    return [*plan.tuning(experiment), *plan.trials(experiment, plan.placeholder_choice(experiment))]


def test_the_papers_plan():
    experiment = fa.Experiment.paper("cifar100")
    tuning = plan.tuning(experiment)
    titles = [piece.title for piece in tuning]
    assert titles[0] == "tuning: local"
    assert titles[1] == "tuning: fedavg, ftfa, rtfa, server_step 0.0001"
    assert "tuning: fedavg, server_step 10" in titles
    assert len(tuning) == 1 + 6 + 5 + 5 + 3
    assert all(piece.seeds == (1,) and piece.settings["evaluate_every"] == 0 for piece in tuning)
    trials = plan.trials(experiment, plan.placeholder_choice(experiment))
    families = 5
    assert len(trials) == families * 11 + families * 11 + 3 * 5
    assert all(piece.settings["evaluate_every"] == 50 for piece in trials)


@pytest.mark.parametrize("pieces", ["fine", "coarse"])
def test_tuning_tries_every_configuration_once(pieces):
    experiment = fa.Experiment.paper("emnist").model_copy(update={"pieces": pieces})
    tried = {name: [] for name in experiment.algorithms}
    for piece in plan.tuning(experiment):
        for name, axes in piece.grid.items():
            tried[name] += combinations(axes)
    for name, axes in experiment.grid.items():
        assert sorted(map(str, tried[name])) == sorted(map(str, combinations(axes)))


def test_coarse_pieces_are_families_with_all_seeds_or_splits(tmp_path):
    experiment = small(tmp_path).model_copy(update={"pieces": "coarse"})
    stages = [
        (piece.stage, list(piece.grid), piece.seeds, piece.splits)
        for piece in all_pieces(experiment)
    ]
    assert stages == [
        ("tuning", ["local"], (1,), ()),
        ("tuning", ["fedavg", "ftfa"], (1,), ()),
        ("seeds", ["local"], (1, 2), ()),
        ("seeds", ["fedavg", "ftfa"], (1, 2), ()),
        ("splits", ["local"], (1,), (1, 2)),
        ("splits", ["fedavg", "ftfa"], (1,), (1, 2)),
        ("gains", ["ftfa"], (1,), ()),
    ]


def test_an_algorithm_with_one_configuration_is_not_tuned(tmp_path):
    experiment = small(tmp_path, TOML.replace("local_step = [0.01, 0.3]", "local_step = [0.3]"))
    assert plan.algorithms_to_tune(experiment) == ["fedavg", "ftfa"]
    assert plan.fixed_axes(experiment) == {"local": {"local_step": 0.3}}


def test_a_server_step_that_a_grid_leaves_out_is_that_of_the_settings(tmp_path):
    text = TOML.replace(
        "grid = { server_step = [0.1, 1], local_step = [0.01, 0.3] }",
        "grid = { fedavg = { server_step = [0.1, 1] }, ftfa = { local_step = [0.01, 0.3] } }",
    )
    tuning = plan.tuning(small(tmp_path, text))
    assert [list(piece.grid) for piece in tuning] == [["fedavg", "ftfa"], ["fedavg"]]
    assert tuning[0].grid["ftfa"] == {"server_step": (0.1,), "local_step": (0.01, 0.3)}


def test_a_single_batch_shares_the_trajectory_of_its_algorithm():
    experiment = fa.Experiment.paper("cifar100")
    chosen = {
        "ftfa": {"server_step": 0.001, "local_step": 0.1},
        "maml_hf": {"server_step": 0.01, "local_step": 1.0},
    }
    chosen["maml_hf"]["difference"] = 1e-5
    gains = [piece for piece in plan.trials(experiment, chosen) if piece.stage == "gains"]
    ftfa, maml = gains[0], gains[5]
    assert ftfa.grids() == {
        "ftfa": {
            "server_step": (0.001,),
            "local_step": (0.1,),
            "personal_epochs": (0, 1, 2, 5, 10),
        },
        "ftfa one batch": {"server_step": (0.001,)},
    }
    assert ftfa.algorithms()[1].personalise == Descend(0.1, 1)
    assert maml.grids()["maml_hf one batch"] == {"server_step": (0.01,), "difference": (1e-5,)}
    assert maml.algorithms()[1].server == Meta(1.0, "free")


def test_a_key_depends_on_all_that_makes_the_numbers_and_on_nothing_else(tmp_path, data):
    experiment = small(tmp_path)
    piece = plan.trials(experiment, plan.placeholder_choice(experiment))[0]
    key = piece.key(data)
    for name in ("renamed", "other"):
        again = experiment.model_copy(update={"name": name, "about": "something else"})
        assert plan.trials(again, plan.placeholder_choice(again))[0].key(data) == key
    changes = [
        replace(piece, seeds=(7,)),
        replace(piece, stage="splits"),
        replace(piece, splits=(1,)),
        replace(piece, splits=(1, 2)),
        replace(piece, grid={"local": {"local_step": (0.3,)}}),
        replace(piece, grid={**piece.grid, "local_ridge": {}}),
        *(replace(piece, settings=piece.settings | change) for change in (
            {"rounds": 5}, {"protocol": "code"}, {"intercept": True},
            {"precision": "float64"}, {"batch": 16}, {"inner_step": 0.1},
        )),
    ]  # fmt: skip
    keys = {key, *(each.key(data) for each in changes)}
    keys |= {piece.key(data._replace(samples="other")), piece.key(data._replace(split="other"))}
    assert len(keys) == len(changes) + 3
    assert (
        replace(piece, settings=piece.settings | {"intercept": False}).key(data) == key
    )  # as the protocol says anyway


def test_more_seeds_or_algorithms_keep_the_pieces_that_are_there(tmp_path, data):
    before = {piece.key(data) for piece in all_pieces(small(tmp_path))}
    assert len(before) == PIECES
    after = {
        piece.key(data)
        for piece in all_pieces(small(tmp_path, TOML.replace("seeds = 2", "seeds = 9")))
    }
    assert before < after
    more = TOML.replace('"ftfa"]\ngrid', '"ftfa", "maml_fo"]\ngrid')
    assert before < {piece.key(data) for piece in all_pieces(small(tmp_path, more))}


def test_the_fingerprint_sees_every_sample_and_split():
    federation = fa.datasets.synthetic(
        task="classification", clients=4, dimension=3, classes=2, aspect=0.3
    )
    changed = federation.features.copy()
    changed[5, 1] += 1e-6
    labels = federation.labels.copy()
    labels[3] = 1 - labels[3]
    others = [replace(federation, features=changed), replace(federation, labels=labels)]
    others.append(replace(federation, clients=tuple("abcd")))
    prints = {fingerprint(each) for each in (federation, *others)}
    assert len(prints) == 4
    assert fingerprint(federation.resplit(3)) == fingerprint(federation)
    record = record_data(federation, (1, 2, 3))
    assert len({record.split, *record.splits.values()}) == 4


def test_reshuffles_keep_test_samples_and_counts():
    federation = fa.datasets.synthetic(
        task="classification", clients=4, dimension=9, classes=2, aspect=0.3
    )
    other = federation.resplit(3, fractions=None)
    assert ((other.split == 2) == (federation.split == 2)).all()
    assert (other.split != federation.split).any()
    for split in ("train", "validation", "test"):
        assert (other.counts(split) == federation.counts(split)).all()


def test_the_first_clients_are_as_they_were(tmp_path):
    federation = fa.datasets.synthetic(
        task="classification", clients=6, dimension=3, classes=2, aspect=0.3, positions=4
    )
    few = first_clients(federation, 2)
    assert few.clients == federation.clients[:2]
    assert (few.features == federation.features[: len(few.features)]).all()
    assert (few.mask == federation.mask[: len(few.features)]).all()
    assert first_clients(federation, 6) is federation
    path = federation.save(tmp_path / "clients.safetensors")
    assert len(load_data(fa.Experiment(name="a", data={"file": str(path), "clients": 3}).data)) == 3


def test_a_table_is_read_by_its_columns(tmp_path):
    rows = ["who,a,b,junk,y,part"] + [
        f"{who},{i}.5,{-i}.5,9,{i % 2},{part}" for who in "pq" for i, part in enumerate(PARTS)
    ]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    columns = {
        "label": "y",
        "client": "who",
        "columns": ["a", "b"],
        "split": "part",
        "task": "classification",
    }
    (tmp_path / "mine.toml").write_text(
        "\n".join(lines_of({"name": "a", "data": {"file": "table.csv", **columns}}, ()))
    )
    federation = load_data(fa.Experiment.from_toml(tmp_path / "mine.toml").data)
    assert (federation.clients, federation.dimension, federation.classes) == (("p", "q"), 2, (0, 1))
    assert federation.counts("train").tolist() == [2, 2]
    assert federation.counts("test").tolist() == [1, 1]


def test_features_are_found_by_name(tmp_path, monkeypatch):
    federation = fa.datasets.synthetic(
        task="classification", clients=3, dimension=3, classes=2, aspect=0.3
    )
    monkeypatch.setattr(
        "fedasym.pretraining.features_file",
        lambda name: federation.save(tmp_path / f"{name}.safetensors"),
    )
    assert fingerprint(load_data(fa.Experiment.paper("cifar100").data)) == fingerprint(federation)
    with pytest.raises(fa.InvalidInput, match="data is missing"):
        load_data(None)


@pytest.fixture
def piece(tmp_path):
    description, made = {"seed": 1}, {"seconds": 0.5}
    path = tmp_path / f"{key_of(description)}.parquet"
    rows = {"round": [0, 5], "accuracy": [0.25, float("nan")], "client_gain": [None, [0.5, 0.75]]}
    write_piece(path, pl.DataFrame(rows), description, made)
    return path


def test_a_piece_comes_back_to_the_bit(piece):
    held = read_piece(piece)
    assert held.made == {"seconds": 0.5}
    assert held.frame["client_gain"].to_list() == [None, [0.5, 0.75]]
    assert [file.name for file in piece.parent.iterdir()] == [piece.name]


def test_a_truncated_piece_is_noticed(piece):
    content = piece.read_bytes()
    for size in (0, 1, 4, len(content) // 2, len(content) - 1):
        piece.write_bytes(content[:size])
        with pytest.raises(Damaged, match=r"Parquet|description|checksum|bytes"):
            read_piece(piece)


def test_a_piece_with_any_byte_changed_is_noticed_or_unchanged(piece):
    content, good = piece.read_bytes(), read_piece(piece)
    noticed = 0
    for at in range(0, len(content), 7):
        piece.write_bytes(flipped(content, at, 0x55))
        try:
            held = read_piece(piece)
        except Damaged:
            noticed += 1
        else:  # a byte that Parquet does not use
            assert held.frame.equals(good.frame)
            assert held.made == good.made
    assert noticed > 20


def test_a_flipped_bit_is_noticed_before_a_parser_meets_it(piece, monkeypatch):
    content = piece.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    monkeypatch.setattr(pl, "read_parquet_metadata", pytest.fail)
    for at in (
        footer // 2,
        footer - 1,
        footer + 1,
        len(content) - 7,
        len(content) - 1,
    ):  # rows, seal, footer, length, end
        piece.write_bytes(flipped(content, at))
        with pytest.raises(Damaged, match="bytes have changed"):
            read_piece(piece)


def test_a_seal_changes_nothing_for_other_readers(piece):
    theirs = pytest.importorskip("pyarrow.parquet").read_table(piece).to_pydict()
    assert theirs["client_gain"] == [None, [0.5, 0.75]]


def test_a_piece_from_before_there_were_seals_is_read_and_still_checked(piece):
    metadata, frame = pl.read_parquet_metadata(piece), pl.read_parquet(piece)
    frame.write_parquet(piece, metadata=metadata, compression="uncompressed", statistics=False)
    content = piece.read_bytes()
    assert SEAL not in content
    assert read_piece(piece).frame.equals(frame)
    piece.write_bytes(flipped(content, content.index(struct.pack("<d", 0.75))))
    with pytest.raises(Damaged, match="checksum"):
        read_piece(piece)


def test_an_edited_piece_is_noticed(piece):
    metadata = pl.read_parquet_metadata(piece)
    frame = pl.read_parquet(piece)
    frame.with_columns(accuracy=pl.Series([0.2500000001, float("nan")])).write_parquet(
        piece, metadata=metadata
    )
    with pytest.raises(Damaged, match="checksum"):
        read_piece(piece)
    frame.write_parquet(piece)
    with pytest.raises(Damaged, match="description is gone"):
        read_piece(piece)


def test_a_piece_under_another_name_is_noticed(piece):
    other = piece.rename(piece.with_stem("0" * 64))
    with pytest.raises(Damaged, match="another piece"):
        read_piece(other)


def test_a_disk_that_refuses_is_said(piece):
    with pytest.raises(fa.InvalidInput, match="cannot be written"):
        write_piece(piece.parent / "missing" / "a.parquet", pl.DataFrame({"a": [1]}), {}, {})
