"""Clients on their own: nothing is shared."""

from __future__ import annotations

from fedasym.algorithms.stages import ServerStage


class Nothing(ServerStage):
    """Server stage: the clients share nothing."""
