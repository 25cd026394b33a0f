"""What people look at: figures, pages, the explorer, which fill roles for the layers below."""

from fedasym.core.runtime import fill

ROLES = {
    "draw advice": ("fedasym.show.figures.classes", "draw_advice"),
    "draw class counts": ("fedasym.show.figures.classes", "draw_class_counts"),
    "draw what if": ("fedasym.show.figures.classes", "draw_what_if"),
    "draw results": ("fedasym.show.figures.rounds", "draw_results"),
    "write advice": ("fedasym.show.advice", "write_advice"),
    "draw comparison of accuracies": ("fedasym.show.figures.classes", "draw_accuracies"),
    "draw comparison of losses": ("fedasym.show.figures.theory", "draw_table"),
    "draw decomposition": ("fedasym.show.figures.rounds", "draw_decomposition"),
    "draw histories": ("fedasym.show.figures.rounds", "draw_training"),
    "draw diagram of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_diagram"),
    "draw path of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_path"),
    "draw simulation of accuracies": ("fedasym.show.figures.classes", "draw_simulated_accuracies"),
    "draw diagram of losses": ("fedasym.show.figures.theory", "draw_diagram"),
    "draw path of losses": ("fedasym.show.figures.theory", "draw_path"),
    "draw rounds": ("fedasym.show.figures.theory", "draw_rounds"),
    "draw privacy costs": ("fedasym.show.figures.theory", "draw_privacy_costs"),
    "draw simulation of losses": ("fedasym.show.figures.theory", "draw_simulation"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
