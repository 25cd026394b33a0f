"""The advisor for class labels: centre and radius from labels, accuracies with intervals, doubts, a quick measurement."""
