"""Answers that print themselves."""
