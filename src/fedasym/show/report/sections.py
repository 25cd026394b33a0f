"""The sections of a report; one that has nothing to tell is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fedasym.experiments.plan import GAINS
from fedasym.experiments.printing import SWEEPS
from fedasym.experiments.wording import spoken
from fedasym.show.figures.marks import marks_of, scale_of
from fedasym.show.report.charts import Chart
from fedasym.show.report.clients import by_samples, distribution_table, gains_of, histograms, most_hurt
from fedasym.show.report.curves import (
    Published,
    gain_curves,
    gains_named,
    published_curves,
    scaled,
    spoken_epochs,
    trial_curves,
)
from fedasym.show.report.listings import (
    comparison_table,
    finals_table,
    gains_table,
    published_table,
    tuned_table,
    tuning_table,
)
from fedasym.show.report.markup import Html, element, joined, paragraphs, verbatim
from fedasym.show.report.words import against_best, describe, leader, plural
from fedasym.training.wording import MEANINGS

if TYPE_CHECKING:
    from fedasym.experiments.comparisons import Comparisons
    from fedasym.experiments.results import Results

SHOWN = ("fedasym", "python", "jax", "device", "platform", "command")  # of the environment that a run records
PAIRED = (
    "Paired by trial: first minus second. “p” is of no difference by Student's t, “p, signs” the same by flipping signs, "
    "“p, beyond margin” of a difference larger than what counts as the same. Each p is for one comparison. Trials repeat "
    "training on the same clients and test samples: other clients may differ by more."
)


class Section(NamedTuple):
    """A part of the page: its address, its title, what it holds."""

    key: str
    title: str
    body: Html


def folded(summary: str, body: Html, printed: bool = True) -> Html:
    """What is shown on demand, and on paper."""
    return element("details", element("summary", summary), body, class_="print" if printed else None)


def axes_of(results: Results) -> tuple[bool, str]:
    """Whether losses are drawn, and the vertical axis in words."""
    loss = results.statistic == "loss"
    return loss, "Test loss, all samples together" if loss else "Test accuracy, all samples together, in percent"


def sweep_section(results: Results, sweep: str, paired: Comparisons, published: Published | None) -> Section | None:
    """Curves, finals and comparisons over seeds or over splits."""
    curves = scaled(results, trial_curves(results, sweep))
    if not curves:
        return None
    loss, up = axes_of(results)
    theirs = {} if loss else scaled(results, published_curves(published, sweep))
    trials = max(curve.trials for curve in curves.values())
    beside = " Dotted with hollow markers: as the paper published it." if theirs else ""
    bands = "line: mean, band: worst to best trial" if trials > 1 else "one trial"
    chart = Chart(
        key=f"curves-{sweep}",
        curves=curves,
        marks=marks_of([*curves, *theirs]),
        loss=loss,
        across="rounds (local training: epochs)" if any(name.startswith("local") for name in curves) else "rounds",
        up=up,
        described=describe(curves, f"{up}, against rounds, over {plural(trials, 'trial')}", loss=loss),
        published=theirs,
    )
    best = leader(results, sweep)
    heads = ("accuracy", "mean_accuracy", "worst_decile", "hurt") if not loss else ("loss", "mean_loss", "hurt")
    parts = [
        element("p", f"{SWEEPS[sweep].capitalize()}: {spoken(getattr(results.experiment.trials, sweep))}.", class_="quiet"),
        chart.figure(f"{up.partition(',')[0]} of personal models against rounds; {bands}.{beside}"),
        element("h3", f"After round {results.experiment.settings.rounds}, mean over trials"),
        finals_table(results, sweep, best),
        element("p", " ".join(MEANINGS[name] for name in heads), class_="quiet"),
    ]
    if sentences := against_best(results, paired, sweep):
        parts += [element("h3", "How sure is that?"), paragraphs(sentences)]
        tests = joined(comparison_table(paired, sweep), element("p", PAIRED, class_="quiet"))
        parts.append(folded("All pairs, with tests", tests))
    title = "Over seeds of training" if sweep == "seeds" else "Over reshuffled samples"
    return Section(sweep, title, joined(*parts))


def gains_section(results: Results, published: Published | None) -> Section | None:
    """Accuracy against rounds by epochs of personalization, for each algorithm."""
    held = gain_curves(results)
    if not held:
        return None
    loss, up = axes_of(results)
    theirs = published_curves(None if loss else published, GAINS)
    parts: list[Html] = []
    for name, by_epochs in held.items():
        curves, paper = scaled(results, by_epochs), scaled(results, gains_named(theirs, name))
        chart = Chart(
            key=f"gains-{name}",
            curves=curves,
            marks=scale_of([*curves, *paper]),
            loss=loss,
            across="rounds",
            up=up,
            described=describe(
                {spoken_epochs(each): curve for each, curve in curves.items()}, f"{name}: {up}, against rounds", loss=loss
            ),
            published=paper,
            names={each: spoken_epochs(each) for each in (*curves, *paper)},
            ordered=True,
        )
        parts += [element("h3", name), chart.figure(f"{name} by epochs of personalization after the shared model.")]
    parts += [element("h3", "After the last round"), gains_table(results, held)]
    return Section("gains", "Gains of personalization", joined(*parts))


def clients_section(results: Results) -> Section | None:
    """The distribution of clients' gains, and who is hurt."""
    sweep, gains = gains_of(results)
    if not gains:
        return None
    loss = results.statistic == "loss"
    unit = "loss" if loss else "points of accuracy"
    text = (
        f"What a client gains from its personal model over the shared one, in {unit}, averaged over {sweep}; left of the "
        "line are the clients that lose. “Hurt” above counts them trial by trial instead."
    )
    body = joined(
        element("p", text),
        histograms(gains, loss),
        distribution_table(gains, loss),
        element("h3", "Do clients with few samples fare otherwise?"),
        by_samples(gains, loss),
        most_hurt(gains, loss),
    )
    return Section("clients", "Client by client", body)


