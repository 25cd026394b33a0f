"""The table that comes with fedasym, `shops`: invented daily sales of 40 shops, drawn here.

Every shop has 12 to 40 days, five columns that describe the day, and coefficients of its own around
common ones. Nothing in it was measured: it is there so that `fedasym advise shops` has something to
work on, and so that its advice can be held against the law that it was drawn from.

    python examples/draw_shops.py [shops.csv]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PLACE = Path(__file__).resolve().parents[1] / "src" / "fedasym" / "data" / "shops.csv"
SHOPS = 40
COMMON = np.array([-4.0, 3.0, 2.5, 6.0, 5.0])  # per standard deviation of a column
SPREAD = 2.5  # how far a shop's coefficients are from the common ones
NOISE = 6.0


def draw_table(seed: int = 1) -> str:
    """The table as CSV."""
    rng = np.random.default_rng(seed)
    lines = ["shop,price,discount,temperature,visitors,weekend,sales"]
    for shop in range(SHOPS):
        own = COMMON + SPREAD * rng.standard_normal(len(COMMON))
        level = 100 + 8 * rng.standard_normal()
        for _ in range(rng.integers(12, 41)):
            z = rng.standard_normal(4)
            weekend = int(rng.random() < 2 / 7)
            described = np.append(z, (weekend - 2 / 7) / np.sqrt(10 / 49))
            sales = level + described @ own + NOISE * rng.standard_normal()
            price, discount = 10 + 1.5 * z[0], 12 + 4 * z[1]
            temperature, visitors = 15 + 7 * z[2], 240 + 60 * z[3]
            cells = f"{price:.2f},{discount:.1f},{temperature:.1f},{visitors:.0f}"
            lines.append(f"shop {shop + 1:02d},{cells},{weekend},{sales:.1f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE
    place.write_text(draw_table(), encoding="utf-8")
    print(f"Written to {place}")
