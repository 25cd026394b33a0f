"""`pretrain`: a network trained on the training samples of all clients together, as the paper's were.

The run leaves a checkpoint every half minute; killed or interrupted, the same call goes on from there.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.core.arrays import check_seed, flag
from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import Progress, check_progress
from fedasym.data.federation.federation import Federation, check_federation
from fedasym.data.federation.splits import TEST, TRAIN, VALIDATION
from fedasym.pretraining import recipes
from fedasym.pretraining.recipes import RECIPES, Recipe

if TYPE_CHECKING:
    from fedasym.pretraining.networks import Source


@dataclass(frozen=True)
class Pretrained:
    """A trained network's file, how it was made and how it tests; prints itself.

    epochs: one record per epoch: loss, validation (accuracy), seconds.
    tried: with a grid, every recipe's validation accuracy, NaN where it diverged.
    """

    path: Path
    name: str
    recipe: Recipe
    validation: float
    test: float
    epochs: tuple[dict[str, float], ...]
    tried: tuple[tuple[Recipe, float], ...] = ()

    def __str__(self) -> str:
        spent = sum(each["seconds"] for each in self.epochs)
        lines = [
            f"{self.name}: {self.recipe.network}, {self.recipe.epochs} epochs in {spent:,.0f} s",
            f"accuracy of the network itself: validation {self.validation:.4f}, test {self.test:.4f}",
        ]
        for recipe, validation in self.tried:
            mark = "  chosen" if recipe == self.recipe else ""
            lines.append(f"  step {recipe.step:<7g} decay {recipe.decay:<4g} validation {validation:.4f}{mark}")
        return "\n".join([*lines, f"in {self.path}"])

    __repr__ = __str__


def pretrain(
    name: str,
    federation: Federation | None = None,
    *,
    recipe: Recipe | None = None,
    tune: bool = False,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    into: str | Path | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Pretrained:
    """Train a network on all clients' training samples together; what is finished already is not done again.

    name: a data set of `fedasym data list`, which is loaded (from `folder` where it is given); or any name, with `federation`.
    recipe: `RECIPES[name]` by default, or with changes: `RECIPES[name].changed(epochs=10)`.
    tune: train every step size and decay of the paper's grid, and choose on validation samples.
    device: "cpu" or "cuda"; by default a GPU where there is one, with products in bfloat16 unless precision is "float32".
    into: a folder for networks and checkpoints; by default in the cache of this system.

    >>> import tempfile, fedasym as fa
    >>> clients = fa.datasets.synthetic(task="classification", clients=5, dimension=12, seed=1)
    >>> fa.pretraining.pretrain("mine", clients)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: recipe is missing: mine is none of emnist, digits, cifar100, shakespeare, stackoverflow, stackexchange; give fa.pretraining.Recipe("module:name") with your own network
    """  # noqa: E501
    recipes.check_torch()
    if recipe is not None and not isinstance(recipe, Recipe):
        raise InvalidInput(f"recipe is {recipe!r}: give a fa.pretraining.Recipe, or leave it out for the paper's")
    check_progress(progress)
    tune, seed = flag("tune", tune), check_seed(seed)
    base = recipe or RECIPES.get(str(name))
    if base is None:
        raise InvalidInput(
            f'recipe is missing: {name} is none of {", ".join(RECIPES)}; give fa.pretraining.Recipe("module:name") with '
            "your own network"
        )
    data = load_samples(name, federation, folder)
    runs = []
    grid = base.grid() if tune else [base]
    for number, each in enumerate(grid):
        told = None if progress is None else progress_of_run(progress, number, len(grid))
        runs.append(learn_network(name, data, each, seed, device, precision, into, told))
    best = max(runs, key=lambda run: (np.isfinite(run.validation), run.validation))
    if not np.isfinite(best.validation):
        raise InvalidInput(f"step is {base.step:g}: the loss became infinite or not a number; give a smaller one: --step")
    recipes.choose_network(name, best.path)
    if not tune:
        return best
    tried = tuple((run.recipe, run.validation) for run in runs)
    return Pretrained(best.path, name, best.recipe, best.validation, best.test, best.epochs, tried)


def load_samples(name: str, federation: Federation | None, folder: str | Path | None) -> Federation:
    """The federation given, or the data set of that name."""
    from fedasym.data.sets.catalogue import load

    if not isinstance(name, str):
        raise InvalidInput(f"name is {name!r}: give the name of a data set, or any name for your own")
    if federation is not None:
        check_federation(federation)
    return load(name, folder=folder) if federation is None else federation


def progress_of_run(progress: Progress, number: int, total: int) -> Progress:
    """The progress of one of several runs."""
    return lambda share, text: progress((number + share) / total, f"{number + 1} of {total}: {text}" if total > 1 else text)


def learn_network(
    name: str,
    federation: Federation,
    recipe: Recipe,
    seed: int,
    device: str | None,
    precision: str | None,
    into: str | Path | None,
    progress: Progress | None,
) -> Pretrained:
    """One recipe's network: from its file where it is finished, else trained."""
    from fedasym.pretraining import descent
    from fedasym.pretraining.descent import find_device, find_precision, fit_network
    from fedasym.pretraining.networks import Source, reader_for

    where = find_device(device)
    mixed = find_precision(precision, where)
    described: dict[str, Any] = {
        "data": name,
        "fingerprint": recipes.describe_federation(federation),
        "recipe": asdict(recipe),
        "seed": seed,
    }
    path = recipes.folder_of(into, "networks") / f"{name}-{recipes.description_key(described | {'mixed': mixed})}.safetensors"
    if not path.is_file():
        reader = reader_for(name, federation)
        splits = (np.flatnonzero(federation.split == code) for code in (TRAIN, VALIDATION, TEST))
        sources: list[Source] = [Source(federation, reader, rows, where) for rows in splits]
        started = time.monotonic()
        tensors, results = fit_network(
            recipe, sources, federation.outputs, mixed, seed, path.with_suffix(".checkpoint"), progress
        )
        described |= {"reader": asdict(reader), "mixed": mixed, "device": where.type, **results}
        described["seconds"] = time.monotonic() - started
        descent.write_checkpoint(path, tensors, described)
        path.with_suffix(".checkpoint").unlink(missing_ok=True)
    held = descent.read_checkpoint(path)[1]
    validation, test = (float("nan") if held[field] is None else held[field] for field in ("validation", "test"))
    return Pretrained(path, name, recipe, validation, test, tuple(held["epochs"]))
