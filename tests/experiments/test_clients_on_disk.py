"""Experiments on clients on disk: the same tables and the same page as in memory."""

import re

import pytest

import fedasym as fa
from fedasym.data import shards

FEW = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1, "batch": 8}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    told = {"task": "classification", "clients": 5, "dimension": 5, "classes": 2, "aspect": 0.5}
    drawn = fa.datasets.synthetic(**told)
    whole = drawn.take(range(5))  # without the truth
    folder = whole.save(tmp_path_factory.mktemp("disk") / "clients", shards=2)
    return whole, fa.Federation.open(folder)


def test_a_run_and_its_page_are_those_of_clients_in_memory(both, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 2)
    tried = fa.Experiment(
        name="disk", algorithms=["ftfa"], settings=FEW, grid={}, trials={"seeds": 2}
    )
    here, there = (
        fa.run(tried, each, into=tmp_path / name / "run")
        for name, each in zip(("here", "there"), both, strict=True)
    )
    assert here.clients.drop("loss", "shared_loss").equals(
        there.clients.drop("loss", "shared_loss")
    )
    pages = [fa.report(each, tmp_path / "page.html").read_text() for each in (here, there)]
    one, other = (re.sub("[0-9a-f]{64}", "", page) for page in pages)  # digests of the data
    assert one == other
    again = fa.run(tried, both[1], into=tmp_path / "there" / "run")  # which is finished
    assert again.trials.equals(there.trials)


def test_a_file_may_name_the_folder_and_a_sweep_takes_it(both, tmp_path):
    told = {"data": {"file": both[1].files.name, "clients": 4}}
    few = fa.Experiment(
        name="few", algorithms=["fedavg"], settings=FEW, grid={}, trials={"seeds": 1}, **told
    )
    assert len(fa.run(few, into=tmp_path / "few").data.clients) == 4
    swept = fa.sweep(
        "fedavg", both[1], grid={"server_step": [0.1, 0.2]}, seeds=1, into=tmp_path / "s", **FEW
    )
    assert set(swept.tuned["fedavg"]) == {"server_step"}


def test_numbers_of_clients_are_kept_as_columns(both, tmp_path):
    import polars as pl

    run = fa.train("ftfa", both[1], **FEW)
    frame = pl.read_parquet(run.write_clients(tmp_path / "clients.parquet"))
    assert frame.to_dicts() == run.clients()
    with pytest.raises(fa.InvalidInput, match="write_clients keeps their numbers"):
        run.save(tmp_path / "run.safetensors")
    assert '"clients": 5' in run.to_json()
