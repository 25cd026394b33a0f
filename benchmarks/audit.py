"""Known weaknesses of everything that `requirements/dev.lock` pins, as the package index tells
them.

    python benchmarks/audit.py [LOCK]

`pip-audit` asks for each version's own page, which some mirrors of the index do not have. Here,
where that page is missing, the package's page answers for its newest release; of a pin that is
older, nothing is then known, and the list says so. Ends with 1 if a pin has an advisory that is not
withdrawn, or was withdrawn itself ("yanked").
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from pip._internal.models.index import PyPI

LOCK = Path(__file__).resolve().parents[1] / "requirements" / "dev.lock"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)
MISSING = 404


class Answer(NamedTuple):
    """What the index says of a pin."""

    name: str
    version: str
    spoken_of: str  # the release that the answer is about
    advisories: list[str]
    yanked: bool

    @property
    def known(self) -> bool:
        """Whether the answer is about the pin itself."""
        return self.version == self.spoken_of


def page(*words: str) -> dict[str, Any] | None:
    """A page of the index; None where it has none."""
    try:
        with urlopen("/".join([PyPI.pypi_url, *words, "json"]), timeout=60) as answer:
            return json.load(answer)
    except HTTPError as problem:
        if problem.code == MISSING:
            return None
        raise


def ask(pin: tuple[str, str]) -> Answer:
    """The index's answer about a pin, or about its package's newest release."""
    name, version = pin
    found = page(name, version) or page(name)
    if found is None:
        sys.exit(f"the index does not know {name}: is its JSON interface within reach?")
    advisories = [
        f"{entry['id']} ({', '.join(entry['aliases'])}), mended in"
        f" {', '.join(entry['fixed_in']) or 'no release'}"
        for entry in found["vulnerabilities"]
        if not entry.get("withdrawn")
    ]
    files = found.get("releases", {}).get(version, found["urls"])
    return Answer(
        name, version, found["info"]["version"], advisories, any(file["yanked"] for file in files)
    )


def listed(words: str, answers: Iterable[Answer]) -> None:
    """Print some pins, if there are any."""
    told = [f"{answer.name} {answer.version}" for answer in answers]
    if told:
        print(f"{words} ({len(told)}): {', '.join(told)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lock", type=Path, nargs="?", default=LOCK)
    pins = sorted(set(PIN.findall(parser.parse_args().lock.read_text())))
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, pins))
    bad = [answer for answer in answers if answer.known and answer.advisories]
    for answer in bad:
        print(f"{answer.name} {answer.version}: {'; '.join(answer.advisories)}")
    yanked = [answer for answer in answers if answer.yanked]
    listed("yanked", yanked)
    listed(
        "older than the release that the index speaks of, so nothing is known",
        (each for each in answers if not each.known),
    )
    answered = sum(answer.known for answer in answers)
    print(
        f"{len(pins)} pins, {answered} with an answer: {len(bad)} have advisories, {len(yanked)}"
        " are yanked"
    )
    sys.exit(bool(bad or yanked))


if __name__ == "__main__":
    main()
