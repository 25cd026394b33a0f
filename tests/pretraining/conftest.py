"""A user's folder: the current one, with a module of their own."""

import sys

import pytest

from .small import MINE


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    (tmp_path / "my_networks.py").write_text(MINE)
    return tmp_path
