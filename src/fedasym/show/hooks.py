"""The roles that figures and pages fill for the layers below."""

from fedasym.core.hooks import fill

ROLES = {
    "draw advice": ("fedasym.show.figures.intervals", "draw_advice"),
    "draw results": ("fedasym.show.figures.rounds", "draw_results"),
    "write advice": ("fedasym.show.advice", "write_advice"),
    "draw accuracies": ("fedasym.show.figures.classes", "draw_accuracies"),
    "draw comparison": ("fedasym.show.figures.theory", "draw_table"),
    "draw histories": ("fedasym.show.figures.rounds", "draw_training"),
    "draw diagram of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_diagram"),
    "draw path of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_path"),
    "draw simulated accuracies": ("fedasym.show.figures.classes", "draw_simulated_accuracies"),
    "draw diagram": ("fedasym.show.figures.theory", "draw_diagram"),
    "draw path": ("fedasym.show.figures.theory", "draw_path"),
    "draw simulation": ("fedasym.show.figures.theory", "draw_simulation"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
