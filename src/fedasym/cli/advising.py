"""The command of the advisor."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import TRAINING, app
from fedasym.cli.arguments import names, read_federation
from fedasym.cli.training import COLUMNS, Columns


@app.command(group=TRAINING)
def advise(
    data: str,
    /,
    *,
    columns: Columns = COLUMNS,
    algorithms: str | None = None,
    plot: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    confirm: Annotated[bool, Parameter(negative="")] = False,
    report: str | None = None,
    federated: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Which algorithm for these clients, with which ridge, how sure, and how to prove it wrong.

    Parameters
    ----------
    data
        A file or folder of client data: Parquet, safetensors, CSV, .npz, LEAF's JSON, HDF5, SQLite.
    algorithms
        Some to look at beside the paper's, separated by commas: registered names, or module:name.
    plot
        Draw what is expected, with intervals, to this file (.png, .svg or .pdf).
    json
        Print JSON with full precision instead of a page.
    confirm
        Run the confirming experiment too: seconds.
    report
        Write the page as HTML to this file.
    federated
        Ask the nodes of a running Flower federation, whose samples stay with them: data is then the name that Flower's
        configuration has for it. Regression.
    """
    others = {"--json": json, "--confirm": confirm, "--report": report is not None, "--plot": plot is not None}
    others["--algorithms"] = algorithms is not None
    if federated:
        asked(data, columns, others)
        return
    from fedasym.advisor.advise import advise

    federation = read_federation(data, columns, show=not json)
    advice = advise(federation, algorithms=names(algorithms))
    written = [place for place in (report and advice.write(report), plot and advice.plot(plot)) if place]
    print(advice.to_json() if json else advice)
    if confirm and not json:
        print(f"\n{advice.confirm(federation)}")
    if written and not json:
        print(f"\nWritten to {' and '.join(map(str, written))}")


def asked(superlink: str, columns: Columns, others: dict[str, bool]) -> None:
    """Advice from a federation: its log, which ends in the page."""
    from fedasym.deploy.flower.running import advise_nodes

    if given := [name for name, value in others.items() if value]:
        raise fa.InvalidInput(f"{given[0]} is given with --federated: the advice comes as the federation's log; leave it out")
    told = {"label": columns.label, "client": columns.client, "features": columns.features, "task": columns.task}
    advise_nodes(superlink, {name: value for name, value in told.items() if value})
