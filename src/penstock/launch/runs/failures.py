"""One error for a run that failed, however many ranks failed with it."""

import signal
import socket
from collections.abc import Sequence

from penstock.errors import InputError, PenstockError, RunError
from penstock.launch.runs.events import Failed
from penstock.launch.runs.first_cause import find_first_cause, is_silent
from penstock.launch.runs.rank_state import RankState, Run
from penstock.units import show_seconds

MAX_LINES = 15


class RunFailed(RunError):  # noqa: N818
    """A run of several ranks has failed. The message is that of the rank that failed first."""

    def __init__(self, what: str, *, where: str = "", hint: str = "", table: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.table = table
        """What each rank did last."""

    def __str__(self) -> str:
        return "\n".join(filter(None, (super().__str__(), self.table)))


def find_failure(run: Run) -> PenstockError | None:
    """The error of a run, or None if it has not failed. It names the rank that failed first (`first_cause.py`)."""
    if run.was_stopped and not any(state.failed for state in run.ranks):
        return None
    if run.ended_why:
        return RunFailed(f"{run.ended_why}; all ranks were stopped", table=status_table(run.ranks, None))
    cause = find_first_cause(run.ranks, run.first_exited)
    if cause is None:
        if run.exit_code == 0 or run.was_stopped:
            return None
        return RunFailed(f"the ranks did not start (exit code {run.exit_code}){_tail(run.log)}")
    if cause.failed is not None and cause.failed.is_input:
        return _input_error(run.ranks, cause, cause.failed)
    table = status_table(run.ranks, cause)
    if not table:
        failures = [state.failed for state in run.ranks if state.failed is not None]
        table = next((failed.status_table for failed in failures if failed.status_table), "")
    if cause.failed is not None:
        return _reported_error(cause, cause.failed, table)
    was_awaited = any(state.failed is not None and state.failed.is_timeout for state in run.ranks)
    if cause.is_stopped or (was_awaited and not is_silent(cause)):
        return _hanging_error(run.ranks, cause, table)
    return _lost_error(run, cause, table)


def status_table(ranks: Sequence[RankState], cause: RankState | None) -> str:
    """The table with what each rank did last; empty if no rank has a status board."""
    if all(state.status is None for state in ranks):
        return ""
    rows: list[tuple[str, ...]] = [("rank", "host", "device", "phase", "last action", "for", "")]
    rows += [_row(state, cause) for state in ranks]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["Last status of each rank:", *(f"  {line}" for line in lines)])


def _row(state: RankState, cause: RankState | None) -> tuple[str, ...]:
    status = state.status
    how = f"failed first: {_end(state)}" if state is cause else _end(state)
    if status is None:
        return str(state.rank), state.host, state.device, "" if state.is_lost else "not started", "", "", how
    phase = status.phase.name.lower().replace("_", "-")
    if status.step >= 0:
        phase += f" {status.step}" if status.phase == status.phase.STEP else f" (step {status.step})"
    action = ": ".join(filter(None, ("waiting" if status.is_waiting else "", status.action)))
    device = status.device or state.device
    return str(state.rank), state.host, device, phase, action, show_seconds(status.for_s), how


def _end(state: RankState) -> str:
    """How a rank ended, if not because of another one."""
    if state.is_lost:
        return "host lost"
    if state.is_stopped:
        return "stopped by a signal"
    if is_silent(state) and state.exited is not None:
        number = state.exited.signal
        return f"exit code {state.exited.code}" if number is None else _signal_name(number)
    return "" if state.failed is None else state.failed.kind


def _input_error(ranks: Sequence[RankState], cause: RankState, failed: Failed) -> InputError:
    """The error of invalid input. Ranks that check the same input fail together, and the lowest speaks for all."""
    same = [state.failed for state in ranks if state.failed is not None and state.failed.is_input]
    if len(same) > 1 or len(ranks) == 1 or cause.status is None:
        return InputError(same[0].what, where=same[0].where, hint=same[0].hint)
    only = f"Rank {cause.rank} failed first, {cause.when}{cause.place}."
    return InputError(failed.what, where=failed.where, hint="\n  ".join(filter(None, (failed.hint, only))))


def _reported_error(cause: RankState, failed: Failed, table: str) -> RunFailed:
    """The error of a rank that reported it itself."""
    what = failed.what
    if failed.kind == "MemoryError":
        detail = f": {failed.detail}" if failed.detail else ""
        what = f"rank {cause.rank} ran out of memory {cause.when}{cause.place}{detail}"
    elif cause.status is not None and not what.startswith(f"rank {cause.rank} "):
        table = f"Rank {cause.rank} failed first, {cause.when}{cause.place}.\n{table}"
    return RunFailed(what, where=failed.where, hint=failed.hint, table=table)


def _hanging_error(ranks: Sequence[RankState], cause: RankState, table: str) -> RunFailed:
    """The error of a rank that did not answer, and has not ended by itself."""
    for_s = f" for {show_seconds(cause.status.for_s)}" if cause.status is not None else ""
    missed = next((state.failed.what for state in ranks if state.failed is not None and state.failed.is_timeout), "")
    seen = f"; {missed}" if missed else ""
    if cause.is_stopped:
        what = f"rank {cause.rank} was stopped by a signal such as SIGSTOP {cause.when}{cause.place}{seen}"
        return RunFailed(what, hint="Find out which process sent the signal.", table=table)
    what = f"rank {cause.rank} did not answer{for_s} {cause.when}{cause.place}{seen}"
    return RunFailed(what, hint="If it is only slow, use a longer timeout.", table=table)


def _lost_error(run: Run, cause: RankState, table: str) -> RunFailed:
    """The error of a rank that ended without reporting one."""
    where, exited = f"{cause.when}{cause.place}", cause.exited
    name = f"rank {cause.rank}"
    if exited is None:
        return RunFailed(f"{name} exited {where} without an error message; all ranks were stopped", table=table)
    if not exited.code:
        return RunFailed(
            f"{name} exited with code 0 {where}, before its work was done; all ranks were stopped", table=table
        )
    if exited.signal is not None:
        what = f"{name} was killed by {_signal_name(exited.signal)} {where}; all ranks were stopped"
        return RunFailed(what, hint=_memory_hint(run, cause) if exited.signal == signal.SIGKILL else "", table=table)
    what = f"{name} exited with code {exited.code} {where}; all ranks were stopped{_tail(cause.output)}"
    return RunFailed(what, table=table)


def _memory_hint(run: Run, cause: RankState) -> str:
    if run.memory_kills is None or cause.host != socket.gethostname():
        return "The host may be out of memory: see its system log."
    if run.memory_kills:
        return "The kernel has killed a process of this host for lack of memory meanwhile: see its system log."
    return "The kernel has not killed a process for lack of memory meanwhile: another process sent the signal."


def _tail(output: str) -> str:
    lines = output.strip().splitlines()[-MAX_LINES:]
    return "; its last output:\n  " + "\n  ".join(lines) if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
