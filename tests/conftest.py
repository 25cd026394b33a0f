"""For all tests: programs are compiled quickly, once for all processes of a run and for later runs.

JAX reads the variables when it is imported, so they are set as soon as this file is; what the run
starts inherits them. The programs are kept beside pytest's own notes, in a folder for this
processor: JAX finds one by a hash of all that it is made of, so that a changed one is compiled
anew. Tests that are of the optimised programs, as users have them, ask for those: `optimised` in
`training/clients.py`.
"""

import gc
import os
import platform
import shutil
import sys
import tempfile
import time
import zlib
from importlib.metadata import version
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

HERE = Path(__file__).parent
gc.disable()  # until all is collected: what is imported stays, and is not worth looking at


def open_programs(room: int = 400 * 2**20) -> Path:
    """The folder of compiled programs, emptied when it has become larger than that many bytes."""
    features = Path("/proc/cpuinfo")
    told = features.read_text() if features.exists() else platform.processor()
    mine = "".join(line for line in told.splitlines() if line.startswith(("flags", "Features")))
    folder = HERE.parent / ".pytest_cache" / f"programs-{zlib.crc32(mine.encode()):x}"
    if sum(each.stat().st_size for each in folder.glob("*")) > room:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if "PYTEST_XDIST_WORKER" not in os.environ:
    KEPT = tempfile.mkdtemp(prefix="fedasym-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(open_programs())
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    # programs say nothing of the lines that they come from
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
    if not (sys.dont_write_bytecode or any(HERE.glob("training/__pycache__/*-pytest-*.pyc"))):
        os.environ["FEDASYM_TESTS_COMPILED"] = str(Path(KEPT, "tests-compiled"))
    if version("jaxlib").startswith(
        ("0.8.", "0.9.", "0.10.")
    ):  # another may not know the flags, and would refuse to start
        quickly = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}"

    def pytest_unconfigure():
        shutil.rmtree(KEPT, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Where no test has been compiled yet, the first worker does it, and the others wait for it
    instead of doing the same: that takes longer than all else that a worker does at first.
    """
    told = os.environ.get("FEDASYM_TESTS_COMPILED")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if told and worker not in (None, "gw0"):
        end = time.monotonic() + 60
        while not Path(told).exists() and time.monotonic() < end:
            time.sleep(0.1)
    done = yield
    if told and worker == "gw0":
        Path(told).touch()
    return done


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Examples to run are in the source and in the documentation: here there are none to look
    for.
    """
    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_finish():
    """What was imported stays: the collector need not look at it, nor look as often as tracing
    makes garbage.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    gc.enable()
    SPENT.append(sum(os.times()[:4]))


SPENT: list[float] = []  # processor seconds at the end of every phase, with ended children


def pytest_addoption(parser):
    what = "print the tests that take most processor time, which a busy machine does not change"
    parser.addoption("--costs", type=int, default=0, metavar="COUNT", help=what)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    SPENT.append(sum(os.times()[:4]))
    item.user_properties.append(("processor", SPENT[-1] - SPENT[-2]))
    return (yield)


def pytest_terminal_summary(terminalreporter, config):
    """What each test took from its setup to its teardown."""
    costs = [
        (sum(value for name, value in report.user_properties if name == "processor"), report.nodeid)
        for report in terminalreporter.stats.get("", [])
        if report.when == "teardown"
    ]
    for seconds, test in sorted(costs, reverse=True)[: config.getoption("--costs")]:
        terminalreporter.write_line(f"{seconds:6.1f} processor seconds  {test}")


# Files that take four seconds or more, longest first: no worker waits for another at the end.
LONGEST = (
    "runtimes/test_flower_federation.py",
    "runtimes/test_ray.py",
    "test_docs.py",
    "training/test_shard_keepers.py",
    "advisor/test_classes.py",
    "experiments/test_reproduce.py",
    "models/test_doubles.py",
    "reporting/test_page.py",
    "linear/test_simulate_predictions.py",
    "hardening/test_fuzz.py",
    "advisor/test_class_checks.py",
    "training/test_train.py",
    "runtimes/test_flower_trust.py",
    "training/test_train_grids.py",
    "exact/test_classes.py",
    "advisor/test_private_sharing.py",
    "datasets/test_loaders_real.py",
    "test_cli_train.py",
    "test_results.py",
    "hardening/test_interrupts.py",
    "training/test_memory.py",
    "hardening/test_values.py",
    "advisor/test_advice_page.py",
    "advisor/test_advise.py",
    "training/test_devices.py",
    "advisor/test_shares.py",
    "test_monte_carlo_federations.py",
    "theory_classes/test_multinomial_system.py",
    "classification/test_predict.py",
    "test_cli.py",
    "advisor/test_estimates.py",
    "algorithms/test_family.py",
    "experiments/test_kills.py",
    "classification/test_figures.py",
    "classification/test_tuning.py",
    "test_site.py",
    "advisor/test_checks.py",
    "test_examples.py",
    "experiments/test_run.py",
    "runtimes/test_flower.py",
    "advisor/test_mixed.py",
    "training/test_twin_algorithms.py",
    "training/test_twin_limits.py",
    "classification/test_simulate.py",
    "training/test_stages.py",
    "pretraining/test_pretrain.py",
    "experiments/test_spec.py",
    "advisor/test_intervals.py",
    "algorithms/test_outside.py",
    "theory_rounds/test_verb.py",
    "advisor/test_disk.py",
    "advisor/test_advise_example.py",
    "training/test_shares.py",
    "training/test_shared_features.py",
    "invariants/test_federations.py",
    "advisor/test_levels.py",
    "runtimes/test_flower_writing.py",
    "test_privacy.py",
    "training/test_private.py",
    "invariants/test_limits.py",
    "runtimes/test_flower_faults.py",
    "reporting/test_drawn.py",
    "runtimes/test_flower_advice.py",
    "experiments/test_foresight.py",
    "test_imports.py",
    "training/test_train_precision.py",
    "training/test_train_programs.py",
    "training/test_disk.py",
    "test_contract.py",
    "test_monte_carlo_limits.py",
    "theory_classes/test_multinomial_simulation.py",
)
# They mostly wait for other processes: one worker has them all, while the others have the cores.
WAITING = tuple(f"tests/runtimes/{name}.py" for name in ("test_flower_federation", "test_ray"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}

    def place(item):
        file = Path(item.path)
        name = file.relative_to(HERE).as_posix() if file.is_relative_to(HERE) else ""
        return places.get(name, len(places))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: what waits for nodes of Flower and Ray leaves its core to
    another.
    """
    return (yield) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker has all tests of a file, in the order above: what they share is made and compiled
    once.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return WAITING[0] if file in WAITING else file

    config.option.loadscopereorder = False
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None
