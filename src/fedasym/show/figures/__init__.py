"""Figures of predictions: drawn with matplotlib, imported only when something is drawn."""
