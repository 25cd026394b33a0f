"""How a command that is stopped ends."""

STOPPED = 130  # the exit code after Ctrl-C
