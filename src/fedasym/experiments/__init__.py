"""Experiments: from a TOML file to tuned, repeated and compared training runs in a folder that
survives anything.
"""
