"""The processes of an emulation: one keeps the network, and starts a rank for every device inside its namespace.

    whoever started it ── keeper ── first process of a namespace of processes ──┬── rank 0
                                                                              ├── rank 1 ...

Each is killed by the kernel when the one before it ends, and when the first process of its namespace has gone, the
kernel kills all that are left in it. So however an emulation ends, nothing of it stays.
"""

import mmap
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.emulation.network import Built, Network, build, die_with_parent, enter, leave_host
from penstock.emulation.spec import Emulation

POLL_S = 0.02
PORT = 29500
LAST_WORDS_S = 10.0
"""So long ranks may go on when one has gone: they fail by themselves, and tell what they missed."""


@dataclass(frozen=True)
class Meeting:
    """Where ranks meet, and over which interface they talk."""

    address: str
    port: int
    interface: str


RankMain = Callable[[int, Meeting, Callable[[int], None]], int]
"""What a rank does: its number, where all meet, what to call when a step begins; gives its exit code."""


@dataclass(frozen=True)
class Told:
    """Who is told what happens, in the process in which it does."""

    failed: Callable[[BaseException], None]
    """Something kept the ranks from running."""
    changed: Callable[[int], None]
    """Links have another bandwidth now: the number of the fault."""


def run_world(emulation: Emulation, rank_main: RankMain, tell: Told) -> int:
    """Run all ranks to their end; gives 0 if all went well.

    Ranks that sleep come before all other work of this machine: they must wake up on time, and need little else of it.
    """
    if emulation.script is None:
        with suppress(OSError):  # where that is not allowed
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    if not emulation.is_shaped:
        return _Keeper(emulation, None, Meeting("127.0.0.1", _free_port(), "lo"), tell).run(rank_main)
    leave_host()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        # The parent's number is not known in the new namespace: there it is 0 as long as it lives.
        die_with_parent(0 if os.getpid() == 1 else parent)
        built = build(Network(emulation.cluster, emulation.devices, emulation.slow_down))
        code = _Keeper(emulation, built, Meeting(built.network.address(0), PORT, "eth0"), tell).run(rank_main)
    except BaseException as error:
        tell.failed(error)
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Keeper:
    """Starts ranks, waits for them, and lets links degrade when it is time."""

    def __init__(self, emulation: Emulation, built: Built | None, meeting: Meeting, tell: Told) -> None:
        self._emulation = emulation
        self._built = built
        self._meeting = meeting
        self._tell = tell
        self._began = mmap.mmap(-1, 8)
        """When the first step began, for all processes."""
        self._faults = sorted(enumerate(emulation.faults.links), key=lambda item: item[1].at_s, reverse=True)

    def run(self, rank_main: RankMain) -> int:
        """All of it; gives the exit code."""
        running = {self._start(rank, rank_main): rank for rank in range(len(self._emulation.devices))}
        code, deadline = 0, float("inf")
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                rank, ended = running.pop(pid), os.waitstatus_to_exitcode(status)
                if ended:
                    # As torchrun writes it.
                    sys.stderr.write(f"rank : {rank} (local_rank: {rank})\n  exitcode : {ended}\n")
                    code, deadline = code or 1, min(deadline, time.monotonic() + LAST_WORDS_S)
            elif not pid:
                self._degrade()
                time.sleep(POLL_S)
            if time.monotonic() > deadline:
                for left in running:
                    os.kill(left, signal.SIGKILL)
                deadline = float("inf")
        return code

    def _start(self, rank: int, rank_main: RankMain) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            die_with_parent(parent)
            if self._built is not None:
                enter(self._built.devices[rank])
            code = rank_main(rank, self._meeting, self._note_begin)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _note_begin(self, step: int) -> None:
        if step == 0:
            self._began[:8] = struct.pack("d", time.monotonic())

    def _degrade(self) -> None:
        began_s = struct.unpack("d", self._began[:8])[0]
        if self._built is None or not began_s or not self._faults:
            return
        if time.monotonic() >= began_s + self._faults[-1][1].at_s * self._emulation.slow_down:
            number, fault = self._faults.pop()
            places = {name: rank for rank, name in enumerate(self._emulation.devices)}
            for source, target in fault.links:
                self._built.change_link(places[source], places[target], fault.factor)
            self._tell.changed(number)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
