"""Train: the algorithms by stochastic gradients on client data, tuned on validation samples, tested
on every client.

python examples/04_train.py [FOLDER]      curves go there, or into out/
"""

import sys
from pathlib import Path

import fedasym as fa

into = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
into.mkdir(exist_ok=True)

clients = fa.datasets.synthetic(
    task="classification", classes=3, dimension=30, aspect=1, clients=20, seed=1
)
grid = {"server_step": [0.01, 0.1], "ridge": [0.01, 0.1]}
runs = fa.train(
    ["local", "fedavg", "ftfa", "rtfa"],
    clients,
    rounds=40,
    evaluate_every=20,
    grid=grid,
    seeds=[0, 1],
)
print(runs)

best = runs.choose()  # by validation samples: test samples choose nothing
print("\naccuracy over all clients' test samples, of what was chosen:")
for name in ("local", "fedavg", "ftfa", "rtfa"):
    chosen = best.select(algorithm=name)
    print(f"  {name:<8} {sum(run.accuracy[-1] for run in chosen) / len(chosen):.1%}")
print(f"\nDrawn to {best.plot(into / 'curves.png')}")

run = best.select(algorithm="rtfa")[0]
print(
    "the first client's own model says",
    run.predict(clients.features[:3], client=clients.clients[0]),
)
