"""What the tests of results share: runs that nobody trained, with counts that are given or
drawn.
"""

import numpy as np

from fedasym.algorithms import TRAINED
from fedasym.data.federation import Federation
from fedasym.training.history import History
from fedasym.training.settings import TEXT, Settings, resolve_ridge

ROUNDS = [0, 10, 20]


def data(tests=(4, 0, 2, 6), validations=(2, 2, 0, 4), trains=(3, 3, 3, 3), task="classification"):
    """A federation with these numbers of samples."""
    split = [
        code
        for sizes in zip(trains, validations, tests, strict=True)
        for code, size in enumerate(sizes)
        for _ in range(size)
    ]
    owner = [
        f"c{i}"
        for i, sizes in enumerate(zip(trains, validations, tests, strict=True))
        for _ in range(sum(sizes))
    ]
    rng = np.random.default_rng(0)
    labels = (
        rng.integers(0, 3, len(split)) if task == "classification" else rng.normal(size=len(split))
    )
    return Federation.from_arrays(
        rng.normal(size=(len(split), 2)), labels, clients=owner, split=split
    )


def totals_of(federation):
    return np.stack([federation.counts("validation"), federation.counts("test")], axis=1)


def history(
    name="rtfa",
    federation=None,
    *,
    seed=0,
    share=None,
    protocol=TEXT,
    gap=0.0,
    rounds=ROUNDS,
    **more,
):
    """A run in which `share` of each client's samples are right, or random counts."""
    federation = data() if federation is None else federation
    fields = {
        key: more.pop(key)
        for key in ("diverged", "interrupted", "shared", "algorithm")
        if key in more
    }
    algorithm = fields.pop("algorithm", None) or TRAINED[name]
    settings = resolve_ridge(Settings(rounds=rounds[-1], evaluate_every=10, **more), algorithm)
    totals = totals_of(federation)
    shape = (len(rounds), *totals.shape)
    rng = np.random.default_rng(seed)
    correct = (
        np.floor(rng.random(shape) * (totals + 1))
        if share is None
        else np.broadcast_to(share * totals, shape).copy()
    )
    shared_correct = (
        np.floor(rng.random(shape) * (totals + 1))
        if share is None
        else (share - gap) * np.ones(shape) * totals
    )
    losses, shared_losses = 2.0 * (totals - correct), 2.0 * (totals - shared_correct)
    if fields.get("diverged") is not None:
        for each in (correct, losses, shared_correct, shared_losses):
            each[np.array(rounds) >= fields["diverged"]] = np.nan
    if federation.task == "regression":
        correct, shared_correct = np.full(shape, np.nan), np.full(shape, np.nan)
    return History(
        algorithm=algorithm,
        settings=settings,
        protocol=protocol,
        seed=seed,
        federation=federation,
        rounds=np.array(rounds),
        correct=correct,
        losses=losses,
        shared_correct=shared_correct,
        shared_losses=shared_losses,
        totals=totals,
        **({"shared": None} | fields),
    )
