"""Flower: the algorithms where samples stay with the clients, each on a machine of its own. Here
are the apps: the config of a run in the words of `fedasym.train`, apps as files, and one handed to
a running federation.

An app imports this package: three short modules and the config that they run with. Flower is not
needed to write one.
"""

from __future__ import annotations

import hashlib
import io
import json
import keyword
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from fedasym.algorithms import Algorithm, find
from fedasym.algorithms.registry import REGISTRY, is_built_in, read_entry_points
from fedasym.core.errors import InvalidInput, MissingPackage, one_of, path_of, unknown_name
from fedasym.core.numbers import check_seed, flag, whole
from fedasym.core.privacy import Privacy
from fedasym.data.recipe import DATES, MISSING_RULES, SCALES
from fedasym.data.samples import TASKS, class_names
from fedasym.training.plans import check_private
from fedasym.training.settings import (
    ABOUT,
    SETTINGS,
    Protocol,
    Settings,
    check_steps,
    check_trainable,
    default_of,
    find_protocol,
    is_rate,
    is_size,
    named_settings,
    own_settings,
    resolve_ridge,
    used_settings,
    with_intercept,
)

PRECISIONS = ("float32", "float64")
STEPS = ("server_step", "local_step", "inner_step")  # which a run may leave open
PRIVACY = ("none", "central", "local")
RULES: dict[str, Any] = {
    "seed": 0,
    "protocol": "text",
    "intercept": True,
    "precision": "float32",
    "min-nodes": 2,
    "timeout": 600.0,
    "outlier-bound": 10.0,
    "privacy": "none",
    "epsilon": 0.0,
    "noise-multiplier": 0.0,
    "delta": 1e-6,
    "clip": 0.0,
    "sampling": "poisson",
    "save-every": 5,
    "resume": False,
}


@dataclass(frozen=True)
class RunConfiguration:
    """One run: the algorithm with its settings, and the rules of the federation.

    precision: of the heads that are sent; clients compute in float64.
    min_nodes: the server waits for this many before it begins. timeout: seconds that a round waits
        for replies.
    outlier_bound: a change longer than this many medians is shortened; 0: never.
    noise_on_nodes: where privacy noise is added: on the nodes, or on the server. The budget is in
        the settings.
    classes: as the run config names them; None where it does not.
    chosen: names of steps that the run config leaves open: the features' scale says them.
    data_name: what the results call the data; the server cannot know.

    >>> configuration = RunConfiguration.of(
    ...     "rtfa", {"rounds": 3, "server-step": 0.5, "min-nodes": 3}
    ... )
    >>> configuration.settings.server_step, configuration.settings.ridge, configuration.min_nodes
    (0.5, 0.1, 3)
    """

    algorithm: Algorithm
    settings: Settings
    protocol: Protocol
    seed: int
    precision: str
    min_nodes: int
    timeout: float
    outlier_bound: float
    noise_on_nodes: bool
    save_every: int
    resume: bool
    classes: tuple[Any, ...] | None = None
    chosen: tuple[str, ...] = ()
    data_name: str = ""

    def with_steps(self, steps: Mapping[str, float]) -> RunConfiguration:
        """The same with steps that were left open.

        >>> one = RunConfiguration.of("fedavg", {"rounds": 3, "server-step": 0.0})
        >>> one.chosen, one.with_steps({"server_step": 0.02}).settings.server_step
        (('server_step',), 0.02)
        """
        told: dict[str, Any] = dict(steps)
        return replace(self, settings=replace(self.settings, **told))

    @classmethod
    def of(cls, algorithm: str | Algorithm, config: Mapping[str, Any]) -> RunConfiguration:
        """Read and check a run config; what it does not name has its usual value."""
        chosen = find_algorithm(algorithm)
        told = {name: config[kebab_name(name)] for name in SETTINGS if kebab_name(name) in config}
        told["cohort"] = told.get("cohort") or None
        open_steps = [
            name for name in STEPS if name not in told or (is_rate(told[name]) and not told[name])
        ]
        told = {name: value for name, value in told.items() if name not in open_steps}
        rules = RULES | {name: config[name] for name in RULES if name in config}
        if rules["precision"] not in PRECISIONS:
            raise unknown_name("precision", rules["precision"], PRECISIONS)
        if not is_size(rules["min-nodes"], 1):
            raise InvalidInput(
                f"min-nodes is {rules['min-nodes']!r}: it must be a whole number of at least 1"
            )
        for name, least in (("timeout", "above"), ("outlier-bound", "of at least")):
            if not is_rate(rules[name]) or (least == "above" and rules[name] == 0):
                raise InvalidInput(
                    f"{name} is {rules[name]!r}: it must be a finite number {least} 0"
                )
        own = {
            name: each.check(config.get(kebab_name(name), default_of(chosen, name)))
            for name, each in own_settings(chosen).items()
        }
        privacy = read_budget(rules, chosen)
        given = Settings(**told, own=tuple(own.items()), privacy=privacy)
        settings = resolve_ridge(given, chosen)
        if settings.rounds == 0:
            raise InvalidInput("rounds is 0: a federation that learns something has at least 1")
        protocol = with_intercept(find_protocol(rules["protocol"]), rules["intercept"])
        return cls(
            chosen,
            settings,
            protocol,
            seed=check_seed(rules["seed"]),
            precision=rules["precision"],
            min_nodes=int(rules["min-nodes"]),
            timeout=float(rules["timeout"]),
            outlier_bound=float(rules["outlier-bound"]),
            noise_on_nodes=rules["privacy"] == "local",
            save_every=whole("save-every", rules["save-every"], least=0),
            resume=flag("resume", rules["resume"]),
            classes=parse_classes(config.get("classes")),
            chosen=()
            if privacy is not None
            else tuple(name for name in open_steps if name in used_settings(chosen)),
            data_name=str(config.get("data-name", "")),
        )


