"""What the tests of loaders share: tiny files in TensorFlow Federated's layout, sequences as words,
and counts of splits.
"""

import h5py
import numpy as np

RNG = np.random.default_rng(0)
TEXT = h5py.string_dtype()


def write(path, clients):
    """A file in TensorFlow Federated's layout from {client: {field: values}}; lists are strings."""
    with h5py.File(path, "w") as file:
        for client, fields in clients.items():
            group = file.create_group(f"examples/{client}")
            for field, values in fields.items():
                group.create_dataset(
                    field, data=values, dtype=TEXT if isinstance(values, list) else None
                )


def decoded(federation, row):
    """One sequence's inputs and labels as words, padding left out."""
    real = (
        np.ones(federation.labels.shape[1], bool)
        if federation.mask is None
        else federation.mask[row]
    )
    inputs = federation.features[row, real, 0].astype(int)
    return [federation.classes[each] for each in inputs], [
        federation.classes[each] for each in federation.labels[row, real]
    ]


def counts(federation):
    return [federation.counts(split).tolist() for split in ("train", "validation", "test")]
