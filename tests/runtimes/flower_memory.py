"""An algorithm of one's own whose clients and server keep something: it travels with an app."""

from typing import Any

import fedasym as fa


class ControlledSteps(fa.algorithms.ServerStage):
    """Clients correct their drift as in SCAFFOLD, and keep the first shared model beside that."""

    def init_client(self, w: Any) -> Any:
        return (0 * w, w)

    def init_server(self, w: Any) -> Any:
        return 0 * w

    def step(self, w: Any, start: Any, gradient: Any, rate: Any, state: Any) -> Any:
        (own, _), common = state
        return w - rate * (gradient(w) - own + common), state

    def finish(self, w: Any, start: Any, state: Any, rate: Any, steps: int) -> tuple[Any, Any]:
        (own, first), common = state
        later = own - common + (start - w) / (steps * rate)
        return (later, first), later - own

    def update(self, w: Any, change: Any, common: Any, sent: Any, portion: float) -> Any:
        return w + change, common + portion * sent


remembering = fa.Algorithm("remembering", ControlledSteps(), fa.algorithms.Descend(0.1))