def find_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """An algorithm that a federation can train: one that has steps."""
    chosen = find(algorithm)
    check_trainable(chosen)
    check_steps(chosen)
    return chosen


def read_budget(rules: Mapping[str, Any], algorithm: Algorithm) -> Privacy | None:
    """The privacy budget of a run config; None where privacy is "none". A number 0 says nothing."""
    one_of("privacy", rules["privacy"], PRIVACY)
    given = {name: rules[kebab_name(name)] or None for name in ("epsilon", "noise_multiplier")}
    given["clip"] = rules["clip"] or None
    if rules["privacy"] == "none":
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(
                    f"{kebab_name(name)} is {value!r} and privacy is none: set privacy to central"
                    " or local; the bound on changes that are far too long is outlier-bound"
                )
    if rules["privacy"] == "none" or algorithm.shares_nothing:
        return None
    known: dict[str, Any] = given
    budget = Privacy(**known, delta=rules["delta"], sampling=rules["sampling"])
    check_private(algorithm, budget)
    return budget


def parse_classes(value: Any) -> tuple[Any, ...] | None:
    """The names of the classes from a config: their number, or names separated by commas; None
    where nothing is said.

    >>> parse_classes("3"), parse_classes("well, ill"), parse_classes("1,2,5"), parse_classes("")
    ((0, 1, 2), ('well', 'ill'), (1, 2, 5), None)
    """
    if value in (None, "", 0):
        return None
    if not isinstance(value, str):
        return class_names(value)
    parts: list[Any] = [part.strip() for part in value.split(",")]
    if all(re.fullmatch(r"-?[0-9]{1,18}", part) for part in parts):
        parts = [int(part) for part in parts]
        return class_names(parts[0]) if len(parts) == 1 else class_names(parts)
    return class_names(parts)


