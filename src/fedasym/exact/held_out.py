"""What every algorithm reaches on held-out samples: exact least-squares heads along its settings.

Labels are numbers, or classes as one-hot outputs. With client i's axes, X_i = U diag(n x)^{1/2} V',
a client stage that keeps P(x) of the shared model's error has the outputs

    A theta_0 + A X_i' U diag((1 - P(x)) / (n x)) U' (Y_i - X_i theta_0)

on new rows A: one factorisation of a client serves every algorithm and every setting. The shared
model of a server stage solves sum_i X_i' b(K_i) X_i theta_0 = sum_i X_i' b(K_i) Y_i. What an
algorithm leaves open (its ridge, when it stops) is chosen on validation samples of all clients
together, and the score is that of test samples. Where nothing is held out, each training sample is
predicted by models that did not see it (leave-one-out; of the shared model and of the client's
change, one after the other).

Least squares on one-hot labels is off where classes are many or uneven. `SoftmaxHeldOut` has the
logistic loss instead: a client's change of the shared model lies in the span of its samples, so
that along its axes W has as many rows as it has samples (the Gram form),

    min_W  sum_j loss(x_j'theta_0 + (U diag(n x)^{1/2} W)_j, y_j) + (n ridge/2) |W|^2.

There, a sample is left out by one Newton step from the fit with it (approximate leave-one-out, Rad
and Maleki 2020): with the curvature H of the objective, B_i = a_i'H^{-1}a_i between classes and
H_i = diag(P_i) - P_i P_i', its outputs become o_i + B_i (I - H_i B_i)^{-1} (P_i - Y_i).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, softmax

from fedasym.algorithms import Algorithm, Objective
from fedasym.algorithms.stages import ScoreStage
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array, pool_shares
from fedasym.theory.classes.softmax import contrasts

Filter = Callable[[Array], Array]  # what a client learns along each eigenvalue, 1 - P(x)
Rows = NDArray[np.floating]

STRENGTHS = np.geomspace(1e-3, 1e3, 13)  # ridges, and times of stopping, about the samples' scale
JOINT_STRENGTHS = STRENGTHS[2::2]  # where each ridge has a shared model of its own
SOFTMAX_STRENGTHS = np.geomspace(1e-4, 10, 6)
SHARED_STRENGTHS = (1e-6, 1e-3, 1e-2, 0.1)  # on the shared softmax model, of the mean curvature
SOFTMAX_STEPS = 100  # what more would change, stopping early would undo
CLIENT_STEPS = 40  # of a client's own fit, from the one with the next firmer ridge
SHARES = np.linspace(0.0, 1.0, 11)  # of a client's own model in a mixture
TEMPERATURES = np.geomspace(0.01, 0.3, 6)  # of outputs as logarithms of probabilities
LOOK_AHEAD = 0.5  # a step that looks ahead, as a share of the longest one that does not diverge
FIRM = 1e-6  # a ridge on the shared model, as a share of the mean curvature
LARGE = 10**6  # numbers from which rows are kept in single precision
VALIDATION, TEST = 0, 1
MOST_UNKNOWNS = 600  # of a fit whose curvature is taken whole
LEAST_ROOM = 0.05  # that a sample leaves to the others
LEAST_HELD = 20  # held-out samples below which training samples are left out one by one


@dataclass(frozen=True, eq=False)
class HeldOutClient:
    """One client along its axes, and the rows on which its models are scored.

    U: (n, k); x: (k,) eigenvalues of X'X/n. new: held-out rows, or the training rows themselves
    where each is left out; across: new X'U. right: their labels. test: which of them are test rows.
    """

    X: Rows
    Y: Rows
    U: Rows
    x: Array
    new: Rows
    across: Rows
    right: Rows
    test: NDArray[np.bool_]

    @property
    def n(self) -> int:
        """Training samples."""
        return len(self.X)


def view_axes(X: Rows) -> tuple[Rows, Array]:
    """Orthogonal axes of samples and the eigenvalues of X'X/n, from the smaller Gram matrix."""
    n, p = X.shape
    wide = n <= p
    values, vectors = scipy.linalg.eigh((X @ X.T if wide else X.T @ X).astype(float))
    kept = values > 100 * np.finfo(X.dtype).eps * max(values[-1], 1e-300)
    values, vectors = values[kept], vectors[:, kept]
    U = vectors if wide else (X @ vectors) / np.sqrt(values)
    return U.astype(X.dtype), np.asarray(values / n)


