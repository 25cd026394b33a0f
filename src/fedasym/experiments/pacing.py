"""How far a run has come, and about how long the rest will take, from the pieces that are finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedasym.core.hooks import Notice, Progress
from fedasym.experiments.wording import duration


@dataclass
class Pace:
    """Work in units that are proportional to time within a kind of piece; kinds that have not finished any go by the others.

    >>> pace = Pace({"a": ("tuning", 10.0), "b": ("tuning", 30.0)})
    >>> pace.finished("a", seconds=5.0)
    >>> pace.left(), pace.share({"b": 0.5})
    (15.0, 0.625)
    """

    planned: dict[str, tuple[str, float]]  # kind and work, by piece
    tell: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # of finished pieces
    hands: int = 1  # pieces that are computed side by side

    def finished(self, key: str, seconds: float) -> None:
        """One more piece is there."""
        self.seconds[key] = seconds

    def left(self, begun: Mapping[str, float] | None = None) -> float | None:
        """Seconds to go, None while nothing is known; of pieces that are begun, a share is done."""
        spent, done = dict[str, float](), dict[str, float]()
        for key, seconds in self.seconds.items():
            if key in self.planned:
                kind, work = self.planned[key]
                spent[kind], done[kind] = spent.get(kind, 0) + seconds, done.get(kind, 0) + work
        if not done:
            return None
        overall = sum(spent.values()) / sum(done.values())
        rest = 0.0
        for key, (kind, work) in self.planned.items():
            if key not in self.seconds:
                rate = spent[kind] / done[kind] if kind in done else overall
                rest += rate * work * (1 - (begun or {}).get(key, 0.0))
        return rest / self.hands

    def share(self, begun: Mapping[str, float] | None = None) -> float:
        """The share of the work that is done."""
        total = sum(work for _, work in self.planned.values())
        done = sum(work for key, (_, work) in self.planned.items() if key in self.seconds)
        done += sum(work * (begun or {}).get(key, 0.0) for key, (_, work) in self.planned.items() if key not in self.seconds)
        return done / total if total else 1.0

    def say(self, text: str, begun: Mapping[str, float] | None = None) -> None:
        """Tell how far it is."""
        if self.tell is None:
            return
        count = sum(key in self.seconds for key in self.planned)
        left = self.left(begun)
        rest = "" if left is None else f" · about {duration(left)} left"
        words = f"{count} of {len(self.planned)} pieces{rest} · {text}"
        self.tell(min(self.share(begun), 0.999), Notice(words) if isinstance(text, Notice) else words)
