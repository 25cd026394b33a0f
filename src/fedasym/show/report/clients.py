"""The clients one by one: how personalization's gains are distributed, and who is hurt by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fedasym.core.arrays import Array
from fedasym.experiments.plan import SEEDS, SPLITS
from fedasym.show.report.markup import Html, element, joined
from fedasym.show.report.tables import Cell, Column, count, minus, table
from fedasym.show.report.ticks import ticks
from fedasym.show.report.words import percent, quantiles

if TYPE_CHECKING:
    from fedasym.experiments.results import Results

BINS = 24
MOST_HURT = 12  # clients that are named
QUARTERS = 4  # groups of clients by their number of samples
WIDTH, HEIGHT, FLOOR, MARGIN = 240, 130, 104, 16


@dataclass(frozen=True, eq=False)
class Gains:
    """What personalization brings each client over the shared model, a mean over trials; in points, or in loss."""

    algorithm: str
    table: pl.DataFrame  # client, samples, tested, own, shared, gain

    @property
    def values(self) -> Array:
        """A gain per client."""
        return self.table["gain"].to_numpy()

    @property
    def shares(self) -> tuple[float, float, float]:
        """The clients that lose, that stay the same and that gain."""
        return float((self.values < 0).mean()), float((self.values == 0).mean()), float((self.values > 0).mean())


def gains_of(results: Results) -> tuple[str, list[Gains]]:
    """The sweep that is looked at, and the algorithms that change a shared model for their clients."""
    sweep = next((each for each in (SEEDS, SPLITS) if each in results.clients["sweep"]), SEEDS)
    name, unit = results.statistic, 1.0 if results.statistic == "loss" else 100.0
    held = results.clients.filter((pl.col("sweep") == sweep) & (pl.col("tested") > 0) & pl.col("gain").is_finite())
    means = held.group_by("algorithm", "client", maintain_order=True).agg(
        pl.col("samples", "tested").first(),
        pl.col(name).mean().alias("own") * unit,
        pl.col(f"shared_{name}").mean().alias("shared") * unit,
        pl.col("gain").mean() * unit,
    )
    found = [Gains(str(each), part) for (each,), part in means.group_by("algorithm", maintain_order=True)]
    return sweep, [each for each in found if (each.values != 0).any()]


def shown(value: float, loss: bool) -> str:
    """A gain."""
    return minus(f"{value:+.4g}" if loss else f"{value:+.2f}")


def distribution_table(gains: list[Gains], loss: bool) -> Html:
    """Every algorithm's gains in a row."""
    unit = "loss" if loss else "points"
    columns = [Column("algorithm", text=True), *map(Column, ("clients", "lose", "same", "gain", f"mean, {unit}"))]
    columns += map(Column, quantiles(np.zeros(1)))
    rows = []
    for each in gains:
        row = [Cell(each.algorithm), count(len(each.values)), *(Cell(percent(share)) for share in each.shares)]
        numbers = [float(each.values.mean()), *quantiles(each.values).values()]
        rows.append([*row, *(Cell(shown(value, loss)) for value in numbers)])
    return table(columns, rows, label="Gains of clients by algorithm")


def histograms(gains: list[Gains], loss: bool) -> Html:
    """A small histogram for each algorithm, on one scale; what lies beyond its ends is counted in the last bars."""
    every = np.concatenate([each.values for each in gains])
    low, high = (float(np.percentile(every, at)) for at in (0.5, 99.5))
    marks = ticks(min(low, 0.0), max(high, 0.0), BINS)
    step = marks[1] - marks[0]
    # Who loses is never counted among those who gain, however few they are.
    first = min(np.floor(low / step), -1.0 if every.min() < 0 else 0.0)
    last = max(np.ceil(high / step), 1.0 if every.max() >= 0 else 0.0)
    edges = step * np.arange(first, last + 1)
    return element("div", *(histogram(each, edges, loss) for each in gains), class_="small")


