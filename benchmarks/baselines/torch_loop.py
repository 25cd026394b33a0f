"""The usual way to train federated heads: PyTorch, one model and one DataLoader per client, clients
one after another.

The structure is that of the code published with most papers on personalized federated learning
(pFedMe's, and the paper's own): a copy of the shared `nn.Linear` for each visit, a `DataLoader` per
client whose iterator continues when the client is drawn again, `torch.optim.SGD`. It is written as
such code is, but without waste: in-place updates, no `.item()` in loops.

    python torch_loop.py DATA.npz SECONDS

prints one line of JSON: median seconds of each job, the rounds they were taken from, and the
accuracies reached. It first tries a round with one thread and with all that it may use, and goes on
with the faster. About SECONDS are spent on rounds; personalising all clients is timed once and
comes on top.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

COHORT, STEPS, BATCH, EPOCHS = 20, 20, 32, 10
ETA, ALPHA, DELTA = (
    0.1,
    0.1,
    1e-3,
)  # steps of the shared and of the personal models, finite difference
PFEDME = {"eta": 0.05, "lr": 0.05, "penalty": 15.0, "decay": 1e-3, "inner_steps": 5}
LEAST, MOST = 3, 20  # rounds timed of each job

Batch = tuple[Tensor, Tensor]
loss_of = nn.CrossEntropyLoss()


class Client:
    """A client's data, with an iterator over shuffled batches that never ends."""

    def __init__(
        self, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
    ) -> None:
        self.size = len(y)
        self.train = DataLoader(
            TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=BATCH, shuffle=True
        )
        self.test = DataLoader(
            TensorDataset(torch.from_numpy(x_test), torch.from_numpy(y_test)),
            batch_size=len(y_test),
        )
        self.batches: Iterator[Batch] = iter(())

    def next(self) -> Batch:
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.train)
            return next(self.batches)


class Moreau(torch.optim.Optimizer):
    """A gradient step on the loss plus (λ/2)‖θ − w‖², with weight decay, as in pFedMe's code."""

    def __init__(
        self, params: Iterator[nn.Parameter], lr: float, penalty: float, decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "penalty": penalty, "decay": decay})

    @torch.no_grad()
    def step(self, centres: list[Tensor]) -> None:
        for group in self.param_groups:
            for p, w in zip(group["params"], centres, strict=True):
                p.grad.add_(p - w, alpha=group["penalty"]).add_(p, alpha=group["decay"])
                p.sub_(p.grad, alpha=group["lr"])


