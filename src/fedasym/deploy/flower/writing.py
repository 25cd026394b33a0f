"""Write a Flower app that imports this package: three short modules and the config that they run with. Flower is not needed."""

from __future__ import annotations

import json
import keyword
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fedasym.algorithms import TRAINED, Algorithm, find
from fedasym.algorithms.description import is_built_in
from fedasym.algorithms.registry import REGISTRY, packaged
from fedasym.core.errors import InvalidInput, path_of, unknown
from fedasym.deploy.flower.configuration import RULES, defaults, found, kebab
from fedasym.training.settings import ABOUT, own_settings

ADVISE = "advise"
MODULES = ("client_app.py", "server_app.py", "task.py")
DATA = {  # where samples have what; a node's own --node-config goes first
    "label": ("label", "column of the labels"),
    "client": ("client", "column of the clients"),
    "features": ("", "columns of the features, separated by commas and the same on every node; empty: all other numeric ones"),
    "task": ("", "regression or classification; empty: as the labels look"),
    "classes": ("", "their number, or their names separated by commas: needed where labels are classes"),
    "data-name": ("", "what the results call the data: the server never learns where they are"),
}
MEANING = {kebab(name): about.meaning for name, about in ABOUT.items()} | {
    "cohort": "clients drawn in a round; 0: 20; all connected ones where there are fewer",
    "seed": "of cohorts and batches",
    "protocol": "text: as the paper says; code: as its released code does",
    "intercept": "whether heads have one, shared and personal",
    "precision": "of the heads that are sent, float32 or float64",
    "min-nodes": "the run begins when so many nodes are there",
    "timeout": "seconds that a round waits for replies, and a run for nodes that are at fault",
    "clip": "a change of the head longer than so many medians of the round is shortened; 0: never",
    "shared-path": "where the server keeps the shared head",
    "advice-path": "where the server keeps the advice, as JSON",
}


def write_app(what: str | Algorithm, into: str | Path) -> Path:
    """Write the app of an algorithm, or the one that asks the advisor ("advise"), to a new or empty folder; returns it.

    what: a name, an `Algorithm`, or `module:name`; the module of one from outside the package travels with the app.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     app = write_app("rtfa", folder + "/my-app")
    ...     sorted(path.relative_to(app).as_posix() for path in app.rglob("*.*"))
    ['my_app/__init__.py', 'my_app/client_app.py', 'my_app/server_app.py', 'my_app/task.py', 'pyproject.toml']
    """
    algorithm = None if what == ADVISE else deployed(what)
    name = ADVISE if algorithm is None else algorithm.name
    origin = None if algorithm is None or algorithm.name in TRAINED else origin_of(algorithm, what)
    folder = path_of("into", into)
    package = package_of(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"into is {str(into)!r}, which is not an empty folder: name a new one, or empty it first")
    known = name if origin is None else f"{package}.{origin[0].stem}:{origin[1]}"
    words = {"name": package.replace("_", "-"), "package": package, "algorithm": known, "config": config_of(algorithm)}
    words["description"] = "Federated advice with fedasym" if what == ADVISE else f"{name}, personalized federated learning"
    try:
        (folder / package).mkdir(parents=True)
        (folder / "pyproject.toml").write_text(filled("pyproject.toml", words), encoding="utf-8")
        (folder / package / "__init__.py").write_text(f'"""{words["description"]}, as a Flower app."""\n', encoding="utf-8")
        for module in MODULES:
            text = filled(f"{'advise' if what == ADVISE else 'train'}/{module}", words)
            (folder / package / module).write_text(text, encoding="utf-8")
        if origin is not None:
            (folder / package / origin[0].name).write_bytes(origin[0].read_bytes())
    except OSError as reason:
        raise InvalidInput(f"into is {str(into)!r}: it cannot be written: {reason.strerror}; name another folder") from None
    return folder


def package_of(folder: Path) -> str:
    """The name of the app's package: the folder's, as Python can import it.

    >>> package_of(Path("apps/my-app"))
    'my_app'
    """
    package = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_")
    if not package.isidentifier() or keyword.iskeyword(package) or package == "fedasym":
        raise InvalidInput(f"into is {str(folder)!r}: its name must begin with a letter and be no word of Python, like my-app")
    return package


def deployed(what: str | Algorithm) -> Algorithm:
    """The algorithm that an app is to train."""
    if isinstance(what, str) and ":" not in what and what not in REGISTRY:
        raise unknown("algorithm", what, (*(name for name, each in REGISTRY.items() if not each.shares_nothing), ADVISE))
    return found(find(what))


def origin_of(algorithm: Algorithm, what: str | Algorithm) -> tuple[Path, str] | None:
    """The file of an algorithm from outside the package, and its name there; None: every node has its package installed."""
    if isinstance(what, str) and ":" not in what and what in packaged():
        return None
    named = [what.partition(":")[0]] if isinstance(what, str) and ":" in what else []
    for name in (*named, *(type(stage).__module__ for stage in algorithm.stages if not is_built_in(type(stage)))):
        module = sys.modules.get(name)
        path = Path(getattr(module, "__file__", None) or "")
        names = [each for each, held in vars(module).items() if held is algorithm] if module else []
        if names and path.suffix == ".py" and path.name not in (*MODULES, "__init__.py"):
            return path, names[0]
    raise InvalidInput(
        f"algorithm is {algorithm.name}, whose code is in no module of its own: write its stages and the algorithm to a file, "
        "and name it as module:name"
    )


def config_of(algorithm: Algorithm | None) -> str:
    """The run config as TOML, every value with what it means; None: of the advisor's app."""
    if algorithm is None:
        values: dict[str, Any] = {name: RULES[name] for name in ("min-nodes", "timeout")} | {"advice-path": "advice.json"}
    else:
        values = defaults(algorithm) | {"shared-path": "shared.safetensors"}
    own = {} if algorithm is None else {kebab(name): each.meaning for name, each in own_settings(algorithm).items()}
    lines = [(name, value, MEANING.get(name) or own[name]) for name, value in values.items()]
    lines += [(name, *told) for name, told in DATA.items()]
    if algorithm is None:  # it is for numbers: whole ones are meant as such
        lines = [
            ("task", "regression", meaning) if name == "task" else (name, value, meaning) for name, value, meaning in lines
        ]
    written = [(f"{name} = {json.dumps(value)}", meaning) for name, value, meaning in lines]
    width = max(len(text) for text, _ in written)
    return "\n".join(f"{text:<{width}}  # {meaning}" for text, meaning in written)


def filled(name: str, words: dict[str, str]) -> str:
    """A template of this package with its words put in."""
    template = files("fedasym.deploy.flower") / "templates" / f"{name}.txt"
    return Template(template.read_text(encoding="utf-8")).substitute(words)
