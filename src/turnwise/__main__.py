"""`python -m turnwise` is the command line."""

from turnwise.cli.main import main

main()
