"""A new algorithm: FedProx as a stage of your own, in one function; trained, tuned and compared like any other.

FedProx (Li et al., 2020) is FedAvg whose clients are held near the shared model W: a local step goes along the gradient of
loss(w) + ridge/2 |w - W|^2. Strong pulls keep clients from drifting apart; without one it is FedAvg.

    python examples/08_new_algorithm.py
"""

import fedasym as fa
from fedasym.algorithms import Interpolate, Keep, Own


def proximal(w, start, gradient, *, server_step, ridge):
    """One local step: w - eta (g(w) + lambda (w - W))."""
    return w - server_step * (gradient(w) + ridge * (w - start))


fedprox = fa.Algorithm("fedprox", Own(proximal), Keep())
tuned = fa.Algorithm("fedprox_tuned", Own(proximal), Interpolate())


def main() -> None:
    clients = fa.datasets.synthetic(task="classification", classes=3, dimension=30, aspect=1, clients=20, seed=1)
    grid = {"server_step": [0.1, 1], "ridge": [0.01, 0.1, 1]}
    runs = fa.train(["local", "fedavg", "ftfa", fedprox, tuned], clients, rounds=30, evaluate_every=0, grid=grid)
    print(runs.best())


if __name__ == "__main__":
    main()
