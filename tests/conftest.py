"""For all tests: programs are compiled quickly, and once for all processes of a run.

JAX reads the variables when it is imported, so they are set as soon as this file is; what the run
starts inherits them. The programs are kept in a folder of the run's own, which begins empty and
goes away. Tests that are of the optimised programs, as users have them, ask for those: `optimised`
in `training/clients.py`.
"""

import gc
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

HERE = Path(__file__).parent

if "PYTEST_XDIST_WORKER" not in os.environ:
    KEPT = tempfile.mkdtemp(prefix="fedasym-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    # programs say nothing of the lines that they come from
    os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
    if version("jaxlib").startswith(
        ("0.8.", "0.9.", "0.10.")
    ):  # another may not know the flags, and would refuse to start
        quickly = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}"

    def pytest_unconfigure():
        shutil.rmtree(KEPT, ignore_errors=True)


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
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


# Files that take longest, longest first, then folders in which a test takes long: no worker waits
# for another at the end.
LONGEST = (
    "runtimes/test_flower_federation.py",
    "runtimes/test_ray.py",
    "experiments/test_reproduce.py",
    "runtimes/test_flower_faults.py",
    "training/test_train.py",
    "advisor/test_classes.py",
    "test_docs.py",
    "advisor/test_advise.py",
    "advisor/test_class_checks.py",
    "training/test_train_grids.py",
    "experiments/test_kills.py",
    "explore/test_controls.py",
    "linear/test_simulate_predictions.py",
    "test_monte_carlo_federations.py",
    "theory_classes/test_multinomial_system.py",
    "classification/test_predict.py",
    "hardening/test_values.py",
    "datasets/test_loaders_real.py",
    "hardening/test_fuzz.py",
    "test_results.py",
    "test_monte_carlo_limits.py",
    "exact/test_classes.py",
    "test_cli_train.py",
    "training/test_shared_features.py",
    "test_examples.py",
)
LONG = (
    "runtimes",
    "training",
    "experiments",
    "advisor",
    "explore",
    "reporting",
    "pretraining",
    "theory_classes",
    "hardening",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    def place(item):
        file = Path(item.path)
        name = file.relative_to(HERE).as_posix() if file.is_relative_to(HERE) else ""
        if name in LONGEST:
            return LONGEST.index(name)
        folder = name.partition("/")[0]
        return len(LONGEST) + (LONG.index(folder) if folder in LONG else len(LONG))

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
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return (
                super()._split_scope(nodeid).partition("::")[0]
            )  # the group, where a test names one

    config.option.loadscopereorder = False
    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None
