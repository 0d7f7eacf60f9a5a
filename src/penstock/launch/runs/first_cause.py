"""The first cause: of all ranks that ended with a run, the one that failed first.

When one rank fails, the others lose their connections or wait in vain, and fail too. In this order:

1. Ranks that failed by themselves: killed by a signal, ended without an error message, or with an error other than a
   lost connection or a timeout. The earliest of them is the cause.
2. A rank that is stopped (SIGSTOP).
3. Of ranks that did not fail, one that others waited for in vain: it is behind them, or in the same step without
   waiting itself.
4. A rank whose end nobody saw, if all others lost their connections.
5. Otherwise the earliest of the errors that name another rank.
"""

from collections.abc import Sequence

from penstock.launch.runs.rank_state import RankState

NEVER_S = float("inf")


def is_silent(state: RankState) -> bool:
    """Whether a rank ended by itself, without an error and without having finished."""
    exited = state.exited
    return exited is not None and not exited.was_stopped and state.failed is None and not state.is_done


def has_own_error(state: RankState) -> bool:
    """Whether a rank reported an error that does not merely name another rank."""
    return state.failed is not None and not state.failed.is_peer_lost and not state.failed.is_timeout


def is_certain(ranks: Sequence[RankState]) -> bool:
    """Whether the cause is known: nothing that other ranks report later can change it."""
    return any(is_silent(state) or has_own_error(state) or state.is_stopped for state in ranks)


def find_first_cause(ranks: Sequence[RankState], first_exited: int | None = None) -> RankState | None:
    """The rank that failed first, or None if none has.

    Args:
        ranks: All ranks.
        first_exited: The rank whose process was first to end with a failure, if known.
    """
    own = [state for state in ranks if is_silent(state) or has_own_error(state)]
    if own:
        return min(own, key=lambda state: (_failed_s(state), state.rank != first_exited, state.rank))
    stopped = [state for state in ranks if state.is_stopped]
    if stopped:
        return stopped[0]
    failed = [state for state in ranks if state.failed is not None]
    if any(state.failed is not None and state.failed.is_timeout for state in failed):
        hanging = find_hanging(ranks)
        if hanging is not None:
            return hanging
    elif failed:
        gone = [state for state in ranks if state.failed is None and not state.is_done and state.exited is None]
        if gone:
            return gone[0]
    return min(
        failed,
        key=lambda state: (state.failed is None or state.failed.is_peer_lost, _failed_s(state), state.rank),
        default=None,
    )


def find_hanging(ranks: Sequence[RankState]) -> RankState | None:
    """The rank that others have waited for in vain, if their boards show it."""
    open_ones = [state for state in ranks if state.status is not None and state.failed is None and not state.is_done]
    waiting = [state for state in ranks if state.status is not None and state.status.is_waiting]
    silent = [state for state in open_ones if state.status is not None and not state.status.is_waiting]
    if not silent or not waiting:
        return None
    return min(silent, key=lambda state: (*_progress(state), -_for_s(state), state.rank))


def _progress(state: RankState) -> tuple[int, int]:
    assert state.status is not None
    phase = state.status.phase
    # Steps and saves alternate.
    return (min(phase, phase.STEP) if phase != phase.SHUTDOWN else phase, state.status.step)


def _for_s(state: RankState) -> float:
    return 0.0 if state.status is None else state.status.for_s


def _failed_s(state: RankState) -> float:
    """When a rank failed, on the clock of its host; never, if that is not known."""
    if state.failed is not None and state.status is not None and state.status.failed_s is not None:
        return state.status.failed_s
    return NEVER_S if state.exited is None or not state.exited.at_s else state.exited.at_s
