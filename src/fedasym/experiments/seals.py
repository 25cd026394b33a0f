"""A Parquet file with its own SHA-256 inside: a flipped bit is noticed before a parser meets it.

A parser in compiled code may end the whole process over bytes that it did not expect. The seal lies between the rows and the
footer, where no reader looks: each finds the footer by its length, from the file's end, and the rows by their places.
"""

from __future__ import annotations

import hashlib

MARK = b"\xfffedasym sha256\xff"  # 0xff is in no text
SIZE = len(MARK) + hashlib.sha256().digest_size
END = 8  # bytes that end a Parquet file: the footer's length, and "PAR1"


def sealed(file: bytes) -> bytes:
    """A Parquet file with its seal.

    >>> file = b"PAR1 rows" + b"footer" + bytes([6, 0, 0, 0]) + b"PAR1"
    >>> len(sealed(file)) - len(file) == SIZE
    True
    """
    footer = len(file) - END - int.from_bytes(file[-END:-4], "little")
    return file[:footer] + MARK + hashlib.sha256(file).digest() + file[footer:]


def is_broken(file: bytes) -> bool:
    """Whether a seal says that bytes have changed; a file without one, as older versions wrote them, says nothing.

    >>> file = sealed(b"PAR1 rows" + b"footer" + bytes([6, 0, 0, 0]) + b"PAR1")
    >>> is_broken(file), is_broken(file.replace(b"rows", b"rowz"))
    (False, True)
    """
    start = file.rfind(MARK)  # not by the footer's length, which may be what is damaged
    if start < 0:
        return False
    rest = file[:start] + file[start + SIZE :]
    return file[start + len(MARK) : start + SIZE] != hashlib.sha256(rest).digest()
