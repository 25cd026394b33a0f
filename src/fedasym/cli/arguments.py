"""What people type on the command line, turned into what the verbs take: lists, ranges, spectra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedasym.core.errors import InvalidInput

if TYPE_CHECKING:
    from fedasym.cli.training import Columns
    from fedasym.data.federation.federation import Federation
    from fedasym.worlds.spectra import Spectrum


def names(text: str | None) -> list[str] | None:
    """Algorithm names separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def numbers(field: str, text: str | None) -> list[float] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidInput(f"{field} is {text!r}: give numbers separated by commas") from None


def whole_numbers(field: str, text: str) -> list[int]:
    """Whole numbers separated by commas, or a range like 0:11."""
    start, colon, stop = text.partition(":")
    try:
        return list(range(int(start), int(stop))) if colon else [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidInput(f"{field} is {text!r}: give whole numbers like 0,1,2, or 0:11 for 0 to 10") from None


def parse_vary(texts: list[str]) -> dict[str, Any]:
    """Parameters and their ranges: name=start:stop:count or name=a,b,c."""
    vary: dict[str, Any] = {}
    for text in texts:
        name, _, span = text.partition("=")
        name = name.strip().replace("-", "_")
        if not span:
            raise InvalidInput(f"vary is {text!r}: write it like noise=0:2:200 or aspect=1.5,2,4")
        if name in vary:
            raise InvalidInput(f"vary names {name} twice: give each parameter once")
        parts = numbers(f"vary {name}", span.replace(":", ","))
        vary[name] = tuple(parts or ()) if ":" in span else parts
    return vary


def parse_grid(texts: list[str] | None) -> dict[str, list[float]] | None:
    """Settings and their values: name=a,b,c; whole numbers stay whole."""
    grid: dict[str, list[float]] = {}
    for text in texts or ():
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name in grid:
            raise InvalidInput(f"grid names {name} twice: give each setting once")
        found = numbers(f"grid {name}", values)
        if not found:
            raise InvalidInput(f"grid is {text!r}: write it like server_step=0.01,0.1,1")
        grid[name] = [int(value) if value.is_integer() else value for value in found]
    return grid or None


def parse_spectrum(text: str) -> Spectrum:
    """A spectrum by its name and numbers, or from a file of eigenvalues."""
    from fedasym.worlds import spectra  # not before it is needed: --help should be quick

    kind, _, rest = text.partition(":")
    match kind:
        case "identity" if not rest:
            return spectra.identity()
        case "ar1" | "power_law":
            values = numbers("spectrum", rest)
            if not values or len(values) != 1:
                raise InvalidInput(f"spectrum is {text!r}: write it like ar1:0.5 or power_law:1")
            return getattr(spectra, kind)(values[0])  # type: ignore[no-any-return]
        case "atoms":
            pairs = [numbers("spectrum", part.replace("@", ",")) or [] for part in rest.split(",")]
            if any(len(pair) != 2 for pair in pairs):
                raise InvalidInput(f"spectrum is {text!r}: write atoms as value@weight, like atoms:0.5@0.6,3@0.4")
            return spectra.atoms(*zip(*pairs, strict=True))
        case "eigenvalues" if rest:
            return spectra.eigenvalues(read_numbers(rest))
    raise InvalidInput(
        f"spectrum is {text!r}: known are identity, ar1:0.5, power_law:1, atoms:0.5@0.6,3@0.4 and eigenvalues:3,1,0.5 "
        "or eigenvalues:FILE"
    )


def read_numbers(text: str) -> list[float]:
    """Numbers given inline, or in a text or .npy file."""
    from pathlib import Path

    import numpy as np

    from fedasym.data.federation.files import BROKEN

    file = Path(text)
    if not file.exists():
        if file.suffix in (".txt", ".csv", ".npy"):
            raise InvalidInput(f"eigenvalues file {text!r} does not exist: check the path")
        return numbers("eigenvalues", text) or []
    try:
        loaded = np.load(file, allow_pickle=False) if file.suffix == ".npy" else np.loadtxt(file, delimiter=",", ndmin=1)
    except BROKEN as reason:
        raise InvalidInput(f"eigenvalues file {text!r} cannot be read: {reason}") from None
    return [float(value) for value in np.ravel(loaded)]


def parse_roles(texts: list[str] | None) -> dict[str, str]:
    """Columns and their roles: name=role; the last = counts, since names of columns may have one."""
    roles: dict[str, str] = {}
    for text in texts or ():
        name, equals, role = text.rpartition("=")
        if not equals or not name.strip() or not role.strip():
            raise InvalidInput(f"role is {text!r}: write it like grade=category or zip=ignore")
        if name.strip() in roles:
            raise InvalidInput(f"role names column {name.strip()!r} twice: give each column once")
        roles[name.strip()] = role.strip()
    return roles


def read_federation(data: str, columns: Columns, show: bool = False, whole: bool = False) -> Federation:
    """Client data from a file or folder, as all commands read it; `synthetic` is drawn.

    show: print what was made of a table's columns. whole: all samples train, whatever the file says.
    """
    import fedasym as fa

    if data == "synthetic":
        return fa.datasets.synthetic(task="classification", clients=30, dimension=60, aspect=1, centre=4, radius=3, classes=5)
    features = names(columns.features)
    federation = fa.datasets.read(
        data,
        label=columns.label,
        client=columns.client,
        features=features[0] if features is not None and len(features) == 1 else features,
        split=(1.0, 0.0, 0.0) if whole else columns.split,
        task=columns.task,
        intercept=columns.intercept,
        scale=columns.scale,
        missing=columns.missing,
        roles=parse_roles(columns.role),
        dates=columns.dates,
    )
    if show and federation.recipe is not None:
        print(f"{federation.recipe}\n")
    return federation
