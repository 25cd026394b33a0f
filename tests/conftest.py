"""For all tests: compiled programs are kept in a folder of the run's own, for all its processes; it begins empty and goes away.

JAX reads the variables when it is imported, so they are set as soon as this file is. Workers of xdist inherit them.
"""

import os
import shutil
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:
    KEPT = tempfile.mkdtemp(prefix="fedasym-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

    def pytest_unconfigure():
        shutil.rmtree(KEPT, ignore_errors=True)
