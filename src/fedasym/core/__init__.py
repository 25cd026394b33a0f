"""What every part stands on: errors, numbers, text, files, progress."""
