"""Experiments: from a TOML file to tuned, repeated, compared runs in a folder that survives."""
