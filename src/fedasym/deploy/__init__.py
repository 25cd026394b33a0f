"""The same algorithms beyond one process: many machines, and clients whose samples stay with them."""

from fedasym.deploy.ray.settings import Ray

__all__ = ["Ray"]
