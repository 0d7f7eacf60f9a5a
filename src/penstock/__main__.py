"""`python -m penstock`: the command line, for use with torchrun."""

from penstock.cli.main import main

main()
