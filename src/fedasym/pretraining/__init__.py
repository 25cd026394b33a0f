"""From raw samples to features: train a network as the paper did, and keep what its last layer sees
of every sample. Here are how each network is trained, as the paper's were, where networks and
features are kept, by the hash of what made them, and the verbs. Both are made once; killed or
interrupted, the same call goes on from the last checkpoint.

Appendix "Pretrained Model". The text leaves the optimiser and the period of StepLR open: for images
they are those of the released code, for text the period is the one of 1, 2, 3, 5 and 8 epochs with
the best validation accuracy (docs/data.md).

>>> import fedasym as fa
>>> fa.pretraining.RECIPES["cifar100"].epochs
200
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import (
    InvalidInput,
    MissingPackage,
    one_of,
    path_of,
    read_list,
    unknown_name,
)
from fedasym.core.numbers import amount, check_seed, flag, one_float, whole
from fedasym.core.runtime import Progress, cache_folder, progress_shown, replace_text
from fedasym.data import files
from fedasym.data.federation import Federation, check_federation
from fedasym.data.files import fields_checksum
from fedasym.data.splits import TEST, TRAIN, VALIDATION

if TYPE_CHECKING:
    from torch import nn

    from fedasym.pretraining.networks import Reader, Source


__all__ = ["RECIPES", "NetworkRecipe", "Pretrained", "features", "pretrain"]

AUGMENTATIONS = ("crop", "flip", "rotation")
OPTIMISERS = ("adam", "sgd")
STEPS, DECAYS = (0.0001, 0.001, 0.01, 0.1, 1.0), (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class NetworkRecipe:
    """One way to train a network.

    network: a built-in one, or "module:name" of a user's own, a torch Module or a function that
        returns one.
    step: the first step size; it is multiplied by `decay` after every `decay_every` epochs, or at
        the epochs `decay_at`.
    warm_up: epochs over which the step size grows from 0.
    augmentation: of training images: "crop" (32x32 from 4 pixels of padding), "flip", "rotation"
        (by at most 15 degrees).

    >>> NetworkRecipe("cnn", step=0.01, decay=0.5, decay_every=2).rate(4, 0)
    0.0025
    >>> NetworkRecipe("cnn", step=-1)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: step is -1: it must be finite and above 0
    """

    network: str
    epochs: int = 25
    batch: int = 128
    optimiser: str = "adam"
    step: float = 0.001
    decay: float = 0.5
    decay_every: int = 1
    decay_at: tuple[int, ...] = ()
    warm_up: int = 0
    momentum: float = 0.0
    weight_decay: float = 0.0
    augmentation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.network, str):
            raise InvalidInput(
                f'network is {self.network!r}: give a name, such as cnn, or "module:name" of'
                " your own"
            )
        for name, least in (("epochs", 1), ("batch", 1), ("decay_every", 1), ("warm_up", 0)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        for name in ("step", "decay"):
            if not 0 < one_float(getattr(self, name)) < math.inf:
                raise InvalidInput(
                    f"{name} is {getattr(self, name)!r}: it must be finite and above 0"
                )
        for name in ("momentum", "weight_decay"):
            amount(name, getattr(self, name))
        one_of("optimiser", self.optimiser, OPTIMISERS)
        object.__setattr__(
            self,
            "decay_at",
            tuple(whole("decay_at", each, 0) for each in read_list("decay_at", self.decay_at)),
        )
        names = tuple(
            one_of("augmentation", each, AUGMENTATIONS)
            for each in read_list("augmentation", self.augmentation)
        )
        object.__setattr__(self, "augmentation", names)

    def rate(self, epoch: int, share: float) -> float:
        """The step size when that share of an epoch is done."""
        if epoch < self.warm_up:
            return self.step * (epoch + share) / self.warm_up
        times = (
            sum(epoch >= each for each in self.decay_at)
            if self.decay_at
            else epoch // self.decay_every
        )
        return self.step * float(self.decay**times)

    def replace(self, **options: Any) -> NetworkRecipe:
        """The recipe with those options that are given (None: as it is)."""
        known = [field.name for field in fields(self)]
        for name in options:
            if name not in known:
                raise unknown_name("option of a recipe", name, known)
        given = {name: value for name, value in options.items() if value is not None}
        if "decay_every" in given:
            given.setdefault("decay_at", ())
        return replace(self, **given)

    def grid(self) -> list[NetworkRecipe]:
        """The paper's grid around this recipe: every step size with every decay."""
        return [replace(self, step=step, decay=decay) for step, decay in product(STEPS, DECAYS)]


