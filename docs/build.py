"""Build the documentation: `python docs/build.py [--into out/docs]`. The reference is written
first; any fault is an error.

No network is used, by this program or by the pages that it writes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

try:
    from builder import reference
    from builder.pages import ROOT
    from builder.site import Site
except ModuleNotFoundError as missing:
    sys.exit(f"The documentation needs {missing.name}: pip install 'fedasym[docs]'")


def main() -> int:
    """Write the reference and the site; how the program ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "out" / "docs")
    told = parser.parse_args()
    warnings.simplefilter("error")
    for changed in reference.write():
        print(f"wrote {changed.relative_to(ROOT)}")
    site = Site()
    if faults := site.read():
        print("\n".join(faults), file=sys.stderr)
        print(f"{len(faults)} faults: nothing was built", file=sys.stderr)
        return 1
    print(f"{site.write(told.into)} pages in {told.into}: open {told.into / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
