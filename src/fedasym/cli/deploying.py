"""The command that writes a Flower app."""

from __future__ import annotations

from importlib.util import find_spec

from fedasym.cli.app import TRAINING, app


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
    from fedasym.runtimes.flower.writing import write_app

    folder = write_app(what, into)
    print(f"Written to {folder}: read {folder}/pyproject.toml, then\n\n    flwr run {folder}\n")
    if find_spec("flwr") is None:
        print("flwr is not installed here: pip install 'fedasym[flower]', on the server and on every node")
    print("docs/how-to/flower.md goes from data on three machines to a running federation.")
