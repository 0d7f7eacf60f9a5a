"""The decisions of elastic training, as functions of what is known: no clock, no process, no file."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.launch.runs import Failed, Run, find_first_cause
from penstock.units import show_count

FATAL = ("MemoryError", "OutOfMemoryError", "FileError", "ProofError", "MemoryLimitError", "MismatchError")
"""Errors of a rank that would come again on any device: lack of memory, files, and invalid input."""
MAX_DOUBLINGS = 6


class Loss(NamedTuple):
    """Devices that a run has lost, and why."""

    devices: frozenset[str]
    why: str


class Absence(NamedTuple):
    """A lost device."""

    since_s: float
    num_losses: int = 1
    """How often it has been lost."""

    def check_s(self, after_s: float) -> float:
        """When to check it: later each time that it is lost, so that a device that fails again and again is left alone.

        Args:
            after_s: Seconds until the check after the first loss.

        >>> Absence(100.0).check_s(30.0), Absence(100.0, 3).check_s(30.0)
        (130.0, 220.0)
        """
        return self.since_s + after_s * 2.0 ** min(self.num_losses - 1, MAX_DOUBLINGS)


class PlanChange(NamedTuple):
    """A change of the plan during a run."""

    step: int
    """The first step with the new plan."""
    lost: frozenset[str]
    """The devices that are lost from then on; empty: the plan of the begin."""
    why: str = ""
    num_lost_steps: int = 0
    """Finished steps that are repeated."""
    waited_s: float = 0.0
    """Seconds for which the run waited for the plan."""
    first_step_s: float = 0.0
    """When the first step with the new plan was finished, in seconds since the epoch; 0 if none was."""


def effective_changes(changes: Sequence[PlanChange]) -> list[PlanChange]:
    """The changes after which steps count: of several at the same step, the last.

    >>> first, second = PlanChange(3, frozenset("a")), PlanChange(3, frozenset("ab"))
    >>> effective_changes([first, second]) == [second]
    True
    """
    return list({change.step: change for change in changes}.values())


def is_recoverable(failed: Failed | None) -> bool:
    """Whether training can go on without a rank that ended so, rather than fail again in the same way.

    Args:
        failed: The error that the rank reported; None if it ended without one, as by a signal.
    """
    return failed is None or not (failed.is_input or failed.kind in FATAL)


def find_loss(run: Run) -> Loss | None:
    """The devices that a run which has failed has lost. None if it cannot go on without them.

    Args:
        run: The run, with the device of each rank.
    """
    hosts = frozenset(state.device for state in run.ranks if state.is_lost and state.device)
    if hosts:
        return Loss(hosts, run.ended_why)
    cause = find_first_cause(run.ranks, run.first_exited)
    if cause is None or not is_recoverable(cause.failed):
        return None
    device = (cause.status.device if cause.status is not None else "") or cause.device
    return Loss(frozenset((device,)), "") if device else None


def why_not(num_devices: int, num_lost: int, num_restarts: int, minimum: int, max_restarts: int) -> str:
    """Why a run ends with a loss; empty if it goes on.

    Args:
        num_devices: All devices.
        num_lost: Those that are lost now.
        num_restarts: The losses of the run so far.
        minimum: The fewest devices to train on.
        max_restarts: The most losses to go on after.

    >>> why_not(4, 2, 3, 1, 2)
    'This was loss 3 of the run; --max-restarts is 2.'
    """
    if num_restarts > max_restarts:
        return f"This was loss {num_restarts} of the run; --max-restarts is {max_restarts}."
    remaining = num_devices - num_lost
    if remaining < max(1, minimum):
        verb = "remains" if remaining == 1 else "remain"
        return f"{show_count(remaining, 'device')} {verb}; --min-devices is {minimum}."
    return ""


def due_checks(absences: Mapping[str, Absence], now_s: float, after_s: float) -> list[str]:
    """The lost devices to check now, the one that is lost for longest first."""
    due = [name for name, absence in absences.items() if absence.check_s(after_s) <= now_s]
    return sorted(due, key=lambda name: (absences[name].since_s, name))


def wanted_losses(
    devices: Mapping[str, str], lost: frozenset[str], in_use: Collection[str], minimum: int
) -> list[frozenset[str]]:
    """The sets of lost devices to plan for in advance: each single loss from here, and each single return.

    Args:
        devices: The host of each device.
        lost: What is lost now.
        in_use: Devices of the present plan, whose losses come first.
        minimum: The fewest devices to train on.

    Example:
        >>> hosts = {"a": "x", "b": "x", "c": "y"}
        >>> [sorted(item) for item in wanted_losses(hosts, frozenset("c"), ["b"], 1)]
        [['b', 'c'], ['a', 'c'], []]
    """
    remaining = [name for name in devices if name not in lost]
    singles = sorted(remaining, key=lambda name: name not in in_use)
    sets = [lost | {name} for name in singles]
    for host in dict.fromkeys(devices[name] for name in remaining):
        sets.append(lost | {name for name in remaining if devices[name] == host})
    sets += [lost - {name} for name in sorted(lost)]
    fitting = [item for item in sets if len(devices) - len(item) >= max(1, minimum)]
    return list(dict.fromkeys(fitting))
