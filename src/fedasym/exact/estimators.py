"""The verb of the linear lens: every algorithm solved exactly on finitely many clients' samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, resolve
from fedasym.algorithms.paper import PAPER
from fedasym.algorithms.registry import describe_algorithm, read_algorithm
from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import Array, flag, notebook_text, number, plural
from fedasym.core.runtime import read_arrays, write_arrays
from fedasym.exact.clients import (
    Client,
    PerClient,
    append_ones,
    gather_clients,
    places_of,
    plain_ridge,
)
from fedasym.exact.least_squares import fit_personal, fit_shared
from fedasym.exact.outputs import (
    choose_groups,
    combine_outputs,
    common_penalties,
    common_shared_ridge,
    fit_alone,
    freeze,
    own_ridge,
    with_mixture,
)
from fedasym.exact.penalties import (
    check_personal_unknowns,
    choose_penalties,
    choose_shared_ridge,
    turn_features,
)
from fedasym.exact.storage import (
    ClientSource,
    check_client_weights,
    count_samples,
    map_clients,
    models_by_name,
    value_by_name,
)

SHOWN = 10  # clients that a printed fit lists


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The models that an algorithm found: `shared` and `personal[client]`; prints itself.

    A model is a weight per feature, and the intercept last where there is one.
    ridge: of each client, where the algorithm has one, or one per unknown in an array; infinite
        where clients may not differ.
    noise, radius, variances: where they were estimated to choose the ridges; a variance of clients'
        weights per unknown. shared_ridge, centre: of the shared model, where it has a ridge, and
        its estimated length.

    >>> import numpy as np, fedasym as fa
    >>> told = {"clients": ["a", "b"], "ridge": 1, "intercept": False}
    >>> fit = fa.linear.fit("rtfa", np.eye(2), [1.0, 2.0], **told)
    >>> fit.shared.tolist(), fit.ridge
    ([1.0, 2.0], {'a': 1.0, 'b': 1.0})
    >>> fit.predict([[1, 1]]), fit.predict([[1, 1]], client="a")
    (array([3.]), array([3.]))
    """

    algorithm: Algorithm
    shared: Array
    personal: Mapping[Any, Array]
    weights: Mapping[Any, float]
    samples: Mapping[Any, int]
    ridge: Mapping[Any, float | Array] | None = None
    noise: float | None = None
    radius: float | None = None
    variances: Array | None = None
    intercept: bool = False
    shared_ridge: float | None = None
    centre: float | None = None

    def predict(self, X: ArrayLike, client: Any = None) -> Array:
        """Labels of new samples of one client, or of one client per row.

        None, and a client that was not in the fit, get the shared model.

        >>> import numpy as np, fedasym as fa
        >>> fit = fa.linear.fit("local", np.eye(2), [1.0, 2.0], clients=["a", "b"], intercept=False)
        >>> fit.predict([[1, 0], [0, 1]], client=["a", "b"])
        array([1., 2.])
        """
        rows = np.asarray(X, dtype=float)
        features = len(self.shared) - self.intercept
        if rows.ndim != 2 or rows.shape[1] != features:
            raise InvalidInput(
                f"X has shape {rows.shape}: give rows of the {features} features of the fit"
            )
        if not np.isfinite(rows).all():
            raise InvalidInput("X holds NaN or infinity: drop or fill those samples first")
        rows = append_ones(rows, self.intercept)
        if client is None or np.ndim(client) == 0:
            return np.asarray(rows @ self._model(client))
        labels = client.tolist() if hasattr(client, "tolist") else list(client)
        if len(labels) != len(rows):
            raise InvalidInput(
                f"client has {len(labels)} labels for {len(rows)} rows of X: give one, or as many"
            )
        y = np.empty((len(rows), *self.shared.shape[1:]))
        for label, here in places_of(labels).items():
            y[here] = rows[here] @ self._model(label)
        return y

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors file, whole or not at all; returns where it is.

        >>> import tempfile, numpy as np, fedasym as fa
        >>> fit = fa.linear.fit("ftfa", np.eye(4), np.arange(4.0), clients=["a", "a", "b", "b"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = fa.linear.LinearFit.load(fit.save(folder + "/fit.safetensors"))
        >>> np.array_equal(again.predict(np.eye(4), client="b"), fit.predict(np.eye(4), client="b"))
        True
        """
        return write_arrays(path, "fit", *self.describe())

    @classmethod
    def load(cls, path: str | Path) -> LinearFit:
        """The fit that `save` wrote."""
        arrays, about = read_arrays(path, "fit")
        return cls.read(arrays, about, path)

    def describe(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The numbers as arrays, and the rest as plain values."""
        names = list(self.personal)
        arrays = {"shared": self.shared, "personal": np.stack(list(self.personal.values()))}
        arrays |= {"weights": np.array(list(self.weights.values()))}
        arrays |= {"samples": np.array(list(self.samples.values()), float)}
        if self.ridge is not None:
            arrays["ridge"] = np.stack([np.asarray(each, float) for each in self.ridge.values()])
        if self.variances is not None:
            arrays["variances"] = self.variances
        about: dict[str, Any] = {"algorithm": describe_algorithm(self.algorithm), "clients": names}
        about |= {"intercept": self.intercept, "noise": self.noise, "radius": self.radius}
        about |= {"shared_ridge": self.shared_ridge, "centre": self.centre}
        return arrays, about

    @classmethod
    def read(cls, arrays: Mapping[str, Array], about: Mapping[str, Any], path: Any) -> LinearFit:
        """The fit that `describe` described."""
        try:
            names = about["clients"]
            shared = arrays["shared"]
            own = arrays["personal"]
            if own.shape != (len(names), *shared.shape) or len(set(names)) < len(names):
                raise ValueError
            ridge = None
            if "ridge" in arrays:
                ridge = dict(zip(names, map(plain_ridge, arrays["ridge"]), strict=True))
            return cls(
                read_algorithm(about["algorithm"]),
                shared,
                dict(zip(names, own, strict=True)),
                dict(zip(names, arrays["weights"].tolist(), strict=True)),
                dict(zip(names, arrays["samples"].astype(int).tolist(), strict=True)),
                ridge,
                about["noise"],
                about["radius"],
                arrays.get("variances"),
                bool(about["intercept"]),
                about.get("shared_ridge"),
                about.get("centre"),
            )
        except (KeyError, ValueError, TypeError):
            raise InvalidInput(
                f"{path} is damaged: its parts do not fit together; save the fit again"
            ) from None

    def _model(self, client: Hashable) -> Array:
        if client in self.personal:
            return self.personal[client]
        if self.algorithm.shares_nothing:
            raise InvalidInput(
                f"{self.algorithm.name} shares nothing, so client {client!r}, who was not in the"
                " fit, has no model: name a client of the fit, or fit an algorithm that shares"
            )
        return self.shared

    def __str__(self) -> str:
        n = sum(self.samples.values())
        d = len(self.shared) - self.intercept
        about = f"{n} samples of {plural(d, 'feature')}"
        about += " and an intercept" if self.intercept else ""
        lines = [f"{self.algorithm.name} · {len(self.personal)} clients · {about}"]
        if self.noise is not None:
            lines[0] += f" · noise {number(self.noise)}, radius {number(self.radius)} estimated"
        if self.shared_ridge is not None:
            lines[0] += f" · shared ridge {number(self.shared_ridge)}"
        names = list(islice(self.personal, SHOWN))
        width = max(8, *(len(str(name)) + 2 for name in names))
        heads = f"{'samples':>9}{'weight':>11}{'ridge':>11}{'from shared':>13}"
        lines += ["", f"{'client':<{width}}{heads}"]
        for name in names:
            ridge = None if self.ridge is None else float(np.median(self.ridge[name]))
            cells = (self.weights[name], ridge)
            away = None
            if not self.algorithm.shares_nothing:
                away = np.linalg.norm(self.personal[name] - self.shared)
            row = "".join(f"{number(cell):>11}" for cell in cells)
            lines.append(f"{name!s:<{width}}{self.samples[name]:>9}{row}{number(away):>13}")
        more = len(self.personal) - len(names)
        lines += ["", self.algorithm.note] if self.algorithm.note else []
        return "\n".join([*lines, f"and {more} more"] if more else lines)

    def _repr_html_(self) -> str:
        return notebook_text(self)


def fit(
    algorithm: str | Algorithm,
    X: Any,
    y: Any = None,
    clients: Iterable[Hashable] | None = None,
    *,
    ridge: Any = None,
    weights: str | PerClient = "samples",
    maml_step: float = 0.1,
    intercept: bool | None = None,
    personal: ArrayLike | None = None,
) -> LinearFit:
    """Solve an algorithm exactly on the clients' samples, with the losses |X_j b - y_j|^2/(2 n_j).

    theta_0 = argmin sum_j p_j loss_j, then theta_j = argmin loss_j + (ridge/2) |b - theta_0|^2 for
    rtfa; the nearest interpolant for ftfa; each algorithm's own equations are param-fedavg to
    param-prox of the paper. Where samples are too few to decide, the shared model is the one of
    minimum norm.

    X, y: all rows, with the client of each row in `clients`; or one array per client, with
        `clients` their names if any; or a `Federation`, whose training samples are fitted, classes
        as one-hot outputs. Clients on disk are read block by block, and their models fitted when
        they are asked for: fit.personal["ann"], fit.personal.blocks(). y may have several outputs,
        a column each (one-hot classes make least-squares heads): models then have a column each,
        too, and ridges are common to all.
    ridge: "optimal" (the default), noise^2/(n_j tau_k^2) with the noise and the variances tau_k^2
        of clients' weights estimated by restricted maximum likelihood, one for the intercept and
        one for all features or, where the data support it, one for each; "cv", one for all by
        cross-validation over clients; a number; one per client, in their order or by name; or an
        array (1, unknowns) or (clients, unknowns), the intercept last.
    weights: p_j, "samples" (n_j/N), "uniform" (1/m) or one number per client, in their order or by
        name.
    intercept: whether models have one, shared and personal; it is then the last of their numbers.
        By default as the Federation says, and yes for arrays.
    personal: True for each feature whose weight may differ between clients; the others serve the
        shared model only. By default all may, as all do for an algorithm that shares nothing.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> ids, X = np.repeat(["a", "b", "c"], 20), rng.standard_normal((60, 5))
    >>> y = 7 + X.sum(1) + np.repeat([-1, 0, 1], 20) * X[:, 0] + 0.1 * rng.standard_normal(60)
    >>> fit = fa.linear.fit("rtfa", X, y, clients=ids)
    >>> [round(float(model[0]), 1) for model in fit.personal.values()]
    [0.1, 1.0, 2.0]
    >>> round(fit.noise, 1), round(float(fit.shared[-1]))
    (0.1, 7)
    """
    if not isinstance(algorithm, str | Algorithm):
        raise unknown_name("algorithm", algorithm, PAPER)
    (chosen,) = resolve(algorithm, None, maml_step)
    if chosen.personalise.get("time") == np.inf:
        raise InvalidInput(
            f"{chosen.name} flows for time inf: it must be finite; Interpolate() is where it ends"
        )
    if isinstance(X, ClientSource):
        if y is not None or clients is not None:
            raise InvalidInput(
                "a Federation has its own labels and clients: leave y and clients out"
            )
        intercept = flag("intercept", X.intercept if intercept is None else intercept)
        personal = X.personal if personal is None else personal
        data = X.training_clients(intercept)
    else:
        intercept = intercept is None or flag("intercept", intercept)
        data = gather_clients(X, y, clients, intercept=intercept)
    p = check_client_weights(weights, data)
    if chosen.server.group_stage is not None:
        return fit_groups(chosen, data, p, ridge, intercept, personal)
    return fit_clients(chosen, data, p, ridge, intercept, personal)


def fit_groups(
    chosen: Algorithm,
    data: Sequence[Client],
    p: Array,
    ridge: Any,
    intercept: bool,
    personal: ArrayLike | None,
) -> LinearFit:
    """A fit within each group that clients choose by their loss, until nobody moves (IFCA).

    The shared model, for clients without samples, is the mean of the groups'.
    """
    stage = chosen.server.group_stage
    assert stage is not None
    groups = choose_groups(stage, data, p, int(chosen.server.get("clusters")))
    inner = replace(chosen, server=stage)
    fits = []
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        part = [data[place] for place in mine.tolist()]
        told = (p[mine] / p[mine].sum(), ridge, intercept, personal)
        fits.append((p[mine].sum(), fit_clients(inner, part, *told)))
    own = {name: model for _, fit in fits for name, model in fit.personal.items()}
    ridges = {name: each for _, fit in fits for name, each in (fit.ridge or {}).items()}
    names = [client.name for client in data]
    return LinearFit(
        chosen,
        np.asarray(sum(share * fit.shared for share, fit in fits)),
        {name: own[name] for name in names},
        weights=dict(zip(names, p.tolist(), strict=True)),
        samples={client.name: client.n for client in data},
        ridge={name: ridges[name] for name in names} if ridges else None,
        noise=None,
        radius=None,
        variances=None,
        intercept=intercept,
    )


def fit_clients(
    chosen: Algorithm,
    data: Sequence[Client],
    p: Array,
    ridge: Any,
    intercept: bool,
    personal: ArrayLike | None,
) -> LinearFit:
    """An algorithm with one shared model, or none, on these clients; p: their weights."""
    d = data[0].X.shape[1]
    may = None if chosen.shares_nothing else check_personal_unknowns(personal, d, intercept)
    several = data[0].y.shape[1:]
    told_algorithm, T = chosen, None
    if (plain := chosen.personalise.plain_stage) is not None:
        told_algorithm, T = turn_features(chosen, combine_outputs(data)[0], intercept)
        turn = T
        data = map_clients(data, lambda client: replace(client, X=client.X @ turn))
        chosen = replace(chosen, personalise=plain)
    lines = combine_outputs(data)
    ridges, spread = common_penalties(
        [choose_penalties(chosen, ridge, each, p, intercept, may) for each in lines],
        data,
        chosen.shares_nothing and intercept,
    )
    shared = np.zeros((d, *several))
    prior = None
    each = [np.inf] * len(data) if ridges is None else ridges
    chosen = with_mixture(chosen, lines, p, intercept)
    if not chosen.shares_nothing:
        if chosen.server.shrinks:
            prior = common_shared_ridge(
                [choose_shared_ridge(chosen, line, p, intercept, spread) for line in lines]
            )
        mu = None if prior is None else prior.rows(d, intercept)
        shared = fit_shared(chosen.server, data, p, ridges, mu).theta

    def fit_one(place: int, client: Client) -> Array:
        stage = chosen.personalise
        if chosen.shares_nothing and intercept:
            return fit_alone(chosen, client, each[place])
        if stage.own_stage is None or not intercept:
            return fit_personal(stage, client, shared, each[place], may)
        alone = fit_alone(replace(chosen, personalise=stage.own_stage), client, own_ridge(chosen))
        return np.asarray(shared + stage.get("mixture") * (alone - shared))

    def fit_kept(place: int, client: Client) -> Array:
        model = fit_one(place, client)
        return freeze(model if T is None else T @ model)

    own = models_by_name(data, fit_kept)
    whole = freeze(shared if T is None else T @ shared)
    variances = None if spread is None else spread.variances
    return LinearFit(
        chosen if T is None else told_algorithm,
        whole,
        own,
        weights=value_by_name(data, p),
        samples=value_by_name(data, count_samples(data).astype(int)),
        ridge=None if ridges is None else value_by_name(data, ridges),
        noise=None if spread is None else float(np.sqrt(spread.noise2)),
        radius=None if variances is None else float(np.sqrt(variances[: d - intercept].sum())),
        variances=variances,
        intercept=intercept,
        shared_ridge=None if prior is None else prior.ridge,
        centre=None if prior is None else prior.length(d - intercept),
    )
