"""What every part stands on: errors, numbers, files, roles, privacy budgets, the version."""

__version__ = "0.2.0"
