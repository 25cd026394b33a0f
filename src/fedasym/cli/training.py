"""The commands on client data: train, advise, what-if, fit, apply, deploy, digest, node, try."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, make_dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli import (
    HERE,
    OUTPUT,
    PRIVACY,
    TRAINING,
    Output,
    PrivacyOptions,
    Where,
    app,
    names,
    numbers,
    parse_grid,
    read_federation,
    redirect_answers,
    show,
    show_progress,
    whole_numbers,
)
from fedasym.core.errors import MissingPackage
from fedasym.core.runtime import STOPPED, holds_kind
from fedasym.training.settings import ABOUT, CHOSEN, default_for


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where a table keeps what training needs."""

    label: str = "label"
    """Column of the labels."""
    client: str = "client"
    """Column of the clients."""
    features: str | None = None
    """Columns of the features, separated by commas; by default all that a model can learn from."""
    split: str | None = None
    """Column that says train, validation or test; by default a column named split, or 80/10/10
    within each client.
    """
    task: str | None = None
    """regression for labels that are numbers, classification for classes; by default as the labels
    look.
    """
    scale: str | None = None
    """standard: numbers centred and divided by their standard deviation (default); none: as they
    are.
    """
    missing: str | None = None
    """What to do with missing values: error (default), drop rows, fill by the mean, or mean and
    indicator.
    """
    role: list[str] | None = None
    """A column and its role, such as zip=ignore: number, category, identifier, ignore, shared,
    personal; repeat it.
    """
    dates: str | None = None
    """ignore (default), or number: days since the first training date."""
    encoding: str | None = None
    """How a text table was saved, such as cp1252; UTF-8 by default."""
    intercept: Annotated[bool | None, Parameter(negative="--no-intercept")] = None
    """Whether models of a table have an intercept; they do by default."""


COLUMNS = Columns()


def number_flags() -> Any:
    """The settings of every run as flags, with their meanings."""
    kinds = {name: int if about.whole else float for name, about in ABOUT.items()}
    fields = []
    for name, about in ABOUT.items():
        default = default_for(name)
        kind: Any = kinds[name] if default is not None else kinds[name] | None
        more = "; chosen for the scale of the features unless given" if name in CHOSEN else ""
        words = f"{about.meaning[0].upper()}{about.meaning[1:]}{more}."
        fields.append((name, Annotated[kind, Parameter(help=words)], field(default=default)))
    place = {"__module__": __name__}
    kind = make_dataclass("Numbers", fields, frozen=True, kw_only=True, namespace=place)
    return Parameter(name="*")(kind)


if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = number_flags()
NUMBERS: Any = Numbers()


PAPER = "local,fedavg,ftfa,rtfa,maml_fo,maml_hf,pfedme"
Names = Annotated[str, Parameter(help="Names separated by commas.")]
Grids = list[str] | None
Intercept = Annotated[bool | None, Parameter(negative="--no-intercept")]


@app.command(group=TRAINING)
def train(
    data: str,
    /,
    *,
    algorithms: Names = PAPER,
    numbers: Numbers = NUMBERS,
    grid: Grids = None,
    seeds: str = "0",
    protocol: str | None = None,
    intercept: Intercept = None,
    precision: str = "float32",
    privacy: PrivacyOptions = PRIVACY,
    decompose: bool = False,
    columns: Columns = COLUMNS,
    output: Output = OUTPUT,
) -> None:
    """Train algorithms on client data, personalise and test every client.

    Example: fedasym train synthetic --algorithms local,fedavg,ftfa --rounds 40 --seeds 0:3

    Parameters
    ----------
    data
        A file or folder of samples (Parquet, CSV, npz, safetensors, LEAF JSON, TensorFlow
        Federated's), or synthetic: 30 drawn clients.
    grid
        A setting and its values, such as server_step=0.01,0.1,1; repeat it for more. Every
        combination is trained.
    seeds
        Seeds, such as 0,1,2 or 0:11.
    protocol
        text: as the paper says; code: as its released code does. Unless named: the text's rules,
        with an intercept and with steps for the scale of the features.
    intercept
        Whether heads have one, shared and personal; they do by default, unless a protocol is named:
        text has none, code has one.
    precision
        float32, float64, mixed (float32 whose products an accelerator may shorten) or, for
        sequences, bfloat16.
    decompose
        Show where the gains come from instead of the runs: label shift, feature shift, the rest.
    """
    remember_compilations()
    federation = read_federation(data, columns, show=not output.json)
    with show_progress("nothing was evaluated yet, so there is nothing to show") as progress:
        result = fa.train(
            names(algorithms) or [],
            federation,
            **asdict(numbers),
            grid=parse_grid(grid),
            seeds=whole_numbers("seeds", seeds),
            protocol=protocol,
            intercept=intercept,
            precision=precision,
            privacy=privacy.budget(),
            progress=progress,
        )
    assert isinstance(result, fa.Histories)
    show(result.decompose() if decompose else result, output)
    if any(history.interrupted for history in result):
        raise SystemExit(STOPPED)


