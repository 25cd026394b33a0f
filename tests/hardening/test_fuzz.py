"""Valid inputs made wrong, through every way in: a result or a refusal in words, soon, in little
memory, within its folder.

`python benchmarks/fuzz.py` does the same with as many cases as one likes; SECURITY.md has its
numbers.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import doors, messages, states

DOORS = [*doors.FILES, *doors.WORDS, *messages.DOORS, *states.DOORS]
CASES = 40  # of each door


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_what_is_valid_is_taken(door):
    for sample in door.samples():
        assert door.try_(sample) is None


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_whatever_comes_in(door):
    door.samples()  # made once, outside of what is timed

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def cases(random: Random) -> None:
        door.try_(door.case(random))

    cases()


def test_bytes_without_any_sense(tmp_path):
    """Random bytes under every name that is read."""
    random = Random(0)
    for door in DOORS:
        if (
            door not in doors.WORDS
            and door.name not in ("saved results", "run folder")
            and door not in messages.DOORS[1:]
        ):
            for size in (0, 1, 8, 200):
                door.try_(random.randbytes(size))
