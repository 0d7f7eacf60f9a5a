"""The error of an emulation in which ranks were killed on request, and the time of what was measured."""

import msgspec
import numpy as np
import pytest

from penstock.emulation.faults import Faults, KilledRank
from penstock.errors import InputError, PenstockError
from penstock.launch.emulation import _find_failure, _timeline
from penstock.launch.runs.events import Exited, Failed, Sampled
from penstock.launch.runs.failures import RunFailed
from penstock.launch.runs.rank_state import RankState, Run
from tests.support.small_emulation import small

TABLE = "Last status of each rank:\n  ..."


def failure_of(
    steps: list[int], *killed: KilledRank, failed: Failed | None = None, done: tuple[int, ...] = (), script: str = ""
) -> PenstockError | None:
    """The error of a run in which ranks reached these steps. Killed ranks have the exit status of the signal."""
    emulation = msgspec.structs.replace(small(), faults=Faults(killed=killed), script=script or None)
    run = Run([RankState(rank, step=step, is_done=rank in done) for rank, step in enumerate(steps)], exit_code=1)
    for item in killed:
        if run.ranks[item.rank].step == item.step and item.rank not in done:
            run.ranks[item.rank].exited = Exited(-9)
    run.ranks[0].failed = failed
    return _find_failure(emulation, run)


def test_killed_ranks_are_named_with_their_options() -> None:
    lost = Failed("PeerLost", "rank 0: the connection is lost", is_peer_lost=True, status_table=TABLE)
    error = failure_of([1, 1, 1, 1], KilledRank(2, 1), failed=lost)
    assert isinstance(error, RunFailed)
    what = "rank 2 (d2) was killed at the start of step 1, as requested by --kill 2@1; all ranks were stopped"
    assert (error.what, error.hint, error.table) == (what, "", TABLE)
    error = failure_of([1, 1, 1, 1], KilledRank(1, 1), KilledRank(3, 1), failed=lost)
    assert error is not None
    assert error.what == (
        "rank 1 (d1) and rank 3 (d3) were killed at the start of step 1, as requested by --kill 1@1 --kill 3@1; "
        "all ranks were stopped"
    )


def test_the_status_of_ranks_that_compute_may_be_older() -> None:
    error = failure_of([0, 0, 0, 0], KilledRank(0, 0), script="model.py")
    assert error is not None
    assert "half a second older" in error.hint


@pytest.mark.parametrize("steps", [[0, 0, 0, 0], [1, 1, 1, 2]])
def test_a_rank_that_did_not_reach_its_step_is_not_blamed(steps: list[int]) -> None:
    failed = Failed("RuntimeTimeout", "rank 0: timed out")
    error = failure_of(steps, KilledRank(3, 1), failed=failed)
    assert error is not None
    assert error.what == "rank 0: timed out"
    # Nor one that has finished its work.
    error = failure_of([1, 1, 1, 1], KilledRank(3, 1), failed=failed, done=(3,))
    assert error is not None
    assert error.what == "rank 0: timed out"


def test_invalid_input_comes_first() -> None:
    error = failure_of([1, 1, 1, 1], KilledRank(2, 1), failed=Failed("InputError", "no", is_input=True))
    assert isinstance(error, InputError)
    assert error.what == "no"


@pytest.mark.parametrize("step", [0, 1])
def test_measured_times_are_those_of_the_cluster(step: int) -> None:
    emulation = msgspec.structs.replace(small(), slow_down=4.0)
    predicted = emulation.evaluation.timeline
    sample = Sampled(step, tuple((4 * predicted.start_s).tolist()), tuple((4 * predicted.end_s).tolist()))
    measured = _timeline(emulation, sample)
    assert np.allclose(measured.start_s, predicted.start_s)
    assert np.allclose(measured.end_s, predicted.end_s)
    assert (measured.origin, measured.is_warm_up) == ("measured", step == 0)
