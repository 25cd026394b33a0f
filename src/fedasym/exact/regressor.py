"""The linear lens as a scikit-learn estimator: groups are clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm
from fedasym.core.numbers import Array, flag
from fedasym.exact.clients import PerClient, labels_of
from fedasym.exact.estimators import LinearFit, fit

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
except ImportError as missing:
    raise ImportError(
        "PersonalizedRegressor needs scikit-learn: pip install 'fedasym[sklearn]'"
    ) from missing


class PersonalizedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Personalised linear regressions, one per group, by any algorithm of `fedasym.linear.fit`.

    Without groups all samples are one client's. A group that was not in the fit is predicted with
    the shared model. The intercept is one more unknown, shared and personalised like the others. To
    choose parameters over groups, turn on scikit-learn's metadata routing and ask for them:
    `set_fit_request(groups=True)`.

    coef_, intercept_: the shared model. personal_: each group's coefficients, the intercept last.
    linear_fit_: the fit.

    >>> import numpy as np, fedasym as fa
    >>> X, groups = np.array([[0.0], [1.0], [0.0], [1.0]]), ["a", "a", "b", "b"]
    >>> model = fa.linear.PersonalizedRegressor("ftfa").fit(X, [0.0, 1.0, 0.0, 3.0], groups=groups)
    >>> model.predict([[2.0], [2.0], [2.0]], groups=["a", "b", "new"]).round(6)
    array([2., 6., 4.])
    """

    def __init__(
        self,
        algorithm: str | Algorithm = "rtfa",
        *,
        ridge: str | float | PerClient = "cv",
        weights: str | PerClient = "samples",
        maml_step: float = 0.1,
        fit_intercept: bool = True,
    ) -> None:
        self.algorithm = algorithm
        self.ridge = ridge
        self.weights = weights
        self.maml_step = maml_step
        self.fit_intercept = fit_intercept

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: Iterable[Any] | None = None
    ) -> PersonalizedRegressor:
        """Fit all models to samples and their groups."""
        rows, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        check_consistent_length(rows, groups)
        flag("fit_intercept", self.fit_intercept)
        self.linear_fit_: LinearFit = fit(
            self.algorithm,
            rows,
            values,
            groups,
            ridge=self.ridge,
            weights=self.weights,
            maml_step=self.maml_step,
            intercept=self.fit_intercept,
        )
        self.personal_ = self.linear_fit_.personal
        d = self.n_features_in_
        self.coef_ = self.linear_fit_.shared[:d]
        self.intercept_ = float(self.linear_fit_.shared[d]) if self.fit_intercept else 0.0
        return self

    def predict(self, X: ArrayLike, groups: Iterable[Any] | None = None) -> Array:
        """Labels of samples of these groups."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        if groups is None:
            # Fitted without groups there is one client, and whoever asks is that one.
            return self.linear_fit_.predict(rows, client=0 if list(self.personal_) == [0] else None)
        return self.linear_fit_.predict(rows, client=labels_of(groups))

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: Iterable[Any] | None = None,
    ) -> float:
        """R^2 of the predictions for these groups."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))
