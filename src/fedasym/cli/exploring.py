"""The command `explore`: the theory as a page with sliders, and the advisor for a dropped file."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fedasym.cli.app import app


@app.command
def explore(
    *,
    port: int = 8765,
    host: str = "127.0.0.1",
    open: Annotated[bool, Parameter(negative="--no-open", help="Open the page in the browser.")] = True,
    static: str | None = None,
) -> None:
    """Open a page with sliders in the browser: every algorithm's loss, who wins where, and advice on a dropped file.

    Parameters
    ----------
    port
        Where to listen; 0 for any free port.
    host
        Who may come: this machine alone by default; 0.0.0.0 lets the whole network in.
    static
        Write the page to this file instead; it needs neither server nor network.
    """
    from fedasym.show.explorer import Explorer
    from fedasym.show.pages import write_explore_page

    if static is not None:
        page = write_explore_page(static)
        print(f"Written to {page}, {page.stat().st_size / 1000:.0f} kB: one file, to be opened in any browser.")
        return
    with Explorer(host, port) as explorer:
        print(f"Exploring at {explorer.address} (Ctrl-C ends it)", flush=True)
        if not explorer.local:
            print("Everyone who can reach this machine can open it: there is no password.", flush=True)
        try:
            if open:
                import webbrowser

                webbrowser.open(explorer.address)
            explorer.serve_forever()
        except KeyboardInterrupt:
            print("\nEnded.")