def remember_compilations() -> None:
    """Keep compiled programs for the next command, in the folder that the user chose, if any."""
    from fedasym.training import keep_compilations

    keep_compilations()


@app.command(group=TRAINING)
def advise(
    data: str,
    /,
    *,
    columns: Columns = COLUMNS,
    algorithms: str | None = None,
    plot: str | None = None,
    json: bool = False,
    confirm: bool = False,
    report: str | None = None,
    what_if: bool = False,
    federated: bool = False,
    epsilon: float | None = None,
    delta: float = 1e-6,
    statistics_epsilon: float | None = None,
    where: Where = HERE,
) -> None:
    """Which algorithm for these clients, with which ridge, how sure, and how to prove it wrong.

    The workers of a cluster may read clients on disk, each its own shards: fedasym advise
    /data/clients --on ray --address 10.0.0.1:6379

    Example: fedasym advise shops --label sales --client shop --report advice.html

    Parameters
    ----------
    data
        A file or folder of client data: Parquet, safetensors, CSV, .npz, LEAF's JSON, HDF5, SQLite;
        or shops, a drawn table that comes with fedasym.
    algorithms
        More algorithms beside the paper's, separated by commas: registered names, or module:name.
    plot
        Draw what is expected, with intervals, to this file (.png, .svg or .pdf).
    json
        Print JSON with full precision instead of a page.
    confirm
        Run the confirming experiment too: seconds.
    report
        Write the page as HTML to this file.
    what_if
        Also say what other numbers of samples and clients would give.
    federated
        Ask the nodes of a running Flower federation, whose samples stay with them: data is then the
        name that Flower's configuration has for it.
    epsilon
        A privacy budget for training: where it makes sharing too expensive, clients learn alone.
        For classes, it is that of least-squares heads.
    delta
        Failure probability of the privacy budgets; well below 1/clients.
    statistics_epsilon
        A privacy budget for the advice itself: its statistics are sums with noise. Regression.
    """
    others: dict[str, object] = {"--json": json, "--confirm": confirm, "--report": report}
    others |= {"--plot": plot, "--algorithms": algorithms, "--what-if": what_if}
    others |= {"--epsilon": epsilon, "--on": where.on, "--encoding": columns.encoding}
    if federated:
        told = {} if statistics_epsilon is None else {"statistics-epsilon": statistics_epsilon}
        advise_federation(data, columns, others, told | ({"delta": delta} if told else {}))
        return
    from fedasym.advisor import advise as advise_clients

    on = where.runtime()
    federation = read_federation(data, columns, show=not json)
    budget = None if epsilon is None else fa.Privacy(epsilon=epsilon, delta=delta)
    kept = (
        None if statistics_epsilon is None else fa.Privacy(epsilon=statistics_epsilon, delta=delta)
    )
    with show_progress("Nothing was kept.") as progress, redirect_answers():
        advice = advise_clients(
            federation,
            algorithms=names(algorithms),
            privacy=budget,
            statistics_privacy=kept,
            what_if=what_if,
            on=on,
            progress=progress,
        )
    places = (report and advice.write(report), plot and advice.plot(plot))
    written = [str(place) for place in places if place]
    print(advice.to_json() if json else advice)
    if confirm and not json:
        print(f"\n{advice.confirm(federation)}")
    if written and not json:
        print(f"\nWritten to {' and '.join(written)}")


@app.command(name="what-if", group=TRAINING)
def what_if(
    data: str,
    /,
    *,
    samples: str | None = None,
    clients: str | None = None,
    alpha: str | None = None,
    columns: Columns = COLUMNS,
    algorithms: str | None = None,
    draws: int = 3,
    seed: int = 0,
    save: str | None = None,
    output: Output = OUTPUT,
) -> None:
    """What every algorithm would reach with more or fewer samples, clients, or other class shares.

    Example: fedasym what-if shops --label sales --client shop --samples 10,50

    Parameters
    ----------
    data
        A file or folder of client data, or a double that --save kept.
    samples
        Training samples of each client to look at, separated by commas.
    clients
        Numbers of clients to look at.
    alpha
        Dirichlet laws of class shares to look at: small is uneven.
    algorithms
        Names separated by commas; the paper's by default.
    draws
        Federations that are drawn at each point.
    seed
        Same seed, same answer.
    save
        Keep the double of the clients, without samples: a file whose name ends in .safetensors.
    """
    from fedasym.models.doubles import KIND, Double

    given = {"samples": samples, "clients": clients, "alpha": alpha}
    vary = {name: numbers(name, text) or [] for name, text in given.items() if text is not None}
    double = (
        Double.load(data)
        if holds_kind(data, KIND)
        else fa.resemble(read_federation(data, columns, show=not output.json))
    )
    where = None if save is None else double.save(save)
    if not output.json:
        print(f"{double}\n")
    with show_progress("What was drawn is not kept.") as progress:
        found = fa.what_if(
            double, vary or None, names(algorithms), draws=draws, seed=seed, progress=progress
        )
    show(found, output)
    if where and not output.json:
        print(f"\nThe double is kept in {where}")


