"""Training on real client data: the client-data noun, the algorithms' stochastic forms and their
evaluation.
"""
