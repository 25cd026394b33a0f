"""Bad input to `linear.fit`, and bad questions to a fit, get one sentence."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Average, Flow
from fedasym.exact import estimators as linear

from .clients import draw


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"X": [np.ones((2, 3)), np.ones((0, 3))], "y": [np.ones(2), np.ones(0)]}, r"client 1: X has shape \(0, 3\)"),
        ({"X": [np.ones((2, 3)), np.full((2, 3), np.nan)]}, "client 1: X or y holds NaN"),
        ({"y": [np.ones(2), np.array([1, np.inf])]}, "client 1: X or y holds NaN or infinity"),
        ({"y": [np.ones(2), np.ones(3)]}, "client 1: X has 2 rows and y has 3"),
        ({"y": [np.ones(2)]}, "client 1 has rows in X and none in y"),
        ({"y": [np.ones(2)] * 3}, "X has 2 clients while y or clients has more"),
        ({"clients": ["a", "b", "c"]}, "X has 2 clients while y or clients has more"),
        ({"clients": ["a"]}, "more clients in X than the 1 names"),
        ({"clients": ["a", "a"]}, "client 'a' is named twice"),
        ({"clients": ["a", None]}, "entry 1 of clients is None"),
        ({"clients": "ab"}, "clients is 'ab': give a list"),
        ({"clients": [["a"], ["b"]]}, r"label of a client is \['a'\]"),
        ({"X": [np.ones((2, 3)), np.ones((2, 4))]}, "client 1 has 4 features and the clients before it have 3"),
        ({"X": iter([]), "y": []}, "no clients"),
        ({"X": np.ones((2, 3)), "y": [1, 2], "clients": ["a"]}, "1 labels for 2 rows"),
        ({"X": np.ones((2, 3)), "y": [1, 2], "clients": [1.0, np.nan]}, "entry 1 of clients is nan"),
        ({"X": np.ones((2, 3)), "y": [1, 2, 3]}, "all rows together: X has 2 rows and y has 3"),
        ({"X": [[[1, 2], [3]]], "y": [[1, 2]]}, "client 0: X and y must be arrays of numbers"),
        ({"y": None}, "y is None: give one array of labels per client"),
        ({"X": np.ones(3), "y": [1, 2, 3]}, r"X has shape \(3,\)"),
        ({"X": np.ones((2, 3)), "y": ["a", "b"]}, "arrays of numbers"),
        ({"weights": [1.0, 0.0], "clients": ["a", "b"]}, "weight of client 'b' is 0: it must be above 0"),
        ({"weights": [1.5, -0.5]}, "weight of client 1 is -0.5"),
        ({"weights": [0.5, np.nan]}, "weight of client 1 is nan"),
        ({"weights": [0.5, 0.6]}, "weights sum to 1.1: they must sum to 1"),
        ({"weights": [1.0]}, r"weights has shape \(1,\): give one number for each of the 2 clients"),
        ({"weights": "size"}, "weights is 'size': give 'samples', 'uniform'"),
        ({"weights": {0: 0.5}}, "weights has no entry for client 1"),
        ({"weights": {0: 0.5, 1: 0.3, 2: 0.2}}, "weights has entries for clients without samples"),
        ({"ridge": [0.5, -1]}, "ridge of client 1 is -1: it must be at least 0"),
        ({"ridge": np.nan}, "ridge of client 0 is nan"),
        ({"ridge": "best"}, "ridge is 'best': give 'optimal', 'cv'"),
        ({"ridge": ["a", "b"]}, "give one number per client"),
        ({"ridge": np.ones((3, 3))}, r"ridge has shape \(3, 3\): give numbers of shape \(1 or 2, 1 or 3 unknowns\)"),
        ({"ridge": -np.ones((2, 1))}, "ridge holds -1: every ridge must be at least 0"),
        ({"ridge": np.zeros((1, 3)), "algorithm": "pfedme"}, "ridge holds 0: pfedme needs ridges above 0"),
        ({"X": [np.eye(3)[:1], np.eye(3)[1:2]], "y": [[1], [2]], "algorithm": "rtfa_directed"}, "power needs more samples"),
        ({"ridge": None, "X": [np.eye(3)], "y": [range(3)], "algorithm": "pfedme_ridge"}, "give shared_ridge as a number"),
        ({"algorithm": "pfedme", "ridge": {0: 1, 1: 0}}, "ridge of client 1 is 0: pfedme needs one above 0"),
        ({"algorithm": fa.Algorithm("odd", Average(), Flow(np.inf))}, "odd flows for time inf: it must be finite"),
        ({"algorithm": "rfta"}, "unknown algorithm 'rfta': did you mean rtfa"),
        ({"algorithm": None}, "unknown algorithm None"),
        ({"algorithm": "maml", "maml_step": -1}, "maml_step is -1"),
        ({"X": [np.eye(3)[:1], np.eye(3)[1:]], "y": [[1], [1, 2]], "ridge": None}, "have 3 for 3: give ridge as a number"),
        ({"X": np.ones((5, 2)), "y": range(5), "ridge": "optimal"}, "needs two clients .* only 0: give ridge as a number"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(change, says):
    good = {"algorithm": "rtfa", "X": [np.ones((2, 3))] * 2, "y": [np.ones(2)] * 2, "ridge": 0.5}
    with pytest.raises(fa.InvalidInput, match=says) as caught:
        linear.fit(**(good | change), intercept=False)
    assert "\n" not in str(caught.value)


def test_bad_questions_to_a_fit_get_one_sentence():
    X, y = draw([3, 4], 2)
    fit, alone = (
        linear.fit("rtfa", X, y, ridge=1, intercept=False),
        linear.fit("local", X, y, intercept=False),
    )
    with pytest.raises(fa.InvalidInput, match="2 labels for 3 rows"):
        fit.predict(X[0], client=[0, 1])
    with pytest.raises(fa.InvalidInput, match=r"X has shape \(3, 1\)"):
        fit.predict(X[0][:, :1])
    with pytest.raises(fa.InvalidInput, match="X holds NaN"):
        fit.predict([[1, np.nan]])
    with pytest.raises(
        fa.InvalidInput,
        match="local shares nothing, so client None, who was not in the fit, has no model",
    ):
        alone.predict(X[0])


def test_more_clients_than_memory_names_the_client_that_does_not_fit(monkeypatch):
    X, y = np.ones((4, 5, 3)), np.ones((4, 5))
    monkeypatch.setattr(
        "fedasym.exact.clients.physical_memory", lambda: 2.5 * (3 * 3 + 3) * 8 / 0.8
    )
    with pytest.raises(fa.InvalidInput, match=r"client 'c' is one too many .*: give fewer"):
        linear.fit("fedavg", list(X), list(y), clients=list("abcd"), intercept=False)
    linear.fit("fedavg", list(X[:2]), list(y[:2]), clients=list("ab"), intercept=False)
