"""Federated averaging with fedjax: its own algorithm, sampler, data and for-each-client backend.

    python fedjax_loop.py DATA.npz SECONDS [jit | pmap]

prints one line of JSON: median seconds of a round after compilation, and the accuracy reached.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import numpy as np

jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 uses the name that newer jax removed
COHORT, STEPS, BATCH, ETA = 20, 20, 32, 0.1
LEAST, MOST = 5, 20  # rounds timed


def linear(features: int, classes: int) -> fedjax.Model:
    network = hk.transform(lambda batch: hk.Linear(classes)(batch["x"]))
    example = {"x": np.zeros((1, features), np.float32), "y": np.zeros(1, np.int32)}
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=network,
        sample_batch=example,
        train_loss=lambda batch, scores: fedjax.metrics.unreduced_cross_entropy_loss(
            batch["y"], scores
        ),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
    )


def clients(x: np.ndarray, y: np.ndarray) -> fedjax.InMemoryFederatedData:
    return fedjax.InMemoryFederatedData(
        {f"{i:04}": {"x": x[i], "y": y[i].astype(np.int32)} for i in range(len(y))}
    )


def main(path: str, budget: float, backend: str) -> None:
    data = np.load(path)
    train, test = clients(data["x_train"], data["y_train"]), clients(data["x_test"], data["y_test"])
    features, classes = data["x_train"].shape[-1], int(data["classes"])
    model = linear(features, classes)
    fedjax.set_for_each_client_backend(backend)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(ETA),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        # without num_epochs=None, fedjax would stop after one pass
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=BATCH, num_epochs=None, num_steps=STEPS
        ),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(train, COHORT, seed=0)
    w, b = jax.random.split(jax.random.PRNGKey(0))
    bound = (
        features**-0.5
        # the first head as PyTorch and fedasym draw it; haiku's own is larger, and trains more
        # slowly
    )
    head = {
        "w": jax.random.uniform(w, (features, classes), minval=-bound, maxval=bound),
        "b": jax.random.uniform(b, (classes,), minval=-bound, maxval=bound),
    }
    start_state = algorithm.init({"linear": head})
    for _ in range(2):
        jax.block_until_ready(algorithm.apply(start_state, sampler.sample())[0].params)

    state, times = start_state, []
    while len(times) < LEAST or (len(times) < MOST and sum(times) < budget):
        start = time.perf_counter()
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        times.append(time.perf_counter() - start)

    batches = fedjax.padded_batch_federated_data(test, fedjax.PaddedBatchHParams(batch_size=512))
    accuracy = float(fedjax.evaluate_model(model, state.params, batches)["accuracy"])
    line = {
        "tool": f"fedjax {version('fedjax')}, jax {jax.__version__}",
        "backend": backend,
        "devices": jax.local_device_count(),
        "seconds": {"fedavg": round(statistics.median(times), 5)},
        "rounds": {"fedavg": len(times)},
        "accuracy": {"fedavg": round(accuracy, 4)},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "jit")
