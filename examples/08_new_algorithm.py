"""A new algorithm: FedProx from `proximal.py`, predicted, trained, tuned and compared like any
other.

FedProx (Li et al., 2020) is FedAvg whose clients are held near the shared model W: a local step
goes along the gradient of loss(w) + penalty/2 |w - W|^2. Strong pulls keep clients from drifting
apart; without one it is FedAvg.

    python examples/08_new_algorithm.py
"""

from proximal import proximal, tuned

import fedasym as fa


def main() -> None:
    print(
        fa.predict(
            fa.Population(radius=1, noise=0.5, aspect=2),
            ["fedavg", proximal, "ftfa", tuned],
            clients=10,
        ),
        end="\n\n",
    )
    clients = fa.datasets.synthetic(
        task="classification", classes=3, dimension=30, aspect=1, clients=20, seed=1
    )
    grid = {"server_step": [0.1, 1], "penalty": [0.01, 0.1, 1]}
    runs = fa.train(
        ["local", "fedavg", "ftfa", proximal, tuned],
        clients,
        rounds=30,
        evaluate_every=0,
        grid=grid,
    )
    print(runs.choose())


if __name__ == "__main__":
    main()
