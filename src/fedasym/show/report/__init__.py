"""Results of experiments for people who were not there: curves, words, and one page that holds everything."""

from fedasym.show.report.writing import report

__all__ = ["report"]
