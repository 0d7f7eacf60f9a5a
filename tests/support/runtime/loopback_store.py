"""Stores for process groups that need no agreed port.

The kernel chooses the port when this process binds it, and this process keeps it bound for as long as the store lives.
No other process can take the port between choosing it and listening on it.
"""

import socket
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

LOOPBACK = "127.0.0.1"


def host_store(timeout_s: float = 60.0) -> TCPStore:
    """Start a store on the loopback interface. It serves until it is deleted; its clients connect to `store.port`."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def connect_store(port: int, timeout_s: float = 60.0) -> TCPStore:
    """Connect to a store that another process hosts."""
    return TCPStore(LOOPBACK, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def rendezvous_environment(port: int, rank: int, num_ranks: int) -> dict[str, str]:
    """Environment variables with which `init_process_group` joins through a hosted store, as under torchrun."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
