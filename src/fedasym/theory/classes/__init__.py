"""Classification: limits of accuracy and log-loss of last layers trained by softmax loss."""
