"""What the tests of training share: ragged little federations, and how a history is held against
the plain twin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np
from jax._src import compiler

import fedasym as fa
from fedasym.training import twin
from fedasym.training.programs import advance, personalise
from fedasym.training.settings import Protocol

# (training, validation, test) samples of a client: none at all, one, a whole batch of 8, more,
# several batches
RAGGED = ((5, 2, 3), (0, 1, 2), (1, 0, 2), (9, 3, 0), (8, 0, 0), (3, 6, 2), (17, 1, 1))
SMALL: dict[str, Any] = {
    "rounds": 4,
    "evaluate_every": 2,
    "cohort": 3,
    "local_steps": 3,
    "batch": 8,
    "personal_epochs": 2,
    "server_step": 0.3,
    "local_step": 0.2,
}
DOUBLE = {**SMALL, "ridge": 1.5, "precision": "float64"}
GRAM = {**DOUBLE, "form": "gram"}
OPTIMISED: list[
    int
] = []  # how many programs there were when the last optimised ones had been compiled


@contextmanager
def optimised(wanted: bool) -> Iterator[None]:
    """Programs that are compiled within it are optimised, as users have them, or compiled quickly.

    Optimised ones are kept until others come between, so that tests in a row share them.
    """
    name, usual = "jax_disable_most_optimizations", compiler.get_compile_options
    before = jax.config.values[name]

    def fused(*args: Any, env_options_overrides: dict[str, Any] | None = None, **named: Any) -> Any:
        chosen = {"xla_cpu_use_fusion_emitters": True, **(env_options_overrides or {})}
        return usual(*args, env_options_overrides=chosen, **named)

    def sizes() -> list[int]:
        return [advance._cache_size(), personalise._cache_size()]

    if (
        wanted and sizes() != OPTIMISED
    ):  # JAX would take those that it has, however they were compiled
        for program in (advance, personalise):
            program.clear_cache()
    jax.config.update(name, not wanted)
    if wanted and "xla_cpu_use_fusion_emitters" in os.environ.get(
        "XLA_FLAGS", ""
    ):  # of tests/conftest.py
        compiler.get_compile_options = fused
    try:
        yield
    finally:
        compiler.get_compile_options = usual
        jax.config.update(name, before)
        if wanted:
            OPTIMISED[:] = sizes()


def federation(
    sizes: Sequence[tuple[int, int, int]] = RAGGED,
    d: int = 4,
    classes: int | None = 3,
    outputs: int | None = None,
    positions: int | None = None,
    seed: int = 0,
    dtype: Any = np.float64,
    order: Sequence[int] | None = None,
) -> fa.Federation:
    """Clients "a", "b", ... of these sizes, rows of the splits mixed; each client's own numbers
    depend on its place alone.

    classes=None: a regression, with that many `outputs` (None: one, without an axis). order: which
    clients come when.
    """
    parts = []
    for place in range(len(sizes)) if order is None else order:
        rng = np.random.default_rng([seed, place])
        n = sum(sizes[place])
        split = rng.permutation(np.repeat([0, 1, 2], sizes[place]))
        x = rng.standard_normal((n, d) if positions is None else (n, positions, d)).astype(dtype)
        scores = x @ rng.standard_normal((d, classes or outputs or 1)) + rng.standard_normal(
            (*x.shape[:-1], classes or outputs or 1)
        )
        mask = (
            None
            if positions is None
            else np.arange(positions) < rng.integers(1, positions + 1, n)[:, None]
        )
        y = scores.argmax(-1) if classes else scores if outputs else scores[..., 0]
        parts.append((np.repeat(chr(97 + place), n), x, y, split, mask))
    names, x, y, split, mask = (
        np.concatenate(each) if each[0] is not None else None for each in zip(*parts, strict=True)
    )
    return fa.Federation.from_arrays(
        x, y, names, split=split, mask=mask, classes=classes, intercept=False
    )


def scores(
    clients: fa.Federation, heads: Any, protocol: Protocol
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right predictions, summed losses and what was counted, (clients, [validation, test]), sample
    by sample.
    """
    found = np.zeros((3, len(clients.clients), 2))
    for place, name in enumerate(clients.clients):
        head = np.asarray(heads[name] if isinstance(heads, dict) else heads, float)
        for side, split in enumerate(("validation", "test")):
            for row in clients.rows(name, split):
                x, y = np.asarray(clients.features[row], float), clients.labels[row]
                z = x @ head[: clients.dimension] + (
                    head[-1] if len(head) > clients.dimension else 0
                )
                if not clients.sequences:
                    z, y = z[None], np.asarray(y)[None]
                keep = np.ones(len(z), bool)
                if clients.mask is not None and not protocol.count_padding:
                    keep = clients.mask[row]
                if clients.classes is None:
                    right, lost = np.full(len(z), np.nan), ((z - y) ** 2).sum(-1) / 2
                else:
                    right = z.argmax(-1) == y
                    lost = (
                        np.logaddexp.reduce(z, axis=-1)
                        - np.take_along_axis(z, y[:, None], -1)[:, 0]
                    )
                found[:, place, side] += right[keep].sum(), lost[keep].sum(), keep.sum()
    return found[0], found[1], found[2]


def as_twin(history: fa.History, clients: fa.Federation, tolerance: float = 1e-10) -> None:
    """Hold every round, client and side of a history against the plain twin."""
    settings, protocol = history.settings, history.protocol
    dtype = np.float64 if history.shared.dtype == np.float64 else np.float32
    snapshots = list(twin.run(history.algorithm, clients, settings, protocol, history.seed))
    assert history.rounds.tolist() == [snapshot.round for snapshot in snapshots]
    assert history.diverged is None
    assert not history.interrupted
    close = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(history.shared, snapshots[-1].shared, **close)
    for at, snapshot in enumerate(snapshots):
        for heads, correct, losses in (
            (snapshot.personal, history.correct, history.losses),
            (snapshot.shared, history.shared_correct, history.shared_losses),
        ):
            right, lost, counted = scores(clients, heads, protocol)
            np.testing.assert_array_equal(history.totals, counted)
            np.testing.assert_allclose(losses[at], lost, **close)
            if (
                dtype == np.float64 or clients.classes is None
            ):  # single precision may tip a close call
                np.testing.assert_array_equal(correct[at], right)
            else:
                assert np.abs(correct[at] - right).sum() <= 0.02 * counted.sum()


def same(ours: fa.History, theirs: fa.History, tolerance: float = 0.0) -> None:
    """Hold two histories of the same configuration against each other, all that was counted."""
    assert (ours.seed, ours.diverged, ours.interrupted) == (
        theirs.seed,
        theirs.diverged,
        theirs.interrupted,
    )
    assert replace(ours.settings, own=()) == replace(theirs.settings, own=())
    for field in fields(fa.History):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_allclose(
                mine, other, rtol=tolerance, atol=tolerance, err_msg=field.name
            )


def named(server, client):
    return fa.Algorithm("own", server, client)


class Interrupt:
    """Ctrl-C after some reports, and again at every later one."""

    def __init__(self, after):
        self.left = after

    def __call__(self, done, text):
        self.left -= done < 1
        if self.left < 0:
            raise KeyboardInterrupt
