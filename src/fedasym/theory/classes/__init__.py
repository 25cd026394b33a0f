"""Classification: limits of accuracy and log-loss when clients train a last layer with the logistic
or softmax loss.
"""