def gradient(model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    x, y = batch
    return torch.autograd.grad(loss_of(model(x), y), list(model.parameters()))


def sgd(model: nn.Module, batches: Iterator[Batch], optimizer: torch.optim.Optimizer) -> None:
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()


def fedavg(client: Client, model: nn.Module) -> None:
    sgd(model, (client.next() for _ in range(STEPS)), torch.optim.SGD(model.parameters(), lr=ETA))


def pfedme(client: Client, model: nn.Module) -> None:
    centres = [p.detach().clone() for p in model.parameters()]
    optimizer = Moreau(model.parameters(), PFEDME["lr"], PFEDME["penalty"], PFEDME["decay"])
    for _ in range(STEPS):
        x, y = client.next()
        for _ in range(PFEDME["inner_steps"]):
            optimizer.zero_grad(set_to_none=True)
            loss_of(model(x), y).backward()
            optimizer.step(centres)
        with torch.no_grad():
            for w, p in zip(centres, model.parameters(), strict=True):
                w.lerp_(p, PFEDME["eta"] * PFEDME["penalty"])
    with torch.no_grad():
        for w, p in zip(centres, model.parameters(), strict=True):
            p.copy_(w)


def maml(client: Client, model: nn.Module, hessian: bool) -> None:
    """Each local step takes two batches, and a third one for the product with the Hessian."""
    params = list(model.parameters())

    @torch.no_grad()
    def place(directions: tuple[Tensor, ...], step: float) -> None:
        for p, w, g in zip(params, start, directions, strict=True):
            torch.add(w, g, alpha=step, out=p.data)

    for _ in range(STEPS):
        start = [p.detach().clone() for p in params]
        place(gradient(model, client.next()), -ALPHA)
        g = gradient(model, client.next())
        if hessian:
            batch = client.next()
            place(g, DELTA)
            above = gradient(model, batch)
            place(g, -DELTA)
            below = gradient(model, batch)
            g = tuple(
                v - (a - b) * (ALPHA / (2 * DELTA)) for v, a, b in zip(g, above, below, strict=True)
            )
        place(g, -ETA)


def one_round(
    shared: nn.Module, clients: list[Client], visit: Callable[[Client, nn.Module], None]
) -> None:
    """Visit a random cohort, and average its models with weights n."""
    cohort = [clients[i] for i in torch.randperm(len(clients))[:COHORT].tolist()]
    total = sum(client.size for client in cohort)
    sums = [torch.zeros_like(p) for p in shared.parameters()]
    for client in cohort:
        model = copy.deepcopy(shared)
        visit(client, model)
        for s, p in zip(sums, model.parameters(), strict=True):
            s.add_(p.detach(), alpha=client.size / total)
    with torch.no_grad():
        for p, s in zip(shared.parameters(), sums, strict=True):
            p.copy_(s)


@torch.no_grad()
def correct(model: nn.Module, client: Client) -> Tensor:
    return sum(((model(x).argmax(1) == y).sum() for x, y in client.test), torch.tensor(0))


def accuracy(counts: list[Tensor], clients: list[Client]) -> float:
    return float(sum(counts)) / sum(len(client.test.dataset) for client in clients)


def test(shared: nn.Module, clients: list[Client]) -> float:
    return accuracy([correct(shared, client) for client in clients], clients)


def personalise(shared: nn.Module, clients: list[Client]) -> float:
    """FTFA: a few epochs of SGD on each client, then its test."""
    counts = []
    for client in clients:
        model = copy.deepcopy(shared)
        optimizer = torch.optim.SGD(model.parameters(), lr=ALPHA)
        for _ in range(EPOCHS):
            sgd(model, client.train, optimizer)
        counts.append(correct(model, client))
    return accuracy(counts, clients)


def timed(work: Callable[[], object], seconds: float, least: int, most: int) -> list[float]:
    times: list[float] = []
    while len(times) < least or (len(times) < most and sum(times) < seconds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def tried(work: Callable[[], object]) -> dict[int, float]:
    """Median seconds with one thread and with all, taken in turns; the faster is left set."""
    times: dict[int, list[float]] = {1: [], torch.get_num_threads(): []}
    for _ in range(LEAST):
        for threads, values in times.items():
            torch.set_num_threads(threads)
            values.extend(timed(work, 0, 1, 1))
    medians = {threads: statistics.median(values) for threads, values in times.items()}
    torch.set_num_threads(min(medians, key=medians.__getitem__))
    return medians


def main(path: str, budget: float) -> None:
    data = np.load(path)
    arrays = (data["x_train"], data["y_train"], data["x_test"], data["y_test"])
    clients = [Client(*parts) for parts in zip(*arrays, strict=True)]
    features, classes = arrays[0].shape[-1], int(data["classes"])
    visits: dict[str, Callable[[Client, nn.Module], None]] = {
        "fedavg": fedavg,
        "maml_fo": lambda client, model: maml(client, model, hessian=False),
        "maml_hf": lambda client, model: maml(client, model, hessian=True),
        "pfedme": pfedme,
    }
    spare = nn.Linear(features, classes)
    one_round(spare, clients, fedavg)  # first calls are slow
    threads = tried(lambda: one_round(spare, clients, fedavg))
    times, reached = {}, {}
    for name, visit in visits.items():
        torch.manual_seed(0)
        shared = nn.Linear(features, classes)
        one_round(copy.deepcopy(shared), clients, visit)
        visited = partial(one_round, shared, clients, visit)
        times[name] = timed(visited, budget / len(visits), LEAST, MOST)
        reached[name] = test(shared, clients)
        if name == "fedavg":
            times["test"] = timed(lambda: test(shared, clients), 0, LEAST, MOST)  # noqa: B023
            start = time.perf_counter()
            reached["ftfa"] = personalise(shared, clients)
            times["ftfa"] = [time.perf_counter() - start]
    line = {
        "tool": f"torch {torch.__version__}",
        "threads": torch.get_num_threads(),
        "tried": {count: round(value, 5) for count, value in threads.items()},
        "clients": len(clients),
        "seconds": {name: round(statistics.median(values), 5) for name, values in times.items()},
        "rounds": {name: len(times[name]) for name in visits},
        "accuracy": {name: round(value, 4) for name, value in reached.items()},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
