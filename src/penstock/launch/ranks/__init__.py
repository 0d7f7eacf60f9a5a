"""Entry points of the processes that the launcher starts."""
