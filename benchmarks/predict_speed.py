"""Speed of the theory lens, as ratios against named alternatives in the same run.

1. A 200 x 200 diagram over 500 eigenvalues, all seven algorithms: `fedasym.predict` on the grid
   against a plain loop that solves the fixed-point equations of each point with
   `scipy.optimize.brentq`. The loop is not wasteful: it solves each of the three different
   equations of a point once and shares them between the algorithms.
2. One accuracy, at the best ridge and at a given one, against scikit-learn's logistic fit of a
   single simulated client; a 100 x 100 diagram of accuracies, and ten classes.
3. `fedasym predict` from the shell against `python -c "import numpy, scipy"`.

Run with `make bench`; it takes about a minute.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

import fedasym as fa

SIDE, ATOMS = 200, 500


def loop(
    noise: np.ndarray, aspect: np.ndarray, radius: float, norm: float, spectrum: fa.Spectrum
) -> dict[str, np.ndarray]:
    """Losses of all algorithms, point by point."""
    s, h = spectrum.values, spectrum.weights
    out = {name: np.empty((noise.size, aspect.size)) for name in fa.algorithms.PAPER}

    def solve(ridge: float, gamma: float) -> float:
        def residual(k: float) -> float:
            return k * (1 - gamma * (s / (s + k)) @ h) - ridge

        return brentq(residual, 1e-12, gamma * spectrum.mean + ridge, xtol=1e-15, rtol=1e-14)

    def loss(k: float, gamma: float, spread: float, sigma2: float) -> float:
        near = s / (s + k)
        growth = 1 / (1 - gamma * near**2 @ h)
        return spread * growth * k**2 * (near / (s + k)) @ h + sigma2 * (growth - 1)

    for i, sigma in enumerate(noise):
        for j, gamma in enumerate(aspect):
            sigma2 = sigma**2
            flat, ridge, alone = (
                solve(lam, gamma)
                for lam in (0, sigma2 * gamma / radius**2, sigma2 * gamma / norm**2)
            )
            out["fedavg"][i, j] = radius**2 * spectrum.mean
            out["ftfa"][i, j] = out["maml"][i, j] = loss(flat, gamma, radius**2, sigma2)
            out["rtfa"][i, j] = out["pfedme"][i, j] = loss(ridge, gamma, radius**2, sigma2)
            out["local"][i, j] = loss(flat, gamma, norm**2, sigma2)
            out["local_ridge"][i, j] = loss(alone, gamma, norm**2, sigma2)
    return out


def diagram() -> None:
    """Print the ratio for the diagram, after checking that both agree."""
    spectrum = fa.spectra.power_law(1, points=ATOMS)
    noise, aspect = np.linspace(0.01, 2, SIDE), np.linspace(1.1, 10, SIDE)
    world = fa.Population(radius=1, noise=noise[:, None], aspect=aspect, norm=2, spectrum=spectrum)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        table = fa.predict(world)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    slow = loop(noise, aspect, 1.0, 2.0, spectrum)
    plain = time.perf_counter() - start
    worst = max(float(np.max(np.abs(table[name].loss / slow[name] - 1))) for name in table)
    fast = statistics.median(times)
    print(f"{SIDE} x {SIDE} diagram, {ATOMS} eigenvalues, {len(table)} algorithms")
    print(f"  loop of scipy.optimize.brentq  {plain:8.2f} s")
    print(f"  fedasym.predict                {fast:8.3f} s (median of 5; first {times[0]:.3f} s)")
    print(
        f"  ratio                          {plain / fast:8.0f} x; largest relative difference"
        f" {worst:.1e}"
    )


def seconds_of(call: Callable[[], object], runs: int = 9) -> float:
    """Median after a first run that is not counted."""
    call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def accuracies(d: int = 400) -> None:
    """Print what accuracies cost."""
    world = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((round(d / 2.3), d))
    y = rng.random(len(x)) < 1 / (
        1 + np.exp(-x @ rng.standard_normal(d) * np.hypot(1.1, 1.4) / np.sqrt(d))
    )
    fit = seconds_of(
        lambda: LogisticRegression(C=1 / (0.35 * len(x)), fit_intercept=False, tol=1e-6).fit(x, y)
    )
    print(
        f"accuracy of a method; scikit-learn fits one client of {d} features in {1000 * fit:.1f} ms"
    )
    asked = {
        "rtfa at its best ridge": None,
        "local_ridge at its best ridge": None,
        "rtfa at a ridge": 0.35,
        "ftfa": None,
    }
    for told, ridge in asked.items():
        each = seconds_of(
            lambda told=told, ridge=ridge: fa.predict(world, told.split()[:1], ridge=ridge)
        )
        print(f"  {told:<30} {1000 * each:8.1f} ms, {each / fit:6.2f} fits")
    varied = {"radius": (0.2, 3, 100), "aspect": (0.2, 10, 100)}
    drawn = seconds_of(lambda: fa.compare("rtfa", "fedavg", world, vary=varied), runs=1)
    print(f"  {'100 x 100 diagram':<30} {1000 * drawn / 1e4:8.2f} ms a point, {drawn:.1f} s in all")
    many = seconds_of(
        lambda: fa.predict(
            fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3, classes=10), ["rtfa"]
        ),
        runs=1,
    )
    print(f"  {'rtfa with ten classes':<30} {1000 * many:8.0f} ms")


def shell(runs: int = 15) -> None:
    """Print the ratio for the command, alternating the two so that noise hits both."""
    arguments = ["--radius", "1", "--noise", "0.5", "--aspect", "2", "--norm", "2"]
    command = [str(Path(sys.executable).with_name("fedasym")), "predict", *arguments]
    imports = [sys.executable, "-c", "import numpy, scipy"]
    times: dict[str, list[float]] = {"command": [], "imports": []}
    for _ in range(runs):
        for name, call in (("command", command), ("imports", imports)):
            start = time.perf_counter()
            subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    command_time, import_time = (statistics.median(times[name]) for name in ("command", "imports"))
    print("fedasym predict, from the shell")
    print(f'  python -c "import numpy, scipy"  {import_time:6.3f} s (median of {runs})')
    print(f"  fedasym predict                  {command_time:6.3f} s")
    print(f"  ratio                            {command_time / import_time:6.2f}")


if __name__ == "__main__":
    diagram()
    accuracies()
    shell()
