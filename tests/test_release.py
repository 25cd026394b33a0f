"""What a release says of itself is the same everywhere."""

import re
from pathlib import Path

import fedasym as fa

ROOT = Path(__file__).parents[1]


def test_changelog_and_citation_have_the_package_s_number_and_one_day():
    top = re.search(
        r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    cited = dict(
        re.findall(
            r"^(version|date-released): (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
        )
    )
    assert top is not None, "the top of the changelog has no number with its day"
    assert top[1] == cited["version"] == fa.__version__
    assert top[2] == cited["date-released"]
