"""The roles that figures and pages fill for the layers below."""

from fedasym.core.hooks import fill

ROLES = {
    "draw advice": ("fedasym.show.figures.advice", "draw_advice"),
    "draw results": ("fedasym.show.figures.experiments", "draw_results"),
    "write advice": ("fedasym.show.report.advice", "write"),
    "draw accuracies": ("fedasym.show.figures.classes", "draw_accuracies"),
    "draw comparison": ("fedasym.show.figures.tables", "draw_table"),
    "draw histories": ("fedasym.show.figures.training", "draw_training"),
    "draw diagram of accuracies": ("fedasym.show.figures.classes", "draw_diagram"),
    "draw path of accuracies": ("fedasym.show.figures.classes", "draw_path"),
    "draw simulated accuracies": ("fedasym.show.figures.classes", "draw_simulated"),
    "draw diagram": ("fedasym.show.figures.diagrams", "draw_diagram"),
    "draw path": ("fedasym.show.figures.paths", "draw_path"),
    "draw rounds": ("fedasym.show.figures.communication", "draw_rounds"),
    "draw simulation": ("fedasym.show.figures.simulations", "draw_simulation"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
