"""Copies of the training state in the memory of hosts, from which training goes on after a loss without a disk.

After every K-th step each rank writes its part of the state into memory that outlives its process, and sends what only
its host has to a rank of another host. The ranks that go on, under the same plan or another one, read from the memory
of their own host, and move over the network only what that lacks.
"""

from penstock.runtime.state.copies.choice import CopyChoice, FoundPart, choose_copies
from penstock.runtime.state.copies.placement import CopyPlan, place_copies
from penstock.runtime.state.copies.state_copies import LoadedCopy, StateCopies

__all__ = [
    "CopyChoice",
    "CopyPlan",
    "FoundPart",
    "LoadedCopy",
    "StateCopies",
    "choose_copies",
    "place_copies",
]
