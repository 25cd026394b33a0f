"""`pretrain`: a network trained on all clients' samples; `features`: what its last layer sees.

Both are made once; killed or interrupted, the same call goes on from the last checkpoint.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of, path_of
from fedasym.core.numbers import check_seed, flag
from fedasym.core.runtime import Progress, progress_shown, replace_text
from fedasym.data import files
from fedasym.data.federation import Federation, check_federation
from fedasym.data.splits import TEST, TRAIN, VALIDATION
from fedasym.pretraining import (
    RECIPES,
    NetworkRecipe,
    Pretrained,
    check_torch,
    choose_network,
    chosen_network,
    describe_federation,
    description_key,
    file_digest,
    folder_of,
)

if TYPE_CHECKING:
    from torch import nn

    from fedasym.pretraining.networks import Reader, Source


def pretrain(
    name: str,
    federation: Federation | None = None,
    *,
    recipe: NetworkRecipe | None = None,
    tune: bool = False,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    into: str | Path | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Pretrained:
    """Train a network on all clients' training samples together; finished work is not redone.

    name: a data set of `fedasym data list`, which is loaded (from `folder` where it is given); or
        any name, with `federation`.
    recipe: `RECIPES[name]` by default, or with changes: `RECIPES[name].changed(epochs=10)`.
    tune: train every step size and decay of the paper's grid, and choose on validation samples.
    device: "cpu" or "cuda"; by default a GPU where there is one, with products in bfloat16 unless
        precision is "float32".
    into: a folder for networks and checkpoints; by default in the cache of this system.

    >>> import tempfile, fedasym as fa
    >>> clients = fa.datasets.synthetic(task="classification", clients=5, dimension=12, seed=1)
    >>> fa.pretraining.pretrain("mine", clients)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: recipe is missing: mine is none of emnist, digits, cifar100, ...
    """
    check_torch()
    if recipe is not None and not isinstance(recipe, NetworkRecipe):
        raise InvalidInput(
            f"recipe is {recipe!r}: give a fa.pretraining.NetworkRecipe, or leave it out for the"
            " paper's"
        )
    progress = progress_shown(progress)
    tune = flag("tune", tune)
    seed = check_seed(seed)
    base = recipe or RECIPES.get(str(name))
    if base is None:
        raise InvalidInput(
            f"recipe is missing: {name} is none of {', '.join(RECIPES)}; give"
            ' fa.pretraining.NetworkRecipe("module:name") with your own network'
        )
    data = load_samples(name, federation, folder)
    runs = []
    grid = base.grid() if tune else [base]
    for number, each in enumerate(grid):
        told = None if progress is None else progress_of_run(progress, number, len(grid))
        runs.append(learn_network(name, data, each, seed, device, precision, into, told))
    best = max(runs, key=lambda run: (np.isfinite(run.validation), run.validation))
    if not np.isfinite(best.validation):
        raise InvalidInput(
            f"step is {base.step:g}: the loss became infinite or not a number; give a smaller one"
        )
    choose_network(name, best.path)
    if not tune:
        return best
    tried = tuple((run.recipe, run.validation) for run in runs)
    return Pretrained(best.path, name, best.recipe, best.validation, best.test, best.epochs, tried)


def load_samples(name: str, federation: Federation | None, folder: str | Path | None) -> Federation:
    """The federation given, or the data set of that name."""
    from fedasym.data import load

    if not isinstance(name, str):
        raise InvalidInput(f"name is {name!r}: give the name of a data set, or any of your own")
    if federation is not None:
        check_federation(federation)
    return load(name, folder=folder) if federation is None else federation


def progress_of_run(progress: Progress, number: int, total: int) -> Progress:
    """The progress of one of several runs."""
    return lambda share, text: progress(
        (number + share) / total, f"{number + 1} of {total}: {text}" if total > 1 else text
    )


def learn_network(
    name: str,
    federation: Federation,
    recipe: NetworkRecipe,
    seed: int,
    device: str | None,
    precision: str | None,
    into: str | Path | None,
    progress: Progress | None,
) -> Pretrained:
    """One recipe's network: from its file where it is finished, else trained."""
    from fedasym.pretraining import networks
    from fedasym.pretraining.networks import Source, reader_for

    mixed = networks.find_precision(precision, where := networks.find_device(device))
    described: dict[str, Any] = {"data": name, "recipe": asdict(recipe), "seed": seed}
    described["fingerprint"] = describe_federation(federation)
    key = description_key(described | {"mixed": mixed})
    path = folder_of(into, "networks") / f"{name}-{key}.safetensors"
    if not path.is_file():
        reader = reader_for(name, federation)
        splits = (np.flatnonzero(federation.split == code) for code in (TRAIN, VALIDATION, TEST))
        sources: list[Source] = [Source(federation, reader, rows, where) for rows in splits]
        started = time.monotonic()
        checkpoint = path.with_suffix(".checkpoint")
        tensors, results = networks.fit_network(
            recipe, sources, federation.outputs, mixed, seed, checkpoint, progress
        )
        described |= {"reader": asdict(reader), "mixed": mixed, "device": where.type, **results}
        described["seconds"] = time.monotonic() - started
        networks.write_checkpoint(path, tensors, described)
        checkpoint.unlink(missing_ok=True)
    held = networks.read_checkpoint(path)[1]
    validation, test = (
        float("nan") if held[field] is None else held[field] for field in ("validation", "test")
    )
    return Pretrained(path, name, recipe, validation, test, tuple(held["epochs"]))


