"""Advice for plans that do not fit into memory, checked by hand."""

from dataclasses import replace

import msgspec
import pytest

from penstock.errors import MemoryLimitError
from penstock.plan.shapes import Shape
from penstock.planners.problem import Problem
from penstock.planners.registry import find_planner
from penstock.planners.studies.memory_advice import advise_on_memory
from penstock.planners.studies.memory_floor import memory_floor, more_devices
from penstock.profile.types import Profile, Tie
from penstock.program.proof.proof import check_memory
from penstock.simulate.evaluation import evaluate
from tests.support.small import equal_profile, one_host

PROFILE = equal_profile(4, parameter_bytes=10, saved_bytes=100)
"""With gradients and optimizer state a layer needs four times its parameters: 40 bytes; and 100 for each row."""


def _advice(problem: Problem, planner: str = "uniform") -> list[str]:
    plan = find_planner(planner).plan(problem)
    proof = evaluate(plan, problem.profile, problem.cluster, within_memory=False).proof
    with pytest.raises(MemoryLimitError):
        check_memory(proof)
    return advise_on_memory(problem, proof)


def test_recomputation_and_more_devices_by_hand() -> None:
    # Two layers per device: 80 bytes of state, and 200 for each of two micro-batches, which GPipe keeps: 480.
    problem = Problem(PROFILE, one_host(2, memory_bytes=300), 2, schedule="gpipe")
    assert "d1 needs 480 B" in _error(problem) or "d0 needs 480 B" in _error(problem)
    lines = _advice(problem)
    # Only the (empty) input is kept, and one micro-batch at a time is recomputed: 280. Forwards on d0
    # 0-4, on d1 2-6; then R and B on d1 6-8-12 and 12-14-18, on d0 4-6, 12-16, 16-18 and 18-22.
    assert "with --recompute it fits (fullest device at 280 B of 300 B, iteration 22.0 s)" in lines
    # One layer per device: 40 + 2 x 100; on three devices the first one still has two. (2 + 4 - 1) x 3 seconds.
    assert (
        "with 2 more devices like d1 (4 in total) it fits (fullest device at 240 B of 300 B, iteration 15.0 s)" in lines
    )
    # One micro-batch at a time fits as well.
    assert lines[0].startswith("with --schedule auto it fits (fullest device at 280 B of 300 B, ")
    assert lines[-1] == "not tried: --planner auto, which searches for plans that fit"
    assert len(lines) == 4


def _error(problem: Problem) -> str:
    plan = find_planner("uniform").plan(problem)
    with pytest.raises(MemoryLimitError) as caught:
        evaluate(plan, problem.profile, problem.cluster)
    return caught.value.what


def test_smaller_micro_batches_by_hand() -> None:
    # 1F1B keeps two micro-batches on d0: 80 + 2 x 200 x rows, so 1680, 880 and 480. (8 + 2 - 1) x 6 seconds.
    problem = Problem(PROFILE, one_host(2, memory_bytes=500), 2, micro_batch_size=4)
    lines = _advice(problem)
    assert "with 8 micro-batches of 1 row it fits (fullest device at 480 B of 500 B, iteration 54.0 s)" in lines
    # Recomputing, one micro-batch of four rows is 80 + 800.
    assert "with --recompute it is still 380 B short" in lines
    # One layer per device is the limit: 40 + 2 x 400.
    assert "with 14 more devices like d1 (16 in total) it is still 340 B short" in lines
    sizes: list[int] = []

    def at(rows: int) -> Profile:
        sizes.append(rows)
        return msgspec.structs.replace(PROFILE, micro_batch_size=rows)

    plan = find_planner("uniform").plan(problem)
    proof = evaluate(plan, PROFILE, problem.cluster, within_memory=False).proof
    lines = advise_on_memory(problem, proof, profile_at=at)
    assert "with --micro-batch-size 1 -m 8 it fits (fullest device at 480 B of 500 B, iteration 54.0 s)" in lines
    assert sizes == [2, 1]


