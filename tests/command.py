"""A command in this process, as another process would end: starting an interpreter costs more than
what most commands do.
"""

from __future__ import annotations

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from fedasym import cli


def fedasym(*args: Any, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """What `fedasym` and these words print in a folder, and the code that they end with."""
    words = [str(each) for each in args]
    said, complained = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(said), redirect_stderr(complained):
        try:
            code: Any = cli.answer(words)
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(words, code, said.getvalue(), complained.getvalue())
