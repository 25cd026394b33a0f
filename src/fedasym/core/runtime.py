"""What the package asks of the system, its caller and higher layers: files, locks, memory, roles.

Files are there whole or not at all, and never unpickled. A sealed file has its own SHA-256 inside:
a parser in compiled code may end the whole process over bytes that it did not expect, so a flipped
bit is noticed before. The seal lies between the rows and the footer of a Parquet file, where no
reader looks: the footer is found by its length, from the end, and the rows by their places.

Results draw themselves, and experiments run on a cluster, by
roles: the higher layer's module fills them when the first is asked for, and nothing of it is
imported before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fedasym.core.errors import InvalidInput, MissingPackage, import_package, path_of

PART = ".part"  # how the name of a half-written file ends
POLL = 0.1  # seconds between two looks at a lock that another process holds


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A new path beside this one, to be written to: it takes this one's place when the block ends,
    and goes when it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.txt")
    ...     with replace_file(path) as fresh:
    ...         size = fresh.write_text("1 2 3")
    ...     [each.name for each in path.parent.iterdir()]
    ['numbers.txt']
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{PART}")
    try:
        yield fresh
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, path)
        flush(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a small file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.txt")
    ...     replace_text(path, "1 2 3")
    ...     path.read_text()
    '1 2 3'
    """
    with replace_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def flush(folder: Path) -> None:
    """Flush a folder so that a new name survives a power cut, where systems let one open it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a small file."""
    with explain_unwritable(path):
        replace_text(path, text)


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Say in a sentence that a file of a run cannot be written."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{path} cannot be written: {reason.strerror or reason}; what is finished is kept"
        ) from None