def read_rules(config: Mapping[str, Any]) -> dict[str, Any]:
    """How a config wants tables to be read.

    >>> rules = read_rules({"label": "score", "features": "age, hours", "roles": "zip=ignore"})
    >>> rules["features"], rules["roles"], rules["scale"]
    (['age', 'hours'], {'zip': ('ignore',)}, 'standard')
    """
    for name in ("label", "client", "features", "task", "roles"):
        if not isinstance(config.get(name, ""), str):
            raise InvalidInput(f"{name} is {config[name]!r}: give text")
    columns = [each.strip() for each in config.get("features", "").split(",") if each.strip()]
    words = [each.partition("=") for each in config.get("roles", "").split(",") if each.strip()]
    return {
        "label": config.get("label") or "label",
        "client": config.get("client") or "client",
        "features": columns or None,
        "task": one_of("task", config["task"], TASKS) if config.get("task") else None,
        "scale": one_of("scale", config.get("scale") or SCALES[0], SCALES),
        "missing": one_of("missing", config.get("missing") or MISSING_RULES[0], MISSING_RULES),
        "dates": one_of("dates", config.get("dates") or DATES[0], DATES),
        "intercept": flag("intercept", config.get("intercept", True)),
        "roles": {name.strip(): tuple(role.strip().split("+")) for name, _, role in words},
    }


def default_config(algorithm: Algorithm) -> dict[str, Any]:
    """The run config that an app begins with: what the algorithm uses, then the rules."""
    own = tuple((name, default_of(algorithm, name)) for name in own_settings(algorithm))
    settings = resolve_ridge(Settings(rounds=50, evaluate_every=10, own=own), algorithm)
    used = {
        kebab_name(name): 0.0 if name in STEPS else value
        for name, value in named_settings(settings, algorithm).items()
    }
    return used | {"cohort": settings.cohort or 0} | RULES


def kebab_name(name: str) -> str:
    """A name as Flower's configs write it."""
    return name.replace("_", "-")


ADVISE = "advise"
ADVICE_RULES = ("intercept", "min-nodes", "timeout", "delta")  # those that advice needs
MODULES = ("client_app.py", "server_app.py", "task.py")
DATA_COLUMNS = {  # where samples have what; a node's own --node-config goes first
    "label": ("label", "column of the labels"),
    "client": ("client", "column of the clients"),
    "features": (
        "",
        (
            "columns of the features, separated by commas and the same on every node; empty: all"
            " other numeric ones"
        ),
    ),
    "task": ("", "regression or classification; empty: as the labels look"),
    "classes": (
        "",
        "their number, or their names separated by commas: needed where labels are classes",
    ),
    "scale": (
        "standard",
        "standard: features centred and scaled over all nodes; none: as they are",
    ),
    "missing": (
        "error",
        "missing values: error, drop (rows), mean, or indicator (mean, and a mark)",
    ),
    "roles": ("", "roles of columns, such as zip=ignore,grade=category; empty: as the cells look"),
    "dates": ("ignore", "ignore, or number: days since the first date of training"),
    "data-name": ("", "what the results call the data: the server never learns where they are"),
}
CHOICE = "; 0: as the features' scale allows, at most {most:g}; with privacy {most:g}"
CONFIG_MEANING = {
    kebab_name(name): about.meaning + (CHOICE.format(most=about.default) if name in STEPS else "")
    for name, about in ABOUT.items()
} | {
    "cohort": "clients drawn in a round; 0: 20; all connected ones where there are fewer",
    "seed": "of cohorts and batches",
    "protocol": "text: as the paper says; code: as its released code does",
    "intercept": "whether heads have one, shared and personal",
    "precision": "of the heads that are sent, float32 or float64",
    "min-nodes": "the run begins when this many nodes are connected",
    "timeout": "seconds that a round waits for replies, and a run for nodes that are at fault",
    "outlier-bound": "changes above this many times the round's median are shortened; 0: never",
    "privacy": "none; central: the server adds noise; local: every node does, before it sends",
    "epsilon": "privacy budget of all rounds together; 0: noise-multiplier says it",
    "noise-multiplier": "instead of epsilon: the noise, in units of the clip",
    "delta": "failure probability of the privacy budget; well below 1/clients",
    "clip": "length to which each client's update is clipped, where there is privacy",
    "sampling": "of private cohorts: poisson, or fixed, which the same noise protects less",
    "save-every": "rounds after which the server saves its state and the shared head; 0: none",
    "resume": "go on after the last saved round, where there is one",
    "statistics-epsilon": "privacy budget of the statistics that nodes send; 0: without noise",
    "shared-path": "where the server keeps the shared head",
    "advice-path": "where the server keeps the advice, as JSON",
}


