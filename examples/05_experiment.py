"""Experiment: every algorithm tuned, repeated over seeds and splits, and compared with paired
tests; interrupted, it goes on.

    python examples/05_experiment.py [FOLDER]      the run and its page go there, or into out/

The same from a shell, at full size: fedasym run examples/demo.toml --into out/demo, then fedasym
report out/demo.
"""

import sys
from pathlib import Path

import fedasym as fa

into = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
into.mkdir(exist_ok=True)

demo = fa.Experiment.from_toml(Path(__file__).with_name("demo.toml"))
small = fa.Experiment(
    name="small",
    data=demo.data,
    algorithms=["local", "fedavg", "ftfa"],
    grid={"server_step": [0.1, 1], "local_step": [0.1]},
    settings={"rounds": 20, "evaluate_every": 10},
    trials={"seeds": 3, "splits": 0},
)
print(small)

results = fa.run(small, into=into / "small")
print(results)
print(f"\nThe page: {fa.report(results, into / 'small.html')}")