def histogram(gains: Gains, edges: Array, loss: bool) -> Html:
    """One histogram: bars left of the line at 0 are clients that lose."""
    inside = np.clip(gains.values, edges[0], np.nextafter(edges[-1], -np.inf))
    counts = np.histogram(inside, edges)[0]
    wide, tall = WIDTH / len(counts), (FLOOR - 6) / max(int(counts.max()), 1)
    unit = "" if loss else " points"
    bars = [
        element(
            "rect",
            element("title", f"{shown(edges[i], loss)} to {shown(edges[i + 1], loss)}{unit}: {many} clients"),
            x=f"{i * wide + 0.5:.1f}",
            y=f"{FLOOR - tall * many:.1f}",
            width=f"{wide - 1:.1f}",
            height=f"{tall * many:.1f}",
            class_="lose" if edges[i] < -1e-9 * abs(edges[-1]) else "gain",
        )
        for i, many in enumerate(counts)
        if many
    ]
    zero = place(0.0, edges)
    labels = [
        element("text", minus(f"{tick:+g}") if tick else "0", x=f"{place(tick, edges):.1f}", y=FLOOR + 16, text_anchor="middle")
        for tick in ticks(float(edges[0]), float(edges[-1]), 4)
    ]
    lose, same, gain = map(percent, gains.shares)
    spoken = f"{gains.algorithm}: {lose} of the clients lose, {same} stay the same, {gain} gain"
    middle = quantiles(gains.values)
    label = f"{spoken}; half of them between {shown(middle['25 %'], loss)} and {shown(middle['75 %'], loss)}{unit}."
    base = element("line", x1=0, x2=WIDTH, y1=FLOOR, y2=FLOOR, class_="base")
    line = element("line", x1=f"{zero:.1f}", x2=f"{zero:.1f}", y1=2, y2=FLOOR + 4, class_="zero")
    svg = element(
        "svg",
        *bars,
        base,
        line,
        element("g", *labels, class_="labels"),
        viewBox=f"{-MARGIN} 0 {WIDTH + 2 * MARGIN} {HEIGHT}",
        role="img",
        aria_label=label,
    )
    caption = element("figcaption", element("b", gains.algorithm), f" {lose} lose, {gain} gain")
    return element("figure", caption, svg, class_="histogram")


def place(value: float, edges: Array) -> float:
    """Where a gain lies in a histogram."""
    return WIDTH * float((value - edges[0]) / (edges[-1] - edges[0]))


def by_samples(gains: list[Gains], loss: bool) -> Html:
    """Whether clients with few samples fare otherwise: mean gain and share that loses, by quarters of the clients."""
    sizes = gains[0].table["samples"].to_numpy()
    if len(sizes) < 2 * QUARTERS or sizes.min() == sizes.max():
        return element("p", "Clients train on about as many samples, or are too few to be grouped by that.")
    parts = np.array_split(np.argsort(sizes, kind="stable"), QUARTERS)
    heads = [f"{sizes[part].min()} to {sizes[part].max()} samples" for part in parts]
    rows = []
    for each in gains:
        values, own = each.values, each.table["samples"].to_numpy()
        cells = []
        for part in np.array_split(np.argsort(own, kind="stable"), QUARTERS):
            mean = float(values[part].mean())
            cells.append(Cell(f"{shown(mean, loss)}, {percent(float((values[part] < 0).mean()))} lose"))
        rows.append([Cell(each.algorithm), *cells])
    return table([Column("algorithm", text=True), *map(Column, heads)], rows, label="Gains by number of samples")


def most_hurt(gains: list[Gains], loss: bool) -> Html:
    """The clients that lose most, by name, and what each algorithm does for them."""
    own = {each.algorithm: dict(zip(each.table["client"], map(float, each.values), strict=True)) for each in gains}
    lowest: dict[str, float] = {}
    for by_client in own.values():
        for client, gain in by_client.items():
            lowest[client] = min(gain, lowest.get(client, gain))
    losers = sorted((gain, client) for client, gain in lowest.items() if gain < 0)
    if not losers:
        return element("p", "No client is hurt by any algorithm.")
    sizes = {
        row["client"]: row for each in gains for row in each.table.select("client", "samples", "tested").iter_rows(named=True)
    }
    rows = []
    for _, client in losers[:MOST_HURT]:
        held = [by_client.get(client, math.nan) for by_client in own.values()]
        cells = [Cell("–" if math.isnan(gain) else shown(gain, loss)) for gain in held]
        rows.append([Cell(client), count(sizes[client]["samples"]), count(sizes[client]["tested"]), *cells])
    columns = [Column("client", text=True), *map(Column, ("trains on", "tested on", *own))]
    text = f"{len(losers)} of {len(lowest)} clients lose by some algorithm; these lose most. Gains by algorithm:"
    return joined(element("h3", "Hurt most"), element("p", text), table(columns, rows, label="The clients that lose most"))
