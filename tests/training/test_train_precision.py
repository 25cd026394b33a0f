"""Training in mixed precision and in bfloat16: what is shortened, and what is not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedasym as fa
from fedasym.training import evaluation
from fedasym.training.programs import personalise

from .clients import GRAM, federation, same

pytestmark = pytest.mark.usefixtures("_light")


def test_mixed_is_single_precision_where_nothing_is_shortened():
    """A processor's products are exact; what an accelerator shortens is measured in
    `benchmarks/train_grid.py`.
    """
    clients = federation()
    told = {**GRAM, "precision": "float32"}
    for name in ("rtfa", "maml_hf"):
        same(
            fa.train(name, clients, **{**told, "precision": "mixed"}),
            fa.train(name, clients, **told),
            1e-5,
        )


def test_bfloat16_rounds_features_and_outputs_of_sequences_alone():
    """Against float32 on features that bfloat16 holds exactly: what is left are outputs and
    residuals of 8 bits.
    """
    clients = federation(positions=4)
    exact = np.asarray(jnp.asarray(clients.features, jnp.bfloat16), np.float32)
    clients = replace(clients, features=exact)
    told = {**GRAM, "precision": "float32"}
    # ftfa and rtfa walk one way
    stages = [("rtfa", "code"), ("maml_fo", "text"), ("maml_hf", "text"), ("pfedme", "code")]
    for name, protocol in stages:
        told["protocol"] = (
            protocol  # heads are filled up to eights, and come back without; with a bias, too
        )
        short, long = (
            fa.train(name, clients, **{**told, "precision": "bfloat16"}),
            fa.train(name, clients, **told),
        )
        assert short.shared.dtype == np.float32
        assert short.shared.shape == long.shared.shape
        assert not np.array_equal(short.shared, long.shared)
        moved = np.abs(long.shared).max()
        np.testing.assert_allclose(short.shared, long.shared, atol=0.02 * moved)
        np.testing.assert_allclose(short.losses.sum(), long.losses.sum(), rtol=0.01)


def test_a_shortened_product_is_asked_for_only_when_mixed(monkeypatch):
    asked = []

    def watched(*arguments):
        asked.append(jax.config.jax_default_matmul_precision)
        return personalise(*arguments)

    monkeypatch.setattr(evaluation, "personalise", watched)
    before = jax.config.jax_default_matmul_precision
    for precision, expected in (("float32", "highest"), ("mixed", "default")):
        asked.clear()
        fa.train("fedavg", federation(), **{**GRAM, "precision": precision})
        assert set(asked) == {expected}
    assert jax.config.jax_default_matmul_precision == before
