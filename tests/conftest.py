"""For all tests: programs are compiled quickly, and once for all processes of a run.

JAX reads the variables when it is imported, so they are set as soon as this file is; what the run starts inherits them. The
programs are kept in a folder of the run's own, which begins empty and goes away. Tests that are of the optimised programs, as
users have them, ask for those: `optimised` in `training/clients.py`.
"""

import os
import shutil
import sys
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:
    KEPT = tempfile.mkdtemp(prefix="fedasym-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

    def pytest_unconfigure():
        shutil.rmtree(KEPT, ignore_errors=True)


def pytest_collection_finish():
    """Without optimisation there is no use in fusing kernels either, which takes most of the time of compiling."""
    if "jax" not in sys.modules:
        return
    import jax
    from jax._src import compiler

    usual = compiler.get_compile_options

    def options(*args, env_options_overrides=None, **named):
        if jax.config.values["jax_disable_most_optimizations"]:
            env_options_overrides = {"xla_cpu_use_fusion_emitters": False, **(env_options_overrides or {})}
        return usual(*args, env_options_overrides=env_options_overrides, **named)

    compiler.get_compile_options = options
