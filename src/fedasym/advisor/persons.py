"""Client by client: who gains from a model of its own, who is predicted to lose by it.

A client's own samples give a noisy estimate of its gain (GCV without ridge change against with); the model gives the gain
of a client of its size. The two are weighed by how much clients really differ beyond the noise of the estimates.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fedasym.advisor.components import Components
from fedasym.advisor.curves import NONE
from fedasym.advisor.summaries import Summary


@dataclass(frozen=True)
class ClientAdvice:
    """One client: its ridge and how much lower its test error is predicted to be with its own model than with the shared one.

    gain: in units of squared labels, with its 95% interval; below 0 the client is predicted to lose.
    """

    client: Hashable
    samples: int
    aspect: float
    ridge: float
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """gains, loses, or unclear where the interval holds 0."""
        return "gains" if self.low > 0 else "loses" if self.high < 0 else "unclear"


def persons(
    summaries: Sequence[Summary], about: Components, ratio: float, kurtosis: float, error: float
) -> tuple[ClientAdvice, ...]:
    """Every client's gain with the ridge ratio/n.

    about: variances along axes, of residuals about the others' model. error: of the mean gain over clients, which all share.
    """
    model, own, error2 = np.array([gains(each, about, ratio, kurtosis) for each in summaries]).T
    off = own - model
    weight = 1 / np.maximum(error2 / max(error2.max(), 1e-300), 1e-12)
    between = max(float((weight**2 * (off**2 - error2)).sum() / (weight**2).sum()), 0.0)
    trust = between / (between + error2) if between else np.zeros_like(error2)
    gain, spread = model + trust * off, 1.96 * np.sqrt(trust * error2 + error**2)
    return tuple(
        ClientAdvice(
            each.name,
            each.samples,
            each.aspect,
            ratio / each.samples,
            float(gain[i]),
            float(gain[i] - spread[i]),
            float(gain[i] + spread[i]),
        )
        for i, each in enumerate(summaries)
    )


def gains(client: Summary, about: Components, ratio: float, kurtosis: float) -> tuple[float, float, float]:
    """GCV(no change) - GCV(ratio) as the model expects it, as the client's samples say, and the variance of the latter."""
    n, x = client.samples, client.power
    ratio = max(ratio, NONE * max(float(x.mean()), 1e-300))
    k = 1 / (1 + x / ratio) if np.isfinite(ratio) else np.ones_like(x)
    room = (n - k.size + k.sum()) / n
    a, a0 = (1 - k**2 / room**2) / n, (1 - 1 / room**2) / n
    v = about.noise2 + about.spread2 * x / client.dimension
    beyond = (n - x.size) * about.noise2
    variance = 2 * (1 + max(kurtosis, 0) / 2) * (float(((a * v) ** 2).sum()) + a0**2 * beyond * about.noise2)
    return float(a @ v + a0 * beyond), float(a @ client.residual + a0 * client.rest), variance
