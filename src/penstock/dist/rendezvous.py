"""Rendezvous of ranks.

Ranks that Penstock starts on one host use a file in a directory that only their user can open, and gloo and NCCL
listen on the loopback interface only: nothing is reachable from the network. Ranks that torchrun starts use its store
(MASTER_ADDR and MASTER_PORT).
"""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.dist.directory_store import DirectoryStore

RENDEZVOUS_DIR = "PENSTOCK_RENDEZVOUS_DIR"
"""The environment variable with the rendezvous directory of the ranks of one host."""
_STORE = "store"
_STATUS = "status"


def local_environment(folder: Path, interface: str | None = None) -> dict[str, str]:
    """Create a private rendezvous directory and return the environment of its ranks.

    Args:
        folder: The directory of the run. It must belong to this user alone.
        interface: The network interface for messages between ranks; the loopback interface if None.
    """
    private = folder / "rendezvous"
    private.mkdir(mode=0o700, exist_ok=True)
    name = interface or loopback_interface()
    sockets = {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name} if name else {}
    return {RENDEZVOUS_DIR: str(private), **sockets}


def rank_environments(num_ranks: int, folder: Path, **settings: str) -> list[dict[str, str]]:
    """The environments of ranks that all run on this host.

    Args:
        num_ranks: The number of ranks.
        folder: A directory that only this user can open.
        **settings: Variables to set where the environment of this process does not.
    """
    shared = settings | os.environ | local_environment(folder)
    return [
        {
            **shared,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "GROUP_RANK": "0",
        }
        for rank in range(num_ranks)
    ]


def loopback_interface() -> str | None:
    """The name of the loopback interface, or None where it is not called `lo` or `lo0`."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)


def is_local() -> bool:
    """Whether the ranks of this run rendezvous through a directory of this host."""
    return RENDEZVOUS_DIR in os.environ


def join_process_group(backend: str, timeout_s: float) -> None:
    """Call `torch.distributed.init_process_group` for the rank that the environment describes.

    Args:
        backend: The backend, as torch.distributed names it.
        timeout_s: How long to wait for other ranks, now and in every collective call.
    """
    import torch.distributed as dist

    limit = timedelta(seconds=timeout_s)
    if not is_local():
        name = loopback_interface()
        if name and os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
            # All ranks are on this host: its own name may not resolve, and loopback always works.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        dist.init_process_group(backend, timeout=limit)
        return
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(Path(os.environ[RENDEZVOUS_DIR]) / _STORE), world_size)  # type: ignore[attr-defined]
    store.set_timeout(limit)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)


def open_status_store(prefix: str) -> Any:
    """Open a store for values that change all the time, with a connection of its own."""
    if is_local():
        return DirectoryStore(Path(os.environ[RENDEZVOUS_DIR]) / _STATUS / prefix.replace("/", "-"))
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    return PrefixStore(prefix, _get_default_store().clone())  # type: ignore[attr-defined]
