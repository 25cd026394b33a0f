"""Predict: which algorithm wins on a population of clients, by how much, and where that changes;
before any training.

python examples/01_predict.py [FOLDER]      figures go there, or into out/
"""

import sys
from pathlib import Path

import fedasym as fa

into = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
into.mkdir(exist_ok=True)

# Clients whose optima lie at distance 1 from a shared one, with noisy labels and two unknowns per
# sample.
world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
table = fa.predict(world)
print(table)
table.plot(into / "predict.png")

print("\nWith ten clients instead of infinitely many, the shared model has an error of its own:")
few = fa.predict(world, clients=10)
for name, limit in table.items():
    print(f"  {name:<12} {limit.loss:.3f} -> {few[name].loss:.3f}")
print(f"The best is {few.best}.")

threshold = fa.noise_threshold(world)
print(f"\nFine-tuning pays while the noise is below {threshold:.4f}; with a ridge it always does.")
diagram = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 100), "aspect": (1.1, 10, 100)})
diagram.plot(into / "phase.png")
print(
    f"Of this range of noise and aspect, fine-tuning wins {(diagram.winner == 'ftfa').mean():.0%}:"
    f" {into / 'phase.png'}"
)
