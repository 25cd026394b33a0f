"""Rounds of many federations at once, in the plain form of training on whole batches.

After K full-batch steps a client has moved by c_i - P_i theta, with P_i = f(S_i) and c_i = q(S_i) X_i'y_i/n_i:
two arrays say all that a client will ever send, and many sequences of cohorts share them. That `fa.train`
does the same, with its own cohorts and noise, is checked in `rounds_training.py` and `rounds_private.py`
on the first federation of every setting, to eight digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fedasym as fa
from fedasym.training.plans import PrivateRounds, cohorts, draw_noise, draw_private_cohorts

SAMPLES = 80  # training samples of a client


@dataclass(frozen=True)
class Moves:
    """What clients send from theta: c_i - P_i theta; where theta_0 is, and the covariance."""

    P: np.ndarray  # (m, d, d)
    c: np.ndarray  # (m, d)
    optimum: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, world: fa.Population, clients: fa.Federation, steps: int, rate: float) -> Moves:
        """Of all clients of a drawn federation."""
        d = clients.dimension
        P, c = np.empty((len(clients.clients), d, d)), np.empty((len(clients.clients), d))
        for i, name in enumerate(clients.clients):
            rows = clients.rows(name, "train")
            X, y = clients.features[rows].astype(float), clients.labels[rows].reshape(-1)
            u, s, v = np.linalg.svd(X / np.sqrt(len(X)), full_matrices=False)
            f = 1 - (1 - rate * s**2) ** steps
            P[i] = (v.T * f) @ v
            c[i] = (v.T * (f / s)) @ (u.T @ (y / np.sqrt(len(X))))
        scale = np.repeat(world.spectrum.values, round(d / world.spectrum.values.size))
        return cls(P, c, clients.truth["shared"], scale)

    def excess(self, theta: np.ndarray) -> np.ndarray:
        """||theta - theta_0||^2 in the covariance's norm."""
        return np.asarray((theta - self.optimum) ** 2 @ self.scale)


def draw_federation(world: fa.Population, clients: int, seed: int, samples: int) -> fa.Federation:
    """Clients of a population, `samples` training samples each."""
    d = round(samples * float(world.aspect))
    return fa.datasets.synthetic(population=world, clients=clients, dimension=d, seed=seed)


def draw_masks(
    rng: np.random.Generator, rounds: int, runs: int, clients: int, cohort: int, poisson: bool
) -> np.ndarray:
    """Who takes part, (rounds, runs, clients)."""
    chance = rng.random((rounds, runs, clients))
    if poisson:
        return chance < cohort / clients
    return chance <= np.sort(chance, axis=-1)[..., cohort - 1 : cohort]


def follow_rounds(
    moves: Moves,
    masks: np.ndarray,
    cohort: int,
    private: PrivateRounds | None = None,
    noise: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Models after every round (rounds, runs, d), mean lengths of moves and clips (rounds, runs).

    noise: standard normal numbers, for sums of moves (rounds, runs, d) and for counts (rounds, runs).
    """
    rounds, runs, m = masks.shape
    theta = np.zeros((runs, moves.c.shape[1]))
    clip = np.full(runs, np.inf if private is None else private.clip)
    models, lengths, clips = [], [], []
    for t in range(rounds):
        change, total, short = np.zeros_like(theta), np.zeros(runs), np.zeros(runs)
        for i in range(m):
            rows = np.flatnonzero(masks[t, :, i])
            if rows.size:
                u = moves.c[i] - theta[rows] @ moves.P[i]
                length = np.sqrt((u**2).sum(1))
                change[rows] += u * np.minimum(1, clip[rows] / length)[:, None]
                total[rows] += length
                short[rows] += length <= clip[rows]
        sent = masks[t].sum(1)
        clips.append(clip)
        if private is not None and noise is not None:
            change += private.multiplier * clip[:, None] * noise[0][t]
            clip = private.adapt(clip, short, sent, noise[1][t])
        theta = theta + change / cohort
        models.append(theta)
        lengths.append(total / np.maximum(sent, 1))
    return np.array(models), np.array(lengths), np.array(clips)


def follow_training(
    moves: Moves, clients: fa.Federation, rounds: int, cohort: int, private: PrivateRounds | None
) -> np.ndarray:
    """The model after all rounds of `fa.train` with seed 0: its own cohorts, its own noise."""
    names = clients.identities
    drawn = (
        cohorts(0, names, rounds, cohort)
        if private is None
        else draw_private_cohorts(private, 0, names, rounds)
    )
    masks = np.zeros((rounds, 1, len(names)), dtype=bool)
    for t, chosen in enumerate(drawn):
        masks[t, 0, chosen[chosen >= 0]] = True
    noise = None
    if private is not None:
        each = [draw_noise(0, t, (clients.dimension, 1)) for t in range(rounds)]
        noise = (np.array([one[0].T for one in each]), np.array([[one[1]] for one in each]))
    return np.asarray(follow_rounds(moves, masks, cohort, private, noise)[0][-1, 0])


def check_training(found: np.ndarray, run: fa.History) -> None:
    """That training and its plain form are the same."""
    off = np.abs(found - run.shared[:, 0]).max() / np.abs(found).max()
    if not off < 1e-8:
        raise SystemExit(f"fa.train and its plain form differ by {off:.1e}")
