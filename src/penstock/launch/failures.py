"""One message for a run that failed, however many ranks failed with it."""

import re
import signal

from penstock.errors import InputError, PenstockError, RunError
from penstock.launch.process import RankState, Run

_FAILURE = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")
"""How torchrun's report names a rank and how it ended."""
MOST_LINES = 15


class RunFailed(RunError):  # noqa: N818
    """A run of several ranks has failed; the message is that of the rank where it began."""

    table = ""
    """What each rank did last."""

    def __str__(self) -> str:
        return "\n".join(filter(None, (super().__str__(), self.table)))


def failure_of(run: Run) -> PenstockError | None:
    """What went wrong, or None; of a run that failed on its way also what each rank did last, if one of them knew."""
    found = _first_failure(run)
    tables = [state.failed.table for state in run.ranks if state.failed and "\n" in state.failed.table]
    if isinstance(found, RunFailed) and tables:
        found.table = tables[0]
    return found


def _first_failure(run: Run) -> PenstockError | None:
    """What must be mended in the input comes before what follows from it."""
    failed = [state for state in run.ranks if state.failed is not None]
    for state in failed:
        assert state.failed is not None
        if state.failed.is_input:
            return _error(state.failed.text, is_input=True)
    # A rank that was lost is why others miss it.
    lost = _lost(run)
    if lost is not None:
        return lost
    # Somebody who only waited in vain says less than somebody who failed.
    failed.sort(key=lambda state: (state.failed is not None and state.failed.kind == "PeerLost", state.rank))
    if failed:
        assert failed[0].failed is not None
        return _error(failed[0].failed.text, is_input=False)
    if run.exit_code == 0 or run.was_stopped:
        return None
    last = "\n  ".join(run.log.strip().splitlines()[-MOST_LINES:])
    return RunFailed(f"the ranks did not run (torchrun's exit code is {run.exit_code}); it said last:\n  {last}")


def _error(text: str, *, is_input: bool) -> PenstockError:
    what, _, hint = text.partition("\n  ")
    return InputError(what, hint=hint) if is_input else RunFailed(what, hint=hint)


def _lost(run: Run) -> RunFailed | None:
    """The rank that ended without a word, if there is one, and not because torchrun ended it after others."""
    codes = {int(rank): int(code) for rank, code in _FAILURE.findall(run.log)}
    silent = [state for state in run.ranks if state.failed is None and not state.is_done]
    lost = [state for state in silent if codes.get(state.rank, 0) not in (0, -signal.SIGTERM, 128 + signal.SIGTERM)]
    told = [state.failed.kind for state in run.ranks if state.failed is not None]
    if not lost and told and all(kind == "PeerLost" for kind in told):
        lost = silent
    if run.was_stopped or not lost:
        return None
    state, code = lost[0], codes.get(lost[0].rank, 0)
    how = f"was ended by {_signal_name(-code)}" if code < 0 else "ended without a word"
    how += f" (exit code {code})" if code > 0 else ""
    hint = "Perhaps the host ran out of memory: see its system log." if code == -signal.SIGKILL else ""
    return RunFailed(f"rank {state.rank} {how}, {_when(state)}; so the others were ended too", hint=hint)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _when(state: RankState) -> str:
    return "before its first step" if state.step is None else f"at step {state.step}"
