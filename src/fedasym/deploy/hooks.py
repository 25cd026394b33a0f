"""The roles that clusters fill for the layers below."""

from fedasym.core.hooks import fill

ROLES = {
    "read executor": ("fedasym.deploy.ray.settings", "runtime_of"),
    "open pool for pieces": ("fedasym.deploy.ray.pieces", "pool_for"),
    "make crew": ("fedasym.deploy.ray.pieces", "Crew"),
    "run trials": ("fedasym.deploy.ray.trials", "trials_on"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
