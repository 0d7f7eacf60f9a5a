"""penstock cluster: show a cluster, measure one, or import one from other tools."""

from penstock.cli.commands.cluster.group import command

__all__ = ["command"]
