"""Point-to-point messages between ranks, and the process groups that carry them."""

from penstock.runtime.transport.process_groups import (
    ProcessGroups,
    connect_pairs,
    make_ring_groups,
    open_control_group,
    open_process_groups,
    select_backend,
)
from penstock.runtime.transport.protocol import PendingReceive, Transport
from penstock.runtime.transport.shared_memory import SHARED_MEMORY_MIN_BYTES
from penstock.runtime.transport.transport import SendTensors, TorchTransport, TransportHooks

__all__ = [
    "SHARED_MEMORY_MIN_BYTES",
    "PendingReceive",
    "ProcessGroups",
    "SendTensors",
    "TorchTransport",
    "Transport",
    "TransportHooks",
    "connect_pairs",
    "make_ring_groups",
    "open_control_group",
    "open_process_groups",
    "select_backend",
]