def advise_federation(
    superlink: str, columns: Columns, others: dict[str, Any], rules: dict[str, Any]
) -> None:
    """Advice from a federation: its log, which ends in the page."""
    from fedasym.deploy.flower import advise_nodes

    if given := [name for name, value in others.items() if value not in (None, False)]:
        raise fa.InvalidInput(
            f"{given[0]} is given with --federated: the advice comes as the federation's log; leave"
            " it out"
        )
    taken = ("label", "client", "features", "task", "scale", "missing", "dates", "intercept")
    told = {name: getattr(columns, name) for name in taken}
    told["roles"] = ",".join(columns.role or ())
    told |= rules
    advise_nodes(
        superlink, {name: value for name, value in told.items() if value not in (None, "")}
    )


@app.command(group=TRAINING)
def fit(
    data: str,
    /,
    *,
    save: str,
    columns: Columns = COLUMNS,
    algorithm: str | None = None,
    ridge: float | None = None,
) -> None:
    """Fit personalized models to a table, exactly, and keep them: as advised, or as named.

    The model learns from all rows, unless --split names a column that says which train.

    Example: fedasym fit shops --label sales --client shop --save model.safetensors

    Parameters
    ----------
    data
        A file or folder of client data, such as a CSV.
    save
        Where the model is kept: a file whose name ends in .safetensors.
    algorithm
        Any that can be fitted, such as local_ridge, rtfa or pfedme_ridge; what advise recommends by
        default.
    ridge
        Ridge of each client's model, where the algorithm has one; by default from how much clients
        differ. Only for labels that are numbers.
    """
    if not save.endswith(".safetensors"):
        raise fa.InvalidInput(f"save is {save!r}: its name must end in .safetensors")
    federation = read_federation(data, columns, show=True, whole=columns.split is None)
    model = fa.fit(federation, algorithm, ridge=ridge)
    where = model.save(save)
    print(f"{model}\n\nKept in {where}; to use it: fedasym apply {where} NEW.csv --into OUT.csv")


@app.command(group=TRAINING)
def apply(
    model: str,
    data: str,
    /,
    *,
    into: str | None = None,
    column: str = "prediction",
    encoding: str | None = None,
) -> None:
    """Add predictions to raw rows of a table; clients unknown to the model get the shared one.

    Example: fedasym apply model.safetensors new.csv --into predicted.csv

    Parameters
    ----------
    model
        A file that fedasym fit wrote.
    data
        A table with the columns that the model was fitted to; the label is not needed.
    into
        Where to write: .csv or .parquet; by default as CSV to standard output.
    column
        The name of the new column; another, "model", says own or shared.
    encoding
        How a text table was saved, such as cp1252; UTF-8 by default.
    """
    from fedasym.core.runtime import refuse_unwritable, replace_file
    from fedasym.data.frames import read_file

    kept = fa.Model.load(model)
    names = () if kept.recipe is None else (kept.recipe.client,)
    table, counts = kept.apply(read_file(data, names, encoding), column)
    if into is None:
        sys.stdout.write(table.write_csv())
    else:
        from pathlib import Path

        where = Path(into)
        if where.suffix not in (".csv", ".parquet"):
            raise fa.InvalidInput(f"into is {into!r}: its name must end in .csv or .parquet")
        with refuse_unwritable("into", into), replace_file(where) as fresh:
            table.write_csv(fresh) if where.suffix == ".csv" else table.write_parquet(fresh)
    shared = int((table["model"] == "shared").sum())
    told = f"{table.height} rows"
    if shared:
        told += f", {shared} of clients that the model does not know"
    for word, by_column in (("unseen levels", counts.unseen), ("missing cells", counts.missing)):
        if by_column:
            cells = ", ".join(f"{name} ({count})" for name, count in by_column.items())
            told += f"; {word} in {cells}"
    print(told + ("" if into is None else f"; written to {into}"), file=sys.stderr)


EXTRA = "pip install 'fedasym[flower]'"