def test_recompute_with_smaller_micro_batches() -> None:
    # 80 + 200 x rows when recomputing: 280 with one row, where 1F1B keeps two micro-batches of 200.
    lines = _advice(Problem(PROFILE, one_host(2, memory_bytes=300), 2, micro_batch_size=2))
    assert "with --recompute it is still 180 B short" in lines
    assert "with 4 micro-batches of 1 row it is still 180 B short" in lines
    assert any(line.startswith("with --recompute and 4 micro-batches of 1 row it fits (") for line in lines)


def test_no_change_is_enough() -> None:
    lines = _advice(Problem(PROFILE, one_host(4, memory_bytes=100), 1, recompute=True, schedule="auto"))
    # One layer per device needs 40 + 100.
    assert lines[0] == "with 28 more devices like d3 (32 in total) it is still 40 B short"
    assert lines[1] == "none of these changes is enough"


def test_memory_floor_by_hand() -> None:
    # Four layers of 40 bytes on two devices of 60.
    problem = Problem(PROFILE, one_host(2, memory_bytes=60), 1)
    floor = memory_floor(problem)
    assert floor is not None
    assert floor.least_devices == 3
    lines = _advice(problem)
    assert lines[0] == (
        "no plan can fit: parameters, gradients and optimizer state need 160 B, and all devices together have 120 B"
    )
    assert lines[1].endswith("add at least 1 more device like d1 (3 in total)")
    # Of 3, 6 and 12 devices at most four are used: 40 + 100 each.
    assert lines[2:] == [
        "with 10 more devices like d1 (12 in total) it is still 80 B short",
        "none of these changes is enough",
    ]
    tied = msgspec.structs.replace(PROFILE, ties=(Tie(name="t", parameter_bytes=10, units=(0, 3)),))
    assert memory_floor(replace(problem, profile=tied)) is None  # 120 B are enough for shared parameters
    assert memory_floor(replace(problem, cluster=one_host(2, memory_bytes=[0, None]))) is None


def test_layer_that_fits_on_no_device() -> None:
    lines = _advice(Problem(PROFILE, one_host(8, memory_bytes=39), 1))
    assert lines[0].startswith("no plan can fit: layer u0 alone needs 40 B for its parameters, ")
    assert lines[1].endswith("use devices with more memory")
    assert len(lines) == 2
    none = memory_floor(Problem(PROFILE, one_host(2, memory_bytes=[100, 0]), 1))
    assert none is not None
    assert none.least_devices is None


def test_advice_for_auto() -> None:
    problem = Problem(PROFILE, one_host(2, memory_bytes=300), 2, micro_batch_size=2, schedule="auto")
    plan = msgspec.structs.replace(find_planner("balanced").plan(problem), planner="auto")
    proof = evaluate(plan, PROFILE, problem.cluster, within_memory=False).proof
    lines = advise_on_memory(problem, proof)
    # Auto decides about recomputation itself: the trials are smaller micro-batches and more devices.
    assert lines[0].startswith("with 4 micro-batches of 1 row it fits ")
    assert lines[1].startswith("with 1 more device like d1 (3 in total) it fits ")
    assert len(lines) == 2


def test_advice_states_the_shape() -> None:
    problem = Problem(PROFILE, one_host(2, memory_bytes=300), 4, schedule="zb_v", shape=Shape.V, num_chunks=2)
    assert _advice(problem)[0].startswith("with --schedule auto --shape v --chunks 2 it ")


def test_large_problems_are_not_tried() -> None:
    problem = Problem(PROFILE, one_host(2, memory_bytes=170), 1)
    proof = evaluate(find_planner("uniform").plan(problem), PROFILE, problem.cluster, within_memory=False).proof
    assert advise_on_memory(replace(problem, num_microbatches=60_000), proof) == []


def test_added_devices_get_unique_names() -> None:
    cluster = one_host(2, memory_bytes=5)
    taken = msgspec.structs.replace(
        cluster, devices=(msgspec.structs.replace(cluster.devices[0], name="d1+1"), cluster.devices[1])
    )
    grown = more_devices(taken, 4)
    assert [device.name for device in grown.devices] == ["d1+1", "d1", "d1+2", "d1+3"]
    assert {device.memory_bytes for device in grown.devices} == {5}
    assert more_devices(cluster, 2) == cluster
