"""Where a report comes from: results at hand, a run folder, or a folder of saved tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.core.errors import InvalidInput, path_of

if TYPE_CHECKING:
    from fedasym.experiments.results import Results


def read(given: Results | str | Path) -> Results:
    """The results themselves, or those in a run folder or in a folder that `Results.save` wrote."""
    from fedasym.experiments.folder import is_run
    from fedasym.experiments.results import Results
    from fedasym.experiments.saving import is_saved

    if isinstance(given, Results):
        return given
    if not isinstance(given, str | Path):
        raise InvalidInput(
            f"results is a {type(given).__name__}: give the results of fa.run or fa.sweep, or their folder; what fa.train "
            "returned is saved with .save and drawn with .plot"
        )
    folder = path_of("results", given)
    if is_run(folder):
        return Results.read(folder)
    if is_saved(folder):
        return Results.load(folder)
    raise InvalidInput(
        f"results is {str(given)!r}: this is neither a run folder nor one that Results.save wrote; fedasym runs list shows runs"
    )
