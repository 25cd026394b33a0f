"""What reading arrays and archives from outside raises where bytes are damaged, or claim more than there is."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib

# NumPy parses an array's header as Python text, and allocates what it claims before it reads.
BROKEN = (
    OSError,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
