"""The advice on a file that a browser sent, as a page, in words, and for the page's sliders."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.show.explore.receiving import Readable, receive_file

if TYPE_CHECKING:
    from fedasym.advisor.advice import Estimated

SETTINGS = ("label", "client", "task", "scale", "missing")
MOST_ATOMS = 12  # eigenvalues that the page is given of an estimated spectrum


class Advised(NamedTuple):
    """Advice as a page, as a sentence, and as what the page's sliders take (None for classes).

    recipe: what was made of a table's columns, and what was left out and why; None for arrays.
    """

    page: str
    words: str
    recipe: str | None
    estimates: dict[str, Any] | None


def advised(source: Readable, size: int, said: dict[str, str]) -> Advised:
    """Receive a file of `size` bytes and advise on it; `said`: its name, its columns with their roles, and its task."""
    with receive_file(source, size, said.get("name", "")) as file:
        return advice_on(file, said)


def advice_on(file: Path, said: dict[str, str]) -> Advised:
    """Read, advise, and put it into words."""
    from fedasym.advisor.advise import advise
    from fedasym.core.errors import ThresholdWarning
    from fedasym.data.sets.reading import read
    from fedasym.results.metric import LOSS
    from fedasym.show.report.advice import page

    told: dict[str, Any] = {key: said[key] for key in SETTINGS if said.get(key)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # the advice says it among its doubts
        federation = read(file, roles=read_roles(said.get("roles")), **told)
        advice = advise(federation)
    words = f"{said['name']}: use {advice.recommended}. The whole advice is below."
    estimates = sliders(advice.population) if advice.metric is LOSS else None
    recipe = None if federation.recipe is None else federation.recipe.describe(flags=False)
    return Advised(page(advice), words, recipe, estimates)


def read_roles(text: str | None) -> dict[str, str]:
    """Columns and their roles, from JSON.

    >>> read_roles('{"zip": "ignore"}'), read_roles(None)
    ({'zip': 'ignore'}, {})
    """
    if not text:
        return {}
    try:
        roles = json.loads(text)
    except (ValueError, RecursionError):
        roles = None
    if not isinstance(roles, dict) or not all(isinstance(role, str) for role in roles.values()):
        raise InvalidInput(f"roles is {text[:60]!r}: give a JSON object of columns and their roles")
    return roles


def sliders(found: Estimated) -> dict[str, Any]:
    """The estimates as the page's controls name them; the spectrum by a few eigenvalues, each the mean of its share."""
    s, h = binned(found.spectrum.values, found.spectrum.weights)
    pairs = ",".join(f"{value:.6g}@{share:.6g}" for value, share in zip(s, h, strict=True))
    world = found.world
    numbers = {name: float(f"{getattr(world, name):.6g}") for name in ("radius", "noise", "aspect", "norm")}
    return {**numbers, "clients": found.clients, "shift_power": found.shift_power, "kind": "atoms", "atoms": pairs}


def binned(values: Any, weights: Any) -> tuple[list[float], list[float]]:
    """Eigenvalues merged into at most `MOST_ATOMS` of about equal shares, in rising order.

    >>> binned([2.0, 1.0], [0.5, 0.5])
    ([1.0, 2.0], [0.5, 0.5])
    """
    order = np.argsort(values)
    s, h = np.asarray(values, dtype=float)[order], np.asarray(weights, dtype=float)[order]
    place = np.minimum((np.cumsum(h) - h / 2) * MOST_ATOMS // 1, MOST_ATOMS - 1).astype(int)
    kept = [place == at for at in np.unique(place)]
    shares = [round(float(h[some].sum()), 6) for some in kept]
    shares[-1] = round(1 - sum(shares[:-1]), 6)
    return [float(s[some] @ h[some] / h[some].sum()) for some in kept], shares
