"""The commands that write a Flower app and try it."""

from __future__ import annotations

from importlib.util import find_spec

from fedasym.cli.app import TRAINING, app
from fedasym.core.errors import MissingPackage

EXTRA = "pip install 'fedasym[flower]'"


@app.command(group=TRAINING)
def deploy(what: str, /, *, into: str) -> None:
    """Write a Flower app: federated training where samples stay with the clients, or federated advice.

    Parameters
    ----------
    what
        fedavg, ftfa, rtfa, maml, maml_fo, maml_hf or pfedme; or advise: which of them to choose.
    into
        A new or empty folder, whose name becomes the app's.
    """
    from fedasym.deploy.flower.apps import write_app

    folder = write_app(what, into)
    print(f"Written to {folder}: read {folder}/pyproject.toml, then try it in this process, on 30 drawn clients:\n")
    print(f"    fedasym try {folder}\n")
    print("or on a file of yours, with --data FILE --label COLUMN --client COLUMN.")
    if find_spec("flwr") is None:
        print(f"flwr is not installed here: {EXTRA}, on the server and on every node")
    print("docs/how-to/flower.md goes from data on three machines to a running federation.")


@app.command(name="try", group=TRAINING)
def try_app(
    folder: str,
    /,
    *,
    data: str | None = None,
    nodes: int = 3,
    label: str | None = None,
    client: str | None = None,
    features: str | None = None,
    task: str | None = None,
    classes: str | None = None,
    run_config: str | None = None,
) -> None:
    """Try a Flower app that deploy wrote, with all nodes in this process: no network, no certificates.

    Parameters
    ----------
    folder
        The app.
    data
        A file or folder whose clients are dealt out to the nodes; 30 drawn clients by default.
    nodes
        How many nodes there are.
    label
        Column of the labels; as the app's config says by default, here and below.
    client
        Column of the clients.
    features
        Columns of the features, separated by commas.
    task
        regression or classification.
    classes
        Their number, or their names separated by commas: needed where labels are classes.
    run_config
        Further values of the app's config, such as "rounds=2 seed=1".
    """
    if find_spec("flwr") is None:
        raise MissingPackage(f"a Flower app needs flwr: {EXTRA}")
    from fedasym.deploy.flower import grid as rehearsal

    told = {"label": label, "client": client, "features": features, "task": task, "classes": classes}
    config = rehearsal.parse_overrides(run_config or "") | {name: value for name, value in told.items() if value is not None}
    rehearsal.try_app(folder, data, nodes, config)
