"""The declaration of a cluster in a file or spec, and its completion with defaults."""

from penstock.cluster.declaration.completion import complete
from penstock.cluster.declaration.types import (
    UNLIMITED,
    ClusterDeclaration,
    DeviceDeclaration,
    HostDeclaration,
    LinkDeclaration,
    Traits,
    WireDeclaration,
)

__all__ = [
    "UNLIMITED",
    "ClusterDeclaration",
    "DeviceDeclaration",
    "HostDeclaration",
    "LinkDeclaration",
    "Traits",
    "WireDeclaration",
    "complete",
]
