"""The roles that figures and pages fill for the layers below."""

from fedasym.core.hooks import fill

ROLES = {
    "draw advice": ("fedasym.show.figures.advice", "draw_advice"),
    "draw results": ("fedasym.show.figures.experiments", "draw_results"),
    "write advice": ("fedasym.show.report.advice", "write"),
    "draw comparison of accuracies": ("fedasym.show.figures.classes", "draw_accuracies"),
    "draw comparison of losses": ("fedasym.show.figures.tables", "draw_table"),
    "draw histories": ("fedasym.show.figures.training", "draw_training"),
    "draw diagram of accuracies": ("fedasym.show.figures.classes", "draw_diagram"),
    "draw path of accuracies": ("fedasym.show.figures.classes", "draw_path"),
    "draw simulation of accuracies": ("fedasym.show.figures.classes", "draw_simulated"),
    "draw diagram of losses": ("fedasym.show.figures.diagrams", "draw_diagram"),
    "draw path of losses": ("fedasym.show.figures.paths", "draw_path"),
    "draw simulation of losses": ("fedasym.show.figures.simulations", "draw_simulation"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
