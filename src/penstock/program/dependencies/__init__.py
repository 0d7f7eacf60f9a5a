"""The dependency graph: between passes, between the actions of a program, and of its transfers."""

from penstock.program.dependencies.messages import match_messages, sends_and_consumers
from penstock.program.dependencies.needs import Needs, Ties, find_needs
from penstock.program.dependencies.passes import PassEdges, find_pass_edges, passes_from, passes_to
from penstock.program.dependencies.replica_syncs import ReplicaSyncs, find_replica_syncs
from penstock.program.dependencies.transfers import Dependencies, Lists, find_dependencies

__all__ = [
    "Dependencies",
    "Lists",
    "Needs",
    "PassEdges",
    "ReplicaSyncs",
    "Ties",
    "find_dependencies",
    "find_needs",
    "find_pass_edges",
    "find_replica_syncs",
    "match_messages",
    "passes_from",
    "passes_to",
    "sends_and_consumers",
]
