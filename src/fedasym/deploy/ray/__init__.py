"""Experiments and simulations on a Ray cluster."""
