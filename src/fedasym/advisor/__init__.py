"""The advisor: estimate a population from federated data, predict every algorithm, recommend,
doubt, and say how to check.

`fa.advise` is the verb. In a federation whose samples may not move, each client calls
`federated.summarise` at home (for classes `federated.summarise_classes`) and the server calls
`fa.advise` with what they sent.
"""
