"""The source itself: nothing is unpickled, evaluated or handed to a shell, and no page holds a name
as markup.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import fedasym as fa

SOURCE = Path(fa.__file__).parent
MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
    "telnetlib",
    "ftplib",
}
CALLS = {"eval", "exec", "compile", "__import__"}
HOSTILE = "<script>alert(1)</script>"


def called(node: ast.Call) -> str:
    """The name by which something is called, such as np.load."""
    return ast.unparse(node.func)


def faults(tree: ast.AST) -> list[str]:
    """What the source must not do."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [each.name for each in node.names]
            )
            found += [
                f"line {node.lineno} imports {name}"
                for name in names
                if name.partition(".")[0] in MODULES
            ]
        if not isinstance(node, ast.Call):
            continue
        name, given = called(node), {each.arg: ast.unparse(each.value) for each in node.keywords}
        if name in CALLS or name in ("os.system", "os.popen", "pickle.loads"):
            found.append(f"line {node.lineno} calls {name}")
        if (
            name in ("np.load", "numpy.load", "np.lib.format.read_array")
            and given.get("allow_pickle") != "False"
        ):
            found.append(f"line {node.lineno}: {name} without allow_pickle=False")
        if name == "torch.load" and given.get("weights_only") != "True":
            found.append(f"line {node.lineno}: torch.load without weights_only=True")
        if given.get("shell") == "True":
            found.append(f"line {node.lineno} starts a shell")
        if name.endswith((".extractall", ".extract")) or name == "shutil.unpack_archive":
            found.append(f"line {node.lineno} unpacks under names of the archive's choice")
    return found


def test_no_way_to_run_what_comes_in():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    found = {
        str(file.relative_to(SOURCE)): faults(ast.parse(file.read_text(encoding="utf-8")))
        for file in files
    }
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from yaml import load", "eval('1')", "np.load(f)", "np.load(f, allow_pickle=True)", "torch.load(f)",
     "subprocess.run(a, shell=True)", "tar.extractall(p)"],
)  # fmt: skip
def test_the_rules_find_what_they_are_for(text):
    assert faults(ast.parse(text))


def test_hostile_names_are_harmless_in_notebooks_and_pages(tmp_path):
    """Clients, classes and files with markup in their names, through every result that shows itself
    as HTML.
    """
    rng = np.random.default_rng(0)
    names = [
        f"{number}{name}"
        for number in range(3)
        for name in (HOSTILE, '"><img src=x onerror=alert(2)>', "</pre><b>")
    ]
    x, who = rng.standard_normal((180, 4)), np.repeat(names, 20)
    clients = fa.Federation.from_arrays(x, x.sum(1) + 0.1 * rng.standard_normal(180), who)
    classes = fa.Federation.from_arrays(x, np.array([HOSTILE, "b"])[np.arange(180) % 2], who)
    experiment = fa.Experiment(
        name="named", about=HOSTILE, algorithms=["local"], trials={"seeds": 1, "splits": 0}
    )
    advice = fa.advise(clients)
    pages = [advice.write(tmp_path / "advice.html").read_text(encoding="utf-8")]
    shown = [
        each._repr_html_()
        for each in (clients, classes, experiment, advice)
        if hasattr(each, "_repr_html_")
    ]
    for page in [*pages, *shown]:
        assert HOSTILE not in page
        assert "<img src=x" not in page
        assert "</pre><b>" not in page
