"""`python -m penstock`: the command line, for those who start it by torchrun."""

from penstock.cli.main import main

main()