def firm_ridge(gram: Array) -> Array:
    """A small share of the mean curvature in every direction."""
    return FIRM * float(np.trace(gram)) / len(gram) * np.eye(len(gram))


def solve_pooled(gram: Array, cross: Array) -> Array:
    """The least-squares model from sums over all training samples, X'X and X'Y."""
    return np.asarray(scipy.linalg.solve(gram + firm_ridge(gram), cross, assume_a="pos"))


def learn_until(time: float, x: Array) -> Array:
    """1 - exp(-time x): gradient descent in small steps until this time."""
    return np.asarray(-np.expm1(-time * x))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Clients ready to be scored; made by `of`.

    classes: how many; None where labels are numbers. left_out: whether scores are of training
    samples, each without itself.

    >>> rng = np.random.default_rng(0)
    >>> X, owner = rng.standard_normal((200, 5)), np.repeat(np.arange(10), 20)
    >>> y = X.sum(1) + 0.1 * rng.standard_normal(200)
    >>> board = HeldOut.of(X, y[:, None], owner, np.arange(200) % 3)
    >>> from fedasym.algorithms import find
    >>> bool(np.nanmean(board.score(find("fedavg"))) < 0.02)
    True
    """

    clients: tuple[HeldOutClient, ...]
    classes: int | None
    gram: Array
    cross: Array
    left_out: bool

    @classmethod
    def of(
        cls,
        features: Rows,
        labels: NDArray[np.generic],
        owner: NDArray[np.intp],
        split: NDArray[np.integer],
        classes: int | None = None,
        intercept: bool = True,
        origin: tuple[Array, float] | None = None,
        left_out: bool | None = None,
    ) -> Self:
        """From rows: labels are class codes where `classes` says how many, else (rows, outputs);
        split: 0 for training, 1 for validation, 2 for test. origin: the centre of the features and
        the level of the intercept's column, where they are those of other rows too. left_out: leave
        training samples out one by one; by default where held-out samples are few.
        """
        kind: Any = np.float32 if features.size > LARGE else np.float64
        train = split == 0
        if not train.any():
            raise InvalidInput("there are no training samples: give at least one to every client")
        centre: Array | float = features[train].mean(0, dtype=float) if intercept else 0.0
        if origin is not None:
            centre = origin[0]
        rows: Rows = np.asarray(features - centre, dtype=kind)
        if intercept:
            level = float(np.sqrt(np.mean(np.square(rows[train])))) or 1.0
            level = level if origin is None else origin[1]
            ones: Rows = np.full((len(rows), 1), level, kind)
            rows = np.concatenate([rows, ones], axis=1)
        if classes is None:
            targets: Rows = np.asarray(labels, dtype=kind).reshape(len(rows), -1)
            if intercept:
                targets = targets - targets[train].mean(0)
        else:
            targets = np.eye(classes, dtype=kind)[np.asarray(labels, dtype=np.intp)]
        alone = bool(np.sum(~train) < LEAST_HELD) if left_out is None else left_out
        clients = tuple(iterate_held(rows, targets, owner, split, alone))
        seen = rows[train]
        gram = np.asarray(seen.T @ seen, dtype=float)
        cross = np.asarray(seen.T @ targets[train], dtype=float)
        return cls(clients, classes, gram, cross, alone)

    @cached_property
    def scale(self) -> float:
        """The mean eigenvalue along clients' axes: the unit of ridges and of times of stopping."""
        return float(np.mean([each.x.sum() for each in self.clients])) / float(
            np.mean([max(each.x.size, 1) for each in self.clients])
        )

    @cached_property
    def median_top_eigenvalue(self) -> float:
        """The middle of the clients' largest eigenvalues."""
        return float(np.median([each.x[-1] for each in self.clients if each.x.size]))

    @cached_property
    def firm_ridge(self) -> Array:
        """The ridge that keeps what no client has seen finite."""
        return firm_ridge(self.gram)

    @cached_property
    def least_squares(self) -> Array:
        """The least-squares model of all training samples together."""
        return solve_pooled(self.gram, self.cross)

    @cached_property
    def pooled(self) -> Array:
        """The shared model of all training samples together, with this loss."""
        return self.least_squares

    def solve_weighted(self, weight: Filter) -> Array:
        """The shared model of a server stage with the weight b(x)."""
        S, c = self.firm_ridge.copy(), np.zeros_like(self.cross)
        for each in self.clients:
            # b acts along the axes; across them, where x is 0, there is nothing to weigh
            half = np.sqrt(np.maximum(np.asarray(weight(each.x)), 0.0))[:, None]
            L = half * (each.U.T @ each.X)
            S += L.T @ L
            c += L.T @ (half * (each.U.T @ each.Y))
        return np.asarray(scipy.linalg.solve(S, c, assume_a="pos"))

    def curve(
        self,
        theta: Array | None,
        learns: Sequence[Filter],
        correction: ScoreStage | None = None,
        temperature: float = 1.0,
    ) -> Array:
        """Scores (settings, clients, 2) of clients that start at theta (None: at zero) and learn by
        these filters: right answers as a share, or mean squares, on validation and on test samples.

        correction: what clients add to outputs, which are logarithms of probabilities times the
        temperature.
        """
        found = np.full((len(learns), len(self.clients), 2), np.nan)
        leverage = self._leverages if self.left_out and theta is not None else None
        for place, each in enumerate(self.clients):
            added: Array | float = 0.0
            if correction is not None:
                added = temperature * correction.offset(each.Y.sum(0), self.pooled_shares)
            start: Rows | float = 0.0
            e: Rows = each.Y
            if theta is not None:
                start = each.new @ theta.astype(each.X.dtype)
                e = each.Y - each.X @ theta.astype(each.X.dtype)
            if leverage is not None:
                e = np.asarray(e / (1 - leverage[place])[:, None])
            along = each.U.T @ e
            for setting, learn in enumerate(learns):
                share = np.asarray(learn(each.x), dtype=float)
                if self.left_out:
                    room = np.maximum(1 - each.U**2 @ share.astype(each.U.dtype), 1e-9)
                    left = (e - each.U @ (share[:, None] * along)) / room[:, None]
                    outputs: Rows = each.Y - left
                else:
                    weight = share / (each.n * each.x)
                    outputs = start + each.across @ (weight[:, None] * along).astype(each.X.dtype)
                found[setting, place] = self._score(each, outputs + added)
        return found

    @cached_property
    def pooled_shares(self) -> Array:
        """The shares of the classes among all training samples."""
        return pool_shares(np.sum([each.Y.sum(0) for each in self.clients], axis=0))

    @cached_property
    def _leverages(self) -> list[Array]:
        inverse = scipy.linalg.inv(self.gram + self.firm_ridge)
        return [
            np.minimum(np.einsum("nd,nd->n", each.X @ inverse, each.X), 1 - 1e-6)
            for each in self.clients
        ]

    def _score(self, client: HeldOutClient, outputs: Rows) -> list[float]:
        if self.classes is None:
            points = np.mean(np.square(outputs - client.right), axis=1)
        else:
            points = (outputs.argmax(1) == client.right.argmax(1)).astype(float)
        parts = (points[~client.test], points[client.test])
        return [float(part.mean()) if part.size else np.nan for part in parts]

    def choose(self, found: Array) -> int:
        """The setting with the best mean on validation samples; on test samples where there are
        none.
        """
        for part in (VALIDATION, TEST):
            if np.isfinite(found[..., part]).any():
                means = np.nanmean(found[..., part], axis=1)
                return int(np.nanargmin(means) if self.classes is None else np.nanargmax(means))
        raise InvalidInput("no client has held-out samples: give some a validation or test sample")

    def reported_scores(self, found: Array) -> Array:
        """Of a setting's scores by client (clients, 2), those to report."""
        return found[:, TEST] if np.isfinite(found[:, TEST]).any() else found[:, VALIDATION]

    def score(self, algorithm: Algorithm) -> Array:
        """Each client's score under an algorithm whose open settings validation samples choose."""
        tried = np.concatenate(list(self._try(algorithm)))
        return np.asarray(self.reported_scores(tried[self.choose(tried)]))

    def score_halves(self, algorithm: Algorithm) -> Array:
        """Each client's score on all held-out samples: validation samples choose for test samples,
        and these for those.
        """
        tried = np.concatenate(list(self._try(algorithm)))
        if not all(np.isfinite(tried[..., part]).any() for part in (VALIDATION, TEST)):
            return np.asarray(self.reported_scores(tried[self.choose(tried)]))
        halves = [
            tried[self.choose(tried[..., [part, part]]), :, 1 - part] for part in (VALIDATION, TEST)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a client without held-out samples
            return np.asarray(np.nanmean(halves, axis=0))

    def _try(self, algorithm: Algorithm) -> Iterator[Array]:
        """Scores of all settings, in one or several stacks."""
        server = algorithm.server.fill_missing(
            local_step=LOOK_AHEAD / self.median_top_eigenvalue, ridge=None
        )
        stage = algorithm.personalise
        if self.classes is None and algorithm.correction is not None:
            raise NoFormula(
                f"{algorithm.name} adds class shares to scores of classes, and the labels are"
                " numbers: leave it out"
            )
        if stage.plain_stage is not None:
            raise NoFormula(
                f"{algorithm.name} has a penalty that differs by direction: it has no scores here;"
                " fit it with fa.linear.fit"
            )
        if server.linear_objective is Objective.JOINT:
            own = stage.get("ridge")
            ridges = JOINT_STRENGTHS * self.scale if own is None else [float(own)]
            for ridge in ridges:
                theta = self.solve_weighted(server.at(ridge=ridge).weight)
                yield from self._correct(algorithm, theta, [stage.at(ridge=ridge).learn])
            return
        start: Array | None = None
        if not algorithm.shares_nothing:
            start = self.pooled if server.weighs_alike else self.solve_weighted(server.weight)
        if stage.own_stage is not None:
            yield self._mix(start, algorithm)
            return
        yield from self._correct(algorithm, start, list(self.filters(algorithm)))

    def _correct(
        self, algorithm: Algorithm, theta: Array | None, learns: Sequence[Filter]
    ) -> Iterator[Array]:
        """Scores as they are, or with the algorithm's correction at every temperature."""
        if algorithm.correction is None:
            yield self.curve(theta, learns)
            return
        for temperature in TEMPERATURES:
            yield self.curve(theta, learns, algorithm.correction, float(temperature))

    def filters(self, algorithm: Algorithm) -> Iterator[Filter]:
        """What clients learn, for every setting that is open."""
        stage = algorithm.personalise
        match stage.linear_objective:
            case Objective.PENALISED if stage.get("ridge") is None:
                for strength in STRENGTHS:
                    yield stage.at(ridge=float(strength * self.scale)).learn
            case Objective.OWN:
                for strength in STRENGTHS:  # stopped where validation samples say, as in training
                    yield partial(learn_until, float(strength / self.scale))
                yield np.ones_like
            case _:
                yield stage.learn

    def _mix(self, theta: Array | None, algorithm: Algorithm) -> Array:
        """A weighted mean of the shared model and the client's own, along the weight."""
        stage = algorithm.personalise
        own = stage.own_stage
        assert own is not None
        assert theta is not None
        alone = replace(algorithm, personalise=own)
        tried = self.curve(None, list(self.filters(alone)))
        best = list(self.filters(alone))[self.choose(tried)]
        told = stage.get("mixture")
        found = np.full((len(SHARES) if told is None else 1, len(self.clients), 2), np.nan)
        for place, each in enumerate(self.clients):
            weight = np.asarray(best(each.x)) / (each.n * each.x)
            mine = each.across @ (weight[:, None] * (each.U.T @ each.Y)).astype(each.X.dtype)
            ours = each.new @ theta.astype(each.X.dtype)
            for setting, share in enumerate(SHARES if told is None else [float(told)]):
                found[setting, place] = self._score(each, (1 - share) * ours + share * mine)
        return found


@dataclass(frozen=True, eq=False)
class PooledSamples:
    """Samples of all clients along their common axes, for one softmax model of all.

    values, V: of the features' second moments, with a little on each. along: X V / sqrt(values).
    """

    values: Array
    V: Array
    along: Rows
    Y: Rows

    @classmethod
    def of(cls, X: Rows, Y: Rows, gram: Array) -> PooledSamples:
        """From features, one-hot labels and X'X."""
        values, V = scipy.linalg.eigh(gram + firm_ridge(gram))
        return cls(values, V, X @ (V / np.sqrt(values)).astype(X.dtype), Y)

    def penalty(self, strength: float) -> Array:
        """A ridge along the axes, as a share of the mean curvature."""
        return np.asarray(strength * self.values.mean() / self.values)

    def scale_logits(self, theta: Array) -> Array:
        """A least-squares model as logits."""
        outputs = self.along @ self._turn(theta).astype(self.along.dtype)
        return find_factor(outputs, self.Y) * theta

    def fit(self, strength: float, theta: Array, steps: int = SOFTMAX_STEPS) -> Array:
        """The softmax model with a ridge, from theta on."""
        offset, held = np.zeros_like(self.Y), self.penalty(strength)
        W = fit_axes(offset, self.along, self.Y, held, self._turn(theta), steps)
        return np.asarray(self.V @ (W / np.sqrt(self.values)[:, None]))

    def _turn(self, theta: Array) -> Array:
        return np.asarray(np.sqrt(self.values)[:, None] * (self.V.T @ theta))


class SoftmaxHeldOut(HeldOut):
    """The same clients with the logistic loss: shared models of all samples, or none.

    >>> rng = np.random.default_rng(0)
    >>> y, owner = np.arange(300) % 3, np.repeat(np.arange(10), 30)
    >>> X = np.eye(3)[y] + 0.3 * rng.standard_normal((300, 3))
    >>> board = SoftmaxHeldOut.of(X, y, owner, np.arange(300) // 3 % 3, 3)
    >>> from fedasym.algorithms import find
    >>> bool(np.nanmean(board.score(find("fedavg"))) > 0.8)
    True
    """

    @cached_property
    def pooled(self) -> Array:
        """The softmax model of all training samples."""
        return self.pool(0.0)

    @cached_property
    def _samples(self) -> PooledSamples:
        """All training samples."""
        X = np.concatenate([each.X for each in self.clients])
        Y = np.concatenate([each.Y for each in self.clients])
        return PooledSamples.of(X, Y, self.gram)

    def pool(self, strength: float) -> Array:
        """The softmax model of all training samples with a ridge, as a share of the mean curvature;
        from least squares on, as logits.
        """
        return self._samples.fit(strength, self._samples.scale_logits(self.least_squares))

    def fit_shared(self) -> tuple[float, Array]:
        """The ridge of the shared model that is best on validation samples, and that model."""
        kept = np.array([np.inf])
        tried = [
            self._personalise(None, ridges=kept, **self._shared_model(s)) for s in SHARED_STRENGTHS
        ]
        best = SHARED_STRENGTHS[self.choose(np.concatenate(tried))]
        return best, self._shared_model(best)["theta"]

    def _start(self, theta: Array, strength: float) -> list[Rows]:
        """The shared model's outputs for each client's samples; where samples are left out, each
        without itself.
        """
        outputs = [each.X @ theta.astype(each.X.dtype) for each in self.clients]
        if not self.left_out:
            return outputs
        all_ = self._samples
        held = all_.penalty(strength)
        left = leave_each_out(np.concatenate(outputs), all_.along, all_.Y, held)
        return np.split(left, np.cumsum([each.n for each in self.clients])[:-1])

    def _try(self, algorithm: Algorithm) -> Iterator[Array]:
        """Scores of ridges, on the shared model too: one that is fitted to the end leaves a client
        nothing to learn where features were trained. First those of the shared model, with two of
        clients, then those of clients. A client that stops early is one that a ridge holds.
        """
        shares, keeps = (stage.objective for stage in algorithm.stages)
        if shares not in (Objective.POOLED, Objective.NOTHING) or keeps is None:
            raise NoFormula(
                f"{algorithm.name} has no exact form with the logistic loss here: take algorithms"
                " that share FedAvg's model or nothing, or least-squares heads"
            )
        ridges = np.array([np.inf])
        if keeps is not Objective.SHARED:
            own = algorithm.personalise.get("ridge")
            ridges = SOFTMAX_STRENGTHS * self.scale if own is None else np.array([float(own)])
        correction = algorithm.correction
        if algorithm.shares_nothing:
            yield self._personalise(correction, None, ridges)
            return
        some = np.unique([len(ridges) // 2, len(ridges) - 1])  # clients that learn, or hardly do
        first = [
            self._personalise(correction, ridges=ridges[some], **self._shared_model(strength))
            for strength in SHARED_STRENGTHS
        ]
        yield from first
        others = np.delete(ridges, some)
        if others.size:
            best = SHARED_STRENGTHS[self.choose(np.concatenate(first)) // some.size]
            yield self._personalise(correction, ridges=others, **self._shared_model(best))

    def _shared_model(self, strength: float) -> dict[str, Any]:
        """The shared model with a ridge, and what it says of clients' samples; kept."""
        if strength not in self._shared_models:
            theta = self.pool(strength)
            self._shared_models[strength] = {
                "theta": theta,
                "offsets": self._start(theta, strength),
            }
        return self._shared_models[strength]

    @cached_property
    def _shared_models(self) -> dict[float, dict[str, Any]]:
        return {}

    def _personalise(
        self,
        correction: ScoreStage | None,
        theta: Array | None,
        ridges: Array,
        offsets: Sequence[Rows] | None = None,
    ) -> Array:
        """Scores of clients that start at theta, along ridges; an infinite one keeps it. offsets:
        what theta says of their samples, each without itself where they are left out.
        """
        found = np.full((len(ridges), len(self.clients), 2), np.nan)
        for place, each in enumerate(self.clients):
            start, offset = np.zeros_like(each.right), np.zeros_like(each.Y)
            if theta is not None:
                kept = theta.astype(each.X.dtype)
                offset = each.X @ kept if offsets is None else offsets[place]
                start = offset if self.left_out else each.new @ kept
            added: Array | float = 0.0
            if correction is not None:
                added = correction.offset(each.Y.sum(0), self.pooled_shares)
            W = np.zeros((each.x.size, each.Y.shape[1]))
            root = np.sqrt(each.n * each.x)
            A = (each.U * root).astype(each.X.dtype)
            for setting in np.argsort(-ridges):  # from the firmest on, each a start for the next
                outputs = start
                if np.isfinite(ridges[setting]):
                    held = np.full(each.x.size, each.n * ridges[setting])
                    W = fit_axes(offset, A, each.Y, held, W, CLIENT_STEPS)
                    if self.left_out:
                        outputs = leave_each_out(offset + A @ W.astype(A.dtype), A, each.Y, held)
                    else:
                        moved = each.across @ (W / root[:, None]).astype(each.X.dtype)
                        outputs = start + moved
                found[setting, place] = self._score(each, outputs + added)
        return found


def leave_each_out(outputs: Rows, A: Rows, Y: Rows, held: Array) -> Rows:
    """Each training sample's outputs without itself in the fit, to one Newton step; outputs: of the
    fit with all, A: the samples along its axes, held: its penalty.

    Where unknowns are many, classes are taken one by one, each with its own curvature P (1 - P).
    """
    P = softmax(outputs.astype(float), axis=1)
    axes = np.asarray(A, dtype=float)
    step = step_of_classes if A.shape[1] * (P.shape[1] - 1) > MOST_UNKNOWNS else step_of_all
    return np.asarray(outputs + step(P, axes, P - Y, held), dtype=outputs.dtype)


def step_of_all(P: Array, A: Array, g: Array, held: Array) -> Array:
    """B_i (I - H_i B_i)^{-1} g_i in contrasts of the classes, in which H has an inverse."""
    C = contrasts(P.shape[1])
    k, L = A.shape[1], C.shape[1]
    Q = P @ C
    H = np.einsum("nc,ca,cb->nab", P, C, C, optimize=True) - Q[:, :, None] * Q[:, None, :]
    whole = np.einsum("nk,nab,nl->kalb", A, H, A, optimize=True).reshape(k * L, k * L)
    whole += np.diag(np.repeat(held, L))
    inverse = scipy.linalg.inv(whole + firm_ridge(whole)).reshape(k, L, k, L)
    B = np.einsum("nk,kalb,nl->nab", A, inverse, A, optimize=True)
    moved = np.linalg.solve(np.eye(L) - H @ B, (g @ C)[..., None])
    return np.asarray((B @ moved)[..., 0] @ C.T)


def step_of_classes(P: Array, A: Array, g: Array, held: Array) -> Array:
    """The same class by class: b g / (1 - b P (1 - P))."""
    moved = np.empty_like(P)
    for kind in range(P.shape[1]):
        w = P[:, kind] * (1 - P[:, kind])
        curvature = (A * w[:, None]).T @ A + np.diag(held)
        inverse = scipy.linalg.inv(curvature + firm_ridge(curvature))
        b = np.einsum("nk,nk->n", A @ inverse, A)
        moved[:, kind] = b * g[:, kind] / np.maximum(1 - b * w, LEAST_ROOM)
    return moved


def find_factor(outputs: Rows, Y: Rows) -> float:
    """The factor of outputs that makes them logits, by the log-loss."""

    def log_loss(log_factor: float) -> float:
        logits = np.exp(log_factor) * outputs
        return float(np.mean(logsumexp(logits, axis=1) - np.sum(Y * logits, axis=1)))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-3.0, 6.0), method="bounded").x))


