"""One error for a run that failed, however many ranks failed with it."""

import signal

from penstock.errors import InputError, PenstockError, RunError
from penstock.launch.runs.events import Failed
from penstock.launch.runs.rank_run import RankState, Run

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
    """The error of a run, or None if it has not failed.

    Invalid input comes first, then a rank that ended without reporting an error, then the error of a rank, if possible
    one that did not merely lose its connection to another.
    """
    failures = [state.failed for state in run.ranks if state.failed is not None]
    for failed in failures:
        if failed.is_input:
            return InputError(failed.what, where=failed.where, hint=failed.hint)
    table = next((failed.status_table for failed in failures if failed.status_table), "")
    lost = _find_lost_rank(run, failures)
    if lost is not None:
        return _lost_error(lost, table)
    if failures:
        failed = min(failures, key=lambda item: item.is_peer_lost)
        return RunFailed(failed.what, where=failed.where, hint=failed.hint, table=table)
    if run.exit_code == 0 or run.was_stopped:
        return None
    return RunFailed(f"the ranks did not start (exit code {run.exit_code}){_tail(run.log)}")


def _find_lost_rank(run: Run, failures: list[Failed]) -> RankState | None:
    """The rank that ended without reporting an error, and that the launcher did not end."""
    if run.was_stopped:
        return None
    silent = [state for state in run.ranks if state.failed is None and not state.is_done]
    lost = [state for state in silent if state.exited and state.exited.code and not state.exited.was_stopped]
    if not lost and failures and all(failed.is_peer_lost for failed in failures):
        lost = silent
    return min(lost, key=lambda state: (state.rank != run.first_exited, state.rank), default=None)


def _lost_error(state: RankState, table: str) -> RunFailed:
    when = "before its first step" if state.step is None else f"at step {state.step}"
    exited = state.exited
    if exited is None or not exited.code:
        return RunFailed(
            f"rank {state.rank} exited {when} without an error message; all ranks were stopped", table=table
        )
    if exited.signal is not None:
        hint = "The host may be out of memory: see its system log." if exited.signal == signal.SIGKILL else ""
        what = f"rank {state.rank} was killed by {_signal_name(exited.signal)} {when}; all ranks were stopped"
        return RunFailed(what, hint=hint, table=table)
    what = f"rank {state.rank} exited with code {exited.code} {when}; all ranks were stopped{_tail(state.output)}"
    return RunFailed(what, table=table)


def _tail(output: str) -> str:
    lines = output.strip().splitlines()[-MAX_LINES:]
    return "; its last output:\n  " + "\n  ".join(lines) if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