@contextmanager
def refuse_unwritable(field: str, path: str | Path) -> Iterator[None]:
    """Say in a sentence that a file that a user named cannot be written."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{field} is {str(path)!r}: it cannot be written: {reason.strerror or reason}"
        ) from None


SEAL = b"\xfffedasym sha256\xff"  # 0xff is in no text
SEAL_SIZE = len(SEAL) + hashlib.sha256().digest_size
FOOTER_END = 8  # bytes that end a Parquet file: the footer's length, and "PAR1"


def seal_file(file: bytes) -> bytes:
    """A Parquet file with its seal.

    >>> file = b"PAR1 rows" + b"footer" + bytes([6, 0, 0, 0]) + b"PAR1"
    >>> len(seal_file(file)) - len(file) == SEAL_SIZE
    True
    """
    footer = len(file) - FOOTER_END - int.from_bytes(file[-FOOTER_END:-4], "little")
    return file[:footer] + SEAL + hashlib.sha256(file).digest() + file[footer:]


def is_broken(file: bytes) -> bool:
    """Whether a seal says that bytes changed; older files without a seal say nothing.

    >>> file = seal_file(b"PAR1 rows" + b"footer" + bytes([6, 0, 0, 0]) + b"PAR1")
    >>> is_broken(file), is_broken(file.replace(b"rows", b"rowz"))
    (False, True)
    """
    start = file.rfind(SEAL)  # not by the footer's length, which may be what is damaged
    if start < 0:
        return False
    rest = file[:start] + file[start + SEAL_SIZE :]
    return file[start + len(SEAL) : start + SEAL_SIZE] != hashlib.sha256(rest).digest()


ARRAYS_FORMAT, ARRAYS_KEY = "fedasym fit 1", "fedasym"  # of a file, and of its metadata
ARRAYS_ENDING = ".safetensors"
UNREADABLE = (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError)


def write_arrays(
    path: str | Path, kind: str, arrays: Mapping[str, Any], about: Mapping[str, Any]
) -> Path:
    """Write arrays and what is said about them; the name must end in .safetensors."""
    import numpy as np  # a program that only starts does not need it

    where = path_of("path", path)
    if where.suffix != ARRAYS_ENDING:
        raise InvalidInput(f"path is {str(path)!r}: its name must end in {ARRAYS_ENDING}")
    library = import_package("safetensors.numpy", "a .safetensors file")
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps({"format": ARRAYS_FORMAT, "kind": kind, **about})
    with refuse_unwritable("path", path):
        where.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(where) as fresh:
            fresh.write_bytes(library.save(held, metadata={ARRAYS_KEY: text}))
    return where


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `write_arrays` wrote of this kind."""
    import numpy as np

    where = path_of("path", path)
    safetensors = import_package("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(where), framework="numpy") as file:
            about = json.loads((file.metadata() or {})[ARRAYS_KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.pop("format") != ARRAYS_FORMAT or about.pop("kind") != kind:
            raise ValueError
    except (*UNREADABLE, safetensors.SafetensorError):
        raise InvalidInput(
            f"{where} is not a {kind} that fedasym saved: name the file that save wrote"
        ) from None
    for array in arrays.values():
        if array.dtype.kind not in "fiu" or not np.isfinite(array[~np.isinf(array)]).all():
            raise InvalidInput(
                f"{where} holds something that is not a number: save the {kind} again"
            )
    return arrays, about


def holds_kind(path: str | Path, kind: str) -> bool:
    """Whether a file is one of this kind that `write_arrays` wrote; other files are not opened."""
    where = Path(path)
    if where.suffix != ARRAYS_ENDING or not where.is_file():
        return False
    safetensors = import_package("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(where), framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(ARRAYS_KEY, "{}"))
        return isinstance(about, dict) and about.get("kind") == kind
    except (*UNREADABLE, safetensors.SafetensorError):
        return False


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to hold a lock between processes, which the system frees when its holder dies. False:
    another has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "work.lock")
    ...     with try_lock(path) as mine, try_lock(path) as again:
    ...         mine, again
    (True, False)
    """
    from filelock import FileLock, Timeout  # local: it comes with asyncio

    with ExitStack() as held:
        try:
            held.enter_context(FileLock(path).acquire(blocking=False))
            free = True
        except Timeout:
            free = False
        yield free


@contextmanager
def hold_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock between processes; `waiting` is called once where another has it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        waiting()
        held = lock.acquire(poll_interval=POLL)
    with held:
        yield


def cache_folder() -> Path:
    """Where this system keeps what programs can make again: `fedasym` in its cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("fedasym", appauthor=False)


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")


def is_url(path: str | Path) -> bool:
    """Whether a folder is named by a URL.

    >>> is_url("s3://bucket/run"), is_url("runs/mine"), is_url("C:/runs")
    (True, False, False)
    """
    return isinstance(path, str) and URL.match(path) is not None


def open_store(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it."""
    try:
        import fsspec
    except ImportError:
        raise MissingPackage(f"{url!r} needs fsspec: pip install 'fedasym[remote]'") from None
    try:
        system, root = fsspec.url_to_fs(url)
    except ImportError as reason:
        raise MissingPackage(f"{url!r} needs one more package: {reason}") from None
    return system, root.rstrip("/")


class Notice(str):
    """Words of progress that stay to be read: something was damaged or lost."""

    __slots__ = ()


# hears what share of all is done, and a few words on where that is
Progress = Callable[[float, str], None]


def progress_portion(tell: Progress, place: int, count: int, width: float = 1.0) -> Progress:
    """The progress of one of `count` equal pieces, or of a `width` of one, as that of the whole."""
    return lambda share, text: tell((place + width * share) / count, text)


def progress_shown(progress: Any) -> Progress | None:
    """What hears how far work is: as given, and a bar in a notebook where nothing is given.

    What cannot be told anything is refused before any work.

    >>> progress_shown(True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: progress is True: give a function of the share that is done and of a ...
    """
    if progress is None:
        return NotebookBar() if in_notebook() else None
    if not callable(progress):
        raise InvalidInput(
            f"progress is {progress!r}: give a function of the share that is done and of a few"
            " words, such as print"
        )
    found: Progress = progress
    return found


def in_notebook() -> bool:
    """Whether this process serves a notebook, which can show HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A bar in the cell of a notebook, gone when the work is done."""

    EVERY = 0.2  # seconds between two drawings

    def __init__(self) -> None:
        self.cell: Any = None
        self.last = time.monotonic()

    def __call__(self, share: float, text: str) -> None:
        """Draw the share that is done, with a few words."""
        from html import escape

        display = import_module("IPython.display")
        now = time.monotonic()
        if isinstance(text, Notice):
            display.display(display.HTML(f"<p>{escape(text)}</p>"))
        elif share >= 1:
            if self.cell is not None:
                self.cell.update(display.HTML(""))
        elif now - self.last >= self.EVERY:
            words = f"{share:.0%} {escape(text)}"
            bar = display.HTML(f'<progress max="1" value="{share:.3f}"></progress> {words}')
            if self.cell is None:
                self.cell = display.display(bar, display_id=True)
            else:
                self.cell.update(bar)
            self.last = now


class Executor(Protocol):
    """What `on` may be, such as `fedasym.runtimes.Ray`."""

    @property
    def threads(self) -> int:
        """CPUs that a task is given."""

    @property
    def workers(self) -> int | None:
        """How many tasks at a time, at the most."""


LAYERS = ("fedasym.deploy", "fedasym.show")  # the lighter one first
_FILLED: dict[str, Callable[..., Any]] = {}


def fill(role: str, module: str, name: str) -> None:
    """Fill a role with a function of a module, which is imported when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    _FILLED[role] = call


def ask(role: str) -> Callable[..., Any]:
    """The function that fills a role."""
    for layer in LAYERS:
        if role not in _FILLED:
            import_module(layer)
    return _FILLED[role]


def write_file(role: str, *args: Any, **options: Any) -> Path:
    """Have a role write a file; returns where it is."""
    return Path(ask(role)(*args, **options))


MANY_THREADS = 1000  # dimension from which one matrix product keeps several threads busy


def physical_memory() -> float:
    """Bytes of this machine's memory; endless where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_fits(size: float, what: str) -> None:
    """Refuse what claims to unpack to more than this machine's memory, before anything is allocated
    for it.

    >>> check_fits(1e30, "clients.npz: array 'x'")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: clients.npz: array 'x' claims 1e+21 GB, more than this machine's ...
    """
    if size > physical_memory():
        raise InvalidInput(
            f"{what} claims {size / 1e9:.3g} GB, more than this machine's memory: check the file"
        )


def few_threads(dimension: int) -> AbstractContextManager[object]:
    """One BLAS thread for small matrices: more only wait, on a busy machine a hundredfold."""
    found: AbstractContextManager[object] = libraries(len(sys.modules)).limit(
        limits=1 if dimension < MANY_THREADS else None, user_api="blas"
    )
    return found


@lru_cache(maxsize=1)
def libraries(_: int) -> Any:
    """The libraries with threads of their own, looked for again after new imports (it is slow)."""
    from threadpoolctl import ThreadpoolController  # local: a prediction needs no threads

    return ThreadpoolController()


STOPPED = 130  # the exit code after Ctrl-C
