"""The supervisor of an emulation: owns the network, and starts a rank for every device inside its namespace.

    launcher ── supervisor ── first process of a PID namespace ──┬── rank 0
                                                                ├── rank 1 ...

The kernel kills each process when its parent exits, and all processes of a PID namespace when the first one exits.
However an emulation ends, no process of it remains.
"""

import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.emulation.network import (
    BuiltNetwork,
    Network,
    build_network,
    die_with_parent,
    enter_namespace,
    leave_host,
)
from penstock.emulation.spec import Emulation

POLL_S = 0.02
SHUTDOWN_S = 10.0
"""Time for the other ranks to fail by themselves and report, after one has exited. Then they are killed."""


RankMain = Callable[[int, str, Callable[[int], None]], int]
"""Runs a rank: its number, its network interface, and a callback for the begin of each step; returns an exit code."""


@dataclass(frozen=True)
class SupervisorEvents:
    """Callbacks of the supervisor, called in the process in which the event happens."""

    failed: Callable[[BaseException], None]
    """The ranks could not be started."""
    changed: Callable[[int], None]
    """A link fault has taken effect: its index."""
    exited: Callable[[int, int, bool], None]
    """A rank has ended: its number, its exit code, and whether the supervisor ended it."""


def run_ranks(emulation: Emulation, rank_main: RankMain, events: SupervisorEvents) -> int:
    """Run all ranks until they exit.

    Ranks that sleep get real-time priority: they must wake up on time, and need little processor time.

    Args:
        emulation: The emulation.
        rank_main: Runs one rank.
        events: Callbacks.

    Returns:
        0 if all ranks succeeded.
    """
    if emulation.script is None:
        with suppress(OSError):  # without permission
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    if not emulation.is_shaped:
        return _Supervisor(emulation, None, "lo", events).run(rank_main)
    leave_host()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        # The parent is outside the new PID namespace, where its id is 0.
        die_with_parent(0 if os.getpid() == 1 else parent)
        built = build_network(Network(emulation.cluster, emulation.devices, emulation.slow_down))
        code = _Supervisor(emulation, built, "eth0", events).run(rank_main)
    except BaseException as error:
        events.failed(error)
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Supervisor:
    """Starts ranks, waits for them, and degrades links."""

    def __init__(
        self, emulation: Emulation, built: BuiltNetwork | None, interface: str, events: SupervisorEvents
    ) -> None:
        self._emulation = emulation
        self._built = built
        self._interface = interface
        self._events = events
        self._began = mmap.mmap(-1, 8)
        """Start of the first step, shared by all processes."""
        self._faults = sorted(enumerate(emulation.faults.links), key=lambda item: item[1].at_s, reverse=True)

    def run(self, rank_main: RankMain) -> int:
        """Start all ranks and wait for them. Return the exit code."""
        running = {self._start(rank, rank_main): rank for rank in range(len(self._emulation.devices))}
        code, deadline, is_killing = 0, float("inf"), False
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                rank, ended = running.pop(pid), os.waitstatus_to_exitcode(status)
                self._events.exited(rank, ended, is_killing and ended == -signal.SIGKILL)
                if ended:
                    code, deadline = code or 1, min(deadline, time.monotonic() + SHUTDOWN_S)
            elif not pid:
                self._degrade()
                time.sleep(POLL_S)
            if time.monotonic() > deadline:
                for left in running:
                    os.kill(left, signal.SIGKILL)
                deadline, is_killing = float("inf"), True
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
                enter_namespace(self._built.devices[rank])
            code = rank_main(rank, self._interface, self._note_begin)
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
            rank_of = {name: rank for rank, name in enumerate(self._emulation.devices)}
            for source, target in fault.links:
                self._built.change_link(rank_of[source], rank_of[target], fault.factor)
            self._events.changed(number)