FORMAT = "features 1"
EVERY = 10.0  # seconds between two notes of how far it is
SIZE = 512  # samples at once


def features(
    name: str,
    federation: Federation | None = None,
    *,
    network: str | Path | None = None,
    array: str | Path | None = None,
    dtype: str = "float16",
    device: str | None = None,
    precision: str | None = None,
    into: str | Path | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file of all samples' features by client, for `Federation.from_safetensors`, `fa.train`.

    network: a file of `pretrain`, or "module:name" of your own; by default the one that was
        pretrained last for this data set.
    array: instead of a network, a file (.npy, or .npz or .safetensors with one array) that has the
        features of the samples in the order of `fa.datasets.load(name)`.
    dtype: "float16" or "float32".

    The file is named by the hash of the data, the network and the type: when none changed, nothing
    is computed again.

    >>> import tempfile, numpy as np, fedasym as fa
    >>> clients = fa.datasets.synthetic(task="classification", clients=5, dimension=12, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/mine.npy", np.ones((len(clients.features), 4)))
    ...     path = fa.pretraining.features("mine", clients, array=folder + "/mine.npy", into=folder)
    ...     fa.Federation.from_safetensors(path).dimension
    4
    """
    one_of("dtype", dtype, ("float16", "float32"))
    progress = progress_shown(progress)
    data = load_samples(name, federation, folder)
    if array is not None:
        source = path_of("array", array)
        origin: dict[str, Any] = {"array": file_digest(check_features_file(source))}

        def made(part: Path) -> NDArray[Any]:
            return as_dtype(read_array(source, len(data.features)), dtype)

    else:
        check_torch()
        from fedasym.pretraining.networks import find_device, find_precision

        where = find_device(device)
        mixed = find_precision(precision, where)
        model, reader, origin = prepare_network(name, data, network, into)
        origin |= {"mixed": mixed}

        def made(part: Path) -> NDArray[Any]:
            return extract_features(model, reader, data, dtype, where, mixed, part, progress)

    found = describe_federation(data)
    recipe = {"format": FORMAT, "data": name, "fingerprint": found, "dtype": dtype, **origin}
    key = description_key(recipe)
    path = folder_of(into, "features") / f"{name}-{key}.safetensors"
    if not path.is_file():
        part = path.with_suffix(".part")
        result = replace(data, features=made(part), truth=None)
        files.write_federation(vars(result), path, {"recipe": json.dumps(recipe), "hash": key})
        for each in (part, part.with_suffix(".progress")):
            each.unlink(missing_ok=True)
    if progress:
        progress(1.0, "done")
    return path


def prepare_network(
    name: str, data: Federation, network: str | Path | None, into: str | Path | None
) -> tuple[nn.Module, Reader, dict[str, Any]]:
    """The network to look with, how it reads samples, and what tells it from others."""
    import torch

    from fedasym.pretraining import networks
    from fedasym.pretraining.networks import Reader, Source, build, reader_for

    if isinstance(network, str) and ":" in network and not Path(network).exists():
        model = build(network, data.outputs)
        return model, reader_for(name, data), {"network": network, "weights": weights_sum(model)}
    if network is None:
        path = chosen_network(name, into)
    else:
        path = check_features_file(path_of("network", network))
    tensors, held = networks.read_checkpoint(path)
    try:
        kind, *numbers = (held["reader"][field] for field in ("kind", "shape", "mean", "std"))
        reader = Reader(kind, *map(tuple, numbers))
        asked = str(held["recipe"]["network"])
    except (KeyError, TypeError):
        raise InvalidInput(
            f"network is {str(path)!r}: it is not a file of fedasym pretrain; give one, or"
            " module:name"
        ) from None
    if ":" in asked and path.parent.resolve() != folder_of(into, "networks").resolve():
        raise InvalidInput(
            f"network is {str(path)!r}: it asks for code, {asked}, and comes from elsewhere; if you"
            f" trust it, move it into {folder_of(into, 'networks')}"
        )
    model = build(asked, data.outputs)
    try:
        model.load_state_dict(tensors)
        # do samples fit it?
        model.eval()(Source(data, reader, np.arange(1), torch.device("cpu")).batch(np.arange(1))[0])
    except (RuntimeError, TypeError, ValueError, IndexError) as reason:
        raise InvalidInput(
            f"network is {str(path)!r}: its weights do not fit this data set ({reason})"
        ) from None
    origin = {"network": held["recipe"]["network"], "weights": file_digest(path)}
    return model, reader, origin


def weights_sum(network: nn.Module) -> str:
    """A hash of all weights of a user's network."""
    import hashlib

    total = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        head = f"{name} {tuple(tensor.shape)}".encode()
        total.update(head + tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def extract_features(
    network: nn.Module,
    reader: Reader,
    data: Federation,
    dtype: str,
    device: Any,
    mixed: bool,
    part: Path,
    progress: Progress | None,
) -> NDArray[Any]:
    """The inputs of the last layer for all samples, in a growing file; resumes where killed."""
    import torch

    from fedasym.pretraining.networks import Source, cast_products, last_layer

    network = network.eval().to(device)
    seen: list[torch.Tensor] = []
    watch = last_layer(network).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    note = part.with_suffix(".progress")
    count = len(data.features)

    def look(rows: NDArray[np.intp]) -> torch.Tensor:
        source = Source(data, reader, rows, torch.device("cpu"))
        network(source.batch(np.arange(rows.size))[0].to(device))
        return seen.pop()

    try:
        with torch.no_grad(), cast_products(device, mixed):
            shape = (count, *look(np.arange(1)).shape[1:])
            done = count_finished(note, shape, dtype) if part.is_file() else 0
            held = np.lib.format.open_memmap(part, "r+" if done else "w+", np.dtype(dtype), shape)
            noted = time.monotonic()
            for start in range(done, count, SIZE):
                rows = np.arange(start, min(start + SIZE, count))
                held[rows] = as_dtype(look(rows).float().cpu().numpy(), dtype)
                done = int(rows[-1]) + 1
                if time.monotonic() - noted > EVERY:
                    held.flush()
                    replace_text(note, json.dumps({"done": done, "shape": shape, "dtype": dtype}))
                    noted = time.monotonic()
                if progress:
                    progress(0.99 * done / count, f"features of {done:,} of {count:,} samples")
    finally:
        watch.remove()
    return held


def count_finished(note: Path, shape: tuple[int, ...], dtype: str) -> int:
    """How many samples an earlier run has finished."""
    try:
        held = json.loads(note.read_text())
        return int(held["done"]) if (tuple(held["shape"]), held["dtype"]) == (shape, dtype) else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def as_dtype(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Features in the type that is stored; what it cannot hold is refused."""
    with np.errstate(over="ignore"):
        stored = values.astype(dtype)
    if not np.isfinite(stored).all():
        largest = np.abs(values[np.isfinite(values)]).max(initial=0)
        if np.isfinite(values).all() and dtype == "float16":
            raise InvalidInput(
                f"dtype is float16, which holds numbers up to 65,504, and a feature is {largest:g}:"
                " give float32"
            )
        raise InvalidInput("the features are not all finite: the network, or the array, is broken")
    return stored


def check_features_file(path: Path) -> Path:
    """A file that is there."""
    if not path.is_file():
        raise InvalidInput(
            f"{str(path)!r} is not a file: check the name, or give module:name for your own network"
        )
    return path


def read_array(path: Path, count: int) -> NDArray[Any]:
    """One array of numbers with a row per sample; never unpickled."""
    from fedasym.data.formats import only_array

    found = only_array(path)
    if found.ndim not in (2, 3) or len(found) != count or found.dtype.kind not in "fiu":
        raise InvalidInput(
            f"array is {str(path)!r}, {found.dtype.name} of shape {found.shape}: "
            f"give numbers, one row for each of {count} samples"
        )
    return found