def write_app(
    what: str | Algorithm, into: str | Path, rules: Mapping[str, Any] | None = None
) -> Path:
    """Write the app of an algorithm, or the one that asks the advisor ("advise"), to a new or empty
    folder; returns it.

    rules: values of its config other than usual, such as {"privacy": "central", "epsilon": 4.0}.

    what: a name, with settings in parentheses or without, an `Algorithm`, `module:name` or
    `FILE.py:name`; the module of one from outside the package travels with the app.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     app = write_app("rtfa", folder + "/my-app")
    ...     sorted(path.name for path in app.rglob("*.*"))
    ['__init__.py', 'client_app.py', 'pyproject.toml', 'server_app.py', 'task.py']
    """
    what = import_beside(what) if isinstance(what, str) else what
    algorithm = None if what == ADVISE else algorithm_to_deploy(what)
    if algorithm is not None and algorithm.name.endswith(")"):
        algorithm, told = separate_settings(algorithm)
        rules = told | dict(rules or {})
    name = ADVISE if algorithm is None else algorithm.name
    if algorithm is not None:
        RunConfiguration.of(algorithm, default_config(algorithm) | dict(rules or {}))
    origin = (
        None
        if algorithm is None or REGISTRY.is_built_in(algorithm.name)
        else algorithm_file(algorithm, what)
    )
    folder = path_of("into", into)
    package = package_name(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(
            f"into is {str(into)!r}, which is not an empty folder: name a new one, or empty it"
            " first"
        )
    known = name if origin is None else f"{package}.{origin[0].stem}:{origin[1]}"
    words = {
        "name": package.replace("_", "-"),
        "package": package,
        "algorithm": known,
        "config": config_text(algorithm, rules or {}),
    }
    words["description"] = (
        "Federated advice with fedasym"
        if what == ADVISE
        else f"{name}, personalized federated learning"
    )
    try:
        (folder / package).mkdir(parents=True)
        (folder / "pyproject.toml").write_text(
            fill_template("pyproject.toml", words), encoding="utf-8"
        )
        (folder / package / "__init__.py").write_text(
            f'"""{words["description"]}, as a Flower app."""\n', encoding="utf-8"
        )
        for module in MODULES:
            text = fill_template(f"{'advise' if what == ADVISE else 'train'}/{module}", words)
            (folder / package / module).write_text(text, encoding="utf-8")
        if origin is not None:
            (folder / package / origin[0].name).write_bytes(origin[0].read_bytes())
    except OSError as reason:
        raise InvalidInput(
            f"into is {str(into)!r}: it cannot be written: {reason.strerror}; name another folder"
        ) from None
    return folder


def package_name(folder: Path) -> str:
    """The name of the app's package: the folder's, as Python can import it.

    >>> package_name(Path("apps/my-app"))
    'my_app'
    """
    package = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_")
    if not package.isidentifier() or keyword.iskeyword(package) or package == "fedasym":
        raise InvalidInput(
            f"into is {str(folder)!r}: its name must begin with a letter and be no word of Python,"
            " like my-app"
        )
    return package


def algorithm_to_deploy(what: str | Algorithm) -> Algorithm:
    """The algorithm that an app is to train."""
    return find_algorithm(find(what, others=[ADVISE]))


def separate_settings(algorithm: Algorithm) -> tuple[Algorithm, dict[str, Any]]:
    """One with settings in parentheses as the package's own, and the config that says them.

    >>> chosen, told = separate_settings(find("fedavg(local_steps=20)"))
    >>> chosen.name, told
    ('local_sgd', {'local-steps': 20})
    """
    kinds = [type(stage) for stage in algorithm.parts.values()]
    own = next(
        each
        for each in REGISTRY.values()
        if REGISTRY.is_built_in(each.name)
        and [type(stage) for stage in each.parts.values()] == kinds
    )
    pairs = zip(algorithm.parts.values(), own.parts.values(), strict=True)
    return own, {
        kebab_name(name): getattr(mine, name)
        for mine, usual in pairs
        for name in mine.settings()
        if getattr(mine, name) != getattr(usual, name)
    }


def import_beside(what: str) -> str:
    """FILE.py:name as module:name, with the file's folder where modules are looked for.

    >>> import_beside("my.algorithms:proximal")
    'my.algorithms:proximal'
    """
    place, colon, name = what.rpartition(":")
    file = Path(place)
    if not colon or file.suffix != ".py":
        return what
    if not file.is_file() or not file.stem.isidentifier():
        raise InvalidInput(f"algorithm is {what!r}: there is no file {place} that can be imported")
    known = sys.modules.get(file.stem)
    if known is not None and Path(getattr(known, "__file__", "") or "") != file.resolve():
        raise InvalidInput(
            f"algorithm is {what!r}: a module {file.stem} is imported already; rename the file"
        )
    sys.path.insert(0, str(file.resolve().parent))
    return f"{file.stem}:{name}"


def algorithm_file(algorithm: Algorithm, what: str | Algorithm) -> tuple[Path, str] | None:
    """The file of an algorithm from outside, and its name there; None: nodes have its package."""
    if isinstance(what, str) and ":" not in what and what in read_entry_points():
        return None
    named = [what.partition(":")[0]] if isinstance(what, str) and ":" in what else []
    for name in (
        *named,
        *(type(stage).__module__ for stage in algorithm.stages if not is_built_in(type(stage))),
    ):
        module = sys.modules.get(name)
        path = Path(getattr(module, "__file__", None) or "")
        names = [each for each, held in vars(module).items() if held is algorithm] if module else []
        if names and path.suffix == ".py" and path.name not in (*MODULES, "__init__.py"):
            return path, names[0]
    raise InvalidInput(
        f"algorithm is {algorithm.name}, whose code is in no module of its own: write its stages"
        " and the algorithm to a file, and name it as FILE.py:name"
    )


def config_text(algorithm: Algorithm | None, rules: Mapping[str, Any]) -> str:
    """The run config as TOML, every value with what it means; None: of the advisor's app."""
    if algorithm is None:
        values: dict[str, Any] = {name: RULES[name] for name in ADVICE_RULES}
        values |= {"statistics-epsilon": 0.0, "advice-path": "advice.json"}
        for name, value in rules.items():
            if name not in values:
                raise InvalidInput(
                    f"{name} is {value!r}, which is for training: the advice app has"
                    f" {', '.join(values)}"
                )
        values |= dict(rules)
    else:
        values = default_config(algorithm) | {"shared-path": "shared.safetensors"} | dict(rules)
    own = (
        {}
        if algorithm is None
        else {kebab_name(name): each.meaning for name, each in own_settings(algorithm).items()}
    )
    lines = [(name, value, CONFIG_MEANING.get(name) or own[name]) for name, value in values.items()]
    lines += [(name, *told) for name, told in DATA_COLUMNS.items()]
    written = [(f"{name} = {json.dumps(value)}", meaning) for name, value, meaning in lines]
    width = max(len(text) for text, _ in written)
    return "\n".join(f"{text:<{width}}  # {meaning}" for text, meaning in written)


def fill_template(name: str, words: dict[str, str]) -> str:
    """A template of this package with its words put in."""
    template = files("fedasym.deploy.flower") / "templates" / f"{name}.txt"
    return Template(template.read_text(encoding="utf-8")).substitute(words)


MOST_UNPACKED = 2**27  # bytes of an app
# what reading a zip file raises that is none
BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    struct.error,
    UnicodeError,
)


