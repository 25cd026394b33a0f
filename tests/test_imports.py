"""Rules of the house: who may import whom, and what starting costs."""

import ast
import subprocess
import sys
from pathlib import Path

import fedasym

SOURCE = Path(fedasym.__file__).parent


def imported(file: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = {".".join(("fedasym", *file.relative_to(SOURCE).with_suffix("").parts)): file for file in SOURCE.rglob("*.py")}


def test_nothing_imports_the_command_line():
    for name, file in FILES.items():
        if name != "fedasym.__main__" and not name.startswith("fedasym.cli"):
            assert not any(each.startswith("fedasym.cli") for each in imported(file)), name


def test_theory_imports_no_figures_and_no_heavy_library():
    for name, file in FILES.items():
        if name.startswith("fedasym.theory"):
            heavy = {"jax", "torch", "matplotlib", "cyclopts"}
            heavy |= set() if name.startswith("fedasym.theory.classes") else {"scipy"}  # special functions of Gaussians
            foreign = {each.split(".")[0] for each in imported(file)} & heavy
            assert not foreign, (name, foreign)
            assert not any(each.startswith("fedasym.figures") for each in imported(file)), name


def test_only_figures_import_matplotlib():
    for name, file in FILES.items():
        if not name.startswith("fedasym.figures"):
            assert not any(each.split(".")[0] == "matplotlib" for each in imported(file)), name


def test_only_training_imports_jax():
    for name, file in FILES.items():
        if not name.startswith("fedasym.training"):
            assert not any(each.split(".")[0] == "jax" for each in imported(file)), name


def test_only_pretraining_imports_torch():
    for name, file in FILES.items():
        if not name.startswith("fedasym.pretraining"):
            assert not any(each.split(".")[0] == "torch" for each in imported(file)), name


def test_client_data_and_results_do_not_start_jax():
    code = "import sys, fedasym as fa; fa.Federation, fa.History, fa.Histories, fa.train; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_importing_fedasym_is_cheap_and_has_no_side_effects():
    code = "import sys, fedasym; print([name for name in ('numpy', 'matplotlib', 'cyclopts', 'jax') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_predicting_does_not_import_matplotlib():
    code = "import sys, fedasym as fa; fa.predict(fa.Population(1, 1, 2)); print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_no_module_prints_below_the_command_line():
    for name, file in FILES.items():
        if not name.startswith("fedasym.cli"):
            calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
            assert not any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls), name


def test_only_the_runtime_on_ray_imports_ray():
    for name, file in FILES.items():
        if not name.startswith("fedasym.runtimes.ray"):
            assert not any(each.split(".")[0] == "ray" for each in imported(file)), name


def test_experiments_start_neither_ray_nor_fsspec():
    code = "import sys, fedasym as fa, fedasym.runtimes; fa.run, fa.sweep, fa.simulate; from fedasym.runtimes import ray_pieces"
    code += "; print([name for name in ('ray', 'fsspec') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
