"""Rules of the house: who may import whom, and what starting costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedasym

SOURCE = Path(fedasym.__file__).parent


def read(file: Path) -> tuple[set[str], bool]:
    """Every module that a file imports, anywhere in it; and whether it prints."""
    names, prints = set(), False
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            prints |= isinstance(node.func, ast.Name) and node.func.id == "print"
    return names, prints


@pytest.fixture(scope="module")
def modules() -> dict[str, tuple[set[str], bool]]:
    """What every module imports, and whether it prints: one walk over the source."""
    return {
        ".".join(("fedasym", *file.relative_to(SOURCE).with_suffix("").parts)): read(file)
        for file in SOURCE.rglob("*.py")
    }


def importing(modules, prefix: str, *homes: str) -> list[str]:
    """The modules outside of their homes that import something."""
    return [
        name
        for name, (names, _) in modules.items()
        if not name.startswith(homes) and any(f"{each}.".startswith(f"{prefix}.") for each in names)
    ]


def test_nothing_imports_the_command_line(modules):
    assert importing(modules, "fedasym.cli", "fedasym.cli") == []  # __main__ starts it by name


@pytest.mark.parametrize(
    "library", ["jax", "torch", "matplotlib", "cyclopts", "scipy", "fedasym.show.figures"]
)
def test_theory_imports_no_figures_and_no_heavy_library(modules, library):
    theory = {name: each for name, each in modules.items() if name.startswith("fedasym.theory")}
    special = (  # special functions of Gaussians; in rounds imported where a clip needs them
        ("fedasym.theory.classes", "fedasym.theory.rounds") if library == "scipy" else ()
    )
    assert len(theory) > 10
    assert importing(theory, library, *special) == []


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("matplotlib", ["fedasym.show.figures"]),
        ("jax", ["fedasym.training", "fedasym.deploy.shards"]),  # which trains on Ray's workers
        ("torch", ["fedasym.pretraining"]),
        ("ray", ["fedasym.deploy.ray", "fedasym.deploy.shards"]),
    ],
)
def test_a_heavy_library_is_imported_where_it_is_at_home(modules, library, homes):
    assert importing(modules, library, *homes) == []
    assert importing(modules, library)  # where it is at home


def test_no_module_prints_below_the_command_line(modules):
    assert [
        name
        for name, (_, prints) in modules.items()
        if prints and not name.startswith("fedasym.cli")
    ] == []


STARTS = {
    "importing fedasym": ("import fedasym", "numpy matplotlib cyclopts jax"),
    "importing the exact lens": ("import fedasym.exact", "numpy scipy sklearn"),
    "predicting": ("import fedasym as fa; fa.predict(fa.Population(1, 1, 2))", "matplotlib scipy"),
    "classes": ("import fedasym as fa; fa.ClassPopulation(1, 1, 2).energies", "scipy"),
    "client data and results": (
        (
            "import numpy as np, fedasym as fa; fa.Federation, fa.History, fa.Histories, fa.train,"
            " fa.algorithms;fa.Federation.from_arrays(np.eye(4), [0, 1, 1, 0],"
            " clients=list('aabb'))"
        ),
        "jax",
    ),
    "experiments": (
        (
            "import fedasym as fa, fedasym.deploy; fa.run, fa.sweep, fa.simulate; from"
            " fedasym.deploy import ray"
        ),
        "ray fsspec",
    ),
}


@pytest.mark.parametrize("way", STARTS)
def test_starting_is_cheap_and_imports_nothing_that_is_not_needed(way):
    code, heavy = STARTS[way]
    code += f"; import sys; print([name for name in {heavy.split()} if name in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
