"""Training on real client data: algorithms in their stochastic form, and their evaluation."""
