"""Advise: from clients' data to the algorithm that should win, how sure that is, and the experiment
that could refute it.

python examples/06_advise.py
"""

import fedasym as fa

# Forty clients of a known world: what the advisor says can be held against the truth.
truth = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
data = fa.datasets.synthetic(truth, clients=40, dimension=60, seed=1)
advice = fa.advise(data)
print(advice)

print("\nestimated beside true:")
for name in ("radius", "noise"):
    found = getattr(advice.population, name)
    print(
        f"  {name:<7} {found.value:.3f}, 95% within {found.low:.3f} to {found.high:.3f}; true:"
        f" {getattr(truth, name)}"
    )
