"""The verb of the linear lens: every algorithm solved exactly on the samples of finitely many clients."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import PAPER, Algorithm, Flow, Moreau, Ridge, resolve
from fedasym.errors import InvalidInput, unknown
from fedasym.linear.clients import Client, PerClient, checked_weights, gathered, per_client, places_of
from fedasym.linear.crossvalidation import cross_validated
from fedasym.linear.likelihood import Variances, estimated
from fedasym.linear.personal import personalised
from fedasym.linear.server import pooled
from fedasym.risk import number, preformatted
from fedasym.theory.spectra import Array

SHOWN = 10  # clients that a printed fit lists


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The models that an algorithm found: `shared`, and `personal[client]` for each client; prints itself.

    ridge: the ridge of each client, where the algorithm has one; noise, radius: where they were estimated to choose it.

    >>> import numpy as np, fedasym as fa
    >>> fit = fa.linear.fit("rtfa", np.eye(2), [1.0, 2.0], clients=["a", "b"], ridge=1)
    >>> fit.shared.tolist(), fit.ridge
    ([1.0, 2.0], {'a': 1.0, 'b': 1.0})
    >>> fit.predict([[1, 1]]), fit.predict([[1, 1]], client="a")
    (array([3.]), array([3.]))
    """

    algorithm: Algorithm
    shared: Array
    personal: dict[Any, Array]
    weights: dict[Any, float]
    samples: dict[Any, int]
    ridge: dict[Any, float] | None = None
    noise: float | None = None
    radius: float | None = None

    def predict(self, X: ArrayLike, client: Any = None) -> Array:
        """Labels of new samples of one client, or of one client per row; None is a new client, who gets the shared model.

        >>> import numpy as np, fedasym as fa
        >>> fit = fa.linear.fit("local", np.eye(2), [1.0, 2.0], clients=["a", "b"])
        >>> fit.predict([[1, 0], [0, 1]], client=["a", "b"])
        array([1., 2.])
        """
        rows = np.asarray(X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != self.shared.size:
            raise InvalidInput(f"X has shape {rows.shape}: give rows of the {self.shared.size} features of the fit")
        if not np.isfinite(rows).all():
            raise InvalidInput("X holds NaN or infinity: drop or fill those samples first")
        if client is None or np.ndim(client) == 0:
            return np.asarray(rows @ self._model(client))
        labels = client.tolist() if hasattr(client, "tolist") else list(client)
        if len(labels) != len(rows):
            raise InvalidInput(f"client has {len(labels)} labels for {len(rows)} rows of X: give one, or one per row")
        y = np.empty(len(rows))
        for label, here in places_of(labels).items():
            y[here] = rows[here] @ self._model(label)
        return y

    def _model(self, client: Hashable) -> Array:
        if client is None:
            if self.algorithm.shares_nothing:
                raise InvalidInput(
                    f"{self.algorithm.name} shares nothing, so a new client has no model: name a client of the fit"
                )
            return self.shared
        if client not in self.personal:
            raise InvalidInput(f"client {client!r} was not in the fit: leave client out to predict with the shared model")
        return self.personal[client]

    def __str__(self) -> str:
        n, d = sum(self.samples.values()), self.shared.size
        lines = [f"{self.algorithm.name} · {len(self.personal)} clients · {n} samples of {d} features"]
        if self.noise is not None:
            lines[0] += f" · noise {number(self.noise)}, radius {number(self.radius)} estimated"
        names = list(self.personal)[:SHOWN]
        width = max(8, *(len(str(name)) + 2 for name in names))
        lines += ["", f"{'client':<{width}}{'samples':>9}{'weight':>11}{'ridge':>11}{'from shared':>13}"]
        for name in names:
            cells = (self.weights[name], None if self.ridge is None else self.ridge[name])
            away = None if self.algorithm.shares_nothing else np.linalg.norm(self.personal[name] - self.shared)
            row = "".join(f"{number(cell):>11}" for cell in cells)
            lines.append(f"{name!s:<{width}}{self.samples[name]:>9}{row}{number(away):>13}")
        more = len(self.personal) - len(names)
        return "\n".join([*lines, f"and {more} more"] if more else lines)

    def _repr_html_(self) -> str:
        return preformatted(self)


def fit(
    algorithm: str | Algorithm,
    X: Any,
    y: Any,
    clients: Iterable[Hashable] | None = None,
    *,
    ridge: str | float | PerClient | None = None,
    weights: str | PerClient = "samples",
    maml_step: float = 0.1,
) -> LinearFit:
    """Solve an algorithm exactly on the clients' samples, with the losses |X_j b - y_j|^2/(2 n_j).

    theta_0 = argmin sum_j p_j loss_j, then theta_j = argmin loss_j + (ridge/2) |b - theta_0|^2 for rtfa; the nearest
    interpolant for ftfa; each algorithm's own equations are param-fedavg to param-prox of the paper. Where samples are
    too few to decide, the shared model is the one of minimum norm.

    X, y: all rows, with the client of each row in `clients`; or one array per client, with `clients` their names if any.
    ridge: "optimal" (the default), noise^2 d/(n_j radius^2) with noise and radius estimated by restricted maximum
        likelihood; "cv", one for all clients by cross-validation over clients; a number; or one number per client.
    weights: p_j, "samples" (n_j/N), "uniform" (1/m) or one number per client, in their order or by name.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> ids, X = np.repeat(["a", "b", "c"], 20), rng.standard_normal((60, 5))
    >>> y = X.sum(1) + np.repeat([-1, 0, 1], 20) * X[:, 0] + 0.1 * rng.standard_normal(60)
    >>> fit = fa.linear.fit("rtfa", X, y, clients=ids)
    >>> [round(float(model[0]), 1) for model in fit.personal.values()], round(fit.noise, 1)
    ([0.0, 1.0, 2.0], 0.1)
    """
    if not isinstance(algorithm, str | Algorithm):
        raise unknown("algorithm", algorithm, PAPER)
    (chosen,) = resolve(algorithm, None, maml_step)
    if chosen.personalise == Flow(np.inf):
        raise InvalidInput(f"{chosen.name} flows for time inf: it must be finite; Interpolate() is where it ends")
    data = gathered(X, y, clients)
    p = checked_weights(weights, data)
    ridges, variances = penalties(chosen, ridge, data, p)
    shared = np.zeros(data[0].X.shape[1]) if chosen.shares_nothing else pooled(chosen.server, data, p, ridges).theta
    personal = {
        client.name: personalised(chosen.personalise, client, shared, np.inf if ridges is None else float(ridges[place]))
        for place, client in enumerate(data)
    }
    for model in (shared, *personal.values()):
        model.setflags(write=False)
    names = list(personal)
    return LinearFit(
        chosen,
        shared,
        personal,
        weights=dict(zip(names, p.tolist(), strict=True)),
        samples={client.name: client.n for client in data},
        ridge=None if ridges is None else dict(zip(names, ridges.tolist(), strict=True)),
        noise=None if variances is None else variances.noise,
        radius=None if variances is None else variances.radius,
    )


def penalties(
    algorithm: Algorithm, ridge: str | float | PerClient | None, clients: Sequence[Client], weights: Array
) -> tuple[Array | None, Variances | None]:
    """Each client's ridge, where the algorithm has one, and the variances if they were estimated for it."""
    if not isinstance(algorithm.personalise, Ridge):
        return None, None
    wanted = ridge if ridge is not None else algorithm.personalise.ridge
    wanted = "optimal" if wanted is None else wanted
    if isinstance(wanted, str):
        if wanted == "optimal":
            variances = estimated(clients, shared=not algorithm.shares_nothing)
            return np.array([variances.ratio / client.n for client in clients]), variances
        if wanted != "cv":
            raise InvalidInput(f"ridge is {wanted!r}: give 'optimal', 'cv', a number or one number per client")
        return np.full(len(clients), cross_validated(algorithm.server, clients, weights)), None
    if not isinstance(wanted, Mapping) and np.asarray(wanted, dtype=object).ndim == 0:
        wanted = np.full(len(clients), wanted, dtype=object)  # its numbers are checked below
    ridges = per_client("ridge", wanted, clients)
    for client, each in zip(clients, ridges, strict=True):
        if not each >= 0:
            raise InvalidInput(f"the ridge of client {client.name!r} is {each:g}: it must be at least 0")
        if each == 0 and isinstance(algorithm.server, Moreau):
            raise InvalidInput(
                f"the ridge of client {client.name!r} is 0: {algorithm.name} needs one above 0 to tie it to the rest"
            )
    return ridges, None
