"""What every part stands on: errors, numbers, files, roles, privacy budgets; and the number of this
release.
"""

__version__ = "0.1.0"