def fit_axes(
    offset: Rows, A: Rows, Y: Rows, held: Array, start: Array, steps: int = SOFTMAX_STEPS
) -> Array:
    """Argmin over W of sum loss(offset + A W, Y) + sum held_k |W_k|^2 / 2, by L-BFGS in unknowns
    that are scaled by the bound A'A/2 + held of the curvature.
    """
    scale = 1 / np.sqrt(np.einsum("nk,nk->k", A, A).astype(float) / 2 + held)[:, None]

    def value_and_slope(flat: Array) -> tuple[float, Array]:
        W = scale * flat.reshape(start.shape)
        logits = offset + A @ W.astype(A.dtype)
        top = logits.max(1, keepdims=True)
        P = np.exp(logits - top)
        total = P.sum(1, keepdims=True)
        value = float(np.sum(np.log(total) + top) - np.vdot(Y, logits))
        slope = A.T @ (P / total - Y) + held[:, None] * W
        value += 0.5 * float(np.sum(held[:, None] * W**2))
        return value, (scale * slope).ravel()

    found = minimize(
        value_and_slope,
        (start / scale).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "ftol": 1e-9, "gtol": 1e-6},
    )
    return np.asarray(scale * found.x.reshape(start.shape))


def iterate_held(
    rows: Rows, targets: Rows, owner: NDArray[np.intp], split: NDArray[np.integer], left_out: bool
) -> Iterator[HeldOutClient]:
    """Clients one after the other, those without training samples left out."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(int(owner.max()) + 2))
    for first, last in pairwise(starts):
        mine = order[first:last]
        train = mine[split[mine] == 0]
        if not train.size:
            continue
        X = rows[train]
        U, x = view_axes(X)
        held = train if left_out else mine[split[mine] > 0]
        yield HeldOutClient(
            X,
            targets[train],
            U,
            x,
            rows[held],
            (rows[held] @ X.T) @ U,
            targets[held],
            np.zeros(held.size, bool) if left_out else split[held] == 2,
        )
