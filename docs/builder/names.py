"""The public names: what `fedasym` has, and where the reference explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import fedasym


@dataclass(frozen=True)
class Task:
    """A page of the reference: what one does with it, the layers whose names it has, and modules."""

    title: str
    meaning: str
    layers: tuple[str, ...]
    modules: tuple[str, ...]


TASKS = {
    "predict": Task(
        "Predict and simulate",
        "losses and accuracies of populations, before anything is trained",
        ("verbs", "worlds", "results"),
        ("spectra",),
    ),
    "data": Task(
        "Client data",
        "federations, tables, data sets, networks and their features",
        ("data",),
        ("datasets", "pretraining"),
    ),
    "advise": Task(
        "Advise and fit",
        "which algorithm for given clients, what-ifs, exact fits that are kept and applied",
        ("advisor", "models"),
        ("linear",),
    ),
    "train": Task(
        "Train",
        "stochastic gradients, histories, privacy, algorithms and stages of your own",
        ("training", "algorithms", "core"),
        ("algorithms",),
    ),
    "experiments": Task(
        "Experiments and reports",
        "tune, repeat and compare; pages; the paper again; clusters",
        ("experiments", "show"),
        ("runtimes",),
    ),
}
MODULES = tuple(sorted(name for task in TASKS.values() for name in task.modules))
HIDDEN = ("__version__",)
INDEX = "python"  # the page that lists all names, and has the errors


def page_of(name: str) -> str:
    """The page of the reference that explains a name of the package: that of its layer.

    >>> page_of("predict"), page_of("linear"), page_of("InvalidInput")
    ('predict', 'advise', 'python')
    """
    layer = (getattr(getattr(fedasym, name), "__module__", "") or "").split(".")[1:2]
    for page, task in TASKS.items():
        if name in task.modules or (layer and layer[0] in task.layers):
            return page
    return INDEX


def members(module: ModuleType) -> list[str]:
    """The public names of a public module: what it lists, or its own classes and functions that
    have a docstring example.
    """
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", None) == module.__name__
    ]
    return [name for name in own if not name.startswith(("_", "check", "resolve"))]


def anchor_of(dotted: str) -> str:
    """The anchor of a name in the reference, as headings have it: a class that differs from a verb
    by its capitals alone comes after it, and is numbered.

    >>> anchor_of("fa.rounds"), anchor_of("fa.Rounds")
    ('farounds', 'farounds-1')
    """
    plain = re.sub(r"[^\w\- ]", "", dotted.lower())
    name = dotted.removeprefix("fa.")
    second = name.lower() != name and name.lower() in fedasym.__all__
    return f"{plain}-1" if second else plain


class Names:
    """All public names with a place in the reference."""

    @cached_property
    def explained(self) -> dict[str, str]:
        """Dotted names and their addresses within the reference."""
        names = {f"fa.{name}": page_of(name) for name in fedasym.__all__ if name not in HIDDEN} | {
            f"fa.{name}.{each}": page_of(name)
            for name in MODULES
            for each in members(getattr(fedasym, name))
        }
        return {name: f"{page}.html#{anchor_of(name)}" for name, page in names.items()}

    def find(self, text: str) -> tuple[bool, str | None]:
        """Whether code in a text is right to speak of `fa.…`, and the address of what explains
        it, if it is one name alone.

        >>> Names().find("fa.predict"), Names().find("fa.predcit"), Names().find("x = 1")
        ((True, 'predict.html#fapredict'), (False, None), (True, None))
        """
        for dotted in re.findall(r"\bfa((?:\.[A-Za-z]\w*)+)", text):
            thing = fedasym
            for name in dotted.strip(".").split("."):
                if not hasattr(thing, name):
                    return self.described(thing, name), None
                thing = getattr(thing, name)
        alone = re.fullmatch(r"(fa(?:\.\w+)+)(?:\(.*\))?", text, flags=re.S)
        return True, self.explained.get(alone[1]) if alone else None

    def described(self, thing: object, name: str) -> bool:
        """Whether a class has a field of that name, which its instances alone have."""
        return name in getattr(thing, "__annotations__", {}) or name in getattr(
            thing, "model_fields", {}
        )
