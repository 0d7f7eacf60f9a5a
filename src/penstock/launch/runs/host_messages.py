"""Messages between the commands of several hosts (`host_link.py`), and a connection that carries them.

A message is a line of MessagePack as text.
"""

import socket
import threading
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import TypeAlias

import msgspec

from penstock.launch.runs.rank_state import RankState

LOST_S = 5.0
"""A host that sends nothing for this long is lost."""
MAX_LINE_BYTES = 1 << 24


class Join(msgspec.Struct, frozen=True, tag="join"):
    """A host is there."""

    node_rank: int
    host: str
    num_ranks: int
    run: str
    """What it trains. It must be the same everywhere."""


class Go(msgspec.Struct, frozen=True, tag="go"):
    """All hosts are there."""

    hosts: tuple[Join, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Hosts do not fit together."""

    what: str
    hint: str


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """Hosts that are not there yet."""

    node_ranks: tuple[int, ...]


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The host lives."""


class Store(msgspec.Struct, frozen=True, tag="store"):
    """The port at which rank 0 hosts the store of torch.distributed."""

    port: int


class StopAsked(msgspec.Struct, frozen=True, tag="stop_asked"):
    """A signal asked this host to finish the step, save, and end."""

    signal: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """The run ends: a rank has failed, or a host is lost."""

    why: str = ""
    """Empty if the ranks tell."""
    is_certain: bool = False
    """Whether nothing that other ranks report later can change the cause."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """All ranks of this host have ended."""

    ranks: tuple[RankState, ...]


class Result(msgspec.Struct, frozen=True, tag="result"):
    """All ranks of all hosts have ended, or are lost."""

    ranks: tuple[RankState, ...]


Message: TypeAlias = Join | Go | Refused | Missing | Beat | Store | StopAsked | End | Ended | Result


class HostConnection:
    """Messages over a socket. One thread receives; any thread sends."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(LOST_S)
        self._socket = connected
        self._lock = threading.Lock()
        self._rest = b""
        self.heard_s = time.monotonic()
        self.is_closed = False
        self.local_address = str(connected.getsockname()[0])
        self.peer_address = str(connected.getpeername()[0])

    def send(self, message: Message) -> None:
        """Send a message. A connection that cannot send is lost, which `heard_s` shows."""
        with self._lock, suppress(OSError):
            self._socket.sendall(b64encode(msgspec.msgpack.encode(message)) + b"\n")

    def receive(self) -> Message | None:
        """Return the next message; None if the connection is closed or sends nothing for too long.

        Raises:
            ValueError: The other end sends something else.
        """
        while b"\n" not in self._rest:
            if len(self._rest) > MAX_LINE_BYTES:
                raise ValueError("a line without end")
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._rest += data
            self.heard_s = time.monotonic()
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message: Message = msgspec.msgpack.decode(b64decode(line), type=Message)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        return message

    def close(self) -> None:
        """Close it; a thread that receives gets None."""
        self.is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
