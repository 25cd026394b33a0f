"""Draw every figure of the documentation and print every number that its pages state.

    python docs/draw.py                             figures to docs/figures/*.svg, numbers printed
    python docs/draw.py --folder out --ending png   elsewhere, in another format

Curves come from fedasym's public names. Dots are exact linear algebra on random clients of a few
hundred dimensions: features are drawn, while the averages over displacements and noise given the
features are computed exactly.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: more threads are slower
os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import fedasym as fa

COLOUR = {
    "local": "#9a9a9a",
    "local_ridge": "#5f5f5f",
    "fedavg": "#e69f00",
    "ftfa": "#56b4e9",
    "rtfa": "#0072b2",
    "maml": "#cc79a7",
    "pfedme": "#009e73",
}  # as in the figures that fedasym itself draws
WORD = COLOUR | {
    "fedavg": "#b97a00",
    "ftfa": "#2b8cc4",
    "maml": "#b0578a",
    "local": "#7d7d7d",
}  # darker, for text
INK, GREY, PALE = "#333333", "#777777", "#bbbbbb"
SHADES = ["#b58bd0", "#8a54b0", "#5f2a86", "#33104d"]  # one quantity at rising levels
STYLE = {
    "svg.hashsalt": "fedasym",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}
TWO_ATOMS = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
ARROW = {"arrowstyle": "->", "color": GREY, "lw": 0.8}
DOT = {
    "marker": "o",
    "linestyle": "none",
    "markersize": 5,
    "markeredgecolor": "white",
    "markeredgewidth": 0.8,
    "zorder": 5,
}


# ---- drawing
# ---------------------------------------------------------------------------------------------------------


def panel(title: str, x: str, y: str, height: float = 3.9) -> tuple[plt.Figure, Axes]:
    """One set of axes, 600 px wide as SVG, with room for labels on the right."""
    figure, axes = plt.subplots(figsize=(6.25, height), layout="constrained")
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def labels(
    axes: Axes, entries: Iterable[tuple[float, str, str]], gap: float = 0.062, x: float = 1.015
) -> None:
    """Labels (height in data, text, colour) right of the axes, moved apart where they would
    overlap.
    """
    place = axes.transData.transform
    low, high = (axes.transAxes.transform((0, v))[1] for v in (0, 1))
    listed = sorted(
        ((place((axes.get_xlim()[1], y))[1] - low) / (high - low), text, colour)
        for y, text, colour in entries
    )
    at = np.array([entry[0] for entry in listed])
    for _ in range(500):
        for i in range(at.size - 1):
            short = gap - (at[i + 1] - at[i])
            if short > 1e-9:
                at[i] -= short / 2
                at[i + 1] += short / 2
    for y, (_, text, colour) in zip(at, listed, strict=True):
        axes.text(
            x, y, text, color=colour, transform=axes.transAxes, va="center", ha="left", fontsize=10
        )


def ticks(axis: mpl.axis.Axis, values: Iterable[float]) -> None:
    """Plain numbers at the given places, also on logarithmic axes."""
    values = list(values)
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_minor_formatter(mpl.ticker.NullFormatter())


def heading(text: str) -> None:
    """A line above a page's numbers."""
    print(f"\n{text}\n{'-' * len(text)}")


def row(name: str, *values: float | str, width: int = 11) -> None:
    """One line of a page's numbers."""
    cells = (value if isinstance(value, str) else f"{value:.5g}" for value in values)
    print(f"{name:<34}" + "".join(f"{cell:>{width}}" for cell in cells))


# ---- simulation
# ------------------------------------------------------------------------------------------------------


