"""The same algorithms beyond one process: many machines, and clients whose samples stay with them.

It fills the roles that clusters have for the layers below (`fedasym.core.runtime`).
"""

from fedasym.core.runtime import fill
from fedasym.deploy.ray import Ray

__all__ = ["Ray"]

ROLES = {
    "read executor": ("fedasym.deploy.ray", "read_executor"),
    "open pool for pieces": ("fedasym.deploy.ray.pool", "open_pool"),
    "make crew": ("fedasym.deploy.ray.pool", "Crew"),
    "run trials": ("fedasym.deploy.ray.pool", "run_trials"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
