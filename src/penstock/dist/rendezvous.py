"""Rendezvous of ranks.

Ranks that Penstock starts on one host use a file in a directory that only their user can open, and gloo and NCCL
listen on the loopback interface only: nothing is reachable from the network.

On several hosts rank 0 hosts the store of torch.distributed at a free port. The launchers pass the port on, and each
writes it to a file that the ranks of its host wait for. Ranks that torchrun starts use its store (MASTER_ADDR and
MASTER_PORT).
"""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.dist.directory_store import DirectoryStore
from penstock.dist.interfaces import address_towards, interface_of, is_loopback
from penstock.errors import RuntimeTimeout

RENDEZVOUS_DIR = "PENSTOCK_RENDEZVOUS_DIR"
"""The environment variable with the rendezvous directory of the ranks of one host."""
STORE_FILE = "PENSTOCK_STORE_FILE"
"""The environment variable with the file that tells the ranks of one of several hosts where the store is."""
ADDRESS_POLL_S = 0.05
LAZY_GLOO = "TORCH_GLOO_LAZY_INIT"
"""The environment variable that torch reads when a gloo group is created."""
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


@dataclass(frozen=True)
class HostPlace:
    """The place of a host's ranks among those of several hosts."""

    first_rank: int
    world_size: int
    node_rank: int
    nnodes: int
    interface: str | None
    """The interface that leads to the other hosts, if known."""


def store_file(folder: Path) -> Path:
    """The file that tells the ranks of a host where the store is: address and port."""
    return folder / "store-address"


def write_store_file(folder: Path, address: str, port: int) -> None:
    """Tell the ranks of this host where the store is."""
    unfinished = folder / "store-address.new"
    unfinished.write_text(f"{address} {port}")
    unfinished.replace(store_file(folder))


def rank_environments(
    num_ranks: int, folder: Path, place: HostPlace | None = None, **settings: str
) -> list[dict[str, str]]:
    """The environments of ranks of this host.

    Args:
        num_ranks: The number of ranks on this host.
        folder: A directory that only this user can open.
        place: Their place among the ranks of several hosts. None: all ranks are on this host.
        **settings: Variables to set where the environment of this process does not.
    """
    if place is None:
        place, meeting = HostPlace(0, num_ranks, 0, 1, None), local_environment(folder)
    else:
        meeting = {STORE_FILE: str(store_file(folder))}
        if place.interface is not None:
            names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
            settings = {**dict.fromkeys(names, place.interface), **settings}
    shared = settings | os.environ | meeting
    return [
        {
            **shared,
            "RANK": str(place.first_rank + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(place.world_size),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "GROUP_RANK": str(place.node_rank),
            "GROUP_WORLD_SIZE": str(place.nnodes),
        }
        for local_rank in range(num_ranks)
    ]


def loopback_interface() -> str | None:
    """The name of the loopback interface, or None where it is not called `lo` or `lo0`."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)


def is_local() -> bool:
    """Whether the ranks of this run rendezvous through a directory of this host."""
    return RENDEZVOUS_DIR in os.environ


def join_process_group(
    backend: str, timeout_s: float, startup_timeout_s: float | None = None, *, lazily: bool = False
) -> None:
    """Call `torch.distributed.init_process_group` for the rank that the environment describes.

    Args:
        backend: The backend, as torch.distributed names it.
        timeout_s: How long to wait for other ranks in every collective call.
        startup_timeout_s: How long to wait until all ranks are there. None: `timeout_s`, in each part of joining.
        lazily: Whether gloo connects two ranks when they first exchange something, instead of all at once.

    Raises:
        RuntimeTimeout: Ranks are not there in time; the error names them.
    """
    import torch.distributed as dist

    limit = timedelta(seconds=timeout_s)
    raise_connection_limit()
    connecting = connect_when_used() if lazily else nullcontext()
    store = _open_store(timeout_s if startup_timeout_s is None else startup_timeout_s)
    if store is None:
        _select_interface()
        with connecting:
            dist.init_process_group(backend, timeout=limit)
        return
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if startup_timeout_s is not None:
        _await_ranks(store, rank, world_size, startup_timeout_s)
    store.set_timeout(limit)
    with connecting:
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)


def _open_store(timeout_s: float) -> Any:
    """Open the store of ranks that Penstock has started; None for other ranks."""
    from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if is_local():
        return FileStore(str(Path(os.environ[RENDEZVOUS_DIR]) / _STORE), world_size)
    if STORE_FILE not in os.environ:
        return None
    path, limit = Path(os.environ[STORE_FILE]), timedelta(seconds=timeout_s)
    if os.environ["RANK"] == "0":
        store = TCPStore("127.0.0.1", 0, world_size, is_master=True, timeout=limit, wait_for_workers=False)
        write_store_file(path.parent, "127.0.0.1", store.port)
        return store
    end_s = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > end_s:
            raise RuntimeTimeout(
                f"rank {os.environ['RANK']}: rank 0 has not started within {timeout_s:g} s",
                hint="Check its output, or wait longer with --startup-timeout.",
            )
        time.sleep(ADDRESS_POLL_S)
    address, port = path.read_text().split()
    return TCPStore(address, int(port), world_size, is_master=False, timeout=limit, wait_for_workers=False)


def _await_ranks(store: Any, rank: int, world_size: int, timeout_s: float) -> None:
    """Wait until all ranks are there: some may read a larger part of the model, or start later."""
    store.set(f"penstock/ready/{rank}", "1")
    if store.add("penstock/ready", 1) == world_size:
        store.set("penstock/all-ready", "1")
    try:
        store.wait(["penstock/all-ready"], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if "imed out" not in str(error) and "imeout" not in str(error):
            raise
        missing = [str(peer) for peer in range(world_size) if not store.check([f"penstock/ready/{peer}"])]
        raise RuntimeTimeout(
            f"rank {rank}, joining the other ranks: rank {', '.join(missing)} not there after {timeout_s:g} s",
            hint="Check what it does, or wait longer with --startup-timeout.",
        ) from error


def _select_interface() -> None:
    """Choose gloo's interface for ranks that torchrun has started. By default gloo uses that of the host's own name."""
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        # All ranks are on this host: its own name may not resolve, and loopback always works.
        name = loopback_interface()
    else:
        address = address_towards(os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "1")))
        name = None if address is None or is_loopback(address) else interface_of(address)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def open_status_store(prefix: str) -> Any:
    """Open a store for values that change all the time, with a connection of its own."""
    if is_local():
        return DirectoryStore(Path(os.environ[RENDEZVOUS_DIR]) / _STATUS / prefix.replace("/", "-"))
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    return PrefixStore(prefix, _get_default_store().clone())  # type: ignore[attr-defined]


@contextmanager
def connect_when_used() -> Iterator[None]:
    """Let gloo groups that are created in the context connect two ranks at their first message.

    By default a group connects every rank with every other one. At 1,024 ranks these are more connections than a
    process may have open. The side that gloo has chosen to connect blocks until the other one uses the connection, too.
    """
    before = os.environ.get(LAZY_GLOO)
    os.environ[LAZY_GLOO] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[LAZY_GLOO]
        else:
            os.environ[LAZY_GLOO] = before


def raise_connection_limit() -> None:
    """Allow as many open connections as the system permits. Rank 0 may host a store that all ranks connect to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
