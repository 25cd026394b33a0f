"""`python -m fedasym` is the `fedasym` command."""

from fedasym.cli import main

main()
