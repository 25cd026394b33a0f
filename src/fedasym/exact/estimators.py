"""The verb of the linear lens: every algorithm solved exactly on finitely many clients' samples.

A file holds arrays as safetensors and everything else as JSON beside them: whole or not at all,
never unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm, Flow
from fedasym.algorithms.registry import PAPER, describe_algorithm, read_algorithm, resolve
from fedasym.core.errors import InvalidInput, import_package, path_of, unknown_name
from fedasym.core.numbers import Array, flag, floats, notebook_text, number, plural
from fedasym.core.runtime import replace_file
from fedasym.exact.clients import (
    Client,
    PerClient,
    append_ones,
    check_client_weights,
    gather_clients,
    numbers_per_client,
    places_of,
)
from fedasym.exact.least_squares import cross_validate_ridge, fit_personal, fit_shared
from fedasym.exact.spread import Spread, about_means, estimate_spread

FORMAT = "fedasym fit 1"
KEY = "fedasym"  # of the file's metadata
ENDING = ".safetensors"

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: str | Path, kind: str, arrays: Arrays, about: Mapping[str, Any]) -> Path:
    """Write arrays and what is said about them; the name must end in .safetensors."""
    where = path_of("path", path)
    if where.suffix != ENDING:
        raise InvalidInput(f"path is {str(path)!r}: its name must end in {ENDING}")
    library = import_package("safetensors.numpy", "a .safetensors file")
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps({"format": FORMAT, "kind": kind, **about})
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(where) as fresh:
            fresh.write_bytes(library.save(held, metadata={KEY: text}))
    except OSError as reason:
        raise InvalidInput(
            f"path is {str(path)!r}: it cannot be written: {reason.strerror or reason}"
        ) from None
    return where


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `write_arrays` wrote of this kind."""
    where = path_of("path", path)
    safetensors = import_package("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(where), framework="numpy") as file:
            about = json.loads((file.metadata() or {})[KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.pop("format") != FORMAT or about.pop("kind") != kind:
            raise ValueError
    except (
        OSError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        safetensors.SafetensorError,
    ):
        raise InvalidInput(
            f"{where} is no {kind} that fedasym saved: name the file that save wrote"
        ) from None
    if not all(
        array.dtype.kind in "fiu" and np.isfinite(array[~np.isinf(array)]).all()
        for array in arrays.values()
    ):
        raise InvalidInput(f"{where} holds something that is no number: save the {kind} again")
    return arrays, about


SHOWN = 10  # clients that a printed fit lists


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The models that an algorithm found: `shared` and `personal[client]`; prints itself.

    A model is a weight per feature, and the intercept last where there is one.
    ridge: of each client, where the algorithm has one, or one per unknown in an array; infinite
        where clients may not differ.
    noise, radius, variances: where they were estimated to choose the ridges; a variance of clients'
        weights per unknown.

    >>> import numpy as np, fedasym as fa
    >>> fit = fa.linear.fit(
    ...     "rtfa", np.eye(2), [1.0, 2.0], clients=["a", "b"], ridge=1, intercept=False
    ... )
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
    ridge: dict[Any, float | Array] | None = None
    noise: float | None = None
    radius: float | None = None
    variances: Array | None = None
    intercept: bool = False

    def predict(self, X: ArrayLike, client: Any = None) -> Array:
        """Labels of new samples of one client, or of one client per row.

        None, and a client that was not in the fit, get the shared model.

        >>> import numpy as np, fedasym as fa
        >>> fit = fa.linear.fit("local", np.eye(2), [1.0, 2.0], clients=["a", "b"], intercept=False)
        >>> fit.predict([[1, 0], [0, 1]], client=["a", "b"])
        array([1., 2.])
        """
        rows = np.asarray(X, dtype=float)
        features = self.shared.size - self.intercept
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
                f"client has {len(labels)} labels for {len(rows)} rows of X: give one, or one"
                " per row"
            )
        y = np.empty(len(rows))
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
        arrays |= {"weights": np.array([self.weights[name] for name in names])}
        arrays |= {"samples": np.array([self.samples[name] for name in names], float)}
        if self.ridge is not None:
            arrays["ridge"] = np.stack([np.asarray(self.ridge[name], float) for name in names])
        if self.variances is not None:
            arrays["variances"] = self.variances
        about = {
            "algorithm": describe_algorithm(self.algorithm),
            "clients": names,
            "intercept": self.intercept,
        }
        return arrays, about | {"noise": self.noise, "radius": self.radius}

    @classmethod
    def read(cls, arrays: Mapping[str, Array], about: Mapping[str, Any], path: Any) -> LinearFit:
        """The fit that `describe` described."""
        try:
            names, shared, own = about["clients"], arrays["shared"], arrays["personal"]
            if own.shape != (len(names), shared.size) or len(set(names)) < len(names):
                raise ValueError
            ridge = arrays.get("ridge")
            each = (
                None if ridge is None else [float(row) if row.ndim == 0 else row for row in ridge]
            )
            return cls(
                read_algorithm(about["algorithm"]),
                shared,
                dict(zip(names, own, strict=True)),
                dict(zip(names, arrays["weights"].tolist(), strict=True)),
                dict(zip(names, arrays["samples"].astype(int).tolist(), strict=True)),
                None if each is None else dict(zip(names, each, strict=True)),
                about["noise"],
                about["radius"],
                arrays.get("variances"),
                bool(about["intercept"]),
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
        n, d = sum(self.samples.values()), self.shared.size - self.intercept
        about = (
            f"{n} samples of {plural(d, 'feature')}{' and an intercept' if self.intercept else ''}"
        )
        lines = [f"{self.algorithm.name} · {len(self.personal)} clients · {about}"]
        if self.noise is not None:
            lines[0] += f" · noise {number(self.noise)}, radius {number(self.radius)} estimated"
        names = list(self.personal)[:SHOWN]
        width = max(8, *(len(str(name)) + 2 for name in names))
        lines += [
            "",
            f"{'client':<{width}}{'samples':>9}{'weight':>11}{'ridge':>11}{'from shared':>13}",
        ]
        for name in names:
            cells = (
                self.weights[name],
                None if self.ridge is None else middle_ridge(self.ridge[name]),
            )
            away = (
                None
                if self.algorithm.shares_nothing
                else np.linalg.norm(self.personal[name] - self.shared)
            )
            row = "".join(f"{number(cell):>11}" for cell in cells)
            lines.append(f"{name!s:<{width}}{self.samples[name]:>9}{row}{number(away):>13}")
        more = len(self.personal) - len(names)
        return "\n".join([*lines, f"and {more} more"] if more else lines)

    def _repr_html_(self) -> str:
        return notebook_text(self)


def fit(
    algorithm: str | Algorithm,
    X: Any,
    y: Any,
    clients: Iterable[Hashable] | None = None,
    *,
    ridge: Any = None,
    weights: str | PerClient = "samples",
    maml_step: float = 0.1,
    intercept: bool = True,
    personal: ArrayLike | None = None,
) -> LinearFit:
    """Solve an algorithm exactly on the clients' samples, with the losses |X_j b - y_j|^2/(2 n_j).

    theta_0 = argmin sum_j p_j loss_j, then theta_j = argmin loss_j + (ridge/2) |b - theta_0|^2 for
    rtfa; the nearest interpolant for ftfa; each algorithm's own equations are param-fedavg to
    param-prox of the paper. Where samples are too few to decide, the shared model is the one of
    minimum norm.

    X, y: all rows, with the client of each row in `clients`; or one array per client, with
        `clients` their names if any.
    ridge: "optimal" (the default), noise^2/(n_j tau_k^2) with the noise and the variances tau_k^2
        of clients' weights estimated by restricted maximum likelihood, one for the intercept and
        one for all features or, where the data carry it, one for each; "cv", one for all by
        cross-validation over clients; a number; one per client, in their order or by name; or an
        array (1, unknowns) or (clients, unknowns), the intercept last.
    weights: p_j, "samples" (n_j/N), "uniform" (1/m) or one number per client, in their order or by
        name.
    intercept: whether models have one, shared and personal; it is then the last of their numbers.
    personal: True for each feature whose weight may differ between clients; the others serve the
        shared model only. By default all may, as all do for an algorithm that shares nothing.

    >>> import numpy as np, fedasym as fa
    >>> rng = np.random.default_rng(0)
    >>> ids, X = np.repeat(["a", "b", "c"], 20), rng.standard_normal((60, 5))
    >>> y = 7 + X.sum(1) + np.repeat([-1, 0, 1], 20) * X[:, 0] + 0.1 * rng.standard_normal(60)
    >>> fit = fa.linear.fit("rtfa", X, y, clients=ids)
    >>> (
    ...     [round(float(model[0]), 1) for model in fit.personal.values()],
    ...     round(fit.noise, 1),
    ...     round(float(fit.shared[-1])),
    ... )
    ([0.1, 1.0, 2.0], 0.1, 7)
    """
    if not isinstance(algorithm, str | Algorithm):
        raise unknown_name("algorithm", algorithm, PAPER)
    (chosen,) = resolve(algorithm, None, maml_step)
    if chosen.personalise == Flow(np.inf):
        raise InvalidInput(
            f"{chosen.name} flows for time inf: it must be finite; Interpolate() is where it ends"
        )
    data = gather_clients(X, y, clients, intercept=flag("intercept", intercept))
    p, d = check_client_weights(weights, data), data[0].X.shape[1]
    may = None if chosen.shares_nothing else check_personal_unknowns(personal, d, intercept)
    ridges, spread = choose_penalties(chosen, ridge, data, p, intercept, may)
    if chosen.shares_nothing and intercept:
        own = {
            client.name: fit_alone(chosen, client, ridges, place)
            for place, client in enumerate(data)
        }
        shared = np.zeros(d)
    else:
        shared = (
            np.zeros(d)
            if chosen.shares_nothing
            else fit_shared(chosen.server, data, p, ridges).theta
        )
        own = {
            client.name: fit_personal(
                chosen.personalise, client, shared, np.inf if ridges is None else ridges[place], may
            )
            for place, client in enumerate(data)
        }
    for model in (shared, *own.values()):
        model.setflags(write=False)
    names = list(own)
    told = (
        None if ridges is None else [float(each) if np.ndim(each) == 0 else each for each in ridges]
    )
    variances = None if spread is None else spread.variances
    return LinearFit(
        chosen,
        shared,
        own,
        weights=dict(zip(names, p.tolist(), strict=True)),
        samples={client.name: client.n for client in data},
        ridge=None if told is None else dict(zip(names, told, strict=True)),
        noise=None if spread is None else float(np.sqrt(spread.noise2)),
        radius=None if variances is None else float(np.sqrt(variances[: d - intercept].sum())),
        variances=variances,
        intercept=intercept,
    )


def middle_ridge(ridge: float | Array) -> float:
    """One ridge for a table where there are several: their middle."""
    return float(np.median(ridge))


def check_personal_unknowns(
    personal: ArrayLike | None, unknowns: int, intercept: bool
) -> NDArray[np.bool_] | None:
    """By unknown, whether it may differ between clients; None where all may."""
    if personal is None:
        return None
    mask = floats(personal)
    if mask is None or mask.shape != (unknowns - intercept,) or not np.isin(mask, (0, 1)).all():
        raise InvalidInput(
            f"personal is {personal!r}: give True or False for each of the {unknowns - intercept}"
            " features"
        )
    may = np.append(mask, [1.0] * intercept).astype(bool)
    return None if may.all() else may


def fit_alone(algorithm: Algorithm, client: Client, ridges: Array | None, place: int) -> Array:
    """The model of a client alone: its intercept is free, so that no ridge pulls it to 0."""
    ones = client.X[:, -1]
    mean = np.append(ones @ client.X[:, :-1], ones @ client.y) / client.n
    within = about_means(client)
    start = np.zeros(client.X.shape[1] - 1)
    ridge = np.inf if ridges is None else ridges[place]
    # the loss is a mean over n samples, of which the intercept has taken one
    fair = client.n / max(client.n - 1, 1)
    slopes = (
        start
        if within is None
        else fit_personal(algorithm.personalise, within, start, ridge * fair)
    )
    return np.append(slopes, mean[-1] - mean[:-1] @ slopes)


def choose_penalties(
    algorithm: Algorithm,
    ridge: Any,
    clients: Sequence[Client],
    weights: Array,
    intercept: bool,
    may: NDArray[np.bool_] | None,
) -> tuple[Array | None, Spread | None]:
    """Each client's ridge, one or by unknown, where there is any, and the estimated variances.

    An algorithm that shares nothing has ridges for its features only: its intercept is free.
    """
    stages = [stage for stage in algorithm.stages if "ridge" in stage.settings()]
    if not stages:
        return None, None
    fixed = [value for stage in stages if (value := stage.get("ridge")) is not None]
    wanted = ridge if ridge is not None else fixed[-1] if fixed else None
    wanted = "optimal" if wanted is None else wanted
    apart = algorithm.shares_nothing and intercept
    if isinstance(wanted, str):
        within = (
            [each for client in clients if (each := about_means(client)) is not None]
            if apart
            else list(clients)
        )
        if not within:
            # one sample each: nothing is left once it is the intercept
            return np.zeros(len(clients)), None
        if wanted == "optimal":
            spread = estimate_spread(
                within, intercept and not apart, may, shared=not algorithm.shares_nothing
            )
            ridges = spread.ridges(np.array([client.n for client in clients], float))
            variances = np.append(spread.variances, [0.0] * apart)
            alike = may is None and np.ptp(spread.variances) == 0
            return ridges[:, 0] if alike else ridges, Spread(
                spread.noise2, variances, spread.components
            )
        if wanted != "cv":
            raise InvalidInput(
                f"ridge is {wanted!r}: give 'optimal', 'cv', a number or one number per client"
            )
        common = np.full(
            len(clients),
            cross_validate_ridge(algorithm.server, within, weights_within(within, weights, apart)),
        )
        return mask_ridges(common, may), None
    return mask_ridges(check_ridges(algorithm, wanted, clients), may), None


def weights_within(within: Sequence[Client], weights: Array, apart: bool) -> Array:
    """Weights of the clients that are left; those of clients on their own do not matter."""
    return np.full(len(within), 1 / len(within)) if apart else weights


def mask_ridges(ridges: Array, may: NDArray[np.bool_] | None) -> Array:
    """Ridges with infinite ones where clients may not differ."""
    if may is None:
        return ridges
    wide = ridges if ridges.ndim == 2 else np.repeat(ridges[:, None], may.size, axis=1)
    return np.where(may, wide, np.inf)


def check_ridges(algorithm: Algorithm, wanted: Any, clients: Sequence[Client]) -> Array:
    """Ridges that were given: one for all, one per client, one per unknown, or both."""
    m, p = len(clients), clients[0].X.shape[1]
    shape = () if isinstance(wanted, Mapping) else np.shape(np.asarray(wanted, dtype=object))
    if len(shape) == 2:
        numbers = floats(wanted)
        if numbers is None or shape[0] not in (1, m) or shape[1] not in (1, p):
            raise InvalidInput(
                f"ridge has shape {shape}: give numbers of shape (1 or {m} clients, 1 or {p}"
                " unknowns)"
            )
        ridges = np.broadcast_to(numbers, (m, p)).copy()
        if not (ridges >= 0).all():
            raise InvalidInput(f"ridge holds {ridges.min():g}: every ridge must be at least 0")
        if np.any(ridges == 0) and "ridge" in algorithm.server.settings():
            raise InvalidInput(
                f"ridge holds 0: {algorithm.name} needs ridges above 0 to tie clients to the rest"
            )
        return ridges
    if not isinstance(wanted, Mapping) and shape == ():
        wanted = np.full(m, wanted, dtype=object)  # its numbers are checked below
    ridges = numbers_per_client("ridge", wanted, clients)
    for client, each in zip(clients, ridges, strict=True):
        if not each >= 0:
            raise InvalidInput(
                f"the ridge of client {client.name!r} is {each:g}: it must be at least 0"
            )
        if each == 0 and "ridge" in algorithm.server.settings():
            raise InvalidInput(
                f"the ridge of client {client.name!r} is 0: {algorithm.name} needs one above 0 to"
                " tie it to the rest"
            )
    return ridges
