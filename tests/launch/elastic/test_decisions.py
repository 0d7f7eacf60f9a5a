"""What a failed run means for an elastic one: which devices are lost, which plans are wanted, when it ends."""

import signal

import pytest

from penstock.errors import InputError
from penstock.launch.elastic.decisions import (
    Absence,
    PlanChange,
    due_checks,
    effective_changes,
    find_loss,
    wanted_losses,
    why_not,
)
from penstock.launch.elastic.elastic_options import ElasticOptions
from penstock.launch.runs import Exited, Failed, Run
from penstock.launch.runs.rank_state import RankState


def _run(*failures: Failed | Exited | None) -> Run:
    ranks = [RankState(rank, device=f"d{rank}") for rank in range(len(failures))]
    for state, item in zip(ranks, failures, strict=True):
        if isinstance(item, Failed):
            state.failed = item
        elif item is not None:
            state.exited = item
    return Run(ranks, exit_code=1)


LOST_PEER = Failed("PeerLost", "the connection is lost", is_peer_lost=True)


@pytest.mark.parametrize(
    ("failures", "lost"),
    [
        ((LOST_PEER, Exited(-signal.SIGKILL), LOST_PEER), "d1"),
        ((Exited(-signal.SIGTERM, was_stopped=True), LOST_PEER, Exited(0)), "d2"),
        ((Failed("RuntimeError", "device error"), LOST_PEER), "d0"),
        ((Failed("InputError", "wrong", is_input=True), LOST_PEER), None),
        ((LOST_PEER, Failed("MemoryError", "too little")), None),
    ],
)
def test_the_device_of_the_first_cause_is_lost_unless_it_would_fail_again(
    failures: tuple[Failed | Exited | None, ...], lost: str | None
) -> None:
    found = find_loss(_run(*failures))
    assert (None if found is None else set(found.devices)) == (None if lost is None else {lost})


def test_all_devices_of_a_lost_host_are_lost() -> None:
    run = _run(LOST_PEER, None, None)
    run.ranks[1].is_lost = run.ranks[2].is_lost = True
    run.ended_why = "host b is lost"
    found = find_loss(run)
    assert found is not None
    assert (sorted(found.devices), found.why) == (["d1", "d2"], "host b is lost")


def test_every_single_loss_and_every_return_is_planned_for() -> None:
    hosts = {"a": "x", "b": "x", "c": "y", "d": "y"}
    wanted = [sorted(item) for item in wanted_losses(hosts, frozenset("c"), ["b", "d"], 1)]
    assert wanted == [["b", "c"], ["c", "d"], ["a", "c"], ["a", "b", "c"], []]
    assert frozenset("abc") not in wanted_losses(hosts, frozenset("c"), ["b", "d"], 2)


def test_limits_and_checks() -> None:
    assert why_not(4, 3, 1, 1, 10) == ""
    assert why_not(4, 3, 1, 2, 10) == "1 device remains; --min-devices is 2."
    assert "--max-restarts is 0" in why_not(4, 1, 1, 1, 0)
    assert why_not(2, 2, 1, 0, 10).startswith("0 devices remain")
    absences = {"a": Absence(10.0), "b": Absence(5.0), "c": Absence(0.0, 4)}
    assert due_checks(absences, 40.0, 30.0) == ["b", "a"]
    assert due_checks(absences, 250.0, 30.0) == ["c", "b", "a"]
    changes = [PlanChange(3, frozenset("a")), PlanChange(3, frozenset("ab")), PlanChange(5, frozenset("b"))]
    assert effective_changes(changes) == changes[1:]


@pytest.mark.parametrize(
    ("options", "nnodes", "what"),
    [
        (ElasticOptions(peer_copies=1), 1, "--peer-copies requires --elastic"),
        (ElasticOptions(True, min_devices=3), 1, "--min-devices"),
        (ElasticOptions(True), 2, "--elastic requires --nnodes 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: ElasticOptions, nnodes: int, what: str) -> None:
    with pytest.raises(InputError, match=what):
        options.check(2, nnodes)
