"""Random tables with every nuisance that users' files have: how many get advice and a fit, and with
which sentence the others are refused.

    python benchmarks/tables_fuzz.py --cases 2000 --seed 0

Anything but advice of finite numbers within their intervals, and a fit, or a refusal in words
counts as a failure and is printed with its seed; so does a warning of NumPy's.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

TESTS = Path(__file__).resolve().parents[1] / "tests" / "data" / "tables"


def main() -> int:
    """Draw, read, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from random_tables import answer, draw_table

    warnings.simplefilter("error", RuntimeWarning)
    counts: Counter[str] = Counter()
    failed = 0
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        for case in range(given.seed, given.seed + given.cases):
            try:
                counts[answer(draw_table(Random(case)), Path(folder))] += 1
            except Exception:
                failed += 1
                print(f"seed {case}:\n{traceback.format_exc(limit=-4)}")
    for kind, count in counts.most_common():
        print(f"{count:6}  {kind}")
    print(
        f"{given.cases} cases, {counts['advised']} advised, {failed} failed,"
        f" {time.perf_counter() - start:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