@app.command(group=TRAINING)
def deploy(
    what: str,
    /,
    *,
    into: str,
    privacy: str | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float | None = None,
    clip: float | None = None,
    sampling: str | None = None,
    statistics_epsilon: float | None = None,
) -> None:
    """Write a Flower app: federated training, whose samples stay with the clients, or advice.

    Example: fedasym deploy ftfa --into app

    Parameters
    ----------
    what
        An algorithm that train knows; one of your own as module:name or FILE.py:name; or advise:
        which of them to choose.
    into
        A new or empty folder, whose name becomes the app's.
    privacy
        central: the server adds noise to the sum of clipped updates; local: every node does, before
        it sends. These go into the app's config, where they can be changed.
    epsilon
        A privacy budget of all rounds together.
    noise_multiplier
        Instead of epsilon: the noise, in units of the clip.
    delta
        Failure probability of the privacy budget, 1e-6 by default; well below 1/clients.
    clip
        Length to which each client's update is clipped.
    sampling
        poisson (default), or fixed for cohorts of a fixed size, which the same noise protects less.
    statistics_epsilon
        With advise: a privacy budget for its own statistics, to which every node adds noise.
    """
    from fedasym.deploy.flower import digest_app, write_app

    told = {"privacy": privacy, "epsilon": epsilon, "noise-multiplier": noise_multiplier}
    told |= {"delta": delta, "clip": clip, "sampling": sampling}
    told |= {"statistics-epsilon": statistics_epsilon}
    folder = write_app(
        what, into, {name: value for name, value in told.items() if value is not None}
    )
    print(
        f"Written to {folder}: read {folder}/pyproject.toml, then try it in this process, on 30"
        " drawn clients:\n"
    )
    print(f"    fedasym try {folder}\n")
    print("or on a file of yours, with --data FILE --label COLUMN --client COLUMN.")
    print(f"Node owners who let it run list its digest, {digest_app(folder)}")
    if find_spec("flwr") is None:
        print(f"flwr is not installed here: {EXTRA}, on the server and on every node")
    print("docs/how-to/flower.md goes from data on three machines to a running federation.")


@app.command(name="digest", group=TRAINING)
def print_digest(folder: str, /) -> None:
    """Print the digest of a Flower app, by which node owners allow it to run.

    Example: fedasym digest app

    Parameters
    ----------
    folder
        The app, as deploy wrote it and as you have read it; any change of it changes the digest.
    """
    from fedasym.deploy.flower import digest_app

    print(digest_app(folder))


@app.command(name="node", group=TRAINING)
def run_node(
    policy: str,
    /,
    *,
    superlink: str,
    root_certificates: str | None = None,
    key: str | None = None,
    insecure: bool = False,
    port: int = 9094,
) -> None:
    """Start a federation's node for the data of a policy; it runs only the apps listed there.

    Example: fedasym node policy.toml --superlink 127.0.0.1:9092 --insecure

    Parameters
    ----------
    policy
        The owner's policy, a TOML file: data-path, apps (their digests), and what runs may read.
    superlink
        Address and port of the federation's SuperLink.
    root_certificates
        The certificate of the authority that signed the SuperLink's.
    key
        This node's private key; the public one is registered with the SuperLink.
    insecure
        Without TLS and keys: to try things out on one machine.
    port
        Port on 127.0.0.1 for the node's own processes; two nodes on one machine need two.
    """
    if find_spec("flwr") is None:
        raise MissingPackage(f"a node needs flwr: {EXTRA}")
    from fedasym.deploy.flower.grid import start_node

    words = ["--superlink", superlink, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--root-certificates", root_certificates] if root_certificates else []
    words += ["--auth-supernode-private-key", key] if key else []
    start_node(policy, [*words, *(["--insecure"] if insecure else [])])


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
    missing: str | None = None,
    run_config: str | None = None,
    resume: bool = False,
) -> None:
    """Try a Flower app that deploy wrote, with all nodes in this process and no network.

    Example: fedasym try app --nodes 3

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
        Their number, or their names separated by commas; by default those of the table.
    missing
        Missing values: error, drop (rows), mean, or indicator (mean, and a mark).
    run_config
        Further values of the app's config, such as "rounds=2 seed=1".
    resume
        Go on after the last round that was saved.
    """
    if find_spec("flwr") is None:
        raise MissingPackage(f"a Flower app needs flwr: {EXTRA}")
    from fedasym.deploy.flower import grid

    told = {
        "label": label,
        "client": client,
        "features": features,
        "task": task,
        "classes": classes,
        "missing": missing,
    }
    config = grid.parse_overrides(run_config or "") | {
        name: value for name, value in told.items() if value is not None
    }
    grid.try_app(folder, data, nodes, config | ({"resume": True} if resume else {}))
