"""Training on real client data: algorithms in their stochastic form, and their evaluation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from fedasym.core.runtime import cache_folder

SHORTEST = 0.1  # seconds of compiling from which a program is kept


def keep_compilations(folder: str | Path | None = None) -> Path:
    """Keep what JAX compiles in a folder, for this process and those to come; returns where.

    Commands do so by themselves, from Python it is asked for, since it holds for all that JAX
    compiles. A program is found again by what it computes, JAX's version and the device.

    folder: by default the folder that JAX_COMPILATION_CACHE_DIR names, or one in the user's cache.

    >>> import fedasym as fa
    >>> fa.keep_compilations()  # doctest: +SKIP
    PosixPath('/home/ann/.cache/fedasym/jax')
    """
    told = os.environ.get("JAX_COMPILATION_CACHE_DIR") if folder is None else str(folder)
    where = Path(told or cache_folder() / "jax")
    seconds = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SHORTEST))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(where)
    if sys.modules.get("jax") is not None:  # which has read these already
        import jax
        from jax.experimental.compilation_cache import compilation_cache

        config: Any = jax.config
        if config.jax_compilation_cache_dir == str(where):
            return where
        config.update("jax_compilation_cache_dir", str(where))
        config.update("jax_persistent_cache_min_compile_time_secs", float(seconds))
        compilation_cache.reset_cache()
    return where
