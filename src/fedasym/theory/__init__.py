"""The theory lens: exact limits of each client's test loss. NumPy, float64."""
