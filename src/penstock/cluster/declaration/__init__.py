"""A cluster as it was written, and its completion with defaults."""

from penstock.cluster.declaration.completion import complete
from penstock.cluster.declaration.declared import (
    UNLIMITED,
    Traits,
    WrittenCluster,
    WrittenDevice,
    WrittenHost,
    WrittenLink,
    WrittenWire,
)

__all__ = [
    "UNLIMITED",
    "Traits",
    "WrittenCluster",
    "WrittenDevice",
    "WrittenHost",
    "WrittenLink",
    "WrittenWire",
    "complete",
]
