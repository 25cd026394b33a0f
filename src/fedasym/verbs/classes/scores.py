"""Two classes: accuracy, log-loss, Brier score and calibration slope of a method's state."""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.results.accuracy import Accuracy
from fedasym.theory.classes import metrics, optimum
from fedasym.theory.classes.metrics import LEVEL, State, nodes_for, outer_step
from fedasym.theory.classes.metrics import half_normal_nodes as half_normal
from fedasym.theory.classes.metrics import smooth_sigmoid as smoothed
from fedasym.verbs.classes.binary import Answer


def scored(found: Answer, eps: Array) -> Accuracy:
    """All scores of a state, along the axis of worlds."""
    right = metrics.accuracy(found.state, eps)
    if not found.probable:
        return Accuracy(right, ridge=found.ridge)
    if found.optimal:
        loss, brier = posterior(found.state, eps)
        return Accuracy(right, loss, brier, np.ones_like(right))
    state = found.state
    if found.endless is not None:  # only a direction: at the threshold of separability its length, 1/margin, has no bound
        state = State(*(np.where(found.endless, 1.0, part) for part in (state.T, state.Q, state.rho, state.rest)))
    loss, brier = (np.asarray(metric(state, eps)) for metric in (metrics.log_loss, metrics.brier))
    slope = np.where(state.Q > 0, metrics.calibration(state, eps), np.nan)
    if found.endless is not None:  # as the length grows without end
        loss, slope = np.where(found.endless, np.inf, loss), np.where(found.endless, 0.0, slope)
        brier = np.where(found.endless, 1 - right, brier)
    return Accuracy(right, loss, brier, slope, found.ridge, found.step, found.time)


def posterior(state: State, eps: Array) -> tuple[Array, Array]:
    """Log-loss and Brier score of the posterior probability: E[-P log P - (1-P) log(1-P)] and E[P (1-P)], P = E[p(s) | w]."""
    loss = optimum.bayes_log_loss(optimum.Bayes(state, state.Q), eps)
    brier = np.empty(state.Q.size)
    sd, tau = np.sqrt(state.Q), np.sqrt(state.rest)
    for i, count in enumerate(nodes_for(outer_step(sd, sd, tau, LEVEL))):
        z, weight = half_normal(int(count))
        low = smoothed(-sd[i] * z[None], tau[i : i + 1])[0][0]
        low = eps[i] + (1 - 2 * eps[i]) * low
        brier[i] = 2 * (low * (1 - low)) @ weight
    return loss, brier
