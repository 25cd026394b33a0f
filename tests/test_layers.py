"""The package's layers: each imports from those before it alone, imports inside functions and for
types included. And the names of its functions.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fedasym

SOURCE = Path(fedasym.__file__).parent
LAYERS = (
    "core",
    "worlds",
    "algorithms",
    "theory",
    "exact",
    "results",
    "verbs",
    "data",
    "training",
    "pretraining",
    "experiments",
    "models",
    "advisor",
    "show",
    "deploy",
)
FACADE = (
    "__init__",
    "__main__",
    "cli",
)  # what users import, and the commands, which use it as they do
IRREGULAR = """
begun between bought brought built caught chosen come dealt done drawn driven felt forgotten found
frozen given gone got grown heard held hidden kept known laid led left lent lost made meant met own
paid proven said seen sent shaken shown shrunk sold sought spent spoken stood stuck sworn taken
taught thought thrown told torn understood won woven written
"""
PARTICLES = "again as at away back by down for from in into never off on out over to up with"
NO_PARTICIPLES = frozenset({"embed", "setting", "tuning"})  # a verb, and nouns


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("fedasym", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imported(tree: ast.AST, known: set[str]):
    """Every module of the package that a file imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedasym":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in known else node.module), node.lineno
        elif isinstance(node, ast.Import):
            yield from (
                (alias.name, node.lineno)
                for alias in node.names
                if alias.name.split(".")[0] == "fedasym"
            )


class Walk(NamedTuple):
    """What a file imports of the package, which stages it names, and its functions whose name is a
    bare participle; with the lines.
    """

    imports: list[tuple[str, int]]
    stages: list[tuple[str, int]]
    participles: list[tuple[str, int]]


@cache
def walk_source() -> dict[Path, Walk]:
    """What all the rules of this file look at, by file."""
    files = {module_of(file): file for file in SOURCE.rglob("*.py")}
    known, stages = set(files), stage_classes()
    found = {}
    for file in files.values():
        tree = ast.parse(file.read_text())
        found[file] = Walk(
            list(imported(tree, known)), list(stages_named(tree, stages)), list(participles(tree))
        )
    return found


def edges() -> dict[tuple[str, str], list[str]]:
    """Who imports whom, by layer, and where."""
    found = defaultdict(list)
    for file, walk in walk_source().items():
        layer = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if layer in FACADE:
            continue
        for target, line in walk.imports:
            other = [*target.split("."), "(the facade)"][1]
            if other != layer:
                found[layer, other].append(f"{file.relative_to(SOURCE)}:{line} imports {target}")
    return found


def test_every_folder_is_a_layer():
    folders = {
        path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders == {*LAYERS, "cli"}


def test_a_layer_imports_from_those_before_it_alone():
    wrong = [
        place
        for (layer, other), places in edges().items()
        if other not in LAYERS or LAYERS.index(other) > LAYERS.index(layer)
        for place in places
    ]
    assert wrong == []


def stage_classes() -> set[str]:
    """The package's own stages, ceilings and those of files included."""
    bases = {"Stage", "ServerStage", "ClientStage", "ScoreStage"}
    found: set[str] = set()
    trees = [ast.parse(file.read_text()) for file in sorted((SOURCE / "algorithms").glob("*.py"))]
    kinds = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while more := {
        kind.name
        for kind in kinds
        if kind.name not in bases | found
        and any(isinstance(base, ast.Name) and base.id in bases | found for base in kind.bases)
    }:
        found |= more
    return found


def stages_named(tree: ast.AST, stages: set[str]):
    """Every stage that a file imports, or takes from a module as an attribute, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "fedasym.algorithms"
        ):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name in stages)


def test_stages_are_known_by_what_they_are_and_not_by_their_class():
    stages = stage_classes()
    assert {"Average", "Keep", "Ridge", "Moreau", "Meta", "Truth", "StoredClient"} <= stages
    assert not stages & {"ClientStage", "Algorithm"}
    wrong = [
        f"{file.relative_to(SOURCE)}:{line} names {name}"
        for file, walk in walk_source().items()
        if file.relative_to(SOURCE).parts[0] not in ("algorithms", "theory")
        for name, line in walk.stages
    ]
    assert wrong == []
    caught = "from fedasym.algorithms import Keep\nisinstance(stage, algorithms.Ridge)\n"
    assert [name for name, _ in stages_named(ast.parse(caught), stages)] == ["Keep", "Ridge"]


def is_participle(name: str) -> bool:
    """Whether a name is a participle, alone or with particles: `held`, `handed_out`."""
    first, *rest = name.strip("_").split("_")
    regular = first.endswith(("ed", "ing")) and first not in NO_PARTICIPLES
    return (regular or first in IRREGULAR.split()) and set(rest) <= set(PARTICLES.split())


def participles(tree: ast.AST):
    """Every function that such a name is given, inner ones and imported ones too, with the line;
    properties may say what an object is.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kinds = {ast.unparse(each) for each in node.decorator_list}
            names = [] if kinds & {"property", "cached_property"} else [node.name]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.asname for alias in node.names if alias.asname]
        else:
            continue
        yield from ((name, node.lineno) for name in names if is_participle(name))


def test_functions_are_named_by_what_they_do_or_give():
    """Verbs with an object, or quantities: a bare participle says neither."""
    wrong = [
        f"{file.relative_to(SOURCE)}:{line} {name}"
        for file, walk in walk_source().items()
        for name, line in walk.participles
    ]
    assert wrong == []
    caught = """
from fedasym.data import fetch as fetched

class Client:
    @property
    def converged(self): ...

    def held(self):
        def handed_out(): ...

    def held_out_rows(self): ...

    def read_by_name(self): ...

    @classmethod
    def _known(cls): ...

def embed(): ...

async def running(): ...
"""
    found = sorted(name for name, _ in participles(ast.parse(caught)))
    assert found == ["_known", "fetched", "handed_out", "held", "running"]


def test_the_rule_can_fail():
    tree = ast.parse("def f():\n    from fedasym.cli import app\n    import fedasym.show\n")
    assert [target for target, _ in imported(tree, {"fedasym.cli"})] == [
        "fedasym.cli",
        "fedasym.show",
    ]
    assert len(edges()) > 40  # there is a graph to look at
