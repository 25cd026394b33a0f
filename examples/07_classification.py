"""Classification: accuracy predicted before training, beside models that are fitted to drawn
clients.

python examples/07_classification.py
"""

import fedasym as fa

clients = fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2)
table = fa.predict(clients)
print(table)

print("\nfitted to drawn clients, with 100 features each:")
drawn = fa.simulate(clients, dimension=100, trials=3, algorithms=["fedavg", "ftfa", "rtfa"], seed=1)
for name in ("fedavg", "ftfa", "rtfa"):
    print(f"  {name:<8} predicted {table[name].accuracy:.3f}, simulated {drawn[name].accuracy:.3f}")

print(f"\nWhy fine-tuning to convergence forgets what was shared: {fa.separability(clients)}.")
