"""The link between the commands that train on several hosts: `penstock train` on host 0, and on each other host.

Host 0 listens at the rendezvous address, and the others connect. Over the link they wait for each other before any rank
starts, pass on where the ranks meet, tell each other twice a second that they live, end together, and exchange what
their ranks did, so that all report the same error. A host that sends nothing for `LOST_S` is lost.

A connection that does not begin with a valid `Join` is closed.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.dist import HostPlace, interface_of, is_loopback
from penstock.errors import MismatchError, RunError
from penstock.launch.runs.host_messages import (
    LOST_S,
    Beat,
    End,
    Ended,
    Go,
    HostConnection,
    Join,
    Message,
    Missing,
    Refused,
    Result,
    StopAsked,
    Store,
)
from penstock.launch.runs.rank_state import RankState

BEAT_S = 0.5
POLL_S = 0.05
END_S = 12.0
"""How long hosts wait for the ranks of others to end, once the run is ending."""


class HostLink:
    """One host's end of the link (`host_ends.py` has the two kinds). A context manager.

    Args:
        own: This host.
        nnodes: The number of hosts.
        endpoint: Address and port of host 0.
    """

    def __init__(self, own: Join, nnodes: int, endpoint: tuple[str, int]) -> None:
        self._own = own
        self.first_address = ""
        """The address of host 0, once all hosts are there."""
        self._nnodes = nnodes
        self._endpoint = endpoint
        self._peers: dict[int, HostConnection] = {}
        """By node rank: on host 0 all others, on the others host 0."""
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._joined: dict[int, Join] = {own.node_rank: own}
        self._ended: dict[int, tuple[RankState, ...]] = {}
        self._result: tuple[RankState, ...] | None = None
        self._go: Go | None = None
        self._refused: Refused | None = None
        self._missing: tuple[int, ...] = ()
        self.store_port: int | None = None
        """The port of the store, once it is known."""
        self.stop_signal = ""
        """The signal by which another host was asked to finish the step, save and end."""
        self.end_why: str | None = None
        """Why the run ends, once it does; empty if the ranks tell."""
        self.is_end_certain = False
        """Whether nothing that ranks report later can change the cause."""
        self.lost: set[int] = set()
        """Hosts that are lost."""

    def __enter__(self) -> "HostLink":
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for connection in list(self._peers.values()):
            connection.close()
        for thread in self._threads:
            thread.join(1.0)

    def join(self, timeout_s: float, on_progress: Callable[[str], None]) -> HostPlace:
        """Wait until all hosts are there.

        Args:
            timeout_s: The deadline.
            on_progress: Called now and then with what is missing.

        Raises:
            FileError: Host 0 cannot listen at the port.
            MismatchError: Hosts train different things.
            RunError: A host is not there in time.
        """
        end_s = time.monotonic() + timeout_s
        began_s = time.monotonic()
        self._begin()
        self._start(self._send_beats)
        while self._go is None:
            if self._refused is not None:
                raise MismatchError(self._refused.what, hint=self._refused.hint)
            now_s = time.monotonic()
            if now_s > end_s:
                raise self._missing_error(timeout_s)
            on_progress(f"waiting for {self._show_missing()} ({now_s - began_s:.0f} s)")
            time.sleep(POLL_S)
        first = next(iter(self._peers.values()))
        own_address = next(
            (item.local_address for item in self._peers.values() if not is_loopback(item.local_address)),
            first.local_address,
        )
        self.first_address = own_address if self._own.node_rank == 0 else first.peer_address
        numbers = [host.num_ranks for host in self._go.hosts]
        interface = None if is_loopback(own_address) else interface_of(own_address)
        return HostPlace(
            sum(numbers[: self._own.node_rank]), sum(numbers), self._own.node_rank, self._nnodes, interface
        )

    def _begin(self) -> None:
        """Begin to listen or to connect."""
        raise NotImplementedError

    def look(self) -> None:
        """Find hosts that are lost. A lost host ends the run."""
        now_s = time.monotonic()
        for number, connection in list(self._peers.items()):
            is_silent = now_s - connection.heard_s > LOST_S
            if (is_silent or connection.is_closed) and number not in self.lost and number not in self._ended:
                if self._result is not None:
                    continue
                self.lost.add(number)
                name = self._joined[number].host if number in self._joined else f"host {number}"
                how = f"sent nothing for {LOST_S:g} s" if is_silent else "closed its connection"
                self.end(is_certain=True, why=f"host {name} (node rank {number}) is lost: it {how}")

    def end(self, why: str = "", *, is_certain: bool = False) -> None:
        """End the run on all hosts."""
        if self.end_why is None:
            self.end_why = why
        self.is_end_certain = self.is_end_certain or is_certain
        self._send(End(self.end_why, self.is_end_certain))

    def share_store(self, port: int) -> None:
        """Tell the others where the store is."""
        self.store_port = port
        self._send(Store(port))

    def ask_to_stop(self, name: str) -> None:
        """Tell host 0 that a signal asks for the end."""
        self.stop_signal = name
        self._send(StopAsked(name))

    def exchange(self, own: Sequence[RankState]) -> tuple[RankState, ...] | None:
        """Return the ranks of all hosts, once all have ended; None if host 0 is lost before it could tell.

        Args:
            own: The ranks of this host.
        """
        self._ended[self._own.node_rank] = tuple(own)
        self._send(Ended(tuple(own)))
        ending_since_s: float | None = None
        while self._result is None:
            self.look()
            if self._own.node_rank:
                if 0 in self.lost:
                    return None
            elif len(self._ended.keys() | self.lost) == self._nnodes:
                self._finish()
                break
            now_s = time.monotonic()
            if self.end_why is not None:
                ending_since_s = ending_since_s or now_s
                if now_s - ending_since_s > END_S:
                    if self._own.node_rank:
                        return None
                    self._finish()
                    break
            time.sleep(POLL_S)
        return self._result

    def lost_ranks(self) -> list[RankState]:
        """The ranks of hosts that are lost."""
        if self._go is None:
            return []
        firsts = [sum(host.num_ranks for host in self._go.hosts[:number]) for number in range(self._nnodes)]
        return [
            RankState(firsts[number] + local, local, host=self._go.hosts[number].host, is_lost=True)
            for number in sorted(self.lost)
            for local in range(self._go.hosts[number].num_ranks)
        ]

    def _finish(self) -> None:
        ended = [state for states in self._ended.values() for state in states]
        self._result = tuple(sorted([*ended, *self.lost_ranks()], key=lambda state: state.rank))
        self._send(Result(self._result))

    def _send(self, message: Message) -> None:
        for connection in list(self._peers.values()):
            connection.send(message)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="penstock-hosts", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send_beats(self) -> None:
        while not self._is_over.wait(BEAT_S):
            self._send(Beat() if self._go is not None else Missing(self._not_joined()))

    def _receive_all(self, number: int, connection: HostConnection) -> None:
        with suppress(ValueError, KeyError):
            while (message := connection.receive()) is not None:
                self._note(number, message)
        connection.close()

    def _note(self, number: int, message: Message) -> None:
        match message:
            case Go():
                self._joined = {host.node_rank: host for host in message.hosts}
                self._go = message
            case Refused():
                self._refused = message
            case Missing():
                self._missing = message.node_ranks
            case Store():
                self.store_port = message.port
            case StopAsked():
                self.stop_signal = message.signal
            case End():
                self.end_why = message.why if self.end_why is None else self.end_why
                self.is_end_certain = self.is_end_certain or message.is_certain
                if not self._own.node_rank:
                    self._send(message)
            case Ended():
                self._ended[number] = message.ranks
            case Result():
                self._result = message.ranks

    def _not_joined(self) -> tuple[int, ...]:
        return tuple(number for number in range(self._nnodes) if number not in self._joined)

    def _show_missing(self) -> str:
        if self._own.node_rank and not self._peers:
            return f"host 0 at {self._endpoint[0]}:{self._endpoint[1]}"
        numbers = self._missing if self._own.node_rank else self._not_joined()
        return f"node rank {', '.join(map(str, numbers))} of {self._nnodes} hosts"

    def _missing_error(self, timeout_s: float) -> RunError:
        return RunError(
            f"{self._show_missing()} did not join within {timeout_s:g} s",
            hint="Start the same command there, or wait longer with --startup-timeout.",
        )
