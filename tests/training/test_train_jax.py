"""Training and JAX: its settings stay as they were, and what needs none of it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedasym as fa

from .clients import GRAM, Interrupt, federation, same

pytestmark = pytest.mark.usefixtures("_light")


def test_the_settings_of_jax_stay_as_they_were():
    clients, before = federation(), dict(jax.config.values)
    assert fa.train("fedavg", clients, **GRAM).shared.dtype == np.float64
    with pytest.raises(KeyboardInterrupt):
        fa.train("fedavg", clients, **GRAM, progress=Interrupt(0))
    assert dict(jax.config.values) == before
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32
    assert jnp.asarray(1).dtype == jnp.int32


def test_double_precision_elsewhere_changes_nothing():
    clients, told = federation(), {**GRAM, "precision": "float32"}
    plain = fa.train("fedavg", clients, **told)
    with jax.enable_x64(True):
        inside = fa.train("fedavg", federation(), **told)
        assert jax.config.jax_enable_x64
        assert jnp.ones(1).dtype == jnp.float64
    assert inside.shared.dtype == inside.losses.dtype == np.float32
    same(plain, inside, 1e-6)


def test_without_jax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(
        fa.InvalidInput, match=r"training needs JAX: pip install 'fedasym\[train\]'"
    ):
        fa.train("fedavg", federation(), **GRAM)
