"""Simulate: the formulas are limits of large dimension. How near are clients that are drawn, at
sizes one has?

python examples/02_simulate.py
"""

import fedasym as fa

world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
predicted = fa.predict(world, clients=10)
apart = {}
for dimension in (20, 80, 320):
    drawn = fa.simulate(world, dimension=dimension, clients=10, trials=4, seed=1)
    apart[dimension] = sum(
        abs(row.loss / predicted[name].loss - 1) for name, row in drawn.items()
    ) / len(drawn)
    print(
        f"dimension {dimension:>4}: simulated losses are {apart[dimension]:.2%} from predicted"
        f" ones; {drawn.best} wins"
    )

print()
print(drawn)
