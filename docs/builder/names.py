"""The public names: what `fedasym` has, and where the reference explains it."""

from __future__ import annotations

import re
from functools import cached_property
from types import ModuleType

import fedasym

MODULES = ("algorithms", "datasets", "linear", "pretraining", "runtimes", "spectra")
HIDDEN = ("__version__",)


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
    """The anchor of a name in the reference, as headings have it."""
    return re.sub(r"[^\w\- ]", "", dotted.lower())


class Names:
    """All public names with a place in the reference."""

    @cached_property
    def explained(self) -> dict[str, str]:
        """Dotted names and their anchors."""
        own = [f"fa.{name}" for name in fedasym.__all__ if name not in (*MODULES, *HIDDEN)]
        inner = [
            f"fa.{name}.{each}" for name in MODULES for each in members(getattr(fedasym, name))
        ]
        return {
            name: anchor_of(name) for name in (*own, *inner, *(f"fa.{name}" for name in MODULES))
        }

    def find(self, text: str) -> tuple[bool, str | None]:
        """Whether code in a text is right to speak of `fa.…`, and the anchor of what explains it,
        if it is one name alone.

        >>> Names().find("fa.predict"), Names().find("fa.predcit"), Names().find("x = 1")
        ((True, 'fapredict'), (False, None), (True, None))
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