def digest_app(app: str | Path) -> str:
    """The digest of an app in a folder: of all that Flower would send to the nodes.

    It is SHA-256 over the names and contents of the files, and does not depend on how they are
    packed. The table of pyproject.toml counts, and not how it is written, as Flower writes it anew.
    """
    folder = path_of("app", app)
    if not (folder / "pyproject.toml").is_file():
        raise InvalidInput(f"app is {str(app)!r}: it has no pyproject.toml; name an app's folder")
    if find_spec("flwr") is None:  # what `deploy` has written, which is all that there is
        found = [folder / "pyproject.toml", *sorted(folder.rglob("*.py"))]
        return digest_files(
            {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}
        )
    from flwr.cli.build import build_fab_from_disk

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower's own
            packed = build_fab_from_disk(folder)
        return digest_archive(packed)
    except ValueError as reason:
        raise InvalidInput(f"app is {str(app)!r}: Flower does not take it: {reason}") from None


def digest_archive(content: bytes) -> str:
    """The digest of an app as Flower packs it, a zip file; refused where it is not just files."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            held = archive.infolist()
            names = [each.filename for each in held]
            if len(set(names)) < len(names) or not all(map(is_plain_name, names)):
                raise InvalidInput("an app's archive names a file twice, or one outside of it")
            if sum(each.file_size for each in held) > MOST_UNPACKED:
                raise InvalidInput(f"an app's archive unpacks to more than {MOST_UNPACKED} bytes")
            files = {name: archive.read(name) for name in names if name != ".info/CONTENT"}
    except InvalidInput:
        raise
    except BROKEN_ARCHIVE as reason:
        raise InvalidInput(f"an app's archive cannot be read: {reason}") from None
    return digest_files(files)


def digest_files(files: Mapping[str, bytes]) -> str:
    r"""SHA-256 of names and contents.

    >>> one, two = (
    ...     digest_files({"pyproject.toml": text, "task.py": b"1"})
    ...     for text in (b"a = 1\nb = 2", b"b=2 # two\na=1")
    ... )
    >>> one == two, one == digest_files({"pyproject.toml": b"a = 1\nb = 2", "task.py": b"2"})
    (True, False)
    """
    lines = []
    for name, content in sorted(files.items()):
        told = canonical_table(content) if name == "pyproject.toml" else content
        lines.append(f"{hashlib.sha256(told).hexdigest()} {json.dumps(name)}")
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def canonical_table(content: bytes) -> bytes:
    """A pyproject.toml by its values."""
    try:
        told = tomllib.loads(content.decode("utf-8"))
        told.get("tool", {}).get("flwr", {}).pop("federations", None)  # Flower leaves it out
    except (ValueError, AttributeError, RecursionError):
        raise InvalidInput("an app's pyproject.toml is not that of an app") from None
    return json.dumps(told, sort_keys=True, default=str).encode()


def is_plain_name(name: str) -> bool:
    """Whether a name in an archive is that of a file inside of its folder."""
    parts = name.split("/")
    return (
        "\\" not in name and "\0" not in name and all(part not in ("", ".", "..") for part in parts)
    )


def advise_nodes(superlink: str | None = None, config: Mapping[str, Any] | None = None) -> None:
    """Ask the advisor in a federation, and stream its log, which ends in the advice, to the
    terminal.

    superlink: the connection's name in Flower's own configuration; its default without one.
    config: values of the run config other than usual, such as {"min-nodes": 3, "task":
        "regression"}.
    """
    command = shutil.which("flwr", path=str(Path(sys.executable).parent)) or shutil.which("flwr")
    if command is None:
        raise MissingPackage("a federation needs flwr: pip install 'fedasym[flower]'")
    told = " ".join(f"{name}={json.dumps(value)}" for name, value in (config or {}).items())
    with tempfile.TemporaryDirectory() as folder:
        app = write_app(ADVISE, Path(folder) / "advice")
        words = [command, "run", str(app), *([superlink] if superlink else []), "--stream"]
        done = subprocess.run([*words, *(["--run-config", told] if told else [])], check=False)
    if done.returncode:
        raise InvalidInput(
            "flwr run failed, for the reason that it gives above: docs/how-to/flower.md has every"
            " step"
        )
