"""The same algorithms solved exactly on the data of finitely many clients: the linear lens.

>>> import fedasym as fa
>>> fit = fa.linear.fit(
...     "ftfa", [[[1.0, 0.0]], [[0.0, 2.0]]], [[3.0], [4.0]], clients=["a", "b"], intercept=False
... )
>>> fit.shared.tolist()
[3.0, 2.0]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedasym.exact.estimators import LinearFit, fit
    from fedasym.exact.outputs import GramSums, one_hot
    from fedasym.exact.regressor import PersonalizedRegressor

_HOME = {
    "GramSums": "fedasym.exact.outputs",
    "LinearFit": "fedasym.exact.estimators",
    "PersonalizedRegressor": "fedasym.exact.regressor",
    "fit": "fedasym.exact.estimators",
    "one_hot": "fedasym.exact.outputs",
}

__all__ = ["GramSums", "LinearFit", "PersonalizedRegressor", "fit", "one_hot"]


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use: scikit-learn only for its estimator."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(
        f"module 'fedasym.exact' has no attribute {name!r}; it has {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
