"""What the tests of the plain twin share: little federations, its last round, and how two rounds
are compared.
"""

import numpy as np

from fedasym.data.federation import Federation
from fedasym.training import plans, twin
from fedasym.training.settings import TEXT, Settings
from fedasym.training.twin import batch_of

SMALL = Settings(
    rounds=4,
    evaluate_every=2,
    cohort=3,
    local_steps=3,
    batch=4,
    personal_epochs=2,
    server_step=0.2,
    local_step=0.1,
)
WHOLE = 64  # a batch that holds all samples of any client here


def drawn(sizes, d=4, classes=3, seed=0, positions=None, outputs=1, test=0):
    """Clients "a", "b", ... with these numbers of training samples, and `test` test samples each;
    classes=None: regression.
    """
    rng = np.random.default_rng(seed)
    names = np.repeat([chr(97 + i) for i in range(len(sizes))], [n + test for n in sizes])
    split = np.concatenate([[0] * n + [2] * test for n in sizes])
    shape = (len(names),) if positions is None else (len(names), positions)
    X = rng.standard_normal((*shape, d))
    own = {name: rng.standard_normal((d, classes or outputs)) for name in dict.fromkeys(names)}
    scores = np.stack([x @ own[name] for x, name in zip(X, names, strict=True)])
    scores += 0.5 * rng.standard_normal(scores.shape)
    mask = (
        None
        if positions is None
        else np.arange(positions) < rng.integers(1, positions + 1, len(names))[:, None]
    )
    labels = scores.argmax(-1) if classes else scores
    return Federation.from_arrays(X, labels, names, split=split, mask=mask, classes=classes)


def last(algorithm, federation, settings, protocol=TEXT, seed=0, dtype=np.float64):
    return list(twin.run(algorithm, federation, settings, protocol, seed, dtype))[-1]


def same(ours, theirs, compare=np.testing.assert_array_equal, **tolerance):
    compare(ours.shared, theirs.shared, **tolerance)
    assert set(ours.personal) == set(theirs.personal)
    for client, head in ours.personal.items():
        compare(head, theirs.personal[client], **tolerance)


def local_batches(federation, name, count, batch, stream):
    """The client's batches 0, 1, ... of a stream."""
    rows = federation.rows(name, "train")
    picked = plans.batches(np.reshape(stream, 1), np.array([len(rows)]), 0, count, batch)[0]
    return [batch_of(federation, rows[each[each >= 0]], False, False, float) for each in picked]
