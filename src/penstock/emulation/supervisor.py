"""The supervisor of an emulation: owns the network, and starts a rank for every device inside its namespace.

    launcher ── supervisor ── first process of a PID namespace ──┬── rank 0
                                                                ├── rank 1 ...

All are processes of `penstock.dist.Launcher`, forked so that ranks share torch and the tensors' memory. The kernel
kills each process when its parent exits, and all processes of a PID namespace when the first one exits.
No process remains after an emulation, no matter how it ends.
"""

import mmap
import os
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.dist import Launcher, Process, sigterm_as_ctrl_c
from penstock.emulation.network import BuiltNetwork, Network, build_network, enter_namespace, leave_host
from penstock.emulation.spec import Emulation

POLL_S = 0.02

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
    """A rank has ended: its number, its exit code, and whether the launcher ended it."""


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

    def run_inside() -> int:
        try:
            built = build_network(Network(emulation.cluster, emulation.devices, emulation.slow_down))
            return _Supervisor(emulation, built, "eth0", events).run(rank_main)
        except BaseException as error:
            events.failed(error)
            return 1

    with Launcher() as launcher, sigterm_as_ctrl_c():
        launcher.fork(run_inside)
        launcher.wait()
        return launcher.exit_code


class _Supervisor:
    """Starts ranks, waits for them, and degrades links meanwhile."""

    def __init__(
        self, emulation: Emulation, built: BuiltNetwork | None, interface: str, events: SupervisorEvents
    ) -> None:
        self._emulation = emulation
        self._built = built
        self._interface = interface
        self._events = events
        self._began = mmap.mmap(-1, 8)
        """Start of the first step, shared by all processes."""
        if emulation.began_s:
            self._began[:8] = struct.pack("d", emulation.began_s)
        scenario = emulation.scenario
        links = (*emulation.faults.links, *(scenario.link_faults(emulation.devices) if scenario else ()))
        self._faults = sorted(enumerate(links), key=lambda item: item[1].at_s, reverse=True)
        kills = scenario.of("kill") if scenario else ()
        self._kills = [item for item in kills if item.at_s > emulation.resumed_s]

    def run(self, rank_main: RankMain) -> int:
        """Start all ranks and wait for them. Return the exit code."""
        with Launcher(self._report_exit, poll_s=POLL_S) as launcher, sigterm_as_ctrl_c():
            for rank in range(len(self._emulation.devices)):
                launcher.fork(partial(self._run_rank, rank, rank_main))
            launcher.wait(lambda: self._play(launcher))
            return 1 if launcher.exit_code else 0

    def _run_rank(self, rank: int, rank_main: RankMain) -> int:
        if self._built is not None:
            enter_namespace(self._built.devices[rank])
        return rank_main(rank, self._interface, self._note_begin)

    def _report_exit(self, process: Process) -> None:
        assert process.code is not None, "the launcher reports processes that have ended"
        self._events.exited(process.number, process.code, process.was_stopped)

    def _note_begin(self, _step: int) -> None:
        if not struct.unpack("d", self._began[:8])[0]:
            self._began[:8] = struct.pack("d", time.monotonic())

    def _play(self, launcher: Launcher) -> None:
        """Change links and kill ranks when it is time."""
        began_s = struct.unpack("d", self._began[:8])[0]
        if not began_s:
            return
        now_s = (time.monotonic() - began_s) / self._emulation.slow_down
        rank_of = {name: rank for rank, name in enumerate(self._emulation.devices)}
        while self._built is not None and self._faults and self._faults[-1][1].at_s <= now_s:
            number, fault = self._faults.pop()
            for source, target in fault.links:
                self._built.change_link(rank_of[source], rank_of[target], fault.factor)
            self._events.changed(number)
        while self._kills and self._kills[0].at_s <= now_s:
            kill = self._kills.pop(0)
            if kill.device in rank_of:
                with suppress(ProcessLookupError):
                    os.kill(launcher.processes[rank_of[kill.device]].handle.pid, signal.SIGKILL)
