"""Your data: client data from a table or from arrays, checked at the door; then a personal model
for each client, exactly.

python examples/03_your_data.py [FILE.csv]      columns: client, label, and features; without a file
one is drawn
"""

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

import fedasym as fa


def drawn(file: Path) -> Path:
    """Thirty shops whose sales depend on price and weather, each in its own way."""
    rng = np.random.default_rng(0)
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["client", "price", "sun", "label"])
        for shop in range(30):
            slopes = np.array([-2, 1]) + 0.5 * rng.standard_normal(2)
            for price, sun in rng.standard_normal((10, 2)):
                rows.writerow(
                    [
                        f"shop {shop}",
                        price,
                        sun,
                        slopes @ [price, sun] + 1.5 * rng.standard_normal(),
                    ]
                )
    return file


with tempfile.TemporaryDirectory() as folder:
    data = fa.datasets.read(
        sys.argv[1] if len(sys.argv) > 1 else drawn(Path(folder, "shops.csv")), task="regression"
    )
print(data)

# Its arrays: rows of features, their labels, whose they are. A federation is made of the same
# three.
X, y, whose = data.features, data.labels[:, 0], np.array(data.clients)[data.owner]
assert fa.Federation.from_arrays(X, y, whose).clients == data.clients

train, errors = data.split == 0, {}
for name in ("local", "fedavg", "ftfa", "rtfa", "pfedme"):
    fit = fa.linear.fit(name, X[train], y[train], clients=whose[train])
    errors[name] = float(np.mean((fit.predict(X[~train], client=whose[~train]) - y[~train]) ** 2))
print("\nmean squared error on samples that were held out:")
print("\n".join(f"  {name:<8} {error:.3f}" for name, error in errors.items()))