def client(rng: np.random.Generator, n: int, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of the sample covariance of n Gaussian samples whose covariance
    is diag(s).
    """
    x = rng.standard_normal((n, s.size)) * np.sqrt(s)
    values, vectors = np.linalg.eigh(x.T @ x / n)
    values[: max(s.size - n, 0)] = 0
    return np.maximum(values, 0), vectors


def filtered(
    keep: Callable[[np.ndarray], np.ndarray],
    noise: float,
    n: int,
    s: np.ndarray,
    energy: np.ndarray,
    draws: int,
    seed: int,
) -> float:
    """Mean loss of a client that starts at the true theta_0 and keeps keep(S) of its error; energy:
    of the displacement.
    """
    rng, total = np.random.default_rng(seed), 0.0
    for _ in range(draws):
        x, v = client(rng, n, s)
        p = keep(x)
        fit = np.where(x > 0, (1 - p) ** 2 / np.where(x > 0, x, 1), 0)
        kept = v.T @ (s[:, None] * v)  # the covariance in the sample's eigenvectors
        shift = v.T @ (energy[:, None] * v)
        total += p @ (kept * shift) @ p + noise**2 / n * fit @ np.diag(kept)
    return total / draws


def federation(
    m: int,
    n: int,
    d: int,
    noise: float,
    stages: dict[str, tuple],
    draws: int,
    seed: int,
    centre: float = 0.0,
) -> dict[str, float]:
    """Mean loss of a member of a federation of m clients with uncorrelated features and radius 1.

    stages: name -> (b, keep), the server's weights b(S) and the share of the shared model's error
        that a client keeps.
    centre: squared length of theta_0, which matters where all samples are fewer than the unknowns.
    """
    rng = np.random.default_rng(seed)
    total = dict.fromkeys(stages, 0.0)
    for _ in range(draws):
        if m * n < d:
            x = rng.standard_normal((m * n, d))
            inverse = np.linalg.pinv(x)
            errors = [
                inverse[:, j * n : j * n + n] @ x[j * n : j * n + n] - (j == 0) * np.eye(d)
                for j in range(m)
            ]
            loss = sum(np.sum(e**2) for e in errors) / d + noise**2 * np.sum(inverse**2)
            loss += centre / d * (d - m * n)
            total = {name: value + loss for name, value in total.items()}
            continue
        clients = [client(rng, n, np.ones(d)) for _ in range(m)]
        for name, (b, keep) in stages.items():
            weight = [(v * b(x)) @ v.T / m for x, v in clients]
            sample = [(v * x) @ v.T for x, v in clients]
            q = np.linalg.inv(sum(w @ s for w, s in zip(weight, sample, strict=True)))
            x, v = clients[0]
            p = keep(x)
            P = (v * p) @ v.T
            F = (v * np.where(x > 0, (1 - p) / np.where(x > 0, x, 1), 0)) @ v.T
            for j in range(m):
                through = P @ q @ weight[j]
                shift = through @ sample[j] - (j == 0) * P
                spread = through + (j == 0) * F
                total[name] += np.sum(shift**2) / d + noise**2 / n * np.sum(
                    (spread @ sample[j]) * spread
                )
    return {name: value / draws for name, value in total.items()}


def plain(x: np.ndarray) -> np.ndarray:
    """Server weights of FedAvg."""
    return np.ones_like(x)


def null(x: np.ndarray) -> np.ndarray:
    """What interpolation keeps: the directions that no sample sees."""
    return np.where(x > 0, 0.0, 1.0)


def pull(ridge: float) -> Callable[[np.ndarray], np.ndarray]:
    """What a ridge keeps."""
    return lambda x: ridge / (x + ridge)


def damped(step: float) -> Callable[[np.ndarray], np.ndarray]:
    """Server weights of MAML."""
    return lambda x: (1 - step * x) ** 2


def weighted(ridge: float) -> Callable[[np.ndarray], np.ndarray]:
    """Server weights of pFedMe."""
    return lambda x: 1 / (x + ridge)


# ---- pages
# -----------------------------------------------------------------------------------------------------------


def page_1(save: Callable[[plt.Figure, str], None]) -> None:
    """Learning together: the picture of the model and the first table."""
    figure, axes = plt.subplots(figsize=(6.25, 3.7), layout="constrained")
    centre, r = np.array([4.2, 1.15]), 1.35
    angle = np.arctan2(centre[1], centre[0]) + np.pi / 2
    mine = centre + r * np.array([np.cos(angle), np.sin(angle)])
    others = centre + r * np.array(
        [[np.cos(a), np.sin(a)] for a in (0.35, 1.15, 2.75, 3.65, 4.5, 5.5)]
    )
    axes.add_patch(plt.Circle(centre, r, fill=False, color=PALE, linewidth=1.2))
    axes.plot(*others.T, "o", color=PALE, markersize=7)
    axes.annotate(
        "",
        mine,
        (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": COLOUR["local"], "lw": 1.8, "shrinkB": 4},
    )
    axes.annotate(
        "",
        mine,
        centre,
        arrowprops={"arrowstyle": "-|>", "color": COLOUR["ftfa"], "lw": 1.8, "shrinkB": 4},
    )
    axes.plot(
        [0, centre[0]], [0, centre[1]], color=COLOUR["fedavg"], linestyle=(0, (2, 2)), linewidth=1.2
    )
    axes.plot(0, 0, "o", color=INK, markersize=6)
    axes.plot(*centre, "o", color=COLOUR["fedavg"], markersize=8)
    axes.plot(*mine, "o", color=COLOUR["ftfa"], markersize=8)
    axes.text(-0.1, -0.28, "0", ha="center", va="top")
    axes.text(
        -0.1,
        -0.62,
        "a client on its own\nstarts here",
        ha="center",
        va="top",
        fontsize=9,
        color=INK,
        linespacing=1.3,
    )
    axes.text(
        centre[0] + 0.14,
        centre[1] - 0.12,
        "$\\theta_0$ shared\noptimum",
        va="top",
        color=WORD["fedavg"],
    )
    axes.text(
        mine[0] - 0.05,
        mine[1] + 0.2,
        r"$\theta_i$ this client's optimum",
        color=WORD["ftfa"],
        ha="center",
    )
    axes.text(1.75, 1.42, r"norm $\rho$", color=WORD["local_ridge"], ha="right")
    axes.text(*(0.55 * centre + 0.45 * mine + [0.12, 0.0]), r"radius $r$", color=WORD["ftfa"])
    axes.text(
        others[0][0] + 0.18,
        others[0][1],
        "other clients'\noptima",
        color=GREY,
        va="center",
        fontsize=9,
    )
    axes.set_xlim(-1.2, 7.2)
    axes.set_ylim(-1.3, 2.95)
    axes.set_aspect("equal")
    axes.axis("off")
    save(figure, "model")

    heading("1. Learning together")
    table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2))
    row("radius 1, noise 0.5, aspect 2", "loss", "bias", "variance")
    for name, risk in table.items():
        row(name, risk.loss, risk.bias, risk.variance)
    row("length of theta_0", 3**0.5)


def page_2(save: Callable[[plt.Figure, str], None]) -> None:
    """High dimension: double descent and kappa."""
    noise, d = 0.5, 200
    figure, axes = panel(
        "Double descent in the aspect",
        "aspect: unknowns per sample, d/n",
        "test loss above the noise floor",
    )
    below, above = np.geomspace(0.1, 0.985, 150), np.geomspace(1.015, 10, 150)
    aspects = np.geomspace(0.1, 10, 300)
    world = fa.Population(1, noise, aspects)
    for part in (below, above):
        axes.plot(
            part,
            fa.predict(fa.Population(1, noise, part), "ftfa")["ftfa"].loss,
            color=COLOUR["ftfa"],
        )
    axes.plot(aspects, fa.predict(world, ["rtfa"])["rtfa"].loss, color=COLOUR["rtfa"])
    axes.axhline(1, color=COLOUR["fedavg"])
    axes.axvline(1, color=PALE, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
    for n in (1000, 500, 333, 250, 172, 136, 100, 67, 40, 25):
        s = np.ones(d)
        dots = [
            filtered(keep, noise, n, s, s / d, 20, seed=n)
            for keep in ((null if n < d else lambda x: 0 * x), pull(noise**2 * d / n))
        ]
        axes.plot(d / n, dots[0], color=COLOUR["ftfa"], **DOT)
        axes.plot(d / n, dots[1], color=COLOUR["rtfa"], **DOT)
    axes.set_xscale("log")
    axes.set_xlim(0.1, 10)
    axes.set_ylim(0, 2.5)
    ticks(axes.xaxis, (0.1, 0.2, 0.5, 1, 2, 5, 10))
    axes.text(
        0.76, 2.44, "more samples\nthan unknowns", ha="right", va="top", fontsize=9, color=GREY
    )
    axes.text(
        1.32, 2.44, "fewer samples\nthan unknowns", ha="left", va="top", fontsize=9, color=GREY
    )
    axes.annotate(
        "ftfa: fine-tune\nto convergence",
        (0.72, 0.64),
        (0.115, 0.62),
        color=WORD["ftfa"],
        va="center",
        fontsize=10,
    )
    axes.text(0.115, 1.06, "fedavg: do not fine-tune", color=WORD["fedavg"], fontsize=10)
    axes.text(2.35, 0.52, "rtfa: best ridge", color=WORD["rtfa"], fontsize=10)
    save(figure, "double-descent")

    figure, axes = panel(
        "Few samples act as extra ridge",
        r"ridge $\lambda$ that you set",
        r"effective ridge $\kappa$",
        height=3.7,
    )
    ridges = np.linspace(0, 3, 301)
    ends = []
    for gamma, colour in zip((0.5, 1, 2, 4), SHADES, strict=True):
        kappas = kappa(ridges, gamma)
        axes.plot(ridges, kappas, color=colour)
        ends.append((kappas[-1], f"aspect {gamma:g}", colour))
        axes.plot(0, kappas[0], "o", color=colour, markersize=6, clip_on=False, zorder=6)
    axes.plot(ridges, ridges, color=PALE, linestyle=(0, (3, 3)), linewidth=1.5)
    ends.append((3, r"infinite data, $\kappa=\lambda$", "#888888"))
    axes.set_xlim(0, 3)
    axes.set_ylim(0, 7)
    axes.annotate(
        "interpolation: $\\lambda=0$,\nyet $\\kappa=\\gamma-1$",
        (0.03, 3.02),
        (0.32, 5.2),
        fontsize=10,
        va="center",
        arrowprops=ARROW,
    )
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "kappa")

    heading("2. High dimension")
    row("noise 0.5, ftfa at aspect", "loss", "bias", "variance", "rtfa")
    for gamma in (0.2, 0.5, 0.9, 1.1, 1.5, 2, 5, 10):
        table = fa.predict(fa.Population(1, noise, gamma), ["ftfa", "rtfa"])
        row(
            f"{gamma:g}",
            table["ftfa"].loss,
            table["ftfa"].bias,
            table["ftfa"].variance,
            table["rtfa"].loss,
        )
    row("kappa(0), kappa(1) at aspect 2", *kappa(np.array([0.0, 1.0]), 2))
    row("best aspect above 1 for ftfa", 1 / (1 - noise), noise * (2 - noise))


def kappa(ridge: np.ndarray, gamma: float) -> np.ndarray:
    """Kappa for uncorrelated features: the positive root of kappa^2 - (gamma - 1 + ridge) kappa -
    ridge = 0.
    """
    b = gamma - 1 + ridge
    return (b + np.sqrt(b**2 + 4 * ridge)) / 2


def page_3(save: Callable[[plt.Figure, str], None]) -> None:
    """The seven algorithms: bars, curves over the noise, the curve over the ridge."""
    world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    table = fa.predict(world)
    figure, axes = panel(
        "The seven algorithms in one world",
        "test loss = bias (dark) + variance (light)",
        "",
        height=3.4,
    )
    for place, (name, risk) in enumerate(reversed(list(table.items()))):
        axes.barh(place, risk.bias, color=COLOUR[name], height=0.62)
        axes.barh(place, risk.variance, left=risk.bias, color=COLOUR[name], alpha=0.45, height=0.62)
        axes.text(risk.loss + 0.03, place, f"{risk.loss:.3f}", va="center", fontsize=10)
    axes.set_yticks(range(len(table)), list(table)[::-1])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, 2.6)
    save(figure, "seven")

    figure, axes = panel(
        "Who wins as the noise grows", r"noise $\sigma$", "test loss above the noise floor"
    )
    noise = np.linspace(0, 1.6, 161)
    curves = fa.predict(fa.Population(1, noise, 2, norm=1.5))
    shown = {
        "local": "local",
        "local_ridge": "local_ridge",
        "fedavg": "fedavg",
        "ftfa": "ftfa = maml",
        "rtfa": "rtfa = pfedme",
    }
    axes.set_ylim(0, 2.6)
    axes.set_xlim(0, 1.6)
    for name in shown:
        axes.plot(
            noise, np.where(curves[name].loss < 2.6, curves[name].loss, np.nan), color=COLOUR[name]
        )
    threshold = fa.noise_threshold(world)
    axes.plot(threshold, 1, "o", color="white", markeredgecolor=INK, markersize=7, zorder=6)
    axes.annotate(
        "above this noise, plain\nfine-tuning hurts",
        (threshold, 0.97),
        (0.86, 0.33),
        fontsize=9.5,
        va="center",
        arrowprops=ARROW,
    )
    figure.canvas.draw()
    axes.text(1.1, 2.52, shown["local"], color=WORD["local"], ha="right", va="top")
    axes.text(1.36, 2.18, shown["ftfa"], color=WORD["ftfa"], ha="left", va="top")
    labels(
        axes,
        [
            (curves[name].loss[-1], shown[name], WORD[name])
            for name in ("local_ridge", "fedavg", "rtfa")
        ],
    )
    save(figure, "noise")

    figure, axes = panel(
        "One knob from ftfa to fedavg: the ridge of rtfa",
        r"ridge $\lambda$",
        "test loss above the noise floor",
    )
    ridges = np.geomspace(0.01, 100, 200)
    risk = fa.predict(world, "rtfa", ridge=ridges)["rtfa"]
    axes.plot(ridges, risk.loss, color=COLOUR["rtfa"])
    axes.plot(ridges, risk.bias, color=COLOUR["rtfa"], linewidth=1.3, linestyle=(0, (4, 2)))
    axes.plot(ridges, risk.variance, color=COLOUR["rtfa"], linewidth=1.3, linestyle=(0, (1, 1.5)))
    d, n = 200, 100
    for ridge in np.geomspace(0.01, 100, 13):
        loss = filtered(pull(ridge), 0.5, n, np.ones(d), np.ones(d) / d, 20, seed=3)
        axes.plot(ridge, loss, color=COLOUR["rtfa"], **DOT)
    best, lowest = fa.optimal_ridge(world), fa.optimal_loss(world)
    axes.plot([best, best], [0, lowest], color=PALE, linewidth=1, zorder=0)
    axes.text(
        best * 1.12,
        0.27,
        r"best ridge $\lambda^\star=\sigma^2\gamma/r^2$",
        va="bottom",
        fontsize=10,
    )
    axes.text(0.0115, 0.79, "ftfa", color=WORD["ftfa"], va="bottom")
    axes.axhline(1, color=COLOUR["fedavg"], linewidth=1, linestyle=(0, (1, 2)), zorder=0)
    axes.text(0.0115, 1.015, "fedavg", color=WORD["fedavg"], va="bottom")
    axes.set_xscale("log")
    axes.set_xlim(0.01, 100)
    axes.set_ylim(0, 1.12)
    ticks(axes.xaxis, (0.01, 0.1, 1, 10, 100))
    axes.text(0.0115, 0.455, "bias", color=WORD["rtfa"], va="top", fontsize=10)
    axes.text(0.0115, 0.215, "variance", color=WORD["rtfa"], va="top", fontsize=10)
    axes.text(4.2, 0.79, "loss", color=WORD["rtfa"], fontsize=10, ha="right")
    save(figure, "ridge")

    heading("3. The seven algorithms")
    row("radius 1, noise 0.5, aspect 2, norm 2", "loss", "bias", "variance", "ridge")
    for name, risk in table.items():
        row(name, risk.loss, risk.bias, risk.variance, "-" if risk.ridge is None else risk.ridge)
    row("noise threshold, squared", threshold, threshold**2)
    row("best ridge, lowest loss", best, lowest)
    row("cut against fedavg, local_ridge", 1 - lowest, 1 - lowest / table["local_ridge"].loss)


def page_4(save: Callable[[plt.Figure, str], None]) -> None:
    """Covariance: shapes of spectra, and the ridge under an alignment."""
    listed = {
        "identity": (fa.spectra.identity(), GREY),
        "two atoms": (TWO_ATOMS, "#a6611a"),
        "ar1(0.5)": (fa.spectra.ar1(0.5, points=400), SHADES[1]),
        "ar1(0.9)": (fa.spectra.ar1(0.9, points=400), SHADES[3]),
        "power_law(1)": (fa.spectra.power_law(1, points=400), "#c0392b"),
    }
    figure, axes = panel(
        "Shapes of a covariance",
        "share of directions with a larger eigenvalue",
        "eigenvalue",
        height=3.6,
    )
    ends = []
    for name, (spectrum, colour) in listed.items():
        order = np.argsort(-spectrum.values)
        ends_of = np.concatenate([[0], np.cumsum(spectrum.weights[order])])
        if spectrum.values.size > 2:
            axes.plot((ends_of[1:] + ends_of[:-1]) / 2, spectrum.values[order], color=colour)
        else:
            axes.stairs(spectrum.values[order], ends_of, baseline=None, color=colour, linewidth=2.2)
        ends.append((spectrum.values.min(), name, colour))
    axes.set_yscale("log")
    axes.set_xlim(0, 1)
    axes.set_ylim(0.04, 25)
    ticks(axes.yaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20))
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "spectra")

    noise, _d, n = 0.02**0.5, 400, 200
    figure, axes = panel(
        "The best ridge depends on where clients differ",
        r"ridge $\lambda$",
        "test loss above the noise floor",
    )
    s = np.repeat(TWO_ATOMS.values, [240, 160])
    names = {1: "along strong features", 0: "evenly", -1: "along weak features"}
    colours = {1: SHADES[3], 0: SHADES[1], -1: "#c0392b"}
    ridges = np.linspace(-0.12, 0.7, 200)
    ends = []
    for power, name in names.items():
        world = fa.Population(1, noise, 2, spectrum=TWO_ATOMS, shift_power=power)
        curve = fa.predict(world, "rtfa", ridge=ridges)["rtfa"].loss
        axes.plot(ridges, curve, color=colours[power])
        axes.plot(
            fa.optimal_ridge(world),
            fa.optimal_loss(world),
            "*",
            color=colours[power],
            markersize=13,
            markeredgecolor="white",
            zorder=7,
        )
        energy = s**power / np.sum(s**power)
        for ridge in (-0.1, 0, 0.15, 0.3, 0.45, 0.6):
            keep = pull(ridge) if ridge else null
            axes.plot(
                ridge, filtered(keep, noise, n, s, energy, 30, seed=4), color=colours[power], **DOT
            )
        ends.append((curve[-1], name, colours[power]))
    axes.axvline(0, color=PALE, linewidth=1, zorder=0)
    axes.set_xlim(-0.13, 0.7)
    axes.set_ylim(0.47, 0.76)
    axes.text(0.01, 0.755, "0: interpolation (ftfa)", fontsize=9, color=GREY, va="top")
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "alignment")

    heading("4. Covariance")
    row(
        "noise 0.5, aspect 2, norm 2",
        "fedavg",
        "ftfa",
        "rtfa",
        "local_ridge",
        "threshold",
        "best ridge",
        width=12,
    )
    for spectrum in (
        fa.spectra.identity(),
        TWO_ATOMS,
        fa.spectra.ar1(0.5),
        fa.spectra.ar1(0.9),
        fa.spectra.power_law(1),
    ):
        world = fa.Population(1, 0.5, 2, norm=2, spectrum=spectrum)
        table = fa.predict(world)
        row(
            spectrum.name,
            *(table[name].loss for name in ("fedavg", "ftfa", "rtfa", "local_ridge")),
            fa.noise_threshold(world),
            fa.optimal_ridge(world),
            width=12,
        )
    for noise in (0.5, 0.02**0.5):
        row(
            f"two atoms, noise^2 {noise**2:.2g}, power",
            "fedavg",
            "ftfa",
            "rtfa",
            "threshold",
            "best ridge",
            "simple ridge",
            width=13,
        )
        for power in (1, 0, -1):
            world = fa.Population(1, noise, 2, spectrum=TWO_ATOMS, shift_power=power)
            table = fa.predict(world)
            row(
                f"{power:+d}",
                *(table[name].loss for name in ("fedavg", "ftfa", "rtfa")),
                fa.noise_threshold(world),
                fa.optimal_ridge(world),
                fa.predict(world, "rtfa", ridge=noise**2 * 2)["rtfa"].loss,
                width=13,
            )


def page_5(save: Callable[[plt.Figure, str], None]) -> None:
    """Few clients: the loss over their number, and clients that differ."""
    noise, gamma, norm = 0.7, 2.5, 1.5
    world = fa.Population(1, noise, gamma, norm=norm)
    limit = fa.predict(world)
    figure, axes = panel(
        "Few clients: losses of a member",
        "number of clients m",
        "test loss above the noise floor",
        height=4.2,
    )
    shown = ("local_ridge", "fedavg", "ftfa", "rtfa", "pfedme")
    few, many = np.array([1, 2]), np.unique(np.round(np.geomspace(3, 100, 60)))
    curves = {"few": fa.predict(world, clients=few), "many": fa.predict(world, clients=many)}
    for name in shown:
        for part, m in (("few", few), ("many", many)):
            axes.plot(
                m,
                np.broadcast_to(curves[part][name].loss, m.shape),
                color=COLOUR[name],
                linewidth=1.8,
            )
    d, n = 200, 80
    ridge, furthest = fa.optimal_ridge(world), (0.0, "")
    for m in (1, 2, 4, 5, 7, 10, 20, 40):
        own = fa.predict(world, "rtfa", clients=m)["rtfa"].ridge
        stages = {
            "fedavg": (plain, plain),
            "ftfa": (plain, null),
            "rtfa": (plain, pull(own)),
            "pfedme": (weighted(ridge), pull(ridge)),
        }
        found = federation(m, n, d, noise, stages, 12 if m < 10 else 4, seed=5, centre=norm**2 - 1)
        for name, loss in found.items():
            axes.plot(m, loss, color=COLOUR[name], **DOT)
            theory = fa.predict(world, name, clients=m)[name].loss
            furthest = max(furthest, (abs(loss / theory - 1), f"{name}, {m} clients"))
    axes.axvline(gamma, color=PALE, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
    axes.text(
        4.3, 4.8, "all samples together\njust match the unknowns", fontsize=9, color=GREY, va="top"
    )
    axes.annotate("", (gamma * 1.02, 4.3), (4.2, 4.3), arrowprops=ARROW)
    axes.text(
        0.99,
        1.42,
        "fewer samples\nin all than\nunknowns: all\nthat share agree",
        fontsize=8,
        color=GREY,
        va="top",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.95, 100)
    axes.set_ylim(0.7, 5)
    ticks(axes.xaxis, (1, 2, 5, 10, 20, 50, 100))
    ticks(axes.yaxis, (0.7, 1, 1.5, 2, 3, 4, 5))
    figure.canvas.draw()
    labels(
        axes,
        [
            (float(np.broadcast_to(curves["many"][name].loss, many.shape)[-1]), name, WORD[name])
            for name in shown
        ],
    )
    save(figure, "clients")

    kinds = [fa.Population(1, 0.5, 8, norm=2), fa.Population(1, 0.5, 1.5, norm=2)]
    both = fa.predict(kinds, ["local_ridge", "fedavg", "ftfa", "rtfa", "pfedme"], clients=[40, 10])
    figure, axes = panel(
        "40 clients with little data, 10 with much, in one federation",
        "test loss above the noise floor",
        "",
        height=3.1,
    )
    for place, (name, risk) in enumerate(reversed(list(both.items()))):
        little, much = risk.loss
        axes.plot([little, much], [place, place], color=COLOUR[name], linewidth=1.4, alpha=0.5)
        axes.plot(little, place, "o", color=COLOUR[name], markersize=9)
        axes.plot(
            much,
            place,
            "o",
            color="white",
            markeredgecolor=COLOUR[name],
            markeredgewidth=2,
            markersize=8,
        )
        axes.text(little + 0.08, place, f"{little:.2f}", va="center", fontsize=9.5)
        axes.text(much - 0.08, place, f"{much:.2f}", va="center", ha="right", fontsize=9.5)
    axes.set_yticks(range(len(both)), list(both)[::-1])
    axes.text(1.68, 4.32, "much data: aspect 1.5", fontsize=9.5, ha="center", color=GREY)
    axes.text(3.53, 4.32, "little data: aspect 8", fontsize=9.5, ha="center", color=GREY)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0.2, 4.1)
    axes.set_ylim(-0.5, 4.7)
    axes.spines["left"].set_visible(False)
    save(figure, "different")

    heading("5. Few clients")
    world = fa.Population(1, 0.5, 2, norm=2)
    row("noise 0.5, aspect 2, norm 2", *fa.predict(world))
    for m, member in ((3, True), (10, True), (10, False), (9, False), (100, True)):
        table = fa.predict(world, clients=m, member=member)
        row(
            f"{m} clients, {'a member' if member else 'a new client'}",
            *(risk.loss for risk in table.values()),
        )
    row("infinitely many", *(risk.loss for risk in fa.predict(world).values()))
    crowded = fa.Population(1, 0.5, 20, norm=2)
    for member in (True, False):
        table = fa.predict(crowded, clients=10, member=member)
        row(
            f"aspect 20, 10 clients, {'a member' if member else 'a new client'}",
            *(risk.loss for risk in table.values()),
        )
    row(
        "ridges of 10 members: rtfa, pfedme",
        *(fa.predict(world, clients=10)[name].ridge for name in ("rtfa", "pfedme")),
    )
    row(
        "r_eff^2 of (7), m = 10",
        effective(10, 2, 0.25),
        fa.predict(world, "fedavg", clients=10, member=False)["fedavg"].loss,
    )
    for m, gamma in ((3, 1.5), (10, 2), (50, 2.7)):
        table = fa.predict(fa.Population(1.3, 0.6, gamma), ["ftfa", "fedavg"], clients=m)
        rule = (1 - gamma / m) / (1 - 1 / m) * (0.36 / (gamma - 1) - 1.69 / gamma)
        row(
            f"ftfa - fedavg, m {m}, aspect {gamma}, rule",
            table["ftfa"].loss - table["fedavg"].loss,
            rule,
        )
    row("thresholds of a member, new client", *(crossing(10, member) for member in (True, False)))
    row("clients that differ", *both)
    for place, text in enumerate(("little data, aspect 8", "much data, aspect 1.5")):
        row(text, *(risk.loss[place] for risk in both.values()))
    alone = fa.predict([kinds[0]], list(both), clients=[50])
    row("50 clients of aspect 8 alone", *(risk.loss[0] for risk in alone.values()))
    row("figure: dot furthest from theory", f"{furthest[0]:.1%}", furthest[1], width=18)
    row("figure: infinitely many", *(limit[name].loss for name in shown))


def effective(m: float, gamma: float, s2: float) -> float:
    """r_eff^2: squared distance of the averaged model from a new client's optimum, radius 1,
    uncorrelated features.
    """
    return (1 + 1 / m - 2 * gamma / m**2 + s2 * gamma / m) / (1 - gamma / m)


def crossing(m: int, member: bool) -> float:
    """The noise at which fine-tuning stops paying among m clients of aspect 2."""
    world = fa.Population(1, 0.5, 2)
    return float(
        fa.compare(
            "ftfa", "fedavg", world, vary={"noise": (0.1, 3, 60)}, clients=m, member=member
        ).boundary[0, 0]
    )


def page_6(save: Callable[[plt.Figure, str], None]) -> None:
    """Early stopping and the single step."""
    times = np.geomspace(0.02, 60, 160)
    d, n = 200, 100
    figure, axes = panel(
        "Fine-tuning for a while beats fine-tuning to the end",
        "training time t (steps times step size)",
        "test loss above the noise floor",
        height=4.1,
    )
    ends = []
    for noise, colour in zip((0.25, 0.5, 0.5**0.5, 1), SHADES, strict=True):
        world = fa.Population(1, noise, 2)
        path = fa.fine_tuning(world, flow=True, times=times)
        axes.plot(times, path.loss, color=colour)
        axes.plot(
            path.best.at,
            path.best.scores.loss,
            "*",
            color=colour,
            markersize=13,
            markeredgecolor="white",
            zorder=7,
        )
        for t in np.geomspace(0.05, 40, 9):
            keep = lambda x, t=t: np.exp(-t * x)  # noqa: E731
            axes.plot(
                t,
                filtered(keep, noise, n, np.ones(d), np.ones(d) / d, 20, seed=6),
                color=colour,
                **DOT,
            )
        ends.append((path.loss[-1], f"noise {noise:.2g}", colour))
    axes.axhline(1, color=COLOUR["fedavg"], linewidth=1, linestyle=(0, (1, 2)), zorder=0)
    axes.text(
        0.022, 1.02, "fedavg: no fine-tuning", color=WORD["fedavg"], fontsize=9.5, va="bottom"
    )
    axes.text(
        57, 1.57, "ftfa: to the end", color=WORD["ftfa"], fontsize=9.5, ha="right", va="bottom"
    )
    axes.set_xscale("log")
    axes.set_xlim(0.02, 60)
    axes.set_ylim(0.4, 1.65)
    ticks(axes.xaxis, (0.02, 0.1, 0.5, 2, 10, 50))
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "path")

    figure, axes = panel(
        "A single gradient step", "size of the step", "test loss above the noise floor", height=3.7
    )
    sizes = np.linspace(0, 0.6, 121)
    ends = []
    for noise, colour in zip((0.1, 0.5, 1), SHADES[:3], strict=True):
        world = fa.Population(1, noise, 2)
        axes.plot(
            sizes,
            fa.one_step(fa.Population(1, np.full(sizes.shape, noise), 2), sizes)[1].loss,
            color=colour,
        )
        size, risk = fa.one_step(world)
        axes.plot(
            size, risk.loss, "*", color=colour, markersize=13, markeredgecolor="white", zorder=7
        )
        lowest = fa.optimal_loss(world)
        axes.plot([size, size], [lowest, risk.loss], color=PALE, linewidth=1, zorder=0)
        axes.plot([size - 0.04, size + 0.04], [lowest] * 2, color=COLOUR["rtfa"])
        if noise < 1:
            ends.append((float(fa.one_step(world, 0.6)[1].loss), f"noise {noise:g}", colour))
        else:
            axes.text(
                0.525, 1.36, f"noise {noise:g}", color=colour, ha="right", va="center", fontsize=10
            )
    axes.text(
        0.385,
        fa.optimal_loss(fa.Population(1, 0.1, 2)),
        "best ridge (rtfa)",
        color=COLOUR["rtfa"],
        va="center",
        fontsize=9.5,
    )
    axes.set_xlim(0, 0.6)
    axes.set_ylim(0.45, 1.4)
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "one-step")

    heading("6. Early stopping")
    row("best stop", "t*", "t* lambda*", "flow", "best ridge", "excess", "one step", "its size")
    worlds = [fa.Population(1, noise, 2) for noise in (0.1, 0.25, 0.5, 0.5**0.5, 1)]
    worlds += [fa.Population(1, 0.5, 5), fa.Population(1, 0.5, 1.2), fa.Population(1, 1, 0.5)]
    worlds += [
        fa.Population(1, 0.5, 2, spectrum=spectrum)
        for spectrum in (fa.spectra.ar1(0.5), fa.spectra.power_law(1))
    ]
    for world in worlds:
        best, lowest = fa.fine_tuning(world, flow=True, times=[1]).best, fa.optimal_loss(world)
        size, risk = fa.one_step(world)
        name = f"noise {world.noise:.3g}, aspect {world.aspect:g}, {world.spectrum.name[:8]}"
        excess = f"{best.scores.loss / lowest - 1:.2%}"
        row(
            name,
            best.at,
            best.at * fa.optimal_ridge(world),
            best.scores.loss,
            lowest,
            excess,
            risk.loss,
            size,
        )
    path = fa.fine_tuning(fa.Population(1, 0.5, 2), step=0.3, steps=[0, 1, 4, 20, 100])
    row("noise 0.5, aspect 2, steps of 0.3", *(f"{t:g}" for t in path.times))
    row("loss", *path.loss)
    row("best number of steps, loss", path.best.at, path.best.scores.loss)
    meta = fa.Algorithm("meta", fa.algorithms.Meta(0.1), fa.algorithms.Descend(local_step=0.3))
    average = fa.Algorithm(
        "average", fa.algorithms.Average(), fa.algorithms.Descend(local_step=0.3)
    )
    for m in (4, 10, 100, None):
        table = fa.predict(
            fa.Population(1, 0.5, 2), [average, meta, "ftfa", "rtfa", "pfedme"], clients=m
        )
        row(
            f"{m} clients: one step of 0.3",
            *(f"{name} {risk.loss:.4f}" for name, risk in table.items()),
            width=17,
        )


def trained(
    classes: int, centre: float, radius: float, epochs: list[int], step: float
) -> tuple[np.ndarray, list[float], float]:
    """Accuracies of fa.train on a drawn federation: times, after each number of full-batch passes,
    and with the best ridge.

    Softmax on two classes moves x'theta, the difference of two columns, twice as fast, and feels
    half of a ridge.
    """
    m, n, pace = 1000, 50, 2 if classes == 2 else 1
    clients = fa.datasets.synthetic(
        task="classification",
        classes=classes,
        centre=centre,
        radius=radius,
        aspect=2,
        dimension=2 * n,
        clients=m,
        split=(0.2, 0, 0.8),
    )
    world = fa.ClassPopulation(radius=radius, centre=centre, aspect=2, classes=classes)
    told = {
        "rounds": 60,
        "evaluate_every": 60,
        "cohort": m,
        "local_steps": 1,
        "batch": n,
        "server_step": 2.0,
    }
    walk = fa.train("ftfa", clients, local_step=step, grid={"personal_epochs": epochs}, **told)
    pulled = fa.train(
        "rtfa",
        clients,
        local_step=0.1,
        ridge=pace * fa.optimal_ridge(world),
        personal_epochs=300,
        **told,
    )
    return (
        np.array(epochs) * step * pace,
        [float(run.accuracy[-1]) for run in walk],
        float(pulled.accuracy[-1]),
    )


def page_8(save: Callable[[plt.Figure, str], None]) -> None:
    """Classification: accuracy against time and ridge, and what personalization is worth."""
    epochs, step = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], 0.25
    figure, both = plt.subplots(1, 2, figsize=(9.4, 3.9), layout="constrained")
    heading("8. Classification")
    for axes, classes in zip(both, (2, 5), strict=True):
        world = fa.ClassPopulation(radius=2, centre=2, aspect=2, classes=classes)
        table = fa.predict(world)
        path = fa.fine_tuning(world, times=np.geomspace(0.1, 260, 40 if classes == 2 else 12))
        times, dots, pulled = trained(classes, 2, 2, epochs, step)
        axes.set_title(f"{classes} classes")
        axes.plot(path.times, 100 * path.accuracy, color=COLOUR["ftfa"])
        axes.plot(times, 100 * np.array(dots), color=COLOUR["ftfa"], **DOT)
        axes.plot(
            path.best.at,
            100 * path.best.scores.accuracy,
            "*",
            color=COLOUR["ftfa"],
            markersize=13,
            markeredgecolor="white",
            zorder=7,
        )
        ends = [(100 * table["fedavg"].accuracy, "fedavg", WORD["fedavg"])]
        axes.axhline(100 * table["fedavg"].accuracy, color=COLOUR["fedavg"])
        if classes == 2:
            axes.axhline(
                100 * table["bayes"].accuracy, color=INK, linewidth=1.2, linestyle=(0, (1, 1.5))
            )
            axes.axhline(
                100 * table["local"].accuracy,
                color=COLOUR["local"],
                linewidth=1.4,
                linestyle=(0, (4, 3)),
            )
            ends += [
                (100 * table["bayes"].accuracy, "bayes", INK),
                (100 * table["local"].accuracy, "local,\nconverged", WORD["local"]),
            ]
            axes.set_ylabel("accuracy in percent")
        axes.text(
            7,
            100 * np.interp(7, path.times, path.accuracy) + 0.3,
            "fine-tuning, stopped",
            color=WORD["ftfa"],
            va="bottom",
            fontsize=10,
        )
        axes.set_xscale("log")
        ticks(axes.xaxis, (0.1, 1, 10, 100))
        axes.set_xlabel("training time: step times steps")
        figure.canvas.draw()
        labels(axes, ends)
        row(f"{classes} classes, b = r = 2, aspect 2", "fedavg", "best stop", "rtfa", "local")
        ended = table["local"].accuracy if classes == 2 else float("nan")
        row(
            "predicted",
            *(
                100 * each
                for each in (
                    table["fedavg"].accuracy,
                    path.best.scores.accuracy,
                    table["rtfa"].accuracy,
                    ended,
                )
            ),
        )
        there = fa.fine_tuning(world, times=times).accuracy
        row("trained, rtfa", 100 * pulled, "predicted", 100 * table["rtfa"].accuracy)
        row(
            "trained - predicted, in points",
            *(f"{100 * (a - b):+.2f}" for a, b in zip(dots, there, strict=True)),
            width=7,
        )
    save(figure, "classes")

    figure, axes = panel(
        "A ridge decides how much is forgotten", "ridge", "accuracy in percent", height=4.1
    )
    for aspect, colour in zip((0.5, 2, 8), SHADES[:3], strict=True):
        world = fa.ClassPopulation(radius=1.5, centre=1.5, aspect=aspect)
        ridges = np.geomspace(1e-3, 100, 61)
        axes.plot(
            ridges, 100 * fa.predict(world, "rtfa", ridge=ridges)["rtfa"].accuracy, color=colour
        )
        best = fa.predict(world, ["rtfa", "bayes"])
        axes.plot(
            best["rtfa"].ridge,
            100 * best["rtfa"].accuracy,
            "*",
            color=colour,
            markersize=13,
            markeredgecolor="white",
            zorder=7,
        )
        for ridge in (0.01, 0.1, 1, 10):
            drawn = fa.simulate(world, dimension=200, trials=24, algorithms="rtfa", ridge=ridge)[
                "rtfa"
            ]
            axes.plot(ridge, 100 * drawn.accuracy, color=colour, **DOT)
        side = {"ha": "left", "va": "top"} if aspect == 8 else {"ha": "right", "va": "bottom"}
        at = 100 * fa.predict(world, "rtfa", ridge=0.03)["rtfa"].accuracy + (
            -0.15 if aspect == 8 else 0.15
        )
        axes.text(0.033 if aspect == 8 else 0.028, at, f"aspect {aspect:g}", color=colour, **side)
    shared = 100 * fa.predict(world, "fedavg")["fedavg"].accuracy
    axes.axhline(shared, color=COLOUR["fedavg"], zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(1e-3, 100)
    ticks(axes.xaxis, (0.001, 0.01, 0.1, 1, 10, 100))
    figure.canvas.draw()
    labels(axes, [(shared, "fedavg", WORD["fedavg"])])
    save(figure, "classes-ridge")

    figure, axes = panel(
        "What personalization is worth",
        r"radius over centre, $r/b$ (centre 1.5)",
        "aspect: unknowns per sample, d/n",
        height=4.1,
    )
    diagram = fa.compare(
        "rtfa",
        "fedavg",
        fa.ClassPopulation(1, 1.5, 1),
        vary={"radius": (0.15, 3, 60), "aspect": np.geomspace(0.1, 10, 60)},
    )
    x, y = diagram.axes.values()
    image = axes.contourf(
        x / 1.5,
        y,
        diagram.gain.T,
        levels=[0, 0.1, 0.3, 1, 2, 4, 8, 16, 20],
        cmap="Blues",
        norm=mpl.colors.PowerNorm(0.4),
    )
    image.set_edgecolor("face")
    axes.set_yscale("log")
    ticks(axes.yaxis, (0.1, 0.3, 1, 3, 10))
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("points of accuracy, rtfa over fedavg")
    save(figure, "classes-gain")

    table = fa.predict(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2))
    row("b = r = 1.5, aspect 2", "accuracy", "log-loss", "Brier", "slope")
    for name, each in table.items():
        row(
            name,
            100 * each.accuracy,
            *("-" if value is None else value for value in (each.log_loss, each.brier, each.slope)),
        )
    for aspect in (10, 0.5):
        gain = fa.predict(fa.ClassPopulation(1.5, 1.5, aspect), ["rtfa", "fedavg"])
        row(
            f"rtfa over fedavg, aspect {aspect:g}",
            f"{100 * (gain['rtfa'].accuracy - gain['fedavg'].accuracy):.2f}",
        )
    for ridge in (0.01, 0):
        mixed = fa.interpolation(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), ridge=ridge)
        row(
            f"weights mixed, ridge {ridge:g}",
            100 * mixed.personal.accuracy,
            100 * mixed.mixed.accuracy,
            mixed.alpha,
        )
    lengths = np.array([(1, 1), (2, 1), (1, 2), (1.5, 1.5), (1, 3), (3, 3)])
    aspects = np.array([0.1, 0.3, 0.5, 1, 2, 5, 20])[:, None]
    row(
        "42 settings of b, r and aspect",
        "rule",
        "squares",
        "one step",
        "to bayes",
        "ridges",
        width=15,
    )
    for name, spectrum in (("identity", fa.spectra.identity()), ("eigenvalues 0.5, 3", TWO_ATOMS)):
        world = fa.ClassPopulation(lengths[:, 1], lengths[:, 0], aspects, spectrum=spectrum)
        table = fa.predict(world, ["rtfa", "rtfa_squares", "one_step", "bayes"])
        centre = table["rtfa"].accuracy
        rule = rule_of_thumb(world)
        lost = [
            centre - fa.predict(world, "rtfa", ridge=rule)["rtfa"].accuracy,
            centre - table["rtfa_squares"].accuracy,
            centre - table["one_step"].accuracy,
            table["bayes"].accuracy - centre,
        ]
        factor = table["rtfa_squares"].ridge / table["rtfa"].ridge
        row(
            f"{name}: most lost, in points",
            *(f"{100 * each.max():.3f}" for each in lost),
            f"{factor.min():.1f} to {factor.max():.1f}",
            width=15,
        )
        row(
            "  in the middle setting",
            *(f"{100 * np.median(each):.4f}" for each in lost),
            f"{np.median(factor):.1f}",
            width=15,
        )
        calm = (aspects >= 2) & (lengths[:, 1] <= lengths[:, 0])
        row("  one step, aspect >= 2 and r <= b", f"{100 * lost[2][calm].max():.3f}")


def average_rounds(
    rng: np.random.Generator, steps: int, rounds: int, d: int = 200, cohort: int = 20
) -> np.ndarray:
    """Excess loss of the shared model after each round of federated averaging with fresh clients:
    radius 1, noise 0.5, aspect 2, norm 2, steps of size 0.1.
    """
    n, error = d // 2, rng.standard_normal(d)
    error *= np.sqrt(3) / np.linalg.norm(error)  # the shared model minus theta_0
    path = []
    for _ in range(rounds):
        moves = np.zeros(d)
        for _ in range(cohort):
            X, own = rng.standard_normal((n, d)), rng.standard_normal(d)
            own /= np.linalg.norm(own)
            noise, w = 0.5 * rng.standard_normal(n), error
            for _ in range(steps):
                w = w - 0.1 * X.T @ (X @ (w - own) - noise) / n
            moves += w - error
        error = error + moves / cohort
        path.append(error @ error)
    return np.array(path)


def page_9(save: Callable[[plt.Figure, str], None]) -> None:
    """Rounds and privacy."""
    heading("9. Rounds and privacy")
    world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    at, dots, steps = np.arange(0, 61), [1, 2, 3, 5, 8, 13, 20, 32, 50], (1, 5, 20)
    figure, axes = panel(
        "More local steps: faster at first, worse in the end",
        "communication rounds",
        "excess loss of the shared model",
    )
    ends = []
    rng = np.random.default_rng(9)
    for count, shade in zip(steps, SHADES[1:], strict=True):
        path = fa.rounds(world, "fedavg", rounds=60, local_steps=count, cohort=20, evaluated=at)
        drawn = np.mean([average_rounds(rng, count, dots[-1]) for _ in range(4)], axis=0)
        axes.plot(at, path.shared_error, color=shade)
        axes.plot(dots, drawn[np.array(dots) - 1], color=shade, **DOT)
        ends.append((path.shared_error[-1], f"{count} step{'s' * (count > 1)}", shade))
        row(
            f"{count} local steps, rounds 1, 5, 20, end",
            *path.shared_error[[1, 5, 20]],
            float(path.floor),
        )
        row("  simulated", *drawn[[0, 4, 19]], drawn[-10:].mean())
    axes.set_yscale("log")
    axes.set_xlim(0, 60)
    ticks(axes.yaxis, [0.01, 0.03, 0.1, 0.3, 1, 3])
    labels(axes, ends)
    save(figure, "rounds")

    budgets, sizes = np.geomspace(0.5, 8, 9), (300, 1000, 3000, 10000)
    figure, axes = panel(
        "What privacy costs depends on how many clients there are",
        "privacy budget epsilon, at delta 1e-6",
        "loss of rtfa above its limit, in percent",
    )
    ends = []
    row("loss at epsilon", *budgets[::2])
    for m, shade in zip(sizes, SHADES, strict=True):
        losses = np.array(
            [
                float(
                    fa.rounds(
                        world,
                        "rtfa",
                        rounds=100,
                        cohort=50,
                        clients=m,
                        dimension=1000,
                        privacy=fa.Privacy(epsilon=float(epsilon)),
                        evaluated=[100],
                    ).final
                )
                for epsilon in budgets
            ]
        )
        above = 100 * (losses / fa.optimal_loss(world) - 1)
        axes.plot(budgets, above, color=shade)
        ends.append((above[-1], f"{m:,} clients", shade))
        row(f"{m} clients", *losses[::2])
        row("  percent above the limit", *above[::2])
        free = fa.rounds(world, "rtfa", rounds=100, cohort=50, clients=m).final
        row("  without privacy", float(free))
    axes.set_xscale("log")
    axes.set_xlim(0.5, 8)
    axes.set_yscale("log")
    ticks(axes.xaxis, [0.5, 1, 2, 4, 8])
    ticks(axes.yaxis, [1, 3, 10, 30, 100])
    labels(axes, ends)
    save(figure, "privacy")

    budget = {"rounds": 400, "cohort": 20, "clients": 3000}
    for sampling in ("poisson", "fixed"):
        spent = fa.Privacy(noise_multiplier=1, sampling=sampling).spend(**budget)
        row(f"epsilon, {sampling} cohorts", spent)


def rule_of_thumb(world: fa.ClassPopulation) -> np.ndarray:
    """The ridge aspect/(c radius^2): c from FedAvg's state, which is calibrated."""
    from fedasym.theory.classes.ridge import shrinkage

    return np.asarray(world.aspect) / (shrinkage(world.energies) * np.asarray(world.radius) ** 2)


def choose(save: Callable[[plt.Figure, str], None]) -> None:
    """How to choose: the phase diagram, MAML's step, when sharing pays."""
    world = fa.Population(radius=1, noise=0.5, aspect=2)
    diagram = fa.compare(
        "ftfa", "fedavg", world, vary={"noise": (0, 1.5, 76), "aspect": np.geomspace(1.02, 10, 70)}
    )
    figure, axes = panel(
        "Fine-tune to convergence, or not at all?",
        r"noise over radius, $\sigma/r$",
        "aspect: unknowns per sample, d/n",
        height=4.1,
    )
    gain = np.clip(diagram.gain, -1.999, 1.999).T
    hue = mpl.colors.LinearSegmentedColormap.from_list("gain", ["#eeb545", "#f7f7f7", "#6fbdec"])
    image = axes.contourf(*diagram.axes.values(), gain, levels=np.linspace(-2, 2, 17), cmap=hue)
    image.set_edgecolor("face")
    axes.plot(*diagram.boundary.T, color=INK, linewidth=1.6)
    axes.set_yscale("log")
    ticks(axes.yaxis, (1.02, 1.5, 2, 3, 5, 10))
    axes.text(0.2, 4, "ftfa wins", fontsize=12, color=INK, weight="bold")
    axes.text(1.08, 1.7, "fedavg wins", fontsize=12, color=INK, weight="bold")
    axes.text(0.79, 2.25, r"$\sigma^2=r^2(\gamma-1)/\gamma$", fontsize=10)
    bar = figure.colorbar(image, ax=axes, ticks=[-2, -1, 0, 1, 2], pad=0.02)
    bar.ax.set_yticklabels(
        ["4 times\nworse", "2 times\nworse", "equal", "2 times\nbetter", "4 times\nbetter"],
        fontsize=9,
    )
    bar.outline.set_visible(False)
    bar.ax.set_title("ftfa is", fontsize=9, loc="left", pad=14)
    save(figure, "phase")

    noise = 0.5**0.5
    world = fa.Population(1, noise, 2)
    figure, axes = panel(
        "MAML against plain fine-tuning, few clients",
        "inner step of MAML",
        "loss compared with ftfa",
        height=3.9,
    )
    steps = np.linspace(0, 0.3, 61)
    ends = []
    for m, colour in zip((4, 10, 30), SHADES[2::-1], strict=True):
        base = fa.predict(world, "ftfa", clients=m)["ftfa"].loss
        curve = [
            fa.predict(world, "maml", clients=m, maml_step=step)["maml"].loss / base - 1
            for step in steps
        ]
        axes.plot(steps, np.array(curve) * 100, color=colour)
        if m > 4:
            ends.append((curve[-1] * 100, f"{m} clients", colour))
        if m == 10:
            for step in (0.05, 0.1, 0.15, 0.2, 0.25):
                found = federation(
                    m,
                    150,
                    300,
                    noise,
                    {"maml": (damped(step), null), "ftfa": (plain, null)},
                    6,
                    seed=7,
                )
                axes.plot(step, (found["maml"] / found["ftfa"] - 1) * 100, color=colour, **DOT)
    axes.axhline(0, color=COLOUR["ftfa"], linewidth=1.4)
    axes.text(0.002, 0.2, "ftfa", color=WORD["ftfa"], va="bottom")
    axes.text(0.197, 11, "4 clients", color=SHADES[2], ha="right", va="center", fontsize=10)
    axes.set_xlim(0, 0.3)
    axes.set_ylim(-5, 12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f}%" if value else "0")
    figure.canvas.draw()
    labels(axes, ends)
    save(figure, "maml-step")

    figure, axes = panel(
        "How much clients must have in common for sharing to pay",
        "number of clients m",
        r"norm over radius, $\rho/r$",
        height=3.9,
    )
    for gamma, colour in zip((1.5, 2, 4), SHADES[:3], strict=True):
        counts = [m for m in (2, 3, 4, 5, 6, 7, 8, 10, 14, 20, 30, 50, 70, 100) if m > gamma]
        needed = [share(m, gamma) for m in counts]
        axes.plot(counts, needed, color=colour, marker="o", markersize=4)
        axes.text(
            counts[0] * 1.06, needed[0], f"aspect {gamma:g}", color=colour, va="center", fontsize=10
        )
    axes.set_xscale("log")
    axes.set_xlim(1.9, 100)
    axes.set_ylim(1, 2.6)
    ticks(axes.xaxis, (2, 5, 10, 20, 50, 100))
    axes.text(22, 1.75, "above its line,\nsharing pays", fontsize=10.5)
    save(figure, "sharing")

    heading("How to choose")
    row(
        "noise^2 0.5, aspect 2, a member",
        "fedavg",
        "ftfa",
        "maml 0.1",
        "rtfa",
        "pfedme",
        "rtfa ridge",
        "ahead",
    )
    for m in (4, 10, 30, 100, None):
        table = fa.predict(world, clients=m)
        names = ("fedavg", "ftfa", "maml", "rtfa", "pfedme")
        ahead = f"{1 - table['pfedme'].loss / table['rtfa'].loss:.1%}"
        row(
            f"{m or 'infinitely many'} clients",
            *(table[name].loss for name in names),
            table["rtfa"].ridge,
            ahead,
        )
    row("10 clients, noise^2 0.5, aspect", "best step", "gain", "worse from", "at 0.1", "pfedme")
    for gamma in (1.5, 2, 3, 4, 6, 8):
        row(f"{gamma:g}", *maml(10, gamma))
    for m in (4, 30):
        row(f"{m} clients, aspect 2", *maml(m, 2))
    row("ridge missed by a factor of", "1/3", "1/2", "2", "3")
    for s2, gamma in ((0.25, 2), (1, 2), (0.5, 1.5), (0.5, 5)):
        away = fa.Population(1, s2**0.5, gamma)
        losses = fa.predict(
            away, "rtfa", ridge=fa.optimal_ridge(away) * np.array([1 / 3, 1 / 2, 2, 3])
        )["rtfa"].loss
        row(
            f"noise^2 {s2:g}, aspect {gamma:g}",
            *(f"{loss / fa.optimal_loss(away) - 1:+.1%}" for loss in losses),
        )
    row("norm/radius for sharing to pay, m", *(f"{m}" for m in (3, 5, 10, 20, 100)))
    for gamma in (1.5, 2, 4):
        row(
            f"aspect {gamma:g}",
            *(share(m, gamma) if m > gamma else "-" for m in (3, 5, 10, 20, 100)),
        )
    row(
        "noise 1, aspect 2",
        *(
            f"{name} {risk.loss:.4f}"
            for name, risk in fa.predict(fa.Population(1, 1, 2), ["fedavg", "ftfa", "rtfa"]).items()
        ),
        width=17,
    )
    row(
        "  early stopping",
        fa.fine_tuning(fa.Population(1, 1, 2), flow=True, times=[1]).best.scores.loss,
    )


def share(m: int, gamma: float) -> float:
    """The smallest norm (radius 1, noise 0.5) at which a member's rtfa beats its local_ridge, by
    bisection.
    """
    together = fa.predict(fa.Population(1, 0.5, gamma), "rtfa", clients=m)["rtfa"].loss
    low, high = 1.0, 100.0
    for _ in range(50):
        norm = (low + high) / 2
        alone = fa.predict(fa.Population(1, 0.5, gamma, norm=norm), "local_ridge")[
            "local_ridge"
        ].loss
        low, high = (norm, high) if alone < together else (low, norm)
    return high


def maml(m: int, gamma: float) -> tuple[float, str, float, str, str]:
    """MAML among m members at noise^2 0.5: its best step and gain over ftfa, where it turns worse,
    and pFedMe's gain.
    """
    world = fa.Population(1, 0.5**0.5, gamma)
    base = fa.predict(world, ["ftfa", "pfedme"], clients=m)

    def ratio(step: float) -> float:
        return float(
            fa.predict(world, "maml", clients=m, maml_step=step)["maml"].loss / base["ftfa"].loss
        )

    steps = np.linspace(0.0025, 0.3, 120)
    ratios = np.array([ratio(step) for step in steps])
    best = int(np.argmin(ratios))
    worse = steps[best:][ratios[best:] > 1][0]
    gain = base["pfedme"].loss / base["ftfa"].loss - 1
    return steps[best], f"{ratios[best] - 1:+.1%}", worse, f"{ratio(0.1) - 1:+.1%}", f"{gain:+.1%}"


def train(folder: Path, ending: str) -> None:
    """How to train: the seven algorithms of the paper on a drawn federation, tuned a little, three
    seeds.
    """
    heading("How to: train")
    federation = fa.datasets.synthetic(
        task="classification", classes=5, centre=4, radius=3, aspect=0.5, dimension=60, clients=60
    )
    names = ["local", "fedavg", "ftfa", "rtfa", "maml_fo", "maml_hf", "pfedme"]
    grid = {name: {"server_step": [0.01, 0.1]} for name in names[1:]} | {
        "local": {"local_step": [0.01, 0.1]}
    }
    runs = fa.train(names, federation, grid=grid, seeds=range(3), rounds=200, evaluate_every=25)
    runs.choose().plot(folder / f"how-to-train.{ending}")
    for name in names:
        row(
            name,
            *(
                (
                    f"{100 * np.mean([run.accuracy[-1] for run in runs.choose().select(algorithm=name)]):.1f} %"
                ),
            ),
        )


def notation() -> None:
    """Three misprints of the paper's appendix in numbers: two atoms, aspect 2, radius 1,
    noise 0.5.
    """
    heading("Notation: the misprints in numbers")
    gamma, s, h = 2, TWO_ATOMS.values, TWO_ATOMS.weights
    world = fa.Population(1, 0.5, gamma, spectrum=TWO_ATOMS)
    table, ridge = fa.predict(world), fa.optimal_ridge(world)
    c = 1 / (gamma * gamma * table["ftfa"].bias)  # c0 = 1/(gamma kappa0), kappa0 = gamma B/r^2
    for power in (1, 2):
        low, high = (
            h @ (s / (1 + c * gamma * s) ** power),
            h @ (s**2 / (1 + c * gamma * s) ** power),
        )
        printed = "as printed" if power == 1 else "squared denominators"
        row(f"ftfa bias, {printed}", (1 + gamma * c * high / low) * low, table["ftfa"].bias)
        row(
            f"ftfa variance, {printed}",
            0.25 * gamma * high / low * (c if power == 2 else 1),
            table["ftfa"].variance,
        )
    k = ridge + gamma * table["rtfa"].loss  # kappa(lambda*), from the lowest loss
    row("noise^2 aspect m(-best ridge)", h @ (k / (s + k)), table["rtfa"].loss)


def reproduction(folder: Path) -> None:
    """The recorded runs beside the paper's curves, from the tables in docs/reproduction; as PNG,
    for their many bands.
    """
    from fedasym.experiments.reproduction import check_claims
    from fedasym.experiments.reproduction import compare_with_paper, compare_with_theory, curves_of
    from fedasym.show.figures.rounds import draw_figures

    heading("Reproduction")
    for file in sorted(Path(__file__).resolve().parent.glob("reproduction/*/results.json")):
        tables = file.parent
        results = fa.Results.load(tables)
        print(
            f"{compare_with_paper(results, tables.name)}\n\n{compare_with_theory(results)}\n\n{check_claims(results)}\n"
        )
        with tempfile.TemporaryDirectory() as aside:
            draw_figures(results, aside, curves_of(results, tables.name))
            for name in ("seeds", "splits"):
                if (drawn := Path(aside, f"{name}.png")).exists():
                    shutil.copy(drawn, folder / f"{tables.name}-{name}.png")


def gallery(page: Path, folder: Path) -> None:
    """The figures of the gallery, by running its own code in their folder."""
    folder.mkdir(exist_ok=True)
    names: dict[str, object] = {}
    with contextlib.chdir(folder):
        for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8")):
            exec(example.source, names)


def main() -> None:
    """Draw and print everything."""
    here = Path(__file__).resolve().parent
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--folder", type=Path, default=here / "figures", help="where the figures go"
    )
    options.add_argument("--ending", default="svg", help="svg, png or pdf")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    def save(figure: plt.Figure, name: str) -> None:
        metadata = {"Date": None, "Creator": None} if given.ending == "svg" else {}
        figure.savefig(given.folder / f"{name}.{given.ending}", dpi=110, metadata=metadata)
        plt.close(figure)

    warnings.simplefilter("ignore", fa.ThresholdWarning)  # the figures cross thresholds on purpose
    with mpl.rc_context(STYLE):
        for page in (page_1, page_2, page_3, page_4, page_5, page_6, page_8, page_9, choose):
            page(save)
    train(given.folder, given.ending)
    gallery(here / "gallery.md", given.folder / "gallery")
    notation()
    reproduction(given.folder)


if __name__ == "__main__":
    main()