def tuning_section(results: Results) -> Section:
    """What was chosen, and what it cost every algorithm."""
    what = "loss" if results.task == "regression" else "accuracy"
    body = joined(
        element("p", f"Chosen by validation {what} after the last round with seed 1; test samples choose nothing."),
        tuned_table(results),
        folded(f"All {results.tuning.height} configurations tried", tuning_table(results), printed=False),
        element("h3", "What every algorithm was given"),
        paragraphs(results.budget),
    )
    return Section("tuning", "Tuned settings and budget", body)


def published_section(results: Results, published: Published | None) -> Section | None:
    """Ours beside the paper's numbers."""
    parts: list[Html] = []
    for sweep in SWEEPS if results.statistic != "loss" else ():
        if theirs := published_curves(published, sweep):
            parts += [element("h3", f"Over {sweep}"), published_table(sweep, trial_curves(results, sweep), theirs)]
    if not parts:
        return None
    text = (
        "Accuracies after the last round that both have. A gap may come from other data, networks or splits, or from another "
        "way to count: see the notes and the protocol."
    )
    return Section("published", "What the paper published", joined(element("p", text), *parts))


def again_section(results: Results) -> Section:
    """Commands, environment, data and the experiment itself: all that it takes to run it again."""
    experiment, data = results.experiment.portable(), results.data
    name = experiment.name
    if experiment.data is None:
        given = "The federation was handed to the run: hand the same to fedasym.run, and its SHA-256 will be that below."
        commands = f'fa.run(fa.Experiment.from_toml("{name}.toml"), federation, into="runs/{name}")'
    else:
        given = f"Save the experiment below as {name}.toml; then:"
        commands = f"fedasym run {name}.toml --into runs/{name}"
    parts = [element("p", given), verbatim(f"{commands}\nfedasym report runs/{name}")]
    held = {key: results.environment[key] for key in SHOWN if key in results.environment}
    if command := held.pop("command", None):
        parts += [element("p", "The command that computed it last:"), verbatim(command)]
    told = {**held, "data, SHA-256": data.samples, "split, SHA-256": data.split}
    if not held:
        parts.append(element("p", "These results came without a record of the machine that computed them.", class_="quiet"))
    parts.append(element("dl", *(joined(element("dt", key), element("dd", value)) for key, value in told.items())))
    parts.append(folded(f"The experiment, {name}.toml", verbatim(experiment.to_toml())))
    return Section("again", "Run it again", joined(*parts))
