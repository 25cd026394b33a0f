"""Builds the documentation as static pages: Markdown to HTML, the reference from the code; no
network, faults are errors.
"""
