"""The documentation is true: its Python runs, its commands run, its links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

from .command import fedasym

ROOT = Path(__file__).parent.parent
WRITTEN = [
    page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"
]  # docstrings run in their place
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # figures are drawn there
    failed, _ = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_with_examples_have_some():
    for page in (ROOT / "docs" / "learn").glob("*.md"):
        assert ">>>" in page.read_text() or page.name == "README.md", page.name


def commands() -> list[tuple[str, str, str]]:
    """Every fedasym command in a console block, with the output that follows its prompt, if any."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.S):
            parts = re.split(r"^(?:\$ )?(fedasym .*)$", block, flags=re.M)
            pairs = zip(parts[1::2], parts[2::2], strict=True)
            found += [
                (page.name, command.split("  #")[0].strip(), output.strip())
                for command, output in pairs
            ]
    return found


@pytest.mark.parametrize(("page", "command", "output"), commands())
def test_commands_run_and_print_what_the_page_says(page, command, output, tmp_path):
    done = fedasym(*command.split()[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if output:
        said = done.stdout.strip()
        if "..." in output.splitlines():  # some lines are left out
            form = re.escape(output.strip(".\n")).replace(r"\.\.\.", ".*")
            assert re.search(form, said, flags=re.S), said
        else:
            assert said == output


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
