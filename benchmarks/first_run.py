"""What the first run of a process costs, on whatever device JAX finds, and what of it is compiling.

600 clients with 80 training, 10 validation and 10 test samples of 512 features in 100 classes (the
shape of the paper's CIFAR-100), 400 rounds of 20 clients, 20 steps of batch 32:

- run: FedAvg, tested before and after;
- grid: the paper's grids for all seven algorithms (243 configurations), tested 9 times.

Each is done twice in a process of its own, which keeps no programs; then in one that keeps them
(`fa.keep_compilations`), and in one more that finds these.

    python benchmarks/first_run.py [--rounds 400] [--clients 600] [--parts run grid]
        [--flags=--xla_gpu_autotune_level=0] [--programs]

flags: the first run of each part once more with these XLA flags and no kept programs; may be given
again for another try. programs: print every program with its seconds. Seconds of tracing, lowering
and compiling are those in which any thread was at it. Needs NumPy, SciPy and JAX.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

COMPILER = "/jax/core/compile/"
PHASES = {
    "tracing": COMPILER + "jaxpr_trace_duration",
    "lowering": COMPILER + "jaxpr_to_mlir_module_duration",
    "compiling": COMPILER + "backend_compile_duration",  # or reading what is kept
}
KEPT = "/jax/compilation_cache/cache_hits"


class Span(NamedTuple):
    """What a thread was doing for one program."""

    phase: str
    program: str
    start: float
    stop: float


def covered(spans: list[Span]) -> float:
    """Seconds in which any of them was under way."""
    seconds, reached = 0.0, 0.0
    for span in sorted(spans, key=lambda span: span.start):
        seconds += max(span.stop - max(span.start, reached), 0.0)
        reached = max(reached, span.stop)
    return seconds


def timed(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds on the clock and of processors, and what it returns."""
    wall, work = time.perf_counter(), time.process_time()
    found = call()
    return {"wall": time.perf_counter() - wall, "processor": time.process_time() - work}, found


def measure(part: str, clients: int, rounds: int, folder: str) -> dict[str, Any]:
    """Both runs of a part, in this process."""
    steps: dict[str, Any] = {}

    def load() -> None:
        import jax  # noqa: F401

    steps["import jax"] = timed(load)[0]
    import jax

    steps["device start"] = timed(lambda: jax.device_put(0.0).block_until_ready())[0]

    def load_ours() -> None:
        import train_speed  # noqa: F401

        import fedasym.training.runner  # noqa: F401

    steps["import fedasym"] = timed(load_ours)[0]
    from train_speed import draw, federation_of

    import fedasym as fa
    from fedasym.algorithms import GRIDS

    if folder:
        fa.keep_compilations(folder)
    steps["making data"], federation = timed(lambda: federation_of(draw(clients)))
    spans: list[Span] = []
    hits: list[str] = []

    def note(event: str, seconds: float, **told: Any) -> None:
        phase = next((phase for phase, name in PHASES.items() if name == event), None)
        if phase is not None:
            now = time.perf_counter()
            spans.append(Span(phase, str(told.get("fun_name")), now - seconds, now))

    def count(event: str, **_: Any) -> None:
        if event == KEPT:
            hits.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    jax.monitoring.register_event_listener(count)

    def run() -> Any:
        if part == "run":
            return fa.train("fedavg", federation, rounds=rounds, evaluate_every=rounds)
        return fa.train(list(GRIDS), federation, grid=GRIDS, rounds=rounds, evaluate_every=50)

    programs = []
    for name in ("first run", "second run"):
        spans.clear()
        hits.clear()
        steps[name], found = timed(run)
        compiled = [span for span in spans if span.phase == "compiling"]
        steps[name] |= {
            phase: covered([span for span in spans if span.phase == phase]) for phase in PHASES
        }
        steps[name] |= {"all of it": covered(spans), "programs": len(compiled), "kept": len(hits)}
        programs += [span._asdict() for span in spans if span.stop - span.start > 0.02]
    runs = [found] if part == "run" else list(found)
    best = max(float(run.accuracy[-1]) for run in runs)
    device = f"jax {jax.__version__} on {jax.devices()[0].device_kind}"
    return {"device": device, "steps": steps, "programs": programs, "runs": len(runs), "best": best}


def in_child(part: str, told: argparse.Namespace, folder: str, flags: str = "") -> dict[str, Any]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--child", part, "--folder", folder]
    command += ["--clients", str(told.clients), "--rounds", str(told.rounds)]
    settings = dict(os.environ)
    settings["XLA_FLAGS"] = f"{settings.get('XLA_FLAGS', '')} {flags}".strip()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=settings, check=False)
    if done.returncode:
        return {"failed": done.returncode}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(title: str, found: dict[str, Any], programs: bool) -> None:
    """Print what a process measured."""
    if "failed" in found:
        print(f"\n{title}: ended with code {found['failed']}", flush=True)
        return
    print(f"\n{title} ({found['device']}; {found['runs']} runs, best {found['best']:.2%})")
    names = [*PHASES, "all of it", "rest"]
    print(f"{'seconds':<16}{'wall':>9}{'cores':>9}" + "".join(f"{name:>11}" for name in names))
    for name, step in found["steps"].items():
        line = f"{name:<16}{step['wall']:>9.3f}{step['processor']:>9.3f}"
        if "programs" in step:
            step["rest"] = step["wall"] - step["all of it"]
            line += "".join(f"{step[each]:>11.3f}" for each in names)
            line += f"   {step['programs']} programs, {step['kept']} of them kept"
        print(line)
    if programs:
        start = min((span["start"] for span in found["programs"]), default=0.0)
        for span in sorted(found["programs"], key=lambda span: span["start"]):
            seconds = span["stop"] - span["start"]
            since = span["start"] - start
            print(f"  at {since:7.3f}: {span['phase']:<10}{seconds:>8.3f}  {span['program']}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--clients", type=int, default=600)
    parser.add_argument("--parts", nargs="+", choices=("run", "grid"), default=["run", "grid"])
    parser.add_argument("--flags", action="append", default=[])
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--child", choices=("run", "grid"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.child:
        print(json.dumps(measure(told.child, told.clients, told.rounds, told.folder)))
        return
    for part in told.parts:
        report(f"{part}, nothing kept", in_child(part, told, ""), told.programs)
        with tempfile.TemporaryDirectory() as folder:
            where = str(Path(folder) / "programs")
            report(f"{part}, keeping programs", in_child(part, told, where), False)
            report(f"{part}, with kept programs", in_child(part, told, where), told.programs)
        for flags in told.flags:
            report(f"{part}, {flags}", in_child(part, told, "", flags), told.programs)


if __name__ == "__main__":
    main()