# inputs of each network's last layer
FEATURES = {"cnn": 512, "resnet18": 512, "character_lstm": 256, "word_lstm": 96}
RECIPES = {
    "emnist": NetworkRecipe("cnn"),
    "digits": NetworkRecipe("cnn"),
    "cifar100": NetworkRecipe(
        "resnet18",
        epochs=200,
        optimiser="sgd",
        step=0.1,
        decay=0.2,
        decay_at=(60, 120, 160),
        warm_up=1,
        momentum=0.9,
        weight_decay=5e-4,
        augmentation=("crop", "flip"),
    ),
    "shakespeare": NetworkRecipe("character_lstm", batch=32, step=0.003, decay_every=8),
    "stackoverflow": NetworkRecipe("word_lstm", decay_every=3),
    "stackexchange": NetworkRecipe("word_lstm", decay_every=3),
}


KEY = "fedasym"  # of the metadata of a network's file


@dataclass(frozen=True)
class Pretrained:
    """A trained network's file, how it was made and how it tests; prints itself.

    epochs: one record per epoch: loss, validation (accuracy), seconds.
    tried: with a grid, every recipe's validation accuracy, NaN where it diverged.
    """

    path: Path
    name: str
    recipe: NetworkRecipe
    validation: float
    test: float
    epochs: tuple[dict[str, float], ...]
    tried: tuple[tuple[NetworkRecipe, float], ...] = ()

    def __str__(self) -> str:
        spent = sum(each["seconds"] for each in self.epochs)
        scores = f"validation {self.validation:.4f}, test {self.test:.4f}"
        what = f"{self.recipe.network}, {self.recipe.epochs} epochs in {spent:,.0f} s"
        lines = [f"{self.name}: {what}", f"accuracy of the network itself: {scores}"]
        for recipe, validation in self.tried:
            mark = "  chosen" if recipe == self.recipe else ""
            steps = f"  step {recipe.step:<7g} decay {recipe.decay:<4g}"
            lines.append(f"{steps} validation {validation:.4f}{mark}")
        return "\n".join([*lines, f"in {self.path}"])

    __repr__ = __str__


def check_torch() -> None:
    """Refuse early, with the way to install it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingPackage(
            "networks need PyTorch: pip install 'fedasym[pretrain]' (or a torch build for your"
            " accelerator)"
        ) from None


def folder_of(into: str | Path | None, kind: str) -> Path:
    """The folder of networks or of features: in `into`, or in the cache of this system."""
    place = (cache_folder() if into is None else path_of("into", into)) / kind
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(
            f"into is {str(into)!r}: {place} cannot be made ({reason.strerror}); give another"
            " folder"
        ) from None
    return place


def describe_federation(federation: Federation) -> dict[str, Any]:
    """What tells one federation from another: its sizes and a checksum of all its arrays."""
    return {
        "clients": len(federation),
        "samples": len(federation.features),
        "sum": fields_checksum(vars(federation)),
    }


def description_key(description: Mapping[str, Any]) -> str:
    """The hash of a description.

    >>> description_key({"b": 1, "a": 2}) == description_key({"a": 2, "b": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def choose_network(name: str, network: Path) -> None:
    """Remember which network makes the features of a data set: the last one pretrained."""
    replace_text(network.parent / f"{name}.json", json.dumps({"network": network.name}))


def chosen_network(name: str, into: str | Path | None) -> Path:
    """The network that was pretrained last for a data set."""
    place = folder_of(into, "networks")
    try:
        path = place / str(json.loads((place / f"{name}.json").read_text())["network"])
    except (OSError, ValueError, KeyError, TypeError):
        path = None
    if path is None or path.parent != place or not path.is_file():
        raise InvalidInput(
            f"{name} has no pretrained network in {place}: run fedasym pretrain {name}, or name"
            " one: --network module:name"
        )
    return path


def features_file(name: str, into: str | Path | None = None) -> Path:
    """The features of a data set that were made last.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     features_file("cifar100", folder)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: cifar100 has no features yet: run fedasym features cifar100
    """
    place = folder_of(into, "features")
    files = sorted(place.glob(f"{name}-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise InvalidInput(f"{name} has no features yet: run fedasym features {name}")
    return files[-1]


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
    recipe: `RECIPES[name]` by default, or with changes: `RECIPES[name].replace(epochs=10)`.
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

        def compute_features(part: Path) -> NDArray[Any]:
            return as_dtype(read_array(source, len(data.features)), dtype)

    else:
        check_torch()
        from fedasym.pretraining.networks import find_device, find_precision

        where = find_device(device)
        mixed = find_precision(precision, where)
        model, reader, origin = prepare_network(name, data, network, into)
        origin |= {"mixed": mixed}

        def compute_features(part: Path) -> NDArray[Any]:
            return extract_features(model, reader, data, dtype, where, mixed, part, progress)

    found = describe_federation(data)
    recipe = {"format": FORMAT, "data": name, "fingerprint": found, "dtype": dtype, **origin}
    key = description_key(recipe)
    path = folder_of(into, "features") / f"{name}-{key}.safetensors"
    if not path.is_file():
        part = path.with_suffix(".part")
        result = replace(data, features=compute_features(part), truth=None)
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
