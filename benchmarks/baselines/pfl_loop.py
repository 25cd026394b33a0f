"""Federated averaging with pfl-research, the way its documentation does it: a `FederatedDataset` that
makes a user's `Dataset` when it is sampled, a `SimulatedBackend`, `FederatedAveraging`.

    python pfl_loop.py FOLDER COHORT ROUNDS THREADS
    torchrun --standalone --nproc_per_node=2 pfl_loop.py FOLDER COHORT ROUNDS 1

FOLDER holds x.npy (users, samples, features) and y.npy. Prints one line of JSON: users trained a
second, first round left out, and the accuracy of the shared model on the users' test samples.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

TRAINED, BATCH, ETA = 40, 10, 0.1  # samples of a user for training; one pass over them


class Head(torch.nn.Module):
    """A linear head of classes, with the two methods that pfl asks for."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Weighted]:
        with torch.no_grad():
            right = int((self(x).argmax(1) == y).sum())
        return {"accuracy": Weighted(right, len(y))}


class Clock(TrainingProcessCallback):
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(folder: str, cohort: int, rounds: int, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (what pfl draws from)
    x = np.load(Path(folder) / "x.npy", mmap_mode="r")
    y = np.load(Path(folder) / "y.npy", mmap_mode="r")

    def make_user(user: int) -> Dataset:
        rows = torch.from_numpy(np.array(x[user, :TRAINED]))
        return Dataset((rows, torch.from_numpy(np.array(y[user, :TRAINED]))), user_id=str(user))

    users = FederatedDataset(make_user, get_user_sampler("minimize_reuse", list(range(len(y)))))
    head = Head(x.shape[-1], int(y.max()) + 1)
    model = PyTorchModel(head, torch.optim.SGD, torch.optim.SGD(head.parameters(), lr=1.0))
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10 * rounds,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=ETA, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
    )
    seconds = clock.ends[-1] - clock.ends[0]
    some = torch.from_numpy(np.array(x[::100, TRAINED:])).reshape(-1, x.shape[-1])
    answers = torch.from_numpy(np.array(y[::100, TRAINED:])).reshape(-1)
    accuracy = float((head(some).argmax(1) == answers).float().mean())
    line = {
        "tool": f"pfl {version('pfl')}, torch {torch.__version__}",
        "threads": threads,
        "users": round((len(clock.ends) - 1) * cohort / seconds, 1),
        "accuracy": round(accuracy, 4),
    }
    if os.environ.get("RANK", "0") == "0":  # of several processes
        print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
